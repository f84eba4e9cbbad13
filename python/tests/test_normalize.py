"""The running moments of observations: shown, saved, turned off."""

import copy
import json
import pickle
import struct

import gymnasium
import numpy as np
import pytest
from support import SMALL

import bqrl

NETWORKS = [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking]


class Remember(gymnasium.Wrapper):
    """Keeps every observation."""

    def __init__(self, env):
        super().__init__(env)
        self.seen = []

    def reset(self, **kwargs):
        seen, info = self.env.reset(**kwargs)
        self.seen.append(seen)
        return seen, info

    def step(self, action):
        result = self.env.step(action)
        self.seen.append(result[0])
        return result


@pytest.mark.parametrize("kind", NETWORKS)
def test_the_moments_are_those_of_what_was_seen(kind):
    env = Remember(gymnasium.make("CartPole-v1"))
    model = kind(env, seed=1, **SMALL)
    assert model.observation_moments.count == 0
    model.learn(200)
    moments = model.observation_moments
    assert moments.count == len(env.seen) > 200
    assert np.allclose(moments.mean, np.mean(env.seen, axis=0, dtype=np.float64)) and np.allclose(moments.std, np.std(env.seen, axis=0, dtype=np.float64))


@pytest.mark.parametrize("env", ["FrozenLake-v1", "bqrl/AssetSelling-v0", "bqrl/MinAtarBreakout-v0"])
def test_what_is_not_a_vector_is_not_normalised(env):
    assert bqrl.QRDQN(env, **SMALL).observation_moments is None
    with pytest.raises(ValueError, match="^normalize_observations can be false only where observations are vectors; those of .* are not$"):
        bqrl.QRDQN(env, normalize_observations=False, **SMALL)


def test_wrong_values_and_the_names_of_others_are_refused():
    with pytest.raises(TypeError, match="^normalize_observations must be True or False, got 'no'$"):
        bqrl.QRDQN("CartPole-v1", normalize_observations="no")
    with pytest.raises(TypeError, match="it is called normalize_observations here"):
        bqrl.QRDQN("CartPole-v1", norm_obs=False)
    with pytest.raises(TypeError, match="has no setting 'normalize_observations'"):
        bqrl.PPO("FrozenLake-v1", normalize_observations=False)


def outputs(model, observations, stage, seen):
    """The sums of the quantiles of every action, by NumPy, from the weights and from what the network is said to see."""
    data = model.weights()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])

    def tensor(name):
        first, last = (8 + length + offset for offset in header[name]["data_offsets"])
        return np.frombuffer(data[first:last], "<f4").reshape(header[name]["shape"])

    left = model.horizon - stage
    paces = [np.exp(-left / 2.0**j) for j in range(int(np.ceil(np.log2(model.horizon))))]
    rest = np.tile([left / model.horizon, *paces], (len(observations), 1))
    x = np.concatenate([seen(observations), rest], axis=1)
    layer = 0
    while (stem := f"target.critic.0.layer.{layer}") + ".weight" in header:
        x = x @ tensor(stem + ".weight").T + tensor(stem + ".bias")
        if stem + ".norm.weight" in header:
            x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)
            x = np.maximum(x * tensor(stem + ".norm.weight") + tensor(stem + ".norm.bias"), 0)
        layer += 1
    return x.reshape(len(observations), -1, 2, model_quantiles(header)).sum((1, 3))


def model_quantiles(header):
    return int(dict(entry.split("=") for entry in header["__metadata__"]["bqrl_nn"].split())["n_quantiles"])


@pytest.mark.parametrize("normalize", [True, False])
def test_off_passes_the_numbers_on_unchanged(normalize):
    model = bqrl.QRDQN("CartPole-v1", seed=3, n_critics=1, normalize_observations=normalize, **SMALL).learn(600)
    batch = np.random.default_rng(0).normal(0, [1, 3, 0.2, 3], (300, 4)).astype(np.float32)
    actions = model.predict(batch)[0]
    assert 20 < actions.sum() < 280, "both actions are taken somewhere"
    if normalize:
        moments = model.observation_moments
        right, wrong = (lambda x: np.clip((x - moments.mean) / moments.std, -5, 5)), (lambda x: x)
    else:
        assert model.observation_moments is None
        right, wrong = (lambda x: x), (lambda x: np.clip(x / x.std(0), -5, 5))
    agree = [(outputs(model, batch, 0, seen).argmax(1) == actions).mean() for seen in (right, wrong)]
    assert agree[0] >= 0.99 > agree[1], agree


@pytest.mark.parametrize("kind", NETWORKS)
def test_it_is_saved_and_learns_on_bit_for_bit(kind, tmp_path):
    make = {"seed": 7, "normalize_observations": False} | SMALL
    straight = kind("CartPole-v1", **make).learn(total_episodes=20)
    halfway = kind("CartPole-v1", **make).learn(total_episodes=9)
    halfway.save(tmp_path / "model")
    batch = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    for again in (kind.load(tmp_path / "model"), pickle.loads(pickle.dumps(halfway)), copy.deepcopy(halfway)):
        assert again.observation_moments is None and "normalize_observations = false" in again.config
        assert (again.predict(batch)[0] == halfway.predict(batch)[0]).all()
    resumed = bqrl.load(tmp_path / "model", gymnasium.make("CartPole-v1")).learn(total_episodes=11)
    assert resumed.weights() == straight.weights()
    assert kind("CartPole-v1", **make | {"normalize_observations": True}).learn(total_episodes=20).weights() != straight.weights()


def test_moments_are_saved(tmp_path):
    model = bqrl.QRDQN("CartPole-v1", **SMALL).learn(100)
    model.save(tmp_path / "model")
    ours, theirs = model.observation_moments, bqrl.load(tmp_path / "model").observation_moments
    assert np.array_equal(ours.mean, theirs.mean) and np.array_equal(ours.std, theirs.std) and ours.count == theirs.count


def test_it_is_among_the_settings_of_a_run(tmp_path):
    model = bqrl.QRDQN("CartPole-v1", normalize_observations=False, **SMALL)
    model.learn(100, log_dir=tmp_path / "run", evaluation_episodes=5)
    assert "normalize_observations = false" in (tmp_path / "run/config.toml").read_text()
    assert bqrl.load(tmp_path / "run").observation_moments is None
