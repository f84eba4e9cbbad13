//! A policy as a table that other programs can use: `tau,stage,state,collected,action`.
//!
//! One row for every x = (h, s, c) that can occur under some policy. Stages count from 0, states and actions go by the
//! problem's own labels. A policy is deterministic here. With rounded rewards, `collected` is the sum of the rounded rewards, which the policy uses.

use std::io::{self, Write};

use super::Planner;
use crate::evaluate::Policy;
use crate::model::Problem;
use crate::trajectory::AugmentedInput;

/// Writes the policies of several levels into one file.
pub fn write_policies(
    planner: &Planner,
    problem: &Problem,
    policies: &[(f64, &dyn Policy)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let reachable = planner.reachable_collected();
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(["tau", "stage", "state", "collected", "action"])?;
    let mut choice = Vec::new();
    for (tau, policy) in policies {
        for (stage, states) in reachable.iter().enumerate() {
            for (state, values) in states.iter().enumerate() {
                for &collected in values {
                    choice.clear();
                    policy.decide(&AugmentedInput { stage, state, collected }, &mut choice);
                    let action = choice[0].0;
                    rows.write_record([
                        &tau.to_string(),
                        &stage.to_string(),
                        &problem.states[state],
                        &collected.to_string(),
                        &problem.actions[action],
                    ])?;
                }
            }
        }
    }
    rows.flush()
}

/// As [`write_policies`], with one row for every run of collected rewards with the same action, and only where the policy itself can
/// come: `tau,stage,state,collected_from,collected_to,action`. An end of a run that no decision depends on is left empty.
pub fn write_compact(
    planner: &Planner,
    problem: &Problem,
    policies: &[(f64, &dyn Policy)],
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut rows = csv::Writer::from_writer(out);
    rows.write_record(["tau", "stage", "state", "collected_from", "collected_to", "action"])?;
    let mut choice = Vec::new();
    for (tau, policy) in policies {
        for (stage, states) in planner.visited_collected(*policy).iter().enumerate() {
            for (state, values) in states.iter().enumerate() {
                let mut action = |collected: f64| {
                    choice.clear();
                    policy.decide(&AugmentedInput { stage, state, collected }, &mut choice);
                    choice[0].0
                };
                let decided: Vec<(f64, usize)> = values.iter().map(|&c| (c, action(c))).collect();
                let runs: Vec<&[(f64, usize)]> = decided.chunk_by(|a, b| a.1 == b.1).collect();
                for (place, run) in runs.iter().enumerate() {
                    let (first, last) = (run[0], run[run.len() - 1]);
                    let from = if place == 0 { String::new() } else { first.0.to_string() };
                    let to = if place + 1 == runs.len() { String::new() } else { last.0.to_string() };
                    let action = &problem.actions[first.1];
                    let (tau, stage) = (tau.to_string(), stage.to_string());
                    rows.write_record([&tau, &stage, &problem.states[state], &from, &to, action])?;
                }
            }
        }
    }
    rows.flush()
}
