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
//! Where no j is good enough the parameters are put back as they were. With `stage_widths` = [1] the matrix F is block-diagonal;
//! tables that share stages couple its blocks through their sums (see [`crate::stage_table`]), and the product stays exact.
//! What the source leaves open: δ falls as 1/(1 + t/`max_kl_decay`) over the episodes, because a step of constant size follows
//! noise once the policy is good; V is fitted as in PPO.

use bqrl_math::buffer::Buffer;
use bqrl_mdp::env::EnvSpec;
use bqrl_nn::UpdateError;
use serde::{Deserialize, Serialize};

use crate::actor_critic::{ActorCritic, SoftmaxPolicy, Visit, mean_kl};
use crate::experience::rollout::{Decision, normalise};
use crate::stage_table::{StageTable, check_widths, score_function};
use crate::{
    Agent, AgentError, Input, OutputPolicy, RestoreError, Transition, not_negative, positive, require,
};

/// Every setting.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Episodes of one policy before it is changed.
    pub episodes_per_update: usize,
    /// δ in the beginning, …
    pub max_kl: f64,
    /// … falling as 1/(1 + t/this), in episodes.
    pub max_kl_decay: f64,
    /// Added to the diagonal of F.
    pub damping: f64,
    /// Steps of conjugate gradients at most.
    pub cg_iterations: usize,
    /// Points tried on the line, j = 0, 1, ….
    pub line_search_steps: usize,
    /// b.
    pub backtrack_factor: f64,
    /// λ of the advantages.
    pub gae_lambda: f64,
    /// Step size of the values.
    pub value_rate: f64,
    /// Widths of the groups of stages whose tables add up: [1] is one row per (h, s).
    pub stage_widths: Vec<usize>,
}

impl Config {
    fn check(&self) -> Result<(), AgentError> {
        let at_least_1 = |key, value: usize| require(key, value >= 1, "be at least 1", &value);
        at_least_1("episodes_per_update", self.episodes_per_update)?;
        at_least_1("cg_iterations", self.cg_iterations)?;
        at_least_1("line_search_steps", self.line_search_steps)?;
        positive("max_kl", self.max_kl)?;
        positive("max_kl_decay", self.max_kl_decay)?;
        not_negative("damping", self.damping)?;
        let b = self.backtrack_factor;
        require("backtrack_factor", 0.0 < b && b < 1.0, "lie in (0, 1)", &b)?;
        let lambda = self.gae_lambda;
        require("gae_lambda", (0.0..=1.0).contains(&lambda), "lie in [0, 1]", &lambda)?;
        let rate = self.value_rate;
        require("value_rate", rate > 0.0 && rate <= 1.0, "lie in (0, 1]", &rate)?;
        check_widths(&self.stage_widths)
    }
}

/// Conjugate gradients stop once ‖g − Fx‖ is this much of ‖g‖.
const CG_TOLERANCE: f64 = 1e-8;

/// The agent.
pub struct Trpo {
    config: Config,
    tables: ActorCritic,
    max_kl: f64,
}

impl Trpo {
    /// An untrained agent.
    pub fn new(config: Config, spec: &EnvSpec, seed: u64) -> Result<Self, AgentError> {
        config.check()?;
        let tables = ActorCritic::new("trpo", &config.stage_widths, spec, seed)?;
        Ok(Self { max_kl: config.max_kl, tables, config })
    }

    /// An update from the rollout, which is then forgotten.
    fn update(&mut self) -> Result<(), UpdateError> {
        let Self { config, tables, max_kl } = self;
        let mut estimates = tables.rollout.estimate(&tables.values, config.gae_lambda);
        normalise(&mut estimates.advantages);
        let surrogate = Surrogate {
            decisions: tables.rollout.decisions(),
            advantages: &estimates.advantages,
            visits: tables.visits(),
            old: tables.logits.clone(),
        };
        let g = surrogate.gradient();
        let product = |v: &[f64]| surrogate.fisher_product(v, config.damping);
        let x = conjugate_gradients(product, g.values(), config.cg_iterations);
        let curvature = dot(&x, &product(&x));
        // No curvature, no direction: every advantage is the same.
        if curvature > 0.0 {
            let scale = (2.0 * *max_kl / curvature).sqrt();
            let step: Vec<f64> = x.iter().map(|x| scale * x).collect();
            let factors = (0..config.line_search_steps).map(|j| config.backtrack_factor.powi(j as i32));
            line_search(&mut tables.logits, &surrogate, &step, *max_kl, factors);
        }
        tables.updates += 1;
        tables.rollout.fit(&mut tables.values, &estimates.targets, config.value_rate);
        tables.rollout.clear();
        tables.check()
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
            let probability = |table: &StageTable| table.policy(d.stage, d.state)[d.action];
            probability(logits) / probability(&self.old) * advantage
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
            let scale = advantage / self.decisions.len() as f64;
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

impl Agent for Trpo {
    fn begin_episode(&mut self, episode: usize) {
        let Config { max_kl, max_kl_decay, .. } = self.config;
        self.max_kl = max_kl / (1.0 + episode as f64 / max_kl_decay);
    }

    fn act(&mut self, x: &Input) -> usize {
        self.tables.act(x)
    }

    fn observe(&mut self, transition: &Transition) -> Result<(), UpdateError> {
        if self.tables.remember(transition, self.config.episodes_per_update) { self.update() } else { Ok(()) }
    }

    fn output(&self, _: &[Buffer]) -> Vec<Box<dyn OutputPolicy + '_>> {
        vec![Box::new(SoftmaxPolicy(&self.tables.logits))]
    }

    fn is_stochastic(&self) -> bool {
        true
    }

    fn updates(&self) -> u64 {
        self.tables.updates
    }

    fn save(&self) -> Vec<(&'static str, Vec<u8>)> {
        self.tables.save()
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        self.tables.restore(file)
    }

    fn weights(&self) -> Vec<u8> {
        self.tables.weights()
    }
}
