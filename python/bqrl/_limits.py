"""How long the episodes of an environment can be, and what is inside it."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import TimeLimit


def time_limit(env: gymnasium.Env[Any, Any]) -> tuple[int | None, Any]:
    """The tightest limit that wraps the environment, or that its registration names; and the environment inside."""
    limits = []
    inner: Any = env
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, TimeLimit):
            limits.append(int(inner._max_episode_steps))
        inner = inner.env
    if not limits and env.spec is not None and env.spec.max_episode_steps is not None:
        limits.append(env.spec.max_episode_steps)
    return min(limits, default=None), inner


def vector_time_limit(env: gymnasium.vector.VectorEnv[Any, Any, Any]) -> tuple[int | None, Any]:
    """The same of the environments in a vector environment, the longest limit; the first one inside stands for all."""
    outer: Any = env.unwrapped
    if inside := getattr(outer, "envs", None):
        found = [time_limit(one) for one in inside]
        limits = [limit for limit, _ in found if limit is not None]
        return (max(limits) if len(limits) == len(found) else None), found[0][1]
    if makers := getattr(outer, "env_fns", None):
        # Those inside are in other processes: one more is made here, and looked at.
        one = makers[0]()
        try:
            return time_limit(one)
        finally:
            one.close()
    return (env.spec.max_episode_steps if env.spec is not None else None), None
