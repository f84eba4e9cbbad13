//! Confidence intervals from a few seeds, runs or episodes (§4, the bands of the figures).
//!
//! ```text
//! Student-t    x̄ ± t_{(1+γ)/2, n−1} s/√n                         γ the confidence, s divides by n − 1
//! quantile     [X_(l), X_(u)],  P(X_(l) ≤ Q_q ≤ X_(u)) ≥ F(u−1) − F(l−1) ≥ γ,      F the cdf of Bin(n, q)
//! IQM          mean of the samples left after dropping ⌊n/4⌋ at each end
//! bootstrap    percentiles (1−γ)/2 and (1+γ)/2 of a statistic over resampled runs
//! ```
//!
//! Student-t suits a mean of few, roughly normal numbers, such as the paper's three seeds.
//! The quantile interval assumes nothing about the law. IQM and bootstrap follow rliable (arXiv 2108.13264).

use statrs::distribution::{Binomial, ContinuousCDF, DiscreteCDF, StudentsT};

use crate::Rng;
use crate::law::PROBABILITY_TOLERANCE;
use crate::score::sort;

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Whether `low ≤ x ≤ high`.
    pub fn contains(&self, x: f64) -> bool {
        self.low <= x && x <= self.high
    }
}

/// A sample mean and the confidence interval around it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeanInterval {
    /// Sample mean.
    pub mean: f64,
    /// Interval for the expectation.
    pub interval: Interval,
}

/// Two order statistics that enclose a quantile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QuantileInterval {
    /// Lower order statistic.
    pub low: f64,
    /// Upper order statistic.
    pub high: f64,
    /// Probability of enclosing the quantile, at least the confidence that was asked for.
    ///
    /// Exact for a continuous law. If the law has atoms, the true probability is at least this.
    pub coverage: f64,
}

/// Student-t interval of the mean, or `None` for fewer than two samples.
///
/// ```
/// use bqrl_math::interval::student_t;
///
/// let of_three_seeds = student_t(&[1.0, 2.0, 3.0], 0.95).unwrap();
/// assert_eq!(of_three_seeds.mean, 2.0);
/// // t_{.975, 2} = 4.3027: three seeds pin a mean down to ± 2.48 standard deviations.
/// assert!((of_three_seeds.interval.high - 4.4841377).abs() < 1e-6);
/// ```
pub fn student_t(samples: &[f64], confidence: f64) -> Option<MeanInterval> {
    check_confidence(confidence);
    let n = samples.len();
    if n < 2 {
        return None;
    }
    let freedom = (n - 1) as f64;
    let mean = samples.iter().sum::<f64>() / n as f64;
    let variance = samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / freedom;
    let t =
        StudentsT::new(0.0, 1.0, freedom).expect("freedom is positive").inverse_cdf(0.5 + confidence / 2.0);
    let half_width = t * (variance / n as f64).sqrt();
    Some(MeanInterval { mean, interval: Interval { low: mean - half_width, high: mean + half_width } })
}

/// Interquartile mean: the mean after dropping ⌊n/4⌋ samples from each end.
///
/// rliable's convention, which is SciPy's `trim_mean(…, 0.25)`. Whole samples are dropped, never fractions.
///
/// ```
/// use bqrl_math::interval::iqm;
///
/// assert_eq!(iqm(&[100.0, 2.0, 3.0, -50.0]), 2.5);
/// ```
pub fn iqm(samples: &[f64]) -> f64 {
    assert!(!samples.is_empty(), "the interquartile mean needs at least one sample, got 0");
    let dropped = samples.len() / 4;
    let sorted = sort(samples);
    let middle = &sorted[dropped..sorted.len() - dropped];
    middle.iter().sum::<f64>() / middle.len() as f64
}

/// Percentile bootstrap interval of a statistic of `scores[task][run]`.
///
/// Every repetition resamples the runs of each task with replacement, independently of the other tasks,
/// so that each task keeps its number of runs. Percentiles interpolate linearly between order statistics.
///
/// ```
/// use bqrl_math::interval::{iqm, stratified_bootstrap};
/// use bqrl_math::{Purpose, stream};
///
/// let scores = [vec![0.1, 0.2, 0.3], vec![0.7, 0.8, 0.9]];
/// let pooled = |scores: &[Vec<f64>]| iqm(&scores.concat());
/// let interval = stratified_bootstrap(&scores, &pooled, 2000, 0.95, &mut stream(42, Purpose::Bootstrap));
/// assert!(interval.contains(pooled(&scores)));
/// ```
pub fn stratified_bootstrap(
    scores: &[Vec<f64>],
    statistic: &dyn Fn(&[Vec<f64>]) -> f64,
    repetitions: usize,
    confidence: f64,
    rng: &mut Rng,
) -> Interval {
    check_confidence(confidence);
    assert!(repetitions > 0, "repetitions must be at least 1, got {repetitions}");
    let mut resample = |runs: &Vec<f64>| runs.iter().map(|_| runs[rng.below(runs.len())]).collect();
    let statistics: Vec<f64> = (0..repetitions)
        .map(|_| statistic(&scores.iter().map(&mut resample).collect::<Vec<Vec<f64>>>()))
        .collect();
    let sorted = sort(&statistics);
    let tail = (1.0 - confidence) / 2.0;
    Interval { low: percentile(&sorted, tail), high: percentile(&sorted, 1.0 - tail) }
}

// Linear interpolation between order statistics, NumPy's default and hence rliable's.
fn percentile(sorted: &[f64], q: f64) -> f64 {
    let last = sorted.len() - 1;
    let position = q * last as f64;
    let below = (position.floor() as usize).min(last);
    let above = (below + 1).min(last);
    sorted[below] + (position - below as f64) * (sorted[above] - sorted[below])
}

/// Distribution-free interval for Q_q from order statistics, for q in (0, 1).
///
/// Each end misses with probability at most (1−γ)/2; l is the largest and u the smallest such index.
/// `None` if there are fewer than [`samples_needed_for_quantile_interval`] samples,
/// because even the smallest and the largest sample are then not far enough out.
///
/// ```
/// use bqrl_math::interval::quantile_interval;
///
/// let samples: Vec<f64> = (1..=10).map(f64::from).collect();
/// let median = quantile_interval(&samples, 0.5, 0.95).unwrap();
/// assert_eq!((median.low, median.high), (2.0, 9.0));
/// assert_eq!(quantile_interval(&samples[..5], 0.5, 0.95), None);
/// ```
pub fn quantile_interval(samples: &[f64], q: f64, confidence: f64) -> Option<QuantileInterval> {
    let n = samples.len();
    if n < samples_needed_for_quantile_interval(q, confidence) {
        return None;
    }
    let at_most = |k: usize| Binomial::new(q, n as u64).expect("q lies in (0, 1)").cdf(k as u64);
    let tail = (1.0 - confidence) / 2.0 + PROBABILITY_TOLERANCE;
    // l − 1 is the last index whose cdf F is at most the tail, u − 1 the first whose F is at least 1 − tail.
    let l = first_index(n, |k| at_most(k) > tail);
    let u = first_index(n, |k| at_most(k) >= 1.0 - tail) + 1;
    let sorted = sort(samples);
    Some(QuantileInterval {
        low: sorted[l - 1],
        high: sorted[u - 1],
        coverage: at_most(u - 1) - at_most(l - 1),
    })
}

/// Smallest number of samples for which [`quantile_interval`] exists.
///
/// The smallest and the largest sample must each miss Q_q with probability at most (1−γ)/2:
/// (1−q)^n and q^n are both at most (1−γ)/2.
///
/// ```
/// use bqrl_math::interval::samples_needed_for_quantile_interval;
///
/// assert_eq!(samples_needed_for_quantile_interval(0.5, 0.95), 6);
/// assert_eq!(samples_needed_for_quantile_interval(0.1, 0.95), 36);
/// ```
pub fn samples_needed_for_quantile_interval(q: f64, confidence: f64) -> usize {
    check_confidence(confidence);
    assert!(0.0 < q && q < 1.0, "q must lie in (0, 1), got {q}");
    let tail = (1.0 - confidence) / 2.0 + PROBABILITY_TOLERANCE;
    (tail.ln() / q.max(1.0 - q).ln()).ceil() as usize
}

// Smallest index in 0..n that satisfies a condition which, once true, stays true; n if none does.
fn first_index(n: usize, condition: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, n);
    while low < high {
        let middle = usize::midpoint(low, high);
        if condition(middle) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    low
}

fn check_confidence(confidence: f64) {
    assert!(0.0 < confidence && confidence < 1.0, "confidence must lie in (0, 1), got {confidence}");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::close::assert_close;
    use crate::{Purpose, stream};

    #[test]
    fn student_t_matches_the_table() {
        // Two samples 0 and 2: mean 1, s = √2, half-width t_{.975, 1} · √2/√2 = 12.706204736.
        let two = student_t(&[0.0, 2.0], 0.95).unwrap();
        assert_eq!(two.mean, 1.0);
        assert_close(two.interval.high - 1.0, 12.706204736432095, 1e-8);
        // Three samples 1, 2, 3: s = 1, half-width t_{.975, 2}/√3 with t = 4.302652729911275.
        let three = student_t(&[1.0, 2.0, 3.0], 0.95).unwrap();
        assert_close(three.interval.low, 2.0 - 4.302652729911275 / 3.0_f64.sqrt(), 1e-9);
        assert_close(three.interval.high, 2.0 + 4.302652729911275 / 3.0_f64.sqrt(), 1e-9);
    }

    #[test]
    fn student_t_needs_two_samples() {
        assert_eq!(student_t(&[], 0.95), None);
        assert_eq!(student_t(&[1.0], 0.95), None);
        let same = student_t(&[3.0, 3.0], 0.95).unwrap();
        assert_eq!(same.interval, Interval { low: 3.0, high: 3.0 });
    }

    #[test]
    fn student_t_covers_a_normal_mean_as_often_as_it_says() {
        // 4000 intervals from three normals each: coverage .95, standard error √(.0475/4000) = .0034,
        // five of them: a fresh seed would fail with probability below 1e-6.
        let mut rng = stream(42, Purpose::Test);
        let covered = (0..4000)
            .filter(|_| {
                student_t(&[rng.normal(), rng.normal(), rng.normal()], 0.95).unwrap().interval.contains(0.0)
            })
            .count();
        assert_close(covered as f64 / 4000.0, 0.95, 5.0 * 0.0035);
    }

    #[test]
    fn iqm_drops_whole_samples_like_scipy_trim_mean() {
        // n = 8 drops 2 at each end: (3 + 4 + 5 + 6)/4.
        assert_eq!(iqm(&[800.0, 1.0, 2.0, 70.0, 3.0, 6.0, 4.0, 5.0]), 4.5);
        // n = 7 drops ⌊7/4⌋ = 1: (2 + 3 + 4 + 5 + 60)/5.
        assert_eq!(iqm(&[1.0, 2.0, 3.0, 4.0, 5.0, 60.0, 700.0]), 14.8);
        // n = 3 drops none.
        assert_eq!(iqm(&[0.0, 0.0, 3.0]), 1.0);
    }

    #[test]
    fn percentiles_interpolate_like_numpy() {
        // numpy.percentile([1, 2, 4], [0, 25, 50, 75, 100]).
        let wanted = [1.0, 1.5, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(|q| percentile(&[1.0, 2.0, 4.0], q)), wanted);
        assert_eq!(percentile(&[5.0], 0.3), 5.0);
    }

    fn grand_mean(scores: &[Vec<f64>]) -> f64 {
        let runs = scores.concat();
        runs.iter().sum::<f64>() / runs.len() as f64
    }

    #[test]
    fn bootstrap_keeps_tasks_apart() {
        // Runs agree within each task, so every resample is the table itself, however far tasks are apart.
        let scores = [vec![0.0; 3], vec![100.0; 5]];
        let interval =
            stratified_bootstrap(&scores, &grand_mean, 200, 0.95, &mut stream(42, Purpose::Bootstrap));
        assert_eq!(interval, Interval { low: 62.5, high: 62.5 });
    }

    #[test]
    fn bootstrap_of_a_mean_matches_the_normal_approximation() {
        // 400 runs of ±1 in equal number: a resampled mean has sd 1/√400 = .05, the ends are near ± 1.96 · .05.
        // Each end has standard error .05 √(.025 · .975 / 4000) / φ(1.96) = .0021 and lies on a grid of .005.
        // Five standard errors and one grid step: a fresh seed would fail with probability below 2e-6.
        let runs: Vec<f64> = (0..400).map(|run| if run % 2 == 0 { 1.0 } else { -1.0 }).collect();
        let interval =
            stratified_bootstrap(&[runs], &grand_mean, 4000, 0.95, &mut stream(42, Purpose::Bootstrap));
        assert_close(interval.low, -0.098, 5.0 * 0.0021 + 0.005);
        assert_close(interval.high, 0.098, 5.0 * 0.0021 + 0.005);
    }

    #[test]
    fn bootstrap_repeats_itself_for_the_same_seed() {
        let scores = [vec![1.0, 2.0, 3.0, 4.0]];
        let run =
            || stratified_bootstrap(&scores, &grand_mean, 100, 0.9, &mut stream(42, Purpose::Bootstrap));
        assert_eq!(run(), run());
    }

    #[test]
    fn quantile_interval_matches_the_binomial_table() {
        // n = 10, q = ½: F(1) = 11/1024 = .0107 ≤ .025 < F(2) = 56/1024, so l = 2 and by symmetry u = 9.
        // Coverage F(8) − F(1) = 1 − 22/1024.
        let samples: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let median = quantile_interval(&samples, 0.5, 0.95).unwrap();
        assert_eq!((median.low, median.high), (2.0, 9.0));
        assert_close(median.coverage, 1.0 - 22.0 / 1024.0, 1e-12);
    }

    #[test]
    fn quantile_interval_exists_from_the_documented_number_of_samples_on() {
        for q in [0.01, 0.1, 0.25, 0.5, 0.9] {
            for confidence in [0.5, 0.9, 0.95, 0.99] {
                let needed = samples_needed_for_quantile_interval(q, confidence);
                let samples: Vec<f64> = (0..needed).map(|i| i as f64).collect();
                let interval = quantile_interval(&samples, q, confidence).unwrap();
                assert!(interval.coverage >= confidence - 1e-10, "q = {q}, confidence = {confidence}");
                assert_eq!(quantile_interval(&samples[1..], q, confidence), None);
                let furthest = q.max(1.0 - q);
                let tail = (1.0 - confidence) / 2.0;
                assert!(furthest.powi(needed as i32) <= tail + 1e-10);
                assert!(furthest.powi(needed as i32 - 1) > tail);
            }
        }
        // A tail of exactly .9^n is reached by n samples, although the logarithms may round past it.
        for n in 7..30 {
            let confidence = 1.0 - 2.0 * 0.9_f64.powf(n as f64);
            assert_eq!(samples_needed_for_quantile_interval(0.1, confidence), n);
        }
    }

    #[test]
    fn quantile_interval_covers_as_often_as_it_says() {
        // 2000 intervals for Q_.1 of 60 uniforms: the coverage is exact for a continuous law.
        // Five standard errors of at most √(.05/2000) = .005: false alarm below 1e-6.
        let mut rng = stream(42, Purpose::Test);
        let mut covered = 0;
        let mut coverage = 0.0;
        for _ in 0..2000 {
            let samples: Vec<f64> = (0..60).map(|_| rng.uniform()).collect();
            let interval = quantile_interval(&samples, 0.1, 0.95).unwrap();
            covered += u32::from(interval.low <= 0.1 && 0.1 <= interval.high);
            coverage = interval.coverage;
        }
        assert!(coverage >= 0.95);
        assert_close(f64::from(covered) / 2000.0, coverage, 5.0 * 0.005);
    }

    proptest! {
        #[test]
        fn quantile_interval_is_the_tightest_pair_within_its_tails(
            n in 1_usize..120,
            q in 0.05..0.95,
            confidence in 0.5..0.99,
        ) {
            let samples: Vec<f64> = (1..=n).map(|i| i as f64).collect();
            let Some(interval) = quantile_interval(&samples, q, confidence) else { return Ok(()) };
            // Sample i is i itself, so the ends are the indices l and u.
            let (l, u) = (interval.low as u64, interval.high as u64);
            let cdf = |k| Binomial::new(q, n as u64).unwrap().cdf(k);
            let tail = (1.0 - confidence) / 2.0;
            prop_assert!(interval.coverage >= confidence - 1e-10);
            prop_assert!(cdf(l - 1) <= tail + 1e-10 && cdf(l) > tail);
            prop_assert!(cdf(u - 1) >= 1.0 - tail - 1e-10 && cdf(u - 2) < 1.0 - tail);
        }

        #[test]
        fn iqm_lies_between_the_quartiles(samples in prop::collection::vec(-10.0..10.0_f64, 1..60)) {
            let sorted = sort(&samples);
            let dropped = samples.len() / 4;
            let (low, high) = (sorted[dropped], sorted[samples.len() - 1 - dropped]);
            prop_assert!((low - 1e-12..=high + 1e-12).contains(&iqm(&samples)));
        }
    }
}
