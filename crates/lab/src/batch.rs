//! Many runs at once: all seeds of all runs share the cores, and each run ends as if it had been alone.

use bqrl_mdp::model::Problem;
use bqrl_runs::atomic;
use bqrl_runs::run_dir::{Lock, RunDir};
use rayon::prelude::*;

use crate::config::{AgentConfig, Config};
use crate::outcome;
use crate::run::{Finished, Hooks, RunError, run_seed};
use crate::summary::Summary;
use crate::train::Yardstick;

/// A run that is ready to begin or to go on.
pub struct Ready {
    /// Every setting.
    pub config: Config,
    /// What is learned.
    pub problem: Problem,
    /// What it is measured against.
    pub yardstick: Yardstick,
    /// Where it is written, with its configuration in place.
    pub dir: RunDir,
    /// Held while it runs.
    pub lock: Lock,
}

/// When a seed was worked on.
struct Span {
    began: f64,
    ended: f64,
}

/// Runs everything on the current thread pool. Seeds are started in the order of the list; every result stands by its run.
pub fn run_all(runs: &[Ready], hooks: &Hooks) -> Vec<Result<Summary, RunError>> {
    let seeds: Vec<(&Ready, u64)> =
        runs.iter().flat_map(|run| run.config.run.seeds.iter().map(move |&seed| (run, seed))).collect();
    let results: Vec<(Result<Finished, RunError>, Span)> = seeds
        .par_iter()
        // One seed at a time, in order: a long run must not wait in the pile of a busy thread.
        .with_max_len(1)
        .map(|(run, seed)| {
            let began = (hooks.clock)();
            let Ready { config, problem, yardstick, dir, .. } = run;
            let result = run_seed(config, problem, yardstick, *seed, &dir.seed(*seed), hooks);
            (result, Span { began, ended: (hooks.clock)() })
        })
        .collect();
    let mut results = results.into_iter();
    runs.iter()
        .map(|run| {
            let own: Vec<_> = results.by_ref().take(run.config.run.seeds.len()).collect();
            finish(run, own)
        })
        .collect()
}

/// Sums up the seeds of a run; of several errors the one that is no mere interruption.
fn finish(run: &Ready, results: Vec<(Result<Finished, RunError>, Span)>) -> Result<Summary, RunError> {
    let (mut finished, mut failed) = (Vec::new(), None);
    let (mut began, mut ended) = (f64::INFINITY, f64::NEG_INFINITY);
    for (result, span) in results {
        (began, ended) = (began.min(span.began), ended.max(span.ended));
        match result {
            Ok(done) => finished.push(done),
            Err(error) if failed.is_none() || !matches!(error, RunError::Interrupted { .. }) => {
                failed = Some(error);
            }
            Err(_) => {}
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    let Ready { config, problem, yardstick, dir, .. } = run;
    outcome::describe(dir, problem, yardstick)?;
    let name = dir.path().display().to_string();
    let mut summary = Summary::new(name, config, yardstick, &finished, ended - began);
    if let AgentConfig::DeepBqrl(_) = config.agent {
        for (level, &(buffer, _)) in summary.taus.iter_mut().zip(&yardstick.levels) {
            level.rule_quantile = outcome::rule_quantile(problem, buffer);
        }
    }
    atomic::write(&dir.summary(), summary.to_json().as_bytes())?;
    Ok(summary)
}
