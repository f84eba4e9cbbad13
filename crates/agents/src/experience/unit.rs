//! The scale of the returns, found while learning: networks learn z/σ, so that no scale has to be set.
//!
//! ```text
//! σ  = root mean square of the returns-to-go Z_h = r_h + γ r_{h+1} + … of the last episodes
//! lo = min(0, Z_h),  hi = max(0, Z_h)            over all episodes
//! ```
//!
//! The outputs of the networks are rescaled when σ moves, so that their predictions stay the same. To keep that rare, σ follows
//! in steps of a twentieth. The first σ rescales nothing: before it, outputs have no unit, and `optimism` is in units of σ.

use serde::{Deserialize, Serialize};

/// Returns-to-go that σ is averaged over; older ones fade out.
const WINDOW: f64 = 10_000.0;
/// The relative change of σ that is followed.
const STEP: f64 = 0.05;

/// The running scale of the returns-to-go.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct ReturnUnit {
    /// σ of the networks: what an output of 1 means.
    sigma: f64,
    /// Whether σ was given, and stays.
    given: bool,
    /// Whether σ is still the placeholder 1.
    placeholder: bool,
    /// Returns-to-go in the window, and the sum of their squares.
    count: f64,
    squares: f64,
    low: f64,
    high: f64,
}

impl ReturnUnit {
    /// Before the first episode; a positive `given` is kept for ever.
    pub fn new(given: f64) -> Self {
        let sigma = if given > 0.0 { given } else { 1.0 };
        Self {
            sigma,
            given: given > 0.0,
            placeholder: given <= 0.0,
            count: 0.0,
            squares: 0.0,
            low: 0.0,
            high: 0.0,
        }
    }

    /// σ.
    pub fn sigma(&self) -> f64 {
        self.sigma
    }

    /// The unit of collected rewards as inputs. Before the first σ they count as 0, because they have no scale yet.
    pub fn of_inputs(&self) -> f64 {
        if self.placeholder { f64::INFINITY } else { self.sigma }
    }

    /// Whether an episode has ended.
    pub fn is_known(&self) -> bool {
        self.count > 0.0
    }

    /// lo and hi.
    pub fn bounds(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// hi − lo.
    pub fn range(&self) -> f64 {
        self.high - self.low
    }

    /// hi; where all returns were zero so far, `optimism` units.
    pub fn best(&self, optimism: f64) -> f64 {
        if self.high > self.low { self.high } else { optimism * self.sigma }
    }

    /// The rewards of an episode, newest first. Returns σ_before/σ where σ has moved: the factor for the outputs.
    pub fn episode(&mut self, rewards: impl Iterator<Item = f64>, discount: f64) -> Option<f64> {
        let mut to_go = 0.0;
        for reward in rewards {
            to_go = reward + discount * to_go;
            self.count += 1.0;
            self.squares += to_go * to_go;
            self.low = self.low.min(to_go);
            self.high = self.high.max(to_go);
        }
        if self.count > WINDOW {
            self.squares *= WINDOW / self.count;
            self.count = WINDOW;
        }
        let sigma = (self.squares / self.count).sqrt();
        // Returns that are all zero say nothing about the scale.
        let moved =
            !self.given && sigma > 0.0 && (self.placeholder || (sigma / self.sigma).ln().abs() > STEP);
        if !moved {
            return None;
        }
        let factor = self.sigma / sigma;
        self.sigma = sigma;
        let had_unit = !std::mem::take(&mut self.placeholder);
        had_unit.then_some(factor)
    }

    /// Whether these are numbers that training can have left.
    pub fn is_plausible(&self) -> bool {
        let numbers = [self.sigma, self.count, self.squares, self.low, self.high];
        numbers.iter().all(|number| number.is_finite())
            && self.sigma > 0.0
            && (0.0..=WINDOW).contains(&self.count)
            && self.squares >= 0.0
            && self.low <= 0.0
            && self.high >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_is_the_root_mean_square_of_the_returns_to_go() {
        let mut unit = ReturnUnit::new(0.0);
        assert!(!unit.is_known());
        assert_eq!(unit.of_inputs(), f64::INFINITY, "collected rewards have no scale yet");
        // Rewards 1, −3 in this order: returns-to-go −3 and −2, mean square 13/2.
        assert_eq!(unit.episode([-3.0, 1.0].into_iter(), 1.0), None, "outputs had no unit before");
        let first = unit.sigma();
        assert!((first - 6.5_f64.sqrt()).abs() < 1e-12);
        assert_eq!(unit.of_inputs(), first);
        assert_eq!((unit.range(), unit.best(1.0)), (3.0, 0.0));
        let factor = unit.episode([-9.0].into_iter(), 1.0).unwrap();
        assert!((factor * unit.sigma() - first).abs() < 1e-12, "outputs keep their meaning");
    }

    #[test]
    fn small_moves_and_returns_that_are_all_zero_leave_the_unit_as_it_is() {
        let mut unit = ReturnUnit::new(0.0);
        assert_eq!(unit.episode([0.0, 0.0].into_iter(), 1.0), None);
        assert!(unit.is_known());
        assert_eq!((unit.sigma(), unit.best(2.0)), (1.0, 2.0));
        let mut unit = ReturnUnit::new(0.0);
        unit.episode([2.0].into_iter(), 1.0);
        assert_eq!(unit.episode([2.05].into_iter(), 1.0), None);
        assert!(unit.episode([4.0].into_iter(), 1.0).is_some());
    }

    #[test]
    fn a_given_unit_stays() {
        let mut unit = ReturnUnit::new(7.0);
        assert_eq!(unit.episode([100.0].into_iter(), 1.0), None);
        assert_eq!(unit.sigma(), 7.0);
    }

    #[test]
    fn the_unit_scales_with_the_rewards() {
        let of = |scale: f64| {
            let mut unit = ReturnUnit::new(0.0);
            for k in 0..200 {
                unit.episode([scale * f64::from(k), scale].into_iter(), 1.0);
            }
            unit.sigma() / scale
        };
        assert!((of(1e6) / of(1.0) - 1.0).abs() < 1e-9 && (of(1e-6) / of(1.0) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn forged_units_are_seen() {
        let mut unit = ReturnUnit::new(0.0);
        unit.episode([1.0].into_iter(), 1.0);
        assert!(unit.is_plausible());
        for forged in [
            ReturnUnit { sigma: 0.0, ..unit },
            ReturnUnit { sigma: f64::NAN, ..unit },
            ReturnUnit { squares: -1.0, ..unit },
            ReturnUnit { count: 2.0 * WINDOW, ..unit },
            ReturnUnit { low: 1.0, ..unit },
        ] {
            assert!(!forged.is_plausible(), "{forged:?}");
        }
    }
}
