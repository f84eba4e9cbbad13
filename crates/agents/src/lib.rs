//! Agents: one file per algorithm, each opening with its equations, all behind one small surface.
//!
//! An agent sees an [`EnvSpec`] and transitions; it never sees the true model. Evaluating it
//! cannot change it: [`Agent::output`] takes `&self`.

pub mod actor_critic;
pub mod deep_bqrl;
pub mod experience;
mod heads;
pub mod ppo;
pub mod qppo;
pub mod qr_dqn;
pub mod stage_table;
pub mod target_tracking;
pub mod trpo;
pub mod ucb_bqrl;
pub mod value_table;
pub mod var_q;

use std::cmp::Ordering;

use bqrl_math::buffer::Buffer;
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::evaluate::Policy;
use bqrl_mdp::trajectory::{AugmentedInput, End, Observation};
use bqrl_nn::{Kernels, UpdateError};
use thiserror::Error;

pub use self::experience::arrays::RestoreError;
pub use self::experience::replay::ReplayTooLarge;
pub use self::experience::saved::{Body, Part};

/// x = (h, s, c) with any observation in the place of s (§3, Approximation I).
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// Decisions taken so far, counted from 0.
    pub stage: usize,
    /// What is seen.
    pub observation: &'a Observation,
    /// The reward collected before this decision.
    pub collected: f64,
}

/// (x, a, r, x', d); d is in `end`.
#[derive(Clone, Copy, Debug)]
pub struct Transition<'a> {
    /// Where the action was taken.
    pub x: Input<'a>,
    /// The action.
    pub action: usize,
    /// Its reward.
    pub reward: f64,
    /// Where it led.
    pub next: Input<'a>,
    /// Whether, and why, the episode is over.
    pub end: End,
}

/// A policy as an agent gives it away: what it would do at x if it stopped learning now.
pub trait OutputPolicy {
    /// Appends (action, probability) pairs to `choice`, which is empty; probabilities sum to 1.
    fn decide(&self, x: &Input, choice: &mut Vec<(usize, f64)>);
}

/// Any function from x to an action is a deterministic policy.
impl<F: Fn(&Input) -> usize> OutputPolicy for F {
    fn decide(&self, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.push((self(x), 1.0));
    }
}

/// The most probable action of a stochastic policy; ties go to the lowest index.
pub struct Mode<'a>(pub &'a dyn OutputPolicy);

impl OutputPolicy for Mode<'_> {
    fn decide(&self, x: &Input, choice: &mut Vec<(usize, f64)>) {
        self.0.decide(x, choice);
        let mode = |best: (usize, f64), next: &(usize, f64)| match next.1.total_cmp(&best.1) {
            Ordering::Greater => *next,
            Ordering::Equal if next.0 < best.0 => *next,
            _ => best,
        };
        let (action, _) = choice.iter().fold((usize::MAX, f64::NEG_INFINITY), mode);
        choice.clear();
        choice.push((action, 1.0));
    }
}

/// One critic's quantile of c + Z(x, a).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// m, counted from 0.
    pub critic: usize,
    /// a.
    pub action: usize,
    /// The level of the quantile.
    pub level: f64,
    /// Its value, in the problem's own units.
    pub value: f64,
}

/// What a policy holds on to for a whole episode: w·clip((R−u)/(v−u), 0, 1) + (1−w)·R is to be large, with the last R on the
/// scale 0..1 of the return range. Where u = v the first part is 1{R ≥ v}.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// u: below it nothing is gained, …
    pub u: f64,
    /// v: … and above it no more.
    pub v: f64,
    /// w: how much that counts against the mean.
    pub weight: f64,
}

/// What is to be large at a level (τ, β).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Objective {
    /// The point quantile Q_τ.
    Quantile,
    /// The lower-buffered quantile Q_τ^β.
    Buffered,
}

/// A learner. It may move to another thread, and be asked what it would do by several at once.
pub trait Agent: Send + Sync {
    /// Called before episode t = 0, 1, ….
    fn begin_episode(&mut self, episode: usize);
    /// The behaviour policy, exploration included.
    fn act(&mut self, x: &Input) -> usize;
    /// Learns from a transition.
    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError>;
    /// The policies that the agent would output now: one per level, or a single one that serves them all.
    fn output(&self, levels: &[Buffer]) -> Vec<Box<dyn OutputPolicy + '_>>;
    /// What the policy for a level would hold on to from the start of an episode; nothing, if it holds nothing.
    fn target(&self, _level: &Buffer, _objective: Objective) -> Option<Target> {
        None
    }
    /// The policy that holds on to a target, of an agent that gives them.
    fn holding(&self, _target: Target) -> Option<Box<dyn OutputPolicy + '_>> {
        None
    }
    /// What the critics predict of the return from x on; nothing from an agent that does not predict laws.
    fn predictions(&self, _x: &Input) -> Vec<Prediction> {
        Vec::new()
    }
    /// Whether [`output`](Self::output) draws its actions; evaluation then reports its [`Mode`] and, beside it, the
    /// distribution itself.
    fn is_stochastic(&self) -> bool;
    /// Gradient updates made so far; for an agent without gradients, whatever it counts as learning.
    fn updates(&self) -> u64;
    /// Everything that training goes on from, as named files: safetensors for arrays, JSON for the rest.
    /// `has` says which sealed parts need no bytes because the store has them already.
    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part>;
    /// Restores what [`save`](Self::save) gave, into an agent made with the same settings.
    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError>;
    /// What was learned, networks or tables, as a safetensors file that other tools can read.
    fn weights(&self) -> Vec<u8>;
}

/// The policies of an agent for what is to be large at these levels: one per level, or a single one that serves them all.
/// Agents that were trained for one objective have no other.
pub fn policies<'a>(
    agent: &'a dyn Agent,
    levels: &[Buffer],
    objective: Objective,
) -> Vec<Box<dyn OutputPolicy + 'a>> {
    let held = levels.iter().map(|level| agent.holding(agent.target(level, objective)?));
    held.collect::<Option<_>>().unwrap_or_else(|| agent.output(levels))
}

/// An agent's policy on a tabular problem, ready for exact evaluation.
pub struct OnTable<'a>(pub &'a dyn OutputPolicy);

impl Policy for OnTable<'_> {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        let observation = Observation::Index(x.state);
        let x = Input { stage: x.stage, observation: &observation, collected: x.collected };
        self.0.decide(&x, choice);
    }
}

/// Why an agent cannot be made.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AgentError {
    /// A setting is out of range.
    #[error("agent.{key} must {want}, got {got}")]
    Setting {
        /// Which.
        key: &'static str,
        /// What is allowed.
        want: &'static str,
        /// What was given.
        got: String,
    },
    /// The replay would not fit into memory.
    #[error(transparent)]
    Replay(#[from] ReplayTooLarge),
    /// A table has no row for such observations.
    #[error(
        "{algo} keeps tables and needs a problem with finitely many states and a horizon; {problem} has {observations}"
    )]
    NotTabular {
        /// The algorithm.
        algo: &'static str,
        /// The problem.
        problem: String,
        /// What its observations are.
        observations: String,
    },
}

/// Refuses a setting that does not hold.
pub(crate) fn require(
    key: &'static str,
    holds: bool,
    want: &'static str,
    got: &dyn ToString,
) -> Result<(), AgentError> {
    if holds { Ok(()) } else { Err(AgentError::Setting { key, want, got: got.to_string() }) }
}

/// A setting that a room below has refused.
pub(crate) fn refused(key: &'static str, error: &dyn ToString) -> AgentError {
    AgentError::Setting { key, want: "be allowed", got: error.to_string() }
}

/// The instructions to compute with, by their name or `auto`.
pub(crate) fn kernels(name: &str) -> Result<Kernels, AgentError> {
    let found = if name == "auto" { Some(Kernels::detect()) } else { Kernels::named(name) };
    found.ok_or_else(|| AgentError::Setting {
        key: "kernels",
        want: "be auto, or a set of instructions that this machine has",
        got: name.to_owned(),
    })
}

/// Refuses a number that is not positive and finite.
pub(crate) fn positive(key: &'static str, value: f64) -> Result<(), AgentError> {
    require(key, value > 0.0 && value.is_finite(), "be positive", &value)
}

/// Refuses a number that is negative or not finite.
pub(crate) fn not_negative(key: &'static str, value: f64) -> Result<(), AgentError> {
    require(key, value >= 0.0 && value.is_finite(), "not be negative", &value)
}

/// The number of states, for agents that keep tables.
pub(crate) fn n_states(algo: &'static str, spec: &EnvSpec) -> Result<usize, AgentError> {
    let refuse =
        |observations| Err(AgentError::NotTabular { algo, problem: spec.name.clone(), observations });
    match &spec.observations {
        ObservationSpace::Discrete { n, .. } if spec.horizon_is_task => Ok(*n),
        ObservationSpace::Discrete { .. } => refuse("a time limit that is not part of the task".to_owned()),
        ObservationSpace::Dense(shape) => refuse(format!("arrays of shape {shape:?}")),
        ObservationSpace::Bits(shape) => refuse(format!("bits of shape {shape:?}")),
        ObservationSpace::Bytes { shape, .. } => refuse(format!("bytes of shape {shape:?}")),
    }
}

/// The index of a state, for agents that keep tables.
pub(crate) fn state(x: &Input) -> usize {
    match x.observation {
        Observation::Index(state) => *state,
        _ => unreachable!("refused by n_states when the agent was made"),
    }
}
