//! MDP files: untidy ones mean what they say, exported ones mean the same, and random ones are solved as an independent
//! recursion solves them.

mod support;

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

use serde_json::Value;
use support::{Desk, Dice, HEADER, STARTS, agree, assert_close, levels, number};

const SIX: &str = "0.05,0.1,0.25,0.5,0.75,0.9";

/// Everything in a plan but the name of its file.
fn numbers(mut plan: Value) -> Value {
    plan.as_object_mut().unwrap().remove("problem");
    plan
}

fn plan_text(contents: &str) -> Value {
    let desk = Desk::new();
    desk.write("mdp.csv", contents);
    numbers(desk.json(&["plan", "mdp.csv", "--horizon", "4", "--start", "3", "--tau", SIX]))
}

#[test]
fn untidy_files_mean_what_tidy_ones_do() {
    let tidy = format!("{HEADER}3,0,3,0.5,1\n3,0,8,0.5,-2\n3,1,3,1,0\n");
    let want = plan_text(&tidy);
    assert_eq!((&want["states"], &want["actions"], &want["exact"]), (&2.into(), &2.into(), &true.into()));
    let untidy = [
        ("CRLF", tidy.replace('\n', "\r\n")),
        ("byte-order mark", format!("\u{feff}{tidy}")),
        ("no last line end", tidy.trim_end().to_owned()),
        ("blank lines", tidy.replace('\n', "\n\n  \n")),
        (
            "quotes and a mark",
            format!("\u{feff}\"{}\"\r\n", tidy.trim_end().replace(',', "\",\"").replace('\n', "\"\r\n\"")),
        ),
        ("padding", tidy.replace(',', " ,  ")),
        ("capitals", format!("{}{}", HEADER.to_uppercase(), &tidy[HEADER.len()..])),
        ("whole floats as ids", format!("{HEADER}3.0,0,3.0,0.5,1\n3.0,0,8.0,0.5,-2\n3.0,1.0,3.0,1,0\n")),
        (
            "another order, another column",
            "reward,idstateto,note,probability,idaction,idstatefrom\n\
             1,3,\"a, b\",0.5,0,3\n-2,8,,0.5,0,3\n0,3,\"two\nlines\",1,1,3\n"
                .to_owned(),
        ),
        ("rows in another order", format!("{HEADER}3,1,3,1,0\n3,0,8,0.5,-2\n3,0,3,0.5,1\n")),
        (
            "identical rows that add up",
            format!("{HEADER}3,0,3,0.25,1\n3,0,3,0.25,1\n3,0,8,0.5,-2\n3,1,3,1,0\n"),
        ),
        ("other numbers", format!("{HEADER}3,0,3,5e-1,+1.0\n3,0,8,.5,-2.000\n3,1,3,1.0,-0\n")),
        ("impossible rows", format!("{tidy}3,0,3,0,77.7\n")),
    ];
    for (what, contents) in untidy {
        let got = plan_text(&contents);
        assert!(agree(&got, &want, 1e-12), "{what}: {got}\nwant {want}");
    }
}

#[test]
fn ids_with_gaps_keep_their_names_in_the_policy() {
    let desk = Desk::new();
    let rows = "1000000,7,42,1,1\n42,7,42,1,0\n42,900,18446744073709551615,1,5\n";
    let plan =
        desk.plan_rows(rows, &["--horizon", "2", "--start", "1000000", "--tau", "0.5", "--policy", "p.csv"]);
    assert_eq!((&plan["states"], &plan["actions"]), (&3.into(), &2.into()));
    assert_eq!(number(&levels(&plan)[0], "best_quantile"), 6.0);
    assert_eq!(desk.read("p.csv"), "tau,stage,state,collected,action\n0.5,0,1000000,0,7\n0.5,1,42,1,900\n");
}

#[test]
fn equal_transitions_with_different_rewards_are_separate_outcomes() {
    // One step: 0, 1 or 2 with .7, .2, .1, all to the same state.
    let rows = "0,0,1,0.7,0\n0,0,1,0.2,1\n0,0,1,0.1,2\n";
    let flags = ["--horizon", "1", "--start", "0", "--tau", "0.69,0.7,0.71,0.89,0.9,0.91"];
    let plan = Desk::new().plan_rows(rows, &flags);
    assert_close(number(&plan, "max_mean"), 0.4, 1e-12, "max_mean");
    // P(R < 1) = .7 and P(R < 2) = .9 are not below τ = .7 and .9, although .7 + .2 is less than .9 in floating point.
    let best: Vec<f64> = levels(&plan).iter().map(|level| number(level, "best_quantile")).collect();
    assert_eq!(best, [0.0, 0.0, 1.0, 1.0, 1.0, 2.0]);
}

#[test]
fn probabilities_that_miss_one_by_little_are_normalised() {
    let exact = Desk::new().plan_rows("0,0,0,0.5,1\n0,0,0,0.5,0\n", &["--horizon", "6", "--start", "0"]);
    for sum in ["0.4999999", "0.5000001"] {
        let rows = format!("0,0,0,0.5,1\n0,0,0,{sum},0\n");
        let plan = Desk::new().plan_rows(&rows, &["--horizon", "6", "--start", "0"]);
        assert!(agree(&plan, &exact, 1e-6), "{plan}");
        assert!(levels(&plan).iter().all(|l| number(l, "probability_at_least") <= 1.0 + 1e-12), "{plan}");
    }
}

#[test]
fn noisy_rewards_are_one_value() {
    let desk = Desk::new();
    let flags = ["--horizon", "20", "--start", "0", "--tau", "0.1,0.9"];
    let rows = "0,0,0,0.5,999.9999999999942\n0,0,0,0.5,999.9999999999856\n";
    let plan = desk.plan_rows(rows, &flags);
    assert_eq!((&plan["exact"], &plan["returns"]), (&true.into(), &1.into()));
    for level in levels(&plan) {
        assert_close(number(level, "best_quantile"), 20000.0, 1e-6, "best_quantile");
        assert_eq!(number(level, "probability_at_least"), 1.0);
    }
    // Beside other rewards: the noise must neither multiply returns nor split probabilities.
    let noisy = "0,0,0,0.25,999.9999999999942\n0,0,0,0.25,1000.0000000000057\n0,0,0,0.5,0.1\n\
                 0,1,0,0.5,999.9999999999856\n0,1,0,0.5,0.30000000000000004\n";
    let clean = "0,0,0,0.5,1000\n0,0,0,0.5,0.1\n0,1,0,0.5,1000\n0,1,0,0.5,0.3\n";
    let (noisy, clean) = (desk.plan_rows(noisy, &flags), desk.plan_rows(clean, &flags));
    assert!(agree(&noisy, &clean, 1e-9), "{noisy}\n{clean}");
}

#[test]
fn exported_problems_are_solved_like_the_built_in_ones() {
    let desk = Desk::new();
    for (name, start) in STARTS {
        let detail = desk.json(&["envs", name, "--export", "mdp.csv"]);
        let [horizon, discount] = ["horizon", "discount"].map(|field| detail[field].to_string());
        let start = start.to_string();
        let file = desk.json(&[
            "plan",
            "mdp.csv",
            "--horizon",
            &horizon,
            "--start",
            &start,
            "--discount",
            &discount,
            "--tau",
            SIX,
        ]);
        let named = desk.json(&["plan", name, "--tau", SIX]);
        for field in ["horizon", "exact", "max_mean", "taus"] {
            assert!(agree(&file[field], &named[field], 1e-12), "{name}, {field}: {file}\n{named}");
        }
    }
}

#[test]
fn files_are_found_from_elsewhere_and_with_spaces_in_their_path() {
    let (here, there) = (Desk::new(), Desk::new());
    let folder = there.path("two words");
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("my mdp.csv");
    std::fs::write(&path, format!("{HEADER}0,0,0,1,2\n")).unwrap();
    let policy = folder.join("the policy.csv");
    let plan = here.json(&[
        "plan",
        support::text(&path),
        "--horizon",
        "3",
        "--start",
        "0",
        "--policy",
        support::text(&policy),
    ]);
    assert_eq!(number(&levels(&plan)[0], "best_quantile"), 6.0);
    assert!(policy.exists() && here.names().is_empty());
    // Without any suffix, by its bare name.
    here.write("mdp", format!("{HEADER}0,0,0,1,2\n"));
    assert_eq!(here.json(&["plan", "mdp", "--horizon", "3", "--start", "0"])["taus"], plan["taus"]);
}

/// A random table: `rows[state][action]` lists (probability, next, reward in hundredths); no actions at all: terminal.
struct Table {
    rows: Vec<Vec<Vec<(f64, usize, i64)>>>,
    horizon: usize,
    /// The discount in tenths.
    tenths: i64,
}

impl Table {
    fn random(dice: &mut Dice, horizon: usize, tenths: i64) -> Self {
        let states = 2 + dice.below(3) as usize;
        let mut rows = vec![Vec::new(); states];
        for (state, actions) in rows.iter_mut().enumerate() {
            // The start is never terminal, others sometimes are.
            let n_actions = if state == 0 { 2 } else { dice.below(4) };
            for _ in 0..n_actions {
                let weights: Vec<f64> = (0..=dice.below(3)).map(|_| dice.unit() + 0.01).collect();
                let total: f64 = weights.iter().sum();
                let outcome = |weight: &f64| {
                    (weight / total, dice.below(states as u64) as usize, dice.below(200) as i64 - 100)
                };
                actions.push(weights.iter().map(outcome).collect());
            }
        }
        Self { rows, horizon, tenths }
    }

    /// As a file, with noise of rounding size on every reward.
    fn file(&self, dice: &mut Dice) -> String {
        let mut rows = String::new();
        for (state, actions) in self.rows.iter().enumerate() {
            for (action, outcomes) in actions.iter().enumerate() {
                for (probability, next, reward) in outcomes {
                    let reward = *reward as f64 / 100.0 + (dice.unit() - 0.5) * 1e-12;
                    writeln!(rows, "{state},{action},{next},{probability},{reward}").unwrap();
                }
            }
        }
        rows
    }

    /// γ^h r as a whole number of units 10^−(H+1), so that equal returns are equal numbers.
    fn units(&self, stage: usize, reward: i64) -> i64 {
        reward * self.tenths.pow(stage as u32) * 10i64.pow((self.horizon - 1 - stage) as u32)
    }

    fn value(&self, units: i64) -> f64 {
        units as f64 / 10f64.powi(self.horizon as i32 + 1)
    }

    fn is_over(&self, stage: usize, state: usize) -> bool {
        stage == self.horizon || self.rows[state].is_empty()
    }

    fn collect_returns(
        &self,
        stage: usize,
        state: usize,
        so_far: i64,
        seen: &mut BTreeSet<(usize, usize, i64)>,
    ) {
        if !seen.insert((stage, state, so_far)) || self.is_over(stage, state) {
            return;
        }
        for (_, next, reward) in self.rows[state].iter().flatten() {
            self.collect_returns(stage + 1, *next, so_far + self.units(stage, *reward), seen);
        }
    }

    /// min over policies of P(remaining return < y), the definition itself.
    fn least_below(
        &self,
        stage: usize,
        state: usize,
        y: i64,
        memo: &mut HashMap<(usize, usize, i64), f64>,
    ) -> f64 {
        if self.is_over(stage, state) {
            return f64::from(u8::from(0 < y));
        }
        if let Some(&known) = memo.get(&(stage, state, y)) {
            return known;
        }
        let mut least = f64::INFINITY;
        for outcomes in &self.rows[state] {
            let mut below = 0.0;
            for (probability, next, reward) in outcomes {
                below +=
                    probability * self.least_below(stage + 1, *next, y - self.units(stage, *reward), memo);
            }
            least = least.min(below);
        }
        memo.insert((stage, state, y), least);
        least
    }

    /// Q*_τ: the largest return g whose least P(R < g) is below τ.
    fn best_quantiles(&self, taus: &[f64]) -> Vec<f64> {
        let mut seen = BTreeSet::new();
        self.collect_returns(0, 0, 0, &mut seen);
        let returns: BTreeSet<i64> =
            seen.iter().filter(|(h, s, _)| self.is_over(*h, *s)).map(|(_, _, c)| *c).collect();
        let mut memo = HashMap::new();
        let below: Vec<(i64, f64)> =
            returns.iter().map(|&g| (g, self.least_below(0, 0, g, &mut memo))).collect();
        let best =
            |tau: &f64| below.iter().rev().find(|(_, p)| p < tau).map(|(g, _)| self.value(*g)).unwrap();
        taus.iter().map(best).collect()
    }
}

fn compare_with_the_recursion(seed: u64, cases: usize, tenths: i64, longest: u64) {
    let taus = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9];
    let mut dice = Dice(seed);
    let desk = Desk::new();
    let mut distinct = BTreeSet::new();
    for case in 0..cases {
        let horizon = 1 + dice.below(longest) as usize;
        let table = Table::random(&mut dice, horizon, tenths);
        let file = table.file(&mut dice);
        let (horizon, discount) = (horizon.to_string(), (tenths as f64 / 10.0).to_string());
        let flags = ["--horizon", &horizon, "--start", "0", "--discount", &discount, "--tau", SIX];
        let plan = desk.plan_rows(&file, &flags);
        assert_eq!(plan["exact"], true, "case {case}: {file}");
        for (level, want) in levels(&plan).iter().zip(table.best_quantiles(&taus)) {
            let what = format!("case {case}, horizon {horizon}, {level}\n{file}");
            assert_close(number(level, "best_quantile"), want, 1e-9, &what);
            distinct.insert(want.to_bits());
        }
    }
    // The cases are worth something only when they differ.
    assert!(distinct.len() > cases, "{} different answers in {cases} cases", distinct.len());
}

#[test]
fn random_files_are_solved_as_the_definition_says() {
    compare_with_the_recursion(20260721, 60, 10, 6);
}

#[test]
fn random_discounted_files_are_solved_as_the_definition_says() {
    compare_with_the_recursion(314159, 50, 9, 4);
}

#[test]
fn answers_for_many_states_do_not_depend_on_the_number_of_threads() {
    let mut dice = Dice(99);
    let mut rows = String::new();
    for state in 0..600 {
        for action in 0..3 {
            for _ in 0..4 {
                writeln!(rows, "{state},{action},{},0.25,{}", dice.below(600), dice.below(9)).unwrap();
            }
        }
    }
    let desk = Desk::new();
    let flags = |threads| ["--horizon", "8", "--start", "0", "--beta", "0.05", "--threads", threads];
    let (one, two) = (desk.plan_rows(&rows, &flags("1")), desk.plan_rows(&rows, &flags("2")));
    assert_eq!(one.to_string(), two.to_string());
}
