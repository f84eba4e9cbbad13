"""What happens beside learning: callbacks and the progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._progress import Progress
from .callbacks import Callback, Episode

if TYPE_CHECKING:
    from ._model import Model


class Watch:
    """Callbacks and the progress bar of one call of `learn`."""

    def __init__(
        self,
        model: Model,
        callbacks: list[Callback],
        timesteps: int | None,
        episodes: int | None,
        progress_bar: bool,
    ):
        core = model._core
        self.model, self.core, self.callbacks = model, core, callbacks
        self.first = core.timesteps, core.episodes
        self.last_timestep = None if timesteps is None else core.timesteps + timesteps
        self.last_episode = None if episodes is None else core.episodes + episodes
        self.progress: Progress | None = None
        if progress_bar:
            total, unit = (timesteps, "steps") if timesteps is not None else (episodes, "episodes")
            self.progress = Progress(total or 0, unit)
        steppers = [c.on_step for c in callbacks if type(c).on_step is not Callback.on_step]
        self.on_step = (lambda: any([stop(model) is False for stop in steppers])) if steppers else None
        self.on_episode = self._episode if callbacks or progress_bar else None

    def start(self) -> None:
        for callback in self.callbacks:
            callback.on_training_start(self.model)

    def _episode(self, number: int, episode_return: float, length: int) -> bool:
        """True when training is to stop."""
        episode = Episode(number, episode_return, length)
        stop = [callback.on_episode_end(self.model, episode) is False for callback in self.callbacks]
        if self.progress is not None:
            self.progress.episode(episode_return, *self._part())
        return any(stop)

    def _part(self) -> tuple[int, int]:
        """What is done, in the unit of the training, and in steps."""
        steps, episodes = self.core.timesteps - self.first[0], self.core.episodes - self.first[1]
        return (steps if self.last_episode is None else episodes), steps

    def end(self) -> None:
        try:
            for callback in self.callbacks:
                callback.on_training_end(self.model)
        finally:
            if self.progress is not None:
                self.progress.end(*self._part())
