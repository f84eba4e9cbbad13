"""Environments as models see them: made, described, copied, and the table inside."""

from __future__ import annotations

import copy
from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import OrderEnforcing, PassiveEnvChecker, TimeLimit

from . import _arguments, _bqrl, _spaces, _vectors
from ._limits import frame_stack, limit_and_inside
from .envs import TabularEnv

AnyEnv = Any  # gymnasium.Env | gymnasium.vector.VectorEnv; the latter is generic in three unrelated ways.
#: Arguments of `gymnasium.make_vec` that are not those of the environment.
_OF_THE_VECTOR = {"num_envs", "vectorization_mode", "vector_kwargs", "wrappers"}


def made(env: AnyEnv) -> AnyEnv:
    """An environment from its id, or the given one, adapted if it comes from another library."""
    if isinstance(env, str):
        return gymnasium.make(env)
    env = _vectors.adapted(env)
    if not isinstance(env, (gymnasium.Env, VectorEnv)):
        raise TypeError(f"env must be a Gymnasium environment or the id of one, got {_arguments.shown(env)}")
    return env


def single_spaces(env: AnyEnv) -> tuple[Any, Any]:
    if isinstance(env, VectorEnv):
        return env.single_observation_space, env.single_action_space
    return env.observation_space, env.action_space


def name_of(env: AnyEnv) -> str:
    if isinstance(env, _vectors.FromElsewhere) and env.spec is None:
        return type(env.given).__name__
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def plain_arguments(env: AnyEnv) -> dict[str, str]:
    """The plain arguments that the environment was made with, for the settings of a run."""
    given = getattr(getattr(env, "spec", None), "kwargs", None) or {}
    return {str(key): str(value) for key, value in given.items() if isinstance(value, (bool, int, float, str)) and key not in _OF_THE_VECTOR}


def describe(
    env: AnyEnv,
    horizon: int | None,
    horizon_is_task: bool | None,
    gamma: float | None,
    reward_bounds: tuple[float, float] | None,
) -> dict[str, Any]:
    """What the agent is told of the environment."""
    space, action_space = single_spaces(env)
    n_actions = _spaces.n_actions(action_space)
    name = name_of(env)
    limit, inner = limit_and_inside(env)
    table = inner.problem if isinstance(inner, TabularEnv) else None
    if table is not None:
        limit = table.horizon if limit is None else min(limit, table.horizon)
    if horizon is None:
        horizon = limit
    if horizon is None:
        raise ValueError(f"{_arguments.one_line(name)} has no time limit: give horizon=, the longest an episode may be")
    horizon = _arguments.whole("horizon", horizon, 1)
    if horizon_is_task is None:
        horizon_is_task = True
    if gamma is None:
        gamma = 1.0 if table is None else table.discount
    if reward_bounds is None and table is not None:
        reward_bounds = table.reward_bounds
    # Encodings only: a wrapper that changes observations has changed their order, too.
    ordered = table is not None and table.ordered and space == inner.observation_space
    return {
        "name": name,
        "observations": _spaces.observations(space, ordered, frame_stack(env)),
        "n_actions": n_actions,
        "horizon": horizon,
        "horizon_is_task": bool(horizon_is_task),
        "reward_bounds": None if reward_bounds is None else pair(reward_bounds),
        "gamma": float(gamma),
        # Of environments from elsewhere this is not known; a table says it itself.
        "stationary": False,
    }


def pair(bounds: tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = bounds
        return float(low), float(high)
    except (TypeError, ValueError):
        raise ValueError(f"reward_bounds must be two numbers, got {_arguments.shown(bounds)}") from None


def table_of(env: AnyEnv) -> _bqrl.Problem | None:
    """The table that the environment plays, where nothing but Gymnasium's own checks stands in between."""
    inner = env
    while isinstance(inner, (OrderEnforcing, PassiveEnvChecker, TimeLimit)):
        inner = inner.env
    if type(inner) is not TabularEnv:
        return None
    limit = limit_and_inside(env)[0]
    return inner.problem if limit is None or limit >= inner.problem.horizon else None


def native(env: AnyEnv, described: dict[str, Any]) -> _bqrl.Problem | None:
    """The same, where it is what the model was told."""
    own = table_of(env)
    if own is None:
        return None
    same = described["horizon"] == own.horizon and described["horizon_is_task"] and described["gamma"] == own.discount
    return own if same and described["reward_bounds"] == own.reward_bounds and own.is_native else None


def another(env: AnyEnv) -> AnyEnv | None:
    """A second environment like the given one."""
    if isinstance(env, VectorEnv):
        if inside := getattr(env.unwrapped, "envs", None):
            return another(inside[0])
        if isinstance(env, _vectors.FromEnvPool):
            return None
        if makers := getattr(env.unwrapped, "env_fns", None):
            return makers[0]()
        if env.spec is None:
            return None
        kwargs = {key: value for key, value in env.spec.kwargs.items() if key not in _OF_THE_VECTOR}
        return gymnasium.make(env.spec.id, **(kwargs | {"max_episode_steps": env.spec.max_episode_steps}))
    if env.spec is not None:
        try:
            return gymnasium.make(env.spec)
        except Exception:  # noqa: BLE001 – any failure of a constructor: then a copy is tried.
            pass
    try:
        return copy.deepcopy(env)
    except Exception:  # noqa: BLE001 – environments may hold what cannot be copied.
        return None
