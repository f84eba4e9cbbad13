"""Datasets of Minari, unchanged."""

import gymnasium
import minari
import numpy as np
import pytest

import bqrl


@pytest.mark.filterwarnings("ignore")
def test_a_minari_dataset_is_learned_from_and_measured(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gymnasium.make("CartPole-v1"))
    rng = np.random.default_rng(0)
    for seed in range(60):
        env.reset(seed=seed)
        over = False
        while not over:
            *_, terminated, truncated, _ = env.step(int(rng.integers(2)))
            over = terminated or truncated
    dataset = env.create_dataset("cartpole/random-v0", algorithm_name="random", code_permalink="", author="", author_email="")
    model = bqrl.QRDQN(dataset.recover_environment(), seed=1, hidden=[64]).learn_offline(dataset, passes=4)
    assert model.num_timesteps == 4 * dataset.total_steps and model.num_episodes == 240
    # Random play gets about 22.
    assert model.evaluate(episodes=50).mean > 40
