//! A policy beside the largest mean and the best percentiles.

use bqrl_math::law::ReturnLaw;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Progress;
use bqrl_mdp::returns::TooManyReturns;
use serde::Serialize;

use crate::given::Valued;
use crate::plan::{PlanError, Request, solve};

/// The output of `bqrl compare --json`, which users and scripts rely on.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Its name.
    pub problem: String,
    /// False if rewards were rounded down somewhere: values are then lower bounds.
    pub exact: bool,
    /// Whether the probabilities are estimates from counts.
    pub estimated: bool,
    /// The policy itself, the one with the largest mean, and one per level.
    pub policies: Vec<Row>,
}

/// One policy.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// `yours`, `risk-neutral`, or `percentile`.
    pub policy: &'static str,
    /// The level that a percentile policy is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tau: Option<f64>,
    /// `E[R]`.
    pub mean: f64,
    /// One per level.
    pub quantiles: Vec<Quantile>,
    /// The law of its return.
    #[serde(skip)]
    pub law: ReturnLaw,
}

/// Q_τ of a policy.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Quantile {
    /// τ.
    pub tau: f64,
    /// Q_τ.
    pub quantile: f64,
}

/// Compares. `note` is called if returns are rounded although no grid was requested.
pub fn compare(
    problem: &Problem,
    yours: &Valued,
    taus: &[f64],
    progress: Progress<'_>,
    note: &dyn Fn(&TooManyReturns),
) -> Result<Comparison, PlanError> {
    let levels = taus.iter().map(|&tau| (tau, None)).collect();
    let answer = solve(problem, &Request { levels, ..Request::default() }, progress, note)?;
    let row = |policy, tau, mean, law: &ReturnLaw| Row {
        policy,
        tau,
        mean,
        quantiles: taus.iter().map(|&tau| Quantile { tau, quantile: law.quantile(tau) }).collect(),
        law: law.clone(),
    };
    let neutral = answer.planner.mean_evaluation();
    let mut policies = vec![
        row("yours", None, yours.evaluation.mean, &yours.evaluation.law),
        row("risk-neutral", None, neutral.mean, &neutral.law),
    ];
    for (solved, &tau) in answer.solved.iter().zip(taus) {
        policies.push(row("percentile", Some(tau), solved.evaluation.mean, &solved.evaluation.law));
    }
    Ok(Comparison {
        problem: problem.name.clone(),
        exact: yours.exact && answer.planner.is_exact(),
        estimated: problem.data.counts.is_some(),
        policies,
    })
}
