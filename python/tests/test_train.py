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
        (["train", "--resume", "nowhere"], False),
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
        (["CartPole-v1", "--set", "run.seeds=1"], "run.seeds must be one seed or several different ones, got 1"),
        (["CartPole-v1", "--seeds", "1,1"], "run.seeds must be one seed or several different ones, got [1, 1]"),
        (["CartPole-v1", "--seeds", "1,two"], "--seeds wants whole numbers with commas between them, got '1,two'"),
        (["CartPole-v1", "--steps", "2.5"], "--steps must be a whole number, got 2.5"),
        (["CartPole-v1", "--steps", "0"], "steps must be a whole number of at least 1, got 0"),
        (["CartPole-v1", "--set", "run.speed=1"], "run has no setting 'speed' here"),
        (["CartPole-v1", "--set", "agent"], "want SECTION.KEY=VALUE"),
        (["CartPole-v1", "--config", "none.toml"], "reading none.toml"),
        (["CartPole-v1", "--force"], "--force needs --out"),
        (["CartPole-v1", "--out", "a", "--resume", "b"], "not allowed with argument --out"),
        (["CartPole-v1", "--set", "run.checkpoint_every=3"], "run.checkpoint_every must be run.evaluate_every"),
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
    assert running.returncode == 130 and said == "error: interrupted after a checkpoint\nhint: `bqrl train --resume run` resumes it\n"
    assert bqrl.load(tmp_path / "run", "CartPole-v1").learn(20).num_timesteps > 20


def records(folder):
    """Rows and weights of every seed; not the times."""
    names = ("episodes.csv", "evaluations.csv")
    rows = {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.csv") if path.name in names}
    weights = {seed.name: bqrl.load(folder, seed=int(seed.name[5:])).weights() for seed in folder.glob("seed-*")}
    return rows, weights


def test_several_seeds_share_a_run_as_on_the_command_line(tmp_path):
    options = ["--algo", "qr-dqn", "--steps", 300, *SMALL, "--quiet"]
    done = run("CartPole-v1", *options, "--seeds", "5,6", "--out", "both", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "seed 5, τ = 0.1" in done.stdout and "seed 6, τ = 0.1" in done.stdout
    facts = json.loads((tmp_path / "both/summary.json").read_text())
    assert facts["seeds"] == [5, 6] and len(facts["taus"][0]["final_quantile"]) == len(facts["final_mean"]) == 2
    assert facts["env_steps"] == 600
    for seed in (5, 6):
        assert run("CartPole-v1", *options, "--seed", seed, "--out", f"only-{seed}", cwd=tmp_path).returncode == 0
        for name in ("episodes.csv", "evaluations.csv"):
            assert (tmp_path / f"only-{seed}/seed-{seed}" / name).read_bytes() == (tmp_path / f"both/seed-{seed}" / name).read_bytes()
    # Without Gymnasium: `bqrl report` reads it as any run of several seeds.
    assert subprocess.run([SCRIPT, "report", "both"], cwd=tmp_path, capture_output=True).returncode == 0


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_an_interrupted_run_of_two_seeds_is_resumed_and_ends_as_if_nothing_had_happened(tmp_path):
    # Whole episodes: an open one is given up when an environment of Python is left.
    options = ["FrozenLake-v1", "--algo", "qr-dqn", "--episodes", "600", "--env", "is_slippery=False", "--horizon", "20"]
    options += ["--set", "run.evaluate_every=50 episodes", "--set", "agent.updates_per_step=0.01", *SMALL, "--seeds", "1,2"]
    command = [SCRIPT, "train", *options, "--out", "run", "--quiet"]
    running = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run/seed-1/checkpoints").exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=60)
    assert running.returncode == 130 and not (tmp_path / "run/seed-2").exists()
    other = run("--resume", "run", "--tau", 0.3, cwd=tmp_path)
    assert other.returncode == 2 and other.stderr.startswith("error: run was started with other settings: run.tau\nhint: ")
    done = run("--resume", "run", "--quiet", "--json", cwd=tmp_path, program=[SCRIPT])
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["seeds"] == [1, 2] and facts["episodes"] == 600
    config = (tmp_path / "run/config.toml").read_text()
    assert 'is_slippery = "False"' in config and "horizon = 20" in config
    assert run(*options, "--out", "straight", "--quiet", cwd=tmp_path).returncode == 0
    # The seed that was not begun is the same; the one that was stopped in an episode has that one less.
    assert records(tmp_path / "run")[1]["seed-2"] == records(tmp_path / "straight")[1]["seed-2"]
    # A finished run says its results again.
    again = run("--resume", "run", "--quiet", "--json", cwd=tmp_path)
    assert again.returncode == 0 and json.loads(again.stdout)["taus"] == facts["taus"], again.stderr


def test_a_run_is_replaced_only_by_force(tmp_path):
    options = ["CartPole-v1", "--steps", 100, *SMALL, "--out", "run", "--quiet"]
    assert run(*options, cwd=tmp_path).returncode == 0
    before = records(tmp_path / "run")
    refused = run(*options, cwd=tmp_path)
    assert refused.returncode == 2 and "already holds a run" in refused.stderr
    assert refused.stderr.endswith("hint: --resume resumes it, --force replaces it\n")
    assert records(tmp_path / "run") == before
    assert run(*options, "--seed", 3, "--force", cwd=tmp_path).returncode == 0
    assert (tmp_path / "run/seed-3").exists() and not (tmp_path / "run/seed-42").exists()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("mine")
    refused = run("CartPole-v1", "--out", "mine", "--force", cwd=tmp_path)
    assert refused.returncode == 2 and "is not empty and not a run" in refused.stderr


def test_settings_come_from_a_file_and_flags_win(tmp_path):
    (tmp_path / "s.toml").write_text(
        "[problem]\nname = 'CartPole-v1'\nnormalize_observations = false\n"
        "[run]\nsteps = 120\nseeds = [9]\nevaluation_episodes = 6\n[agent]\nkind = 'qr-dqn'\nhidden = [8]\nkappa = 0.7\n"
    )
    done = run("--config", "s.toml", "--set", "agent.kappa=0.3", "--steps", 150, "--json", "--out", "run", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    assert facts["algo"] == "qr-dqn" and facts["seeds"] == [9] and facts["env_steps"] == 150
    config = (tmp_path / "run/config.toml").read_text()
    assert "kappa = 0.3" in config and "normalize_observations = false" in config and "evaluation_episodes = 6" in config
    # The settings of a run are a file of settings, too.
    done = run("--config", "run/config.toml", "--out", "again", "--quiet", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert records(tmp_path / "again") == records(tmp_path / "run")
