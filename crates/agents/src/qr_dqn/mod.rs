//! QR-DQN (Dabney et al., 2018, "Distributional reinforcement learning with quantile regression"), risk-neutral.
//!
//! ```text
//! Q(x,a)   = (1/K) Σ_j z_θ,j(x,a)                        mean of the quantiles
//! act      = uniform with probability ε_t, else argmax_a Q(x,a)
//! a⁺(x')   = argmax_a Q(x',a)                            one action for all quantiles
//! y_i      = r + γ (1−d) z̃_θ̄,i(x', a⁺)                  γ < 1 only where observations are images
//! 𝒥        = mean of ρ_{η_j}^κ(y_i − z_θ,j(x,a))         the smoothed quantile loss
//! θ̄       ← (1−ζ) θ̄ + ζ θ
//! output   = argmax_a Q(x,a)
//! ```
//!
//! Network, replay, update and exploration are those of target tracking; only a⁺ differs. Differences from the original: the target
//! network is updated softly; the critic that learns chooses a⁺; with `n_critics` > 1 the least of them values it; first
//! values may be optimistic. Deep-BQRL with `score = "mean"` keeps the ensemble and its bonus and changes only the score.

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::Clock;
use bqrl_math::score::{Score, argmax};
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::evaluate::Choice;
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::Which;
use serde::{Deserialize, Serialize};

use crate::experience::encode::Moments;
use crate::experience::saved;
use crate::quantile_critics::{CriticConfig, CriticState, Design, QuantileCritics, early_updates, inputs};
use crate::settings::{count, probability, share};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served,
    Transition, Waiting,
};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// ε, after a first time with more.
    pub epsilon: f64,
    /// γ, for the critic alone: returns are measured without it. 1 is the objective; a little less is easier to learn in long games.
    pub critic_discount: f64,
    /// Network, replay and optimiser.
    #[serde(flatten)]
    pub critics: CriticConfig,
}

/// The agent.
pub struct QrDqn {
    critics: QuantileCritics,
    epsilon: f64,
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
        let Config { epsilon, critic_discount: discount, critics } = config;
        critics.check()?;
        count("n_critics", critics.n_critics, 1..=16)?;
        probability("epsilon", epsilon)?;
        share("critic_discount", discount)?;
        let mut design = Design {
            shared: true,
            smooth: true,
            early_updates: early_updates(spec),
            ..Design::by_score(&Score::mean(critics.n_quantiles))
        };
        design.trunks[0].discount = discount;
        Ok(Self {
            critics: QuantileCritics::new(critics, design, spec, n_lanes, seed)?,
            epsilon,
            rng: stream(seed, Purpose::Agent),
        })
    }

    /// argmax_a Q(x, a) from the raw outputs, Q the mean over the critics; ties go to the lowest index.
    fn greedy(&self, outputs: &[f32]) -> usize {
        let (k, n_actions) = (self.critics.n_quantiles(), self.critics.n_actions());
        let mut sums = vec![0.0; n_actions];
        for (place, quantiles) in outputs.chunks_exact(k).enumerate() {
            sums[place % n_actions] += quantiles.iter().map(|&z| f64::from(z)).sum::<f64>();
        }
        argmax(&sums)
    }
}

impl Agent for QrDqn {
    fn begin(&mut self, _: &Clock, _: usize, start: &Observation) -> Memo {
        self.critics.see(start);
        Memo::default()
    }

    fn act(&mut self, clock: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        let epsilon_t = self.critics.epsilon_t(self.epsilon, clock);
        let mut actions = Vec::with_capacity(waiting.len());
        let mut greedy = Vec::new();
        for (index, lane) in waiting.iter().enumerate() {
            if epsilon_t > 0.0 && self.rng.uniform() < epsilon_t {
                actions.push(self.rng.below(self.critics.n_actions()));
            } else {
                // Filled in below, all in one pass through the network.
                actions.push(0);
                greedy.push((index, *lane));
            }
        }
        let (places, lanes): (Vec<usize>, Vec<Waiting>) = greedy.into_iter().unzip();
        if !lanes.is_empty() {
            for (place, outputs) in
                places.into_iter().zip(self.critics.outputs_of(Which::Target, inputs(&lanes)))
            {
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
        choice.push((self.greedy(&self.critics.outputs(Which::Target, x)), 1.0));
    }

    fn decide_all(&self, asked: &[(&Memo, Input)]) -> Vec<Choice> {
        let (outputs, places) = self.critics.distinct_outputs_of(Which::Target, asked.iter().map(|(_, x)| x));
        let greedy: Vec<usize> = outputs.iter().map(|outputs| self.greedy(outputs)).collect();
        places.into_iter().map(|place| vec![(greedy[place], 1.0)]).collect()
    }

    fn predictions(&self, x: &Input) -> Vec<Prediction> {
        // With a discount of its own, the critic does not predict the law of the return.
        if self.critics.discount() < 1.0 { Vec::new() } else { self.critics.predictions(0, x) }
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn exploration(&self, clock: &Clock) -> Option<f64> {
        Some(self.critics.epsilon_t(self.epsilon, clock))
    }

    fn updates(&self) -> u64 {
        self.critics.updates()
    }

    fn loss(&self) -> Option<f64> {
        self.critics.loss()
    }

    fn moments(&self) -> Option<Moments> {
        self.critics.moments().cloned()
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
