//! The interface between an agent and a problem: small, object-safe, without type parameters.
//!
//! An environment describes itself ([`EnvSpec`]) and is played (`reset`, `step`). It has no random generator of its own: the
//! caller passes the stream to draw from, so that a run is a function of its seed.

use bqrl_math::rng::Rng;

use crate::lanes::EnvError;
use crate::trajectory::{End, Observation};

/// The kind of observation that an environment gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservationSpace {
    /// `Observation::Index` below `n`; `ordered` if neighbouring indices are similar states.
    Discrete {
        /// The number of observations.
        n: usize,
        /// A hint for encodings.
        ordered: bool,
    },
    /// `Observation::Dense` of this shape.
    Dense(Vec<usize>),
    /// `Observation::Bits` of this shape; with three axes, planes: channels, height, width.
    Bits(Vec<usize>),
    /// `Observation::Bytes` of this shape; with three axes, an image: channels, height, width.
    Bytes {
        /// The shape of the whole observation.
        shape: Vec<usize>,
        /// The number of equal groups of frames on the first axis, oldest first. A step drops the oldest group and
        /// appends a new one. 1 without stacking.
        stack: usize,
    },
}

impl ObservationSpace {
    /// The number of numbers, bits or bytes of an observation; for a discrete space, the number of observations.
    pub fn size(&self) -> usize {
        match self {
            Self::Discrete { n, .. } => *n,
            Self::Dense(shape) | Self::Bits(shape) | Self::Bytes { shape, .. } => shape.iter().product(),
        }
    }

    /// Channels, height and width, where observations are planes or images.
    pub fn planes(&self) -> Option<[usize; 3]> {
        match self {
            Self::Bits(shape) | Self::Bytes { shape, .. } => shape.as_slice().try_into().ok(),
            Self::Discrete { .. } | Self::Dense(_) => None,
        }
    }

    /// Whether an observation is of this kind and size.
    pub fn holds(&self, observation: &Observation) -> bool {
        let n = self.size();
        match (self, observation) {
            (Self::Discrete { .. }, Observation::Index(index)) => *index < n,
            (Self::Dense(_), Observation::Dense(values)) => values.len() == n,
            (Self::Bits(_), Observation::Bits(words)) => {
                let padding =
                    if n.is_multiple_of(64) { 0 } else { words.get(n / 64).map_or(0, |w| w >> (n % 64)) };
                words.len() == n.div_ceil(64) && padding == 0
            }
            (Self::Bytes { .. }, Observation::Bytes(bytes)) => bytes.len() == n,
            _ => false,
        }
    }
}

/// The facts about a problem that an agent may know. The true model is not among them.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// The problem's name, for messages and run directories.
    pub name: String,
    /// The kind of observations.
    pub observations: ObservationSpace,
    /// Whether agents normalise vectors by their running moments, or take the numbers as they are.
    pub normalize_observations: bool,
    /// Number of actions; every action may be tried everywhere.
    pub n_actions: usize,
    /// The largest length of an episode.
    pub horizon: usize,
    /// True if the horizon is part of the task (d = 1 there), false if it is only a cut-off.
    pub horizon_is_task: bool,
    /// Bounds of one step's reward, if they are known.
    pub reward_bounds: Option<(f64, f64)>,
    /// γ: a reward of stage h counts γ^h; agents receive it discounted.
    pub discount: f64,
    /// Whether probabilities and rewards, before discounting, are known to be the same at all stages.
    pub stationary: bool,
    /// The rewards, for model-based methods that assume them known. `None` if they are not known, or depend on both ends
    /// of a transition.
    pub known_rewards: Option<KnownRewards>,
    /// The discrete states that end an episode on arrival, at every stage; `None` if they are not known.
    pub terminal: Option<Vec<bool>>,
}

impl EnvSpec {
    /// A task with a horizon about which nothing else is known.
    pub fn new(name: &str, observations: ObservationSpace, n_actions: usize, horizon: usize) -> Self {
        Self {
            name: name.to_owned(),
            observations,
            normalize_observations: true,
            n_actions,
            horizon,
            horizon_is_task: true,
            reward_bounds: None,
            discount: 1.0,
            stationary: false,
            known_rewards: None,
            terminal: None,
        }
    }
}

/// Rewards that are known before training, undiscounted. They do not reveal transitions: every pair and every state has an
/// entry, also one that no transition reaches.
#[derive(Clone, Debug, PartialEq)]
pub enum KnownRewards {
    /// r(s, a) at s · A + a.
    OfAction(Vec<f64>),
    /// r(s') of the state that is entered.
    OfNext(Vec<f64>),
}

/// One step's result.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The new observation; after the last step, the final state.
    pub observation: Observation,
    /// The reward of this step.
    pub reward: f64,
    /// Whether the episode is over.
    pub end: End,
}

/// A problem that can be played. It may move to another thread.
pub trait Env: Send {
    /// The facts that an agent may know.
    fn spec(&self) -> &EnvSpec;
    /// Starts an episode.
    fn reset(&mut self, rng: &mut Rng) -> Observation;
    /// Takes an action. After a step that ended the episode, the caller calls `reset`.
    fn step(&mut self, action: usize, rng: &mut Rng) -> Step;
    /// The state of the episode, as numbers, for a checkpoint in the middle of an episode.
    fn save(&self) -> Vec<u64>;
    /// Restores the state of an episode; refuses numbers that [`save`](Self::save) cannot have returned.
    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError>;
    /// Whether the episode is at this stage and shows this observation, as far as the environment can tell. A checkpoint says
    /// it twice; a forged one may contradict itself.
    fn is_at(&self, _stage: usize, _observation: &Observation) -> bool {
        true
    }
}
