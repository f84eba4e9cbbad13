//! Everything that a seed writes while it trains: rows, Monitor file, TensorBoard events, and a heartbeat.
//!
//! Rows reach the disk about once a second, so that a run in progress can be read.

use std::io;

use bqrl_agents::Objective;
use bqrl_math::buffer::Buffer;
use bqrl_runs::atomic;
use bqrl_runs::events::EventWriter;
use bqrl_runs::log::{AppendLog, Position};
use bqrl_runs::monitor;
use bqrl_runs::run_dir::SeedDir;
use bqrl_runs::schema::{EpisodeRow, EvaluationColumns, SeedProgress};
use serde::{Deserialize, Serialize};

use crate::config::{Length, RunConfig};
use crate::evaluate::{Calibration, Measured};
use crate::task::References;
use crate::train::{Ended, Training};

/// Seconds between two times at which rows and the heartbeat reach the disk.
const HEARTBEAT: f64 = 1.0;

/// The open files of a seed.
pub struct Records {
    dir: SeedDir,
    columns: EvaluationColumns,
    length: Length,
    episodes: AppendLog,
    evaluations: AppendLog,
    /// Of the distribution, where the agent's output is stochastic.
    distribution: Option<AppendLog>,
    monitor: AppendLog,
    events: EventWriter,
    t_start: f64,
    /// Seconds from then to the last episode.
    t_last: f64,
    flushed: f64,
}

/// The ends of the records.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub struct Positions {
    episodes: Position,
    evaluations: Position,
    distribution: Option<Position>,
    monitor: Position,
    events: Position,
    /// The start time of the run and the last time in the Monitor file: not positions, but needed to continue that file.
    t_start: f64,
    t_last: f64,
}

/// The columns of a run's evaluations.
fn columns(run: &RunConfig, references: &References) -> EvaluationColumns {
    EvaluationColumns {
        step: run.counts_steps(),
        gap: references.has_best(),
        regret: references.max_mean.is_some(),
        interval: references.evaluator.is_none(),
    }
}

impl Records {
    /// New files.
    pub fn create(
        dir: &SeedDir,
        name: &str,
        run: &RunConfig,
        references: &References,
        stochastic: bool,
        now: f64,
    ) -> io::Result<Self> {
        let columns = columns(run, references);
        let header = columns.header();
        Ok(Self {
            episodes: AppendLog::create(&dir.episodes(), EpisodeRow::header(run.counts_steps()))?,
            evaluations: AppendLog::create(&dir.evaluations(), &header)?,
            distribution: stochastic.then(|| AppendLog::create(&dir.distribution(), &header)).transpose()?,
            monitor: monitor::create(&dir.monitor(), now, name)?,
            events: EventWriter::create(dir.path(), now)?,
            t_start: now,
            t_last: 0.0,
            flushed: now,
            length: run.length(),
            columns,
            dir: dir.clone(),
        })
    }

    /// The files of an interrupted run, cut at the positions in its checkpoint.
    pub fn resume(
        dir: &SeedDir,
        run: &RunConfig,
        references: &References,
        positions: &Positions,
    ) -> io::Result<Self> {
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
            t_last: positions.t_last,
            flushed: f64::NEG_INFINITY,
            length: run.length(),
            columns: columns(run, references),
            dir: dir.clone(),
        })
    }

    /// The present ends of the files.
    pub fn positions(&self) -> Positions {
        Positions {
            episodes: self.episodes.position(),
            evaluations: self.evaluations.position(),
            distribution: self.distribution.as_ref().map(AppendLog::position),
            monitor: self.monitor.position(),
            events: self.events.position(),
            t_start: self.t_start,
            t_last: self.t_last,
        }
    }

    /// Waits for the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.episodes.sync()?;
        self.evaluations.sync()?;
        self.distribution.as_mut().map_or(Ok(()), AppendLog::sync)?;
        self.monitor.sync()?;
        self.events.sync()
    }

    /// One finished episode; the Monitor file has the plain sum of its rewards.
    pub fn episode(&mut self, Ended { row, undiscounted }: &Ended, now: f64) -> io::Result<()> {
        self.episodes.append(&row.line())?;
        // Readers of Monitor files sort by time, and the clock may have been set back.
        self.t_last = self.t_last.max(now - self.t_start);
        self.monitor.append(&monitor::row(*undiscounted, row.length as u64, self.t_last))
    }

    /// An evaluation at all levels.
    pub fn evaluated(&mut self, training: &Training, measured: &[Measured], now: f64) -> io::Result<()> {
        let progress = &training.progress;
        let step = progress.clock.steps;
        if let (Some(log), Some(metrics)) = (&mut self.distribution, &progress.distribution) {
            metrics.last.iter().try_for_each(|row| log.append(&self.columns.line(row)))?;
        }
        for row in &progress.greedy.last {
            self.evaluations.append(&self.columns.line(row))?;
            let level = row.tau;
            let [low, high] = row.interval.map_or([None; 2], |interval| interval.map(Some));
            for (tag, value) in [
                (format!("eval/quantile_{level}"), Some(row.quantile)),
                (format!("eval/buffered_{level}"), Some(row.buffered_quantile)),
                (format!("eval/quantile_policy_gap_{level}"), row.quantile_policy_gap),
                (format!("eval/quantile_low_{level}"), low),
                (format!("eval/quantile_high_{level}"), high),
            ] {
                if let Some(value) = value {
                    self.events.scalar(now, step, &tag, value)?;
                }
            }
        }
        if let Some(row) = progress.greedy.last.first() {
            self.events.scalar(now, step, "eval/mean_reward", row.mean)?;
            if let Some(regret) = row.expected_return_regret {
                self.events.scalar(now, step, "eval/expected_return_regret", regret)?;
            }
        }
        if !progress.recent.is_empty() {
            self.events.scalar(now, step, "rollout/ep_rew_mean", progress.moving_average_reward())?;
            self.events.scalar(now, step, "rollout/ep_len_mean", progress.moving_average_length())?;
        }
        if now > self.t_start {
            self.events.scalar(now, step, "time/fps", step as f64 / (now - self.t_start))?;
        }
        self.events.scalar(now, step, "time/episodes", progress.clock.episodes as f64)?;
        self.events.scalar(now, step, "train/n_updates", training.agent.updates() as f64)?;
        if let Some(exploration) = training.agent.exploration(&progress.clock) {
            self.events.scalar(now, step, "train/exploration", exploration)?;
        }
        if let Some(loss) = training.agent.loss() {
            self.events.scalar(now, step, "train/loss", loss)?;
        }
        // A target is what the agent expects to reach at its level: beside the attained quantile it shows how well it knows itself.
        let levels = training.references().buffers();
        let served = training.agent.serve(&levels, Objective::Quantile);
        for (memo, level) in served.memos().iter().zip(&levels) {
            if let Some(target) = memo.target {
                self.events.scalar(now, step, &format!("eval/target_{}", level.tau()), target.v)?;
            }
        }
        for (index, level) in levels.iter().map(Buffer::tau).enumerate() {
            let one = measured.get(index).unwrap_or(&measured[0]);
            let Some(found) = Calibration::new(&*training.agent, served.at(index), level, one) else {
                continue;
            };
            if served.at(index).target.is_none() {
                self.events.scalar(now, step, &format!("eval/predicted_quantile_{level}"), found.goal)?;
            }
            self.events.scalar(now, step, &format!("calibration/predicted_{level}"), found.predicted)?;
            self.events.scalar(now, step, &format!("calibration/measured_{level}"), found.measured)?;
        }
        for (one, row) in measured.iter().zip(&progress.greedy.last) {
            let tag = match measured.len() {
                1 => "eval/return_quantiles".to_owned(),
                _ => format!("eval/return_quantiles_{}", row.tau),
            };
            let quantiles: Vec<f64> =
                (1..100).map(|percent| one.law.quantile(f64::from(percent) / 100.0)).collect();
            self.events.histogram(now, step, &tag, &quantiles)?;
        }
        Ok(())
    }

    /// Writes the progress of the seed for readers, about once a second.
    pub fn heartbeat(&mut self, training: &Training, now: f64) -> io::Result<()> {
        // A clock that was set back must not stop these writes.
        if (now - self.flushed).abs() < HEARTBEAT {
            return Ok(());
        }
        self.flushed = now;
        self.episodes.flush()?;
        self.evaluations.flush()?;
        self.distribution.as_mut().map_or(Ok(()), AppendLog::flush)?;
        self.monitor.flush()?;
        self.events.flush()?;
        self.say(training, false, now)
    }

    /// Writes `progress.json`.
    pub fn say(&self, training: &Training, done: bool, now: f64) -> io::Result<()> {
        let clock = training.progress.clock;
        let progress = SeedProgress {
            episodes: clock.episodes as usize,
            steps: clock.steps,
            updates: training.agent.updates(),
            of_episodes: matches!(self.length, Length::Episodes(_)).then(|| self.length.amount() as usize),
            of_steps: matches!(self.length, Length::Steps(_)).then(|| self.length.amount()),
            done,
            time: now,
        };
        let json = serde_json::to_string(&progress).expect("plain numbers serialise") + "\n";
        atomic::write(&self.dir.progress(), json.as_bytes())
    }
}
