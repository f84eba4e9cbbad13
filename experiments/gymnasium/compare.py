"""Measures agents on Gymnasium tasks, all by one protocol: ours beside Stable-Baselines3's.

A cell is one (task, agent, seed): train for a number of steps, then play 200 fresh episodes greedily. Each cell is one JSON
file with the return of every episode, so any statistic can be computed later. Cells that exist are skipped.

    python compare.py --tasks CartPole-v1,Acrobot-v1 --agents sb3-dqn,zoo-dqn --seeds 0,1 --out results
    python compare.py table --out results
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.wrappers import TransformObservation
from numpy.typing import NDArray

EPISODES = 200
# Seeds of evaluation: from here on, the same for all agents. SB3 trains from the small seed of the cell, bqrl from seeds
# below this number, so no episode of training is played again.
FIRST_SEED = 2**31
# What target tracking is asked for after training; it is trained once.
LEVELS = (0.1, 0.5, 0.9)
LIBRARIES = ("bqrl", "gymnasium", "numpy", "torch", "stable_baselines3", "sb3_contrib")

Env = gymnasium.Env[Any, Any]
# (observations, state, rewards) → (actions, state), a row per episode; state and rewards are None at the start.
Act = Callable[[NDArray[Any], Any, NDArray[np.float64] | None], tuple[NDArray[Any], Any]]


def _newest(*ids: str) -> str:
    return next(one for one in ids if one in gymnasium.registry)


# name: (id, arguments of gymnasium.make, steps). The last two tasks have no time limit of their own.
TASKS: dict[str, tuple[str, dict[str, Any], int]] = {
    "CartPole-v1": ("CartPole-v1", {}, 50_000),
    "Acrobot-v1": ("Acrobot-v1", {}, 50_000),
    "LunarLander-v3": ("LunarLander-v3", {}, 50_000),
    "MountainCar-v0": ("MountainCar-v0", {}, 50_000),
    "LunarLander-v3-wind": ("LunarLander-v3", {"enable_wind": True}, 50_000),
    (taxi := _newest("Taxi-v4", "Taxi-v3")): (taxi, {}, 200_000),
    (cliff := _newest("CliffWalking-v1", "CliffWalking-v0")): (cliff, {"max_episode_steps": 200}, 50_000),
    "Blackjack-v1": ("Blackjack-v1", {"max_episode_steps": 50}, 50_000),
}

AGENTS = ("bqrl-target-tracking", "bqrl-qr-dqn", "bqrl-deep-bqrl", "sb3-dqn", "sb3-qrdqn", "zoo-dqn", "zoo-qrdqn")

# RL Baselines3 Zoo, hyperparams/dqn.yml and qrdqn.yml as shipped in rl_zoo3 2.9.2. Only the number of steps is ours.
# The wind task is not in the Zoo; it takes the settings of the same lander without wind.
_CART_POLE = dict(learning_rate=2.3e-3, batch_size=64, buffer_size=100_000, learning_starts=1000, gamma=0.99,
                  target_update_interval=10, train_freq=256, gradient_steps=128, exploration_fraction=0.16,
                  exploration_final_eps=0.04)  # fmt: skip
_MOUNTAIN_CAR = dict(learning_rate=4e-3, batch_size=128, buffer_size=10_000, learning_starts=1000, gamma=0.98,
                     target_update_interval=600, train_freq=16, gradient_steps=8, exploration_fraction=0.2,
                     exploration_final_eps=0.07)  # fmt: skip
_ACROBOT = dict(learning_rate=6.3e-4, batch_size=128, buffer_size=50_000, learning_starts=0, gamma=0.99,
                target_update_interval=250, train_freq=4, gradient_steps=-1, exploration_fraction=0.12,
                exploration_final_eps=0.1)  # fmt: skip
# lin_1.5e-3 of the Zoo: falls linearly to 0 over the training.
_LANDER_QR = dict(learning_rate=lambda left: left * 1.5e-3, batch_size=128, buffer_size=100_000, learning_starts=10_000,
                  gamma=0.995, target_update_interval=1, train_freq=256, gradient_steps=-1, exploration_fraction=0.24,
                  exploration_final_eps=0.18)  # fmt: skip
# (task, agent): (settings, arguments of the policy).
ZOO: dict[tuple[str, str], tuple[dict[str, Any], dict[str, Any]]] = {
    ("CartPole-v1", "zoo-dqn"): (_CART_POLE, {}),
    ("CartPole-v1", "zoo-qrdqn"): (_CART_POLE, {"n_quantiles": 10}),
    ("Acrobot-v1", "zoo-dqn"): (_ACROBOT, {}),
    ("Acrobot-v1", "zoo-qrdqn"): (_ACROBOT, {"n_quantiles": 25}),
    ("MountainCar-v0", "zoo-dqn"): (_MOUNTAIN_CAR, {}),
    ("MountainCar-v0", "zoo-qrdqn"): (_MOUNTAIN_CAR, {"n_quantiles": 25}),
    ("LunarLander-v3", "zoo-dqn"): (_ACROBOT, {}),  # The same values for both.
    ("LunarLander-v3", "zoo-qrdqn"): (_LANDER_QR, {"n_quantiles": 170}),
    ("LunarLander-v3-wind", "zoo-dqn"): (_ACROBOT, {}),
    ("LunarLander-v3-wind", "zoo-qrdqn"): (_LANDER_QR, {"n_quantiles": 170}),
}


def make(task: str) -> Env:
    """The environment of a task; the same for every agent."""
    id_, arguments, _ = TASKS[task]
    env: Env = gymnasium.make(id_, **arguments)
    if isinstance(space := env.observation_space, gymnasium.spaces.Tuple):
        # SB3 has no Tuple (Blackjack). Both libraries one-hot encode either form to the same vector.
        counts = [part.n for part in space.spaces]  # type: ignore[attr-defined]
        env = TransformObservation(env, np.asarray, gymnasium.spaces.MultiDiscrete(counts))
    return env


def bqrl_agent(agent: str, env: Env, seed: int) -> tuple[Any, dict[str, Act]]:
    """A model of ours with no settings, and its greedy policy for each level that it is asked for."""
    import bqrl

    def at(level: float | None) -> Act:
        return lambda seen, state, rewards: model.predict(seen, state, reward=rewards, risk_level=level)

    model: Any
    if agent == "bqrl-target-tracking":
        model = bqrl.TargetTracking(env, seed=seed)
        return model, {str(level): at(level) for level in LEVELS}
    if agent == "bqrl-deep-bqrl":
        model = bqrl.DeepBQRL(env, seed=seed, risk_level=0.1)
    else:
        model = bqrl.QRDQN(env, seed=seed)
    return model, {"greedy": at(None)}


def sb3_agent(agent: str, task: str, env: Env, seed: int) -> tuple[Any, dict[str, Act]]:
    """A model of Stable-Baselines3 with its defaults or the Zoo's settings, and its greedy policy."""
    import torch
    from sb3_contrib import QRDQN
    from stable_baselines3 import DQN

    torch.set_num_threads(1)
    settings: dict[str, Any] = {}
    if agent.startswith("zoo-"):
        settings, of_policy = ZOO[task, agent]
        settings = settings | {"policy_kwargs": {"net_arch": [256, 256]} | of_policy}
    kind = QRDQN if agent.endswith("-qrdqn") else DQN
    model = kind("MlpPolicy", env, seed=seed, device="cpu", **settings)
    return model, {"greedy": lambda seen, state, rewards: model.predict(seen, deterministic=True)}


def play(task: str, act: Act, seed: int) -> list[float]:
    """The undiscounted returns of fresh episodes, which are played side by side."""
    envs = [make(task) for _ in range(EPISODES)]
    first = FIRST_SEED + seed * EPISODES
    seen = [env.reset(seed=first + i)[0] for i, env in enumerate(envs)]
    returns = np.zeros(EPISODES)
    running = np.arange(EPISODES)
    state: Any = None
    rewards: NDArray[np.float64] | None = None
    while len(running) > 0:
        actions, state = act(np.stack(seen), state, rewards)
        steps = [envs[i].step(int(action)) for i, action in zip(running, actions, strict=True)]
        rewards = np.array([float(step[1]) for step in steps])
        returns[running] += rewards
        on = np.array([not (step[2] or step[3]) for step in steps])
        seen = [step[0] for step, goes_on in zip(steps, on, strict=True) if goes_on]
        running, rewards = running[on], rewards[on]
        state = None if state is None else state[on]
    for env in envs:
        env.close()
    return [float(one) for one in returns]


def measure(task: str, agent: str, seed: int, steps: int) -> dict[str, Any]:
    """One cell: trained, then evaluated."""
    env = make(task)
    model, acts = bqrl_agent(agent, env, seed) if agent.startswith("bqrl-") else sb3_agent(agent, task, env, seed)
    wall, cpu = time.perf_counter(), time.process_time()
    model.learn(total_timesteps=steps)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    env.close()
    versions = {"python": sys.version.split()[0]}
    for name in LIBRARIES:
        if module := sys.modules.get(name):
            versions[name] = str(getattr(module, "__version__", "unknown"))
    return {
        "task": task,
        "agent": agent,
        "seed": seed,
        "steps": steps,
        # SB3 ends with a whole rollout, so it may take a few more.
        "steps_taken": int(model.num_timesteps),
        "train_wall_seconds": round(wall, 3),
        "train_cpu_seconds": round(cpu, 3),
        "evaluation_first_seed": FIRST_SEED + seed * EPISODES,
        "versions": versions,
        # By the level that was asked for, or "greedy".
        "returns": {name: play(task, act, seed) for name, act in acts.items()},
    }


def quantile(returns: list[float], tau: float) -> float:
    """Q_τ = inf { x : P(R ≤ x) ≥ τ } of the episodes."""
    return float(np.quantile(returns, tau, method="inverted_cdf"))


def shown(value: float) -> str:
    """One digit after the point, or three of a small number (Blackjack)."""
    return f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"


def run(tasks: list[str], agents: list[str], seeds: list[int], steps: int | None, out: Path) -> bool:
    """Measures the cells that are not there yet; False where one failed."""
    out.mkdir(parents=True, exist_ok=True)
    fine = True
    for task in tasks:
        for seed in seeds:
            for agent in agents:
                if agent.startswith("zoo-") and (task, agent) not in ZOO:
                    continue  # The Zoo has no settings of its own for it: it would be sb3-… again.
                n = TASKS[task][2] if steps is None else steps
                path = out / f"{task}_{n}_{agent}_{seed}.json"
                if path.exists():
                    continue
                start = time.perf_counter()
                name = f"{time.strftime('%H:%M:%S')}  {task}  {agent}  seed {seed}"
                try:
                    cell = measure(task, agent, seed, n)
                except Exception:  # noqa: BLE001 – the other cells are worth having.
                    print(f"{name}  FAILED\n{traceback.format_exc()}", flush=True)
                    fine = False
                    continue
                # Written beside and renamed: a cell is there whole or not at all.
                beside = path.with_suffix(f".{os.getpid()}.tmp")
                beside.write_text(json.dumps(cell) + "\n")
                beside.replace(path)
                results = ", ".join(
                    f"{level}: mean {shown(float(np.mean(returns)))}, Q_.1 {shown(quantile(returns, 0.1))}"
                    for level, returns in cell["returns"].items()
                )
                took = f"trained {cell['train_wall_seconds']:.0f} s, all {time.perf_counter() - start:.0f} s"
                print(f"{name}  {results}  ({took})", flush=True)
    return fine


def table(tau: float, out: Path) -> Iterator[str]:
    """Lines of a Markdown table, with the cells that are there."""
    found: dict[tuple[str, int], dict[str, list[list[float]]]] = {}
    for path in sorted(out.glob("*.json")):
        cell = json.loads(path.read_text())
        for level, returns in cell["returns"].items():
            column = cell["agent"] if level == "greedy" else f"{cell['agent']} at {level}"
            found.setdefault((cell["task"], cell["steps"]), {}).setdefault(column, []).append(returns)
    columns = {column for row in found.values() for column in row}
    order = sorted(columns, key=lambda column: (AGENTS.index(column.split(" at ")[0]), column))
    yield f"Mean (Q_{tau:g}), averaged over seeds; the smallest mean (smallest Q_{tau:g}) of a seed; number of seeds.\n"
    yield " | ".join(["| task, steps", *order]) + " |"
    yield "|---" * (1 + len(order)) + "|"
    for task, steps in sorted(found, key=lambda row: (list(TASKS).index(row[0]), row[1])):
        texts = []
        for column in order:
            seeds = found[task, steps].get(column)
            if seeds is None:
                texts.append("–")
                continue
            means, lows = [float(np.mean(one)) for one in seeds], [quantile(one, tau) for one in seeds]
            average = f"{shown(float(np.mean(means)))} ({shown(float(np.mean(lows)))})"
            texts.append(f"{average}; worst {shown(min(means))} ({shown(min(lows))}); n={len(seeds)}")
        yield " | ".join([f"| {task}, {steps:,}", *texts]) + " |"


def main() -> int:
    """The command line."""

    def among(known: list[str]) -> Callable[[str], list[str]]:
        def parse(text: str) -> list[str]:
            names = text.split(",")
            if unknown := [name for name in names if name not in known]:
                raise argparse.ArgumentTypeError(f"unknown {unknown[0]!r}; there are {', '.join(known)}")
            return names

        return parse

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", nargs="?", choices=("run", "table"), default="run")
    parser.add_argument("--tasks", type=among(list(TASKS)), default=list(TASKS), help="by default all")
    parser.add_argument("--agents", type=among(list(AGENTS)), default=list(AGENTS), help="by default all")
    parser.add_argument("--seeds", type=lambda text: [int(one) for one in text.split(",")], default=list(range(5)))
    parser.add_argument("--steps", type=int, help="by default the task's own")
    parser.add_argument("--out", type=Path, default=Path("results"))
    parser.add_argument("--tau", type=float, default=0.1, help="the level of the quantiles in the table")
    given = parser.parse_args()
    if given.command == "table":
        print("\n".join(table(given.tau, given.out)))
        return 0
    return 0 if run(given.tasks, given.agents, given.seeds, given.steps, given.out) else 1


if __name__ == "__main__":
    sys.exit(main())
