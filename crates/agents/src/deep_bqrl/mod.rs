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
//! Choices that the paper leaves open (decision 0005): `tie_break` times the mean of z is added to the score, because B̂ is
//! flat outside its window and strictly worse actions tie there; 0 is the paper's score. Remaining ties go to the lowest
//! index. The ablations that the paper leaves open: `score` replaces B̂ by a point quantile or the mean, and λ_0 = 0 removes
//! the bonus. Rewards are in units of
//! the scale of the returns, which is found while learning.

use bqrl_math::buffer::Buffer;
use bqrl_math::schedule::{Clock, Exploration, Span};
use bqrl_math::score::{self, Spread, argmax, spread};
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::evaluate::Choice;
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::{Shape, Which};
use serde::{Deserialize, Serialize};

use crate::experience::encode::Moments;
use crate::experience::saved;
use crate::quantile_critics::{CriticConfig, CriticState, Design, QuantileCritics, inputs};
use crate::settings::{count, not_negative, positive_span};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served,
    Transition, Waiting,
};

/// Every setting except τ and β.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// λ_0.
    pub lambda_0: f64,
    /// λ_decay.
    pub lambda_decay: Span,
    /// The statistic that is maximised: the paper's buffered score, or one of the ablations.
    pub score: Score,
    /// Weight of the mean in the score.
    pub tie_break: f64,
    /// Networks, replay and optimiser.
    #[serde(flatten)]
    pub critics: CriticConfig,
}

/// The statistic of the learned quantiles that compares actions: in acting, in targets and in the output.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Score {
    /// The paper's B̂: the average of the quantiles in (τ−β, τ].
    Buffered,
    /// The single quantile that holds level τ.
    Point,
    /// The mean of all quantiles: risk-neutral.
    Mean,
}

/// One head, which compares next actions by the score; the collected reward is part of x.
fn design(score: &score::Score) -> Design {
    Design { with_collected: true, ..Design::by_score(score) }
}

impl Config {
    /// The sizes of the networks for a problem.
    pub fn shape(&self, spec: &EnvSpec) -> Shape {
        let design = design(&score::Score::mean(self.critics.n_quantiles));
        self.critics.shape(&design, &design.encoder(spec), spec)
    }
}

/// The agent.
pub struct DeepBqrl {
    critics: QuantileCritics,
    score: score::Score,
    exploration: Exploration,
}

/// The saved state other than the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    critics: CriticState,
}

impl DeepBqrl {
    /// An untrained agent for one level.
    pub fn new(
        config: Config,
        buffer: Buffer,
        spec: &EnvSpec,
        n_lanes: usize,
        seed: u64,
    ) -> Result<Self, AgentError> {
        let Config { lambda_0, lambda_decay, score, tie_break, critics } = config;
        critics.check()?;
        count("n_critics", critics.n_critics, 2..=256)?;
        not_negative("lambda_0", lambda_0)?;
        positive_span("lambda_decay", &lambda_decay)?;
        not_negative("tie_break", tie_break)?;
        let k = critics.n_quantiles;
        let score = match score {
            Score::Buffered => score::Score::buffered(&buffer, k),
            Score::Point => score::Score::point(buffer.tau(), k),
            Score::Mean => score::Score::mean(k),
        };
        let score = score.with_tie_break(tie_break);
        let design = design(&score);
        Ok(Self {
            critics: QuantileCritics::new(critics, design, spec, n_lanes, seed)?,
            score,
            exploration: Exploration::new(lambda_0, lambda_decay).expect("checked above"),
        })
    }

    /// The ensemble's mean quantiles z̃_j(x, a) of the remaining return, in the problem's own units.
    pub fn quantiles(&self, x: &Input, action: usize) -> Vec<f64> {
        let (k, n_actions) = (self.critics.n_quantiles(), self.critics.n_actions());
        let outputs = self.critics.outputs(Which::Online, x);
        let mut sums = vec![0.0; k];
        for critic in outputs.chunks_exact(n_actions * k) {
            let sorted = QuantileCritics::sorted(&critic[action * k..(action + 1) * k]);
            sums.iter_mut().zip(sorted).for_each(|(sum, z)| *sum += z);
        }
        let n_critics = outputs.len() / (n_actions * k);
        sums.iter().map(|sum| sum * self.critics.unit().sigma() / n_critics as f64).collect()
    }

    /// argmax_a μ_B(x, a), from the raw outputs of all critics.
    fn greedy(&self, outputs: &[f32]) -> usize {
        argmax(&self.spreads(outputs).iter().map(|spread| spread.mu_b).collect::<Vec<_>>())
    }

    /// μ_B and σ_B of every action, from the raw outputs of all critics: line 7.
    fn spreads(&self, outputs: &[f32]) -> Vec<Spread> {
        let (k, n_actions) = (self.critics.n_quantiles(), self.critics.n_actions());
        let n_critics = outputs.len() / (n_actions * k);
        // Scores of an action are neighbours.
        let (mut scores, mut sorted) = (vec![0.0; n_actions * n_critics], vec![0.0; k]);
        for (index, quantiles) in outputs.chunks_exact(k).enumerate() {
            let (critic, action) = (index / n_actions, index % n_actions);
            sorted.iter_mut().zip(quantiles).for_each(|(z, &raw)| *z = f64::from(raw));
            sorted.sort_unstable_by(f64::total_cmp);
            scores[action * n_critics + critic] = self.score.of(&sorted);
        }
        scores.chunks_exact(n_critics).map(spread).collect()
    }
}

impl Agent for DeepBqrl {
    fn begin(&mut self, _: &Clock, _: usize, start: &Observation) -> Memo {
        self.critics.see(start);
        Memo::default()
    }

    /// Line 8.
    fn act(&mut self, clock: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        let lambda_t = self.exploration.lambda_t(clock);
        let optimistic = |spread: &Spread| spread.optimistic(lambda_t);
        let choose =
            |outputs: &Vec<f32>| argmax(&self.spreads(outputs).iter().map(optimistic).collect::<Vec<_>>());
        self.critics.outputs_of(Which::Online, inputs(waiting)).iter().map(choose).collect()
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

    /// Eq. (2).
    fn decide(&self, _: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.greedy(&self.critics.outputs(Which::Online, x)), 1.0));
    }

    fn decide_all(&self, asked: &[(&Memo, Input)]) -> Vec<Choice> {
        let (outputs, places) = self.critics.distinct_outputs_of(Which::Online, asked.iter().map(|(_, x)| x));
        let greedy: Vec<usize> = outputs.iter().map(|outputs| self.greedy(outputs)).collect();
        places.into_iter().map(|place| vec![(greedy[place], 1.0)]).collect()
    }

    fn predictions(&self, x: &Input) -> Vec<Prediction> {
        self.critics.predictions(0, x)
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn exploration(&self, clock: &Clock) -> Option<f64> {
        Some(self.exploration.lambda_t(clock))
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
        parts.push(Part::new("agent.json", saved::to_json(&State { critics })));
        parts
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let state: State = saved::json("agent.json", file)?;
        self.critics.restore(&state.critics, file)
    }

    fn weights(&self) -> Vec<u8> {
        self.critics.weights()
    }
}
