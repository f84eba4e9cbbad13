//! A plan that knows what it does not know: the table is an estimate from counts, and the promise must hold anyway.
//!
//! ```text
//! F_h(s, y)  = P(return still to come from stage h in state s < y), under the policy that is returned
//! U_h(s, y) ≥ F_h(s, y) for all points that the policy can come to, with probability at least 1 − δ over the log
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
//! A small a suits costs that hardly vary, a large one costs that do; the half that plans says which one is used ([`bet`]). The least over
//! all a is the maximum of `E[F]` over a ball n·KL(p̂‖p) ≤ ln(1/δ') in which mass may also go to outcomes that were never seen, at
//! cost 1: unseen outcomes are expected to fail, and an action that was never tried has B = 1.
//!
//! **Why it is valid although U_{h+1} comes from the same data.** B_a never decreases if a cost does not decrease. So U_{h+1} ≥ F_{h+1}
//! gives B(U_{h+1}) ≥ B(F_{h+1}), and it is enough that B(F_{h+1}) ≥ F_h holds at the *true* F_{h+1}, which does not depend on
//! the data that check it. For this the policy must not depend on them either. That is why the episodes are divided
//! ([`crate::counts`]): one half chooses the actions for every (h, s, y), the other half checks them. Bounds with an empirical variance are not
//! monotone in the costs, and sets of transition laws pay for every possible next state: both lose here ([`Construction::L1`] is kept
//! for comparison).
//!
//! **Few things are promised, so each may cost more.** For one target g only the points that its policy can come to are bounded; the half
//! that plans divides δ among them, most for those that matter most, and fixes their stakes ([`check`]). The targets of a level are
//! tried in an order that the half that plans fixes, each with the whole of δ, until one is not supported. This is valid: a false promise at the
//! level needs that the first target in this order with P(R < g) ≥ τ is accepted, which has probability at most δ. The levels of one plan share
//! 1 − confidence equally, so all of them hold together. For a buffered quantile the half that plans names four targets, which share δ.
//!
//! **Rounded rewards.** If rewards are no multiples of one quantum q, a rung k stands for all y in ((k − 1)q, kq], and F̃_h(s, k) is the largest
//! F_h(s, y) among them. The policy takes one action on a rung, and y − r lies on rung ⌈k − r/q⌉ or on the one below it, so
//! F̃_h(s, k) ≤ `E[max(F̃_{h+1}(s', ⌈k − r/q⌉), F̃_{h+1}(s', ⌈k − r/q⌉ − 1))]`. F̃ does not depend on the data that check either, and the argument above
//! goes through with F̃ for F.
//!
//! **Assumed:** episodes are independent; a row's outcomes have one law (of its stage, if there is a table per stage); the next state and the
//! reward depend on state and action alone; if every episode starts in the same state, the next one does too.

mod bet;
mod check;
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

/// The most rungs between the smallest and the largest return; beyond it rewards are rounded down.
const MAX_RETURNS: f64 = 20_000.0;
/// The rungs of a rounded plan.
const GRID: f64 = 2_000.0;
/// Of the targets near the one that the half that plans expects, all are tried; farther away steps grow by this factor.
const GROWTH: f64 = 1.25;
/// Targets that are checked together for a buffered quantile: the one that the half that plans expects to be best, and lower ones.
const BUFFERED: [usize; 4] = [0, 2, 6, 16];

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

/// A table of counts, planned.
pub struct ConfidentPlan {
    table: Arc<Table>,
    /// The bounds of P(R < g) for all g, by the half that plans; by all counts for the L1 ball.
    expected: Row,
    construction: Construction,
    /// δ of one level.
    delta: f64,
    worst: f64,
}

impl ConfidentPlan {
    /// Plans for all targets at once. The promises of `levels` levels hold together with the confidence. Rewards are rounded down if they are
    /// too irregular, or if the tables would not fit into memory otherwise.
    pub fn new(
        problem: &Problem,
        counts: &Counts,
        confidence: f64,
        levels: usize,
        construction: Construction,
    ) -> Result<Self, ConfidentError> {
        let model = &problem.model;
        let delta = (1.0 - confidence) / levels.max(1) as f64;
        // The policy must not depend on the half that checks, so neither may its rungs. Rewards that only that half has cost 1.
        let planned = |seen: &Seen| construction == Construction::L1 || seen.count > seen.check;
        let rewards = row::rewards(counts, planned);
        let extremes = |rewards: &[f64]| {
            rewards.iter().fold((0.0f64, 0.0f64), |(low, high), &r| (low.min(r), high.max(r)))
        };
        let discounts: Vec<f64> = (0..model.horizon()).map(|stage| model.discount_at(stage)).collect();
        let stages: f64 = discounts.iter().sum();
        let (low, high) = extremes(&rewards);
        let span = (high - low) * stages;
        let common = if model.discount() == 1.0 { quantum(&rewards) } else { None };
        let rounded = if span > 0.0 { span / GRID } else { 1.0 };
        let plan = |quantum| Table::new(model, counts, quantum, &discounts, delta, construction);
        let (table, expected) = match common.filter(|q| span / q <= MAX_RETURNS) {
            Some(exact) => match plan(exact) {
                Err(ConfidentError::TooLarge { .. }) if exact < rounded => plan(rounded),
                found => found,
            },
            None => plan(rounded),
        }?;
        let worst = extremes(&row::rewards(counts, |_| true)).0 * stages;
        Ok(Self { table: Arc::new(table), expected, construction, delta, worst })
    }

    /// The largest target that the data support at level τ.
    pub fn certified(&self, tau: f64) -> Certified {
        let supported = |below: f64| below < tau - PROBABILITY_TOLERANCE;
        let steps = self.steps();
        let place = steps.iter().rposition(|&rung| supported(self.expected.at(rung)));
        let mut found = None;
        if self.construction == Construction::L1 {
            found = place.map(|place| (steps[place], self.expected.at(steps[place])));
        } else {
            // In an order that the half that plans has fixed, each with the whole of δ, until one fails.
            for place in ladder(place.unwrap_or(0), steps.len()) {
                let below = self.table.check(&self.table.trace(steps[place], self.delta));
                if !supported(below) {
                    break;
                }
                found = Some((steps[place], below));
            }
        }
        match found {
            Some((rung, below)) => {
                Certified { tau, value: rung as f64 * self.table.quantum, below, nothing: false }
            }
            None => self.nothing(tau),
        }
    }

    /// A lower bound of Q_τ^β, from P(R < g) alone: the quantiles above it are at least g, those below it at least the worst.
    /// With the promise of Q_τ ≥ g of the same policy.
    pub fn certified_buffered(&self, tau: f64, beta: f64) -> (f64, Certified) {
        let value = |rung: i64, below: f64| {
            let missed = (below.min(tau) - (tau - beta)).max(0.0) / beta;
            (1.0 - missed) * rung as f64 * self.table.quantum + missed * self.worst
        };
        let steps = self.steps();
        let expected = |place: usize| value(steps[place], self.expected.at(steps[place]));
        let best = (0..steps.len()).max_by(|&a, &b| expected(a).total_cmp(&expected(b))).unwrap_or(0);
        let mut found = (self.worst, self.nothing(tau));
        for back in BUFFERED {
            let Some(&rung) = best.checked_sub(back).and_then(|place| steps.get(place)) else { continue };
            let delta = self.delta / BUFFERED.len() as f64;
            let below = self.table.check(&self.table.trace(rung, delta));
            let bound = value(rung, below);
            if below < tau - PROBABILITY_TOLERANCE && (found.1.nothing || bound > found.0) {
                let target = rung as f64 * self.table.quantum;
                found = (bound, Certified { tau, value: target, below, nothing: false });
            }
        }
        found
    }

    /// The policy that follows a target.
    pub fn policy(&self, target: f64) -> ConfidentPolicy {
        ConfidentPolicy { table: self.table.clone(), target }
    }

    fn nothing(&self, tau: f64) -> Certified {
        Certified { tau, value: self.worst, below: 1.0, nothing: true }
    }

    /// The targets worth trying: of those with the same bound, the largest.
    fn steps(&self) -> Vec<i64> {
        let rungs = self.expected.first - 1..self.expected.end();
        rungs.filter(|&rung| self.expected.at(rung + 1) > self.expected.at(rung)).collect()
    }
}

/// Places from the first to the last, dense around `middle`.
fn ladder(middle: usize, places: usize) -> Vec<usize> {
    let mut away = vec![0usize];
    while *away.last().expect("never empty") < places {
        let last = away[away.len() - 1];
        away.push(((last as f64 * GROWTH) as usize).max(last + 1));
    }
    let below = away.iter().rev().map(|&away| middle.saturating_sub(away));
    let above = away.iter().skip(1).map(|&away| middle + away);
    let mut ladder: Vec<usize> = below.chain(above).filter(|&place| place < places).collect();
    ladder.dedup();
    ladder
}

/// A policy that follows a target: y = g − c. If rewards were rounded, y is rounded up to a rung, c is not.
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

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use bqrl_math::{Purpose, stream};

    use super::*;
    use crate::counts::Counted;
    use crate::evaluate::evaluate;
    use crate::log::{Options, fit};

    #[test]
    fn targets_are_tried_upwards_and_densely_where_the_answer_is_expected() {
        assert_eq!(ladder(0, 0), Vec::<usize>::new());
        assert_eq!(ladder(2, 4), [0, 1, 2, 3]);
        let ladder = ladder(50, 100);
        assert!(ladder.is_sorted() && ladder[0] == 0 && ladder.contains(&49) && ladder.contains(&51));
        assert!(ladder.len() < 40, "{ladder:?}");
    }

    /// Six stages in one state; both actions pay an irregular amount, and `risky` fails now and then.
    fn log(episodes: usize, seed: u64) -> String {
        let mut rng = stream(seed, Purpose::Test);
        let mut log = "episode,state,action,reward,next_state\n".to_owned();
        for episode in 0..episodes {
            for _ in 0..6 {
                let risky = rng.uniform() < 0.5;
                let (name, reward) = match (risky, rng.uniform()) {
                    (false, u) if u < 0.5 => ("safe", 0.1234567),
                    (false, _) => ("safe", std::f64::consts::FRAC_1_PI),
                    (true, u) if u < 0.07 => ("risky", -std::f64::consts::E),
                    (true, _) => ("risky", std::f64::consts::FRAC_1_SQRT_2),
                };
                let _ = writeln!(log, "{episode},s,{name},{reward},s");
            }
        }
        log
    }

    #[test]
    fn promises_hold_if_rewards_are_rounded_too() {
        // The true law is that of a very long log. 95 % of 60 promises hold, at most 11 fail but for one build in ten thousand.
        let truth = fit(log(200_000, 99).as_bytes(), "truth", &Options::default()).unwrap().problem;
        let mut failures = 0;
        for seed in 0..60 {
            let fitted = fit(log(400, seed).as_bytes(), "log", &Options::default()).unwrap().problem;
            let counts = fitted.data.counts.as_ref().unwrap();
            let plan = ConfidentPlan::new(&fitted, counts, 0.95, 1, Construction::Bets).unwrap();
            let certified = plan.certified(0.25);
            assert!(!certified.nothing, "{certified:?}");
            let law = evaluate(&truth.model, &plan.policy(certified.value)).unwrap().law;
            failures += usize::from(law.probability_below(certified.value) >= 0.25);
            assert_eq!(fitted.actions, truth.actions);
        }
        assert!(failures <= 11, "{failures}");
    }

    #[test]
    fn the_policy_does_not_depend_on_the_half_that_checks() {
        let fitted = fit(log(300, 1).as_bytes(), "log", &Options::default()).unwrap().problem;
        let counts = fitted.data.counts.as_ref().unwrap();
        // The same half that plans; the other one has a reward of its own and other frequencies.
        let mut rows = Vec::new();
        for action in 0..counts.n_actions() {
            for seen in counts.seen(0, 0, action) {
                let seen = Seen { count: seen.count - seen.check, check: 0, ..*seen };
                rows.push(Counted { stage: 0, state: 0, action: action as u32, seen });
            }
            let seen = Seen { next: 0, reward: 77.77, count: 5, check: 5, ends: false };
            rows.push(Counted { stage: 0, state: 0, action: action as u32, seen });
        }
        let other = Counts::new(counts.n_states(), counts.n_actions(), 1, rows, counts.starts().to_vec());
        let plan = |counts| ConfidentPlan::new(&fitted, counts, 0.95, 1, Construction::Bets).unwrap();
        let (one, two) = (plan(counts).policy(1.5), plan(&other).policy(1.5));
        for stage in 0..fitted.model.horizon() {
            for step in -40..40 {
                let x = AugmentedInput { stage, state: 0, collected: f64::from(step) / 10.0 };
                assert_eq!(one.action(&x), two.action(&x), "{x:?}");
            }
        }
    }

    #[test]
    fn several_levels_share_the_confidence() {
        let fitted = fit(log(400, 3).as_bytes(), "log", &Options::default()).unwrap().problem;
        let counts = fitted.data.counts.as_ref().unwrap();
        let certified = |levels| {
            ConfidentPlan::new(&fitted, counts, 0.95, levels, Construction::Bets).unwrap().certified(0.25)
        };
        assert!(certified(1).value >= certified(100).value, "{:?} {:?}", certified(1), certified(100));
        // A promise of the buffered quantile is one of the quantile too, and never above it.
        let plan = ConfidentPlan::new(&fitted, counts, 0.95, 1, Construction::Bets).unwrap();
        let (value, same) = plan.certified_buffered(0.25, 0.1);
        assert!(!same.nothing && same.below < 0.25 && value <= same.value, "{value} {same:?}");
    }
}
