//! A plan that knows what it does not know: the table is an estimate from counts, and the promise must hold anyway.
//!
//! ```text
//! F_h(s, y)  = P(return still to come from stage h in state s < y), under the policy that is returned
//! U_h(s, y) ≥ F_h(s, y) for all h, s, y at once, with probability at least 1 − δ over the log
//! U_h(s, y)  = B( U_{h+1}(s'_1, y − r_1), …, U_{h+1}(s'_n, y − r_n) )      over the n outcomes of (s, a) in the half that checks
//! ```
//!
//! **The bound of one row.** Let X_1, X_2, … in [0, 1] have mean m given the past. For a fixed a ≥ 0 the product
//! Π (a + X_i)/(a + m) is a nonnegative martingale that starts at 1: a gambler's wealth. By Ville's inequality it never reaches 1/δ' with
//! probability at least 1 − δ'. With costs F_i = 1 − X_i this reads, for every n at once,
//!
//! ```text
//! E[F] ≤ B_a(F_1, …, F_n) = 1 + a − δ'^{1/n} · (Π_i (1 + a − F_i))^{1/n}
//! ```
//!
//! A small a suits costs that hardly vary, a large one costs that do; [`STAKES`] are tried, each with its share of δ'. The least over
//! all a is the maximum of `E[F]` over a ball n·KL(p̂‖p) ≤ ln(1/δ') in which mass may also go to outcomes that were never seen, at
//! cost 1: unseen outcomes are expected to fail, and an action that was never tried has B = 1.
//!
//! **Why it is valid although U_{h+1} comes from the same data.** B_a never decreases if a cost does not decrease. So U_{h+1} ≥ F_{h+1}
//! gives B(U_{h+1}) ≥ B(F_{h+1}), and it is enough that B(F_{h+1}) ≥ F_h holds at the *true* F_{h+1}, which does not depend on
//! the data that check it. For this the policy must not depend on them either. That is why the episodes are divided
//! ([`crate::counts`]): one half chooses the actions for every (h, s, y), the other half checks them. The union is over all (h, s, y), so the promise
//! holds for all targets and all levels together. Bounds with an empirical variance are not monotone in the costs, and sets of
//! transition laws pay for every possible next state: both lose here ([`Construction::L1`] is kept for comparison).
//!
//! **Assumed:** episodes are independent; a row's outcomes have one law (of its stage, if there is a table per stage); the next state and the
//! reward depend on state and action alone; if every episode starts in the same state, the next one does too.

mod resample;
mod row;

use std::sync::Arc;

use bqrl_math::law::PROBABILITY_TOLERANCE;
use thiserror::Error;

pub use self::resample::resampled;
use self::row::{Arrival, Row, Table};
use crate::counts::{Counts, Seen};
use crate::evaluate::Policy;
use crate::model::Problem;
use crate::returns::{MEMORY_LIMIT, quantum};
use crate::trajectory::AugmentedInput;

/// The values of a that are tried. The best one is about √(n·Var/2 ln(1/δ')); a factor √2 off costs 6 % of the width.
pub const STAKES: [f64; 17] = [
    0.0, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0,
];
/// The most rungs between the smallest and the largest return; beyond it rewards are rounded down.
const MAX_RETURNS: f64 = 20_000.0;
/// The rungs of a rounded plan.
const GRID: f64 = 2_000.0;

/// How a row is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Construction {
    /// The bound of this module, on the half that checks.
    Bets,
    /// The L1 ball of Weissman et al. (2003) around all counts, for comparison. It allows no more than a union over pairs.
    L1,
}

/// A promise at one level.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Certified {
    /// τ.
    pub tau: f64,
    /// With the confidence asked for, the policy's Q_τ is at least this.
    pub value: f64,
    /// The bound of P(R < `value`), below τ; 1 if the data support nothing.
    pub below: f64,
    /// True if the data support nothing above the worst possible return, the smallest reward of the log at every stage.
    pub nothing: bool,
}

/// Why there is no plan.
#[derive(Clone, Debug, Error, PartialEq)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum ConfidentError {
    #[error("there are too few episodes: the half that plans never leaves the start state")]
    TooFew,
    #[error(
        "the tables of {stages} stages may need {:.1} GB for a plan with a confidence (limit {:.1} GB)",
        .bytes / 1e9,
        MEMORY_LIMIT / 1e9
    )]
    TooLarge { stages: usize, bytes: f64 },
}

/// A table of counts, planned and checked.
pub struct ConfidentPlan {
    table: Arc<Table>,
    root: Row,
    worst: f64,
}

impl ConfidentPlan {
    /// Plans for all targets at once. Rewards are rounded down if they are too irregular, or if the tables would not fit into memory otherwise.
    pub fn new(
        problem: &Problem,
        counts: &Counts,
        confidence: f64,
        construction: Construction,
    ) -> Result<Self, ConfidentError> {
        let model = &problem.model;
        let rewards = row::rewards(counts);
        let (low, high) = rewards.iter().fold((0.0f64, 0.0f64), |(low, high), &r| (low.min(r), high.max(r)));
        let discounts: Vec<f64> = (0..model.horizon()).map(|stage| model.discount_at(stage)).collect();
        let stages: f64 = discounts.iter().sum();
        let span = (high - low) * stages;
        let common = if model.discount() == 1.0 { quantum(&rewards) } else { None };
        let rounded = if span > 0.0 { span / GRID } else { 1.0 };
        let plan = |quantum| Table::new(model, counts, quantum, &discounts, 1.0 - confidence, construction);
        let (table, root) = match common.filter(|q| span / q <= MAX_RETURNS) {
            Some(exact) => match plan(exact) {
                Err(ConfidentError::TooLarge { .. }) if exact < rounded => plan(rounded),
                found => found,
            },
            None => plan(rounded),
        }?;
        Ok(Self { table: Arc::new(table), root, worst: low * stages })
    }

    /// The largest target that the checked half supports at level τ.
    pub fn certified(&self, tau: f64) -> Certified {
        let supported = |&rung: &i64| self.root.at(rung) < tau - PROBABILITY_TOLERANCE;
        match (self.root.first - 1..self.root.end()).rev().find(supported) {
            Some(rung) => {
                let value = rung as f64 * self.table.quantum;
                Certified { tau, value, below: self.root.at(rung), nothing: false }
            }
            None => Certified { tau, value: self.worst, below: 1.0, nothing: true },
        }
    }

    /// A lower bound of Q_τ^β, from P(R < g) alone: the quantiles above it are at least g, those below it at least the worst.
    /// With the target g that it belongs to.
    pub fn certified_buffered(&self, tau: f64, beta: f64) -> (f64, f64) {
        let value = |rung: i64| {
            let below = self.root.at(rung).min(tau);
            let missed = (below - (tau - beta)).max(0.0) / beta;
            (1.0 - missed) * rung as f64 * self.table.quantum + missed * self.worst
        };
        let rungs = self.root.first - 1..self.root.end();
        let best = rungs.max_by(|&a, &b| value(a).total_cmp(&value(b))).unwrap_or(self.root.first);
        (value(best), best as f64 * self.table.quantum)
    }

    /// The policy that follows a target.
    pub fn policy(&self, target: f64) -> ConfidentPolicy {
        ConfidentPolicy { table: self.table.clone(), target }
    }

    /// The upper bound of P(R < g) under the policy that follows g.
    pub fn below(&self, target: f64) -> f64 {
        self.root.at(self.table.rung(target))
    }
}

/// A policy that follows a target: y_0 = g, y_{h+1} = y_h − γ^h r. If rewards were rounded, it counts the rounded rewards.
#[derive(Clone, Debug)]
pub struct ConfidentPolicy {
    table: Arc<Table>,
    target: f64,
}

impl ConfidentPolicy {
    /// The action at x; where the data know nothing, one that was tried most often there, or the first.
    pub fn action(&self, x: &AugmentedInput) -> usize {
        self.table.action(x.stage, x.state, self.table.rung(self.target - x.collected))
    }
}

impl Policy for ConfidentPolicy {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.action(x), 1.0));
    }
}

/// Whether an outcome continues, ends the episode, or leads where the half that plans knows nothing.
fn arrival(counts: &Counts, kernel: usize, next: u32, ends: bool, known: impl Fn(&Seen) -> bool) -> Arrival {
    let actions = || (0..counts.n_actions()).flat_map(|action| counts.seen(kernel, next as usize, action));
    match (actions().any(known), actions().next().is_some(), ends) {
        (true, ..) => Arrival::Continues,
        (false, false, true) => Arrival::Ends,
        _ => Arrival::Unknown,
    }
}
