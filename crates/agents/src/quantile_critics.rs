//! The common part of Deep-BQRL, QR-DQN and target tracking: quantile critics z_θm(x, a) of the remaining return, the replay 𝒟
//! that they learn from, and their settings.
//!
//! ```text
//! store     𝒟 ← 𝒟 ∪ {(x, a, r, x', d)}                      rewards in units of σ, the scale of the returns (experience::unit)
//! learn     for every stored transition, max(updates_per_step, early/√t) times:
//!             ℬ ~ 𝒟 uniformly;  y_m,i = r + (1−d) z̃_θ̄m,i(x', a_m⁺)                                          Eq. (3)
//!             θ_m ← Adam on 𝒥_m = mean of ρ_{η_j}^κ(y_m,i − z_θm,j(x, a)), raw z                           Eq. (4)
//!             θ̄_m ← (1−ζ) θ̄_m + ζ θ_m                                                                     Eq. (5)
//! ```
//!
//! The three agents differ in a⁺, the next action that y continues with, and in the score that they act by; these are in their own
//! files. Choices that the paper leaves open, for all three (decision 0011): hidden layers are normalised; r is the sum of the next
//! ⌈H/100⌉ rewards, at most five (one where observations are images), and x' follows the last of them; without optimism, y is clipped to what was seen; ζ is larger
//! during the first updates, and weight decay and learning rate fall later on.
//!
//! Optimism: every action has the value `optimism` σ at first. A network forgets this for actions that were never tried. So, where states
//! are indices, an action that was tried fewer than `optimistic_tries` times in a state also learns from imagined transitions, which end
//! at once with more than the largest return seen, the more the earlier. Where states are ordered, a try counts for neighbours, too.
//!
//! Stages: a transition of a stationary task is as true at every other stage. So agents that do not see c learn half of their transitions
//! at a stage that is drawn uniformly. Late stages, which are rarely visited, are then learned from the transitions of all stages.

use std::ops::{Range, RangeInclusive};

use bqrl_math::buffer::eta;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::Clock;
use bqrl_math::score::{Score, sort};
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::{Adam, Choice, Convolution, Ensemble, Head, Init, Shape, Sight, TargetRule, Which};
use serde::{Deserialize, Serialize};

use crate::experience::encode::{Encoded, Encoder, Moments};
use crate::experience::minibatch::{Draw, Imagined, Minibatch};
use crate::experience::replay::Replay;
use crate::experience::saved;
use crate::experience::unit::ReturnUnit;
use crate::settings::{count, fits, hidden_layers, not_negative, positive, require, share};
use crate::{
    AgentError, Input, Kernels, LearnError, Part, Prediction, RestoreError, Transition, Waiting, finite,
};

/// The settings that the three agents have.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct CriticConfig {
    /// K.
    pub n_quantiles: usize,
    /// M.
    pub n_critics: usize,
    /// Channels, kernel and stride of the convolutions, where observations are planes or images.
    pub convolutions: Vec<[usize; 3]>,
    /// Widths of the hidden layers.
    pub hidden: Vec<usize>,
    /// κ, in units of σ.
    pub kappa: f64,
    /// ζ.
    pub zeta: f64,
    /// Step size of Adam.
    pub learning_rate: f64,
    /// |ℬ|.
    pub batch_size: usize,
    /// Transitions held in 𝒟.
    pub replay_capacity: usize,
    /// Minibatches per environment step; a fraction makes one every few steps.
    pub updates_per_step: f64,
    /// The first value of every action, in units of σ.
    pub optimism: f64,
    /// Tries of an action in a state of a table, or in one like it, before it loses its optimistic value.
    pub optimistic_tries: u32,
    /// σ, the return that counts as 1 for the critics; 0 finds it while learning.
    pub reward_scale: f64,
    /// Instructions to compute with. Variants differ in the last bits.
    pub kernels: Kernels,
}

impl CriticConfig {
    /// Refuses invalid settings.
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        count("n_quantiles", self.n_quantiles, 1..=1024)?;
        let few = self.convolutions.len() <= 8;
        let sizes = self.convolutions.iter().flatten().all(|size| (1..=4096).contains(size));
        let want = "be at most 8 of [channels, kernel, stride], each in 1..=4096";
        require("convolutions", few && sizes, want, &format!("{:?}", self.convolutions))?;
        hidden_layers(&self.hidden)?;
        count("batch_size", self.batch_size, 1..=65_536)?;
        let holds = self.replay_capacity >= self.batch_size;
        require("replay_capacity", holds, "be at least batch_size", &self.replay_capacity)?;
        let updates = (0.0..=1000.0).contains(&self.updates_per_step);
        require("updates_per_step", updates, "lie in [0, 1000]", &self.updates_per_step)?;
        share("zeta", self.zeta)?;
        positive("kappa", self.kappa)?;
        let single = (self.kappa as f32).is_normal() && (1.0 / self.kappa as f32).is_normal();
        require("kappa", single, "be a positive number in single precision", &self.kappa)?;
        positive("learning_rate", self.learning_rate)?;
        let single = (self.optimism as f32).is_finite();
        require("optimism", single, "be a number in single precision", &self.optimism)?;
        not_negative("reward_scale", self.reward_scale)
    }

    /// The sizes of the networks.
    pub fn shape(&self, design: &Design, encoder: &Encoder, spec: &EnvSpec) -> Shape {
        let (n_twins, n_critics) =
            if design.shared { (self.n_critics, design.trunks.len()) } else { (1, self.n_critics) };
        Shape {
            n_inputs: encoder.width(),
            sight: self.sight(spec),
            hidden: self.hidden.clone(),
            layer_norm: true,
            n_heads: design.n_heads(),
            n_twins,
            n_actions: spec.n_actions,
            n_quantiles: self.n_quantiles,
            n_critics,
        }
    }

    fn sight(&self, spec: &EnvSpec) -> Option<Sight> {
        let planes = spec.observations.planes().filter(|_| !self.convolutions.is_empty())?;
        let convolution = |&[channels, kernel, stride]: &[usize; 3]| Convolution { channels, kernel, stride };
        Some(Sight { planes, convolutions: self.convolutions.iter().map(convolution).collect() })
    }
}

/// Heads that share hidden layers and learn from the same minibatches.
#[derive(Clone, Debug)]
pub struct Trunk {
    /// The width of a ramp is a share of the range of the returns.
    pub heads: Vec<Head>,
    /// γ: what a step ahead counts for them. Their unit is that of discounted returns; returns are measured without it.
    pub discount: f64,
}

/// How an agent uses the critics.
#[derive(Clone, Debug)]
pub struct Design {
    /// All with the same number of heads.
    pub trunks: Vec<Trunk>,
    /// Whether the critics share their hidden layers. Then several of them value the next action by their least, and those that
    /// learn choose it by their mean. Else there is one trunk, which each critic has for itself.
    pub shared: bool,
    /// Whether the loss is the smoothed quantile loss and not the paper's.
    pub smooth: bool,
    /// Whether the policy depends on the collected reward.
    pub with_collected: bool,
    /// Minibatches per step at first: this, over the square root of the steps so far.
    pub early_updates: f64,
}

impl Design {
    /// One head, which compares next actions by a score.
    pub fn by_score(score: &Score) -> Self {
        let coefficients = score.coefficients().iter().map(|&c| c as f32).collect();
        let heads = vec![Head { choice: Choice::One(coefficients), ramp: 0.0 }];
        Self {
            trunks: vec![Trunk { heads, discount: 1.0 }],
            shared: false,
            smooth: false,
            with_collected: false,
            early_updates: 0.0,
        }
    }

    /// Heads of each trunk.
    fn n_heads(&self) -> usize {
        self.trunks[0].heads.len()
    }

    /// Writes inputs for the critics.
    pub fn encoder(&self, spec: &EnvSpec) -> Encoder {
        let encoder = Encoder::new(spec);
        if self.with_collected { encoder.with_collected() } else { encoder }
    }
}

/// The critics and their memory.
pub struct QuantileCritics {
    config: CriticConfig,
    design: Design,
    observations: ObservationSpace,
    n_actions: usize,
    horizon: usize,
    n_steps: usize,
    /// H and the problem's γ, where a transition is as true at every stage.
    stages: Option<(usize, f64)>,
    encoder: Encoder,
    /// One for each trunk.
    units: Vec<ReturnUnit>,
    critics: Ensemble,
    replay: Replay,
    /// Tries of every action in every state, s · A + a, until they are known; empty where states are not indices.
    tries: Vec<u32>,
    /// Draws minibatches.
    rng: Rng,
    stored: u64,
    /// Updates that are due, fractions included.
    due: f64,
    updates: u64,
    /// A running mean of 𝒥, over every [`LOOK`]th update.
    loss: Option<f64>,
    minibatch: Minibatch,
}

/// The saved state other than the arrays.
#[derive(Deserialize, Serialize)]
pub struct CriticState {
    updates: u64,
    stored: u64,
    due: f64,
    unit: ReturnUnit,
    /// Of the trunks after the first.
    #[serde(default)]
    other_units: Vec<ReturnUnit>,
    moments: Moments,
    /// Pairs (s, a) that were tried, as (s · A + a, tries).
    tries: Vec<(u64, u32)>,
    /// Seed, stream and position of the stream that draws minibatches.
    rng: [u64; 3],
    /// A running mean of the loss.
    #[serde(default)]
    loss: Option<f64>,
}

/// Transitions before the first update. The first episode must also be over, because it gives σ.
const FIRST: usize = 8;
/// Updates per step at first, at most.
const MOST_EARLY: f64 = 16.0;
/// ζ is at least min(EARLY_ZETA, 100/updates).
const EARLY_ZETA: f64 = 0.05;
/// The loss of every so many updates is computed, which costs about as much as its gradient: less than a hundredth of the time.
const LOOK: u64 = 64;
/// The weight of a new loss in the running mean.
const NEW_LOSS: f64 = 0.1;
/// Weight decay of Adam. Without it, a network learns the few returns seen from a rare state by heart, and misses its upper levels.
const WEIGHT_DECAY: f64 = 0.1;
/// With fewer states than this, an action is tried so much more often in each.
const FEW_STATES: usize = 30;
/// Factor on the initial output weights: all actions look alike at first.
const OUTPUT_SCALE: f32 = 0.01;
/// The most rewards in one target, and the steps of a horizon that call for one more.
const MOST_STEPS: usize = 5;
const STEPS_PER_REWARD: usize = 100;

impl QuantileCritics {
    /// Untrained critics.
    pub fn new(
        config: CriticConfig,
        design: Design,
        spec: &EnvSpec,
        n_lanes: usize,
        seed: u64,
    ) -> Result<Self, AgentError> {
        let blind = spec.observations.planes().is_none() && !config.convolutions.is_empty();
        let want = "be empty where observations are not planes or images";
        require("convolutions", !blind, want, &format!("{:?}", config.convolutions))?;
        Replay::fits(config.replay_capacity, n_lanes, &spec.observations)?;
        let encoder = design.encoder(spec);
        let shape = config.shape(&design, &encoder, spec);
        let widths = shape.n_inputs + 2 * shape.hidden.iter().sum::<usize>() + 3 * shape.n_outputs();
        fits("minibatches of agent.batch_size", 1, 4, &[config.batch_size, shape.n_critics, widths])?;
        let init = Init { output_scale: OUTPUT_SCALE, output_bias: config.optimism as f32 };
        let critics = Ensemble::new(shape, init, &mut stream(seed, Purpose::Init))?;
        let tries = match spec.observations {
            ObservationSpace::Discrete { n, .. } if config.optimistic_tries > 0 => {
                fits("counts of tries", 1, 4, &[n, spec.n_actions])?;
                vec![0; n * spec.n_actions]
            }
            _ => Vec::new(),
        };
        Ok(Self {
            observations: spec.observations.clone(),
            n_actions: spec.n_actions,
            horizon: spec.horizon,
            n_steps: n_steps(spec),
            stages: (spec.stationary && spec.horizon_is_task && !design.with_collected)
                .then_some((spec.horizon, spec.discount)),
            encoder,
            units: vec![ReturnUnit::new(config.reward_scale); design.trunks.len()],
            critics: critics.with_kernels(config.kernels.find()?),
            replay: Replay::new(config.replay_capacity, n_lanes, &spec.observations).within(spec),
            tries,
            rng: stream(seed, Purpose::Replay),
            stored: 0,
            due: 0.0,
            updates: 0,
            loss: None,
            minibatch: Minibatch::default(),
            design,
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

    /// M.
    pub fn n_critics(&self) -> usize {
        self.config.n_critics
    }

    /// ε_t. On tables, optimism explores at first, and ε is there for actions that were given up too early.
    pub fn epsilon_t(&self, epsilon: f64, clock: &Clock) -> f64 {
        let early = 1.0 - clock.steps as f64 / FIRST_STEPS;
        let is_table = matches!(self.observations, ObservationSpace::Discrete { .. });
        if is_table || epsilon == 0.0 { epsilon } else { epsilon.max(early) }
    }

    /// γ of the first trunk.
    pub fn discount(&self) -> f64 {
        self.design.trunks[0].discount
    }

    /// The kind of observations.
    pub fn observations(&self) -> &ObservationSpace {
        &self.observations
    }

    /// The scale of the returns: that of the first trunk.
    pub fn unit(&self) -> &ReturnUnit {
        &self.units[0]
    }

    /// Updates made.
    pub fn updates(&self) -> u64 {
        self.updates
    }

    /// A running mean of 𝒥 over the critics, in units of σ; `None` before the first update.
    pub fn loss(&self) -> Option<f64> {
        self.loss
    }

    /// The running moments that vectors are normalised by; `None` where nothing is.
    pub fn moments(&self) -> Option<&Moments> {
        Some(self.encoder.moments()).filter(|moments| !moments.mean().is_empty())
    }

    /// Takes a first observation into the running moments.
    pub fn see(&mut self, observation: &Observation) {
        self.encoder.see(observation);
    }

    /// z(x, a) of every critic and head, in units of the trunk's σ, for [`quantiles`](Self::quantiles) to look up. Raw, not sorted.
    pub fn outputs(&self, which: Which, x: &Input) -> Vec<f32> {
        let mut input = Encoded::default();
        self.encoder.encode(x, self.unit().of_inputs(), &mut input);
        self.critics.act(which, &self.encoder.rows(&input).expanded(self.encoder.width()))
    }

    /// The same for many inputs, all in one pass through the networks.
    pub fn outputs_of<'a>(
        &self,
        which: Which,
        inputs: impl ExactSizeIterator<Item = Input<'a>>,
    ) -> Vec<Vec<f32>> {
        if inputs.len() == 1 {
            return inputs.map(|x| self.outputs(which, &x)).collect();
        }
        let mut all = Encoded::default();
        for x in inputs {
            self.encoder.encode(&x, self.unit().of_inputs(), &mut all);
        }
        self.critics.act_many(which, self.encoder.rows(&all))
    }

    /// The same, with one pass for neighbours that look alike to the networks. The second list says which outputs belong to an input.
    pub fn distinct_outputs_of<'a>(
        &self,
        which: Which,
        inputs: impl Iterator<Item = &'a Input<'a>>,
    ) -> (Vec<Vec<f32>>, Vec<usize>) {
        let (mut distinct, mut places) = (Encoded::default(), Vec::new());
        for x in inputs {
            self.encoder.encode(x, self.unit().of_inputs(), &mut distinct);
            distinct.drop_repeated();
            places.push(distinct.n_samples() - 1);
        }
        let outputs = match places[..] {
            [] => Vec::new(),
            _ => self.critics.act_many(which, self.encoder.rows(&distinct)),
        };
        (outputs, places)
    }

    /// z(x, a) of one critic's head, from all outputs. Heads are counted through all trunks.
    pub fn quantiles<'o>(&self, outputs: &'o [f32], critic: usize, head: usize, action: usize) -> &'o [f32] {
        let (k, n_heads) = (self.config.n_quantiles, self.design.n_heads());
        let (trunk, head) = (head / n_heads, head % n_heads);
        // With one trunk this is critic · heads + head, whoever has it.
        let place = (trunk * self.config.n_critics + critic) * n_heads + head;
        &outputs[(place * self.n_actions + action) * k..][..k]
    }

    /// The networks of a trunk.
    fn of_trunk(&self, trunk: usize) -> Range<usize> {
        if self.design.shared { trunk..trunk + 1 } else { 0..self.config.n_critics }
    }

    /// z̃ of one action of one critic, from its raw outputs.
    pub fn sorted(quantiles: &[f32]) -> Vec<f64> {
        sort(&quantiles.iter().map(|&z| f64::from(z)).collect::<Vec<_>>())
    }

    /// Remembers a transition of a lane.
    pub fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        finite(transition.reward)?;
        self.replay.store(lane, transition);
        self.encoder.see(transition.next.observation);
        if let (false, &Observation::Index(s)) = (self.tries.is_empty(), transition.x.observation) {
            let known = self.known();
            for s in self.alike(s) {
                let tries = &mut self.tries[s * self.n_actions + transition.action];
                *tries = (*tries + 1).min(known);
            }
        }
        self.stored += 1;
        let early = (self.design.early_updates / (self.stored as f64).sqrt()).min(MOST_EARLY);
        self.due += self.config.updates_per_step.max(early);
        if transition.end.is_over() {
            for trunk in 0..self.units.len() {
                let discount = self.design.trunks[trunk].discount;
                let rewards = self.replay.newest_rewards(lane);
                if let Some(factor) = self.units[trunk].episode(rewards, discount) {
                    self.critics.scale_outputs_of(self.of_trunk(trunk), factor as f32);
                }
            }
        }
        Ok(())
    }

    /// From this many transitions on, the weight decay falls as 1/n, as a prior does, because it makes a network forget states that are
    /// rarely visited; and the learning rate falls as 1/√n, because a policy that changes with every minibatch is not worth serving.
    /// There is more to learn where observations are planes. Measured on Breakout: 13 points against 8 after 200,000 steps.
    ///
    /// Where many updates are made early, both fall early, and both as 1/n: the error of P at the start is then mostly the noise of
    /// the minibatches. Measured on asset selling (decision 0011). Where transitions stay at their stages, what is learned at the end has to
    /// travel to the start first, which takes longer.
    fn enough(&self) -> f64 {
        if self.design.early_updates > 0.0 {
            let pairs = (self.observations.size() * self.n_actions) as f64;
            let way = if self.stages.is_some() { 500.0 } else { 50.0 * self.horizon as f64 };
            (10.0 * pairs).max(way)
        } else if self.observations.planes().is_some() {
            100_000.0
        } else {
            5000.0
        }
    }

    /// The tries of an action in a state before it loses its optimistic value. Where states are few, each is met often, and a gamble that
    /// was lost twice would be given up for ever.
    fn known(&self) -> u32 {
        self.config.optimistic_tries.saturating_mul((FEW_STATES / self.observations.size()).max(1) as u32)
    }

    /// The states that an action tried in s also counts for: where states are ordered, those within a sixth of their range.
    fn alike(&self, s: usize) -> RangeInclusive<usize> {
        match self.observations {
            ObservationSpace::Discrete { n, ordered: true } => {
                let reach = (n - 1) / 6;
                s.saturating_sub(reach)..=(s + reach).min(n - 1)
            }
            _ => s..=s,
        }
    }

    /// Lines 13–23 of Algorithm 1, for every transition since the last call.
    pub fn learn(&mut self, _: &Clock) -> Result<(), LearnError> {
        if !self.unit().is_known() || self.replay.len() < FIRST {
            self.due = 0.0;
            return Ok(());
        }
        let (known, enough) = (self.known(), self.enough());
        let few = (enough / self.stored as f64).min(1.0);
        let rate = if self.design.early_updates > 0.0 { few } else { few.sqrt() };
        let adam = Adam { weight_decay: WEIGHT_DECAY * few, ..Adam::new(self.config.learning_rate * rate) };
        let rules: Vec<TargetRule> = (0..self.units.len()).map(|trunk| self.rule(trunk)).collect();
        while self.due >= 1.0 {
            let zeta = self.config.zeta.max(EARLY_ZETA.min(100.0 / (self.updates + 1) as f64));
            let is_looked_at = self.updates.is_multiple_of(LOOK);
            let mut losses = Vec::new();
            for (trunk, rule) in rules.iter().enumerate() {
                let critics = self.of_trunk(trunk);
                let Self { config, replay, encoder, rng, minibatch, .. } = self;
                let unit = &self.units[trunk];
                let draw = Draw {
                    size: config.batch_size,
                    n_steps: self.n_steps,
                    discount: self.design.trunks[trunk].discount,
                    sigma: unit.sigma(),
                    stages: self.stages,
                };
                let imagined = Imagined {
                    tries: &self.tries,
                    n_actions: self.n_actions,
                    known,
                    best: unit.best(config.optimism),
                    more: config.optimism * unit.sigma(),
                    horizon: self.horizon,
                };
                let batch = minibatch.draw(&draw, replay, encoder, &imagined, rng);
                losses.extend(self.critics.train_critics(
                    critics,
                    &batch,
                    rule,
                    &adam,
                    zeta,
                    is_looked_at,
                )?);
            }
            if is_looked_at {
                let loss = losses.iter().sum::<f64>() / losses.len() as f64;
                self.loss = Some(self.loss.map_or(loss, |mean| mean + NEW_LOSS * (loss - mean)));
            }
            self.updates += 1;
            self.due -= 1.0;
        }
        Ok(())
    }

    /// The rules of a trunk's heads, in units of its σ.
    fn rule(&self, trunk: usize) -> TargetRule {
        let unit = &self.units[trunk];
        let of_sigma = |z: f64| (z / unit.sigma()) as f32;
        let range = of_sigma(unit.range());
        let head = |head: &Head| Head { ramp: head.ramp * range, ..head.clone() };
        let heads = self.design.trunks[trunk].heads.iter().map(head).collect();
        let rule = TargetRule::heads_of(heads, self.config.n_quantiles, self.config.kappa)
            .expect("kappa was checked with the settings");
        let rule = if self.design.smooth { rule.smooth() } else { rule };
        let double = self.design.shared && self.config.n_critics > 1;
        let rule = if double { rule.double() } else { rule };
        if self.config.optimism > 0.0 {
            return rule;
        }
        // What continues beyond every return seen is an error of the networks, and further backups would add to it. Optimism is
        // such a continuation, too.
        let (low, high) = unit.bounds();
        rule.within(of_sigma(low), of_sigma(high))
    }

    /// The parts of a checkpoint, and the state that the agent saves with its own.
    pub fn save(&self, has: &dyn Fn(&str) -> bool) -> (Vec<Part>, CriticState) {
        let mut parts = vec![Part::new("critics.safetensors", self.critics.to_bytes())];
        parts.extend(self.replay.save(has));
        let state = CriticState {
            updates: self.updates,
            stored: self.stored,
            due: self.due,
            unit: self.units[0],
            other_units: self.units[1..].to_vec(),
            moments: self.encoder.moments().clone(),
            tries: (0..).zip(self.tries.iter().copied()).filter(|&(_, tries)| tries > 0).collect(),
            rng: saved::position(&self.rng),
            loss: self.loss,
        };
        (parts, state)
    }

    /// Restores the result of [`save`](Self::save); nothing is changed if something does not fit.
    pub fn restore(&mut self, state: &CriticState, file: saved::Parts) -> Result<(), RestoreError> {
        let critics = saved::networks("critics.safetensors", &self.critics, file)?;
        saved::count("agent.json: updates", state.updates)?;
        saved::count("agent.json: stored", state.stored)?;
        let units: Vec<ReturnUnit> =
            [state.unit].into_iter().chain(state.other_units.iter().copied()).collect();
        if units.len() != self.units.len() {
            return Err(RestoreError(format!(
                "agent.json: {} units, want {}",
                units.len(),
                self.units.len()
            )));
        }
        if let Some(unit) = units.iter().find(|unit| !unit.is_plausible()) {
            return Err(RestoreError(format!("agent.json: unit is {unit:?}, which no training leaves")));
        }
        if !(0.0..=1e6).contains(&state.due) {
            return Err(RestoreError(format!("agent.json: due is {}, want 0 to 1e6", state.due)));
        }
        if state.loss.is_some_and(|loss| !loss.is_finite()) {
            return Err(RestoreError(format!("agent.json: loss is {:?}, want a finite number", state.loss)));
        }
        let mut tries = vec![0; self.tries.len()];
        for &(place, n) in &state.tries {
            match tries.get_mut(usize::try_from(place).unwrap_or(usize::MAX)) {
                Some(tries) if n <= self.known() => *tries = n,
                _ => {
                    return Err(RestoreError(format!(
                        "agent.json: tries holds {n} at {place}, which cannot be"
                    )));
                }
            }
        }
        let mut encoder = self.encoder.clone();
        if !encoder.set_moments(state.moments.clone()) {
            return Err(RestoreError("agent.json: moments do not fit the observations".to_owned()));
        }
        self.replay.restore(file)?;
        self.encoder = encoder;
        self.tries = tries;
        self.critics = critics;
        self.updates = state.updates;
        self.loss = state.loss;
        self.stored = state.stored;
        self.due = state.due;
        self.units = units;
        self.rng = saved::at(state.rng);
        Ok(())
    }

    /// The networks.
    pub fn weights(&self) -> Vec<u8> {
        self.critics.to_bytes()
    }

    /// Every critic's sorted quantiles of c + Z(x, a), of one head.
    pub fn predictions(&self, head: usize, x: &Input) -> Vec<Prediction> {
        let sigma = self.units[head / self.design.n_heads()].sigma();
        let mut predictions = Vec::new();
        let outputs = self.outputs(Which::Online, x);
        for critic in 0..self.config.n_critics {
            for action in 0..self.n_actions {
                let sorted = Self::sorted(self.quantiles(&outputs, critic, head, action));
                let at = |(level, z): (f64, f64)| Prediction {
                    critic,
                    action,
                    level,
                    value: x.collected + z * sigma,
                };
                predictions.extend(eta(self.config.n_quantiles).into_iter().zip(sorted).map(at));
            }
        }
        predictions
    }
}

/// Where observations are vectors or images, ε falls from 1 to its setting over so many steps.
const FIRST_STEPS: f64 = 5000.0;

/// [`Design::early_updates`] for a problem: many where states are few, none where observations are vectors or images, because a
/// network would then fit the first episodes too closely.
pub(crate) fn early_updates(spec: &EnvSpec) -> f64 {
    if matches!(spec.observations, ObservationSpace::Discrete { .. }) { 200.0 } else { 0.0 }
}

/// Rewards in one target. Sums of several are learned faster in long tasks, but they hold what older policies did. Where
/// observations are images this costs more than it brings. Measured, 200,000 steps with 1 and 5: Asterix 7.7 and 1.1, Freeway 46
/// and 31, Breakout 11 and 15 points.
fn n_steps(spec: &EnvSpec) -> usize {
    if spec.observations.planes().is_some() {
        return 1;
    }
    spec.horizon.div_ceil(STEPS_PER_REWARD).min(MOST_STEPS)
}

/// The inputs of waiting lanes.
pub(crate) fn inputs<'a>(waiting: &'a [Waiting<'a>]) -> impl ExactSizeIterator<Item = Input<'a>> {
    waiting.iter().map(|lane| lane.x)
}
