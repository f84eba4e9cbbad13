"""What `predict` returns and remembers."""

import time

import gymnasium
import numpy as np
import pytest
from support import SMALL

import bqrl


@pytest.fixture(scope="module")
def model():
    return bqrl.DeepBQRL("bqrl/AssetSelling-v0", risk_level=0.1, seed=1).learn(total_episodes=300)


def test_the_state_counts_decisions_and_rewards(model):
    _, state = model.predict(5)
    assert state.tolist() == [[1, 0]]
    _, state = model.predict(7, state, reward=0.25)
    assert state.tolist() == [[2, 0.25]]
    _, state = model.predict(7, state, reward=0.5)
    assert state.tolist() == [[3, 0.75]]
    _, state = model.predict(7, state, episode_start=np.array([True]), reward=9.0)
    assert state.tolist() == [[1, 0]]
    _, state = model.predict(np.array([1, 2]), np.array([[4, 0.5], [6, 0.1]]), np.array([False, True]), reward=[1, 2])
    assert state.tolist() == [[5, 1.5], [1, 0]]


def test_rewards_are_discounted_where_they_were_earned():
    model = bqrl.DeepBQRL("CartPole-v1", gamma=0.5, **SMALL)
    seen, state = np.zeros(4, np.float32), None
    for want in (0, 1, 1.5, 1.75):
        _, state = model.predict(seen, state, reward=1.0)
        assert state[0, 1] == want


def test_the_stage_matters(model):
    # With one decision left everything is sold that was not at first.
    offers = np.arange(1, 25)
    first, _ = model.predict(offers)
    last, _ = model.predict(offers, np.tile([9.0, 0.0], (24, 1)), reward=np.zeros(24))
    assert first.sum() > last.sum()


def test_batches_and_single_observations_agree(model):
    batch = np.arange(25)
    together, _ = model.predict(batch)
    assert together.tolist() == [model.predict(int(s))[0] for s in batch]
    assert model.predict(np.int64(5))[0] == model.predict(5)[0] == model.predict(np.array(5))[0]


def test_rewards_come_with_wrapped_observations(model):
    env = bqrl.ObserveReward(gymnasium.make("bqrl/AssetSelling-v0"))
    assert env.reset(seed=1)[0] == {"observation": 5, "reward": 0.0}
    seen, reward, *_ = env.step(0)
    assert seen["reward"] == reward == 5 / 24 and env.observation_space.contains(env.reset()[0])
    seen = {"observation": np.array([3, 4]), "reward": np.array([[0.5], [0.25]])}
    _, state = model.predict(seen, np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([False, False]))
    assert state.tolist() == [[2, 0.5], [2, 0.25]]


def test_a_caller_who_forgets_the_rewards_is_told_once():
    model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", **SMALL)
    _, state = model.predict(5)
    with pytest.warns(UserWarning, match="ObserveReward"):
        model.predict(5, state)
    model.predict(5, state)


def test_a_policy_that_does_not_depend_on_rewards_asks_for_none():
    # Warnings are errors in these tests.
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL).learn(total_episodes=20)
    _, state = model.predict(5)
    action, _ = model.predict(7, state)
    assert all(model.predict(7, state, reward=reward)[0] == action for reward in (0.0, 0.5, -1e6))


def test_a_model_for_one_level_refuses_others(model):
    assert model.predict(5, risk_level=0.1)[0] == model.predict(5)[0]
    with pytest.raises(ValueError, match=r"trained for risk_level=0.1"):
        model.predict(5, risk_level=0.5)
    with pytest.raises(ValueError, match=r"trained for risk_level=0.1"):
        model.predict(5, risk_level=0.1, beta=0.05)


def test_a_risk_neutral_model_serves_every_level():
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", seed=1).learn(total_episodes=50)
    assert model.risk_levels == [0.1, 0.5, 0.9]
    for level in (0.05, 0.5, 0.99):
        assert model.predict(5, risk_level=level)[0] == model.predict(5)[0]
        assert model.evaluate(risk_level=level).risk_level == level
    with pytest.raises(ValueError, match=r"^risk_level must lie in \(0, 1\), got 1.5$"):
        model.predict(5, risk_level=1.5)


def test_a_target_is_held_for_the_episode_and_can_be_set_from_outside():
    model = bqrl.TargetTracking("bqrl/AssetSelling-v0", seed=1).learn(total_episodes=150)
    _, careful = model.predict(5, risk_level=0.1)
    _, bold = model.predict(5, risk_level=0.9)
    # (stage, collected, u, v, weight, ramp): returns from u on count as reaching v.
    assert careful.shape == (1, 6) and careful[0, 2] <= careful[0, 3] < bold[0, 3] <= 1
    assert 0 <= careful[0, 4] <= 1 and careful[0, 5] == bold[0, 5] == 0
    # Later calls go by the state, whatever level they name.
    offers = np.arange(25)
    at = lambda state: np.tile(np.append([3.0, 0.0], state[0, 2:]), (25, 1))  # noqa: E731
    one, _ = model.predict(offers, at(careful), reward=np.zeros(25), risk_level=0.1)
    two, kept = model.predict(offers, at(careful), reward=np.zeros(25), risk_level=0.9)
    assert one.tolist() == two.tolist() and (kept[:, 2:] == careful[0, 2:]).all()
    # A target that is set from outside: the model sells what reaches it, and waits with less.
    waits = {}
    for target in (14, 22):
        row = np.array([[3.0, 0.0, target / 24, target / 24, 1.0, 0.0]])
        actions, kept = model.predict(offers, at(row), reward=np.zeros(25))
        waits[target] = actions.sum()
        assert (kept[:, 2:] == row[0, 2:]).all()
    assert waits[14] < waits[22]
    # A buffered quantile clips between two returns.
    _, clipped = model.predict(5, risk_level=0.5, beta=0.5)
    assert clipped[0, 2] < clipped[0, 3] and 0.9 < clipped[0, 4] <= 1 and clipped[0, 5] in (1, 2)
    assert model.evaluate(risk_level=0.5, beta=0.5).buffered_quantile > 0.5
    with pytest.raises(ValueError, match="state has 2 columns, want 6"):
        model.predict(5, np.zeros((1, 2)), reward=0.0)


FORGED = {
    "u": (2, [np.nan, np.inf, -np.inf]),
    "v": (3, [np.nan, np.inf, -np.inf]),
    "weight": (4, [-0.1, 1.1, np.nan, np.inf]),
    "ramp": (5, [-1.0, 0.5, 3.0, 1e30, np.nan, np.inf]),
}


@pytest.mark.parametrize("place", FORGED)
def test_a_forged_target_is_refused(place):
    # Two ramps: 0, 1 and 2 are the only numbers of one.
    model = bqrl.TargetTracking("bqrl/AssetSelling-v0", ramps=[0.3, 1.0], **SMALL).learn(total_episodes=20)
    _, state = model.predict(5, risk_level=0.5)
    column, values = FORGED[place]
    for value in values:
        forged = state.copy()
        forged[0, column] = value
        with pytest.raises(ValueError, match="state"):
            model.predict(5, forged, reward=0.0)
        # Where a new episode starts, the state is not read further than it must be finite.
        if np.isfinite(value):
            model.predict(5, forged, np.array([True]), reward=0.0)
    model.predict(5, state, reward=0.0)


def test_a_model_without_ramps_serves_a_buffered_quantile_by_the_point_quantile():
    model = bqrl.TargetTracking("bqrl/AssetSelling-v0", ramps=[], **SMALL).learn(total_episodes=50)
    _, point = model.predict(5, risk_level=0.5)
    _, buffered = model.predict(5, risk_level=0.5, beta=0.5)
    assert point.tolist() == buffered.tolist() and point[0, 5] == 0


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (dict(observation=25 + 1), "from 0 to 25"),
        (dict(observation=np.array([[1, 2]])), "integer observation"),
        (dict(observation=5, state=np.zeros((2, 2)), reward=0), "state has 2 rows, want 1"),
        (dict(observation=5, state=np.array([[-1.0, 0]]), reward=0), "not negative"),
        (dict(observation=np.array([5, 5]), state=np.zeros((2, 2)), reward=[0, 0, 0]), "reward has 3 rows, want 2"),
    ],
)
def test_wrong_arguments_are_named(model, wrong, said):
    with pytest.raises((ValueError, TypeError), match=said):
        model.predict(**wrong)


def test_the_target_is_computed_only_where_an_episode_starts():
    class Starts(gymnasium.Env):
        """Starts everywhere, so that a target is the best over many starts."""

        observation_space, action_space = gymnasium.spaces.Box(0, 1, (4,), np.float32), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return self.np_random.random(4, np.float32), {}

        def step(self, action):
            return np.zeros(4, np.float32), 1.0, True, False, {}

    small = dict(hidden=[8], updates_per_step=0)
    model = bqrl.TargetTracking(Starts(), horizon=1, **small).learn(total_episodes=2000)
    seen = np.zeros(4, np.float32)
    _, state = model.predict(seen)

    def fastest(*arguments):
        """Seconds, of the quickest of several: what else the machine does only adds."""
        times = []
        for _ in range(20):
            began = time.perf_counter()
            model.predict(seen, *arguments, reward=0.0)
            times.append(time.perf_counter() - began)
        return min(times)

    assert fastest() > 5 * fastest(state)
    # One row that starts is enough to make it necessary.
    both, starts = np.stack([seen, seen]), np.array([True, False])
    _, after = model.predict(both, np.concatenate([state, state]), starts, reward=[0.0, 0.0])
    assert after[:, 2:].tolist() == [state[0, 2:].tolist()] * 2 and after[:, 0].tolist() == [1, 2]
