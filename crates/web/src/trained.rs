//! The agent of a run, as the last checkpoint of a seed left it.
//!
//! A checkpoint is restored when somebody asks what the run would do. Only one agent is in memory at a time. Its size is
//! checked before: a configuration below the served directory may ask for any network.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bqrl_lab::config::{Config, Layers, ProblemConfig};
use bqrl_lab::run::{Hooks, restore_seed};
use bqrl_lab::task::{References, Simulator, Table, Task};
use bqrl_lab::train::Training;
use bqrl_mdp::csv::CsvError;
use bqrl_mdp::model::Problem;
use bqrl_mdp::problems;
use bqrl_runs::run_dir::RunDir;

use crate::shelf::{LARGEST_MODEL, Shelf};

/// A checkpoint that is larger, replay included, is not restored.
const LARGEST_CHECKPOINT: u64 = 256 << 20;
/// The copy of the MDP file in a run.
const TABLE: &str = "problem.csv";
/// Bytes of a configuration that are read.
const LARGEST_CONFIG: u64 = 1 << 20;
/// The most weights of a network and its copies: 64 MB each.
const MOST_WEIGHTS: u64 = 1 << 24;
/// How often a checkpoint is looked for: a run that learns removes old ones while they are being read.
const TRIES: usize = 3;

/// The agent that was asked for last.
#[derive(Default)]
pub struct Agents {
    kept: Mutex<Option<(Key, Arc<Mutex<Training>>)>>,
}

/// Which agent: a run, one of its seeds, and the number of its latest checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The id of the run.
    pub run: String,
    /// The seed.
    pub seed: u64,
    /// The checkpoint.
    pub checkpoint: u64,
}

impl Key {
    /// The agent of a seed as it is now. Another key means that the agent has changed.
    pub fn of(shelf: &Shelf, run: &str, seed: u64) -> Result<Self, String> {
        let dir = shelf.run_dir(run)?;
        let numbers = dir.seed(seed).checkpoint_store().numbers();
        let numbers = numbers.map_err(|error| shown(&error, dir.path(), run))?;
        let checkpoint =
            numbers.first().copied().ok_or_else(|| format!("seed {seed} has no checkpoint yet"))?;
        Ok(Self { run: run.to_owned(), seed, checkpoint })
    }
}

impl Agents {
    /// The agent of a key, from memory or from its checkpoint.
    pub fn get(&self, key: &Key, shelf: &Shelf) -> Result<Arc<Mutex<Training>>, String> {
        let mut kept = lock(&self.kept);
        if let Some((known, training)) = &*kept
            && known == key
        {
            return Ok(training.clone());
        }
        // The old agent goes before the new one comes, so that there is never more than one.
        *kept = None;
        let training = Arc::new(Mutex::new(restore(shelf, key)?));
        *kept = Some((key.clone(), training.clone()));
        Ok(training)
    }
}

/// The contents of a lock. A panic elsewhere does not make an agent unusable: nothing here changes it.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error for the page: errors name files by their paths, the page knows runs by their ids.
pub fn shown(error: &dyn std::fmt::Display, path: &Path, id: &str) -> String {
    error.to_string().replace(&path.display().to_string(), id)
}

/// Reads the settings of a run whose problem may be loaded: a built-in one, a game, or the copy of a file in the run.
pub fn config(shelf: &Shelf, id: &str) -> Result<Config, String> {
    let dir = shelf.run_dir(id)?;
    dir.refuse_links().map_err(|error| shown(&error, dir.path(), id))?;
    // Opened without following links: a link may have taken the place of the file since.
    let mut text = String::new();
    let file = shelf.open_in_run(id, "config.toml");
    let read = file.and_then(|file| file.take(LARGEST_CONFIG).read_to_string(&mut text));
    read.map_err(|error| format!("reading {id}/config.toml: {error}"))?;
    let layers = Layers::written(&text, &format!("{id}/config.toml")).map_err(|error| error.to_string())?;
    let config = layers.finish(&format!("{id}/config.toml")).map_err(|error| error.to_string())?.in_run(&dir);
    // A configuration may name any file of the machine. Only the copy in the run is read.
    let built_in = problems::names().chain(bqrl_games::list::names()).any(|name| name == config.problem.name);
    let size = || Some(shelf.open_in_run(id, TABLE).ok()?.metadata().ok()?.len());
    if !built_in && size().is_none_or(|size| size > LARGEST_MODEL) {
        return Err(format!("{id} has no table of its problem that could be planned"));
    }
    Ok(config)
}

/// The problem of a run, if it is no game.
pub fn problem(shelf: &Shelf, id: &str, config: &ProblemConfig) -> Result<Problem, String> {
    if config.copy.is_none() {
        return config.load().map_err(|error| shown(&error, &shelf.run_path(id), id));
    }
    // Opened without following links, as the settings are.
    let file = shelf.open_in_run(id, TABLE).map_err(CsvError::Io);
    let problem = file.and_then(|file| config.read_from(file.take(LARGEST_MODEL)));
    problem.map_err(|error| format!("{id}/{TABLE}: {error}"))
}

fn restore(shelf: &Shelf, key: &Key) -> Result<Training, String> {
    let Key { run: id, seed, .. } = key;
    let config = config(shelf, id)?;
    let path = &shelf.run_path(id);
    // Every file of it, too, is opened without following links.
    let dir = RunDir::open_below(shelf.root(), path).map_err(|error| shown(&error, path, id))?;
    if !config.run.seeds.contains(seed) {
        return Err(format!("{id} has no seed {seed}"));
    }
    let size = directory_size(&dir.seed(*seed).checkpoints());
    if size > LARGEST_CHECKPOINT {
        return Err(format!(
            "the checkpoints of {id} have {} MB, the page restores at most {} MB; `bqrl eval` restores more",
            size >> 20,
            LARGEST_CHECKPOINT >> 20
        ));
    }
    let weights = weights(&config);
    if weights > MOST_WEIGHTS {
        return Err(format!(
            "{id} has networks of about {weights} weights, the page restores at most {MOST_WEIGHTS}"
        ));
    }
    let game = config.problem.game().map_err(|error| error.to_string())?;
    let task: Arc<dyn Task> = if let Some(game) = game {
        Arc::new(Simulator::new(game.actions(), move || game.env()))
    } else {
        let problem = problem(shelf, id, &config.problem)?;
        Arc::new(Table::new(problem).map_err(|error| error.to_string())?)
    };
    let levels = config.levels().map_err(|error| shown(&error, path, id))?;
    let hooks = Hooks { stop: &AtomicBool::new(false), watch: &|_| {}, warn: &|_| {}, clock: &|| 0.0 };
    let references = Arc::new(References::none(levels));
    let once = || restore_seed(&config, task.clone(), references.clone(), *seed, &dir.seed(*seed), &hooks);
    let restored = (1..TRIES).fold(once(), |restored, _| restored.or_else(|_| once()));
    restored.map_err(|error| shown(&error, path, id))
}

/// About how many weights the networks of a configuration have, whatever the algorithm.
fn weights(config: &Config) -> u64 {
    let agent = serde_json::to_value(&config.agent).unwrap_or_default();
    let number = |key: &str| agent[key].as_u64().unwrap_or(1);
    let hidden = agent["hidden"].as_array().cloned().unwrap_or_default();
    let widths: Vec<u64> = hidden.iter().filter_map(serde_json::Value::as_u64).collect();
    let between = widths.windows(2).map(|pair| pair[0].saturating_mul(pair[1]));
    let inner = between.fold(0, u64::saturating_add);
    let outputs = widths.last().copied().unwrap_or(0).saturating_mul(number("n_quantiles"));
    let convolutions = agent["convolutions"].as_array().cloned().unwrap_or_default();
    let mut seen: u64 = 0;
    let mut channels: u64 = 1;
    for convolution in &convolutions {
        let size = |i: usize| convolution[i].as_u64().unwrap_or(1);
        let window = size(1).saturating_mul(size(1)).saturating_mul(channels);
        seen = seen.saturating_add(window.saturating_mul(size(0)));
        channels = size(0);
    }
    if !convolutions.is_empty() {
        // A game has a hundred cells; every channel may see each of them.
        let flat = channels.saturating_mul(100);
        seen = seen.saturating_add(flat.saturating_mul(widths.first().copied().unwrap_or(1)));
    }
    inner.saturating_add(outputs).saturating_add(seen).saturating_mul(number("n_critics"))
}

/// Bytes of the files in a directory and in the directories of it.
fn directory_size(path: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(path) else { return 0 };
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => directory_size(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).fold(0, u64::saturating_add)
}
