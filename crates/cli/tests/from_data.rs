//! From a log to a policy that one can defend: fit, plan with a confidence, evaluate, compare, explain.

mod support;

use std::fmt::Write;

use serde_json::Value;
use support::{Desk, Dice, levels, number};

const LOG: &str = "episode;t;State;Action;Reward;Next State;Done\n\
                   1;0;low;order;-4,5;high;0\n1;1;high;wait;3;low;1\n2;0;low;wait;0;low;0\n2;1;low;order;-4,5;high;1\n";

/// A log of a gamble chain: one state, "safe" pays 1, "gamble" pays 3 with probability 0.4; four stages.
fn gambles(episodes: usize) -> String {
    let mut dice = Dice(7);
    let mut log = "episode,stage,state,action,reward,next_state,end\n".to_owned();
    for episode in 0..episodes {
        for stage in 0..4 {
            let (action, reward) = match dice.below(2) {
                0 => ("safe", 1),
                _ => ("gamble", if dice.below(10) < 4 { 3 } else { 0 }),
            };
            writeln!(log, "{episode},{stage},play,{action},{reward},play,0").unwrap();
        }
    }
    log
}

fn fit(desk: &Desk, log: &str) -> Value {
    desk.write("log.csv", log);
    desk.json(&["fit", "log.csv", "--out", "model.csv"])
}

#[test]
fn a_log_from_a_spreadsheet_becomes_a_model_with_counts() {
    let desk = Desk::new();
    let report = fit(&desk, LOG);
    let want = [
        ("states", 2),
        ("actions", 2),
        ("episodes", 2),
        ("transitions", 4),
        ("unseen_pairs", 1),
        ("horizon", 2),
    ];
    for (key, value) in want {
        assert_eq!(report[key], value, "{key} in {report}");
    }
    let model = desk.read("model.csv");
    assert!(model.starts_with(
        "state,action,next_state,probability,reward,count,check,end,starts,starts_check,horizon\n"
    ));
    assert!(model.contains("low,order,high,1,-4.5,2,1,0,2,1,2\n"), "{model}");
    // Names, start and horizon go on to the plan.
    let plan = desk.json(&["plan", "model.csv", "--policy", "policy.csv", "--tau", "0.5"]);
    assert_eq!(plan["horizon"], 2);
    assert!(desk.read("policy.csv").contains(",low,"));
    let said = desk.run(&["fit", "log.csv"]);
    assert_eq!(said.code, Some(0));
    assert!(said.stdout.contains("How often each action was tried"), "{}", said.stdout);
    assert!(said.stdout.contains("order in state high"), "{}", said.stdout);
    assert!(said.stdout.contains("Nothing was written"), "{}", said.stdout);
}

#[test]
fn mistakes_in_a_log_are_one_line_and_nothing_is_written() {
    let desk = Desk::new();
    let header = "episode,stage,state,action,reward,next_state,end\n";
    let cases = [
        ("", "the file is empty"),
        (header, "there are no rows after the header"),
        ("state,action\n1,2\n", "missing column episode, reward"),
        (
            &format!("{header}1,0,a,x,0,b,0\n1,2,b,x,0,a,1\n"),
            "line 3: episode 1 goes from stage 0 to stage 2",
        ),
        (
            &format!("{header}1,0,a,x,0,b,0\n1,1,c,x,0,a,1\n"),
            "line 3: episode 1 is in state c, but line 2 led to state b",
        ),
        (&format!("{header}1,0,a,,0,b,0\n"), "line 2, column action"),
    ];
    for (log, message) in cases {
        desk.write("log.csv", log);
        let said = desk.run(&["fit", "log.csv", "--out", "model.csv"]);
        assert_eq!(said.code, Some(2), "{log:?}");
        assert!(
            said.stderr.starts_with("error: reading log.csv: ") && said.stderr.contains(message),
            "{}",
            said.stderr
        );
        assert_eq!(desk.names(), ["log.csv"]);
    }
    // Names that are not known: the hint lists those that are. A log where a table is wanted: the hint names the command.
    desk.write("log.csv", "Fall;Zustand;Aktion;Gewinn\n1;a;x;1,5\n");
    let said = desk.run(&["fit", "log.csv"]);
    assert!(said.stderr.contains("hint: columns are found by these names: episode/"), "{}", said.stderr);
    desk.write("log.csv", LOG);
    let said = desk.run(&["plan", "log.csv"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("`bqrl fit log.csv --out MODEL.csv`"), "{}", said.stderr);
    let said = desk.run(&["fit", "log.csv", "--bins", "action=3"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("want state=N or reward=N"), "{}", said.stderr);
    let said = desk.run(&["fit", "log.csv", "--out", "log.csv"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("would be overwritten"), "{}", said.stderr);
}

#[test]
fn a_plan_with_a_confidence_promises_less_than_the_estimate_and_more_with_more_data() {
    let promise = |episodes: usize| {
        let desk = Desk::new();
        fit(&desk, &gambles(episodes));
        let plan =
            desk.json(&["plan", "model.csv", "--confidence", "0.95", "--tau", "0.1", "--policy", "p.csv"]);
        assert!(desk.read("p.csv").starts_with("tau,stage,state,collected,action\n"));
        let level = &levels(&plan)[0];
        assert!(number(level, "certified_quantile") <= number(level, "estimated_quantile"));
        number(level, "certified_quantile")
    };
    // Four safe steps give 4 for sure; that is also the best at τ = 0.1.
    let (few, many) = (promise(60), promise(8_000));
    assert!(few < many && many <= 4.0, "{few} {many}");
    assert_eq!(many, 4.0);
    let desk = Desk::new();
    fit(&desk, &gambles(60));
    let said = desk.run(&["plan", "model.csv", "--confidence", "0.95"]);
    assert!(said.stdout.contains("our data"), "{}", said.stdout);
    assert!(said.stdout.contains("an estimate, no promise"), "{}", said.stdout);
}

#[test]
fn a_confidence_needs_counts_and_lies_between_0_and_1() {
    let desk = Desk::new();
    let said = desk.run(&["plan", "gamble-chain", "--confidence", "0.95"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("needs a table with counts"), "{}", said.stderr);
    let said = desk.run(&["plan", "gamble-chain", "--confidence", "1.5"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("a confidence must lie in (0, 1), got 1.5"), "{}", said.stderr);
}

#[test]
fn a_rule_is_evaluated_and_compared() {
    let desk = Desk::new();
    let rule = "if state >= 19 then stop else continue";
    let value = desk.json(&["eval", "asset-selling", "--policy", rule, "--tau", "0.1"]);
    assert_eq!(value["exact"], true);
    // P(R < 19/24) = (19/25)^9 = 0.0846 < 0.1.
    assert!((number(&levels(&value)[0], "quantile") - 19.0 / 24.0).abs() < 1e-12);
    desk.write("rule.csv", "stage,state,action\n,,continue\n9,,stop\n,24,stop\n");
    let report = desk.json(&[
        "compare",
        "asset-selling",
        "--policy",
        "rule.csv",
        "--tau",
        "0.1,0.5",
        "--plot",
        "laws.svg",
    ]);
    let policies = report["policies"].as_array().unwrap();
    let names: Vec<&str> = policies.iter().map(|p| p["policy"].as_str().unwrap()).collect();
    assert_eq!(names, ["yours", "risk-neutral", "percentile", "percentile"]);
    let at = |place: usize, level: usize| policies[place]["quantiles"][level]["quantile"].as_f64().unwrap();
    assert!(at(2, 0) >= at(0, 0) && at(2, 0) >= at(1, 0) && at(3, 1) >= at(0, 1));
    assert!((at(2, 0) - 19.0 / 24.0).abs() < 1e-12);
    let drawn = desk.read("laws.svg");
    assert!(drawn.contains("your rule") && drawn.contains("largest mean"), "{drawn}");
    let said = desk.run(&["compare", "asset-selling", "--policy", rule, "--tau", "0.1"]);
    assert!(said.stdout.contains("9 times in 10 at least"), "{}", said.stdout);
}

#[test]
fn mistakes_in_policies_are_one_line() {
    let desk = Desk::new();
    desk.write("p.csv", "state,action\n5,hold\n");
    let refused = |arguments: &[&str], message: &str| {
        let said = desk.run(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}");
        assert!(said.stderr.contains(message), "{}", said.stderr);
    };
    refused(
        &["eval", "asset-selling", "--policy", "p.csv"],
        "line 2: the problem has no action \"hold\"; it has stop, continue",
    );
    refused(&["eval", "asset-selling", "--policy", "none.csv"], "reading none.csv");
    refused(&["eval", "asset-selling", "--policy", "sell"], "the rule \"sell\" is not understood");
    desk.write("p.csv", "state,action\n5,continue\n");
    refused(&["compare", "asset-selling", "--policy", "p.csv"], "the policy has no row for stage 1");
    refused(&["eval", "asset-selling", "--policy", "stop", "--tau", "1.5"], "1.5");
}

#[test]
fn actions_are_explained_where_a_plan_can_come_and_nowhere_else() {
    let desk = Desk::new();
    let report = desk.json(&["explain", "asset-selling", "--tau", "0.1", "--at", "0,5,0"]);
    let actions = report["actions"].as_array().unwrap();
    assert_eq!(actions[0]["action"], "stop");
    assert_eq!((&actions[0]["chosen"], &actions[1]["chosen"]), (&false.into(), &true.into()));
    assert_eq!(actions[0]["chance"], 0.0);
    let plan = desk.json(&["plan", "asset-selling", "--tau", "0.1"]);
    let chance = number(&levels(&plan)[0], "probability_at_least");
    assert!((actions[1]["chance"].as_f64().unwrap() - chance).abs() < 1e-12);
    let said = desk.run(&["explain", "asset-selling", "--at", "0,5,0"]);
    assert!(said.stdout.contains("Choose continue: the chance to reach"), "{}", said.stdout);
    for (at, message) in [
        ("0,5,3", "3 cannot have been collected at stage 0 in state 5"),
        ("0,6,0", "state 6 cannot be reached at stage 0"),
        ("12,5,0", "stages are 0 to 9, got 12"),
        ("0,sold,0", "state sold is terminal"),
        ("0,99,0", "the problem has no state \"99\""),
        ("nonsense", "want STAGE,STATE,COLLECTED"),
    ] {
        let said = desk.run(&["explain", "asset-selling", "--at", at]);
        assert_eq!(said.code, Some(2), "{at}");
        assert!(said.stderr.contains(message), "{at}: {}", said.stderr);
    }
}

#[test]
fn rounded_probabilities_are_scaled_if_asked_and_said_aloud() {
    let desk = Desk::new();
    desk.write(
        "mdp.csv",
        "State;Action;NextState;Probability;Reward\nlow;go;low;0,333;1\nlow;go;high;0,668;2\n",
    );
    let arguments = ["plan", "mdp.csv", "--horizon", "2", "--start", "low"];
    let said = desk.run(&arguments);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("hint: --normalise"), "{}", said.stderr);
    let said = desk.run(&[&arguments[..], &["--normalise"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(
        said.stderr.contains("note: the probabilities of 1 (state, action) pairs were scaled"),
        "{}",
        said.stderr
    );
}

#[test]
fn a_compact_policy_is_shorter_and_worth_the_same() {
    let desk = Desk::new();
    let plan = desk.json(&["plan", "gamble-chain", "--tau", "0.1", "--policy", "full.csv"]);
    desk.json(&["plan", "gamble-chain", "--tau", "0.1", "--policy", "short.csv", "--compact"]);
    let lines = |file: &str| desk.read(file).lines().count();
    assert!(2 * lines("short.csv") < lines("full.csv"), "{}", desk.read("short.csv"));
    for file in ["full.csv", "short.csv"] {
        let value = desk.json(&["eval", "gamble-chain", "--policy", file, "--tau", "0.1"]);
        let (want, got) = (&levels(&plan)[0], &levels(&value)[0]);
        assert_eq!(number(got, "quantile"), number(want, "best_quantile"));
        assert!((number(got, "mean") - number(want, "policy_mean")).abs() < 1e-12);
    }
}

#[test]
fn a_parameter_is_varied_in_one_table() {
    let desk = Desk::new();
    let report = desk.json(&["plan", "gamble-chain", "--vary", "horizon=5,10", "--tau", "0.1"]);
    let plans = report["plans"].as_array().unwrap();
    let best: Vec<f64> = plans.iter().map(|plan| number(&levels(plan)[0], "best_quantile")).collect();
    assert_eq!(best, [5.0, 10.0]);
    let said = desk.ok(&["plan", "gamble-chain", "--vary", "win=3,4", "--tau", "0.1"]);
    assert!(said.contains("mean given up"), "{said}");
    let refused = desk.run(&["plan", "gamble-chain", "--vary", "horizon=five"]);
    assert_eq!(refused.code, Some(2));
}

#[test]
fn without_support_the_policy_is_that_of_the_estimate_and_said_so() {
    let desk = Desk::new();
    fit(&desk, &gambles(4));
    let plain = desk.json(&["plan", "model.csv", "--tau", "0.1", "--policy", "plain.csv"]);
    let arguments = ["plan", "model.csv", "--tau", "0.1", "--confidence", "0.95"];
    let promised = desk.json(&[&arguments[..], &["--policy", "promised.csv"]].concat());
    let level = &levels(&promised)[0];
    assert_eq!(level["supported"], false);
    assert_eq!(desk.read("promised.csv"), desk.read("plain.csv"));
    assert_eq!(level["policy"], levels(&plain)[0]["policy"]);
    let said = desk.ok(&arguments);
    assert!(said.contains("The policy for this level is that of the plain estimate"), "{said}");
}

#[test]
fn with_a_width_all_figures_of_the_policy_are_those_of_the_one_that_is_written() {
    let desk = Desk::new();
    let flags = ["--tau", "0.1", "--beta", "0.1"];
    let plan = desk.json(&[&["plan", "inventory", "--policy", "p.csv"], &flags[..]].concat());
    let value = desk.json(&[&["eval", "inventory", "--policy", "p.csv"], &flags[..]].concat());
    let (level, written) = (&levels(&plan)[0], &levels(&value)[0]);
    assert_eq!(number(&level["policy"], "quantile"), number(written, "quantile"));
    assert!((number(&level["policy"], "mean") - number(written, "mean")).abs() < 1e-9);
    assert!(number(&level["policy"], "quantile") < number(level, "best_quantile"));
    // The same with counts: the promise about the quantile is about the policy of the promise about the average.
    fit(&desk, &gambles(2_000));
    let arguments = ["plan", "model.csv", "--confidence", "0.95", "--policy", "promised.csv"];
    let plan = desk.json(&[&arguments[..], &flags[..]].concat());
    let value = desk.json(&["eval", "model.csv", "--policy", "promised.csv", "--tau", "0.1"]);
    let (level, written) = (&levels(&plan)[0], &levels(&value)[0]);
    assert_eq!(number(&level["policy"], "quantile"), number(written, "quantile"));
    assert!(number(level, "certified_quantile") <= number(written, "quantile"));
}

#[test]
fn files_of_others_are_not_replaced_and_our_own_tables_are() {
    let desk = Desk::new();
    desk.write("log.csv", LOG);
    desk.write("mine.csv", "my notes\n");
    desk.write("empty.csv", "");
    let fits = |out: &str, more: &[&str]| desk.run(&[&["fit", "log.csv", "--out", out], more].concat());
    let plans =
        |out: &str, more: &[&str]| desk.run(&[&["plan", "gamble-chain", "--policy", out], more].concat());
    for said in [fits("mine.csv", &[]), plans("mine.csv", &[])] {
        assert_eq!(said.code, Some(2));
        assert!(said.stderr.contains("error: mine.csv exists and is not a file that this command wrote"));
        assert!(said.stderr.contains("hint: --force replaces it"), "{}", said.stderr);
    }
    assert_eq!(desk.read("mine.csv"), "my notes\n");
    // A table of the other command is not one of this command.
    for _ in 0..2 {
        assert_eq!(fits("model.csv", &[]).code, Some(0));
        assert_eq!(plans("policy.csv", &[]).code, Some(0));
        assert_eq!(plans("policy.csv", &["--compact"]).code, Some(0));
    }
    assert_eq!((fits("policy.csv", &[]).code, plans("model.csv", &[]).code), (Some(2), Some(2)));
    assert_eq!((fits("empty.csv", &[]).code, fits("mine.csv", &["--force"]).code), (Some(0), Some(0)));
    assert!(desk.read("mine.csv").starts_with("state,action,next_state,probability,reward,count"));
}

#[test]
fn a_policy_is_written_as_a_spreadsheet() {
    let desk = Desk::new();
    let plan =
        |name: &str| desk.json(&["plan", "gamble-chain", "--tau", "0.1,0.5", "--policy", name, "--compact"]);
    plan("one.xlsx");
    plan("two.xlsx");
    let bytes = |name: &str| std::fs::read(desk.path(name)).unwrap();
    // A zip file, the same for the same plan; Python's tests open it.
    assert!(bytes("one.xlsx").starts_with(b"PK") && bytes("one.xlsx") == bytes("two.xlsx"));
    let said = desk.run(&["plan", "gamble-chain", "--policy", "one.xlsx"]);
    assert_eq!(said.code, Some(2));
    assert!(said.stderr.contains("hint: --force"), "{}", said.stderr);
}

#[test]
fn a_picture_is_replaced_only_if_it_is_one_of_ours() {
    let desk = Desk::new();
    for name in ["photo.png", "drawing.svg"] {
        for command in [
            &["plan", "gamble-chain", "--tau", "0.5", "--plot"][..],
            &["plan", "gamble-chain", "--tau", "0.5", "--plot-law"],
            &["compare", "gamble-chain", "--policy", "safe", "--plot"],
        ] {
            desk.write(name, "<svg>precious</svg>");
            let with = |more: &'static [&'static str]| [command, &[name], more].concat();
            let said = desk.refusal(&with(&[]));
            assert!(said.contains(name) && said.contains("--force"), "{said}");
            assert_eq!(desk.read(name), "<svg>precious</svg>");
            desk.ok(&with(&["--force"]));
            // Now it is ours.
            desk.ok(&with(&[]));
        }
    }
}

#[test]
fn observed_prices_and_grids_are_drawn_with_their_own_names() {
    let desk = Desk::new();
    desk.write("prices.csv", "Price;Count\n80;2\n99,5;1\n120;1\n");
    let plan = ["plan", "asset-selling", "--env", "offers=@prices.csv", "--tau", "0.05", "--plot", "map.svg"];
    let report = desk.json(&plan);
    // Nine more draws: 120 is missed with (3/4)^9 = 0.075, 99.5 or more with (1/2)^9.
    assert_eq!(number(&levels(&report)[0], "best_quantile"), 99.5);
    let drawn = desk.read("map.svg");
    assert!(drawn.contains(">price<") && drawn.contains(">99.5<"), "{drawn}");
    desk.json(&["plan", "frozen-lake", "--tau", "0.5", "--plot", "lake.svg"]);
    assert!(desk.read("lake.svg").contains("Policy on a grid of 4 rows and 4 columns"));
}

#[test]
fn what_rests_on_estimates_says_so() {
    let desk = Desk::new();
    fit(&desk, &gambles(60));
    let plan = desk.json(&["plan", "model.csv", "--tau", "0.1"]);
    assert_eq!(plan["estimated"], true);
    let cases: [(&[&str], &str); 5] = [
        (&["plan", "model.csv"], "no promises: --confidence 0.95 makes one"),
        (&["plan", "model.csv", "--vary", "horizon=2,3"], "estimates from counts, no promises"),
        (&["explain", "model.csv", "--at", "0,play,0"], "Estimates from counts, no promises"),
        (&["compare", "model.csv", "--policy", "safe"], "estimates from counts, no promises"),
        (&["eval", "model.csv", "--policy", "safe"], "estimated from counts"),
    ];
    for (arguments, words) in cases {
        let said = desk.run(arguments);
        assert!(said.code == Some(0) && said.stdout.contains(words), "{arguments:?}: {}", said.stdout);
    }
    let certain = desk.run(&["plan", "gamble-chain"]);
    assert!(!certain.stdout.contains("estimate"), "{}", certain.stdout);
    // The pictures say it too, and the level in words.
    desk.run(&["compare", "model.csv", "--policy", "safe", "--plot", "laws.svg"]);
    let drawn = desk.read("laws.svg");
    for words in ["9 times in 10 at least", "estimated probabilities: no promise"] {
        assert!(drawn.contains(words), "{words} in {drawn}");
    }
    desk.run(&["plan", "model.csv", "--tau", "0.1", "--plot", "policy.svg"]);
    assert!(desk.read("policy.svg").contains("Probabilities are estimates from counts."));
}

#[test]
fn customers_who_may_leave_at_any_stage_do_not_make_a_promise_false() {
    // Each stage pays 1, and the customer leaves with probability 0.32. Every last row is marked as an end. P(R < 3) = 1 − 0.68² = 0.54, so
    // Q_0.5 = 2. If the last stage counted for the others, the chance to leave would be 0.25, P(R < 3) = 0.44, and 3 would be promised.
    let mut dice = Dice(11);
    let mut log = "episode,stage,state,action,reward,next_state,end\n".to_owned();
    for episode in 0..20_000 {
        for stage in 0..3 {
            let (action, leaves) = (dice.below(2), dice.below(25) < 8);
            let end = u8::from(leaves || stage == 2);
            writeln!(log, "{episode},{stage},active,{action},1,active,{end}").unwrap();
            if leaves {
                break;
            }
        }
    }
    let desk = Desk::new();
    fit(&desk, &log);
    let plan = desk.json(&["plan", "model.csv", "--confidence", "0.95", "--tau", "0.5"]);
    let level = &levels(&plan)[0];
    assert_eq!((number(level, "certified_quantile"), number(level, "estimated_quantile")), (2.0, 2.0));
}

#[test]
fn a_log_in_which_two_actions_take_turns_supports_a_promise() {
    let mut log = "episode,stage,state,action,reward,next_state,end\n".to_owned();
    for episode in 0..2_000 {
        let (action, reward) = if episode % 2 == 0 { ("old", 1) } else { ("new", 2) };
        writeln!(log, "{episode},0,shop,{action},{reward},shut,1").unwrap();
    }
    let desk = Desk::new();
    fit(&desk, &log);
    let plan = desk.json(&["plan", "model.csv", "--confidence", "0.95", "--tau", "0.1"]);
    let level = &levels(&plan)[0];
    assert_eq!((&level["supported"], number(level, "certified_quantile")), (&Value::Bool(true), 2.0));
}
