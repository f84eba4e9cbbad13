"""Tables with counts: from logs (`bqrl.fit`) and from simulators (`bqrl.simulate`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _bqrl, _show
from ._arguments import path as checked_path
from ._arguments import shown, whole

if TYPE_CHECKING:
    import pandas as _pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

_MOST_BINS = 10_000
_MOST_STEPS = 1_000_000_000


@dataclass(frozen=True)
class Fit:
    """A table made of data, with what is missing. `bqrl.plan(fit, confidence=0.95)` plans it.

    Attributes:
        problem: the table, with counts.
        episodes: how many the data have.
        transitions: how many rows they have.
        unseen_pairs: how many (state, action) pairs were never tried, in states where some other action was.
        missing: these pairs, by their names.
        cut_points: for each column that was put into bins, where the bins begin.
        notes: remarks on the data: what was assumed, what is rare, what is odd.
    """

    problem: _bqrl.Problem
    episodes: int
    transitions: int
    unseen_pairs: int
    missing: tuple[tuple[str, str], ...]
    cut_points: dict[str, tuple[float, ...]]
    notes: tuple[str, ...]

    @property
    def horizon(self) -> int:
        """H, the number of decisions in an episode."""
        return self.problem.horizon

    def to_dataframe(self) -> _pandas.DataFrame:
        """What was seen how often: state, action, next_state, reward, count, probability (and stage, with a table per stage)."""
        counts = self.problem.counts()
        assert counts is not None, "a fitted table has counts"
        stages, states, actions, nexts, rewards, seen, shares = counts
        columns: dict[str, Any] = {} if stages is None else {"stage": stages}
        columns |= {"state": states, "action": actions, "next_state": nexts, "reward": rewards}
        return _show.frame(columns | {"count": seen, "probability": shares})

    def tried(self) -> dict[str, dict[str, int]]:
        """How often each action was tried in each state that was left: `tried()["low"]["order"]`."""
        counts = self.problem.counts()
        assert counts is not None, "a fitted table has counts"
        tried: dict[str, dict[str, int]] = {}
        for state, action, n in zip(counts[1], counts[2], counts[5].tolist(), strict=True):
            row = tried.setdefault(state, dict.fromkeys(self.problem.actions, 0))
            row[action] += n
        return tried

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Writes the table as an MDP file with counts, which `bqrl.plan` and `bqrl plan` read.

        Args:
            path: an existing file is replaced only if it is such a table.
            overwrite: replace any file.
        """
        self.problem.write(checked_path(path), overwrite)

    def plot(self, ax: Any = None) -> Any:
        """How often each action was tried in each state, as matplotlib axes, or as a `Picture` where matplotlib is not installed."""
        axes = _show.axes(ax)
        if axes is None:
            return _show.Picture(self.problem.counts_svg())
        tried, actions = self.tried(), self.problem.actions
        values = np.array([[row[action] for action in actions] for row in tried.values()], np.float64)
        drawn = axes.imshow(np.log10(np.where(values > 0, values, np.nan)), aspect="auto", interpolation="nearest")
        names, step = list(tried), max(1, len(tried) // 20)
        axes.set_yticks(range(0, len(names), step), names[::step])
        every = max(1, len(actions) // 12)
        axes.set_xticks(range(0, len(actions), every), actions[::every], rotation=30, ha="right")
        axes.set(title=f"{self.problem.name}: how often each action was tried", ylabel="state", xlabel="action")
        axes.figure.colorbar(drawn, ax=axes, label="log10 of the count; blank: never")
        return axes

    def _repr_html_(self) -> str:
        tried, actions = self.tried(), self.problem.actions
        caption = (
            f"{self.problem.name}: {self.episodes} episodes, {self.transitions} transitions, {self.problem.n_states} states, "
            f"{len(actions)} actions, horizon {self.horizon}"
        )
        if len(tried) > 60 or len(actions) > 20:
            return _show.table(caption, ["too many states and actions to show"], [], self.notes)
        rows = [[state, *(row[action] or "never" for action in actions)] for state, row in tried.items()]
        return _show.table(caption, ["state", *actions], rows, self.notes)


def fit(
    log: str | os.PathLike[str] | Mapping[str, ArrayLike] | _pandas.DataFrame,
    *,
    by_stage: bool = False,
    horizon: int | None = None,
    bins: Mapping[str, int] | None = None,
    name: str | None = None,
) -> Fit:
    """A table with counts from logged episodes, and plain words about what is missing.

    Args:
        log: one row per transition, with the columns episode, state, action, reward and, if there are any, stage (else the rows of an
            episode are in order), next_state (else the state of the next row) and end (else the last row of an episode is its end).
            The usual synonyms are understood (done, obs, payoff, …). A DataFrame, a dictionary of arrays, or the path of a CSV file.
        by_stage: one table per stage, instead of one for all stages.
        horizon: H ≥ 1, the number of decisions in an episode; the longest episode by default.
        bins: `{"state": N}` or `{"reward": N}`, N from 1 to 10,000: put a continuous column into N bins with about equally many rows
            each. A reward then counts as the smallest of its bin.
        name: of the problem, in tables and figures.
    """
    if horizon is not None:
        horizon = whole("horizon", horizon, 1)
    cuts = _bins(bins)
    if isinstance(log, (str, bytes, os.PathLike)):
        return _found(_bqrl.fit_file(checked_path(log), bool(by_stage), horizon, cuts))
    headers = [str(header) for header in _headers(log)]
    keys = dict(zip(headers, _headers(log), strict=True))
    places = _bqrl.log_columns(headers)
    columns = [None if place is None else np.asarray(log[keys[headers[place]]]) for place in places]
    for place, column in zip(places, columns, strict=True):
        if place is not None and column is not None and column.ndim != 1:
            raise ValueError(f"column {headers[place]} must have one value per row, got an array of shape {column.shape}")
    episode, stage, state, action, reward, after, end = columns
    assert episode is not None and state is not None and action is not None and reward is not None
    found = _bqrl.fit_arrays(
        name or "log",
        _codes(episode),
        None if stage is None else _whole_column("stage", stage),
        _codes(state),
        _codes(action),
        _numbers("reward", reward),
        None if after is None else _codes(after),
        None if end is None else _flags("end", end),
        bool(by_stage),
        horizon,
        cuts,
    )
    return _found(found)


def simulate(
    step: Callable[[Any, Any, np.random.Generator], tuple[Any, float] | tuple[Any, float, bool]],
    start: Any,
    horizon: int,
    *,
    actions: Iterable[Any] | Callable[[Any], Iterable[Any]],
    episodes: int = 10_000,
    seed: int = 0,
    by_stage: bool = False,
    bins: Mapping[str, int] | None = None,
    name: str | None = None,
) -> Fit:
    """A table with counts from a simulator: it is played with random actions, and what it does is counted.

    `bqrl.plan(bqrl.simulate(…), confidence=0.95)` plans with a promise that holds although probabilities are only estimated.

    Args:
        step: `step(state, action, rng)` returns `(next state, reward)` or `(next state, reward, end)`; `rng` is a NumPy generator.
            What follows must depend on the state and the action only. States and actions are hashable and go by their `str`.
        start: the first state, or a function of `rng` that draws it.
        horizon: H ≥ 1, the most decisions in an episode.
        actions: those that are possible, a list for all states or a function of the state. All are tried equally often.
        episodes: how many to play, at least 2: the first half of the data plans, the second half checks.
        seed: of everything that is drawn, from 0 to 2^53.
        by_stage: one table per stage, instead of one for all stages.
        bins: as for `fit`.
        name: of the problem, in tables and figures.
    """
    if not callable(step):
        raise TypeError(f"step must be a function of (state, action, rng), got {shown(step)}")
    horizon = whole("horizon", horizon, 1)
    episodes = whole("episodes", episodes, 2)
    if horizon * episodes > _MOST_STEPS:
        raise ValueError(f"horizon times episodes must be at most {_MOST_STEPS}, got {horizon} × {episodes}")
    seed = whole("seed", seed, 0)
    possible = actions if callable(actions) else list(actions)
    named = name or str(getattr(step, "__name__", "simulator"))
    rng = np.random.default_rng(seed)
    found = _bqrl.simulate(named, step, start, possible, rng, horizon, episodes, seed, bool(by_stage), _bins(bins))
    return _found(found)


def _headers(log: Any) -> list[Any]:
    if isinstance(log, Mapping):
        return list(log)
    columns = getattr(log, "columns", None)
    if columns is None or not hasattr(log, "__getitem__"):
        raise TypeError(f"a log is a DataFrame, a dictionary of arrays, or the path of a CSV file, got {shown(log)}")
    return list(columns)


def _bins(bins: Mapping[str, int] | None) -> list[tuple[str, int]]:
    given = {} if bins is None else dict(bins)
    return [(str(column), whole(f"bins[{column!r}]", n, 1, _MOST_BINS)) for column, n in given.items()]


def _missing(value: Any) -> bool:
    """None, NaN, or pandas' NA, which is neither equal to itself nor different."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):
        return True


def _codes(column: NDArray[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """The names of a column, and for each row the place of its name; -1 where there is none."""
    if column.dtype.kind in "iub":
        values, places = np.unique(column, return_inverse=True)
        return np.require(places.reshape(-1), np.int64, ["C"]), [str(value) for value in values.tolist()]
    if column.dtype.kind == "f":
        values, places = np.unique(column, return_inverse=True)
        codes = np.where(np.isnan(column), -1, places.reshape(-1))
        # Not a number is no name, and stands last.
        return np.require(codes, np.int64, ["C"]), [str(value) for value in values[~np.isnan(values)].tolist()]
    numbers: dict[Any, int] = {}
    labels: list[str] = []
    codes = np.empty(len(column), np.int64)
    for row, value in enumerate(column.tolist()):
        code = numbers.get(value, -1)
        if code < 0 and not _missing(value):
            code = numbers[value] = len(labels)
            labels.append(str(value).strip())
        codes[row] = code
    return codes, labels


def _numbers(name: str, column: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return np.require(column, np.float64, ["C", "A"])
    except (TypeError, ValueError):
        for row, value in enumerate(column.tolist()):
            try:
                float(value)
            except (TypeError, ValueError):
                raise ValueError(f"row {row}, column {name}: want a finite number, got {shown(value)}") from None
        raise


def _whole_column(name: str, column: NDArray[Any]) -> NDArray[np.int64]:
    if column.dtype.kind in "iu":
        return np.require(column, np.int64, ["C", "A"])
    numbers = _numbers(name, column)
    wrong = np.flatnonzero(~(np.isfinite(numbers) & (numbers == np.floor(numbers))))
    if len(wrong):
        raise ValueError(f"row {wrong[0]}, column {name}: want a whole number, got {numbers[wrong[0]]}")
    return np.require(numbers, np.int64, ["C", "A"])


_FLAGS = {"": False, "false": False, "no": False, "f": False, "n": False, "true": True, "yes": True, "t": True, "y": True}


def _flags(name: str, column: NDArray[Any]) -> NDArray[np.bool_]:
    if column.dtype.kind == "b":
        return np.require(column, np.bool_, ["C", "A"])
    flags = np.zeros(len(column), np.bool_)
    for row, value in enumerate(column.tolist()):
        if _missing(value):
            continue
        known = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else None
        try:
            number = float(value) if known is None else float(known)
        except (TypeError, ValueError):
            number = -1.0
        if number not in (0.0, 1.0):
            raise ValueError(f"row {row}, column {name}: want true or false, got {shown(value)}")
        flags[row] = number == 1.0
    return flags


def _found(found: Any) -> Fit:
    problem, (episodes, transitions), missing, cuts, notes = found
    points = {column: tuple(values) for column, values in cuts}
    return Fit(problem, episodes, transitions, len(missing), tuple(missing), points, tuple(notes))
