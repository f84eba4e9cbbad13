//! Deep-BQRL (Algorithm 1).
//!
//! ```text
//! B̂_m(x,a) = (1/β) Σ_j w_j z̃_θm,j(x,a)             buffered score of critic m
//! μ_B, σ_B  = mean and standard deviation of B̂_m over the critics
//! act       = argmax_a μ_B(x,a) + λ_t σ_B(x,a)       λ_t = λ_0 / (1 + t/λ_decay)          lines 7–8
//! a_m⁺(x')  = argmax_a B̄_m(x',a)                     from the target critic, sorted        Eq. (3)
//! y_m,i     = r + (1−d) z̃_θ̄m,i(x', a_m⁺)
//! 𝒥_m       = mean of ρ_{η_j}^κ(y_m,i − z_θm,j(x,a))  raw z                                  Eq. (4)
//! θ̄_m      ← (1−ζ) θ̄_m + ζ θ_m                                                            Eq. (5)
//! output    = argmax_a μ_B(x,a)                                                             Eq. (2)
//! ```
//!
//! Where the paper is silent (decision 0005): the score has `tie_break` times the mean of z added, because B̂ is flat
//! outside its window and strictly worse actions tie there; 0 is the paper's own score. Remaining ties go to the lowest
//! index. `score` replaces B̂ by a point quantile or the mean, and λ_0 = 0 takes the bonus away: the ablations that the paper
//! leaves open. The learning rate falls with the episodes. Rewards are divided by `reward_scale`.

use bqrl_math::buffer::{Buffer, eta};
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::Exploration;
use bqrl_math::score::{argmax, sort, spread};
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

/// Every setting but τ and β.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// K.
    pub n_quantiles: usize,
    /// M ≥ 2.
    pub n_critics: usize,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// κ.
    pub kappa: f64,
    /// ζ.
    pub zeta: f64,
    /// λ_0.
    pub lambda_0: f64,
    /// λ_decay, in episodes.
    pub lambda_decay: f64,
    /// What is maximised: the paper's buffered score, or one of the ablations.
    pub score: Score,
    /// Weight of the mean in the score.
    pub tie_break: f64,
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
    /// What a reward of 1 is to the critics; 0 takes the largest |reward| that the problem names.
    pub reward_scale: f64,
    /// Instructions to compute with: auto, or one of avx512, avx2, neon, scalar. Variants differ in the last bits.
    pub kernels: String,
}

/// What of the learned quantiles decides between actions, in acting, in targets and in the output.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// The paper's B̂: the average of the quantiles in (τ−β, τ].
    Buffered,
    /// The single quantile that holds level τ: what is left of B̂ as β → 0.
    Point,
    /// The mean of all quantiles: risk-neutral.
    Mean,
}

impl Score {
    /// c_j of the score Σ_j c_j z̃_j, without the tie-break.
    fn coefficients(self, buffer: &Buffer, k: usize) -> Vec<f64> {
        match self {
            Score::Buffered => buffer.weights(k).iter().map(|w| w / buffer.beta()).collect(),
            Score::Point => {
                // The first j with j/K ≥ τ.
                let level = (1..k).find(|&j| j as f64 / k as f64 >= buffer.tau()).unwrap_or(k);
                (1..=k).map(|j| if j == level { 1.0 } else { 0.0 }).collect()
            }
            Score::Mean => vec![1.0 / k as f64; k],
        }
    }
}

impl Config {
    /// The sizes of the critics for a problem.
    pub fn shape(&self, spec: &EnvSpec) -> Shape {
        let encoder = Encoder::new(spec, self.state_encoding, reward_scale(self.reward_scale, spec));
        Shape {
            n_inputs: encoder.width(),
            hidden: self.hidden.clone(),
            n_actions: spec.n_actions,
            n_quantiles: self.n_quantiles,
            n_critics: self.n_critics,
        }
    }

    fn check(&self) -> Result<(), AgentError> {
        let at_least = |key, value: usize, least: usize, want| require(key, value >= least, want, &value);
        at_least("n_quantiles", self.n_quantiles, 1, "be at least 1")?;
        at_least("n_critics", self.n_critics, 2, "be at least 2")?;
        at_least("batch_size", self.batch_size, 1, "be at least 1")?;
        at_least("replay_capacity", self.replay_capacity, self.batch_size, "be at least batch_size")?;
        require("zeta", self.zeta > 0.0 && self.zeta <= 1.0, "lie in (0, 1]", &self.zeta)?;
        positive("kappa", self.kappa)?;
        positive("lambda_decay", self.lambda_decay)?;
        positive("learning_rate", self.learning_rate)?;
        positive("learning_rate_decay", self.learning_rate_decay)?;
        not_negative("lambda_0", self.lambda_0)?;
        not_negative("tie_break", self.tie_break)?;
        not_negative("learning_rate_extra", self.learning_rate_extra)?;
        not_negative("output_scale", self.output_scale)?;
        not_negative("reward_scale", self.reward_scale)
    }
}

/// The agent.
pub struct DeepBqrl {
    config: Config,
    exploration: Exploration,
    rule: TargetRule,
    /// c_j of the score, with the tie-break's share.
    score: Vec<f64>,
    n_actions: usize,
    encoder: Encoder,
    reward_scale: f64,
    critics: Ensemble,
    replay: Replay,
    rng: Rng,
    lambda_t: f64,
    adam: Adam,
    updates: u64,
    minibatch: Minibatch,
}

/// What [`Agent::save`] keeps beside the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    updates: u64,
    /// Seed, stream and position of the replay stream.
    rng: [u64; 3],
}

impl DeepBqrl {
    /// An untrained agent for one level.
    pub fn new(config: Config, buffer: Buffer, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        Replay::fits(config.replay_capacity, 1, &spec.observations)?;
        let reward_scale = reward_scale(config.reward_scale, spec);
        let encoder = Encoder::new(spec, config.state_encoding, reward_scale);
        let shape = config.shape(spec);
        let init = Init { output_scale: config.output_scale as f32, output_bias: config.output_bias as f32 };
        let critics = Ensemble::new(shape, init, &mut stream(seed, Purpose::Init))
            .map_err(|e| refused("hidden", &e))?
            .with_kernels(kernels(&config.kernels)?);
        let share = config.tie_break / config.n_quantiles as f64;
        let coefficients = config.score.coefficients(&buffer, config.n_quantiles);
        let score: Vec<f64> = coefficients.iter().map(|c| c + share).collect();
        let rule = TargetRule::new(score.iter().map(|&c| c as f32).collect(), config.kappa, 1.0)
            .map_err(|e| refused("kappa", &e))?;
        Ok(Self {
            exploration: Exploration::new(config.lambda_0, config.lambda_decay)
                .map_err(|e| refused("lambda_0", &e))?,
            score,
            rule,
            n_actions: spec.n_actions,
            encoder,
            reward_scale,
            critics,
            replay: Replay::new(config.replay_capacity, 1, &spec.observations),
            rng: stream(seed, Purpose::Replay),
            lambda_t: 0.0,
            adam: Adam::new(config.learning_rate),
            updates: 0,
            minibatch: Minibatch::default(),
            config,
        })
    }

    /// The ensemble's mean quantiles z̃_j(x, a) of the remaining return, in the problem's own units.
    pub fn quantiles(&self, x: &Input, action: usize) -> Vec<f64> {
        let k = self.config.n_quantiles;
        let mut sums = vec![0.0; k];
        for critic in self.outputs(x).chunks_exact(self.n_actions * k) {
            let raw: Vec<f64> = critic[action * k..(action + 1) * k].iter().map(|&z| f64::from(z)).collect();
            sums.iter_mut().zip(sort(&raw)).for_each(|(sum, z)| *sum += z);
        }
        sums.iter().map(|sum| sum * self.reward_scale / self.config.n_critics as f64).collect()
    }

    /// z_θm(x, ·) of all critics, one after the other.
    fn outputs(&self, x: &Input) -> Vec<f32> {
        let mut input = Vec::with_capacity(self.encoder.width());
        self.encoder.encode(x, &mut input);
        self.critics.act(Which::Online, &input)
    }

    /// B̂_m(x, a) for all critics, per action: line 7.
    fn scores(&self, x: &Input) -> Vec<Vec<f64>> {
        let k = self.config.n_quantiles;
        let outputs = self.outputs(x);
        assert_eq!(outputs.len(), self.config.n_critics * self.n_actions * k, "outputs, want M·A·K");
        let mut scores = vec![Vec::with_capacity(self.config.n_critics); self.n_actions];
        for (index, quantiles) in outputs.chunks_exact(k).enumerate() {
            let sorted = sort(&quantiles.iter().map(|&z| f64::from(z)).collect::<Vec<_>>());
            let score = self.score.iter().zip(&sorted).map(|(c, z)| c * z).sum();
            scores[index % self.n_actions].push(score);
        }
        scores
    }

    /// Lines 14–25 for one minibatch.
    fn update(&mut self) -> Result<(), UpdateError> {
        let Self { config, replay, encoder, reward_scale, rng, minibatch, .. } = self;
        let batch = minibatch.draw(config.batch_size, replay, encoder, *reward_scale, rng);
        self.critics.train_step(&batch, &self.rule, &self.adam, self.config.zeta)?;
        self.updates += 1;
        Ok(())
    }
}

impl Agent for DeepBqrl {
    fn begin_episode(&mut self, episode: usize) {
        let Config { learning_rate, learning_rate_extra, learning_rate_decay, .. } = self.config;
        self.lambda_t = self.exploration.lambda_t(episode);
        self.adam.learning_rate =
            learning_rate + learning_rate_extra / (1.0 + episode as f64 / learning_rate_decay);
    }

    fn act(&mut self, x: &Input) -> usize {
        let optimistic = |scores: &Vec<f64>| spread(scores).optimistic(self.lambda_t);
        argmax(&self.scores(x).iter().map(optimistic).collect::<Vec<_>>())
    }

    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError> {
        self.replay.store(0, transition);
        if self.replay.len() >= self.config.learning_starts.max(self.config.batch_size) {
            for _ in 0..self.config.updates_per_step {
                self.update()?;
            }
        }
        Ok(())
    }

    fn output(&self, _: &[Buffer]) -> Vec<Box<dyn OutputPolicy + '_>> {
        let mu_b = |scores: &Vec<f64>| spread(scores).mu_b;
        let greedy = move |x: &Input| argmax(&self.scores(x).iter().map(mu_b).collect::<Vec<_>>());
        vec![Box::new(greedy)]
    }

    fn predictions(&self, x: &Input) -> Vec<Prediction> {
        let k = self.config.n_quantiles;
        let mut predictions = Vec::new();
        for (index, quantiles) in self.outputs(x).chunks_exact(k).enumerate() {
            let (critic, action) = (index / self.n_actions, index % self.n_actions);
            let sorted = sort(&quantiles.iter().map(|&z| f64::from(z)).collect::<Vec<_>>());
            predictions.extend(eta(k).into_iter().zip(sorted).map(|(level, z)| Prediction {
                critic,
                action,
                level,
                value: x.collected + z * self.reward_scale,
            }));
        }
        predictions
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let state = State { updates: self.updates, rng: saved::position(&self.rng) };
        let mut parts = vec![
            Part::new("critics.safetensors", self.critics.to_bytes()),
            Part::new("agent.json", serde_json::to_vec(&state).expect("plain numbers serialise")),
        ];
        parts.extend(self.replay.save(has));
        parts
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let critics = saved::networks("critics.safetensors", &self.critics, file)?;
        let state: State = saved::json("agent.json", file)?;
        self.replay.restore(file)?;
        self.critics = critics;
        self.updates = state.updates;
        self.rng = saved::at(state.rng);
        Ok(())
    }

    fn weights(&self) -> Vec<u8> {
        self.critics.to_bytes()
    }
}
