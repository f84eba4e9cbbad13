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
use crate::batch::Span;

/// Levels worked on at a time, so that their sums are independent and one load of y serves all.
const LEVELS: usize = 4;

/// Operands of both kernels: one head in one panel.
#[derive(Clone)]
pub(crate) struct Pairs<'a> {
    /// Raw z, K rows of `width` lanes for each action; and y, K rows.
    pub outputs: &'a [f32],
    pub targets: &'a [f32],
    pub width: usize,
    /// The actions taken: per lane, and as neighbouring lanes in the order of the actions.
    pub taken: &'a [f32],
    pub spans: &'a [Span],
    /// The levels η_1..η_K.
    pub eta: &'a [f32],
    pub kappa: f32,
    /// Whether the loss is the smoothed one.
    pub smooth: bool,
}

impl Pairs<'_> {
    /// The vectors that hold samples.
    #[inline(always)]
    fn columns<S: Simd>(&self) -> Range<usize> {
        let end = self.spans.last().map_or(0, |span| span.lanes.end);
        0..end.div_ceil(S::F32_LANES)
    }

    /// The spans that reach into a vector.
    #[inline(always)]
    fn spans<S: Simd>(&self, column: usize) -> &[Span] {
        let lanes = column * S::F32_LANES..(column + 1) * S::F32_LANES;
        let first = self.spans.partition_point(|span| span.lanes.end <= lanes.start);
        let end = self.spans.partition_point(|span| span.lanes.start < lanes.end);
        &self.spans[first..end]
    }

    /// The lanes of a vector that took the action of a span.
    #[inline(always)]
    fn took<S: Simd>(&self, simd: S, column: usize, span: &Span) -> S::m32s {
        simd.equal_f32s(vectors::<S>(self.taken)[column], simd.splat_f32s(span.action as f32))
    }

    /// z_j of the action that each lane of a vector took.
    #[inline(always)]
    fn z<S: Simd>(&self, simd: S, spans: &[Span], j: usize, column: usize) -> S::f32s {
        let (outputs, columns) = (vectors::<S>(self.outputs), self.width / S::F32_LANES);
        let of = |span: &Span| outputs[(span.action * self.eta.len() + j) * columns + column];
        let mut z = of(&spans[0]);
        for span in &spans[1..] {
            z = simd.select_f32s(self.took(simd, column, span), of(span), z);
        }
        z
    }
}

/// Writes ∂𝒥/∂z of the actions taken: zero in lanes of the same vectors that took another one.
pub(crate) struct Gradient<'a> {
    pub pairs: Pairs<'a>,
    pub batch: usize,
    /// As `outputs`.
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
        let spans = self.pairs.spans::<S>(column);
        let Pairs { targets, eta, kappa, width, smooth, .. } = self.pairs;
        let (k, columns) = (eta.len(), width / S::F32_LANES);
        let (zero, one, minus_one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0), simd.splat_f32s(-1.0));
        let inverse = simd.splat_f32s(1.0 / kappa);
        // −z/κ.
        let mut minus_z = [zero; N];
        for n in 0..N {
            let z = self.pairs.z(simd, spans, j + n, column);
            minus_z[n] = simd.mul_f32s(simd.mul_f32s(minus_one, z), inverse);
        }
        let mut sums = [zero; N];
        let targets = vectors::<S>(targets).chunks_exact(columns).map(|targets| targets[column]);
        if smooth {
            for y in targets {
                for n in 0..N {
                    let delta = simd.mul_add_e_f32s(y, inverse, minus_z[n]);
                    sums[n] = simd.add_f32s(sums[n], within_one(simd, delta, one, minus_one));
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
        let out = vectors_mut::<S>(self.out);
        for span in spans {
            let took = self.pairs.took(simd, column, span);
            for n in 0..N {
                let row = span.action * k + j + n;
                out[row * columns + column] = simd.select_f32s(took, simd.mul_f32s(scale, sums[n]), zero);
            }
        }
    }
}

/// clamp(x, −1, 1), in one instruction where there is one.
#[inline(always)]
fn within_one<S: Simd>(simd: S, x: S::f32s, one: S::f32s, minus_one: S::f32s) -> S::f32s {
    #[cfg(target_arch = "x86_64")]
    {
        use std::any::Any;
        let vector = |x: &S::f32s| (x as &dyn Any).downcast_ref::<pulp::f32x16>().copied();
        let v4 = (&simd as &dyn Any).downcast_ref::<pulp::x86::V4>();
        if let (Some(v4), Some(x), Some(one)) = (v4, vector(&x), vector(&one)) {
            // The smaller magnitude, with the sign of x.
            const SMALLER: i32 = 0b0010;
            let range: pulp::f32x16 =
                pulp::cast(v4.avx512dq._mm512_range_ps::<SMALLER>(pulp::cast(x), pulp::cast(one)));
            if let Some(range) = (&range as &dyn Any).downcast_ref::<S::f32s>() {
                return *range;
            }
        }
    }
    simd.max_f32s(simd.min_f32s(x, one), minus_one)
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
        for column in self.pairs.columns::<S>() {
            let spans = self.pairs.spans::<S>(column);
            let sum = &mut vectors_mut::<S>(self.sums)[column];
            *sum = zero;
            for (j, &eta) in eta.iter().enumerate() {
                let z = self.pairs.z(simd, spans, j, column);
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
