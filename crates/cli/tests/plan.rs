//! `bqrl plan` on the built-in problems: golden values (science.md, section 2) and the shape of `--json`.

mod support;

use serde_json::Value;
use support::{Desk, STARTS, agree, assert_close, levels, number};

const SIX: &str = "0.05,0.1,0.25,0.5,0.75,0.9";

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn asset_selling_has_its_known_optimum() {
    let plan = Desk::new().json(&["plan", "asset-selling", "--tau", "0.1,0.5,0.9"]);
    assert_eq!(plan["problem"], "asset-selling");
    assert_eq!((&plan["states"], &plan["actions"], &plan["horizon"]), (&26.into(), &2.into(), &10.into()));
    assert_eq!(plan["exact"], true);
    assert_close(number(&plan, "max_mean"), 0.8639848348057599, 1e-12, "max_mean");
    for (level, (tau, best)) in levels(&plan).iter().zip([(0.1, 19.0), (0.5, 23.0), (0.9, 24.0)]) {
        assert_eq!(number(level, "tau"), tau);
        assert_close(number(level, "best_quantile"), best / 24.0, 1e-12, "best_quantile");
        assert!(number(level, "probability_at_least") > 1.0 - tau, "{level}");
        assert!(number(level, "policy_mean") <= number(&plan, "max_mean") + 1e-12, "{level}");
    }
    // The slack of the τ = .1 policy is spent on its mean: .8562 at P = .9098 is one such policy.
    assert!(number(&levels(&plan)[0], "policy_mean") >= 0.8562, "{plan}");
}

#[test]
fn asset_selling_follows_its_closed_form_at_every_level() {
    // Q*_τ ≥ k/24 ⇔ (k/25)⁹ < τ, for k > 5.
    let taus: Vec<String> = (1..40).map(|i| (f64::from(i) / 40.0).to_string()).collect();
    let plan = Desk::new().json(&["plan", "asset-selling", "--tau", &taus.join(",")]);
    assert_eq!(levels(&plan).len(), 39);
    for level in levels(&plan) {
        let tau = number(level, "tau");
        let best = (6..=24).rev().map(f64::from).find(|k| (k / 25.0).powi(9) < tau).unwrap();
        assert_close(number(level, "best_quantile"), best / 24.0, 1e-12, &format!("tau {tau}"));
    }
}

#[test]
fn buffered_optimum_of_asset_selling_has_its_known_certificate() {
    // τ, β, UB1, UB2, LB of a deterministic policy.
    let table = [
        (0.1, 0.02, 0.782102, 0.782007, 0.781814),
        (0.1, 0.05, 0.761177, 0.748334, 0.748334),
        (0.1, 0.1, 0.705688, 0.622037, 0.622037),
        (0.5, 0.02, 0.958333, 0.958333, 0.958333),
        (0.5, 0.1, 0.928267, 0.924287, 0.923670),
        (0.9, 0.02, 1.0, 1.0, 1.0),
        (0.9, 0.1, 1.0, 1.0, 1.0),
    ];
    let list = |of: fn(&(f64, f64, f64, f64, f64)) -> f64| {
        table.iter().map(|row| of(row).to_string()).collect::<Vec<_>>().join(",")
    };
    let (taus, betas) = (list(|row| row.0), list(|row| row.1));
    let plan = Desk::new().json(&["plan", "asset-selling", "--tau", &taus, "--beta", &betas]);
    for (level, (tau, beta, upper, mixture, lower)) in levels(&plan).iter().zip(table) {
        let what = format!("tau {tau}, beta {beta}");
        assert_eq!((number(level, "tau"), number(level, "beta")), (tau, beta));
        let [ub1, ub2, lb] =
            ["buffered_upper", "buffered_mixture", "buffered_lower"].map(|field| number(level, field));
        assert_close(ub1, upper, 2e-6, &what);
        assert_close(ub2, mixture, 2e-6, &what);
        assert!(lb >= lower - 1e-6, "{what}: {lb} is below {lower}");
        assert!(ub1 >= ub2 - 1e-9 && ub2 >= lb - 1e-9, "{what}: {ub1} ≥ {ub2} ≥ {lb}");
    }
}

#[test]
fn buffered_policy_spends_its_slack_on_the_mean_too() {
    // τ = .9, β = .05: every Q_u of the mean-optimal policy in the window is already 1 (P(R < 1) = .833 < .85), so a policy
    // with the largest mean of all attains the buffered optimum as well.
    let plan = Desk::new().json(&["plan", "asset-selling", "--tau", "0.9", "--beta", "0.05"]);
    let level = &levels(&plan)[0];
    assert_close(number(level, "buffered_lower"), 1.0, 1e-12, "buffered_lower");
    assert_close(number(level, "buffered_policy_mean"), number(&plan, "max_mean"), 1e-6, "its mean");
}

#[test]
fn frozen_lake_reaches_the_goal_as_often_as_is_known() {
    let desk = Desk::new();
    let success = [(50, 0.5459086653), (100, 0.7441902878292657), (200, 0.8167335047), (1000, 0.8235294117)];
    for (horizon, want) in success {
        let set = format!("horizon={horizon}");
        let plan = desk.json(&["plan", "frozen-lake", "--env", &set, "--tau", "0.1,0.5,0.9"]);
        let tolerance = if horizon == 100 { 1e-12 } else { 1e-10 };
        assert_close(number(&plan, "max_mean"), want, tolerance, &set);
        for level in levels(&plan) {
            let goal = if want > 1.0 - number(level, "tau") { 1.0 } else { 0.0 };
            assert_eq!(number(level, "best_quantile"), goal, "{set}: {level}");
            assert_close(number(level, "policy_mean"), want, tolerance, &set);
        }
    }
}

#[test]
fn larger_frozen_lake_asks_for_200_steps_unless_told() {
    let desk = Desk::new();
    let plan = desk.json(&["plan", "frozen-lake", "--env", "map=8x8", "--tau", "0.5"]);
    assert_eq!((&plan["states"], &plan["horizon"]), (&64.into(), &200.into()));
    let told = desk.json(&["plan", "frozen-lake", "--env", "map=8x8", "--horizon", "200", "--tau", "0.5"]);
    assert_eq!(plan, told);
    let success = number(&plan, "max_mean");
    assert!((0.9..0.95).contains(&success), "{success}");
    assert_close(number(&levels(&plan)[0], "probability_at_least"), success, 1e-12, "P(goal)");
}

#[test]
fn every_problem_is_solved_exactly_at_six_levels() {
    let desk = Desk::new();
    for (name, _) in STARTS {
        let plan = desk.json(&["plan", name, "--tau", SIX]);
        assert_eq!(plan["exact"], true, "{name}");
        let mut last = f64::NEG_INFINITY;
        for level in levels(&plan) {
            let best = number(level, "best_quantile");
            assert!(best >= last, "{name}: Q* falls from {last} to {best}");
            assert!(best >= number(level, "risk_neutral_quantile"), "{name}: {level}");
            assert!(number(level, "probability_at_least") > 1.0 - number(level, "tau"), "{name}: {level}");
            assert!(number(level, "policy_mean") <= number(&plan, "max_mean") + 1e-9, "{name}: {level}");
            last = best;
        }
    }
}

#[test]
fn envs_lists_every_problem_and_explains_each() {
    let desk = Desk::new();
    let listed = desk.json(&["envs"]);
    let names: Vec<_> = listed["problems"].as_array().unwrap().iter().map(|p| p["name"].as_str()).collect();
    assert_eq!(names.len(), STARTS.len());
    let text = desk.ok(&["envs"]);
    for (name, _) in STARTS {
        assert!(names.contains(&Some(name)) && text.contains(name), "{name}");
        let detail = desk.json(&["envs", name]);
        assert_eq!(detail["name"], name);
        assert!(detail["horizon"].as_u64() > Some(0) && number(&detail, "discount") > 0.0, "{detail}");
        assert!(desk.ok(&["envs", name]).starts_with(name));
    }
}

#[test]
fn envs_tells_where_episodes_start() {
    let desk = Desk::new();
    for (name, start) in STARTS {
        assert_eq!(desk.json(&["envs", name])["start"], start, "{name}");
    }
}

#[test]
fn json_has_the_promised_fields_and_buffered_ones_only_on_request() {
    let desk = Desk::new();
    let promised = ["problem", "states", "actions", "horizon", "exact", "max_mean", "taus"];
    let point = ["tau", "best_quantile", "probability_at_least", "policy_mean"];
    let buffered = ["beta", "buffered_upper", "buffered_mixture", "buffered_lower"];

    let plain = desk.json(&["plan", "gamble-chain", "--tau", "0.1,0.5"]);
    assert!(promised.iter().all(|field| keys(&plain).contains(field)), "{plain}");
    for level in levels(&plain) {
        assert!(point.iter().all(|field| keys(level).contains(field)), "{level}");
        let others = ["beta", "best_quantile_lower", "best_quantile_upper"];
        assert!(!keys(level).iter().any(|f| f.starts_with("buffered") || others.contains(f)), "{level}");
    }
    let with = desk.json(&["plan", "gamble-chain", "--tau", "0.1,0.5", "--beta", "0.05"]);
    for level in levels(&with) {
        assert!(point.iter().chain(&buffered).all(|field| level[field].is_number()), "{level}");
    }
}

#[test]
fn rounded_plan_gives_bounds_that_enclose_the_exact_values() {
    let desk = Desk::new();
    for name in ["asset-selling", "gamble-chain", "inventory"] {
        let flags = ["plan", name, "--tau", "0.1,0.5,0.9", "--beta", "0.05"];
        let exact = desk.json(&flags);
        let rounded = desk.json(&[&flags[..], &["--grid", "1013"]].concat());
        assert_eq!(rounded["exact"], false);
        for (level, truth) in levels(&rounded).iter().zip(levels(&exact)) {
            assert!(!keys(level).contains(&"best_quantile"), "{level}");
            let [low, high] = ["best_quantile_lower", "best_quantile_upper"].map(|f| number(level, f));
            let best = number(truth, "best_quantile");
            assert!(low <= best + 1e-9 && best <= high + 1e-9, "{name}: {low} ≤ {best} ≤ {high}");
            assert!(number(level, "buffered_lower") <= number(truth, "buffered_mixture") + 1e-9, "{level}");
            assert!(number(level, "buffered_mixture") >= number(truth, "buffered_lower") - 1e-9, "{level}");
            assert!(number(level, "buffered_upper") >= number(truth, "buffered_upper") - 1e-9, "{level}");
        }
    }
}

#[test]
fn bounds_never_leave_the_range_of_returns() {
    // Returns lie in [0, 3·1000]; a coarse grid may not say more than that.
    let plan =
        Desk::new().json(&["plan", "gamble-chain", "--horizon", "1000", "--grid", "10", "--tau", "0.1"]);
    let level = &levels(&plan)[0];
    assert!(number(level, "best_quantile_lower") >= -1e-9, "{level}");
    assert!(number(level, "best_quantile_upper") <= 3000.0 + 1e-9, "{level}");
}

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let desk = Desk::new();
    for name in ["asset-selling", "inventory", "river-swim"] {
        let flags = |threads| {
            [
                "plan",
                name,
                "--beta",
                "0.05",
                "--json",
                "--policy",
                "p.csv",
                "--plot",
                "p.svg",
                "--threads",
                threads,
            ]
        };
        let one = (desk.ok(&flags("1")), desk.bytes("p.csv"), desk.bytes("p.svg"));
        let two = (desk.ok(&flags("2")), desk.bytes("p.csv"), desk.bytes("p.svg"));
        assert!(one == two, "{name}: {} {}", one.0, two.0);
    }
}

#[test]
fn horizon_and_start_flags_mean_the_parameters_of_that_name() {
    let desk = Desk::new();
    let flags = desk.json(&["plan", "asset-selling", "--horizon", "6", "--start", "0"]);
    let parameters = desk.json(&["plan", "asset-selling", "--env", "horizon=6", "--env", "start=0"]);
    assert_eq!(flags, parameters);
    assert_eq!(flags["horizon"], 6);
}

#[test]
fn levels_may_be_separated_by_commas_or_given_one_by_one() {
    let desk = Desk::new();
    let together = desk.json(&["plan", "gamble-chain", "--tau", "0.5,0.1"]);
    let apart = desk.json(&["plan", "gamble-chain", "--tau", "0.5", "--tau", "0.1"]);
    assert_eq!(together, apart);
    assert_eq!(number(&levels(&together)[0], "tau"), 0.5);
}

#[test]
fn human_output_tells_the_optimum_the_certificate_and_the_policy() {
    let out = Desk::new().ok(&["plan", "asset-selling", "--tau", "0.1", "--beta", "0.02"]);
    for part in ["0.863985", "0.791667", "Certificate", "UB1", "0.782007", "Policy for τ = 0.1", "S = stop"]
    {
        assert!(out.contains(part), "{part} in {out}");
    }
    assert!(!out.contains('\u{1b}') && !out.contains('\r'), "{out:?}");
}

#[test]
fn small_policies_are_shown_whatever_their_actions_are_called() {
    // Eleven states and twelve periods fit a screen, also with eleven actions named order-0, …, order-10.
    let out = Desk::new().ok(&["plan", "inventory", "--tau", "0.1"]);
    assert!(out.contains("Policy for τ = 0.1"), "{out}");
}

#[test]
fn rewards_in_other_units_scale_the_answer() {
    let desk = Desk::new();
    let plan = |safe: &str, win: &str| {
        desk.json(&["plan", "gamble-chain", "--env", safe, "--env", win, "--tau", "0.1,0.5,0.9"])
    };
    let (ones, tenths) = (plan("safe=1", "win=3"), plan("safe=0.1", "win=0.3"));
    for (a, b) in levels(&ones).iter().zip(levels(&tenths)) {
        let scaled = Value::from(number(b, "best_quantile") * 10.0);
        assert!(agree(&a["best_quantile"], &scaled, 1e-12), "{a} {b}");
        assert!(agree(&a["probability_at_least"], &b["probability_at_least"], 1e-12), "{a} {b}");
    }
}
