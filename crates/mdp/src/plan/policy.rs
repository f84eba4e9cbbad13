//! A planned policy: it follows a target and acts by the table of the pass that planned it.
//!
//! ```text
//! y_0 = g,  y_{h+1} = y_h − γ^h r_h,  a_h = table_h(S_h, y_h)
//! ```
//!
//! Since y_h = g − C_h this is a policy on x = (h, s, c), and it is executed, evaluated and exported as such.

use std::sync::Arc;

use super::mean::MeanPlan;
use super::sweep::ActionTable;
use crate::evaluate::Policy;
use crate::returns::Ladders;
use crate::trajectory::AugmentedInput;

/// How to find the rung in a policy's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Index {
    /// By the residual target g − c, for this g.
    Residual(f64),
    /// By the collected reward c.
    Collected,
}

/// A deterministic policy on x = (h, s, c), as the planner found it.
#[derive(Clone, Debug)]
pub struct PlannedPolicy {
    ladders: Arc<Ladders>,
    mean: Arc<MeanPlan>,
    /// `None`: the mean-optimal policy.
    table: Option<(Arc<ActionTable>, Index)>,
}

impl PlannedPolicy {
    pub(crate) fn new(
        ladders: &Arc<Ladders>,
        mean: &Arc<MeanPlan>,
        actions: &Arc<ActionTable>,
        index: Index,
    ) -> Self {
        Self { ladders: ladders.clone(), mean: mean.clone(), table: Some((actions.clone(), index)) }
    }

    pub(crate) fn mean_optimal(ladders: &Arc<Ladders>, mean: &Arc<MeanPlan>) -> Self {
        Self { ladders: ladders.clone(), mean: mean.clone(), table: None }
    }

    /// The action at x.
    pub fn action(&self, x: &AugmentedInput) -> usize {
        let planned = self.table.as_ref().and_then(|(actions, index)| {
            let rung = match index {
                Index::Residual(target) => {
                    self.ladders.residual.rung_of_target(x.stage, target - x.collected)
                }
                Index::Collected => self.ladders.collected.rung_of_collected(x.stage, x.collected),
            };
            actions[x.stage][x.state].as_ref()?.at(rung)
        });
        planned.unwrap_or_else(|| self.mean.action(x.stage, x.state))
    }
}

impl Policy for PlannedPolicy {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.action(x), 1.0));
    }
}
