"""Planned policies: to follow, to explain, to show and to write."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _bqrl, _show
from ._arguments import path as checked_path
from ._arguments import whole

if TYPE_CHECKING:
    import pandas as _pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]


@dataclass(frozen=True)
class ActionWorth:
    """What one action is worth at a point, if it is taken once and the policy decides afterwards.

    Attributes:
        action: its name.
        chance: the probability that the total reaches the target.
        expected: the expected total, with what is collected so far.
        chosen: whether the policy takes it.
    """

    action: str
    chance: float
    expected: float
    chosen: bool


@dataclass(frozen=True)
class Explanation:
    """Why a policy does what it does at one point.

    Attributes:
        risk_level: τ.
        target: the total that the policy plays for.
        stage: counted from 0.
        state: its name.
        collected: the reward so far.
        actions: every possible action, in the order of the problem.
    """

    risk_level: float
    target: float
    stage: int
    state: str
    collected: float
    actions: tuple[ActionWorth, ...]

    @property
    def chosen(self) -> ActionWorth:
        """The action that the policy takes."""
        return next(worth for worth in self.actions if worth.chosen)

    def __str__(self) -> str:
        best = self.chosen
        return (
            f"Stage {self.stage}, state {self.state}, {_show.number(self.collected)} collected: choose {best.action}. The chance "
            f"to reach {_show.number(self.target)} is {_show.number(best.chance)}, and the expected total is "
            f"{_show.number(best.expected)}."
        )

    def to_dataframe(self) -> _pandas.DataFrame:
        """One row per action: action, chance, expected, chosen."""
        names = ("action", "chance", "expected", "chosen")
        return _show.frame({name: [getattr(worth, name) for worth in self.actions] for name in names})

    def _repr_html_(self) -> str:
        rows = [("→" if w.chosen else "", w.action, w.chance, w.expected) for w in self.actions]
        return _show.table(str(self), ["", "action", "chance to reach the target", "expected total"], rows)


class PlannedPolicy:
    """A policy on (stage, state, reward collected so far), as `bqrl.plan` found it.

    Attributes:
        problem: the table that it was planned for.
        risk_level: τ, the level that it is for.
    """

    def __init__(self, native: _bqrl.PlannedPolicy, problem: _bqrl.Problem, risk_level: float):
        self._native = native
        self.problem = problem
        self.risk_level = risk_level

    def __copy__(self) -> PlannedPolicy:
        return self

    def __deepcopy__(self, memo: Any) -> PlannedPolicy:
        # It never changes.
        return self

    def __repr__(self) -> str:
        return f"PlannedPolicy({self.problem.name!r}, risk_level={self.risk_level})"

    def action(self, stage: int, state: int | str, collected: float) -> int:
        """The index of the action to take, in `problem.actions`.

        A point that no episode passes is a ValueError: a plan knows nothing about it.

        Args:
            stage: counted from 0, below the horizon.
            state: its name; a number is a name where states are numbered, and otherwise an index.
            collected: the (discounted) reward so far; 0.0 at the start.
        """
        return self._native.action(whole("stage", stage, 0), state, _finite("collected", collected))

    def explain(self, stage: int, state: int | str, collected: float) -> Explanation:
        """Each action's chance to reach the target, and its expected total. The arguments are those of `action`."""
        stage = whole("stage", stage, 0)
        collected = _finite("collected", collected)
        target, chosen, found = self._native.explain(stage, state, collected)
        names = self.problem.actions
        worth = tuple(ActionWorth(names[a], chance, expected, a == chosen) for a, chance, expected in found)
        return Explanation(self.risk_level, target, stage, str(state), collected, worth)

    def to_dataframe(self, *, compact: bool = True) -> _pandas.DataFrame:
        """The policy as a table with the columns stage, state, collected, action.

        Args:
            compact: True for ranges, `collected_from` and `collected_to` (NaN: no decision depends on this end), and only where the
                policy itself can come. False for every point that some policy can come to.
        """
        stages, states, collected, to, actions = self._native.rows(compact)
        if to is None:
            columns = {"stage": stages, "state": states, "collected": collected, "action": actions}
        else:
            columns = {
                "stage": stages,
                "state": states,
                "collected_from": collected,
                "collected_to": to,
                "action": actions,
            }
        return _show.frame(columns)

    def save(self, path: str | os.PathLike[str], *, compact: bool = False, overwrite: bool = False) -> None:
        """Writes the policy, whole or not at all: as a spreadsheet if the name ends in .xlsx, otherwise as CSV.

        `bqrl.evaluate` and `bqrl eval --policy` read the CSV file.

        Args:
            path: an existing file is replaced only if it is such a table in CSV format.
            compact: ranges of the collected reward, and only where the policy can come; a spreadsheet takes this more comfortably.
            overwrite: replace any file.
        """
        self._native.write(checked_path(path), compact, False, overwrite)

    def plot(self, ax: Any = None) -> Any:
        """The actions by period and state, as matplotlib axes, or as a `Picture` where matplotlib is not installed."""
        axes = _show.axes(ax)
        if axes is None:
            return _show.Picture(self._native.map_svg())
        if self.problem.grid is not None:
            return self._plot_grid(axes, *self.problem.grid)
        import matplotlib  # type: ignore[import-not-found,unused-ignore]
        import numpy as np

        cells, at = self._native.cells()
        shown = [s for s in range(len(self.problem.states)) if any(stage[s] is not None for stage in cells)]
        actions = self.problem.actions
        values = np.array([[np.nan if stage[s] is None else float(stage[s] or 0) for stage in cells] for s in shown])
        colours = matplotlib.colormaps["tab10" if len(actions) <= 10 else "viridis"].resampled(max(len(actions), 2))
        drawn = axes.imshow(
            values,
            aspect="auto",
            origin="lower",
            interpolation="nearest",
            cmap=colours,
            vmin=-0.5,
            vmax=max(len(actions), 2) - 0.5,
            extent=(0.5, len(cells) + 0.5, -0.5, len(shown) - 0.5),
        )
        step = max(1, len(shown) // 15)
        labels = self.problem.state_labels
        axes.set_yticks(range(0, len(shown), step), [labels[s] for s in shown[::step]])
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set(xlabel="period", ylabel=self.problem.state_axis, title=f"risk level {self.risk_level}, {at}; blank: cannot occur")
        bar = axes.figure.colorbar(drawn, ax=axes, ticks=range(0, len(actions), max(1, len(actions) // 12)))
        bar.ax.set_yticklabels([actions[int(t)] for t in bar.get_ticks()])
        return axes

    def _plot_grid(self, axes: Any, columns: int, letters: str) -> Any:
        """The map of a grid world with arrows: the action of most periods."""
        arrows = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
        for cell, usual in enumerate(self._native.usual()):
            row, column = divmod(cell, columns)
            action = None if usual is None else self.problem.actions[usual[0]]
            text = letters[cell] if action is None else arrows.get(action, action)
            colour = "0.85" if usual is None else f"C{usual[0] % 10}"
            axes.add_patch(_square(column, row, colour, 0.5 if usual is None else 0.35))
            axes.text(column, row, text, ha="center", va="center", fontsize=14)
        rows = len(letters) // columns
        axes.set(xlim=(-0.5, columns - 0.5), ylim=(rows - 0.5, -0.5), aspect="equal", xticks=[], yticks=[])
        axes.set_title(f"risk level {self.risk_level}: the action of most periods")
        return axes

    def _repr_html_(self) -> str:
        caption = f"Policy for {self.problem.name}, risk level {self.risk_level}"
        return f"<div><p><b>{html.escape(caption)}</b></p>{self._native.map_svg()}</div>"


def _square(column: int, row: int, colour: str, alpha: float) -> Any:
    from matplotlib.patches import Rectangle  # type: ignore[import-not-found,unused-ignore]

    return Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=colour, alpha=alpha, edgecolor="white")


def _finite(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} must be a number, got {value!r}") from error
