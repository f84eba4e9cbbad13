//! The buffer (τ, β), the grid of quantile levels and the overlap weights (§2.2, §3).
//!
//! ```text
//! window: [τ−β, τ]                                  0 < τ < 1,  0 < β ≤ τ
//! η_j = (j − 1/2)/K                                 j = 1..K
//! w_j = [ min{τ, j/K} − max{τ−β, (j−1)/K} ]₊        j = 1..K          Eq. (1)
//! ```
//!
//! Level η_j stands for the cell [(j−1)/K, j/K], and w_j is the length of that cell inside the window.
//! The cells tile [0, 1], so the weights sum to β.

use thiserror::Error;

/// Target level τ and buffer width β, with 0 < τ < 1 and 0 < β ≤ τ.
///
/// ```
/// use bqrl_math::Buffer;
///
/// let buffer = Buffer::new(0.5, 0.25)?; // the window [0.25, 0.5]
/// assert_eq!(buffer.weights(4), [0.0, 0.25, 0.0, 0.0]);
///
/// let error = Buffer::new(0.1, 0.2).unwrap_err();
/// assert_eq!(error.to_string(), "beta must lie in (0, tau] = (0, 0.1], got 0.2");
/// # Ok::<(), bqrl_math::BufferError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Buffer {
    tau: f64,
    beta: f64,
}

/// A target level or buffer width outside its range.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum BufferError {
    /// τ is not strictly between 0 and 1.
    #[error("tau must lie in (0, 1), got {tau}")]
    TauOutOfRange {
        /// The level that was given.
        tau: f64,
    },
    /// β is not positive, or reaches below level 0.
    #[error("beta must lie in (0, tau] = (0, {tau}], got {beta}")]
    BetaOutOfRange {
        /// The level that was given.
        tau: f64,
        /// The width that was given.
        beta: f64,
    },
    /// β is so small that τ − β rounds to τ, which leaves an empty window.
    #[error("beta must be wide enough that tau - beta < tau = {tau} in floating point, got {beta}")]
    BetaVanishes {
        /// The level that was given.
        tau: f64,
        /// The width that was given.
        beta: f64,
    },
}

/// Returns `tau` if it lies in (0, 1), for callers that have a level but no buffer.
pub fn check_tau(tau: f64) -> Result<f64, BufferError> {
    if 0.0 < tau && tau < 1.0 { Ok(tau) } else { Err(BufferError::TauOutOfRange { tau }) }
}

/// The grid η_j = (j − 1/2)/K of the levels that a critic's K outputs estimate.
///
/// ```
/// assert_eq!(bqrl_math::buffer::eta(2), [0.25, 0.75]);
/// ```
pub fn eta(n_quantiles: usize) -> Vec<f64> {
    let k = n_quantiles as f64;
    (1..=n_quantiles).map(|j| (j as f64 - 0.5) / k).collect()
}

impl Buffer {
    /// The buffer of width `beta` just below level `tau`. NaN is outside every range.
    pub fn new(tau: f64, beta: f64) -> Result<Self, BufferError> {
        check_tau(tau)?;
        if !(0.0 < beta && beta <= tau) {
            return Err(BufferError::BetaOutOfRange { tau, beta });
        }
        if tau - beta == tau {
            return Err(BufferError::BetaVanishes { tau, beta });
        }
        Ok(Self { tau, beta })
    }

    /// Target level τ, the upper end of the window.
    pub fn tau(&self) -> f64 {
        self.tau
    }

    /// Buffer width β.
    pub fn beta(&self) -> f64 {
        self.beta
    }

    /// Level τ − β, the lower end of the window.
    pub fn lower(&self) -> f64 {
        self.tau - self.beta
    }

    /// Overlap weights w_1..w_K of Eq. (1). They sum to β.
    pub fn weights(&self, n_quantiles: usize) -> Vec<f64> {
        assert!(n_quantiles > 0, "n_quantiles must be at least 1, got {n_quantiles}");
        let k = n_quantiles as f64;
        (1..=n_quantiles)
            .map(|j| {
                let cell = ((j - 1) as f64 / k, j as f64 / k);
                (self.tau.min(cell.1) - self.lower().max(cell.0)).max(0.0)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::close::{assert_all_close, assert_close};

    #[test]
    fn weights_match_hand_computation() {
        // K = 5, τ = 0.5, β = 0.3: the window is [0.2, 0.5].
        //   cell 2 = [0.2, 0.4] lies inside         → 0.2
        //   cell 3 = [0.4, 0.6] is cut at τ = 0.5   → 0.1
        let weights = Buffer::new(0.5, 0.3).unwrap().weights(5);
        assert_all_close(&weights, &[0.0, 0.2, 0.1, 0.0, 0.0], 1e-15);

        // K = 4, τ = 0.9, β = 0.25: the window is [0.65, 0.9].
        //   cell 3 = [0.5, 0.75] is cut at τ − β = 0.65   → 0.1
        //   cell 4 = [0.75, 1] is cut at τ = 0.9          → 0.15
        let weights = Buffer::new(0.9, 0.25).unwrap().weights(4);
        assert_all_close(&weights, &[0.0, 0.0, 0.1, 0.15], 1e-15);
    }

    #[test]
    fn a_window_inside_one_cell_puts_all_its_weight_there() {
        // K = 2, τ = 0.4, β = 0.1: [0.3, 0.4] lies inside cell 1 = [0, 0.5].
        assert_all_close(&Buffer::new(0.4, 0.1).unwrap().weights(2), &[0.1, 0.0], 1e-15);
        assert_all_close(&Buffer::new(0.4, 0.1).unwrap().weights(1), &[0.1], 1e-15);
    }

    #[test]
    fn levels_are_the_midpoints_of_their_cells() {
        assert_eq!(eta(1), [0.5]);
        assert_eq!(eta(4), [0.125, 0.375, 0.625, 0.875]);
    }

    #[test]
    fn the_full_lower_tail_starts_at_level_zero() {
        assert_eq!(Buffer::new(0.1, 0.1).unwrap().lower(), 0.0);
    }

    #[test]
    fn values_outside_the_range_are_refused_with_the_value_and_the_range() {
        for tau in [0.0, 1.0, -0.1, 1.5, f64::INFINITY, f64::NAN] {
            assert!(matches!(Buffer::new(tau, 0.05), Err(BufferError::TauOutOfRange { .. })), "tau = {tau}");
            assert!(check_tau(tau).is_err(), "tau = {tau}");
        }
        for beta in [0.0, -0.1, 0.2, f64::INFINITY, f64::NAN] {
            assert!(
                matches!(Buffer::new(0.1, beta), Err(BufferError::BetaOutOfRange { .. })),
                "beta = {beta}"
            );
        }
        assert!(matches!(Buffer::new(0.5, 1e-18), Err(BufferError::BetaVanishes { .. })));
        assert_eq!(check_tau(1.5).unwrap_err().to_string(), "tau must lie in (0, 1), got 1.5");
        assert_eq!(
            Buffer::new(0.5, 1e-18).unwrap_err().to_string(),
            "beta must be wide enough that tau - beta < tau = 0.5 in floating point, got 0.000000000000000001"
        );
    }

    proptest! {
        #[test]
        fn weights_sum_to_beta(tau in 0.001..0.999, share in 0.001..=1.0, n_quantiles in 1_usize..200) {
            let buffer = Buffer::new(tau, tau * share).unwrap();
            let weights = buffer.weights(n_quantiles);
            assert_close(weights.iter().sum(), buffer.beta(), 1e-14);
        }

        #[test]
        fn weights_are_zero_outside_the_window_and_at_most_one_cell(
            tau in 0.001..0.999,
            share in 0.001..=1.0,
            n_quantiles in 1_usize..200,
        ) {
            let buffer = Buffer::new(tau, tau * share).unwrap();
            let k = n_quantiles as f64;
            for (cell, weight) in buffer.weights(n_quantiles).into_iter().enumerate() {
                let (from, to) = (cell as f64 / k, (cell + 1) as f64 / k);
                prop_assert!((0.0..=1.0 / k + 1e-15).contains(&weight));
                if to <= buffer.lower() || from >= buffer.tau() {
                    prop_assert_eq!(weight, 0.0);
                }
            }
        }
    }
}
