"""What goes on beside learning: callbacks, records, the progress bar."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any

from . import _bqrl
from .callbacks import Callback, Episode

if TYPE_CHECKING:
    from .agents import Model


class Watch:
    """Callbacks, records and the progress bar of one call of `learn`."""

    def __init__(
        self,
        model: Model,
        callbacks: list[Callback],
        timesteps: int | None,
        episodes: int | None,
        log_dir: str | os.PathLike[str] | None,
        log_interval: int,
        progress_bar: bool,
    ):
        core = model._core
        self.model, self.core, self.callbacks = model, core, callbacks
        self.first = core.timesteps, core.episodes
        self.last_timestep = sys.maxsize if timesteps is None else core.timesteps + int(timesteps)
        self.last_episode = None if episodes is None else core.episodes + int(episodes)
        self.log_interval, self.progress_bar = log_interval, progress_bar
        self.log_dir = None if log_dir is None else os.path.abspath(log_dir)
        self.recorder: _bqrl.Recorder | None = None
        self.began = self.shown = time.monotonic()
        steppers = [c.on_step for c in callbacks if type(c).on_step is not Callback.on_step]
        self.on_step = (lambda: any(stop(model) is False for stop in steppers)) if steppers else None

    def start(self) -> None:
        if self.log_dir is not None:
            earlier = self.model._logs.get(self.log_dir)
            positions: Any = None if earlier is None else (int(earlier[0]), int(earlier[1]), int(earlier[2]), earlier[3])
            env = self.model._env
            name = env.spec.id if env is not None and env.spec is not None else type(env).__name__
            self.recorder = _bqrl.Recorder(self.log_dir, name, time.time(), positions)
        for callback in self.callbacks:
            callback.on_training_start(self.model)

    def episode(self, episode_return: float, length: int) -> bool:
        """True when training is to stop."""
        core = self.core
        episode = Episode(core.episodes, episode_return, length)
        if self.recorder is not None:
            self.recorder.episode(episode.episode, episode_return, length, time.time())
            if episode.episode % self.log_interval == 0:
                self._point()
            # A model that a callback saves now goes on with its records from here.
            if self.callbacks:
                self.model._logs[self.log_dir or ""] = list(self.recorder.sync())
        stop = [callback.on_episode_end(self.model, episode) is False for callback in self.callbacks]
        if self.progress_bar and time.monotonic() - self.shown > 0.1:
            self._show(episode)
        return any(stop) or episode.episode == self.last_episode

    def _point(self) -> None:
        if self.recorder is not None:
            core, elapsed = self.core, max(time.monotonic() - self.began, 1e-9)
            fps = (core.timesteps - self.first[0]) / elapsed
            self.recorder.point(time.time(), core.timesteps, core.episodes, core.updates, fps)

    def _show(self, episode: Episode | None) -> None:
        self.shown = time.monotonic()
        core = self.core
        steps, episodes = core.timesteps - self.first[0], core.episodes - self.first[1]
        if self.last_episode is None:
            part, total, unit = steps, self.last_timestep - self.first[0], "steps"
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
            if self.recorder is not None:
                self._point()
                self.model._logs[self.log_dir or ""] = list(self.recorder.sync())
                self.recorder.close()
