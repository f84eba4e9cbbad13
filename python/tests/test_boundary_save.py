"""Saving touches nothing of the user's, whatever lies in the way and however it is interrupted."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from forge import newest
from support import SMALL

import bqrl

pytestmark = pytest.mark.skipif(os.name == "nt", reason="links, pipes and signals of Unix")


@pytest.fixture
def model():
    return bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL).learn(total_episodes=3)


def everything(path):
    """Every file, link and folder, with its contents."""
    found = {}
    for p in sorted(Path(path).rglob("*")):
        found[p.relative_to(path)] = os.readlink(p) if p.is_symlink() else p.read_bytes() if p.is_file() else p.stat().st_mode
    return found


def file(at, _):
    at.write_text("mine")


def folder(at, _):
    at.mkdir()
    (at / "sales.csv").write_text("mine")


def link_to_file(at, outside):
    at.symlink_to(outside / "sales.csv")


def link_to_folder(at, outside):
    at.symlink_to(outside)


def dangling(at, outside):
    at.symlink_to(outside / "none")


def pipe(at, _):
    os.mkfifo(at)


KINDS = [file, folder, link_to_file, link_to_folder, dangling, pipe]
NAMES = ["202401", "000003", "weights.safetensors", ".bqrl-model", "model.json", "sealed", ".hidden", "a\nb\x1b[31m"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", NAMES, ids=ascii)
def test_a_directory_with_anything_in_it_is_refused_and_left_as_it_was(name, kind, model, tmp_path):
    outside, place = tmp_path / "outside", tmp_path / "place"
    outside.mkdir()
    (outside / "sales.csv").write_text("mine")
    place.mkdir()
    kind(place / name, outside)
    before = everything(tmp_path)
    for save in (model.save, lambda path: model.learn(total_episodes=1, callback=bqrl.CheckpointCallback(path, every=1))):
        with pytest.raises(OSError) as refused:
            save(place)
        assert str(refused.value).isprintable()
    assert everything(tmp_path) == before


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("name", ["202401", "000001", "999999", "sealed", "notes", "model.json", "202401/model.json"])
def test_whatever_the_user_puts_into_a_model_survives_every_save(name, kind, model, tmp_path):
    outside, place = tmp_path / "outside", tmp_path / "model"
    outside.mkdir()
    (outside / "sales.csv").write_text("mine")
    model.save(place)
    ours = everything(place).keys()
    (place / name).parent.mkdir(exist_ok=True)
    kind(place / name, outside)
    theirs = {path: what for path, what in everything(place).items() if path not in ours}
    for _ in range(4):
        model.learn(total_episodes=2)
        model.save(place)
    after = everything(place)
    assert {path: after.get(path) for path in theirs} == theirs
    assert (outside / "sales.csv").read_text() == "mine"
    assert bqrl.load(place).num_timesteps == model.num_timesteps


@pytest.mark.parametrize("kind", [folder, link_to_file, link_to_folder, dangling, pipe], ids=lambda kind: kind.__name__)
def test_what_is_in_the_way_of_the_weights_is_refused(kind, model, tmp_path):
    outside, place = tmp_path / "outside", tmp_path / "model"
    outside.mkdir()
    (outside / "sales.csv").write_text("mine")
    model.save(place)
    (place / "weights.safetensors").unlink()
    kind(place / "weights.safetensors", outside)
    before = everything(tmp_path)
    model.learn(total_episodes=1)
    with pytest.raises(OSError, match="in the way"):
        model.save(place)
    assert everything(tmp_path) == before


def test_links_in_front_of_the_directory_are_followed(model, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    model.save(tmp_path / "link")
    model.save(tmp_path / "link/inside")
    for path in ("link", "real", "real/inside", "link/inside"):
        assert bqrl.load(tmp_path / path).num_episodes == 3
    assert (tmp_path / "link").is_symlink()
    (tmp_path / "dangling").symlink_to(tmp_path / "none")
    with pytest.raises(OSError):
        model.save(tmp_path / "dangling")
    assert not (tmp_path / "none").exists()


def test_a_run_directory_is_no_place_for_a_model(model, tmp_path):
    bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL).learn(total_episodes=2, log_dir=tmp_path / "run")
    for place in ("run", "run/seed-0", "run/seed-0/checkpoints"):
        before = everything(tmp_path)
        with pytest.raises(OSError, match="is not empty and not a model"):
            model.save(tmp_path / place)
        assert everything(tmp_path) == before


def test_paths(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    raw = b"not text \xff"
    for path in (Path("a"), "b", b"c", raw, os.fsdecode(raw) + "2", "d/e/f", "line\nbreak \x1b[31m"):
        model.save(path)
        assert bqrl.load(path).num_episodes == 3
        model.learn(total_episodes=1, log_dir=os.fsdecode(path) + "-run")
        assert bqrl.load(os.fsdecode(path) + "-run").num_episodes == model.num_episodes
        # Having learned in a directory whose name is no text, a model can still be saved.
        model.save("again")
        model = bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL).learn(total_episodes=3)
    before = everything(tmp_path)
    for path in ("", b"", "~", "~/model", "a\0b"):
        for use in (model.save, bqrl.load, bqrl.CheckpointCallback, lambda path: model.learn(1, log_dir=path)):
            with pytest.raises(ValueError, match="path|~ is not expanded"):
                use(path)
    for path in (None, 3, 1.5, ["a"]):
        with pytest.raises(TypeError):
            model.save(path)
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    model.save(".")
    assert bqrl.load(".").num_episodes == 3
    monkeypatch.chdir(tmp_path)
    assert {path: what for path, what in everything(tmp_path).items() if path.parts[0] != "empty"} == before


def test_a_path_in_a_message_cannot_reach_the_terminal(model, tmp_path):
    place = tmp_path / "\x1b[31mred\nSaved.\u202e"
    place.write_text("mine")
    for use in (model.save, bqrl.load, lambda path: model.learn(1, log_dir=path), lambda path: bqrl.load(path, seed=1)):
        with pytest.raises((OSError, ValueError)) as refused:
            use(place)
        assert str(refused.value).isprintable() and "red" in str(refused.value)
    assert place.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not bind root")
def test_a_directory_that_cannot_be_written_to(model, tmp_path):
    model.save(tmp_path / "model")
    before = everything(tmp_path / "model")
    (tmp_path / "model").chmod(0o555)
    try:
        with pytest.raises(PermissionError):
            model.save(tmp_path / "model")
    finally:
        (tmp_path / "model").chmod(0o755)
    assert everything(tmp_path / "model") == before


def limited(path, size):
    """A process whose files may not grow beyond some size, as on a full disk."""
    script = """
import resource, signal, sys, bqrl
model = bqrl.QRDQN("bqrl/AssetSelling-v0", hidden=[8], batch_size=4, replay_capacity=1000)
model.learn(total_episodes=20)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
try:
    model.save(sys.argv[1])
except OSError as error:
    assert str(error).isprintable(), str(error)
    sys.exit(3)
"""
    return subprocess.run([sys.executable, "-c", script, path, str(size)]).returncode


def test_a_full_disk_leaves_the_model_that_was_there(model, tmp_path):
    model.save(tmp_path / "model")
    there = everything(tmp_path / "model")
    weights = (tmp_path / "model/weights.safetensors").stat().st_size
    for size in (0, 10, 1000, weights - 1):
        assert limited(tmp_path / "model", size) == 3
        assert everything(tmp_path / "model") == there
        assert limited(tmp_path / f"new-{size}", size) == 3
        with pytest.raises(ValueError, match="no saved model"):
            bqrl.load(tmp_path / f"new-{size}")
    assert limited(tmp_path / "model", 100_000_000) == 0
    assert bqrl.load(tmp_path / "model").num_episodes == 20


def saver(path, seed, saves):
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", seed=seed, **SMALL)
    for _ in range(saves):
        model.learn(total_episodes=1)
        model.save(path)


def test_two_processes_and_two_threads_that_save_to_one_directory_take_turns(tmp_path):
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=saver, args=(tmp_path / "model", seed, 15)) for seed in range(2)]
    for process in processes:
        process.start()
    threads = [threading.Thread(target=saver, args=(tmp_path / "model", seed, 15)) for seed in range(2, 4)]
    for thread in threads:
        thread.start()
    for worker in [*threads, *processes]:
        worker.join()
    assert [process.exitcode for process in processes] == [0, 0]
    assert bqrl.load(tmp_path / "model").num_timesteps > 0
    names = sorted(path.name for path in (tmp_path / "model").iterdir())
    assert names[0] == ".bqrl-model" and names[-1] == "weights.safetensors" and len(names) <= 4


def test_ctrl_c_in_the_middle_of_a_save_leaves_a_whole_model(model, tmp_path):
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for instant in range(1, 25):
            signal.setitimer(signal.ITIMER_REAL, instant / 2000)
            with pytest.raises(KeyboardInterrupt):
                while True:
                    model.save(tmp_path / "model")
            bqrl.load(tmp_path / "model")
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert [path.name for path in (tmp_path / "model").iterdir() if path.name.startswith(".")] == [".bqrl-model"]


def test_a_killed_save_leaves_the_one_before(tmp_path):
    script = """
import os, sys, threading, bqrl
model = bqrl.QRDQN("bqrl/AssetSelling-v0", hidden=[8], batch_size=4, replay_capacity=1000)
model.learn(total_episodes=1)
model.save(sys.argv[1])
threading.Timer(float(sys.argv[2]), lambda: os._exit(9)).start()
while True:
    model.learn(total_episodes=1)
    model.save(sys.argv[1])
"""
    for delay in (0.01, 0.023, 0.037):
        assert subprocess.run([sys.executable, "-c", script, tmp_path / "model", str(delay)]).returncode == 9
        model = bqrl.load(tmp_path / "model")
        model.save(tmp_path / "model")
        left = [path.name for path in (tmp_path / "model").iterdir() if path.name.startswith(".")]
        assert left == [".bqrl-model"] and newest(tmp_path / "model").is_dir()


def test_the_users_umask_counts(model, tmp_path):
    before = os.umask(0o077)
    try:
        model.save(tmp_path / "private")
    finally:
        os.umask(before)
    assert all(path.stat().st_mode & 0o077 == 0 for path in (tmp_path / "private").rglob("*"))
