//! What a finished run leaves for reports: plain tables, so that reading them needs neither agents nor models.
//!
//! | file | columns |
//! |---|---|
//! | `problem.json` | names, horizon, and what is exactly best |
//! | `reference.csv` | `policy,tau,quantile,mean` of exact policies: optimal, risk-neutral, the paper's rule |
//! | `seed-N/policy.csv` | `tau,stage,state,action` at c = 0; tau is empty where one policy serves all levels |
//! | `seed-N/law.csv` | `tau,return,probability` of the final policy |
//! | `seed-N/predictions.csv` | `critic,action,level,value`: the critics' quantiles of the return at the start |
//! | `seed-N/achieved.csv` | `tau,quantile,mean` over many levels, where the agent serves them all |

use std::fmt::Write as _;
use std::io;

use bqrl_agents::{Input, Mode, OutputPolicy};
use bqrl_math::buffer::Buffer;
use bqrl_math::law::ReturnLaw;
use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::{Planner, conditional};
use bqrl_mdp::trajectory::Observation;
use bqrl_runs::atomic;
use bqrl_runs::run_dir::{RunDir, SeedDir};
use serde::Serialize;

use crate::train::{Objective, Training, Yardstick};

/// Atoms of a remaining-return law up to which the paper's rule is solved.
pub(crate) const RULE_ATOMS: usize = 2_000;
/// Rows up to which a policy is written down.
const POLICY_ROWS: usize = 200_000;

/// 0.05, 0.1, …, 0.95, each with β = τ.
fn twentieths() -> Vec<Buffer> {
    let level = |k: u32| {
        let tau = f64::from(k) / 20.0;
        Buffer::new(tau, tau).expect("0 < τ < 1, β = τ")
    };
    (1..20).map(level).collect()
}

#[derive(Serialize)]
struct Description<'a> {
    name: &'a str,
    horizon: usize,
    discount: f64,
    states: &'a [String],
    actions: &'a [String],
    ordered: bool,
    exact: bool,
    max_mean: f64,
    levels: Vec<Level>,
}

#[derive(Serialize)]
struct Level {
    tau: f64,
    beta: f64,
    best_quantile: f64,
}

/// Q_τ of the paper's rule, solved exactly; `None` where there are too many returns for that.
pub fn rule_quantile(problem: &Problem, level: Buffer) -> Option<f64> {
    conditional::greedy(&problem.model, level, RULE_ATOMS).map(|rule| rule.law.quantile(level.tau()))
}

/// Writes `problem.json` and, where planning is exact, `reference.csv`.
pub fn describe(dir: &RunDir, problem: &Problem, yardstick: &Yardstick) -> io::Result<()> {
    let level = |&(buffer, best): &(Buffer, f64)| Level {
        tau: buffer.tau(),
        beta: buffer.beta(),
        best_quantile: best,
    };
    let description = Description {
        name: &problem.name,
        horizon: problem.model.horizon(),
        discount: problem.model.discount(),
        states: &problem.states,
        actions: &problem.actions,
        ordered: problem.ordered,
        exact: yardstick.evaluator.is_some(),
        max_mean: yardstick.max_mean,
        levels: yardstick.levels.iter().map(level).collect(),
    };
    let json = serde_json::to_string(&description).expect("plain numbers and text serialise") + "\n";
    atomic::write(&dir.problem(), json.as_bytes())?;
    if yardstick.evaluator.is_none() {
        return Ok(());
    }
    let planner =
        Planner::exact(&problem.model, &|_, _, _| {}).expect("the yardstick found the returns few enough");
    let mut csv = String::from("policy,tau,quantile,mean\n");
    let neutral = planner.mean_evaluation();
    let percents = || (1..100).map(|k| f64::from(k) / 100.0);
    for tau in percents() {
        // The slack of an optimal policy is not spent here: only its quantile is a fact of the problem.
        let _ = writeln!(csv, "optimal,{tau},{},", planner.best_quantile(tau).value);
    }
    for tau in percents() {
        let _ = writeln!(csv, "risk-neutral,{tau},{},{}", neutral.law.quantile(tau), neutral.mean);
    }
    for level in twentieths() {
        if let Some(rule) = conditional::greedy(&problem.model, level, RULE_ATOMS) {
            let tau = level.tau();
            let _ = writeln!(csv, "conditional-rule,{tau},{},{}", rule.law.quantile(tau), rule.law.mean());
        }
    }
    atomic::write(&dir.reference(), csv.as_bytes())
}

/// Writes the tables of one seed.
pub fn leave(dir: &SeedDir, problem: &Problem, training: &mut Training) -> io::Result<()> {
    atomic::write(&dir.weights(), &training.agent.weights())?;
    let levels: Vec<Buffer> = training.levels();
    let laws: Vec<ReturnLaw> =
        training.laws(&levels, Objective::Quantile).into_iter().map(|(law, _)| law).collect();
    atomic::write(&dir.law(), law_table(&levels, &laws).as_bytes())?;

    let model = &problem.model;
    if model.n_states() * model.horizon() * laws.len() <= POLICY_ROWS {
        let policies = training.agent.output(&levels);
        let mut csv = String::from("tau,stage,state,action\n");
        for (policy, level) in policies.iter().zip(&levels) {
            let tau = if policies.len() == 1 { String::new() } else { level.tau().to_string() };
            for stage in 0..model.horizon() {
                for state in (0..model.n_states()).filter(|&state| !model.is_terminal(stage, state)) {
                    let _ = writeln!(csv, "{tau},{stage},{state},{}", action(&**policy, stage, state));
                }
            }
        }
        atomic::write(&dir.policy(), csv.as_bytes())?;
    }

    let start = training.start(&mut stream(0, Purpose::Evaluation));
    let predictions = training.agent.predictions(&Input { stage: 0, observation: &start, collected: 0.0 });
    if !predictions.is_empty() {
        let mut csv = String::from("critic,action,level,value\n");
        for p in predictions {
            let _ = writeln!(csv, "{},{},{},{}", p.critic, p.action, p.level, p.value);
        }
        atomic::write(&dir.predictions(), csv.as_bytes())?;
    }

    let grid = twentieths();
    let laws = training.laws(&grid, Objective::Quantile);
    if laws.len() == grid.len() {
        let mut csv = String::from("tau,quantile,mean\n");
        for (level, (law, mean)) in grid.iter().zip(&laws) {
            let _ = writeln!(csv, "{},{},{mean}", level.tau(), law.quantile(level.tau()));
        }
        atomic::write(&dir.achieved(), csv.as_bytes())?;
    }
    Ok(())
}

fn law_table(levels: &[Buffer], laws: &[ReturnLaw]) -> String {
    let mut csv = String::from("tau,return,probability\n");
    for (law, level) in laws.iter().zip(levels) {
        let tau = if laws.len() == 1 { String::new() } else { level.tau().to_string() };
        for (value, probability) in law.values().iter().zip(law.probabilities()) {
            let _ = writeln!(csv, "{tau},{value},{probability}");
        }
    }
    csv
}

/// The most probable action at (h, s, 0).
fn action(policy: &dyn OutputPolicy, stage: usize, state: usize) -> usize {
    let mut choice = Vec::new();
    Mode(policy)
        .decide(&Input { stage, observation: &Observation::Index(state), collected: 0.0 }, &mut choice);
    choice[0].0
}
