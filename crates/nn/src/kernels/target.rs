//! Targets of the Bellman update, one sample per lane.
//!
//! ```text
//! score(a) = Σ_j c_j z̃_j(x', a)                    c_j = w_j/β, plus the tie-break
//! a⁺       = argmax_a score(a)                      Eq. (3): one action for all quantiles; the lowest index wins a tie
//! y_i      = r + γ(1−d) z̃_i(x', a⁺)
//! ```

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};

pub(crate) struct Targets<'a> {
    /// z̃, sorted: K rows of `width` lanes for each action.
    pub sorted: &'a [f32],
    pub width: usize,
    /// The coefficients c_1..c_K.
    pub score: &'a [f32],
    /// r and γ(1−d), per lane.
    pub rewards: &'a [f32],
    pub continuation: &'a [f32],
    /// K rows of `width` lanes.
    pub out: &'a mut [f32],
}

impl WithSimd for Targets<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let k = self.score.len();
        let columns = self.width / S::F32_LANES;
        let rows = vectors::<S>(self.sorted);
        let (rewards, continuation) = (vectors::<S>(self.rewards), vectors::<S>(self.continuation));
        let targets = vectors_mut::<S>(self.out);
        // The window of the buffer is often narrow: rows without weight are skipped.
        let first = self.score.iter().position(|&c| c != 0.0).unwrap_or(0);
        let end = self.score.iter().rposition(|&c| c != 0.0).map_or(0, |last| last + 1);
        for column in 0..columns {
            let zero = simd.splat_f32s(0.0);
            let (mut best, mut chosen) = (zero, zero);
            for (a, action) in rows.chunks_exact(k * columns).enumerate() {
                let mut score = zero;
                for j in first..end {
                    score = simd.mul_add_e_f32s(
                        simd.splat_f32s(self.score[j]),
                        action[j * columns + column],
                        score,
                    );
                }
                let index = simd.splat_f32s(a as f32);
                let better = simd.greater_than_f32s(score, best);
                best = if a == 0 { score } else { simd.select_f32s(better, score, best) };
                chosen = if a == 0 { index } else { simd.select_f32s(better, index, chosen) };
            }
            for j in 0..k {
                let mut z = rows[j * columns + column];
                for (a, action) in rows.chunks_exact(k * columns).enumerate().skip(1) {
                    let taken = simd.equal_f32s(chosen, simd.splat_f32s(a as f32));
                    z = simd.select_f32s(taken, action[j * columns + column], z);
                }
                targets[j * columns + column] = simd.mul_add_e_f32s(continuation[column], z, rewards[column]);
            }
        }
    }
}
