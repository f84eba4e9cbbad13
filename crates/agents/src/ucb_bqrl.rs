//! UCB-BQRL: optimistic planning for a quantile in a model that is counted.
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
//! reconstruction (docs/agents/ucb-bqrl.md says of what). The agent knows the horizon, and of the problem only what its spec
//! tells: rewards r(s,a) or r(s') and terminal states where it names them. Where it does not, a reward is what was seen
//! with (s, a, s'), an unseen one is the largest that is possible, and a state is terminal once an episode ended in it.
//!
//! Ours: the prior Q_a, and `slack`: where P(R < g) is below τ the behaviour spends that share of the difference on the mean;
//! the output keeps it against the error of P̂.

use bqrl_math::buffer::Buffer;
use bqrl_mdp::env::{EnvSpec, KnownRewards};
use bqrl_mdp::model::Outcome;
use bqrl_mdp::plan::robust::{RobustModel, RobustPlanner, RobustPolicy, RobustRow};
use bqrl_mdp::trajectory::{AugmentedInput, End};
use bqrl_nn::UpdateError;
use serde::{Deserialize, Serialize};

use crate::experience::arrays::{self, Array, Arrays};
use crate::experience::saved;
use crate::{
    Agent, AgentError, Input, OutputPolicy, Part, RestoreError, Transition, n_states, not_negative, require,
    state,
};

/// Every setting but τ and β.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// c: the factor on the confidence radius; 0 trusts the counts.
    pub radius_scale: f64,
    /// δ in the radius.
    pub delta: f64,
    /// One table of counts for all stages, where the problem is known to be the same at all of them, or one per stage.
    pub stationary: bool,
    /// What is planned for.
    pub objective: Objective,
    /// Which policy the agent gives away.
    pub output: Output,
    /// What is believed of the successors of a pair before it is tried.
    pub prior: Prior,
    /// κ: how many observations the prior counts for.
    pub prior_strength: f64,
    /// The share of a quantile's slack that the behaviour spends on the mean.
    pub slack: f64,
    /// Episodes after which a plan is renewed though no count has doubled; 0 waits for a count.
    pub replan_every: usize,
    /// Returns that a plan tells apart; rewards are rounded down where there are more.
    pub max_returns: usize,
}

/// What is planned for.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Objective {
    /// Q_τ.
    Point,
    /// Q_τ^β.
    Buffered,
}

/// Which policy the agent gives away.
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
    /// Where the action led from other states: empirical Bayes over a common next-state distribution.
    Pooled,
    /// How far the action led from other states, as a difference of state numbers.
    Shifted,
    /// Whichever of the latter two predicts rows better from one another.
    Adaptive,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        not_negative("radius_scale", self.radius_scale)?;
        require("delta", self.delta > 0.0 && self.delta < 1.0, "lie in (0, 1)", &self.delta)?;
        not_negative("prior_strength", self.prior_strength)?;
        require("slack", (0.0..=1.0).contains(&self.slack), "lie in [0, 1]", &self.slack)?;
        require("max_returns", self.max_returns >= 2, "be at least 2", &self.max_returns)
    }
}

/// The counts of one (s, a).
#[derive(Clone, Debug, Default, PartialEq)]
struct Row {
    n: u64,
    seen: Vec<Seen>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    next: u32,
    /// Undiscounted.
    reward: f64,
    count: u64,
}

/// N, and what else was seen.
#[derive(Clone, Debug, PartialEq)]
struct Counts {
    /// One kernel, or one per stage; rows s · A + a.
    kernels: Vec<Vec<Row>>,
    starts: Vec<u64>,
    terminal: Vec<bool>,
    /// Episodes begun.
    episodes: u64,
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
    /// An upper bound on a reward.
    top: f64,
    counts: Counts,
    /// The counts that the present plan was made from.
    planned: Counts,
    behaviour: RobustPolicy,
    greedy: RobustPolicy,
    plans: u64,
}

/// What [`Agent::save`] keeps beside the counts.
#[derive(Deserialize, Serialize)]
struct State {
    plans: u64,
}

impl UcbBqrl {
    /// An agent that has seen nothing, for one level.
    pub fn new(config: Config, buffer: Buffer, spec: &EnvSpec) -> Result<Self, AgentError> {
        config.check()?;
        let n_states = n_states("ucb-bqrl", spec)?;
        let Some((_, top)) = spec.reward_bounds else {
            let observations = "rewards without bounds".to_owned();
            return Err(AgentError::NotTabular {
                algo: "ucb-bqrl",
                problem: spec.name.clone(),
                observations,
            });
        };
        let kernels = if config.stationary && spec.stationary { 1 } else { spec.horizon };
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
            top,
            planned: counts.clone(),
            counts,
            behaviour,
            greedy,
            plans: 1,
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
    fn begin_episode(&mut self, _episode: usize) {
        self.counts.episodes += 1;
    }

    fn act(&mut self, x: &Input) -> usize {
        if x.stage == 0 {
            self.counts.starts[state(x)] += 1;
        }
        self.behaviour.action(&augmented(x))
    }

    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError> {
        let Transition { x, action, reward, next, end } = transition;
        let reward = reward / self.discount.powi(x.stage as i32);
        let kernel = x.stage.min(self.counts.kernels.len() - 1);
        let row = &mut self.counts.kernels[kernel][state(x) * self.n_actions + action];
        let next = state(next);
        row.n += 1;
        // A reward that was discounted and restored may miss itself by rounding.
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
        // Between episodes, and at once: what is given away is never behind what is known.
        let since = self.counts.episodes - self.planned.episodes;
        let due = self.config.replan_every > 0 && since >= self.config.replan_every as u64;
        if end.is_over() && (due || self.has_doubled()) {
            self.plan();
        }
        Ok(())
    }

    fn output(&self, _: &[Buffer]) -> Vec<Box<dyn OutputPolicy + '_>> {
        vec![Box::new(|x: &Input| self.greedy.action(&augmented(x)))]
    }

    fn is_stochastic(&self) -> bool {
        false
    }

    /// Plans made.
    fn updates(&self) -> u64 {
        self.plans
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
            Counts::read(&bytes, &self.counts, self.n_states).map_err(|error| saved::wrong(name, &error))
        };
        let (now, planned) = (counts("counts.safetensors")?, counts("planned.safetensors")?);
        let state: State = saved::json("agent.json", file)?;
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

/// How counts become a model and a plan.
struct Beliefs<'a> {
    config: &'a Config,
    n_states: usize,
    n_actions: usize,
    horizon: usize,
    discount: f64,
    known_rewards: Option<&'a KnownRewards>,
    top: f64,
}

impl Beliefs<'_> {
    /// ρ.
    fn radius(&self, n: u64, episodes: u64) -> f64 {
        let (s, a, h) = (self.n_states as f64, self.n_actions as f64, self.horizon as f64);
        let t = episodes as f64 + 1.0;
        let log = s * std::f64::consts::LN_2 + (2.0 * s * a * h * t / self.config.delta).ln();
        (self.config.radius_scale * (2.0 * log / n.max(1) as f64).sqrt()).min(2.0)
    }

    /// P̂, ρ and the rewards.
    fn model(&self, counts: &Counts) -> RobustModel {
        let (of_action, arrival) = match self.known_rewards {
            Some(KnownRewards::OfAction(r)) => (Some(r), vec![0.0; self.n_states]),
            Some(KnownRewards::OfNext(r)) => (None, r.clone()),
            None => (None, vec![0.0; self.n_states]),
        };
        // What lies on the way to a state that was not seen there: known, or the most that is possible.
        let elsewhere = |row: usize| match self.known_rewards {
            Some(KnownRewards::OfAction(r)) => r[row],
            Some(KnownRewards::OfNext(_)) => 0.0,
            None => self.top,
        };
        let reward = |row: usize, seen: &Seen| match self.known_rewards {
            Some(KnownRewards::OfAction(_)) => of_action.map_or(0.0, |r| r[row]),
            Some(KnownRewards::OfNext(r)) => r[seen.next as usize],
            None => seen.reward,
        };
        let prior = self.prior(counts);
        let kernel = |rows: &Vec<Row>| {
            let row = |(index, row): (usize, &Row)| {
                let (state, prior) = (index / self.n_actions, &prior[index % self.n_actions]);
                // Where nothing was seen the prior is all there is, however weak.
                let kappa = if row.n == 0 { 1.0 } else { self.config.prior_strength };
                let total = row.n as f64 + kappa;
                let mut outcomes: Vec<Outcome> = row
                    .seen
                    .iter()
                    .map(|seen| Outcome {
                        probability: seen.count as f64 / total,
                        next: seen.next as usize,
                        reward: reward(index, seen),
                    })
                    .collect();
                let mut shared = kappa / total;
                let moves = prior.moves(state, self.n_states);
                if !moves.is_empty() {
                    for (next, p) in moves {
                        let unseen = Seen { next: next as u32, reward: self.top, count: 0 };
                        let reward = reward(index, &unseen);
                        outcomes.push(Outcome { probability: shared * p, next, reward });
                    }
                    shared = 0.0;
                }
                let radius = self.radius(row.n, counts.episodes);
                RobustRow { outcomes, shared, elsewhere: elsewhere(index), radius }
            };
            rows.iter().enumerate().map(row).collect()
        };
        let shared = prior.iter().map(|prior| prior.shared.clone()).collect();
        RobustModel {
            n_states: self.n_states,
            n_actions: self.n_actions,
            horizon: self.horizon,
            discount: self.discount,
            start: self.start(counts),
            terminal: counts.terminal.clone(),
            arrival,
            shared,
            kernels: counts.kernels.iter().map(kernel).collect(),
        }
    }

    /// Where episodes began; before the first, anywhere.
    fn start(&self, counts: &Counts) -> Vec<(usize, f64)> {
        let begun: u64 = counts.starts.iter().sum();
        if begun == 0 {
            let open: Vec<usize> = (0..self.n_states).filter(|&s| !counts.terminal[s]).collect();
            return open.iter().map(|&s| (s, 1.0 / open.len() as f64)).collect();
        }
        let share = |(s, &n): (usize, &u64)| (n > 0).then_some((s, n as f64 / begun as f64));
        counts.starts.iter().enumerate().filter_map(share).collect()
    }

    /// Q_a of every action: as set, or of the kind by which rows are better predicted from one another.
    fn prior(&self, counts: &Counts) -> Vec<PriorOf> {
        let pooled = Pooled::new(self.n_states, self.n_actions, counts);
        // How strongly rows resemble one another is not known either: each kind is judged at its best.
        let evidence = |kind: Kind| {
            let at = |strength: f64| (0..self.n_actions).map(move |a| (a, strength));
            let sum =
                |strength: f64| at(strength).map(|(a, k)| pooled.evidence(counts, a, kind, k)).sum::<f64>();
            STRENGTHS.iter().map(|&strength| sum(strength)).fold(f64::NEG_INFINITY, f64::max)
        };
        let kind = match self.config.prior {
            Prior::Uniform => Kind::Uniform,
            Prior::Shifted => Kind::Shifted,
            Prior::Adaptive if evidence(Kind::Shifted) > evidence(Kind::Pooled) => Kind::Shifted,
            Prior::Pooled | Prior::Adaptive => Kind::Pooled,
        };
        (0..self.n_actions).map(|action| pooled.prior(action, kind)).collect()
    }

    /// The behaviour and the output.
    fn plan(&self, counts: &Counts, buffer: &Buffer) -> (RobustPolicy, RobustPolicy) {
        let Config { objective, output, slack, max_returns, .. } = *self.config;
        let model = self.model(counts);
        let grid = ROUNDED_RETURNS.min(max_returns);
        let optimistic = RobustPlanner::new(&model, self.config.radius_scale > 0.0, max_returns, grid);
        let nominal = || RobustPlanner::new(&model, false, max_returns, grid);
        match objective {
            Objective::Point => {
                let behaviour = optimistic.quantile_policy(buffer.tau(), slack, REFINEMENTS).policy;
                let keeping = |planner: &RobustPlanner| planner.quantile_policy(buffer.tau(), 0.0, 0).policy;
                let greedy = match output {
                    Output::Optimistic => keeping(&optimistic),
                    Output::Nominal => keeping(&nominal()),
                };
                (behaviour, greedy)
            }
            Objective::Buffered => {
                let behaviour = optimistic.buffered_policy(buffer, N_WIDTHS);
                let greedy = match output {
                    Output::Optimistic => behaviour.clone(),
                    Output::Nominal => nominal().buffered_policy(buffer, N_WIDTHS),
                };
                (behaviour, greedy)
            }
        }
    }
}

/// The strengths at which kinds of prior are compared.
const STRENGTHS: [f64; 5] = [0.25, 1.0, 4.0, 16.0, 64.0];
/// Rungs of a plan whose rewards have to be rounded.
const ROUNDED_RETURNS: usize = 2048;
/// Window widths that a buffered plan tries, a pass each.
const N_WIDTHS: usize = 8;
/// Further passes that a plan may make to spend its slack.
const REFINEMENTS: usize = 6;

/// What the rows of an action have in common.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Uniform,
    Pooled,
    Shifted,
}

/// Q_a.
struct PriorOf {
    /// Over next states.
    shared: Vec<f64>,
    /// Over differences of state numbers, d at d + S − 1; empty for other kinds. It goes before `shared`.
    shifted: Vec<f64>,
}

impl PriorOf {
    /// The successors that a shifted prior gives a row; empty for other kinds, and where no shift is possible.
    fn moves(&self, state: usize, n_states: usize) -> Vec<(usize, f64)> {
        if self.shifted.is_empty() {
            return Vec::new();
        }
        let of = |next: usize| (next, self.shifted[next + n_states - 1 - state]);
        let mut moves: Vec<(usize, f64)> = (0..n_states).map(of).filter(|&(_, p)| p > 0.0).collect();
        let sum: f64 = moves.iter().map(|&(_, p)| p).sum();
        for (_, p) in &mut moves {
            *p /= sum;
        }
        moves
    }
}

/// Counts summed over states, per action.
struct Pooled {
    n_states: usize,
    n_actions: usize,
    total: Vec<f64>,
    /// By next state, and by difference of state numbers.
    next: Vec<Vec<f64>>,
    shift: Vec<Vec<f64>>,
}

impl Pooled {
    fn new(n_states: usize, n_actions: usize, counts: &Counts) -> Self {
        let mut pooled = Self {
            n_states,
            n_actions,
            total: vec![0.0; n_actions],
            next: vec![vec![0.0; n_states]; n_actions],
            shift: vec![vec![0.0; 2 * n_states - 1]; n_actions],
        };
        for (index, row) in counts.kernels.iter().flat_map(|rows| rows.iter().enumerate()) {
            let (state, action) = (index / n_actions, index % n_actions);
            pooled.total[action] += row.n as f64;
            for seen in &row.seen {
                pooled.next[action][seen.next as usize] += seen.count as f64;
                pooled.shift[action][seen.next as usize + n_states - 1 - state] += seen.count as f64;
            }
        }
        pooled
    }

    fn prior(&self, action: usize, kind: Kind) -> PriorOf {
        let total = self.total[action];
        let share = |counts: &[f64]| counts.iter().map(|n| n / total).collect::<Vec<f64>>();
        let uniform = vec![1.0 / self.n_states as f64; self.n_states];
        match kind {
            Kind::Pooled if total > 0.0 => PriorOf { shared: share(&self.next[action]), shifted: Vec::new() },
            Kind::Shifted if total > 0.0 => PriorOf { shared: uniform, shifted: share(&self.shift[action]) },
            _ => PriorOf { shared: uniform, shifted: Vec::new() },
        }
    }

    /// How well the rows of an action are predicted, each from all others: Σ_s ln P(N(s,a,·) | Dirichlet(κ Q_{−s})). Q is
    /// smoothed by one observation that is uniform over the states, so that nothing is impossible.
    fn evidence(&self, counts: &Counts, action: usize, kind: Kind, strength: f64) -> f64 {
        let s = self.n_states as f64;
        let mut sum = 0.0;
        for rows in &counts.kernels {
            for state in 0..self.n_states {
                let row = &rows[state * self.n_actions + action];
                if row.n == 0 {
                    continue;
                }
                sum += ln_gamma(strength) - ln_gamma(strength + row.n as f64);
                let others = self.total[action] - row.n as f64;
                for seen in &row.seen {
                    let (next, n) = (seen.next as usize, seen.count as f64);
                    let alike = match kind {
                        Kind::Uniform => others / s,
                        Kind::Pooled => self.next[action][next] - n,
                        Kind::Shifted => self.shift[action][next + self.n_states - 1 - state] - n,
                    };
                    let base = strength * (alike + 1.0 / s) / (others + 1.0);
                    sum += ln_gamma(base + n) - ln_gamma(base);
                }
            }
        }
        sum
    }
}

/// ln Γ(x) for x > 0, by Stirling's series after stepping up to x ≥ 10; the error is below 1e-10.
fn ln_gamma(x: f64) -> f64 {
    let (mut x, mut steps) = (x, 1.0);
    while x < 10.0 {
        steps *= x;
        x += 1.0;
    }
    let inverse = 1.0 / (x * x);
    let series = (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse / 1260.0)) / x;
    (x - 0.5) * x.ln() - x + 0.5 * (2.0 * std::f64::consts::PI).ln() + series - steps.ln()
}

impl Counts {
    fn arrays(&self) -> Vec<Array> {
        let n_rows = self.kernels[0].len();
        let (mut row, mut next, mut reward, mut count) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for (kernel, rows) in self.kernels.iter().enumerate() {
            for (index, counted) in rows.iter().enumerate() {
                for seen in &counted.seen {
                    row.push((kernel * n_rows + index) as u64);
                    next.push(seen.next);
                    reward.push(seen.reward);
                    count.push(seen.count);
                }
            }
        }
        let terminal: Vec<u8> = self.terminal.iter().map(|&t| u8::from(t)).collect();
        vec![
            Array::u64("row", &row),
            Array::u32("next", &next),
            Array::f64("reward", &reward),
            Array::u64("count", &count),
            Array::u64("starts", &self.starts),
            Array::u8("terminal", &terminal),
            Array::u64("episodes", &[self.episodes]),
        ]
    }

    /// Reads counts of the same shape as `like`.
    fn read(bytes: &[u8], like: &Self, n_states: usize) -> Result<Self, RestoreError> {
        let file = Arrays::read(bytes)?;
        let n_rows = like.kernels[0].len();
        let mut kernels = vec![vec![Row::default(); n_rows]; like.kernels.len()];
        let (row, next) = (file.u64("row")?, file.u32("next")?);
        let (reward, count) = (file.f64("reward")?, file.u64("count")?);
        let misfit = || RestoreError("the counts are of another problem".to_owned());
        if [next.len(), reward.len(), count.len()].iter().any(|&n| n != row.len()) {
            return Err(misfit());
        }
        for (((row, next), reward), count) in row.into_iter().zip(next).zip(reward).zip(count) {
            let index = row as usize;
            let place = kernels.get_mut(index / n_rows).ok_or_else(misfit)?;
            if next as usize >= n_states {
                return Err(misfit());
            }
            let place = &mut place[index % n_rows];
            place.n += count;
            place.seen.push(Seen { next, reward, count });
        }
        let starts = file.u64("starts")?;
        let terminal: Vec<bool> = file.u8("terminal")?.iter().map(|&t| t != 0).collect();
        if starts.len() != n_states || terminal.len() != n_states {
            return Err(misfit());
        }
        Ok(Self { kernels, starts, terminal, episodes: file.one_u64("episodes")? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ln_gamma_is_the_logarithm_of_factorials() {
        // Γ(1) = Γ(2) = 1, Γ(5) = 24, Γ(½) = √π.
        for (x, value) in [(1.0, 0.0), (2.0, 0.0), (5.0, 24f64.ln()), (0.5, 0.5 * std::f64::consts::PI.ln())]
        {
            assert!((ln_gamma(x) - value).abs() < 1e-10, "{x}: {}", ln_gamma(x));
        }
        // Γ(x + 1) = x Γ(x) far from the step as well.
        assert!((ln_gamma(1001.0) - ln_gamma(1000.0) - 1000f64.ln()).abs() < 1e-10);
    }

    /// Four states, one action; transitions (s, s').
    fn counts(seen: &[(usize, usize)]) -> Counts {
        let mut rows = vec![Row::default(); 4];
        for &(state, next) in seen {
            rows[state].n += 1;
            rows[state].seen.push(Seen { next: next as u32, reward: 0.0, count: 1 });
        }
        Counts { kernels: vec![rows], starts: vec![0; 4], terminal: vec![false; 4], episodes: 0 }
    }

    #[test]
    fn evidence_matches_hand_computation() {
        // s = 0 → 3 and s = 1 → 3, κ = 1. Each row has one observation, so that its probability is Q(s'):
        //   pooled: the other row says 3, smoothed (1 + 1/4)/(1 + 1) = 5/8 each
        //   shifted: the other row says another distance, (0 + 1/4)/2 = 1/8 each; uniform: 1/4 each
        let counts = counts(&[(0, 3), (1, 3)]);
        let pooled = Pooled::new(4, 1, &counts);
        for (kind, p) in [(Kind::Pooled, 5.0 / 8.0), (Kind::Shifted, 1.0 / 8.0), (Kind::Uniform, 0.25)] {
            let evidence = pooled.evidence(&counts, 0, kind, 1.0);
            assert!((evidence - 2.0 * f64::ln(p)).abs() < 1e-9, "{kind:?}: {evidence}");
        }
    }

    #[test]
    fn a_shifted_prior_keeps_to_the_states_that_there_are() {
        // Steps of +1 (twice) and +2 (once): from state 1 both are possible, from 2 only +1, from 3 neither.
        let counts = counts(&[(0, 1), (1, 2), (0, 2)]);
        let prior = Pooled::new(4, 1, &counts).prior(0, Kind::Shifted);
        let moves = prior.moves(1, 4);
        assert_eq!(moves.iter().map(|m| m.0).collect::<Vec<_>>(), [2, 3]);
        assert!((moves[0].1 - 2.0 / 3.0).abs() < 1e-12 && (moves[1].1 - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(prior.moves(2, 4), [(3, 1.0)]);
        assert_eq!(prior.moves(3, 4), []);
    }
}
