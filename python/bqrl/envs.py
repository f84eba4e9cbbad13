"""The built-in problems as Gymnasium environments, `gymnasium.make("bqrl/AssetSelling-v0")`, and a wrapper.

Every table of `bqrl envs` is there; its parameters are keyword arguments: `gymnasium.make("bqrl/FrozenLake-v0", map="8x8")`.
The horizon is part of these tasks, so that its last step is `terminated`, not `truncated`.

MinAtar's five games are there too: `gymnasium.make("bqrl/MinAtarBreakout-v0", sticky=0.25, actions="minimal")`.
"""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from . import _bqrl

__all__ = ["GameEnv", "ObserveReward", "TabularEnv", "register"]


class TabularEnv(gymnasium.Env[Any, Any]):
    """A table that is played by sampling it: the very table that planning and exact evaluation integrate.

    Args:
        problem: name of a built-in problem, such as "asset-selling", or a `bqrl.Problem`.
        parameters: the problem's parameters by name; `bqrl.problems()` lists them with their ranges.
    """

    metadata = {"render_modes": []}

    def __init__(self, problem: str | _bqrl.Problem = "asset-selling", *, render_mode: None = None, **parameters: Any):
        if isinstance(problem, str):
            problem = _bqrl.Problem.load(problem, {key: str(value) for key, value in parameters.items()})
        elif parameters:
            raise TypeError(f"a problem that is made already takes no parameters, got {', '.join(parameters)}")
        self.problem = problem
        self.observation_space = spaces.Discrete(problem.n_states)
        self.action_space = spaces.Discrete(problem.n_actions)
        self.render_mode = render_mode
        self._simulator: _bqrl.Simulator | None = None

    @property
    def horizon(self) -> int:
        """The number of decisions in the longest episode."""
        return self.problem.horizon

    @property
    def P(self) -> dict[int, dict[int, list[tuple[float, int, float, bool]]]]:
        """The table as Gymnasium's toy-text environments have it: P[s][a] lists (p, s', r, terminated).

        A terminal state stays where it is, as there.
        """
        n_actions = self.problem.n_actions
        table: dict[int, dict[int, list[tuple[float, int, float, bool]]]]
        table = {state: {action: [] for action in range(n_actions)} for state in range(self.problem.n_states)}
        for s, a, p, after, r, ends in zip(*(column.tolist() for column in self.problem.rows()), strict=True):
            table[s][a].append((p, after, r, ends))
        for state, actions in table.items():
            if not any(actions.values()):
                table[state] = {action: [(1.0, state, 0.0, True)] for action in actions}
        return table

    @property
    def initial_state_distrib(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The probability of every state to start in."""
        start = np.zeros(self.problem.n_states)
        for state, probability in self.problem.start:
            start[state] = probability
        return start

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Starts an episode; a seed starts the random stream anew."""
        super().reset(seed=seed)
        if self._simulator is None:
            first = seed if seed is not None else int(self.np_random.integers(2**31))
            self._simulator = _bqrl.Simulator(self.problem, first)
        elif seed is not None:
            self._simulator.seed(seed)
        return self._simulator.reset(), {}

    def step(self, action: Any) -> tuple[int, SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes an action; raises `ValueError` when it is not available there."""
        if self._simulator is None:
            raise RuntimeError("the episode has not begun: reset first")
        state, reward, over = self._simulator.step(int(action))
        return state, reward, over, False, {}


class GameEnv(gymnasium.Env[Any, Any]):
    """A native game. An observation is an array of bits, (planes, 10, 10).

    Args:
        game: "minatar/breakout", "minatar/asterix", "minatar/freeway", "minatar/seaquest" or "minatar/space-invaders".
        render_mode: "ansi" for text, "rgb_array" for a picture.
        parameters: `sticky` (0.1), the probability with which the last action is repeated; `ramping` (True), whether the game
            becomes harder; `actions` ("all" or "minimal"); `horizon` (10000) and `horizon_is_task` (False): whether the horizon is
            part of the task (`terminated`) or only a cut-off (`truncated`).
    """

    metadata = {"render_modes": ["ansi", "rgb_array"], "render_fps": 10}

    #: Its horizon is known, though no wrapper limits it.
    is_bqrl_game = True

    def __init__(self, game: str = "minatar/breakout", *, render_mode: str | None = None, **parameters: Any):
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f'render_mode must be "ansi", "rgb_array" or None, got {render_mode!r}')
        self.render_mode = render_mode
        self._parameters = {key: str(value) for key, value in parameters.items()}
        self._name = game
        self._game = _bqrl.Game(game, self._parameters, 0)
        self._seeded = False
        self.observation_space = spaces.MultiBinary((self._game.n_planes, 10, 10))
        self.action_space = spaces.Discrete(len(self._game.actions))

    @property
    def horizon(self) -> int:
        """The largest number of steps of a game."""
        return self._game.horizon

    @property
    def actions(self) -> list[str]:
        """The names of the actions."""
        return self._game.actions

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[np.int8], dict[str, Any]]:
        """Starts a game; a seed starts the random stream anew."""
        super().reset(seed=seed)
        if seed is not None or not self._seeded:
            self._game.seed(seed if seed is not None else int(self.np_random.integers(2**31)))
            self._seeded = True
        return self._game.reset().reshape(-1, 10, 10), {}

    def step(self, action: Any) -> tuple[NDArray[np.int8], SupportsFloat, bool, bool, dict[str, Any]]:
        """Takes an action, or the last one again."""
        cells, reward, terminated, truncated = self._game.step(int(action))
        return cells.reshape(-1, 10, 10), reward, terminated, truncated, {}

    def render(self) -> Any:
        """The position as text or as a picture of 200 × 200 pixels; `None` without a render mode."""
        if self.render_mode == "ansi":
            return self._game.text()
        if self.render_mode == "rgb_array":
            side, pixels = self._game.picture()
            return pixels.reshape(side, side, 3)
        return None


class ObserveReward(gymnasium.Wrapper[dict[str, Any], int, Any, int]):
    """Shows the last reward beside the observation: {"observation": …, "reward": r}.

    A policy for a percentile looks at what has been collected so far. Whoever calls `predict` without rewards, such as
    Stable-Baselines3's `evaluate_policy`, hands them over by wrapping the environment in this.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]):
        super().__init__(env)
        reward = spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.observation_space = spaces.Dict({"observation": env.observation_space, "reward": reward})

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """As the environment's; the reward is 0."""
        observation, info = self.env.reset(seed=seed, options=options)
        return self._with(observation, 0.0), info

    def step(self, action: int) -> tuple[dict[str, Any], SupportsFloat, bool, bool, dict[str, Any]]:
        """As the environment's."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return self._with(observation, reward), reward, terminated, truncated, info

    def _with(self, observation: Any, reward: SupportsFloat) -> dict[str, Any]:
        return {"observation": observation, "reward": np.array([float(reward)])}


def register() -> None:
    """Registers `bqrl/…-v0`; importing bqrl does so, and Gymnasium does when it looks for plugins."""
    for name, _, _ in _bqrl.problems():
        env_id = f"bqrl/{''.join(word.capitalize() for word in name.split('-'))}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point="bqrl.envs:TabularEnv", kwargs={"problem": name})
    for name, _, _ in _bqrl.games():
        words = name.removeprefix("minatar/").split("-")
        env_id = f"bqrl/MinAtar{''.join(word.capitalize() for word in words)}-v0"
        if env_id not in gymnasium.registry:
            gymnasium.register(env_id, entry_point="bqrl.envs:GameEnv", kwargs={"game": name})
