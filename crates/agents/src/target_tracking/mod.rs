//! Target tracking: Deep-BQRL's critic with one next action per level; its fixed point is the best quantile, at every level.
//!
//! ```text
//! Deep-BQRL         a⁺   = argmax_a B̄(x', a)             y_i = r + (1−d) z̃_i(x', a⁺)
//! QR-DQN            a⁺   = argmax_a mean_i z̃_i(x', a)     y_i = r + (1−d) z̃_i(x', a⁺)
//! target tracking   a_i⁺ = argmax_a z̃_i(x', a)            y_i = r + (1−d) z̃_i(x', a_i⁺)
//! ```
//!
//! z_i(x, a) ≈ the η_i-quantile of what is still to come. The level-wise maximum of quantile functions is the upper envelope of
//! the survival functions: max_a P(Z ≥ y | x, a) for every y at once. The backup mixes such envelopes over x', and quantile
//! regression learns the quantiles of a mixture. So the fixed point is max_π P(Z ≥ y) for every y (docs/agents/target-tracking.md).
//!
//! ```text
//! root      P̂(g) = P(Z ≥ g) at the start, pooled over starts;  g = the return seen with the best expected quantile
//! act       argmax_a w P(c + Z(x,a) ≥ g) + (1−w) E[Z(x,a)]/σ        g and w are held for the whole episode
//! P         P(Z ≥ y) = mean_i clip((z_i − y)/(2κσ) + ½, 0, 1)
//! E         the mean of a second head, which is QR-DQN's; in long tasks that are no tables it has a trunk and a discount of its own
//! w         the smallest weight whose cost in P, measured, fits into the slack P̂(g) − (1 − τ)
//! ramp      heads for the buffered quantile: max_π E clip((Z − y)/ℓ + 1, 0, 1), the same rule with y_i = r + ℓ η_i where d = 1
//! ```
//!
//! The level is not part of what is learned: it chooses g and w, once, at the root. Behaviour: τ uniform; three episodes in
//! five maximise the mean (in long tasks most of them explore, too); of the others, half explores (on tables later few). The rest is calm, and
//! measures success and costs.

mod root;

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::Clock;
use bqrl_math::score::{Score, argmax};
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::evaluate;
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::{Choice, Head, Which};
use serde::{Deserialize, Serialize};

use self::root::{Curve, Goal, Measured, Trial};
use crate::experience::encode::Moments;
use crate::experience::saved;
use crate::quantile_critics::{
    CriticConfig, CriticState, Design, QuantileCritics, Trunk, early_updates, inputs,
};
use crate::settings::{count, probability, require};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served, Target,
    Transition, Waiting,
};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// ε of the exploring episodes, after a first time with more.
    pub epsilon: f64,
    /// Widths of the ramps, as shares of the range of the returns; none: buffered quantiles are served by the point quantile's target.
    pub ramps: Vec<f64>,
    /// Network, replay and optimiser.
    #[serde(flatten)]
    pub critics: CriticConfig,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        self.critics.check()?;
        count("n_critics", self.critics.n_critics, 1..=16)?;
        probability("epsilon", self.epsilon)?;
        let ramps = self.ramps.len() <= 8 && self.ramps.iter().all(|&ramp| ramp > 0.0 && ramp <= 10.0);
        require("ramps", ramps, "be at most 8 widths in (0, 10]", &format!("{:?}", self.ramps))
    }

    /// The heads: the envelope, the mean, the ramps.
    fn design(&self, spec: &EnvSpec) -> Design {
        let mean = Design::by_score(&Score::mean(self.critics.n_quantiles));
        let Trunk { heads: mean, .. } = mean.trunks.into_iter().next().expect("a score has a trunk");
        let per_level = |ramp: f64| Head { choice: Choice::PerLevel, ramp: ramp as f32 };
        let ramps = self.ramps.iter().map(|&ramp| per_level(ramp));
        let heads: Vec<Head> = [per_level(0.0)].into_iter().chain(mean).chain(ramps).collect();
        let trunks = if is_long(spec) {
            let discount = |head| if head == MEAN { MEAN_DISCOUNT } else { 1.0 };
            let alone = |(place, head)| Trunk { heads: vec![head], discount: discount(place) };
            heads.into_iter().enumerate().map(alone).collect()
        } else {
            vec![Trunk { heads, discount: 1.0 }]
        };
        let early_updates = early_updates(spec);
        Design { trunks, shared: true, smooth: true, with_collected: false, early_updates }
    }
}

/// The heads of a critic, in the order of [`Config::design`].
const ENVELOPE: usize = 0;
const MEAN: usize = 1;
const FIRST_RAMP: usize = 2;
/// Tasks of more steps than this are long, but for tables. There the mean is a QR-DQN, with hidden layers, minibatches and a unit of its own: it
/// counts a step ahead by less than 1, because sums over hundreds of steps are learned slowly. The envelope needs the return itself, which is noisier.
const LONG: usize = 100;
const MEAN_DISCOUNT: f64 = 0.995;
/// Start observations that the root is pooled over.
const STARTS: usize = 64;
/// The share of the episodes that maximise the mean.
const FOR_THE_MEAN: f64 = 0.6;
/// The share of these that explore in long tasks.
const EXPLORE_FOR_THE_MEAN: f64 = 0.8;
/// The share of the others that explore. Where ε explores, it stays. Where optimism does, which is spent soon, this is the share of
/// the first episodes; then it falls to the last one.
const EXPLORE: f64 = 0.5;
const FIRST_EPISODES: f64 = 200.0;
const LAST_EXPLORE: f64 = 0.05;
/// The least 1 − w. Where P is learned less well, the mean has to help more.
const LEAST_SHARE: f64 = 0.2;
const LEAST_SHARE_OF_TABLES: f64 = 0.05;
const LEAST_SHARE_OF_LONG_TASKS: f64 = 0.6;
/// 1 − w of exploring episodes.
const EXPLORING: f64 = 0.1;
/// 1 − w of a ramp: it breaks ties only.
const TIE_BREAK: f64 = 0.01;
/// The width over which P falls at a quantile, in units of κ.
const WIDTH: f64 = 2.0;

/// Whether P and sums of rewards are hard to learn: many steps, and no table.
fn is_long(spec: &EnvSpec) -> bool {
    spec.horizon > LONG && !matches!(spec.observations, ObservationSpace::Discrete { .. })
}

/// The agent.
pub struct TargetTracking {
    config: Config,
    critics: QuantileCritics,
    /// Whether P and sums of rewards are hard to learn.
    is_long: bool,
    /// A sample of first observations, and of how many.
    starts: Vec<Observation>,
    n_starts: u64,
    rng: Rng,
    /// The trial of every lane's episode.
    open: Vec<Option<Trial>>,
    /// Returns, successes and costs of the finished episodes.
    measured: Measured,
}

/// The saved state other than the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    critics: CriticState,
    starts: Vec<Observation>,
    n_starts: u64,
    /// Seed, stream and position of the stream that draws levels and exploration.
    rng: [u64; 3],
    open: Vec<Option<Trial>>,
    measured: Measured,
}

impl TargetTracking {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, n_lanes: usize, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let design = config.design(spec);
        Ok(Self {
            critics: QuantileCritics::new(config.critics.clone(), design, spec, n_lanes, seed)?,
            is_long: is_long(spec),
            starts: Vec::new(),
            n_starts: 0,
            rng: stream(seed, Purpose::Agent),
            open: vec![None; n_lanes],
            measured: Measured::default(),
            config,
        })
    }

    /// P(Z ≥ y) and the mean of Z/σ of an action, averaged over the critics.
    fn chance_and_mean(&self, outputs: &[f32], head: usize, action: usize, y: f64) -> (f64, f64) {
        let y = (y / self.critics.unit().sigma()) as f32;
        let inverse = (1.0 / (WIDTH * self.config.critics.kappa)) as f32;
        let n_critics = self.critics.n_critics();
        let (mut chance, mut mean) = (0.0, 0.0);
        for critic in 0..n_critics {
            let reached = |&z: &f32| ((z - y) * inverse + 0.5).clamp(0.0, 1.0);
            let z = self.critics.quantiles(outputs, critic, head, action);
            chance += z.iter().map(reached).sum::<f32>() / z.len() as f32;
            let z = self.critics.quantiles(outputs, critic, MEAN, action);
            mean += z.iter().sum::<f32>() / z.len() as f32;
        }
        (f64::from(chance) / n_critics as f64, f64::from(mean) / n_critics as f64)
    }

    /// For every action: w P + (1−w) E/σ, and P.
    fn scores(&self, outputs: &[f32], memo: &Memo, collected: f64) -> (Vec<f64>, Vec<f64>) {
        let Target { u, v, weight, ramp } = memo.target.unwrap_or(UNTRAINED);
        // A step counts from u on; a ramp is read at its upper end.
        let (head, y) = if ramp == 0 { (ENVELOPE, u) } else { (FIRST_RAMP + ramp - 1, v) };
        let score = |action| {
            let (chance, mean) = self.chance_and_mean(outputs, head, action, y - collected);
            (weight * chance + (1.0 - weight) * mean, chance)
        };
        (0..self.critics.n_actions()).map(score).unzip()
    }

    /// The best law at the start, by one head: its quantiles, in the problem's own units.
    fn root(&self, heads: &[usize]) -> Vec<Curve> {
        let mut distinct: Vec<(&Observation, usize)> = Vec::new();
        for start in &self.starts {
            match distinct.iter_mut().find(|(known, _)| *known == start) {
                Some((_, n)) => *n += 1,
                None => distinct.push((start, 1)),
            }
        }
        if distinct.is_empty() {
            return vec![Curve::default(); heads.len()];
        }
        let x = |&(observation, _): &(_, usize)| Input { stage: 0, observation, collected: 0.0 };
        let outputs = self.critics.outputs_of(Which::Target, distinct.iter().map(x));
        let sigma = self.critics.unit().sigma();
        let pooled = |&head: &usize| {
            let laws =
                outputs.iter().zip(&distinct).map(|(outputs, &(_, n))| (self.envelope(outputs, head), n));
            Curve::pooled(laws, sigma, WIDTH * self.config.critics.kappa * sigma)
        };
        heads.iter().map(pooled).collect()
    }

    /// max_a z̃_i(x, a), the mean over the critics, in units of σ.
    fn envelope(&self, outputs: &[f32], head: usize) -> Vec<f64> {
        let n_critics = self.critics.n_critics();
        let law = |action| {
            let mut mean = vec![0.0; self.critics.n_quantiles()];
            for critic in 0..n_critics {
                let sorted = QuantileCritics::sorted(self.critics.quantiles(outputs, critic, head, action));
                mean.iter_mut().zip(sorted).for_each(|(mean, z)| *mean += z / n_critics as f64);
            }
            mean
        };
        let larger = |best: Vec<f64>, law: Vec<f64>| best.iter().zip(law).map(|(a, b)| a.max(b)).collect();
        (0..self.critics.n_actions()).map(law).reduce(larger).expect("there is an action")
    }

    /// The target of a level for the point quantile.
    fn for_quantile(&self, root: &Curve, tau: f64) -> Target {
        let Goal { from, value } = self.measured.goal(root, tau, self.critics.unit().sigma());
        let least = match (self.is_long, self.config.epsilon > 0.0) {
            (true, _) => LEAST_SHARE_OF_LONG_TASKS,
            (false, true) => LEAST_SHARE,
            (false, false) => LEAST_SHARE_OF_TABLES,
        };
        let share = self.measured.share(root.chance(from), tau, least);
        Target { u: from, v: value, weight: 1.0 - share, ramp: 0 }
    }

    /// The target of a level for the buffered quantile, by the saddle
    ///
    /// ```text
    /// β Q_τ^β = max_v min_{u≤v} { (τ−1) v − (τ−β) u + E clip(R, u, v) } = max_v min_ℓ { β v + ℓ (P_ℓ(v) − (1 − τ + β)) }
    /// ```
    ///
    /// with ℓ = v − u one of the ramps' widths, or 0.
    fn for_buffered(&self, point: &Curve, ramps: &[Curve], level: &Buffer) -> Target {
        let (tau, beta, range) = (level.tau(), level.beta(), self.critics.unit().range());
        let value = |v: f64, k: usize| {
            let width = self.config.ramps[k] * range;
            beta * v + width * (ramps[k].chance(v) - (1.0 - tau + beta))
        };
        let mut best: Option<(f64, f64, usize)> = None;
        for goal in self.measured.goals(self.critics.unit().sigma()) {
            let v = goal.value;
            let least =
                (0..ramps.len()).map(|k| (value(v, k), v, k)).reduce(|a, b| if b.0 < a.0 { b } else { a });
            // With a step instead of a ramp, v must be reached with probability 1 − τ + β.
            let step = if point.chance(goal.from) > 1.0 - tau + beta { beta * v } else { f64::INFINITY };
            if let Some(least) = least
                && least.0 < step
                && best.is_none_or(|best| least.0 > best.0)
            {
                best = Some(least);
            }
        }
        match best {
            Some((_, v, k)) => {
                Target { u: v - self.config.ramps[k] * range, v, weight: 1.0 - TIE_BREAK, ramp: k + 1 }
            }
            None => self.for_quantile(point, tau),
        }
    }

    /// A first observation, into the sample of them.
    fn start(&mut self, observation: &Observation) {
        self.critics.see(observation);
        self.n_starts += 1;
        if self.starts.len() < STARTS {
            self.starts.push(observation.clone());
        } else {
            let place = self.rng.below(self.n_starts as usize);
            if place < STARTS {
                self.starts[place] = observation.clone();
            }
        }
    }
}

/// The target of an agent that has seen no episode: the mean decides.
const UNTRAINED: Target = Target { u: 0.0, v: 0.0, weight: 0.0, ramp: 0 };

impl Agent for TargetTracking {
    fn begin(&mut self, _: &Clock, lane: usize, start: &Observation) -> Memo {
        self.start(start);
        let (tau, kind) = (self.rng.uniform(), self.rng.uniform());
        let later = (EXPLORE * FIRST_EPISODES / self.n_starts as f64).clamp(LAST_EXPLORE, EXPLORE);
        let explore = if self.config.epsilon > 0.0 { EXPLORE } else { later };
        let for_the_mean = kind < FOR_THE_MEAN;
        let calm = if for_the_mean && self.is_long {
            self.rng.uniform() >= EXPLORE_FOR_THE_MEAN
        } else {
            kind < 1.0 - (1.0 - FOR_THE_MEAN) * explore
        };
        let jitter = 0.2 * (self.rng.uniform() - 0.5);
        let root = self.root(&[ENVELOPE]).swap_remove(0);
        let mut target = self.for_quantile(&root, tau);
        if for_the_mean {
            target.weight = 0.0;
        } else if calm {
            // Other shares near the one that is served: their cost must be known, too.
            target.weight = (target.weight + jitter).clamp(0.0, 1.0);
        } else {
            // Targets that nobody has reached yet are tried as well.
            let g = root.quantile(tau);
            target = Target { u: g, v: g, weight: 1.0 - EXPLORING, ramp: 0 };
        }
        let predicted = root.chance(target.u);
        let counts = calm && !for_the_mean;
        self.open[lane] = Some(Trial { calm, counts, target, predicted, spent: 0.0 });
        Memo { target: Some(target), critic: None }
    }

    fn act(&mut self, clock: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        let epsilon = self.critics.epsilon_t(self.config.epsilon, clock);
        let outputs = self.critics.outputs_of(Which::Target, inputs(waiting));
        let mut actions = Vec::with_capacity(waiting.len());
        for (lane, outputs) in waiting.iter().zip(&outputs) {
            let (scores, chances) = self.scores(outputs, lane.memo, lane.x.collected);
            let mut action = argmax(&scores);
            let trial = &mut self.open[lane.lane];
            if epsilon > 0.0 && !trial.is_some_and(|trial| trial.calm) && self.rng.uniform() < epsilon {
                action = self.rng.below(self.critics.n_actions());
            }
            if let Some(trial) = trial {
                // By how much this action lowers the chance: summed over an episode, the cost of its weight.
                trial.spent += chances.iter().copied().fold(0.0, f64::max) - chances[action];
            }
            actions.push(action);
        }
        actions
    }

    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.critics.store(lane, transition)?;
        if transition.end.is_over() {
            let sigma = self.critics.unit().sigma();
            self.measured.episode(self.open[lane].take(), transition.next.collected, sigma);
        }
        Ok(())
    }

    fn learn(&mut self, clock: &Clock) -> Result<(), LearnError> {
        self.critics.learn(clock)
    }

    fn serve(&self, levels: &[Buffer], objective: Objective) -> Served {
        let ramps = if objective == Objective::Buffered { self.config.ramps.len() } else { 0 };
        let heads: Vec<usize> = [ENVELOPE].into_iter().chain(FIRST_RAMP..FIRST_RAMP + ramps).collect();
        let curves = self.root(&heads);
        let target = |level: &Buffer| match objective {
            Objective::Quantile => self.for_quantile(&curves[0], level.tau()),
            Objective::Buffered => self.for_buffered(&curves[0], &curves[1..], level),
        };
        Served::PerLevel(
            levels.iter().map(|level| Memo { target: Some(target(level)), critic: None }).collect(),
        )
    }

    fn decide(&self, memo: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        let (scores, _) = self.scores(&self.critics.outputs(Which::Target, x), memo, x.collected);
        choice.push((argmax(&scores), 1.0));
    }

    fn decide_all(&self, asked: &[(&Memo, Input)]) -> Vec<evaluate::Choice> {
        let inputs = asked.iter().map(|(_, x)| x);
        let (outputs, places) = self.critics.distinct_outputs_of(Which::Target, inputs);
        let choice = |((memo, x), place): (&(&Memo, Input), usize)| {
            vec![(argmax(&self.scores(&outputs[place], memo, x.collected).0), 1.0)]
        };
        asked.iter().zip(places).map(choice).collect()
    }

    fn predictions(&self, x: &Input) -> Vec<Prediction> {
        self.critics.predictions(ENVELOPE, x)
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn exploration(&self, clock: &Clock) -> Option<f64> {
        Some(self.critics.epsilon_t(self.config.epsilon, clock))
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

    fn chance(&self, target: &Target) -> Option<f64> {
        let root =
            (!self.starts.is_empty() && target.ramp == 0).then(|| self.root(&[ENVELOPE]).swap_remove(0))?;
        Some(self.measured.attained(root.chance(target.u), 1.0 - target.weight))
    }

    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let (mut parts, critics) = self.critics.save(has);
        let state = State {
            critics,
            starts: self.starts.clone(),
            n_starts: self.n_starts,
            rng: saved::position(&self.rng),
            open: self.open.clone(),
            measured: self.measured.clone(),
        };
        parts.push(Part::new("agent.json", saved::to_json(&state)));
        parts
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let state: State = saved::json("agent.json", file)?;
        let wrong = |what: String| Err(RestoreError(format!("agent.json: {what}")));
        saved::count("agent.json: n_starts", state.n_starts)?;
        if state.starts.len() > STARTS || (state.starts.len() as u64) > state.n_starts {
            return wrong(format!("{} starts of {}", state.starts.len(), state.n_starts));
        }
        if let Some(start) = state.starts.iter().find(|start| !self.critics.observations().holds(start)) {
            return wrong(format!("starts holds {start:?}"));
        }
        for trial in state.open.iter().flatten() {
            self.check_target(&trial.target)?;
            trial.check()?;
        }
        state.measured.check()?;
        self.critics.restore(&state.critics, file)?;
        (self.starts, self.n_starts) = (state.starts, state.n_starts);
        self.rng = saved::at(state.rng);
        // An agent may continue in another number of lanes; their episodes then start anew.
        self.open = vec![None; self.open.len()];
        self.open.iter_mut().zip(state.open).for_each(|(open, trial)| *open = trial);
        self.measured = state.measured;
        Ok(())
    }

    fn check_memo(&self, memo: &Memo) -> Result<(), RestoreError> {
        match (&memo.target, memo.critic) {
            (Some(target), None) => self.check_target(target),
            _ => Err(RestoreError(format!("the memo of an episode must hold a target alone, got {memo:?}"))),
        }
    }

    fn weights(&self) -> Vec<u8> {
        self.critics.weights()
    }
}

impl TargetTracking {
    fn check_target(&self, target: &Target) -> Result<(), RestoreError> {
        let Target { u, v, weight, ramp } = *target;
        let holds = u.is_finite() && v.is_finite() && (0.0..=1.0).contains(&weight);
        if holds && ramp <= self.config.ramps.len() {
            return Ok(());
        }
        Err(RestoreError(format!(
            "a target must be finite, with a weight in [0, 1] and a ramp of the agent, got {target:?}"
        )))
    }
}
