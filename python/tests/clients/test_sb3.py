"""Stable-Baselines3's `evaluate_policy`, unchanged, on our models."""

import gymnasium
import numpy as np
import pytest
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor, load_results
from stable_baselines3.common.vec_env import DummyVecEnv

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
