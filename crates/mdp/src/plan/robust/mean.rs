//! The mean, and the inner maximum over the ball.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::{RobustModel, range};
use crate::model::Outcome;

/// A successor: its ℓ and b, and the nominal probability of going there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) loss: f64,
    pub(super) below: f64,
    pub(super) mass: f64,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.loss.total_cmp(&other.loss)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// The inner minimum: the decrease of Σ p ℓ, and of Σ p b, when ρ/2 moves to `best` from the entries with the largest ℓ (less
/// than ρ/2 if no entry worse than `best` is left). A heap finds the entries one by one: a small ρ needs few. Empties `entries`.
pub(super) fn move_mass(entries: &mut Vec<Entry>, best: (f64, f64), radius: f64) -> (f64, f64) {
    let mut heap = BinaryHeap::from(std::mem::take(entries));
    let mut left = radius / 2.0;
    let (mut off, mut off_below) = (0.0, 0.0);
    while left > 0.0
        && let Some(worst) = heap.pop()
        && worst.loss > best.0
    {
        let mass = worst.mass.min(left);
        left -= mass;
        off += mass * (worst.loss - best.0);
        off_below += mass * (worst.below - best.1);
    }
    *entries = heap.into_vec();
    entries.clear();
    (off, off_below)
}

/// The risk-neutral plan in the most favourable model of the ball.
#[derive(Clone, Debug)]
pub struct RobustMean {
    /// V_h(s) for stages 0..=H.
    pub(super) values: Vec<Vec<f64>>,
    /// A_h(s, a) ≥ 0.
    pub(super) losses: Vec<Vec<f64>>,
    pub(super) actions: Vec<Vec<u16>>,
}

impl RobustMean {
    /// Plans; with `optimistic` false the nominal probabilities count as the true ones.
    pub fn new(model: &RobustModel, optimistic: bool) -> Self {
        model.check();
        let RobustModel { n_states, n_actions, horizon, .. } = *model;
        let mut plan = Self {
            values: vec![vec![0.0; n_states]; horizon + 1],
            losses: vec![Vec::new(); horizon],
            actions: vec![Vec::new(); horizon],
        };
        let mut entries = Vec::new();
        for stage in (0..horizon).rev() {
            let discount = model.discount.powi(stage as i32);
            let rows = &model.kernels[model.kernel(stage)];
            let later = &plan.values[stage + 1];
            let there: Vec<f64> = (0..n_states).map(|s| discount * model.arrival[s] + later[s]).collect();
            let (_, best) = range(there.iter().copied());
            let shared: Vec<f64> =
                model.shared.iter().map(|p| p.iter().zip(&there).map(|(p, v)| p * v).sum()).collect();
            let mut means = vec![0.0; n_states * n_actions];
            // Rows that were never tried differ only in `elsewhere`.
            let mut untried: Vec<(usize, u64, f64)> = Vec::new();
            for (index, row) in rows.iter().enumerate() {
                if model.terminal[index / n_actions] {
                    continue;
                }
                let (which, radius) =
                    (model.shared_of(index % n_actions), if optimistic { row.radius } else { 0.0 });
                let elsewhere = discount * row.elsewhere;
                if radius >= 2.0 {
                    means[index] = elsewhere + best;
                    continue;
                }
                let key = (which, radius.to_bits());
                if row.outcomes.is_empty()
                    && let Some(&(.., mean)) = untried.iter().find(|&&(w, r, _)| (w, r) == key)
                {
                    means[index] = elsewhere + mean;
                    continue;
                }
                let value = |o: &Outcome| discount * o.reward + later[o.next];
                let seen: f64 = row.outcomes.iter().map(|o| o.probability * value(o)).sum();
                let mut mean = seen + row.shared * (elsewhere + shared[which]);
                if radius > 0.0 {
                    // Values are costs with the opposite sign.
                    let entry = |value: f64, mass| Entry { loss: -value, below: -value, mass };
                    entries.extend(row.outcomes.iter().map(|o| entry(value(o), o.probability)));
                    if row.shared > 0.0 {
                        let distribution = there.iter().zip(&model.shared[which]);
                        entries.extend(distribution.map(|(v, p)| entry(elsewhere + v, row.shared * p)));
                    }
                    let best = -(elsewhere + best);
                    mean += move_mass(&mut entries, (best, best), radius).0;
                }
                if row.outcomes.is_empty() {
                    untried.push((key.0, key.1, mean - elsewhere));
                }
                means[index] = mean;
            }
            let scale = means.iter().fold(0.0f64, |scale, m| scale.max(m.abs()));
            let mut actions = vec![0; n_states];
            for state in (0..n_states).filter(|&s| !model.terminal[s]) {
                let means = &mut means[state * n_actions..(state + 1) * n_actions];
                let mut best = 0;
                for action in 1..n_actions {
                    // Equal means may differ by rounding; the lowest index must still win.
                    if means[action] > means[best] + 1e-12 * scale {
                        best = action;
                    }
                }
                let top = means[best];
                actions[state] = best as u16;
                plan.values[stage][state] = top;
                for mean in means {
                    *mean = (top - *mean).max(0.0);
                }
            }
            plan.losses[stage] = means;
            plan.actions[stage] = actions;
        }
        plan
    }

    /// V_h(s).
    pub fn value(&self, stage: usize, state: usize) -> f64 {
        self.values[stage][state]
    }

    /// The action that attains it, the lowest index among equals.
    pub fn action(&self, stage: usize, state: usize) -> usize {
        usize::from(self.actions[stage][state])
    }
}
