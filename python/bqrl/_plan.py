"""Exact planning: `bqrl.plan`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _bqrl
from ._arguments import shown, whole
from ._limits import time_limit


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
class PlannedLevel:
    """One risk level of a plan.

    Attributes:
        risk_level: τ.
        best_quantile: Q*_τ, the best that any policy attains; None when returns were rounded.
        best_quantile_lower: what the policy attains at least; equal to `best_quantile` when that is exact.
        best_quantile_upper: what no policy exceeds; equal to `best_quantile` when that is exact.
        probability_at_least: P(R ≥ Q*_τ) under the policy.
        policy_mean: E[R] under the policy.
        risk_neutral_quantile: Q_τ of the policy with the largest mean, for comparison.
        certificate: the proof, in three numbers.
        buffered: with `beta`: β, the bounds UB1 ≥ UB2 ≥ LB and more, named as in `bqrl plan --json`; else None.
        policy: `policy.action(stage, state, collected)`, stages counted from 0.
        returns: the values that the policy's return can take, rising …
        probabilities: … and how likely each is.
    """

    risk_level: float
    best_quantile: float | None
    best_quantile_lower: float
    best_quantile_upper: float
    probability_at_least: float
    policy_mean: float
    risk_neutral_quantile: float
    certificate: Certificate
    buffered: dict[str, float | None] | None
    policy: _bqrl.PlannedPolicy
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

    def __getitem__(self, risk_level: float) -> PlannedLevel:
        for level in self.levels:
            if level.risk_level == risk_level:
                return level
        raise KeyError(f"planned for {[level.risk_level for level in self.levels]}, not for {risk_level}")


def plan(
    problem: str | os.PathLike[str] | _bqrl.Problem | gymnasium.Env[Any, Any] | ArrayLike,
    rewards: ArrayLike | None = None,
    *,
    horizon: int | None = None,
    start: int | ArrayLike | None = None,
    discount: float | None = None,
    risk_level: float | Sequence[float] = (0.1, 0.5, 0.9),
    beta: float | Sequence[float] | None = None,
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
            a Gymnasium environment with a table, `env.unwrapped.P`, such as those of toy-text;
            an array P[s, a, s'] of probabilities, with `rewards`. A row of zeros is an action that is not available, and
            a state without actions is terminal.
        rewards: R[s, a, s'] or R[s, a], for an array of probabilities.
        horizon: H ≥ 1, the number of decisions. An environment's own time limit is the default; files and arrays need it.
        start: the state in which episodes start, or a probability for each. Files and arrays need it.
        discount: γ in (0, 1]; 1 by default.
        risk_level: τ in (0, 1), one or several.
        beta: β in (0, τ], one for all levels or one per level: adds the buffered optimum, and policies are then its.
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
    report, policies, laws, note = _bqrl.plan(table, wanted, grid, refine, passes)
    if note is not None:
        warnings.warn(f"{note}; bounds follow (grid= changes it)", stacklevel=2)
    found = (_level(*parts) for parts in zip(report["taus"], policies, laws, strict=True))
    return Plan(table, report["exact"], report["max_mean"], tuple(found), report)


_LEVEL_KEYS = {
    "tau",
    "best_quantile",
    "best_quantile_lower",
    "best_quantile_upper",
    "probability_at_least",
    "policy_mean",
    "risk_neutral_quantile",
    "certificate",
}


def _level(
    found: dict[str, Any], policy: _bqrl.PlannedPolicy, law: tuple[NDArray[np.float64], NDArray[np.float64]]
) -> PlannedLevel:
    best: Any = found.get("best_quantile")
    buffered = {key: value for key, value in found.items() if key not in _LEVEL_KEYS}
    return PlannedLevel(
        risk_level=found["tau"],
        best_quantile=best,
        best_quantile_lower=found.get("best_quantile_lower", best),
        best_quantile_upper=found.get("best_quantile_upper", best),
        probability_at_least=found["probability_at_least"],
        policy_mean=found["policy_mean"],
        risk_neutral_quantile=found["risk_neutral_quantile"],
        certificate=Certificate(**found["certificate"]),
        buffered=buffered or None,
        policy=policy,
        returns=law[0],
        probabilities=law[1],
    )


def as_problem(
    problem: Any,
    rewards: ArrayLike | None = None,
    *,
    horizon: int | None = None,
    start: int | ArrayLike | None = None,
    discount: float | None = None,
    **parameters: Any,
) -> _bqrl.Problem:
    """A table of whatever `bqrl.plan` takes; its arguments are those of `bqrl.plan`."""
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
