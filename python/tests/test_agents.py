"""Every algorithm is a class whose keywords are its settings."""

import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bqrl
from bqrl import _bqrl

KINDS = [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking, bqrl.UCBBQRL, bqrl.PPO, bqrl.TRPO, bqrl.VaRQ, bqrl.QPPO]
TABULAR = KINDS[3:]
COMMON = ["env", "risk_level", "beta", "seed", "gamma", "horizon", "horizon_is_task", "reward_bounds"]


def documented(kind):
    _, arguments = inspect.getdoc(kind).split("\nArgs:\n")
    entries = [" ".join(entry.split()) for entry in re.split(r"^    (?=\S)", arguments, flags=re.MULTILINE)[1:]]
    return dict(entry.split(": ", 1) for entry in entries)


def test_every_algorithm_has_a_class():
    assert sorted(kind.algo for kind in KINDS) == sorted(name for name, _, _ in _bqrl.algos())


def test_the_classes_are_what_the_script_writes():
    path = Path(__file__).parents[1] / "scripts/write_agents.py"
    spec = importlib.util.spec_from_file_location("write_agents", path)
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.TARGET.read_text(encoding="utf-8") == script.text(), "run python python/scripts/write_agents.py"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_setting_is_a_documented_keyword_with_its_default(kind):
    parameters = inspect.signature(kind).parameters
    plain = bqrl.settings(kind.algo)
    others = {of: bqrl.settings(kind.algo, of) for of in ("vector", "planes", "frames")}
    words = documented(kind)
    networks = {"normalize_observations"} if "hidden" in plain else set()
    assert set(words) == set(parameters) == {*COMMON, *plain, *networks}
    for key, default in plain.items():
        shown = parameters[key].default
        # What is not said of a kind of observations is as for the kind before.
        before, words_of_default = default, f"Default {said(default)}"
        for of, other in others.items():
            if other[key] != before:
                before = other[key]
                words_of_default += f", for {of.removesuffix('s')}s {said(before)}"
        assert words[key].endswith(f"{words_of_default}.")
        follows = any(other[key] != default for other in others.values())
        assert shown == (None if follows else tuple(default) if isinstance(default, list) else default)


def said(value):
    return f'"{value}"' if isinstance(value, str) else repr(value)


def outside(text):
    """Values just outside the range that a docstring names."""
    if found := re.match(r"from (\d+) to (\d+), ", text):
        low, high = map(int, found.groups())
        return [low - 1, high + 1] if low else [high + 1]
    if text.startswith("> 0, "):
        return [0.0, -0.1, float("inf")]
    if text.startswith("≥ 0, "):
        return [-0.1, float("inf")]
    if found := re.match(r"in ([\[(])([^,]+), ([^\])]+)([\])]), ", text):
        left, low, high, right = found.groups()
        low, high = float(low), float(high)
        return [low - 1e-9 if left == "[" else low, high + 1e-9 if right == "]" else high]
    return []


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_the_documented_ranges_are_those_that_are_checked(kind):
    ranges = {key: outside(text) for key, text in documented(kind).items() if key not in COMMON}
    assert sum(map(bool, ranges.values())) >= 5
    for key, values in ranges.items():
        for value in values:
            with pytest.raises(ValueError, match=rf"^{key} must .*, got "):
                kind("bqrl/AssetSelling-v0", **{key: value})


@pytest.mark.parametrize("kind", TABULAR, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("env", ["bqrl/AssetSelling-v0", "FrozenLake-v1"])
def test_tabular_agents_learn_act_and_come_back(kind, env, tmp_path):
    bounds = {} if env.startswith("bqrl/") else {"reward_bounds": (0, 1), "horizon": 8}
    model = kind(env, seed=3, **bounds).learn(total_episodes=40)
    assert model.num_episodes == 40 and model.num_updates > 0
    before = model.evaluate(episodes=50, measure_at=[0.1, 0.5])
    assert before.exact == env.startswith("bqrl/") and [level.risk_level for level in before.levels] == [0.1, 0.5]
    model.save(tmp_path / "model")
    again = bqrl.load(tmp_path / "model", env=env)
    assert type(again) is kind and again.weights() == model.weights()
    states = np.arange(5)
    assert again.predict(states)[0].tolist() == model.predict(states)[0].tolist()


def test_tabular_agents_learn_to_sell():
    # Q*_.1 = 19/24. Selling at once reaches 2/24.
    for kind in (bqrl.UCBBQRL, bqrl.VaRQ):
        assert kind("bqrl/AssetSelling-v0", seed=1).learn(total_episodes=100).evaluate().quantile >= 15 / 24


def test_tabular_agents_refuse_vectors_and_unknown_rewards():
    with pytest.raises(ValueError, match="ucb-bqrl keeps tables"):
        bqrl.UCBBQRL("CartPole-v1")
    with pytest.raises(ValueError, match=r"give reward_bounds=\(low, high\)"):
        bqrl.UCBBQRL("FrozenLake-v1")


def test_ten_thousand_may_be_written_as_a_float():
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", hidden=[8]).learn(1e2)
    assert model.num_timesteps == 100
    assert model.learn(total_episodes=np.float64(2)).num_episodes >= 2


def test_a_typo_is_a_type_error(tmp_path):
    (tmp_path / "typo.py").write_text(
        "import bqrl\n"
        'bqrl.QRDQN("CartPole-v1", learning_rate=0.1, hidden=[8]).learn(1e4)\n'
        'bqrl.QRDQN("CartPole-v1", learing_rate=0.1)\n'
        'bqrl.UCBBQRL("FrozenLake-v1", prior="flat")\n'
        'bqrl.TargetTracking("CartPole-v1", risk_level="low")\n'
    )
    run = subprocess.run([sys.executable, "-m", "mypy", "--strict", "typo.py"], cwd=tmp_path, capture_output=True, text=True)
    wrong = [line for line in run.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[1] for line in wrong] == ["3", "4", "5"], run.stdout
    assert '"learing_rate"' in wrong[0]
