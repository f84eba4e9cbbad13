//! A complete plan: every level solved, bounds if exact values are not possible, and the report that users rely on.
//!
//! The command line and the Python package plan through this one function, so that they cannot differ.

use bqrl_math::buffer::Buffer;
use bqrl_mdp::evaluate::Evaluation;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::conditional::{self, ConditionalGreedy};
use bqrl_mdp::plan::{BufferedPlan, PlannedPolicy, Planner, Progress, QuantilePlan};
use bqrl_mdp::returns::{Rounding, TooManyReturns};
use serde::Serialize;

/// Values of the return when rewards must be rounded and no grid was given.
pub const DEFAULT_GRID: usize = 20_000;
/// Updates of the backward pass that may be spent, over all levels, on policies with a better mean and on closing
/// buffered certificates: a few seconds on one core, ten if memory is the limit. Small problems need much less.
const REFINE_UPDATES: u64 = 10_000_000_000;
/// The paper's rule is shown if the laws that it compares have at most this many atoms.
const RULE_ATOMS: usize = 20_000;

/// The request.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// τ, each with its buffer where the buffered optimum is wanted too.
    pub levels: Vec<(f64, Option<Buffer>)>,
    /// Round rewards to about this many values of the return, and report bounds.
    pub grid: Option<usize>,
    /// At most this many passes per level to raise a policy's mean within its slack; 12, fewer on large problems.
    pub refine: Option<usize>,
    /// At most this many passes per level to tighten the buffered certificate; 200, fewer on large problems.
    pub passes: Option<usize>,
}

/// Every level, solved.
pub struct Answer<'a> {
    /// The planner: exact, or with rewards rounded down.
    pub planner: Planner<'a>,
    /// One per level.
    pub solved: Vec<Solved>,
}

/// The output of `bqrl plan --json`, which users and scripts rely on.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Its name.
    pub problem: String,
    /// |𝒮|.
    pub states: usize,
    /// |𝒜|.
    pub actions: usize,
    /// H.
    pub horizon: usize,
    /// False if rewards were rounded; there are then bounds instead of values.
    pub exact: bool,
    /// Values on the grid of returns.
    pub returns: usize,
    /// `max_π E[R^π]`.
    pub max_mean: f64,
    /// One per level.
    pub taus: Vec<Level>,
}

/// One level of a [`Report`].
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// τ.
    pub tau: f64,
    /// Q*_τ, if it is exact.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_quantile: Option<f64>,
    /// Otherwise a lower bound, which some policy attains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_quantile_lower: Option<f64>,
    /// Otherwise an upper bound for every policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub best_quantile_upper: Option<f64>,
    /// The planned policy's P(R ≥ Q*_τ).
    pub probability_at_least: f64,
    /// The planned policy's `E[R]`.
    pub policy_mean: f64,
    /// Q_τ of the policy with the largest mean.
    pub risk_neutral_quantile: f64,
    /// The proof.
    pub certificate: Certificate,
    /// The buffered optimum, where a β was given.
    #[serde(flatten)]
    pub buffered: Option<Buffered>,
}

/// Why no policy does better: the least P(R < Q*) is below τ, the least P(R < next return) is not.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Certificate {
    /// min_π P(R < Q*_τ).
    pub least_probability_below: f64,
    /// The next larger return.
    pub next_return: Option<f64>,
    /// min_π P(R < next return).
    pub least_probability_below_next: Option<f64>,
}

/// Bounds of the buffered optimum: UB1 ≥ UB2 ≥ LB.
#[derive(Clone, Copy, Debug, Serialize)]
#[allow(clippy::struct_field_names)] // The names are the interface; the fields are flattened into their level.
pub struct Buffered {
    /// β.
    pub beta: f64,
    /// UB1.
    pub buffered_upper: f64,
    /// UB2, attained by a mixture.
    pub buffered_mixture: f64,
    /// LB, attained by the planned policy.
    pub buffered_lower: f64,
    /// That policy's Q_τ.
    pub buffered_policy_quantile: f64,
    /// That policy's `E[R]`.
    pub buffered_policy_mean: f64,
    /// Probability of the safer policy, if a random choice between two policies helps.
    pub mixture_weight: Option<f64>,
    /// The value of the paper's rule; null if its laws are too large to keep.
    pub paper_rule_quantile: Option<f64>,
    /// The same of Q_τ^β.
    pub paper_rule_buffered: Option<f64>,
}

/// One level, solved.
pub struct Solved {
    /// The point quantile.
    pub plan: QuantilePlan,
    /// Q*_τ's upper bound, when rewards were rounded.
    pub upper: Option<f64>,
    /// The buffered quantile and the paper's rule.
    pub buffered: Option<(BufferedPlan, Option<ConditionalGreedy>)>,
}

impl Solved {
    /// The policy to show and to write: that of the requested objective.
    pub fn policy(&self) -> &PlannedPolicy {
        self.buffered.as_ref().map_or(&self.plan.policy, |(plan, _)| &plan.policy)
    }

    /// That policy's exact law and mean.
    pub fn evaluation(&self) -> &Evaluation {
        self.buffered.as_ref().map_or(&self.plan.evaluation, |(plan, _)| &plan.evaluation)
    }
}

/// Solves every level. `note` is called if returns are rounded although no grid was requested.
pub fn solve<'a>(
    problem: &Problem,
    request: &Request,
    progress: Progress<'a>,
    note: &dyn Fn(&TooManyReturns),
) -> Result<Answer<'a>, TooManyReturns> {
    let (planner, above) = planners(problem, request.grid, progress, note)?;
    // The first pass is done; its cost predicts that of the next ones.
    let levels = request.levels.len().max(1) as u64;
    let affordable = (REFINE_UPDATES / planner.cost().1.max(1) / levels) as usize;
    let refine = request.refine.unwrap_or(affordable.min(12));
    let passes = request.passes.unwrap_or(affordable.clamp(12, 200));
    let solve = |&(tau, buffer): &(f64, Option<Buffer>)| Solved {
        plan: planner.quantile_policy(tau, refine),
        upper: above.as_ref().map(|above| above.best_quantile(tau).value),
        buffered: buffer.map(|buffer| {
            let mut plan = planner.buffered(buffer, passes);
            if let Some(above) = &above {
                let bounds = above.buffered(buffer, passes);
                (plan.upper, plan.mixture_upper) = (bounds.upper, bounds.mixture_upper);
            }
            (plan, conditional::greedy(&problem.model, buffer, RULE_ATOMS))
        }),
    };
    let solved = request.levels.iter().map(solve).collect();
    Ok(Answer { planner, solved })
}

type Bounds<'a> = (Planner<'a>, Option<Planner<'a>>);

/// The exact planner, or the two planners whose values bound the exact ones.
fn planners<'a>(
    problem: &Problem,
    grid: Option<usize>,
    progress: Progress<'a>,
    note: &dyn Fn(&TooManyReturns),
) -> Result<Bounds<'a>, TooManyReturns> {
    let model = &problem.model;
    let grid = match grid {
        Some(grid) => grid,
        None => match Planner::exact(model, progress) {
            Ok(planner) => return Ok((planner, None)),
            // With a discount, too many returns are normal: report bounds instead of an error.
            Err(error) if model.discount() < 1.0 => {
                note(&error);
                DEFAULT_GRID
            }
            Err(error) => return Err(error),
        },
    };
    let round = |rounding| Planner::rounded(model, grid, rounding, progress);
    Ok((round(Rounding::Down)?, Some(round(Rounding::Up)?)))
}

impl Answer<'_> {
    /// The report.
    pub fn report(&self, problem: &Problem) -> Report {
        let planner = &self.planner;
        Report {
            problem: problem.name.clone(),
            states: problem.model.n_states(),
            actions: problem.model.n_actions(),
            horizon: problem.model.horizon(),
            exact: planner.is_exact(),
            returns: planner.n_returns(),
            max_mean: planner.max_mean(),
            taus: self.solved.iter().map(|solved| self.level(solved)).collect(),
        }
    }

    fn level(&self, solved: &Solved) -> Level {
        let planner = &self.planner;
        let best = solved.plan.best;
        let tau = best.tau;
        let exact = planner.is_exact();
        // Rounding at every stage can move a bound outside the possible range.
        let (low, high) = planner.range();
        Level {
            tau,
            best_quantile: exact.then_some(best.value),
            best_quantile_lower: (!exact).then_some(best.value.max(low)),
            best_quantile_upper: solved.upper.map(|upper| upper.min(high)),
            probability_at_least: solved.plan.probability_at_least,
            policy_mean: solved.plan.evaluation.mean,
            risk_neutral_quantile: planner.mean_evaluation().law.quantile(tau),
            certificate: Certificate {
                least_probability_below: best.least_below,
                next_return: best.next.map(|(value, _)| value),
                least_probability_below_next: best.next.map(|(_, probability)| probability),
            },
            buffered: solved.buffered.as_ref().map(|(plan, rule)| Buffered {
                beta: plan.buffer.beta(),
                buffered_upper: plan.upper.min(high),
                buffered_mixture: plan.mixture_upper.min(high),
                buffered_lower: plan.lower.max(low),
                buffered_policy_quantile: plan.evaluation.law.quantile(tau),
                buffered_policy_mean: plan.evaluation.mean,
                mixture_weight: plan.mixture.as_ref().map(|mixture| mixture.weight),
                paper_rule_quantile: rule.as_ref().map(|rule| rule.law.quantile(tau)),
                paper_rule_buffered: rule.as_ref().map(|rule| rule.law.buffered_quantile(&plan.buffer)),
            }),
        }
    }
}
