//! What is run: a TOML file in which every key stands, checked.
//!
//! A configuration is a preset with layers on top: a file, the command line's flags, `section.key=value` overrides. Layers
//! are merged as tables and read once, so an unknown key is refused wherever it came from, and what was run can be
//! written down in full.

use std::collections::BTreeMap;
use std::path::Path;

use bqrl_agents::{deep_bqrl, ppo, qppo, qr_dqn, target_tracking, trpo, ucb_bqrl, var_q};
use bqrl_math::buffer::{Buffer, BufferError, check_tau};
use bqrl_mdp::csv::{self, CsvError};
use bqrl_mdp::model::{Model, ModelError, Problem};
use bqrl_mdp::problems::{self, ProblemError};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::{Table, Value};

/// Everything that determines a run but its seed.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// What is learned.
    pub problem: ProblemConfig,
    /// For how long, at which levels.
    pub run: RunConfig,
    /// By whom.
    pub agent: AgentConfig,
}

/// A built-in problem or an MDP file.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProblemConfig {
    /// Name, or path of a file.
    pub name: String,
    /// H; a file needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub horizon: Option<usize>,
    /// The start state; a file needs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// γ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discount: Option<f64>,
    /// Parameters of a built-in problem.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
}

/// The protocol of a run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// Levels.
    pub tau: Vec<f64>,
    /// Buffer widths: none (β = τ), one for all levels, or one per level.
    pub beta: Vec<f64>,
    /// Training episodes.
    pub episodes: usize,
    /// Episodes between evaluations of the greedy policy.
    pub evaluate_every: usize,
    /// Episodes to play in an evaluation, where an exact one is not possible.
    pub evaluation_episodes: usize,
    /// Episodes between checkpoints.
    pub checkpoint_every: usize,
    /// One run each.
    pub seeds: Vec<u64>,
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

/// Which levels a run of an algorithm may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Levels {
    /// Exactly one: the agent is trained for it.
    One,
    /// Any number: the agent does not know them while it learns.
    Any,
}

/// An algorithm as the protocol and the command line know it.
#[derive(Clone, Copy, Debug)]
pub struct Algo {
    /// `kind` in a configuration.
    pub name: &'static str,
    /// One line.
    pub about: &'static str,
    /// The levels of a run.
    pub levels: Levels,
    /// The one setting that `bqrl tune` varies, and between which values.
    pub dominant: (&'static str, f64, f64),
    /// The preset, as it stands in `crates/lab/presets/`.
    preset: &'static str,
}

/// The algorithms.
pub const ALGOS: [Algo; 8] = [
    Algo {
        name: "deep-bqrl",
        about: "the paper's Algorithm 1; one level",
        levels: Levels::One,
        dominant: ("agent.kappa", 0.01, 10.0),
        preset: include_str!("../presets/deep-bqrl.toml"),
    },
    Algo {
        name: "target-tracking",
        about: "the best quantile at every level, one run",
        levels: Levels::Any,
        dominant: ("agent.learning_rate_extra", 1e-4, 1e-2),
        preset: include_str!("../presets/target-tracking.toml"),
    },
    Algo {
        name: "ucb-bqrl",
        about: "optimistic planning on counts; one level",
        levels: Levels::One,
        dominant: ("agent.radius_scale", 0.001, 1.0),
        preset: include_str!("../presets/ucb-bqrl.toml"),
    },
    Algo {
        name: "ppo",
        about: "tabular, clipped; risk-neutral",
        levels: Levels::Any,
        dominant: ("agent.learning_rate", 0.01, 10.0),
        preset: include_str!("../presets/ppo.toml"),
    },
    Algo {
        name: "trpo",
        about: "tabular, trust region; risk-neutral",
        levels: Levels::Any,
        dominant: ("agent.max_kl", 0.0001, 1.0),
        preset: include_str!("../presets/trpo.toml"),
    },
    Algo {
        name: "qr-dqn",
        about: "quantile regression; risk-neutral",
        levels: Levels::Any,
        dominant: ("agent.learning_rate_extra", 1e-4, 1e-2),
        preset: include_str!("../presets/qr-dqn.toml"),
    },
    Algo {
        name: "var-q",
        about: "tabular VaR-Q-learning; one level",
        levels: Levels::One,
        dominant: ("agent.step_0", 0.01, 10.0),
        preset: include_str!("../presets/var-q.toml"),
    },
    Algo {
        name: "qppo",
        about: "tabular quantile policy gradient; one level",
        levels: Levels::One,
        dominant: ("agent.learning_rate", 0.01, 10.0),
        preset: include_str!("../presets/qppo.toml"),
    },
];

impl Algo {
    /// The algorithm of this name.
    pub fn named(name: &str) -> Result<&'static Self, ConfigError> {
        let found = ALGOS.iter().find(|algo| algo.name == name);
        found.ok_or_else(|| ConfigError::UnknownAlgo { algo: name.to_owned() })
    }

    /// The text of the preset.
    pub fn preset(&self) -> &'static str {
        self.preset
    }
}

/// What is wrong with a configuration.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum ConfigError {
    #[error("unknown algorithm {algo:?}, there are {}", ALGOS.map(|algo| algo.name).join(", "))]
    UnknownAlgo { algo: String },
    #[error("{origin}: {message}")]
    Toml { origin: String, message: String },
    #[error("want SECTION.KEY=VALUE, got {text:?}")]
    Override { text: String },
    #[error("{key} must {want}, got {got}")]
    Value { key: &'static str, want: &'static str, got: String },
    #[error(transparent)]
    Buffer(#[from] BufferError),
    #[error(transparent)]
    Problem(#[from] ProblemError),
    #[error("reading {path}: {error}")]
    File { path: String, error: CsvError },
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

/// Layers of a configuration, the later ones on top.
#[derive(Clone, Debug)]
pub struct Layers(Table);

impl Layers {
    /// The preset of an algorithm.
    pub fn preset(algo: &str) -> Result<Self, ConfigError> {
        let algo = Algo::named(algo)?;
        Ok(Self(parse(algo.preset, algo.name)?))
    }

    /// The preset of an algorithm, for a problem and as long as the paper trains on it (§4.1, §4.2).
    pub fn of(algo: &str, problem: &str) -> Result<Self, ConfigError> {
        let mut layers = Self::preset(algo)?;
        layers.set("problem", "name", problem);
        if problem == "frozen-lake" {
            layers.set("run", "episodes", 5000);
        }
        Ok(layers)
    }

    /// The keys and values of a section.
    pub fn section(&self, name: &str) -> Option<&Table> {
        self.0.get(name)?.as_table()
    }

    /// A configuration that was written down in full.
    pub fn written(text: &str, origin: &str) -> Result<Self, ConfigError> {
        Ok(Self(parse(text, origin)?))
    }

    /// A file on top.
    pub fn file(&mut self, text: &str, origin: &str) -> Result<(), ConfigError> {
        self.add(parse(text, origin)?);
        Ok(())
    }

    /// Sections on top.
    pub fn add(&mut self, layer: Table) {
        merge(&mut self.0, layer);
    }

    /// One key on top.
    pub fn set(&mut self, section: &str, key: &str, value: impl Into<Value>) {
        let layer = Table::from_iter([(
            section.to_owned(),
            Table::from_iter([(key.to_owned(), value.into())]).into(),
        )]);
        merge(&mut self.0, layer);
    }

    /// The problem on top.
    pub fn set_problem(&mut self, problem: &ProblemConfig) {
        let table = Table::try_from(problem).expect("a table of plain values");
        merge(&mut self.0, Table::from_iter([("problem".to_owned(), table.into())]));
    }

    /// What `section.key` is.
    pub fn value(&self, path: &str) -> Option<&Value> {
        let (section, key) = path.split_once('.')?;
        self.0.get(section)?.get(key)
    }

    /// A parameter of the problem on top.
    pub fn set_parameter(&mut self, name: &str, value: &str) {
        self.set("problem", "parameters", Table::from_iter([(name.to_owned(), value.into())]));
    }

    /// `section.key=value` on top; the value is TOML, or else text.
    pub fn override_with(&mut self, text: &str) -> Result<(), ConfigError> {
        let wrong = || ConfigError::Override { text: text.to_owned() };
        let (path, value) = text.split_once('=').ok_or_else(wrong)?;
        let (section, key) = path.trim().split_once('.').ok_or_else(wrong)?;
        let parsed: Result<Table, _> = format!("value = {value}").parse();
        let value = parsed.ok().and_then(|mut table| table.remove("value"));
        self.set(
            section,
            key,
            value.unwrap_or_else(|| Value::String(text.split_once('=').expect("found above").1.into())),
        );
        Ok(())
    }

    /// Reads and checks the whole.
    pub fn finish(self, origin: &str) -> Result<Config, ConfigError> {
        let config: Config = self.0.try_into().map_err(|error: toml::de::Error| ConfigError::Toml {
            origin: origin.to_owned(),
            message: error.message().to_owned(),
        })?;
        config.check()?;
        Ok(config)
    }
}

fn parse(text: &str, origin: &str) -> Result<Table, ConfigError> {
    text.parse().map_err(|error: toml::de::Error| ConfigError::Toml {
        origin: origin.to_owned(),
        message: error.message().to_owned(),
    })
}

fn merge(below: &mut Table, above: Table) {
    for (key, value) in above {
        match (below.get_mut(&key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            (_, value) => {
                below.insert(key, value);
            }
        }
    }
}

impl Config {
    fn check(&self) -> Result<(), ConfigError> {
        let RunConfig { tau, beta, episodes, evaluate_every, evaluation_episodes, checkpoint_every, seeds } =
            &self.run;
        let refuse =
            |key, want, got: &dyn ToString| Err(ConfigError::Value { key, want, got: got.to_string() });
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
        for (key, value) in [
            ("run.episodes", episodes),
            ("run.evaluate_every", evaluate_every),
            ("run.evaluation_episodes", evaluation_episodes),
            ("run.checkpoint_every", checkpoint_every),
        ] {
            if *value == 0 {
                return refuse(key, "be at least 1", value);
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

impl ProblemConfig {
    /// Builds or reads the problem.
    pub fn load(&self) -> Result<Problem, ConfigError> {
        let path = Path::new(&self.name);
        let built_in = problems::names().any(|name| name == self.name);
        if !built_in && (path.exists() || self.name.contains(['/', '\\', '.'])) {
            self.read(path)
        } else {
            self.build()
        }
    }

    fn build(&self) -> Result<Problem, ConfigError> {
        let mut parameters: Vec<(String, String)> = self.parameters.clone().into_iter().collect();
        parameters.extend(self.horizon.map(|h| ("horizon".to_owned(), h.to_string())));
        parameters.extend(self.start.map(|s| ("start".to_owned(), s.to_string())));
        let mut problem = problems::build(&self.name, &parameters)?;
        if let Some(discount) = self.discount {
            let model = &problem.model;
            if model.discount() != 1.0 {
                return Err(ConfigError::OwnDiscount { name: problem.name, discount: model.discount() });
            }
            problem.model =
                Model::new(model.kernels().to_vec(), model.horizon(), discount, model.start().to_vec())?;
        }
        Ok(problem)
    }

    fn read(&self, path: &Path) -> Result<Problem, ConfigError> {
        let named = path.display().to_string();
        if let Some((key, value)) = self.parameters.iter().next() {
            return Err(ConfigError::FileParameter { key: format!("{key}={value}") });
        }
        let (Some(horizon), Some(start)) = (self.horizon, self.start) else {
            return Err(ConfigError::FileNeeds { path: named });
        };
        csv::read_path(path, horizon, start, self.discount.unwrap_or(1.0))
            .map_err(|error| ConfigError::File { path: named, error })
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
        let mut again = Layers(Table::new());
        again.file(&config.to_toml(), "written").unwrap();
        assert_eq!(again.finish("written").unwrap(), config);
    }

    #[test]
    fn overrides_are_toml_and_unknown_or_missing_keys_are_named() {
        let mut set = layers();
        set.override_with("agent.hidden=[32, 32]").unwrap();
        set.override_with("agent.state_encoding=one-hot").unwrap();
        let config = set.finish("test").unwrap();
        let AgentConfig::DeepBqrl(agent) = &config.agent else { panic!("the preset's kind") };
        assert_eq!(agent.hidden, [32, 32]);
        assert_eq!(
            config.differences(&layers().finish("test").unwrap()),
            ["agent.hidden", "agent.state_encoding"]
        );

        let mut unknown = layers();
        unknown.override_with("agent.kapa=1").unwrap();
        assert!(refused(unknown).contains("kapa"));
        let mut missing = Layers(Table::new());
        missing.file("[problem]\nname = \"asset-selling\"\n", "short").unwrap();
        assert!(refused(missing).contains("run"));
        assert!(layers().override_with("kappa").is_err());
    }

    #[test]
    fn wrong_values_are_refused_with_their_key() {
        for (text, said) in [
            ("run.tau=[]", "run.tau"),
            ("run.tau=[0.1, 0.5]", "one level"),
            ("run.tau=[1.5]", "tau must lie in (0, 1)"),
            ("run.beta=[0.2]", "beta must lie in (0, tau]"),
            ("run.episodes=0", "run.episodes"),
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
