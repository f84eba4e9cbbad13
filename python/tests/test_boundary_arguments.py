"""Numbers of callers beyond any range are mistakes with a ValueError on one line, never a panic, an abort or an OverflowError."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support import SMALL, Shaped

import bqrl

CARTPOLE = np.zeros(4, np.float32)


@pytest.fixture(scope="module")
def model():
    return bqrl.QRDQN("CartPole-v1", **SMALL).learn(30)


def refused(work, said=None):
    with pytest.raises(ValueError, match=said) as error:
        work()
    assert str(error.value).isprintable() and len(str(error.value)) < 500


@pytest.mark.parametrize("huge", [2**53 + 1, 2**63, 2**64, 10**30, -1, 0, 1.5, "many", None.__class__, np.nan])
def test_counts(huge, model):
    refused(lambda: model.learn(huge), "total_timesteps must be a whole number of at least 1")
    refused(lambda: model.learn(total_episodes=huge), "total_episodes")
    refused(lambda: model.learn(1, evaluation_episodes=huge), "evaluation_episodes")
    refused(lambda: model.evaluate(episodes=huge), "episodes")
    refused(lambda: bqrl.QRDQN("CartPole-v1", horizon=huge), "horizon")
    refused(lambda: bqrl.CheckpointCallback("model", every=huge), "every")
    refused(lambda: bqrl.plan("asset-selling", grid=huge), "grid")
    refused(lambda: bqrl.plan(np.ones((1, 1, 1)), np.ones((1, 1)), horizon=huge, start=0), "horizon")
    assert model.num_timesteps == 30


@pytest.mark.parametrize("seed", [-1, 2**63, 10**30, 0.5, "x", None])
def test_seeds(seed, model):
    refused(lambda: bqrl.QRDQN("CartPole-v1", seed=seed), "seed must be a whole number")
    refused(lambda: model.evaluate(episodes=1, seed=seed), "seed must be a whole number")


@pytest.mark.parametrize("bounds", [(np.nan, 1), (0, np.inf), (1, 0), (1,), (1, 2, 3), 3, "ab"])
def test_bounds_of_rewards(bounds):
    refused(lambda: bqrl.QRDQN("CartPole-v1", reward_bounds=bounds), "reward_bounds")


def test_settings_beyond_any_integer():
    refused(lambda: bqrl.QRDQN("CartPole-v1", hidden=[2**70]), r"hidden must be below 2\^63")
    refused(lambda: bqrl.QRDQN("CartPole-v1", batch_size=2**70), r"batch_size must be below 2\^63")


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(10**12),
        spaces.Discrete(2**62),
        spaces.Discrete(5, start=2**63 - 3),
        spaces.MultiBinary([2**20, 2**20]),
        spaces.MultiDiscrete([2**40, 2**40]),
    ],
    ids=str,
)
def test_spaces_beyond_any_memory(space):
    refused(lambda: bqrl.QRDQN(Shaped(space), horizon=5, **SMALL))


def test_actions_beyond_any_memory():
    class Wide(Shaped):
        action_space = spaces.Discrete(2**62)

    refused(lambda: bqrl.QRDQN(Wide(spaces.Box(-1, 1, (3,))), horizon=5, **SMALL))


@pytest.mark.parametrize("stage", [1e300, 2.0**53, 2.0**31, -1, 0.5, np.nan, np.inf])
def test_stages_of_predict(stage, model):
    refused(lambda: model.predict(CARTPOLE, state=[[stage, 0.0]], reward=0.0), "state must hold stages")
    refused(lambda: model.predict(CARTPOLE, state=[[1.0, np.inf]], reward=0.0), "state must hold")


def test_rewards_of_predict(model):
    for reward in (np.nan, np.inf):
        refused(lambda reward=reward: model.predict(CARTPOLE, state=[[1.0, 0.0]], reward=reward), "finite reward")
    refused(lambda: model.predict(CARTPOLE, state=[[1.0, 1e308]], reward=1e308), "add up")
    refused(lambda: model.predict(CARTPOLE, state=[[1.0, 0.0, 0.0]], reward=0.0), "3 columns, want 2")
    refused(lambda: model.predict(np.zeros((2, 4), np.float32), state=[[1.0, 0.0]], reward=0.0), "rows")


def test_arrays_that_lie_badly_in_memory_are_understood(model):
    def unaligned(values):
        raw = np.zeros(values.nbytes + 1, np.uint8)[1:]
        raw[:] = values.view(np.uint8).ravel()
        return raw.view(values.dtype).reshape(values.shape)

    seen = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    state, rewards = np.tile([3.0, 7.0], (6, 1)), np.arange(6.0)
    plain = model.predict(seen, state=state, reward=rewards)
    for change in (unaligned, np.asfortranarray, lambda x: x.astype(x.dtype.newbyteorder()), lambda x: x[::-1].copy()[::-1]):
        other = model.predict(change(seen), state=change(state), reward=change(rewards))
        assert np.array_equal(plain[0], other[0]) and np.array_equal(plain[1], other[1])


def rows(**changes):
    row = {"s": 0, "a": 0, "p": 1.0, "after": 1, "r": 1.0, "ends": True} | changes
    return tuple(np.array([value]) for value in row.values())


def test_tables_beyond_any_memory():
    table = bqrl._bqrl.Problem.from_rows
    for n_states, n_actions in ((10**13, 2), (2, 10**13), (10**7, 60_000), (2**63, 2**63 - 1)):
        refused(lambda s=n_states, a=n_actions: table("x", s, a, rows(), [(0, 1.0)], 3, 1.0), "at most 10000000 states")
    refused(lambda: table("x", 2, 1, rows(), [(0, 1.0)], 10**15, 1.0), "horizon")
    refused(lambda: table("x", 2, 1, rows(), [(10**15, 1.0)], 3, 1.0), "start")
    for changes in ({"s": -1}, {"a": 10**15}, {"after": 10**15}, {"p": np.nan}, {"p": 2.0}, {"r": np.inf}):
        refused(lambda changes=changes: table("x", 2, 1, rows(**changes), [(0, 1.0)], 3, 1.0))
    small = table("x", 2, 1, rows(), [(0, 1.0)], 3, 1.0)
    refused(lambda: small.available(10**18, 0), "stage must be below 3")
    refused(lambda: small.available(0, 10**18), "state must be below 2")

    class Far(gymnasium.Env):
        observation_space, action_space = spaces.Discrete(2), spaces.Discrete(1)
        P = {0: {0: [(1.0, 10**13, 1.0, True)]}}

    refused(lambda: bqrl.plan(Far(), horizon=3, start=0), "at most 10000000 states")


def test_names_in_messages_are_one_printable_line():
    class Bad(Shaped):
        pass

    Bad.__name__ = Bad.__qualname__ = "\x1b[31mred\nline"
    refused(lambda: bqrl.QRDQN(Bad(spaces.Box(-1, 1, (3,)))), "has no time limit")
    with pytest.raises(TypeError) as error:
        bqrl.QRDQN(type("\x1b[31m\n", (), {})())
    assert str(error.value).isprintable()
    refused(lambda: bqrl.plan("\x1b[31m\n"))
    refused(lambda: bqrl.plan("asset-selling", **{"\x1b[31m": 1}))
    with pytest.raises(TypeError) as error:
        bqrl.QRDQN("CartPole-v1", **{"\x1b[31m\n": 1})
    assert str(error.value).isprintable()
