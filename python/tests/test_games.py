"""MinAtar's games as Gymnasium environments. Comparisons with the MinAtar package: clients/test_minatar.py."""

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import bqrl

IDS = [f"bqrl/MinAtar{name}-v0" for name in ("Breakout", "Asterix", "Freeway", "Seaquest", "SpaceInvaders")]


@pytest.mark.parametrize("name", IDS)
def test_gymnasium_finds_nothing_wrong(name):
    check_env(gymnasium.make(name).unwrapped)


def played(name, seed, steps=200, **parameters):
    env = gymnasium.make(name, **parameters)
    seen, _ = env.reset(seed=seed)
    rows = [seen]
    actions = np.random.default_rng(seed)
    for _ in range(steps):
        seen, reward, terminated, truncated, _ = env.step(actions.integers(env.action_space.n))
        rows.append(np.append(seen.ravel(), reward))
        if terminated or truncated:
            env.reset()
    return np.concatenate([row.ravel() for row in rows])


@pytest.mark.parametrize("name", IDS)
def test_a_seed_repeats_a_game(name):
    assert np.array_equal(played(name, 5), played(name, 5))
    assert not np.array_equal(played(name, 5), played(name, 6))


def test_parameters_are_keywords():
    env = gymnasium.make("bqrl/MinAtarBreakout-v0", actions="minimal", sticky=0, horizon=3)
    assert env.unwrapped.actions == ["stay", "left", "right"] and env.action_space.n == 3
    env.reset(seed=1)
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False)] * 2 + [(False, True)]
    env = gymnasium.make("bqrl/MinAtarFreeway-v0", horizon=1, horizon_is_task=True)
    env.reset(seed=1)
    assert env.step(0)[2:4] == (True, False)
    for parameters, said in [
        ({"sticky": 2}, "a number from 0 to 1"),
        ({"actions": "few"}, "all or minimal"),
        ({"speed": 1}, "no parameter"),
    ]:
        with pytest.raises(ValueError, match=said):
            gymnasium.make("bqrl/MinAtarBreakout-v0", **parameters)
    with pytest.raises(ValueError, match="the closest name is minatar/breakout"):
        bqrl.GameEnv("minatar/brekout")


def test_misuse_is_an_exception():
    env = bqrl.GameEnv("minatar/breakout", render_mode="ansi")
    with pytest.raises(RuntimeError, match="reset first"):
        env.step(0)
    with pytest.raises(RuntimeError, match="reset first"):
        env.render()
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"action must lie in 0..6, got 6"):
        env.step(6)
    with pytest.raises(ValueError, match="render_mode"):
        bqrl.GameEnv("minatar/breakout", render_mode="human")


def test_positions_are_drawn():
    env = gymnasium.make("bqrl/MinAtarBreakout-v0", render_mode="ansi")
    env.reset(seed=0)
    assert env.render().splitlines()[2] == "|##########|"
    env = gymnasium.make("bqrl/MinAtarSeaquest-v0", render_mode="rgb_array")
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (200, 200, 3) and picture.dtype == np.uint8 and len(np.unique(picture)) > 3
