//! Reads a run and checks it, during training or after it.
//!
//! | file | columns or fields | in a finished run |
//! |---|---|---|
//! | `config.toml` | every setting | required |
//! | `summary.json` | [`Summary`] | required; without it the run is unfinished |
//! | `problem.json` | [`TaskFacts`] | optional |
//! | `reference.csv` | `policy,tau,quantile,mean` of exact policies | optional |
//! | `seed-N/episodes.csv` | [`EpisodeRow`] | required |
//! | `seed-N/evaluations.csv` | [`EvaluationRow`] | required |
//! | `seed-N/evaluations-distribution.csv` | the same, of a stochastic policy itself | optional |
//! | `seed-N/policy.csv` | `tau,stage,state,action`; tau is empty where one policy serves all levels | optional |
//! | `seed-N/law.csv` | `tau,return,probability`; tau likewise | optional |
//! | `seed-N/predictions.csv` | `critic,action,level,value` | optional |
//! | `seed-N/achieved.csv` | `tau,quantile,mean` | optional |
//!
//! Files are read to their end. A line that is cut off, a missing row or a cell that is not a number is an error with the
//! file and the line, so the numbers of a [`Run`] need no further checks.
//!
//! An unfinished run has no `summary.json`. Its settings come from `config.toml`, its numbers from the rows on disk, and
//! `seed-N/progress.json` says how far each seed is. Its two logs may end in the middle of a line, because the writer
//! appends to them: that line is left out. Every other file is replaced as a whole and checked as strictly as in a finished run.

mod files;
mod tables;
#[cfg(test)]
mod tests;
mod unfinished;

use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};

use self::files::{Ending, Mark, Reading, json, missing, required};
use crate::run_dir::{RunDir, SeedDir};
use crate::schema::{EpisodeRow, EvaluationRow, SeedProgress, Summary, SummaryLevel, TaskFacts};

/// A run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its directory.
    pub path: PathBuf,
    /// The text of `config.toml`.
    pub config: String,
    /// Whether training has ended.
    pub state: State,
    /// `summary.json`. For an unfinished run: the settings, the references, and what the rows on disk add up to; the
    /// lists of final results are empty, and `episodes` counts those of the longest seed so far.
    pub summary: Summary,
    /// `problem.json`.
    pub problem: Option<TaskFacts>,
    /// `reference.csv`.
    pub reference: Option<Vec<Reference>>,
    /// One record per seed, in the order of the summary. Seeds of an unfinished run that have no rows yet are absent.
    pub seeds: Vec<SeedRecord>,
}

/// Whether a run has ended.
#[derive(Debug, Clone, PartialEq)]
pub enum State {
    /// All seeds are done, and `summary.json` is written.
    Finished,
    /// There is no `summary.json` yet.
    Unfinished {
        /// Whether a process is writing the run: it holds the lock. Otherwise the run was interrupted.
        running: bool,
        /// Every seed of the run, also those that have not started.
        seeds: Vec<SeedState>,
        /// The mean over seeds of the part that is done, from 0 to 1.
        fraction: f64,
    },
}

/// How far a seed of an unfinished run is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SeedState {
    /// The seed.
    pub seed: u64,
    /// `progress.json`; or the same from the rows, if they are further or the file is missing. `time` is then 0.
    pub progress: SeedProgress,
}

/// A row of `reference.csv`.
#[derive(Debug, Clone, PartialEq)]
pub struct Reference {
    /// `optimal`, `risk-neutral`, `conditional-rule`.
    pub policy: String,
    /// τ.
    pub tau: f64,
    /// Q_τ of that policy.
    pub quantile: f64,
    /// Its mean, where it is known.
    pub mean: Option<f64>,
}

/// The files of one seed.
#[derive(Debug, Clone, PartialEq)]
pub struct SeedRecord {
    /// The seed.
    pub seed: u64,
    /// Every training episode.
    pub episodes: Vec<EpisodeRow>,
    /// Evaluations of the greedy policy, by level in the order of the summary; equally many at each level.
    pub evaluations: Vec<Vec<EvaluationRow>>,
    /// Evaluations of a stochastic policy itself, likewise.
    pub distribution: Option<Vec<Vec<EvaluationRow>>>,
    /// The final policy.
    pub policy: Option<Vec<Choice>>,
    /// The law of its return.
    pub law: Option<Vec<Atom>>,
    /// The quantiles that the critics predict at the start.
    pub predictions: Option<Vec<Prediction>>,
    /// Quantiles over many levels, of an agent that serves them all.
    pub achieved: Option<Vec<Achieved>>,
}

/// A row of `policy.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// The level, or none where one policy serves all.
    pub tau: Option<f64>,
    /// h, from 0.
    pub stage: usize,
    /// s.
    pub state: usize,
    /// The action taken there with nothing collected.
    pub action: usize,
}

/// A row of `law.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Atom {
    /// The level, or none where one policy serves all.
    pub tau: Option<f64>,
    /// A possible return.
    pub value: f64,
    /// Its probability.
    pub probability: f64,
}

/// A row of `predictions.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Prediction {
    /// The critic, by its place in the ensemble.
    pub critic: usize,
    /// The action whose return is predicted.
    pub action: usize,
    /// η.
    pub level: f64,
    /// The predicted quantile of the return.
    pub value: f64,
}

/// A row of `achieved.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Achieved {
    /// τ.
    pub tau: f64,
    /// Q_τ of the policy for this level.
    pub quantile: f64,
    /// Its mean.
    pub mean: f64,
}

/// Why a run could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReadError {
    /// The directory is not a run, or has another format; the message names it.
    NotARun(String),
    /// A finished run was asked for, and training has not ended.
    Unfinished(PathBuf),
    /// A file is missing, cut off or damaged.
    File {
        /// The file.
        path: PathBuf,
        /// The line, from 1, where one can be named.
        line: Option<usize>,
        /// The problem.
        message: String,
    },
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotARun(message) => f.write_str(message),
            Self::Unfinished(path) => {
                write!(f, "{} is not a finished run: it has no summary.json", path.display())
            }
            Self::File { path, line: Some(line), message } => {
                write!(f, "reading {}: line {line}: {message}", path.display())
            }
            Self::File { path, line: None, message } => write!(f, "reading {}: {message}", path.display()),
        }
    }
}

impl std::error::Error for ReadError {}

impl Run {
    /// Reads the run in a directory, finished or not.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        read(path, None, &mut Past::default())
    }

    /// The same for a directory that somebody else may write to: no link below `root` is followed.
    pub fn read_below(root: &Path, path: &Path) -> Result<Self, ReadError> {
        read(path, Some(root), &mut Past::default())
    }

    /// Reads the run in a directory; an unfinished one is [`ReadError::Unfinished`].
    pub fn read_finished(path: &Path) -> Result<Self, ReadError> {
        let run = Self::read(path)?;
        if run.is_finished() { Ok(run) } else { Err(ReadError::Unfinished(path.to_path_buf())) }
    }

    /// Whether training has ended.
    pub fn is_finished(&self) -> bool {
        self.state == State::Finished
    }

    /// Whether the run is counted in steps or has several lanes, so that its rows have a `step`.
    pub fn counts_steps(&self) -> bool {
        counts_steps(&self.summary)
            || self.seeds.iter().any(|seed| {
                let mut rows = seed.evaluations.iter().flatten();
                rows.any(|row| row.step.is_some()) || seed.episodes.iter().any(|row| row.step.is_some())
            })
    }
}

/// A run that is read again and again while it grows: of its logs only the rows that were appended are read.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    below: Option<PathBuf>,
    run: Option<Run>,
    past: Past,
}

/// The logs of a run, as far as they were read.
#[derive(Debug, Default)]
struct Past {
    /// By seed: the record, and the marks of its episodes, its evaluations and those of the distribution.
    seeds: HashMap<u64, (SeedRecord, [Option<Mark>; 3])>,
    /// The marks of the last reading.
    marks: HashMap<u64, [Option<Mark>; 3]>,
}

impl Follower {
    /// Follows the run in a directory. With `below`, no link below that directory is followed.
    pub fn new(path: &Path, below: Option<&Path>) -> Self {
        let (path, below) = (path.to_path_buf(), below.map(Path::to_path_buf));
        Self { path, below, run: None, past: Past::default() }
    }

    /// The run as it is now; its path may be changed to what readers shall see. After an error the next reading begins anew.
    pub fn read(&mut self) -> Result<&mut Run, ReadError> {
        let mut marks = std::mem::take(&mut self.past).marks;
        if let Some(run) = self.run.take().filter(|run| !run.is_finished()) {
            let known = |record: SeedRecord| Some((record.seed, (marks.remove(&record.seed)?, record)));
            let seeds = run.seeds.into_iter().filter_map(known);
            self.past.seeds = seeds.map(|(seed, (marks, record))| (seed, (record, marks))).collect();
        }
        let run = read(&self.path, self.below.as_deref(), &mut self.past)?;
        Ok(self.run.insert(run))
    }

    /// Whether there are rows that the next reading will not have to read.
    pub fn is_growing(&self) -> bool {
        self.run.as_ref().is_some_and(|run| !run.is_finished())
    }
}

fn read(path: &Path, below: Option<&Path>, past: &mut Past) -> Result<Run, ReadError> {
    let dir = match below {
        Some(root) => RunDir::open_to_read_below(root, path),
        None => RunDir::open_to_read(path),
    };
    let dir = dir.map_err(|error| ReadError::NotARun(error.to_string()))?;
    let whole = Reading { ending: Ending::Whole, below };
    let config = required(&dir.config(), whole)?;
    match json::<Summary>(&dir.summary(), whole)? {
        Some(summary) => finished(&dir, config, summary, whole),
        None => unfinished::read(&dir, config, Reading { ending: Ending::MayBeCut, below }, past),
    }
}

impl State {
    /// `finished`, `running` or `interrupted`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Unfinished { running: true, .. } => "running",
            Self::Unfinished { running: false, .. } => "interrupted",
        }
    }

    /// The part that is done, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        match self {
            Self::Finished => 1.0,
            Self::Unfinished { fraction, .. } => *fraction,
        }
    }
}

impl SeedRecord {
    /// The return of every training episode.
    pub fn returns(&self) -> Vec<f64> {
        self.episodes.iter().map(|row| row.episode_return).collect()
    }

    /// The number of the last training episode. An agent that has learned before the run does not begin with episode 1.
    pub fn last_episode(&self) -> usize {
        let before = || self.evaluations.first()?.first().map(|row| row.episode);
        self.episodes.last().map(|row| row.episode).or_else(before).unwrap_or(0)
    }

    /// Steps of all lanes when each episode ended.
    ///
    /// A log without a column `step` is that of a single lane, whose steps are the lengths of its episodes.
    pub fn episode_steps(&self) -> Vec<u64> {
        let mut sum = 0_u64;
        let step = |row: &EpisodeRow| {
            sum = sum.saturating_add(row.length as u64);
            row.step.unwrap_or(sum)
        };
        self.episodes.iter().map(step).collect()
    }
}

fn counts_steps(summary: &Summary) -> bool {
    summary.steps.is_some() || summary.lanes.is_some_and(|lanes| lanes > 1)
}

fn finished(dir: &RunDir, config: String, summary: Summary, reading: Reading) -> Result<Run, ReadError> {
    let wrong = |path: PathBuf, message: String| Err(ReadError::File { path, line: None, message });
    let lasts = summary.episodes > 0 || summary.steps.is_some_and(|steps| steps > 0);
    if summary.seeds.is_empty() || summary.taus.is_empty() || !lasts {
        let message = "want at least one seed, one level and one episode or step";
        return wrong(dir.summary(), message.to_owned());
    }
    check_levels(&dir.summary(), &summary.taus)?;
    let problem = json::<TaskFacts>(&dir.problem(), reading)?;
    let reference = tables::reference(&dir.reference(), reading)?;
    let mut seeds = Vec::with_capacity(summary.seeds.len());
    for &seed in &summary.seeds {
        let dir = dir.seed(seed);
        let record = record(seed, &dir, &summary.taus, problem.as_ref(), reading, &mut Past::default())?;
        let episodes = record.last_episode();
        // Seeds that count steps have as many episodes as fit.
        if !counts_steps(&summary) && episodes != summary.episodes {
            let message = format!("want {} episodes, as summary.json says, got {episodes}", summary.episodes);
            return wrong(dir.episodes(), message);
        }
        let both = [
            (dir.evaluations(), Some(&record.evaluations)),
            (dir.distribution(), record.distribution.as_ref()),
        ];
        for (path, levels) in both {
            let Some(levels) = levels else { continue };
            let ends = |rows: &Vec<EvaluationRow>| rows.last().is_some_and(|last| last.episode == episodes);
            if !levels.iter().all(ends) {
                return wrong(
                    path,
                    format!("want the last evaluation after episode {episodes}, the last of training"),
                );
            }
        }
        seeds.push(record);
    }
    let longest = seeds.iter().map(SeedRecord::last_episode).max().unwrap_or(0);
    if longest != summary.episodes {
        let message = format!("want {longest} episodes, those of the longest seed, got {}", summary.episodes);
        return wrong(dir.summary(), message);
    }
    let path = dir.path().to_path_buf();
    Ok(Run { path, config, state: State::Finished, summary, problem, reference, seeds })
}

fn check_levels(path: &Path, levels: &[SummaryLevel]) -> Result<(), ReadError> {
    for SummaryLevel { tau, beta, .. } in levels {
        if !(0.0 < *tau && *tau < 1.0 && 0.0 < *beta && beta <= tau) {
            let message = format!("want 0 < beta <= tau < 1, got tau {tau} and beta {beta}");
            return Err(ReadError::File { path: path.to_path_buf(), line: None, message });
        }
    }
    Ok(())
}

/// The files of a seed. Logs that may be cut may also be missing.
fn record(
    seed: u64,
    dir: &SeedDir,
    levels: &[SummaryLevel],
    problem: Option<&TaskFacts>,
    reading: Reading,
    past: &mut Past,
) -> Result<SeedRecord, ReadError> {
    let (known, marks) = past.seeds.remove(&seed).unzip();
    let [mark_of_episodes, mark_of_evaluations, mark_of_distribution] = marks.unwrap_or_default();
    let (rows, evaluated, distributed) = known.map_or((None, None, None), |known| {
        (Some(known.episodes), Some(known.evaluations), known.distribution)
    });
    let past_evaluations = evaluated.map(|rows| (rows, mark_of_evaluations));
    let evaluations = tables::evaluations(&dir.evaluations(), levels, reading, past_evaluations)?;
    // Training begins with an evaluation. An agent that has learned before the run goes on counting its episodes.
    let before = evaluations.as_ref().and_then(|(levels, _)| Some(levels.first()?.first()?.episode));
    let past_episodes = rows.map(|rows| (rows, mark_of_episodes));
    let episodes =
        tables::episodes(&dir.episodes(), before.map(|before| before + 1), reading, past_episodes)?;
    let ((episodes, mark_of_episodes), (evaluations, mark_of_evaluations)) = match reading.ending {
        Ending::Whole => (
            episodes.ok_or_else(|| missing(&dir.episodes()))?,
            evaluations.ok_or_else(|| missing(&dir.evaluations()))?,
        ),
        Ending::MayBeCut => (
            episodes.unwrap_or_default(),
            evaluations.unwrap_or_else(|| (vec![Vec::new(); levels.len()], None)),
        ),
    };
    let past_distribution = distributed.map(|rows| (rows, mark_of_distribution));
    let distribution = tables::evaluations(&dir.distribution(), levels, reading, past_distribution)?;
    let (distribution, mark_of_distribution) = distribution.unzip();
    past.marks.insert(seed, [mark_of_episodes, mark_of_evaluations, mark_of_distribution.flatten()]);
    Ok(SeedRecord {
        seed,
        episodes,
        evaluations,
        distribution,
        policy: tables::policy(&dir.policy(), reading, problem)?,
        law: tables::law(&dir.law(), reading)?,
        predictions: tables::predictions(&dir.predictions(), reading, problem)?,
        achieved: tables::achieved(&dir.achieved(), reading)?,
    })
}
