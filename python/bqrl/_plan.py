"""Exact planning: `bqrl.plan`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _bqrl, _show
from ._arguments import path as checked_path
from ._arguments import shown, whole
from ._fit import Fit
from ._limits import time_limit
from ._policy import PlannedPolicy

if TYPE_CHECKING:
    import pandas as _pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]


@dataclass(frozen=True)
class Certificate:
    """Why no policy does better than Q*.

    Some policy has P(R < Q*) = `least_probability_below`, below the level. Every policy has P(R < `next_return`) of at
    least `least_probability_below_next`, which is not below it; both are None when no return is larger than Q*.
    """

    least_probability_below: float
    next_return: float | None
    least_probability_below_next: float | None


@dataclass(frozen=True)
class Promise:
    """What the data support at one risk level, for the policy of that level.

    Attributes:
        confidence: with which it holds, over the data.
        certified_quantile: with this confidence, Q_τ of the policy is at least this, whatever the true probabilities are.
        certified_probability: with this confidence, P(R ≥ certified_quantile) of the policy is at least this.
        supported: False if the data support nothing better than the worst possible return, which is then `certified_quantile` and sure
            only if no reward is smaller than those in the data. The policy is then that of the plain estimate, for want of a better
            one: nothing is promised about it.
        estimated_quantile: the best quantile if the estimated probabilities were true: no promise, and usually too high.
        policy_estimate: Q_τ of the policy if the estimated probabilities were true.
        policy_estimated_mean: its mean, likewise.
        bootstrap_interval: where Q_τ of the policy lies in 90 of 100 resampled tables: a practical indicator, no promise.
        certified_buffered: with `beta`: with this confidence, the policy's buffered quantile is at least this; else None.
    """

    confidence: float
    certified_quantile: float
    certified_probability: float
    supported: bool
    estimated_quantile: float
    policy_estimate: float
    policy_estimated_mean: float
    bootstrap_interval: tuple[float, float] | None
    certified_buffered: float | None


@dataclass(frozen=True)
class PlannedLevel:
    """One risk level of a plan. What is said about a policy is said about `policy`, the one that is returned.

    Attributes:
        risk_level: τ.
        best_quantile: Q*_τ, the best that any policy attains; None when returns were rounded.
        best_quantile_lower: what some policy attains at least; equal to `best_quantile` when that is exact.
        best_quantile_upper: what no policy exceeds; equal to `best_quantile` when that is exact.
        policy_quantile: Q_τ of the policy. Without `beta` and `confidence` it is the best one.
        probability_at_least: P(R ≥ Q*_τ) under the policy.
        policy_mean: E[R] under the policy.
        risk_neutral_quantile: Q_τ of the policy with the largest mean, for comparison.
        certificate: the proof, in three numbers.
        buffered: with `beta`: β, the bounds UB1 ≥ UB2 ≥ LB and more, named as in `bqrl plan --json`; else None.
        promise: with `confidence`: what the data support; else None.
        policy: for the quantile; with `beta` for the buffered quantile; with `confidence` for the promise.
            `policy.action(stage, state, collected)`, stages counted from 0.
        returns: the values that the policy's return can take, rising …
        probabilities: … and how likely each is.
    """

    risk_level: float
    best_quantile: float | None
    best_quantile_lower: float
    best_quantile_upper: float
    policy_quantile: float
    probability_at_least: float
    policy_mean: float
    risk_neutral_quantile: float
    certificate: Certificate
    buffered: dict[str, float | None] | None
    promise: Promise | None
    policy: PlannedPolicy
    returns: NDArray[np.float64]
    probabilities: NDArray[np.float64]


@dataclass(frozen=True)
class Plan:
    """What `bqrl.plan` found.

    Attributes:
        problem: the table that was planned.
        exact: False when returns had to be rounded; bounds then stand in the place of values.
        max_mean: the largest E[R] of any policy.
        levels: one entry per risk level, in the order asked for; `plan[0.1]` finds one.
        report: all of it as plain values, exactly as `bqrl plan --json` prints it.
    """

    problem: _bqrl.Problem
    exact: bool
    max_mean: float
    levels: tuple[PlannedLevel, ...]
    report: dict[str, Any]
    _laws: tuple[_bqrl.Law, ...]

    def __getitem__(self, risk_level: float) -> PlannedLevel:
        for level in self.levels:
            if level.risk_level == risk_level:
                return level
        raise KeyError(f"planned for {[level.risk_level for level in self.levels]}, not for {risk_level}")

    def to_dataframe(self) -> _pandas.DataFrame:
        """One row per risk level: what can be had, what the policy gives, and what the data support."""
        names = [
            "risk_level",
            "best_quantile_lower",
            "best_quantile_upper",
            "policy_quantile",
            "probability_at_least",
            "policy_mean",
            "risk_neutral_quantile",
        ]
        columns = {name: [getattr(level, name) for level in self.levels] for name in names}
        if any(level.buffered for level in self.levels):
            for name in ("beta", "buffered_lower", "buffered_upper"):
                columns[name] = [(level.buffered or {}).get(name) for level in self.levels]
        promises = [level.promise for level in self.levels if level.promise is not None]
        if promises:
            for name in ("certified_quantile", "certified_probability", "supported", "estimated_quantile"):
                columns[name] = [getattr(promise, name) for promise in promises]
        return _show.frame(columns)

    def save_policies(self, path: str | os.PathLike[str], *, compact: bool = False, overwrite: bool = False) -> None:
        """Writes the policies of all levels into one file; the arguments are those of `PlannedPolicy.save`."""
        self.levels[0].policy._native.write(checked_path(path), compact, True, overwrite)

    def plot(self, ax: Any = None) -> Any:
        """The laws of the returns, as matplotlib axes, or as a `Picture` where matplotlib is not installed."""
        axes = _show.axes(ax)
        native = self.levels[0].policy._native
        if axes is None:
            return _show.Picture(native.laws_svg())
        for level, law in zip(self.levels, self._laws, strict=True):
            often = _show.times(level.risk_level)
            label = f"{often} at least {_show.number(level.policy_quantile)} (policy for {level.risk_level:g})"
            (line,) = axes.plot([level.policy_quantile], [level.risk_level], "o")
            _show.law_curve(axes, law, label, color=line.get_color())
        _show.law_curve(axes, native.neutral(), "largest mean", color="0.4", linestyle="--")
        title = f"{self.problem.name} (estimates from counts)" if self.report["estimated"] else self.problem.name
        _show.finish_laws(axes, title, [level.risk_level for level in self.levels])
        return axes

    def _repr_html_(self) -> str:
        notes = []
        for level in self.levels:
            often, promise = _show.times(level.risk_level), level.promise
            if promise is None:
                notes.append(f"{often} you can have at least {_show.number(level.best_quantile_lower)}.")
            elif promise.supported:
                notes.append(
                    f"With {100 * promise.confidence:g} % confidence, {often} at least "
                    f"{_show.number(promise.certified_quantile)}. Your data do not support more than this."
                )
            else:
                notes.append(f"Your data support no promise that holds {often}; the policy is that of the plain estimate.")
        head = ["risk level", "best quantile", "P(R ≥ it)", "mean", "quantile of the largest mean"]
        promised = any(level.promise for level in self.levels)
        rows = []
        for level in self.levels:
            best: Any = level.best_quantile
            if best is None:
                best = f"{_show.number(level.best_quantile_lower)} … {_show.number(level.best_quantile_upper)}"
            row = [level.risk_level, best, level.probability_at_least, level.policy_mean, level.risk_neutral_quantile]
            if promised:
                row.append(level.promise.certified_quantile if level.promise and level.promise.supported else "none")
            rows.append(row)
        head += ["promised"] * promised
        if self.report["estimated"]:
            only = "Estimates from counts, no promises; bqrl.plan(…, confidence=0.95) makes one."
            notes.append("All but the promise is an estimate from counts." if promised else only)
        caption = f"{self.problem.name}: largest mean {_show.number(self.max_mean)}"
        return _show.table(caption, head, rows, notes) + self.levels[0].policy._native.laws_svg()


def plan(
    problem: str | os.PathLike[str] | _bqrl.Problem | Fit | gymnasium.Env[Any, Any] | ArrayLike,
    rewards: ArrayLike | None = None,
    *,
    horizon: int | None = None,
    start: int | str | ArrayLike | None = None,
    discount: float | None = None,
    risk_level: float | Sequence[float] = (0.1, 0.5, 0.9),
    beta: float | Sequence[float] | None = None,
    confidence: float | None = None,
    grid: int | None = None,
    refine: int | None = None,
    passes: int | None = None,
    **parameters: Any,
) -> Plan:
    """The best quantile of the total reward that any policy attains, exactly, with its proof and a policy.

    Args:
        problem: one of
            the name of a built-in problem (`bqrl.problems()`), with its parameters as keywords;
            the path of an MDP file (CSV: idstatefrom, idaction, idstateto, probability, reward);
            what `bqrl.fit` or `bqrl.simulate` made;
            a Gymnasium environment with a table, `env.unwrapped.P`, such as those of toy-text;
            an array P[s, a, s'] of probabilities, with `rewards`. A row of zeros is an action that is not available, and
            a state without actions is terminal.
        rewards: R[s, a, s'] or R[s, a], for an array of probabilities.
        horizon: H ≥ 1, the number of decisions. An environment's own time limit is the default; files and arrays need it.
        start: the state in which episodes start, or a probability for each. Files and arrays need it.
        discount: γ in (0, 1]; 1 by default.
        risk_level: τ in (0, 1), one or several.
        beta: β in (0, τ], one for all levels or one per level: adds the buffered optimum, and policies are then its.
        confidence: in (0, 1), for a table with counts (`bqrl.fit`, `bqrl.simulate`): adds what the data support with this confidence,
            and policies are then those of this promise. Where the data support nothing, `promise.supported` is False and the policy
            is that of the plain estimate.
        grid: from 10 to 10,000,000: round returns to about this many values, and report bounds.
        refine: at most this many passes per level to spend a policy's slack on its mean (12, fewer on large problems).
        passes: at most this many passes per level to close the buffered certificate (200, fewer on large problems).
    """
    for name, value, least in (("grid", grid, 10), ("refine", refine, 0), ("passes", passes, 0)):
        if value is not None:
            whole(name, value, least)
    levels = np.atleast_1d(np.asarray(risk_level, np.float64)).tolist()
    betas = [] if beta is None else np.atleast_1d(np.asarray(beta, np.float64)).tolist()
    if len(betas) > 1 and len(betas) != len(levels):
        raise ValueError(f"beta takes one value, or one per level: got {len(betas)} for {len(levels)} levels")
    if not levels:
        raise ValueError("risk_level must name at least one level")
    table = as_problem(problem, rewards, horizon=horizon, start=start, discount=discount, **parameters)
    wanted = [(tau, betas[min(i, len(betas) - 1)] if betas else None) for i, tau in enumerate(levels)]
    sure = None if confidence is None else float(confidence)
    report, natives, laws, note = _bqrl.plan(table, wanted, grid, refine, passes, sure)
    policies = [PlannedPolicy(native, table, tau) for native, tau in zip(natives, levels, strict=True)]
    if note is not None:
        warnings.warn(f"{note}; bounds follow (grid= changes it)", stacklevel=2)
    found = (_level(*parts) for parts in zip(report["taus"], policies, laws, strict=True))
    return Plan(table, report["exact"], report["max_mean"], tuple(found), report, tuple(laws))


_BUFFERED = (
    "beta",
    "buffered_upper",
    "buffered_mixture",
    "buffered_lower",
    "buffered_policy_quantile",
    "buffered_policy_mean",
    "mixture_weight",
    "paper_rule_quantile",
    "paper_rule_buffered",
)


def _level(found: dict[str, Any], policy: PlannedPolicy, law: _bqrl.Law) -> PlannedLevel:
    best: Any = found.get("best_quantile")
    buffered = {key: found[key] for key in _BUFFERED if key in found}
    return PlannedLevel(
        risk_level=found["tau"],
        best_quantile=best,
        best_quantile_lower=found.get("best_quantile_lower", best),
        best_quantile_upper=found.get("best_quantile_upper", best),
        policy_quantile=found["policy"]["quantile"],
        probability_at_least=found["policy"]["probability_at_least"],
        policy_mean=found["policy"]["mean"],
        risk_neutral_quantile=found["risk_neutral_quantile"],
        certificate=Certificate(**found["certificate"]),
        buffered=buffered or None,
        promise=_promise(found) if "confidence" in found else None,
        policy=policy,
        returns=law.values,
        probabilities=law.probabilities,
    )


def _promise(found: dict[str, Any]) -> Promise:
    interval = found["bootstrap_interval"]
    return Promise(
        confidence=found["confidence"],
        certified_quantile=found["certified_quantile"],
        certified_probability=found["certified_probability"],
        supported=found["supported"],
        estimated_quantile=found["estimated_quantile"],
        policy_estimate=found["policy_estimate"],
        policy_estimated_mean=found["policy_estimated_mean"],
        bootstrap_interval=None if interval is None else (interval[0], interval[1]),
        certified_buffered=found.get("certified_buffered"),
    )


def as_problem(
    problem: Any,
    rewards: ArrayLike | None = None,
    *,
    horizon: int | None = None,
    start: int | str | ArrayLike | None = None,
    discount: float | None = None,
    **parameters: Any,
) -> _bqrl.Problem:
    """A table of whatever `bqrl.plan` takes; its arguments are those of `bqrl.plan`."""
    if isinstance(problem, Fit):
        problem = problem.problem
    if horizon is not None:
        horizon = whole("horizon", horizon, 1)
    if rewards is not None and isinstance(problem, (str, os.PathLike, _bqrl.Problem, gymnasium.Env)):
        raise TypeError("rewards belong to an array of probabilities")
    if isinstance(problem, (str, os.PathLike)):
        if start is not None and not isinstance(start, (int, np.integer, str)):
            raise TypeError(f"start must be the id or the name of a state here, got {start!r}")
        names = {key: str(value) for key, value in parameters.items()}
        first = None if start is None else str(start)
        return _bqrl.Problem.load(os.fspath(problem), names, horizon, first, discount)
    if parameters:
        raise TypeError(f"only a built-in problem has parameters, got {', '.join(parameters)}")
    if isinstance(problem, _bqrl.Problem):
        if (horizon, start, discount) != (None, None, None):
            raise TypeError("horizon, start and discount are settled in a problem that is made already")
        return problem
    if isinstance(start, str):
        raise TypeError(f"start must be the index of a state here, or a probability for each, got {start!r}")
    if isinstance(problem, gymnasium.Env):
        return _from_env(problem, horizon, start, discount)
    return _from_arrays(problem, rewards, horizon, start, discount)


def _from_env(
    env: gymnasium.Env[Any, Any], horizon: int | None, start: int | ArrayLike | None, discount: float | None
) -> _bqrl.Problem:
    inner: Any = env.unwrapped
    own = getattr(inner, "problem", None)
    if isinstance(own, _bqrl.Problem) and (horizon, start, discount) == (None, None, None):
        return own
    table = getattr(inner, "P", None)
    name = env.spec.id if env.spec is not None else type(inner).__name__
    if table is None:
        raise TypeError(f"{name} has no table env.unwrapped.P; planning needs to know every probability")
    if horizon is None:
        horizon = own.horizon if isinstance(own, _bqrl.Problem) else time_limit(env)
    if horizon is None:
        raise ValueError(f"{name} has no time limit: give horizon=, the number of decisions")
    if start is None:
        start = getattr(inner, "initial_state_distrib", None)
        if start is None:
            raise ValueError(f"{name} does not say where episodes start: give start=")
    if discount is None:
        discount = own.discount if isinstance(own, _bqrl.Problem) else 1.0
    rows = [
        (s, a, p, after, r, ends)
        for s, actions in table.items()
        for a, outcomes in actions.items()
        for p, after, r, ends in outcomes
    ]
    if not rows:
        raise ValueError(f"{name} has an empty table")
    columns = [list(column) for column in zip(*rows, strict=True)]
    n_states, n_actions = 1 + max(*columns[0], *columns[3]), 1 + max(columns[1])
    return _rows(name, n_states, n_actions, columns, start, horizon, discount)


def _from_arrays(
    probabilities: ArrayLike,
    rewards: ArrayLike | None,
    horizon: int | None,
    start: int | ArrayLike | None,
    discount: float | None,
) -> _bqrl.Problem:
    p = np.asarray(probabilities, np.float64)
    if p.ndim != 3 or p.shape[0] != p.shape[2] or 0 in p.shape:
        raise ValueError(f"want probabilities P[s, a, s'] of shape (S, A, S), got {p.shape}")
    if rewards is None:
        raise ValueError("an array of probabilities needs rewards")
    r = np.asarray(rewards, np.float64)
    if r.shape == p.shape[:2]:
        r = np.broadcast_to(r[:, :, None], p.shape)
    if r.shape != p.shape:
        raise ValueError(f"want rewards of shape {p.shape} or {p.shape[:2]}, got {r.shape}")
    if horizon is None or start is None:
        raise ValueError("arrays need horizon= and start=")
    s, a, after = np.nonzero(p)
    columns = [s, a, p[s, a, after], after, r[s, a, after], np.zeros(len(s), bool)]
    return _rows("arrays", p.shape[0], p.shape[1], columns, start, horizon, 1.0 if discount is None else discount)


def _rows(
    name: str,
    n_states: int,
    n_actions: int,
    columns: Sequence[Any],
    start: int | ArrayLike,
    horizon: int,
    discount: float,
) -> _bqrl.Problem:
    s, a, p, after, r, ends = columns
    rows = (
        np.require(s, np.int64, ["C", "A"]),
        np.require(a, np.int64, ["C", "A"]),
        np.require(p, np.float64, ["C", "A"]),
        np.require(after, np.int64, ["C", "A"]),
        np.require(r, np.float64, ["C", "A"]),
        np.require(ends, np.bool_, ["C", "A"]),
    )
    if np.ndim(start) == 0:
        first = [(int(start), 1.0)]  # type: ignore[arg-type]
    else:
        shares = np.asarray(start, np.float64)
        first = [(int(state), float(shares[state])) for state in np.flatnonzero(shares)]
    if any(state < 0 for state, _ in first):
        raise ValueError(f"start must be a state, got {shown(start)}")
    return _bqrl.Problem.from_rows(name, n_states, n_actions, rows, first, int(horizon), float(discount))
