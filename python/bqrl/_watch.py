"""What happens beside learning: callbacks and the progress bar."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

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
        self.last_timestep = None if timesteps is None else core.timesteps + int(timesteps)
        self.last_episode = None if episodes is None else core.episodes + int(episodes)
        self.progress_bar = progress_bar
        self.began = self.shown = time.monotonic()
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
        if self.progress_bar and time.monotonic() - self.shown > 0.1:
            self._show(episode)
        return any(stop)

    def _show(self, episode: Episode | None) -> None:
        self.shown = time.monotonic()
        core = self.core
        steps, episodes = core.timesteps - self.first[0], core.episodes - self.first[1]
        if self.last_episode is None:
            part, total, unit = steps, (self.last_timestep or 0) - self.first[0], "steps"
        else:
            part, total, unit = episodes, self.last_episode - self.first[1], "episodes"
        filled = int(30 * min(part / total, 1))
        rate = steps / max(time.monotonic() - self.began, 1e-9)
        last = "" if episode is None else f" · return {episode.episode_return:g}"
        bar = "█" * filled + "░" * (30 - filled)
        print(f"\r{bar} {part}/{total} {unit} · {rate:.0f} steps/s{last}\033[K", end="", file=sys.stderr, flush=True)

    def end(self) -> None:
        try:
            for callback in self.callbacks:
                callback.on_training_end(self.model)
        finally:
            if self.progress_bar:
                self._show(None)
                print(file=sys.stderr)
