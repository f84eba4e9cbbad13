//! What each action is worth at any x = (h, s, c): the chance to reach a target, and the expected total.
//!
//! ```text
//! P(R ≥ g | x, a) = 1 − Σ p(s'|s,a) F_{h+1}(s', g − c − γ^h r)
//! E[R | x, a]     = c + Σ p(s'|s,a) (γ^h r + V_{h+1}(s'))
//! ```
//!
//! What happens after the action decides what F and V are:
//!
//! - [`Planner::actions_at`]: the best for each. F is the least attainable, V the largest. One more pass keeps F of every stage. It answers
//!   for every target, so a different risk level needs no further work.
//! - [`following`]: a policy decides, and both are its own. Any policy can be asked about, and its own action at the start has the chance and
//!   the mean of the policy. This costs one evaluation per action.
//!
//! Both are tested against the same recursion over all episodes.

use super::Planner;
use super::sweep::{Cost, Row};
use crate::evaluate::{Evaluator, Policy};
use crate::model::{Model, ModelError};
use crate::trajectory::AugmentedInput;

/// F_h(s, y) for every stage, state and residual target.
#[derive(Clone, Debug)]
pub struct Outlook {
    rows: Vec<Vec<Row>>,
}

/// One action at x.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ActionOutlook {
    /// The action.
    pub action: usize,
    /// P(R ≥ g), with the reward collected so far.
    pub chance: f64,
    /// `E[R]`, likewise.
    pub mean: f64,
}

impl Planner<'_> {
    /// Keeps F of every stage; `None` if that is more than `most` numbers.
    pub fn outlook(&self, most: usize) -> Option<Outlook> {
        let rows = self.run(None, Cost::Step, 0.0, false, most).rows;
        (!rows.is_empty()).then_some(Outlook { rows })
    }

    /// Every action that is available at x, for a target g of the whole return. None at the end of an episode. The chance is that of
    /// playing for the target from then on, the mean that of playing for the mean.
    pub fn actions_at(&self, outlook: &Outlook, x: &AugmentedInput, target: f64) -> Vec<ActionOutlook> {
        if x.stage >= self.compiled.horizon || !self.compiled.alive[x.stage].contains(&(x.state as u32)) {
            return Vec::new();
        }
        let ladder = &self.ladders.residual;
        let rung = ladder.rung_of_target(x.stage, target - x.collected);
        let worth = |action| {
            let transitions = self.compiled.transitions(x.stage, x.state, action);
            let below = |t: &crate::returns::Transition| {
                let rung = ladder.step(x.stage, t.code).apply(rung);
                t.probability * outlook.rows[x.stage + 1][t.next as usize].at(rung)
            };
            let missed: f64 = transitions.iter().map(below).sum();
            (!transitions.is_empty()).then(|| ActionOutlook {
                action,
                chance: (1.0 - missed).clamp(0.0, 1.0),
                mean: x.collected + self.mean.value(&self.compiled, x.stage, x.state, action),
            })
        };
        (0..self.compiled.n_actions).filter_map(worth).collect()
    }
}

/// Returns that a [`following`] outlook counts, where there are too many to keep them exact.
const GRID: usize = 20_000;

/// Every action that is available at x, taken once; from then on the policy decides. Chances are lower bounds where returns must be rounded.
pub fn following(
    model: &Model,
    policy: &dyn Policy,
    target: f64,
    x: &AugmentedInput,
) -> Result<Vec<ActionOutlook>, ModelError> {
    let kernels = model.kernels();
    let rest = if model.is_stationary() { kernels.to_vec() } else { kernels[x.stage..].to_vec() };
    let rest = Model::new(rest, model.horizon() - x.stage, model.discount(), vec![(x.state, 1.0)])?;
    let evaluator = Evaluator::new(&rest).unwrap_or_else(|_| Evaluator::rounded_down(&rest, GRID));
    let discount = model.discount_at(x.stage);
    let tolerance = 1e-9 * (1.0 + target.abs());
    let worth = |action: usize| {
        let evaluation = evaluator.evaluate(&Later { policy, x: *x, discount, action });
        let needed = (target - x.collected - tolerance) / discount;
        ActionOutlook {
            action,
            chance: (1.0 - evaluation.law.probability_below(needed)).clamp(0.0, 1.0),
            mean: x.collected + discount * evaluation.mean,
        }
    };
    Ok(model.actions(x.stage, x.state).map(worth).collect())
}

/// A policy, seen from x, with the first action settled.
struct Later<'a> {
    policy: &'a dyn Policy,
    x: AugmentedInput,
    discount: f64,
    action: usize,
}

impl Policy for Later<'_> {
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
    use super::*;
    use crate::problems;

    type Decide<'a> = &'a dyn Fn(&AugmentedInput, &[ActionOutlook]) -> (f64, f64);

    /// The oracle: all episodes from x on, one by one. `decide` gives the value of x from those of its actions, (chance, mean).
    fn worth(model: &Model, target: f64, x: &AugmentedInput, decide: Decide<'_>) -> Vec<ActionOutlook> {
        let value = |stage: usize, state: usize, collected: f64| {
            if stage == model.horizon() || model.is_terminal(stage, state) {
                return (f64::from(u8::from(collected >= target - 1e-9)), collected);
            }
            let later = AugmentedInput { stage, state, collected };
            decide(&later, &worth(model, target, &later, decide))
        };
        let of = |action| {
            let (mut chance, mut mean) = (0.0, 0.0);
            for outcome in model.outcomes(x.stage, x.state, action) {
                let reward = model.discount_at(x.stage) * outcome.reward;
                let (c, m) = value(x.stage + 1, outcome.next, x.collected + reward);
                chance += outcome.probability * c;
                mean += outcome.probability * m;
            }
            ActionOutlook { action, chance, mean }
        };
        model.actions(x.stage, x.state).map(of).collect()
    }

    fn assert_same(got: &[ActionOutlook], want: &[ActionOutlook]) {
        assert_eq!(got.len(), want.len());
        for (got, want) in got.iter().zip(want) {
            assert_eq!(got.action, want.action);
            assert!((got.chance - want.chance).abs() < 1e-9, "{got:?} {want:?}");
            assert!((got.mean - want.mean).abs() < 1e-9, "{got:?} {want:?}");
        }
    }

    #[test]
    fn both_outlooks_agree_with_a_walk_through_all_episodes() {
        let built = |name: &str, parameters: &[(&str, &str)]| {
            let parameters: Vec<_> =
                parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            problems::build(name, &parameters).unwrap()
        };
        let cases = [
            built("asset-selling", &[("offers", "4"), ("horizon", "4"), ("start", "1")]),
            built("gamble-chain", &[("horizon", "6")]),
            built("inventory", &[("capacity", "2"), ("horizon", "4"), ("demand", "1")]),
            built("american-put", &[("horizon", "5")]),
        ];
        for problem in cases {
            let model = &problem.model;
            let planner = Planner::exact(model, &|_, _, _| {}).unwrap();
            let outlook = planner.outlook(1 << 20).unwrap();
            let plan = planner.quantile_policy(0.3, 12);
            let target = plan.best.value;
            let reachable = planner.evaluator().reachable_collected();
            for (stage, states) in reachable.iter().enumerate() {
                for (state, values) in states.iter().enumerate() {
                    for &collected in values.iter().take(3) {
                        let x = AugmentedInput { stage, state, collected };
                        let best = |_: &AugmentedInput, actions: &[ActionOutlook]| {
                            actions.iter().fold((0.0, f64::MIN), |(c, m): (f64, f64), action| {
                                (c.max(action.chance), m.max(action.mean))
                            })
                        };
                        assert_same(
                            &planner.actions_at(&outlook, &x, target),
                            &worth(model, target, &x, &best),
                        );
                        let followed = |x: &AugmentedInput, actions: &[ActionOutlook]| {
                            let chosen = plan.policy.action(x);
                            let action = actions.iter().find(|action| action.action == chosen).unwrap();
                            (action.chance, action.mean)
                        };
                        assert_same(
                            &following(model, &plan.policy, target, &x).unwrap(),
                            &worth(model, target, &x, &followed),
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn at_the_start_the_policys_action_has_the_value_of_the_plan() {
        let problem = problems::build("asset-selling", &[]).unwrap();
        let planner = Planner::exact(&problem.model, &|_, _, _| {}).unwrap();
        let plan = planner.quantile_policy(0.1, 12);
        let start = AugmentedInput { stage: 0, state: 5, collected: 0.0 };
        let [stop, wait] =
            following(&problem.model, &plan.policy, plan.best.value, &start).unwrap().try_into().unwrap();
        assert!((wait.chance - plan.probability_at_least).abs() < 1e-12);
        assert!((wait.mean - plan.evaluation.mean).abs() < 1e-12);
        // Stopping at once takes an offer of 5 of 24 and cannot reach 19.
        assert_eq!(stop.chance, 0.0);
        assert!((stop.mean - 5.0 / 24.0).abs() < 1e-12);
    }

    #[test]
    fn chances_on_asset_selling_are_powers_of_the_chance_to_miss() {
        // After stage h there are 9 − h offers to come, each below 19 with probability 19/25.
        let problem = problems::build("asset-selling", &[]).unwrap();
        let planner = Planner::exact(&problem.model, &|_, _, _| {}).unwrap();
        let outlook = planner.outlook(1 << 20).unwrap();
        let at = |stage, state| {
            let x = AugmentedInput { stage, state, collected: 0.0 };
            planner.actions_at(&outlook, &x, 19.0 / 24.0)
        };
        // An offer of 18 comes after the first period at the earliest.
        for stage in 1..9 {
            let waiting = 1.0 - (19.0_f64 / 25.0).powi(9 - stage as i32);
            let [stop, wait] = at(stage, 18).try_into().unwrap();
            assert_eq!((stop.chance, stop.mean), (0.0, 18.0 / 24.0));
            assert!((wait.chance - waiting).abs() < 1e-12, "{} {waiting}", wait.chance);
            assert_eq!(at(stage, 19)[0].chance, 1.0);
        }
        assert!((at(0, 5)[1].chance - (1.0 - (19.0_f64 / 25.0).powi(9))).abs() < 1e-12);
        // After the last decision nothing is left, and a sold asset leaves nothing to decide.
        assert_eq!(at(9, 18)[1].chance, 0.0);
        assert!(at(0, 25).is_empty() && at(10, 3).is_empty());
        assert!(planner.outlook(10).is_none());
    }

    #[test]
    fn the_best_action_at_the_start_has_the_chance_that_the_plan_promises() {
        for name in ["gamble-chain", "inventory", "machine-replacement", "gamblers-ruin"] {
            let problem = problems::build(name, &[]).unwrap();
            let planner = Planner::exact(&problem.model, &|_, _, _| {}).unwrap();
            let outlook = planner.outlook(1 << 24).unwrap();
            for tau in [0.1, 0.5, 0.9] {
                let best = planner.best_quantile(tau);
                let chance: f64 = problem
                    .model
                    .start()
                    .iter()
                    .map(|&(state, p)| {
                        let x = AugmentedInput { stage: 0, state, collected: 0.0 };
                        let actions = planner.actions_at(&outlook, &x, best.value);
                        p * actions.iter().map(|action| action.chance).fold(0.0, f64::max)
                    })
                    .sum();
                assert!((1.0 - best.least_below - chance).abs() < 1e-9, "{name} at {tau}");
            }
            let x = AugmentedInput { stage: 0, state: problem.model.start()[0].0, collected: 0.0 };
            let means = planner.actions_at(&outlook, &x, 0.0).into_iter().map(|action| action.mean);
            assert!((means.fold(f64::MIN, f64::max) - planner.max_mean()).abs() < 1e-9, "{name}");
        }
    }
}
