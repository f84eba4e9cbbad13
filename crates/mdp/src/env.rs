//! The surface between an agent and a problem: small, object-safe, without type parameters.
//!
//! An environment says what it is ([`EnvSpec`]) and moves (`reset`, `step`). It owns no randomness: the caller hands
//! it the stream to draw from, so that a run is a function of its seed.

use bqrl_math::rng::Rng;

use crate::lanes::EnvError;
use crate::trajectory::{End, Observation};

/// The kind of observation that an environment gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ObservationSpace {
    /// `Observation::Index` below `n`; `ordered` when neighbouring indices are similar states.
    Discrete {
        /// How many there are.
        n: usize,
        /// A hint for encodings.
        ordered: bool,
    },
    /// `Observation::Dense` of this shape.
    Dense(Vec<usize>),
    /// `Observation::Bits` of this shape.
    Bits(Vec<usize>),
    /// `Observation::Bytes` of this shape.
    Bytes {
        /// Of the whole observation.
        shape: Vec<usize>,
        /// How many equal groups of frames the first axis is made of, oldest first. A step drops the oldest group and
        /// appends a new one. 1 where nothing is stacked.
        stack: usize,
    },
}

impl ObservationSpace {
    /// How many numbers, bits or bytes make an observation; for a discrete space, how many observations there are.
    pub fn size(&self) -> usize {
        match self {
            Self::Discrete { n, .. } => *n,
            Self::Dense(shape) | Self::Bits(shape) | Self::Bytes { shape, .. } => shape.iter().product(),
        }
    }
}

/// What an agent may know of a problem. The true model is not among it.
#[derive(Clone, Debug, PartialEq)]
pub struct EnvSpec {
    /// The problem's name, for messages and run directories.
    pub name: String,
    /// What observations look like.
    pub observations: ObservationSpace,
    /// Number of actions; every action may be tried everywhere.
    pub n_actions: usize,
    /// The longest an episode can be.
    pub horizon: usize,
    /// True when the horizon is part of the task (d = 1 there), false when it is a mere cut-off.
    pub horizon_is_task: bool,
    /// Bounds of one step's reward, where they are known.
    pub reward_bounds: Option<(f64, f64)>,
    /// γ: a reward of stage h counts γ^h, and that is how it reaches an agent.
    pub discount: f64,
    /// Whether chances and rewards, before discounting, are known to be the same at all stages.
    pub stationary: bool,
    /// The rewards themselves, for model-based methods that assume them known; `None` where they are not, or follow from
    /// more than one end of a transition.
    pub known_rewards: Option<KnownRewards>,
    /// Which discrete states end an episode on arrival, at every stage; `None` where that is not known.
    pub terminal: Option<Vec<bool>>,
}

impl EnvSpec {
    /// A task with a horizon of which nothing more is known.
    pub fn new(name: &str, observations: ObservationSpace, n_actions: usize, horizon: usize) -> Self {
        Self {
            name: name.to_owned(),
            observations,
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

/// Rewards that are known before anything is tried, undiscounted. They say nothing of where an action leads: every pair
/// and every state has its entry, also one that no transition meets.
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
    /// What is seen now; after the last step, the final state.
    pub observation: Observation,
    /// The reward of this step.
    pub reward: f64,
    /// Whether the episode is over.
    pub end: End,
}

/// A problem that can be played. It may move to another thread.
pub trait Env: Send {
    /// What an agent may know.
    fn spec(&self) -> &EnvSpec;
    /// Starts an episode.
    fn reset(&mut self, rng: &mut Rng) -> Observation;
    /// Takes an action; the caller resets after a step that ended the episode.
    fn step(&mut self, action: usize, rng: &mut Rng) -> Step;
    /// Where the episode stands, as numbers: what a checkpoint in the middle of an episode keeps.
    fn save(&self) -> Vec<u64>;
    /// Returns to where an episode stood; refuses numbers that [`save`](Self::save) cannot have given.
    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError>;
}
