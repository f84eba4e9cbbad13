//! The quantile Huber loss and one sample's share of the critic loss (§3.1).
//!
//! ```text
//! h_κ(δ)   = ½ δ²              if |δ| ≤ κ
//!            κ (|δ| − ½ κ)     if |δ| > κ                             κ > 0
//! ρ_η^κ(δ) = |η − 1{δ < 0}| h_κ(δ)/κ
//! 𝒥        = (1/K²) Σ_i Σ_j ρ_{η_j}^κ(y_i − z_j)                      Eq. (4), one sample
//! ```
//!
//! Scale: the paper averages over both axes of the K×K pairs and divides by κ.
//! Dopamine, rlax and SB3-contrib sum over one axis, and Tianshou over the other; none of them divides by κ.

use crate::buffer::eta as eta_grid;

/// Huber loss h_κ(δ) of a residual: quadratic up to κ, linear beyond.
pub fn huber(kappa: f64, delta: f64) -> f64 {
    let size = delta.abs();
    if size <= kappa { 0.5 * delta * delta } else { kappa * (size - 0.5 * kappa) }
}

/// Quantile Huber loss ρ_η^κ(δ) of a residual δ = target − prediction at level η, for κ > 0.
///
/// As κ → 0 it becomes the pinball loss, whose minimiser is the η-quantile.
/// For κ beyond the range of the residuals it is an expectile loss instead.
pub fn quantile_huber(eta: f64, kappa: f64, delta: f64) -> f64 {
    let overestimates = if delta < 0.0 { 1.0 } else { 0.0 };
    (eta - overestimates).abs() * huber(kappa, delta) / kappa
}

/// One sample's critic loss 𝒥 for targets y_1..y_K and raw outputs z_1..z_K.
///
/// Raw z, not z̃: output j must stay tied to level η_j while it is trained (§3, Approximation II).
/// The order of the targets does not matter.
///
/// ```
/// use bqrl_math::huber::critic_loss;
///
/// assert_eq!(critic_loss(1.0, &[1.0, 3.0], &[0.0, 2.0]), 0.3125);
/// ```
pub fn critic_loss(kappa: f64, targets: &[f64], quantiles: &[f64]) -> f64 {
    assert!(kappa > 0.0, "kappa must be positive, got {kappa}");
    assert_eq!(targets.len(), quantiles.len(), "targets and quantiles, want K of each");
    let k = quantiles.len();
    assert!(k > 0, "n_quantiles must be at least 1, got {k}");
    let total: f64 = eta_grid(k)
        .iter()
        .zip(quantiles)
        .map(|(&eta_j, &z_j)| targets.iter().map(|&y_i| quantile_huber(eta_j, kappa, y_i - z_j)).sum::<f64>())
        .sum();
    // 𝒥, Eq. (4): mean over the K×K pairs (target i, level j). Other libraries sum over one axis.
    total / (k * k) as f64
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::close::assert_close;

    #[test]
    fn huber_matches_hand_computation() {
        // Inside: ½ · 0.5². Outside, κ = 1: 1 · (2 − ½). At the seam both branches give ½ κ² = 2.
        assert_eq!(huber(1.0, 0.5), 0.125);
        assert_eq!(huber(1.0, -2.0), 1.5);
        assert_eq!(huber(2.0, 2.0), 2.0);
        assert_close(huber(2.0, 2.0 + 1e-9), 2.0, 1e-8);
    }

    #[test]
    fn quantile_huber_matches_hand_computation() {
        // η = ¼, κ = 1, δ = −2: |¼ − 1| · (2 − ½)/1 = ¾ · 1.5.
        assert_eq!(quantile_huber(0.25, 1.0, -2.0), 1.125);
        // η = ¼, κ = 1, δ = 2: ¼ · 1.5.
        assert_eq!(quantile_huber(0.25, 1.0, 2.0), 0.375);
        // η = 0.9, κ = 2, δ = 0.5: 0.9 · (½ · 0.25)/2.
        assert_close(quantile_huber(0.9, 2.0, 0.5), 0.05625, 1e-16);
    }

    #[test]
    fn critic_loss_matches_hand_computation() {
        // y = [1, 3], z = [0, 2], κ = 1, K = 2, so η = (¼, ¾).
        //   j = 1: δ = 1 → ¼ · ½ = 0.125        δ = 3 → ¼ · 2.5 = 0.625
        //   j = 2: δ = −1 → |¾ − 1| · ½ = 0.125   δ = 1 → ¾ · ½ = 0.375
        // Sum 1.25 over K² = 4 pairs.
        assert_eq!(critic_loss(1.0, &[1.0, 3.0], &[0.0, 2.0]), 0.3125);
    }

    #[test]
    fn critic_loss_ties_each_output_to_its_level() {
        // Swapping z moves the larger prediction to the lower level, which costs more:
        //   j = 1: z = 2: δ = −1 → ¾ · ½, δ = 1 → ¼ · ½     together 0.5
        //   j = 2: z = 0: δ = 1 → ¾ · ½, δ = 3 → ¾ · 2.5    together 2.25
        assert_eq!(critic_loss(1.0, &[1.0, 3.0], &[2.0, 0.0]), 2.75 / 4.0);
    }

    #[test]
    fn a_small_kappa_puts_the_minimum_at_the_quantile() {
        // K = 1 trains the median. Targets are single values here, so average three samples 0, 1, 10.
        let loss = |z: f64| [0.0, 1.0, 10.0].iter().map(|&y| critic_loss(1e-6, &[y], &[z])).sum::<f64>();
        assert!(loss(1.0) < loss(0.9));
        assert!(loss(1.0) < loss(1.1));
        // κ above every residual turns the median into the mean, 11/3.
        let loss = |z: f64| [0.0, 1.0, 10.0].iter().map(|&y| critic_loss(100.0, &[y], &[z])).sum::<f64>();
        assert!(loss(11.0 / 3.0) < loss(11.0 / 3.0 - 0.1));
        assert!(loss(11.0 / 3.0) < loss(11.0 / 3.0 + 0.1));
    }

    proptest! {
        #[test]
        fn the_pinball_loss_is_the_limit_of_small_kappa(eta in 0.01..0.99, delta in -5.0..5.0) {
            let pinball = if delta < 0.0 { (eta - 1.0) * delta } else { eta * delta };
            assert_close(quantile_huber(eta, 1e-9, delta), pinball, 1e-8);
        }

        #[test]
        fn critic_loss_is_zero_only_at_the_targets(y in -5.0..5.0, miss in 0.001..5.0, kappa in 0.01..2.0) {
            prop_assert_eq!(critic_loss(kappa, &[y, y], &[y, y]), 0.0);
            prop_assert!(critic_loss(kappa, &[y, y], &[y - miss, y]) > 0.0);
        }
    }
}
