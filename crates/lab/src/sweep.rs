//! Many runs from one file: every combination of listed values, for every seed.
//!
//! ```text
//! [problem] [run] [agent]   what `bqrl train --config` takes, on top of the preset of agent.kind
//! [grid]                    "section.key" = [value, …]; axes in the order of their keys
//! run k                     seeds change fastest, then the last axis, …, the first axis
//! shard i/n                 the runs k ≡ i − 1 (mod n)
//! ```
//!
//! A run is a function of (settings, seed) that writes one directory, an ordinary run with one seed. It knows nothing of
//! the other runs, so it does not matter which process makes it, when, on which machine, or in how many attempts: the
//! engines (threads here, shards, Slurm, Ray) only call [`Sweep::run`]. The table is read from the directories alone.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::{fs, io, slice};

use bqrl_runs::atomic;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::schema::Summary;
use rayon::prelude::*;
use thiserror::Error;
use toml::{Table, Value};

use crate::batch::{Prepared, load, run_all};
use crate::config::{Config, ConfigError, Layers, ProblemConfig};
use crate::run::{Hooks, RunError, check_agent};
use crate::task::Task;

/// The table of results, in the directory of a sweep.
pub const TABLE: &str = "sweep.csv";
/// Sanity limit; a larger value is probably a typo.
const MOST_RUNS: usize = 100_000;
/// File systems allow 255 bytes; the rest is left for text that users add to a name.
const LONGEST_NAME: usize = 200;

/// A sweep file, read.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The file's name, for messages.
    origin: String,
    /// The settings that all runs share.
    base: Table,
    axes: Vec<Axis>,
    seeds: Vec<u64>,
}

/// A setting and its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// `section.key`.
    pub key: String,
    /// The key as names and tables have it: as short as is clear.
    pub label: String,
    values: Vec<Value>,
}

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// Its directory, below that of the sweep.
    pub name: String,
    /// Its seed.
    pub seed: u64,
    /// Its place in the grid: a text per axis.
    pub point: Vec<String>,
    /// Every setting.
    pub config: Config,
}

/// A run and what came out.
pub type Finished = (Trial, Summary);

/// The state of a run on disk.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// The run does not exist.
    Missing,
    /// The run was begun and is not finished.
    Begun,
    /// The run is finished.
    Finished(Box<Summary>),
}

/// Why a sweep, or one of its runs, stopped.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum SweepError {
    #[error("{origin}: {message}")]
    File { origin: String, message: String },
    #[error("{path} was run with other settings{keys}")]
    OtherSettings { path: String, keys: String },
    #[error("{run}: {error}")]
    Run { run: String, error: RunError },
    #[error("{path}: {message}")]
    Damaged { path: String, message: String },
}

impl SweepError {
    /// Whether the caller can put it right.
    pub fn is_usage(&self) -> bool {
        matches!(self, Self::File { .. } | Self::OtherSettings { .. })
    }

    /// Whether the user asked for it.
    pub fn is_interruption(&self) -> bool {
        matches!(self, Self::Run { error: RunError::Interrupted { .. }, .. })
    }
}

impl Sweep {
    /// Reads a sweep file; `origin` names it in messages.
    pub fn parse(text: &str, origin: &str) -> Result<Self, SweepError> {
        let refuse = |message: String| SweepError::File { origin: origin.to_owned(), message };
        let mut base: Table =
            text.parse().map_err(|error: toml::de::Error| refuse(error.message().to_owned()))?;
        let mut values = BTreeMap::new();
        match base.remove("grid") {
            None => {}
            Some(Value::Table(grid)) => flatten("", grid, &mut values).map_err(refuse)?,
            Some(other) => return Err(refuse(format!("grid must be a table of lists, got {other}"))),
        }
        if let Some(key) = base.keys().find(|key| !["problem", "run", "agent"].contains(&key.as_str())) {
            return Err(refuse(format!("unknown section {key}, want problem, run, agent or grid")));
        }
        let seeds = seeds(&base).map_err(refuse)?;
        let labels: Vec<&str> = values.keys().map(|key| short(key)).collect();
        let mut axes = Vec::new();
        for (key, values) in &values {
            check_axis(key, values).map_err(refuse)?;
            let clear =
                short(key) != "seed" && labels.iter().filter(|label| **label == short(key)).count() == 1;
            let label = if clear { short(key) } else { key }.to_owned();
            axes.push(Axis { key: key.clone(), label, values: values.clone() });
        }
        let sweep = Self { origin: origin.to_owned(), base, axes, seeds };
        match sweep.len() {
            0..=MOST_RUNS => Ok(sweep),
            n => Err(refuse(format!("a sweep has at most {MOST_RUNS} runs, got {n}"))),
        }
    }

    /// How many runs there are.
    pub fn len(&self) -> usize {
        self.axes.iter().fold(self.seeds.len(), |n, axis| n.saturating_mul(axis.values.len()))
    }

    /// Never: a sweep has at least one seed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The varied settings.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// The seeds of every combination.
    pub fn seeds(&self) -> &[u64] {
        &self.seeds
    }

    /// Run k of [`len`](Self::len).
    pub fn trial(&self, k: usize) -> Result<Trial, SweepError> {
        let mut rest = k / self.seeds.len();
        let mut point: Vec<&Value> = Vec::new();
        for axis in self.axes.iter().rev() {
            point.push(&axis.values[rest % axis.values.len()]);
            rest /= axis.values.len();
        }
        assert_eq!(rest, 0, "run {k} of {}", self.len());
        point.reverse();
        let seed = self.seeds[k % self.seeds.len()];
        let name = self.name(&point, seed);
        let wrong = |message: &dyn ToString| self.wrong(&name, message);
        let config = self.config(&point, seed).map_err(|error| wrong(&error))?;
        if name.len() > LONGEST_NAME {
            return Err(wrong(&format!("the name of a run has at most {LONGEST_NAME} bytes")));
        }
        Ok(Trial { point: point.into_iter().map(text).collect(), seed, config, name })
    }

    /// All runs, after a look at whether each of them can be made and is unlike the others. Nothing is written.
    pub fn trials(&self) -> Result<Vec<Trial>, SweepError> {
        let trials: Vec<Trial> = (0..self.len()).map(|k| self.trial(k)).collect::<Result<_, _>>()?;
        let (mut names, mut settings) = (BTreeSet::new(), BTreeMap::new());
        let mut tasks: Vec<(&ProblemConfig, Arc<dyn Task>)> = Vec::new();
        for Trial { name, config, .. } in &trials {
            if !names.insert(name) {
                return Err(self.wrong(name, &"two runs have this name"));
            }
            if let Some(other) = settings.insert(config.to_toml(), name) {
                return Err(self.wrong(name, &format!("the same settings as {other}")));
            }
            if !tasks.iter().any(|(known, _)| *known == &config.problem) {
                tasks.push((&config.problem, load(config).map_err(|error| self.wrong(name, &error))?));
            }
            let (_, task) = tasks.iter().find(|(known, _)| *known == &config.problem).expect("just added");
            check_agent(config, task.spec()).map_err(|error| self.wrong(name, &error))?;
        }
        Ok(trials)
    }

    /// Makes one run below `root`, or resumes it, unless it is finished. `force` replaces a run that has other settings.
    pub fn run(&self, trial: &Trial, root: &Path, force: bool, hooks: &Hooks) -> Result<Summary, SweepError> {
        let failed = |error| SweepError::Run { run: trial.name.clone(), error };
        let path = root.join(&trial.name);
        let begun = match trial.state(root) {
            Ok(State::Finished(summary)) => return Ok(*summary),
            Ok(state) => state == State::Begun,
            Err(SweepError::OtherSettings { .. }) if force => false,
            Err(error) => return Err(error),
        };
        let prepared =
            Prepared::new(trial.config.clone()).map_err(|error| self.wrong(&trial.name, &error))?;
        let directory = || {
            if begun {
                let dir = RunDir::open(&path)?;
                let lock = dir.lock()?;
                return Ok(prepared.resume(dir, lock));
            }
            let (dir, lock) = RunDir::create(&path, force)?;
            prepared.begin(dir, lock)
        };
        let ready = directory().map_err(|error: io::Error| failed(error.into()))?;
        run_all(slice::from_ref(&ready), hooks).pop().expect("one run, one result").map_err(failed)
    }

    /// Makes runs on the current thread pool, started in their order; the results are in the order of the runs.
    pub fn run_all(
        &self,
        trials: &[Trial],
        root: &Path,
        force: bool,
        hooks: &Hooks,
    ) -> Vec<Result<Summary, SweepError>> {
        let one = |trial: &Trial| {
            if hooks.stop.load(Ordering::Relaxed) {
                let error = RunError::Interrupted { episode: 0, step: 0 };
                return Err(SweepError::Run { run: trial.name.clone(), error });
            }
            self.run(trial, root, force, hooks)
        };
        trials.par_iter().with_max_len(1).map(one).collect()
    }

    /// Reads the finished runs below `root` and writes their table, `sweep.csv`. Returns the finished runs, and the names of
    /// the others.
    pub fn collect(&self, trials: &[Trial], root: &Path) -> Result<(Vec<Finished>, Vec<String>), SweepError> {
        let (mut finished, mut missing) = (Vec::new(), Vec::new());
        for trial in trials {
            match trial.state(root)? {
                State::Finished(summary) => finished.push((trial.clone(), *summary)),
                State::Missing | State::Begun => missing.push(trial.name.clone()),
            }
        }
        if !finished.is_empty() {
            let path = root.join(TABLE);
            atomic::write(&path, self.table(&finished).as_bytes()).map_err(|error| SweepError::Damaged {
                path: path.display().to_string(),
                message: error.to_string(),
            })?;
        }
        Ok((finished, missing))
    }

    /// A line per finished run and level, in the order of the runs.
    fn table(&self, finished: &[Finished]) -> String {
        let mut csv = String::from("run");
        for axis in &self.axes {
            let _ = write!(csv, ",{}", quoted(&axis.key));
        }
        // Measures without a reference have no column.
        let levels = || finished.iter().flat_map(|(_, summary)| &summary.taus);
        let best = levels().all(|level| level.best_quantile.is_some() && level.quantile_policy_gap.is_some());
        let regret = finished.iter().all(|(_, summary)| summary.expected_return_regret.is_some());
        csv += ",seed,tau,beta";
        csv += if best { ",best_quantile" } else { "" };
        csv += ",final_quantile,final_buffered_quantile,final_mean";
        csv += if best { ",quantile_policy_gap" } else { "" };
        csv += if regret { ",expected_return_regret" } else { "" };
        csv += ",moving_average_reward,env_steps,updates\n";
        for (trial, summary) in finished {
            for level in &summary.taus {
                csv += &quoted(&trial.name);
                for value in &trial.point {
                    let _ = write!(csv, ",{}", quoted(value));
                }
                let first = |values: &Option<Vec<f64>>| values.as_ref().map_or(f64::NAN, |values| values[0]);
                let mut cells = vec![trial.seed.to_string(), level.tau.to_string(), level.beta.to_string()];
                cells.extend(level.best_quantile.filter(|_| best).map(|best| best.to_string()));
                let finals = [&level.final_quantile, &level.final_buffered_quantile, &level.final_mean];
                cells.extend(finals.map(|values| values[0].to_string()));
                cells.extend(best.then(|| first(&level.quantile_policy_gap).to_string()));
                cells.extend(regret.then(|| first(&summary.expected_return_regret).to_string()));
                cells.push(summary.moving_average_reward[0].to_string());
                cells.extend([summary.env_steps, summary.updates].map(|count| count.to_string()));
                let _ = writeln!(csv, ",{}", cells.join(","));
            }
        }
        csv
    }

    fn wrong(&self, run: &str, message: &dyn ToString) -> SweepError {
        let message = format!("{run}: {}", message.to_string());
        SweepError::File { origin: self.origin.clone(), message }
    }

    fn name(&self, point: &[&Value], seed: u64) -> String {
        let mut name = String::new();
        for (axis, value) in self.axes.iter().zip(point) {
            let _ = write!(name, "{}={},", axis.label, text(value));
        }
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._+-=,".contains(c) { c } else { '_' };
        name.chars().map(plain).chain(format!("seed={seed}").chars()).collect()
    }

    fn config(&self, point: &[&Value], seed: u64) -> Result<Config, ConfigError> {
        let chosen = |section: &str, key: &str| {
            let axis = self.axes.iter().position(|axis| axis.key == format!("{section}.{key}"));
            let value = axis.map(|axis| point[axis]).or_else(|| self.base.get(section)?.get(key));
            value.and_then(Value::as_str)
        };
        let mut layers = Layers::of(
            chosen("agent", "kind").unwrap_or("deep-bqrl"),
            chosen("problem", "name").unwrap_or("asset-selling"),
        )?;
        layers.add(self.base.clone());
        for (axis, value) in self.axes.iter().zip(point) {
            // A parameter of a problem is text, as on the command line.
            if let Some(name) = axis.key.strip_prefix("problem.parameters.") {
                layers.set_parameter(name, &text(value));
            } else if let Some((section, key)) = axis.key.split_once('.') {
                layers.set(section, key, (*value).clone());
            }
        }
        layers.set("run", "seeds", vec![seed as i64]);
        layers.finish("settings")
    }
}

impl Trial {
    /// Its state below `root`.
    pub fn state(&self, root: &Path) -> Result<State, SweepError> {
        let path = root.join(&self.name);
        let damaged = |file: &Path, error: &dyn ToString| SweepError::Damaged {
            path: file.display().to_string(),
            message: error.to_string(),
        };
        let file = path.join("config.toml");
        let stored = match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(State::Missing),
            stored => stored.map_err(|error| damaged(&file, &error))?,
        };
        if stored != self.config.to_toml() {
            let config = Layers::written(&stored, "").and_then(|layers| layers.finish(""));
            let keys = config.map(|config| format!(": {}", config.differences(&self.config).join(", ")));
            let path = path.display().to_string();
            return Err(SweepError::OtherSettings { path, keys: keys.unwrap_or_default() });
        }
        let file = path.join("summary.json");
        match fs::read_to_string(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(State::Begun),
            Err(error) => Err(damaged(&file, &error)),
            Ok(text) => {
                serde_json::from_str(&text).map(State::Finished).map_err(|error| damaged(&file, &error))
            }
        }
    }
}

/// A shard, `i/n` with 1 ≤ i ≤ n.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    index: usize,
    of: usize,
}

impl Shard {
    /// Every n-th of a list, from the i-th on.
    pub fn of<T>(self, all: Vec<T>) -> Vec<T> {
        all.into_iter().skip(self.index - 1).step_by(self.of).collect()
    }
}

impl std::str::FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((index, of)) if 1 <= index && index <= of => Ok(Self { index, of }),
            _ => Err(format!("want I/N with 1 <= I <= N, got {text:?}")),
        }
    }
}

impl std::fmt::Display for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.index, self.of)
    }
}

/// `a.b = […]` and `[grid.a] b = […]` are the same to TOML's readers, and so is `"a.b" = […]` here.
fn flatten(prefix: &str, table: Table, axes: &mut BTreeMap<String, Vec<Value>>) -> Result<(), String> {
    for (key, value) in table {
        let key = if prefix.is_empty() { key } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(table) => flatten(&key, table, axes)?,
            Value::Array(values) => {
                if axes.insert(key.clone(), values).is_some() {
                    return Err(format!("grid: {key} is listed twice"));
                }
            }
            other => return Err(format!("grid: {key} must be a list of values, got {other}")),
        }
    }
    Ok(())
}

fn check_axis(key: &str, values: &[Value]) -> Result<(), String> {
    let sections = ["problem.", "run.", "agent."];
    if !sections.iter().any(|section| key.len() > section.len() && key.starts_with(section)) {
        return Err(format!("grid: {key} must be a key of problem, run or agent, such as agent.kappa"));
    }
    if key == "run.seeds" {
        return Err("grid: run.seeds: every combination is run for all seeds of [run] seeds".to_owned());
    }
    if values.is_empty() {
        return Err(format!("grid: {key} has no values"));
    }
    match values.iter().enumerate().find(|(k, value)| values[..*k].contains(value)) {
        Some((_, value)) => Err(format!("grid: {key} lists {value} twice")),
        None => Ok(()),
    }
}

fn seeds(base: &Table) -> Result<Vec<u64>, String> {
    let Some(seeds) = base.get("run").and_then(|run| run.get("seeds")) else {
        return Err("run.seeds is missing: every combination is run for each of them".to_owned());
    };
    let number = |value: &Value| value.as_integer().and_then(|seed| u64::try_from(seed).ok());
    let numbers: Option<Vec<u64>> = seeds.as_array().and_then(|seeds| seeds.iter().map(number).collect());
    match numbers {
        Some(numbers)
            if !numbers.is_empty() && numbers.iter().collect::<BTreeSet<_>>().len() == numbers.len() =>
        {
            Ok(numbers)
        }
        _ => Err(format!("run.seeds must list whole numbers, at least one and none twice, got {seeds}")),
    }
}

/// A key as people say it.
fn short(key: &str) -> &str {
    match key {
        "agent.kind" => "algo",
        "problem.name" => "problem",
        _ => key.rsplit_once('.').map_or(key, |(_, last)| last),
    }
}

/// A value without quotes and brackets.
fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        // 1e-7 and 1e30, not rows of zeros.
        Value::Float(number) => format!("{number:?}"),
        Value::Array(items) if items.is_empty() => "none".to_owned(),
        Value::Array(items) => items.iter().map(text).collect::<Vec<_>>().join("+"),
        other => other.to_string(),
    }
}

/// A cell of a CSV file.
fn quoted(cell: &str) -> String {
    if cell.contains([',', '"', '\n']) {
        format!("\"{}\"", cell.replace('"', "\"\""))
    } else {
        cell.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "[run]\nseeds = [1000, 1001]\nepisodes = 20\n[agent]\nkind = \"deep-bqrl\"\n\
                        [grid]\nagent.kappa = [0.1, 1.0]\n\"run.tau\" = [[0.1], [0.5], [0.9]]\n";

    fn sweep(text: &str) -> Sweep {
        Sweep::parse(text, "s.toml").unwrap()
    }

    fn refused(text: &str) -> String {
        let error = Sweep::parse(text, "s.toml").and_then(|sweep| sweep.trials()).unwrap_err();
        assert!(error.is_usage());
        error.to_string()
    }

    #[test]
    fn runs_are_the_product_with_seeds_fastest() {
        let trials = sweep(FILE).trials().unwrap();
        let names: Vec<&str> = trials.iter().map(|trial| trial.name.as_str()).collect();
        // 2 values × 3 levels × 2 seeds.
        assert_eq!(names.len(), 12);
        assert_eq!(
            names[..3],
            ["kappa=0.1,tau=0.1,seed=1000", "kappa=0.1,tau=0.1,seed=1001", "kappa=0.1,tau=0.5,seed=1000"]
        );
        assert_eq!(names[11], "kappa=1.0,tau=0.9,seed=1001");
        let run = &trials[11].config.run;
        assert_eq!((&run.tau[..], &run.seeds[..], run.episodes), (&[0.9][..], &[1001][..], Some(20)));
        assert_eq!(trials[11].point, ["1.0", "0.9"]);
        let crate::config::AgentConfig::DeepBqrl(agent) = &trials[11].config.agent else {
            panic!("the kind")
        };
        assert_eq!(agent.critics.kappa, 1.0);
    }

    /// What is finished stays finished when values are added.
    #[test]
    fn a_name_does_not_depend_on_the_other_runs() {
        let names = |text: &str| -> BTreeSet<String> {
            sweep(text).trials().unwrap().into_iter().map(|trial| trial.name).collect()
        };
        let more = FILE.replace("[0.1, 1.0]", "[0.01, 0.1, 0.3, 1.0]").replace("[1000,", "[7, 1000,");
        assert!(names(&more).is_superset(&names(FILE)));
    }

    #[test]
    fn an_algorithm_brings_its_preset_and_a_problem_its_length() {
        let text = "[run]\nseeds = [1]\n[grid]\nagent.kind = [\"ppo\", \"var-q\"]\n\
                    problem.name = [\"asset-selling\", \"frozen-lake\"]\n";
        let trials = sweep(text).trials().unwrap();
        let shown: Vec<(&str, &str, usize)> = trials
            .iter()
            .map(|trial| (trial.name.as_str(), trial.config.algo().name, trial.config.run.episodes.unwrap()))
            .collect();
        assert_eq!(
            shown,
            [
                ("algo=ppo,problem=asset-selling,seed=1", "ppo", 2000),
                ("algo=ppo,problem=frozen-lake,seed=1", "ppo", 5000),
                ("algo=var-q,problem=asset-selling,seed=1", "var-q", 2000),
                ("algo=var-q,problem=frozen-lake,seed=1", "var-q", 5000),
            ]
        );
    }

    #[test]
    fn parameters_of_problems_and_odd_values_have_plain_names() {
        let file = "[run]\nseeds = [1]\ntau = [0.5]\n[agent]\nkind = \"ppo\"\n[grid.problem.parameters]\noffers = [20, 40]\n\
                    [grid.run]\nbeta = [[], [0.25]]\n";
        let trials = sweep(file).trials().unwrap();
        assert_eq!(trials[0].name, "offers=20,beta=none,seed=1");
        assert_eq!(trials[3].name, "offers=40,beta=0.25,seed=1");
        assert_eq!(trials[3].config.problem.parameters["offers"], "40");
        assert_eq!(text(&Value::Float(1e-7)) + &text(&Value::Float(1e30)), "1e-71e30");
        assert_eq!(quoted("a,\"b\""), "\"a,\"\"b\"\"\"");
        // Two axes with one last word keep their whole keys; a file's path becomes one name.
        let file = "[run]\nseeds = [1]\n[grid]\nproblem.horizon = [1]\nproblem.parameters.horizon = [2]\n\
                    problem.name = [\"data/a b.csv\"]\n";
        let sweep = sweep(file);
        let labels: Vec<&str> = sweep.axes().iter().map(|axis| axis.label.as_str()).collect();
        assert_eq!(labels, ["problem.horizon", "problem", "problem.parameters.horizon"]);
        let point: Vec<&Value> = sweep.axes.iter().map(|axis| &axis.values[0]).collect();
        let name = sweep.name(&point, 1);
        assert_eq!(name, "problem.horizon=1,problem=data_a_b.csv,problem.parameters.horizon=2,seed=1");
    }

    #[test]
    fn mistakes_are_named_with_file_and_key() {
        let with = |grid: &str| format!("[run]\nseeds = [1]\n[grid]\n{grid}\n");
        let (long, short) = ((1..=1000).collect::<Vec<_>>(), (1..=101).collect::<Vec<_>>());
        let too_many = format!("run.episodes = {long:?}\nrun.evaluate_every = {short:?}");
        for (text, said) in [
            ("[run]\nepisodes = 5\n".to_owned(), "run.seeds is missing"),
            ("[run]\nseeds = [1, 1]\n".to_owned(), "none twice, got [1, 1]"),
            ("[run]\nseeds = [-1]\n".to_owned(), "run.seeds must list whole numbers"),
            ("seeds = [1]\n".to_owned(), "unknown section seeds"),
            ("[run\n".to_owned(), "s.toml: "),
            (with("agent.kappa = []"), "grid: agent.kappa has no values"),
            (with("agent.kappa = 0.1"), "grid: agent.kappa must be a list of values, got 0.1"),
            (with("agent.kappa = [0.1, 0.1]"), "grid: agent.kappa lists 0.1 twice"),
            (with("agent.kappa = [1, 1.0]"), "kappa=1.0,seed=1: the same settings as kappa=1,seed=1"),
            (with("agent.kappa = [0.1]\n\"agent.kappa\" = [1.0]"), "grid: agent.kappa is listed twice"),
            (with("agent.kapa = [0.1]"), "deep-bqrl has no setting \"kapa\""),
            (with("agent.zeta = [0.5, 2.0]"), "zeta=2.0,seed=1: agent.zeta must lie in (0, 1]"),
            (with("kappa = [0.1]"), "grid: kappa must be a key of problem, run or agent"),
            (with("agent.kind = [\"sarsa\"]"), "unknown algorithm \"sarsa\""),
            (with("problem.name = [\"nowhere\"]"), "nowhere"),
            (with("run.seeds = [[1], [2]]"), "grid: run.seeds"),
            (with("run.tau = [[0.1, 0.9]]"), "tau=0.1+0.9,seed=1: run.tau must be one level"),
            (with(&too_many), "at most 100000 runs, got 101000"),
            ("grid = 1\n[run]\nseeds = [1]\n".to_owned(), "grid must be a table of lists"),
        ] {
            let message = refused(&text);
            assert!(message.starts_with("s.toml: ") && message.contains(said), "{text}: {message}");
        }
    }

    #[test]
    fn shards_are_a_partition() {
        let all: Vec<usize> = (0..10).collect();
        let shard = |text: &str| text.parse::<Shard>().unwrap().of(all.clone());
        assert_eq!(shard("2/4"), [1, 5, 9]);
        let mut together: Vec<usize> = (1..=4).flat_map(|i| shard(&format!("{i}/4"))).collect();
        together.sort_unstable();
        assert_eq!(together, all);
        assert_eq!(shard("12/12"), [0; 0]);
        for text in ["0/4", "5/4", "2", "a/b", "1/0", "-1/2"] {
            assert!(text.parse::<Shard>().unwrap_err().contains("1 <= I <= N"), "{text}");
        }
    }
}
