"""Environments of Gymnasium as lanes: several copies that are played side by side.

The play loop is in Rust; it calls `start`, `reset` and `step`. A row of `step` is None where a lane had nothing to do,
`(observation,)` where an episode started, or `(observation, reward, terminated, truncated)`.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from . import _spaces
from ._arguments import shown

Reader = Callable[[Any], Any]

# What Gymnasium's two methods return.
_RESET = "observation, info"
_STEP = "observation, reward, terminated, truncated, info"


def _parts(result: Any, method: str, names: str) -> Any:
    """The parts of what an environment returned; one of the old gym returns others."""
    want = names.count(",") + 1
    if isinstance(result, (tuple, list)) and len(result) == want:
        return result
    got = f"{len(result)} values" if isinstance(result, tuple) else shown(result)
    raise TypeError(f"{method} of the environment must return ({names}), got {got}")


class Single:
    """One environment."""

    n = 1

    def __init__(self, env: Any, space: Any, first: int):
        self._env, self._take, self._first = env, env.step, first
        self._read = _spaces.reader(space)

    def start(self, seeds: list[int]) -> list[Any]:
        return [self.reset(0, seeds[0])]

    def reset(self, lane: int, seed: int) -> Any:
        seen, _ = _parts(self._env.reset(seed=seed), "reset", _RESET)
        return seen if self._read is None else self._read(seen)

    def step(self, actions: list[int | None]) -> list[Any]:
        action = actions[0]
        if action is None:
            return [None]
        seen, reward, terminated, truncated, _ = _parts(self._take(action + self._first), "step", _STEP)
        return [(seen if self._read is None else self._read(seen), reward, terminated, truncated)]


class Vector:
    """A vector environment, in any mode of resetting itself."""

    def __init__(self, env: VectorEnv[Any, Any, Any], space: Any, first: int, horizon: int):
        self.n = env.num_envs
        self._env, self._space, self._first, self._horizon = env, space, first, horizon
        self._read: Reader = _spaces.reader(space) or (lambda seen: seen)
        self._mode = AutoresetMode(env.metadata.get("autoreset_mode", AutoresetMode.NEXT_STEP))
        self._stage = np.zeros(self.n, np.int64)
        # SAME_STEP: first observations that came with the last step. NEXT_STEP: lanes that reset with the next one.
        self._seen_early: dict[int, Any] = {}
        self._resets_next = np.zeros(self.n, bool)

    def _reset(self, **how: Any) -> list[Any]:
        reset: Any = self._env.reset  # Its seed may be a list, which its annotation leaves out.
        batch, _ = _parts(reset(**how), "reset", _RESET)
        return [self._read(seen) for seen in _spaces.rows(self._space, batch, self.n)]

    def start(self, seeds: list[int]) -> list[Any]:
        self._stage[:] = 0
        self._resets_next[:] = False
        self._seen_early.clear()
        # A vector environment that is written as one takes one seed for all of its lanes.
        outer: Any = self._env.unwrapped
        return self._reset(seed=seeds if hasattr(outer, "env_fns") or hasattr(outer, "envs") else seeds[0])

    def reset(self, lane: int, seed: int) -> Any:
        self._stage[lane] = 0
        if self._mode == AutoresetMode.SAME_STEP:
            return self._seen_early.pop(lane)
        if self._mode == AutoresetMode.NEXT_STEP:
            return None
        mask = np.zeros(self.n, bool)
        mask[lane] = True
        seeds = [seed if mine else None for mine in mask]
        return self._reset(seed=seeds, options={"reset_mask": mask})[lane]

    def step(self, actions: list[int | None]) -> list[Any]:
        taken = np.array([self._first if action is None else action + self._first for action in actions], np.int64)
        batch, rewards, terminated, truncated, infos = _parts(self._env.step(taken), "step", _STEP)
        for name, column in (("rewards", rewards), ("terminations", terminated), ("truncations", truncated)):
            if not hasattr(column, "__len__") or len(column) != self.n:
                raise ValueError(f"want {self.n} {name} of a step, got {shown(column)}")
        rows: list[Any] = []
        for lane, seen in enumerate(_spaces.rows(self._space, batch, self.n)):
            ends = bool(terminated[lane] or truncated[lane])
            if self._resets_next[lane]:
                # This step only reset the environment: there was no decision, and nothing to learn.
                self._resets_next[lane] = False
                rows.append((self._read(seen),))
                continue
            if actions[lane] is None:
                self._resets_next[lane] = ends and self._mode == AutoresetMode.NEXT_STEP
                rows.append(None)
                continue
            self._stage[lane] += 1
            after = seen
            if ends and self._mode == AutoresetMode.SAME_STEP:
                after = _final(infos, lane)
                # Copied: it is looked at after this step, and the environment may use its arrays again.
                self._seen_early[lane] = copy.deepcopy(self._read(seen))
            self._resets_next[lane] = ends and self._mode == AutoresetMode.NEXT_STEP
            if not ends and self._stage[lane] >= self._horizon and self._mode != AutoresetMode.DISABLED:
                raise RuntimeError(
                    f"environment {lane} did not end at the horizon of {self._horizon}: wrap the environments inside in "
                    "gymnasium.wrappers.TimeLimit"
                )
            rows.append((self._read(after), rewards[lane], terminated[lane], truncated[lane]))
        return rows


def _final(infos: dict[str, Any], lane: int) -> Any:
    """The last observation of an episode, where the vector environment shows the next one's first already."""
    if not isinstance(infos, dict):
        raise TypeError(f"want a dictionary as info, got {shown(infos)}")
    final = infos.get("final_obs", infos.get("final_observation"))
    if final is None:
        raise RuntimeError("the vector environment resets in the same step, but info has no final_obs")
    return {key: values[lane] for key, values in final.items()} if isinstance(final, dict) else final[lane]


def lanes(env: Any, space: Any, first: int, horizon: int) -> Single | Vector:
    """The environment as lanes; observations are of this space, actions are counted from `first`."""
    return Vector(env, space, first, horizon) if isinstance(env, VectorEnv) else Single(env, space, first)
