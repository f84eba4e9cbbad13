//! Targets of the Bellman update, one sample per lane.
//!
//! ```text
//! one action     a⁺   = argmax_a Σ_j c_j ẑ_j(x', a)        Eq. (3): for all levels; c_j = w_j/β, plus the tie-break
//! one per level  a_i⁺ = argmax_a ẑ_i(x', a)                 target tracking
//! y_i = clip( r + γ (1−d) z̃_i(x', a⁺) + d ℓ η_i )          to [lo, hi + ℓ]; the lowest index wins a tie; ℓ = 0 but for a ramp
//! ```
//!
//! ẑ, which chooses, and z̃, which is taken over, may be the same quantiles.

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};
use crate::rule::{Choice, Head};

pub(crate) struct Targets<'a> {
    /// ẑ and z̃, sorted: K rows of `width` lanes for each action.
    pub choosing: &'a [f32],
    pub sorted: &'a [f32],
    pub width: usize,
    pub n_quantiles: usize,
    pub head: &'a Head,
    /// The levels η_1..η_K.
    pub eta: &'a [f32],
    /// r and 1−d, per lane.
    pub rewards: &'a [f32],
    pub continuation: &'a [f32],
    /// lo and hi.
    pub bounds: (f32, f32),
    /// K rows of `width` lanes.
    pub out: &'a mut [f32],
}

impl WithSimd for Targets<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (k, columns) = (self.n_quantiles, self.width / S::F32_LANES);
        let (choosing, sorted) = (vectors::<S>(self.choosing), vectors::<S>(self.sorted));
        let (rewards, continuation) = (vectors::<S>(self.rewards), vectors::<S>(self.continuation));
        let (low, high) = (simd.splat_f32s(self.bounds.0), simd.splat_f32s(self.bounds.1 + self.head.ramp));
        let targets = vectors_mut::<S>(self.out);
        for column in 0..columns {
            let chosen = match &self.head.choice {
                Choice::One(score) => Some(best_score(simd, choosing, score, columns, column)),
                Choice::PerLevel => None,
            };
            for j in 0..k {
                let row = j * columns + column;
                let chosen = chosen.unwrap_or_else(|| best_at(simd, choosing, k * columns, row));
                let mut z = sorted[row];
                for (a, action) in sorted.chunks_exact(k * columns).enumerate().skip(1) {
                    let taken = simd.equal_f32s(chosen, simd.splat_f32s(a as f32));
                    z = simd.select_f32s(taken, action[row], z);
                }
                let ramp = simd.splat_f32s(self.head.ramp * self.eta[j]);
                let over = simd.sub_f32s(simd.splat_f32s(1.0), continuation[column]);
                let y = simd.mul_add_e_f32s(continuation[column], z, rewards[column]);
                let y = simd.mul_add_e_f32s(over, ramp, y);
                targets[row] = simd.max_f32s(simd.min_f32s(y, high), low);
            }
        }
    }
}

/// argmax_a Σ_j c_j z_j(a), as a float.
#[inline(always)]
fn best_score<S: Simd>(simd: S, rows: &[S::f32s], score: &[f32], columns: usize, column: usize) -> S::f32s {
    // The window of the buffer is often narrow: rows without weight are skipped.
    let first = score.iter().position(|&c| c != 0.0).unwrap_or(0);
    let end = score.iter().rposition(|&c| c != 0.0).map_or(0, |last| last + 1);
    let zero = simd.splat_f32s(0.0);
    let (mut best, mut chosen) = (zero, zero);
    for (a, action) in rows.chunks_exact(score.len() * columns).enumerate() {
        let mut sum = zero;
        for j in first..end {
            sum = simd.mul_add_e_f32s(simd.splat_f32s(score[j]), action[j * columns + column], sum);
        }
        let index = simd.splat_f32s(a as f32);
        let better = simd.greater_than_f32s(sum, best);
        best = if a == 0 { sum } else { simd.select_f32s(better, sum, best) };
        chosen = if a == 0 { index } else { simd.select_f32s(better, index, chosen) };
    }
    chosen
}

/// argmax_a z(a) in one row of every action, as a float.
#[inline(always)]
fn best_at<S: Simd>(simd: S, rows: &[S::f32s], stride: usize, row: usize) -> S::f32s {
    let (mut best, mut chosen) = (rows[row], simd.splat_f32s(0.0));
    for (a, action) in rows.chunks_exact(stride).enumerate().skip(1) {
        let better = simd.greater_than_f32s(action[row], best);
        best = simd.select_f32s(better, action[row], best);
        chosen = simd.select_f32s(better, simd.splat_f32s(a as f32), chosen);
    }
    chosen
}

/// Combines the rows of several twins into those of the first: their mean, or the least.
pub(crate) struct Combine<'a> {
    pub rows: &'a mut [f32],
    pub n_twins: usize,
    pub least: bool,
}

impl WithSimd for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = vectors_mut::<S>(self.rows);
        let n = rows.len() / self.n_twins;
        let (first, others) = rows.split_at_mut(n);
        let share = simd.splat_f32s(1.0 / self.n_twins as f32);
        for (i, first) in first.iter_mut().enumerate() {
            let mut sum = *first;
            for other in others.chunks_exact(n) {
                sum = if self.least { simd.min_f32s(sum, other[i]) } else { simd.add_f32s(sum, other[i]) };
            }
            *first = if self.least { sum } else { simd.mul_f32s(sum, share) };
        }
    }
}
