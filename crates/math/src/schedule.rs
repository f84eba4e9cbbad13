//! The exploration schedule (§3.1).
//!
//! ```text
//! λ_t = λ_0 / (1 + t/λ_decay)        t = 0, 1, 2, … counts episodes
//! ```
//!
//! λ_0 is the first episode's coefficient, and λ_decay the episode at which half of it is left.

use thiserror::Error;

/// λ_0 ≥ 0 and λ_decay > 0, both finite.
///
/// ```
/// use bqrl_math::Exploration;
///
/// let exploration = Exploration::new(5.0, 500.0)?;
/// assert_eq!(exploration.lambda_t(0), 5.0);
/// assert_eq!(exploration.lambda_t(500), 2.5);
/// # Ok::<(), bqrl_math::ExplorationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exploration {
    lambda_0: f64,
    lambda_decay: f64,
}

/// An exploration parameter outside its range.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum ExplorationError {
    /// λ_0 is negative or not finite.
    #[error("lambda_0 must lie in [0, inf), got {lambda_0}")]
    Lambda0OutOfRange {
        /// The coefficient that was given.
        lambda_0: f64,
    },
    /// λ_decay is not positive or not finite.
    #[error("lambda_decay must lie in (0, inf), got {lambda_decay}")]
    LambdaDecayOutOfRange {
        /// The number of episodes that was given.
        lambda_decay: f64,
    },
}

impl Exploration {
    /// The schedule that starts at `lambda_0` and has halved after `lambda_decay` episodes.
    pub fn new(lambda_0: f64, lambda_decay: f64) -> Result<Self, ExplorationError> {
        if !(0.0..f64::INFINITY).contains(&lambda_0) {
            return Err(ExplorationError::Lambda0OutOfRange { lambda_0 });
        }
        if !(0.0 < lambda_decay && lambda_decay < f64::INFINITY) {
            return Err(ExplorationError::LambdaDecayOutOfRange { lambda_decay });
        }
        Ok(Self { lambda_0, lambda_decay })
    }

    /// Coefficient of the first episode.
    pub fn lambda_0(&self) -> f64 {
        self.lambda_0
    }

    /// Number of episodes after which half of λ_0 is left.
    pub fn lambda_decay(&self) -> f64 {
        self.lambda_decay
    }

    /// Coefficient of episode `t`, counted from 0.
    pub fn lambda_t(&self, t: usize) -> f64 {
        self.lambda_0 / (1.0 + t as f64 / self.lambda_decay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::close::assert_close;

    #[test]
    fn lambda_t_matches_hand_computation() {
        // λ_0 = 2, λ_decay = 200: t = 100 → 2/1.5 = 4/3, t = 600 → 2/4 = 1/2.
        let exploration = Exploration::new(2.0, 200.0).unwrap();
        assert_eq!(exploration.lambda_t(0), 2.0);
        assert_close(exploration.lambda_t(100), 4.0 / 3.0, 1e-15);
        assert_eq!(exploration.lambda_t(200), 1.0);
        assert_eq!(exploration.lambda_t(600), 0.5);
    }

    #[test]
    fn no_exploration_is_allowed_and_stays_zero() {
        let exploration = Exploration::new(0.0, 1.0).unwrap();
        assert_eq!(exploration.lambda_t(0), 0.0);
        assert_eq!(exploration.lambda_t(1_000_000), 0.0);
    }

    #[test]
    fn values_outside_the_range_are_refused_with_the_value_and_the_range() {
        for lambda_0 in [-1.0, f64::INFINITY, f64::NAN] {
            assert!(Exploration::new(lambda_0, 200.0).is_err(), "lambda_0 = {lambda_0}");
        }
        for lambda_decay in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(Exploration::new(1.0, lambda_decay).is_err(), "lambda_decay = {lambda_decay}");
        }
        assert_eq!(
            Exploration::new(1.0, 0.0).unwrap_err().to_string(),
            "lambda_decay must lie in (0, inf), got 0"
        );
        assert_eq!(
            Exploration::new(-1.0, 1.0).unwrap_err().to_string(),
            "lambda_0 must lie in [0, inf), got -1"
        );
    }
}
