//! The settings of target tracking and what is allowed.

use bqrl_math::buffer::check_tau;
use serde::{Deserialize, Serialize};

use crate::experience::encode::StateEncoding;
use crate::{AgentError, not_negative, positive, require};

/// Every setting. The levels that the agent is asked for are none of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// M.
    pub n_critics: usize,
    /// Widths of the hidden layers of one network; every critic has one per action.
    pub hidden: Vec<usize>,
    /// n: steps of the grid of targets; a step of the range is the rounding error.
    pub n_targets: usize,
    /// l_k: widths of the ramps for the buffered quantile, as parts of the range; none does without.
    pub ramps: Vec<f64>,
    /// w_j: how much the probability counts against the mean.
    pub weights: Vec<f64>,
    /// The smallest return that is told apart …
    pub return_low: f64,
    /// … and the largest; both 0: found out while learning.
    pub return_high: f64,
    /// Levels that the behaviour plays for, one drawn per episode.
    pub behaviour_tau: Vec<f64>,
    /// Chance 1/(1 + t/this) that an episode follows a single critic, in episodes.
    pub thompson_decay: f64,
    /// Size of the random priors on the logits, …
    pub prior_scale: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub prior_decay: f64,
    /// How far P at the root may fall short of 1 − τ for a target to count as reached.
    pub root_margin: f64,
    /// ζ.
    pub zeta: f64,
    /// Factor on the initial output weights.
    pub output_scale: f64,
    /// Initial output bias: optimistic when positive.
    pub output_bias: f64,
    /// Step size in the end …
    pub learning_rate: f64,
    /// … plus this much at first, …
    pub learning_rate_extra: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub learning_rate_decay: f64,
    /// Decoupled weight decay at first, …
    pub weight_decay: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub weight_decay_decay: f64,
    /// |ℬ|.
    pub batch_size: usize,
    /// Transitions held in 𝒟.
    pub replay_capacity: usize,
    /// Transitions before the first update.
    pub learning_starts: usize,
    /// Minibatches per step: this over the root of the transitions seen, …
    pub updates_per_root: f64,
    /// … but at most this many.
    pub updates_per_step: f64,
    /// Share of the transitions that a critic learns from, a different one for each; 1: all of them.
    pub bootstrap: f64,
    /// Weight of imagined trials against real ones where states are one-hot, at first, …
    pub imagined: f64,
    /// … falling as 1/(1 + n/this), in transitions.
    pub imagined_decay: f64,
    /// The longest horizon whose stages are told apart one by one, where rewards add up.
    pub stage_thermometer: usize,
    /// How a discrete state is written.
    pub state_encoding: StateEncoding,
    /// Instructions to compute with: auto, or one of avx512, avx2, neon, scalar. Variants differ in the last bits.
    pub kernels: String,
}

impl Config {
    pub(super) fn check(&self) -> Result<(), AgentError> {
        let at_least = |key, value: usize, least: usize, want| require(key, value >= least, want, &value);
        at_least("n_critics", self.n_critics, 1, "be at least 1")?;
        at_least("n_targets", self.n_targets, 1, "be at least 1")?;
        let parts = self.ramps.iter().all(|&width| width > 0.0 && width <= 1.0);
        require("ramps", parts, "be numbers in (0, 1]", &format!("{:?}", self.ramps))?;
        at_least("batch_size", self.batch_size, 1, "be at least 1")?;
        at_least("replay_capacity", self.replay_capacity, 1, "be at least 1")?;
        let fractions = self.weights.iter().all(|w| (0.0..=1.0).contains(w)) && !self.weights.is_empty();
        require("weights", fractions, "be numbers in [0, 1], at least one", &format!("{:?}", self.weights))?;
        let levels = self.behaviour_tau.iter().all(|&tau| check_tau(tau).is_ok());
        let levels = levels && !self.behaviour_tau.is_empty();
        require(
            "behaviour_tau",
            levels,
            "be levels in (0, 1), at least one",
            &format!("{:?}", self.behaviour_tau),
        )?;
        let (low, high) = (self.return_low, self.return_high);
        let range = (low == 0.0 && high == 0.0) || (low < high && (high - low).is_finite());
        require(
            "return_high",
            range,
            "exceed return_low, or both be 0",
            &format!("{high} with return_low {low}"),
        )?;
        require("zeta", self.zeta > 0.0 && self.zeta <= 1.0, "lie in (0, 1]", &self.zeta)?;
        let share = self.bootstrap > 0.0 && self.bootstrap <= 1.0;
        require("bootstrap", share, "lie in (0, 1]", &self.bootstrap)?;
        positive("thompson_decay", self.thompson_decay)?;
        positive("prior_decay", self.prior_decay)?;
        positive("learning_rate", self.learning_rate)?;
        positive("learning_rate_decay", self.learning_rate_decay)?;
        positive("weight_decay_decay", self.weight_decay_decay)?;
        positive("updates_per_root", self.updates_per_root)?;
        positive("updates_per_step", self.updates_per_step)?;
        positive("imagined_decay", self.imagined_decay)?;
        not_negative("imagined", self.imagined)?;
        not_negative("prior_scale", self.prior_scale)?;
        not_negative("root_margin", self.root_margin)?;
        not_negative("weight_decay", self.weight_decay)?;
        not_negative("learning_rate_extra", self.learning_rate_extra)?;
        not_negative("output_scale", self.output_scale)
    }
}
