"""Run directories: written by `learn(log_dir=…)`, read by the command line, opened by `bqrl.load`."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest
from support import SMALL, Diary

import bqrl

needs_binary = pytest.mark.skipif("BQRL_BIN" not in os.environ, reason="BQRL_BIN names no bqrl binary; cargo xtask test does")
TABLES = ["episodes.csv", "evaluations.csv", "policy.csv", "law.csv", "predictions.csv", "weights.safetensors"]


def bqrl_bin(*arguments, code=0):
    """What the command line prints."""
    done = subprocess.run([os.environ["BQRL_BIN"], *map(str, arguments)], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def train(out, *arguments):
    overrides = [f"--set=agent.{key}={json.dumps(value)}" for key, value in SMALL.items()]
    every = ["--set=run.evaluate_every=\"10 episodes\"", "--set=run.checkpoint_every=\"10 episodes\""]
    bqrl_bin("train", "asset-selling", "--episodes", 60, "--quiet", *overrides, *every, *arguments, "--out", out)


def same(a, b, files=TABLES):
    for name in files:
        assert (a / name).read_bytes() == (b / name).read_bytes(), name


def rows(path):
    return list(csv.DictReader(path.read_text().splitlines()))


def keys(value):
    """All keys of nested objects."""
    if isinstance(value, dict):
        return set(value).union(*map(keys, value.values()))
    return set().union(*map(keys, value)) if isinstance(value, list) else set()


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory):
    run = tmp_path_factory.mktemp("runs") / "cartpole"
    model = bqrl.DeepBQRL("CartPole-v1", risk_level=0.5, seed=3, **SMALL)
    return model.learn(400, log_dir=run, evaluation_episodes=20), run


def test_a_run_on_an_environment_of_others(cartpole):
    model, run = cartpole
    episodes, evaluations = rows(run / "seed-3/episodes.csv"), rows(run / "seed-3/evaluations.csv")
    assert [int(row["episode"]) for row in episodes] == list(range(1, model.num_episodes + 1))
    assert [int(row["step"]) for row in evaluations] == list(range(0, 401, 40))
    assert all(float(row["low"]) <= float(row["quantile"]) <= float(row["high"]) for row in evaluations)
    monitor = (run / "seed-3/monitor.csv").read_text().splitlines()
    assert json.loads(monitor[0][1:])["env_id"] == "CartPole-v1" and len(monitor) == 2 + len(episodes)
    assert (run / "seed-3/weights.safetensors").read_bytes() == model.weights()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["env_steps"] == 400 and summary["exact"] is False


@needs_binary
def test_the_command_line_reports_it_and_says_that_only_python_can_play_it(cartpole):
    _, run = cartpole
    report = json.loads(bqrl_bin("report", run, "--json"))
    assert not {key for key in keys(report) if "gap" in key or "regret" in key or "best" in key}
    text = json.dumps(report)
    assert "final_quantile" in text and "interval" in text
    assert "only the Python package can play" in bqrl_bin("eval", run, code=2)
    assert "only the Python package can play" in bqrl_bin("train", "--resume", run, code=2)


def test_the_run_is_opened_as_a_model(cartpole):
    model, run = cartpole
    again = bqrl.load(run, env="CartPole-v1")
    assert type(again) is bqrl.DeepBQRL and again.weights() == model.weights()
    assert (again.num_timesteps, again.num_episodes, again.num_updates) == (400, model.num_episodes, model.num_updates)
    assert again.observation_space == model.observation_space
    with pytest.raises(ValueError, match=r"the run has no seed 4, it has \[3\]"):
        bqrl.load(run, seed=4)
    with pytest.raises(ValueError, match="holds a deep-bqrl model, not a QRDQN"):
        bqrl.QRDQN.load(run)


@needs_binary
def test_a_table_is_learned_as_on_the_command_line(tmp_path):
    train(tmp_path / "there", "--seed", 5)
    model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", seed=5, **SMALL)
    model.learn(total_episodes=60, log_dir=tmp_path / "here", evaluate_every="10 episodes")
    same(tmp_path / "here/seed-5", tmp_path / "there/seed-5")
    same(tmp_path / "here", tmp_path / "there", ["problem.json", "reference.csv"])
    here, there = (json.loads((tmp_path / name / "summary.json").read_text()) for name in ("here", "there"))
    differ = {"run", "seconds", "frames_per_second"}
    assert {k: v for k, v in here.items() if k not in differ} == {k: v for k, v in there.items() if k not in differ}


@needs_binary
def test_the_command_line_goes_on_where_python_stopped(tmp_path):
    def learn(run, callback=None):
        model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", seed=5, **SMALL)
        model.learn(total_episodes=60, log_dir=tmp_path / run, evaluate_every="10 episodes", callback=callback)

    learn("whole")
    learn("cut", lambda model, episode: episode.episode < 33)
    assert len(rows(tmp_path / "cut/seed-5/episodes.csv")) == 33
    assert json.loads((tmp_path / "cut/seed-5/progress.json").read_text())["episodes"] == 33
    assert not (tmp_path / "cut/summary.json").exists()
    bqrl_bin("train", "--resume", tmp_path / "cut", "--quiet")
    same(tmp_path / "cut/seed-5", tmp_path / "whole/seed-5")


@needs_binary
def test_python_goes_on_where_the_command_line_stopped(tmp_path):
    train(tmp_path / "run", "--seed", 5)
    straight = bqrl.DeepBQRL("bqrl/AssetSelling-v0", seed=5, **SMALL)
    straight.learn(total_episodes=80, log_dir=tmp_path / "whole", evaluate_every="10 episodes")
    model = bqrl.load(tmp_path / "run")
    # Every ten episodes, as the run has it.
    model.learn(total_episodes=20, log_dir=tmp_path / "run")
    same(tmp_path / "run/seed-5", tmp_path / "whole/seed-5")


@needs_binary
@pytest.mark.parametrize("algo", ["deep-bqrl", "target-tracking"])
def test_a_run_of_the_command_line_predicts_what_eval_evaluates(algo, tmp_path):
    small = [] if algo == "deep-bqrl" else ["--set=agent.n_critics=2"]
    run = tmp_path / "run"
    bqrl_bin(
        "train", "asset-selling", "--algo", algo, "--seeds", "7,8", "--episodes", 40, "--set=agent.hidden=[8]", *small,
        "--quiet", "--out", run,
    )  # fmt: skip
    found = {}
    for seed in (7, 8):
        model = bqrl.load(run, seed=seed)
        said = json.loads(bqrl_bin("eval", run, "--seed", seed, "--json"))
        assert said["exact"] and model.num_episodes == 40
        for level in said["taus"]:
            value = model.evaluate(risk_level=level["tau"])
            assert value.exact
            want = (level["beta"], level["quantile"], level["buffered_quantile"], level["mean"])
            assert (value.beta, value.quantile, value.buffered_quantile, value.mean) == want
        found[seed] = model.weights()
        assert found[seed] == (run / f"seed-{seed}/weights.safetensors").read_bytes()
    assert bqrl.load(run).weights() == found[7] != found[8]
    # One of two seeds does not go on by itself in the directory of both; elsewhere it may.
    with pytest.raises(OSError, match="already holds a run"):
        bqrl.load(run, seed=8).learn(total_episodes=5, log_dir=run)
    bqrl.load(run, seed=8).learn(total_episodes=5, log_dir=tmp_path / "other")
    assert len(rows(tmp_path / "other/seed-8/episodes.csv")) == 5


def everything(path):
    return {p.relative_to(path): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_a_directory_that_holds_something_else_is_refused_and_left_as_it_was(tmp_path):
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/sales.csv").write_text("1,2")
    model.save(tmp_path / "model")
    bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL).learn(total_episodes=2, log_dir=tmp_path / "run")
    for name, said in [("mine", "not empty and not a run"), ("model", "not empty and not a run"), ("run", "already holds a run")]:
        before = everything(tmp_path / name)
        with pytest.raises(OSError, match=said):
            model.learn(total_episodes=2, log_dir=tmp_path / name)
        assert everything(tmp_path / name) == before
    assert model.num_episodes == 0
    with pytest.raises(ValueError, match="evaluate_every|often"):
        model.learn(total_episodes=2, log_dir=tmp_path / "new", evaluate_every="often")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("env", ["bqrl/AssetSelling-v0", "CartPole-v1"])
def test_a_model_goes_on_in_its_own_directory(env, tmp_path):
    def made():
        return bqrl.QRDQN(env, seed=4, **SMALL)

    how = {"evaluate_every": "5 episodes", "evaluation_episodes": 10}
    made().learn(total_episodes=20, log_dir=tmp_path / "whole", **how)
    model = made().learn(total_episodes=5, log_dir=tmp_path / "run", **how)
    model.learn(total_episodes=5, log_dir=tmp_path / "run")
    model.save(tmp_path / "model")
    # As a saved model, and as the run itself.
    model = bqrl.load(tmp_path / "model", env=env).learn(total_episodes=5, log_dir=tmp_path / "run")
    with pytest.raises(ValueError, match=r"is at step \d+, this model was saved at step \d+: bqrl.load the directory"):
        bqrl.load(tmp_path / "model", env=env).learn(total_episodes=5, log_dir=tmp_path / "run")
    bqrl.load(tmp_path / "run", env=env).learn(total_episodes=5, log_dir=tmp_path / "run")
    same(tmp_path / "run/seed-4", tmp_path / "whole/seed-4", ["episodes.csv", "evaluations.csv", "weights.safetensors"])
    assert len((tmp_path / "run/seed-4/monitor.csv").read_text().splitlines()) == 22
    with pytest.raises(OSError, match="already holds a run"):
        made().learn(total_episodes=5, log_dir=tmp_path / "run")
    with pytest.raises(ValueError, match="counts episodes"):
        bqrl.load(tmp_path / "run", env=env).learn(5, log_dir=tmp_path / "run")
    beside = bqrl.load(tmp_path / "run", env=env).learn(total_episodes=1)
    with pytest.raises(ValueError, match="learned on to step .* without it"):
        beside.learn(total_episodes=1, log_dir=tmp_path / "run")


@needs_binary
@pytest.mark.parametrize("length", [{"total_episodes": 8}, {"total_timesteps": 60}])
@pytest.mark.parametrize("env", ["bqrl/AssetSelling-v0", "CartPole-v1"])
def test_a_model_that_has_learned_begins_a_run_with_a_later_episode(env, length, tmp_path):
    model = bqrl.QRDQN(env, seed=4, **SMALL).learn(total_episodes=12)
    model.learn(**length, log_dir=tmp_path / "run", evaluation_episodes=10)
    numbers = [int(row["episode"]) for row in rows(tmp_path / "run/seed-4/episodes.csv")]
    assert numbers == list(range(13, model.num_episodes + 1))
    assert int(rows(tmp_path / "run/seed-4/evaluations.csv")[0]["episode"]) == 12
    assert json.loads((tmp_path / "run/summary.json").read_text())["episodes"] == model.num_episodes
    bqrl_bin("report", tmp_path / "run", "--json")
    bqrl_bin("report", tmp_path / "run", "--out", tmp_path / "report.html")


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    script = """
import os, sys, bqrl
def kill(model, episode):
    if episode.episode == 17: os._exit(9)
model = bqrl.DeepBQRL(sys.argv[1], seed=4, hidden=[8])
model.learn(total_episodes=30, log_dir=sys.argv[2], evaluate_every="5 episodes", evaluation_episodes=5, callback=kill)
"""
    for env in ("bqrl/AssetSelling-v0", "CartPole-v1"):
        run, whole = tmp_path / env / "run", tmp_path / env / "whole"
        assert subprocess.run([sys.executable, "-c", script, env, run]).returncode == 9
        model = bqrl.load(run, env=env)
        assert model.num_episodes == 15
        model.learn(total_episodes=15, log_dir=run)
        straight = bqrl.DeepBQRL(env, seed=4, hidden=[8])
        straight.learn(total_episodes=30, log_dir=whole, evaluate_every="5 episodes", evaluation_episodes=5)
        same(run / "seed-4", whole / "seed-4", ["episodes.csv", "evaluations.csv", "weights.safetensors"])


def test_a_run_in_lanes_is_opened_again(tmp_path):
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode="sync")
    model = bqrl.QRDQN(env, **SMALL).learn(120, log_dir=tmp_path / "run", evaluation_episodes=10)
    again = bqrl.load(tmp_path / "run", env=env)
    assert again.weights() == model.weights() and again.num_timesteps == model.num_timesteps
    again.learn(30, log_dir=tmp_path / "run")
    single = bqrl.load(tmp_path / "run", env="CartPole-v1")
    with pytest.raises(ValueError, match="made for 3 environments side by side"):
        single.learn(30, log_dir=tmp_path / "run")
    single.learn(30)


def test_an_environment_that_cannot_be_copied_needs_another_to_evaluate_in(tmp_path):
    class Single(Diary):
        def __deepcopy__(self, memo):
            raise TypeError("there is only one")

    model = bqrl.DeepBQRL(Single(), horizon=10, **SMALL)
    with pytest.raises(ValueError, match="give eval_env="):
        model.learn(10, log_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    model.learn(10, log_dir=tmp_path / "run", eval_env=Diary(), evaluation_episodes=5)
    # An evaluation that fails is the environment's own exception, and the directory stays the model's.
    class Broken(Diary):
        def step(self, action):
            raise ZeroDivisionError("fell over")

    other = bqrl.DeepBQRL(Diary(), horizon=10, **SMALL)
    with pytest.raises(ZeroDivisionError, match="^fell over$"):
        other.learn(10, log_dir=tmp_path / "other", eval_env=Broken())
    other.learn(10, log_dir=tmp_path / "other", evaluation_episodes=5)
    assert len(bqrl.load(tmp_path / "other").weights()) > 0


def test_a_run_whose_environment_raises_goes_on(tmp_path):
    class Breaking(Diary):
        def step(self, action):
            if (self.episode, self.t) == (6, 1) and not broken:
                broken.append(True)
                raise ZeroDivisionError("fell over")
            return super().step(action)

    broken = []
    how = {"log_dir": tmp_path / "run", "eval_env": Diary(), "evaluation_episodes": 5}
    model = bqrl.DeepBQRL(Breaking(), horizon=10, **SMALL)
    with pytest.raises(ZeroDivisionError, match="^fell over$"):
        model.learn(total_episodes=20, **how)
    assert model.num_episodes == 6 and not (tmp_path / "run/summary.json").exists()
    assert bqrl.load(tmp_path / "run").weights() == model.weights()
    model.learn(total_episodes=14, **how)
    assert [int(row["episode"]) for row in rows(tmp_path / "run/seed-0/episodes.csv")] == list(range(1, 21))
    assert json.loads((tmp_path / "run/summary.json").read_text())["episodes"] == 20


def test_a_run_that_diverges_keeps_its_last_good_checkpoint(tmp_path):
    model = bqrl.DeepBQRL("CartPole-v1", learning_rate=3e38, **SMALL)
    with pytest.raises(FloatingPointError):
        model.learn(5000, log_dir=tmp_path / "run", evaluate_every="5 steps", evaluation_episodes=2)
    # The first update comes after 8 steps or more: there is a checkpoint before it.
    assert 0 < bqrl.load(tmp_path / "run").num_timesteps <= 80


# The command that the package installs.


SCRIPT = Path(sys.executable).with_name("bqrl.exe" if os.name == "nt" else "bqrl")


def command(*arguments):
    return subprocess.run([SCRIPT, *arguments], capture_output=True, text=True)


def test_the_package_installs_the_command(tmp_path):
    version = command("--version")
    assert (version.returncode, version.stdout) == (0, f"bqrl {bqrl.__version__}\n")
    envs = command("envs")
    assert envs.returncode == 0 and all(name in envs.stdout for name in bqrl.problems())
    for wrong in (["no-such-command"], ["plan", "no-such-problem"], ["eval", str(tmp_path)]):
        done = command(*wrong)
        assert done.returncode == 2 and done.stdout == "" and done.stderr != ""
    module = subprocess.run([sys.executable, "-m", "bqrl", "--version"], capture_output=True, text=True)
    assert (module.returncode, module.stdout) == (0, version.stdout)
    if "BQRL_BIN" in os.environ:
        assert bqrl_bin("plan", "asset-selling", "--json") == command("plan", "asset-selling", "--json").stdout


@pytest.mark.skipif(os.name == "nt", reason="Windows sends no SIGINT to one process")
def test_the_command_stops_at_ctrl_c_after_a_checkpoint(tmp_path):
    train = [SCRIPT, "train", "--episodes", "100000000", "--set=agent.hidden=[8]", "--quiet", "--out", tmp_path / "run"]
    running = subprocess.Popen(train, stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "run/seed-42/checkpoints").exists():
        time.sleep(0.01)
    running.send_signal(signal.SIGINT)
    said = running.communicate(timeout=60)[1]
    assert running.returncode == 130 and "interrupted after a checkpoint" in said
    assert bqrl.load(tmp_path / "run").num_episodes >= 250
