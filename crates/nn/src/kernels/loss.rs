//! The quantile Huber loss of Eq. (4), the smoothed quantile loss, and their gradients, one sample per lane.
//!
//! ```text
//! δ_ij      = y_i − z_j                      raw z_j(x, a) of the action taken
//! ρ         = |η_j − 1{δ < 0}| h_κ(δ)/κ      Eq. (4);  h_κ(δ) = t (δ − t/2),  t = clamp(δ, −κ, κ)
//!           = (η_j − ½) δ + h_κ(δ)/(2κ)      smoothed: the mean of the quantile loss over z_j ± κ, up to a constant
//! 𝒥         = 1/(B K²) Σ_b Σ_i Σ_j ρ
//! ∂𝒥/∂z_j   = −1/(B K²) Σ_i (1−η_j) c + (2η_j−1) p     c = clamp(δ_ij/κ, −1, 1),  p = clamp(δ_ij/κ, 0, 1)
//!           = −1/(B K²) Σ_i (η_j − ½) + c/2            smoothed
//! ```
//!
//! All K×K pairs without a branch: six operations each (smoothed: four), three of them multiply-adds, because some processors
//! have separate pipes for those and for minimum and maximum. Prefix sums over the sorted targets would need only K log K, but
//! are slower up to K = 200 (measured).

use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};

/// Levels worked on at a time, so that their sums are independent and one load of y serves all.
const LEVELS: usize = 4;

/// Operands of both kernels: one action, in the lanes that took it.
#[derive(Clone)]
pub(crate) struct Pairs<'a> {
    /// Raw z of the action, and y: K rows of `width` lanes.
    pub outputs: &'a [f32],
    pub targets: &'a [f32],
    pub width: usize,
    /// The lanes to compute, rounded to whole vectors.
    pub lanes: Range<usize>,
    /// The action taken, per lane, and the one that is meant here.
    pub taken: &'a [f32],
    pub action: f32,
    /// The levels η_1..η_K.
    pub eta: &'a [f32],
    pub kappa: f32,
    /// Whether the loss is the smoothed one.
    pub smooth: bool,
}

impl Pairs<'_> {
    fn columns<S: Simd>(&self) -> Range<usize> {
        self.lanes.start / S::F32_LANES..self.lanes.end.div_ceil(S::F32_LANES)
    }
}

/// Writes ∂𝒥/∂z of the action: zero in lanes of the same vectors that took another one.
pub(crate) struct Gradient<'a> {
    pub pairs: Pairs<'a>,
    pub batch: usize,
    pub out: &'a mut [f32],
}

impl WithSimd for Gradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let k = self.pairs.eta.len();
        for column in self.pairs.columns::<S>() {
            let mut j = 0;
            while j + LEVELS <= k {
                self.levels::<S, LEVELS>(simd, j, column);
                j += LEVELS;
            }
            while j < k {
                self.levels::<S, 1>(simd, j, column);
                j += 1;
            }
        }
    }
}

impl Gradient<'_> {
    #[inline(always)]
    fn levels<S: Simd, const N: usize>(&mut self, simd: S, j: usize, column: usize) {
        let Pairs { outputs, targets, eta, kappa, width, smooth, .. } = self.pairs;
        let (k, columns) = (eta.len(), width / S::F32_LANES);
        let (zero, one, minus_one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0), simd.splat_f32s(-1.0));
        let inverse = simd.splat_f32s(1.0 / kappa);
        // −z/κ.
        let (z, mut minus_z) = (vectors::<S>(outputs), [zero; N]);
        for n in 0..N {
            let z = z[(j + n) * columns + column];
            minus_z[n] = simd.mul_f32s(simd.mul_f32s(minus_one, z), inverse);
        }
        let mut sums = [zero; N];
        let targets = vectors::<S>(targets).chunks_exact(columns).map(|targets| targets[column]);
        if smooth {
            for y in targets {
                for n in 0..N {
                    let below_one = simd.min_f32s(simd.mul_add_e_f32s(y, inverse, minus_z[n]), one);
                    sums[n] = simd.add_f32s(sums[n], simd.max_f32s(below_one, minus_one));
                }
            }
            for n in 0..N {
                let constant = simd.splat_f32s(k as f32 * (eta[j + n] - 0.5));
                sums[n] = simd.mul_add_e_f32s(simd.splat_f32s(0.5), sums[n], constant);
            }
        } else {
            let (mut rest, mut tilt) = ([zero; N], [zero; N]);
            for n in 0..N {
                rest[n] = simd.splat_f32s(1.0 - eta[j + n]);
                tilt[n] = simd.splat_f32s(2.0 * eta[j + n] - 1.0);
            }
            for y in targets {
                for n in 0..N {
                    let below_one = simd.min_f32s(simd.mul_add_e_f32s(y, inverse, minus_z[n]), one);
                    sums[n] = simd.mul_add_e_f32s(rest[n], simd.max_f32s(below_one, minus_one), sums[n]);
                    sums[n] = simd.mul_add_e_f32s(tilt[n], simd.max_f32s(below_one, zero), sums[n]);
                }
            }
        }
        // 𝒥, Eq. (4): mean over the batch and the K×K pairs. κ is divided out already.
        let scale = simd.splat_f32s((-1.0 / (self.batch * k * k) as f64) as f32);
        let taken =
            simd.equal_f32s(vectors::<S>(self.pairs.taken)[column], simd.splat_f32s(self.pairs.action));
        let out = vectors_mut::<S>(self.out);
        for n in 0..N {
            out[(j + n) * columns + column] = simd.select_f32s(taken, simd.mul_f32s(scale, sums[n]), zero);
        }
    }
}

/// Σ_i Σ_j ρ per lane.
pub(crate) struct Loss<'a> {
    pub pairs: Pairs<'a>,
    pub sums: &'a mut [f32],
}

impl WithSimd for Loss<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let range = self.pairs.columns::<S>();
        let Pairs { outputs, eta, kappa, width, targets, smooth, .. } = self.pairs;
        let columns = width / S::F32_LANES;
        let zero = simd.splat_f32s(0.0);
        let (upper, lower) = (simd.splat_f32s(kappa), simd.splat_f32s(-kappa));
        let minus_half = simd.splat_f32s(-0.5);
        for column in range {
            let sum = &mut vectors_mut::<S>(self.sums)[column];
            *sum = zero;
            for (j, &eta) in eta.iter().enumerate() {
                let z = vectors::<S>(outputs)[j * columns + column];
                let (mut above, mut below, mut plain) = (zero, zero, zero);
                for targets in vectors::<S>(targets).chunks_exact(columns) {
                    let delta = simd.sub_f32s(targets[column], z);
                    plain = simd.add_f32s(plain, delta);
                    let t = simd.max_f32s(simd.min_f32s(delta, upper), lower);
                    let rest = simd.mul_add_e_f32s(minus_half, t, delta);
                    above = simd.mul_add_e_f32s(simd.max_f32s(t, zero), rest, above);
                    below = simd.mul_add_e_f32s(simd.min_f32s(t, zero), rest, below);
                }
                let (up, down) = if smooth { (0.5, 0.5) } else { (eta, 1.0 - eta) };
                let tilt = if smooth { eta - 0.5 } else { 0.0 };
                *sum = simd.mul_add_e_f32s(simd.splat_f32s(up / kappa), above, *sum);
                *sum = simd.mul_add_e_f32s(simd.splat_f32s(down / kappa), below, *sum);
                *sum = simd.mul_add_e_f32s(simd.splat_f32s(tilt), plain, *sum);
            }
        }
    }
}
