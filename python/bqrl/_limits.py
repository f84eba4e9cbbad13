"""How long the episodes of an environment can be."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit


def time_limit(env: gymnasium.Env[Any, Any]) -> int | None:
    """The tightest limit that wraps the environment, or that its registration names."""
    limits = []
    inner: Any = env
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, TimeLimit):
            limits.append(int(inner._max_episode_steps))
        inner = inner.env
    if limits:
        return min(limits)
    return env.spec.max_episode_steps if env.spec is not None else None


def vector_time_limit(env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> int | None:
    """The same of the environments in a vector environment."""
    inner = getattr(env.unwrapped, "envs", None)
    if inner:
        limits = {time_limit(one) for one in inner}
        return limits.pop() if len(limits) == 1 else None
    return env.spec.max_episode_steps if env.spec is not None else None
