"""What a caller may do while an agent learns."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Union

from . import _arguments

if TYPE_CHECKING:
    from ._model import Model

__all__ = ["Callback", "CheckpointCallback", "Episode"]


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
