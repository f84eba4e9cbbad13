//! One seed in training: an agent, a task, and the measures of §4.
//!
//! ```text
//! Reg_E(k) = Σ_{t≤k} (max_π E[R^π] − G_t)                 returns collected while training, exploration included
//! 𝒢_τ(k)   = Σ_{t≤k} [Q*_τ − Q_τ(R^{π̄_t})]₊               π̄_t the most recently evaluated greedy policy
//! ```
//!
//! The greedy policy is evaluated before the first episode and every `evaluate_every`; between evaluations the latest value
//! counts, so the first episodes count for the untrained policy. If a task has no reference, the measure that needs it
//! does not exist.
//!
//! A stochastic policy is evaluated twice: its mode, which is its greedy policy and counts for the measures, and the
//! distribution itself.

use std::sync::Arc;

pub use bqrl_agents::Objective;
use bqrl_agents::experience::saved;
use bqrl_agents::play::{Play, PlayError, SavedPlay};
use bqrl_agents::{Agent, RestoreError, ServedPolicies};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::Purpose;
use bqrl_math::schedule::Clock;
use bqrl_mdp::lanes::EnvError;
use bqrl_runs::schema::{EpisodeRow, EvaluationRow, MOVING_AVERAGE};
use serde::{Deserialize, Serialize};

use crate::evaluate::{Measured, measure};
use crate::task::{Level, References, Task};

/// One policy's measures.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct PolicyMetrics {
    /// 𝒢_τ, per level; `None` where Q*_τ is not known.
    pub gaps: Vec<Option<f64>>,
    /// The latest evaluation, per level.
    pub last: Vec<EvaluationRow>,
}

impl PolicyMetrics {
    fn new(levels: &[Level]) -> Self {
        Self { gaps: levels.iter().map(|level| level.best_quantile.map(|_| 0.0)).collect(), last: Vec::new() }
    }

    /// Refuses lists that do not fit together; `last` is empty before the first evaluation.
    fn check(&self) -> Result<(), RestoreError> {
        let (gaps, last) = (self.gaps.len(), self.last.len());
        if last == gaps || last == 0 {
            return Ok(());
        }
        Err(RestoreError(format!("state.json: {gaps} gaps and {last} evaluations, want one each per level")))
    }

    /// Counts one more episode with the policy that was evaluated last.
    fn episode(&mut self, levels: &[Level]) {
        for ((gap, level), latest) in self.gaps.iter_mut().zip(levels).zip(&self.last) {
            if let (Some(gap), Some(best)) = (gap, level.best_quantile) {
                *gap += (best - latest.quantile).max(0.0);
            }
        }
    }

    /// A new evaluation: one policy per level, or one for all.
    fn evaluated(&mut self, measured: &[Measured], levels: &[Level], at: &At) {
        let level = |(index, (level, &gap)): (usize, (&Level, &Option<f64>))| {
            let measured = measured.get(index).unwrap_or(&measured[0]);
            let tau = level.buffer.tau();
            EvaluationRow {
                episode: at.clock.episodes as usize,
                step: at.counts_steps.then_some(at.clock.steps),
                tau,
                quantile: measured.law.quantile(tau),
                buffered_quantile: measured.law.buffered_quantile(&level.buffer),
                mean: measured.mean,
                quantile_policy_gap: gap,
                expected_return_regret: at.regret,
                interval: measured.interval(tau),
            }
        };
        self.last = levels.iter().zip(&self.gaps).enumerate().map(level).collect();
    }
}

/// When an evaluation was made.
struct At {
    clock: Clock,
    regret: Option<f64>,
    counts_steps: bool,
}

/// The state of a run, except the agent and the environment.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Progress {
    /// Episodes and steps trained.
    pub clock: Clock,
    /// Reg_E, where the largest mean is known.
    pub regret: Option<f64>,
    /// The greedy policy's measures.
    pub greedy: PolicyMetrics,
    /// The same of the distribution, where the agent's output is stochastic.
    pub distribution: Option<PolicyMetrics>,
    /// The returns of the last episodes, oldest first.
    pub recent: Vec<f64>,
    /// Their lengths.
    pub recent_lengths: Vec<usize>,
}

impl Progress {
    /// Refuses a state that no training can have left.
    pub fn check(&self) -> Result<(), RestoreError> {
        let (returns, lengths) = (self.recent.len(), self.recent_lengths.len());
        if returns != lengths || returns > MOVING_AVERAGE {
            return Err(RestoreError(format!(
                "state.json: {returns} recent returns and {lengths} lengths, want as many, at most {MOVING_AVERAGE}"
            )));
        }
        saved::count("state.json: clock.episodes", self.clock.episodes)?;
        saved::count("state.json: clock.steps", self.clock.steps)?;
        let lengths: Vec<u64> = self.recent_lengths.iter().map(|&length| length as u64).collect();
        saved::counts("state.json: recent_lengths", &lengths)?;
        self.greedy.check()?;
        self.distribution.as_ref().map_or(Ok(()), PolicyMetrics::check)
    }

    /// The moving average of G_t.
    pub fn moving_average_reward(&self) -> f64 {
        self.recent.iter().sum::<f64>() / self.recent.len().max(1) as f64
    }

    /// The mean length of the same episodes.
    pub fn moving_average_length(&self) -> f64 {
        self.recent_lengths.iter().sum::<usize>() as f64 / self.recent_lengths.len().max(1) as f64
    }
}

/// An episode that has ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ended {
    /// Its row.
    pub row: EpisodeRow,
    /// The plain sum of its rewards.
    pub undiscounted: f64,
}

/// The measurements of an agent's output policies.
#[derive(Clone)]
struct Output {
    greedy: Vec<Measured>,
    /// The distribution itself, where the policy is stochastic.
    drawn: Option<Vec<Measured>>,
}

/// An agent in training.
pub struct Training {
    task: Arc<dyn Task>,
    references: Arc<References>,
    /// The learner.
    pub agent: Box<dyn Agent>,
    /// The lanes.
    pub play: Play,
    /// The state of the run.
    pub progress: Progress,
    seed: u64,
    evaluation_episodes: usize,
    counts_steps: bool,
    /// The latest measurements, with the version of the policies: an agent that did not change them is not measured again.
    known: Option<(u64, Output)>,
}

impl Training {
    /// Before the first episode.
    pub fn new(
        task: Arc<dyn Task>,
        references: Arc<References>,
        agent: Box<dyn Agent>,
        run: &crate::config::RunConfig,
        seed: u64,
    ) -> Result<Self, EnvError> {
        let metrics = PolicyMetrics::new(&references.levels);
        let distribution = agent.is_stochastic().then(|| metrics.clone());
        let regret = references.max_mean.map(|_| 0.0);
        Ok(Self {
            play: Play::new(task.lanes(seed, Purpose::Env, run.lanes)?),
            task,
            references,
            agent,
            progress: Progress { regret, greedy: metrics, distribution, ..Progress::default() },
            seed,
            evaluation_episodes: run.evaluation_episodes,
            counts_steps: run.counts_steps(),
            known: None,
        })
    }

    /// Restores the measures and the open episodes of a checkpoint; the agent has been restored before.
    pub fn restore(&mut self, progress: Progress, play: SavedPlay) -> Result<(), RestoreError> {
        progress.check()?;
        play.memos().try_for_each(|memo| self.agent.check_memo(memo))?;
        self.play.restore(play).map_err(|error| RestoreError(format!("state.json: {error}")))?;
        self.progress = progress;
        self.known = None;
        Ok(())
    }

    /// Refuses measures of other levels than those of the references, from which a run cannot go on.
    pub fn check_levels(&self) -> Result<(), RestoreError> {
        let Progress { greedy, distribution, .. } = &self.progress;
        let want = self.references.levels.len();
        let counts = [Some(greedy), distribution.as_ref()].into_iter().flatten().map(|one| one.last.len());
        if let Some(got) = counts.into_iter().find(|&got| got != want) {
            return Err(RestoreError(format!("state.json: evaluations of {got} levels, want {want}")));
        }
        if distribution.is_some() != self.agent.is_stochastic() {
            let message =
                "state.json: a distribution is evaluated where the policy is stochastic, and only there";
            return Err(RestoreError(message.to_owned()));
        }
        Ok(())
    }

    /// One step of every lane. Returns the episodes that ended; the measures grow by them.
    pub fn tick(&mut self) -> Result<Vec<Ended>, PlayError> {
        let Self { agent, play, progress, references, .. } = self;
        let before = progress.clock.episodes as usize;
        let finished = play.train(&mut **agent, &mut progress.clock)?;
        let mut rows = Vec::with_capacity(finished.len());
        for (k, episode) in finished.into_iter().enumerate() {
            if let (Some(regret), Some(max_mean)) = (&mut progress.regret, references.max_mean) {
                *regret += max_mean - episode.episode_return;
            }
            progress.greedy.episode(&references.levels);
            if let Some(distribution) = &mut progress.distribution {
                distribution.episode(&references.levels);
            }
            if progress.recent.len() == MOVING_AVERAGE {
                progress.recent.remove(0);
                progress.recent_lengths.remove(0);
            }
            progress.recent.push(episode.episode_return);
            progress.recent_lengths.push(episode.length);
            let row = EpisodeRow {
                episode: before + k + 1,
                episode_return: episode.episode_return,
                length: episode.length,
                step: self.counts_steps.then_some(progress.clock.steps),
            };
            rows.push(Ended { row, undiscounted: episode.undiscounted });
        }
        Ok(rows)
    }

    /// The task.
    pub fn task(&self) -> &dyn Task {
        &*self.task
    }

    /// The references of the measures.
    pub fn references(&self) -> &References {
        &self.references
    }

    /// Shared handles of the task and the references.
    pub fn parts(&self) -> (Arc<dyn Task>, Arc<References>) {
        (self.task.clone(), self.references.clone())
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The greedy policies measured: one per level, or a single one that serves them all.
    pub fn measure(&self, levels: &[Buffer], objective: Objective) -> Result<Vec<Measured>, PlayError> {
        self.measure_as(levels, objective, true)
    }

    fn measure_as(
        &self,
        levels: &[Buffer],
        objective: Objective,
        mode: bool,
    ) -> Result<Vec<Measured>, PlayError> {
        let Self { task, references, agent, seed, evaluation_episodes, .. } = self;
        let served = agent.serve(levels, objective);
        let policies = ServedPolicies::new(&**agent, served.memos(), mode);
        measure(policies, &**task, references, *evaluation_episodes, *seed)
    }

    /// Evaluates the output policies; the agent is not changed. Returns the measurements of the greedy ones.
    pub fn evaluate(&mut self) -> Result<Vec<Measured>, PlayError> {
        let version = self.agent.policy_version();
        let output = match self.known.take() {
            Some((of, output)) if Some(of) == version => output,
            _ => self.measure_output()?,
        };
        self.known = version.map(|version| (version, output.clone()));
        let Output { greedy, drawn } = output;
        let Progress { clock, regret, .. } = self.progress;
        let at = At { clock, regret, counts_steps: self.counts_steps };
        self.progress.greedy.evaluated(&greedy, &self.references.levels, &at);
        if let (Some(metrics), Some(drawn)) = (&mut self.progress.distribution, drawn) {
            metrics.evaluated(&drawn, &self.references.levels, &at);
        }
        Ok(greedy)
    }

    fn measure_output(&self) -> Result<Output, PlayError> {
        let levels = self.references.buffers();
        let greedy = self.measure(&levels, Objective::Quantile)?;
        let drawn = match self.progress.distribution {
            Some(_) => Some(self.measure_as(&levels, Objective::Quantile, false)?),
            None => None,
        };
        Ok(Output { greedy, drawn })
    }
}
