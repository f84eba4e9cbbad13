//! Layer normalisation and ReLU of a hidden layer, one sample per lane.
//!
//! ```text
//! u   = W h + b            μ = mean_f u_f            s = 1/√(mean_f (u_f − μ)² + ε)
//! n_f = s (u_f − μ)        H_f = relu(g_f n_f + t_f)
//!
//! d_f = 1{H_f > 0} ∂𝒥/∂H_f        ∂𝒥/∂g_f = Σ_samples d_f n_f        ∂𝒥/∂t_f = Σ_samples d_f
//! e_f = g_f d_f                   ∂𝒥/∂u_f = s (e_f − mean e − n_f mean(e n))
//! ```
//!
//! Ba, Kiros and Hinton, Layer normalization (2016). ε and the place of every factor are those of `torch.nn.LayerNorm`.

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};

/// Keeps the root away from zero where all u of a sample are equal.
pub(crate) const EPSILON: f32 = 1e-5;

/// Replaces u by H, and keeps n and s for the backward pass.
pub(crate) struct Normalise<'a> {
    /// u, then H: one row of `width` lanes per feature.
    pub rows: &'a mut [f32],
    pub width: usize,
    /// g and t.
    pub gain: &'a [f32],
    pub shift: &'a [f32],
    /// n, rows as above, and s, one number per lane.
    pub normalised: &'a mut [f32],
    pub inverse: &'a mut [f32],
}

impl WithSimd for Normalise<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let columns = self.width / S::F32_LANES;
        let mut column = 0;
        while column + 4 <= columns {
            self.columns::<S, 4>(simd, column);
            column += 4;
        }
        while column + 2 <= columns {
            self.columns::<S, 2>(simd, column);
            column += 2;
        }
        while column < columns {
            self.columns::<S, 1>(simd, column);
            column += 1;
        }
    }
}

impl Normalise<'_> {
    /// Some vectors of samples, whose sums do not wait for one another.
    #[inline(always)]
    fn columns<S: Simd, const V: usize>(&mut self, simd: S, column: usize) {
        let columns = self.width / S::F32_LANES;
        let share = simd.splat_f32s(1.0 / self.gain.len() as f32);
        let (zero, one) = (simd.splat_f32s(0.0), simd.splat_f32s(1.0));
        let rows = vectors_mut::<S>(self.rows);
        let mut mean = [zero; V];
        for row in rows.chunks_exact(columns) {
            let row = &row[column..column + V];
            for v in 0..V {
                mean[v] = simd.add_f32s(mean[v], row[v]);
            }
        }
        for v in 0..V {
            mean[v] = simd.mul_f32s(mean[v], share);
        }
        let mut variance = [zero; V];
        for row in rows.chunks_exact(columns) {
            let row = &row[column..column + V];
            for v in 0..V {
                let away = simd.sub_f32s(row[v], mean[v]);
                variance[v] = simd.mul_add_e_f32s(away, away, variance[v]);
            }
        }
        let mut inverse = [zero; V];
        for v in 0..V {
            let variance = simd.mul_add_e_f32s(variance[v], share, simd.splat_f32s(EPSILON));
            inverse[v] = simd.div_f32s(one, simd.sqrt_f32s(variance));
        }
        vectors_mut::<S>(self.inverse)[column..column + V].copy_from_slice(&inverse);
        let affine = self.gain.iter().zip(self.shift);
        let normalised = vectors_mut::<S>(self.normalised).chunks_exact_mut(columns);
        for ((row, normalised), (&gain, &shift)) in rows.chunks_exact_mut(columns).zip(normalised).zip(affine)
        {
            let (row, normalised) = (&mut row[column..column + V], &mut normalised[column..column + V]);
            let (gain, shift) = (simd.splat_f32s(gain), simd.splat_f32s(shift));
            for v in 0..V {
                let n = simd.mul_f32s(simd.sub_f32s(row[v], mean[v]), inverse[v]);
                normalised[v] = n;
                row[v] = simd.max_f32s(simd.mul_add_e_f32s(gain, n, shift), zero);
            }
        }
    }
}

/// Replaces d by ∂𝒥/∂u.
pub(crate) struct NormaliseGradient<'a> {
    /// d, then ∂𝒥/∂u: one row of `width` lanes per feature.
    pub rows: &'a mut [f32],
    pub width: usize,
    pub gain: &'a [f32],
    pub normalised: &'a [f32],
    pub inverse: &'a [f32],
}

impl WithSimd for NormaliseGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let columns = self.width / S::F32_LANES;
        let mut column = 0;
        while column + 2 <= columns {
            self.columns::<S, 2>(simd, column);
            column += 2;
        }
        if column < columns {
            self.columns::<S, 1>(simd, column);
        }
    }
}

impl NormaliseGradient<'_> {
    /// Some vectors of samples, whose sums do not wait for one another.
    #[inline(always)]
    fn columns<S: Simd, const V: usize>(&mut self, simd: S, column: usize) {
        let columns = self.width / S::F32_LANES;
        let share = simd.splat_f32s(1.0 / self.gain.len() as f32);
        let rows = vectors_mut::<S>(self.rows);
        let normalised = vectors::<S>(self.normalised);
        let inverse = &vectors::<S>(self.inverse)[column..column + V];
        let (mut sum, mut dot) = ([simd.splat_f32s(0.0); V], [simd.splat_f32s(0.0); V]);
        let both = rows.chunks_exact_mut(columns).zip(normalised.chunks_exact(columns));
        for ((row, normalised), &gain) in both.zip(self.gain) {
            let (row, normalised) = (&mut row[column..column + V], &normalised[column..column + V]);
            let gain = simd.splat_f32s(gain);
            for v in 0..V {
                let e = simd.mul_f32s(gain, row[v]);
                row[v] = e;
                sum[v] = simd.add_f32s(sum[v], e);
                dot[v] = simd.mul_add_e_f32s(e, normalised[v], dot[v]);
            }
        }
        for v in 0..V {
            (sum[v], dot[v]) = (simd.mul_f32s(sum[v], share), simd.mul_f32s(dot[v], share));
        }
        for (row, normalised) in rows.chunks_exact_mut(columns).zip(normalised.chunks_exact(columns)) {
            let (row, normalised) = (&mut row[column..column + V], &normalised[column..column + V]);
            for v in 0..V {
                let rest = simd.sub_f32s(row[v], sum[v]);
                let rest = simd.sub_f32s(rest, simd.mul_f32s(normalised[v], dot[v]));
                row[v] = simd.mul_f32s(inverse[v], rest);
            }
        }
    }
}

/// `out[r] (+)= Σ_s a[r][s] b[r][s]` over the first `count` of `width` lanes: the gradient of a gain.
pub(crate) struct RowDots<'a> {
    pub a: &'a [f32],
    pub b: &'a [f32],
    pub width: usize,
    pub count: usize,
    pub out: &'a mut [f32],
    pub accumulate: bool,
}

impl WithSimd for RowDots<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let rows = self.a.chunks_exact(self.width).zip(self.b.chunks_exact(self.width));
        for ((a, b), out) in rows.zip(self.out) {
            let (a, a_rest) = S::as_simd_f32s(&a[..self.count]);
            let (b, b_rest) = S::as_simd_f32s(&b[..self.count]);
            let mut sums = simd.splat_f32s(0.0);
            for (&a, &b) in a.iter().zip(b) {
                sums = simd.mul_add_e_f32s(a, b, sums);
            }
            let mut sum = simd.reduce_sum_f32s(sums);
            for (&a, &b) in a_rest.iter().zip(b_rest) {
                sum += a * b;
            }
            *out = if self.accumulate { *out + sum } else { sum };
        }
    }
}

/// The same for a single sample: u becomes H.
pub(crate) fn normalise_one(u: &mut [f32], gain: &[f32], shift: &[f32]) {
    let share = 1.0 / u.len() as f32;
    let mean = u.iter().sum::<f32>() * share;
    let variance = u.iter().map(|u| (u - mean) * (u - mean)).sum::<f32>() * share;
    let inverse = 1.0 / (variance + EPSILON).sqrt();
    for (u, (gain, shift)) in u.iter_mut().zip(gain.iter().zip(shift)) {
        *u = (gain * (*u - mean) * inverse + shift).max(0.0);
    }
}
