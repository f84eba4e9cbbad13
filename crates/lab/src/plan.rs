//! A complete plan: every level solved, bounds if exact values are not possible, and the report that users rely on.
//!
//! The command line and the Python package plan through this one function, so that they cannot differ.

use bqrl_math::buffer::Buffer;
use bqrl_math::{Purpose, stream};
use bqrl_mdp::evaluate::{Evaluation, Policy, evaluate};
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::conditional::{self, ConditionalGreedy};
use bqrl_mdp::plan::confident::{ConfidentError, ConfidentPlan, ConfidentPolicy, Construction, resampled};
use bqrl_mdp::plan::{BufferedPlan, PlannedPolicy, Planner, Progress, QuantilePlan};
use bqrl_mdp::returns::{Rounding, TooManyReturns};
use bqrl_mdp::trajectory::AugmentedInput;
use serde::Serialize;
use thiserror::Error;

/// Values of the return when rewards must be rounded and no grid was given.
pub const DEFAULT_GRID: usize = 20_000;
/// Updates of the backward pass that may be spent, over all levels, on policies with a better mean and on closing
/// buffered certificates: a few seconds on one core, ten if memory is the limit. Small problems need much less.
const REFINE_UPDATES: u64 = 10_000_000_000;
/// The paper's rule is shown if the laws that it compares have at most this many atoms.
const RULE_ATOMS: usize = 20_000;
/// Tables that are drawn for a bootstrap interval.
const RESAMPLES: usize = 100;

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
    /// If the table was counted: a policy with a promise that holds with this confidence, beside the plain estimate.
    pub confidence: Option<f64>,
}

/// Every level, solved.
pub struct Answer<'a> {
    /// The planner: exact, or with rewards rounded down.
    pub planner: Planner<'a>,
    /// One per level.
    pub solved: Vec<Solved>,
}

/// Why a plan is not possible.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum PlanError {
    #[error(transparent)]
    TooManyReturns(#[from] TooManyReturns),
    #[error("a confidence must lie in (0, 1), got {confidence}")]
    Confidence { confidence: f64 },
    #[error("a plan with a confidence needs a table with counts, {name} has none")]
    NoCounts { name: String },
    #[error("{name}: {error}")]
    Confident { name: String, error: ConfidentError },
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
    /// Whether the probabilities are estimates from counts: nothing but a promise is then sure.
    pub estimated: bool,
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
    /// The figures of the policy that is returned, whatever it was planned for.
    pub policy: OfPolicy,
    /// The buffered optimum, where a β was given.
    #[serde(flatten)]
    pub buffered: Option<Buffered>,
    /// The promise, where a confidence was given. It belongs to the policy that is returned then.
    #[serde(flatten)]
    pub promise: Option<Promise>,
}

/// The figures of the policy that is returned: that of the promise, of the buffered quantile, or of the quantile.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct OfPolicy {
    /// Its Q_τ.
    pub quantile: f64,
    /// Its P(R ≥ Q*_τ).
    pub probability_at_least: f64,
    /// Its `E[R]`.
    pub mean: f64,
}

/// The promises that the data of a table support.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Promise {
    /// The confidence.
    pub confidence: f64,
    /// The best quantile if the estimated probabilities were true: no promise.
    pub estimated_quantile: f64,
    /// With the confidence, the returned policy's Q_τ is at least this.
    pub certified_quantile: f64,
    /// With the confidence, the returned policy's P(R ≥ `certified_quantile`) is at least this.
    pub certified_probability: f64,
    /// False if the data support nothing better than the worst possible return. The returned policy is then that of the plain estimate, for
    /// want of a better one; nothing is promised about it.
    pub supported: bool,
    /// Q_τ of the returned policy if the estimated probabilities were true.
    pub policy_estimate: f64,
    /// Its mean, likewise.
    pub policy_estimated_mean: f64,
    /// Where Q_τ of the returned policy lies in 90 of 100 resampled tables: a practical indicator, no promise.
    pub bootstrap_interval: Option<[f64; 2]>,
    /// With the confidence, the returned policy's Q_τ^β is at least this, where a β was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certified_buffered: Option<f64>,
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
    /// The promise, where a confidence was given.
    pub promise: Option<Promise>,
    /// The policy to show and to write: that of the requested objective.
    pub policy: Returned,
    /// That policy's exact law and mean.
    pub evaluation: Evaluation,
}

/// A policy that a plan returns.
#[derive(Clone, Debug)]
pub enum Returned {
    /// Planned on the table as if it were certain.
    Planned(PlannedPolicy),
    /// Planned on counts, with a promise.
    Confident(ConfidentPolicy),
}

impl Returned {
    /// The action at x.
    pub fn action(&self, x: &AugmentedInput) -> usize {
        match self {
            Self::Planned(policy) => policy.action(x),
            Self::Confident(policy) => policy.action(x),
        }
    }
}

impl Policy for Returned {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        choice.push((self.action(x), 1.0));
    }
}

impl Solved {
    /// The total that the returned policy plays for: Q*_τ, its own Q_τ with a buffer, or the promise.
    pub fn target(&self) -> f64 {
        match (&self.promise, &self.buffered) {
            (Some(promise), _) if promise.supported => promise.certified_quantile,
            (_, None) => self.plan.best.value,
            _ => self.evaluation.law.quantile(self.plan.best.tau),
        }
    }
}

/// Solves every level. `note` is called if returns are rounded although no grid was requested.
pub fn solve<'a>(
    problem: &Problem,
    request: &Request,
    progress: Progress<'a>,
    note: &dyn Fn(&TooManyReturns),
) -> Result<Answer<'a>, PlanError> {
    let confident = request
        .confidence
        .map(|confidence| confident(problem, confidence, request.levels.len()))
        .transpose()?;
    let (planner, above) = planners(problem, request.grid, progress, note)?;
    // The first pass is done; its cost predicts that of the next ones.
    let levels = request.levels.len().max(1) as u64;
    let affordable = (REFINE_UPDATES / planner.cost().1.max(1) / levels) as usize;
    let refine = request.refine.unwrap_or(affordable.min(12));
    let passes = request.passes.unwrap_or(affordable.clamp(12, 200));
    let solve = |&(tau, buffer): &(f64, Option<Buffer>)| {
        let plan = planner.quantile_policy(tau, refine);
        let buffered = buffer.map(|buffer| {
            let mut plan = planner.buffered(buffer, passes);
            if let Some(above) = &above {
                let bounds = above.buffered(buffer, passes);
                (plan.upper, plan.mixture_upper) = (bounds.upper, bounds.mixture_upper);
            }
            (plan, conditional::greedy(&problem.model, buffer, RULE_ATOMS))
        });
        let plain = match &buffered {
            Some((plan, _)) => (&plan.policy, &plan.evaluation),
            None => (&plan.policy, &plan.evaluation),
        };
        let (mut policy, mut evaluation) = (Returned::Planned(plain.0.clone()), plain.1.clone());
        let promise = confident.as_ref().map(|(confident, confidence)| {
            // Policies belong to the requested objective, and so do all promises.
            let promised = buffer.map(|buffer| confident.certified_buffered(tau, buffer.beta()));
            let certified = promised.map_or_else(|| confident.certified(tau), |(_, certified)| certified);
            if !certified.nothing {
                policy = Returned::Confident(confident.policy(certified.value));
                evaluation = planner.evaluate(&policy);
            }
            Promise {
                confidence: *confidence,
                estimated_quantile: plan.best.value,
                certified_quantile: certified.value,
                certified_probability: 1.0 - certified.below,
                supported: !certified.nothing,
                policy_estimate: evaluation.law.quantile(tau),
                policy_estimated_mean: evaluation.mean,
                bootstrap_interval: bootstrap(problem, &policy, tau),
                certified_buffered: promised.map(|(value, _)| value),
            }
        });
        let upper = above.as_ref().map(|above| above.best_quantile(tau).value);
        Solved { plan, upper, buffered, promise, policy, evaluation }
    };
    let solved = request.levels.iter().map(solve).collect();
    Ok(Answer { planner, solved })
}

fn confident(problem: &Problem, confidence: f64, levels: usize) -> Result<(ConfidentPlan, f64), PlanError> {
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(PlanError::Confidence { confidence });
    }
    let name = || problem.name.clone();
    let counts = problem.data.counts.as_ref().ok_or_else(|| PlanError::NoCounts { name: name() })?;
    let plan = ConfidentPlan::new(problem, counts, confidence, levels, Construction::Bets)
        .map_err(|error| PlanError::Confident { name: name(), error })?;
    Ok((plan, confidence))
}

/// The 5th and 95th percentile of a policy's Q_τ over resampled tables; `None` without counts. An indicator, no promise.
pub fn bootstrap(problem: &Problem, policy: &dyn Policy, tau: f64) -> Option<[f64; 2]> {
    let counts = problem.data.counts.as_ref()?;
    let mut rng = stream(0, Purpose::Bootstrap);
    let mut quantiles = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        let model = resampled(&problem.model, counts, &mut rng).ok()?;
        quantiles.push(evaluate(&model, policy).ok()?.law.quantile(tau));
    }
    quantiles.sort_unstable_by(f64::total_cmp);
    let at = |share: f64| quantiles[(share * (RESAMPLES - 1) as f64).round() as usize];
    Some([at(0.05), at(0.95)])
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
            estimated: problem.data.counts.is_some(),
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
        let tolerance = 1e-9 * (1.0 + best.value.abs());
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
            policy: OfPolicy {
                quantile: solved.evaluation.law.quantile(tau),
                probability_at_least: 1.0 - solved.evaluation.law.probability_below(best.value - tolerance),
                mean: solved.evaluation.mean,
            },
            promise: solved.promise,
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
