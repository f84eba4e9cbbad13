"""Pools of EnvPool, unchanged."""

import envpool
import pytest

import bqrl


@pytest.mark.filterwarnings("ignore:.*precision lowered")
def test_a_pool_is_learned_from_and_measured_in():
    env = envpool.make("CartPole-v1", env_type="gymnasium", num_envs=4)
    model = bqrl.QRDQN(env, hidden=[16], seed=1)
    assert model.horizon == 500
    model.learn(400)
    assert 400 <= model.num_timesteps < 404 and model.num_episodes > 5
    # CartPole pays 1 a step: totals and lengths agree unless the steps that only reset were counted.
    value = model.evaluate(episodes=12)
    assert (value.totals == value.lengths).all() and value.totals.min() >= 8
