"""Whole runs beside SB3-contrib's QR-DQN, the Python package's bridge, and our weights in PyTorch.

Each side of a comparison is a process of its own: `whole_runs.py SIDE` measures one and prints a number.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def documented_critic(path, m):
    """The snippet in the documentation of crates/nn, as it stands there."""
    documentation = (Path(__file__).parents[2] / "crates/nn/src/lib.rs").read_text()
    snippet = documentation.split("//! ```python\n")[1].split("//! ```")[0]
    scope = {}
    exec("\n".join(line.removeprefix("//!").removeprefix(" ") for line in snippet.splitlines()), scope)
    return scope["critic"](path, m)


def check_weights(binaries):
    """Trains a little, loads the weights as our documentation tells PyTorch users to, and compares outputs."""
    import torch
    from safetensors import safe_open

    with tempfile.TemporaryDirectory() as directory:
        train = [binaries / "bqrl", "train", "--episodes", "50", "--quiet", "--out", Path(directory) / "run"]
        subprocess.run(train, check=True, stdout=subprocess.DEVNULL)
        path = next(Path(directory).glob("run/**/weights.safetensors"))
        with safe_open(path, "pt") as file:
            sizes = dict(pair.split("=") for pair in file.metadata()["bqrl_nn"].split())
        x = torch.randn(20, int(sizes["n_inputs"]), generator=torch.Generator().manual_seed(1))
        lines = "\n".join(" ".join(map(str, row)) for row in x.tolist())
        ours = subprocess.run([binaries / "examples/forward", path], input=lines, text=True, capture_output=True, check=True)
        ours = torch.tensor([[float(z) for z in line.split()] for line in ours.stdout.splitlines()])
        with torch.no_grad():
            theirs = torch.cat([documented_critic(path, m)(x) for m in range(int(sizes["n_critics"]))], dim=1)
        away = (ours - theirs).abs().max().item()
        print(f"weights.safetensors in PyTorch: {theirs.numel()} outputs, largest difference {away:.1e}")
        assert away < 1e-4, "PyTorch computes something else from our weights"


def asset_selling():
    """The problem of §4.1 for Gymnasium: inputs are the offer one-hot and the stage, 26 numbers."""
    import gymnasium
    import numpy as np

    class AssetSelling(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(0, 1, (26,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def observe(self):
            x = np.zeros(26, np.float32)
            x[self.offer], x[25] = 1, self.stage / 10
            return x

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.offer, self.stage = 5, 0
            return self.observe(), {}

        def step(self, action):
            self.stage += 1
            reward = self.offer / 24 if action == 0 else 0.0
            self.offer = int(self.np_random.integers(25))
            return self.observe(), reward, action == 0 or self.stage == 10, False, {}

    return AssetSelling()


def qr_dqn(steps=2000):
    """Environment steps per second of SB3-contrib's QR-DQN with our preset's network, quantiles and batch."""
    import torch
    from sb3_contrib import QRDQN

    torch.set_num_threads(1)
    agent = QRDQN(
        "MlpPolicy",
        asset_selling(),
        policy_kwargs={"net_arch": [64], "n_quantiles": 8},
        batch_size=24,
        learning_starts=24,
        train_freq=1,
        gradient_steps=1,
        tau=0.01,
        target_update_interval=1,
        gamma=1.0,
        device="cpu",
        seed=1,
    )
    agent.learn(200)
    start = time.perf_counter()
    agent.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - start)


def measure(side, core):
    """A side's number, measured in a process of its own on one core."""
    command = ["taskset", "-c", str(core), sys.executable, __file__, side]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def compare_whole_runs(binaries, rounds, core):
    """`bqrl train asset-selling` (several critics, exact evaluations and records included) and QR-DQN (one network)."""
    ours, theirs = [], []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as directory:
            train = [binaries / "bqrl", "train", "asset-selling", "--algo", "deep-bqrl", "--threads", "1", "--quiet", "--json"]
            train += ["--out", Path(directory) / "run"]
            output = subprocess.run(["taskset", "-c", str(core), *train], check=True, capture_output=True).stdout
        summary = json.loads(output)
        ours.append(summary["env_steps"] / summary["seconds"])
        theirs.append(measure("qr-dqn", core))
    ours, theirs = statistics.median(ours), statistics.median(theirs)
    print("whole runs on asset selling, one update per environment step, environment steps/s")
    print(f"  bqrl deep-bqrl  {ours:>10.0f}\n  SB3 QR-DQN      {theirs:>10.0f}{ours / theirs:>19.1f}×\n", flush=True)


# One network of two layers of 64, 50 quantiles, batch 64, one update per step, from the hundredth step on at the latest.
CART_POLE = {"batch_size": 64, "seed": 1}
SB3_CART_POLE = {**CART_POLE, "learning_starts": 100, "gamma": 0.99}


def cart_pole_ours(steps=20_000):
    """Steps per second of `bqrl.QRDQN(…).learn` on CartPole-v1, the environment included."""
    import bqrl

    model = bqrl.QRDQN(
        "CartPole-v1", hidden=[64, 64], n_critics=1, n_quantiles=50, updates_per_step=1, **CART_POLE
    )
    model.learn(500)
    start = time.perf_counter()
    model.learn(steps)
    seconds = time.perf_counter() - start
    assert model.num_updates >= 500 + steps - 99, "one update per step"
    return steps / seconds


def cart_pole_theirs(steps=2000):
    """The same of SB3-contrib's QR-DQN."""
    import torch
    from sb3_contrib import QRDQN

    torch.set_num_threads(1)
    policy = {"net_arch": [64, 64], "n_quantiles": 50}
    how = {"train_freq": 1, "gradient_steps": 1, "tau": 0.01, "target_update_interval": 1, "device": "cpu"}
    model = QRDQN("MlpPolicy", "CartPole-v1", policy_kwargs=policy, **how, **SB3_CART_POLE)
    model.learn(500)
    start = time.perf_counter()
    model.learn(steps, reset_num_timesteps=False)
    return steps / (time.perf_counter() - start)


def bridge(steps=200_000):
    """Microseconds a step that `learn` adds to an environment that does nothing and an agent that hardly does more.

    The agent's own share, one forward pass of a network with one hidden unit and the replay's memory, is in it.
    """
    import bqrl
    import gymnasium
    import numpy as np

    class Nothing(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (4,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)
        result = np.zeros(4, np.float32), 0.0, False, False, {}

        def reset(self, **_):
            return np.zeros(4, np.float32), {}

        def step(self, action):
            return self.result

    env = Nothing()
    model = bqrl.QRDQN(env, horizon=1000, hidden=[1], n_quantiles=1, updates_per_step=0.0, epsilon=0.0)
    model.learn(1000)
    start = time.perf_counter()
    for _ in range(steps):
        env.step(0)
    alone = time.perf_counter() - start
    start = time.perf_counter()
    model.learn(steps)
    return 1e6 * (time.perf_counter() - start - alone) / steps


def compare_python(rounds, core):
    """The Python package beside SB3-contrib's QR-DQN on CartPole-v1, and what the bridge costs."""
    sides = {"cart-pole-ours": [], "cart-pole-theirs": [], "bridge": []}
    for _ in range(rounds):
        for side, values in sides.items():
            values.append(measure(side, core))
    ours, theirs, cost = map(statistics.median, sides.values())
    print("CartPole-v1 through Python, equal network, batch and updates, environment steps/s")
    print(f"  bqrl.QRDQN      {ours:>10.0f}\n  SB3 QR-DQN      {theirs:>10.0f}{ours / theirs:>19.1f}×, bar 10")
    print(f"  bridge, a step  {cost:>10.2f} µs, bar 2\n", flush=True)


SIDES = {
    "qr-dqn": qr_dqn,
    "cart-pole-ours": cart_pole_ours,
    "cart-pole-theirs": cart_pole_theirs,
    "bridge": bridge,
}

if __name__ == "__main__":
    print(SIDES[sys.argv[1]]())
