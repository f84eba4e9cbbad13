"""Vector environments of others as Gymnasium's: `VecEnv` of Stable-Baselines3, and EnvPool.

Neither library is imported: their environments are known by what they have.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from ._arguments import shown


class FromElsewhere(VectorEnv[Any, Any, Any]):
    """A vector environment that another library made.

    Attributes:
        given: that environment.
        limit: the time limit of those inside, where it can be found.
    """

    def __init__(self, given: Any, n: int, mode: AutoresetMode, limit: int | None):
        observations, actions = given.observation_space, given.action_space
        self.given, self.limit = given, limit
        self.num_envs = n
        self.single_observation_space, self.single_action_space = observations, actions
        self.observation_space = gymnasium.vector.utils.batch_space(observations, n)
        self.action_space = gymnasium.vector.utils.batch_space(actions, n)
        self.metadata = {"autoreset_mode": mode}

    def close_extras(self, **kwargs: Any) -> None:
        self.given.close()


class FromSB3(FromElsewhere):
    """A `VecEnv`. It resets in the step that ends an episode, and shows the last observation in its info."""

    def __init__(self, given: Any):
        limits = [limit for limit in _inside(given, "_max_episode_steps") if limit is not None]
        n = int(given.num_envs)
        super().__init__(given, n, AutoresetMode.SAME_STEP, int(max(limits)) if len(limits) == n else None)
        specs = _inside(given, "spec")
        self.spec = specs[0] if specs else None
        if envs := getattr(given.unwrapped, "envs", None):
            self.envs = envs

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if seed is not None:
            # It counts up from one seed by itself.
            self.given.seed(seed if isinstance(seed, int) else seed[0])
        return self.given.reset(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        seen, rewards, done, infos = self.given.step(actions)
        cut = np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        done = np.asarray(done, bool)
        return seen, rewards, done & ~cut, done & cut, {"final_obs": [info.get("terminal_observation") for info in infos]}


class FromEnvPool(FromElsewhere):
    """A synchronous pool of EnvPool. It resets in the step after the one that ends an episode, and has seeds of its own."""

    def __init__(self, given: Any):
        n, batch = int(given.config["num_envs"]), int(given.config["batch_size"])
        if batch not in (0, n):
            raise ValueError(f"an EnvPool must answer for all of its environments at once: want batch_size={n}, got {batch}")
        limit = int(given.config["max_episode_steps"])
        # The largest number stands for none.
        super().__init__(given, n, AutoresetMode.NEXT_STEP, limit if limit < 2**31 - 1 else None)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        result = self.given.reset()
        if not isinstance(result, tuple) or len(result) != 2:
            raise TypeError(f'reset of the EnvPool must return (observation, info), make it with env_type="gymnasium", got {shown(result)}')
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        seen, rewards, terminated, truncated, _ = self.given.step(np.asarray(actions, np.int32))
        return seen, rewards, terminated, truncated, {}


def _inside(given: Any, name: str) -> list[Any]:
    """An attribute of the environments in a `VecEnv`; empty where they do not have it."""
    try:
        return list(given.get_attr(name))
    except AttributeError:
        return []


def adapted(env: Any) -> Any:
    """The environment as Gymnasium's, where it is a vector environment that we know; else itself."""
    if isinstance(env, FromElsewhere):
        return env
    # Some versions of EnvPool say that they are Gymnasium's, but for the spaces.
    config = getattr(env, "config", None)
    if isinstance(config, dict) and {"num_envs", "batch_size", "max_episode_steps"} <= set(config):
        return FromEnvPool(env)
    is_sb3 = all(hasattr(env, name) for name in ("num_envs", "step_async", "step_wait", "get_attr", "env_method"))
    return FromSB3(env) if is_sb3 and not isinstance(env, VectorEnv) else env
