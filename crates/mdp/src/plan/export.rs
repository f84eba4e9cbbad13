//! A policy as a table that other programs can use.
//!
//! ```text
//! tau,stage,state,collected,action                        one row for every x = (h, s, c) that can occur under some policy
//! tau,stage,state,collected_from,collected_to,action      compact: one row for every run of collected rewards with the same action,
//!                                                         and only where the policy itself can come
//! ```
//!
//! Stages count from 0, states and actions go by the problem's own labels. A policy is deterministic here. With rounded rewards,
//! `collected` is the sum of the rounded rewards, which the policy uses. An end of a run that no decision depends on is left empty.

use std::io::{self, Write};

use crate::evaluate::{Evaluator, Policy};
use crate::model::Problem;
use crate::trajectory::AugmentedInput;

/// The columns of a table.
pub const COLUMNS: &[&str] = &["tau", "stage", "state", "collected", "action"];
/// Those of a compact one.
pub const COMPACT_COLUMNS: &[&str] = &["tau", "stage", "state", "collected_from", "collected_to", "action"];

/// One row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Row {
    /// The level that the policy is for.
    pub tau: f64,
    /// h.
    pub stage: usize,
    /// The index of the state.
    pub state: usize,
    /// c, or the first and the last one of a run.
    pub collected: Collected,
    /// The index of the action.
    pub action: usize,
}

/// The collected rewards that a row is about.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Collected {
    /// One.
    At(f64),
    /// All from the first to the second; `None` is an end that no decision depends on.
    Run(Option<f64>, Option<f64>),
}

/// Goes through the rows of the policies of several levels.
pub fn each_row<E>(
    evaluator: &Evaluator,
    policies: &[(f64, &dyn Policy)],
    compact: bool,
    mut row: impl FnMut(Row) -> Result<(), E>,
) -> Result<(), E> {
    let everywhere = if compact { Vec::new() } else { evaluator.reachable_collected() };
    for &(tau, policy) in policies {
        let visited = if compact { evaluator.visited_collected(policy) } else { Vec::new() };
        let points = if compact { &visited } else { &everywhere };
        for (stage, states) in points.iter().enumerate() {
            for (state, values) in states.iter().enumerate() {
                let of = |collected, action| Row { tau, stage, state, collected, action };
                let mut choice = Vec::new();
                let mut action = |collected: f64| {
                    choice.clear();
                    policy.decide(&AugmentedInput { stage, state, collected }, &mut choice);
                    choice[0].0
                };
                if !compact {
                    for &collected in values {
                        row(of(Collected::At(collected), action(collected)))?;
                    }
                    continue;
                }
                let decided: Vec<(f64, usize)> = values.iter().map(|&c| (c, action(c))).collect();
                let runs: Vec<&[(f64, usize)]> = decided.chunk_by(|a, b| a.1 == b.1).collect();
                for (place, run) in runs.iter().enumerate() {
                    let from = (place > 0).then_some(run[0].0);
                    let to = (place + 1 < runs.len()).then_some(run[run.len() - 1].0);
                    row(of(Collected::Run(from, to), run[0].1))?;
                }
            }
        }
    }
    Ok(())
}

/// Writes the policies of several levels into one CSV file.
pub fn write_csv(
    evaluator: &Evaluator,
    problem: &Problem,
    policies: &[(f64, &dyn Policy)],
    compact: bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(if compact { COMPACT_COLUMNS } else { COLUMNS })?;
    each_row(evaluator, policies, compact, |row| {
        let (tau, stage) = (row.tau.to_string(), row.stage.to_string());
        let (state, action) = (&problem.states[row.state], &problem.actions[row.action]);
        let end = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        match row.collected {
            Collected::At(c) => rows.write_record([&tau, &stage, state, &c.to_string(), action]),
            Collected::Run(from, to) => {
                rows.write_record([&tau, &stage, state, &end(from), &end(to), action])
            }
        }
    })?;
    rows.flush()
}
