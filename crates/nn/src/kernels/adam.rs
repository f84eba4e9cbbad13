//! Adam and the soft update of Eq. (5), one pass over the parameters.
//!
//! ```text
//! m ← β₁ m + (1−β₁) g                 v ← β₂ v + (1−β₂) g²
//! θ ← (1 − lr·decay) θ − lr/(1−β₁ᵗ) · m / ( √v/√(1−β₂ᵗ) + ε )
//! θ̄ ← (1−ζ) θ̄ + ζ θ
//! ```

use pulp::{Simd, WithSimd};

use super::{vectors, vectors_mut};

/// Moments below this are set to zero. They change no parameter, but as they decay they would become denormal numbers,
/// which cost 1.4 times the whole step.
const TINY: f32 = 1e-30;

pub(crate) struct AdamStep<'a> {
    pub online: &'a mut [f32],
    pub target: &'a mut [f32],
    pub first: &'a mut [f32],
    pub second: &'a mut [f32],
    pub gradient: &'a [f32],
    pub rates: Rates,
}

/// The scalars of one step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    pub beta_1: f32,
    /// 1 − β₁, and 1 − β₂ below: rounded once, from doubles.
    pub rest_1: f32,
    pub beta_2: f32,
    pub rest_2: f32,
    /// lr/(1−β₁ᵗ).
    pub step: f32,
    /// 1/√(1−β₂ᵗ).
    pub root: f32,
    pub epsilon: f32,
    /// 1 − lr·decay.
    pub keep: f32,
    pub zeta: f32,
}

impl WithSimd for AdamStep<'_> {
    /// Whether all parameters and second moments are still finite.
    type Output = bool;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> bool {
        let rates = self.rates;
        let splat = |value| simd.splat_f32s(value);
        let (beta_1, rest_1) = (splat(rates.beta_1), splat(rates.rest_1));
        let (beta_2, rest_2) = (splat(rates.beta_2), splat(rates.rest_2));
        let (minus_step, root, epsilon) = (splat(-rates.step), splat(rates.root), splat(rates.epsilon));
        let (keep, zeta, rest_zeta) = (splat(rates.keep), splat(rates.zeta), splat(1.0 - rates.zeta));
        let (zero, tiny) = (splat(0.0), splat(TINY));
        let mut poison = zero;

        let online = vectors_mut::<S>(self.online);
        let n = online.len();
        let target = &mut vectors_mut::<S>(self.target)[..n];
        let first = &mut vectors_mut::<S>(self.first)[..n];
        let second = &mut vectors_mut::<S>(self.second)[..n];
        let gradient = &vectors::<S>(self.gradient)[..n];
        for i in 0..n {
            let g = gradient[i];
            let m = simd.mul_add_e_f32s(beta_1, first[i], simd.mul_f32s(rest_1, g));
            let v = simd.mul_add_e_f32s(beta_2, second[i], simd.mul_f32s(rest_2, simd.mul_f32s(g, g)));
            let m = simd.select_f32s(simd.less_than_f32s(simd.abs_f32s(m), tiny), zero, m);
            let v = simd.select_f32s(simd.less_than_f32s(v, tiny), zero, v);
            let scale = simd.mul_add_e_f32s(simd.sqrt_f32s(v), root, epsilon);
            let move_by = simd.mul_f32s(minus_step, simd.div_f32s(m, scale));
            let theta = simd.mul_add_e_f32s(keep, online[i], move_by);
            // Exact at both ends: ζ = 0 keeps the target, ζ = 1 copies.
            target[i] = simd.mul_add_e_f32s(rest_zeta, target[i], simd.mul_f32s(zeta, theta));
            first[i] = m;
            second[i] = v;
            online[i] = theta;
            // 0 · θ is zero; if θ is not finite, it is NaN and stays NaN. An infinite v leaves θ finite but holds it for ever.
            poison = simd.mul_add_e_f32s(zero, theta, poison);
            poison = simd.mul_add_e_f32s(zero, v, poison);
        }
        simd.reduce_sum_f32s(poison) == 0.0
    }
}
