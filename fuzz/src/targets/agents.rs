//! Forged checkpoints: every part of a saved agent and the state of its training, with whatever checksums they need.
//!
//! What is accepted must be as good as a checkpoint of our own: training goes on from it, is evaluated, saved and
//! restored again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bqrl_agents::RestoreError;
use bqrl_agents::play::SavedPlay;
use bqrl_lab::batch;
use bqrl_lab::config::{Config, Layers};
use bqrl_lab::run::make_agent;
use bqrl_lab::task::{References, Task};
use bqrl_lab::train::{Progress, Training};
use serde::{Deserialize, Serialize};

use crate::Input;

/// Ticks that training goes on for.
const TICKS: usize = 24;

/// Problems that checkpoints are forged on, small.
const PROBLEMS: [(&str, &[(&str, &str)]); 2] = [
    ("asset-selling", &[("offers", "4"), ("horizon", "4"), ("start", "1")]),
    // Rewards that the agent does not know beforehand.
    ("gamble-chain", &[("horizon", "3")]),
];

/// Settings that make an agent small and let it learn after a few steps.
const SMALL: [(&str, &[&str]); 8] = [
    ("deep-bqrl", &["n_quantiles=3", "n_critics=2", "hidden=[4]", "batch_size=4", "replay_capacity=16"]),
    ("qr-dqn", &["n_quantiles=3", "hidden=[4]", "batch_size=4", "replay_capacity=16"]),
    (
        "target-tracking",
        &[
            "n_critics=2",
            "hidden=[4]",
            "n_quantiles=6",
            "batch_size=4",
            "replay_capacity=16",
            "updates_per_step=2.0",
        ],
    ),
    ("var-q", &["n_levels=4"]),
    ("qppo", &["batch_episodes=4", "stage_bins=0", "collected_bins=3"]),
    ("ppo", &["episodes_per_update=3", "epochs=2", "minibatch_size=4", "stage_widths=[1, 2]"]),
    ("trpo", &["episodes_per_update=3", "cg_iterations=4", "stage_widths=[1, 2]"]),
    ("ucb-bqrl", &["max_returns=64", "replan_every=4"]),
];

/// `state.json`, without the positions of the records.
#[derive(Deserialize, Serialize)]
struct State {
    /// The measures.
    pub progress: Progress,
    /// The lanes.
    pub play: SavedPlay,
}

/// An algorithm on a problem.
#[derive(Clone)]
pub(crate) struct Setting {
    /// Every setting.
    pub config: Config,
    task: Arc<dyn Task>,
    references: Arc<References>,
}

impl Setting {
    /// The names of all of them.
    pub fn names() -> impl Iterator<Item = String> {
        PROBLEMS
            .iter()
            .flat_map(|(problem, _)| SMALL.iter().map(move |(algo, _)| format!("{algo} {problem}")))
    }

    /// The one with a name; each is made once, because its problem has to be planned.
    pub fn named(name: &str) -> Option<Self> {
        static KNOWN: OnceLock<Mutex<BTreeMap<String, Setting>>> = OnceLock::new();
        let mut known = KNOWN.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(setting) = known.get(name) {
            return Some(setting.clone());
        }
        let (algo, problem) = name.split_once(' ')?;
        let (_, small) = SMALL.iter().find(|(name, _)| *name == algo)?;
        let (_, parameters) = PROBLEMS.iter().find(|(name, _)| *name == problem)?;
        let mut layers = Layers::of(algo, problem).expect("a preset");
        parameters.iter().for_each(|(key, value)| layers.set_parameter(key, value));
        for setting in *small {
            layers.override_with(&format!("agent.{setting}")).expect("a setting");
        }
        layers.override_with("run.lanes=2").expect("a setting");
        let config = layers.finish("fuzz").expect("small settings are good ones");
        let task = batch::load(&config).expect("a small problem");
        let references = Arc::new(References::new(&*task, config.levels().expect("levels")));
        let setting = Self { config, task, references };
        known.insert(name.to_owned(), setting.clone());
        Some(setting)
    }

    /// An untrained agent in its lanes.
    pub fn training(&self) -> Training {
        let agent = make_agent(&self.config, self.task.spec(), 1).expect("small settings are good ones");
        Training::new(self.task.clone(), self.references.clone(), agent, &self.config.run, 1)
            .expect("lanes of a table")
    }
}

/// The parts of a training as an input.
pub(crate) fn saved(name: &str, training: &Training) -> Input {
    let state = State { progress: training.progress.clone(), play: training.play.save() };
    let mut files = vec![
        ("setting".to_owned(), name.as_bytes().to_vec()),
        ("state.json".to_owned(), serde_json::to_vec(&state).expect("plain numbers serialise")),
    ];
    for part in training.agent.save(&|_| false) {
        let bytes = part.bytes().expect("nothing is stored already").to_vec();
        files.push((part.name, bytes));
    }
    Input { files }
}

/// A training in the state of an input, if it is accepted.
fn restored(setting: &Setting, input: &Input) -> Result<Training, RestoreError> {
    let mut training = setting.training();
    let state = serde_json::from_slice(input.get("state.json").unwrap_or_default());
    let State { progress, play } = state.map_err(|error| RestoreError(error.to_string()))?;
    training.agent.restore(&|name| input.get(name).map(<[u8]>::to_vec))?;
    training.restore(progress, play)?;
    training.check_levels()?;
    Ok(training)
}

/// Restores a forged checkpoint, without going on from it.
pub fn restore(input: &Input) -> Result<(), RestoreError> {
    let name = input.text("setting").unwrap_or_default();
    let setting = Setting::named(name).ok_or_else(|| RestoreError(format!("no setting {name:?}")))?;
    restored(&setting, input).map(drop)
}

pub(super) fn run(input: &Input) -> bool {
    let name = input.text("setting").unwrap_or_default();
    let Some(setting) = Setting::named(name) else { return false };
    let Ok(mut training) = restored(&setting, input) else { return false };
    for _ in 0..TICKS {
        // A weight at the end of the range may become infinite. That is an error, and ends a run.
        if training.tick().is_err() {
            return true;
        }
    }
    let _ = training.progress.moving_average_length();
    training.evaluate().expect("tables are evaluated exactly");
    let _ = training.agent.weights();
    match restored(&setting, &saved(name, &training)) {
        // A forged count at its very limit has passed it now.
        Err(RestoreError(message)) if !message.ends_with("2^53") => {
            panic!("a training that went on is refused: {message}")
        }
        _ => true,
    }
}
