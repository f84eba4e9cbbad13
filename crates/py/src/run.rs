//! Training that Python started, with or without a run directory; and run directories that Python opens.
//!
//! With a directory, the run is that of the command line: the same configuration, rows, evaluations, checkpoints, tables and
//! summary, written by the same code. What only Python can know of an environment lies beside them, `seed-N/model.json`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{SystemTime, UNIX_EPOCH};

use bqrl_lab::batch::conclude;
use bqrl_lab::config::{Config, Layers, Length};
use bqrl_lab::outcome;
use bqrl_lab::run::{Hooks, RunError, SeedRun};
use bqrl_lab::train::{Ended, Training};
use bqrl_math::schedule::Span;
use bqrl_runs::atomic;
use bqrl_runs::checkpoint::{CheckpointStore, Loaded};
use bqrl_runs::run_dir::{Lock, RunDir, SeedDir};
use pyo3::exceptions::{PyFloatingPointError, PyRuntimeError};
use pyo3::prelude::*;

use crate::convert::value_error;
use crate::lanes::py_error;
use crate::learner::{Saved, failed};

/// Where and how a run is recorded.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Log {
    /// The directory.
    pub path: PathBuf,
    /// Such as `"1000 steps"`.
    pub evaluate_every: String,
    /// Episodes to play in an evaluation.
    pub evaluation_episodes: usize,
    /// Makes lanes to evaluate in.
    pub evaluation: Option<Py<PyAny>>,
}

impl Log {
    /// Writes its wishes into a configuration.
    pub fn configure(&self, config: &mut Config) -> PyResult<()> {
        let every: Span = self.evaluate_every.parse().map_err(value_error)?;
        config.run.evaluate_every = every;
        config.run.checkpoint_every = every;
        config.run.evaluation_episodes = self.evaluation_episodes;
        // Checked as a whole: what is written down must be readable.
        let text = config.to_toml();
        Layers::written(&text, "log_dir").and_then(|layers| layers.finish("log_dir")).map_err(value_error)?;
        Ok(())
    }
}

/// A training under way.
pub enum Course {
    /// Without records.
    Plain {
        /// The training.
        training: Training,
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
    began: f64,
}

/// The time, as run files have it.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64())
}

/// Hooks of a run whose watcher is in Python: it is told elsewhere, and stops by other means.
fn with_hooks<T>(work: impl FnOnce(&Hooks) -> T) -> T {
    let stop = AtomicBool::new(false);
    work(&Hooks { stop: &stop, watch: &|_| {}, warn: &|_| {}, clock: &now })
}

impl Course {
    /// A run in a directory: a new one, or the model's own that continues.
    pub fn logged(
        log: &Log,
        config: &Config,
        training: Training,
        continues: bool,
        model: &Saved,
    ) -> PyResult<Self> {
        let seed = training.seed();
        let (dir, lock) = if continues {
            let dir = RunDir::open(&log.path)?;
            let lock = dir.lock()?;
            // The run is not finished any more.
            atomic::remove(&dir.summary())?;
            (dir, lock)
        } else {
            RunDir::create(&log.path, false)?
        };
        atomic::write(&dir.config(), config.to_toml().as_bytes())?;
        let place = dir.seed(seed);
        place.create()?;
        if config.problem.python {
            let json = serde_json::to_vec_pretty(model).expect("plain values serialise");
            atomic::write(&model_file(&place), &json)?;
        }
        outcome::describe(&dir, training.task(), training.references())?;
        let store = CheckpointStore::open(place.checkpoints());
        let latest = store.latest()?;
        let run =
            with_hooks(|hooks| SeedRun::attach(config, training, store, latest.as_ref(), &place, hooks));
        let run = run.map_err(run_error)?;
        Ok(Self::Logged(Box::new(Logged { run, config: config.clone(), dir, _lock: lock, began: now() })))
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
    pub fn end(self, well: bool) -> PyResult<()> {
        let Course::Logged(logged) = self else { return Ok(()) };
        let Logged { mut run, config, dir, began, .. } = *logged;
        if !well || !run.is_done() {
            return Ok(run.checkpoint()?);
        }
        let (task, references) = run.training.parts();
        let finished = with_hooks(|hooks| run.finish(hooks)).map_err(run_error)?;
        conclude(&config, &*task, &references, &dir, &[finished], now() - began).map_err(run_error)?;
        Ok(())
    }
}

/// The exception for what went wrong in a run.
fn run_error(error: RunError) -> PyErr {
    match error {
        RunError::Env { error, .. } => py_error(error),
        RunError::NotFinite { episode, update, error, .. } => {
            PyFloatingPointError::new_err(format!("episode {episode}, update {update}: {error}"))
        }
        RunError::Io(error) => error.into(),
        RunError::Agent(error) => value_error(error),
        RunError::Restore { .. } => value_error(error),
        RunError::Interrupted { .. } => PyRuntimeError::new_err(error.to_string()),
    }
}

/// A seed of a run, as its last checkpoint left it.
pub struct Stored {
    /// Every setting.
    pub config: Config,
    /// Which seed.
    pub seed: u64,
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
    let toml = std::fs::read_to_string(dir.config()).map_err(|error| text(&error))?;
    let config = Layers::written(&toml, "config.toml")
        .and_then(|layers| layers.finish("config.toml"))
        .map_err(|error| text(&error))?;
    let seed = match seed {
        Some(seed) if !config.run.seeds.contains(&seed) => {
            return Err(format!("the run has no seed {seed}, it has {:?}", config.run.seeds));
        }
        seed => seed.unwrap_or(config.run.seeds[0]),
    };
    let place = dir.seed(seed);
    let checkpoint = CheckpointStore::open(place.checkpoints()).latest().map_err(|error| text(&error))?;
    let checkpoint = checkpoint.ok_or_else(|| format!("seed {seed}: no checkpoint has been written yet"))?;
    let model = match std::fs::read(model_file(&place)) {
        Ok(bytes) => Some(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error.to_string()),
    };
    Ok(Stored { config, seed, checkpoint, model })
}
