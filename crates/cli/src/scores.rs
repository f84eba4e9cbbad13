//! The results of `bqrl reproduce games` as rows: a game, an agent, a seed, an evaluation, a level. They are collected from run
//! directories, written as a CSV file, and read back, so that the seeds of several machines come onto one page.

use std::path::Path;

use bqrl_lab::config::Config;
use bqrl_lab::reproduce::{BeginError, Planned};
use bqrl_runs::reader::{Run, SeedRecord};
use bqrl_runs::regular;
use bqrl_runs::run_dir::RunDir;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// An evaluation at a level; a row of `games.csv`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Score {
    pub game: String,
    pub algo: String,
    /// A checksum of all settings but the seeds: results of other settings do not belong on the same page.
    pub settings: String,
    pub seed: u64,
    pub step: u64,
    pub tau: f64,
    pub quantile: f64,
    /// A 95 % interval of the quantile.
    pub low: Option<f64>,
    pub high: Option<f64>,
    pub mean: f64,
    /// The chance to reach the goal as the agent expects it and as it is measured, in the last row of an agent that expects anything.
    pub predicted: Option<f64>,
    pub measured: Option<f64>,
}

/// The largest table that is read.
const LARGEST: u64 = 1 << 24;

/// A checksum of the settings, whatever the seeds are.
pub fn settings(config: &Config) -> String {
    let mut config = config.clone();
    config.run.seeds.clear();
    format!("{:08x}", crc32c::crc32c(config.to_toml().as_bytes()))
}

/// The scores of the finished seeds of a run; none where it was not begun.
pub fn collect(root: &Path, planned: &Planned) -> Result<Vec<Score>, Failure> {
    let path = root.join(&planned.name);
    if !path.exists() {
        return Ok(Vec::new());
    }
    let run = Run::read(&path).map_err(Failure::runtime)?;
    if run.config != planned.config.to_toml() {
        return Err(Failure::usage(BeginError::OtherSettings { path }));
    }
    let dir = RunDir::open_to_read(&path).map_err(Failure::runtime)?;
    let steps = planned.config.run.steps;
    // The last step of a seed is followed by an evaluation.
    let is_finished = |seed: &&SeedRecord| {
        seed.evaluations.iter().all(|rows| rows.last().is_some_and(|last| last.step >= steps))
    };
    let mut scores = Vec::new();
    for seed in run.seeds.iter().filter(is_finished) {
        let calibrations = calibrations(&dir.seed(seed.seed).calibration())?;
        for rows in &seed.evaluations {
            for (place, row) in rows.iter().enumerate() {
                let last = place + 1 == rows.len();
                let calibration = calibrations.iter().find(|found| last && found[0] == row.tau);
                scores.push(Score {
                    game: run.summary.problem.clone(),
                    algo: run.summary.algo.clone(),
                    settings: settings(&planned.config),
                    seed: seed.seed,
                    step: row.step.unwrap_or(0),
                    tau: row.tau,
                    quantile: row.quantile,
                    low: row.interval.map(|interval| interval[0]),
                    high: row.interval.map(|interval| interval[1]),
                    mean: row.mean,
                    predicted: calibration.map(|found| found[1]),
                    measured: calibration.map(|found| found[2]),
                });
            }
        }
    }
    Ok(scores)
}

/// τ, expected and measured chance of every row; none where the agent expects nothing.
fn calibrations(path: &Path) -> Result<Vec<[f64; 3]>, Failure> {
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text = regular::read_to_string(path, LARGEST).map_err(Failure::runtime)?;
    let row = |line: &str| {
        let cells: Option<Vec<f64>> = line.split(',').map(|cell| cell.parse().ok()).collect();
        match cells.as_deref() {
            Some(&[tau, _, predicted, measured]) => Ok([tau, predicted, measured]),
            _ => Err(Failure::runtime(format!("{}: cannot read {line:?}", path.display()))),
        }
    };
    text.lines().skip(1).map(row).collect()
}

/// Scores as the text of a CSV file.
pub fn to_csv(scores: &[Score]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for score in scores {
        writer.serialize(score).expect("a row of plain values serialises");
    }
    writer.into_inner().expect("memory takes every byte")
}

/// Reads a CSV file of scores.
pub fn read(path: &Path) -> Result<Vec<Score>, Failure> {
    let wrong = |error: &dyn std::fmt::Display| Failure::usage(format!("{}: {error}", path.display()));
    let text = regular::read_to_string(path, LARGEST).map_err(Failure::usage)?;
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let scores = reader.deserialize().collect::<Result<Vec<Score>, _>>().map_err(|error| wrong(&error))?;
    let finite = |score: &Score| {
        let given = [score.low, score.high, score.predicted, score.measured];
        let all = [score.tau, score.quantile, score.mean].into_iter().chain(given.into_iter().flatten());
        all.into_iter().all(f64::is_finite)
    };
    match scores.iter().find(|score| !finite(score)) {
        Some(score) => Err(wrong(&format!("{}, seed {}: want finite numbers", score.game, score.seed))),
        None => Ok(scores),
    }
}

#[cfg(test)]
mod tests {
    use bqrl_lab::reproduce::games;

    use super::*;

    fn score(seed: u64, predicted: Option<f64>) -> Score {
        Score {
            game: "minatar/breakout".to_owned(),
            algo: "target-tracking".to_owned(),
            settings: "0123abcd".to_owned(),
            seed,
            step: 1_000_000,
            tau: 0.1,
            quantile: 2.0,
            low: Some(1.0),
            high: Some(3.0),
            mean: 0.1 + 0.2,
            predicted,
            measured: predicted.map(|p| p / 3.0),
        }
    }

    #[test]
    fn scores_come_back_as_they_were_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("games.csv");
        let scores = vec![score(42, None), score(7, Some(0.7))];
        std::fs::write(&path, to_csv(&scores)).unwrap();
        assert_eq!(read(&path).unwrap(), scores);
    }

    #[test]
    fn files_that_are_no_scores_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("games.csv");
        let header = String::from_utf8(to_csv(&[score(1, None)])).unwrap().lines().next().unwrap().to_owned();
        let row = |mean: &str| format!("{header}\nminatar/breakout,qr-dqn,00,1,10,0.1,2,,,{mean},,\n");
        for (text, holds) in [
            (row("1.5"), true),
            (row("nan"), false),
            (row("many"), false),
            ("episode,return\n1,2\n".to_owned(), false),
        ] {
            std::fs::write(&path, &text).unwrap();
            assert_eq!(read(&path).is_ok(), holds, "{text}");
        }
        assert!(read(&directory.path().join("none.csv")).is_err());
    }

    #[test]
    fn the_checksum_of_settings_knows_everything_but_the_seeds() {
        let runs = |n| games(n, false).unwrap();
        let (few, many) = (runs(2), runs(5));
        for (a, b) in few.iter().zip(&many) {
            assert_eq!(settings(&a.config), settings(&b.config), "{}", a.name);
        }
        let mut all: Vec<String> = many.iter().map(|run| settings(&run.config)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), many.len(), "two runs share a checksum");
    }

    #[test]
    fn calibrations_are_read_and_damaged_ones_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("calibration.csv");
        assert!(calibrations(&path).unwrap().is_empty(), "an agent that expects nothing writes none");
        std::fs::write(&path, "tau,goal,predicted,measured\n0.1,5,0.9,0.85\n0.5,7,0.6,0.5\n").unwrap();
        assert_eq!(calibrations(&path).unwrap(), [[0.1, 0.9, 0.85], [0.5, 0.6, 0.5]]);
        std::fs::write(&path, "tau,goal,predicted,measured\n0.1,5,0.9\n").unwrap();
        assert!(calibrations(&path).is_err());
    }
}
