//! The configuration of a run: a checked TOML file that contains every key.
//!
//! A configuration is a preset with layers on top: a file, the command line's flags, `section.key=value` overrides. Layers
//! are merged as tables and read once, so an unknown key is refused in every layer, and the configuration of a run can be
//! stored completely.

mod algos;
mod layers;
mod problem;

use bqrl_agents::{deep_bqrl, ppo, qppo, qr_dqn, target_tracking, trpo, ucb_bqrl, var_q};
use bqrl_math::buffer::{Buffer, BufferError, check_tau};
use bqrl_math::schedule::{Clock, Span};
use bqrl_mdp::csv::CsvError;
use bqrl_mdp::model::ModelError;
use bqrl_mdp::problems::ProblemError;
use bqrl_runs::run_dir::RunDir;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::Table;

pub use self::algos::{ALGOS, Algo, Levels};
pub use self::layers::{Layers, paper_episodes, read_settings};
pub use self::problem::{ProblemConfig, StartState};

/// Everything that determines a run, except its seed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The problem.
    pub problem: ProblemConfig,
    /// The length and the levels.
    pub run: RunConfig,
    /// The algorithm and its settings.
    pub agent: AgentConfig,
}

/// The protocol of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Levels.
    pub tau: Vec<f64>,
    /// Buffer widths: none (β = τ), one for all levels, or one per level.
    pub beta: Vec<f64>,
    /// Training episodes of a seed: the run's length, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub episodes: Option<usize>,
    /// … or its length in steps, over all lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Copies of the environment that are played side by side.
    #[serde(default = "one")]
    pub lanes: usize,
    /// Time between evaluations of the greedy policy.
    pub evaluate_every: Span,
    /// Episodes to play in an evaluation, where an exact one is not possible.
    pub evaluation_episodes: usize,
    /// Time between checkpoints.
    pub checkpoint_every: Span,
    /// One run each.
    pub seeds: Vec<u64>,
}

fn one() -> usize {
    1
}

/// The most lanes of a run.
const MAX_LANES: usize = 4096;

/// The most episodes to play in an evaluation: their returns are kept in memory.
pub const MAX_EVALUATION_EPISODES: usize = 10_000_000;

/// The most levels of a run.
const MAX_LEVELS: usize = 1000;

/// The most seeds of a run.
const MAX_SEEDS: usize = 10_000;

/// Sanity limit of a run's episodes and steps; a larger value is probably a typo.
const MAX_LENGTH: u64 = 1 << 48;

/// How long a seed is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// Until so many episodes have ended.
    Episodes(usize),
    /// Until so many steps were taken, over all lanes.
    Steps(u64),
}

impl Length {
    /// Whether training is over.
    pub fn is_reached(self, clock: &Clock) -> bool {
        match self {
            Length::Episodes(n) => clock.episodes >= n as u64,
            Length::Steps(n) => clock.steps >= n,
        }
    }

    /// The count: of episodes, or of steps.
    pub fn amount(self) -> u64 {
        match self {
            Length::Episodes(n) => n as u64,
            Length::Steps(n) => n,
        }
    }

    /// The clock's count in the same unit.
    pub fn done(self, clock: &Clock) -> u64 {
        match self {
            Length::Episodes(_) => clock.episodes,
            Length::Steps(_) => clock.steps,
        }
    }

    /// `episodes` or `steps`.
    pub fn unit(self) -> &'static str {
        match self {
            Length::Episodes(_) => "episodes",
            Length::Steps(_) => "steps",
        }
    }
}

impl RunConfig {
    /// How long a seed is trained.
    pub fn length(&self) -> Length {
        match (self.episodes, self.steps) {
            (Some(n), _) => Length::Episodes(n),
            (None, Some(n)) => Length::Steps(n),
            (None, None) => unreachable!("checked with the configuration"),
        }
    }

    /// Whether rows need a `step` column: episodes alone do not tell how far the run is.
    pub fn counts_steps(&self) -> bool {
        self.steps.is_some() || self.lanes > 1
    }
}

/// The agents, by name.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum AgentConfig {
    /// Algorithm 1.
    DeepBqrl(deep_bqrl::Config),
    /// Mean-greedy quantile regression.
    QrDqn(qr_dqn::Config),
    /// VaR-Q-learning.
    VarQ(var_q::Config),
    /// Quantile-based PPO.
    Qppo(qppo::Config),
    /// Clipped policy gradient.
    Ppo(ppo::Config),
    /// Policy gradient in a trust region.
    Trpo(trpo::Config),
    /// Optimistic planning on counts.
    UcbBqrl(ucb_bqrl::Config),
    /// Critics for every target at once.
    TargetTracking(target_tracking::Config),
}

/// An error in a configuration.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum ConfigError {
    #[error("unknown algorithm {algo:?}, the algorithms are {}", ALGOS.map(|algo| algo.name).join(", "))]
    UnknownAlgo { algo: String },
    #[error("{origin}: {message}")]
    Toml { origin: String, message: String },
    #[error("{0}")]
    Disk(String),
    #[error("want SECTION.KEY=VALUE, got {text:?}")]
    Override { text: String },
    #[error("{key} must {want}, got {got}")]
    Value { key: &'static str, want: String, got: String },
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error("reading {path}: {error}")]
    File { path: String, error: CsvError },
    #[error("{name} is an environment of Python, which only the Python package can play")]
    Python { name: String },
    #[error("{name} is a game, which has no table: it can be learned and played, but not planned")]
    Game { name: String },
    #[error("{name} is a game: there are no probabilities to normalise")]
    GameNormalise { name: String },
    #[error("an MDP file needs a horizon and a start state, reading {path}")]
    FileNeeds { path: String },
    #[error("an MDP file has no parameters, got {key}")]
    FileParameter { key: String },
    #[error(
        "{name} has a discount of its own, {discount}; change the parameter that it follows from instead"
    )]
    OwnDiscount { name: String, discount: f64 },
    #[error(transparent)]
    Model(#[from] ModelError),
}

impl Config {
    /// Refuses values that no run can have.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let RunConfig { tau, beta, episodes, steps, lanes, seeds, .. } = &self.run;
        let refuse = |key, want: &str, got: &dyn ToString| {
            Err(ConfigError::Value { key, want: want.to_owned(), got: got.to_string() })
        };
        if tau.is_empty() {
            return refuse("run.tau", "name at least one level", &"none");
        }
        if beta.len() > 1 && beta.len() != tau.len() {
            return refuse(
                "run.beta",
                "be empty, one value, or one per level",
                &format!("{} values", beta.len()),
            );
        }
        match (episodes, steps) {
            (None, None) => return refuse("run.episodes", "be given, or run.steps instead", &"neither"),
            (Some(_), Some(_)) => return refuse("run.steps", "not be given beside run.episodes", &"both"),
            _ => {}
        }
        let bounded = |key, value: u64, most: u64| {
            let fits = (1..=most).contains(&value);
            if fits { Ok(()) } else { refuse(key, &format!("lie in 1..={most}"), &value) }
        };
        bounded("run.episodes", episodes.unwrap_or(1) as u64, MAX_LENGTH)?;
        bounded("run.steps", steps.unwrap_or(1), MAX_LENGTH)?;
        bounded("run.lanes", *lanes as u64, MAX_LANES as u64)?;
        bounded(
            "run.evaluation_episodes",
            self.run.evaluation_episodes as u64,
            MAX_EVALUATION_EPISODES as u64,
        )?;
        if tau.len() > MAX_LEVELS {
            return refuse("run.tau", &format!("name at most {MAX_LEVELS} levels"), &tau.len());
        }
        if seeds.len() > MAX_SEEDS {
            return refuse("run.seeds", &format!("name at most {MAX_SEEDS} seeds"), &seeds.len());
        }
        for (key, every) in [
            ("run.evaluate_every", self.run.evaluate_every),
            ("run.checkpoint_every", self.run.checkpoint_every),
        ] {
            if !(every.amount >= 1.0 && every.amount.fract() == 0.0) {
                return refuse(key, "be a whole number of episodes or steps, at least 1", &every);
            }
        }
        let mut distinct = seeds.clone();
        distinct.sort_unstable();
        distinct.dedup();
        if seeds.is_empty() || distinct.len() != seeds.len() {
            return refuse("run.seeds", "name at least one seed, none twice", &format!("{seeds:?}"));
        }
        self.levels()?;
        match self.algo().levels {
            Levels::One if tau.len() != 1 => {
                let want = "be one level for an algorithm that is trained for one";
                refuse("run.tau", want, &format!("{tau:?} for {}", self.algo().name))
            }
            _ => Ok(()),
        }
    }

    /// (τ, β) of every level.
    pub fn levels(&self) -> Result<Vec<Buffer>, ConfigError> {
        let RunConfig { tau, beta, .. } = &self.run;
        let level = |(index, &tau): (usize, &f64)| {
            let tau = check_tau(tau)?;
            let beta = beta.get(index).or(beta.first()).copied().unwrap_or(tau);
            Ok(Buffer::new(tau, beta)?)
        };
        tau.iter().enumerate().map(level).collect()
    }

    /// The algorithm.
    pub fn algo(&self) -> &'static Algo {
        let name = match self.agent {
            AgentConfig::DeepBqrl(_) => "deep-bqrl",
            AgentConfig::QrDqn(_) => "qr-dqn",
            AgentConfig::VarQ(_) => "var-q",
            AgentConfig::Qppo(_) => "qppo",
            AgentConfig::Ppo(_) => "ppo",
            AgentConfig::Trpo(_) => "trpo",
            AgentConfig::UcbBqrl(_) => "ucb-bqrl",
            AgentConfig::TargetTracking(_) => "target-tracking",
        };
        Algo::named(name).expect("every kind is in the table")
    }

    /// The configuration of a run, as its directory has it.
    pub fn of_run(dir: &RunDir) -> Result<Self, ConfigError> {
        Layers::of_run(dir)?.finish(&dir.config().display().to_string()).map(|config| config.in_run(dir))
    }

    /// The same, with the copy of the MDP file that the run has.
    #[must_use]
    pub fn in_run(mut self, dir: &RunDir) -> Self {
        self.problem.copy = Some(dir.table()).filter(|copy| copy.is_file());
        self
    }

    /// The file that a run directory holds.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("tables of plain values")
    }

    /// The keys in which two configurations differ, `section.key`.
    pub fn differences(&self, other: &Config) -> Vec<String> {
        let tables = [self, other].map(|config| Table::try_from(config).expect("tables of plain values"));
        let mut keys = Vec::new();
        for section in ["problem", "run", "agent"] {
            let [a, b] =
                tables.each_ref().map(|table| table[section].as_table().cloned().unwrap_or_default());
            let names: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.extend(
                names
                    .into_iter()
                    .filter(|key| a.get(*key) != b.get(*key))
                    .map(|key| format!("{section}.{key}")),
            );
        }
        keys
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layers() -> Layers {
        let mut layers = Layers::preset("deep-bqrl").unwrap();
        layers.set("problem", "name", "asset-selling");
        layers
    }

    fn refused(layers: Layers) -> String {
        layers.finish("test").unwrap_err().to_string()
    }

    #[test]
    fn the_preset_is_complete_and_survives_being_written_down() {
        let config = layers().finish("test").unwrap();
        let again = Layers::written(&config.to_toml(), "written").unwrap();
        assert_eq!(again.finish("written").unwrap(), config);
    }

    #[test]
    fn overrides_are_toml_and_unknown_or_missing_keys_are_named() {
        let mut set = layers();
        set.override_with("agent.hidden=[32, 32]").unwrap();
        set.override_with("agent.score=mean").unwrap();
        let config = set.finish("test").unwrap();
        let AgentConfig::DeepBqrl(agent) = &config.agent else { panic!("the preset's kind") };
        assert_eq!(agent.critics.hidden, [32, 32]);
        assert_eq!(config.differences(&layers().finish("test").unwrap()), ["agent.hidden", "agent.score"]);

        let mut unknown = layers();
        unknown.override_with("agent.kapa=1").unwrap();
        assert!(refused(unknown).contains("kapa"));
        let missing = Layers::written("[problem]\nname = \"asset-selling\"\n", "short").unwrap();
        assert!(refused(missing).contains("run"));
        assert!(layers().override_with("kappa").is_err());
    }

    #[test]
    fn a_length_in_steps_replaces_one_in_episodes_and_the_other_way_round() {
        let mut set = layers();
        set.set("run", "steps", 500);
        let config = set.clone().finish("test").unwrap();
        assert_eq!(config.run.length(), Length::Steps(500));
        assert!(config.run.counts_steps());
        set.override_with("run.episodes=7").unwrap();
        assert_eq!(set.clone().finish("test").unwrap().run.length(), Length::Episodes(7));
        set.file("[run]\nepisodes = 5\nsteps = 5\n", "both").unwrap();
        assert!(refused(set).contains("run.steps must not be given beside run.episodes"));
    }

    #[test]
    fn wrong_values_are_refused_with_their_key() {
        for (text, said) in [
            ("run.tau=[]", "run.tau"),
            ("run.tau=[0.1, 0.5]", "one level"),
            ("run.tau=[1.5]", "tau must lie in (0, 1)"),
            ("run.beta=[0.2]", "beta must lie in (0, tau]"),
            ("run.episodes=0", "run.episodes must lie in 1..="),
            ("run.lanes=0", "run.lanes must lie in 1..=4096, got 0"),
            ("run.steps=0", "run.steps must lie in 1..="),
            (
                "run.evaluate_every=\"0 steps\"",
                "run.evaluate_every must be a whole number of episodes or steps",
            ),
            ("run.checkpoint_every=2.5", "got 2.5 episodes"),
            ("run.evaluate_every=\"ten\"", "500 episodes"),
            ("run.seeds=[1, 1]", "run.seeds"),
        ] {
            let mut layers = layers();
            layers.override_with(text).unwrap();
            let message = refused(layers);
            assert!(message.contains(said), "{text}: {message}");
        }
        assert!(Layers::preset("deep").unwrap_err().to_string().contains("deep-bqrl"));
    }
}
