//! Buffered scores, their spread over the ensemble, and the choice of an action (§3, §3.1).
//!
//! ```text
//! z̃_1 ≤ … ≤ z̃_K                                     sorted outputs of one critic
//! B̂   = (1/β) Σ_j w_j z̃_j                           buffered score of one critic; Σ_j c_j z̃_j in general
//! μ_B = (1/M) Σ_m B̂_m                               ensemble mean
//! σ_B = [ (1/(M−1)) Σ_m (B̂_m − μ_B)² ]^{1/2}        disagreement, M ≥ 2
//! π̂   = argmax_a μ_B                                 Eq. (2)
//! A_h = argmax_a { μ_B + λ_t σ_B }                   behaviour
//! ```
//!
//! The paper does not say how to break ties: the lowest index wins, or the larger mean with [`argmax_by_mean`].

use crate::Buffer;

/// The sorted outputs z̃. A new vector, because the loss needs the raw z in its own order.
///
/// Sorted by `total_cmp`, so NaN has a place: last, or first if its sign is negative.
pub fn sort(quantiles: &[f64]) -> Vec<f64> {
    let mut sorted = quantiles.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

/// A score Σ_j c_j z̃_j of one critic's sorted outputs, by which actions are compared.
///
/// ```
/// use bqrl_math::{Buffer, score};
///
/// let buffered = score::Score::buffered(&Buffer::new(0.5, 0.3)?, 5);
/// let sorted = score::sort(&[3.0, 1.0, 2.0, 5.0, 4.0]);
/// assert!((buffered.of(&sorted) - 7.0 / 3.0).abs() < 1e-12);
/// # Ok::<(), bqrl_math::BufferError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    coefficients: Vec<f64>,
}

impl Score {
    /// The paper's B̂: c_j = w_j/β.
    pub fn buffered(buffer: &Buffer, k: usize) -> Self {
        Self { coefficients: buffer.weights(k).iter().map(|w| w / buffer.beta()).collect() }
    }

    /// The single quantile that holds level τ, the first j with j/K ≥ τ: the limit of B̂ as β → 0.
    pub fn point(tau: f64, k: usize) -> Self {
        let level = (1..k).find(|&j| j as f64 / k as f64 >= tau).unwrap_or(k);
        Self { coefficients: (1..=k).map(|j| if j == level { 1.0 } else { 0.0 }).collect() }
    }

    /// The mean of all quantiles: risk-neutral.
    pub fn mean(k: usize) -> Self {
        Self { coefficients: vec![1.0 / k as f64; k] }
    }

    /// Adds `weight` times the mean: B̂ is flat outside its window, so that strictly worse actions tie there.
    #[must_use]
    pub fn with_tie_break(mut self, weight: f64) -> Self {
        let share = weight / self.coefficients.len() as f64;
        self.coefficients.iter_mut().for_each(|c| *c += share);
        self
    }

    /// c_j.
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// Σ_j c_j z̃_j.
    pub fn of(&self, sorted: &[f64]) -> f64 {
        assert_eq!(
            self.coefficients.len(),
            sorted.len(),
            "coefficients and sorted quantiles, want K of each"
        );
        self.coefficients.iter().zip(sorted).map(|(c, z)| c * z).sum()
    }
}

/// Mean μ_B and disagreement σ_B of the members' scores of one action.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Ensemble-mean score μ_B.
    pub mu_b: f64,
    /// Sample standard deviation σ_B of the scores.
    pub sigma_b: f64,
}

impl Spread {
    /// Score of the behaviour policy, μ_B + λ_t σ_B.
    pub fn optimistic(&self, lambda_t: f64) -> f64 {
        self.mu_b + lambda_t * self.sigma_b
    }
}

/// Spread of the scores B̂_1..B̂_M of at least two critics.
///
/// ```
/// let spread = bqrl_math::score::spread(&[1.0, 3.0]);
/// assert_eq!((spread.mu_b, spread.sigma_b), (2.0, 2.0_f64.sqrt()));
/// ```
pub fn spread(scores: &[f64]) -> Spread {
    let m = scores.len();
    assert!(m >= 2, "sigma_b divides by M - 1 and needs at least two scores, got {m}");
    let mu_b = scores.iter().sum::<f64>() / m as f64;
    let squares: f64 = scores.iter().map(|score| (score - mu_b).powi(2)).sum();
    Spread { mu_b, sigma_b: (squares / (m - 1) as f64).sqrt() }
}

/// Index of the largest score. The lowest index wins a tie, and NaN never wins against a number.
///
/// ```
/// assert_eq!(bqrl_math::score::argmax(&[f64::NAN, 1.0, 2.0, 2.0]), 2);
/// ```
pub fn argmax(scores: &[f64]) -> usize {
    first_largest(0..scores.len(), scores).expect("argmax needs at least one score")
}

/// Index of the largest score, where scores within `tolerance` of it tie and go to the larger mean.
///
/// The buffered score is flat outside a window of width β, so a strictly worse action often ties.
/// Its mean shows that it is worse. Among actions that still tie, the lowest index wins.
pub fn argmax_by_mean(scores: &[f64], means: &[f64], tolerance: f64) -> usize {
    assert_eq!(scores.len(), means.len(), "scores and means, want one of each per action");
    let best = argmax(scores);
    let tied = (0..scores.len()).filter(|&a| scores[a] >= scores[best] - tolerance);
    // Nothing ties with NaN, not even NaN itself. Then every score is NaN and `best` is as good as any.
    first_largest(tied, means).unwrap_or(best)
}

// `>` rather than `total_cmp`: −0 and +0 are a tie, and NaN must lose instead of being the largest.
fn first_largest(indices: impl Iterator<Item = usize>, values: &[f64]) -> Option<usize> {
    indices.reduce(|best, i| {
        let beats_nan = values[best].is_nan() && !values[i].is_nan();
        if values[i] > values[best] || beats_nan { i } else { best }
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::ReturnLaw;
    use crate::close::assert_close;

    const NAN: f64 = f64::NAN;

    #[test]
    fn buffered_score_matches_hand_computation() {
        // τ = 0.5, β = 0.3, K = 5: w = (0, .2, .1, 0, 0), so B̂(1..5) = (.2·2 + .1·3)/.3 = 7/3.
        let buffer = Buffer::new(0.5, 0.3).unwrap();
        let sorted = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_close(Score::buffered(&buffer, 5).of(&sorted), 7.0 / 3.0, 1e-14);
        // The tie-break adds .1 times the mean, 3. Of five quantiles, .5 lies in the third; .6 is its end; .61 is beyond.
        assert_close(Score::buffered(&buffer, 5).with_tie_break(0.1).of(&sorted), 7.0 / 3.0 + 0.3, 1e-14);
        assert_eq!([0.5, 0.6, 0.61, 0.99].map(|tau| Score::point(tau, 5).of(&sorted)), [3.0, 3.0, 4.0, 5.0]);
        assert_close(Score::mean(5).of(&sorted), 3.0, 1e-14);
    }

    #[test]
    fn spread_divides_by_one_less_than_the_number_of_critics() {
        // μ_B = 0.5; squares (−.3)² + 0 + .3² = .18, over M − 1 = 2 → .09, root .3.
        let spread = spread(&[0.2, 0.5, 0.8]);
        assert_close(spread.mu_b, 0.5, 1e-15);
        assert_close(spread.sigma_b, 0.3, 1e-15);
        assert_close(spread.optimistic(2.0), 1.1, 1e-15);
    }

    #[test]
    #[should_panic(expected = "needs at least two scores, got 1")]
    fn spread_of_one_critic_is_refused() {
        let _ = spread(&[1.0]);
    }

    #[test]
    fn argmax_prefers_the_lowest_index_and_never_nan() {
        assert_eq!(argmax(&[1.0, 3.0, 3.0]), 1);
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
        assert_eq!(argmax(&[NAN, f64::NEG_INFINITY]), 1);
        assert_eq!(argmax(&[1.0, NAN]), 0);
        assert_eq!(argmax(&[NAN, NAN]), 0);
    }

    #[test]
    #[should_panic(expected = "at least one score")]
    fn argmax_of_nothing_is_refused() {
        let _ = argmax(&[]);
    }

    #[test]
    fn argmax_by_mean_breaks_ties_by_mean_and_then_by_index() {
        assert_eq!(argmax_by_mean(&[1.0, 1.0, 0.0], &[0.2, 0.3, 9.0], 0.0), 1);
        assert_eq!(argmax_by_mean(&[1.0, 0.95, 0.8], &[0.2, 0.3, 9.0], 0.1), 1);
        assert_eq!(argmax_by_mean(&[1.0, 1.0], &[0.3, 0.3], 0.0), 0);
        assert_eq!(argmax_by_mean(&[1.0, NAN], &[0.0, 9.0], 0.1), 0);
        assert_eq!(argmax_by_mean(&[NAN, NAN], &[0.0, 9.0], 0.1), 0);
        assert_eq!(argmax_by_mean(&[f64::NEG_INFINITY; 2], &[0.0, 9.0], 0.1), 1);
    }

    fn quantiles() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(-10.0..10.0_f64, 1..40)
    }

    fn buffer() -> impl Strategy<Value = Buffer> {
        (0.01..0.99, 0.01..=1.0).prop_map(|(tau, share)| Buffer::new(tau, tau * share).unwrap())
    }

    fn score(buffer: &Buffer, quantiles: &[f64]) -> f64 {
        Score::buffered(buffer, quantiles.len()).of(&sort(quantiles))
    }

    proptest! {
        #[test]
        fn score_ignores_the_order_of_raw_quantiles(quantiles in quantiles(), buffer in buffer()) {
            let reversed: Vec<f64> = quantiles.iter().rev().copied().collect();
            prop_assert_eq!(score(&buffer, &quantiles), score(&buffer, &reversed));
        }

        #[test]
        fn score_shifts_with_its_quantiles(quantiles in quantiles(), buffer in buffer(), by in -10.0..10.0) {
            let shifted: Vec<f64> = quantiles.iter().map(|z| z + by).collect();
            assert_close(score(&buffer, &shifted), score(&buffer, &quantiles) + by, 1e-10);
        }

        #[test]
        fn score_is_the_buffered_quantile_of_the_empirical_law(quantiles in quantiles(), buffer in buffer()) {
            let law = ReturnLaw::from_samples(&quantiles).unwrap();
            assert_close(score(&buffer, &quantiles), law.buffered_quantile(&buffer), 1e-10);
        }

        #[test]
        fn argmax_finds_the_first_maximum(scores in prop::collection::vec(-3_i32..3, 1..20)) {
            let scores: Vec<f64> = scores.into_iter().map(f64::from).collect();
            let best = argmax(&scores);
            prop_assert!(scores.iter().all(|&score| score <= scores[best]));
            prop_assert!(scores[..best].iter().all(|&score| score < scores[best]));
        }
    }
}
