//! The tables that a run writes for reports: when it is finished, and the policy's own every few seconds while it learns. They are plain, so that reading them needs neither agents nor models.
//!
//! | file | columns |
//! |---|---|
//! | `problem.json` | names, horizon, and the exact optima |
//! | `reference.csv` | `policy,tau,quantile,mean` of exact policies: optimal, risk-neutral, the paper's rule |
//! | `seed-N/policy.csv` | `tau,stage,state,action` at c = 0; tau is empty where one policy serves all levels |
//! | `seed-N/law.csv` | `tau,return,probability` of the final policy |
//! | `seed-N/predictions.csv` | `critic,action,level,value`: the critics' quantiles of the return at the start |
//! | `seed-N/calibration.csv` | `tau,goal,predicted,measured`: P(R ≥ goal) as the agent expects it, and as it is; the goal is its target, or else its own Q_τ |
//! | `seed-N/achieved.csv` | `tau,quantile,mean` over many levels, where the agent serves them all |

use std::fmt::Write as _;
use std::io;

use bqrl_agents::play::PlayError;
use bqrl_agents::{Input, ServedPolicy};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::Purpose;
use bqrl_mdp::model::{Look, Problem};
use bqrl_mdp::plan::{Planner, conditional};
use bqrl_mdp::trajectory::Observation;
use bqrl_runs::atomic;
use bqrl_runs::run_dir::{RunDir, SeedDir};
use bqrl_runs::schema::{self, LevelFacts, TaskFacts};
use thiserror::Error;

use crate::evaluate::{Calibration, Measured};
use crate::task::{Level, References, Task};
use crate::train::{Objective, Training};

/// The paper's rule is solved if no remaining-return law has more atoms than this.
pub(crate) const RULE_ATOMS: usize = 2_000;
/// The most rows of a policy table.
const POLICY_ROWS: usize = 200_000;

/// 0.05, 0.1, …, 0.95, each with β = τ.
fn twentieths() -> Vec<Buffer> {
    let level = |k: u32| {
        let tau = f64::from(k) / 20.0;
        Buffer::new(tau, tau).expect("0 < τ < 1, β = τ")
    };
    (1..20).map(level).collect()
}

/// Q_τ of the paper's rule, solved exactly; `None` where there are too many returns for that.
pub fn rule_quantile(problem: &Problem, level: Buffer) -> Option<f64> {
    conditional::greedy(&problem.model, level, RULE_ATOMS).map(|rule| rule.law.quantile(level.tau()))
}

/// Writes `problem.json` and, where planning is exact, `reference.csv`, unless a resumed run has them.
pub fn describe(dir: &RunDir, task: &dyn Task, references: &References) -> io::Result<()> {
    let (spec, table) = (task.spec(), task.table());
    let exact = table.is_some() && references.evaluator.is_some();
    if dir.problem().exists() && (dir.reference().exists() || !exact) {
        return Ok(());
    }
    let level = |level: &Level| LevelFacts {
        tau: level.buffer.tau(),
        beta: level.buffer.beta(),
        best_quantile: level.best_quantile,
    };
    let facts = TaskFacts {
        name: spec.name.clone(),
        horizon: spec.horizon,
        discount: spec.discount,
        states: table.map_or(Vec::new(), |problem| problem.states.clone()),
        look: table.and_then(|problem| look(&problem.data.look)),
        actions: task.actions(),
        ordered: table.is_some_and(|problem| problem.ordered),
        exact: references.evaluator.is_some(),
        max_mean: references.max_mean,
        levels: references.levels.iter().map(level).collect(),
    };
    let json = serde_json::to_string(&facts).expect("plain numbers and text serialise") + "\n";
    atomic::write(&dir.problem(), json.as_bytes())?;
    let (Some(problem), true) = (table, references.evaluator.is_some()) else { return Ok(()) };
    let planner =
        Planner::exact(&problem.model, &|_, _, _| {}).expect("the references found the returns few enough");
    let mut csv = String::from("policy,tau,quantile,mean\n");
    let neutral = planner.mean_evaluation();
    let percents = || (1..100).map(|k| f64::from(k) / 100.0);
    for tau in percents() {
        // The slack of an optimal policy is not used here: only its quantile is a property of the problem.
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

/// How figures show the states, if there is anything to say about that.
fn look(look: &Look) -> Option<schema::Look> {
    (*look != Look::default()).then(|| schema::Look {
        axis: look.axis.to_owned(),
        labels: look.labels.clone(),
        grid: look.grid.as_ref().map(|grid| (grid.columns, grid.letters.clone())),
    })
}

/// Why the tables of a seed were not written.
#[derive(Debug, Error)]
pub enum TableError {
    /// The policy could not be played.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// A file could not be written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Writes the tables of one seed.
pub fn write_seed_tables(dir: &SeedDir, training: &Training) -> Result<(), TableError> {
    atomic::write(&dir.weights(), &training.agent.weights())?;
    let measured = training.measure(&training.references().buffers(), Objective::Quantile)?;
    write_latest(dir, training, &measured)?;

    let grid = twentieths();
    if training.agent.serve(&grid, Objective::Quantile).is_per_level() {
        let measured = training.measure(&grid, Objective::Quantile)?;
        let mut csv = String::from("tau,quantile,mean\n");
        for (level, Measured { law, mean, .. }) in grid.iter().zip(&measured) {
            let _ = writeln!(csv, "{},{},{mean}", level.tau(), law.quantile(level.tau()));
        }
        atomic::write(&dir.achieved(), csv.as_bytes())?;
    }
    Ok(())
}

/// Writes the law, the policy and the predictions of an agent as it is now.
pub fn write_latest(dir: &SeedDir, training: &Training, measured: &[Measured]) -> Result<(), TableError> {
    let levels = training.references().buffers();
    atomic::write(&dir.law(), law_table(&levels, measured).as_bytes())?;

    if let Some(problem) = training.task().table()
        && let Some(csv) = policy_table(training, problem, &levels)
    {
        atomic::write(&dir.policy(), csv.as_bytes())?;
    }

    if let Some(csv) = calibration_table(training, &levels, measured) {
        atomic::write(&dir.calibration(), csv.as_bytes())?;
    }

    let predictions = match start(training)? {
        Some(start) => training.agent.predictions(&Input { stage: 0, observation: &start, collected: 0.0 }),
        None => Vec::new(),
    };
    if !predictions.is_empty() {
        let mut csv = String::from("critic,action,level,value\n");
        for p in predictions {
            let _ = writeln!(csv, "{},{},{},{}", p.critic, p.action, p.level, p.value);
        }
        atomic::write(&dir.predictions(), csv.as_bytes())?;
    }
    Ok(())
}

/// `None` for an agent that expects nothing.
fn calibration_table(training: &Training, levels: &[Buffer], measured: &[Measured]) -> Option<String> {
    let served = training.agent.serve(levels, Objective::Quantile);
    let mut csv = String::from("tau,goal,predicted,measured\n");
    for (index, tau) in levels.iter().map(Buffer::tau).enumerate() {
        let one = measured.get(index).unwrap_or(&measured[0]);
        let found = Calibration::new(&*training.agent, served.at(index), tau, one)?;
        let _ = writeln!(csv, "{tau},{},{},{}", found.goal, found.predicted, found.measured);
    }
    Some(csv)
}

/// A first observation, for a task that shows it at the reset.
fn start(training: &Training) -> Result<Option<Observation>, PlayError> {
    Ok(training.task().lanes(0, Purpose::Evaluation, 1)?.reset(0)?)
}

/// The greedy policies at c = 0; `None` where there would be too many rows.
fn policy_table(training: &Training, problem: &Problem, levels: &[Buffer]) -> Option<String> {
    let model = &problem.model;
    let served = training.agent.serve(levels, Objective::Quantile);
    if model.n_states() * model.horizon() * served.memos().len() > POLICY_ROWS {
        return None;
    }
    let mut csv = String::from("tau,stage,state,action\n");
    for (memo, level) in served.memos().iter().zip(levels) {
        let policy = ServedPolicy::mode(&*training.agent, memo);
        let tau = if served.memos().len() == 1 { String::new() } else { level.tau().to_string() };
        for stage in 0..model.horizon() {
            for state in (0..model.n_states()).filter(|&state| !model.is_terminal(stage, state)) {
                let x = Input { stage, observation: &Observation::Index(state), collected: 0.0 };
                let _ = writeln!(csv, "{tau},{stage},{state},{}", policy.action(&x));
            }
        }
    }
    Some(csv)
}

fn law_table(levels: &[Buffer], measured: &[Measured]) -> String {
    let mut csv = String::from("tau,return,probability\n");
    for (Measured { law, .. }, level) in measured.iter().zip(levels) {
        let tau = if measured.len() == 1 { String::new() } else { level.tau().to_string() };
        for (value, probability) in law.values().iter().zip(law.probabilities()) {
            let _ = writeln!(csv, "{tau},{value},{probability}");
        }
    }
    csv
}
