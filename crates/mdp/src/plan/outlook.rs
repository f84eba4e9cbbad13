//! What each action is worth at any x = (h, s, c): the chance to reach a target, and the expected total.
//!
//! ```text
//! P(R ≥ g | x, a) = 1 − Σ p(s'|s,a) F_{h+1}(s', g − c − γ^h r)     then playing for the target g
//! E[R | x, a]     = c + Σ p(s'|s,a) (γ^h r + V_{h+1}(s'))          then playing for the mean
//! ```
//!
//! One more pass keeps F of every stage. It answers for every target, so a different risk level needs no further work.

use super::Planner;
use super::sweep::{Cost, Row};
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
    /// P(R ≥ g), if the target is all that counts from here on.
    pub chance: f64,
    /// `E[R]`, if the mean is all that counts after this action.
    pub mean: f64,
}

impl Planner<'_> {
    /// Keeps F of every stage; `None` if that is more than `most` numbers.
    pub fn outlook(&self, most: usize) -> Option<Outlook> {
        let rows = self.run(None, Cost::Step, 0.0, false, most).rows;
        (!rows.is_empty()).then_some(Outlook { rows })
    }

    /// Every action that is available at x, for a target g of the whole return. None at the end of an episode.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems;

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
