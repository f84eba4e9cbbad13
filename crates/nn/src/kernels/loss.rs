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
//! All K×K pairs without a branch: six operations each, three of them multiply-adds, because some processors have
//! separate pipes for those and for minimum and maximum. Prefix sums over the sorted targets would need only K log K, but
//! are slower up to K = 200 (measured).

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};

/// Levels worked on at a time, so that their sums are independent and one load of y serves all.
const LEVELS: usize = 4;

/// Operands of both kernels.
#[derive(Clone, Copy)]
pub(crate) struct Pairs<'a> {
    /// Raw z: K rows of `width` lanes for each action.
    pub outputs: &'a [f32],
    /// y: K rows of `width` lanes.
    pub targets: &'a [f32],
    pub width: usize,
    /// The action taken, per lane, as a float.
    pub actions: &'a [f32],
    /// The levels η_1..η_K.
    pub eta: &'a [f32],
    pub kappa: f32,
    /// Whether the loss is the smoothed one.
    pub smooth: bool,
}

impl Pairs<'_> {
    /// z_j of the action taken in each lane.
    #[inline(always)]
    fn taken<S: Simd>(self, simd: S, j: usize, column: usize) -> S::f32s {
        let (k, columns) = (self.eta.len(), self.width / S::F32_LANES);
        let action = vectors::<S>(self.actions)[column];
        let outputs = vectors::<S>(self.outputs);
        let mut z = outputs[j * columns + column];
        for (a, rows) in outputs.chunks_exact(k * columns).enumerate().skip(1) {
            let taken = simd.equal_f32s(action, simd.splat_f32s(a as f32));
            z = simd.select_f32s(taken, rows[j * columns + column], z);
        }
        z
    }
}

/// Writes ∂𝒥/∂z for all A·K outputs: zero but for the action taken.
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
        for column in 0..self.pairs.width / S::F32_LANES {
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
        let Pairs { eta, kappa, width, smooth, .. } = self.pairs;
        let (k, columns) = (eta.len(), width / S::F32_LANES);
        let (zero, one, minus_one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0), simd.splat_f32s(-1.0));
        let inverse = simd.splat_f32s(1.0 / kappa);
        // −z/κ, 1−η and 2η−1.
        let (mut minus_z, mut rest, mut tilt) = ([zero; N], [zero; N], [zero; N]);
        for n in 0..N {
            let z = self.pairs.taken(simd, j + n, column);
            minus_z[n] = simd.mul_f32s(simd.mul_f32s(minus_one, z), inverse);
            rest[n] = simd.splat_f32s(if smooth { 0.5 } else { 1.0 - eta[j + n] });
            tilt[n] = simd.splat_f32s(if smooth { 0.0 } else { 2.0 * eta[j + n] - 1.0 });
        }
        // K (η − ½), or nothing.
        let mut sums = [zero; N];
        for n in 0..N {
            sums[n] = simd.splat_f32s(if smooth { k as f32 * (eta[j + n] - 0.5) } else { 0.0 });
        }
        for targets in vectors::<S>(self.pairs.targets).chunks_exact(columns) {
            let y = targets[column];
            for n in 0..N {
                let below_one = simd.min_f32s(simd.mul_add_e_f32s(y, inverse, minus_z[n]), one);
                sums[n] = simd.mul_add_e_f32s(rest[n], simd.max_f32s(below_one, minus_one), sums[n]);
                sums[n] = simd.mul_add_e_f32s(tilt[n], simd.max_f32s(below_one, zero), sums[n]);
            }
        }
        // 𝒥, Eq. (4): mean over the batch and the K×K pairs. κ is divided out already.
        let scale = simd.splat_f32s((-1.0 / (self.batch * k * k) as f64) as f32);
        let action = vectors::<S>(self.pairs.actions)[column];
        let out = vectors_mut::<S>(self.out);
        for n in 0..N {
            let g = simd.mul_f32s(scale, sums[n]);
            for (a, rows) in out.chunks_exact_mut(k * columns).enumerate() {
                let taken = simd.equal_f32s(action, simd.splat_f32s(a as f32));
                rows[(j + n) * columns + column] = simd.select_f32s(taken, g, zero);
            }
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
        let Pairs { eta, kappa, width, targets, smooth, .. } = self.pairs;
        let columns = width / S::F32_LANES;
        let zero = simd.splat_f32s(0.0);
        let (upper, lower) = (simd.splat_f32s(kappa), simd.splat_f32s(-kappa));
        let minus_half = simd.splat_f32s(-0.5);
        for (column, sum) in vectors_mut::<S>(self.sums).iter_mut().enumerate() {
            *sum = zero;
            for (j, &eta) in eta.iter().enumerate() {
                let z = self.pairs.taken(simd, j, column);
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
