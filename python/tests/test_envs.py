"""Our problems as Gymnasium environments, and the surface of the package."""

import inspect

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from support import Shaped

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
def test_defaults_follow_the_observations(kind):
    assert settings_of(kind("bqrl/AssetSelling-v0")) == bqrl.settings(kind.algo)
    assert settings_of(kind("FrozenLake-v1")) == bqrl.settings(kind.algo)
    for space in (spaces.Box(-1, 1, (2,)), spaces.Box(0, 255, (8, 8), np.uint8), spaces.MultiBinary(5)):
        assert settings_of(kind(Shaped(space), horizon=5)) == bqrl.settings(kind.algo, "vector")
    for shape, dtype, of in (((10, 10, 4), np.bool_, "planes"), ((3, 12, 12), np.uint8, "planes"), ((40, 40, 3), np.uint8, "frames")):
        image = Shaped(spaces.Box(0, 1 if dtype is np.bool_ else 255, shape, dtype))
        assert settings_of(kind(image, horizon=5)) == bqrl.settings(kind.algo, of)
    game = kind("bqrl/MinAtarSeaquest-v0")
    assert settings_of(game) == bqrl.settings(kind.algo, "planes") and game.horizon == 10_000
    # What is given stays.
    assert settings_of(kind("CartPole-v1", hidden=[7], zeta=1))["hidden"] == [7]


def settings_of(model):
    """The settings that a model was made with."""
    tomllib = pytest.importorskip("tomllib")  # Python 3.10 has none.
    agent = tomllib.loads(model.config)["agent"]
    assert agent.pop("kind") == model.algo
    return agent


@pytest.mark.parametrize("kind", [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking])
def test_numbers_may_be_whole_where_a_fraction_is_possible(kind):
    for updates in (2, 2.0, np.int64(2), np.float32(2)):
        assert settings_of(kind("CartPole-v1", updates_per_step=updates, optimism=1))["updates_per_step"] == 2.0
    with pytest.raises(ValueError, match="n_quantiles"):
        kind("CartPole-v1", n_quantiles=2.5)


def test_a_fraction_of_an_update_per_step_is_one_every_few_steps():
    model = bqrl.DeepBQRL("CartPole-v1", updates_per_step=0.25, hidden=[4]).learn(100)
    before = model.num_updates
    assert model.learn(100).num_updates == before + 25


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
