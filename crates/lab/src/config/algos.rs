//! The algorithms as the protocol and the command line know them.

use super::ConfigError;

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
        preset: include_str!("../../presets/deep-bqrl.toml"),
    },
    Algo {
        name: "target-tracking",
        about: "the best quantile at every level, one run",
        levels: Levels::Any,
        dominant: ("agent.learning_rate", 1e-4, 1e-2),
        preset: include_str!("../../presets/target-tracking.toml"),
    },
    Algo {
        name: "ucb-bqrl",
        about: "optimistic planning on counts; one level",
        levels: Levels::One,
        dominant: ("agent.radius_scale", 0.001, 1.0),
        preset: include_str!("../../presets/ucb-bqrl.toml"),
    },
    Algo {
        name: "ppo",
        about: "tabular, clipped; risk-neutral",
        levels: Levels::Any,
        dominant: ("agent.learning_rate", 0.01, 10.0),
        preset: include_str!("../../presets/ppo.toml"),
    },
    Algo {
        name: "trpo",
        about: "tabular, trust region; risk-neutral",
        levels: Levels::Any,
        dominant: ("agent.max_kl", 0.0001, 1.0),
        preset: include_str!("../../presets/trpo.toml"),
    },
    Algo {
        name: "qr-dqn",
        about: "quantile regression; risk-neutral",
        levels: Levels::Any,
        dominant: ("agent.learning_rate", 1e-4, 1e-2),
        preset: include_str!("../../presets/qr-dqn.toml"),
    },
    Algo {
        name: "var-q",
        about: "tabular VaR-Q-learning; one level",
        levels: Levels::One,
        dominant: ("agent.step_0", 0.01, 10.0),
        preset: include_str!("../../presets/var-q.toml"),
    },
    Algo {
        name: "qppo",
        about: "tabular quantile policy gradient; one level",
        levels: Levels::One,
        dominant: ("agent.learning_rate", 0.01, 10.0),
        preset: include_str!("../../presets/qppo.toml"),
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

    /// The text of the preset without its sections for other observations, which are the last ones: a whole configuration.
    pub fn preset_for_tables(&self) -> &'static str {
        self.preset.split_once("\n[vector]").map_or(self.preset, |(tables, _)| tables)
    }
}
