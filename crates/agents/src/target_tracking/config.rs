//! The settings of target tracking and their allowed ranges.

use bqrl_math::buffer::check_tau;
use bqrl_math::schedule::Span;
use serde::{Deserialize, Serialize};

use crate::experience::encode::StateEncoding;
use crate::settings::{
    count, hidden_layers, not_negative, positive, positive_span, positive_up_to, require, share,
};
use crate::{AgentError, Kernels};

/// Every setting. The risk levels are not among them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// M.
    pub n_critics: usize,
    /// Widths of the hidden layers of one network; every critic has one per action.
    pub hidden: Vec<usize>,
    /// n: steps of the grid of targets; the rounding error is one step.
    pub n_targets: usize,
    /// l_k: widths of the ramps for the buffered quantile, as parts of the range; an empty list turns it off.
    pub ramps: Vec<f64>,
    /// w_j: weights of the probability relative to the mean.
    pub weights: Vec<f64>,
    /// The low end of the range of returns.
    pub return_low: f64,
    /// The high end of the range; if both are 0, the range is found during learning.
    pub return_high: f64,
    /// Levels that the behaviour plays for, one drawn per episode.
    pub behaviour_tau: Vec<f64>,
    /// An episode follows a single critic with probability 1/(1 + t/this).
    pub thompson_decay: Span,
    /// Size of the random priors on the logits, …
    pub prior_scale: f64,
    /// … which falls as 1/(1 + t/this).
    pub prior_decay: Span,
    /// How far P at the root may fall short of 1 − τ for a target to count as reached.
    pub root_margin: f64,
    /// ζ.
    pub zeta: f64,
    /// Factor on the initial output weights.
    pub output_scale: f64,
    /// Initial output bias: optimistic when positive.
    pub output_bias: f64,
    /// Final step size.
    pub learning_rate: f64,
    /// Extra initial step size, …
    pub learning_rate_extra: f64,
    /// … which falls as 1/(1 + t/this).
    pub learning_rate_decay: Span,
    /// Initial decoupled weight decay, …
    pub weight_decay: f64,
    /// … which falls as 1/(1 + t/this).
    pub weight_decay_decay: Span,
    /// |ℬ|.
    pub batch_size: usize,
    /// Transitions held in 𝒟.
    pub replay_capacity: usize,
    /// Transitions before the first update.
    pub learning_starts: usize,
    /// Minibatches per step: this divided by the square root of the transitions seen, …
    pub updates_per_root: f64,
    /// … but at most this many.
    pub updates_per_step: f64,
    /// Share of the transitions that a critic learns from, a different one for each; 1: all of them.
    pub bootstrap: f64,
    /// Initial weight of imagined trials relative to real ones, if states are one-hot, …
    pub imagined: f64,
    /// … falling as 1/(1 + n/this), in transitions.
    pub imagined_decay: f64,
    /// The longest horizon for which every stage has its own input, if rewards add up.
    pub stage_thermometer: usize,
    /// How a discrete state is written.
    pub state_encoding: StateEncoding,
    /// Instructions to compute with. Variants differ in the last bits.
    pub kernels: Kernels,
}

impl Config {
    pub(super) fn check(&self) -> Result<(), AgentError> {
        count("n_critics", self.n_critics, 1..=256)?;
        hidden_layers(&self.hidden)?;
        count("n_targets", self.n_targets, 1..=1024)?;
        count("stage_thermometer", self.stage_thermometer, 0..=4096)?;
        let parts = self.ramps.iter().all(|&width| width > 0.0 && width <= 1.0);
        require("ramps", parts, "be numbers in (0, 1]", &format!("{:?}", self.ramps))?;
        count("batch_size", self.batch_size, 1..=65_536)?;
        require("replay_capacity", self.replay_capacity >= 1, "be at least 1", &self.replay_capacity)?;
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
        share("zeta", self.zeta)?;
        share("bootstrap", self.bootstrap)?;
        positive_span("thompson_decay", &self.thompson_decay)?;
        positive_span("prior_decay", &self.prior_decay)?;
        positive("learning_rate", self.learning_rate)?;
        positive_span("learning_rate_decay", &self.learning_rate_decay)?;
        positive_span("weight_decay_decay", &self.weight_decay_decay)?;
        positive_up_to("updates_per_root", self.updates_per_root, 1e6)?;
        positive_up_to("updates_per_step", self.updates_per_step, 1000.0)?;
        positive("imagined_decay", self.imagined_decay)?;
        not_negative("imagined", self.imagined)?;
        not_negative("prior_scale", self.prior_scale)?;
        not_negative("root_margin", self.root_margin)?;
        not_negative("weight_decay", self.weight_decay)?;
        not_negative("learning_rate_extra", self.learning_rate_extra)?;
        not_negative("output_scale", self.output_scale)
    }
}
