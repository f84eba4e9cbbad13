"""A sweep that lasts long enough to be disturbed, and what of it must be the same whichever engine ran it."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

BQRL = os.environ.get("BQRL_BIN", "")

# Four runs of a few seconds each, with many checkpoints.
FILE = """\
[problem]
name = "frozen-lake"
[run]
episodes = 800
checkpoint_every = 25
tau = [0.5]
seeds = [1000, 1001]
[agent]
kind = "deep-bqrl"
hidden = [32]
[grid]
agent.kappa = [0.1, 1.0]
"""
RUNS = [f"kappa={kappa},seed={seed}" for kappa in ("0.1", "1.0") for seed in (1000, 1001)]


def contents(root: Path) -> dict[str, object]:
    """Every file of the runs and the table, by path; without wall time.

    Not compared: `t` of monitor.csv, `time` of progress.json, `seconds`, `frames_per_second` and `run` (the place) of summary.json,
    TensorBoard events, and checkpoints, which hold the time at which a run began.
    """
    files: dict[str, object] = {"sweep.csv": (root / "sweep.csv").read_bytes(), "sweep.toml": (root / "sweep.toml").read_bytes()}
    for run in RUNS:
        for path in sorted((root / run).rglob("*")):
            name = str(path.relative_to(root))
            if path.is_dir() or "checkpoints" in path.parts or path.name.startswith("events.out"):
                continue
            if path.name == "monitor.csv":
                files[name] = [line.rsplit(",", 1)[0] for line in path.read_text().splitlines()[1:]]
            elif path.name in ("summary.json", "progress.json"):
                measured = ("seconds", "frames_per_second", "run", "time")
                files[name] = {k: v for k, v in json.loads(path.read_text()).items() if k not in measured}
            else:
                files[name] = path.read_bytes()
    # config, summary, problem, reference, marks; and per seed episodes, evaluations, monitor, policy, law, predictions, weights.
    assert len(files) >= 2 + 4 * 11, sorted(files)
    return files


def await_(what: Callable[[], bool], seconds: float, said: Callable[[], str] = lambda: "") -> None:
    """Waits until it is so."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, f"waited {seconds} s in vain: {said()}"
        time.sleep(0.02)


def began(run: Path) -> str:
    """When a run was begun: the head of monitor.csv, which going on leaves as it is and beginning again does not."""
    (monitor,) = run.glob("seed-*/monitor.csv")
    return monitor.read_text().splitlines()[0]


def under_way(root: Path) -> Path | None:
    """A run that has a checkpoint and is not finished."""
    for run in RUNS:
        checkpoints = list((root / run).glob("seed-*/checkpoints/0*"))
        if checkpoints and not (root / run / "summary.json").exists():
            return root / run
    return None
