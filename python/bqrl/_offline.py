"""Learning from a log: datasets of Minari, and arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from . import _spaces
from ._arguments import shown

_NEEDED = ("observations", "actions", "rewards", "terminations")


@dataclass(frozen=True)
class LoggedEpisode:
    """An episode: one observation more than decisions, and whether it ended by itself."""

    observations: list[Any]
    actions: list[int]
    rewards: list[Any]
    terminated: bool


class Log:
    """Lanes that tell what happened, whatever is done: one lane, the episodes in their order, over and over."""

    n = 1

    def __init__(self, episodes: Sequence[LoggedEpisode], space: Any):
        self._episodes, self._next, self._stage = episodes, 0, 0
        self._read = _spaces.reader(space) or (lambda seen: seen)
        self._episode = episodes[0]

    def start(self, seeds: list[int]) -> list[Any]:
        return [self.reset(0, seeds[0])]

    def reset(self, lane: int, seed: int) -> Any:
        self._episode, self._stage = self._episodes[self._next % len(self._episodes)], 0
        self._next += 1
        return self._read(self._episode.observations[0])

    def step(self, actions: list[int | None]) -> list[Any]:
        if actions[0] is None:
            return [None]
        episode, stage = self._episode, self._stage
        self._stage += 1
        last = self._stage == len(episode.actions)
        seen = self._read(episode.observations[self._stage])
        return [(seen, episode.rewards[stage], last and episode.terminated, last and not episode.terminated)]


def episodes(dataset: Any, space: Any, first: int, n_actions: int, horizon: int) -> list[LoggedEpisode]:
    """The episodes of a dataset, checked against the model's spaces and horizon."""
    if hasattr(dataset, "iterate_episodes"):
        found = [_of_minari(episode, space) for episode in dataset.iterate_episodes()]
    elif isinstance(dataset, Mapping):
        found = list(_of_arrays(dataset, space))
    else:
        raise TypeError(f"want a Minari dataset or a dictionary of arrays ({', '.join(_NEEDED)}), got {shown(dataset)}")
    if not found:
        raise ValueError("the dataset has no episodes")
    for number, episode in enumerate(found):
        length = len(episode.actions)
        if length > horizon:
            raise ValueError(f"episode {number} has {length} steps, more than the model's horizon of {horizon}")
        for stage, action in enumerate(episode.actions):
            if not first <= action < first + n_actions:
                raise ValueError(f"episode {number}, step {stage}: want an action from {first} to {first + n_actions - 1}, got {action}")
    return found


def untried(log: Sequence[LoggedEpisode], space: Any, n_actions: int) -> int:
    """How many actions nobody took in `Discrete` observations that the log has; 0 for other observations."""
    if not isinstance(space, spaces.Discrete):
        return 0
    pairs = {(int(seen), action) for episode in log for seen, action in zip(episode.observations, episode.actions, strict=False)}
    return len({seen for seen, _ in pairs}) * n_actions - len(pairs)


def _actions(given: Any) -> list[int]:
    array = np.asarray(given)
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise TypeError(f"want whole numbers as actions, one per step, got {array.dtype} of shape {array.shape}")
    return [int(action) for action in array]


def _of_minari(episode: Any, space: Any) -> LoggedEpisode:
    actions = _actions(episode.actions)
    observations = list(_spaces.rows(space, episode.observations, len(actions) + 1))
    return LoggedEpisode(observations, actions, list(episode.rewards), bool(np.asarray(episode.terminations)[-1]))


def _of_arrays(dataset: Mapping[str, Any], space: Any) -> Iterator[LoggedEpisode]:
    """Rows of all episodes one after another, as D4RL has them."""
    for name in _NEEDED:
        if name not in dataset:
            raise ValueError(f"the dataset has no {name}: it needs {', '.join(_NEEDED)}, and truncations, next_observations where episodes are cut off")
    actions = _actions(dataset["actions"])
    n = len(actions)
    seen = list(_spaces.rows(space, _as_array(dataset["observations"], space), n))
    after = dataset.get("next_observations")
    after = None if after is None else list(_spaces.rows(space, _as_array(after, space), n))
    columns = [np.ravel(dataset["rewards"]), np.ravel(dataset["terminations"]), np.ravel(dataset.get("truncations", np.zeros(n, bool)))]
    for name, column in zip(("rewards", "terminations", "truncations"), columns, strict=True):
        if len(column) != n:
            raise ValueError(f"want {n} {name}, as many as actions, got {len(column)}")
    rewards, terminated, truncated = columns
    begin = 0
    for t in range(n):
        if not (terminated[t] or truncated[t]):
            continue
        if after is None and not terminated[t]:
            raise ValueError(f"step {t} is cut off: next_observations must say what was seen after it")
        # After an end by itself nothing is earned: what was seen there counts for the running mean of vectors and no more.
        last = seen[t] if after is None else after[t]
        yield LoggedEpisode([*seen[begin : t + 1], last], actions[begin : t + 1], list(rewards[begin : t + 1]), bool(terminated[t]))
        begin = t + 1
    if begin != n:
        raise ValueError(f"the last episode, from step {begin} on, does not end: terminations or truncations must say where")


def _as_array(batch: Any, space: Any) -> Any:
    """Observations as arrays; dictionaries and tuples of arrays stay."""
    return batch if isinstance(space, (spaces.Dict, spaces.Tuple)) else np.asarray(batch)
