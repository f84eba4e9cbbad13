"""The long form of the boundary tests: random attacks through Python, each of a fixed seed.

    python python/tests/attack_boundary.py --cases 100000 --seed 1 [--only load …]

Every campaign runs in processes of its own, so that an abort, a hang or too much memory is seen and named with its case;
`--first CASE --cases 1` repeats one. `test_boundary_fuzz.py` runs the first cases of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forge
import gymnasium
import numpy as np
from gymnasium.wrappers import TimeLimit
from support import SMALL, Diary

import bqrl

# The exceptions that a caller is prepared for.
RIGHT = (ValueError, TypeError, OSError, FloatingPointError, RuntimeError)
TINY = {**SMALL, "hidden": [4]}

Case = Callable[[random.Random, Path], str]


class Broke(Exception):
    """An environment's own exception."""


def outcome(work: Callable[[], Any], *right: type[BaseException]) -> str:
    """What came of it, in a word; any other exception passes through. Messages are one line that a terminal can show."""
    try:
        work()
    except right or RIGHT as error:
        message = str(error)
        if "mine" in message and not isinstance(error, OSError):
            raise  # Its own.
        assert message.isprintable(), f"not one printable line: {message!r}"
        return type(error).__name__
    return "ok"


# Hostile model directories.


def models(root: Path) -> list[Path]:
    """One saved model of each kind, on an environment of Python and on a table, in the middle of an episode."""
    made = []
    for kind in (bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking):
        for name, env in (("python", TimeLimit(Diary(), 10)), ("table", "bqrl/FrozenLake-v0")):
            path = root / f"{kind.__name__}-{name}"
            if not path.exists():
                few = {"n_quantiles": 6} if kind is bqrl.TargetTracking else {}
                kind(env, **TINY, **few).learn(37).save(path)
            made.append(path)
    return made


WEIRD: list[Any] = [
    None, True, False, 0, 1, -1, 2, 7, 255, 2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 10**30, -(2**63),
    0.5, -0.0, 1e-308, 1e17, 1e308, -1e308, 1e400, "", "x", "\x1b[31m\n", "0", "NaN", "a" * 5000, "~/x", "/dev/zero", [], {},
    [[]], [0], [1, 2], {"x": 1}, [None], [1e308] * 3, [2**40] * 2, [0] * 100,
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The keys of every value inside a JSON value; the text `extra` holds JSON itself."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, part in value.items():
            if key == "extra" and isinstance(part, str) and part:
                yield from places(json.loads(part), (*path, key))
            yield from places(part, (*path, key))
    elif isinstance(value, list):
        for index, part in enumerate(value[:8]):
            yield from places(part, (*path, index))


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """Some bits or a stretch of bytes of a file changed, or the file cut or lengthened."""
    what = rng.randrange(5)
    changed = bytearray(data)
    if what == 0:
        return bytes(changed[: rng.randrange(len(changed) + 1)])
    if what == 1:
        return bytes(changed) + rng.randbytes(rng.randrange(1, 100))
    if what == 2 and changed:
        at = rng.randrange(len(changed))
        changed[at : at + rng.randrange(1, 16)] = rng.randbytes(rng.randrange(16))
    elif what == 3 and changed:
        at = rng.randrange(len(changed))
        changed[at : at + 8] = rng.choice([b"\xff" * 8, b"\0" * 8, b"\0\0\xc0\x7f" * 2, b"\xff\xff\xff\xff\xff\xff\xff\x7f"])
    else:
        for _ in range(rng.randrange(1, 4)):
            if changed:
                changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def mutated_tensors(rng: random.Random, path: Path) -> None:
    """Another shape, type, offset, name or element in a safetensors file."""
    header, data = forge.tensors(path)
    names = [name for name in header if name != "__metadata__"]
    name = rng.choice(names)
    entry = header[name]
    what = rng.randrange(6)
    if what == 0:
        entry["shape"] = rng.choice([[], [0], [2**40, 2**40], [-1], [1] * 50, entry["shape"][::-1], [*entry["shape"], 1]])
    elif what == 1:
        entry["dtype"] = rng.choice(["F64", "F32", "F16", "U8", "I64", "U64", "BOOL", "X", 3])
    elif what == 2:
        entry["data_offsets"] = rng.choice([[0, 0], [0, 2**63], [8, 4], [0, len(data) + 8], [-1, 4], [0]])
    elif what == 3:
        header[rng.choice([*names, "other", "\x1b[31m"])] = header.pop(name)
    elif what == 4:
        del header[name]
    begin, end = entry.get("data_offsets", [0, 0])[:2] if what == 5 else (0, 0)
    if end > begin:
        # One element: no number, a huge one, or another index.
        at = begin + 4 * rng.randrange(max(1, (end - begin) // 4))
        word = rng.choice([b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\xff\xff\x7f\x7f", b"\xff" * 4, b"\0" * 4, rng.randbytes(4)])
        data = data[:at] + word[: end - at] + data[at + len(word[: end - at]) :]
    forge.write_tensors(path, header, data)


def load(rng: random.Random, root: Path) -> str:
    """A changed copy of a model is refused, or can be used."""
    model = rng.choice(models(root))
    copy = root / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(model, copy)
    checkpoint = forge.newest(copy)
    file = rng.choice([path for path in sorted(checkpoint.iterdir()) if path.name != "manifest.json"])
    what = rng.randrange(10)
    if file.suffix == ".json" and what < 8:
        # Not parsed and written again as a whole: only one value changes.
        value = json.loads(file.read_text())
        keys = rng.choice(list(places(value)))
        forge.in_json(*keys, to=rng.choice(WEIRD), file=file.name)(checkpoint)
        forge.seal(checkpoint)
    elif file.suffix == ".safetensors" and what < 8:
        mutated_tensors(rng, file)
        forge.seal(checkpoint)
    else:
        if what == 8:
            file = checkpoint / "manifest.json"
        file.write_bytes(mutated_bytes(rng, file.read_bytes()))
        if what == 9 and rng.random() < 0.5:
            forge.seal(checkpoint)

    def use() -> None:
        loaded = bqrl.load(copy)
        space = loaded.observation_space
        loaded.predict(np.zeros(space.shape, space.dtype) if space.shape else int(space.start))
        if loaded._core.problem is None:
            loaded.set_env(TimeLimit(Diary(), 10))
        loaded.learn(total_timesteps=12)
        loaded.save(root / "again")
        shutil.rmtree(root / "again")

    return outcome(use)


# Environments that misbehave.


class Number(float):
    """Another kind of number."""


def unaligned(x: Any) -> Any:
    raw = np.zeros(x.nbytes + 1, np.uint8)
    raw[1:] = np.ascontiguousarray(x).view(np.uint8).ravel()
    return raw[1:].view(x.dtype).reshape(x.shape)


OBSERVATIONS: list[Callable[[Any], Any]] = [
    lambda x: x.astype(">f4"), lambda x: x.astype("f2"), lambda x: x.astype("f8"), lambda x: x.astype("i8"), lambda x: x.tolist(),
    lambda x: tuple(x), unaligned, lambda x: x[::-1].copy()[::-1], lambda x: np.ma.masked_array(x), lambda x: x.view(np.matrix)[0],
    lambda x: x * np.nan, lambda x: x / np.float32(0), lambda x: x[:1], lambda x: x[None], lambda x: None, lambda x: "x" * 300,
    lambda x: [2**70] * len(x), lambda x: x.astype(object), lambda x: x.astype(complex), lambda x: x.astype(str), lambda x: {},
    lambda x: np.ma.masked_array(x, True), lambda x: object(), lambda x: [[1], [2, 3]], lambda x: np.array([1e300] * len(x)),
    lambda x: np.zeros((0,)), lambda x: b"\x1b[31m", lambda x: iter(x), lambda x: np.zeros(len(x), "M8[s]"), lambda x: x.sum,
]  # fmt: skip
REWARDS: list[Any] = [
    1, True, 2**70, 10**400, -0.0, np.float16(1), np.int8(3), np.uint64(2**63), np.bool_(1), np.array(1.5), np.array([1.5]),
    np.array([[2]]), Number(2), np.longdouble(1), np.nan, np.inf, -np.inf, 1e308, None, "1", b"1", 1j, [1.0], (1,), {}, object(),
    np.array([1, 2]), np.array([]), np.array(["x"]), np.array([None]), np.datetime64(1, "s"),
]  # fmt: skip
FLAGS: list[Any] = [0, 1, np.bool_(1), np.array(True), np.array([False]), 0.0, 1.0, None, "False", 2, np.nan, [], object(), np.array([0, 1])]


class Hostile(gymnasium.Wrapper):
    """Misbehaves once, at a random call."""

    def __init__(self, env: Any, rng: random.Random, model: list[Any], root: Path):
        super().__init__(env)
        self.rng, self.model, self.root = rng, model, root
        self.left = rng.randrange(25)
        self.raised: BaseException | None = None

    def _raise(self) -> None:
        kind = self.rng.choice([Broke, KeyError, StopIteration, SystemExit, KeyboardInterrupt, MemoryError, RecursionError, GeneratorExit])
        self.raised = kind("\x1b[31m\nmine")
        raise self.raised

    def _enter(self) -> None:
        """The model that plays here is used in the middle of its learning."""
        model, what = self.model[0], self.rng.randrange(6)
        if what == 0:
            model.predict(np.zeros(3, np.float32))
        elif what == 1:
            model.save(self.root / "inside")
        elif what == 2:
            assert outcome(lambda: model.learn(5)) == "RuntimeError"
        elif what == 3:
            model.evaluate(TimeLimit(Diary(), 10), episodes=2)
        elif what == 4:
            model.set_env(TimeLimit(Diary(), 10))
        else:
            bqrl.load(self.root / "inside") if (self.root / "inside").exists() else model.weights()

    def reset(self, **how: Any) -> Any:
        result = self.env.reset(**how)
        self.left -= 1
        if self.left == -1:
            what = self.rng.randrange(4)
            if what == 0:
                self._raise()
            elif what == 1:
                return self.rng.choice([None, result[0], (*result, 1), "x", (result[0],), {}])
            elif what == 2:
                return self.rng.choice(OBSERVATIONS)(result[0]), {}
            else:
                self._enter()
        return result

    def step(self, action: Any) -> Any:
        result = seen, reward, terminated, truncated, info = self.env.step(action)
        self.left -= 1
        if self.left != -1:
            return result
        what = self.rng.randrange(7)
        if what == 0:
            self._raise()
        elif what == 1:
            return self.rng.choice([None, result[:4], result[:3], (*result, 1), "12345", {}, 3, object(), list(result)])
        elif what == 2:
            return self.rng.choice(OBSERVATIONS)(seen), reward, terminated, truncated, info
        elif what == 3:
            return seen, self.rng.choice(REWARDS), terminated, truncated, info
        elif what == 4:
            return seen, reward, self.rng.choice(FLAGS), truncated, info
        elif what == 5:
            return seen, reward, terminated, self.rng.choice(FLAGS), self.rng.choice([None, [], 3])
        self._enter()
        return result


def env(rng: random.Random, root: Path) -> str:
    """An environment misbehaves: its own exception comes out, or one that says what is wrong; the model is as good as before."""
    model: list[Any] = []
    lanes = rng.choice([0, 0, 1, 3])
    hostile = Hostile(TimeLimit(Diary(), 10), rng, model, root)
    played: Any = hostile
    if lanes:
        bad = rng.randrange(lanes)
        modes = list(gymnasium.vector.AutoresetMode)[:2]
        makers = [(lambda: hostile) if lane == bad else (lambda: TimeLimit(Diary(), 10)) for lane in range(lanes)]
        played = gymnasium.vector.SyncVectorEnv(makers, autoreset_mode=rng.choice(modes))
    kind = rng.choice([bqrl.DeepBQRL, bqrl.QRDQN])
    model.append(kind(played, **TINY))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = outcome(lambda: model[0].learn(30), *RIGHT, np.exceptions.ComplexWarning)
        except BaseException as error:
            assert error is hostile.raised or (hostile.raised is None and lanes), f"another exception: {error!r}"
            found = "its own"
    before = model[0].num_timesteps
    model[0].set_env(TimeLimit(Diary(), 10))
    # A reward of 2^70 is a number, but no network survives it.
    if outcome(lambda: model[0].learn(5), FloatingPointError) == "ok":
        assert model[0].num_timesteps == before + 5
    model[0].save(root / "after")
    shutil.rmtree(root / "inside", ignore_errors=True)
    return found


# Ctrl-C.


def interrupt(rng: random.Random, root: Path) -> str:
    """SIGINT at a random instant arrives as `KeyboardInterrupt`, and the model and its run are whole."""
    what = rng.choice(["python", "table", "logged", "logged-table", "evaluate", "save", "plan"])
    model = bqrl.QRDQN("bqrl/FrozenLake-v0" if "table" in what else TimeLimit(Diary(), 10), **TINY)
    run, path = root / "run", root / "saved"
    shutil.rmtree(run, ignore_errors=True)
    how = {"log_dir": run, "evaluation_episodes": 3, "evaluate_every": "200 steps"} if "logged" in what else {}

    def work() -> None:
        while True:
            if what == "evaluate":
                model.evaluate(episodes=10**6)
            elif what == "save":
                model.save(path)
            elif what == "plan":
                bqrl.plan("american-put", grid=20_000)
            else:
                model.learn(10**9, **how)

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0001, 0.05))
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    steps = model.num_timesteps
    model.learn(3)
    model.save(root / "after")
    assert bqrl.load(root / "after").num_timesteps == steps + 3
    if path.exists():
        with contextlib.suppress(ValueError):
            bqrl.load(path)
    found = "no checkpoint"
    if (run / ".bqrl-run").exists():
        with contextlib.suppress(ValueError):
            assert bqrl.load(run).num_timesteps == steps
            found = "resumed"
            bqrl.load(run, env=None if "table" in what else TimeLimit(Diary(), 10)).learn(30, log_dir=run, eval_env=None)
    return f"{what}, {found}" if "logged" in what else what


# Directories to save to.


def save(rng: random.Random, root: Path) -> str:
    """Whatever lies in a directory: a save leaves every file of the user's as it was, and works or says why not."""
    place = root / "place"
    shutil.rmtree(place, ignore_errors=True)
    outside = root / "outside"
    shutil.rmtree(outside, ignore_errors=True)
    outside.mkdir()
    (outside / "model.json").write_text("mine")
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", **TINY)
    model.learn(rng.randrange(1, 30))
    marked = rng.random() < 0.6
    if marked:
        model.save(place)
    else:
        place.mkdir()
    names = [
        "202401", "000001", "000005", "999999", "weights.safetensors", ".bqrl-model", "sealed", "notes", "model.json",
        "000005/model.json", "202401/model.json", "202401/sales.csv", "202401/manifest.json", "sealed/00000000-x", "-rf", "a\nb",
    ]  # fmt: skip
    for name in rng.sample(names, rng.randrange(5)):
        at = place / name
        folder = at.parent
        if os.path.lexists(at) or folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            continue
        at.parent.mkdir(exist_ok=True)
        kind = rng.randrange(5)
        if kind == 0:
            at.mkdir()
        elif kind == 1:
            at.symlink_to(outside / rng.choice(["model.json", "", "none"]))
        elif kind == 2:
            os.mkfifo(at)
        else:
            at.write_text("mine")
    ours = {path for path in place.rglob("*") if path.is_file() and not path.is_symlink() and path.read_bytes() != b"mine"}
    listed = {path: os.readlink(path) if path.is_symlink() else None for path in place.rglob("*") if path not in ours}
    folders = {path.parent for path in ours}
    found = "ok"
    for _ in range(4):
        model.learn(rng.randrange(1, 20))
        found = outcome(lambda: model.save(place), OSError)
    for path, link in listed.items():
        if path not in folders or any(inside.parent == path for inside in listed):
            assert os.path.lexists(path), f"{path} was removed"
            assert not path.is_symlink() or os.readlink(path) == link
            assert not path.is_file() or path.is_symlink() or path.read_text() == "mine"
    assert sorted(path.name for path in outside.iterdir()) == ["model.json"] and (outside / "model.json").read_text() == "mine"
    if found == "ok":
        assert bqrl.load(place).num_timesteps == model.num_timesteps
    return f"{'model' if marked else 'directory'}, {found}"


CAMPAIGNS: dict[str, Case] = {"load": load, "env": env, "interrupt": interrupt, "save": save}


def run(name: str, seed: int, first: int, cases: int, root: Path, told: Callable[[int], None] = lambda case: None) -> Counter[str]:
    """Some cases of one campaign in this process; every case has a seed of its own."""
    found: Counter[str] = Counter()
    for case in range(first, first + cases):
        told(case)
        found[CAMPAIGNS[name](random.Random(f"{seed} {name} {case}"), root)] += 1
    return found


def worker(name: str, seed: int, first: int, cases: int) -> None:
    import resource

    # Ten gigabytes of addresses: more than Python, NumPy and a small model need, less than a forged count asks for.
    resource.setrlimit(resource.RLIMIT_AS, (10 << 30, 10 << 30))
    with tempfile.TemporaryDirectory() as root:
        found = run(name, seed, first, cases, Path(root), lambda case: print(case, flush=True))
    print(json.dumps({"found": found, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, help="of every campaign")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--only", nargs="*", choices=[*CAMPAIGNS], default=[*CAMPAIGNS])
    parser.add_argument("--batch", type=int, default=500, help="cases per process")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.worker, arguments.seed, arguments.first, arguments.cases)
        return 0
    failures = 0
    for name in arguments.only:
        found: Counter[str] = Counter()
        memory, began, first, done = 0, time.monotonic(), arguments.first, 0
        last = arguments.first + arguments.cases
        while first < last:
            batch = min(arguments.batch, last - first)
            command = [sys.executable, __file__, "--worker", name, "--seed", str(arguments.seed), "--first", str(first), "--cases", str(batch)]
            try:
                ran = subprocess.run(command, capture_output=True, text=True, timeout=60 + 2 * batch)
                code, out, said = ran.returncode, ran.stdout.splitlines(), ran.stderr
            except subprocess.TimeoutExpired as error:
                code, out, said = "hangs", (error.stdout or b"").decode().splitlines(), ""
            if code == 0:
                result = json.loads(out[-1])
                found.update(result["found"])
                memory, first, done = max(memory, result["memory"]), first + batch, done + batch
                continue
            failures += 1
            case = int(out[-1]) if out else first
            print(f"{name} case {case} of seed {arguments.seed}: {code}\n{said[-3000:]}", flush=True)
            found["failed"] += 1
            done, first = done + case + 1 - first, case + 1
        seconds = time.monotonic() - began
        print(f"{name}: {done} cases in {seconds:.0f} s, at most {memory} MB; {dict(found.most_common())}", flush=True)
    print(f"{failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
