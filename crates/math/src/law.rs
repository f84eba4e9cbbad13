//! Finite laws of a return, and their exact functionals (§2.2).
//!
//! ```text
//! Q_q(W)    = inf{ w : P(W ≤ w) ≥ q }            0 < q ≤ 1,  Q_0 = smallest value
//! Q_τ^β(W)  = (1/β) ∫_{τ−β}^{τ} Q_u(W) du
//! CVaR_α(W) = (1/α) ∫_0^α Q_u(W) du              lower tail, so CVaR_τ = Q_τ^τ
//! ```
//!
//! Q_u is a step function of u: atom i holds its value over the cell (p_1 + … + p_{i−1}, p_1 + … + p_i].
//! Every integral here is the sum of value × overlap over these cells, with no grid and no sampling.
//!
//! Two other forms of the objective, which planning uses and the tests check:
//!
//! ```text
//! β Q_τ^β = max_v { τv − E(v−W)₊ } − max_u { (τ−β)u − E(u−W)₊ }         maxima at v = Q_τ, u = Q_{τ−β}
//! β Q_τ^β = max_v min_{u≤v} { (τ−1)v − (τ−β)u + E clip(W, u, v) }       saddle at the same v, u
//! ```

use thiserror::Error;

use crate::Buffer;

/// Slack when a sum of probabilities is compared with a level.
///
/// Eight atoms of 0.1 add up to 0.7999999999999999, which is meant to be 0.8 and counts as ≥ 0.8.
/// The slack is above the rounding of a hundred thousand additions and below any probability of interest.
pub const PROBABILITY_TOLERANCE: f64 = 1e-11;

/// How far from 1 the probabilities of a law may sum before they are refused rather than normalised.
const SUM_TOLERANCE: f64 = 1e-6;

/// A finite law: strictly increasing values with positive probabilities that sum to 1.
///
/// ```
/// use bqrl_math::ReturnLaw;
///
/// let law = ReturnLaw::from_atoms([(3.0, 0.5), (1.0, 0.25), (2.0, 0.25)])?;
/// assert_eq!(law.values(), [1.0, 2.0, 3.0]);
/// assert_eq!(law.quantile(0.5), 2.0);
/// assert_eq!(law.mean(), 2.25);
/// assert_eq!(law.cvar(0.5), 1.5);
/// # Ok::<(), bqrl_math::LawError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct ReturnLaw {
    values: Vec<f64>,
    probabilities: Vec<f64>,
}

/// Atoms that do not make a law.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum LawError {
    /// There is no atom.
    #[error("a law must have at least 1 atom, got 0")]
    Empty,
    /// A value is NaN or infinite.
    #[error("values must be finite, got {0}")]
    ValueNotFinite(f64),
    /// A probability, or the weight of a mixture, is negative, NaN or infinite.
    #[error("probabilities must lie in [0, 1], got {0}")]
    ProbabilityOutOfRange(f64),
    /// The probabilities do not sum to 1.
    #[error("probabilities must sum to 1 within {SUM_TOLERANCE}, got {0}")]
    SumNotOne(f64),
    /// The tolerance within which values are merged is negative, NaN or infinite.
    #[error("tolerance must lie in [0, inf), got {0}")]
    ToleranceOutOfRange(f64),
}

impl ReturnLaw {
    /// The law of (value, probability) atoms in any order.
    ///
    /// Equal values are merged and atoms of probability zero dropped.
    /// Probabilities that sum to 1 up to rounding (1e-6) are normalised; anything else is refused.
    pub fn from_atoms(atoms: impl IntoIterator<Item = (f64, f64)>) -> Result<Self, LawError> {
        Self::from_atoms_within(atoms, 0.0)
    }

    /// As [`from_atoms`](Self::from_atoms), but values at most `tolerance` apart become one atom.
    ///
    /// Clusters form greedily from the smallest value: each takes all values within `tolerance` of its first,
    /// so a chain of close values cannot grow without bound.
    /// A cluster is represented by its probability-weighted mean, which leaves the law's mean unchanged.
    ///
    /// ```
    /// use bqrl_math::ReturnLaw;
    ///
    /// // The same return, summed in two orders.
    /// let atoms = [(0.1 + 0.2 + 0.3, 0.5), (0.3 + 0.2 + 0.1, 0.5)];
    /// assert_eq!(ReturnLaw::from_atoms(atoms)?.values().len(), 2);
    /// assert_eq!(ReturnLaw::from_atoms_within(atoms, 1e-9)?.values().len(), 1);
    /// # Ok::<(), bqrl_math::LawError>(())
    /// ```
    pub fn from_atoms_within(
        atoms: impl IntoIterator<Item = (f64, f64)>,
        tolerance: f64,
    ) -> Result<Self, LawError> {
        if !(0.0..f64::INFINITY).contains(&tolerance) {
            return Err(LawError::ToleranceOutOfRange(tolerance));
        }
        let mut atoms: Vec<(f64, f64)> = atoms.into_iter().collect();
        if atoms.is_empty() {
            return Err(LawError::Empty);
        }
        for &(value, probability) in &atoms {
            if !value.is_finite() {
                return Err(LawError::ValueNotFinite(value));
            }
            check_probability(probability)?;
        }
        let sum: f64 = atoms.iter().map(|atom| atom.1).sum();
        if (sum - 1.0).abs() > SUM_TOLERANCE {
            return Err(LawError::SumNotOne(sum));
        }
        for (_, probability) in &mut atoms {
            *probability /= sum;
        }
        Ok(Self::merge(atoms, tolerance))
    }

    /// The empirical law: each of n samples has probability 1/n.
    pub fn from_samples(samples: &[f64]) -> Result<Self, LawError> {
        let each = 1.0 / samples.len() as f64;
        Self::from_atoms(samples.iter().map(|&sample| (sample, each)))
    }

    /// The law of a return that is certain.
    pub fn point(value: f64) -> Self {
        assert!(value.is_finite(), "a point law must have a finite value, got {value}");
        Self { values: vec![value], probabilities: vec![1.0] }
    }

    /// The law that draws one of the components with its weight, then a return from it.
    pub fn mixture(components: &[(f64, &Self)]) -> Result<Self, LawError> {
        for &(weight, _) in components {
            check_probability(weight)?;
        }
        let atoms = components.iter().flat_map(|&(weight, law)| {
            law.atoms().map(move |(value, probability)| (value, weight * probability))
        });
        Self::from_atoms(atoms)
    }

    /// The law of W + `by`.
    #[must_use]
    pub fn shift(&self, by: f64) -> Self {
        let atoms: Vec<(f64, f64)> =
            self.atoms().map(|(value, probability)| (value + by, probability)).collect();
        let last = atoms[atoms.len() - 1].0;
        assert!(atoms[0].0.is_finite() && last.is_finite(), "shifted values must be finite, got by = {by}");
        // A shift that is much larger than the gaps between values can round two of them to one.
        Self::merge(atoms, 0.0)
    }

    // Sorts atoms, drops the empty ones and makes one atom of each cluster.
    fn merge(mut atoms: Vec<(f64, f64)>, tolerance: f64) -> Self {
        atoms.retain(|&(_, probability)| probability > 0.0);
        atoms.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let (mut values, mut probabilities) = (Vec::new(), Vec::new());
        let mut rest = atoms.as_slice();
        while let Some(&(first, _)) = rest.first() {
            let (cluster, larger) = rest.split_at(rest.partition_point(|atom| atom.0 - first <= tolerance));
            let probability: f64 = cluster.iter().map(|atom| atom.1).sum();
            let excess: f64 = cluster.iter().map(|atom| (atom.0 - first) * atom.1).sum();
            // The mean as first + excess: equal values stay exactly as they are.
            // Rounding must not carry it past the cluster, or values would not be increasing.
            let last = cluster[cluster.len() - 1].0;
            values.push((first + excess / probability).min(last));
            probabilities.push(probability);
            rest = larger;
        }
        Self { values, probabilities }
    }

    /// The values, strictly increasing.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The probabilities of [`values`](Self::values), all positive.
    pub fn probabilities(&self) -> &[f64] {
        &self.probabilities
    }

    /// The (value, probability) atoms, by increasing value.
    pub fn atoms(&self) -> impl Iterator<Item = (f64, f64)> {
        self.values.iter().copied().zip(self.probabilities.iter().copied())
    }

    /// Smallest value.
    pub fn min(&self) -> f64 {
        self.values[0]
    }

    /// Largest value.
    pub fn max(&self) -> f64 {
        self.values[self.values.len() - 1]
    }

    /// Point quantile Q_q for q in [0, 1], where Q_0 is the smallest value.
    ///
    /// Cumulative probabilities within [`PROBABILITY_TOLERANCE`] of q count as having reached it.
    pub fn quantile(&self, q: f64) -> f64 {
        assert!((0.0..=1.0).contains(&q), "q must lie in [0, 1], got {q}");
        let mut cumulative = 0.0;
        for (value, probability) in self.atoms() {
            cumulative += probability;
            if cumulative >= q - PROBABILITY_TOLERANCE {
                return value;
            }
        }
        self.max()
    }

    /// Lower-buffered quantile Q_τ^β.
    pub fn buffered_quantile(&self, buffer: &Buffer) -> f64 {
        self.average_quantile(buffer.lower(), buffer.tau())
    }

    /// Lower-tail CVaR_α, the mean of the worst share α of returns, for α in (0, 1].
    pub fn cvar(&self, alpha: f64) -> f64 {
        assert!(0.0 < alpha && alpha <= 1.0, "alpha must lie in (0, 1], got {alpha}");
        self.average_quantile(0.0, alpha)
    }

    // Average of Q_u over u in [from, to]. Continuous in both ends, so it needs no tolerance.
    fn average_quantile(&self, from: f64, to: f64) -> f64 {
        let (mut integral, mut cumulative) = (0.0, 0.0);
        for (value, probability) in self.atoms() {
            let cell = (cumulative, cumulative + probability);
            integral += value * (to.min(cell.1) - from.max(cell.0)).max(0.0);
            cumulative = cell.1;
        }
        // The gap that rounding leaves between the last cell and level 1 belongs to the last atom.
        integral += self.max() * (to - from.max(cumulative)).max(0.0);
        integral / (to - from)
    }

    /// E W.
    pub fn mean(&self) -> f64 {
        self.expectation(|w| w)
    }

    /// Standard deviation of W.
    pub fn sd(&self) -> f64 {
        let mean = self.mean();
        self.expectation(|w| (w - mean).powi(2)).sqrt()
    }

    /// P(W ≤ w).
    pub fn cdf(&self, w: f64) -> f64 {
        self.probability(|value| value <= w)
    }

    /// P(W < w). Q_τ ≥ w if and only if P(W < w) < τ.
    pub fn probability_below(&self, w: f64) -> f64 {
        self.probability(|value| value < w)
    }

    /// P(W ≥ w).
    pub fn probability_at_least(&self, w: f64) -> f64 {
        self.probability(|value| value >= w)
    }

    /// E (v − W)₊, the average shortfall of W below v.
    pub fn expected_shortfall(&self, v: f64) -> f64 {
        self.expectation(|w| (v - w).max(0.0))
    }

    /// E clip(W, u, v) for u ≤ v.
    pub fn clipped_mean(&self, u: f64, v: f64) -> f64 {
        assert!(u <= v, "u must be at most v = {v}, got {u}");
        self.expectation(|w| w.clamp(u, v))
    }

    fn expectation(&self, f: impl Fn(f64) -> f64) -> f64 {
        self.atoms().map(|(value, probability)| probability * f(value)).sum()
    }

    // Summed over the event itself, not as 1 − P(complement), so that small tails keep their digits.
    fn probability(&self, event: impl Fn(f64) -> bool) -> f64 {
        let sum: f64 =
            self.atoms().filter(|&(value, _)| event(value)).map(|(_, probability)| probability).sum();
        sum.min(1.0)
    }
}

fn check_probability(probability: f64) -> Result<(), LawError> {
    // With the slack, a sum of rounded probabilities that is meant to be 1 counts as 1.
    if (0.0..=1.0 + SUM_TOLERANCE).contains(&probability) {
        Ok(())
    } else {
        Err(LawError::ProbabilityOutOfRange(probability))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::close::{assert_all_close, assert_close};

    /// A return of 0 or 1.
    fn binary(success: f64) -> ReturnLaw {
        ReturnLaw::from_atoms([(0.0, 1.0 - success), (1.0, success)]).unwrap()
    }

    /// Asset selling (offers 0..24 out of 24, H = 10, first offer 5), "accept from 19, never sell below".
    ///
    /// The first offer is refused. Each of nine further offers is one of 19..24 with probability 1/25 apiece.
    /// So nothing is sold with probability (19/25)^9, and the six accepted offers share the rest equally.
    fn accept_from_19() -> ReturnLaw {
        let unsold = (19.0_f64 / 25.0).powi(9);
        let sold = (19..=24).map(|offer| (f64::from(offer) / 24.0, (1.0 - unsold) / 6.0));
        ReturnLaw::from_atoms(sold.chain([(0.0, unsold)])).unwrap()
    }

    #[test]
    fn asset_selling_from_19_matches_hand_computation() {
        let law = accept_from_19();
        // P(R < 19/24) = (19/25)^9 ≈ 0.084590 < 0.1, hence Q_.1 = 19/24.
        assert_close(law.probability_below(19.0 / 24.0), 0.084590, 1e-6);
        assert_eq!(law.quantile(0.1), 19.0 / 24.0);
        assert_eq!(law.quantile(0.08), 0.0);
        // Mean: (1 − 0.084590) · 21.5/24.
        assert_close(law.mean(), 0.820054, 1e-6);
        // τ = .1, β = .02: of the window [.08, .1], the part above .084590 is worth 19/24, the rest nothing.
        let buffered = law.buffered_quantile(&Buffer::new(0.1, 0.02).unwrap());
        assert_close(buffered, (0.1 - (19.0_f64 / 25.0).powi(9)) / 0.02 * 19.0 / 24.0, 1e-12);
    }

    #[test]
    fn frozen_lake_quantiles_follow_from_its_best_success_rate() {
        // 4×4 slippery, H = 100: max P(goal) = 0.7441902878292657, so P(R = 0) lies between 0.1 and 0.5.
        let law = binary(0.7441902878292657);
        assert_eq!([0.1, 0.5, 0.9].map(|tau| law.quantile(tau)), [0.0, 1.0, 1.0]);
        assert_close(law.mean(), 0.7441902878292657, 1e-15);
        assert_close(law.sd(), (0.7441902878292657_f64 * 0.2558097121707343).sqrt(), 1e-15);
    }

    #[test]
    fn functionals_match_hand_computation() {
        // Atoms 1, 2, 4 with probabilities .2, .3, .5.
        let law = ReturnLaw::from_atoms([(4.0, 0.5), (1.0, 0.2), (2.0, 0.3)]).unwrap();
        assert_eq!((law.min(), law.max()), (1.0, 4.0));
        assert_close(law.mean(), 2.8, 1e-15);
        // E W² = .2 + 1.2 + 8 = 9.4, minus 2.8² = 7.84.
        assert_close(law.sd(), 1.56_f64.sqrt(), 1e-15);
        // CVaR_.4 = (.2·1 + .2·2)/.4.
        assert_close(law.cvar(0.4), 1.5, 1e-15);
        assert_close(law.cvar(1.0), 2.8, 1e-15);
        // τ = .6, β = .5: [.1, .2] at 1, [.2, .5] at 2, [.5, .6] at 4: (.1 + .6 + .4)/.5.
        assert_close(law.buffered_quantile(&Buffer::new(0.6, 0.5).unwrap()), 2.2, 1e-14);
        assert_close(law.cdf(2.0), 0.5, 1e-15);
        assert_close(law.probability_below(2.0), 0.2, 1e-15);
        assert_close(law.probability_at_least(2.0), 0.8, 1e-15);
        // E (3 − W)₊ = .2·2 + .3·1.
        assert_close(law.expected_shortfall(3.0), 0.7, 1e-15);
        // clip to [1.5, 3]: .2·1.5 + .3·2 + .5·3.
        assert_close(law.clipped_mean(1.5, 3.0), 2.4, 1e-15);
    }

    #[test]
    fn a_sum_meant_to_reach_the_level_counts_as_reaching_it() {
        // 1/n is rarely exact: for more than half of these n, some sum of k of them falls short of k/n.
        for n in 1..=100 {
            let law = ReturnLaw::from_atoms((1..=n).map(|i| (f64::from(i), 1.0 / f64::from(n)))).unwrap();
            for k in 1..=n {
                assert_eq!(law.quantile(f64::from(k) / f64::from(n)), f64::from(k), "n = {n}, k = {k}");
            }
            assert_eq!(law.quantile(0.0), 1.0);
            assert_eq!(law.quantile(0.5 + 1e-9), f64::from(n / 2 + 1));
        }
    }

    #[test]
    fn the_topmost_window_belongs_to_the_largest_value() {
        // A window one float wide, narrower than what rounding leaves between the last sum and 1.
        let tau = 1.0_f64.next_down();
        let buffer = Buffer::new(tau, tau - tau.next_down()).unwrap();
        for n in 1..=100 {
            let law = ReturnLaw::from_atoms((1..=n).map(|i| (f64::from(i), 1.0 / f64::from(n)))).unwrap();
            assert_close(law.buffered_quantile(&buffer), f64::from(n), 1e-12);
        }
    }

    #[test]
    fn quantiles_of_many_samples_are_their_order_statistics() {
        // Rounding adds up over 100 000 atoms and must stay inside the tolerance.
        let n = 100_000_u32;
        let samples: Vec<f64> = (1..=n).map(f64::from).collect();
        let law = ReturnLaw::from_samples(&samples).unwrap();
        for k in [1, 2, 9_999, 10_000, 50_000, 90_000, 99_999, n] {
            assert_eq!(law.quantile(f64::from(k) / f64::from(n)), f64::from(k));
        }
    }

    #[test]
    fn atoms_are_sorted_merged_and_normalised() {
        let law = ReturnLaw::from_atoms([(2.0, 0.25), (-1.0, 0.5), (2.0, 0.25), (7.0, 0.0)]).unwrap();
        assert_eq!((law.values(), law.probabilities()), (&[-1.0, 2.0][..], &[0.5, 0.5][..]));
        assert_eq!(ReturnLaw::from_atoms([(-0.0, 0.5), (0.0, 0.5)]).unwrap().values(), [0.0]);
        let law = ReturnLaw::from_atoms([(0.0, 0.5), (1.0, 0.5 + 5e-7)]).unwrap();
        assert_close(law.probabilities().iter().sum(), 1.0, 1e-15);
    }

    #[test]
    fn clusters_reach_no_further_than_the_tolerance_from_their_first_value() {
        // 0, .6, 1.2 are a chain with steps below 1.
        // {0, .6} merge to (.25·0 + .5·.6)/.75 = .4, and 1.2 starts anew.
        let law = ReturnLaw::from_atoms_within([(0.0, 0.25), (0.6, 0.5), (1.2, 0.25)], 1.0).unwrap();
        assert_all_close(law.values(), &[0.4, 1.2], 1e-15);
        assert_all_close(law.probabilities(), &[0.75, 0.25], 1e-15);
    }

    #[test]
    fn rounding_never_carries_a_cluster_to_the_next_value() {
        // (.3·.45 + .3·.05)/.5 rounds to the float above .3, the value of the atom outside the cluster.
        let outside = 0.3_f64.next_up();
        let atoms = [(0.0, 1e-300), (0.3, 0.45), (0.3, 0.05), (outside, 0.5)];
        assert_eq!(ReturnLaw::from_atoms_within(atoms, 0.3).unwrap().values(), [0.3, outside]);
    }

    #[test]
    fn atoms_that_are_no_law_are_refused_with_the_value() {
        let refused = |atoms: &[(f64, f64)]| ReturnLaw::from_atoms(atoms.iter().copied()).unwrap_err();
        assert_eq!(refused(&[]), LawError::Empty);
        assert_eq!(ReturnLaw::from_samples(&[]), Err(LawError::Empty));
        assert_eq!(ReturnLaw::mixture(&[]), Err(LawError::Empty));
        assert_eq!(refused(&[(f64::INFINITY, 1.0)]), LawError::ValueNotFinite(f64::INFINITY));
        assert!(matches!(refused(&[(f64::NAN, 1.0)]), LawError::ValueNotFinite(_)));
        assert_eq!(refused(&[(0.0, 1.5), (1.0, -0.5)]), LawError::ProbabilityOutOfRange(1.5));
        assert_eq!(refused(&[(1.0, -0.5), (0.0, 1.5)]), LawError::ProbabilityOutOfRange(-0.5));
        assert!(matches!(refused(&[(0.0, f64::NAN)]), LawError::ProbabilityOutOfRange(_)));
        assert_eq!(
            refused(&[(0.0, 0.5)]).to_string(),
            "probabilities must sum to 1 within 0.000001, got 0.5"
        );
        assert_eq!(ReturnLaw::from_atoms_within([], -1.0), Err(LawError::ToleranceOutOfRange(-1.0)));
        let point = ReturnLaw::point(0.0);
        assert_eq!(ReturnLaw::mixture(&[(-1.0, &point)]), Err(LawError::ProbabilityOutOfRange(-1.0)));
    }

    #[test]
    fn a_shift_that_swallows_the_gaps_keeps_values_strictly_increasing() {
        assert_eq!(binary(0.5).shift(1e17), ReturnLaw::point(1e17));
        assert_eq!(binary(0.5).shift(-1.0).values(), [-1.0, 0.0]);
    }

    #[test]
    fn a_mixture_weighs_its_components() {
        // .25 · {0: .5, 1: .5} + .75 · {1: 1}.
        let law = ReturnLaw::mixture(&[(0.25, &binary(0.5)), (0.75, &ReturnLaw::point(1.0))]).unwrap();
        assert_eq!(law, binary(0.875));
    }

    /// Up to 12 atoms, on a coarse grid so that merging happens.
    fn law() -> impl Strategy<Value = ReturnLaw> {
        prop::collection::vec((-20_i32..20, 1_u32..10), 1..12).prop_map(|atoms| {
            let total: u32 = atoms.iter().map(|atom| atom.1).sum();
            let share = |(value, weight)| (f64::from(value) / 4.0, f64::from(weight) / f64::from(total));
            ReturnLaw::from_atoms(atoms.into_iter().map(share)).unwrap()
        })
    }

    fn buffer() -> impl Strategy<Value = Buffer> {
        (0.01..0.99, 0.01..=1.0).prop_map(|(tau, share)| Buffer::new(tau, tau * share).unwrap())
    }

    proptest! {
        #[test]
        fn a_quantile_reaches_w_if_and_only_if_less_than_its_level_lies_below(
            law in law(),
            tau in 0.001..0.999_f64,
            w in -6.0..6.0,
        ) {
            let below = law.probability_below(w);
            prop_assume!((below - tau).abs() > 1e-9);
            prop_assert_eq!(law.quantile(tau) >= w, below < tau);
        }

        #[test]
        fn a_full_lower_tail_buffer_is_the_cvar(law in law(), tau in 0.01..0.99) {
            let buffer = Buffer::new(tau, tau).unwrap();
            assert_close(law.buffered_quantile(&buffer), law.cvar(tau), 1e-12);
        }

        #[test]
        fn buffered_quantile_is_a_difference_of_cvars(law in law(), buffer in buffer()) {
            // β Q_τ^β = τ CVaR_τ − (τ−β) CVaR_{τ−β}, and α CVaR_α = max_v { αv − E(v−W)₊ } sits at v = Q_α.
            let maximum = |alpha: f64| {
                let v = law.quantile(alpha);
                alpha * v - law.expected_shortfall(v)
            };
            let difference = maximum(buffer.tau()) - maximum(buffer.lower());
            assert_close(buffer.beta() * law.buffered_quantile(&buffer), difference, 1e-12);
            assert_close(maximum(buffer.tau()), buffer.tau() * law.cvar(buffer.tau()), 1e-12);
        }

        #[test]
        fn no_other_v_gives_a_larger_cvar_term(law in law(), alpha in 0.01..0.99, v in -6.0..6.0) {
            prop_assert!(alpha * v - law.expected_shortfall(v) <= alpha * law.cvar(alpha) + 1e-12);
        }

        #[test]
        fn buffered_quantile_is_the_saddle_at_its_two_quantiles(
            law in law(),
            buffer in buffer(),
            other in -6.0..6.0_f64,
        ) {
            let (tau, beta) = (buffer.tau(), buffer.beta());
            let saddle = |u: f64, v: f64| (tau - 1.0) * v - (tau - beta) * u + law.clipped_mean(u, v);
            let (u, v) = (law.quantile(tau - beta), law.quantile(tau));
            let value = beta * law.buffered_quantile(&buffer);
            assert_close(saddle(u, v), value, 1e-12);
            // No u ≤ v does better for the minimiser at v = Q_τ.
            prop_assert!(saddle(other.min(v), v) >= value - 1e-12);
            // No v does better for the maximiser: u = min(Q_{τ−β}, v) already holds it down.
            prop_assert!(saddle(u.min(other), other) <= value + 1e-12);
        }

        #[test]
        fn quantile_functionals_shift_with_the_law(law in law(), buffer in buffer(), by in -10.0..10.0) {
            let shifted = law.shift(by);
            assert_close(shifted.buffered_quantile(&buffer), law.buffered_quantile(&buffer) + by, 1e-10);
            assert_close(shifted.quantile(buffer.tau()), law.quantile(buffer.tau()) + by, 1e-12);
            assert_close(shifted.sd(), law.sd(), 1e-9);
        }

        #[test]
        fn buffered_quantile_lies_between_its_two_quantiles(law in law(), buffer in buffer()) {
            let buffered = law.buffered_quantile(&buffer);
            prop_assert!(buffered >= law.quantile(buffer.lower()) - 1e-12);
            prop_assert!(buffered <= law.quantile(buffer.tau()) + 1e-12);
        }

        #[test]
        fn a_vanishing_buffer_approaches_the_point_quantile(law in law(), tau in 0.01..0.99) {
            let edge = law.probability_below(law.quantile(tau));
            prop_assume!(tau - edge > 1e-6);
            let buffer = Buffer::new(tau, 1e-7).unwrap();
            assert_close(law.buffered_quantile(&buffer), law.quantile(tau), 1e-9);
        }

        #[test]
        fn merging_within_a_tolerance_keeps_the_mean_and_the_order(law in law(), tolerance in 0.0..3.0) {
            let merged = ReturnLaw::from_atoms_within(law.atoms(), tolerance).unwrap();
            assert_close(merged.mean(), law.mean(), 1e-12);
            prop_assert!(merged.values().is_sorted_by(|a, b| a < b));
            assert_close(merged.probabilities().iter().sum(), 1.0, 1e-12);
        }

        #[test]
        fn a_mixture_mixes_means_and_distribution_functions(
            a in law(),
            b in law(),
            weight in 0.0..=1.0,
            w in -6.0..6.0,
        ) {
            let mixed = ReturnLaw::mixture(&[(weight, &a), (1.0 - weight, &b)]).unwrap();
            assert_close(mixed.mean(), weight * a.mean() + (1.0 - weight) * b.mean(), 1e-12);
            assert_close(mixed.cdf(w), weight * a.cdf(w) + (1.0 - weight) * b.cdf(w), 1e-12);
            assert_close(mixed.probability_below(w) + mixed.probability_at_least(w), 1.0, 1e-12);
        }
    }
}
