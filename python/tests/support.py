"""Environments that say what they did, and lanes that remember what they were asked and gave."""

from __future__ import annotations

import json
import struct
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SMALL = {"hidden": [8], "batch_size": 4, "replay_capacity": 1000}


class Diary(gymnasium.Env):
    """Shows (who, episode, step). Episode k of environment `who` takes 2 + (who + k) % 3 steps; odd ones are cut off.

    The reward of a step is 100·who + 10·episode + step.
    """

    observation_space = spaces.Box(-1, 1e6, (3,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, who: int = 0):
        self.who, self.episode = who, -1

    def _seen(self) -> Any:
        return np.array([self.who, self.episode, self.t], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.episode, self.t = self.episode + 1, 0
        return self._seen(), {}

    def step(self, action: int) -> Any:
        assert action in (0, 1)
        self.t += 1
        over = self.t == 2 + (self.who + self.episode) % 3
        odd = self.episode % 2 == 1
        return self._seen(), 100.0 * self.who + 10.0 * self.episode + self.t, over and not odd, over and odd, {}


class Spy:
    """Lanes that pass everything on, and remember episodes as lists of what the play loop was told."""

    def __init__(self, lanes: Any):
        self.lanes, self.n = lanes, lanes.n
        self.heard: list[Any] = []
        self.now: dict[int, list[Any]] = {}

    def _begin(self, lane: int, seen: Any) -> None:
        assert lane not in self.now, "an episode begins after the one before has ended"
        self.now[lane] = [("begin", lane, np.array(seen).tolist())]

    def start(self, seeds: list[int]) -> list[Any]:
        assert len(seeds) == self.n and not self.now
        first = self.lanes.start(seeds)
        for lane, seen in enumerate(first):
            self._begin(lane, seen)
        return first

    def reset(self, lane: int, seed: int) -> Any:
        seen = self.lanes.reset(lane, seed)
        if seen is not None:
            self._begin(lane, seen)
        return seen

    def step(self, actions: list[int | None]) -> list[Any]:
        # An action for every lane in an episode, and for no other.
        assert {lane for lane, action in enumerate(actions) if action is not None} == set(self.now)
        rows = self.lanes.step(actions)
        assert len(rows) == self.n
        for lane, row in enumerate(rows):
            if row is None:
                assert lane not in self.now
            elif len(row) == 1:
                self._begin(lane, row[0])
            else:
                seen, reward, terminated, truncated = row
                said = ("step", lane, float(reward), np.array(seen).tolist(), bool(terminated), bool(truncated))
                self.now[lane].append(said)
                if terminated or truncated:
                    self.heard.append(self.now.pop(lane))
        return rows


def spied(model: Any) -> list[Spy]:
    """The lanes that the model makes from now on."""
    made, make = [], model._lanes

    def lanes(env: Any) -> Spy:
        made.append(Spy(make(env)))
        return made[-1]

    model._lanes = lanes
    return made


def replay(path: Any, name: str) -> list[int]:
    """An array of bytes or whole numbers out of the replay of a saved model."""
    data = next(path.glob("*/replay.safetensors")).read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    entry = json.loads(data[8 : 8 + length])[name]
    begin, end = entry["data_offsets"]
    return np.frombuffer(data[8 + length + begin : 8 + length + end], {"U8": "<u1", "U64": "<u8"}[entry["dtype"]]).tolist()


def told(who: int, episode: int) -> list[Any]:
    """What the play loop must hear of an episode of `Diary`."""
    length, odd = 2 + (who + episode) % 3, episode % 2 == 1
    heard: list[Any] = [("begin", who, [who, episode, 0])]
    for t in range(1, length + 1):
        over = t == length
        heard.append(("step", who, 100.0 * who + 10.0 * episode + t, [who, episode, t], over and not odd, over and odd))
    return heard


class Shaped(gymnasium.Env):
    """Draws observations from any space; five steps, reward 1 for action 1."""

    action_space = spaces.Discrete(2)

    def __init__(self, space: Any):
        self.observation_space = space

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.t = 0
        return self.observation_space.sample(), {}

    def step(self, action: int) -> Any:
        self.t += 1
        return self.observation_space.sample(), float(action), self.t == 5, False, {}
