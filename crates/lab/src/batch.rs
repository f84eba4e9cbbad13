//! Many runs at once: all seeds of all runs share the cores, and each run has the same result as if it ran alone.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bqrl_agents::AgentError;
use bqrl_agents::experience::replay::machine;
use bqrl_runs::atomic;
use bqrl_runs::lock::Lock;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::schema::Summary;
use rayon::prelude::*;
use thiserror::Error;

use crate::config::{AgentConfig, Config, ConfigError};
use crate::outcome;
use crate::run::{Finished, Hooks, RunError, check_agent, run_seed};
use crate::summary::summarise;
use crate::task::{References, RestrictedActions, Simulator, Table, Task};

/// A checked run: its task is built and its references are planned, but nothing is written yet.
pub struct Prepared {
    /// Every setting.
    pub config: Config,
    /// The task.
    pub task: Arc<dyn Task>,
    /// The references of its measures.
    pub references: Arc<References>,
    /// The contents of the MDP file, if the problem is one.
    file: Option<Vec<u8>>,
}

/// Why a configuration cannot be run.
#[derive(Debug, Error)]
pub enum PrepareError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The table lacks actions.
    #[error("{name}: {error}")]
    Restricted {
        /// The problem.
        name: String,
        /// The missing action.
        error: RestrictedActions,
    },
    /// The agent cannot be made.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// Open episodes would not fit in memory.
    #[error(
        "run.lanes: {lanes} lanes with episodes of up to {horizon} steps need {:.1} GB, this machine has {:.1} GB",
        *bytes as f64 / 1e9, *available as f64 / 1e9
    )]
    Lanes {
        /// Copies of the environment.
        lanes: usize,
        /// The longest an episode can be.
        horizon: usize,
        /// What their open episodes may need.
        bytes: u64,
        /// What this process may use.
        available: u64,
    },
}

/// Bytes of one step of an open episode, at most: agents that learn from whole episodes keep their steps.
const STEP: u64 = 64;

/// Refuses lanes whose open episodes would not fit in memory.
fn check_lanes(lanes: usize, horizon: usize) -> Result<(), PrepareError> {
    let bytes = STEP.saturating_mul(lanes as u64).saturating_mul(horizon as u64);
    match machine() {
        Some(available) if bytes > available => Err(PrepareError::Lanes { lanes, horizon, bytes, available }),
        _ => Ok(()),
    }
}

impl Prepared {
    /// Builds the task, checks the agent's settings and plans the references.
    pub fn new(config: Config) -> Result<Self, PrepareError> {
        let (task, file) = load_with_file(&config)?;
        check_lanes(config.run.lanes, task.spec().horizon)?;
        check_agent(&config, task.spec())?;
        let references = Arc::new(References::new(&*task, config.levels()?));
        Ok(Self { config, task, references, file })
    }

    /// Ready to begin in a directory that is new or about to be extended: writes the configuration, and a copy of the MDP
    /// file unless there is one.
    pub fn begin(self, dir: RunDir, lock: Lock) -> io::Result<Ready> {
        if let Some(file) = self.file.as_ref().filter(|_| !dir.table().exists()) {
            atomic::write(&dir.table(), file)?;
        }
        // Last: a directory with a configuration is a run.
        atomic::write(&dir.config(), self.config.to_toml().as_bytes())?;
        Ok(self.resume(dir, lock))
    }

    /// Ready to run in a directory that is locked and holds the configuration.
    pub fn resume(self, dir: RunDir, lock: Lock) -> Ready {
        let Self { config, task, references, .. } = self;
        Ready { config, task, references, dir, lock }
    }
}

/// The task of a configuration.
pub fn load(config: &Config) -> Result<Arc<dyn Task>, PrepareError> {
    load_with_file(config).map(|(task, _)| task)
}

/// A task, and the contents of its MDP file if it has one.
type Loaded = (Arc<dyn Task>, Option<Vec<u8>>);

fn load_with_file(config: &Config) -> Result<Loaded, PrepareError> {
    if let Some(game) = config.problem.game()? {
        return Ok((Arc::new(Simulator::new(game.actions(), move || game.env())), None));
    }
    let (problem, file) = config.problem.load_with_file()?;
    let table = Table::new(problem)
        .map_err(|error| PrepareError::Restricted { name: config.problem.name.clone(), error })?;
    Ok((Arc::new(table), file))
}

/// A run that is ready to begin or to be resumed.
pub struct Ready {
    /// Every setting.
    pub config: Config,
    /// The task.
    pub task: Arc<dyn Task>,
    /// The references of its measures.
    pub references: Arc<References>,
    /// Its directory, which holds the configuration.
    pub dir: RunDir,
    /// Held while it runs.
    pub lock: Lock,
}

/// Runs everything on the current thread pool: the first seed of every run in the order of the list, then the second ones, so that
/// what is interrupted has as many seeds of each run as possible. Results have the order of the runs.
pub fn run_all(runs: &[Ready], hooks: &Hooks) -> Vec<Result<Summary, RunError>> {
    // Written first, so that a run in progress can be read with its references.
    let described: Vec<io::Result<()>> =
        runs.par_iter().map(|run| outcome::describe(&run.dir, &*run.task, &run.references)).collect();
    let of_run = |(index, run): (usize, &Ready)| (0..run.config.run.seeds.len()).map(move |k| (k, index));
    let mut seeds: Vec<(usize, usize)> = runs.iter().enumerate().flat_map(of_run).collect();
    seeds.sort_unstable();
    let mut results: Vec<(usize, usize, Result<Finished, RunError>)> = seeds
        .into_iter()
        // One seed at a time, in order: a long run must not wait in the queue of a busy thread.
        .par_bridge()
        .map(|(k, index)| {
            let Ready { config, task, references, dir, .. } = &runs[index];
            // After a stop no further seed is begun.
            if hooks.stop.load(Ordering::Relaxed) {
                return (index, k, Err(RunError::Interrupted { episode: 0, step: 0 }));
            }
            let seed = config.run.seeds[k];
            (index, k, run_seed(config, task.clone(), references.clone(), seed, &dir.seed(seed), hooks))
        })
        .collect();
    results.sort_by_key(|&(index, k, _)| (index, k));
    let mut results = results.into_iter().map(|(.., result)| result);
    runs.iter()
        .zip(described)
        .map(|(run, described)| {
            let own: Vec<_> = results.by_ref().take(run.config.run.seeds.len()).collect();
            described?;
            finish(run, own)
        })
        .collect()
}

/// Summarises the seeds of a run. Of several errors, one that is not an interruption is returned.
fn finish(run: &Ready, results: Vec<Result<Finished, RunError>>) -> Result<Summary, RunError> {
    let (mut finished, mut failed) = (Vec::new(), None);
    for result in results {
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
    let Ready { config, task, references, dir, .. } = run;
    conclude(config, &**task, references, dir, &finished)
}

/// Writes the files of a finished run that do not belong to a seed.
pub fn conclude(
    config: &Config,
    task: &dyn Task,
    references: &References,
    dir: &RunDir,
    finished: &[Finished],
) -> Result<Summary, RunError> {
    let name = dir.path().display().to_string();
    let mut summary = summarise(name, config, references, finished);
    if let (AgentConfig::DeepBqrl(_), Some(problem)) = (&config.agent, task.table()) {
        for (level, reference) in summary.taus.iter_mut().zip(&references.levels) {
            level.rule_quantile = outcome::rule_quantile(problem, reference.buffer);
        }
    }
    atomic::write(&dir.summary(), summary.to_json().as_bytes())?;
    Ok(summary)
}
