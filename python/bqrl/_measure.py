"""What a policy is worth: the law of its return, measured at any levels; and several models side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from . import _arguments, _bqrl, _show

if TYPE_CHECKING:
    import pandas as _pandas  # type: ignore[import-untyped,import-not-found,unused-ignore]

    from ._model import AnyEnv, Model

#: Resamples of a bootstrap.
_RESAMPLES = 2000


@dataclass(frozen=True)
class MeasuredLevel:
    """A policy's return at one level.

    Attributes:
        risk_level: τ.
        quantile: Q_τ of the return, discounted by the model's gamma.
        interval: encloses it with the confidence asked for, whatever the law; None when exact or with too few episodes.
        total_quantile: Q_τ of the plain sum of rewards; None when the law is exact and gamma is below 1.
        total_interval: encloses that one.
    """

    risk_level: float
    quantile: float
    interval: tuple[float, float] | None
    total_quantile: float | None
    total_interval: tuple[float, float] | None


@dataclass(frozen=True)
class Evaluation:
    """What a policy is worth.

    Attributes:
        risk_level: τ, the level that the policy acted for.
        beta: β.
        mean: E[R] of the return, discounted by the model's gamma: what it learned to maximise.
        quantile: Q_τ of it.
        buffered_quantile: Q_τ^β, the average of the quantiles between τ−β and τ.
        exact: True when the law of the return was computed, False when episodes were played.
        episodes: how many were played, else None.
        interval: encloses Q_τ with the confidence asked for, whatever the law; None when exact or with too few episodes.
        values: the returns that can occur (exact) or did occur, rising …
        probabilities: … and how likely, or how frequent, each is.
        levels: the same policy at every level of `measure_at`.
        returns: the discounted return of every episode that was played, in order; None when exact.
        totals: the plain sum of its rewards; the same where gamma is 1.
        lengths: its number of decisions.
        mean_total: the mean of the plain sums; None when the law is exact and gamma is below 1.
    """

    risk_level: float
    beta: float
    mean: float
    quantile: float
    buffered_quantile: float
    exact: bool
    episodes: int | None
    interval: tuple[float, float] | None
    values: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    levels: tuple[MeasuredLevel, ...]
    returns: NDArray[np.float64] | None
    totals: NDArray[np.float64] | None
    lengths: NDArray[np.int64] | None
    mean_total: float | None

    def to_dataframe(self) -> _pandas.DataFrame:
        """One row per level: risk_level, quantile, low, high, and the same of the plain sums; NaN where there is none."""
        pairs = [(level.interval, level.total_interval) for level in self.levels]
        ends = [(one or (np.nan, np.nan), two or (np.nan, np.nan)) for one, two in pairs]
        return _show.frame(
            {
                "risk_level": [level.risk_level for level in self.levels],
                "quantile": [level.quantile for level in self.levels],
                "low": [one[0] for one, _ in ends],
                "high": [one[1] for one, _ in ends],
                "total_quantile": [np.nan if level.total_quantile is None else level.total_quantile for level in self.levels],
                "total_low": [two[0] for _, two in ends],
                "total_high": [two[1] for _, two in ends],
            }
        )

    def _repr_html_(self) -> str:
        rows = []
        for level in self.levels:
            words = f"{_show.times(level.risk_level)} at least {_show.number(level.quantile)}"
            rows.append([level.risk_level, level.quantile, _ends(level.interval), words])
        how = "exact" if self.exact else f"{self.episodes} episodes"
        caption = f"Acts for risk level {self.risk_level:g}: mean {_show.number(self.mean)} ({how})"
        return _show.table(caption, ["risk level", "quantile", "interval", "in words"], rows)


def _ends(interval: tuple[float, float] | None) -> str | None:
    return None if interval is None else f"{_show.number(interval[0])} … {_show.number(interval[1])}"


def exactly(law: _bqrl.Law, level: tuple[float, float], measure_at: Sequence[float], gamma: float) -> Evaluation:
    """The evaluation of a law that was computed."""
    plain = gamma == 1.0

    def at(risk_level: float) -> MeasuredLevel:
        quantile = law.quantile(risk_level)
        return MeasuredLevel(risk_level, quantile, None, quantile if plain else None, None)

    return Evaluation(
        *level,
        mean=law.mean,
        quantile=law.quantile(level[0]),
        buffered_quantile=law.buffered_quantile(*level),
        exact=True,
        episodes=None,
        interval=None,
        values=law.values,
        probabilities=law.probabilities,
        levels=tuple(map(at, measure_at)),
        returns=None,
        totals=None,
        lengths=None,
        mean_total=law.mean if plain else None,
    )


def from_episodes(
    played: tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]],
    level: tuple[float, float],
    measure_at: Sequence[float],
    confidence: float,
) -> Evaluation:
    """The evaluation of episodes that were played."""
    returns, totals, lengths = played
    law, sums = _bqrl.sample_law(returns), _bqrl.sample_law(totals)

    def at(risk_level: float) -> MeasuredLevel:
        return MeasuredLevel(
            risk_level,
            law.quantile(risk_level),
            _bqrl.quantile_interval(returns, risk_level, confidence),
            sums.quantile(risk_level),
            _bqrl.quantile_interval(totals, risk_level, confidence),
        )

    return Evaluation(
        *level,
        mean=law.mean,
        quantile=law.quantile(level[0]),
        buffered_quantile=law.buffered_quantile(*level),
        exact=False,
        episodes=len(returns),
        interval=_bqrl.quantile_interval(returns, level[0], confidence),
        values=law.values,
        probabilities=law.probabilities,
        levels=tuple(map(at, measure_at)),
        returns=returns,
        totals=totals,
        lengths=lengths,
        mean_total=sums.mean,
    )


@dataclass(frozen=True)
class ComparedModel:
    """One model of a comparison. Intervals are bootstrap percentiles with the confidence asked for.

    Attributes:
        name: as it was given.
        risk_level: the level that it acted for.
        mean: of its returns, with its interval.
        mean_interval: (low, high).
        quantiles: Q_τ at every level of the comparison.
        intervals: (low, high) of each.
        differences: at every level, how much more it reaches than the first model, episode by episode the same seeds.
        difference_intervals: (low, high) of each; one that does not hold 0 tells the two apart.
        returns: of every episode, in order.
    """

    name: str
    risk_level: float
    mean: float
    mean_interval: tuple[float, float]
    quantiles: tuple[float, ...]
    intervals: tuple[tuple[float, float], ...]
    differences: tuple[float, ...]
    difference_intervals: tuple[tuple[float, float], ...]
    returns: NDArray[np.float64]


@dataclass(frozen=True)
class ModelComparison:
    """Models side by side in one environment, each played with the same seeds of episodes.

    Attributes:
        environment: its name.
        episodes: played by each model.
        confidence: of the intervals.
        risk_levels: those that were measured.
        models: in the order that they were given; differences are against the first.
    """

    environment: str
    episodes: int
    confidence: float
    risk_levels: tuple[float, ...]
    models: tuple[ComparedModel, ...]

    def to_dataframe(self) -> _pandas.DataFrame:
        """One row per model and level: model, risk_level, quantile, low, high, difference, difference_low, difference_high."""
        names = ("model", "risk_level", "quantile", "low", "high", "difference", "difference_low", "difference_high")
        rows = [
            (model.name, level, model.quantiles[k], *model.intervals[k], model.differences[k], *model.difference_intervals[k])
            for model in self.models
            for k, level in enumerate(self.risk_levels)
        ]
        return _show.frame({name: [row[k] for row in rows] for k, name in enumerate(names)})

    def plot(self, ax: Any = None) -> Any:
        """Q_τ of every model over all levels, with the intervals at those that were measured; needs matplotlib."""
        axes = _show.axes(ax)
        if axes is None:
            raise ImportError("plot needs matplotlib: pip install matplotlib")
        grid = np.linspace(0.01, 0.99, 99)
        for place, model in enumerate(self.models):
            colour = f"C{place % 10}"
            law = _bqrl.sample_law(model.returns)
            axes.step([law.quantile(float(level)) for level in grid], grid, where="post", color=colour, label=model.name)
            for level, (low, high) in zip(self.risk_levels, model.intervals, strict=True):
                axes.plot([low, high], [level, level], color=colour, linewidth=3, alpha=0.4)
        percent = f"{100 * self.confidence:g} %"
        axes.set(
            title=f"{self.environment}: {self.episodes} episodes each, bars: {percent} bootstrap",
            xlabel="total return R",
            ylabel="cumulative probability P(R ≤ w)",
            ylim=(-0.02, 1.03),
        )
        axes.legend(frameon=False)
        return axes

    def _repr_html_(self) -> str:
        head = ["model", "mean", *(f"{_show.times(level)} at least" for level in self.risk_levels)]
        rows = [
            [model.name, f"{_show.number(model.mean)} ({_ends(model.mean_interval)})"]
            + [f"{_show.number(q)} ({_ends(ends)})" for q, ends in zip(model.quantiles, model.intervals, strict=True)]
            for model in self.models
        ]
        note = f"In brackets: {100 * self.confidence:g} % bootstrap intervals of {self.episodes} episodes each."
        return _show.table(self.environment, head, rows, [note])


def compare_models(
    models: Mapping[str, Model] | Sequence[Model],
    env: AnyEnv,
    risk_levels: Sequence[float],
    episodes: float = 1000,
    seed: int = 0,
    confidence: float = 0.95,
) -> ModelComparison:
    """Plays every model with the same seeds, and resamples the episodes."""
    given = dict(models) if isinstance(models, Mapping) else {f"{place + 1}: {type(one).__name__}": one for place, one in enumerate(models)}
    if not given:
        raise ValueError("compare needs at least one model")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must lie in (0, 1), got {_arguments.shown(confidence)}")
    n = _arguments.whole("episodes", episodes, 2)
    played = {name: model._played(env, None, None, n, seed) for name, model in given.items()}
    rng = np.random.default_rng(seed)
    # The same episodes are drawn for all: their seeds are the same, so luck is shared.
    draws = rng.integers(n, size=(_RESAMPLES, n))
    first: NDArray[np.float64] | None = None
    rows = []
    for name, (_, level, (returns, _, _)) in played.items():
        samples = returns[draws]
        means = samples.mean(1)
        found = np.array([_bqrl.sample_law(returns).quantile(tau) for tau in risk_levels])
        resampled = _quantiles(samples, risk_levels)
        if first is None:
            first, first_resampled = found, resampled
        rows.append(
            ComparedModel(
                name=name,
                risk_level=level[0],
                mean=float(returns.mean()),
                mean_interval=_percentiles(means, confidence),
                quantiles=tuple(map(float, found)),
                intervals=tuple(_percentiles(column, confidence) for column in resampled.T),
                differences=tuple(map(float, found - first)),
                difference_intervals=tuple(_percentiles(column, confidence) for column in (resampled - first_resampled).T),
                returns=returns,
            )
        )
    environment = next(iter(played.values()))[0]
    return ModelComparison(environment, n, confidence, tuple(map(float, risk_levels)), tuple(rows))


def _quantiles(samples: NDArray[np.float64], risk_levels: Sequence[float]) -> NDArray[np.float64]:
    """Q_τ of every row, per level: the least value that a share τ of the row does not exceed."""
    n = samples.shape[1]
    # As `Law.quantile` has it; the small number forgives the rounding of n τ.
    places = [min(max(int(np.ceil(n * tau - 1e-9)) - 1, 0), n - 1) for tau in risk_levels]
    ordered = np.partition(samples, sorted(set(places)), axis=1)
    return ordered[:, places]


def _percentiles(values: NDArray[np.float64], confidence: float) -> tuple[float, float]:
    low, high = np.quantile(values, [(1 - confidence) / 2, (1 + confidence) / 2])
    return float(low), float(high)
