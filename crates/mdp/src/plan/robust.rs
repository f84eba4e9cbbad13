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
//! successor may be any state, so a row also gives the reward for a successor that was never seen there.
//!
//! A pass also carries b_h(s, y), the expected cost alone under the chosen actions and probabilities. At the root it gives
//! P(R < g) and `E[R]` = V − λ(ℓ − b) of the policy in the optimistic model. With these the slack of a quantile is used to
//! raise the mean as in [`super::threshold`], without a forward pass.
//!
//! Returns are on a lattice. Rewards without a common quantum, or with more than `max_returns` multiples of it between the
//! smallest and the largest return, are rounded down to a coarser lattice.
//!
//! Many rows were never tried, and they are alike: `shared` distributions are summed once per stage and target.

mod mean;
mod pass;

use std::sync::Arc;

use bqrl_math::buffer::Buffer;
use bqrl_math::law::{PROBABILITY_TOLERANCE, ReturnLaw};

pub use self::mean::RobustMean;
use self::pass::{Ask, Band, Shifts, Stage, StagePass, Targets, argmax};
use super::sweep::Cost;
use crate::evaluate::{Evaluation, Mass, Policy};
use crate::model::Outcome;
use crate::returns::quantum;
use crate::trajectory::AugmentedInput;

/// Costs closer than this to 0 or 1 count as 0 or 1.
const TRIM: f64 = 1e-15;
/// Another action replaces the mean-optimal one only if it is better by this much.
const TIE: f64 = 1e-14;
/// If costs are closer than this, relative to the span of returns, the mean decides.
const TIE_PRICE: f64 = 1e-9;
/// 1/λ at which nothing but the mean counts.
const MEAN_ONLY: f64 = 1e30;

/// The belief about (s, a) at one stage.
#[derive(Clone, Debug, PartialEq)]
pub struct RobustRow {
    /// Seen successors with their nominal probabilities and undiscounted rewards.
    pub outcomes: Vec<Outcome>,
    /// The nominal probability of the action's `shared` distribution; with the outcomes' it sums to 1.
    pub shared: f64,
    /// The undiscounted reward of a transition by `shared` or by optimism, without the `arrival` reward of the successor.
    pub elsewhere: f64,
    /// ρ; from 2 on every distribution is in the ball.
    pub radius: f64,
}

/// Nominal probabilities, their largest possible error, and rewards.
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

    /// The distinct rewards, rising: those of seen outcomes, and those of transitions to any state.
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

/// The result of a pass.
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
            // A rung may be any number: a cast of a float stops at the ends of the type.
            let cell = rung.checked_sub(stage.low).and_then(|cell| usize::try_from(cell).ok());
            let cell = cell.filter(|&cell| cell < stage.width)?;
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

/// A policy and its value in the planner's model.
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

/// A model, prepared for planning.
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
    /// Prepares a model; with `optimistic` false the nominal probabilities count as the true ones. Rewards are rounded down, to
    /// about `grid` rungs, if there would be more than `max_returns` returns.
    pub fn new(model: &'a RobustModel, optimistic: bool, max_returns: usize, grid: usize) -> Self {
        let mean = Arc::new(RobustMean::new(model, optimistic));
        let rewards = model.rewards();
        let discounts: Vec<f64> = (0..model.horizon).map(|stage| model.discount.powi(stage as i32)).collect();
        let (low, high) = range(rewards.iter().copied());
        let stages: f64 = discounts.iter().sum();
        // An episode may end at any stage, so 0 is always a possible remaining return.
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

    /// A policy for the largest g with max_π P(R ≥ g) > 1 − τ. The share `slack` of the distance between its P(R < g) and τ is
    /// used to raise the mean, with at most `refinements` further passes.
    pub fn quantile_policy(&self, tau: f64, slack: f64, refinements: usize) -> RobustPlan {
        let tie = TIE_PRICE / (self.range.1 - self.range.0).max(f64::MIN_POSITIVE);
        let reached = |root: &Band| {
            let below = root.below.iter().take_while(|&&b| b < tau - PROBABILITY_TOLERANCE).count();
            root.low - 1 + below as i64
        };
        let mut swept = self.pass(Ask { optimistic: false, ..self.ask(Cost::Step, tie) });
        let mut rung = reached(&swept.root);
        if self.optimistic {
            // The most favourable model attains whatever the nominal one attains. So lower targets need no optimism, and much
            // higher ones seldom do. The window grows until its upper end is out of reach.
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
        // The largest allowed P(R < g): τ with slack = 1, the least possible value with slack = 0.
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
        // Below the band a target is certain, so no window needs to reach further down.
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
            // Mass that leaves by an action's shared distribution, by rung: it is distributed once.
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

    /// γ^h r as a number of rungs.
    fn shift(&self, stage: usize, reward: f64) -> i64 {
        let quanta = self.discounts[stage] * reward / self.quantum;
        // A multiple stays a multiple although the division may miss it by rounding.
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
