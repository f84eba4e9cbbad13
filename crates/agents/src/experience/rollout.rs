//! Episodes of the current policy, and how good their actions were (Schulman et al. 2016, γ = 1).
//!
//! ```text
//! δ_t  = r_t + (1 − d_t) V(h+1, s_{t+1}) − V(h, s_t)         d = 1 at the end and at the horizon; a cut-off bootstraps
//! A_t  = δ_t + λ A_{t+1}                                     within an episode; A_t = δ_t at its last step
//! y_t  = A_t + V(h, s_t)                                     the λ-return, which V is fitted to
//! A_t ← (A_t − mean A) / std A                               over the whole rollout
//! ```
//!
//! The normalisation divides by n, and leaves advantages that are all equal alone but for their mean: an episode without
//! any surprise teaches nothing.

use super::arrays::{Array, Arrays, RestoreError};
use crate::stage_table::StageTable;
use crate::{Transition, state};

/// A decision, and what came of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// h.
    pub stage: usize,
    /// s.
    pub state: usize,
    /// a.
    pub action: usize,
    /// r.
    pub reward: f64,
    /// s'.
    pub next_state: usize,
    /// d.
    pub is_final: bool,
    /// Whether the episode goes on.
    pub goes_on: bool,
}

/// The decisions of a few episodes, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rollout {
    decisions: Vec<Decision>,
    episodes: usize,
}

/// A_t before normalisation, and y_t.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimates {
    /// A_t.
    pub advantages: Vec<f64>,
    /// y_t.
    pub targets: Vec<f64>,
}

impl Rollout {
    /// Remembers a transition.
    pub fn store(&mut self, transition: &Transition) {
        let Transition { x, action, reward, next, end } = *transition;
        self.decisions.push(Decision {
            stage: x.stage,
            state: state(&x),
            action,
            reward,
            next_state: state(&next),
            is_final: end.is_final(),
            goes_on: !end.is_over(),
        });
        self.episodes += usize::from(end.is_over());
    }

    /// Whole episodes remembered.
    pub fn episodes(&self) -> usize {
        self.episodes
    }

    /// The decisions.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.decisions.clear();
        self.episodes = 0;
    }

    /// Advantages and λ-returns from the values V.
    pub fn estimate(&self, values: &StageTable, gae_lambda: f64) -> Estimates {
        let value = |stage, state| values.read(stage, state)[0];
        let mut advantages = vec![0.0; self.decisions.len()];
        let mut targets = advantages.clone();
        let mut following = 0.0;
        for (t, decision) in self.decisions.iter().enumerate().rev() {
            let Decision { stage, state, reward, next_state, is_final, goes_on, .. } = *decision;
            let baseline = value(stage, state);
            let bootstrap = if is_final { 0.0 } else { value(stage + 1, next_state) };
            let delta = reward + bootstrap - baseline;
            advantages[t] = delta + if goes_on { gae_lambda * following } else { 0.0 };
            targets[t] = advantages[t] + baseline;
            following = advantages[t];
        }
        Estimates { advantages, targets }
    }

    /// One pass of gradient steps on ½(V − y)², in the order of the episodes.
    ///
    /// The parts of the table share a step, so that at `value_rate` = 1 a value jumps to its target.
    pub fn fit(&self, values: &mut StageTable, targets: &[f64], value_rate: f64) {
        let share = value_rate / values.n_parts() as f64;
        for (Decision { stage, state, .. }, y) in self.decisions.iter().zip(targets) {
            let error = y - values.read(*stage, *state)[0];
            values.add(*stage, *state, &[share * error]);
        }
    }

    pub(crate) fn to_arrays(&self) -> Vec<Array> {
        let column = |of: fn(&Decision) -> usize| -> Vec<u64> {
            self.decisions.iter().map(|decision| of(decision) as u64).collect()
        };
        let rewards: Vec<f64> = self.decisions.iter().map(|decision| decision.reward).collect();
        vec![
            Array::u64("stages", &column(|d| d.stage)),
            Array::u64("states", &column(|d| d.state)),
            Array::u64("actions", &column(|d| d.action)),
            Array::f64("rewards", &rewards),
            Array::u64("next_states", &column(|d| d.next_state)),
            Array::u64("final", &column(|d| usize::from(d.is_final))),
            Array::u64("goes_on", &column(|d| usize::from(d.goes_on))),
        ]
    }

    pub(crate) fn from_arrays(
        arrays: &Arrays,
        n_states: usize,
        n_actions: usize,
    ) -> Result<Self, RestoreError> {
        let column = |name, below: usize| -> Result<Vec<usize>, RestoreError> {
            let values = arrays.u64(name)?;
            match values.iter().find(|&&value| value >= below as u64) {
                Some(value) => Err(RestoreError(format!("{name} holds {value}, want values below {below}"))),
                None => Ok(values.into_iter().map(|value| value as usize).collect()),
            }
        };
        let stages = column("stages", usize::MAX)?;
        let n = stages.len();
        let states = column("states", n_states)?;
        let actions = column("actions", n_actions)?;
        let rewards = arrays.f64("rewards")?;
        let next_states = column("next_states", n_states)?;
        let is_final = column("final", 2)?;
        let goes_on = column("goes_on", 2)?;
        if [&states, &actions, &next_states, &is_final, &goes_on].iter().any(|column| column.len() != n)
            || rewards.len() != n
        {
            return Err(RestoreError("the rollout's columns have different lengths".into()));
        }
        let decisions: Vec<Decision> = (0..n)
            .map(|t| Decision {
                stage: stages[t],
                state: states[t],
                action: actions[t],
                reward: rewards[t],
                next_state: next_states[t],
                is_final: is_final[t] == 1,
                goes_on: goes_on[t] == 1,
            })
            .collect();
        Ok(Self { episodes: decisions.iter().filter(|decision| !decision.goes_on).count(), decisions })
    }
}

/// Mean 0 and standard deviation 1 (dividing by n), or all 0 where they are equal.
pub fn normalise(advantages: &mut [f64]) {
    let n = advantages.len() as f64;
    let mean = advantages.iter().sum::<f64>() / n;
    advantages.iter_mut().for_each(|a| *a -= mean);
    let deviation = (advantages.iter().map(|a| a * a).sum::<f64>() / n).sqrt();
    // Equal advantages differ from their mean by rounding only.
    let scale = if deviation > 1e-9 * (1.0 + mean.abs()) { deviation.recip() } else { 0.0 };
    advantages.iter_mut().for_each(|a| *a *= scale);
}
