//! The logistic function, one sample per lane.
//!
//! ```text
//! v = low + (high − low)·σ(z + shift)        σ(z) = ½ + ½ tanh(z/2)
//! tanh(t) ≈ t·p(t²)/q(t²)                     on |t| ≤ 7.9, where it is 1 to single precision
//! ```
//!
//! The rational function is that of Eigen (`generic_fast_tanh_float`): a few units in the last place, without an
//! exponential, which vector instructions do not have.

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};

/// Beyond this, tanh is ±1.
const CLAMP: f32 = 7.905_311;
/// Coefficients of p, the highest power first.
const P: [f32; 7] = [
    -2.760_768_5e-16,
    2.000_188e-13,
    -8.604_672e-11,
    5.122_297e-8,
    1.485_722_4e-5,
    6.372_619e-4,
    4.893_525e-3,
];
/// Coefficients of q.
const Q: [f32; 4] = [1.198_258_4e-6, 1.185_347e-4, 2.268_434_7e-3, 4.893_525_3e-3];

/// Squeezes logits into an interval.
pub(crate) struct Squash<'a> {
    /// Rows of `shift.len()` lanes.
    pub logits: &'a [f32],
    /// Added to the logits, per lane.
    pub shift: &'a [f32],
    pub low: f32,
    pub high: f32,
    pub out: &'a mut [f32],
}

impl WithSimd for Squash<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let splat = |value| simd.splat_f32s(value);
        let half_width = splat(0.5 * (self.high - self.low));
        let (half, middle) = (splat(0.5), splat(0.5 * (self.high + self.low)));
        let (upper, lower) = (splat(CLAMP), splat(-CLAMP));
        let shift = vectors::<S>(self.shift);
        let rows = vectors::<S>(self.logits).chunks_exact(shift.len());
        let outs = vectors_mut::<S>(self.out).chunks_exact_mut(shift.len());
        for (row, out) in rows.zip(outs) {
            for ((&z, &shift), out) in row.iter().zip(shift).zip(out) {
                let t = simd.mul_f32s(half, simd.add_f32s(z, shift));
                let t = simd.max_f32s(simd.min_f32s(t, upper), lower);
                let square = simd.mul_f32s(t, t);
                let mut p = splat(P[0]);
                for &coefficient in &P[1..] {
                    p = simd.mul_add_e_f32s(p, square, splat(coefficient));
                }
                let mut q = splat(Q[0]);
                for &coefficient in &Q[1..] {
                    q = simd.mul_add_e_f32s(q, square, splat(coefficient));
                }
                let tanh = simd.div_f32s(simd.mul_f32s(t, p), q);
                *out = simd.mul_add_e_f32s(half_width, tanh, middle);
            }
        }
    }
}
