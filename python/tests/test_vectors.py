"""Vector environments of every make."""

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from support import SMALL, Diary, spied, told

import bqrl


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_make_vec_is_learned_from_and_measured_in(mode):
    env = gymnasium.make_vec("CartPole-v1", num_envs=3, vectorization_mode=mode)
    model = bqrl.QRDQN(env, **SMALL)
    assert model.horizon == 500
    model.learn(1e2)
    assert 100 <= model.num_timesteps <= 102
    value = model.evaluate(episodes=7, measure_at=[0.1, 0.5])
    assert len(value.returns) == value.episodes == 7 and (value.returns == value.lengths).all()
    env.close()


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_a_run_is_evaluated_in_another_environment_like_those_of_the_vector(mode, tmp_path):
    env = gymnasium.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode)
    bqrl.QRDQN(env, **SMALL).learn(60, log_dir=tmp_path / "run", evaluation_episodes=3)
    assert (tmp_path / "run/summary.json").exists()
    env.close()


class Pool:
    """As EnvPool behaves: the step after an episode's end resets, and there are no seeds."""

    def __init__(self, n, batch_size=None, limit=10):
        self.envs = [Diary(who) for who in range(n)]
        self.config = {"num_envs": n, "batch_size": batch_size or n, "max_episode_steps": limit}
        self.observation_space, self.action_space = Diary.observation_space, Diary.action_space
        self.over = [False] * n

    def reset(self):
        return np.stack([env.reset()[0] for env in self.envs]), {}

    def step(self, actions):
        assert actions.dtype == np.int32
        rows = []
        for who, env in enumerate(self.envs):
            if self.over[who]:
                rows.append((env.reset()[0], 0.0, False, False))
            else:
                rows.append(env.step(actions[who])[:4])
            self.over[who] = rows[-1][2] or rows[-1][3]
        seen, rewards, terminated, truncated = zip(*rows, strict=True)
        return np.stack(seen), np.array(rewards), np.array(terminated), np.array(truncated), {"env_id": np.arange(len(rows))}

    def close(self):
        self.closed = True


class VecEnv:
    """As Stable-Baselines3's behave: the step that ends an episode resets, and says so in its infos."""

    def __init__(self, n, limit=10):
        self.envs, self.num_envs, self.limit = [Diary(who) for who in range(n)], n, limit
        self.observation_space, self.action_space = Diary.observation_space, Diary.action_space
        self.seeds = []

    @property
    def unwrapped(self):
        return self

    def seed(self, seed):
        self.seeds.append(seed)

    def reset(self):
        return np.stack([env.reset()[0] for env in self.envs])

    def step_async(self, actions):
        self.actions = actions

    def step_wait(self):
        seen, rewards, done, infos = [], [], [], []
        for env, action in zip(self.envs, self.actions, strict=True):
            after, reward, terminated, truncated, _ = env.step(action)
            over, info = terminated or truncated, {"TimeLimit.truncated": truncated and not terminated}
            if over:
                info["terminal_observation"], after = after, env.reset()[0]
            for column, value in zip((seen, rewards, done, infos), (after, reward, over, info), strict=True):
                column.append(value)
        return np.stack(seen), np.array(rewards), np.array(done), infos

    def step(self, actions):
        self.step_async(actions)
        return self.step_wait()

    def get_attr(self, name):
        if name == "_max_episode_steps" and self.limit:
            return [self.limit] * self.num_envs
        raise AttributeError(name)

    def env_method(self, name):
        raise NotImplementedError

    def close(self):
        self.closed = True


@pytest.mark.parametrize("kind", [Pool, VecEnv])
def test_environments_of_other_libraries_are_told_rightly(kind):
    env = kind(3)
    model = bqrl.DeepBQRL(env, **SMALL)
    assert model.horizon == 10 and model.env is env and model.get_env() is env
    spies = spied(model)
    model.learn(total_timesteps=120)
    [spy] = spies
    for who in range(3):
        episodes = [episode for episode in spy.heard if episode[0][1] == who]
        assert len(episodes) > 8 and episodes == [told(who, k) for k in range(len(episodes))]
    assert model.num_episodes == len(spy.heard)
    del model._lanes  # The spy expects lanes that never stop.
    assert model.evaluate(episodes=10).episodes == 10
    if kind is VecEnv:
        assert len(env.seeds) == 2  # Once to learn, once to evaluate.


def test_what_cannot_be_played_is_said():
    with pytest.raises(ValueError, match="want batch_size=4, got 2"):
        bqrl.QRDQN(Pool(4, batch_size=2))
    for endless in (Pool(2, limit=2**31 - 1), VecEnv(2, limit=None)):
        with pytest.raises(ValueError, match="no time limit: give horizon="):
            bqrl.QRDQN(endless)

    class Old(Pool):
        def reset(self):
            return super().reset()[0]

    with pytest.raises(TypeError, match='make it with env_type="gymnasium"'):
        bqrl.QRDQN(Old(2), **SMALL).learn(10)


def test_lanes_agree_with_single_environments():
    """The same policy has the same law of returns in one environment and in many side by side."""
    model = bqrl.QRDQN("CartPole-v1", hidden=[8], seed=1).learn(300)
    one = model.evaluate(gymnasium.make("CartPole-v1"), episodes=300)
    many = model.evaluate(gymnasium.make_vec("CartPole-v1", num_envs=10, vectorization_mode="sync"), episodes=300)
    # Two samples of 300: five standard errors of the difference of their means.
    error = np.sqrt((one.returns.var() + many.returns.var()) / 300)
    assert abs(one.mean - many.mean) < 5 * error + 1e-9


def test_a_replay_that_takes_most_of_the_memory_is_warned_of():
    class Film(gymnasium.Env):
        observation_space, action_space = spaces.Box(0, 255, (64, 64), np.uint8), spaces.Discrete(2)

    _, available = bqrl._bqrl.replay_memory(1, 1, bqrl._spaces.observations(spaces.Box(-1, 1, (1,)), False, 1))
    if available is None:
        pytest.skip("the memory of this machine is not known")
    with pytest.warns(ResourceWarning, match=r"a full replay of \d+ transitions takes .* GB .*: lower replay_capacity"):
        bqrl.QRDQN(Film(), horizon=5, hidden=[8], replay_capacity=int(0.7 * available / 4200))
    # Warnings are errors in these tests.
    bqrl.QRDQN(Film(), horizon=5, hidden=[8], replay_capacity=int(0.2 * available / 4200))
    with pytest.raises(ValueError, match="lower replay_capacity to at most"):
        bqrl.QRDQN(Film(), horizon=5, hidden=[8], replay_capacity=int(2 * available / 4200))
