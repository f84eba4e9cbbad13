//! TRPO on tables (Schulman et al. 2015): risk-neutral, on-policy.
//!
//! ```text
//! maximise  L(θ) = mean_t π_θ(a_t | h, s_t) / π_old(a_t | h, s_t) · A_t
//! subject to  K(θ) = Σ_hs d_hs KL(π_old(· | h, s) ‖ π_θ(· | h, s)) ≤ δ = max_kl        d_hs: share of the decisions
//!
//! g       = ∂L at θ_old;  row(h, s) gets mean_t A_t (e_a − π_old)
//! F v     = ∂²K v at θ_old;  row(h, s) gets d_hs (diag π_old − π_old π_oldᵀ) v(h, s)      exact, no samples of actions
//! x       ≈ (F + damping I)⁻¹ g                                                      conjugate gradients
//! θ       = θ_old + b^j √(2δ / xᵀ(F + damping I)x) x,  the first j = 0, 1, … with L(θ) > L(θ_old) and K(θ) ≤ δ
//! ```
//!
//! Where no j is good enough the parameters are put back as they were. With `stage_widths` = `[1]` the matrix F is block-diagonal;
//! tables that share stages couple its blocks through their sums (see [`crate::policy_gradient::stage_table`]), and the product stays exact.
//! Choices where the source is silent: δ falls as 1/(1 + t/`max_kl_decay`) over the episodes, because a step of constant size follows
//! noise once the policy is good; V is fitted as in PPO. With several lanes an episode may span an update: the ratio is then
//! to the probability with which the action was taken.

use bqrl_math::schedule::{Clock, Span};
use bqrl_mdp::env::EnvSpec;
use serde::{Deserialize, Serialize};

use crate::AgentError;
use crate::policy_gradient::rollout::Decision;
use crate::policy_gradient::stage_table::{StageTable, score_function};
use crate::policy_gradient::{ActorCritic, Improve, OnPolicy, TableConfig, Visit, mean_kl};
use crate::settings::{count, not_negative, positive, positive_span, require};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Config {
    /// Initial δ, …
    pub max_kl: f64,
    /// … which falls as 1/(1 + t/this).
    pub max_kl_decay: Span,
    /// Added to the diagonal of F.
    pub damping: f64,
    /// Steps of conjugate gradients at most.
    pub cg_iterations: usize,
    /// Points tried on the line, j = 0, 1, ….
    pub line_search_steps: usize,
    /// b.
    pub backtrack_factor: f64,
    /// The tables and what they learn from.
    #[serde(flatten)]
    pub tables: TableConfig,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        count("cg_iterations", self.cg_iterations, 1..=10_000)?;
        count("line_search_steps", self.line_search_steps, 1..=1000)?;
        positive("max_kl", self.max_kl)?;
        positive_span("max_kl_decay", &self.max_kl_decay)?;
        not_negative("damping", self.damping)?;
        let b = self.backtrack_factor;
        require("backtrack_factor", 0.0 < b && b < 1.0, "lie in (0, 1)", &b)?;
        self.tables.check()
    }
}

/// Conjugate gradients stop once ‖g − Fx‖ is this much of ‖g‖.
const CG_TOLERANCE: f64 = 1e-8;

/// The agent.
pub type Trpo = OnPolicy<Config>;

impl Trpo {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let tables = ActorCritic::new("trpo", &config.tables, spec, seed)?;
        Ok(Self { method: config, tables })
    }
}

impl Improve for Config {
    fn tables(&self) -> &TableConfig {
        &self.tables
    }

    fn improve(&self, tables: &mut ActorCritic, advantages: &[f64], clock: &Clock) {
        let max_kl = self.max_kl / self.max_kl_decay.slowdown(clock);
        let surrogate = Surrogate {
            decisions: tables.rollout.decisions(),
            advantages,
            visits: tables.visits(),
            old: tables.logits.clone(),
        };
        let g = surrogate.gradient();
        let product = |v: &[f64]| surrogate.fisher_product(v, self.damping);
        let x = conjugate_gradients(product, g.values(), self.cg_iterations);
        let curvature = dot(&x, &product(&x));
        // No curvature, no direction: every advantage is the same.
        if curvature > 0.0 {
            let scale = (2.0 * max_kl / curvature).sqrt();
            let step: Vec<f64> = x.iter().map(|x| scale * x).collect();
            let factors = (0..self.line_search_steps).map(|j| self.backtrack_factor.powi(j as i32));
            line_search(&mut tables.logits, &surrogate, &step, max_kl, factors);
        }
        tables.updates += 1;
    }
}

/// L and K around π_old.
struct Surrogate<'a> {
    decisions: &'a [Decision],
    advantages: &'a [f64],
    visits: Vec<Visit>,
    old: StageTable,
}

impl Surrogate<'_> {
    /// L(θ).
    fn value(&self, logits: &StageTable) -> f64 {
        let term = |(d, advantage): (&Decision, &f64)| {
            logits.policy(d.stage, d.state)[d.action] / d.probability * advantage
        };
        self.decisions.iter().zip(self.advantages).map(term).sum::<f64>() / self.decisions.len() as f64
    }

    /// K(θ).
    fn kl(&self, logits: &StageTable) -> f64 {
        mean_kl(&self.visits, logits)
    }

    /// ∂L at θ_old.
    fn gradient(&self) -> StageTable {
        let mut gradient = self.old.zeros();
        for (d, advantage) in self.decisions.iter().zip(self.advantages) {
            let policy = self.old.policy(d.stage, d.state);
            let ratio = policy[d.action] / d.probability;
            let scale = ratio * advantage / self.decisions.len() as f64;
            gradient.add(d.stage, d.state, &score_function(&policy, d.action, scale));
        }
        gradient
    }

    /// (F + damping I) v.
    fn fisher_product(&self, v: &[f64], damping: f64) -> Vec<f64> {
        let mut direction = self.old.zeros();
        direction.values_mut().copy_from_slice(v);
        let mut product = self.old.zeros();
        for Visit { stage, state, share, policy } in &self.visits {
            let row = direction.read(*stage, *state);
            let mean = dot(policy, &row);
            let moved: Vec<f64> = policy.iter().zip(&row).map(|(p, v)| share * p * (v - mean)).collect();
            product.add(*stage, *state, &moved);
        }
        product.values().iter().zip(v).map(|(product, v)| product + damping * v).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// x with F x ≈ g, for a symmetric positive semi-definite F and a g in its range.
fn conjugate_gradients(product: impl Fn(&[f64]) -> Vec<f64>, g: &[f64], iterations: usize) -> Vec<f64> {
    let mut x = vec![0.0; g.len()];
    let mut residual = g.to_vec();
    let mut direction = g.to_vec();
    let mut squared = dot(&residual, &residual);
    let enough = CG_TOLERANCE * CG_TOLERANCE * squared;
    for _ in 0..iterations {
        if squared <= enough {
            break;
        }
        let moved = product(&direction);
        let curvature = dot(&direction, &moved);
        // Only rounding can bring a direction without curvature here.
        if curvature <= 0.0 {
            break;
        }
        let length = squared / curvature;
        x.iter_mut().zip(&direction).for_each(|(x, d)| *x += length * d);
        residual.iter_mut().zip(&moved).for_each(|(r, m)| *r -= length * m);
        let next = dot(&residual, &residual);
        direction.iter_mut().zip(&residual).for_each(|(d, r)| *d = r + next / squared * *d);
        squared = next;
    }
    x
}

/// Moves to the first point on the line that improves L within the trust region, and says whether there was one;
/// otherwise the logits are what they were.
fn line_search(
    logits: &mut StageTable,
    surrogate: &Surrogate,
    step: &[f64],
    max_kl: f64,
    factors: impl Iterator<Item = f64>,
) -> bool {
    let before = surrogate.value(&surrogate.old);
    for factor in factors {
        let old = surrogate.old.values();
        let moved = old.iter().zip(step).map(|(old, step)| old + factor * step);
        logits.values_mut().iter_mut().zip(moved).for_each(|(logit, moved)| *logit = moved);
        if surrogate.value(logits) > before && surrogate.kl(logits) <= max_kl {
            return true;
        }
    }
    logits.values_mut().copy_from_slice(surrogate.old.values());
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A rollout on three stages, two states and three actions, with shared stages, around an uneven policy.
    fn tables() -> (StageTable, Vec<Decision>, Vec<f64>) {
        let mut logits = StageTable::new(&[1, 2], 3, 2, 3);
        logits.values_mut().iter_mut().enumerate().for_each(|(i, x)| *x = (i as f64 * 1.3).sin());
        let taken = [(0, 0, 0), (1, 1, 2), (2, 0, 1), (0, 0, 2), (1, 1, 0), (2, 1, 1), (0, 0, 1)];
        let decision = |(stage, state, action): (usize, usize, usize)| Decision {
            stage,
            state,
            action,
            reward: 0.0,
            next_state: 0,
            is_final: stage == 2,
            goes_on: stage < 2,
            probability: logits.policy(stage, state)[action],
        };
        let decisions = taken.map(decision).to_vec();
        (logits, decisions, vec![1.0, -0.5, 2.0, -1.0, 0.3, -1.7, 0.4])
    }

    fn surrogate<'a>(old: &StageTable, decisions: &'a [Decision], advantages: &'a [f64]) -> Surrogate<'a> {
        let mut visits: Vec<Visit> = Vec::new();
        let share = 1.0 / decisions.len() as f64;
        for d in decisions {
            match visits.iter_mut().find(|visit| (visit.stage, visit.state) == (d.stage, d.state)) {
                Some(visit) => visit.share += share,
                None => visits.push(Visit {
                    stage: d.stage,
                    state: d.state,
                    share,
                    policy: old.policy(d.stage, d.state),
                }),
            }
        }
        Surrogate { decisions, advantages, visits, old: old.clone() }
    }

    fn moved(table: &StageTable, direction: &[f64], length: f64) -> StageTable {
        let mut moved = table.clone();
        moved.values_mut().iter_mut().zip(direction).for_each(|(x, d)| *x += length * d);
        moved
    }

    fn unit(n: usize, i: usize) -> Vec<f64> {
        (0..n).map(|j| f64::from(u8::from(i == j))).collect()
    }

    #[test]
    fn the_gradient_of_the_surrogate_matches_finite_differences() {
        let (logits, decisions, advantages) = tables();
        let surrogate = surrogate(&logits, &decisions, &advantages);
        let gradient = surrogate.gradient();
        let n = logits.values().len();
        for i in 0..n {
            let at = |sign: f64| surrogate.value(&moved(&logits, &unit(n, i), sign * 1e-6));
            let numeric = (at(1.0) - at(-1.0)) / 2e-6;
            assert!((gradient.values()[i] - numeric).abs() < 1e-8, "{i}: {} {numeric}", gradient.values()[i]);
        }
    }

    #[test]
    fn the_fisher_product_is_the_second_derivative_of_the_kl() {
        // K(θ_old) = 0 is a minimum, so K(θ_old + εv) = ε²/2 vᵀFv + O(ε³), and mixed second differences give wᵀFv.
        let (logits, decisions, advantages) = tables();
        let surrogate = surrogate(&logits, &decisions, &advantages);
        assert_eq!(surrogate.kl(&logits), 0.0);
        let n = logits.values().len();
        let v: Vec<f64> = (0..n).map(|i| (i as f64 * 0.9).cos()).collect();
        let product = surrogate.fisher_product(&v, 0.0);
        let step = 1e-4;
        for (i, product) in product.iter().enumerate() {
            let at = |a: f64, b: f64| surrogate.kl(&moved(&moved(&logits, &v, a), &unit(n, i), b));
            let differences = at(step, step) - at(step, -step) - at(-step, step) + at(-step, -step);
            let numeric = differences / (4.0 * step * step);
            assert!((product - numeric).abs() < 1e-6, "{i}: {product} and {numeric}");
        }
        let damped = surrogate.fisher_product(&v, 0.5);
        assert!(damped.iter().zip(&product).zip(&v).all(|((d, p), v)| (d - p - 0.5 * v).abs() < 1e-12));
    }

    #[test]
    fn without_sharing_the_fisher_matrix_is_one_block_per_visited_state() {
        // A uniform policy over two actions: F_hs = d_hs (¼, −¼; −¼, ¼).
        let old = StageTable::new(&[1], 2, 1, 2);
        let visit = |stage, share| Visit { stage, state: 0, share, policy: vec![0.5, 0.5] };
        let surrogate =
            Surrogate { decisions: &[], advantages: &[], visits: vec![visit(0, 0.75), visit(1, 0.25)], old };
        let product = surrogate.fisher_product(&[1.0, 0.0, 0.0, 4.0], 0.0);
        assert_eq!(product, [0.1875, -0.1875, -0.25, 0.25]);
    }

    #[test]
    fn conjugate_gradients_solve_the_damped_system() {
        let (logits, decisions, advantages) = tables();
        let surrogate = surrogate(&logits, &decisions, &advantages);
        let g = surrogate.gradient();
        let product = |v: &[f64]| surrogate.fisher_product(v, 1e-3);
        let x = conjugate_gradients(product, g.values(), 100);
        let residual: Vec<f64> = product(&x).iter().zip(g.values()).map(|(fx, g)| fx - g).collect();
        let relative = (dot(&residual, &residual) / dot(g.values(), g.values())).sqrt();
        assert!(relative < 1e-7, "{relative}");
        // F is singular (adding a constant to a row changes nothing), and g lies in its range: no damping is needed.
        let x = conjugate_gradients(|v| surrogate.fisher_product(v, 0.0), g.values(), 100);
        let residual: Vec<f64> =
            surrogate.fisher_product(&x, 0.0).iter().zip(g.values()).map(|(fx, g)| fx - g).collect();
        let relative = (dot(&residual, &residual) / dot(g.values(), g.values())).sqrt();
        assert!(relative < 1e-7, "{relative}");
        // Nothing to solve.
        assert_eq!(conjugate_gradients(product, &vec![0.0; x.len()], 10), vec![0.0; x.len()]);
    }

    #[test]
    fn a_step_improves_the_surrogate_within_the_trust_region() {
        let (logits, decisions, advantages) = tables();
        let surrogate = surrogate(&logits, &decisions, &advantages);
        let product = |v: &[f64]| surrogate.fisher_product(v, 1e-3);
        let x = conjugate_gradients(product, surrogate.gradient().values(), 50);
        for max_kl in [1e-4, 1e-2, 1.0] {
            let scale = (2.0 * max_kl / dot(&x, &product(&x))).sqrt();
            let step: Vec<f64> = x.iter().map(|x| scale * x).collect();
            let mut found = logits.clone();
            assert!(line_search(&mut found, &surrogate, &step, max_kl, (0..20).map(|j| 0.7_f64.powi(j))));
            assert!(surrogate.value(&found) > surrogate.value(&logits));
            let kl = surrogate.kl(&found);
            assert!(kl <= max_kl, "{kl}");
            // A small region is nearly quadratic, and the first step nearly fills it.
            assert!(max_kl > 1e-3 || kl > 0.5 * max_kl, "{kl}");
        }
    }

    #[test]
    fn failed_line_search_restores_the_policy_bit_for_bit() {
        let (logits, decisions, advantages) = tables();
        let surrogate = surrogate(&logits, &decisions, &advantages);
        let bits = |table: &StageTable| table.values().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        let uphill = surrogate.gradient();
        let downhill: Vec<f64> = uphill.values().iter().map(|g| -g).collect();
        let factors = || (0..10).map(|j| 0.5_f64.powi(j));
        // Downhill nothing improves, however short the step; uphill nothing stays in an empty region.
        let mut table = logits.clone();
        assert!(!line_search(&mut table, &surrogate, &downhill, f64::INFINITY, factors()));
        assert_eq!(bits(&table), bits(&logits));
        assert!(!line_search(&mut table, &surrogate, uphill.values(), 0.0, factors()));
        assert_eq!(bits(&table), bits(&logits));
        // Steps that are no numbers are refused too.
        let wild = vec![f64::INFINITY; downhill.len()];
        assert!(!line_search(&mut table, &surrogate, &wild, 0.1, factors()));
        assert_eq!(bits(&table), bits(&logits));
    }
}
