//! Optimistic planning: the probabilities are only known to lie in an L1 ball around nominal ones.
//!
//! ```text
//! 𝓟_h(s,a)  = { p : ‖p − p̂_h(·|s,a)‖₁ ≤ ρ_h(s,a) }
//! ℓ_H(s, y) = cost(y)                               0 for y ≤ 0, rising to 1
//! ℓ_h(s, y) = min_a { A_h(s,a)/λ + min_{p ∈ 𝓟_h(s,a)} Σ p(s') ℓ_{h+1}(s', y − γ^h r) }
//! V_h(s)    = max_a max_{p ∈ 𝓟_h(s,a)} Σ p(s') (γ^h r + V_{h+1}(s')),   A_h(s,a) = V_h(s) − Q_h(s,a)
//! ```
//!
//! With ρ = 0 this is [`super::sweep`]. The inner minimum is found by moving mass: ρ/2 goes to the best successor, taken
//! from the worst ones first (Jaksch, Ortner and Auer, Near-optimal regret bounds for reinforcement learning, 2010). The best
//! successor may be any state, so a row also says what reward lies on the way to a state that was never seen there.
//!
//! A pass also carries b_h(s, y), the expected cost alone under the chosen actions and probabilities. At the root it gives
//! P(R < g) and `E[R]` = V − λ(ℓ − b) of the policy in the model that it believes in, with which the slack of a quantile is
//! spent on the mean as in [`super::threshold`], without a forward pass.
//!
//! Returns live on a lattice. Rewards without a common quantum, or with more than `max_returns` multiples of it between the
//! smallest and the largest return, are rounded down to a coarser lattice.
//!
//! Rows that nobody has tried are many and alike: `shared` distributions are summed once a stage and target.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use bqrl_math::buffer::Buffer;
use bqrl_math::law::{PROBABILITY_TOLERANCE, ReturnLaw};

use super::sweep::Cost;
use crate::evaluate::{Evaluation, Policy};
use crate::model::Outcome;
use crate::returns::quantum;
use crate::trajectory::AugmentedInput;

/// Costs closer than this to 0 or 1 are taken for 0 or 1.
const TRIM: f64 = 1e-15;
/// Another action must be better by this much before it displaces the mean-optimal one.
const TIE: f64 = 1e-14;
/// Costs closer than this, relative to the span of returns, are decided by the mean.
const TIE_PRICE: f64 = 1e-9;
/// 1/λ at which nothing but the mean counts.
const MEAN_ONLY: f64 = 1e30;

/// What is believed of (s, a) at one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct RobustRow {
    /// Seen successors with their nominal probabilities and undiscounted rewards.
    pub outcomes: Vec<Outcome>,
    /// The nominal probability of the action's `shared` distribution; with the outcomes' it sums to 1.
    pub shared: f64,
    /// The undiscounted reward on the way to a successor by `shared` or by optimism, without its `arrival`.
    pub elsewhere: f64,
    /// ρ; from 2 on every distribution is in the ball.
    pub radius: f64,
}

/// Nominal probabilities, how far the truth may lie from them, and rewards.
#[derive(Clone, Debug, PartialEq)]
pub struct RobustModel {
    /// |𝒮|.
    pub n_states: usize,
    /// |𝒜|.
    pub n_actions: usize,
    /// H.
    pub horizon: usize,
    /// γ.
    pub discount: f64,
    /// Start states with their probabilities.
    pub start: Vec<(usize, f64)>,
    /// The states that end an episode on arrival.
    pub terminal: Vec<bool>,
    /// An undiscounted reward for entering a state by `shared` or by optimism, added to `elsewhere`.
    pub arrival: Vec<f64>,
    /// Distributions over next states: one for all actions, or one per action.
    pub shared: Vec<Vec<f64>>,
    /// Rows s · A + a: one kernel for all stages, or one per stage.
    pub kernels: Vec<Vec<RobustRow>>,
}

impl RobustModel {
    fn kernel(&self, stage: usize) -> usize {
        if self.kernels.len() == 1 { 0 } else { stage }
    }

    fn shared_of(&self, action: usize) -> usize {
        if self.shared.len() == 1 { 0 } else { action }
    }

    /// The distinct rewards, rising: those of seen outcomes, and those on the way anywhere.
    fn rewards(&self) -> Vec<f64> {
        let distinct = |mut values: Vec<f64>| {
            values.sort_unstable_by(f64::total_cmp);
            values.dedup();
            values
        };
        let rows = || self.kernels.iter().flatten();
        let elsewhere = distinct(rows().map(|row| row.elsewhere).collect());
        let arrival = distinct(self.arrival.clone());
        let seen = rows().flat_map(|row| row.outcomes.iter().map(|o| o.reward));
        let anywhere = elsewhere.iter().flat_map(|e| arrival.iter().map(move |a| e + a));
        distinct(seen.chain(anywhere).collect())
    }

    fn check(&self) {
        let Self { n_states, n_actions, horizon, .. } = *self;
        assert!(self.terminal.len() == n_states && self.arrival.len() == n_states, "one entry per state");
        assert!(self.kernels.len() == 1 || self.kernels.len() == horizon, "one kernel, or one per stage");
        assert!(
            self.shared.len() == 1 || self.shared.len() == n_actions,
            "one distribution, or one per action"
        );
        assert!(self.shared.iter().all(|p| p.len() == n_states), "a distribution over {n_states} states");
        for rows in &self.kernels {
            assert_eq!(rows.len(), n_states * n_actions, "rows, want S·A");
            for row in rows {
                let sum = row.shared + row.outcomes.iter().map(|o| o.probability).sum::<f64>();
                assert!((sum - 1.0).abs() < 1e-9, "probabilities must sum to 1, got {sum}");
                assert!(
                    row.radius >= 0.0 && row.shared >= 0.0,
                    "radius {}, shared {}",
                    row.radius,
                    row.shared
                );
            }
        }
    }
}

fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)))
}

/// A successor: its ℓ and b, and the nominal probability of going there.
#[derive(Clone, Copy, Debug)]
struct Entry {
    loss: f64,
    below: f64,
    mass: f64,
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Ordering {
        self.loss.total_cmp(&other.loss)
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Entry {}

/// The inner minimum: what is taken off Σ p ℓ, and off Σ p b, by moving ρ/2 to `best` from the entries with the largest ℓ, or
/// less when nothing worse than `best` is left. A heap finds them one by one: a small ρ needs few. `entries` is left empty.
fn move_mass(entries: &mut Vec<Entry>, best: (f64, f64), radius: f64) -> (f64, f64) {
    let mut heap = BinaryHeap::from(std::mem::take(entries));
    let mut left = radius / 2.0;
    let (mut off, mut off_below) = (0.0, 0.0);
    while left > 0.0
        && let Some(worst) = heap.pop()
        && worst.loss > best.0
    {
        let mass = worst.mass.min(left);
        left -= mass;
        off += mass * (worst.loss - best.0);
        off_below += mass * (worst.below - best.1);
    }
    *entries = heap.into_vec();
    entries.clear();
    (off, off_below)
}

/// The risk-neutral plan in the most favourable model of the ball.
#[derive(Clone, Debug)]
pub struct RobustMean {
    /// V_h(s) for stages 0..=H.
    values: Vec<Vec<f64>>,
    /// A_h(s, a) ≥ 0.
    losses: Vec<Vec<f64>>,
    actions: Vec<Vec<u16>>,
}

impl RobustMean {
    /// Plans; with `optimistic` false the nominal probabilities are taken for the truth.
    pub fn new(model: &RobustModel, optimistic: bool) -> Self {
        model.check();
        let RobustModel { n_states, n_actions, horizon, .. } = *model;
        let mut plan = Self {
            values: vec![vec![0.0; n_states]; horizon + 1],
            losses: vec![Vec::new(); horizon],
            actions: vec![Vec::new(); horizon],
        };
        let mut entries = Vec::new();
        for stage in (0..horizon).rev() {
            let discount = model.discount.powi(stage as i32);
            let rows = &model.kernels[model.kernel(stage)];
            let later = &plan.values[stage + 1];
            let there: Vec<f64> = (0..n_states).map(|s| discount * model.arrival[s] + later[s]).collect();
            let (_, best) = range(there.iter().copied());
            let shared: Vec<f64> =
                model.shared.iter().map(|p| p.iter().zip(&there).map(|(p, v)| p * v).sum()).collect();
            let mut means = vec![0.0; n_states * n_actions];
            // Rows that nobody has tried differ in `elsewhere` alone.
            let mut untried: Vec<(usize, u64, f64)> = Vec::new();
            for (index, row) in rows.iter().enumerate() {
                if model.terminal[index / n_actions] {
                    continue;
                }
                let (which, radius) =
                    (model.shared_of(index % n_actions), if optimistic { row.radius } else { 0.0 });
                let elsewhere = discount * row.elsewhere;
                if radius >= 2.0 {
                    means[index] = elsewhere + best;
                    continue;
                }
                let key = (which, radius.to_bits());
                if row.outcomes.is_empty()
                    && let Some(&(.., mean)) = untried.iter().find(|&&(w, r, _)| (w, r) == key)
                {
                    means[index] = elsewhere + mean;
                    continue;
                }
                let value = |o: &Outcome| discount * o.reward + later[o.next];
                let seen: f64 = row.outcomes.iter().map(|o| o.probability * value(o)).sum();
                let mut mean = seen + row.shared * (elsewhere + shared[which]);
                if radius > 0.0 {
                    // Values are costs with the sign turned.
                    let entry = |value: f64, mass| Entry { loss: -value, below: -value, mass };
                    entries.extend(row.outcomes.iter().map(|o| entry(value(o), o.probability)));
                    if row.shared > 0.0 {
                        let distribution = there.iter().zip(&model.shared[which]);
                        entries.extend(distribution.map(|(v, p)| entry(elsewhere + v, row.shared * p)));
                    }
                    let best = -(elsewhere + best);
                    mean += move_mass(&mut entries, (best, best), radius).0;
                }
                if row.outcomes.is_empty() {
                    untried.push((key.0, key.1, mean - elsewhere));
                }
                means[index] = mean;
            }
            let scale = means.iter().fold(0.0f64, |scale, m| scale.max(m.abs()));
            let mut actions = vec![0; n_states];
            for state in (0..n_states).filter(|&s| !model.terminal[s]) {
                let means = &mut means[state * n_actions..(state + 1) * n_actions];
                let mut best = 0;
                for action in 1..n_actions {
                    // Equal means differ by rounding only; the lowest index should win nevertheless.
                    if means[action] > means[best] + 1e-12 * scale {
                        best = action;
                    }
                }
                let top = means[best];
                actions[state] = best as u16;
                plan.values[stage][state] = top;
                for mean in means {
                    *mean = (top - *mean).max(0.0);
                }
            }
            plan.losses[stage] = means;
            plan.actions[stage] = actions;
        }
        plan
    }

    /// V_h(s).
    pub fn value(&self, stage: usize, state: usize) -> f64 {
        self.values[stage][state]
    }

    /// The action that attains it, the lowest index among equals.
    pub fn action(&self, stage: usize, state: usize) -> usize {
        usize::from(self.actions[stage][state])
    }
}

/// ℓ and b over rungs, a row per state: 0 below `low`, 1 from `low + width` on.
#[derive(Clone, Debug, Default)]
struct Band {
    low: i64,
    width: usize,
    loss: Vec<f64>,
    below: Vec<f64>,
}

impl Band {
    fn high(&self) -> i64 {
        self.low + self.width as i64
    }

    fn at(values: &[f64], low: i64, rung: i64) -> f64 {
        match usize::try_from(rung - low) {
            Err(_) => 0.0,
            Ok(cell) => values.get(cell).copied().unwrap_or(1.0),
        }
    }

    fn loss_at(&self, state: usize, rung: i64) -> f64 {
        Self::at(&self.loss[state * self.width..(state + 1) * self.width], self.low, rung)
    }

    fn below_at(&self, state: usize, rung: i64) -> f64 {
        Self::at(&self.below[state * self.width..(state + 1) * self.width], self.low, rung)
    }

    /// `acc[i] += p · row(from + i)`, the row being 0 below its cells and 1 above them.
    fn add(acc: &mut [f64], p: f64, cells: &[f64], low: i64, from: i64) {
        let n = acc.len() as i64;
        let begin = (low - from).clamp(0, n);
        let end = (low + cells.len() as i64 - from).clamp(begin, n);
        let source = (from + begin - low).max(0) as usize;
        let (band, lost) = acc[begin as usize..].split_at_mut((end - begin) as usize);
        for (cell, value) in band.iter_mut().zip(&cells[source.min(cells.len())..]) {
            *cell += p * value;
        }
        for cell in lost {
            *cell += p;
        }
    }

    /// Cuts what is 0, or 1, for all states.
    fn trim(self, n_states: usize) -> Self {
        let Self { low, width, loss, below } = self;
        let column = |cell: usize| (0..n_states).map(move |s| s * width + cell);
        let is = |cell: usize, edge: f64| {
            column(cell).all(|at| (loss[at] - edge).abs() <= TRIM && (below[at] - edge).abs() <= TRIM)
        };
        let from = (0..width).take_while(|&cell| is(cell, 0.0)).count();
        let to = width - (from..width).rev().take_while(|&cell| is(cell, 1.0)).count();
        let cut = |values: &[f64]| -> Vec<f64> {
            (0..n_states).flat_map(|s| &values[s * width + from..s * width + to]).copied().collect()
        };
        Self { low: low + from as i64, width: to - from, loss: cut(&loss), below: cut(&below) }
    }
}

/// The actions of one stage, over the rungs of its band; elsewhere the mean-optimal one.
#[derive(Clone, Debug)]
struct Stage {
    low: i64,
    width: usize,
    cells: Vec<u16>,
}

/// What a pass found.
struct Swept {
    /// ℓ_0 and b_0 of the start distribution, as a band of one state.
    root: Band,
    actions: Arc<Vec<Stage>>,
}

/// A policy that follows a target: y_0 = g, y_{h+1} = y_h − γ^h r.
#[derive(Clone, Debug)]
pub struct RobustPolicy {
    target: f64,
    quantum: f64,
    mean: Arc<RobustMean>,
    /// `None`: the mean-optimal policy.
    actions: Option<Arc<Vec<Stage>>>,
}

impl RobustPolicy {
    /// g.
    pub fn target(&self) -> f64 {
        self.target
    }

    /// The action at x.
    pub fn action(&self, x: &AugmentedInput) -> usize {
        let planned = self.actions.as_ref().and_then(|stages| {
            let stage = &stages[x.stage];
            let rung = ((self.target - x.collected) / self.quantum).round() as i64;
            let cell = usize::try_from(rung - stage.low).ok().filter(|&cell| cell < stage.width)?;
            Some(usize::from(stage.cells[x.state * stage.width + cell]))
        });
        planned.unwrap_or_else(|| self.mean.action(x.stage, x.state))
    }
}

impl Policy for RobustPolicy {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.action(x), 1.0));
    }
}

/// A policy with what it is worth in the model that the planner believes in.
#[derive(Clone, Debug)]
pub struct RobustPlan {
    /// The policy.
    pub policy: RobustPolicy,
    /// The best quantile in the most favourable model.
    pub best_quantile: f64,
    /// P(R < `best_quantile`) of the policy.
    pub below: f64,
    /// `E[R]` of the policy.
    pub mean: f64,
}

/// A model, ready to be planned.
pub struct RobustPlanner<'a> {
    model: &'a RobustModel,
    optimistic: bool,
    mean: Arc<RobustMean>,
    quantum: f64,
    exact: bool,
    /// The smallest and the largest return that the rewards allow.
    range: (f64, f64),
    /// γ^h.
    discounts: Vec<f64>,
}

impl<'a> RobustPlanner<'a> {
    /// Prepares a model; with `optimistic` false the nominal probabilities are taken for the truth. Rewards are rounded
    /// down, to about `grid` rungs, where the returns would have more than `max_returns`.
    pub fn new(model: &'a RobustModel, optimistic: bool, max_returns: usize, grid: usize) -> Self {
        let mean = Arc::new(RobustMean::new(model, optimistic));
        let rewards = model.rewards();
        let discounts: Vec<f64> = (0..model.horizon).map(|stage| model.discount.powi(stage as i32)).collect();
        let (low, high) = range(rewards.iter().copied());
        let stages: f64 = discounts.iter().sum();
        // An episode may end at any stage, so that 0 is always among the rest of a return.
        let range = (low.min(0.0) * stages, high.max(0.0) * stages);
        let span = range.1 - range.0;
        let common = if model.discount == 1.0 { quantum(&rewards) } else { None };
        let common = common.filter(|q| span / q <= max_returns as f64);
        let rounded = if span > 0.0 { span / grid as f64 } else { 1.0 };
        Self {
            model,
            optimistic,
            mean,
            quantum: common.unwrap_or(rounded),
            exact: common.is_some(),
            range,
            discounts,
        }
    }

    /// True unless rewards were rounded.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The rungs between the smallest and the largest return that the rewards allow.
    pub fn n_returns(&self) -> usize {
        ((self.range.1 - self.range.0) / self.quantum).round() as usize + 1
    }

    /// The risk-neutral plan.
    pub fn mean(&self) -> &RobustMean {
        &self.mean
    }

    /// max_π P(R ≥ g) is above 1 − τ for the largest such g: a policy that attains it. Of the distance between its P(R < g)
    /// and τ, the share `slack` is spent on the mean, with at most `refinements` further passes.
    pub fn quantile_policy(&self, tau: f64, slack: f64, refinements: usize) -> RobustPlan {
        let tie = TIE_PRICE / (self.range.1 - self.range.0).max(f64::MIN_POSITIVE);
        let reached = |root: &Band| {
            let below = root.below.iter().take_while(|&&b| b < tau - PROBABILITY_TOLERANCE).count();
            root.low - 1 + below as i64
        };
        let mut swept = self.pass(Ask { optimistic: false, ..self.ask(Cost::Step, tie) });
        let mut rung = reached(&swept.root);
        if self.optimistic {
            // What the nominal model attains, the most favourable one does: lower targets need no optimism, and much higher
            // ones seldom do. The window grows until its upper end is out of reach.
            let (from, top) = (rung - 1, (self.range.1 / self.quantum).ceil() as i64 + 1);
            let mut width = (self.n_returns() as i64 / 64).max(64);
            loop {
                let wanted = Targets { from, to: from + width };
                swept = self.pass(Ask { wanted, ..self.ask(Cost::Step, tie) });
                rung = reached(&swept.root);
                if rung < wanted.to || wanted.to >= top {
                    break;
                }
                width *= 4;
            }
        }
        let priced = |price| {
            self.pass(Ask { wanted: Targets { from: rung, to: rung }, ..self.ask(Cost::Step, price) })
        };
        let target = rung as f64 * self.quantum;
        let max_mean = self.root_mean();
        let plan = |swept: &Swept, price: f64| {
            let (loss, below) = (swept.root.loss_at(0, rung), swept.root.below_at(0, rung));
            let policy = self.policy(&swept.actions, target);
            RobustPlan {
                policy,
                best_quantile: target,
                below,
                mean: max_mean - (loss - below).max(0.0) / price,
            }
        };
        let mut kept = plan(&swept, tie);
        // What P(R < g) may be: the whole of τ with slack = 1, none above the least with slack = 0.
        let allowed = kept.below + slack * (tau - kept.below);
        if slack <= 0.0 || refinements == 0 {
            return kept;
        }
        let attains = |plan: &RobustPlan| plan.below < allowed - PROBABILITY_TOLERANCE;
        let mut misses = plan(&priced(MEAN_ONLY), MEAN_ONLY);
        if attains(&misses) {
            return misses;
        }
        for _ in 0..refinements {
            let lambda = (misses.mean - kept.mean) / (misses.below - kept.below);
            if !(lambda > 0.0 && lambda.is_finite()) {
                break;
            }
            let new = plan(&priced(1.0 / lambda), 1.0 / lambda);
            let utility = |plan: &RobustPlan| plan.mean - lambda * plan.below;
            if utility(&new) <= utility(&kept) + 1e-9 * (self.range.1 - self.range.0) {
                break;
            }
            if attains(&new) {
                kept = new;
            } else {
                misses = new;
            }
        }
        kept
    }

    /// A policy for the buffered quantile. The saddle max_v min_w of [`super::buffered`] is searched over `widths` widths w, a
    /// pass each; its policies, and those for the best v of each width, are candidates, beside that of the point quantile.
    /// The one with the best exact Q_τ^β on the *nominal* model is taken, ties to the larger mean.
    pub fn buffered_policy(&self, buffer: &Buffer, widths: usize) -> RobustPolicy {
        let tie = TIE_PRICE / (self.range.1 - self.range.0).max(f64::MIN_POSITIVE);
        let point = self.quantile_policy(buffer.tau(), 0.0, 0);
        let envelope = self.pass(self.ask(Cost::Step, 0.0)).root;
        // Below the band a target is sure, so that no window need reach further down.
        let lowest = (envelope.low - 1) as f64 * self.quantum;
        let rungs = envelope.low..=envelope.high();
        let span = (envelope.width + 1) as f64 * self.quantum;
        let mut candidates = vec![point.policy];
        let mut least = vec![f64::INFINITY; envelope.width + 1];
        let mut passes = Vec::new();
        for k in 1..=widths {
            let w = span * k as f64 / widths as f64;
            let swept = self.pass(self.ask(Cost::Ramp(w), tie));
            let values: Vec<f64> = rungs
                .clone()
                .map(|rung| {
                    let v = rung as f64 * self.quantum;
                    v - w * (swept.root.loss_at(0, rung) - buffer.lower()) / buffer.beta()
                })
                .collect();
            least.iter_mut().zip(&values).for_each(|(least, value)| *least = least.min(*value));
            let own = argmax(&values);
            candidates.push(self.policy(&swept.actions, lowest + (own + 1) as f64 * self.quantum));
            passes.push(swept);
        }
        let v = lowest + (argmax(&least) + 1) as f64 * self.quantum;
        candidates.extend(passes.iter().map(|swept| self.policy(&swept.actions, v)));
        let value = |policy: &RobustPolicy| {
            let evaluation = self.evaluate(policy);
            (evaluation.law.buffered_quantile(buffer), evaluation.mean)
        };
        let mut best: Option<(RobustPolicy, (f64, f64))> = None;
        for policy in candidates {
            let value = value(&policy);
            let better = best.as_ref().is_none_or(|(_, top)| {
                value.0 > top.0 + 1e-12 * span || (value.0 >= top.0 - 1e-12 * span && value.1 > top.1)
            });
            if better {
                best = Some((policy, value));
            }
        }
        best.expect("the point quantile's policy is a candidate").0
    }

    /// The law of a policy's return on the nominal model (of the rounded return, when rewards were rounded) and its mean.
    pub fn evaluate(&self, policy: &dyn Policy) -> Evaluation {
        let RobustModel { n_states, n_actions, horizon, .. } = *self.model;
        let mut law: Vec<(f64, f64)> = Vec::new();
        let mut mean = 0.0;
        let mut choice = Vec::new();
        let mut now: Vec<Mass> = vec![Mass::default(); n_states];
        for &(state, probability) in &self.model.start {
            now[state].add(0, probability);
        }
        for stage in 0..horizon {
            let rows = &self.model.kernels[self.model.kernel(stage)];
            let mut next: Vec<Mass> = vec![Mass::default(); n_states];
            // Mass that leaves by an action's shared distribution, by rung: it is spread once.
            let mut leaving: Vec<Mass> = vec![Mass::default(); self.model.shared.len()];
            for state in 0..n_states {
                for (rung, mass) in now[state].atoms() {
                    let collected = rung as f64 * self.quantum;
                    choice.clear();
                    policy.decide(&AugmentedInput { stage, state, collected }, &mut choice);
                    for &(action, chosen) in &choice {
                        let row = &rows[state * n_actions + action];
                        for o in &row.outcomes {
                            let share = mass * chosen * o.probability;
                            mean += share * self.discounts[stage] * o.reward;
                            next[o.next].add(rung + self.shift(stage, o.reward), share);
                        }
                        if row.shared > 0.0 {
                            let share = mass * chosen * row.shared;
                            mean += share * self.discounts[stage] * row.elsewhere;
                            leaving[self.model.shared_of(action)]
                                .add(rung + self.shift(stage, row.elsewhere), share);
                        }
                    }
                }
            }
            for (distribution, mass) in self.model.shared.iter().zip(&leaving) {
                for (rung, mass) in mass.atoms() {
                    for (state, &p) in distribution.iter().enumerate().filter(|&(_, &p)| p > 0.0) {
                        mean += mass * p * self.discounts[stage] * self.model.arrival[state];
                        next[state].add(rung + self.shift(stage, self.model.arrival[state]), mass * p);
                    }
                }
            }
            for state in (0..n_states).filter(|&s| self.model.terminal[s]) {
                law.extend(next[state].atoms().map(|(rung, mass)| (rung as f64 * self.quantum, mass)));
                next[state] = Mass::default();
            }
            now = next;
        }
        for mass in &now {
            law.extend(mass.atoms().map(|(rung, mass)| (rung as f64 * self.quantum, mass)));
        }
        let law =
            ReturnLaw::from_atoms_within(law, 1e-9 * self.quantum).expect("mass is conserved: rows sum to 1");
        Evaluation { law, mean }
    }

    fn root_mean(&self) -> f64 {
        self.model.start.iter().map(|&(state, p)| p * self.mean.value(0, state)).sum()
    }

    fn policy(&self, actions: &Arc<Vec<Stage>>, target: f64) -> RobustPolicy {
        RobustPolicy {
            target,
            quantum: self.quantum,
            mean: self.mean.clone(),
            actions: Some(actions.clone()),
        }
    }

    /// How many rungs γ^h r is.
    fn shift(&self, stage: usize, reward: f64) -> i64 {
        let quanta = self.discounts[stage] * reward / self.quantum;
        // A multiple stays one although the division may miss it by rounding.
        (if self.exact { quanta.round() } else { (quanta + 1e-9).floor() }) as i64
    }

    fn cost(&self, cost: Cost, rung: i64) -> f64 {
        match cost {
            Cost::Step => f64::from(u8::from(rung > 0)),
            Cost::Ramp(w) => (rung as f64 * self.quantum / w).clamp(0.0, 1.0),
        }
    }

    /// A pass over all targets in the planner's own model.
    fn ask(&self, cost: Cost, price: f64) -> Ask {
        Ask { cost, price, optimistic: self.optimistic, wanted: Targets::ALL }
    }

    /// One backward pass over all wanted targets at once.
    fn pass(&self, ask: Ask) -> Swept {
        let RobustModel { n_states, horizon, .. } = *self.model;
        let cost = ask.cost;
        let width = if let Cost::Ramp(w) = cost { (w / self.quantum).ceil() as usize } else { 0 };
        let row: Vec<f64> = (0..width).map(|cell| self.cost(cost, 1 + cell as i64)).collect();
        let costs: Vec<f64> = row.iter().copied().cycle().take(width * n_states).collect();
        let over = Band { low: 1, width, loss: costs.clone(), below: costs };
        let mut later = over.clone();
        let one_for_all = self.model.discount == 1.0 && self.model.kernels.len() == 1;
        let shifts: Vec<Shifts> =
            (0..if one_for_all { 1 } else { horizon }).map(|stage| self.shifts(stage)).collect();
        let shifts = |stage: usize| &shifts[if one_for_all { 0 } else { stage }];
        let mut wanted = vec![ask.wanted];
        for stage in 0..horizon {
            wanted.push(wanted[stage].after(shifts(stage).range));
        }
        let mut stages = Vec::with_capacity(horizon);
        for stage in (0..horizon).rev() {
            let (band, actions) = StagePass {
                planner: self,
                stage,
                ask,
                wanted: wanted[stage],
                shifts: shifts(stage),
                later: &later,
                over: &over,
            }
            .run();
            later = band;
            stages.push(actions);
        }
        stages.reverse();
        let starts = &self.model.start;
        let mix = |at: &dyn Fn(usize, i64) -> f64| -> Vec<f64> {
            (later.low..later.high()).map(|rung| starts.iter().map(|&(s, p)| p * at(s, rung)).sum()).collect()
        };
        let root = Band {
            low: later.low,
            width: later.width,
            loss: mix(&|s, rung| later.loss_at(s, rung)),
            below: mix(&|s, rung| later.below_at(s, rung)),
        };
        Swept { root: root.trim(1), actions: Arc::new(stages) }
    }

    fn shifts(&self, stage: usize) -> Shifts {
        let rows = &self.model.kernels[self.model.kernel(stage)];
        let outcomes: Vec<Vec<i64>> = rows
            .iter()
            .map(|row| row.outcomes.iter().map(|o| self.shift(stage, o.reward)).collect())
            .collect();
        let elsewhere: Vec<i64> = rows.iter().map(|row| self.shift(stage, row.elsewhere)).collect();
        let arrival: Vec<i64> = self.model.arrival.iter().map(|&reward| self.shift(stage, reward)).collect();
        let least = elsewhere.iter().min().zip(arrival.iter().min()).map_or(0, |(e, a)| e + a);
        let most = elsewhere.iter().max().zip(arrival.iter().max()).map_or(0, |(e, a)| e + a);
        let range =
            outcomes.iter().flatten().fold((least, most), |(low, high), &by| (low.min(by), high.max(by)));
        Shifts { outcomes, elsewhere, arrival, range }
    }
}

/// What a pass is asked for.
#[derive(Clone, Copy)]
struct Ask {
    cost: Cost,
    /// 1/λ.
    price: f64,
    optimistic: bool,
    /// At the root.
    wanted: Targets,
}

/// The targets at which a pass must be right, as rungs, both ends included.
#[derive(Clone, Copy)]
struct Targets {
    from: i64,
    to: i64,
}

impl Targets {
    const ALL: Self = Self { from: i64::MIN, to: i64::MAX };

    /// What is left of them after a reward in this range.
    fn after(self, (least, most): (i64, i64)) -> Self {
        let end = |at: i64, by: i64| if at == i64::MIN || at == i64::MAX { at } else { at - by };
        Self { from: end(self.from, most), to: end(self.to, least) }
    }

    /// The part of low..high that is wanted. What lies below is taken for safe, what lies above for lost; nobody looks.
    fn cut(self, low: i64, high: i64) -> (i64, i64) {
        let end = self.to.saturating_add(1);
        (low.clamp(self.from, end), high.clamp(self.from, end))
    }
}

fn argmax(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Probability by rung.
#[derive(Clone, Debug, Default)]
struct Mass {
    first: i64,
    cells: Vec<f64>,
}

impl Mass {
    fn add(&mut self, rung: i64, mass: f64) {
        if self.cells.is_empty() {
            self.first = rung;
        }
        if rung < self.first {
            let by = ((self.first - rung) as usize).max(self.cells.len());
            self.cells.splice(0..0, std::iter::repeat_n(0.0, by));
            self.first -= by as i64;
        }
        let cell = (rung - self.first) as usize;
        if cell >= self.cells.len() {
            self.cells.resize(cell + 1, 0.0);
        }
        self.cells[cell] += mass;
    }

    fn atoms(&self) -> impl Iterator<Item = (i64, f64)> + '_ {
        (self.first..).zip(self.cells.iter().copied()).filter(|&(_, mass)| mass > 0.0)
    }
}

/// Rewards of one stage as rungs.
struct Shifts {
    outcomes: Vec<Vec<i64>>,
    elsewhere: Vec<i64>,
    arrival: Vec<i64>,
    /// The least and the most of them.
    range: (i64, i64),
}

/// One stage of a pass.
struct StagePass<'a> {
    planner: &'a RobustPlanner<'a>,
    stage: usize,
    ask: Ask,
    wanted: Targets,
    shifts: &'a Shifts,
    later: &'a Band,
    over: &'a Band,
}

/// What all rows of a stage share: going anywhere, over the rungs left after `elsewhere`.
struct Anywhere {
    /// ℓ and b on arrival, by state.
    there: Band,
    /// The state with the least ℓ, by rung.
    best: Vec<u32>,
    /// States from the largest ℓ to the least, by rung; empty when no row needs it.
    order: Vec<u32>,
    /// Per shared distribution: its expected ℓ and b, by rung.
    means: Vec<(Vec<f64>, Vec<f64>)>,
    /// Rows that nobody has tried, by (distribution, radius): their ℓ and b.
    untried: Vec<Untried>,
}

/// ℓ and b, by rung, of rows without data that have a distribution and a radius in common.
struct Untried {
    which: usize,
    radius: f64,
    loss: Vec<f64>,
    below: Vec<f64>,
}

impl StagePass<'_> {
    fn run(&self) -> (Band, Stage) {
        let RobustModel { n_states, n_actions, ref terminal, .. } = *self.planner.model;
        let rows = &self.planner.model.kernels[self.planner.model.kernel(self.stage)];
        let mut anywhere = self.anywhere(rows);
        let (low, high) = self.reach(rows, &anywhere);
        let (low, high) = self.wanted.cut(low, high);
        let width = (high - low) as usize;
        let mut band =
            Band { low, width, loss: vec![1.0; n_states * width], below: vec![1.0; n_states * width] };
        let mut cells = vec![0; n_states * width];
        let (mut loss, mut below, mut entries) = (vec![0.0; width], vec![0.0; width], Vec::new());
        for (state, &is_terminal) in terminal.iter().enumerate() {
            let cut = state * width..(state + 1) * width;
            if is_terminal {
                for (cell, rung) in (low..high).enumerate() {
                    let cost = Band::at(&self.over.loss[..self.over.width], self.over.low, rung);
                    (band.loss[cut.start + cell], band.below[cut.start + cell]) = (cost, cost);
                }
                continue;
            }
            let favourite = self.planner.mean.action(self.stage, state);
            cells[cut.clone()].fill(favourite as u16);
            let others = (0..n_actions).filter(|&a| a != favourite);
            for action in std::iter::once(favourite).chain(others) {
                let index = state * n_actions + action;
                let price = match self.planner.mean.losses[self.stage][index] {
                    _ if action == favourite => 0.0,
                    lost => (self.ask.price * lost).min(f64::MAX),
                };
                if price >= 1.0 {
                    continue;
                }
                self.row(index, &rows[index], low, &mut anywhere, &mut loss, &mut below, &mut entries);
                let (best, below_best) = (&mut band.loss[cut.clone()], &mut band.below[cut.clone()]);
                let chosen = &mut cells[cut.clone()];
                if action == favourite {
                    best.copy_from_slice(&loss);
                    below_best.copy_from_slice(&below);
                    continue;
                }
                for cell in 0..width {
                    if loss[cell] + price < best[cell] - TIE {
                        best[cell] = loss[cell] + price;
                        below_best[cell] = below[cell];
                        chosen[cell] = action as u16;
                    }
                }
            }
        }
        (band.trim(n_states), Stage { low, width, cells })
    }

    fn radius(&self, row: &RobustRow) -> f64 {
        if self.ask.optimistic { row.radius } else { 0.0 }
    }

    fn anywhere(&self, rows: &[RobustRow]) -> Anywhere {
        let RobustModel { n_states, n_actions, ref shared, .. } = *self.planner.model;
        let (later, arrival) = (self.later, &self.shifts.arrival);
        let low = later.low + arrival.iter().min().expect("there are states");
        let high = later.high() + arrival.iter().max().expect("there are states");
        let width = (high - low) as usize;
        let mut there =
            Band { low, width, loss: vec![0.0; n_states * width], below: vec![0.0; n_states * width] };
        for (state, &shift) in arrival.iter().enumerate() {
            let (to, from) =
                (state * width..(state + 1) * width, state * later.width..(state + 1) * later.width);
            let begin = low - shift;
            Band::add(&mut there.loss[to.clone()], 1.0, &later.loss[from.clone()], later.low, begin);
            Band::add(&mut there.below[to], 1.0, &later.below[from], later.low, begin);
        }
        let needed = |test: &dyn Fn(&RobustRow) -> bool| rows.iter().any(test);
        let mut best = Vec::new();
        if self.ask.optimistic && needed(&|row| row.radius > 0.0) {
            best = vec![0; width];
            for state in 1..n_states {
                for (cell, best) in best.iter_mut().enumerate() {
                    if there.loss[state * width + cell] < there.loss[*best as usize * width + cell] {
                        *best = state as u32;
                    }
                }
            }
        }
        let mut order = Vec::new();
        if needed(&|row| row.shared > 0.0 && self.radius(row) > 0.0 && self.radius(row) < 2.0) {
            let mut states: Vec<u32> = (0..n_states as u32).collect();
            for cell in 0..width {
                let at = |&s: &u32| there.loss[s as usize * width + cell];
                // Sorted from the order of the rung before, which is nearly right.
                states.sort_by(|a, b| at(b).total_cmp(&at(a)));
                order.extend_from_slice(&states);
            }
        }
        let used = |which: usize| {
            rows.iter()
                .enumerate()
                .any(|(i, row)| row.shared > 0.0 && (shared.len() == 1 || i % n_actions == which))
        };
        let means = (0..shared.len())
            .map(|which| {
                let (mut loss, mut below) = (vec![0.0; width], vec![0.0; width]);
                if used(which) {
                    for (state, &p) in shared[which].iter().enumerate().filter(|&(_, &p)| p > 0.0) {
                        let cut = state * width..(state + 1) * width;
                        Band::add(&mut loss, p, &there.loss[cut.clone()], low, low);
                        Band::add(&mut below, p, &there.below[cut], low, low);
                    }
                }
                (loss, below)
            })
            .collect();
        Anywhere { there, best, order, means, untried: Vec::new() }
    }

    /// The rungs at which some row is neither safe nor lost.
    fn reach(&self, rows: &[RobustRow], anywhere: &Anywhere) -> (i64, i64) {
        let (later, there) = (self.later, &anywhere.there);
        let (mut low, mut high) = (self.over.low, self.over.high());
        for (index, row) in rows.iter().enumerate() {
            if self.planner.model.terminal[index / self.planner.model.n_actions] {
                continue;
            }
            for shift in &self.shifts.outcomes[index] {
                (low, high) = (low.min(later.low + shift), high.max(later.high() + shift));
            }
            if row.shared > 0.0 || self.radius(row) > 0.0 {
                let shift = self.shifts.elsewhere[index];
                (low, high) = (low.min(there.low + shift), high.max(there.high() + shift));
            }
        }
        (low, high)
    }

    /// ℓ and b of one row, over the rungs from `low` on.
    #[allow(clippy::too_many_arguments)] // The buffers are lent so that nothing is allocated per row.
    fn row(
        &self,
        index: usize,
        row: &RobustRow,
        low: i64,
        anywhere: &mut Anywhere,
        loss: &mut [f64],
        below: &mut [f64],
        entries: &mut Vec<Entry>,
    ) {
        let (later, radius) = (self.later, self.radius(row));
        let which = self.planner.model.shared_of(index % self.planner.model.n_actions);
        let elsewhere = low - self.shifts.elsewhere[index];
        loss.fill(0.0);
        below.fill(0.0);
        if row.outcomes.is_empty() && radius > 0.0 {
            let first = anywhere.there.low;
            let (l, b) = self.untried(which, radius, anywhere, entries);
            Band::add(loss, 1.0, l, first, elsewhere);
            Band::add(below, 1.0, b, first, elsewhere);
            return;
        }
        if row.shared > 0.0 {
            let (l, b) = &anywhere.means[which];
            Band::add(loss, row.shared, l, anywhere.there.low, elsewhere);
            Band::add(below, row.shared, b, anywhere.there.low, elsewhere);
        }
        for (o, shift) in row.outcomes.iter().zip(&self.shifts.outcomes[index]) {
            let cut = o.next * later.width..(o.next + 1) * later.width;
            Band::add(loss, o.probability, &later.loss[cut.clone()], later.low, low - shift);
            Band::add(below, o.probability, &later.below[cut], later.low, low - shift);
        }
        if radius > 0.0 {
            for cell in 0..loss.len() {
                if loss[cell] <= TRIM {
                    continue;
                }
                let rung = low + cell as i64;
                entries.extend(row.outcomes.iter().zip(&self.shifts.outcomes[index]).map(|(o, shift)| {
                    Entry {
                        loss: later.loss_at(o.next, rung - shift),
                        below: later.below_at(o.next, rung - shift),
                        mass: o.probability,
                    }
                }));
                let shared = (row.shared > 0.0).then_some((which, row.shared));
                let moved = self.move_at(elsewhere + cell as i64, radius, shared, anywhere, entries);
                loss[cell] = (loss[cell] - moved.0).max(0.0);
                below[cell] = (below[cell] - moved.1).max(0.0);
            }
        }
    }

    /// A row without data: its shared distribution, with the most favourable ρ/2 moved. Made once for all such rows.
    fn untried<'b>(
        &self,
        which: usize,
        radius: f64,
        anywhere: &'b mut Anywhere,
        entries: &mut Vec<Entry>,
    ) -> (&'b [f64], &'b [f64]) {
        let known = anywhere.untried.iter().position(|u| u.which == which && u.radius == radius);
        let at = known.unwrap_or_else(|| {
            let (mut loss, mut below) = anywhere.means[which].clone();
            for cell in 0..loss.len() {
                let rung = anywhere.there.low + cell as i64;
                let moved = self.move_at(rung, radius, Some((which, 1.0)), anywhere, entries);
                loss[cell] = (loss[cell] - moved.0).max(0.0);
                below[cell] = (below[cell] - moved.1).max(0.0);
            }
            anywhere.untried.push(Untried { which, radius, loss, below });
            anywhere.untried.len() - 1
        });
        let Untried { loss, below, .. } = &anywhere.untried[at];
        (loss, below)
    }

    /// How much the most favourable probabilities of the ball take off ℓ and b at a rung (after `elsewhere`), given the seen
    /// outcomes there and the weight of a shared distribution.
    fn move_at(
        &self,
        rung: i64,
        radius: f64,
        shared: Option<(usize, f64)>,
        anywhere: &Anywhere,
        entries: &mut Vec<Entry>,
    ) -> (f64, f64) {
        let (there, n_states) = (&anywhere.there, self.planner.model.n_states);
        let cell = usize::try_from(rung - there.low).ok();
        let best = match cell {
            None => (0.0, 0.0),
            Some(cell) if cell >= there.width => (1.0, 1.0),
            Some(cell) => {
                let at = anywhere.best[cell] as usize * there.width + cell;
                (there.loss[at], there.below[at])
            }
        };
        if let Some((which, weight)) = shared {
            let distribution = &self.planner.model.shared[which];
            let inside = cell.filter(|&cell| cell < there.width);
            if let Some(cell) = inside {
                // From the worst on, no more than can be moved; with every distribution in the ball, all of it.
                let states = anywhere.order.get(cell * n_states..(cell + 1) * n_states);
                let mut left = radius / 2.0;
                let mut take = |state: usize| {
                    let (at, mass) = (state * there.width + cell, weight * distribution[state]);
                    if mass > 0.0 && left > 0.0 {
                        left -= mass;
                        entries.push(Entry { loss: there.loss[at], below: there.below[at], mass });
                    }
                };
                match states {
                    Some(states) => states.iter().for_each(|&s| take(s as usize)),
                    None => (0..n_states).for_each(take),
                }
            }
        }
        move_mass(entries, best, radius)
    }
}
