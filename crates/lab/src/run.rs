//! A run that can be interrupted at any time: training, its records, and checkpoints to resume from.
//!
//! A checkpoint holds the agent, the lanes in the middle of their episodes, the measures, and how long every record was at
//! that moment. Resuming cuts the records to that length, so that the final files have the same bytes as without the interruption.
//! An environment that cannot be saved in the middle of an episode (one of Python's) starts new episodes instead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bqrl_agents::deep_bqrl::DeepBqrl;
use bqrl_agents::play::{PlayError, SavedPlay};
use bqrl_agents::ppo::Ppo;
use bqrl_agents::qppo::Qppo;
use bqrl_agents::qr_dqn::QrDqn;
use bqrl_agents::target_tracking::TargetTracking;
use bqrl_agents::trpo::Trpo;
use bqrl_agents::ucb_bqrl::UcbBqrl;
use bqrl_agents::var_q::VarQ;
use bqrl_agents::{Agent, AgentError, Body, LearnError, Part, RestoreError};
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_mdp::lanes::EnvError;
use bqrl_runs::checkpoint::{CheckpointStore, Contents, Loaded};
use bqrl_runs::regular;
use bqrl_runs::run_dir::SeedDir;
use bqrl_runs::schema::SeedProgress;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{AgentConfig, Config};
use crate::evaluate::Measured;
use crate::outcome;
use crate::records::{Positions, Records};
use crate::task::{References, Task, fingerprint};
use crate::train::{Ended, Progress, Training};

/// Why a run stopped before its end.
#[derive(Debug, Error)]
pub enum RunError {
    /// The user asked; a checkpoint was written.
    #[error("interrupted after a checkpoint at episode {episode}, step {step}")]
    Interrupted {
        /// Episodes that had ended.
        episode: u64,
        /// Steps that had been taken.
        step: u64,
    },
    /// A reward, an observation or a weight is not a finite number.
    #[error("seed {seed}, episode {episode}, update {update}: {error}")]
    NotFinite {
        /// Which run.
        seed: u64,
        /// When.
        episode: u64,
        /// After how many updates.
        update: u64,
        /// What.
        error: LearnError,
    },
    /// The environment failed.
    #[error("seed {seed}, episode {episode}: {error}")]
    Env {
        /// Which run.
        seed: u64,
        /// When.
        episode: u64,
        /// Its error.
        error: EnvError,
    },
    /// A file that the run depends on is not as the run left it.
    #[error("seed {seed}: {what}")]
    Changed {
        /// Which run.
        seed: u64,
        /// Which file, and how it differs.
        what: String,
    },
    /// A checkpoint does not fit the configuration.
    #[error("seed {seed}, its checkpoint: {error}")]
    Restore {
        /// Which run.
        seed: u64,
        /// The error.
        error: RestoreError,
    },
    /// The agent cannot be made.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Callbacks of the caller during a run.
pub struct Hooks<'a> {
    /// Set to stop after a checkpoint.
    pub stop: &'a AtomicBool,
    /// Called when episodes have ended, and occasionally during long ones.
    pub watch: &'a (dyn Fn(&News) + Sync),
    /// Called with warnings.
    pub warn: &'a (dyn Fn(&str) + Sync),
    /// The only clock of a run, in seconds since a fixed moment. It is used only for fields that record wall
    /// time, and for how often readers are shown the latest policy.
    pub clock: &'a (dyn Fn() -> f64 + Sync),
}

/// A progress message.
pub struct News<'a> {
    /// The seed.
    pub seed: u64,
    /// Its progress.
    pub progress: &'a Progress,
    /// Episodes since the last news, or steps where the run's length is counted in steps.
    pub more: u64,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The measures at the end.
    pub progress: Progress,
    /// Gradient updates made.
    pub updates: u64,
    /// When it was trained.
    pub sessions: Vec<Session>,
}

/// A time of training without an interruption, in seconds of the clock.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Session {
    /// Its first second.
    pub began: f64,
    /// The last one that is known.
    pub ended: f64,
}

/// The agent of a configuration, for any environment that has such a spec.
pub fn make_agent(config: &Config, spec: &EnvSpec, seed: u64) -> Result<Box<dyn Agent>, AgentError> {
    let levels = config.levels().expect("the configuration has been checked");
    let spec = &observed(config, spec)?;
    Ok(match &config.agent {
        AgentConfig::DeepBqrl(agent) => {
            Box::new(DeepBqrl::new(agent.clone(), levels[0], spec, config.run.lanes, seed)?)
        }
        AgentConfig::QrDqn(agent) => Box::new(QrDqn::new(agent.clone(), spec, config.run.lanes, seed)?),
        AgentConfig::VarQ(agent) => Box::new(VarQ::new(agent.clone(), levels[0], spec, seed)?),
        AgentConfig::Qppo(agent) => Box::new(Qppo::new(agent.clone(), levels[0], spec, seed)?),
        AgentConfig::Ppo(agent) => Box::new(Ppo::new(agent.clone(), spec, seed)?),
        AgentConfig::Trpo(agent) => Box::new(Trpo::new(agent.clone(), spec, seed)?),
        AgentConfig::UcbBqrl(agent) => Box::new(UcbBqrl::new(agent.clone(), levels[0], spec)?),
        AgentConfig::TargetTracking(agent) => {
            Box::new(TargetTracking::new(agent.clone(), spec, config.run.lanes, seed)?)
        }
    })
}

/// The problem as the agent sees it. Only vectors are normalised. So normalisation can be turned off only for vectors.
fn observed(config: &Config, spec: &EnvSpec) -> Result<EnvSpec, AgentError> {
    let normalize_observations = config.problem.normalize_observations.unwrap_or(true);
    if normalize_observations || matches!(spec.observations, ObservationSpace::Dense(_)) {
        return Ok(EnvSpec { normalize_observations, ..spec.clone() });
    }
    Err(AgentError::NothingToNormalize { problem: spec.name.clone() })
}

/// Refuses settings that do not fit this task, before anything is written.
pub fn check_agent(config: &Config, spec: &EnvSpec) -> Result<(), AgentError> {
    make_agent(config, spec, config.run.seeds[0]).map(drop)
}

/// Seconds between two times at which readers are shown the latest policy.
const SHOW: f64 = 2.0;
/// Ticks between two looks at the clock while no episode ends.
const LONG_EPISODE: u64 = 256;

/// One seed of a run, step by step.
pub struct SeedRun {
    config: Config,
    seed: u64,
    dir: SeedDir,
    /// The training.
    pub training: Training,
    records: Records,
    store: CheckpointStore,
    /// crc32c of the table, if the task is one.
    table: Option<u32>,
    /// The sessions before this one, and when this one began.
    sessions: Vec<Session>,
    began: f64,
    ticks: u64,
    /// The count of the last news.
    told: u64,
    /// When readers were last shown the policy, and how long to wait until the next time.
    shown: f64,
    show_pause: f64,
}

impl SeedRun {
    /// From the last checkpoint, or from the start.
    pub fn open(
        config: &Config,
        task: Arc<dyn Task>,
        references: Arc<References>,
        seed: u64,
        dir: &SeedDir,
        hooks: &Hooks,
    ) -> Result<Self, RunError> {
        dir.create()?;
        let agent = make_agent(config, task.spec(), seed)?;
        let mut training = Training::new(task, references, agent, &config.run, seed)
            .map_err(|error| RunError::Env { seed, episode: 0, error })?;
        let store = dir.checkpoint_store();
        let latest = store.latest()?;
        if let Some(checkpoint) = &latest {
            let saved = restore(&mut training, checkpoint, seed, hooks)?;
            saved.check_settings(config, |_| true).map_err(|what| RunError::Changed { seed, what })?;
        }
        Self::attach(config, training, store, latest.as_ref(), dir, hooks)
    }

    /// A training in the state of the checkpoint, or at its start, with its records.
    pub fn attach(
        config: &Config,
        training: Training,
        store: CheckpointStore,
        latest: Option<&Loaded>,
        dir: &SeedDir,
        hooks: &Hooks,
    ) -> Result<Self, RunError> {
        store.tidy()?;
        let (seed, run, references) = (training.seed(), &config.run, training.references());
        let refused = |error| RunError::Restore { seed, error };
        let table = training.task().table().map(fingerprint);
        let mut sessions = Vec::new();
        let records = if let Some(checkpoint) = latest {
            let saved = Saved::read(checkpoint).map_err(refused)?;
            saved.check_table(table, config).map_err(|what| RunError::Changed { seed, what })?;
            training.check_levels().map_err(refused)?;
            let Saved { progress, positions, .. } = saved;
            sessions = saved.sessions;
            let (there, here) = (progress.clock.steps, training.progress.clock.steps);
            if there != here {
                let message = format!("it was written at step {there}, the agent is at step {here}");
                return Err(refused(RestoreError(message)));
            }
            Records::resume(dir, run, references, &positions).map_err(|error| match error.kind() {
                io::ErrorKind::InvalidData => RunError::Changed { seed, what: error.to_string() },
                _ => error.into(),
            })?
        } else {
            let (name, stochastic) = (&config.problem.name, training.agent.is_stochastic());
            Records::create(dir, name, run, references, stochastic, (hooks.clock)())?
        };
        let told = run.length().done(&training.progress.clock);
        let config = config.clone();
        let began = (hooks.clock)();
        let dir = dir.clone();
        let mut this = Self {
            config,
            seed,
            dir,
            training,
            records,
            store,
            table,
            sessions,
            began,
            ticks: 0,
            told,
            shown: began,
            show_pause: SHOW,
        };
        if latest.is_none() {
            this.evaluate(hooks)?;
        }
        Ok(this)
    }

    /// Whether the training is over.
    pub fn is_done(&self) -> bool {
        self.config.run.length().is_reached(&self.training.progress.clock)
    }

    /// One step of every lane, followed by evaluations and checkpoints that are due. Returns the episodes that ended.
    pub fn tick(&mut self, hooks: &Hooks) -> Result<Vec<Ended>, RunError> {
        let before = self.training.progress.clock;
        let ended = self.training.tick().map_err(|error| self.failed(error))?;
        let now = self.training.progress.clock;
        let (length, run) = (self.config.run.length(), &self.config.run);
        let evaluates = run.evaluate_every.passed(&before, &now);
        let saves = run.checkpoint_every.passed(&before, &now);
        for episode in &ended {
            self.records.episode(episode, (hooks.clock)())?;
        }
        let done = self.is_done();
        if done || evaluates {
            self.evaluate(hooks)?;
        }
        self.ticks += 1;
        if !ended.is_empty() || self.ticks.is_multiple_of(LONG_EPISODE) {
            let count = length.done(&now);
            let more = count - std::mem::replace(&mut self.told, count);
            (hooks.watch)(&News { seed: self.seed, progress: &self.training.progress, more });
            self.records.heartbeat(&self.training, (hooks.clock)())?;
        }
        let stopping = hooks.stop.load(Ordering::Relaxed) && !done;
        if stopping {
            self.pause(hooks)?;
            return Err(RunError::Interrupted { episode: now.episodes, step: now.steps });
        }
        if done || saves {
            self.checkpoint(hooks)?;
        }
        Ok(ended)
    }

    /// Leaves the run so that it can be resumed from here.
    pub fn pause(&mut self, hooks: &Hooks) -> io::Result<()> {
        self.checkpoint(hooks)?;
        self.records.say(&self.training, false, (hooks.clock)())
    }

    /// Evaluates and records.
    fn evaluate(&mut self, hooks: &Hooks) -> Result<(), RunError> {
        let measured = self.training.evaluate().map_err(|error| self.failed(error))?;
        self.records.evaluated(&self.training, &measured, (hooks.clock)())?;
        self.show(&measured, hooks)
    }

    /// Shows the latest policy on a table to readers, every few seconds. The tables of a finished seed replace these.
    fn show(&mut self, measured: &[Measured], hooks: &Hooks) -> Result<(), RunError> {
        let now = (hooks.clock)();
        // A clock that was set back must not stop these writes.
        if self.training.task().table().is_none() || (now - self.shown).abs() < self.show_pause {
            return Ok(());
        }
        outcome::write_latest(&self.dir, &self.training, measured).map_err(|error| self.untabled(error))?;
        self.shown = (hooks.clock)();
        // Training gets nearly all of the time.
        self.show_pause = (50.0 * (self.shown - now)).max(SHOW);
        Ok(())
    }

    /// Writes a checkpoint.
    pub fn checkpoint(&mut self, hooks: &Hooks) -> io::Result<()> {
        // Records first: the positions in a checkpoint must never be beyond the files.
        self.records.sync()?;
        let training = &self.training;
        let saved = Saved {
            progress: training.progress.clone(),
            play: training.play.save(),
            positions: self.records.positions(),
            config: self.config.clone(),
            table: self.table,
            sessions: self.sessions(hooks),
        };
        let state = serde_json::to_vec(&saved).expect("plain numbers serialise");
        let files = training.agent.save(&|name| self.store.has(name));
        let mut parts: Vec<(&str, Contents)> = Vec::with_capacity(files.len() + 1);
        for Part { name, body } in &files {
            parts.push(match body {
                Body::Bytes(bytes) => (name, Contents::Plain(bytes)),
                Body::Sealed(bytes) => (name, Contents::Sealed(bytes.as_deref())),
            });
        }
        parts.push(("state.json", Contents::Plain(&state)));
        self.store.save_parts(training.progress.clock.steps, &parts)
    }

    /// All sessions, this one up to now.
    fn sessions(&self, hooks: &Hooks) -> Vec<Session> {
        let this = Session { began: self.began, ended: (hooks.clock)() };
        self.sessions.iter().copied().chain([this]).collect()
    }

    /// Writes the tables of a finished seed.
    pub fn finish(self, hooks: &Hooks) -> Result<Finished, RunError> {
        outcome::write_seed_tables(&self.dir, &self.training).map_err(|error| self.untabled(error))?;
        self.records.say(&self.training, true, (hooks.clock)())?;
        let sessions = self.sessions(hooks);
        Ok(Finished { updates: self.training.agent.updates(), progress: self.training.progress, sessions })
    }

    fn untabled(&self, error: outcome::TableError) -> RunError {
        match error {
            outcome::TableError::Play(error) => self.failed(error),
            outcome::TableError::Io(error) => error.into(),
        }
    }

    fn failed(&self, error: PlayError) -> RunError {
        let (seed, episode) = (self.seed, self.training.progress.clock.episodes + 1);
        match error {
            PlayError::Env(error) => RunError::Env { seed, episode, error },
            PlayError::Learn(error) => {
                RunError::NotFinite { seed, episode, update: self.training.agent.updates(), error }
            }
        }
    }
}

/// Trains one seed from its last checkpoint, or from the start.
pub fn run_seed(
    config: &Config,
    task: Arc<dyn Task>,
    references: Arc<References>,
    seed: u64,
    dir: &SeedDir,
    hooks: &Hooks,
) -> Result<Finished, RunError> {
    let mut run = SeedRun::open(config, task, references, seed, dir, hooks)?;
    while !run.is_done() {
        run.tick(hooks)?;
    }
    run.finish(hooks)
}

/// One seed of a run as its last checkpoint left it, measured against any references.
pub fn restore_seed(
    config: &Config,
    task: Arc<dyn Task>,
    references: Arc<References>,
    seed: u64,
    dir: &SeedDir,
    hooks: &Hooks,
) -> Result<Training, RunError> {
    let agent = make_agent(config, task.spec(), seed)?;
    let mut training = Training::new(task, references, agent, &config.run, seed)
        .map_err(|error| RunError::Env { seed, episode: 0, error })?;
    let checkpoint = dir.checkpoint_store().latest()?;
    let none =
        || RunError::Restore { seed, error: RestoreError("no checkpoint has been written yet".into()) };
    let saved = restore(&mut training, &checkpoint.ok_or_else(none)?, seed, hooks)?;
    let changed = |what| RunError::Changed { seed, what };
    // The length and the evaluations of a run do not change what was learned.
    saved.check_settings(config, |key| !key.starts_with("run.")).map_err(changed)?;
    saved.check_table(training.task().table().map(fingerprint), config).map_err(changed)?;
    Ok(training)
}

/// Restores a training from a checkpoint.
fn restore(
    training: &mut Training,
    checkpoint: &Loaded,
    seed: u64,
    hooks: &Hooks,
) -> Result<Saved, RunError> {
    let refused = |error| RunError::Restore { seed, error };
    checkpoint.warnings.iter().for_each(|warning| (hooks.warn)(warning));
    let saved = Saved::read(checkpoint).map_err(refused)?;
    let part = |name: &str| checkpoint.part(name);
    training.agent.restore(&part).map_err(refused)?;
    training.restore(saved.progress.clone(), saved.play.clone()).map_err(refused)?;
    Ok(saved)
}

/// How a seed ended that was trained before; `None` if it has not ended.
pub fn finished(config: &Config, dir: &SeedDir) -> Result<Option<Finished>, RestoreError> {
    let wrong = |error: &dyn std::fmt::Display| RestoreError(error.to_string());
    let told = match regular::read(&dir.progress(), MOST_PROGRESS) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(wrong(&error)),
    };
    let told: SeedProgress =
        serde_json::from_slice(&told).map_err(|error| wrong(&format!("progress.json: {error}")))?;
    let checkpoint = dir.checkpoint_store().latest().map_err(|error| wrong(&error))?;
    let Some(checkpoint) = checkpoint.filter(|_| told.done) else { return Ok(None) };
    let Saved { progress, sessions, .. } = Saved::read(&checkpoint)?;
    let is_over = config.run.length().is_reached(&progress.clock);
    Ok(is_over.then_some(Finished { updates: told.updates, progress, sessions }))
}

/// Bytes of a `progress.json`.
const MOST_PROGRESS: u64 = 1 << 16;

/// The state of training and lanes in a checkpoint.
pub fn standing(checkpoint: &Loaded) -> Result<(Progress, SavedPlay), RestoreError> {
    Saved::read(checkpoint).map(|saved| (saved.progress, saved.play))
}

/// `state.json` of a checkpoint.
#[derive(Deserialize, Serialize)]
struct Saved {
    progress: Progress,
    play: SavedPlay,
    positions: Positions,
    /// The settings, and crc32c of the table: a run that is resumed with others would not be the same run.
    config: Config,
    table: Option<u32>,
    sessions: Vec<Session>,
}

impl Saved {
    fn read(checkpoint: &Loaded) -> Result<Self, RestoreError> {
        let bytes =
            checkpoint.part("state.json").ok_or_else(|| RestoreError("state.json: missing".into()))?;
        let saved: Self =
            serde_json::from_slice(&bytes).map_err(|error| RestoreError(format!("state.json: {error}")))?;
        saved.progress.check()?;
        saved.config.check().map_err(|error| RestoreError(format!("state.json: {error}")))?;
        Ok(saved)
    }

    /// Refuses other settings than those of the checkpoint, as far as they `matter`. A finished run may be extended.
    fn check_settings(&self, config: &Config, matter: fn(&str) -> bool) -> Result<(), String> {
        let finished = self.config.run.length().is_reached(&self.progress.clock);
        let is_length = |key: &str| ["run.episodes", "run.steps"].contains(&key);
        let mut differing = config.differences(&self.config);
        differing.retain(|key| matter(key) && !(finished && is_length(key)));
        match &differing[..] {
            [] => Ok(()),
            keys => Err(format!("config.toml was changed after the run began: {}", keys.join(", "))),
        }
    }

    /// Refuses another table than that of the checkpoint.
    fn check_table(&self, table: Option<u32>, config: &Config) -> Result<(), String> {
        let changed = self.table != table;
        let name = &config.problem.name;
        if changed { Err(format!("{name} is another problem than when the run began")) } else { Ok(()) }
    }
}
