//! Means over a few seeds with intervals, for tables and for curves.
//!
//! ```text
//! mean        x̄ with the 95 % Student-t interval (two seeds or more)
//! IQM         with the 95 % percentile bootstrap over 10 000 resamples (five seeds or more)
//! curve       the same Student-t interval point by point: a band, not a statement about whole curves
//! ```
//!
//! The bootstrap draws from a fixed seed, so the same run gives the same page.

use bqrl_math::interval::{iqm, stratified_bootstrap, student_t};
use bqrl_math::{Interval, Purpose, stream};

/// The confidence of every interval here.
pub const CONFIDENCE: f64 = 0.95;
/// With fewer seeds an interquartile mean drops at most one sample, and its bootstrap is not informative.
pub const SEEDS_FOR_IQM: usize = 5;
const REPETITIONS: usize = 10_000;

/// One number per seed, summarised.
#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    /// The number of seeds.
    pub n: usize,
    /// Their mean.
    pub mean: f64,
    /// Student-t interval of the mean, from two seeds on.
    pub interval: Option<Interval>,
    /// Interquartile mean and its bootstrap interval, from [`SEEDS_FOR_IQM`] seeds on.
    pub iqm: Option<(f64, Interval)>,
}

impl Estimate {
    /// Summarises at least one number.
    pub fn of(samples: &[f64]) -> Self {
        assert!(!samples.is_empty(), "an estimate needs at least one seed, got 0");
        let n = samples.len();
        let robust = (n >= SEEDS_FOR_IQM).then(|| {
            let statistic = |scores: &[Vec<f64>]| iqm(&scores[0]);
            let rng = &mut stream(0, Purpose::Bootstrap);
            let interval =
                stratified_bootstrap(&[samples.to_vec()], &statistic, REPETITIONS, CONFIDENCE, rng);
            (iqm(samples), interval)
        });
        Self {
            n,
            mean: samples.iter().sum::<f64>() / n as f64,
            interval: student_t(samples, CONFIDENCE).map(|found| found.interval),
            iqm: robust,
        }
    }

    /// The same with its intervals clipped to possible values.
    #[must_use]
    pub fn within(self, bounds: Interval) -> Self {
        let interval = self.interval.map(|interval| cut(interval, bounds));
        Self { interval, iqm: self.iqm.map(|(iqm, interval)| (iqm, cut(interval, bounds))), ..self }
    }
}

/// The part of an interval that lies inside `bounds`.
pub(crate) fn cut(interval: Interval, bounds: Interval) -> Interval {
    Interval { low: interval.low.max(bounds.low), high: interval.high.min(bounds.high) }
}

/// A point of a curve over seeds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CurvePoint {
    /// The place.
    pub x: f64,
    /// Mean over seeds.
    pub mean: f64,
    /// Student-t interval, from two seeds on; of one seed, the interval of its evaluation.
    pub band: Option<Interval>,
}

/// The mean of `seeds` at each of `x`, with its interval.
pub fn curve(x: &[f64], seeds: &[Vec<f64>]) -> Vec<CurvePoint> {
    for seed in seeds {
        assert_eq!(seed.len(), x.len(), "values of a seed, want one per x");
    }
    let point = |(index, &x): (usize, &f64)| {
        let samples: Vec<f64> = seeds.iter().map(|seed| seed[index]).collect();
        let mean = samples.iter().sum::<f64>() / samples.len() as f64;
        CurvePoint { x, mean, band: student_t(&samples, CONFIDENCE).map(|found| found.interval) }
    };
    x.iter().enumerate().map(point).collect()
}

/// At most `most` of the indices below `n`, evenly spaced, with the first and the last.
pub fn thinned(n: usize, most: usize) -> Vec<usize> {
    if n <= most {
        return (0..n).collect();
    }
    let last = most.max(2) - 1;
    (0..=last).map(|k| k * (n - 1) / last).collect()
}

/// A measure of one seed at increasing places.
pub struct Track<'a> {
    /// The places, not decreasing.
    pub x: Vec<f64>,
    /// Whether the seed is done. Its last value then holds from there on; otherwise nothing is known after it.
    pub done: bool,
    /// The value at an index of `x`, and its own interval where it has one.
    pub value: Box<dyn Fn(usize) -> (f64, Option<Interval>) + 'a>,
}

impl Track<'_> {
    /// The latest value at `x`.
    fn at(&self, x: f64) -> Option<(f64, Option<Interval>)> {
        let before = self.x.partition_point(|&place| place <= x);
        let known = self.done || before < self.x.len() || self.x.last() == Some(&x);
        (before > 0 && known).then(|| (self.value)(before - 1))
    }
}

/// The mean of `seeds` at each place where one of them was measured, at most `most` of these.
///
/// Seeds that were measured at other places count with their latest value before. If all seeds share their places, this is
/// [`curve`]. A single seed keeps its own intervals.
pub fn aligned(seeds: &[Track<'_>], most: usize) -> Vec<CurvePoint> {
    let mut places: Vec<f64> = seeds.iter().flat_map(|seed| seed.x.iter().copied()).collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    let point = |k: usize| {
        let x = places[k];
        let known: Vec<(f64, Option<Interval>)> = seeds.iter().filter_map(|seed| seed.at(x)).collect();
        let values: Vec<Vec<f64>> = known.iter().map(|&(value, _)| vec![value]).collect();
        let point = curve(&[x], &values)[0];
        CurvePoint { band: if seeds.len() == 1 { known[0].1 } else { point.band }, ..point }
    };
    thinned(places.len(), most).into_iter().map(point).collect()
}

/// The mean of the last `window` of `values[..=k]`; of fewer where there are not so many.
pub fn moving_average(values: &[f64], window: usize, k: usize) -> f64 {
    // Summed again at each place: a running sum would accumulate the rounding of all earlier values.
    let recent = &values[(k + 1).saturating_sub(window)..=k];
    recent.iter().sum::<f64>() / recent.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_estimate_has_the_intervals_that_its_seeds_allow() {
        let one = Estimate::of(&[2.0]);
        assert_eq!((one.n, one.mean, one.interval, &one.iqm), (1, 2.0, None, &None));
        let three = Estimate::of(&[1.0, 2.0, 3.0]);
        // 2 ± t_{.975, 2}/√3.
        assert!((three.interval.unwrap().high - 4.4841377).abs() < 1e-6);
        assert_eq!(three.iqm, None);
        let (middle, interval) = Estimate::of(&[100.0, 1.0, 2.0, 3.0, -50.0]).iqm.unwrap();
        assert_eq!(middle, 2.0);
        assert!(interval.low < 2.0 && interval.high > 2.0);
    }

    #[test]
    fn the_same_seeds_give_the_same_estimate() {
        let seeds = [3.0, 1.0, 4.0, 1.0, 5.0];
        assert_eq!(Estimate::of(&seeds), Estimate::of(&seeds));
    }

    #[test]
    fn a_curve_is_the_estimate_at_every_point() {
        let points = curve(&[0.0, 10.0], &[vec![1.0, 2.0], vec![3.0, 4.0]]);
        assert_eq!((points[1].x, points[1].mean), (10.0, 3.0));
        assert_eq!(points[0].band, Estimate::of(&[1.0, 3.0]).interval);
        assert_eq!(curve(&[0.0], &[vec![1.0]])[0].band, None);
    }

    #[test]
    fn thinning_keeps_both_ends_and_the_order() {
        assert_eq!(thinned(3, 5), [0, 1, 2]);
        assert_eq!(thinned(11, 3), [0, 5, 10]);
        for n in [401, 1000, 100_000] {
            let kept = thinned(n, 400);
            assert_eq!((kept.len(), kept[0], kept[399]), (400, 0, n - 1));
            assert!(kept.is_sorted_by(|a, b| a < b));
        }
        assert!(thinned(0, 5).is_empty());
    }

    #[test]
    fn a_moving_average_starts_with_what_there_is() {
        assert_eq!([0, 1, 3].map(|k| moving_average(&[1.0, 2.0, 6.0, 4.0], 2, k)), [1.0, 1.5, 5.0]);
    }

    fn track(points: &'static [(f64, f64)], done: bool) -> Track<'static> {
        let own = Interval { low: 0.0, high: 9.0 };
        Track {
            x: points.iter().map(|point| point.0).collect(),
            done,
            value: Box::new(move |k| (points[k].1, Some(own))),
        }
    }

    #[test]
    fn shared_places_give_the_plain_curve() {
        let [a, b] = [&[(0.0, 1.0), (5.0, 3.0)], &[(0.0, 2.0), (5.0, 7.0)]];
        let plain = curve(&[0.0, 5.0], &[vec![1.0, 3.0], vec![2.0, 7.0]]);
        for done in [true, false] {
            assert_eq!(aligned(&[track(a, done), track(b, done)], 250), plain);
        }
    }

    #[test]
    fn seeds_count_with_their_latest_value_and_unfinished_ones_up_to_their_last() {
        let [a, b] = [&[(0.0, 1.0), (4.0, 3.0)], &[(0.0, 5.0), (3.0, 7.0), (6.0, 9.0)][..]];
        let means = |done| -> Vec<(f64, f64)> {
            aligned(&[track(a, done), track(b, done)], 250)
                .iter()
                .map(|point| (point.x, point.mean))
                .collect()
        };
        assert_eq!(means(true), [(0.0, 3.0), (3.0, 4.0), (4.0, 5.0), (6.0, 6.0)]);
        assert_eq!(means(false), [(0.0, 3.0), (3.0, 4.0), (4.0, 5.0), (6.0, 9.0)]);
        // A seed that starts later is absent before.
        assert_eq!(aligned(&[track(&[(2.0, 1.0)], true), track(a, true)], 250)[0].mean, 1.0);
        assert!(aligned(&[track(&[], false)], 250).is_empty() && aligned(&[], 250).is_empty());
    }

    #[test]
    fn one_seed_keeps_its_own_intervals() {
        let points = aligned(&[track(&[(0.0, 1.0), (4.0, 3.0)], true)], 250);
        assert!(points.iter().all(|point| point.band == Some(Interval { low: 0.0, high: 9.0 })));
        let two = [track(&[(0.0, 1.0)], true), track(&[(0.0, 1.0)], true)];
        assert_eq!(aligned(&two, 250)[0].band, Some(Interval { low: 1.0, high: 1.0 }));
    }

    #[test]
    fn intervals_are_cut_to_what_is_possible() {
        let estimate = Estimate::of(&[0.0, 1.0, 1.0]).within(Interval { low: 0.0, high: 1.0 });
        assert_eq!(estimate.interval, Some(Interval { low: 0.0, high: 1.0 }));
        assert_eq!(Estimate::of(&[0.5]).within(Interval { low: 0.0, high: 1.0 }).interval, None);
    }
}
