//! A table with a row of numbers per (h, s), shared between stages as far as the settings say; softmax policies on it.
//!
//! ```text
//! row(h, s) = Σ_k θ_k(⌊h / w_k⌋, s)                 one table θ_k per width w_k of `stage_widths`
//! π(a | h, s) = exp row_a / Σ_b exp row_b           where the row is one logit per action
//! ∂ row_b / ∂ θ_k(⌊h/w_k⌋, s)_b = 1                  so a gradient in the row is the same gradient in every θ_k
//! ```
//!
//! Widths `[1]` give one independent row per (h, s): the plain table. `[1, H]` adds a row that all stages of a state share, so
//! that a visit teaches the other stages too while every (h, s) still has a row of its own and can represent any policy;
//! `[H]` alone is a stationary table. Whatever is linear in the rows (gradients, the Fisher product) goes through
//! [`StageTable::read`] and its transpose [`StageTable::add`].

use crate::AgentError;
use crate::settings::require;

/// The most tables that add up.
const MAX_WIDTHS: usize = 32;

/// Refuses widths that make no table.
pub(crate) fn check_widths(widths: &[usize]) -> Result<(), AgentError> {
    let increasing = widths.first().is_some_and(|&first| first > 0) && widths.windows(2).all(|w| w[0] < w[1]);
    let holds = increasing && widths.len() <= MAX_WIDTHS;
    let want = format!("be positive and increasing, 1 to {MAX_WIDTHS} of them");
    require("stage_widths", holds, &want, &format!("{widths:?}"))
}

/// The largest number whose sums over all widths are finite.
const LARGEST: f64 = 1e300;

/// A row of numbers per (h, s).
#[derive(Clone, Debug, PartialEq)]
pub struct StageTable {
    horizon: usize,
    n_states: usize,
    n_columns: usize,
    /// w_k, and where θ_k begins.
    parts: Vec<(usize, usize)>,
    values: Vec<f64>,
}

impl StageTable {
    /// All zero.
    pub fn new(widths: &[usize], horizon: usize, n_states: usize, n_columns: usize) -> Self {
        let mut end = 0;
        let mut part = |&width: &usize| {
            let start = end;
            end += horizon.div_ceil(width) * n_states * n_columns;
            (width, start)
        };
        let parts = widths.iter().map(&mut part).collect();
        Self { horizon, n_states, n_columns, parts, values: vec![0.0; end] }
    }

    /// A table of the same shape, all zero.
    #[must_use]
    pub fn zeros(&self) -> Self {
        Self { values: vec![0.0; self.values.len()], ..self.clone() }
    }

    /// θ, one table after the other.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// A θ that is so large that sums may not be finite, if there is one: from such logits no action could be drawn.
    pub fn unbounded(&self) -> Option<f64> {
        self.values.iter().copied().find(|value| value.is_nan() || value.abs() > LARGEST)
    }

    /// θ, to be changed.
    pub fn values_mut(&mut self) -> &mut [f64] {
        &mut self.values
    }

    /// Where the rows of (h, s) begin, one in every part. A cut-off bootstraps at h = H, from the last stage's row.
    pub(crate) fn rows(&self, stage: usize, state: usize) -> impl Iterator<Item = usize> + use<'_> {
        assert!(state < self.n_states, "state {state}, want one below {}", self.n_states);
        let stage = stage.min(self.horizon - 1);
        self.parts
            .iter()
            .map(move |(width, start)| start + ((stage / width) * self.n_states + state) * self.n_columns)
    }

    /// row(h, s).
    pub fn read(&self, stage: usize, state: usize) -> Vec<f64> {
        let mut row = vec![0.0; self.n_columns];
        for start in self.rows(stage, state) {
            row.iter_mut().zip(&self.values[start..]).for_each(|(sum, value)| *sum += value);
        }
        row
    }

    /// Adds `row` to the row of (h, s) in every part.
    pub fn add(&mut self, stage: usize, state: usize, row: &[f64]) {
        assert_eq!(row.len(), self.n_columns, "columns of a row");
        let starts: Vec<usize> = self.rows(stage, state).collect();
        for start in starts {
            self.values[start..].iter_mut().zip(row).for_each(|(value, more)| *value += more);
        }
    }

    /// π(· | h, s), where the rows are logits.
    pub fn policy(&self, stage: usize, state: usize) -> Vec<f64> {
        softmax(self.read(stage, state))
    }
}

/// exp x_a / Σ_b exp x_b, without overflow.
pub(crate) fn softmax(mut x: Vec<f64>) -> Vec<f64> {
    let largest = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for x in &mut x {
        *x = (*x - largest).exp();
    }
    let total: f64 = x.iter().sum();
    for x in &mut x {
        *x /= total;
    }
    x
}

/// ∂ log π(a) / ∂ logit_b = 1{a = b} − π_b, times `scale`.
pub(crate) fn score_function(policy: &[f64], action: usize, scale: f64) -> Vec<f64> {
    let entry = |(b, p)| scale * (f64::from(u8::from(b == action)) - p);
    policy.iter().enumerate().map(entry).collect()
}

/// The weight of ∇ log π in the gradient of min(ρ A, clip(ρ, 1−ε, 1+ε) A): ρ A, or 0 where the clipped term is smaller.
pub(crate) fn clipped(ratio: f64, advantage: f64, clip: f64) -> f64 {
    let outside = if advantage > 0.0 { ratio > 1.0 + clip } else { ratio < 1.0 - clip };
    if outside { 0.0 } else { ratio * advantage }
}

/// Adds `weight` · ∇ H(π) with respect to the logits: −π_b (ln π_b + H).
pub(crate) fn add_entropy(gradient: &mut [f64], policy: &[f64], weight: f64) {
    let information = |p: &f64| if *p > 0.0 { -p * p.ln() } else { 0.0 };
    let entropy: f64 = policy.iter().map(information).sum();
    for (g, p) in gradient.iter_mut().zip(policy) {
        *g += weight * (information(p) - p * entropy);
    }
}

/// KL(old ‖ new) = Σ_a old_a ln(old_a / new_a).
pub(crate) fn kl(old: &[f64], new: &[f64]) -> f64 {
    let term = |(old, new): (&f64, &f64)| if *old > 0.0 { old * (old / new).ln() } else { 0.0 };
    old.iter().zip(new).map(term).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(got: &[f64], want: &[f64]) {
        assert_eq!(got.len(), want.len());
        assert!(got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-12), "got {got:?}, want {want:?}");
    }

    #[test]
    fn rows_of_a_plain_table_are_independent() {
        let mut table = StageTable::new(&[1], 3, 2, 2);
        table.add(1, 0, &[1.0, 2.0]);
        for (stage, state) in [(0, 0), (0, 1), (1, 1), (2, 0), (2, 1)] {
            assert_eq!(table.read(stage, state), [0.0, 0.0]);
        }
        assert_eq!(table.read(1, 0), [1.0, 2.0]);
    }

    #[test]
    fn stages_share_what_their_groups_share() {
        // H = 5, widths 1 and 2: stages 2 and 3 share a group, stages 0 and 1 another, stage 4 the last. No state is shared.
        let mut table = StageTable::new(&[1, 2], 5, 2, 1);
        table.add(2, 1, &[1.0]);
        let column = |state| (0..5).map(|stage| table.read(stage, state)[0]).collect::<Vec<_>>();
        assert_eq!(column(1), [0.0, 0.0, 2.0, 1.0, 0.0]);
        assert_eq!(column(0), [0.0; 5]);
        // A width beyond the horizon is one group; past the last decision its row is read.
        let mut stationary = StageTable::new(&[100], 5, 2, 1);
        stationary.add(0, 0, &[1.0]);
        assert_eq!([0, 4, 5].map(|stage| stationary.read(stage, 0)[0]), [1.0; 3]);
    }

    #[test]
    fn add_is_the_transpose_of_read() {
        // ⟨read(θ)(h, s), row⟩ = ⟨θ, addᵀ(row)⟩ for every θ.
        let mut theta = StageTable::new(&[1, 3, 7], 8, 3, 2);
        for (i, value) in theta.values_mut().iter_mut().enumerate() {
            *value = (i as f64 * 0.7).sin();
        }
        for (stage, state) in [(0, 0), (5, 2), (7, 1)] {
            let row = [0.3, -1.1];
            let mut spread = theta.zeros();
            spread.add(stage, state, &row);
            let inner = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
            close(&[inner(&theta.read(stage, state), &row)], &[inner(theta.values(), spread.values())]);
        }
    }

    #[test]
    fn softmax_and_kl_match_hand_computation() {
        // Logits ln 1, ln 3: π = (1/4, 3/4), however large they are.
        close(&softmax(vec![0.0, 3.0_f64.ln()]), &[0.25, 0.75]);
        close(&softmax(vec![1e4, 1e4 + 3.0_f64.ln()]), &[0.25, 0.75]);
        close(&softmax(vec![-1e9, 0.0]), &[0.0, 1.0]);
        // KL((½,½) ‖ (¼,¾)) = ½ ln 2 + ½ ln(2/3); the other direction is ¼ ln ½ + ¾ ln(3/2).
        let (even, uneven) = ([0.5, 0.5], [0.25, 0.75]);
        close(&[kl(&even, &uneven)], &[0.5 * (2.0_f64.ln() + (2.0_f64 / 3.0).ln())]);
        close(&[kl(&uneven, &even)], &[0.25 * 0.5_f64.ln() + 0.75 * 1.5_f64.ln()]);
        close(&[kl(&[0.0, 1.0], &uneven)], &[(4.0_f64 / 3.0).ln()]);
    }

    #[test]
    fn the_score_function_is_the_derivative_of_log_pi() {
        let logits = [0.3, -0.8, 1.1];
        let log_pi = |logits: &[f64]| softmax(logits.to_vec())[1].ln();
        let gradient = score_function(&softmax(logits.to_vec()), 1, 2.0);
        for b in 0..3 {
            let step = 1e-5;
            let at = |sign: f64| {
                let mut moved = logits;
                moved[b] += sign * step;
                log_pi(&moved)
            };
            let numeric = 2.0 * (at(1.0) - at(-1.0)) / (2.0 * step);
            assert!((gradient[b] - numeric).abs() < 1e-8, "column {b}: {} and {numeric}", gradient[b]);
        }
    }
}
