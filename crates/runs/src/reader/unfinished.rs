//! A run without `summary.json`: its settings from `config.toml`, its numbers from the rows that are on disk.

use std::path::Path;

use serde::Deserialize;

use super::files::{Reading, json};
use super::{Past, ReadError, Run, SeedRecord, SeedState, State, check_levels, record, tables};
use crate::run_dir::{RunDir, SeedDir};
use crate::schema::{SeedProgress, Summary, SummaryLevel, TaskFacts};

/// The keys of `config.toml` that a reader needs; every other key is ignored.
#[derive(Deserialize)]
struct Settings {
    problem: ProblemSettings,
    agent: AgentSettings,
    run: RunSettings,
}

#[derive(Deserialize)]
struct ProblemSettings {
    name: String,
}

#[derive(Deserialize)]
struct AgentSettings {
    kind: String,
}

#[derive(Deserialize)]
struct RunSettings {
    tau: Vec<f64>,
    /// None (β = τ), one for all levels, or one per level.
    #[serde(default)]
    beta: Vec<f64>,
    seeds: Vec<u64>,
    #[serde(default)]
    episodes: usize,
    /// 0 or absent: the run is counted in episodes.
    #[serde(default)]
    steps: u64,
    #[serde(default)]
    lanes: usize,
}

impl RunSettings {
    fn levels(&self, problem: Option<&TaskFacts>) -> Vec<SummaryLevel> {
        let level = |(index, &tau): (usize, &f64)| {
            let known = problem.and_then(|facts| facts.levels.iter().find(|level| level.tau == tau));
            SummaryLevel {
                tau,
                beta: self.beta.get(index).or(self.beta.first()).copied().unwrap_or(tau),
                best_quantile: known.and_then(|level| level.best_quantile),
                rule_quantile: None,
                quantile_policy_gap: None,
                final_quantile: Vec::new(),
                final_buffered_quantile: Vec::new(),
                final_mean: Vec::new(),
                interval: None,
            }
        };
        self.tau.iter().enumerate().map(level).collect()
    }
}

/// Reads a run; the rows that `past` has are not read again, and it gets the marks of this reading.
pub(super) fn read(
    dir: &RunDir,
    config: String,
    reading: Reading,
    past: &mut Past,
) -> Result<Run, ReadError> {
    // Checked before the rows are read: a run that ends in between counts as running, and the rows that were read are correct.
    let running = dir.is_locked();
    let settings = settings(&dir.config(), &config)?;
    let problem = json::<TaskFacts>(&dir.problem(), reading)?;
    let levels = settings.run.levels(problem.as_ref());
    check_levels(&dir.config(), &levels)?;
    let reference = tables::reference(&dir.reference(), reading)?;
    let mut records = Vec::new();
    let mut states = Vec::new();
    for &seed in &settings.run.seeds {
        let files = dir.seed(seed);
        let record = record(seed, &files, &levels, problem.as_ref(), reading, past)?;
        states.push(SeedState { seed, progress: progress(&files, &record, &settings.run, reading) });
        if !record.episodes.is_empty() || !record.evaluations[0].is_empty() {
            records.push(record);
        }
    }
    let fraction = states.iter().map(|seed| seed.progress.fraction()).sum::<f64>() / states.len() as f64;
    let summary = summary(dir, &settings, levels, problem.as_ref(), &records, &states);
    let state = State::Unfinished { running, seeds: states, fraction };
    Ok(Run { path: dir.path().to_path_buf(), config, state, summary, problem, reference, seeds: records })
}

fn settings(path: &Path, text: &str) -> Result<Settings, ReadError> {
    let wrong = |line, message| ReadError::File { path: path.to_path_buf(), line, message };
    let settings: Settings = toml::from_str(text).map_err(|error| {
        let line = error.span().map(|span| 1 + text[..span.start].matches('\n').count());
        wrong(line, error.message().to_owned())
    })?;
    let RunSettings { tau, seeds, episodes, steps, .. } = &settings.run;
    if tau.is_empty() || seeds.is_empty() || (*episodes == 0 && *steps == 0) {
        let message = "want at least one seed, one level and one episode or step".to_owned();
        return Err(wrong(None, message));
    }
    Ok(settings)
}

/// `progress.json`, unless the rows are further.
///
/// The file is a heartbeat. It may be missing or unreadable: the rows also say how far the seed is.
fn progress(dir: &SeedDir, record: &SeedRecord, run: &RunSettings, reading: Reading) -> SeedProgress {
    let evaluated = record.evaluations[0].last();
    let episodes = record.last_episode().max(evaluated.map_or(0, |row| row.episode));
    let steps = record.episode_steps().last().copied().unwrap_or(0);
    let steps = steps.max(evaluated.and_then(|row| row.step).unwrap_or(0));
    let from_rows = SeedProgress {
        episodes,
        steps,
        updates: 0,
        of_episodes: (run.steps == 0).then_some(run.episodes),
        of_steps: (run.steps > 0).then_some(run.steps),
        done: false,
        time: 0.0,
    };
    match json::<SeedProgress>(&dir.progress(), reading) {
        Ok(Some(mut heartbeat)) => {
            heartbeat.episodes = heartbeat.episodes.max(episodes);
            heartbeat.steps = heartbeat.steps.max(steps);
            if heartbeat.of_episodes.is_none() && heartbeat.of_steps.is_none() {
                (heartbeat.of_episodes, heartbeat.of_steps) = (from_rows.of_episodes, from_rows.of_steps);
            }
            heartbeat
        }
        _ => from_rows,
    }
}

fn summary(
    dir: &RunDir,
    settings: &Settings,
    taus: Vec<SummaryLevel>,
    problem: Option<&TaskFacts>,
    records: &[SeedRecord],
    states: &[SeedState],
) -> Summary {
    let sum = |of: fn(&SeedState) -> u64| states.iter().map(of).fold(0, u64::saturating_add);
    let mut rows = records.iter().flat_map(|record| record.evaluations.iter().flatten());
    Summary {
        run: dir.path().display().to_string(),
        problem: settings.problem.name.clone(),
        algo: settings.agent.kind.clone(),
        episodes: records.iter().map(SeedRecord::last_episode).max().unwrap_or(0),
        steps: (settings.run.steps > 0).then_some(settings.run.steps),
        lanes: (settings.run.lanes > 1).then_some(settings.run.lanes),
        seeds: settings.run.seeds.clone(),
        exact: problem.map_or_else(|| !rows.any(|row| row.interval.is_some()), |facts| facts.exact),
        max_mean: problem.and_then(|facts| facts.max_mean),
        taus,
        distribution: None,
        final_mean: Vec::new(),
        expected_return_regret: None,
        moving_average_reward: Vec::new(),
        env_steps: sum(|seed| seed.progress.steps),
        updates: sum(|seed| seed.progress.updates),
        seconds: 0.0,
        frames_per_second: 0.0,
    }
}
