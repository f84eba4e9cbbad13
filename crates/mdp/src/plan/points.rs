//! The points x = (h, s, c) at which a decision can be due. A plan knows nothing about others, and whoever asks is told so.
//!
//! ```text
//! [low_h(s), high_h(s)]   the smallest and the largest reward that can have been collected on arrival, under any policy
//! ```
//!
//! A collected reward must lie in this range and, with exact rewards, be one of the sums that occur at this stage.

use std::sync::Arc;

use thiserror::Error;

use crate::evaluate::Evaluator;
use crate::model::Problem;
use crate::returns::{Ladders, Rounding};
use crate::trajectory::AugmentedInput;

/// Sums of rewards may differ by rounding.
const SLACK: f64 = 1e-6;

/// A point that no episode passes.
#[derive(Clone, Debug, Error, PartialEq)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum OffPlan {
    #[error("stages are 0 to {last}, got {stage}")]
    Stage { stage: usize, last: usize },
    #[error("state {state} is terminal: there is nothing to decide")]
    Terminal { state: String },
    #[error("state {state} cannot be reached at stage {stage}")]
    Unreached { state: String, stage: usize },
    #[error(
        "{collected} cannot have been collected at stage {stage} in state {state}; possible values lie from {low} to {high}"
    )]
    Collected { collected: f64, stage: usize, state: String, low: f64, high: f64 },
}

/// All such points of a plan.
#[derive(Clone, Debug)]
pub struct Points {
    /// Per stage and state.
    ranges: Vec<Vec<Option<(f64, f64)>>>,
    /// The sums of rewards that occur; `None` if rewards were rounded.
    sums: Option<Arc<Ladders>>,
}

impl Evaluator {
    /// The points at which a policy may be asked.
    pub fn points(&self) -> Points {
        let compiled = &self.compiled;
        let mut ranges = vec![vec![None; compiled.n_states]; compiled.horizon + 1];
        for &(state, _) in &compiled.start {
            ranges[0][state] = Some((0.0, 0.0));
        }
        for stage in 0..compiled.horizon {
            let (now, later) = ranges.split_at_mut(stage + 1);
            for &state in &compiled.alive[stage] {
                let Some((low, high)) = now[stage][state as usize] else { continue };
                for action in 0..compiled.n_actions {
                    for t in compiled.transitions(stage, state as usize, action) {
                        // Episodes that are over have nothing to decide.
                        let Some(next) = later[0].get_mut(t.next as usize) else { continue };
                        let reward = compiled.reward(stage, t.code);
                        let (least, most): (f64, f64) = next.unwrap_or((f64::INFINITY, f64::NEG_INFINITY));
                        *next = Some((least.min(low + reward), most.max(high + reward)));
                    }
                }
            }
        }
        ranges.pop();
        let sums = (self.rounding == Rounding::Exact).then(|| self.ladders.clone());
        Points { ranges, sums }
    }
}

impl Points {
    /// Refuses a point that no episode passes.
    pub fn check(&self, problem: &Problem, x: &AugmentedInput) -> Result<(), OffPlan> {
        let AugmentedInput { stage, state, collected } = *x;
        let name = || problem.states[state].clone();
        if stage >= self.ranges.len() {
            return Err(OffPlan::Stage { stage, last: self.ranges.len() - 1 });
        }
        if problem.model.is_terminal(stage, state) {
            return Err(OffPlan::Terminal { state: name() });
        }
        let unreached = || OffPlan::Unreached { state: name(), stage };
        let (low, high) = self.ranges[stage][state].ok_or_else(unreached)?;
        let slack = SLACK * (1.0 + collected.abs());
        let within = low - slack <= collected && collected <= high + slack;
        let occurs = |ladders: &Arc<Ladders>| ladders.collected.occurs(stage, collected, slack);
        if within && self.sums.as_ref().is_none_or(occurs) {
            return Ok(());
        }
        Err(OffPlan::Collected { collected, stage, state: name(), low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Planner;
    use crate::problems;

    #[test]
    fn ranges_are_those_of_the_rewards_that_can_be_collected() {
        for name in ["asset-selling", "gamble-chain", "inventory", "american-put", "frozen-lake"] {
            let problem = problems::build(name, &[]).unwrap();
            let planner = Planner::exact(&problem.model, &|_, _, _| {}).unwrap();
            let points = planner.evaluator().points();
            for (stage, states) in planner.evaluator().reachable_collected().iter().enumerate() {
                for (state, values) in states.iter().enumerate() {
                    if problem.model.is_terminal(stage, state) {
                        continue;
                    }
                    let range = points.ranges[stage][state];
                    let want = values.first().copied().zip(values.last().copied());
                    let close = |(a, b): ((f64, f64), (f64, f64))| {
                        (a.0 - b.0).abs() < 1e-9 && (a.1 - b.1).abs() < 1e-9
                    };
                    assert!(range.is_some() == want.is_some() && range.zip(want).is_none_or(close), "{name}");
                    for &collected in values {
                        points.check(&problem, &AugmentedInput { stage, state, collected }).unwrap();
                    }
                }
            }
        }
    }

    #[test]
    fn points_that_no_episode_passes_are_refused_with_the_reason() {
        let said = |name: &str, stage, state, collected| {
            let problem = problems::build(name, &[]).unwrap();
            let planner = Planner::exact(&problem.model, &|_, _, _| {}).unwrap();
            let x = AugmentedInput { stage, state, collected };
            planner.evaluator().points().check(&problem, &x).unwrap_err().to_string()
        };
        assert_eq!(said("asset-selling", 0, 6, 0.0), "state 6 cannot be reached at stage 0");
        assert_eq!(said("asset-selling", 0, 25, 0.0), "state sold is terminal: there is nothing to decide");
        assert_eq!(said("asset-selling", 10, 5, 0.0), "stages are 0 to 9, got 10");
        assert_eq!(
            said("asset-selling", 1, 5, 0.25),
            "0.25 cannot have been collected at stage 1 in state 5; possible values lie from 0 to 0"
        );
        // Profits are whole numbers, and one period earns at most 8·10 − 4·10.
        assert!(
            said("inventory", 1, 0, 0.5).starts_with("0.5 cannot have been collected at stage 1 in state 0")
        );
        assert!(said("inventory", 1, 0, 41.0).ends_with("from 0 to 40"));
    }
}
