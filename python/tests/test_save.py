"""Saving, loading, going on."""

import os
import subprocess
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from support import SMALL

import bqrl


def state(model, path):
    """Every byte that a save holds, but for the number it is under."""
    model.save(path)
    newest = max(p for p in Path(path).iterdir() if p.is_dir())
    return {p.name: p.read_bytes() for p in newest.iterdir() if p.name != "manifest.json"}


@pytest.mark.parametrize("kind", [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking])
@pytest.mark.parametrize("env", ["CartPole-v1", "bqrl/FrozenLake-v0", "FrozenLake-v1"])
def test_a_loaded_model_goes_on_bit_for_bit(kind, env, tmp_path):
    straight = kind(env, seed=7, **SMALL).learn(total_episodes=30)
    halfway = kind(env, seed=7, **SMALL).learn(total_episodes=13)
    halfway.save(tmp_path / "halfway")
    resumed = kind.load(tmp_path / "halfway", env=gymnasium.make(env)).learn(total_episodes=17)
    assert state(resumed, tmp_path / "a") == state(straight, tmp_path / "b")
    assert resumed.weights() == straight.weights()
    other = kind(env, seed=8, **SMALL).learn(total_episodes=30)
    assert other.weights() != straight.weights()


@pytest.mark.parametrize("kind", [bqrl.DeepBQRL, bqrl.QRDQN, bqrl.TargetTracking])
def test_predictions_do_not_depend_on_saving(kind, tmp_path):
    model = kind("CartPole-v1", **SMALL).learn(total_timesteps=100)
    model.save(tmp_path / "model")
    again = bqrl.load(tmp_path / "model")
    batch = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    assert np.array_equal(model.predict(batch)[0], again.predict(batch)[0])
    assert again.env is None
    with pytest.raises(ValueError, match="no environment"):
        again.learn(10)


def test_a_wrong_or_damaged_file_is_refused(tmp_path):
    model = bqrl.DeepBQRL("CartPole-v1", **SMALL).learn(total_timesteps=20)
    model.save(tmp_path / "model")
    with pytest.raises(ValueError, match="holds a deep-bqrl model, not a QRDQN"):
        bqrl.QRDQN.load(tmp_path / "model")
    with pytest.raises(ValueError, match="no saved model"):
        bqrl.load(tmp_path / "nothing")
    with pytest.raises(ValueError, match="observations"):
        bqrl.load(tmp_path / "model", env="FrozenLake-v1")
    # Another limit is no obstacle: the model's horizon stays what it was.
    assert bqrl.load(tmp_path / "model", env=gymnasium.make("CartPole-v1", max_episode_steps=50)).horizon == 500
    critics = next((tmp_path / "model").glob("*/critics.safetensors"))
    critics.write_bytes(critics.read_bytes()[:-1])
    with pytest.raises(OSError, match="critics.safetensors"):
        bqrl.load(tmp_path / "model")


@pytest.mark.parametrize("name", ["202401/sales.csv", "weights.safetensors", "notes.txt"])
def test_a_directory_of_the_users_is_refused_and_left_as_it_was(name, tmp_path):
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL)
    with pytest.raises(OSError, match="is not empty and not a model"):
        model.save(tmp_path)
    with pytest.raises(OSError, match="is not empty and not a model"):
        model.learn(total_episodes=3, callback=bqrl.CheckpointCallback(tmp_path, every=1))
    assert file.read_text() == "mine"
    assert [p.name for p in tmp_path.iterdir()] == [name.split("/")[0]]


def test_a_users_folder_inside_a_model_survives_saving(tmp_path):
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL)
    model.save(tmp_path / "model")
    (tmp_path / "model/000001").mkdir()
    (tmp_path / "model/000001/sales.csv").write_text("mine")
    model.learn(total_episodes=20, callback=bqrl.CheckpointCallback(tmp_path / "model", every=2))
    assert (tmp_path / "model/000001/sales.csv").read_text() == "mine"


def test_the_command_line_learns_the_same_bits(tmp_path):
    binary = os.environ.get("BQRL_BIN")
    if binary is None:
        pytest.skip("BQRL_BIN names no bqrl binary; cargo xtask test does")
    run = [binary, "train", "asset-selling", "--seed", "5", "--episodes", "60", "--quiet", "--out", tmp_path / "run"]
    subprocess.run(run, check=True, stdout=subprocess.DEVNULL)
    model = bqrl.DeepBQRL("bqrl/AssetSelling-v0", seed=5).learn(total_episodes=60)
    assert next((tmp_path / "run").rglob("weights.safetensors")).read_bytes() == model.weights()
