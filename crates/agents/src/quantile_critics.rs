//! The common part of Deep-BQRL and QR-DQN: M quantile critics z_θm(x, a) of the remaining return, the replay 𝒟 that they
//! learn from, and their settings.
//!
//! ```text
//! store     𝒟 ← 𝒟 ∪ {(x, a, r, x', d)}                      rewards divided by reward_scale
//! learn     for every stored transition, updates_per_step times:
//!             ℬ ~ 𝒟 uniformly;  y_m,i = r + (1−d) z̃_θ̄m,i(x', a_m⁺),  a_m⁺ the argmax of the rule's score   Eq. (3)
//!             θ_m ← Adam on 𝒥_m = mean of ρ_{η_j}^κ(y_m,i − z_θm,j(x, a)), raw z                           Eq. (4)
//!             θ̄_m ← (1−ζ) θ̄_m + ζ θ_m                                                                     Eq. (5)
//! α_t       = learning_rate + learning_rate_extra / (1 + t/learning_rate_decay)
//! ```
//!
//! The two differ in the score that chooses a⁺ and in the exploration; these are in their own files.

use bqrl_math::buffer::eta;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::{Clock, Span};
use bqrl_math::score::{Score, sort};
use bqrl_mdp::env::EnvSpec;
use bqrl_nn::{Adam, Ensemble, Init, Shape, TargetRule, Which};
use serde::{Deserialize, Serialize};

use crate::experience::encode::{Encoder, StateEncoding, reward_scale};
use crate::experience::minibatch::Minibatch;
use crate::experience::replay::Replay;
use crate::experience::saved;
use crate::settings::{count, fits, hidden_layers, not_negative, positive, positive_span, require, share};
use crate::{
    AgentError, Input, Kernels, LearnError, Part, Prediction, RestoreError, Transition, Waiting, finite,
};

/// The settings that both agents have.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CriticConfig {
    /// K.
    pub n_quantiles: usize,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// κ.
    pub kappa: f64,
    /// ζ.
    pub zeta: f64,
    /// Factor on the initial output weights.
    pub output_scale: f64,
    /// Initial output bias, in units of `reward_scale`.
    pub output_bias: f64,
    /// Final step size.
    pub learning_rate: f64,
    /// Extra initial step size, …
    pub learning_rate_extra: f64,
    /// … which falls as 1/(1 + t/this).
    pub learning_rate_decay: Span,
    /// |ℬ|.
    pub batch_size: usize,
    /// Transitions held in 𝒟.
    pub replay_capacity: usize,
    /// Transitions before the first update.
    pub learning_starts: usize,
    /// Minibatches per environment step.
    pub updates_per_step: usize,
    /// How a discrete state is written.
    pub state_encoding: StateEncoding,
    /// The reward that counts as 1 for the critics; 0 takes the largest |reward| that the problem names.
    pub reward_scale: f64,
    /// Instructions to compute with. Variants differ in the last bits.
    pub kernels: Kernels,
}

impl CriticConfig {
    /// Refuses invalid settings.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        count("n_quantiles", self.n_quantiles, 1..=1024)?;
        hidden_layers(&self.hidden)?;
        count("batch_size", self.batch_size, 1..=65_536)?;
        let holds = self.replay_capacity >= self.batch_size;
        require("replay_capacity", holds, "be at least batch_size", &self.replay_capacity)?;
        count("learning_starts", self.learning_starts, 0..=self.replay_capacity)?;
        count("updates_per_step", self.updates_per_step, 0..=1000)?;
        share("zeta", self.zeta)?;
        positive("kappa", self.kappa)?;
        positive("learning_rate", self.learning_rate)?;
        positive_span("learning_rate_decay", &self.learning_rate_decay)?;
        not_negative("learning_rate_extra", self.learning_rate_extra)?;
        not_negative("output_scale", self.output_scale)?;
        not_negative("reward_scale", self.reward_scale)
    }

    /// The sizes of the critics for a problem.
    pub fn shape(&self, n_critics: usize, spec: &EnvSpec) -> Shape {
        let encoder = Encoder::new(spec, self.state_encoding, reward_scale(self.reward_scale, spec));
        Shape {
            n_inputs: encoder.width(),
            hidden: self.hidden.clone(),
            layer_norm: false,
            n_heads: 1,
            n_actions: spec.n_actions,
            n_quantiles: self.n_quantiles,
            n_critics,
        }
    }

    /// The rule that compares next actions by a score.
    pub(crate) fn rule(&self, score: &Score) -> Result<TargetRule, AgentError> {
        let coefficients = score.coefficients().iter().map(|&c| c as f32).collect();
        let wrong = |_| AgentError::Setting {
            key: "kappa",
            want: "be a positive number in single precision".to_owned(),
            got: self.kappa.to_string(),
        };
        TargetRule::new(coefficients, self.kappa, 1.0).map_err(wrong)
    }
}

/// Critics, their replay and their optimiser.
pub(crate) struct QuantileCritics {
    config: CriticConfig,
    rule: TargetRule,
    n_actions: usize,
    encoder: Encoder,
    reward_scale: f64,
    critics: Ensemble,
    replay: Replay,
    /// Draws the minibatches.
    rng: Rng,
    adam: Adam,
    /// Transitions stored since the last call of `learn`.
    pending: usize,
    updates: u64,
    minibatch: Minibatch,
}

/// The saved state other than the arrays.
#[derive(Deserialize, Serialize)]
pub(crate) struct CriticState {
    updates: u64,
    /// Seed, stream and position of the stream that draws minibatches.
    rng: [u64; 3],
}

impl QuantileCritics {
    /// Untrained critics that compare next actions by a rule.
    pub fn new(
        config: CriticConfig,
        n_critics: usize,
        rule: TargetRule,
        spec: &EnvSpec,
        n_lanes: usize,
        seed: u64,
    ) -> Result<Self, AgentError> {
        Replay::fits(config.replay_capacity, n_lanes, &spec.observations)?;
        let reward_scale = reward_scale(config.reward_scale, spec);
        let encoder = Encoder::new(spec, config.state_encoding, reward_scale);
        let shape = config.shape(n_critics, spec);
        let widths = shape.n_inputs + 2 * shape.hidden.iter().sum::<usize>() + 3 * shape.n_outputs();
        fits("minibatches of agent.batch_size", 1, 4, &[config.batch_size, n_critics, widths])?;
        let init = Init { output_scale: config.output_scale as f32, output_bias: config.output_bias as f32 };
        let critics = Ensemble::new(shape, init, &mut stream(seed, Purpose::Init))?;
        Ok(Self {
            rule,
            n_actions: spec.n_actions,
            encoder,
            reward_scale,
            critics: critics.with_kernels(config.kernels.find()?),
            replay: Replay::new(config.replay_capacity, n_lanes, &spec.observations).within(spec),
            rng: stream(seed, Purpose::Replay),
            adam: Adam::new(config.learning_rate),
            pending: 0,
            updates: 0,
            minibatch: Minibatch::default(),
            config,
        })
    }

    /// K.
    pub fn n_quantiles(&self) -> usize {
        self.config.n_quantiles
    }

    /// A.
    pub fn n_actions(&self) -> usize {
        self.n_actions
    }

    /// A critic's reward of 1, in the problem's own units.
    pub fn reward_scale(&self) -> f64 {
        self.reward_scale
    }

    /// Updates made.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// z_θm(x, a) at m·A·K + a·K + j: raw, not sorted.
    pub fn outputs(&self, x: &Input) -> Vec<f32> {
        let mut input = Vec::with_capacity(self.encoder.width());
        self.encoder.encode(x, &mut input);
        self.critics.act(Which::Online, &input)
    }

    /// The same for every waiting lane, all in one pass through the networks.
    pub fn outputs_of(&self, waiting: &[Waiting]) -> Vec<Vec<f32>> {
        if let [one] = waiting {
            return vec![self.outputs(&one.x)];
        }
        let mut rows = Vec::with_capacity(self.encoder.width() * waiting.len());
        for lane in waiting {
            self.encoder.encode(&lane.x, &mut rows);
        }
        self.critics.act_many(Which::Online, &rows)
    }

    /// z̃ of one action of one critic, from its raw outputs.
    pub fn sorted(quantiles: &[f32]) -> Vec<f64> {
        sort(&quantiles.iter().map(|&z| f64::from(z)).collect::<Vec<_>>())
    }

    /// Remembers a transition of a lane.
    pub fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        finite(transition.reward)?;
        self.replay.store(lane, transition);
        self.pending += 1;
        Ok(())
    }

    /// Lines 13–23 of Algorithm 1, for every transition since the last call.
    pub fn learn(&mut self, clock: &Clock) -> Result<(), LearnError> {
        let Self { config, replay, encoder, reward_scale, rng, minibatch, .. } = self;
        let CriticConfig { learning_rate, learning_rate_extra, learning_rate_decay, .. } = config;
        self.adam.learning_rate = *learning_rate + *learning_rate_extra / learning_rate_decay.slowdown(clock);
        let due = std::mem::take(&mut self.pending) * config.updates_per_step;
        if replay.len() < config.learning_starts.max(config.batch_size) {
            return Ok(());
        }
        for _ in 0..due {
            let batch = minibatch.draw(config.batch_size, replay, encoder, *reward_scale, rng);
            self.critics.train_step(&batch, &self.rule, &self.adam, config.zeta)?;
            self.updates += 1;
        }
        Ok(())
    }

    /// Every critic's sorted quantiles of c + Z(x, a).
    pub fn predictions(&self, x: &Input) -> Vec<Prediction> {
        let k = self.config.n_quantiles;
        let mut predictions = Vec::new();
        for (index, quantiles) in self.outputs(x).chunks_exact(k).enumerate() {
            let (critic, action) = (index / self.n_actions, index % self.n_actions);
            predictions.extend(eta(k).into_iter().zip(Self::sorted(quantiles)).map(|(level, z)| {
                Prediction { critic, action, level, value: x.collected + z * self.reward_scale }
            }));
        }
        predictions
    }

    /// The parts of a checkpoint, and the state that the agent saves with its own.
    pub fn save(&self, has: &dyn Fn(&str) -> bool) -> (Vec<Part>, CriticState) {
        let mut parts = vec![Part::new("critics.safetensors", self.critics.to_bytes())];
        parts.extend(self.replay.save(has));
        (parts, CriticState { updates: self.updates, rng: saved::position(&self.rng) })
    }

    /// Restores the result of [`save`](Self::save); nothing is changed if something does not fit.
    pub fn restore(&mut self, state: &CriticState, file: saved::Parts) -> Result<(), RestoreError> {
        let critics = saved::networks("critics.safetensors", &self.critics, file)?;
        saved::count("agent.json: updates", state.updates)?;
        self.replay.restore(file)?;
        self.critics = critics;
        self.updates = state.updates;
        self.rng = saved::at(state.rng);
        Ok(())
    }

    /// The networks.
    pub fn weights(&self) -> Vec<u8> {
        self.critics.to_bytes()
    }
}
