"""From data to a policy one can defend, from Python: fit, plan with a confidence, evaluate, compare, explain, simulate."""

import dataclasses
import json
import os
import subprocess

import gymnasium
import numpy as np
import pytest

import bqrl

LOG = {
    "Episode": [1, 1, 2, 2],
    "t": [0, 1, 0, 1],
    "State": ["low", "high", "low", "low"],
    "Action": ["order", "wait", "wait", "order"],
    "Reward": [-4.5, 3.0, 0.0, -4.5],
    "Next State": ["high", "low", "low", "high"],
    "Done": [False, True, False, True],
}
CSV = "episode;t;State;Action;Reward;Next State;Done\n1;0;low;order;-4,5;high;0\n1;1;high;wait;3;low;1\n2;0;low;wait;0;low;0\n2;1;low;order;-4,5;high;1\n"


def gambles(episodes, seed=7):
    """One state, "safe" pays 1, "gamble" pays 3 with probability 0.4; four stages."""
    rng = np.random.default_rng(seed)
    n = 4 * episodes
    safe = rng.random(n) < 0.5
    return {
        "episode": np.repeat(np.arange(episodes), 4),
        "stage": np.tile(np.arange(4), episodes),
        "state": np.full(n, "play"),
        "action": np.where(safe, "safe", "gamble"),
        "reward": np.where(safe, 1.0, np.where(rng.random(n) < 0.4, 3.0, 0.0)),
        "next_state": np.full(n, "play"),
        "end": np.zeros(n, bool),
    }


def test_a_log_is_the_same_table_from_arrays_from_a_frame_and_from_a_file(tmp_path):
    pandas = pytest.importorskip("pandas")
    (tmp_path / "log.csv").write_text(CSV)
    fits = [bqrl.fit(LOG), bqrl.fit(pandas.DataFrame(LOG)), bqrl.fit(tmp_path / "log.csv")]
    for fit in fits:
        assert (fit.episodes, fit.transitions, fit.unseen_pairs, fit.horizon) == (2, 4, 1, 2)
        assert fit.missing == (("high", "order"),)
        assert fit.problem.states == ["high", "low"] and fit.problem.actions == ["order", "wait"]
        assert fit.tried() == {"high": {"order": 0, "wait": 1}, "low": {"order": 2, "wait": 1}}
        assert any("never tried: order in state high" in note for note in fit.notes)
        frame = fit.to_dataframe()
        seen = frame[(frame.state == "low") & (frame.action == "order")]
        assert seen["count"].tolist() == [2] and seen.probability.tolist() == [1.0] and seen.reward.tolist() == [-4.5]
    assert [f.problem.counts()[1:4] for f in fits] == [fits[0].problem.counts()[1:4]] * 3


def test_columns_may_be_left_out_and_have_gaps_where_an_episode_ends():
    pandas = pytest.importorskip("pandas")
    short = {key: LOG[key] for key in ("Episode", "State", "Action", "Reward")}
    assert bqrl.fit(short).notes[1].startswith("no column says where episodes end")
    open_end = pandas.DataFrame(LOG)
    open_end.loc[[1, 3], "Next State"] = None
    assert bqrl.fit(open_end).problem.n_states == 3
    numbered = LOG | {"State": [1.0, 2.0, 1.0, 1.0], "Next State": [2, 1, 1, 2]}
    assert bqrl.fit(numbered).problem.states == ["1", "2"]
    by_stage = bqrl.fit(LOG, by_stage=True)
    assert by_stage.to_dataframe().stage.tolist() == [0, 0, 1, 1]
    binned = bqrl.fit(LOG, bins={"reward": 2})
    assert binned.cut_points == {"reward": (-4.5, 0.0)}


def test_a_column_with_gaps_becomes_numbers_and_no_state_called_nan():
    # pandas turns whole numbers with gaps into floating-point numbers.
    log = {
        "episode": [1, 1, 2, 2],
        "state": [0, 1, 0, 1],
        "action": ["a", "b", "a", "b"],
        "reward": [1.0, 2.0, 1.0, 3.0],
        "next_state": [1.0, float("nan"), 1.0, float("nan")],
        "done": [False, True, False, True],
    }
    # Where states are numbers, the end has one, too.
    assert bqrl.fit(log).problem.states == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"Reward": [1.0, np.nan, 0, 0]}, ValueError, "row 1, column reward: want a finite number, got NaN"),
        ({"Reward": [1.0, "much", 0, 0]}, ValueError, "row 1, column reward: want a finite number, got 'much'"),
        ({"State": ["low", None, "low", "low"]}, ValueError, "row 1, column state: want a name or a number"),
        ({"t": [0, 2, 0, 1]}, ValueError, "row 1: episode 1 goes from stage 0 to stage 2"),
        ({"t": [0, 0.5, 0, 1]}, ValueError, "row 1, column stage: want a whole number, got 0.5"),
        ({"t": [0, 1, 0]}, ValueError, "equally long: episode has 4 rows, stage has 3"),
        ({"Done": ["no", "maybe", "no", "yes"]}, ValueError, "row 1, column end: want true or false, got 'maybe'"),
        ({"Next State": ["low", "low", "low", "high"]}, ValueError, "row 1: episode 1 is in state high, but row 0 led to state low"),
        ({"State": np.zeros((4, 2))}, ValueError, "column State must have one value per row"),
    ],
)
def test_mistakes_in_a_log_are_named_with_their_row(change, error, said):
    with pytest.raises(error, match=said):
        bqrl.fit(LOG | change)


def test_more_mistakes_in_calls(tmp_path):
    with pytest.raises(ValueError, match="missing column episode, action, reward"):
        bqrl.fit({"state": [1]})
    with pytest.raises(TypeError, match="a log is a DataFrame"):
        bqrl.fit(3)
    with pytest.raises(ValueError, match="reading .*none.csv: No such file"):
        bqrl.fit(tmp_path / "none.csv")
    with pytest.raises(ValueError, match="horizon must be a whole number of at least 1"):
        bqrl.fit(LOG, horizon=0)
    with pytest.raises(ValueError, match="bins are for state or reward"):
        bqrl.fit(LOG, bins={"action": 3})
    with pytest.raises(ValueError, match=r"bins\['state'\] must be a whole number"):
        bqrl.fit(LOG, bins={"state": 0})
    with pytest.raises(ValueError, match=r"risk_level must lie in \(0, 1\), got 1.5"):
        bqrl.plan("gamble-chain", risk_level=1.5)
    with pytest.raises(ValueError, match=r"beta must lie in \(0, risk_level\] = \(0, 0.1\], got 0.2"):
        bqrl.plan("gamble-chain", risk_level=0.1, beta=0.2)
    with pytest.raises(ValueError, match=r"confidence must lie in \(0, 1\), got 2"):
        bqrl.plan(bqrl.fit(LOG), confidence=2)
    with pytest.raises(ValueError, match="needs a table with counts, gamble-chain has none; bqrl.fit"):
        bqrl.plan("gamble-chain", confidence=0.95)


def test_a_promise_is_at_most_the_estimate_and_grows_with_the_data():
    few, many = (bqrl.plan(bqrl.fit(gambles(n)), risk_level=0.1, confidence=0.95)[0.1] for n in (60, 8_000))
    # Four safe steps give 4 for sure; that is also the best at 0.1.
    assert many.promise.supported and many.promise.certified_quantile == 4.0
    assert many.promise.certified_probability > 0.9 and many.promise.certified_buffered is None
    assert few.promise.certified_quantile < 4.0 <= few.promise.estimated_quantile
    # All figures belong to the policy that is returned.
    for level in (few, many):
        assert level.policy_quantile == level.promise.policy_estimate
        assert level.policy_mean == pytest.approx(level.promise.policy_estimated_mean)
        assert level.policy_mean == pytest.approx((level.returns * level.probabilities).sum())
    assert many.policy.explain(0, "play", 0.0).target == 4.0
    assert bqrl.plan("gamble-chain")[0.1].promise is None


def test_without_support_the_policy_is_that_of_the_estimate_and_marked():
    fit = bqrl.fit(gambles(4))
    plain, promised = bqrl.plan(fit, risk_level=0.1), bqrl.plan(fit, risk_level=0.1, confidence=0.95)
    level = promised[0.1]
    assert not level.promise.supported and level.promise.certified_quantile == 0.0
    assert level.policy.to_dataframe().equals(plain[0.1].policy.to_dataframe())
    assert "no promise" in promised._repr_html_()


def test_with_beta_all_figures_are_those_of_the_returned_policy():
    level = bqrl.plan("inventory", risk_level=0.1, beta=0.1)[0.1]
    worth = bqrl.evaluate("inventory", level, risk_levels=0.1)
    assert level.policy_mean == pytest.approx(worth.mean, abs=1e-9)
    assert level.policy_quantile == worth.quantile(0.1)
    assert level.probability_at_least == pytest.approx(worth.probability_at_least(level.best_quantile), abs=1e-12)
    assert level.buffered["buffered_policy_mean"] == pytest.approx(level.policy_mean)
    assert level.buffered["buffered_lower"] == pytest.approx(worth.buffered_quantile(0.1, 0.1))
    # Another policy has the best point quantile.
    assert level.policy_quantile < level.best_quantile


def test_a_function_a_rule_and_a_file_that_say_the_same_have_the_same_law(tmp_path):
    asked = []

    def sell_high(stage, state, collected):
        asked.append((stage, state, collected))
        return "stop" if state >= 19 else 1

    path = tmp_path / "rule.csv"
    path.write_text("state,action\n" + "".join(f"{s},{'stop' if s >= 19 else 'continue'}\n" for s in range(25)))
    rule = "if state >= 19 then stop else continue"
    found = [bqrl.evaluate("asset-selling", policy) for policy in (sell_high, rule, path)]
    for worth in found:
        assert worth.exact and not worth.estimated and worth.intervals == (None, None, None)
        # P(R < 19/24) = (19/25)^9 = 0.0846 < 0.1.
        assert worth.quantile(0.1) == worth.quantiles[0] == pytest.approx(19 / 24)
        assert worth.probability_at_least(19 / 24) == pytest.approx(1 - (19 / 25) ** 9)
        assert worth.mean == found[0].mean
    assert [worth.policy for worth in found] == ["sell_high", rule, str(path)]
    assert len(asked) == len(set(asked)), "asked once at every point"
    assert all(isinstance(state, int) for _, state, _ in asked)


def test_states_go_by_their_names_and_orders_by_their_numbers():
    fit = bqrl.fit(LOG)
    seen = set()
    bqrl.evaluate(fit, lambda stage, state, collected: seen.add(state) or "wait")
    assert seen == {"low"}
    up_to = bqrl.evaluate("inventory", "up to 5")
    own = bqrl.evaluate("inventory", lambda stage, state, collected: max(0, 5 - state))
    assert own.mean == up_to.mean and own.quantiles == up_to.quantiles
    intervals = bqrl.evaluate(bqrl.fit(gambles(50)), "safe").intervals
    assert intervals == ((4.0, 4.0),) * 3


def test_mistakes_in_policies_say_where():
    def wrong(answer):
        return lambda stage, state, collected: answer

    with pytest.raises(ValueError, match='at stage 0, state 5, collected 0: the policy says .hold.: there is no action "hold"; there are stop, continue'):
        bqrl.evaluate("asset-selling", wrong("hold"))
    with pytest.raises(ValueError, match="at stage 0, state 5, collected 0"):
        bqrl.evaluate("asset-selling", wrong(None))
    with pytest.raises(ValueError, match="chooses order, which is not possible there"):
        bqrl.evaluate(bqrl.fit(LOG), wrong("order"))
    with pytest.raises(ZeroDivisionError):
        bqrl.evaluate("asset-selling", lambda stage, state, collected: 1 // 0)
    with pytest.raises(TypeError, match="a policy is a planned policy, the path of a CSV file"):
        bqrl.evaluate("asset-selling", 3)
    with pytest.raises(ValueError, match="a rule is an action"):
        bqrl.evaluate("asset-selling", "sell")
    with pytest.raises(ValueError, match=r"risk_level must lie in \(0, 1\)"):
        bqrl.evaluate("asset-selling", "stop", risk_levels=[0.1, 1.0])
    with pytest.raises(ValueError, match="planned for inventory"):
        bqrl.evaluate("asset-selling", bqrl.plan("inventory", risk_level=0.1)[0.1].policy)


def test_a_comparison_has_the_numbers_of_the_command_line(tmp_path):
    rule = "if state >= 19 then stop else continue"
    found = bqrl.compare("asset-selling", rule, risk_levels=(0.1, 0.5))
    assert [row.policy for row in found.policies] == ["yours", "risk-neutral", "percentile", "percentile"]
    assert found.policies[2].quantiles[0] == pytest.approx(19 / 24) and found.policies[2].risk_level == 0.1
    assert found.policies[1].mean == max(row.mean for row in found.policies)
    frame = found.to_dataframe()
    assert list(frame.columns) == ["policy", "risk_level", "mean", "Q_0.1", "Q_0.5"]
    binary = os.environ.get("BQRL_BIN")
    if binary is not None:
        flags = ["--policy", rule, "--tau", "0.1,0.5", "--json"]
        said = subprocess.run([binary, "compare", "asset-selling", *flags], check=True, capture_output=True).stdout
        assert found.report == json.loads(said)


def test_explanations_are_those_of_the_plan():
    plan = bqrl.plan("asset-selling", risk_level=0.1)
    said = plan[0.1].policy.explain(0, 5, 0.0)
    assert said.chosen.action == "continue" and said.target == plan[0.1].best_quantile
    # At the start the policy's own action has the policy's own figures.
    assert said.chosen.chance == pytest.approx(plan[0.1].probability_at_least)
    assert said.chosen.expected == pytest.approx(plan[0.1].policy_mean)
    stop = said.actions[0]
    assert (stop.action, stop.chance, stop.chosen) == ("stop", 0.0, False)
    assert "choose continue" in str(said)
    assert said.to_dataframe().chosen.tolist() == [False, True]
    assert "<td>continue</td>" in said._repr_html_()


@pytest.mark.parametrize(
    ("point", "said"),
    [
        ((0, 6, 0.0), "not on the plan: state 6 cannot be reached at stage 0"),
        ((1, 5, 0.25), "not on the plan: 0.25 cannot have been collected at stage 1 in state 5"),
        ((0, "sold", 0.0), "not on the plan: state sold is terminal"),
        ((10, 5, 0.0), "stage must be a whole number from 0 to 9, got 10"),
        ((-1, 5, 0.0), "stage must be a whole number of at least 0"),
        ((0, 99, 0.0), 'there is no state "99"'),
        ((0, 5, float("nan")), "collected must be a finite number"),
    ],
)
def test_a_point_off_the_plan_is_refused_with_the_reason(point, said):
    policy = bqrl.plan("asset-selling", risk_level=0.1)[0.1].policy
    for ask in (policy.action, policy.explain):
        with pytest.raises(ValueError, match=said):
            ask(*point)


def test_every_point_of_a_played_episode_is_on_the_plan():
    # Sums of rewards as Python adds them up, also where they are irregular and discounted.
    for name, settings in [("inventory", {}), ("american-put", {}), ("machine-replacement", {"discount": 0.97, "horizon": 6})]:
        problem = bqrl.plan(name, risk_level=0.3, **settings).problem
        policy = bqrl.plan(problem, risk_level=0.3)[0.3].policy
        env = bqrl.TabularEnv(problem)
        for seed in range(20):
            state, _ = env.reset(seed=seed)
            stage, collected, over = 0, 0.0, False
            while not over:
                action = policy.action(stage, problem.states[int(state)], collected)
                state, reward, over, _, _ = env.step(action)
                collected += problem.discount**stage * float(reward)
                stage += 1


def test_policies_are_written_as_csv_and_as_a_spreadsheet(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    fit = bqrl.fit(gambles(200))
    plan = bqrl.plan(fit, risk_level=[0.1, 0.5], confidence=0.9)
    plan.save_policies(tmp_path / "p.xlsx", compact=True)
    book = openpyxl.load_workbook(tmp_path / "p.xlsx")
    assert book.sheetnames == ["tau 0.1", "tau 0.5"]
    rows = list(book["tau 0.1"].values)
    assert rows[0] == ("tau", "stage", "state", "collected_from", "collected_to", "action")
    frame = plan[0.1].policy.to_dataframe()
    assert len(rows) - 1 == len(frame)
    assert rows[1][:3] == (0.1, 0, "play") and rows[1][5] in ("safe", "gamble")
    plan[0.1].policy.save(tmp_path / "p.csv")
    assert bqrl.evaluate(fit, tmp_path / "p.csv").mean == pytest.approx(plan[0.1].policy_mean)
    # The same plan gives the same bytes; a table of ours may be replaced, anything else may not.
    plan[0.1].policy.save(tmp_path / "p.csv", compact=True)
    plan.save_policies(tmp_path / "q.xlsx", compact=True)
    assert (tmp_path / "q.xlsx").read_bytes() == (tmp_path / "p.xlsx").read_bytes()
    (tmp_path / "mine.csv").write_text("my notes\n")
    for save in (plan[0.1].policy.save, plan.save_policies, fit.save):
        with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
            save(tmp_path / "mine.csv")
    assert (tmp_path / "mine.csv").read_text() == "my notes\n"
    plan.save_policies(tmp_path / "mine.csv", overwrite=True)
    assert (tmp_path / "mine.csv").read_text().startswith("tau,stage,state,collected,action\n")


def test_a_fitted_table_goes_through_a_file(tmp_path):
    fit = bqrl.fit(gambles(200))
    fit.save(tmp_path / "model.csv")
    fit.save(tmp_path / "model.csv")
    own, read = (bqrl.plan(source, risk_level=0.1, confidence=0.9) for source in (fit, tmp_path / "model.csv"))
    assert own.report["taus"] == read.report["taus"]


def coin(state, action, rng):
    """A walk on 0..3 that can be cashed in."""
    if action == "cash":
        return "out", float(state), True
    return min(3, max(0, state + (1 if rng.random() < 0.6 else -1))), 0.0


def test_a_simulator_becomes_a_table_that_can_be_planned_with_confidence():
    fit = bqrl.simulate(coin, 1, 4, actions=["walk", "cash"], episodes=4000, seed=3)
    assert fit.episodes == 4000 and fit.horizon == 4 and fit.problem.name == "coin"
    assert set(fit.problem.states) == {"0", "1", "2", "3", "out"}
    tried = fit.tried()["1"]
    assert abs(tried["walk"] - tried["cash"]) < 5 * (tried["walk"] + tried["cash"]) ** 0.5
    level = bqrl.plan(fit, risk_level=0.5, confidence=0.95)[0.5]
    # Cashing in at once gives 1; at the median a walk to 2 can be had: P(2 before the end) = 0.6 + 0.4·0.6·0.6 = 0.744.
    assert level.promise.supported and level.promise.certified_quantile == 2.0
    again = bqrl.simulate(coin, lambda rng: 1, 4, actions=lambda state: ["walk", "cash"], episodes=4000, seed=3)
    assert again.problem.counts()[5].tolist() == fit.problem.counts()[5].tolist()


def test_mistakes_of_a_simulator_are_named():
    for step, error, said in [
        (lambda s, a, rng: s, TypeError, r"step\(0, 'a', rng\) must return \(next state, reward\)"),
        (lambda s, a, rng: (s, float("inf")), ValueError, "must return a finite reward, got inf"),
        (lambda s, a, rng: ([], 0.0), TypeError, "unhashable"),
        (lambda s, a, rng: 1 // 0, ZeroDivisionError, "division"),
    ]:
        with pytest.raises(error, match=said):
            bqrl.simulate(step, 0, 3, actions=["a"], episodes=2)
    with pytest.raises(ValueError, match="at least one action in every state"):
        bqrl.simulate(coin, 0, 3, actions=[], episodes=2)
    with pytest.raises(ValueError, match="episodes must be a whole number of at least 2"):
        bqrl.simulate(coin, 0, 3, actions=["walk"], episodes=1)
    with pytest.raises(TypeError, match="step must be a function"):
        bqrl.simulate("coin", 0, 3, actions=["walk"])


def test_pictures_say_the_level_in_words_and_what_is_an_estimate():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    fit = bqrl.fit(gambles(300))
    plan = bqrl.plan(fit, risk_level=0.1)
    best = plan[0.1].policy_quantile
    for drawn in (plan.plot(), bqrl.evaluate(fit, plan[0.1]).plot(), bqrl.compare(fit, "safe", risk_levels=0.1).plot()):
        words = [text.get_text() for text in (*drawn.get_legend().get_texts(), *drawn.texts)]
        assert any(f"9 times in 10 at least {best:g}" in text for text in words), words
        assert "estimates from counts" in drawn.get_title()
    periods = plan[0.1].policy.plot().get_xticks()
    assert all(period == round(period) for period in periods), periods


def test_fixed_episodes_without_next_states_do_not_seem_to_end_early():
    log = {"episode": np.repeat(np.arange(50), 3), "state": ["a"] * 150, "action": ["x"] * 150, "reward": np.ones(150)}
    fit = bqrl.fit(log)
    assert bqrl.plan(fit).max_mean == 3.0
    assert any("50 rows are left out" in note for note in fit.notes)


def test_in_a_notebook(monkeypatch):
    pandas = pytest.importorskip("pandas")
    fit = bqrl.fit(gambles(300))
    plan = bqrl.plan(fit, risk_level=[0.1, 0.5], confidence=0.9)
    results = [fit, plan, plan[0.1].policy, bqrl.evaluate(fit, "safe"), bqrl.compare(fit, "safe")]
    for result in results:
        assert result._repr_html_().startswith("<div>"), result
        assert isinstance(result.to_dataframe(), pandas.DataFrame)
    levels = pandas.DataFrame(plan.levels)
    assert levels.risk_level.tolist() == [0.1, 0.5] and "policy_mean" in levels
    assert dataclasses.asdict(plan[0.1])["promise"]["confidence"] == 0.9
    assert plan.to_dataframe().certified_quantile.tolist() == [level.promise.certified_quantile for level in plan.levels]
    assert "All but the promise is an estimate" in plan._repr_html_()
    assert "Estimates from counts, no promises" in bqrl.plan(fit)._repr_html_()
    assert "stimates" not in bqrl.plan("gamble-chain")._repr_html_()
    # Names are text, whatever they contain.
    bad = bqrl.fit(LOG | {"State": ["<b>", "high", "<b>", "<b>"], "Next State": ["high", "<b>", "<b>", "high"]})
    assert "&lt;b&gt;" in bad._repr_html_() and "<b>:" not in bad._repr_html_()
    # Without matplotlib the pictures are our own.
    import builtins

    real = builtins.__import__

    def without(name, *rest):
        if name.split(".")[0] == "matplotlib":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    for result in results:
        drawn = result.plot()
        assert isinstance(drawn, bqrl.Picture) and drawn._repr_svg_().startswith("<svg"), result


def test_pictures_with_matplotlib():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    fit = bqrl.fit(gambles(300))
    plan = bqrl.plan(fit, risk_level=[0.1, 0.5])
    lake = bqrl.plan("frozen-lake", risk_level=0.5)[0.5].policy
    for result in [fit, plan, plan[0.1].policy, lake, bqrl.evaluate(fit, "safe"), bqrl.compare(fit, "safe")]:
        assert isinstance(result.plot(), matplotlib.axes.Axes), result
        _, ax = plt.subplots()
        assert result.plot(ax=ax) is ax
        plt.close("all")


@pytest.mark.parametrize("name", ["Blackjack-v1", "Taxi-v3", "FrozenLake-v1"])
def test_logs_of_environments_that_others_wrote(name):
    env = gymnasium.make("Taxi-v4" if name == "Taxi-v3" else name)
    rows = {key: [] for key in ("episode", "obs", "action", "reward", "next_obs", "terminated")}
    env.action_space.seed(0)
    for episode in range(60):
        state, _ = env.reset(seed=episode)
        for _ in range(30):
            action = int(env.action_space.sample())
            after, reward, terminated, truncated, _ = env.step(action)
            for key, value in zip(rows, (episode, state, action, reward, after, terminated), strict=True):
                rows[key].append(value)
            state = after
            if terminated or truncated:
                break
    rows["obs"], rows["next_obs"] = ([str(s) for s in rows[key]] for key in ("obs", "next_obs"))
    fit = bqrl.fit(rows)
    assert fit.episodes == 60 and fit.transitions == len(rows["reward"])
    level = bqrl.plan(fit, risk_level=0.5, confidence=0.9)[0.5]
    assert level.promise.certified_quantile <= level.promise.estimated_quantile
    assert np.isfinite(level.policy_mean)
