"""How long the episodes of an environment can be, and what is inside it."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.wrappers import FrameStackObservation, TimeLimit

from ._vectors import FromElsewhere


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
    if getattr(env.unwrapped, "is_bqrl_game", False):
        return int(env.unwrapped.horizon)  # type: ignore[attr-defined]
    if env.spec is None:
        return None
    # Atari games count their frames.
    frames = env.spec.kwargs.get("max_num_frames_per_episode")
    if env.spec.max_episode_steps is None and isinstance(frames, int) and frames > 0:
        skip = env.spec.kwargs.get("frameskip", 1)
        return -(-frames // (skip if isinstance(skip, int) and skip > 0 else 1))
    return env.spec.max_episode_steps


def limit_and_inside(env: Any) -> tuple[int | None, Any]:
    """The limit of an environment, and what it wraps.

    A vector environment has the longest limit of those inside; the first one stands for all. None where it is out of reach.
    """
    if not isinstance(env, gymnasium.vector.VectorEnv):
        return time_limit(env), env.unwrapped
    outer: Any = env.unwrapped
    if isinstance(outer, FromElsewhere):
        inside = getattr(outer, "envs", None)
        return outer.limit, inside[0].unwrapped if inside else None
    if inside := getattr(outer, "envs", None):
        limits = [limit for one in inside if (limit := time_limit(one)) is not None]
        return (max(limits) if len(limits) == len(inside) else None), inside[0].unwrapped
    if makers := getattr(outer, "env_fns", None):
        # Those inside are in other processes: one more is made here, and looked at.
        one = makers[0]()
        try:
            return time_limit(one), one.unwrapped
        finally:
            one.close()
    return (env.spec.max_episode_steps if env.spec is not None else None), None


def frame_stack(env: Any) -> int:
    """How many frames an observation stacks along its first axis, oldest first; 1 where none or where it is not known.

    The replay then keeps every frame once. It checks each observation, so a wrong guess costs memory and nothing else.
    """
    inner: Any = env
    inside = getattr(getattr(env, "unwrapped", env), "envs", None)
    if inside:
        inner = inside[0]
    while isinstance(inner, gymnasium.Wrapper):
        if isinstance(inner, FrameStackObservation):
            return int(inner.stack_size)
        inner = inner.env
    return int(getattr(getattr(env, "unwrapped", env), "stack_num", 1))
