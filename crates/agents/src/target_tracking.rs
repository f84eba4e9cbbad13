//! Target tracking: the agent whose fixed point is the best quantile, at every level at once.
//!
//! ```text
//! P_ij(x,a) ≈ P(c + Z ≥ g_i)        E_ij(x,a) ≈ E[c + Z]          under the policy that is greedy for
//! U_ij      = w_j P_ij + (1−w_j) E_ij                             targets g_i, weights w_j, E on the scale 0..1 of the range
//!
//! a'_ij     = argmax_a mean_m Ū_m,ij(x',a)                        one next action per target and weight
//! y^P_ij    = 1{c' ≥ g_i}  and  y^E_ij = c'                       if d = 1
//!           = P̄_m,ij(x',a'_ij)  and  Ē_m,ij(x',a'_ij)             if d = 0, clipped to 0..1
//! v         = −.1 + 1.2 σ(z_θm(x)_a + prior)                      value of a logit
//! ∂/∂z      = v − y                                               for the action taken
//! θ̄_m      ← (1−ζ) θ̄_m + ζ θ_m
//!
//! root      g = max{ g_i : max_j P_ij(x_0) > 1 − τ },  w_j the one with the largest mean among those
//! act       argmax_a U_gw(x,a), with (g, w) held for the whole episode
//! ```

use std::ops::Range;

use bqrl_math::buffer::{Buffer, check_tau};
use bqrl_math::rng::{Purpose, Rng, RngState, stream};
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::{Adam, Ensemble, Init, Inputs, Kernels, Panels, Remap, Shape, Squash, UpdateError, Which};
use serde::{Deserialize, Serialize};

use crate::experience::encode::{Encoder, StateEncoding};
use crate::experience::grid::{Grid, ReturnGrid};
use crate::experience::replay::Replay;
use crate::{
    Agent, AgentError, Input, OutputPolicy, RestoreError, Transition, not_negative, positive, require,
};

/// Every setting. The levels that the agent is asked for are none of them.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// M.
    pub n_critics: usize,
    /// Widths of the hidden layers of one network; every critic has one per action.
    pub hidden: Vec<usize>,
    /// Targets g_i on the return range.
    pub n_targets: usize,
    /// w_j: how much the probability counts against the mean.
    pub weights: Vec<f64>,
    /// The smallest return that is told apart …
    pub return_low: f64,
    /// … and the largest; both 0: found out while learning.
    pub return_high: f64,
    /// Levels that the behaviour plays for, one drawn per episode.
    pub behaviour_tau: Vec<f64>,
    /// Chance 1/(1 + t/this) that an episode follows a single critic, in episodes.
    pub thompson_decay: f64,
    /// Size of the random priors on the logits, …
    pub prior_scale: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub prior_decay: f64,
    /// How far P at the root may fall short of 1 − τ for a target to count as reached.
    pub root_margin: f64,
    /// ζ.
    pub zeta: f64,
    /// Factor on the initial output weights.
    pub output_scale: f64,
    /// Initial output bias: optimistic when positive.
    pub output_bias: f64,
    /// Step size in the end …
    pub learning_rate: f64,
    /// … plus this much at first, …
    pub learning_rate_extra: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub learning_rate_decay: f64,
    /// Decoupled weight decay at first, …
    pub weight_decay: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub weight_decay_decay: f64,
    /// |ℬ|.
    pub batch_size: usize,
    /// Transitions held in 𝒟.
    pub replay_capacity: usize,
    /// Transitions before the first update.
    pub learning_starts: usize,
    /// Minibatches per step: this over the root of the transitions seen, …
    pub updates_per_root: f64,
    /// … but at most this many.
    pub updates_per_step: f64,
    /// Chance that a sampled transition is given another collected reward.
    pub relabel: f64,
    /// How a discrete state is written.
    pub state_encoding: StateEncoding,
    /// Instructions to compute with: auto, or one of avx512, avx2, neon, scalar. Variants differ in the last bits.
    pub kernels: String,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        let at_least = |key, value: usize, least: usize, want| require(key, value >= least, want, &value);
        at_least("n_critics", self.n_critics, 1, "be at least 1")?;
        at_least("n_targets", self.n_targets, 1, "be at least 1")?;
        at_least("batch_size", self.batch_size, 1, "be at least 1")?;
        at_least("replay_capacity", self.replay_capacity, 1, "be at least 1")?;
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
        require("zeta", self.zeta > 0.0 && self.zeta <= 1.0, "lie in (0, 1]", &self.zeta)?;
        require("relabel", (0.0..=1.0).contains(&self.relabel), "lie in [0, 1]", &self.relabel)?;
        positive("thompson_decay", self.thompson_decay)?;
        positive("prior_decay", self.prior_decay)?;
        positive("learning_rate", self.learning_rate)?;
        positive("learning_rate_decay", self.learning_rate_decay)?;
        positive("weight_decay_decay", self.weight_decay_decay)?;
        positive("updates_per_root", self.updates_per_root)?;
        positive("updates_per_step", self.updates_per_step)?;
        not_negative("prior_scale", self.prior_scale)?;
        not_negative("root_margin", self.root_margin)?;
        not_negative("weight_decay", self.weight_decay)?;
        not_negative("learning_rate_extra", self.learning_rate_extra)?;
        not_negative("output_scale", self.output_scale)
    }
}

/// Values may leave 0..1 a little, because a logistic function never reaches its ends and the shortfall would add up over
/// the stages.
const SQUASH: Squash = Squash { low: -0.1, high: 1.1 };

/// Start observations that the root curve is averaged over.
const STARTS: usize = 64;

/// What a policy holds on to for a whole episode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    /// g: the return to be reached.
    pub g: f64,
    /// w: how much reaching it counts against the mean.
    pub weight: f64,
    /// The pair of outputs that answers for it.
    head: usize,
}

/// The agent.
pub struct TargetTracking {
    config: Config,
    n_actions: usize,
    encoder: Encoder,
    grid: ReturnGrid,
    /// One network per critic and action, m·A + a, with an output P and an output E per head i·J + j.
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
    episode: usize,
    held: Target,
    /// The critic that this episode follows; all of them if none.
    member: Option<usize>,
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
    starts: Vec<Start>,
    grid: ReturnGrid,
    prior_t: f64,
    /// Seed, stream and position of the two streams.
    rngs: [[u64; 3]; 2],
}

#[derive(Deserialize, Serialize)]
enum Start {
    Index(usize),
    Dense(Vec<f32>),
}

impl TargetTracking {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let given = (config.return_low, config.return_high);
        let grid = ReturnGrid::new((given.0 < given.1).then_some(given), config.n_targets, spec);
        let encoder = Encoder::new(spec, config.state_encoding, grid.grid().width()).with_long_one_hot();
        let shape = |n_quantiles| Shape {
            n_inputs: encoder.width(),
            hidden: config.hidden.clone(),
            n_actions: 1,
            n_quantiles,
            n_critics: config.n_critics * spec.n_actions,
        };
        let kernels = match &config.kernels[..] {
            "auto" => Kernels::detect(),
            name => Kernels::named(name).ok_or_else(|| AgentError::Setting {
                key: "kernels",
                want: "be auto, or a set of instructions that this machine has",
                got: name.to_owned(),
            })?,
        };
        let rng = &mut stream(seed, Purpose::Init);
        let mut networks = |n_quantiles, init| {
            let made = Ensemble::new(shape(n_quantiles), init, rng).map(|made| made.with_kernels(kernels));
            made.map_err(|error| AgentError::Setting {
                key: "hidden",
                want: "be allowed",
                got: error.to_string(),
            })
        };
        let init = Init { output_scale: config.output_scale as f32, output_bias: config.output_bias as f32 };
        let critics = networks(2 * config.n_targets * config.weights.len(), init)?;
        let priors = networks(1, Init::default())?;
        Ok(Self {
            n_actions: spec.n_actions,
            encoder,
            critics,
            priors,
            prior_t: config.prior_scale,
            replay: Replay::new(config.replay_capacity, &spec.observations),
            starts: Vec::new(),
            n_starts: 0,
            agent_rng: stream(seed, Purpose::Agent),
            replay_rng: stream(seed, Purpose::Replay),
            episode: 0,
            held: Target { g: grid.grid().low, weight: config.weights[0], head: 0 },
            grid,
            member: None,
            adam: Adam::new(config.learning_rate),
            stored: 0,
            due: 0.0,
            updates: 0,
            batch: Minibatch::default(),
            config,
        })
    }

    /// The target that the agent would hold at a level: the root choice.
    pub fn choose(&self, level: &Buffer) -> Target {
        self.choose_with(level.tau(), None)
    }

    /// What a policy that holds this target does at x.
    pub fn act_for(&self, target: &Target, x: &Input) -> usize {
        self.act_with(target, x, None)
    }

    /// P(R ≥ g_i) and the scaled mean at the root, per head, averaged over the start observations.
    fn root_curve(&self, member: Option<usize>) -> Vec<(f64, f64)> {
        let n_heads = self.config.n_targets * self.config.weights.len();
        let mut curve = vec![(0.0, 0.0); n_heads];
        let mut seen: Vec<(&Observation, f64)> = Vec::new();
        for start in &self.starts {
            match seen.iter_mut().find(|(known, _)| *known == start) {
                Some((_, count)) => *count += 1.0,
                None => seen.push((start, 1.0)),
            }
        }
        for (observation, count) in seen {
            let x = Input { stage: 0, observation, collected: 0.0 };
            let values = self.values(&x, 0..2 * n_heads, member);
            for (head, sum) in curve.iter_mut().enumerate() {
                let (p, e) = self.best(&values, head, head).1;
                sum.0 += p * count / self.starts.len() as f64;
                sum.1 += e * count / self.starts.len() as f64;
            }
        }
        curve
    }

    fn choose_with(&self, tau: f64, member: Option<usize>) -> Target {
        let j = self.config.weights.len();
        let curve = self.root_curve(member);
        let margin = self.config.root_margin;
        let reaches = |i: &usize| (i * j..(i + 1) * j).any(|head| curve[head].0 > 1.0 - tau - margin);
        let i = (0..self.config.n_targets).rev().find(reaches).unwrap_or(0);
        let heads = i * j..(i + 1) * j;
        let safe = heads.clone().filter(|&head| curve[head].0 > 1.0 - tau + margin);
        let head = safe
            .reduce(|best, head| if curve[head].1 > curve[best].1 { head } else { best })
            .or_else(|| heads.reduce(|best, head| if curve[head].0 > curve[best].0 { head } else { best }))
            .expect("there is a weight");
        Target { g: self.grid.grid().target(i), weight: self.config.weights[head % j], head }
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

    /// The best action for a head, whose outputs are the pair number `at`, and its P and E.
    fn best(&self, values: &[Vec<f64>], head: usize, at: usize) -> (usize, (f64, f64)) {
        let weight = self.config.weights[head % self.config.weights.len()];
        let utility = |a: usize| weight * values[a][2 * at] + (1.0 - weight) * values[a][2 * at + 1];
        let better = |best, a| if utility(a) > utility(best) { a } else { best };
        let action = (0..self.n_actions).reduce(better).expect("there is an action");
        (action, (values[action][2 * at], values[action][2 * at + 1]))
    }

    fn act_with(&self, target: &Target, x: &Input, member: Option<usize>) -> usize {
        let values = self.values(x, 2 * target.head..2 * target.head + 2, member);
        self.best(&values, target.head, 0).0
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
        let j = self.config.weights.len();
        let mut outputs = Vec::with_capacity(2 * new.n * j);
        for i in 0..new.n {
            let (place, mix) = old.place(new.target(i));
            for weight in 0..j {
                let head = |i: usize| 2 * (i * j + weight);
                let from = [head(place), head((place + 1).min(old.n - 1))];
                outputs.push(Remap { from, mix: mix as f32, scale: 1.0, shift: 0.0 });
                outputs.push(Remap { from: from.map(|p| p + 1), mix: mix as f32, scale, shift });
            }
        }
        self.critics.remap_outputs(&outputs);
        let factor = self.encoder.rescale(new.width()) as f32;
        let collected = self.encoder.width() - 1;
        self.critics.scale_input(collected, factor);
        self.priors.scale_input(collected, factor);
    }

    /// One minibatch.
    fn update(&mut self) -> Result<(), UpdateError> {
        let Self { config, grid, encoder, replay, replay_rng, batch, n_actions, .. } = self;
        let (n_actions, n_critics) = (*n_actions, config.n_critics);
        batch.draw(config, n_actions, replay, encoder, replay_rng);
        let b = batch.len();
        let j = config.weights.len();
        let n_heads = config.n_targets * j;
        let kernels = self.critics.kernels();
        let grid = grid.grid();
        batch.priors(&mut self.priors, self.prior_t);
        let batch = &*batch;

        // P̄_m and Ē_m of all actions at x', output-major.
        let next: Vec<Vec<f32>> = self.critics.each_member(|member| {
            let (mut logits, mut values) = (Panels::default(), Panels::default());
            member.predict(Which::Target, &batch.next_inputs, &mut logits);
            SQUASH.apply(kernels, &logits, &batch.next_shifts[member.index()], &mut values);
            let mut flat = Vec::with_capacity(2 * n_heads * b);
            for output in 0..2 * n_heads {
                (0..values.n_panels()).for_each(|panel| flat.extend_from_slice(values.lanes(panel, output)));
            }
            flat
        });
        let row = |network: usize, output: usize| &next[network][output * b..(output + 1) * b];

        // a'_ij per sample.
        let mut chosen = vec![0_u32; n_heads * b];
        let (mut utilities, mut best) = (vec![0.0_f32; b], vec![0.0_f32; b]);
        for (head, chosen) in chosen.chunks_exact_mut(b).enumerate() {
            let weight = config.weights[head % j] as f32;
            for a in 0..n_actions {
                utilities.fill(0.0);
                for m in 0..n_critics {
                    let network = m * n_actions + a;
                    let (p, e) = (row(network, 2 * head), row(network, 2 * head + 1));
                    for ((u, p), e) in utilities.iter_mut().zip(p).zip(e) {
                        *u += weight * p + (1.0 - weight) * e;
                    }
                }
                for ((u, best), chosen) in utilities.iter().zip(&mut best).zip(chosen.iter_mut()) {
                    let better = a == 0 || *u > *best;
                    *best = if better { *u } else { *best };
                    *chosen = if better { a as u32 } else { *chosen };
                }
            }
        }

        // y where d = 1, else NaN-free filler.
        let mut last = vec![0.0_f32; 2 * n_heads * b];
        for (head, pair) in last.chunks_exact_mut(2 * b).enumerate() {
            for s in (0..b).filter(|&s| batch.done[s]) {
                pair[s] = f32::from(u8::from(grid.reached(batch.collected[s], head / j)));
                pair[b + s] = grid.scaled(batch.collected[s]).clamp(0.0, 1.0) as f32;
            }
        }

        let adam = &self.adam;
        let zeta = config.zeta;
        let learned = self.critics.each_member(|member| {
            let network = member.index();
            let (m, a) = (network / n_actions, network % n_actions);
            let samples = batch.of_action(a);
            if samples.is_empty() {
                return Ok(());
            }
            let shift = &batch.shifts[network];
            member.learn(&batch.inputs[a], adam, zeta, |outputs, d_outputs| {
                SQUASH.apply(kernels, outputs, shift, d_outputs);
                let scale = 1.0 / b as f32;
                for output in 0..2 * n_heads {
                    for panel in 0..d_outputs.n_panels() {
                        let lanes = d_outputs.lanes_mut(panel, output);
                        let first = samples.start + 64 * panel;
                        let here = first..first + lanes.len();
                        let chosen = &chosen[output / 2 * b..][here.clone()];
                        let last = &last[output * b..][here.clone()];
                        let mut y = [0.0_f32; 64];
                        for a in 0..n_actions {
                            let values = &row(m * n_actions + a, output)[here.clone()];
                            for ((y, v), c) in y.iter_mut().zip(values).zip(chosen) {
                                *y = if *c == a as u32 { *v } else { *y };
                            }
                        }
                        let done = &batch.done[here];
                        for (i, lane) in lanes.iter_mut().enumerate() {
                            let y = if done[i] { last[i] } else { y[i].clamp(0.0, 1.0) };
                            *lane = (*lane - y) * scale;
                        }
                    }
                }
            })
        });
        self.updates += 1;
        learned.into_iter().collect()
    }
}

/// √D/|x| makes a random network without biases have root mean square 1 over its weights, at every x.
fn prior_factor(input: &[f32], prior_t: f64) -> f32 {
    let square: f64 = input.iter().map(|&x| f64::from(x).powi(2)).sum();
    (prior_t * (input.len() as f64 / square.max(1e-12)).sqrt()) as f32
}

/// A minibatch, sorted by action.
#[derive(Default)]
struct Minibatch {
    /// Where the samples of each action begin, and the end.
    bounds: Vec<usize>,
    /// x, per action.
    inputs: Vec<Inputs>,
    next_inputs: Inputs,
    /// c + r.
    collected: Vec<f64>,
    done: Vec<bool>,
    /// Priors at x of the action taken, and at x', per network.
    shifts: Vec<Vec<f32>>,
    next_shifts: Vec<Vec<f32>>,
    factors: Vec<f32>,
    next_factors: Vec<f32>,
    rows: Vec<f32>,
    next_rows: Vec<f32>,
}

impl Minibatch {
    fn len(&self) -> usize {
        self.done.len()
    }

    fn of_action(&self, action: usize) -> Range<usize> {
        self.bounds[action]..self.bounds[action + 1]
    }

    fn draw(&mut self, config: &Config, n_actions: usize, replay: &Replay, encoder: &Encoder, rng: &mut Rng) {
        let mut samples: Vec<_> = (0..config.batch_size)
            .map(|_| {
                let mut sample = replay.sample(rng);
                if rng.uniform() < config.relabel {
                    let other = replay.sample(rng);
                    sample.x.2 = other.x.2;
                }
                sample
            })
            .collect();
        samples.sort_by_key(|sample| sample.action);
        let Self { bounds, inputs, next_inputs, collected, done, rows, next_rows, .. } = self;
        let width = encoder.width();
        rows.clear();
        next_rows.clear();
        collected.clear();
        done.clear();
        for sample in &samples {
            let (stage, observation, c) = &sample.x;
            encoder.encode(&Input { stage: *stage, observation, collected: *c }, rows);
            let after = c + sample.reward;
            let (stage, observation, _) = sample.next.as_ref().unwrap_or(&sample.x);
            encoder.encode(&Input { stage: *stage, observation, collected: after }, next_rows);
            collected.push(after);
            done.push(sample.next.is_none());
        }
        bounds.clear();
        bounds.extend((0..=n_actions).map(|a| samples.partition_point(|sample| sample.action < a)));
        inputs.resize_with(n_actions, Inputs::default);
        for (a, inputs) in inputs.iter_mut().enumerate() {
            let samples = bounds[a]..bounds[a + 1];
            if !samples.is_empty() {
                inputs.fill_from_rows(&rows[samples.start * width..samples.end * width], width);
            }
        }
        next_inputs.fill_from_rows(next_rows, width);
    }

    fn priors(&mut self, priors: &mut Ensemble, prior_t: f64) {
        let width = priors.shape().n_inputs;
        let n_actions = self.inputs.len();
        let factors = |rows: &[f32], factors: &mut Vec<f32>| {
            factors.clear();
            factors.extend(rows.chunks_exact(width).map(|row| prior_factor(row, prior_t)));
        };
        factors(&self.rows, &mut self.factors);
        factors(&self.next_rows, &mut self.next_factors);
        let shifts = priors.each_member(|member| {
            let a = member.index() % n_actions;
            let mut shift = |inputs: &Inputs, factors: &[f32]| -> Vec<f32> {
                let mut outputs = Panels::default();
                member.predict(Which::Target, inputs, &mut outputs);
                factors.iter().enumerate().map(|(s, factor)| factor * outputs.get(s, 0)).collect()
            };
            let samples = self.bounds[a]..self.bounds[a + 1];
            let here =
                if samples.is_empty() { Vec::new() } else { shift(&self.inputs[a], &self.factors[samples]) };
            (here, shift(&self.next_inputs, &self.next_factors))
        });
        (self.shifts, self.next_shifts) = shifts.into_iter().unzip();
    }
}

impl Agent for TargetTracking {
    fn begin_episode(&mut self, episode: usize) {
        let Config { learning_rate, learning_rate_extra, weight_decay, prior_scale, .. } = self.config;
        let falling = |decay: f64| 1.0 / (1.0 + episode as f64 / decay);
        self.adam.learning_rate =
            learning_rate + learning_rate_extra * falling(self.config.learning_rate_decay);
        self.adam.weight_decay = weight_decay * falling(self.config.weight_decay_decay);
        self.prior_t = prior_scale * falling(self.config.prior_decay);
        self.episode = episode;
    }

    fn act(&mut self, x: &Input) -> usize {
        if x.stage == 0 {
            self.start(x.observation);
            let single = 1.0 / (1.0 + self.episode as f64 / self.config.thompson_decay);
            let tau = self.config.behaviour_tau[self.agent_rng.below(self.config.behaviour_tau.len())];
            let member = self.agent_rng.below(self.config.n_critics);
            self.member = (self.agent_rng.uniform() < single).then_some(member);
            self.held = self.choose_with(tau, self.member);
        }
        self.act_with(&self.held, x, self.member)
    }

    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError> {
        let reward = transition.reward as f32;
        if !reward.is_finite() {
            return Err(UpdateError::NotFinite { name: "rewards", transition: 0, value: reward });
        }
        self.replay.store(transition);
        self.stored += 1;
        if transition.end.is_over() {
            let before = self.grid.grid();
            if self.grid.observe(transition.next.collected) {
                self.regrid(&before);
            }
        }
        if self.replay.len() >= self.config.learning_starts.max(1) {
            let rate = self.config.updates_per_root / (self.stored as f64).sqrt();
            self.due += rate.min(self.config.updates_per_step);
            while self.due >= 1.0 {
                self.due -= 1.0;
                self.update()?;
            }
        }
        Ok(())
    }

    fn output(&self, levels: &[Buffer]) -> Vec<Box<dyn OutputPolicy + '_>> {
        let policy = |level: &Buffer| -> Box<dyn OutputPolicy + '_> {
            let target = self.choose(level);
            Box::new(move |x: &Input| self.act_for(&target, x))
        };
        levels.iter().map(policy).collect()
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    fn updates(&self) -> u64 {
        self.updates
    }

    fn save(&self) -> Vec<(&'static str, Vec<u8>)> {
        let position = |rng: &Rng| {
            let RngState { seed, stream, word_pos } = rng.state();
            [seed, stream, word_pos]
        };
        let start = |observation: &Observation| match observation {
            Observation::Index(state) => Start::Index(*state),
            Observation::Dense(values) => Start::Dense(values.clone()),
        };
        let state = State {
            updates: self.updates,
            stored: self.stored,
            due: self.due,
            n_starts: self.n_starts,
            starts: self.starts.iter().map(start).collect(),
            grid: self.grid.clone(),
            prior_t: self.prior_t,
            rngs: [position(&self.agent_rng), position(&self.replay_rng)],
        };
        vec![
            ("critics.safetensors", self.critics.to_bytes()),
            ("priors.safetensors", self.priors.to_bytes()),
            ("replay.safetensors", self.replay.to_bytes()),
            ("agent.json", serde_json::to_vec(&state).expect("plain numbers serialise")),
        ]
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let wrong = |name: &str, error: &dyn std::fmt::Display| RestoreError(format!("{name}: {error}"));
        let read = |name: &str| file(name).ok_or_else(|| wrong(name, &"missing"));
        let networks = |name: &str, like: &Ensemble| {
            let read = Ensemble::from_bytes(&read(name)?).map_err(|error| wrong(name, &error))?;
            if read.shape() == like.shape() {
                Ok(read.with_kernels(like.kernels()))
            } else {
                Err(wrong(name, &"the networks have other sizes"))
            }
        };
        let critics = networks("critics.safetensors", &self.critics)?;
        let priors = networks("priors.safetensors", &self.priors)?;
        let state: State =
            serde_json::from_slice(&read("agent.json")?).map_err(|error| wrong("agent.json", &error))?;
        self.replay
            .restore(&read("replay.safetensors")?)
            .map_err(|error| wrong("replay.safetensors", &error))?;
        let start = |start| match start {
            Start::Index(state) => Observation::Index(state),
            Start::Dense(values) => Observation::Dense(values),
        };
        let stream =
            |[seed, stream, word_pos]: [u64; 3]| Rng::from_state(RngState { seed, stream, word_pos });
        self.critics = critics;
        self.priors = priors;
        self.updates = state.updates;
        self.stored = state.stored;
        self.due = state.due;
        self.n_starts = state.n_starts;
        self.starts = state.starts.into_iter().map(start).collect();
        self.encoder.rescale(state.grid.grid().width());
        self.grid = state.grid;
        self.prior_t = state.prior_t;
        [self.agent_rng, self.replay_rng] = state.rngs.map(stream);
        Ok(())
    }

    fn weights(&self) -> Vec<u8> {
        self.critics.to_bytes()
    }
}
