"""Our problems as Gymnasium environments, and the surface of the package."""

import inspect

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env

import bqrl
from bqrl import _bqrl

IDS = [f"bqrl/{''.join(word.capitalize() for word in name.split('-'))}-v0" for name in bqrl.problems()]


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_wrong(name):
    check_env(gymnasium.make(name).unwrapped)


def test_there_are_nine():
    assert len(IDS) == 9 and "bqrl/AssetSelling-v0" in IDS and set(IDS) <= set(gymnasium.registry)


def test_parameters_are_keywords():
    env = gymnasium.make("bqrl/FrozenLake-v0", map="8x8", slippery=False, horizon=17)
    assert env.observation_space.n == 64 and env.unwrapped.horizon == 17
    with pytest.raises(ValueError, match="no parameter"):
        gymnasium.make("bqrl/FrozenLake-v0", size=3)
    with pytest.raises(ValueError, match="offers must be an integer from 2 to 2000"):
        gymnasium.make("bqrl/AssetSelling-v0", offers=1)


def test_the_horizon_ends_the_episode():
    env = gymnasium.make("bqrl/AssetSelling-v0")
    env.reset(seed=1)
    flags = [env.step(1)[2:4] for _ in range(10)]
    assert flags == [(False, False)] * 9 + [(True, False)]
    with pytest.raises(RuntimeError, match="reset first"):
        env.unwrapped.step(1)


@pytest.mark.parametrize("kind", [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking])
def test_every_setting_is_documented_and_none_else(kind):
    documented = {line.split(":")[0].strip() for line in inspect.getdoc(kind).splitlines() if line.startswith("    ")}
    assert documented == set(bqrl.settings(kind.algo))


def test_every_class_is_an_algorithm_of_the_command_line():
    classes = {kind.algo for kind in vars(bqrl).values() if inspect.isclass(kind) and hasattr(kind, "algo")}
    assert {"deep-bqrl", "qr-dqn", "target-tracking"} <= classes <= {name for name, _, _ in _bqrl.algos()}


def test_everything_public_has_a_docstring():
    for name in bqrl.__all__:
        thing = getattr(bqrl, name)
        assert isinstance(thing, str) or inspect.getdoc(thing), name
        for method in vars(thing) if inspect.isclass(thing) else ():
            if not method.startswith("_") and callable(getattr(thing, method)):
                assert inspect.getdoc(getattr(thing, method)), f"{name}.{method}"
