//! A run that survives anything: training, its records, and checkpoints to go on from.
//!
//! Checkpoints are taken between episodes, where an environment holds no state. A checkpoint holds the agent, the random
//! streams, the measures, and how long every record was at that moment; going on cuts the records to that length, so
//! that the end is the same bytes as without the interruption.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use bqrl_agents::deep_bqrl::DeepBqrl;
use bqrl_agents::ppo::Ppo;
use bqrl_agents::qppo::Qppo;
use bqrl_agents::qr_dqn::QrDqn;
use bqrl_agents::target_tracking::TargetTracking;
use bqrl_agents::trpo::Trpo;
use bqrl_agents::ucb_bqrl::UcbBqrl;
use bqrl_agents::var_q::VarQ;
use bqrl_agents::{Agent, AgentError, Body, Part, RestoreError};
use bqrl_math::buffer::Buffer;
use bqrl_math::law::ReturnLaw;
use bqrl_math::rng::{Rng, RngState};
use bqrl_mdp::env::{Env, EnvSpec};
use bqrl_mdp::evaluate::Evaluator;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Planner;
use bqrl_mdp::returns::Rounding;
use bqrl_mdp::tabular::TabularEnv;
use bqrl_nn::UpdateError;
use bqrl_runs::checkpoint::{CheckpointStore, Contents};
use bqrl_runs::events::EventWriter;
use bqrl_runs::log::AppendLog;
use bqrl_runs::monitor;
use bqrl_runs::run_dir::{EPISODES_HEADER, EVALUATIONS_HEADER, SeedDir};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{AgentConfig, Config, ConfigError};
use crate::outcome;
use crate::train::{Episode, Evaluated, Progress, Training, Yardstick};

/// Why a run stopped before its end.
#[derive(Debug, Error)]
pub enum RunError {
    /// The user asked; a checkpoint was written.
    #[error("interrupted after a checkpoint at episode {episode}")]
    Interrupted {
        /// Where it will go on.
        episode: usize,
    },
    /// A reward, an observation or a weight is no finite number.
    #[error("seed {seed}, episode {episode}, update {update}: {error}")]
    NotFinite {
        /// Which run.
        seed: u64,
        /// When.
        episode: usize,
        /// After how many updates.
        update: u64,
        /// What.
        error: UpdateError,
    },
    /// A checkpoint does not fit the configuration.
    #[error("seed {seed}, its checkpoint: {error}")]
    Restore {
        /// Which run.
        seed: u64,
        /// What is wrong.
        error: RestoreError,
    },
    /// The agent cannot be made.
    #[error(transparent)]
    Agent(#[from] AgentError),
    /// A file could not be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Why a problem cannot be trained on.
#[derive(Debug, Error)]
pub enum YardstickError {
    /// The levels are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Agents choose among all actions everywhere.
    #[error("action {action} is not available in state {state}; training needs every action in every state")]
    RestrictedActions {
        /// A state by its label.
        state: String,
        /// An action by its name.
        action: String,
    },
}

/// (state, return) pairs of a rounded plan.
const ROUNDED_CELLS: usize = 1 << 26;

impl Yardstick {
    /// Plans the problem, so that every learning curve is measured against the true optimum.
    pub fn new(config: &Config, problem: &Problem) -> Result<Self, YardstickError> {
        Self::at(config.levels()?, config.run.evaluation_episodes, problem)
    }

    /// The same for any levels.
    pub fn at(
        levels: Vec<Buffer>,
        evaluation_episodes: usize,
        problem: &Problem,
    ) -> Result<Self, YardstickError> {
        let model = &problem.model;
        for stage in 0..model.kernels().len() {
            for state in (0..model.n_states()).filter(|&state| !model.is_terminal(stage, state)) {
                let missing = |&action: &usize| model.outcomes(stage, state, action).is_empty();
                if let Some(action) = (0..model.n_actions()).find(missing) {
                    let (state, action) = (problem.states[state].clone(), problem.actions[action].clone());
                    return Err(YardstickError::RestrictedActions { state, action });
                }
            }
        }
        let silent = &|_, _, _| {};
        // Too many returns: a plan on a grid that fits in memory gives a value that some policy attains.
        let grid = (ROUNDED_CELLS / model.n_states()).clamp(500, 20_000);
        let planner = Planner::exact(model, silent)
            .unwrap_or_else(|_| Planner::rounded(model, grid, Rounding::Down, silent));
        Ok(Self {
            evaluator: planner
                .is_exact()
                .then(|| Evaluator::new(model).expect("the planner found the returns few enough")),
            evaluation_episodes,
            max_mean: planner.max_mean(),
            discount: model.discount(),
            levels: levels
                .into_iter()
                .map(|buffer| (buffer, planner.best_quantile(buffer.tau()).value))
                .collect(),
        })
    }
}

/// What the caller lends a run.
pub struct Hooks<'a> {
    /// Set to stop after a checkpoint.
    pub stop: &'a AtomicBool,
    /// Told after every episode.
    pub watch: &'a (dyn Fn(u64, &Progress) + Sync),
    /// Told of what is odd but not fatal.
    pub warn: &'a (dyn Fn(&str) + Sync),
    /// Seconds since some moment; the only clock of a run, and only for fields that are wall time by nature.
    pub clock: &'a (dyn Fn() -> f64 + Sync),
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Finished {
    /// The measures at the end.
    pub progress: Progress,
    /// Gradient updates made.
    pub updates: u64,
}

/// The agent of a configuration, for any environment that has such a spec.
pub fn make_agent(config: &Config, spec: &EnvSpec, seed: u64) -> Result<Box<dyn Agent>, RunError> {
    let levels = config.levels().expect("the configuration has been checked");
    match &config.agent {
        AgentConfig::DeepBqrl(agent) => Ok(Box::new(DeepBqrl::new(agent.clone(), levels[0], spec, seed)?)),
        AgentConfig::QrDqn(agent) => Ok(Box::new(QrDqn::new(agent.clone(), spec, seed)?)),
        AgentConfig::VarQ(agent) => Ok(Box::new(VarQ::new(agent.clone(), levels[0], spec, seed)?)),
        AgentConfig::Qppo(agent) => Ok(Box::new(Qppo::new(agent.clone(), levels[0], spec, seed)?)),
        AgentConfig::Ppo(agent) => Ok(Box::new(Ppo::new(agent.clone(), spec, seed)?)),
        AgentConfig::Trpo(agent) => Ok(Box::new(Trpo::new(agent.clone(), spec, seed)?)),
        AgentConfig::UcbBqrl(agent) => Ok(Box::new(UcbBqrl::new(agent.clone(), levels[0], spec)?)),
        AgentConfig::TargetTracking(agent) => Ok(Box::new(TargetTracking::new(agent.clone(), spec, seed)?)),
    }
}

/// Refuses settings that make no agent for this problem, before anything is written.
pub fn check_agent(config: &Config, problem: &Problem) -> Result<(), RunError> {
    make_agent(config, TabularEnv::new(problem.clone()).spec(), config.run.seeds[0]).map(drop)
}

/// One seed of a run as its last checkpoint left it, measured against any yardstick.
pub fn restore_seed<'a>(
    config: &Config,
    problem: &Problem,
    yardstick: &'a Yardstick,
    seed: u64,
    dir: &SeedDir,
    hooks: &Hooks,
) -> Result<Training<'a>, RunError> {
    let env: Box<dyn Env> = Box::new(TabularEnv::new(problem.clone()));
    let agent = make_agent(config, env.spec(), seed)?;
    let mut training = Training::new(env, agent, yardstick, seed);
    let checkpoint = CheckpointStore::open(dir.checkpoints()).latest()?;
    let refused = |error| RunError::Restore { seed, error };
    let checkpoint = checkpoint.ok_or_else(|| refused(RestoreError("there is none yet".into())))?;
    checkpoint.warnings.iter().for_each(|warning| (hooks.warn)(warning));
    let part = |name: &str| checkpoint.part(name);
    training.agent.restore(&part).map_err(refused)?;
    training.progress.episode = Saved::read(part("state.json")).map_err(refused)?.progress.episode;
    Ok(training)
}

/// Trains one seed from its last checkpoint, or from the start.
pub fn run_seed(
    config: &Config,
    problem: &Problem,
    yardstick: &Yardstick,
    seed: u64,
    dir: &SeedDir,
    hooks: &Hooks,
) -> Result<Finished, RunError> {
    dir.create()?;
    let env: Box<dyn Env> = Box::new(TabularEnv::new(problem.clone()));
    let agent = make_agent(config, env.spec(), seed)?;
    let mut training = Training::new(env, agent, yardstick, seed);
    let store = CheckpointStore::open(dir.checkpoints());
    let mut records = if let Some(checkpoint) = store.latest()? {
        checkpoint.warnings.iter().for_each(|warning| (hooks.warn)(warning));
        let part = |name: &str| checkpoint.part(name);
        let refused = |error| RunError::Restore { seed, error };
        let state = Saved::read(part("state.json")).map_err(refused)?;
        training.agent.restore(&part).map_err(refused)?;
        training.rng = state.rng();
        training.progress = state.progress;
        Records::resume(dir, &state.positions)?
    } else {
        let mut records = Records::create(dir, config, training.agent.is_stochastic(), (hooks.clock)())?;
        let laws = training.evaluate();
        records.evaluated(&training, &laws, (hooks.clock)())?;
        records
    };
    let run = &config.run;
    while training.progress.episode < run.episodes {
        let result = training.episode();
        let episode = result.map_err(|error| RunError::NotFinite {
            seed,
            episode: training.progress.episode + 1,
            update: training.agent.updates(),
            error,
        })?;
        records.episode(&episode, (hooks.clock)())?;
        let done = training.progress.episode;
        if done.is_multiple_of(run.evaluate_every) || done == run.episodes {
            let laws = training.evaluate();
            records.evaluated(&training, &laws, (hooks.clock)())?;
        }
        (hooks.watch)(seed, &training.progress);
        let stopping = hooks.stop.load(Ordering::Relaxed) && done < run.episodes;
        if done.is_multiple_of(run.checkpoint_every) || done == run.episodes || stopping {
            checkpoint(&store, &training, &mut records)?;
        }
        if stopping {
            return Err(RunError::Interrupted { episode: done });
        }
    }
    outcome::leave(dir, problem, &mut training)?;
    Ok(Finished { updates: training.agent.updates(), progress: training.progress })
}

fn checkpoint(store: &CheckpointStore, training: &Training, records: &mut Records) -> io::Result<()> {
    // Records first: a checkpoint must never be ahead of what it points into.
    records.sync()?;
    let RngState { seed, stream, word_pos } = training.rng.state();
    let saved = Saved {
        progress: training.progress.clone(),
        rng: [seed, stream, word_pos],
        positions: records.positions(),
    };
    let state = serde_json::to_vec(&saved).expect("plain numbers serialise");
    let files = training.agent.save(&|name| store.has(name));
    let mut parts: Vec<(&str, Contents)> = Vec::new();
    for Part { name, body } in &files {
        parts.push(match body {
            Body::Bytes(bytes) => (name, Contents::Plain(bytes)),
            Body::Sealed(bytes) => (name, Contents::Sealed(bytes.as_deref())),
        });
    }
    parts.push(("state.json", Contents::Plain(&state)));
    store.save_parts(training.progress.episode as u64, &parts)
}

/// `state.json` of a checkpoint.
#[derive(Deserialize, Serialize)]
struct Saved {
    progress: Progress,
    /// Seed, stream and position of the environment's stream.
    rng: [u64; 3],
    positions: Positions,
}

/// How far the records had come, in bytes.
#[derive(Clone, Copy, Deserialize, Serialize)]
struct Positions {
    episodes: u64,
    evaluations: u64,
    distribution: Option<u64>,
    monitor: u64,
    events: u64,
    /// When the run began: not a length, but needed to go on with the Monitor file.
    t_start: f64,
}

impl Saved {
    fn read(bytes: Option<Vec<u8>>) -> Result<Self, RestoreError> {
        let bytes = bytes.ok_or_else(|| RestoreError("state.json: missing".into()))?;
        serde_json::from_slice(&bytes).map_err(|error| RestoreError(format!("state.json: {error}")))
    }

    fn rng(&self) -> Rng {
        let [seed, stream, word_pos] = self.rng;
        Rng::from_state(RngState { seed, stream, word_pos })
    }
}

/// Everything that a run writes while it goes on.
struct Records {
    episodes: AppendLog,
    evaluations: AppendLog,
    /// Of the distribution, where the agent's output is stochastic.
    distribution: Option<AppendLog>,
    monitor: AppendLog,
    events: EventWriter,
    t_start: f64,
}

impl Records {
    fn create(dir: &SeedDir, config: &Config, stochastic: bool, now: f64) -> io::Result<Self> {
        Ok(Self {
            episodes: AppendLog::create(&dir.episodes(), EPISODES_HEADER)?,
            evaluations: AppendLog::create(&dir.evaluations(), EVALUATIONS_HEADER)?,
            distribution: stochastic
                .then(|| AppendLog::create(&dir.distribution(), EVALUATIONS_HEADER))
                .transpose()?,
            monitor: monitor::create(&dir.monitor(), now, &config.problem.name)?,
            events: EventWriter::create(dir.path(), now)?,
            t_start: now,
        })
    }

    fn resume(dir: &SeedDir, positions: &Positions) -> io::Result<Self> {
        Ok(Self {
            episodes: AppendLog::resume(&dir.episodes(), positions.episodes)?,
            evaluations: AppendLog::resume(&dir.evaluations(), positions.evaluations)?,
            distribution: positions
                .distribution
                .map(|position| AppendLog::resume(&dir.distribution(), position))
                .transpose()?,
            monitor: AppendLog::resume(&dir.monitor(), positions.monitor)?,
            events: EventWriter::resume(dir.path(), positions.events)?,
            t_start: positions.t_start,
        })
    }

    fn positions(&self) -> Positions {
        Positions {
            episodes: self.episodes.position(),
            evaluations: self.evaluations.position(),
            distribution: self.distribution.as_ref().map(AppendLog::position),
            monitor: self.monitor.position(),
            events: self.events.position(),
            t_start: self.t_start,
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.episodes.sync()?;
        self.evaluations.sync()?;
        self.distribution.as_mut().map_or(Ok(()), AppendLog::sync)?;
        self.monitor.sync()?;
        self.events.sync()
    }

    fn episode(&mut self, episode: &Episode, now: f64) -> io::Result<()> {
        let Episode { episode, episode_return, length } = *episode;
        self.episodes.append(&format!("{episode},{episode_return},{length}"))?;
        self.monitor.append(&monitor::row(episode_return, length as u64, now - self.t_start))
    }

    fn evaluated(&mut self, training: &Training, laws: &[ReturnLaw], now: f64) -> io::Result<()> {
        let progress = &training.progress;
        let step = progress.env_steps;
        if let (Some(log), Some(standing)) = (&mut self.distribution, &progress.distribution) {
            standing.last.iter().try_for_each(|e| log.append(&row(e)))?;
        }
        for e in &progress.greedy.last {
            self.evaluations.append(&row(e))?;
            let level = format!("{}", e.tau);
            for (tag, value) in [
                (format!("eval/quantile_{level}"), e.quantile),
                (format!("eval/buffered_{level}"), e.buffered_quantile),
                (format!("eval/quantile_policy_gap_{level}"), e.quantile_policy_gap),
            ] {
                self.events.scalar(now, step, &tag, value)?;
            }
        }
        if let Some(e) = progress.greedy.last.first() {
            self.events.scalar(now, step, "eval/mean_reward", e.mean)?;
            self.events.scalar(now, step, "eval/expected_return_regret", e.expected_return_regret)?;
        }
        if !progress.recent.is_empty() {
            self.events.scalar(now, step, "rollout/ep_rew_mean", progress.moving_average_reward())?;
        }
        self.events.scalar(now, step, "time/episodes", progress.episode as f64)?;
        self.events.scalar(now, step, "train/n_updates", training.agent.updates() as f64)?;
        for (law, e) in laws.iter().zip(&progress.greedy.last) {
            let tag = match laws.len() {
                1 => "eval/return_quantiles".to_owned(),
                _ => format!("eval/return_quantiles_{}", e.tau),
            };
            let quantiles: Vec<f64> =
                (1..100).map(|percent| law.quantile(f64::from(percent) / 100.0)).collect();
            self.events.histogram(now, step, &tag, &quantiles)?;
        }
        Ok(())
    }
}

/// A line of `evaluations.csv`.
fn row(e: &Evaluated) -> String {
    let Evaluated {
        episode,
        tau,
        quantile,
        buffered_quantile,
        mean,
        quantile_policy_gap,
        expected_return_regret,
    } = e;
    format!(
        "{episode},{tau},{quantile},{buffered_quantile},{mean},{quantile_policy_gap},{expected_return_regret}"
    )
}
