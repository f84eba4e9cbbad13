//! Named random streams of one seed.
//!
//! ```text
//! stream(seed, purpose) = ChaCha8 with key = seed (8 bytes, little-endian) ‖ 24 zero bytes
//!                                      stream id = number of the purpose + 2^32 · lane
//!                                      64-bit words, low half first
//! uniform = ⌊word / 2^11⌋ · 2^−53
//! ```
//!
//! Each purpose draws from its own stream, so one more draw by the agent does not shift the environment.
//! The first values of every stream are a contract: a test pins them, and any ChaCha8 can reproduce them.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng as _, SeedableRng as _};

/// The purpose of a stream. A number never changes and is never reused, so a new purpose shifts no other stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u64)]
pub enum Purpose {
    /// Transitions and initial states during training.
    Env = 0,
    /// The agent's own choices while it collects data.
    Agent = 1,
    /// Minibatches drawn from the replay buffer.
    Replay = 2,
    /// Initial network weights.
    Init = 3,
    /// Episodes played to evaluate a policy.
    Evaluation = 4,
    /// Resampling for confidence intervals.
    Bootstrap = 5,
    /// Tests; they do not shift any other stream.
    Test = 6,
    /// The actions of a stochastic policy that is evaluated.
    EvaluationActions = 7,
    /// The half of a log that is kept apart to check a plan.
    Halves = 8,
}

impl Purpose {
    /// The ChaCha stream id of this purpose.
    pub fn number(self) -> u64 {
        self as u64
    }
}

/// The stream of `seed` that belongs to `purpose`, from its beginning.
///
/// ```
/// use bqrl_math::{Purpose, stream};
///
/// let mut env = stream(42, Purpose::Env);
/// assert_eq!(env.uniform(), 0.3482544685480763);
/// assert!(env.below(25) < 25);
/// ```
pub fn stream(seed: u64, purpose: Purpose) -> Rng {
    Rng::from_state(RngState { seed, stream: purpose.number(), word_pos: 0 })
}

/// The stream of one lane: one of several copies of an environment. Lane 0 has the stream of a run with one lane.
///
/// ```
/// use bqrl_math::{Purpose, lane_stream, stream};
///
/// assert_eq!(lane_stream(42, Purpose::Env, 0).uniform(), stream(42, Purpose::Env).uniform());
/// assert_ne!(lane_stream(42, Purpose::Env, 1).uniform(), stream(42, Purpose::Env).uniform());
/// ```
pub fn lane_stream(seed: u64, purpose: Purpose, lane: usize) -> Rng {
    Rng::from_state(RngState { seed, stream: purpose.number() + ((lane as u64) << 32), word_pos: 0 })
}

/// The position of a stream. Restoring it continues the same draws, bit for bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RngState {
    /// The seed of the run.
    pub seed: u64,
    /// The number of the stream's [`Purpose`], and of its lane.
    pub stream: u64,
    /// How many 32-bit words have been drawn.
    pub word_pos: u64,
}

/// A random stream. Every draw reads whole 64-bit words and changes only the position.
///
/// Compare two streams by their [`state`](Self::state).
#[derive(Clone, Debug)]
pub struct Rng(ChaCha8Rng);

impl Rng {
    /// The stream at a saved position.
    pub fn from_state(state: RngState) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&state.seed.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(state.stream);
        rng.set_word_pos(state.word_pos.into());
        Self(rng)
    }

    /// Seed, stream and position, enough to continue exactly here.
    pub fn state(&self) -> RngState {
        let key = self.0.get_seed();
        RngState {
            seed: u64::from_le_bytes(*key.first_chunk().expect("a ChaCha key has 32 bytes")),
            stream: self.0.get_stream(),
            // ChaCha counts to 2^68, but at a billion words a second 2^64 is five centuries away.
            word_pos: self.0.get_word_pos() as u64,
        }
    }

    /// Uniform on [0, 1): one of the 2^53 multiples of 2^−53, all equally likely.
    pub fn uniform(&mut self) -> f64 {
        let bits = self.0.next_u64() >> 11;
        bits as f64 / (1_u64 << 53) as f64
    }

    /// Uniform on 0..n, without bias.
    ///
    /// Lemire's method: the high word of `word · n` is uniform after the few low words that occur
    /// once too often are rejected (arXiv 1805.10941).
    pub fn below(&mut self, n: usize) -> usize {
        assert!(n > 0, "n must be at least 1, got {n}");
        let n = n as u64;
        let surplus = n.wrapping_neg() % n; // 2^64 mod n
        loop {
            let product = u128::from(self.0.next_u64()) * u128::from(n);
            if product as u64 >= surplus {
                return (product >> 64) as usize;
            }
        }
    }

    /// Standard normal.
    ///
    /// Marsaglia's polar method: a point (a, b) uniform in the unit disc, at squared radius s, gives the
    /// exact normal a √(−2 ln s / s). The second normal, with b, is dropped: a cached value would be hidden state.
    /// The last bits depend on the platform's logarithm; the position of the stream does not.
    pub fn normal(&mut self) -> f64 {
        loop {
            let (a, b) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let s = a * a + b * b;
            if 0.0 < s && s < 1.0 {
                return a * (-2.0 * s.ln() / s).sqrt();
            }
        }
    }

    /// Index i with probability `weights[i]` over their sum, from one uniform draw.
    ///
    /// Weights are non-negative with a positive, finite sum. An index of weight zero is never drawn.
    ///
    /// ```
    /// use bqrl_math::{Purpose, stream};
    ///
    /// let mut rng = stream(42, Purpose::Env);
    /// assert_eq!(rng.categorical(&[0.0, 2.0, 0.0]), 1);
    /// ```
    pub fn categorical(&mut self, weights: &[f64]) -> usize {
        let total: f64 = weights.iter().sum();
        assert!(
            weights.iter().all(|&weight| weight >= 0.0) && 0.0 < total && total < f64::INFINITY,
            "weights must be non-negative with a positive, finite sum, got {weights:?}"
        );
        let level = self.uniform() * total;
        let mut cumulative = 0.0;
        let reached = weights.iter().position(|weight| {
            cumulative += weight;
            level < cumulative
        });
        // If rounding raises the level to the total, take the last positive weight.
        reached.or_else(|| weights.iter().rposition(|&weight| weight > 0.0)).expect("a weight is positive")
    }

    /// Puts the items in a uniformly random order (Fisher–Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use statrs::distribution::{ChiSquared, ContinuousCDF};

    // By name, because proptest's prelude has a trait called Rng.
    use super::{Purpose, Rng, RngState, stream};
    use crate::close::assert_close;

    const PURPOSES: [Purpose; 9] = [
        Purpose::Env,
        Purpose::Agent,
        Purpose::Replay,
        Purpose::Init,
        Purpose::Evaluation,
        Purpose::Bootstrap,
        Purpose::Test,
        Purpose::EvaluationActions,
        Purpose::Halves,
    ];

    /// Probability that counts of equally likely cells deviate at least this much by chance.
    fn chi_square_p_value(counts: &[u32]) -> f64 {
        let expected = f64::from(counts.iter().sum::<u32>()) / counts.len() as f64;
        let statistic = counts.iter().map(|&count| (f64::from(count) - expected).powi(2) / expected).sum();
        ChiSquared::new((counts.len() - 1) as f64).unwrap().sf(statistic)
    }

    #[test]
    fn first_values_of_seed_42_are_a_contract() {
        // From a separate implementation, in Python, of the equations at the top of this module.
        let want = [
            [0.3482544685480763, 0.28569857126296205, 0.4934724642416646],
            [0.7768638380587397, 0.20197555198691008, 0.6321396018207178],
            [0.22718578611838325, 0.5429221739955897, 0.5531125115133033],
            [0.45676212857349563, 0.6719622896610319, 0.8718220515663775],
            [0.7680906928204689, 0.6570602705258818, 0.7837257502714032],
            [0.4507366013628753, 0.5306346025589364, 0.6224664796719075],
            [0.8570819268685702, 0.6944906413573205, 0.1503779461351702],
            [0.1856793895444051, 0.5803597403715085, 0.9453043200534861],
            [0.6130522034502615, 0.7343981549156828, 0.31606540402527616],
        ];
        for (purpose, want) in PURPOSES.into_iter().zip(want) {
            let mut rng = stream(42, purpose);
            assert_eq!([rng.uniform(), rng.uniform(), rng.uniform()], want, "{purpose:?}");
        }

        let mut rng = stream(42, Purpose::Env);
        let offers: Vec<usize> = (0..8).map(|_| rng.below(25)).collect();
        assert_eq!(offers, [8, 7, 12, 9, 20, 1, 12, 6]);

        let mut rng = stream(42, Purpose::Test);
        assert_close(rng.normal(), 0.7986113694014628, 1e-14);
    }

    #[test]
    fn purposes_keep_their_numbers() {
        assert_eq!(PURPOSES.map(Purpose::number), [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    }

    #[test]
    fn neighbouring_streams_and_seeds_are_uncorrelated() {
        // Under independence √n · correlation is nearly standard normal. n = 20 000, six pairs,
        // five standard errors: a fresh choice of seeds would fail with probability below 4e-6.
        let n = 20_000;
        let centred = |seed, purpose| {
            let mut rng = stream(seed, purpose);
            (0..n).map(|_| rng.uniform() - 0.5).collect::<Vec<f64>>()
        };
        let draws = [
            centred(42, Purpose::Env),
            centred(42, Purpose::Agent),
            centred(43, Purpose::Env),
            centred(43, Purpose::Agent),
        ];
        for (i, x) in draws.iter().enumerate() {
            for y in &draws[..i] {
                // Each product has mean 0 and variance (1/12)².
                let sum: f64 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                let standard_errors = sum * 12.0 / f64::from(n).sqrt();
                assert!(standard_errors.abs() < 5.0, "{standard_errors} standard errors");
            }
        }
    }

    #[test]
    fn uniform_fills_its_cells_evenly() {
        // Chi-square with 99 degrees of freedom; a fresh seed would fail with probability 1e-6.
        let mut rng = stream(42, Purpose::Test);
        let mut counts = [0; 100];
        for _ in 0..100_000 {
            counts[(rng.uniform() * 100.0) as usize] += 1;
        }
        let p_value = chi_square_p_value(&counts);
        assert!(p_value > 1e-6, "p = {p_value}");
    }

    #[test]
    fn below_draws_every_index_equally_often() {
        // Chi-square with 24 degrees of freedom; a fresh seed would fail with probability 1e-6.
        let mut rng = stream(42, Purpose::Test);
        let mut counts = [0; 25];
        for _ in 0..50_000 {
            counts[rng.below(25)] += 1;
        }
        let p_value = chi_square_p_value(&counts);
        assert!(p_value > 1e-6, "p = {p_value}");
    }

    #[test]
    fn below_is_unbiased_where_plain_multiplication_is_not() {
        // n = 3 · 2^62: without rejection, index 0 mod 3 would come up half of the time instead of a third.
        // 30 000 draws, standard error √(2/9 / 30 000) = 0.0027, five of them: false alarm below 1e-6.
        let n = 3_usize << 62;
        let mut rng = stream(42, Purpose::Test);
        let zeros = (0..30_000).filter(|_| rng.below(n).is_multiple_of(3)).count();
        assert_close(zeros as f64 / 30_000.0, 1.0 / 3.0, 5.0 * 0.0028);
    }

    #[test]
    fn normal_has_mean_zero_variance_one_and_normal_tails() {
        // n = 100 000. Standard errors: mean 1/√n, variance √(2/n), P(|X| > 1.96) = 0.05: √(.0475/n).
        // Five of each: a fresh seed would fail with probability below 2e-6.
        let n = 100_000;
        let mut rng = stream(42, Purpose::Test);
        let draws: Vec<f64> = (0..n).map(|_| rng.normal()).collect();
        let root = f64::from(n).sqrt();
        let mean = draws.iter().sum::<f64>() / f64::from(n);
        let variance = draws.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        let tail = draws.iter().filter(|x| x.abs() > 1.959963984540054).count() as f64 / f64::from(n);
        assert_close(mean, 0.0, 5.0 / root);
        assert_close(variance, 1.0, 5.0 * 2.0_f64.sqrt() / root);
        assert_close(tail, 0.05, 5.0 * 0.0475_f64.sqrt() / root);
    }

    #[test]
    fn categorical_draws_in_proportion_and_never_a_zero_weight() {
        // Weights 1 : 0 : 3. n = 20 000, five standard errors √(.1875/n): false alarm below 1e-6.
        let n = 20_000;
        let mut rng = stream(42, Purpose::Test);
        let mut counts = [0; 3];
        for _ in 0..n {
            counts[rng.categorical(&[1.0, 0.0, 3.0])] += 1;
        }
        assert_eq!(counts[1], 0);
        assert_close(f64::from(counts[0]) / f64::from(n), 0.25, 5.0 * (0.1875 / f64::from(n)).sqrt());
    }

    #[test]
    #[should_panic(expected = "positive, finite sum, got [0.0, 0.0]")]
    fn categorical_refuses_weights_without_mass() {
        stream(42, Purpose::Test).categorical(&[0.0, 0.0]);
    }

    #[test]
    fn shuffle_makes_every_order_equally_likely() {
        // Chi-square over the 6 orders of 3 items; a fresh seed would fail with probability 1e-6.
        let mut rng = stream(42, Purpose::Test);
        let mut counts = [0; 6];
        for _ in 0..12_000 {
            let mut items = [0, 1, 2];
            rng.shuffle(&mut items);
            counts[2 * items[0] + usize::from(items[1] > items[2])] += 1;
        }
        let p_value = chi_square_p_value(&counts);
        assert!(p_value > 1e-6, "p = {p_value}");
    }

    proptest! {
        #[test]
        fn a_restored_stream_continues_bit_for_bit(seed: u64, draws in 0_usize..200) {
            let mut rng = stream(seed, Purpose::Agent);
            for _ in 0..draws {
                rng.normal();
            }
            let mut restored = Rng::from_state(rng.state());
            prop_assert_eq!(restored.state(), rng.state());
            for _ in 0..100 {
                prop_assert_eq!(restored.uniform().to_bits(), rng.uniform().to_bits());
            }
            prop_assert_eq!(restored.state(), rng.state());
        }

        #[test]
        fn the_position_counts_two_words_per_uniform(seed: u64, draws in 0_u16..300) {
            let mut rng = stream(seed, Purpose::Replay);
            for _ in 0..draws {
                rng.uniform();
            }
            prop_assert_eq!(rng.state(), RngState { seed, stream: 2, word_pos: 2 * u64::from(draws) });
        }

        #[test]
        fn draws_stay_in_their_range(seed: u64, n in 1_usize..1000) {
            let mut rng = stream(seed, Purpose::Test);
            prop_assert!((0.0..1.0).contains(&rng.uniform()));
            prop_assert!(rng.below(n) < n);
            prop_assert!(rng.normal().is_finite());
        }
    }
}
