//! The value of each action at one point x = (h, s, c): the chance to reach the target, and the expected total.
//!
//! The action is taken once; from then on the policy decides. Both numbers are exact on the table.

use bqrl_mdp::evaluate::{Policy, evaluate};
use bqrl_mdp::model::{Model, ModelError};
use bqrl_mdp::returns::TooManyReturns;
use bqrl_mdp::trajectory::AugmentedInput;
use serde::Serialize;
use thiserror::Error;

/// One action at x.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Choice {
    /// Its index.
    pub action: usize,
    /// P(R ≥ target), if it is taken now and the policy decides afterwards.
    pub chance: f64,
    /// `E[R]`, likewise, with the reward collected so far.
    pub expected: f64,
    /// Whether the policy takes it.
    pub chosen: bool,
}

/// Why a point cannot be explained.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum ExplainError {
    #[error(transparent)]
    TooManyReturns(#[from] TooManyReturns),
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// Every action that is possible at x.
pub fn explain(
    model: &Model,
    policy: &dyn Policy,
    target: f64,
    x: &AugmentedInput,
) -> Result<Vec<Choice>, ExplainError> {
    let kernels = model.kernels();
    let rest = if model.is_stationary() { kernels.to_vec() } else { kernels[x.stage..].to_vec() };
    let rest = Model::new(rest, model.horizon() - x.stage, model.discount(), vec![(x.state, 1.0)])?;
    let discount = model.discount_at(x.stage);
    let mut chosen = Vec::new();
    policy.decide(x, &mut chosen);
    let tolerance = 1e-9 * (1.0 + target.abs());
    let choice = |action: usize| {
        let forced = Shifted { policy, x: *x, discount, action };
        let evaluation = evaluate(&rest, &forced)?;
        let needed = (target - x.collected) / discount;
        Ok(Choice {
            action,
            chance: 1.0 - evaluation.law.probability_below(needed - tolerance),
            expected: x.collected + discount * evaluation.mean,
            chosen: chosen.iter().any(|&(other, p)| other == action && p > 0.0),
        })
    };
    model.actions(x.stage, x.state).map(choice).collect()
}

/// The policy, seen from x, with the first action settled.
struct Shifted<'a> {
    policy: &'a dyn Policy,
    x: AugmentedInput,
    discount: f64,
    action: usize,
}

impl Policy for Shifted<'_> {
    fn decide(&self, later: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        if later.stage == 0 {
            choice.push((self.action, 1.0));
            return;
        }
        let x = AugmentedInput {
            stage: self.x.stage + later.stage,
            state: later.state,
            collected: self.x.collected + self.discount * later.collected,
        };
        self.policy.decide(&x, choice);
    }
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::plan::Planner;
    use bqrl_mdp::problems;

    use super::*;

    #[test]
    fn at_the_start_the_chosen_action_has_the_value_of_the_plan() {
        let problem = problems::build("asset-selling", &[]).unwrap();
        let planner = Planner::exact(&problem.model, &|_, _, _| {}).unwrap();
        let plan = planner.quantile_policy(0.1, 12);
        let start = AugmentedInput { stage: 0, state: 5, collected: 0.0 };
        let choices = explain(&problem.model, &plan.policy, plan.best.value, &start).unwrap();
        let chosen = choices.iter().find(|choice| choice.chosen).unwrap();
        assert!((chosen.chance - plan.probability_at_least).abs() < 1e-12);
        assert!((chosen.expected - plan.evaluation.mean).abs() < 1e-12);
        // Stopping at once takes an offer of 5 of 24 and cannot reach 19.
        let stop = choices.iter().find(|choice| choice.action == 0).unwrap();
        assert_eq!((stop.chance, stop.chosen), (0.0, false));
        assert!((stop.expected - 5.0 / 24.0).abs() < 1e-12);
        // At the last stage stopping takes the offer, going on takes nothing.
        let last = AugmentedInput { stage: 9, state: 20, collected: 0.0 };
        let choices = explain(&problem.model, &plan.policy, plan.best.value, &last).unwrap();
        assert_eq!((choices[0].chance, choices[1].chance), (1.0, 0.0));
    }
}
