//! The point quantile, exactly (the CDF form of the QMDP of Li, Zhong and Brandeau).
//!
//! ```text
//! F_0(g) = min_π P(R^π < g)                    one pass, every g at once
//! Q*_τ   = max{ g : F_0(g) < τ }               since Q_τ(R) ≥ g  ⇔  P(R < g) < τ
//! ```
//!
//! The certificate is two numbers: F_0(Q*_τ) < τ is attained by a policy, and F_0 of the next larger return is at
//! least τ, so that no policy does better.
//!
//! A policy with P(R < Q*_τ) well below τ has slack, which can raise the mean. Among the policies that maximise
//! `E[R] − λ P(R < Q*_τ)`, each from one more pass, the result is the one with the largest mean that still attains Q*_τ.
//! λ moves along the vertices of the attainable (P, E) set; each new λ comes from the two vertices on both sides of τ.

use std::sync::Arc;

use bqrl_math::law::PROBABILITY_TOLERANCE;

use super::policy::Index;
use super::sweep::Cost;
use super::{PlannedPolicy, Planner};
use crate::evaluate::Evaluation;

/// Q*_τ with its proof.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BestQuantile {
    /// τ.
    pub tau: f64,
    /// Q*_τ = max_π Q_τ(R^π).
    pub value: f64,
    /// min_π P(R < Q*_τ), below τ: a policy attains Q*_τ.
    pub least_below: f64,
    /// The next larger return g and min_π P(R < g), at least τ: no policy attains g. `None` at the largest return.
    pub next: Option<(f64, f64)>,
}

/// A policy that attains Q*_τ.
#[derive(Clone, Debug)]
pub struct QuantilePlan {
    /// The quantile that is attained, and the proof that no policy attains more.
    pub best: BestQuantile,
    /// The policy.
    pub policy: PlannedPolicy,
    /// Its exact law and mean.
    pub evaluation: Evaluation,
    /// Its P(R ≥ Q*_τ).
    pub probability_at_least: f64,
}

impl Planner<'_> {
    /// Q*_τ, from the pass that was made when the planner was built.
    pub fn best_quantile(&self, tau: f64) -> BestQuantile {
        // Rung first − 1 is certain; the rungs of the band with values below τ follow.
        let below = self.root.values.partition_point(|&f| f < tau - PROBABILITY_TOLERANCE);
        let rung = self.root.first - 1 + below as i64;
        BestQuantile {
            tau,
            value: self.value(rung),
            least_below: self.root.at(rung),
            next: (!self.is_beyond(rung + 1)).then(|| (self.value(rung + 1), self.root.at(rung + 1))),
        }
    }

    /// True when no return is as large as this rung.
    pub(super) fn is_beyond(&self, rung: i64) -> bool {
        match self.ladders.residual.listed(0) {
            Some((due, _)) => rung >= due.len() as i64,
            None => self.value(rung) > self.compiled.range.1 + self.compiled.tolerance,
        }
    }

    /// A policy that attains Q*_τ, with at most `refinements` further passes that use its slack to raise the mean.
    pub fn quantile_policy(&self, tau: f64, refinements: usize) -> QuantilePlan {
        let best = self.best_quantile(tau);
        let below = |e: &Evaluation| e.law.probability_below(best.value - self.compiled.tolerance);
        let attains = |e: &Evaluation| below(e) < tau - PROBABILITY_TOLERANCE;

        let planned = |policy, evaluation| {
            let probability_at_least = 1.0 - below(&evaluation);
            QuantilePlan { best, policy, evaluation, probability_at_least }
        };
        let mut misses = self.mean_evaluation().clone();
        if attains(&misses) {
            return planned(self.mean_policy(), misses);
        }
        let mut policy = self.policy(self.tie_broken(), Index::Residual(best.value));
        let mut evaluation = self.evaluate(&policy);
        if !attains(&evaluation) {
            // The ties were not exact: use the probability alone.
            (policy, evaluation) = self.priced_policy(best.value, f64::INFINITY);
        }
        for _ in 0..refinements {
            let lambda = (misses.mean - evaluation.mean) / (below(&misses) - below(&evaluation));
            if lambda <= 0.0 {
                break; // It cannot be bettered: the policies that miss have no larger mean.
            }
            let utility = |e: &Evaluation| e.mean - lambda * below(e);
            let (new_policy, new) = self.priced_policy(best.value, lambda);
            // No policy is above the line through the two, so they are neighbouring vertices.
            if utility(&new) <= utility(&evaluation) + 1e-12 * self.span() {
                break;
            }
            if attains(&new) {
                (policy, evaluation) = (new_policy, new);
            } else {
                misses = new;
            }
        }
        planned(policy, evaluation)
    }

    /// A policy that maximises `E[R] − λ P(R < g)`.
    fn priced_policy(&self, target: f64, lambda: f64) -> (PlannedPolicy, Evaluation) {
        let swept = self.residual_pass(Cost::Step, 1.0 / lambda, true);
        let policy = self.policy(&Arc::new(swept.actions), Index::Residual(target));
        let evaluation = self.evaluate(&policy);
        (policy, evaluation)
    }
}
