"""Exact planning from Python."""

import subprocess
import os
import json

import gymnasium
import numpy as np
import pytest

import bqrl

SUCCESS = 0.7441902878292657  # FrozenLake 4×4, H = 100: the largest chance to reach the goal


def test_asset_selling():
    plan = bqrl.plan("asset-selling")
    assert plan.exact and plan.max_mean == pytest.approx(0.8639848348057599, abs=1e-12)
    assert [level.best_quantile for level in plan.levels] == pytest.approx([19 / 24, 23 / 24, 1.0])
    level = plan[0.1]
    # (19/25)^9 < 0.1 ≤ (20/25)^9: nine fresh offers after the first.
    assert level.certificate.least_probability_below == pytest.approx((19 / 25) ** 9)
    assert level.certificate.next_return == pytest.approx(20 / 24)
    assert level.certificate.least_probability_below_next == pytest.approx((20 / 25) ** 9)
    assert level.probabilities[level.returns < 19 / 24 - 1e-9].sum() < 0.1
    # Action 0 sells. An offer of 24/24 is sold at once, and the first one, 5/24, is not.
    assert level.policy.action(1, 24, 0.0) == 0 and level.policy.action(0, 5, 0.0) == 1
    with pytest.raises(KeyError, match="0.2"):
        plan[0.2]


def test_the_buffered_optimum_is_enclosed():
    level = bqrl.plan("asset-selling", risk_level=0.1, beta=0.02)[0.1]
    found = [level.buffered[f"buffered_{bound}"] for bound in ("upper", "mixture", "lower")]
    assert found == pytest.approx([0.782102, 0.782007, 0.781814], abs=1e-6)
    assert bqrl.plan("asset-selling", risk_level=0.1)[0.1].buffered is None


def test_the_report_is_that_of_the_command_line():
    binary = os.environ.get("BQRL_BIN")
    if binary is None:
        pytest.skip("BQRL_BIN names no bqrl binary; cargo xtask test does")
    flags = ["--tau", "0.1,0.9", "--beta", "0.05", "--json", "--env", "offers=12"]
    output = subprocess.run([binary, "plan", "asset-selling", *flags], check=True, capture_output=True).stdout
    plan = bqrl.plan("asset-selling", risk_level=[0.1, 0.9], beta=0.05, offers=12)
    assert plan.report == json.loads(output)


@pytest.mark.parametrize("name", ["FrozenLake-v1", "CliffWalking-v1", "Taxi-v4"])
def test_toy_text_environments(name):
    env = gymnasium.make(name)
    plan = bqrl.plan(env, horizon=None if name == "FrozenLake-v1" else 40, risk_level=[0.5, 0.9])
    assert plan.exact
    if name == "FrozenLake-v1":
        assert plan.max_mean == pytest.approx(SUCCESS, abs=1e-9)
        assert plan.problem.n_states == 16 and plan.problem.horizon == 100
    if name == "CliffWalking-v1":
        # Thirteen steps past the cliff: up, eleven to the right, down.
        assert plan.max_mean == plan[0.5].best_quantile == -13
    if name == "Taxi-v4":
        # An ending outcome leads to a state where play can go on: one terminal state more.
        assert plan.problem.n_states == 501
        returns = [play(env, plan[0.5], seed) for seed in range(20)]
        assert 5 < np.median(returns) < 12


def play(env, level, seed):
    state, _ = env.reset(seed=seed)
    collected, stage, over = 0.0, 0, False
    while not over:
        state, reward, terminated, truncated, _ = env.step(level.policy.action(stage, int(state), collected))
        collected, stage, over = collected + float(reward), stage + 1, terminated or truncated or stage + 1 == 40
    return collected


def test_a_table_of_gymnasium_is_ours():
    theirs = gymnasium.make("FrozenLake-v1").unwrapped
    ours = gymnasium.make("bqrl/FrozenLake-v0").unwrapped

    def merged(table):
        rows = {}
        for s, actions in table.items():
            for a, outcomes in actions.items():
                for p, after, r, ends in outcomes:
                    key = (int(s), int(a), int(after), float(r), bool(ends))
                    rows[key] = rows.get(key, 0.0) + p
        return rows

    assert merged(ours.P) == pytest.approx(merged(theirs.P))
    assert np.array_equal(ours.initial_state_distrib, theirs.initial_state_distrib)
    assert ours.horizon == gymnasium.make("FrozenLake-v1").spec.max_episode_steps
    assert bqrl.plan(gymnasium.make("bqrl/FrozenLake-v0")).max_mean == pytest.approx(SUCCESS, abs=1e-9)


def gamble():
    """From 0: stay for 0.4, or gamble for 0 or 1; state 1 is terminal."""
    p, r = np.zeros((2, 2, 2)), np.zeros((2, 2, 2))
    p[0, 0, 1] = 1.0
    r[0, 0, 1] = 0.4
    p[0, 1, 1] = 0.5
    p[0, 1, 0] = 0.5
    r[0, 1, 1] = 1.0
    return p, r


def test_arrays():
    p, r = gamble()
    plan = bqrl.plan(p, r, horizon=1, start=0, risk_level=[0.3, 0.7])
    # One decision: the gamble's 0.3-quantile is 0 and its 0.7-quantile 1.
    assert [level.best_quantile for level in plan.levels] == pytest.approx([0.4, 1.0])
    assert [level.policy.action(0, 0, 0.0) for level in plan.levels] == [0, 1]
    assert plan.max_mean == 0.5
    # R[s, a] is what (s, a) pays wherever it leads: the mean of the gamble's two outcomes here.
    mean = bqrl.plan(p, (p * r).sum(2), horizon=1, start=[1.0, 0.0], risk_level=0.3)
    assert mean[0.3].best_quantile == pytest.approx(0.5)


def test_a_csv_file(tmp_path):
    path = tmp_path / "gamble.csv"
    p, r = gamble()
    lines = ["idstatefrom,idaction,idstateto,probability,reward"]
    lines += [f"{s},{a},{t},{p[s, a, t]},{r[s, a, t]}" for s, a, t in zip(*np.nonzero(p), strict=True)]
    path.write_text("\n".join(lines))
    plan = bqrl.plan(path, horizon=3, start=0, risk_level=[0.3, 0.7])
    arrays = bqrl.plan(p, r, horizon=3, start=0, risk_level=[0.3, 0.7])
    assert plan.report["taus"] == arrays.report["taus"]


def test_bounds_where_exact_values_are_out_of_reach():
    p, r = gamble()
    plan = bqrl.plan(p, r, horizon=5, start=0, discount=0.9, risk_level=0.3, grid=100)
    level = plan[0.3]
    assert not plan.exact and level.best_quantile is None
    assert level.best_quantile_lower <= level.best_quantile_upper


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (("asset-seling",), ValueError, "closest name is asset-selling"),
        (("nothing.csv",), ValueError, "reading nothing.csv: No such file"),
        ((np.zeros((2, 2)), np.zeros((2, 2))), ValueError, r"P\[s, a, s'\]"),
        ((np.zeros((2, 1, 2)),), ValueError, "needs rewards"),
        ((np.zeros((2, 1, 2)), np.zeros(3)), ValueError, "want rewards of shape"),
        ((np.ones((2, 1, 2)), np.zeros((2, 1))), ValueError, "horizon= and start="),
    ],
)
def test_mistakes(arguments, error, said):
    with pytest.raises(error, match=said):
        bqrl.plan(*arguments)


def test_more_mistakes():
    p, r = gamble()
    with pytest.raises(ValueError, match="probabilities must sum to 1"):
        bqrl.plan(p * 0.9, r, horizon=1, start=0)
    with pytest.raises(ValueError, match="terminal"):
        bqrl.plan(p, r, horizon=1, start=1)
    with pytest.raises(ValueError, match="start"):
        bqrl.plan(p, r, horizon=1, start=-1)
    with pytest.raises(ValueError, match="give horizon="):
        bqrl.plan(gymnasium.make("CliffWalking-v1"))
    with pytest.raises(TypeError, match="has no table"):
        bqrl.plan(gymnasium.make("CartPole-v1"))
    with pytest.raises(ValueError, match=r"risk_level must lie in \(0, 1\)"):
        bqrl.plan("asset-selling", risk_level=0.0)
    with pytest.raises(ValueError, match="no parameter"):
        bqrl.plan("asset-selling", offer=3)
    with pytest.raises(ValueError, match="terminal: there is nothing"):
        bqrl.plan(p, r, horizon=1, start=0)[0.1].policy.action(0, 1, 0.0)
    with pytest.raises(ValueError, match="grid"):
        bqrl.plan("asset-selling", grid=3)
