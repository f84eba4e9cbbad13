"""Runs of a sweep file through the binding, as an engine in Python makes them; and what is said without Ray."""

import _thread
import os
import subprocess
import sys
import threading
import time

import pytest

import bqrl.ray
from bqrl import _bqrl

FILE = """\
[run]
episodes = 40
seeds = [1000, 1001]
[agent]
hidden = [8]
[grid]
agent.kappa = [0.1, 1.0]
"""


FILES = ["episodes.csv", "evaluations.csv", "policy.csv", "law.csv", "predictions.csv", "weights.safetensors"]


def same(a, b, name):
    """Whether a run is the same in two sweeps."""
    files = ["config.toml", "problem.json", "reference.csv", *(f"seed-{name[-4:]}/{file}" for file in FILES)]
    return all((a / name / file).read_bytes() == (b / name / file).read_bytes() for file in files)


def test_the_binding_makes_the_runs_of_the_command_line(tmp_path):
    binary = os.environ.get("BQRL_BIN")
    if binary is None:
        pytest.skip("BQRL_BIN names no bqrl binary; cargo xtask test does")
    (tmp_path / "s.toml").write_text(FILE)
    sweep = _bqrl.Sweep(FILE, "s.toml")
    names = sweep.names()
    assert names == [f"kappa={kappa},seed={seed}" for kappa in ("0.1", "1.0") for seed in (1000, 1001)]
    assert len(sweep) == 4
    here = tmp_path / "here"
    for k in (3, 0, 2):
        sweep.run(k, here)
    assert [sweep.is_finished(k, here) for k in range(4)] == [True, False, True, True]
    assert sweep.collect(here) == (here / "sweep.csv", [names[1]])
    # Whichever engine comes next finds three runs finished and makes the fourth.
    command = [binary, "sweep", "s.toml", "--quiet", "--out"]
    for out in ("here", "there"):
        subprocess.run([*command, out], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    there = tmp_path / "there"
    assert (here / "sweep.csv").read_bytes() == (there / "sweep.csv").read_bytes()
    assert all(same(here, there, name) for name in names)


def test_an_interrupt_stops_after_a_checkpoint_and_the_run_goes_on(tmp_path):
    text = FILE.replace("episodes = 40", "episodes = 4000")
    sweep = _bqrl.Sweep(text, "s.toml")
    name = sweep.names()[0]
    seed = tmp_path / "cut" / name / "seed-1000"

    def interrupt():
        while not (seed / "checkpoints").exists():
            time.sleep(0.01)
        _thread.interrupt_main()

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        sweep.run(0, tmp_path / "cut")
    thread.join()
    # Between the header and the end: a checkpoint every 250 episodes, and one more at the interrupt.
    assert 250 < len((seed / "episodes.csv").read_text().splitlines()) < 4001
    sweep.run(0, tmp_path / "cut")
    sweep.run(0, tmp_path / "whole")
    assert same(tmp_path / "cut", tmp_path / "whole", name)


def test_mistakes_are_value_errors(tmp_path):
    with pytest.raises(ValueError, match=r"s.toml: grid: agent.kappa has no values"):
        _bqrl.Sweep(FILE.replace("[0.1, 1.0]", "[]"), "s.toml")
    with pytest.raises(ValueError, match=r'has no setting "kapa"'):
        _bqrl.Sweep(FILE.replace("kappa", "kapa"), "s.toml").names()
    sweep = _bqrl.Sweep(FILE, "s.toml")
    with pytest.raises(ValueError, match="want a run below 4, got 4"):
        sweep.run(4, tmp_path)
    sweep.run(0, tmp_path)
    with pytest.raises(ValueError, match="was run with other settings: run.episodes"):
        _bqrl.Sweep(FILE.replace("40", "50"), "s.toml").is_finished(0, tmp_path)


def test_without_ray_it_says_what_to_install(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "ray", None)
    (tmp_path / "s.toml").write_text(FILE)
    with pytest.raises(ImportError, match=r"pip install 'bqrl\[ray\]'"):
        bqrl.ray.sweep(tmp_path / "s.toml")
    assert bqrl.ray.main([str(tmp_path / "s.toml")]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err == "error: bqrl.ray needs Ray, which is not installed: pip install 'bqrl[ray]'\n"
