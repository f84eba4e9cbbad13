"""The progress bar: a line in a terminal, a bar in a notebook, nothing in a pipe."""

from __future__ import annotations

import html
import sys
import time
from collections import deque
from typing import Any

import numpy as np

#: Seconds between two pictures.
_PAUSE = 0.1
#: Episodes whose returns the quantiles are of.
_RECENT = 100


def _notebook() -> Any | None:
    """IPython's display, where this is a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or not hasattr(shell, "kernel"):
        return None
    import IPython.display as display  # type: ignore[import-not-found,unused-ignore]

    return display


class Progress:
    """How far a training is, when it will be done, and what the last episodes returned."""

    def __init__(self, total: int, unit: str):
        self.total, self.unit = total, unit
        self.returns: deque[float] = deque(maxlen=_RECENT)
        self.began = time.monotonic()
        self._shown = self.began
        display = _notebook()
        # A handle is there before the first picture, which then stays where it is.
        self._handle = display.display(display.HTML(""), display_id=True) if display is not None else None
        self._html = display.HTML if display is not None else None
        self._terminal = display is None and sys.stderr.isatty()

    def episode(self, episode_return: float, part: int, steps: int) -> None:
        """An episode has ended."""
        self.returns.append(episode_return)
        if time.monotonic() - self._shown > _PAUSE:
            self._show(part, steps)

    def end(self, part: int, steps: int) -> None:
        """The training is over."""
        self._show(part, steps)
        if self._terminal:
            print(file=sys.stderr)

    def words(self, part: int, steps: int) -> str:
        """How far it is, in words."""
        seconds = max(time.monotonic() - self.began, 1e-9)
        said = [f"{part}/{self.total} {self.unit}", f"{steps / seconds:.0f} steps/s"]
        if 0 < part < self.total:
            said.append(f"{_clock(seconds * (self.total - part) / part)} to go")
        else:
            said.append(_clock(seconds))
        if self.returns:
            low, middle = np.quantile(self.returns, [0.1, 0.5], method="inverted_cdf")
            said.append(f"last {len(self.returns)} returns: Q_0.1 {low:g}, median {middle:g}")
        return " · ".join(said)

    def _show(self, part: int, steps: int) -> None:
        self._shown = time.monotonic()
        words = self.words(part, steps)
        if self._handle is not None and self._html is not None:
            bar = f'<progress value="{min(part, self.total)}" max="{self.total}"></progress>'
            self._handle.update(self._html(f"{bar} {html.escape(words)}"))
        elif self._terminal:
            filled = int(30 * min(part / self.total, 1))
            print(f"\r{'█' * filled}{'░' * (30 - filled)} {words}\033[K", end="", file=sys.stderr, flush=True)


def _clock(seconds: float) -> str:
    """Seconds as 12 s, 3:05 or 1:02:03."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
