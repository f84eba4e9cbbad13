//! One sample through one layer: lanes are inputs, because there is only one sample.

use pulp::{Simd, WithSimd};

use super::vectors;

/// Rows worked on at a time, so that their sums are independent.
const ROWS: usize = 4;

/// `out[o] = b_o + Σ_i W[o][i] x_i`, then ReLU if asked for.
pub(crate) struct Matvec<'a> {
    /// W, rows as long as `x`.
    pub weights: &'a [f32],
    pub bias: &'a [f32],
    /// Padded with zeros to whole vectors.
    pub x: &'a [f32],
    pub out: &'a mut [f32],
    pub relu: bool,
}

impl WithSimd for Matvec<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let x = vectors::<S>(self.x);
        let rows = vectors::<S>(self.weights);
        let n = self.out.len();
        let finish = |sum: f32| if self.relu && sum < 0.0 { 0.0 } else { sum };
        let mut o = 0;
        while o + ROWS <= n {
            let rows = &rows[o * x.len()..][..ROWS * x.len()];
            let mut sums = [simd.splat_f32s(0.0); ROWS];
            for (i, &x_i) in x.iter().enumerate() {
                for r in 0..ROWS {
                    sums[r] = simd.mul_add_e_f32s(rows[r * x.len() + i], x_i, sums[r]);
                }
            }
            for r in 0..ROWS {
                self.out[o + r] = finish(self.bias[o + r] + simd.reduce_sum_f32s(sums[r]));
            }
            o += ROWS;
        }
        for o in o..n {
            let mut sum = simd.splat_f32s(0.0);
            for (&w, &x_i) in rows[o * x.len()..].iter().zip(x) {
                sum = simd.mul_add_e_f32s(w, x_i, sum);
            }
            self.out[o] = finish(self.bias[o] + simd.reduce_sum_f32s(sum));
        }
    }
}
