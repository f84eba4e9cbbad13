"""Copies of models: pickle, deepcopy, processes. They go through the bytes of a save."""

import copy
import json
import multiprocessing
import pickle
import pickletools
import struct

import gymnasium
import numpy as np
import pytest
from support import SMALL

import bqrl

BATCH = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)


def trained(**more):
    return bqrl.TargetTracking("CartPole-v1", **SMALL, **more).learn(total_episodes=10)


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_model_is_the_model(protocol):
    model = trained()
    again = pickle.loads(pickle.dumps(model, protocol))
    assert type(again) is bqrl.TargetTracking and again.env is None
    assert (again.num_timesteps, again.num_episodes, again.config) == (model.num_timesteps, model.num_episodes, model.config)
    assert again.predict(BATCH)[0].tolist() == model.predict(BATCH)[0].tolist()
    # It learns on bit for bit, replay and random streams included.
    again.set_env("CartPole-v1")
    assert again.learn(total_episodes=5).weights() == model.learn(total_episodes=5).weights()


def test_a_pickle_names_nothing_but_the_loader_and_holds_safetensors():
    data = pickle.dumps(trained(), 4)
    ops = list(pickletools.genops(data))
    strings = [argument for op, argument, _ in ops if op.name in ("SHORT_BINUNICODE", "BINUNICODE")]
    assert strings == ["bqrl._model", "_restored"]
    assert [op.name for op, _, _ in ops].count("STACK_GLOBAL") == 1
    [body] = [argument for op, argument, _ in ops if op.name in ("BINBYTES", "BINBYTES8", "SHORT_BINBYTES")]
    (length,) = struct.unpack("<Q", body[:8])
    assert {"model.json", "critics.safetensors"} <= set(json.loads(body[8 : 8 + length]))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_learns_by_itself(copied):
    model = trained()
    other = copied(model)
    assert other.env is not model.env
    before = model.weights()
    other.learn(total_episodes=5)
    assert model.weights() == before != other.weights() and model.num_episodes == 10
    assert model.learn(total_episodes=5).weights() == other.weights()


def test_a_subclass_and_a_table_survive_a_deep_copy():
    class Mine(bqrl.QRDQN):
        pass

    model = Mine("bqrl/AssetSelling-v0", **SMALL).learn(total_episodes=5)
    other = copy.deepcopy(model)
    assert type(other) is Mine and other.learn(total_episodes=5).num_episodes == 10
    # A model of a table plays it natively, even without an environment.
    assert pickle.loads(pickle.dumps(model)).learn(total_episodes=5).weights() == other.weights()


def test_an_environment_that_cannot_be_copied_is_left_behind():
    class Held(gymnasium.Wrapper):
        def __deepcopy__(self, memo):
            raise RuntimeError("a window is open")

    other = copy.deepcopy(bqrl.QRDQN(Held(gymnasium.make("CartPole-v1")), **SMALL))
    assert other.env is None


@pytest.mark.parametrize(
    "spoil",
    [lambda data: data[:-1], lambda data: b"", lambda data: b"x" * 100, lambda data: data.replace(b'"format"', b'"fromat"', 1)],
)
def test_damaged_bytes_are_refused(spoil):
    restore, (data,) = trained().__reduce__()
    with pytest.raises(ValueError):
        restore(spoil(data))


def _acts(model):
    return model.predict(BATCH)[0].tolist()


def test_other_processes_take_models():
    model = trained()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(_acts, [model]) == [_acts(model)]
