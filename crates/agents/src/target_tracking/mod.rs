//! Target tracking: critics for every target return at once; their fixed point is the best quantile, at every level.
//!
//! ```text
//! y         = g − c                   what is still missing of a target g
//! P_ij(x,a) ≈ P(Z ≥ y_i)              residual targets y_i on a grid, weights w_j; Z what is still to come from x = (h, s)
//! E_ij(x,a) ≈ E[Z]                    on the scale 0..1 of the grid; both under the policy that is greedy for
//! U_ij      = w_j P_ij + (1−w_j) E_ij
//! C_il(x,a) ≈ E clip((Z − y_i)/l + 1, 0, 1)               for the buffered quantile, with a few widths l
//!
//! y_m(x,a)  the backup of `heads`: at y − r, one next action per head, d = 1 exact
//! v         = −.1 + 1.2 σ(z_θm,a(x) + ψ_t f_m,a(x))       value of an output z, with a random prior f
//! ∂/∂z      = v − y_m                                    for the action taken
//!           + ε_n (v − 1)                                for an action drawn at random: an imagined trial, always a success
//! θ̄_m      ← (1−ζ) θ̄_m + ζ θ_m
//!
//! root      g = max{ y_i : max_j P_ij(x_0) > 1 − τ }, w the weight with the largest mean among those that reach it;
//!           or (u, v) by the saddle of the buffered quantile
//! act       argmax_a U(x,a) at y = g − c, with g held for the whole episode: of one critic with probability
//!           1/(1 + t/thompson_decay), else of the mean of all
//! output    the same of the mean of all, for the level that is asked for
//! ```
//!
//! Q_τ(R) ≥ g exactly when P(R ≥ g) > 1 − τ, and for a fixed g the largest P(R ≥ g) is an ordinary dynamic program on
//! (h, s, g − c). So the level is not part of what is learned: it only chooses g, once, at the root. A rule that imposes τ
//! again at every stage solves another problem (decision 0006, docs/agents/target-tracking.md).
//!
//! Choices where the literature is silent: the mean is part of the utility (w < 1), because many policies reach g equally
//! well and most have a poor mean; every action has a network of its own; the logistic value may leave 0..1 by .1, because
//! it never reaches its ends and the shortfall would add up over the stages; initial values are optimistic, and where
//! states have nothing in common, imagined trials keep them so until an action was tried: what is learned of other states
//! would otherwise carry over, and a state that is met late be left with an action that nobody ever tries; half of the
//! critics choose the next action for the other half; stages get inputs of their own once rewards turn out to add up; with
//! random starts the root curve is averaged over a sample of first observations, for the quantile is that of the whole law
//! and the target must be the same for all. Rounding: a target is one of `n_targets` steps of the range, so up to one step is
//! given away; where y − r falls between two targets, a cubic is read there, which is off by about half a step in the end.

mod config;
mod grid;
mod heads;
mod minibatch;

use std::ops::Range;

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::{Clock, Span};
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::{Adam, Ensemble, Init, Panels, Remap, Shape, Squash, UpdateError, Which};
use serde::{Deserialize, Serialize};

pub use self::config::Config;
use self::grid::{Grid, ReturnGrid};
use self::heads::Heads;
use self::minibatch::{Minibatch, prior_factor};
use crate::experience::encode::Encoder;
use crate::experience::replay::Replay;
use crate::experience::saved;
use crate::settings::fits;
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served, Target,
    Transition, Waiting, finite,
};

/// Values may leave 0..1 a little, because a logistic function never reaches its ends and the shortfall would add up over
/// the stages.
const SQUASH: Squash = Squash { low: -0.1, high: 1.1 };

/// Start observations that the root curve is averaged over.
const STARTS: usize = 64;

/// Transitions that may be stored before the next call of `learn`.
const MOST_PENDING: f64 = 1e4;

/// The agent.
pub struct TargetTracking {
    config: Config,
    space: ObservationSpace,
    n_actions: usize,
    encoder: Encoder,
    grid: ReturnGrid,
    /// One network per critic and action, m·A + a, with the outputs of `heads`.
    critics: Ensemble,
    /// As many fixed random networks with one output.
    priors: Ensemble,
    prior_t: f64,
    replay: Replay,
    /// A sample of first observations.
    starts: Vec<Observation>,
    /// Episodes that they were sampled from.
    n_starts: u64,
    agent_rng: Rng,
    replay_rng: Rng,
    adam: Adam,
    stored: u64,
    /// Updates that are due, fractions included.
    due: f64,
    updates: u64,
    batch: Minibatch,
}

/// What [`Agent::save`] keeps beside the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    updates: u64,
    stored: u64,
    due: f64,
    n_starts: u64,
    starts: Vec<Observation>,
    grid: ReturnGrid,
    prior_t: f64,
    /// Seed, stream and position of the two streams.
    rngs: [[u64; 3]; 2],
}

impl TargetTracking {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, n_lanes: usize, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        Replay::fits(config.replay_capacity, n_lanes, &spec.observations)?;
        let given = (config.return_low, config.return_high);
        let grid = ReturnGrid::new((given.0 < given.1).then_some(given), config.n_targets, spec);
        let encoder = Encoder::new(spec, config.state_encoding, 1.0)
            .with_long_one_hot()
            .without_collected()
            .with_stage_thermometer(config.stage_thermometer);
        let shape = |n_quantiles| Shape {
            n_inputs: encoder.width(),
            hidden: config.hidden.clone(),
            layer_norm: false,
            n_heads: 1,
            n_actions: 1,
            n_quantiles,
            n_critics: config.n_critics * spec.n_actions,
        };
        let kernels = config.kernels.find()?;
        let rng = &mut stream(seed, Purpose::Init);
        let mut networks = |n_quantiles, init| {
            Ensemble::new(shape(n_quantiles), init, rng).map(|made| made.with_kernels(kernels))
        };
        let init = Init { output_scale: config.output_scale as f32, output_bias: config.output_bias as f32 };
        let heads = Heads { grid: grid.grid(), weights: &config.weights, ramps: &config.ramps };
        let widths =
            shape(heads.n_outputs()).n_outputs() + 2 * config.hidden.iter().sum::<usize>() + encoder.width();
        let networks_needed = config.n_critics * spec.n_actions;
        fits("minibatches of agent.batch_size", 3, 4, &[config.batch_size, networks_needed, widths])?;
        let critics = networks(heads.n_outputs(), init)?;
        let priors = networks(1, Init::default())?;
        Ok(Self {
            space: spec.observations.clone(),
            n_actions: spec.n_actions,
            encoder,
            critics,
            priors,
            prior_t: config.prior_scale,
            replay: Replay::new(config.replay_capacity, n_lanes, &spec.observations).within(spec),
            starts: Vec::new(),
            n_starts: 0,
            agent_rng: stream(seed, Purpose::Agent),
            replay_rng: stream(seed, Purpose::Replay),
            grid,
            adam: Adam::new(config.learning_rate),
            stored: 0,
            due: 0.0,
            updates: 0,
            batch: Minibatch::default(),
            config,
        })
    }

    fn heads(&self) -> Heads<'_> {
        Heads { grid: self.grid.grid(), weights: &self.config.weights, ramps: &self.config.ramps }
    }

    /// The value of every output at the root under its head's greedy policy, averaged over the start observations.
    fn root(&self, member: Option<usize>) -> Vec<f64> {
        let heads = self.heads();
        let mut root = vec![0.0; heads.n_outputs()];
        let mut seen: Vec<(&Observation, f64)> = Vec::new();
        for start in &self.starts {
            match seen.iter_mut().find(|(known, _)| *known == start) {
                Some((_, count)) => *count += 1.0,
                None => seen.push((start, 1.0)),
            }
        }
        for (observation, count) in seen {
            let x = Input { stage: 0, observation, collected: 0.0 };
            let values = self.values(&x, 0..heads.n_outputs(), member);
            for head in 0..heads.n_heads() {
                let action = self.best(&values, &[(head, 1.0)], 0);
                for output in heads.outputs(head) {
                    root[output] += values[action][output] * count / self.starts.len() as f64;
                }
            }
        }
        root
    }

    /// Mean values v of the outputs in a range, per action, over the critics or of a single one; the slow copies.
    fn values(&self, x: &Input, outputs: Range<usize>, member: Option<usize>) -> Vec<Vec<f64>> {
        let mut input = Vec::with_capacity(self.encoder.width());
        self.encoder.encode(x, &mut input);
        let n = outputs.len();
        let logits = self.critics.act_some(Which::Target, &input, outputs);
        let priors = self.priors.act(Which::Target, &input);
        let factor = prior_factor(&input, self.prior_t);
        let members = member.map_or(0..self.config.n_critics, |m| m..m + 1);
        let mut values = vec![vec![0.0; n]; self.n_actions];
        for m in members.clone() {
            for (a, sums) in values.iter_mut().enumerate() {
                let network = m * self.n_actions + a;
                let shift = factor * priors[network];
                for (sum, &z) in sums.iter_mut().zip(&logits[network * n..]) {
                    *sum += f64::from(SQUASH.value(z + shift)) / members.len() as f64;
                }
            }
        }
        values
    }

    /// The action with the largest utility, mixed over heads by their shares; values are of the outputs from `first` on.
    fn best(&self, values: &[Vec<f64>], asked: &[(usize, f64)], first: usize) -> usize {
        let heads = self.heads();
        let utility = |a: usize| -> f64 {
            let of_head = |head: usize| -> f64 {
                let part = |(output, share): (usize, f64)| share * values[a][output - first];
                heads.outputs(head).zip(heads.shares(head)).map(part).sum()
            };
            asked.iter().map(|&(head, share)| share * of_head(head)).sum()
        };
        let better = |best, a| if utility(a) > utility(best) { a } else { best };
        (0..self.n_actions).reduce(better).expect("there is an action")
    }

    /// The action for a held target; without one, for the lowest, which leaves the choice to the mean.
    fn act_with(&self, memo: &Memo, x: &Input) -> usize {
        let heads = self.heads();
        let target = memo.target.unwrap_or(heads.target(0));
        let asked = heads.tracking(&target, x.collected);
        let asked = if asked[1].1 > 0.0 { &asked[..] } else { &asked[..1] };
        let outputs = heads.outputs(asked[0].0).start..heads.outputs(asked[asked.len() - 1].0).end;
        self.best(&self.values(x, outputs.clone(), memo.critic), asked, outputs.start)
    }

    /// A first observation, into the sample of them.
    fn start(&mut self, observation: &Observation) {
        self.n_starts += 1;
        if self.starts.len() < STARTS {
            self.starts.push(observation.clone());
        } else {
            let place = self.agent_rng.below(self.n_starts as usize);
            if place < STARTS {
                self.starts[place] = observation.clone();
            }
        }
    }

    /// Moves what was learned on one grid to the present one.
    ///
    /// A new P is interpolated between its neighbours among the old ones, at the logits. A new E is on a new scale, which is
    /// met at two returns that both ranges hold. Both are soon relearned; this is where they start from.
    fn regrid(&mut self, old: &Grid) {
        let new = self.grid.grid();
        let (low, high) = (old.low.max(new.low), old.high.min(new.high));
        let logits = |grid: &Grid| {
            [0.2, 0.8].map(|share| {
                let value = grid.scaled(low + share * (high - low)).clamp(0.0, 1.0);
                let sigma = (value - f64::from(SQUASH.low)) / f64::from(SQUASH.high - SQUASH.low);
                (sigma / (1.0 - sigma)).ln()
            })
        };
        let (from, to) = (logits(old), logits(&new));
        let (scale, shift) = if low < high {
            let scale = (to[1] - to[0]) / (from[1] - from[0]);
            (scale as f32, (to[0] - scale * from[0]) as f32)
        } else {
            (1.0, 0.0)
        };
        let (before, now) = (Heads { grid: *old, ..self.heads() }, self.heads());
        let mut outputs = Vec::with_capacity(now.n_outputs());
        for head in 0..now.n_heads() {
            let [(below, _), (above, mix)] = before.tracking(&now.target(head), 0.0);
            for (k, _) in now.outputs(head).enumerate() {
                let from = [below, above].map(|head| before.outputs(head).start + k);
                let (scale, shift) = if k == 1 { (scale, shift) } else { (1.0, 0.0) };
                outputs.push(Remap { from, mix: mix as f32, scale, shift });
            }
        }
        self.critics.remap_outputs(&outputs);
    }

    /// The target of a level, from the values at the root.
    fn target(&self, root: &[f64], level: &Buffer, objective: Objective) -> Target {
        let (heads, margin) = (self.heads(), self.config.root_margin);
        heads.target(match objective {
            Objective::Quantile => heads.for_quantile(root, level.tau(), margin),
            Objective::Buffered => heads.for_buffered(root, level, margin),
        })
    }

    /// One minibatch.
    fn update(&mut self) -> Result<(), UpdateError> {
        let Self { config, critics, priors, batch, .. } = self;
        batch.draw(config, self.n_actions, &self.replay, &self.encoder, &mut self.replay_rng);
        batch.shift(priors, self.prior_t);
        let (batch, kernels, n) = (&*batch, critics.kernels(), batch.len());

        // P̄_m and Ē_m at x' for every action.
        let next: Vec<Vec<f32>> = critics.each_member(|member| {
            let (mut logits, mut values) = (Panels::default(), Panels::default());
            member.predict(Which::Target, &batch.next_inputs, &mut logits);
            SQUASH.apply(kernels, &logits, &batch.next_shifts[member.index()], &mut values);
            let mut rows = Vec::with_capacity(values.n_features() * n);
            for output in 0..values.n_features() {
                (0..values.n_panels()).for_each(|panel| rows.extend_from_slice(values.lanes(panel, output)));
            }
            rows
        });
        let heads = Heads { grid: self.grid.grid(), weights: &config.weights, ramps: &config.ramps };
        let targets = heads.backup(self.n_actions, &next, &batch.rewards, &batch.done);

        // One network per critic and action learns from the samples of its action, as far as they are the critic's, and from
        // imagined trials that succeed.
        let (adam, zeta, n_actions) = (&self.adam, config.zeta, self.n_actions);
        let imagined = config.imagined / (1.0 + self.stored as f64 / config.imagined_decay);
        let share_of_imagined = (imagined / batch.n_imagined.max(1) as f64) as f32;
        let learned = critics.each_member(|member| {
            let (m, a) = (member.index() / n_actions, member.index() % n_actions);
            let samples = batch.of_action(a);
            if batch.rows[a].is_empty() {
                return Ok(());
            }
            let shift = &batch.shifts[member.index()];
            let share =
                |number: &u64| if in_bootstrap(*number, m, config.bootstrap) { 1.0 / n as f32 } else { 0.0 };
            let shares: Vec<f32> = batch.numbers[samples.clone()].iter().map(share).collect();
            member.learn(&batch.inputs[a], adam, zeta, |outputs, d_outputs| {
                SQUASH.apply(kernels, outputs, shift, d_outputs);
                for output in 0..outputs.n_features() {
                    let real = targets[m][output * n..][samples.clone()].iter().zip(&shares);
                    let mut y = real.chain(std::iter::repeat((&1.0, &share_of_imagined)));
                    for panel in 0..d_outputs.n_panels() {
                        for (v, (y, share)) in d_outputs.lanes_mut(panel, output).iter_mut().zip(&mut y) {
                            *v = (*v - y) * share;
                        }
                    }
                }
            })
        });
        self.updates += 1;
        learned.into_iter().collect()
    }
}

/// Whether critic m learns from a transition: a fixed coin for each pair, so a hash and no stream.
fn in_bootstrap(number: u64, m: usize, share: f64) -> bool {
    // The finaliser of SplitMix64.
    let mut z = (number << 8 | m as u64).wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^= z >> 31;
    ((z >> 11) as f64) < share * (1_u64 << 53) as f64
}

impl Agent for TargetTracking {
    fn begin(&mut self, clock: &Clock, lane: usize, start: &Observation) -> Memo {
        self.grid.restart(lane);
        self.prior_t = self.config.prior_scale * (1.0 / self.config.prior_decay.slowdown(clock));
        self.start(start);
        let single = 1.0 / self.config.thompson_decay.slowdown(clock);
        let tau = self.config.behaviour_tau[self.agent_rng.below(self.config.behaviour_tau.len())];
        let member = self.agent_rng.below(self.config.n_critics);
        let critic = (self.agent_rng.uniform() < single).then_some(member);
        let head = self.heads().for_quantile(&self.root(critic), tau, self.config.root_margin);
        Memo { target: Some(self.heads().target(head)), critic }
    }

    fn act(&mut self, _: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        waiting.iter().map(|lane| self.act_with(lane.memo, &lane.x)).collect()
    }

    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        finite(transition.reward)?;
        self.replay.store(lane, transition);
        self.stored += 1;
        let before = self.grid.grid();
        if self.grid.observe(lane, transition.x.collected, transition.reward, transition.end.is_over()) {
            self.regrid(&before);
        }
        if self.grid.adds_up() {
            self.encoder.show_stages();
        }
        if self.replay.len() >= self.config.learning_starts.max(1) {
            let rate = self.config.updates_per_root / (self.stored as f64).sqrt();
            self.due += rate.min(self.config.updates_per_step);
        }
        Ok(())
    }

    fn learn(&mut self, clock: &Clock) -> Result<(), LearnError> {
        let Config { learning_rate, learning_rate_extra, weight_decay, .. } = self.config;
        let falling = |decay: Span| 1.0 / decay.slowdown(clock);
        self.adam.learning_rate =
            learning_rate + learning_rate_extra * falling(self.config.learning_rate_decay);
        self.adam.weight_decay = weight_decay * falling(self.config.weight_decay_decay);
        while self.due >= 1.0 {
            self.due -= 1.0;
            self.update()?;
        }
        Ok(())
    }

    fn serve(&self, levels: &[Buffer], objective: Objective) -> Served {
        let root = self.root(None);
        let memo = |level: &Buffer| Memo { target: Some(self.target(&root, level, objective)), critic: None };
        Served::PerLevel(levels.iter().map(memo).collect())
    }

    fn decide(&self, memo: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.act_with(memo, x), 1.0));
    }

    fn predictions(&self, _: &Input) -> Vec<Prediction> {
        Vec::new()
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn save(&self, has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        let state = State {
            updates: self.updates,
            stored: self.stored,
            due: self.due,
            n_starts: self.n_starts,
            starts: self.starts.clone(),
            grid: self.grid.clone(),
            prior_t: self.prior_t,
            rngs: [saved::position(&self.agent_rng), saved::position(&self.replay_rng)],
        };
        let mut parts = vec![
            Part::new("critics.safetensors", self.critics.to_bytes()),
            Part::new("priors.safetensors", self.priors.to_bytes()),
            Part::new("agent.json", saved::to_json(&state)),
        ];
        parts.extend(self.replay.save(has));
        parts
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let critics = saved::networks("critics.safetensors", &self.critics, file)?;
        let priors = saved::networks("priors.safetensors", &self.priors, file)?;
        let state: State = saved::json("agent.json", file)?;
        self.check(&state).map_err(|error| saved::wrong("agent.json", &error))?;
        self.replay.restore(file)?;
        self.critics = critics;
        self.priors = priors;
        self.updates = state.updates;
        self.stored = state.stored;
        self.due = state.due;
        self.n_starts = state.n_starts;
        self.starts = state.starts;
        self.grid = state.grid;
        if self.grid.adds_up() {
            self.encoder.show_stages();
        }
        self.prior_t = state.prior_t;
        [self.agent_rng, self.replay_rng] = state.rngs.map(saved::at);
        Ok(())
    }

    fn check_memo(&self, memo: &Memo) -> Result<(), RestoreError> {
        match memo.critic.filter(|&critic| critic >= self.config.n_critics) {
            None => Ok(()),
            Some(critic) => {
                let n = self.config.n_critics;
                Err(RestoreError(format!("the memo of an episode names critic {critic}, want one below {n}")))
            }
        }
    }

    fn weights(&self) -> Vec<u8> {
        self.critics.to_bytes()
    }
}

impl TargetTracking {
    /// Refuses a saved state that no training can have left.
    fn check(&self, state: &State) -> Result<(), RestoreError> {
        let State { updates, stored, due, n_starts, starts, grid, prior_t, .. } = state;
        saved::count("updates", *updates)?;
        saved::count("stored", *stored)?;
        saved::count("n_starts", *n_starts)?;
        // A call of `learn` makes all updates that are due. Some may be left where an environment failed before it.
        let most = 1.0 + self.config.updates_per_step * MOST_PENDING;
        if !(0.0..=most).contains(due) {
            return Err(RestoreError(format!("due is {due:?}, want a number from 0 to {most:?}")));
        }
        if let Some(start) = starts.iter().find(|start| !self.space.holds(start)) {
            return Err(RestoreError(format!("starts holds {start:?}, which the environment does not have")));
        }
        if starts.len() > STARTS {
            return Err(RestoreError(format!("{} starts, want at most {STARTS}", starts.len())));
        }
        saved::finite("prior_t", &[*prior_t])?;
        grid.check(&self.grid)
    }
}

#[cfg(test)]
mod tests;
