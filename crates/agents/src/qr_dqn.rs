//! QR-DQN (Dabney et al., 2018, "Distributional reinforcement learning with quantile regression"), risk-neutral.
//!
//! ```text
//! Q(x,a)   = (1/K) Σ_j z_θ,j(x,a)                        mean of the quantiles
//! act      = uniform with probability ε_t, else argmax_a Q(x,a)      ε_t = ε_0 / (1 + t/ε_decay)
//! a⁺(x')   = argmax_a Q̄(x',a)                            from the target critic
//! y_i      = r + (1−d) z̃_θ̄,i(x', a⁺)
//! 𝒥        = mean of ρ_{η_j}^κ(y_i − z_θ,j(x,a))         Eq. (4) of the Deep-BQRL paper
//! θ̄       ← (1−ζ) θ̄ + ζ θ
//! output   = argmax_a Q(x,a)
//! ```
//!
//! One network, the same input x = (h, s, c), replay, loss and kernels as Deep-BQRL, so that what differs is the score and
//! the exploration. Two departures from the original: the target network moves softly, not in jumps, and the output bias
//! may be optimistic. Deep-BQRL with `score = "mean"` keeps the ensemble and its bonus and changes the score alone.

use bqrl_math::buffer::{Buffer, eta};
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::Exploration;
use bqrl_math::score::{argmax, sort};
use bqrl_mdp::env::EnvSpec;
use bqrl_nn::{Adam, Ensemble, Init, Shape, TargetRule, UpdateError, Which};
use serde::{Deserialize, Serialize};

use crate::experience::encode::{Encoder, StateEncoding, reward_scale};
use crate::experience::minibatch::Minibatch;
use crate::experience::replay::Replay;
use crate::experience::saved;
use crate::{
    Agent, AgentError, Input, OutputPolicy, Part, Prediction, RestoreError, Transition, kernels,
    not_negative, positive, refused, require,
};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// K.
    pub n_quantiles: usize,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// κ.
    pub kappa: f64,
    /// ζ.
    pub zeta: f64,
    /// ε_0.
    pub epsilon_0: f64,
    /// ε_decay, in episodes.
    pub epsilon_decay: f64,
    /// Factor on the initial output weights.
    pub output_scale: f64,
    /// Initial output bias, in units of `reward_scale`.
    pub output_bias: f64,
    /// Step size in the end …
    pub learning_rate: f64,
    /// … plus this much at first, …
    pub learning_rate_extra: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub learning_rate_decay: f64,
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
    /// What a reward of 1 is to the critic; 0 takes the largest |reward| that the problem names.
    pub reward_scale: f64,
    /// Instructions to compute with: auto, or one of avx512, avx2, neon, scalar. Variants differ in the last bits.
    pub kernels: String,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        let at_least = |key, value: usize, least: usize, want| require(key, value >= least, want, &value);
        at_least("n_quantiles", self.n_quantiles, 1, "be at least 1")?;
        at_least("batch_size", self.batch_size, 1, "be at least 1")?;
        at_least("replay_capacity", self.replay_capacity, self.batch_size, "be at least batch_size")?;
        require("zeta", self.zeta > 0.0 && self.zeta <= 1.0, "lie in (0, 1]", &self.zeta)?;
        require("epsilon_0", (0.0..=1.0).contains(&self.epsilon_0), "lie in [0, 1]", &self.epsilon_0)?;
        positive("kappa", self.kappa)?;
        positive("epsilon_decay", self.epsilon_decay)?;
        positive("learning_rate", self.learning_rate)?;
        positive("learning_rate_decay", self.learning_rate_decay)?;
        not_negative("learning_rate_extra", self.learning_rate_extra)?;
        not_negative("output_scale", self.output_scale)?;
        not_negative("reward_scale", self.reward_scale)
    }
}

/// The agent.
pub struct QrDqn {
    config: Config,
    exploration: Exploration,
    rule: TargetRule,
    n_actions: usize,
    encoder: Encoder,
    reward_scale: f64,
    critic: Ensemble,
    replay: Replay,
    /// Draws the exploration.
    rng: Rng,
    /// Draws the minibatches.
    replay_rng: Rng,
    epsilon_t: f64,
    adam: Adam,
    updates: u64,
    minibatch: Minibatch,
}

/// What [`Agent::save`] keeps beside the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    updates: u64,
    /// Seed, stream and position of the two streams.
    rng: [u64; 3],
    replay_rng: [u64; 3],
}

impl QrDqn {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        Replay::fits(config.replay_capacity, 1, &spec.observations)?;
        let reward_scale = reward_scale(config.reward_scale, spec);
        let encoder = Encoder::new(spec, config.state_encoding, reward_scale);
        let shape = Shape {
            n_inputs: encoder.width(),
            hidden: config.hidden.clone(),
            n_actions: spec.n_actions,
            n_quantiles: config.n_quantiles,
            n_critics: 1,
        };
        let init = Init { output_scale: config.output_scale as f32, output_bias: config.output_bias as f32 };
        let critic = Ensemble::new(shape, init, &mut stream(seed, Purpose::Init))
            .map_err(|e| refused("hidden", &e))?
            .with_kernels(kernels(&config.kernels)?);
        Ok(Self {
            exploration: Exploration::new(config.epsilon_0, config.epsilon_decay)
                .map_err(|e| refused("epsilon_0", &e))?,
            rule: TargetRule::mean(config.n_quantiles, config.kappa, 1.0)
                .map_err(|e| refused("kappa", &e))?,
            n_actions: spec.n_actions,
            encoder,
            reward_scale,
            critic,
            replay: Replay::new(config.replay_capacity, 1, &spec.observations),
            rng: stream(seed, Purpose::Agent),
            replay_rng: stream(seed, Purpose::Replay),
            epsilon_t: config.epsilon_0,
            adam: Adam::new(config.learning_rate),
            updates: 0,
            minibatch: Minibatch::default(),
            config,
        })
    }

    fn outputs(&self, x: &Input) -> Vec<f32> {
        let mut input = Vec::with_capacity(self.encoder.width());
        self.encoder.encode(x, &mut input);
        self.critic.act(Which::Online, &input)
    }

    /// argmax_a Q(x, a); ties go to the lowest index.
    fn greedy(&self, x: &Input) -> usize {
        let k = self.config.n_quantiles;
        let mean = |z: &[f32]| z.iter().map(|&z| f64::from(z)).sum::<f64>() / k as f64;
        argmax(&self.outputs(x).chunks_exact(k).map(mean).collect::<Vec<_>>())
    }
}

impl Agent for QrDqn {
    fn begin_episode(&mut self, episode: usize) {
        let Config { learning_rate, learning_rate_extra, learning_rate_decay, .. } = self.config;
        self.epsilon_t = self.exploration.lambda_t(episode);
        self.adam.learning_rate =
            learning_rate + learning_rate_extra / (1.0 + episode as f64 / learning_rate_decay);
    }

    fn act(&mut self, x: &Input) -> usize {
        if self.rng.uniform() < self.epsilon_t { self.rng.below(self.n_actions) } else { self.greedy(x) }
    }

    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError> {
        self.replay.store(0, transition);
        if self.replay.len() < self.config.learning_starts.max(self.config.batch_size) {
            return Ok(());
        }
        let Self { config, replay, encoder, reward_scale, replay_rng, minibatch, .. } = self;
        for _ in 0..config.updates_per_step {
            let batch = minibatch.draw(config.batch_size, replay, encoder, *reward_scale, replay_rng);
            self.critic.train_step(&batch, &self.rule, &self.adam, config.zeta)?;
            self.updates += 1;
        }
        Ok(())
    }

    fn output(&self, _: &[Buffer]) -> Vec<Box<dyn OutputPolicy + '_>> {
        vec![Box::new(|x: &Input| self.greedy(x))]
    }

    fn predictions(&self, x: &Input) -> Vec<Prediction> {
        let k = self.config.n_quantiles;
        let outputs = self.outputs(x);
        let of_action = |(action, quantiles): (usize, &[f32])| {
            let sorted = sort(&quantiles.iter().map(|&z| f64::from(z)).collect::<Vec<_>>());
            let value = |z: f64| x.collected + z * self.reward_scale;
            let predict = |(level, z)| Prediction { critic: 0, action, level, value: value(z) };
            eta(k).into_iter().zip(sorted).map(predict).collect::<Vec<_>>()
        };
        outputs.chunks_exact(k).enumerate().flat_map(of_action).collect()
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let (rng, replay_rng) = (saved::position(&self.rng), saved::position(&self.replay_rng));
        let state = State { updates: self.updates, rng, replay_rng };
        let mut parts = vec![
            Part::new("critic.safetensors", self.critic.to_bytes()),
            Part::new("agent.json", serde_json::to_vec(&state).expect("plain numbers serialise")),
        ];
        parts.extend(self.replay.save(has));
        parts
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let critic = saved::networks("critic.safetensors", &self.critic, file)?;
        let state: State = saved::json("agent.json", file)?;
        self.replay.restore(file)?;
        self.critic = critic;
        self.updates = state.updates;
        (self.rng, self.replay_rng) = (saved::at(state.rng), saved::at(state.replay_rng));
        Ok(())
    }

    fn weights(&self) -> Vec<u8> {
        self.critic.to_bytes()
    }
}
