//! Training that Python started, with or without a run directory; and run directories that Python opens.
//!
//! With a directory, the run is that of the command line: the same configuration, rows, evaluations, checkpoints, tables and
//! summary, written by the same code. What only Python can know of an environment lies beside them, `seed-N/model.json`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use bqrl_lab::batch::conclude;
use bqrl_lab::config::{Config, ConfigError, Layers, Length, RunConfig};
use bqrl_lab::outcome;
use bqrl_lab::run::{Hooks, RunError, SeedRun, standing};
use bqrl_lab::train::{Ended, Training};
use bqrl_math::schedule::{Clock, Span};
use bqrl_runs::checkpoint::{CheckpointStore, Loaded};
use bqrl_runs::lock::Lock;
use bqrl_runs::run_dir::{RunDir, SeedDir};
use bqrl_runs::{atomic, regular};
use pyo3::exceptions::{PyFloatingPointError, PyRuntimeError};
use pyo3::prelude::*;

use crate::convert::{os_error, value_error};
use crate::lanes::py_error;
use crate::learner::failed;
use crate::saved::Saved;

/// Episodes of an evaluation: fewer than on the command line, because Python's environments are slower.
const EVALUATION_EPISODES: usize = 100;

/// Bytes of a `model.json`; the bounds of large observations are in it.
const MOST_MODEL: u64 = 256 << 20;

/// Where and how a run is recorded.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Log {
    /// The directory.
    pub path: PathBuf,
    /// Such as `"1000 steps"`; a tenth of the training where nothing is said, or as before.
    pub evaluate_every: Option<String>,
    /// Episodes to play in an evaluation; 100 where nothing is said, or as before.
    pub evaluation_episodes: Option<usize>,
    /// Makes lanes to evaluate in.
    pub evaluation: Option<Py<PyAny>>,
    /// The run's seeds, where it has several.
    pub seeds: Option<Vec<u64>>,
    /// Whether the directory is known to be this run's: another of its seeds began it, or it is resumed.
    pub joins: bool,
    /// Whether to replace another run that is there.
    pub replaces: bool,
}

/// A run directory, locked.
pub struct Run {
    dir: RunDir,
    lock: Lock,
    store: CheckpointStore,
    latest: Option<Loaded>,
}

impl Run {
    /// A new run, or the model's own, which goes on. The configuration becomes the run's.
    pub fn open(log: &Log, config: &mut Config, earlier: Option<&Path>, clock: Clock) -> PyResult<Self> {
        let seed = config.run.seeds[0];
        if let Some(seeds) = &log.seeds {
            config.run.seeds.clone_from(seeds);
        }
        let joins = log.joins || earlier == Some(log.path.as_path());
        let own = joins.then(|| Self::own(&log.path, config)).flatten();
        let length = config.run.length();
        if let Some((_, before)) = &own {
            let RunConfig { evaluate_every, checkpoint_every, evaluation_episodes, .. } = before.run;
            (config.run.evaluate_every, config.run.checkpoint_every) = (evaluate_every, checkpoint_every);
            config.run.evaluation_episodes = evaluation_episodes;
        } else {
            let tenth = (length.amount() - length.done(&clock)).div_ceil(10);
            let every: Span = format!("{tenth} {}", length.unit()).parse().expect("a number and a unit");
            (config.run.evaluate_every, config.run.checkpoint_every) = (every, every);
            config.run.evaluation_episodes = EVALUATION_EPISODES;
        }
        if let Some(every) = &log.evaluate_every {
            let every = every.parse().map_err(value_error)?;
            (config.run.evaluate_every, config.run.checkpoint_every) = (every, every);
        }
        config.run.evaluation_episodes = log.evaluation_episodes.unwrap_or(config.run.evaluation_episodes);
        // Checked as a whole: what is written down must be readable.
        read_config(&config.to_toml()).map_err(value_error)?;
        let Some((dir, before)) = own else {
            let (dir, lock) = RunDir::create(&log.path, log.replaces).map_err(os_error)?;
            let store = dir.seed(seed).checkpoint_store();
            return Ok(Self { dir, lock, store, latest: None });
        };
        let named = log.path.display();
        if before.run.counts_steps() != config.run.counts_steps() {
            let unit = before.run.length().unit();
            return Err(value_error(format!(
                "{named} counts {unit}: learn on in {unit}, or in a new log_dir"
            )));
        }
        let lock = dir.lock().map_err(os_error)?;
        let store = dir.seed(seed).checkpoint_store();
        let latest = store.latest().map_err(os_error)?;
        if let Some(checkpoint) = &latest {
            let there = standing(checkpoint).map_err(value_error)?.0.clock.steps;
            let here = clock.steps;
            if there > here {
                return Err(value_error(format!(
                    "{named} is at step {there}, this model was saved at step {here}: bqrl.load the directory instead, or learn \
                     in a new log_dir"
                )));
            }
            if there < here {
                return Err(value_error(format!(
                    "{named} ends at step {there}, the model learned on to step {here} without it: learn in a new log_dir"
                )));
            }
        }
        Ok(Self { dir, lock, store, latest })
    }

    /// The run that is there, if it is one of this model: all but its length and its evaluations must agree.
    fn own(path: &Path, config: &Config) -> Option<(RunDir, Config)> {
        let dir = RunDir::open(path).ok()?;
        let mut before = Config::of_run(&dir).ok()?;
        before.problem.copy.clone_from(&config.problem.copy);
        let RunConfig { tau, beta, seeds, lanes, .. } = &before.run;
        let same = (tau, beta, seeds, lanes)
            == (&config.run.tau, &config.run.beta, &config.run.seeds, &config.run.lanes)
            && (&before.agent, &before.problem) == (&config.agent, &config.problem);
        same.then_some((dir, before))
    }
}

fn read_config(text: &str) -> Result<Config, ConfigError> {
    Layers::written(text, "config.toml").and_then(|layers| layers.finish("config.toml"))
}

/// A training under way.
pub enum Course {
    /// Without records.
    Plain {
        /// The training.
        training: Box<Training>,
        /// How long.
        length: Length,
    },
    /// With a run directory.
    Logged(Box<Logged>),
}

/// A run under way.
pub struct Logged {
    run: SeedRun,
    config: Config,
    dir: RunDir,
    _lock: Lock,
}

/// The time, as run files have it.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64())
}

/// Hooks of a run that is watched from Python: the watcher is called elsewhere, and stops the run by other means.
fn with_hooks<T>(work: impl FnOnce(&Hooks) -> T) -> T {
    let stop = AtomicBool::new(false);
    work(&Hooks { stop: &stop, watch: &|_| {}, warn: &|_| {}, clock: &now })
}

impl Course {
    /// A training that stands where the run does.
    pub fn logged(run: Run, config: &Config, mut training: Training, model: &Saved) -> PyResult<Self> {
        let Run { dir, lock, store, latest } = run;
        let lanes = training.play.lanes().n_lanes();
        if lanes != config.run.lanes {
            return Err(value_error(format!(
                "the model was made for {} environments side by side, its run directory cannot have {lanes}",
                config.run.lanes
            )));
        }
        // The run is not finished any more.
        atomic::remove(&dir.summary()).map_err(os_error)?;
        config.problem.keep_file(&dir).map_err(value_error)?;
        atomic::write(&dir.config(), config.to_toml().as_bytes()).map_err(os_error)?;
        let place = dir.seed(training.seed());
        place.create().map_err(os_error)?;
        if config.problem.python {
            let json = serde_json::to_vec_pretty(model).expect("plain values serialise");
            atomic::write(&model_file(&place), &json).map_err(os_error)?;
        }
        outcome::describe(&dir, training.task(), training.references()).map_err(os_error)?;
        if let Some(checkpoint) = &latest {
            training.progress = standing(checkpoint).map_err(value_error)?.0;
        }
        let run = with_hooks(|hooks| {
            let learned = training.progress.clock.steps > 0;
            let mut run = SeedRun::attach(config, training, store, latest.as_ref(), &place, hooks)?;
            if learned && latest.is_none() {
                // Learning that happened before the run began cannot be repeated from its start.
                run.checkpoint(hooks)?;
            }
            Ok(run)
        });
        let run = run.map_err(run_error)?;
        Ok(Self::Logged(Box::new(Logged { run, config: config.clone(), dir, _lock: lock })))
    }

    /// The training.
    pub fn training(&self) -> &Training {
        match self {
            Course::Plain { training, .. } => training,
            Course::Logged(logged) => &logged.run.training,
        }
    }

    /// Whether it has reached its length.
    pub fn is_done(&self) -> bool {
        match self {
            Course::Plain { training, length } => length.is_reached(&training.progress.clock),
            Course::Logged(logged) => logged.run.is_done(),
        }
    }

    /// One step of all lanes, and what is due after it.
    pub fn tick(&mut self) -> PyResult<Vec<Ended>> {
        match self {
            Course::Plain { training, .. } => {
                let result = training.tick();
                let (episode, update) = (training.progress.clock.episodes + 1, training.agent.updates());
                result.map_err(|error| failed(error, episode, update))
            }
            Course::Logged(logged) => with_hooks(|hooks| logged.run.tick(hooks)).map_err(run_error),
        }
    }

    /// Ends it: a run that was stopped early is left so that it can be resumed.
    pub fn end(self, error: Option<&PyErr>) -> PyResult<()> {
        let Course::Logged(logged) = self else { return Ok(()) };
        let Logged { mut run, config, dir, .. } = *logged;
        if error.is_some_and(|error| Python::attach(|py| error.is_instance_of::<PyFloatingPointError>(py))) {
            // The checkpoint before is better than an agent that cannot go on.
            return Ok(());
        }
        if error.is_some() || !run.is_done() {
            return with_hooks(|hooks| run.pause(hooks)).map_err(os_error);
        }
        let (task, references) = run.training.parts();
        let this = run.training.seed();
        let mut own = Some(with_hooks(|hooks| run.finish(hooks)).map_err(run_error)?);
        let mut finished = Vec::new();
        for &seed in &config.run.seeds {
            let one = if seed == this {
                own.take()
            } else {
                bqrl_lab::run::finished(&config, &dir.seed(seed)).map_err(value_error)?
            };
            // The last of the seeds to finish sums them up.
            let Some(one) = one else { return Ok(()) };
            finished.push(one);
        }
        conclude(&config, &*task, &references, &dir, &finished).map_err(run_error)?;
        Ok(())
    }
}

/// The exception for what went wrong in a run.
fn run_error(error: RunError) -> PyErr {
    match error {
        RunError::Env { error, episode, .. } => py_error(error, episode),
        RunError::NotFinite { episode, update, error, .. } => {
            PyFloatingPointError::new_err(format!("episode {episode}, update {update}: {error}"))
        }
        RunError::Io(error) => os_error(error),
        RunError::Agent(error) => value_error(error),
        RunError::Restore { .. } | RunError::Changed { .. } => value_error(error),
        RunError::Interrupted { .. } => PyRuntimeError::new_err(error.to_string()),
    }
}

/// A seed of a run, as its last checkpoint left it.
pub struct Stored {
    /// Every setting, of this seed alone.
    pub config: Config,
    /// Which seed.
    pub seed: u64,
    /// How many the run has.
    pub n_seeds: usize,
    /// Its last checkpoint.
    pub checkpoint: Loaded,
    /// `model.json`, where Python trained on an environment of its own.
    pub model: Option<Vec<u8>>,
}

fn model_file(seed: &SeedDir) -> PathBuf {
    seed.path().join("model.json")
}

/// Opens a run directory; the first seed unless another is named.
pub fn open(path: &Path, seed: Option<u64>) -> Result<Stored, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let dir = RunDir::open(path).map_err(|error| text(&error))?;
    let mut config = Config::of_run(&dir).map_err(|error| text(&error))?;
    let n_seeds = config.run.seeds.len();
    let seed = match seed {
        Some(seed) if !config.run.seeds.contains(&seed) => {
            return Err(format!("the run has no seed {seed}, it has {:?}", config.run.seeds));
        }
        seed => seed.unwrap_or(config.run.seeds[0]),
    };
    config.run.seeds = vec![seed];
    let place = dir.seed(seed);
    let checkpoint = place.checkpoint_store().latest().map_err(|error| text(&error))?;
    let checkpoint = checkpoint.ok_or_else(|| format!("seed {seed}: no checkpoint has been written yet"))?;
    let model = match regular::read(&model_file(&place), MOST_MODEL) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.to_string()),
    };
    Ok(Stored { config, seed, n_seeds, checkpoint, model })
}
