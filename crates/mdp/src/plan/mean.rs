//! The risk-neutral plan: ordinary backward induction for max `E[R]`.
//!
//! ```text
//! V_h(s)   = max_a Q_h(s, a),   V_H = 0
//! Q_h(s,a) = Σ p(s'|s,a) (γ^h r + V_{h+1}(s'))
//! A_h(s,a) = V_h(s) − Q_h(s,a) ≥ 0      the loss of mean by the action
//! ```

use crate::evaluate::Policy;
use crate::returns::Compiled;
use crate::trajectory::AugmentedInput;

/// V_h(s) and the action that attains it (the lowest index among equals).
#[derive(Clone, Debug)]
pub struct MeanPlan {
    values: Vec<Vec<f64>>,
    actions: Vec<Vec<u32>>,
    max_mean: f64,
}

impl MeanPlan {
    pub(crate) fn new(compiled: &Compiled) -> Self {
        let mut values = vec![vec![0.0; compiled.n_states + 1]; compiled.horizon + 1];
        let mut actions = vec![vec![0; compiled.n_states]; compiled.horizon];
        // Equal means may differ by rounding; the lowest index must still win.
        let tie = 1e-12 * compiled.rewards.iter().fold(0.0f64, |scale, r| scale.max(r.abs()));
        for stage in (0..compiled.horizon).rev() {
            for &state in &compiled.alive[stage] {
                let state = state as usize;
                let mut best = f64::NEG_INFINITY;
                for action in 0..compiled.n_actions {
                    if compiled.transitions(stage, state, action).is_empty() {
                        continue;
                    }
                    let mean = mean_of(compiled, stage, state, action, &values[stage + 1]);
                    if mean > best + tie {
                        best = mean;
                        actions[stage][state] = action as u32;
                    }
                }
                values[stage][state] = best;
            }
        }
        let max_mean = compiled.start.iter().map(|&(state, p)| p * values[0][state]).sum();
        Self { values, actions, max_mean }
    }

    /// max_π E[R^π].
    pub fn max_mean(&self) -> f64 {
        self.max_mean
    }

    /// The action that maximises the mean at (h, s).
    pub fn action(&self, stage: usize, state: usize) -> usize {
        self.actions[stage][state] as usize
    }

    /// The mean of the rest of the return: action a at (h, s), then the mean-optimal policy.
    pub(crate) fn value(&self, compiled: &Compiled, stage: usize, state: usize, action: usize) -> f64 {
        mean_of(compiled, stage, state, action, &self.values[stage + 1])
    }

    /// A_h(s, a).
    pub(crate) fn loss(&self, compiled: &Compiled, stage: usize, state: usize, action: usize) -> f64 {
        let mean = mean_of(compiled, stage, state, action, &self.values[stage + 1]);
        (self.values[stage][state] - mean).max(0.0)
    }
}

fn mean_of(compiled: &Compiled, stage: usize, state: usize, action: usize, later: &[f64]) -> f64 {
    let terms = compiled.transitions(stage, state, action).iter();
    terms.map(|t| t.probability * (compiled.reward(stage, t.code) + later[t.next as usize])).sum()
}

impl Policy for MeanPlan {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.action(x.stage, x.state), 1.0));
    }
}
