//! Agents: one file per algorithm, each opening with its equations, all behind one small surface.
//!
//! An agent sees an [`EnvSpec`](bqrl_mdp::env::EnvSpec) and transitions; it never sees the true model. Evaluating it
//! cannot change it: [`Agent::greedy`] takes `&self`.

pub mod deep_bqrl;
pub mod experience;

use bqrl_mdp::evaluate::Policy;
use bqrl_mdp::trajectory::{AugmentedInput, End, Observation};
use bqrl_nn::UpdateError;

pub use self::experience::arrays::RestoreError;

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

/// A learner.
pub trait Agent {
    /// Called before episode t = 0, 1, ….
    fn begin_episode(&mut self, episode: usize);
    /// The behaviour policy, exploration included.
    fn act(&mut self, x: &Input) -> usize;
    /// Learns from a transition.
    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError>;
    /// The policy that the agent would output now.
    fn greedy(&self, x: &Input) -> usize;
    /// Gradient updates made so far.
    fn updates(&self) -> u64;
    /// Everything that training goes on from, as named files: safetensors for arrays, JSON for the rest.
    fn save(&self) -> Vec<(&'static str, Vec<u8>)>;
    /// Restores what [`save`](Self::save) gave, into an agent made with the same settings.
    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError>;
    /// The weights of the critics as a safetensors file that other tools can read; `None` for an agent without.
    fn weights(&self) -> Option<Vec<u8>>;
}

/// An agent's greedy policy on a tabular problem, ready for exact evaluation.
pub struct Greedy<'a>(pub &'a dyn Agent);

impl Policy for Greedy<'_> {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        let observation = Observation::Index(x.state);
        let x = Input { stage: x.stage, observation: &observation, collected: x.collected };
        choice.push((self.0.greedy(&x), 1.0));
    }
}
