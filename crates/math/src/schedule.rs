//! Schedules: the progress of training, and coefficients that fall with it (§3.1).
//!
//! ```text
//! λ_t = λ_0 / (1 + t/λ_decay)        t = 0, 1, 2, … counts episodes, or steps of the environment
//! ```
//!
//! λ_0 is the first coefficient, and λ_decay the time after which half of it is left. A time is written with its unit,
//! `"500 episodes"` or `"20000 steps"`; a bare number counts episodes, as the paper does.

use std::fmt;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// How far training is.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Clock {
    /// Episodes finished, over all lanes.
    pub episodes: u64,
    /// Steps taken, over all lanes.
    pub steps: u64,
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Finished episodes.
    Episodes,
    /// Steps of the environment.
    Steps,
}

impl Unit {
    /// The clock's count in this unit.
    pub fn of(self, clock: &Clock) -> u64 {
        match self {
            Unit::Episodes => clock.episodes,
            Unit::Steps => clock.steps,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Episodes => "episodes",
            Unit::Steps => "steps",
        }
    }
}

/// A time in episodes or steps.
///
/// ```
/// use bqrl_math::schedule::{Clock, Span};
///
/// let clock = Clock { episodes: 250, steps: 40_000 };
/// assert_eq!("500 episodes".parse::<Span>()?.slowdown(&clock), 1.5);
/// assert_eq!("10000 steps".parse::<Span>()?.slowdown(&clock), 5.0);
/// # Ok::<(), bqrl_math::schedule::SpanError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// The number.
    pub amount: f64,
    /// The unit.
    pub unit: Unit,
}

/// A text that is not a time.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("want a number of episodes or steps, such as \"500 episodes\" or \"20000 steps\", got {text:?}")]
pub struct SpanError {
    /// The text.
    pub text: String,
}

impl Span {
    /// A time in episodes.
    pub fn episodes(amount: f64) -> Self {
        Self { amount, unit: Unit::Episodes }
    }

    /// A time in steps.
    pub fn steps(amount: f64) -> Self {
        Self { amount, unit: Unit::Steps }
    }

    /// 1 + t/amount, the divisor of a falling quantity.
    pub fn slowdown(&self, clock: &Clock) -> f64 {
        1.0 + self.unit.of(clock) as f64 / self.amount
    }

    /// Whether a whole multiple of this time lies after `before` and not after `now`.
    pub fn passed(&self, before: &Clock, now: &Clock) -> bool {
        let multiples = |clock| (self.unit.of(clock) as f64 / self.amount).floor();
        multiples(now) > multiples(before)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.amount, self.unit.name())
    }
}

impl FromStr for Span {
    type Err = SpanError;

    fn from_str(text: &str) -> Result<Self, SpanError> {
        let wrong = || SpanError { text: text.to_owned() };
        let (amount, unit) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let unit = match unit.trim() {
            "episodes" | "episode" => Unit::Episodes,
            "steps" | "step" => Unit::Steps,
            _ => return Err(wrong()),
        };
        Ok(Self { amount: amount.parse().map_err(|_| wrong())?, unit })
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfAnything;

        impl Visitor<'_> for OfAnything {
            type Value = Span;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"500 episodes\" or \"20000 steps\", or a number of episodes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_f64<E: de::Error>(self, amount: f64) -> Result<Span, E> {
                Ok(Span::episodes(amount))
            }

            fn visit_i64<E: de::Error>(self, amount: i64) -> Result<Span, E> {
                Ok(Span::episodes(amount as f64))
            }

            fn visit_u64<E: de::Error>(self, amount: u64) -> Result<Span, E> {
                Ok(Span::episodes(amount as f64))
            }
        }

        deserializer.deserialize_any(OfAnything)
    }
}

/// A coefficient that falls: λ_0 ≥ 0 and λ_decay > 0, both finite.
///
/// ```
/// use bqrl_math::schedule::{Clock, Exploration, Span};
///
/// let exploration = Exploration::new(5.0, Span::episodes(500.0))?;
/// let after = |episodes| exploration.lambda_t(&Clock { episodes, steps: 0 });
/// assert_eq!((after(0), after(500)), (5.0, 2.5));
/// # Ok::<(), bqrl_math::ExplorationError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exploration {
    lambda_0: f64,
    lambda_decay: Span,
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
        /// The time that was given.
        lambda_decay: Span,
    },
}

impl Exploration {
    /// The schedule that starts at `lambda_0` and has halved after `lambda_decay`.
    pub fn new(lambda_0: f64, lambda_decay: Span) -> Result<Self, ExplorationError> {
        if !(0.0..f64::INFINITY).contains(&lambda_0) {
            return Err(ExplorationError::Lambda0OutOfRange { lambda_0 });
        }
        if !(0.0 < lambda_decay.amount && lambda_decay.amount < f64::INFINITY) {
            return Err(ExplorationError::LambdaDecayOutOfRange { lambda_decay });
        }
        Ok(Self { lambda_0, lambda_decay })
    }

    /// λ_t.
    pub fn lambda_t(&self, clock: &Clock) -> f64 {
        self.lambda_0 / self.lambda_decay.slowdown(clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::close::assert_close;

    fn after(episodes: u64) -> Clock {
        Clock { episodes, steps: 7 * episodes }
    }

    #[test]
    fn lambda_t_matches_hand_computation() {
        // λ_0 = 2, λ_decay = 200: t = 100 → 2/1.5 = 4/3, t = 600 → 2/4 = 1/2.
        let exploration = Exploration::new(2.0, Span::episodes(200.0)).unwrap();
        assert_eq!(exploration.lambda_t(&after(0)), 2.0);
        assert_close(exploration.lambda_t(&after(100)), 4.0 / 3.0, 1e-15);
        assert_eq!(exploration.lambda_t(&after(200)), 1.0);
        assert_eq!(exploration.lambda_t(&after(600)), 0.5);
        // The same in steps: 600 episodes are 4,200 steps.
        let in_steps = Exploration::new(2.0, Span::steps(1400.0)).unwrap();
        assert_eq!(in_steps.lambda_t(&after(600)), 0.5);
    }

    #[test]
    fn no_exploration_is_allowed_and_stays_zero() {
        let exploration = Exploration::new(0.0, Span::episodes(1.0)).unwrap();
        assert_eq!(exploration.lambda_t(&after(0)), 0.0);
        assert_eq!(exploration.lambda_t(&after(1_000_000)), 0.0);
    }

    #[test]
    fn values_outside_the_range_are_refused_with_the_value_and_the_range() {
        for lambda_0 in [-1.0, f64::INFINITY, f64::NAN] {
            assert!(Exploration::new(lambda_0, Span::episodes(200.0)).is_err(), "lambda_0 = {lambda_0}");
        }
        for amount in [0.0, -1.0, f64::INFINITY, f64::NAN] {
            assert!(Exploration::new(1.0, Span::episodes(amount)).is_err(), "lambda_decay = {amount}");
        }
        assert_eq!(
            Exploration::new(1.0, Span::steps(0.0)).unwrap_err().to_string(),
            "lambda_decay must lie in (0, inf), got 0 steps"
        );
        assert_eq!(
            Exploration::new(-1.0, Span::episodes(1.0)).unwrap_err().to_string(),
            "lambda_0 must lie in [0, inf), got -1"
        );
    }

    #[test]
    fn a_span_is_read_as_it_is_written() {
        for span in [Span::episodes(500.0), Span::steps(0.5), Span::steps(2e6)] {
            assert_eq!(span.to_string().parse::<Span>().unwrap(), span);
        }
        assert_eq!(" 1  step ".parse::<Span>().unwrap(), Span::steps(1.0));
        for text in ["", "500", "episodes", "many steps", "5 minutes"] {
            assert!(text.parse::<Span>().unwrap_err().to_string().contains("500 episodes"), "{text}");
        }
    }

    #[test]
    fn a_multiple_is_passed_once_however_many_episodes_end_together() {
        let ten = Span::episodes(10.0);
        let at = |episodes| Clock { episodes, steps: 0 };
        assert!(ten.passed(&at(9), &at(10)) && !ten.passed(&at(10), &at(11)));
        assert!(ten.passed(&at(8), &at(13)) && !ten.passed(&at(13), &at(19)));
        assert!(!ten.passed(&at(0), &at(0)));
    }
}
