"""The runs of a sweep file as Ray tasks.

    python -m bqrl.ray FILE.toml --address auto

Each task makes one run, by the same code that `bqrl sweep FILE.toml` calls, and writes the same bytes. A task whose worker dies is retried
by Ray and goes on from its last checkpoint, so nothing is lost but the episodes since then. All nodes must have this package installed and see
`--out` under the same path. Ray is not installed with this package: `pip install 'bqrl[ray]'`.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import Any

from . import _bqrl

__all__ = ["main", "sweep"]


def _ray() -> Any:
    # By name: type checkers need not find what most users do not have.
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise ImportError("bqrl.ray needs Ray, which is not installed: pip install 'bqrl[ray]'") from error


def _make(text: str, origin: str, k: int, out: str, directory: str) -> None:
    """One run, in a worker. It uses one thread, as the task asks for one core."""
    os.environ.setdefault("RAYON_NUM_THREADS", "1")
    if os.path.isdir(directory):
        os.chdir(directory)  # Where the files of problems are looked for.
    from bqrl import _bqrl

    _bqrl.Sweep(text, origin).run(k, out)


def sweep(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    max_retries: int = 3,
    quiet: bool = False,
) -> Path:
    """Makes the runs of a sweep file that are not finished, on the Ray that is connected, and returns the path of their table.

    Call `ray.init(…)` first, or let Ray start itself. Ctrl-C stops all runs after a checkpoint; calling again goes on.

    Args:
        file: a sweep file, as `bqrl sweep` takes it.
        out: where the runs are written; default runs/FILE. Every node must see it.
        max_retries: ≥ 0, how often a run is tried again after its worker died; -1 for ever.
        quiet: no progress on standard error.

    Raises:
        ValueError: the file is wrong, or runs with other settings are in the way. Nothing was started.
        RuntimeError: runs failed; the others are finished and in the table.
    """
    if max_retries < -1:
        raise ValueError(f"max_retries must be at least -1, got {max_retries}")
    ray = _ray()
    file = Path(file)
    contents, origin = file.read_bytes(), str(file)
    text = contents.decode()
    root = (Path("runs") / file.stem if out is None else Path(out)).absolute()
    plan = _bqrl.Sweep(text, origin)
    names = plan.names()
    due = [k for k in range(len(names)) if not plan.is_finished(k, root)]
    root.mkdir(parents=True, exist_ok=True)
    (root / "sweep.toml").write_bytes(contents)

    make = ray.remote(num_cpus=1, max_retries=max_retries)(_make)
    tasks = {make.options(name=names[k]).remote(text, origin, k, str(root), os.getcwd()): k for k in due}
    failed: dict[str, BaseException] = {}
    open_tasks = list(tasks)
    try:
        while open_tasks:
            (done,), open_tasks = ray.wait(open_tasks, num_returns=1)
            name = names[tasks[done]]
            try:
                ray.get(done)
            except ray.exceptions.RayError as error:
                failed[name] = error
            if not quiet:
                state = "failed" if name in failed else "finished"
                print(f"{len(names) - len(open_tasks)}/{len(names)} runs · {name} {state}", file=sys.stderr)
    except BaseException:
        # Workers are told to stop, as by Ctrl-C, and leave a checkpoint each; those that wait never begin.
        for task in open_tasks:
            ray.cancel(task, force=False)
        if open_tasks:
            ray.wait(open_tasks, num_returns=len(open_tasks), timeout=30)
        raise
    table, missing = plan.collect(root)
    if failed:
        name, why = next(iter(failed.items()))
        cause = getattr(why, "cause", None) or why
        raise RuntimeError(f"{len(missing)} of {len(names)} runs are not finished; {name}: {cause}")
    return table


def main(arguments: list[str] | None = None) -> int:
    """`python -m bqrl.ray`; returns the exit code: 0 done, 2 the caller's mistake, 1 failed, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="python -m bqrl.ray", description="The runs of a sweep file as Ray tasks.")
    parser.add_argument("file", metavar="FILE.toml", help="the sweep, as bqrl sweep takes it")
    parser.add_argument("--address", default="auto", help="a Ray cluster; auto: the one of this node; local: one of our own [auto]")
    parser.add_argument("--out", metavar="DIR", help="where the runs are written; every node must see it [runs/FILE]")
    parser.add_argument("--num-cpus", type=int, metavar="N", help="with --address local: runs made at a time [all cores]")
    parser.add_argument("--max-retries", type=int, default=3, metavar="N", help="per run, after a worker died; -1: for ever [3]")
    parser.add_argument("--quiet", action="store_true", help="no progress on standard error")
    args = parser.parse_args(arguments)
    if args.num_cpus is not None and (args.address != "local" or args.num_cpus < 1):
        parser.error(f"--num-cpus is for --address local and at least 1, got {args.num_cpus} for {args.address}")
    try:
        # Before Ray starts: a wrong file should not take half a minute to be refused.
        _bqrl.Sweep(Path(args.file).read_bytes().decode(), args.file).names()
        ray = _ray()
        more: dict[str, Any] = {"num_cpus": args.num_cpus, "include_dashboard": False} if args.address == "local" else {}
        # Ray tells of dead workers on standard output, which is for the table's path alone.
        with contextlib.redirect_stdout(sys.stderr):
            ray.init(address=args.address, log_to_driver=False, configure_logging=False, **more)
            table = sweep(args.file, args.out, max_retries=args.max_retries, quiet=args.quiet)
        print(table)
        return 0
    except KeyboardInterrupt:
        print("error: interrupted\nhint: the same command resumes it", file=sys.stderr)
        return 130
    except (ValueError, ImportError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except (RuntimeError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        if isinstance(error, ConnectionError):
            print("hint: `ray start --head` starts a cluster, --address local uses this machine alone", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
