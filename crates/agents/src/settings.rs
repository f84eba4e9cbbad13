//! Checks the settings of agents: an error is one line with the key, the value and the allowed range.

use std::fmt;
use std::ops::RangeInclusive;

use bqrl_math::schedule::Span;
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use bqrl_nn::ShapeError;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::experience::replay::{ReplayTooLarge, machine};

/// Why an agent cannot be made.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum AgentError {
    /// A setting is out of range.
    #[error("agent.{key} must {want}, got {got}")]
    Setting {
        /// Which.
        key: &'static str,
        /// The allowed range.
        want: String,
        /// The given value.
        got: String,
    },
    /// The networks would have impossible sizes.
    #[error("the networks cannot be made: {0}")]
    Shape(#[from] ShapeError),
    /// The replay would not fit in memory.
    #[error(transparent)]
    Replay(#[from] ReplayTooLarge),
    /// Tables or minibatches would not fit in memory.
    #[error("{what} need {:.1} GB, this machine has {:.1} GB", *bytes as f64 / 1e9, *available as f64 / 1e9)]
    Memory {
        /// Which.
        what: String,
        /// Their memory in bytes.
        bytes: u64,
        /// Bytes that this process may use.
        available: u64,
    },
    /// Normalisation is turned off where there is none.
    #[error(
        "normalize_observations can be false only where observations are vectors; those of {problem} are not"
    )]
    NothingToNormalize {
        /// The problem.
        problem: String,
    },
    /// A table has no row for such observations.
    #[error(
        "{algo} keeps tables and needs a problem with finitely many states and a horizon; {problem} has {observations}"
    )]
    NotTabular {
        /// The algorithm.
        algo: &'static str,
        /// The problem.
        problem: String,
        /// The kind of its observations.
        observations: String,
    },
}

/// The reward that counts as 1 for a table: the setting or, if it is 0, the largest |reward| that the problem names.
pub(crate) fn reward_scale(setting: f64, spec: &EnvSpec) -> f64 {
    let named = spec.reward_bounds.map_or(0.0, |(low, high)| low.abs().max(high.abs()));
    match setting {
        0.0 if named > 0.0 => named,
        0.0 => 1.0,
        scale => scale,
    }
}

/// Refuses a setting that violates its condition.
pub(crate) fn require(
    key: &'static str,
    holds: bool,
    want: &str,
    got: &dyn ToString,
) -> Result<(), AgentError> {
    if holds { Ok(()) } else { Err(AgentError::Setting { key, want: want.to_owned(), got: got.to_string() }) }
}

/// Refuses a count outside its range. Every count has an upper bound: with a larger value, probably a typo, training would
/// take years or not fit in memory.
pub(crate) fn count(
    key: &'static str,
    value: usize,
    allowed: RangeInclusive<usize>,
) -> Result<(), AgentError> {
    require(key, allowed.contains(&value), &format!("lie in {allowed:?}"), &value)
}

/// Refuses too many hidden layers, or too wide ones.
pub(crate) fn hidden_layers(widths: &[usize]) -> Result<(), AgentError> {
    let holds = widths.len() <= 16 && widths.iter().all(|width| (1..=65_536).contains(width));
    require("hidden", holds, "be at most 16 widths in 1..=65536", &format!("{widths:?}"))
}

/// Refuses arrays of numbers that would not fit in memory: `what`, with the settings that it depends on, and the sizes of one
/// array, whose product counts.
pub(crate) fn fits(what: &str, arrays: u64, bytes: u64, sizes: &[usize]) -> Result<(), AgentError> {
    let total = sizes.iter().fold(arrays.saturating_mul(bytes), |total, &n| total.saturating_mul(n as u64));
    match machine() {
        Some(available) if total > available => {
            Err(AgentError::Memory { what: what.to_owned(), bytes: total, available })
        }
        _ => Ok(()),
    }
}

/// Refuses a number that is not positive and finite.
pub(crate) fn positive(key: &'static str, value: f64) -> Result<(), AgentError> {
    require(key, value > 0.0 && value.is_finite(), "be positive", &value)
}

/// Refuses a time that is not positive and finite.
pub(crate) fn positive_span(key: &'static str, span: &Span) -> Result<(), AgentError> {
    require(key, span.amount > 0.0 && span.amount.is_finite(), "be positive", span)
}

/// Refuses a number that is negative or not finite.
pub(crate) fn not_negative(key: &'static str, value: f64) -> Result<(), AgentError> {
    require(key, value >= 0.0 && value.is_finite(), "not be negative", &value)
}

/// Refuses a number outside (0, 1].
pub(crate) fn share(key: &'static str, value: f64) -> Result<(), AgentError> {
    require(key, value > 0.0 && value <= 1.0, "lie in (0, 1]", &value)
}

/// Refuses a number outside [0, 1].
pub(crate) fn probability(key: &'static str, value: f64) -> Result<(), AgentError> {
    require(key, (0.0..=1.0).contains(&value), "lie in [0, 1]", &value)
}

/// The number of states, for agents that keep tables.
pub(crate) fn n_states(algo: &'static str, spec: &EnvSpec) -> Result<usize, AgentError> {
    let refuse =
        |observations| Err(AgentError::NotTabular { algo, problem: spec.name.clone(), observations });
    match &spec.observations {
        ObservationSpace::Discrete { n, .. } if spec.horizon_is_task => Ok(*n),
        ObservationSpace::Discrete { .. } => refuse("a time limit that is not part of the task".to_owned()),
        ObservationSpace::Dense(shape)
        | ObservationSpace::Bits(shape)
        | ObservationSpace::Bytes { shape, .. } => refuse(format!("arrays of shape {shape:?}")),
    }
}

/// The instructions that networks compute with: the widest of the machine, or one by name, which pins the last bits.
#[derive(Clone, Copy, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kernels {
    /// The widest that the machine has.
    Auto,
    /// 512-bit vectors.
    Avx512,
    /// 256-bit vectors.
    Avx2,
    /// 128-bit vectors of ARM.
    Neon,
    /// None.
    Scalar,
}

impl fmt::Display for Kernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernels::Auto => "auto",
            Kernels::Avx512 => "avx512",
            Kernels::Avx2 => "avx2",
            Kernels::Neon => "neon",
            Kernels::Scalar => "scalar",
        })
    }
}

impl Kernels {
    /// The kernels, if this machine has them.
    pub(crate) fn find(self) -> Result<bqrl_nn::Kernels, AgentError> {
        let found = match self {
            Kernels::Auto => Some(bqrl_nn::Kernels::detect()),
            named => bqrl_nn::Kernels::named(&named.to_string()),
        };
        found.ok_or_else(|| AgentError::Setting {
            key: "kernels",
            want: "be auto, or a set of instructions that this machine has".to_owned(),
            got: self.to_string(),
        })
    }
}
