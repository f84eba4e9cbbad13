"""Policies of users: `bqrl.evaluate` and `bqrl.compare`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from . import _bqrl, _show
from ._measure import ModelComparison, compare_models
from ._model import AnyEnv, Model
from ._plan import PlannedLevel, as_problem
from ._policy import PlannedPolicy

if TYPE_CHECKING:
    import pandas as _pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

#: A policy: a planned one, the path of a CSV file, a rule in words, or a function of (stage, state, collected).
Policy = PlannedPolicy | PlannedLevel | str | os.PathLike[str] | Callable[[int, Any, float], int | str]


@dataclass(frozen=True)
class PolicyEvaluation:
    """The exact law of a policy's return.

    Attributes:
        problem: the table.
        policy: the name of the policy: a path, a rule, or that of a function.
        exact: False when rewards had to be rounded down; values are then lower bounds.
        estimated: True when the probabilities are estimates from counts; values are then no promises.
        mean: E[R].
        risk_levels: those that were asked for.
        quantiles: Q_τ at each of them.
        intervals: where Q_τ lies in 90 of 100 resampled tables, for a table with counts: a practical indicator, no promise. Else None.
        returns: the values that the return can take, rising …
        probabilities: … and how likely each is.
    """

    problem: _bqrl.Problem
    policy: str
    exact: bool
    estimated: bool
    mean: float
    risk_levels: tuple[float, ...]
    quantiles: tuple[float, ...]
    intervals: tuple[tuple[float, float] | None, ...]
    returns: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    _law: _bqrl.Law

    def quantile(self, risk_level: float) -> float:
        """Q_τ at any risk level in (0, 1): what the return reaches at least, in a share 1 − τ of all episodes."""
        return self._law.quantile(float(risk_level))

    def buffered_quantile(self, risk_level: float, beta: float) -> float:
        """The average of the quantiles between τ−β and τ, for β in (0, τ]."""
        return self._law.buffered_quantile(float(risk_level), float(beta))

    def probability_at_least(self, value: float) -> float:
        """P(R ≥ value)."""
        return self._law.probability_at_least(float(value))

    def to_dataframe(self) -> _pandas.DataFrame:
        """One row per risk level: risk_level, quantile, low, high (the bootstrap interval, NaN without counts)."""
        ends = [(np.nan, np.nan) if interval is None else interval for interval in self.intervals]
        columns = {"risk_level": self.risk_levels, "quantile": self.quantiles}
        return _show.frame(columns | {"low": [low for low, _ in ends], "high": [high for _, high in ends]})

    def plot(self, ax: Any = None) -> Any:
        """The law, as matplotlib axes, or as a `Picture` where matplotlib is not installed."""
        axes = _show.axes(ax)
        if axes is None:
            levels = list(self.risk_levels)
            return _show.Picture(_bqrl.law_svg(self.problem.name, self.policy, self._law, levels, self._how()))
        _show.law_curve(axes, self._law, self.policy)
        for level, quantile in zip(self.risk_levels, self.quantiles, strict=True):
            axes.plot([quantile], [level], "o", color="C3")
            axes.annotate(f" {_show.times(level)} at least {_show.number(quantile)}", (quantile, level), va="top")
        estimated = " (estimates from counts)" if self.estimated else ""
        _show.finish_laws(axes, f"{self.problem.name}{estimated}: {self.policy}", self.risk_levels)
        return axes

    def _how(self) -> str:
        if self.estimated:
            return "Estimated from counts, no promise."
        return "Exact values." if self.exact else "Lower bounds: rewards were rounded down."

    def _repr_html_(self) -> str:
        head = ["risk level", "quantile", "in words"] + ["90 % bootstrap (indicator)"] * self.estimated
        rows = []
        for level, quantile, interval in zip(self.risk_levels, self.quantiles, self.intervals, strict=True):
            row: list[Any] = [level, quantile, f"{_show.times(level)} at least {_show.number(quantile)}"]
            if self.estimated:
                row.append(None if interval is None else f"{_show.number(interval[0])} … {_show.number(interval[1])}")
            rows.append(row)
        caption = f"{self.policy} on {self.problem.name}: mean {_show.number(self.mean)}"
        return _show.table(caption, head, rows, [self._how()])


@dataclass(frozen=True)
class ComparedPolicy:
    """One policy of a comparison.

    Attributes:
        policy: "yours", "risk-neutral" (the largest mean) or "percentile" (the best at `risk_level`).
        risk_level: the level that a percentile policy is for, else None.
        mean: E[R].
        quantiles: Q_τ at every level of the comparison.
        returns: the values that its return can take, rising …
        probabilities: … and how likely each is.
    """

    policy: str
    risk_level: float | None
    mean: float
    quantiles: tuple[float, ...]
    returns: NDArray[np.float64]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True)
class Comparison:
    """A policy beside the largest mean and the best percentiles.

    Attributes:
        problem: the table.
        policy: the name of the policy: a path, a rule, or that of a function.
        exact: False when rewards had to be rounded down; values are then lower bounds.
        estimated: True when the probabilities are estimates from counts; values are then no promises.
        risk_levels: those that were asked for.
        policies: yours, the risk-neutral one, and the best at each level.
        report: all of it as plain values, exactly as `bqrl compare --json` prints it.
    """

    problem: _bqrl.Problem
    policy: str
    exact: bool
    estimated: bool
    risk_levels: tuple[float, ...]
    policies: tuple[ComparedPolicy, ...]
    report: dict[str, Any]
    _laws: tuple[_bqrl.Law, ...]
    _svg: str

    def to_dataframe(self) -> _pandas.DataFrame:
        """One row per policy: policy, risk_level (NaN but for percentile policies), mean, and Q at every level."""
        columns: dict[str, Any] = {
            "policy": [row.policy for row in self.policies],
            "risk_level": [np.nan if row.risk_level is None else row.risk_level for row in self.policies],
            "mean": [row.mean for row in self.policies],
        }
        for place, level in enumerate(self.risk_levels):
            columns[f"Q_{level:g}"] = [row.quantiles[place] for row in self.policies]
        return _show.frame(columns)

    def plot(self, ax: Any = None) -> Any:
        """The laws in one picture, as matplotlib axes, or as a `Picture` where matplotlib is not installed."""
        axes = _show.axes(ax)
        if axes is None:
            return _show.Picture(self._svg)
        styles: list[dict[str, Any]] = [{"color": "0.3", "linestyle": "--"}, {"color": "C1", "linestyle": ":"}]
        for place, (row, law) in enumerate(zip(self.policies, self._laws, strict=True)):
            style = styles[place] if place < 2 else {"color": ("C0", "C2", "C3", "C4", "C5")[(place - 2) % 5]}
            name = _named(row, self.policy)
            if row.risk_level is not None:
                quantile = row.quantiles[self.risk_levels.index(row.risk_level)]
                name += f": {_show.times(row.risk_level)} at least {_show.number(quantile)}"
            _show.law_curve(axes, law, name, **style)
        title = f"{self.problem.name} (estimates from counts)" if self.estimated else self.problem.name
        _show.finish_laws(axes, title, self.risk_levels)
        return axes

    def _repr_html_(self) -> str:
        head = ["policy", "mean", *(f"{_show.times(level)} at least" for level in self.risk_levels)]
        rows = [[_named(row, self.policy), row.mean, *row.quantiles] for row in self.policies]
        yours, neutral, best = self.policies[0], self.policies[1], self.policies[2:]
        notes = []
        for place, (level, row) in enumerate(zip(self.risk_levels, best, strict=True)):
            costs = max(neutral.mean - row.mean, 0.0)
            notes.append(
                f"{_show.times(level)} at least {_show.number(row.quantiles[place])} instead of "
                f"{_show.number(yours.quantiles[place])}; this costs {_show.number(costs)} of the largest mean."
            )
        if self.estimated:
            notes.append("Estimates from counts, no promises; bqrl.plan(…, confidence=0.95) makes one.")
        return _show.table(self.problem.name, head, rows, notes)


def _named(row: ComparedPolicy, policy: str) -> str:
    if row.policy == "yours":
        return f"your rule: {policy}"
    return "largest mean" if row.risk_level is None else f"best at {row.risk_level:g}"


def evaluate(
    problem: Any,
    policy: Policy,
    *,
    risk_levels: float | Sequence[float] = (0.1, 0.5, 0.9),
    horizon: int | None = None,
    start: int | str | None = None,
    discount: float | None = None,
    **parameters: Any,
) -> PolicyEvaluation:
    """The exact law of a policy's return, its mean, and its quantile at every level.

    Args:
        problem: whatever `bqrl.plan` takes: a name, a path, a fitted table, an environment with a table.
        policy: one of
            a function of (stage, state, collected) that returns the name or the index of an action. Stages count from 0, a state is
            its name (a number where names are numbers), and it is asked once at every point that it comes to;
            the path of a CSV file with the columns stage, state, collected, action, where an empty field holds for all;
            a rule: the name of an action, "up to 5", or "if state >= 19 then stop else continue";
            a planned policy.
        risk_levels: τ in (0, 1), one or several; of a file with policies for several levels, a single one chooses its policy.
        horizon: H ≥ 1, as for `bqrl.plan`.
        start: as for `bqrl.plan`.
        discount: as for `bqrl.plan`.
        parameters: of a built-in problem.
    """
    table = as_problem(problem, horizon=horizon, start=start, discount=discount, **parameters)
    levels = _levels(risk_levels)
    given, name = _given(policy)
    law, exact, estimated, intervals = _bqrl.evaluate(table, given, levels)
    return PolicyEvaluation(
        problem=table,
        policy=name,
        exact=exact,
        estimated=estimated,
        mean=law.mean,
        risk_levels=tuple(levels),
        quantiles=tuple(law.quantile(level) for level in levels),
        intervals=tuple(None if ends is None else (ends[0], ends[1]) for ends in intervals),
        returns=law.values,
        probabilities=law.probabilities,
        _law=law,
    )


@overload
def compare(
    problem: Mapping[str, Model] | Sequence[Model],
    policy: AnyEnv,
    *,
    risk_levels: float | Sequence[float] = (0.1, 0.5),
    episodes: float = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> ModelComparison: ...
@overload
def compare(
    problem: Any,
    policy: Policy,
    *,
    risk_levels: float | Sequence[float] = (0.1, 0.5),
    horizon: int | None = None,
    start: int | str | None = None,
    discount: float | None = None,
    **parameters: Any,
) -> Comparison: ...
def compare(problem: Any, policy: Any, *, risk_levels: float | Sequence[float] = (0.1, 0.5), **more: Any) -> Any:
    """A policy beside the best ones of its table; or models side by side in an environment.

    `compare(problem, policy)` puts a policy beside the one with the largest mean and the best ones at each level, and returns a
    `Comparison`. `compare(models, env)` plays models with the same seeds of episodes, each for the first level that it was made
    for, and returns a `ModelComparison` with bootstrap intervals.

    Args:
        problem: whatever `bqrl.plan` takes; or models, as a list or as a dictionary by name.
        policy: whatever `bqrl.evaluate` takes; or the environment to play in, or the id of one.
        risk_levels: τ in (0, 1), one or several, to measure at.
        more: of a table: horizon, start, discount and the parameters of a built-in problem, as for `bqrl.plan`. Of models:
            episodes of each (a whole number ≥ 2, default 1000), seed (≥ 0, default 0) and confidence (in (0, 1), default 0.95).
    """
    models = list(problem.values()) if isinstance(problem, Mapping) else problem
    if isinstance(models, Sequence) and not isinstance(models, str) and models and isinstance(models[0], Model):
        return compare_models(problem, policy, _levels(risk_levels), **more)
    return _compare_policy(problem, policy, risk_levels=risk_levels, **more)


def _compare_policy(
    problem: Any,
    policy: Policy,
    *,
    risk_levels: float | Sequence[float],
    horizon: int | None = None,
    start: int | str | None = None,
    discount: float | None = None,
    **parameters: Any,
) -> Comparison:
    table = as_problem(problem, horizon=horizon, start=start, discount=discount, **parameters)
    levels = _levels(risk_levels)
    given, name = _given(policy)
    report, laws, svg, note = _bqrl.compare(table, given, levels, name)
    if note is not None:
        warnings.warn(f"{note}; rewards were rounded down, values are lower bounds", stacklevel=3)
    policies = [
        ComparedPolicy(
            policy=row["policy"],
            risk_level=row.get("tau"),
            mean=row["mean"],
            quantiles=tuple(entry["quantile"] for entry in row["quantiles"]),
            returns=law.values,
            probabilities=law.probabilities,
        )
        for row, law in zip(report["policies"], laws, strict=True)
    ]
    return Comparison(
        problem=table,
        policy=name,
        exact=report["exact"],
        estimated=report["estimated"],
        risk_levels=tuple(levels),
        policies=tuple(policies),
        report=report,
        _laws=tuple(laws),
        _svg=svg,
    )


def _levels(risk_levels: float | Sequence[float]) -> list[float]:
    levels = [float(level) for level in np.atleast_1d(np.asarray(risk_levels, np.float64))]
    if not levels:
        raise ValueError("risk_levels must name at least one level")
    return levels


def _given(policy: Any) -> tuple[Any, str]:
    """The policy as the native half takes it, and its name."""
    if isinstance(policy, PlannedLevel):
        policy = policy.policy
    if isinstance(policy, PlannedPolicy):
        return policy._native, f"planned for {policy.risk_level:g}"
    if isinstance(policy, (str, os.PathLike)):
        return os.fspath(policy), os.fspath(policy)
    return policy, getattr(policy, "__name__", type(policy).__name__)
