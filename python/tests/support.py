"""Environments that say what they did, and a core that remembers what it was told."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

SMALL = {"hidden": [8], "batch_size": 4, "learning_starts": 4, "replay_capacity": 1000}


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
    """Passes everything on to the core, and remembers episodes as lists of what was said."""

    def __init__(self, core: Any):
        self.core, self.heard, self.now = core, [], {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.core, name)

    def begin(self, env: int, seen: Any) -> int:
        self.now[env] = [("begin", env, np.array(seen).tolist())]
        return self.core.begin(env, seen)

    def step(self, env: int, reward: Any, seen: Any, terminated: Any, truncated: Any) -> Any:
        said = ("step", env, float(reward), np.array(seen).tolist(), bool(terminated), bool(truncated))
        self.now[env].append(said)
        result = self.core.step(env, reward, seen, terminated, truncated)
        if not isinstance(result, int):
            self.heard.append(self.now.pop(env))
        return result


def told(who: int, episode: int) -> list[Any]:
    """What the core must hear of an episode of `Diary`."""
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
