//! x = (h, s, c) as network input.
//!
//! ```text
//! state        one-hot of s (unordered), or s/(n−1) and the ±1 thermometer 1{s ≥ k}, k = 1..n−1 (ordered), or the
//!              observation itself (dense), its bits as 0 and 1, or its bytes over 255
//! stage        h/H, exp(−(H−h)/3), exp(−(H−h)/10), exp(−(H−h)/30), 1{h = H−1}, and a thermometer on demand
//! collected    c / scale, unless left out
//! ```
//!
//! The last-step flag matters: without it "go on at the last step" is extrapolated above zero. The thermometer lets
//! what is learned of one offer carry over to its neighbours (decision 0005). That of the stage is
//! for sums of rewards, where a value changes steeply from stage to stage (decision 0006).

use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::trajectory::Observation;
use serde::{Deserialize, Serialize};

use crate::Input;

/// The reward that counts as 1 for the critics: the setting or, if it is 0, the largest |reward| that the problem names.
pub fn reward_scale(setting: f64, spec: &EnvSpec) -> f64 {
    let named = spec.reward_bounds.map_or(0.0, |(low, high)| low.abs().max(high.abs()));
    match setting {
        0.0 if named > 0.0 => named,
        0.0 => 1.0,
        scale => scale,
    }
}

/// How a discrete state is written.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum StateEncoding {
    /// A thermometer where the problem says that neighbours are alike, else one-hot.
    Auto,
    /// One input per state.
    OneHot,
    /// One input per threshold, and the index as a number.
    Thermometer,
}

/// Inputs that describe the stage.
const STAGE: usize = 5;
/// Height of the thermometer of the stage.
const STAGE_HEIGHT: f32 = 0.3;

/// Writes inputs for one problem.
#[derive(Clone, Debug)]
pub struct Encoder {
    state: State,
    horizon: usize,
    /// The divisor of c; `None` leaves c out.
    scale: Option<f64>,
    /// Inputs of the thermometer of the stage, and whether it is shown.
    n_stages: usize,
    stages_shown: bool,
}

#[derive(Clone, Copy, Debug)]
enum State {
    OneHot { n: usize, height: f32 },
    Thermometer(usize),
    Dense(usize),
    Bits(usize),
    Bytes(usize),
}

impl Encoder {
    /// For a problem's observations; collected rewards are divided by `scale`.
    pub fn new(spec: &EnvSpec, encoding: StateEncoding, scale: f64) -> Self {
        assert!(scale > 0.0 && scale.is_finite(), "scale must be positive and finite, got {scale}");
        let state = match (&spec.observations, encoding) {
            (space @ ObservationSpace::Dense(_), _) => State::Dense(space.size()),
            (space @ ObservationSpace::Bits(_), _) => State::Bits(space.size()),
            (space @ ObservationSpace::Bytes { .. }, _) => State::Bytes(space.size()),
            (&ObservationSpace::Discrete { n, ordered: true }, StateEncoding::Auto)
            | (&ObservationSpace::Discrete { n, .. }, StateEncoding::Thermometer) => State::Thermometer(n),
            (&ObservationSpace::Discrete { n, .. }, _) => State::OneHot { n, height: 1.0 },
        };
        Self { state, horizon: spec.horizon, scale: Some(scale), n_stages: 0, stages_shown: false }
    }

    /// One-hot states of height √n, as long as a vector as a thermometer is: a step of learning then moves either by as
    /// much.
    #[must_use]
    pub fn with_long_one_hot(mut self) -> Self {
        if let State::OneHot { n, height } = &mut self.state {
            *height = (*n as f32).sqrt();
        }
        self
    }

    /// A thermometer for the stage if there are at most `longest` stages. Its inputs are 0 until they are shown.
    #[must_use]
    pub fn with_stage_thermometer(self, longest: usize) -> Self {
        Self { n_stages: if self.horizon > longest { 0 } else { self.horizon - 1 }, ..self }
    }

    /// Shows the thermometer of the stage from now on.
    pub fn show_stages(&mut self) {
        self.stages_shown = true;
    }

    /// Leaves the collected reward out.
    #[must_use]
    pub fn without_collected(self) -> Self {
        Self { scale: None, ..self }
    }

    /// Whether states have nothing in common, so that what is learned of one says nothing about another.
    pub fn is_one_hot(&self) -> bool {
        matches!(self.state, State::OneHot { .. })
    }

    /// D, the length of an input.
    pub fn width(&self) -> usize {
        let (State::OneHot { n, .. }
        | State::Thermometer(n)
        | State::Dense(n)
        | State::Bits(n)
        | State::Bytes(n)) = self.state;
        n + STAGE + self.n_stages + usize::from(self.scale.is_some())
    }

    /// Appends the encoding of x.
    pub fn encode(&self, x: &Input, out: &mut Vec<f32>) {
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
                out.extend_from_slice(values);
            }
            (State::Bits(n), Observation::Bits(words)) => {
                assert_eq!(words.len(), n.div_ceil(64), "words of the observation");
                out.extend((0..n).map(|i| f32::from((words[i / 64] >> (i % 64)) as u8 & 1)));
            }
            (State::Bytes(n), Observation::Bytes(bytes)) => {
                assert_eq!(bytes.len(), n, "length of the observation");
                out.extend(bytes.iter().map(|&byte| f32::from(byte) / 255.0));
            }
            (state, observation) => panic!("{observation:?} does not fit {state:?}"),
        }
        let left = (self.horizon - x.stage.min(self.horizon)) as f32;
        out.push(x.stage as f32 / self.horizon as f32);
        out.extend([3.0, 10.0, 30.0].map(|pace: f32| (-left / pace).exp()));
        out.push(f32::from(u8::from(x.stage + 1 == self.horizon)));
        let height = if self.stages_shown { STAGE_HEIGHT } else { 0.0 };
        out.extend((1..=self.n_stages).map(|k| if x.stage >= k { height } else { -height }));
        out.extend(self.scale.map(|scale| (x.collected / scale) as f32));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(observations: ObservationSpace) -> EnvSpec {
        EnvSpec {
            name: "test".into(),
            observations,
            n_actions: 2,
            horizon: 10,
            horizon_is_task: true,
            reward_bounds: None,
            discount: 1.0,
            stationary: true,
            known_rewards: None,
            terminal: None,
        }
    }

    fn encoded(observations: ObservationSpace, encoding: StateEncoding, x: &Input) -> Vec<f32> {
        let encoder = Encoder::new(&spec(observations), encoding, 2.0);
        let mut out = Vec::new();
        encoder.encode(x, &mut out);
        assert_eq!(out.len(), encoder.width());
        out
    }

    #[test]
    fn an_ordered_state_is_a_thermometer_and_an_unordered_one_hot() {
        let index = Observation::Index(2);
        let x = Input { stage: 0, observation: &index, collected: 0.0 };
        let ordered = encoded(ObservationSpace::Discrete { n: 5, ordered: true }, StateEncoding::Auto, &x);
        assert_eq!(ordered[..5], [0.5, 1.0, 1.0, -1.0, -1.0]);
        let unordered = encoded(ObservationSpace::Discrete { n: 5, ordered: false }, StateEncoding::Auto, &x);
        assert_eq!(unordered[..5], [0.0, 0.0, 1.0, 0.0, 0.0]);
        let forced = encoded(ObservationSpace::Discrete { n: 5, ordered: true }, StateEncoding::OneHot, &x);
        assert_eq!(forced, unordered);
    }

    #[test]
    fn the_thermometer_of_the_stage_is_flat_until_shown_and_only_for_short_horizons() {
        let index = Observation::Index(0);
        let spec = spec(ObservationSpace::Discrete { n: 2, ordered: true });
        let x = Input { stage: 3, observation: &index, collected: 5.0 };
        let mut encoder =
            Encoder::new(&spec, StateEncoding::Auto, 4.0).with_stage_thermometer(10).without_collected();
        for height in [0.0, STAGE_HEIGHT] {
            let mut out = Vec::new();
            encoder.encode(&x, &mut out);
            assert_eq!(out.len(), encoder.width());
            assert_eq!(
                out[7..],
                [1.0, 1.0, 1.0, -1.0, -1.0, -1.0, -1.0, -1.0, -1.0].map(|sign| sign * height)
            );
            encoder.show_stages();
        }
        let longer = Encoder::new(&spec, StateEncoding::Auto, 4.0).with_stage_thermometer(9);
        assert_eq!(longer.width(), 2 + 5 + 1);
    }

    #[test]
    fn bits_are_zeros_and_ones_and_bytes_are_fractions() {
        // Bits 0, 64 and 66 of 70.
        let seen = Observation::Bits(vec![1, 0b101]);
        let x = Input { stage: 0, observation: &seen, collected: 0.0 };
        let out = encoded(ObservationSpace::Bits(vec![7, 10]), StateEncoding::Auto, &x);
        let ones: Vec<usize> = (0..70).filter(|&i| out[i] == 1.0).collect();
        assert_eq!(ones, [0, 64, 66]);
        assert!(out[..70].iter().all(|&bit| bit == 0.0 || bit == 1.0));

        let seen = Observation::Bytes(vec![0, 51, 255]);
        let x = Input { stage: 0, observation: &seen, collected: 0.0 };
        let space = ObservationSpace::Bytes { shape: vec![3], stack: 1 };
        assert_eq!(encoded(space, StateEncoding::Auto, &x)[..3], [0.0, 0.2, 1.0]);
    }

    #[test]
    fn the_last_step_is_flagged_and_the_collected_reward_scaled() {
        let seen = Observation::Dense(vec![7.0, -1.0]);
        let x = Input { stage: 9, observation: &seen, collected: 3.0 };
        let out = encoded(ObservationSpace::Dense(vec![2]), StateEncoding::Auto, &x);
        assert_eq!(out[..3], [7.0, -1.0, 0.9]);
        assert!((out[3] - (-1.0f32 / 3.0).exp()).abs() < 1e-7);
        assert_eq!(out[6..], [1.0, 1.5]);
    }
}
