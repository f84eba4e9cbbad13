//! x = (h, s, c) as network input.
//!
//! ```text
//! state        one-hot of s, √n high (unordered); s/(n−1) and the ±1 thermometer 1{s ≥ k}, k = 1..n−1 (ordered); a vector by its
//!              running mean and standard deviation, cut at ±5, or as it is; bits as 0 and 1; bytes over 255 (by the networks)
//! time         (H−h)/H and exp(−(H−h)/2^j), j = 0 … ⌈log₂ H⌉ − 1
//! collected    c / σ, for agents whose policy depends on it
//! ```
//!
//! Time to go on several scales: the first one flags the last step, without which "go on at the last step" is extrapolated above
//! zero. The thermometer lets what is learned of one offer carry over to its neighbours (decision 0005).

use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::{Cells, Planes, Rows};
use serde::{Deserialize, Serialize};

use crate::Input;

/// A normalised number is cut here.
const MOST: f32 = 5.0;
/// A smaller exp(−(H−h)/2^j) is written as zero. Sums of single precision would not notice it, but it would lead to denormal numbers in the
/// networks and in Adam. Some processors take a hundred cycles for each: runs on FrozenLake (H = 100) took four times as long.
const FAINT: f32 = f32::EPSILON;

/// Inputs of several samples. Planes stay bits or bytes here; they become floats in the lanes of the networks.
#[derive(Clone, Debug, Default)]
pub struct Encoded {
    n_samples: usize,
    bytes: Vec<u8>,
    floats: Vec<f32>,
}

impl Encoded {
    /// How many.
    pub fn n_samples(&self) -> usize {
        self.n_samples
    }

    /// Keeps the memory.
    pub fn clear(&mut self) {
        self.n_samples = 0;
        self.bytes.clear();
        self.floats.clear();
    }

    /// Removes the last one if it is the same as the one before it.
    pub fn drop_repeated(&mut self) {
        let n = self.n_samples;
        if n > 1 && last_is_repeated(&self.bytes, n) && last_is_repeated(&self.floats, n) {
            self.n_samples -= 1;
            self.bytes.truncate(self.bytes.len() / n * (n - 1));
            self.floats.truncate(self.floats.len() / n * (n - 1));
        }
    }
}

fn last_is_repeated<T: PartialEq>(rows: &[T], n: usize) -> bool {
    let (before, last) = rows.split_at(rows.len() / n * (n - 1));
    before.ends_with(last)
}

/// Writes inputs for one problem.
#[derive(Clone, Debug)]
pub struct Encoder {
    state: State,
    horizon: usize,
    n_paces: usize,
    with_collected: bool,
    moments: Moments,
}

#[derive(Clone, Copy, Debug)]
enum State {
    OneHot {
        n: usize,
        height: f32,
    },
    Thermometer(usize),
    Dense(usize),
    /// A vector that is not normalised.
    Raw(usize),
    Bits(usize),
    Bytes(usize),
}

/// Running mean and variance of every number of a vector observation.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Moments {
    count: f64,
    mean: Vec<f64>,
    /// Sums of squared distances from the mean.
    squares: Vec<f64>,
}

impl Moments {
    /// How many observations.
    pub fn count(&self) -> f64 {
        self.count
    }

    /// The mean of every number.
    pub fn mean(&self) -> &[f64] {
        &self.mean
    }

    /// The standard deviation of every number.
    pub fn deviation(&self) -> Vec<f64> {
        (0..self.squares.len()).map(|i| self.variance(i).sqrt()).collect()
    }

    fn variance(&self, i: usize) -> f64 {
        self.squares[i] / self.count.max(1.0)
    }

    fn add(&mut self, values: &[f32]) {
        self.count += 1.0;
        for ((mean, squares), &value) in self.mean.iter_mut().zip(&mut self.squares).zip(values) {
            let value = f64::from(value);
            let before = value - *mean;
            *mean += before / self.count;
            *squares += before * (value - *mean);
        }
    }

    fn of(&self, i: usize, value: f32) -> f32 {
        let variance = self.variance(i);
        // A number that never changes says nothing.
        if variance > 0.0 {
            (((f64::from(value) - self.mean[i]) / variance.sqrt()) as f32).clamp(-MOST, MOST)
        } else {
            0.0
        }
    }
}

impl Encoder {
    /// For a problem's observations.
    pub fn new(spec: &EnvSpec) -> Self {
        let state = match &spec.observations {
            &ObservationSpace::Discrete { n, ordered: true } => State::Thermometer(n),
            &ObservationSpace::Discrete { n, .. } => State::OneHot { n, height: (n as f32).sqrt() },
            space @ ObservationSpace::Dense(_) if spec.normalize_observations => State::Dense(space.size()),
            space @ ObservationSpace::Dense(_) => State::Raw(space.size()),
            space @ ObservationSpace::Bits(_) => State::Bits(space.size()),
            space @ ObservationSpace::Bytes { .. } => State::Bytes(space.size()),
        };
        let n = if let State::Dense(n) = state { n } else { 0 };
        let moments = Moments { count: 0.0, mean: vec![0.0; n], squares: vec![0.0; n] };
        let n_paces = spec.horizon.next_power_of_two().ilog2().max(1) as usize;
        Self { state, horizon: spec.horizon, n_paces, with_collected: false, moments }
    }

    /// With the collected reward.
    #[must_use]
    pub fn with_collected(self) -> Self {
        Self { with_collected: true, ..self }
    }

    /// D, the length of an input.
    pub fn width(&self) -> usize {
        let (State::OneHot { n, .. }
        | State::Thermometer(n)
        | State::Dense(n)
        | State::Raw(n)
        | State::Bits(n)
        | State::Bytes(n)) = self.state;
        n + 1 + self.n_paces + usize::from(self.with_collected)
    }

    /// Takes an observation into the running moments.
    pub fn see(&mut self, observation: &Observation) {
        if let (State::Dense(_), Observation::Dense(values)) = (self.state, observation) {
            self.moments.add(values);
        }
    }

    /// The running moments, to be saved; empty where nothing is normalised.
    pub fn moments(&self) -> &Moments {
        &self.moments
    }

    /// Restores the running moments; false where they do not fit.
    pub fn set_moments(&mut self, moments: Moments) -> bool {
        let n = self.moments.mean.len();
        let finite = |values: &[f64]| values.iter().all(|value| value.is_finite());
        let fits = moments.mean.len() == n
            && moments.squares.len() == n
            && moments.count >= 0.0
            && moments.count.is_finite()
            && finite(&moments.mean)
            && finite(&moments.squares)
            && moments.squares.iter().all(|&squares| squares >= 0.0);
        if fits {
            self.moments = moments;
        }
        fits
    }

    /// Appends the encoding of x; collected rewards are divided by `sigma`.
    pub fn encode(&self, x: &Input, sigma: f64, out: &mut Encoded) {
        let Encoded { n_samples, bytes: planes, floats: out } = out;
        *n_samples += 1;
        match (self.state, x.observation) {
            (State::OneHot { n, height }, &Observation::Index(s)) => {
                out.extend((0..n).map(|k| if k == s { height } else { 0.0 }));
            }
            (State::Thermometer(n), &Observation::Index(s)) => {
                out.push(s as f32 / (n - 1).max(1) as f32);
                out.extend((1..n).map(|k| if s >= k { 1.0 } else { -1.0 }));
            }
            (State::Dense(n), Observation::Dense(values)) => {
                assert_eq!(values.len(), n, "length of the observation");
                out.extend(values.iter().enumerate().map(|(i, &value)| self.moments.of(i, value)));
            }
            (State::Raw(n), Observation::Dense(values)) => {
                assert_eq!(values.len(), n, "length of the observation");
                out.extend_from_slice(values);
            }
            (State::Bits(n), Observation::Bits(words)) => {
                assert_eq!(words.len(), n.div_ceil(64), "words of the observation");
                planes.extend(words.iter().flat_map(|word| word.to_le_bytes()).take(n.div_ceil(8)));
            }
            (State::Bytes(n), Observation::Bytes(bytes)) => {
                assert_eq!(bytes.len(), n, "length of the observation");
                planes.extend_from_slice(bytes);
            }
            (state, observation) => panic!("{observation:?} does not fit {state:?}"),
        }
        let left = (self.horizon - x.stage.min(self.horizon)) as f32;
        out.push(left / self.horizon as f32);
        let mut pace = 1.0;
        for _ in 0..self.n_paces {
            let near = (-left / pace).exp();
            out.push(if near < FAINT { 0.0 } else { near });
            pace *= 2.0;
        }
        if self.with_collected {
            out.push((x.collected / sigma) as f32);
        }
    }

    /// The encoded inputs, in the form that the networks take.
    pub fn rows<'a>(&self, encoded: &'a Encoded) -> Rows<'a> {
        let planes = |cells, n| Some(Planes { cells, n, bytes: &encoded.bytes });
        let planes = match self.state {
            State::Bits(n) => planes(Cells::Bits, n),
            State::Bytes(n) => planes(Cells::Bytes, n),
            _ => None,
        };
        Rows { planes, floats: &encoded.floats }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoder(observations: ObservationSpace) -> Encoder {
        Encoder::new(&EnvSpec::new("test", observations, 2, 10)).with_collected()
    }

    fn encoded(encoder: &Encoder, x: &Input) -> Vec<f32> {
        let mut out = Encoded::default();
        encoder.encode(x, 2.0, &mut out);
        encoder.rows(&out).expanded(encoder.width()).into_owned()
    }

    #[test]
    fn an_ordered_state_is_a_thermometer_and_an_unordered_one_hot() {
        let index = Observation::Index(2);
        let x = Input { stage: 0, observation: &index, collected: 0.0 };
        let ordered = encoded(&encoder(ObservationSpace::Discrete { n: 5, ordered: true }), &x);
        assert_eq!(ordered[..5], [0.5, 1.0, 1.0, -1.0, -1.0]);
        // √4 high.
        let unordered = encoded(&encoder(ObservationSpace::Discrete { n: 4, ordered: false }), &x);
        assert_eq!(unordered[..4], [0.0, 0.0, 2.0, 0.0]);
    }

    #[test]
    fn time_to_go_is_told_on_several_scales_and_the_collected_reward_in_units() {
        let index = Observation::Index(0);
        let x = Input { stage: 9, observation: &index, collected: 3.0 };
        let out = encoded(&encoder(ObservationSpace::Discrete { n: 1, ordered: false }), &x);
        // H = 10: one step to go; paces 1, 2, 4, 8; then 3/2.
        let want = [1.0, 0.1, (-1.0f32).exp(), (-0.5f32).exp(), (-0.25f32).exp(), (-0.125f32).exp(), 1.5];
        assert!(out.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-6), "{out:?}");
        assert_eq!(out.len(), 7);
    }

    #[test]
    fn bits_are_zeros_and_ones_and_bytes_are_fractions() {
        // Bits 0, 64 and 66 of 70.
        let seen = Observation::Bits(vec![1, 0b101]);
        let x = Input { stage: 0, observation: &seen, collected: 0.0 };
        let out = encoded(&encoder(ObservationSpace::Bits(vec![7, 10])), &x);
        let ones: Vec<usize> = (0..70).filter(|&i| out[i] == 1.0).collect();
        assert_eq!(ones, [0, 64, 66]);
        assert!(out[..70].iter().all(|&bit| bit == 0.0 || bit == 1.0));

        let seen = Observation::Bytes(vec![0, 51, 255]);
        let x = Input { stage: 0, observation: &seen, collected: 0.0 };
        let space = ObservationSpace::Bytes { shape: vec![3], stack: 1 };
        assert_eq!(encoded(&encoder(space), &x)[..3], [0.0, 0.2, 1.0]);
    }

    #[test]
    fn a_repeated_input_is_dropped_and_one_that_differs_in_a_bit_or_in_time_is_not() {
        let encoder = encoder(ObservationSpace::Bits(vec![70]));
        let mut all = Encoded::default();
        for (stage, word, n_samples) in [(0, 1, 1), (0, 1, 1), (0, 2, 2), (1, 2, 3), (1, 2, 3), (0, 1, 4)] {
            let seen = Observation::Bits(vec![1, word]);
            encoder.encode(&Input { stage, observation: &seen, collected: 0.0 }, 1.0, &mut all);
            all.drop_repeated();
            assert_eq!(all.n_samples(), n_samples);
            assert_eq!(encoder.rows(&all).n_samples(encoder.width()), n_samples);
        }
    }

    #[test]
    fn vectors_are_normalised_by_their_running_moments_for_any_scale_and_shift() {
        let at = |scale: f32, shift: f32| {
            let mut encoder = encoder(ObservationSpace::Dense(vec![2]));
            // The second number never changes.
            for k in 0..101 {
                encoder.see(&Observation::Dense(vec![shift + scale * k as f32, 7.0]));
            }
            let [middle, far] = [50.0, 1e6].map(|k| {
                let seen = Observation::Dense(vec![shift + scale * k, 7.0]);
                encoded(&encoder, &Input { stage: 0, observation: &seen, collected: 0.0 })[..2].to_vec()
            });
            (middle, far)
        };
        for (scale, shift) in [(1.0, 0.0), (1e6, 0.0), (1e-6, 0.0), (1.0, 1000.0)] {
            let (middle, far) = at(scale, shift);
            assert!(middle[0].abs() < 1e-3 && middle[1] == 0.0, "{scale} {shift}: {middle:?}");
            assert_eq!(far[0], MOST, "{scale} {shift}");
        }
    }

    #[test]
    fn vectors_that_are_not_normalised_pass_through_unchanged() {
        let spec = EnvSpec::new("test", ObservationSpace::Dense(vec![3]), 2, 10);
        let mut encoder = Encoder::new(&EnvSpec { normalize_observations: false, ..spec });
        let values = vec![-1e6, 0.25, 7.0];
        let seen = Observation::Dense(values.clone());
        (0..10).for_each(|_| encoder.see(&seen));
        assert_eq!(encoded(&encoder, &Input { stage: 0, observation: &seen, collected: 0.0 })[..3], values);
        assert_eq!(*encoder.moments(), Moments::default());
    }

    #[test]
    fn forged_moments_are_refused() {
        let mut encoder = encoder(ObservationSpace::Dense(vec![1]));
        encoder.see(&Observation::Dense(vec![1.0]));
        let good = encoder.moments().clone();
        for forged in [
            Moments { mean: vec![], ..good.clone() },
            Moments { mean: vec![f64::NAN], ..good.clone() },
            Moments { squares: vec![-1.0], ..good.clone() },
            Moments { count: -1.0, ..good.clone() },
        ] {
            assert!(!encoder.set_moments(forged));
        }
        assert!(encoder.set_moments(good));
    }
}
