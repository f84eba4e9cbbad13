"""Stable-Baselines3's `evaluate_policy`, unchanged, on our models."""

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

import bqrl


def test_evaluate_policy_finds_the_exact_mean():
    model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", seed=1).learn(total_episodes=300)
    env = bqrl.ObserveReward(gymnasium.make("bqrl/AssetSelling-v0"))
    returns, lengths = evaluate_policy(model, Monitor(env), n_eval_episodes=2000, return_episode_rewards=True)
    # Returns lie in [0, 1]: a standard error below 0.012; four of them.
    assert abs(np.mean(returns) - model.evaluate().mean) < 0.045
    assert max(lengths) <= 10
    # Four at once, whose episodes end at different times.
    vector = DummyVecEnv([lambda: Monitor(bqrl.ObserveReward(gymnasium.make("bqrl/AssetSelling-v0")))] * 4)
    mean, _ = evaluate_policy(model, vector, n_eval_episodes=2000)
    assert abs(mean - model.evaluate().mean) < 0.045


def test_a_collected_reward_reaches_the_policy_through_evaluate_policy():
    """With rewards that add up, the policy sees the same (h, c) as in our own evaluation: same seeds, same returns."""
    model = bqrl.DeepBQRL("bqrl/GambleChain-v0", seed=1).learn(total_episodes=200)
    exact = model.evaluate().mean
    env = Monitor(bqrl.ObserveReward(gymnasium.make("bqrl/GambleChain-v0")))
    returns, _ = evaluate_policy(model, env, n_eval_episodes=2000, return_episode_rewards=True)
    error = np.std(returns) / np.sqrt(len(returns))
    assert abs(np.mean(returns) - exact) < 5 * error + 1e-12


def test_a_plain_environment_works_with_a_warning():
    model = bqrl.DeepBQRL("CartPole-v1", hidden=[16]).learn(total_timesteps=300)
    with pytest.warns(UserWarning, match="ObserveReward"):
        mean, _ = evaluate_policy(model, Monitor(gymnasium.make("CartPole-v1")), n_eval_episodes=3)
    assert 8 <= mean <= 500
    # QR-DQN does not look at rewards. Warnings are errors in these tests.
    model = bqrl.QRDQN("CartPole-v1", hidden=[16]).learn(total_timesteps=300)
    mean, _ = evaluate_policy(model, Monitor(gymnasium.make("CartPole-v1")), n_eval_episodes=3)
    assert 8 <= mean <= 500


def test_monitor_files_are_read(tmp_path):
    bqrl.QRDQN("bqrl/AssetSelling-v0", hidden=[8]).learn(total_episodes=12, log_dir=tmp_path)
    frame = load_results(str(tmp_path / "seed-0"))
    assert len(frame) == 12 and {"r", "l", "t"} <= set(frame.columns)


@pytest.mark.parametrize("kind", [DummyVecEnv, SubprocVecEnv])
def test_make_vec_env_is_learned_from(kind, tmp_path):
    env = make_vec_env("CartPole-v1", 3, seed=0, vec_env_cls=kind)
    model = bqrl.QRDQN(env, hidden=[16], seed=1)
    assert model.horizon == 500 and model.get_env() is env
    # With a run directory, it is evaluated in an environment of its own.
    model.learn(300, log_dir=tmp_path / "run")
    assert model.num_timesteps == 300 and model.num_episodes > 5
    value = model.evaluate(episodes=10)
    assert (value.totals == value.lengths).all()
    mean, _ = evaluate_policy(model, env, n_eval_episodes=5)
    assert 8 <= mean <= 500
    env.close()
