"""Learning from logs."""

import gymnasium
import numpy as np
import pytest
from support import SMALL, Diary, replay

import bqrl


def logged(env, episodes, seed=0):
    """What a random policy meets, as arrays."""
    rng = np.random.default_rng(seed)
    names = ("observations", "actions", "rewards", "next_observations", "terminations", "truncations")
    rows = {name: [] for name in names}
    for episode in range(episodes):
        seen, _ = env.reset(seed=seed + episode)
        over = False
        while not over:
            action = int(rng.integers(env.action_space.n))
            after, reward, terminated, truncated, _ = env.step(action)
            for name, value in zip(names, (seen, action, reward, after, terminated, truncated), strict=True):
                rows[name].append(value)
            seen, over = after, terminated or truncated
    return {name: np.array(column) for name, column in rows.items()}


def test_every_transition_of_the_log_is_remembered(tmp_path):
    env = gymnasium.wrappers.TimeLimit(Diary(), 10)
    log = logged(env, 6)
    model = bqrl.QRDQN(env, **SMALL).learn_offline(log)
    assert (model.num_timesteps, model.num_episodes) == (len(log["actions"]), 6) == (18, 6)
    model.save(tmp_path / "model")
    # 0 not yet, 1 terminated, 3 cut off.
    ends = np.where(log["terminations"], 1, np.where(log["truncations"], 3, 0))
    assert replay(tmp_path / "model", "ends") == ends.tolist()
    before = model.num_updates
    model.learn_offline(log, passes=2)
    assert (model.num_timesteps, model.num_episodes) == (54, 18) and model.num_updates > before > 0


@pytest.mark.parametrize("kind", [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking, bqrl.VaRQ, bqrl.UCBBQRL], ids=lambda kind: kind.__name__)
def test_a_good_policy_is_learned_from_random_play(kind):
    # Random play reaches 2/24 nine times in ten; Q*_.1 = 19/24.
    env = gymnasium.make("bqrl/AssetSelling-v0")
    log = logged(env, 400)
    certain = {"optimism": 0.0} if "optimism" in bqrl.settings(kind.algo) else {}
    model = kind(env, seed=1, **certain).learn_offline(log)
    assert model.evaluate(risk_level=0.1).quantile >= 12 / 24
    # It goes on in the environment, which the log did not touch.
    assert model.learn(total_episodes=5).num_episodes == 405


def test_the_order_of_learning_is_that_of_the_same_actions_in_the_environment():
    class Recorded(gymnasium.Wrapper):
        def __init__(self, env):
            super().__init__(env)
            self.rows = []

        def reset(self, **how):
            self.seen, info = self.env.reset(**how)
            return self.seen, info

        def step(self, action):
            after, reward, terminated, truncated, info = self.env.step(action)
            self.rows.append((self.seen, action, reward, after, terminated, truncated))
            self.seen = after
            return after, reward, terminated, truncated, info

    env = Recorded(gymnasium.make("CartPole-v1"))
    played = bqrl.QRDQN(env, seed=1, epsilon=0.0, **SMALL).learn(total_episodes=8)
    names = ("observations", "actions", "rewards", "next_observations", "terminations", "truncations")
    log = {name: np.array(column) for name, column in zip(names, zip(*env.rows, strict=True), strict=True)}
    told = bqrl.QRDQN("CartPole-v1", seed=1, epsilon=0.0, **SMALL).learn_offline(log)
    assert told.weights() == played.weights()


def test_next_observations_are_needed_only_where_episodes_are_cut_off():
    env = gymnasium.make("FrozenLake-v1", max_episode_steps=1000)
    log = logged(env, 20)
    whole = bqrl.QRDQN(env, seed=1, optimism=0.0, **SMALL).learn_offline(log)
    del log["next_observations"]
    with pytest.raises(ValueError, match="step 3 is cut off: next_observations must say"):
        bqrl.QRDQN(env, optimism=0.0, **SMALL).learn_offline({name: column[:4] for name, column in log.items()} | {"truncations": [0, 0, 0, 1]})
    del log["truncations"]
    assert bqrl.QRDQN(env, seed=1, optimism=0.0, **SMALL).learn_offline(log).weights() == whole.weights()


def test_optimism_about_actions_that_nobody_took_is_warned_of():
    n = 300
    log = {
        "observations": np.zeros(n, int),
        "actions": np.zeros(n, int),
        "rewards": np.full(n, 0.4),
        "terminations": np.ones(n, bool),
    }
    env = gymnasium.make("FrozenLake-v1")
    model = bqrl.QRDQN(env, seed=1, hidden=[16])
    with pytest.warns(UserWarning, match="3 pairs of a logged observation and an action are not in the log, and optimism=3"):
        model.learn_offline(log)
    assert model.predict(0)[0] != 0
    # Warnings are errors in these tests.
    bqrl.QRDQN(env, seed=1, hidden=[16], optimism=0.0).learn_offline(log)


def test_callbacks_are_called_and_stop_it():
    env = gymnasium.make("CartPole-v1")
    seen = []
    model = bqrl.QRDQN(env, **SMALL).learn_offline(logged(env, 5), lambda model, episode: seen.append(episode) or len(seen) < 3)
    assert model.num_episodes == 3 and [episode.episode for episode in seen] == [1, 2, 3]


def spoiled(**changes):
    log = logged(gymnasium.make("CartPole-v1"), 2)
    return log | {name: change(log[name]) for name, change in changes.items()}


@pytest.mark.parametrize(
    ("dataset", "error", "said"),
    [
        ([1, 2], TypeError, "want a Minari dataset or a dictionary"),
        ({"actions": [0]}, ValueError, "the dataset has no observations"),
        (spoiled(rewards=lambda x: x[:-1]), ValueError, "want .* rewards, as many as actions"),
        (spoiled(observations=lambda x: x[:-1]), ValueError, "want .* observations"),
        (spoiled(actions=lambda x: x + 1), ValueError, "want an action from 0 to 1, got 2"),
        (spoiled(actions=lambda x: x + 0.5), TypeError, "whole numbers as actions"),
        (spoiled(terminations=lambda x: x & False), ValueError, "the last episode, from step 0 on, does not end"),
        (spoiled(rewards=lambda x: x * np.nan), ValueError, "want a finite reward, got NaN"),
        (spoiled(observations=lambda x: x[:, :3]), ValueError, "shape"),
    ],
)
def test_wrong_logs_are_refused(dataset, error, said):
    model = bqrl.QRDQN("CartPole-v1", **SMALL)
    with pytest.raises(error, match=said):
        model.learn_offline(dataset)


def test_what_cannot_be_learned_from_a_log_is_said():
    log = logged(gymnasium.make("bqrl/AssetSelling-v0"), 3)
    for kind in (bqrl.PPO, bqrl.TRPO, bqrl.QPPO):
        with pytest.raises(TypeError, match="learns from its own episodes only"):
            kind("bqrl/AssetSelling-v0").learn_offline(log)
    with pytest.raises(ValueError, match="passes"):
        bqrl.UCBBQRL("bqrl/AssetSelling-v0").learn_offline(log, passes=2)
    with pytest.raises(ValueError, match="more than the model's horizon of 2"):
        bqrl.QRDQN("CartPole-v1", horizon=2).learn_offline(logged(gymnasium.make("CartPole-v1"), 1))
