//! UCB-BQRL: optimistic planning for a quantile in a model from counts.
//!
//! ```text
//! N(s,a,s'), n(s,a)                             counts; per stage when `stationary` is false
//! P̂(s'|s,a) = (N(s,a,s') + κ Q_a(s'|s)) / (n + κ)   Q_a alone where n = 0
//! ρ(s,a)    = min{ 2, c √(2 (S ln 2 + ln(2SAHT/δ)) / max(1, n)) }     c = radius_scale, T = episodes so far + 1
//! F_h(s,y)  = min_a min_{‖p − P̂‖₁ ≤ ρ} Σ p(s') F_{h+1}(s', y − r),   F_H(s,y) = 1{0 < y}
//! g         = max{ y : F_0(y) < τ },   act = argmin_a at (h, s, g − c_h)          the optimistic policy
//! output    = the same with ρ = 0 (`output = "nominal"`), or the optimistic policy itself
//! ```
//!
//! The paper names UCB-BQRL as its model-based reference; the method's own paper was not available in full, so this is a
//! reconstruction (see docs/agents/ucb-bqrl.md). The agent knows the horizon, and the rewards r(s,a) or r(s') and terminal
//! states that the problem's spec gives. Otherwise the reward of (s, a, s') is the one that was seen, an unseen reward counts
//! as the largest possible one, and a state is terminal once an episode ended in it.
//!
//! Our additions: the prior Q_a, and `slack`. If P(R < g) is below τ, the behaviour uses this share of the difference to
//! raise the mean; the output keeps the difference as a margin against the error of P̂.

mod beliefs;
mod counts;
mod prior;

use bqrl_math::buffer::Buffer;
use bqrl_math::schedule::Clock;
use bqrl_mdp::env::{EnvSpec, KnownRewards};
use bqrl_mdp::plan::robust::RobustPolicy;
use bqrl_mdp::trajectory::{AugmentedInput, End, Observation};
use serde::{Deserialize, Serialize};

use self::beliefs::Beliefs;
use self::counts::{Counts, Row, Seen};
use crate::experience::arrays::{self, Array};
use crate::experience::saved;
use crate::settings::{count, fits, n_states, not_negative, probability, require};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Part, Prediction, RestoreError, Served, Transition, Waiting,
    finite, state, state_of,
};

/// Every setting except τ and β.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// c: the factor on the confidence radius; 0 trusts the counts.
    pub radius_scale: f64,
    /// δ in the radius.
    pub delta: f64,
    /// One table of counts for all stages, where the problem is known to be the same at all of them, or one per stage.
    pub stationary: bool,
    /// The objective of planning.
    pub objective: Objective,
    /// The policy that the agent outputs.
    pub output: Output,
    /// The belief about the successors of a pair before it is tried.
    pub prior: Prior,
    /// κ: the number of observations that the prior counts as.
    pub prior_strength: f64,
    /// The share of a quantile's slack that the behaviour uses to raise the mean.
    pub slack: f64,
    /// Episodes after which the agent plans again even if no count has doubled; 0 waits for a count.
    pub replan_every: usize,
    /// The most return values of a plan; with more, rewards are rounded down.
    pub max_returns: usize,
}

/// The objective of planning.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Q_τ.
    Point,
    /// Q_τ^β.
    Buffered,
}

/// The policy that the agent outputs.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Output {
    /// The one that it would explore with.
    Optimistic,
    /// The one that is best on P̂.
    Nominal,
}

/// Q_a.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Prior {
    /// Every state alike.
    Uniform,
    /// The successors of the action in other states: empirical Bayes over a common next-state distribution.
    Pooled,
    /// The differences of state numbers that the action caused in other states.
    Shifted,
    /// The one of the latter two that predicts rows better from the other rows.
    Adaptive,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        not_negative("radius_scale", self.radius_scale)?;
        require("delta", self.delta > 0.0 && self.delta < 1.0, "lie in (0, 1)", &self.delta)?;
        not_negative("prior_strength", self.prior_strength)?;
        probability("slack", self.slack)?;
        count("max_returns", self.max_returns, 2..=1 << 22)
    }
}

/// The agent.
pub struct UcbBqrl {
    config: Config,
    buffer: Buffer,
    n_states: usize,
    n_actions: usize,
    horizon: usize,
    discount: f64,
    known_rewards: Option<KnownRewards>,
    terminal_is_known: bool,
    /// Bounds of a reward.
    bottom: f64,
    top: f64,
    counts: Counts,
    /// The counts that the present plan was made from.
    planned: Counts,
    behaviour: RobustPolicy,
    greedy: RobustPolicy,
    plans: u64,
    /// Whether an episode has ended since the last call of `learn`.
    ended: bool,
}

/// The saved state other than the counts.
#[derive(Deserialize, Serialize)]
struct State {
    plans: u64,
}

impl UcbBqrl {
    /// An agent that has seen nothing, for one level.
    pub fn new(config: Config, buffer: Buffer, spec: &EnvSpec) -> Result<Self, AgentError> {
        config.check()?;
        let n_states = n_states("ucb-bqrl", spec)?;
        let Some((bottom, top)) = spec.reward_bounds else {
            let observations = "rewards without bounds".to_owned();
            return Err(AgentError::NotTabular {
                algo: "ucb-bqrl",
                problem: spec.name.clone(),
                observations,
            });
        };
        let kernels = if config.stationary && spec.stationary { 1 } else { spec.horizon };
        fits("the counts of ucb-bqrl", 1, size_of::<Row>() as u64, &[kernels, n_states, spec.n_actions])?;
        let counts = Counts {
            kernels: vec![vec![Row::default(); n_states * spec.n_actions]; kernels],
            starts: vec![0; n_states],
            terminal: spec.terminal.clone().unwrap_or_else(|| vec![false; n_states]),
            episodes: 0,
        };
        let believed = Beliefs {
            config: &config,
            n_states,
            n_actions: spec.n_actions,
            horizon: spec.horizon,
            discount: spec.discount,
            known_rewards: spec.known_rewards.as_ref(),
            top,
        };
        let (behaviour, greedy) = believed.plan(&counts, &buffer);
        Ok(Self {
            buffer,
            n_states,
            n_actions: spec.n_actions,
            horizon: spec.horizon,
            discount: spec.discount,
            known_rewards: spec.known_rewards.clone(),
            terminal_is_known: spec.terminal.is_some(),
            bottom,
            top,
            planned: counts.clone(),
            counts,
            behaviour,
            greedy,
            plans: 1,
            ended: false,
            config,
        })
    }

    fn beliefs(&self) -> Beliefs<'_> {
        Beliefs {
            config: &self.config,
            n_states: self.n_states,
            n_actions: self.n_actions,
            horizon: self.horizon,
            discount: self.discount,
            known_rewards: self.known_rewards.as_ref(),
            top: self.top,
        }
    }

    /// Some pair has been tried twice as often as when the plan was made, or for the first time.
    fn has_doubled(&self) -> bool {
        let rows = self.counts.kernels.iter().flatten().zip(self.planned.kernels.iter().flatten());
        rows.into_iter().any(|(now, then)| now.n > 0 && now.n >= 2 * then.n)
    }

    fn plan(&mut self) {
        (self.behaviour, self.greedy) = self.beliefs().plan(&self.counts, &self.buffer);
        self.planned = self.counts.clone();
        self.plans += 1;
    }
}

fn augmented(x: &Input) -> AugmentedInput {
    AugmentedInput { stage: x.stage, state: state(x), collected: x.collected }
}

impl Agent for UcbBqrl {
    fn begin(&mut self, _: &Clock, _lane: usize, start: &Observation) -> Memo {
        self.counts.episodes += 1;
        self.counts.starts[state_of(start)] += 1;
        Memo::default()
    }

    fn act(&mut self, _: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        waiting.iter().map(|lane| self.behaviour.action(&augmented(&lane.x))).collect()
    }

    fn store(&mut self, _lane: usize, transition: &Transition) -> Result<(), LearnError> {
        let Transition { x, action, reward, next, end } = transition;
        finite(*reward)?;
        let reward = reward / self.discount.powi(x.stage as i32);
        let kernel = x.stage.min(self.counts.kernels.len() - 1);
        let row = &mut self.counts.kernels[kernel][state(x) * self.n_actions + action];
        let next = state(next);
        row.n += 1;
        // A reward that was discounted and restored may differ by rounding.
        let same = |seen: &&mut Seen| {
            seen.next as usize == next && (seen.reward - reward).abs() <= 1e-9 * (1.0 + reward.abs())
        };
        match row.seen.iter_mut().find(same) {
            Some(seen) => seen.count += 1,
            None => row.seen.push(Seen { next: next as u32, reward, count: 1 }),
        }
        if *end == End::Terminated && !self.terminal_is_known {
            self.counts.terminal[next] = true;
        }
        self.ended |= end.is_over();
        Ok(())
    }

    /// Plans when an episode has ended, so that the output always reflects the counts.
    fn learn(&mut self, _: &Clock) -> Result<(), LearnError> {
        let since = self.counts.episodes - self.planned.episodes;
        let due = self.config.replan_every > 0 && since >= self.config.replan_every as u64;
        if std::mem::take(&mut self.ended) && (due || self.has_doubled()) {
            self.plan();
        }
        Ok(())
    }

    fn serve(&self, _: &[Buffer], _: crate::Objective) -> Served {
        Served::One(Memo::default())
    }

    fn decide(&self, _: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.greedy.action(&augmented(x)), 1.0));
    }

    fn predictions(&self, _: &Input) -> Vec<Prediction> {
        Vec::new()
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    /// Plans made.
    fn updates(&self) -> u64 {
        self.plans
    }

    /// Only a plan changes the output.
    fn policy_version(&self) -> Option<u64> {
        Some(self.updates())
    }

    fn save(&self, _has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let state = State { plans: self.plans };
        vec![
            Part::new("counts.safetensors", arrays::to_bytes(&self.counts.arrays())),
            Part::new("planned.safetensors", arrays::to_bytes(&self.planned.arrays())),
            Part::new("agent.json", serde_json::to_vec(&state).expect("plain numbers serialise")),
        ]
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let counts = |name: &str| {
            let bytes = saved::part(name, file)?;
            let bounds = (self.bottom, self.top);
            let terminal = self.terminal_is_known.then_some(&self.counts.terminal[..]);
            Counts::read(&bytes, &self.counts, self.n_states, bounds, terminal)
                .map_err(|error| saved::wrong(name, &error))
        };
        let (now, planned) = (counts("counts.safetensors")?, counts("planned.safetensors")?);
        if planned.episodes > now.episodes {
            let (planned, now) = (planned.episodes, now.episodes);
            let message = format!("planned after {planned} episodes, of which there were {now}");
            return Err(saved::wrong("planned.safetensors", &message));
        }
        let state: State = saved::json("agent.json", file)?;
        saved::count("agent.json: plans", state.plans)?;
        // A plan is a function of the counts that it was made from.
        (self.behaviour, self.greedy) = self.beliefs().plan(&planned, &self.buffer);
        (self.counts, self.planned, self.plans) = (now, planned, state.plans);
        Ok(())
    }

    /// The counts; of the present plan the radii, the targets, and the actions of output and behaviour in every
    /// (stage, state) with nothing collected.
    fn weights(&self) -> Vec<u8> {
        let mut arrays = self.counts.arrays();
        let beliefs = self.beliefs();
        let rows = self.planned.kernels.iter().flatten();
        let radii: Vec<f64> = rows.map(|row| beliefs.radius(row.n, self.planned.episodes)).collect();
        arrays.push(Array::f64("radius", &radii));
        for (name, policy) in [("policy", &self.greedy), ("behaviour", &self.behaviour)] {
            let inputs =
                (0..self.horizon).flat_map(|stage| (0..self.n_states).map(move |state| (stage, state)));
            let action =
                |(stage, state)| policy.action(&AugmentedInput { stage, state, collected: 0.0 }) as u32;
            arrays.push(Array::u32(name, &inputs.map(action).collect::<Vec<u32>>()));
        }
        arrays.push(Array::f64("target", &[self.greedy.target(), self.behaviour.target()]));
        arrays::to_bytes(&arrays)
    }
}
