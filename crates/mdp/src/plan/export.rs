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
