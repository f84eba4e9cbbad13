//! Given policies, valued: `--policy FILE.csv|RULE`.

use std::fs::File;
use std::path::Path;

use bqrl_lab::given::{GivenError, GivenPolicy, Valued};
use bqrl_lab::plan::bootstrap;
use bqrl_mdp::model::Problem;

use crate::failure::Failure;

/// Reads a policy, a file by its path or else a rule. `tau` chooses among the policies of a file.
pub fn read<'a>(problem: &'a Problem, policy: &str, tau: Option<f64>) -> Result<GivenPolicy<'a>, Failure> {
    let path = Path::new(policy);
    let is_file = path.exists() || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    if !is_file {
        return GivenPolicy::rule(policy, problem).map_err(|error| {
            let hint = "a rule is an action, \"up to N\", or \"if state >= N then ACTION else ACTION\"; a file ends in .csv";
            Failure::usage(error).hint(hint)
        });
    }
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("reading {policy}: {error}"));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    GivenPolicy::read(file, problem, tau).map_err(|error| match error {
        GivenError::Levels { .. } => wrong(&error).hint("--tau with one level chooses it"),
        error => wrong(&error),
    })
}

/// Reads a policy and finds its law.
pub fn value(problem: &Problem, policy: &str, tau: Option<f64>) -> Result<Valued, Failure> {
    let given = read(problem, policy, tau)?;
    let valued = Valued::new(problem, &given);
    match given.failure() {
        Some(error) => Err(Failure::usage(format!("{policy}: {error}"))),
        None => Ok(valued),
    }
}

/// If the table was counted, where the policy's Q_τ lies in most resampled tables.
pub fn interval(problem: &Problem, policy: &str, one: Option<f64>, tau: f64) -> Option<[f64; 2]> {
    let given = read(problem, policy, one).ok()?;
    bootstrap(problem, &given, tau)
}
