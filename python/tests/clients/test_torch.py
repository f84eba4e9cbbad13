"""PyTorch computes what we compute from `weights.safetensors`, loaded as the documentation of crates/nn says."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import bqrl

DOCUMENTATION = Path(__file__).parents[3] / "crates/nn/src/lib.rs"


def documented(name, number):
    """A function of one of the documentation's snippets."""
    snippet = DOCUMENTATION.read_text().split("//! ```python\n")[number].split("//! ```")[0]
    scope = {}
    exec("\n".join(line.removeprefix("//!").removeprefix(" ") for line in snippet.splitlines()), scope)
    return scope[name]


def documented_critic(path, m):
    return documented("critic", 1)(path, m)


def encoded(seen, stage, collected, horizon, critics):
    """x = (h, s, c) as crates/agents/src/experience/encode.rs writes it, for a dense observation.

    The running moments of observations and the scale of returns are in `agent.json`, beside the networks.
    """
    moments = critics["moments"]
    deviation = np.sqrt(np.array(moments["squares"]) / moments["count"])
    seen = np.clip((seen - np.array(moments["mean"])) / deviation, -5, 5)
    left = horizon - stage
    paces = [np.exp(-left / 2.0**j) for j in range(int(np.ceil(np.log2(horizon))))]
    return [*seen, left / horizon, *paces, collected / critics["unit"]["sigma"]]


def test_the_greedy_actions_are_those_of_torch(tmp_path):
    # With this score, an action counts by the mean of all quantiles of all critics.
    model = bqrl.DeepBQRL("CartPole-v1", hidden=[32, 32], n_critics=2, score="mean", seed=1).learn(total_timesteps=2000)
    model.save(tmp_path / "model")
    critics = [documented_critic(tmp_path / "model/weights.safetensors", m) for m in (0, 1)]
    beside = json.loads(next((tmp_path / "model").glob("*/agent.json")).read_text())["critics"]
    rng = np.random.default_rng(1)
    seen = rng.normal(size=(500, 4)).astype(np.float32)
    stages, collected = rng.integers(0, 499, 500), rng.uniform(0, 50, 500)
    state = np.stack([stages, collected], axis=1).astype(np.float64)
    actions, _ = model.predict(seen, state, reward=np.zeros(500))
    x = np.array([encoded(s, h, c, 500, beside) for s, h, c in zip(seen, stages, collected, strict=True)], np.float32)
    with torch.no_grad():
        means = sum(critic(torch.tensor(x)).view(500, 2, -1).mean(2) for critic in critics) / 2
    clear = (means[:, 0] - means[:, 1]).abs() > 1e-4
    assert clear.sum() > 400
    assert (means.argmax(1).numpy() == actions)[clear.numpy()].all()
    if len(set(actions)) == 1:
        pytest.fail("the policy does the same everywhere: nothing was compared")


def test_convolutions_are_those_of_torch(tmp_path):
    settings = {"convolutions": [[4, 3, 1], [5, 2, 2]], "hidden": [16], "n_quantiles": 8, "updates_per_step": 1}
    model = bqrl.QRDQN("bqrl/MinAtarBreakout-v0", seed=1, **settings).learn(total_timesteps=3000)
    model.save(tmp_path / "model")
    env = gymnasium.make("bqrl/MinAtarBreakout-v0")
    env.action_space.seed(3)
    seen, _ = env.reset(seed=3)
    frames = []
    for _ in range(500):
        frames.append(seen)
        seen, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            seen, _ = env.reset()
    stages = np.random.default_rng(1).integers(0, 500, 500)
    state = np.stack([stages, np.zeros(500)], axis=1)
    actions, _ = model.predict(np.stack(frames), state, reward=np.zeros(500))
    left = model.horizon - stages
    paces = [np.exp(-left / 2.0**j) for j in range(int(np.ceil(np.log2(model.horizon))))]
    x = np.column_stack([np.stack(frames).reshape(500, -1), left / model.horizon, *paces]).astype(np.float32)
    # The slow copy acts.
    tensors = load_file(tmp_path / "model/weights.safetensors")
    slow = {name.removeprefix("target."): tensor for name, tensor in tensors.items() if name.startswith("target.")}
    save_file(slow, tmp_path / "slow.safetensors")
    with torch.no_grad():
        outputs = documented("seeing_critic", 2)(tmp_path / "slow.safetensors", 0, torch.tensor(x), (4, 10, 10), (1, 2))
    means = outputs.view(500, 6, 8).mean(2)
    best = means.sort(1, descending=True).values
    clear = (best[:, 0] - best[:, 1] > 1e-4).numpy()
    assert clear.sum() > 300
    assert (means.argmax(1).numpy() == actions)[clear].all()
    assert len(set(actions[clear])) > 1, "the policy does the same everywhere: nothing was compared"
