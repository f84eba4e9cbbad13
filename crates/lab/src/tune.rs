//! One hyperparameter on a logarithmic grid, chosen by successive halving (§4).
//!
//! ```text
//! v_i       = low · (high/low)^{i/(n−1)}              i = 0..n−1, n = 16 in the paper
//! round r   : every value still in the race is trained up to B/2^{R−1−r} episodes      R = ⌈log₂ n⌉ rounds
//!             the better half continues, from where it stands
//! score     = mean over cells of 𝒢_τ / (episodes · range of returns)                   less is better
//! ties      : the larger return late in training
//! ```
//!
//! A cell is a problem at a level (or at several, for an agent that serves several). The cumulative quantile that the
//! paper ranks by is a constant less 𝒢_τ; dividing by the range of returns lets several problems share one value. Only
//! validation seeds are used: the paper's held-out seeds are refused.
//!
//! Every trial is an ordinary run directory, and every finished round is stored, so that an interrupted search can be
//! resumed.

use std::fmt::Write as _;
use std::path::Path;
use std::{fs, io};

use bqrl_agents::AgentError;
use bqrl_mdp::plan::Planner;
use bqrl_runs::atomic;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::shared_dir::SharedDir;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::batch::{PrepareError, Prepared, Ready, load, run_all};
use crate::config::{Algo, Config, ConfigError, Layers, Levels, ProblemConfig};
use crate::run::{Hooks, RunError, check_agent};

/// The seeds that results are reported on (§4): never tuned on.
pub const HELD_OUT: [u64; 3] = [42, 10042, 20042];
/// The seeds that settings are chosen on (§4).
pub const VALIDATION: [u64; 3] = [1000, 1001, 1002];

/// The settings of a search; its `tune.toml`.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Search {
    /// The algorithm.
    pub algo: String,
    /// The setting, `agent.KEY`.
    pub key: String,
    /// The smallest value.
    pub low: f64,
    /// The largest value.
    pub high: f64,
    /// How many.
    pub points: usize,
    /// Levels.
    pub tau: Vec<f64>,
    /// Validation seeds.
    pub seeds: Vec<u64>,
    /// Settings on top of the preset, the same for all values.
    pub set: Vec<String>,
    /// The problems, each with its number of episodes.
    pub problems: Vec<Episodes>,
}

/// A problem and how long a full trial on it is.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Episodes {
    /// B.
    pub episodes: usize,
    /// The problem.
    pub problem: ProblemConfig,
}

/// Why a search stopped.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum TuneError {
    #[error("{key} must {want}, got {got}")]
    Value { key: &'static str, want: &'static str, got: String },
    #[error("{0} is held out for reporting; tuning on it would spoil every result")]
    HeldOut(u64),
    #[error(transparent)]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    #[error("{value}: {error}")]
    Agent { value: String, error: AgentError },
    #[error("{trial}: {error}")]
    Run { trial: String, error: RunError },
    #[error("{path}: {message}")]
    Damaged { path: String, message: String },
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// One value after one round.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Standing {
    /// The value, as it is written in a preset.
    pub value: String,
    /// Less is better.
    pub score: f64,
    /// The mean 50-episode reward at the end, over cells and seeds.
    pub late_return: f64,
    /// The mean 𝒢_τ, per cell and level.
    pub gaps: Vec<f64>,
    /// Whether it continues.
    pub survives: bool,
}

/// A finished round, best value first.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Round {
    /// The share of the full number of episodes, 1/this.
    pub share: usize,
    /// The values.
    pub standings: Vec<Standing>,
}

/// A problem at a level, or at all.
struct Cell {
    name: String,
    problem: ProblemConfig,
    episodes: usize,
    tau: Vec<f64>,
    /// The width of the return's range.
    range: f64,
}

impl Search {
    fn check(&self) -> Result<(), TuneError> {
        let refuse =
            |key, want, got: &dyn ToString| Err(TuneError::Value { key, want, got: got.to_string() });
        if let Some(&seed) = self.seeds.iter().find(|seed| HELD_OUT.contains(seed)) {
            return Err(TuneError::HeldOut(seed));
        }
        if !(self.low > 0.0 && self.low < self.high && self.high.is_finite()) {
            return refuse(
                "--low and --high",
                "be positive, low below high",
                &format!("{} and {}", self.low, self.high),
            );
        }
        if !(2..=1024).contains(&self.points) {
            return refuse("--points", "lie in 2..=1024", &self.points);
        }
        if !self.key.starts_with("agent.") {
            return refuse("--key", "be agent.KEY", &self.key);
        }
        Ok(())
    }

    /// v_0, …, as they are written; whole numbers where the preset has one.
    fn values(&self) -> Result<Vec<String>, TuneError> {
        let layers = Layers::preset(&self.algo)?;
        let whole = match layers.value(&self.key) {
            Some(toml::Value::Integer(_)) => true,
            Some(toml::Value::Float(_)) => false,
            _ => {
                let (want, got) = ("name a number of the preset", self.key.clone());
                return Err(TuneError::Value { key: "--key", want, got });
            }
        };
        let value = |i: usize| {
            let value = self.low * (self.high / self.low).powf(i as f64 / (self.points - 1) as f64);
            if whole {
                format!("{}", value.round())
            } else {
                // Three significant digits: a value that people can read, type and compare.
                let rounded: f64 = format!("{value:.2e}").parse().expect("a number that was just written");
                let text = format!("{rounded}");
                if text.contains('.') { text } else { text + ".0" }
            }
        };
        let mut values: Vec<String> = (0..self.points).map(value).collect();
        values.dedup();
        Ok(values)
    }

    fn cells(&self) -> Result<Vec<Cell>, TuneError> {
        let algo = Algo::named(&self.algo)?;
        let groups: Vec<Vec<f64>> = match algo.levels {
            Levels::Any => vec![self.tau.clone()],
            Levels::One => self.tau.iter().map(|&tau| vec![tau]).collect(),
        };
        let mut cells = Vec::new();
        for Episodes { episodes, problem } in &self.problems {
            let model = problem.load()?.model;
            let range = Planner::exact(&model, &|_, _, _| {}).map_or(1.0, |planner| {
                let (low, high) = planner.range();
                high - low
            });
            for tau in &groups {
                let levels = tau.iter().map(f64::to_string).collect::<Vec<_>>().join("+");
                let stem = Path::new(&problem.name).file_stem().unwrap_or_default().to_string_lossy();
                cells.push(Cell {
                    name: format!("{stem}-{levels}"),
                    problem: problem.clone(),
                    episodes: *episodes,
                    tau: tau.clone(),
                    range: if range > 0.0 { range } else { 1.0 },
                });
            }
        }
        Ok(cells)
    }

    fn config(&self, value: &str, cell: &Cell, episodes: usize) -> Result<Config, TuneError> {
        let mut layers = Layers::preset(&self.algo)?;
        layers.set_problem(&cell.problem);
        for text in &self.set {
            layers.override_with(text)?;
        }
        layers.set("run", "tau", cell.tau.clone());
        layers.set("run", "episodes", episodes as i64);
        layers.set("run", "seeds", self.seeds.iter().map(|&seed| seed as i64).collect::<Vec<_>>());
        layers.override_with(&format!("{}={value}", self.key))?;
        Ok(layers.finish(&format!("{}={value}", self.key))?)
    }

    /// Refuses settings that cannot be run, before anything is run.
    pub fn prepare(&self) -> Result<(), TuneError> {
        self.check()?;
        for cell in &self.cells()? {
            for value in self.values()? {
                let config = self.config(&value, cell, cell.episodes)?;
                check_agent(&config, load(&config)?.spec())
                    .map_err(|error| TuneError::Agent { value, error })?;
            }
        }
        Ok(())
    }

    /// Training episodes of a whole search, for a progress display.
    pub fn episodes(&self) -> Result<u64, TuneError> {
        let (cells, n) = (self.cells()?, self.values()?.len());
        let shares = shares(n);
        let (mut survivors, mut total, mut before) = (n, 0, 0.0);
        for share in shares {
            let now = 1.0 / share as f64;
            for cell in &cells {
                let more = (cell.episodes as f64 * (now - before)).round() as u64;
                total += more * (survivors * self.seeds.len()) as u64;
            }
            before = now;
            survivors = survivors.div_ceil(2);
        }
        Ok(total)
    }

    /// Searches, continuing after the rounds that are already stored in `dir`. Returns all rounds.
    pub fn run(&self, dir: &Path, hooks: &Hooks) -> Result<Vec<Round>, TuneError> {
        self.prepare()?;
        let cells = self.cells()?;
        let mut values = self.values()?;
        let _dir = SharedDir::open(dir, &[])?;
        let mut rounds = read_rounds(dir)?;
        if !rounds.is_empty() {
            // A kill may have come between the two files of a round, and the last round is not written again.
            atomic::write(&dir.join("results.csv"), table(&cells, &rounds).as_bytes())?;
        }
        let shares = shares(values.len());
        for round in &rounds {
            values = survivors(round);
        }
        for &share in &shares[rounds.len()..] {
            let round = self.round(dir, share, &cells, &values, hooks)?;
            values = survivors(&round);
            rounds.push(round);
            let json = serde_json::to_string_pretty(&rounds).expect("plain numbers and text serialise");
            atomic::write(&dir.join("rounds.json"), json.as_bytes())?;
            atomic::write(&dir.join("results.csv"), table(&cells, &rounds).as_bytes())?;
        }
        Ok(rounds)
    }

    fn round(
        &self,
        dir: &Path,
        share: usize,
        cells: &[Cell],
        values: &[String],
        hooks: &Hooks,
    ) -> Result<Round, TuneError> {
        let mut ready = Vec::new();
        for value in values {
            for cell in cells {
                let config = self.config(value, cell, (cell.episodes / share).max(1))?;
                ready.push(open(config, &dir.join("trials").join(value).join(&cell.name))?);
            }
        }
        let results = run_all(&ready, hooks);
        let mut summaries = Vec::new();
        for (result, run) in results.into_iter().zip(&ready) {
            let trial = || run.dir.path().display().to_string();
            summaries.push(result.map_err(|error| TuneError::Run { trial: trial(), error })?);
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        let mut standings: Vec<Standing> = Vec::new();
        for (value, summaries) in values.iter().zip(summaries.chunks(cells.len())) {
            let (mut gaps, mut scores, mut late) = (Vec::new(), Vec::new(), Vec::new());
            for (summary, cell) in summaries.iter().zip(cells) {
                for level in &summary.taus {
                    let gap = mean(level.quantile_policy_gap.as_ref().expect("a table has an optimum"));
                    gaps.push(gap);
                    scores.push(gap / (summary.episodes as f64 * cell.range));
                }
                late.push(mean(&summary.moving_average_reward) / cell.range);
            }
            standings.push(Standing {
                value: value.clone(),
                score: mean(&scores),
                late_return: mean(&late),
                gaps,
                survives: false,
            });
        }
        standings.sort_by(|a, b| a.score.total_cmp(&b.score).then(b.late_return.total_cmp(&a.late_return)));
        let keep = if share == 1 { 1 } else { standings.len().div_ceil(2) };
        standings.iter_mut().take(keep).for_each(|standing| standing.survives = true);
        Ok(Round { share, standings })
    }

    /// The preset for tables with the chosen value, and a comment that says where it comes from.
    pub fn preset(&self, rounds: &[Round]) -> Result<String, TuneError> {
        let last = rounds.last().expect("a search has rounds");
        let best = &last.standings[0];
        let key = self.key.strip_prefix("agent.").expect("checked");
        let seeds = self.seeds.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let origin =
            format!("tuned: best of {} in [{}, {}] on seeds {seeds}", self.points, self.low, self.high);
        let replaced = |line: &str| {
            let own = line.split('=').next().is_some_and(|name| name.trim() == key);
            if own { format!("{key} = {}  # {origin}", best.value) } else { line.to_owned() }
        };
        let preset = Algo::named(&self.algo)?.preset_for_tables();
        Ok(preset.lines().map(|line| replaced(line) + "\n").collect::<Vec<_>>().concat())
    }
}

/// 2^{R−1}, …, 2, 1: the n values are halved until one is left.
fn shares(n: usize) -> Vec<usize> {
    let rounds = n.next_power_of_two().trailing_zeros().max(1);
    (0..rounds).rev().map(|r| 1 << r).collect()
}

fn survivors(round: &Round) -> Vec<String> {
    round
        .standings
        .iter()
        .filter(|standing| standing.survives)
        .map(|standing| standing.value.clone())
        .collect()
}

/// The trial's directory, begun or resumed at another length.
fn open(config: Config, path: &Path) -> Result<Ready, TuneError> {
    let (dir, lock) = if path.join("config.toml").exists() {
        let dir = RunDir::open(path)?;
        let lock = dir.lock()?;
        (dir, lock)
    } else {
        fs::create_dir_all(path.parent().expect("a trial has a place in its search"))?;
        RunDir::create(path, true)?
    };
    Ok(Prepared::new(config)?.begin(dir, lock)?)
}

fn read_rounds(dir: &Path) -> Result<Vec<Round>, TuneError> {
    let path = dir.join("rounds.json");
    match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error.into()),
        Ok(text) => serde_json::from_str(&text).map_err(|error| TuneError::Damaged {
            path: path.display().to_string(),
            message: error.to_string(),
        }),
    }
}

/// `results.csv`.
fn table(cells: &[Cell], rounds: &[Round]) -> String {
    let mut csv = String::from("round,share,value,score,late_return,survives");
    for cell in cells {
        for tau in &cell.tau {
            let stem = cell.name.rsplit_once('-').map_or(&cell.name[..], |(stem, _)| stem);
            let _ = write!(csv, ",gap_{stem}_{tau}");
        }
    }
    csv.push('\n');
    for (index, Round { share, standings }) in rounds.iter().enumerate() {
        for Standing { value, score, late_return, gaps, survives } in standings {
            let _ = write!(csv, "{},1/{share},{value},{score},{late_return},{survives}", index + 1);
            for gap in gaps {
                let _ = write!(csv, ",{gap}");
            }
            csv.push('\n');
        }
    }
    csv
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search() -> Search {
        Search {
            algo: "deep-bqrl".into(),
            key: "agent.kappa".into(),
            low: 0.01,
            high: 10.0,
            points: 16,
            tau: vec![0.1, 0.9],
            seeds: VALIDATION.to_vec(),
            set: Vec::new(),
            problems: vec![Episodes {
                episodes: 2000,
                problem: ProblemConfig { name: "asset-selling".into(), ..ProblemConfig::default() },
            }],
        }
    }

    #[test]
    fn the_grid_is_logarithmic_and_readable() {
        let values = search().values().unwrap();
        assert_eq!(values.len(), 16);
        // 0.01 · 1000^{i/15}: a factor of 10^{1/5} = 1.585 from one to the next.
        assert_eq!(values[..6], ["0.01", "0.0158", "0.0251", "0.0398", "0.0631", "0.1"]);
        assert_eq!(values[15], "10.0");
        let whole = Search { key: "agent.batch_size".into(), low: 1.0, high: 8.0, points: 4, ..search() };
        assert_eq!(whole.values().unwrap(), ["1", "2", "4", "8"]);
    }

    #[test]
    fn sixteen_values_are_halved_four_times() {
        assert_eq!(shares(16), [8, 4, 2, 1]);
        assert_eq!(shares(5), [4, 2, 1]);
        assert_eq!(shares(2), [1]);
        // 16 · B/8 + 8 · B/8 + 4 · B/4 + 2 · B/2 = 5 B, two cells, three seeds.
        assert_eq!(search().episodes().unwrap(), 5 * 2000 * 2 * 3);
    }

    #[test]
    fn the_held_out_seeds_and_impossible_grids_are_refused() {
        let refused = |search: Search| search.prepare().unwrap_err().to_string();
        assert!(refused(Search { seeds: vec![1000, 42], ..search() }).starts_with("42 is held out"));
        assert!(refused(Search { low: 0.0, ..search() }).contains("low below high"));
        assert!(refused(Search { points: 1, ..search() }).contains("--points"));
        assert!(refused(Search { key: "run.episodes".into(), ..search() }).contains("agent.KEY"));
        assert!(refused(Search { key: "agent.kappaa".into(), ..search() }).contains("name a number"));
        assert!(refused(Search { key: "agent.zeta".into(), ..search() }).contains("zeta must lie in (0, 1]"));
    }

    #[test]
    fn the_preset_has_the_best_value_and_says_whence() {
        let standing = |value: &str| Standing {
            value: value.into(),
            score: 0.1,
            late_return: 0.5,
            gaps: vec![1.0],
            survives: true,
        };
        let rounds = [Round { share: 1, standings: vec![standing("0.398"), standing("1.0")] }];
        let preset = search().preset(&rounds).unwrap();
        let line = preset.lines().find(|line| line.starts_with("kappa")).unwrap();
        assert_eq!(line, "kappa = 0.398  # tuned: best of 16 in [0.01, 10] on seeds 1000, 1001, 1002");
        assert_eq!(
            preset.lines().count(),
            Algo::named("deep-bqrl").unwrap().preset_for_tables().lines().count()
        );
        // It is a whole configuration: `bqrl train --config` takes it.
        let mut layers = Layers::written(&preset, "preset").unwrap();
        layers.set("problem", "name", "asset-selling");
        layers.finish("preset").unwrap();
    }
}
