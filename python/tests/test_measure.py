"""Policies measured: several levels, discounted and not; models side by side."""

import gymnasium
import numpy as np
import pytest
from support import SMALL, Diary

import bqrl


def discounted(gamma):
    return bqrl.QRDQN(gymnasium.wrappers.TimeLimit(Diary(), 10), gamma=gamma, **SMALL).learn(total_episodes=5)


def test_both_totals_of_every_episode_are_there():
    model = discounted(0.5)
    value = model.evaluate(gymnasium.wrappers.TimeLimit(Diary(), 10), episodes=6, measure_at=[0.25, 0.5, 0.9])
    # Episode k of `Diary` takes 2 + k % 3 steps, and pays 10 k + t at step t.
    lengths = [2 + k % 3 for k in range(6)]
    totals = [sum(10.0 * k + t for t in range(1, n + 1)) for k, n in enumerate(lengths)]
    returns = [sum(0.5 ** (t - 1) * (10.0 * k + t) for t in range(1, n + 1)) for k, n in enumerate(lengths)]
    assert value.lengths.tolist() == lengths and value.totals.tolist() == totals
    assert np.allclose(value.returns, returns)
    assert np.isclose(value.mean, np.mean(returns)) and np.isclose(value.mean_total, np.mean(totals))
    for level in value.levels:
        # The least value that a share τ of the episodes does not exceed.
        place = int(np.ceil(6 * level.risk_level)) - 1
        assert np.isclose(level.quantile, np.sort(returns)[place]) and level.total_quantile == np.sort(totals)[place]
        # Six episodes enclose the median with 97 %, and no other quantile with 95 %.
        assert level.interval == ((min(returns), max(returns)) if level.risk_level == 0.5 else None)


def test_a_model_of_one_level_is_measured_at_any():
    model = bqrl.DeepBQRL("CartPole-v1", risk_level=0.1, **SMALL).learn(200)
    value = model.evaluate(episodes=200, measure_at=[0.05, 0.1, 0.5, 0.9])
    assert value.risk_level == 0.1 and value.levels[1].quantile == value.quantile and value.levels[1].interval == value.interval
    quantiles = [level.quantile for level in value.levels]
    assert quantiles == sorted(quantiles) and quantiles[0] < quantiles[3]
    for level in value.levels:
        assert level.interval[0] <= level.quantile <= level.interval[1]
    # To act for another level is another question.
    with pytest.raises(ValueError, match="trained for risk_level=0.1"):
        model.evaluate(risk_level=0.5)
    frame = pytest.importorskip("pandas") and value.to_dataframe()
    assert frame["quantile"].tolist() == quantiles and frame["total_quantile"].tolist() == quantiles


def test_intervals_of_quantiles_hold_as_often_as_they_say():
    # Episodes of one decision that pay u, uniform on [0, 1]: Q_τ = τ. 200 evaluations of 60 episodes; at 90 %, 180 are expected
    # to hold, with a standard error of 4.2. Coverage is at least 90 %, so fewer than 162 means an error.
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        low, high = bqrl._bqrl.quantile_interval(rng.random(60), 0.3, 0.9)
        held += low <= 0.3 <= high
    assert held >= 162


def test_an_exact_evaluation_measures_any_level_too():
    model = bqrl.QRDQN("bqrl/AssetSelling-v0", **SMALL).learn(total_episodes=50)
    value = model.evaluate(measure_at=[0.1, 0.5])
    assert value.exact and value.returns is None and value.mean_total == value.mean
    for level in value.levels:
        below = value.probabilities[value.values < level.quantile - 1e-12].sum()
        upto = value.probabilities[value.values <= level.quantile + 1e-12].sum()
        assert below < level.risk_level <= upto + 1e-9 and level.interval is None and level.total_quantile == level.quantile
    assert "at least" in value._repr_html_()


class Paid(gymnasium.Env):
    """One decision: action 0 pays 0.4, action 1 pays a uniform number."""

    observation_space, action_space = gymnasium.spaces.Discrete(1), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return 0, {}

    def step(self, action):
        return 0, 0.4 if action == 0 else float(self.np_random.random()), True, False, {}


def test_models_are_compared_with_the_same_luck():
    kind = dict(horizon=1, hidden=[8], seed=1)
    careful = bqrl.DeepBQRL(Paid(), risk_level=0.1, **kind).learn(total_episodes=300)
    bold = bqrl.QRDQN(Paid(), **kind).learn(total_episodes=300)
    assert careful.predict(0)[0] == 0 and bold.predict(0)[0] == 1
    result = bqrl.compare({"careful": careful, "bold": bold, "again": bold}, Paid(), risk_levels=[0.1, 0.5], episodes=400)
    one, two, three = result.models
    assert one.quantiles == (0.4, 0.4) and one.intervals == ((0.4, 0.4), (0.4, 0.4))
    assert np.array_equal(two.returns, three.returns)
    # Q_.1 = 0.1 and Q_.5 = 0.5 of a uniform number: the differences are −0.3 and 0.1. Five standard errors of a quantile of 400.
    for difference, exact, (low, high) in zip(two.differences, (-0.3, 0.1), two.difference_intervals, strict=True):
        assert abs(difference - exact) < 0.125 and low < difference < high and high - low < 0.2
    assert two.difference_intervals[0][1] < 0 < two.difference_intervals[1][1]
    assert two.mean_interval[0] < 0.5 < two.mean_interval[1]
    pandas = pytest.importorskip("pandas")
    frame = result.to_dataframe()
    assert isinstance(frame, pandas.DataFrame) and len(frame) == 6 and frame["model"].unique().tolist() == ["careful", "bold", "again"]
    assert "careful" in result._repr_html_()
    pytest.importorskip("matplotlib").use("Agg")
    axes = result.plot()
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["careful", "bold", "again"]


def test_the_bootstrap_takes_the_quantile_that_is_reported():
    from bqrl._measure import _quantiles

    rng = np.random.default_rng(2)
    for n in (2, 3, 10, 37, 100):
        sample = rng.integers(0, 8, n).astype(float)
        levels = [0.01, 0.1, 0.3, 0.5, 0.9, 0.99]
        want = [bqrl._bqrl.sample_law(sample).quantile(level) for level in levels]
        assert _quantiles(sample[None, :], levels)[0].tolist() == want


def test_wrong_questions_are_answered():
    model = bqrl.QRDQN(Paid(), horizon=1, hidden=[8])
    for arguments, said in [
        (dict(episodes=1), "episodes must be a whole number of at least 2"),
        (dict(confidence=1.0), r"confidence must lie in \(0, 1\), got 1.0"),
        (dict(risk_levels=[1.5]), r"risk_level must lie in \(0, 1\), got 1.5"),
    ]:
        with pytest.raises(ValueError, match=said):
            bqrl.compare([model], Paid(), **arguments)
    with pytest.raises(ValueError, match=r"risk_level must lie in \(0, 1\), got 0"):
        model.evaluate(episodes=5, measure_at=[0.0])
    with pytest.raises(TypeError, match=r"measure_at takes several, got \[0.1, 0.5\]"):
        model.evaluate(risk_level=[0.1, 0.5])
    with pytest.raises(ValueError, match="observations"):
        bqrl.compare([model], "CartPole-v1")
