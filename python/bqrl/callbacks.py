"""What a caller may do while an agent learns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _arguments, _show
from ._measure import MeasuredLevel

if TYPE_CHECKING:
    import pandas as _pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from ._model import AnyEnv, Model

__all__ = ["Callback", "CheckpointCallback", "Episode", "EvalCallback", "Evaluated"]


@dataclass(frozen=True)
class Episode:
    """A finished episode: its number, counted from 1, the sum of its rewards, and how many decisions were taken."""

    episode: int
    episode_return: float
    length: int


class Callback:
    """Override what is needed. Returning False from `on_step` or `on_episode_end` stops the training."""

    def on_training_start(self, model: Model) -> None:
        """Before the first episode."""

    def on_step(self, model: Model) -> bool | None:
        """After every step of the environment; costs nothing unless it is overridden."""

    def on_episode_end(self, model: Model, episode: Episode) -> bool | None:
        """After every episode, where a saved model resumes bit for bit."""

    def on_training_end(self, model: Model) -> None:
        """At the end, however it came about."""


class CheckpointCallback(Callback):
    """Saves the model every so many episodes.

    Args:
        path: where `Model.save` writes.
        every: ≥ 1, in episodes.
    """

    def __init__(self, path: str | bytes | os.PathLike[str], every: int = 100):
        self.path, self.every = _arguments.path(path), _arguments.whole("every", every, 1)

    def on_episode_end(self, model: Model, episode: Episode) -> bool | None:
        if episode.episode % self.every == 0:
            model.save(self.path)
        return None


@dataclass(frozen=True)
class Evaluated:
    """One evaluation of an `EvalCallback`.

    Attributes:
        timesteps: when, in steps of the environment …
        episodes: … and in episodes.
        mean: of the policy for the level that decides which model is best.
        levels: Q_τ at every level, with its interval. A model with a policy per level is measured with that level's policy.
        is_best: whether it was the best so far.
    """

    timesteps: int
    episodes: int
    mean: float
    levels: tuple[MeasuredLevel, ...]
    is_best: bool

    def quantile(self, risk_level: float) -> float:
        """Q_τ at one of the levels."""
        found = [level.quantile for level in self.levels if level.risk_level == risk_level]
        if not found:
            names = ", ".join(f"{level.risk_level:g}" for level in self.levels)
            raise ValueError(f"risk_level must be one of {names}, got {_arguments.shown(risk_level)}")
        return found[0]


class EvalCallback(Callback):
    """Measures Q_τ at several levels while a model learns, keeps the best model, and stops when it no longer improves.

    Args:
        env: where to play; by default another copy of the model's environment. A `bqrl/…` environment is evaluated exactly.
        every: ≥ 1, steps of the environment between evaluations. Each is made at the end of an episode.
        risk_levels: τ in (0, 1), one or several, to measure at.
        best_at: the one of them that decides which model is best; by default the first.
        path: where the best model is saved, as `Model.save` does; by default nowhere.
        patience: ≥ 1, evaluations without a better one before training stops; by default it never stops.
        episodes: ≥ 1, to play in an evaluation.
        seed: ≥ 0, of the episodes; every evaluation plays the same ones.
        confidence: in (0, 1), of the intervals.
        then: a function of (model, evaluated) that is called after each evaluation; returning False stops the training.

    Attributes:
        history: the evaluations so far, as `Evaluated`.
    """

    def __init__(
        self,
        env: AnyEnv | None = None,
        *,
        every: float = 5000,
        risk_levels: float | Sequence[float] = (0.1, 0.5, 0.9),
        best_at: float | None = None,
        path: str | bytes | os.PathLike[str] | None = None,
        patience: int | None = None,
        episodes: float = 100,
        seed: int = 0,
        confidence: float = 0.95,
        then: Callable[[Model, Evaluated], bool | None] | None = None,
    ):
        self.every, self.episodes = _arguments.whole("every", every, 1), _arguments.whole("episodes", episodes, 1)
        self.risk_levels = [float(level) for level in np.atleast_1d(np.asarray(risk_levels, np.float64))]
        self.best_at = self.risk_levels[0] if best_at is None else float(best_at)
        if self.best_at not in self.risk_levels:
            raise ValueError(f"best_at must be one of risk_levels, got {_arguments.shown(best_at)}")
        self.patience = None if patience is None else _arguments.whole("patience", patience, 1)
        self.path = None if path is None else _arguments.path(path)
        self.env, self.seed, self.confidence, self.then = env, seed, confidence, then
        self.history: list[Evaluated] = []
        self._next = 0
        self._place: Any = None

    @property
    def best(self) -> Evaluated | None:
        """The best evaluation so far."""
        return next((one for one in reversed(self.history) if one.is_best), None)

    def on_training_start(self, model: Model) -> None:
        self._place = model._evaluation_env(self.env)
        self._next = model.num_timesteps + self.every

    def on_episode_end(self, model: Model, episode: Episode) -> bool | None:
        if model.num_timesteps < self._next:
            return None
        self._next = model.num_timesteps + self.every
        levels, mean = self._measure(model)
        quantile = next(level.quantile for level in levels if level.risk_level == self.best_at)
        best = self.best
        is_best = best is None or quantile > best.quantile(self.best_at)
        evaluated = Evaluated(model.num_timesteps, model.num_episodes, mean, levels, is_best)
        self.history.append(evaluated)
        if is_best and self.path is not None:
            model.save(self.path)
        stop = self.then is not None and self.then(model, evaluated) is False
        since = next(count for count, one in enumerate(reversed(self.history)) if one.is_best)
        return False if stop or (self.patience is not None and since >= self.patience) else None

    def _measure(self, model: Model) -> tuple[tuple[MeasuredLevel, ...], float]:
        how: dict[str, Any] = {"episodes": self.episodes, "seed": self.seed, "confidence": self.confidence}
        if not model._has_a_policy_per_level:
            value = model.evaluate(self._place, measure_at=self.risk_levels, **how)
            return value.levels, value.mean
        values = [model.evaluate(self._place, risk_level=level, **how) for level in self.risk_levels]
        return tuple(value.levels[0] for value in values), values[self.risk_levels.index(self.best_at)].mean

    def to_dataframe(self) -> _pandas.DataFrame:
        """One row per evaluation and level: timesteps, episodes, risk_level, quantile, low, high, is_best."""
        names = ("timesteps", "episodes", "risk_level", "quantile", "low", "high", "is_best")
        rows = [
            (one.timesteps, one.episodes, level.risk_level, level.quantile, *(level.interval or (np.nan, np.nan)), one.is_best)
            for one in self.history
            for level in one.levels
        ]
        return _show.frame({name: [row[k] for row in rows] for k, name in enumerate(names)})


class _Function(Callback):
    def __init__(self, function: Callable[[Model, Episode], bool | None]):
        self.function = function

    def on_episode_end(self, model: Model, episode: Episode) -> bool | None:
        return self.function(model, episode)


CallbackLike = Union[Callback, "Callable[[Model, Episode], bool | None]", "Sequence[CallbackLike]", None]


def as_list(callback: CallbackLike) -> list[Callback]:
    """Whatever `learn` takes, as callbacks."""
    if callback is None:
        return []
    if isinstance(callback, Callback):
        return [callback]
    if callable(callback):
        return [_Function(callback)]
    if isinstance(callback, Sequence):
        return [one for each in callback for one in as_list(each)]
    raise TypeError(f"callback must be a bqrl.Callback, a function of (model, episode), or a list, got {_arguments.shown(callback)}")
