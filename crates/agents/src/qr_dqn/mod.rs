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
//! One network, the same input x = (h, s, c), replay, loss and kernels as Deep-BQRL, so that only the score and the
//! exploration differ. Two differences from the original: the target network is updated softly, and the output bias may
//! be optimistic. Deep-BQRL with `score = "mean"` keeps the ensemble and its bonus and changes only the score.

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::{Clock, Exploration, Span};
use bqrl_math::score::{Score, argmax};
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::trajectory::Observation;
use serde::{Deserialize, Serialize};

use crate::experience::saved;
use crate::quantile_critics::{CriticConfig, CriticState, QuantileCritics};
use crate::settings::{positive_span, probability};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served,
    Transition, Waiting,
};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// ε_0.
    pub epsilon_0: f64,
    /// ε_decay.
    pub epsilon_decay: Span,
    /// Network, replay and optimiser.
    #[serde(flatten)]
    pub critics: CriticConfig,
}

/// The agent.
pub struct QrDqn {
    /// One of them.
    critics: QuantileCritics,
    exploration: Exploration,
    /// Draws the exploration.
    rng: Rng,
}

/// The saved state other than the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    critics: CriticState,
    /// Seed, stream and position of the stream that draws the exploration.
    rng: [u64; 3],
}

impl QrDqn {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, n_lanes: usize, seed: u64) -> Result<Self, AgentError> {
        let Config { epsilon_0, epsilon_decay, critics } = config;
        critics.check()?;
        probability("epsilon_0", epsilon_0)?;
        positive_span("epsilon_decay", &epsilon_decay)?;
        let rule = critics.rule(&Score::mean(critics.n_quantiles))?;
        Ok(Self {
            critics: QuantileCritics::new(critics, 1, rule, spec, n_lanes, seed)?,
            exploration: Exploration::new(epsilon_0, epsilon_decay).expect("checked above"),
            rng: stream(seed, Purpose::Agent),
        })
    }

    /// argmax_a Q(x, a) from the raw outputs; ties go to the lowest index.
    fn greedy(&self, outputs: &[f32]) -> usize {
        let k = self.critics.n_quantiles();
        let mean = |z: &[f32]| z.iter().map(|&z| f64::from(z)).sum::<f64>() / k as f64;
        argmax(&outputs.chunks_exact(k).map(mean).collect::<Vec<_>>())
    }
}

impl Agent for QrDqn {
    fn begin(&mut self, _: &Clock, _: usize, _: &Observation) -> Memo {
        Memo::default()
    }

    fn act(&mut self, clock: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        let epsilon_t = self.exploration.lambda_t(clock);
        let mut actions = Vec::with_capacity(waiting.len());
        let mut greedy = Vec::new();
        for (index, lane) in waiting.iter().enumerate() {
            if self.rng.uniform() < epsilon_t {
                actions.push(self.rng.below(self.critics.n_actions()));
            } else {
                // Filled in below, all in one pass through the network.
                actions.push(0);
                greedy.push((index, *lane));
            }
        }
        let (places, lanes): (Vec<usize>, Vec<Waiting>) = greedy.into_iter().unzip();
        if !lanes.is_empty() {
            for (place, outputs) in places.into_iter().zip(self.critics.outputs_of(&lanes)) {
                actions[place] = self.greedy(&outputs);
            }
        }
        actions
    }

    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.critics.store(lane, transition)
    }

    fn learn(&mut self, clock: &Clock) -> Result<(), LearnError> {
        self.critics.learn(clock)
    }

    fn serve(&self, _: &[Buffer], _: Objective) -> Served {
        Served::One(Memo::default())
    }

    fn decide(&self, _: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.greedy(&self.critics.outputs(x)), 1.0));
    }

    fn predictions(&self, x: &Input) -> Vec<Prediction> {
        self.critics.predictions(x)
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn updates(&self) -> u64 {
        self.critics.updates()
    }

    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let (mut parts, critics) = self.critics.save(has);
        parts.push(Part::new(
            "agent.json",
            saved::to_json(&State { critics, rng: saved::position(&self.rng) }),
        ));
        parts
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let state: State = saved::json("agent.json", file)?;
        self.critics.restore(&state.critics, file)?;
        self.rng = saved::at(state.rng);
        Ok(())
    }

    fn weights(&self) -> Vec<u8> {
        self.critics.weights()
    }
}
