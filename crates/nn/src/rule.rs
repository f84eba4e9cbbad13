//! The learning rule of a critic: the choice of the next action, and the loss.
//!
//! ```text
//! score(a) = Σ_j c_j z̃_j                 c_j = w_j/β + tie_break/K             §3, Approximation III
//! a⁺       = argmax_a score(a)           one action for all quantiles          Eq. (3)
//! a_i⁺     = argmax_a z̃_i(x', a)         … or one for each: target tracking
//! y_i      = r + (1−d) z̃_i(x', a⁺) + d ℓ η_i                                   the paper has ℓ = 0
//! 𝒥        = mean over the batch and the K×K pairs of ρ_{η_j}^κ(y_i − z_j)     Eq. (4), summed over heads
//! ```
//!
//! Every head of a critic has a rule of its own. ℓ is the width of a ramp: the head learns the law of Z + ℓU with U uniform
//! on (0, 1), whose P(Z + ℓU ≥ y) is E clip((Z − y)/ℓ + 1, 0, 1), a utility of the return that rises over a width of ℓ.
//!
//! ρ is the paper's quantile Huber loss, or the smoothed quantile loss. Near an atom of the law, the Huber loss moves the
//! quantiles towards the other side of the law: its weights |η − 1{δ<0}| differ on both sides of zero. The error is below κ, but every
//! backup adds to it. The smoothed loss spreads the quantiles of an atom evenly around it, by ±κ, and their mean stays right.

use bqrl_math::{Buffer, buffer};
use thiserror::Error;

/// The rule by which targets are made and compared with the outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct TargetRule {
    heads: Vec<Head>,
    /// Whether θ, not θ̄, chooses the next action.
    double: bool,
    bounds: (f32, f32),
    /// Whether ρ is the smoothed quantile loss.
    smooth: bool,
    eta: Vec<f32>,
    kappa: f32,
}

/// The rule of one head.
#[derive(Clone, Debug, PartialEq)]
pub struct Head {
    /// How the next action is chosen.
    pub choice: Choice,
    /// ℓ, the width of its ramp.
    pub ramp: f32,
}

/// How the next action is chosen.
#[derive(Clone, Debug, PartialEq)]
pub enum Choice {
    /// One for all levels, by Σ_j c_j z̃_j with these coefficients.
    One(Vec<f32>),
    /// The best at each level.
    PerLevel,
}

/// An invalid rule.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum RuleError {
    /// κ is not a positive number, or too close to zero or infinity for single precision.
    #[error("kappa must be positive and finite, got {kappa}")]
    KappaOutOfRange {
        /// The offending κ.
        kappa: f64,
    },
    /// The tie-break is negative or not finite.
    #[error("tie_break must be at least 0 and finite, got {tie_break}")]
    TieBreakOutOfRange {
        /// The offending weight of the mean.
        tie_break: f64,
    },
}

impl TargetRule {
    /// The paper's rule: actions are compared by the buffered score B̂.
    ///
    /// `tie_break` times the mean of the outputs is added to the score: B̂ is flat outside its window, so a strictly worse
    /// action often ties (the paper has no tie-break; 0 gives its score).
    pub fn buffered(
        buffer: &Buffer,
        n_quantiles: usize,
        tie_break: f64,
        kappa: f64,
    ) -> Result<Self, RuleError> {
        if !(tie_break >= 0.0 && tie_break.is_finite()) {
            return Err(RuleError::TieBreakOutOfRange { tie_break });
        }
        let share = tie_break / n_quantiles as f64;
        let weights = buffer.weights(n_quantiles);
        Self::new(weights.iter().map(|w| (w / buffer.beta() + share) as f32).collect(), kappa)
    }

    /// Actions are compared by their mean: QR-DQN.
    pub fn mean(n_quantiles: usize, kappa: f64) -> Result<Self, RuleError> {
        Self::new(vec![(1.0 / n_quantiles as f64) as f32; n_quantiles], kappa)
    }

    /// Actions are compared by Σ_j c_j z̃_j for any coefficients.
    pub fn new(score: Vec<f32>, kappa: f64) -> Result<Self, RuleError> {
        let k = score.len();
        Self::heads_of(vec![Head { choice: Choice::One(score), ramp: 0.0 }], k, kappa)
    }

    /// The best action is chosen at each level by itself: target tracking.
    pub fn per_level(n_quantiles: usize, kappa: f64) -> Result<Self, RuleError> {
        Self::heads_of(vec![Head { choice: Choice::PerLevel, ramp: 0.0 }], n_quantiles, kappa)
    }

    /// Several heads, each with its own rule. A score has one coefficient for each quantile.
    pub fn heads_of(heads: Vec<Head>, n_quantiles: usize, kappa: f64) -> Result<Self, RuleError> {
        for head in &heads {
            if let Choice::One(score) = &head.choice {
                assert_eq!(score.len(), n_quantiles, "coefficients of a score, want K");
            }
        }
        // Residuals are measured in units of κ: in single precision, κ and its inverse must be ordinary numbers.
        if !(kappa > 0.0 && (kappa as f32).is_normal() && (1.0 / kappa as f32).is_normal()) {
            return Err(RuleError::KappaOutOfRange { kappa });
        }
        let eta = buffer::eta(n_quantiles).into_iter().map(|eta| eta as f32).collect();
        let bounds = (f32::NEG_INFINITY, f32::INFINITY);
        Ok(Self { heads, double: false, smooth: false, bounds, eta, kappa: kappa as f32 })
    }

    /// The same rule, but the critic that learns chooses the next action, and its slow copy values it.
    ///
    /// With twins, their mean chooses and the least of them is taken. Without this, each twin is a critic of its own.
    #[must_use]
    pub fn double(mut self) -> Self {
        self.double = true;
        self
    }

    /// The same rule, with the smoothed quantile loss in place of the paper's.
    #[must_use]
    pub fn smooth(mut self) -> Self {
        self.smooth = true;
        self
    }

    /// Whether the loss is the smoothed quantile loss.
    pub fn is_smooth(&self) -> bool {
        self.smooth
    }

    /// The same rule, with targets clipped to an interval; a ramp adds its width to the upper end.
    #[must_use]
    pub fn within(mut self, low: f32, high: f32) -> Self {
        assert!(low <= high, "targets in [{low}, {high}]");
        self.bounds = (low, high);
        self
    }

    /// K.
    pub fn n_quantiles(&self) -> usize {
        self.eta.len()
    }

    /// The rule of every head.
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// Whether the critic that learns chooses the next action.
    pub fn is_double(&self) -> bool {
        self.double
    }

    /// The smallest and the largest target, but for a ramp.
    pub fn bounds(&self) -> (f32, f32) {
        self.bounds
    }

    /// The levels η_j.
    pub fn eta(&self) -> &[f32] {
        &self.eta
    }

    /// The Huber threshold κ.
    pub fn kappa(&self) -> f32 {
        self.kappa
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coefficients_match_hand_computation() {
        // K = 5, τ = 0.5, β = 0.3: w = (0, .2, .1, 0, 0), over β = (0, 2/3, 1/3, 0, 0); the tie-break adds .1/5.
        let buffer = Buffer::new(0.5, 0.3).unwrap();
        let want = [0.0, 2.0 / 3.0, 1.0 / 3.0, 0.0, 0.0];
        for (tie_break, more) in [(0.0, 0.0), (0.1, 0.02)] {
            let rule = TargetRule::buffered(&buffer, 5, tie_break, 1.0).unwrap();
            let Choice::One(score) = &rule.heads()[0].choice else { panic!("one action, got {rule:?}") };
            assert!(score.iter().zip(want).all(|(&c, want)| (c - want - more).abs() < 1e-6), "{rule:?}");
        }
    }

    #[test]
    fn rules_out_of_range_are_refused() {
        let refused = TargetRule::mean(8, 0.0).unwrap_err();
        assert_eq!(refused.to_string(), "kappa must be positive and finite, got 0");
        assert!(TargetRule::mean(8, f64::NAN).is_err());
        assert!(TargetRule::mean(8, 1e-60).is_err());
        assert!(TargetRule::buffered(&Buffer::new(0.5, 0.3).unwrap(), 8, -1.0, 1.0).is_err());
    }

    #[test]
    #[should_panic(expected = "coefficients of a score, want K")]
    fn a_score_for_other_quantiles_is_refused() {
        let head = Head { choice: Choice::One(vec![0.5; 2]), ramp: 0.0 };
        let _ = TargetRule::heads_of(vec![head], 3, 1.0);
    }
}
