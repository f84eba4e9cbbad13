"""`bqrl train` and `python -m bqrl train` on Gymnasium environments."""

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import bqrl
from bqrl import _train

SCRIPT = Path(sysconfig.get_path("scripts")) / "bqrl"
SMALL = ["--set", "agent.hidden=[8]", "--set", "run.evaluation_episodes=70"]


def run(*arguments, cwd, program=None):
    command = [*(program or [sys.executable, "-m", "bqrl"]), "train", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "ours"),
    [
        (["train", "CartPole-v1"], True),
        (["train", "--algo", "qr-dqn", "gym:CartPole-v1"], True),
        (["train", "bqrl/AssetSelling-v0"], True),
        (["train", "asset-selling"], False),
        (["train", "table-v1.csv"], False),
        (["train"], False),
        (["plan", "CartPole-v1"], False),
    ],
)
def test_an_id_is_known_by_its_prefix_or_its_version(arguments, ours):
    assert _train.is_gymnasium(arguments) == ours


def test_a_run_is_trained_and_is_what_python_trains(tmp_path):
    done = run("CartPole-v1", "--algo", "target-tracking", "--steps", 300, "--seed", 5, *SMALL, cwd=tmp_path)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "target-tracking on CartPole-v1" in done.stdout and "9 times in 10 at least" in done.stdout
    assert done.stdout.endswith("The run is in runs/CartPole-v1-target-tracking-1\n")
    model = bqrl.load(tmp_path / "runs/CartPole-v1-target-tracking-1")
    same = bqrl.TargetTracking("CartPole-v1", seed=5, hidden=[8]).learn(300)
    assert model.weights() == same.weights() and model.num_timesteps == 300
    # Once more: another directory, by the installed command, with its options.
    options = ["--algo", "qr-dqn", "--tau", "0.2,0.7", "--episodes", 12, "--lanes", 2, "--discount", 0.9, "--json", "--quiet"]
    done = run("gym:FrozenLake-v1", *options, "--env", "is_slippery=False", *SMALL, cwd=tmp_path, program=[SCRIPT])
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["run"].endswith("runs/FrozenLake-v1-qr-dqn-1") and [level["tau"] for level in facts["taus"]] == [0.2, 0.7]
    model = bqrl.load(tmp_path / facts["run"])
    assert model._core.gamma == 0.9 and model.num_episodes >= 12 and "lanes = 2" in model.config


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["CartPole-v1", "--algo", "dqn"], "unknown algorithm 'dqn', the algorithms are deep-bqrl"),
        (["gym:NoSuchGame-v3"], "NoSuchGame"),
        (["CartPole-v1", "--set", "agent.learing_rate=1"], "has no setting 'learing_rate', the nearest is 'learning_rate'"),
        (["CartPole-v1", "--set", "run.seeds=1"], "--set wants agent.KEY"),
        (["CartPole-v1", "--tau", "1.5"], "risk_level must lie in (0, 1), got 1.5"),
        (["CartPole-v1", "--tau", "low"], "--tau wants numbers"),
        (["CartPole-v1", "--env", "size"], "--env wants KEY=VALUE, got 'size'"),
        (["CartPole-v1", "--lanes", "0"], "--lanes must be at least 1, got 0"),
        (["Pendulum-v1"], "Discrete action space"),
        (["CartPole-v1", "--nonsense"], "unrecognized arguments: --nonsense"),
    ],
)
def test_mistakes_are_named_in_a_line(arguments, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = _train.main(arguments)
    except SystemExit as exit:
        code = exit.code
    captured = capsys.readouterr()
    assert code == 2 and captured.out == "" and said in captured.err and "Traceback" not in captured.err
    assert not (tmp_path / "runs").exists()


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_ctrl_c_leaves_a_run_that_can_go_on(tmp_path):
    command = [SCRIPT, "train", "CartPole-v1", "--steps", "1e7", "--set", "run.evaluate_every=200 steps", *SMALL, "--out", "run"]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run/seed-42/checkpoints").exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 130 and said.startswith("error: interrupted after a checkpoint")
    assert bqrl.load(tmp_path / "run", "CartPole-v1").learn(20).num_timesteps > 20
