//! The algorithms for Python, and Python's description of an environment.

use std::path::PathBuf;

use bqrl_agents::experience::replay::{machine, memory};
use bqrl_lab::config::{ALGOS, Layers, Levels};
use bqrl_mdp::env::{EnvSpec, ObservationSpace};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use serde::{Deserialize, Serialize};

use crate::convert::{toml_to_py, value_error};
use crate::lanes::Nature;
use crate::observation::Format;

/// (name, one line, whether it is trained for one level) of every algorithm.
#[pyfunction]
pub fn algos() -> Vec<(&'static str, &'static str, bool)> {
    ALGOS.iter().map(|algo| (algo.name, algo.about, algo.levels == Levels::One)).collect()
}

/// The preset of an algorithm: {"agent": {…}, "run": {…}}, for a kind of observations.
#[pyfunction]
#[pyo3(signature = (algo, observations="table"))]
pub fn preset<'py>(py: Python<'py>, algo: &str, observations: &str) -> PyResult<Bound<'py, PyDict>> {
    let observations = match observations {
        "table" => ObservationSpace::Discrete { n: 1, ordered: false },
        "vector" => ObservationSpace::Dense(vec![1]),
        "planes" => ObservationSpace::Bits(vec![1, 10, 10]),
        "frames" => ObservationSpace::Bytes { shape: vec![1, 84, 84], stack: 1 },
        other => {
            return Err(value_error(format!(
                "observations must be \"table\", \"vector\", \"planes\" or \"frames\", got {other:?}"
            )));
        }
    };
    let layers = Layers::preset_for(algo, &observations).map_err(value_error)?;
    let sections = PyDict::new(py);
    for name in ["agent", "run"] {
        let mut section = layers.section(name).expect("a preset has both sections").clone();
        section.remove("kind");
        sections.set_item(name, toml_to_py(py, &section.into())?)?;
    }
    Ok(sections)
}

/// The sections of a file of settings, with `section.key=value` on top: as the command line reads them.
#[pyfunction]
pub fn read_settings(
    py: Python<'_>,
    path: Option<PathBuf>,
    overrides: Vec<String>,
) -> PyResult<Bound<'_, PyAny>> {
    let text = path.as_deref().map_or_else(|| Ok(String::new()), bqrl_lab::config::read_settings);
    let origin = path.map_or_else(String::new, |path| path.display().to_string());
    let layers = text.and_then(|text| Layers::written(&text, &origin));
    let layers = layers.and_then(|mut layers| {
        overrides.iter().try_for_each(|text| layers.override_with(text)).map(|()| layers)
    });
    toml_to_py(py, &layers.map_err(value_error)?.sections().clone().into())
}

/// Bytes of a full replay, and those that this process may use, where they are known.
#[pyfunction]
pub fn replay_memory(capacity: usize, n_lanes: usize, observations: Format) -> (u64, Option<u64>) {
    (memory(capacity, n_lanes, &observations.space()), machine())
}

/// An environment as Python describes it.
#[derive(Clone, Debug, Deserialize, FromPyObject, PartialEq, Serialize)]
#[pyo3(from_item_all)]
pub struct Described {
    pub name: String,
    pub observations: Format,
    pub n_actions: usize,
    pub horizon: usize,
    pub horizon_is_task: bool,
    pub reward_bounds: Option<(f64, f64)>,
    pub gamma: f64,
    /// Whether it is known to be the same at all stages: tables only.
    #[serde(default)]
    pub stationary: bool,
}

/// The most numbers in an observation, the most observations, and the most actions: more than any network can take.
const MOST_NUMBERS: usize = 1 << 30;
/// The longest episode: numbers of JSON are exact up to here.
const MOST_STAGES: usize = 1 << 53;

impl Described {
    /// Refuses what no environment has, be it from a caller or from a file.
    pub fn check(&self) -> Result<(), String> {
        let Self { observations, n_actions, horizon, reward_bounds, gamma, .. } = self;
        if !(*gamma > 0.0 && *gamma <= 1.0) {
            return Err(format!("gamma must lie in (0, 1], got {gamma}"));
        }
        if !(1..=MOST_STAGES).contains(horizon) || !(1..=MOST_NUMBERS).contains(n_actions) {
            return Err(format!(
                "an environment needs a horizon and actions of at least 1, at most {MOST_STAGES} and {MOST_NUMBERS}, \
                 got {horizon} and {n_actions}"
            ));
        }
        if let Some((low, high)) = *reward_bounds
            && !(low.is_finite() && high.is_finite() && low <= high)
        {
            return Err(format!("reward_bounds must be finite and rising, got ({low}, {high})"));
        }
        let Format { n, start, shape, stack, .. } = observations;
        let numbers = shape.iter().try_fold(1_usize, |product, &length| product.checked_mul(length));
        if numbers.is_none_or(|numbers| numbers > MOST_NUMBERS) {
            return Err(format!(
                "an observation may have at most {MOST_NUMBERS} numbers, got shape {shape:?}"
            ));
        }
        if n.is_some_and(|n| !(1..=MOST_NUMBERS).contains(&n))
            || start.checked_add(MOST_NUMBERS as i64).is_none()
        {
            let n = n.unwrap_or_default();
            return Err(format!(
                "observations must be 1 to {MOST_NUMBERS} whole numbers, got {n} from {start}"
            ));
        }
        if observations.channels_last && !(3..=4).contains(&shape.len()) {
            return Err(format!(
                "an image with its channels last has three or four axes, got shape {shape:?}"
            ));
        }
        let stacks = |stack: usize| stack > 0 && shape.first().is_some_and(|first| first % stack == 0);
        if let Some(stack) = stack.filter(|&stack| !stacks(stack)) {
            return Err(format!("{stack} frames cannot be stacked in shape {shape:?}"));
        }
        Ok(())
    }

    /// Refuses an environment with other spaces; with `encoded`, also one whose observations would be encoded otherwise.
    pub fn check_like(&self, other: &Self, encoded: bool) -> Result<(), String> {
        let (ours, given) = (&self.observations, &other.observations);
        let same = (ours.n, ours.start, &ours.shape) == (given.n, given.start, &given.shape);
        if !same || (encoded && ours != given) {
            let (ours, given) = (ours.space(), given.space());
            return Err(format!(
                "the model was made for observations {ours:?}, the environment has {given:?}"
            ));
        }
        let (ours, given) = (self.n_actions, other.n_actions);
        if ours != given {
            return Err(format!("the model was made for actions {ours}, the environment has {given}"));
        }
        Ok(())
    }

    pub fn spec(&self) -> EnvSpec {
        EnvSpec {
            horizon_is_task: self.horizon_is_task,
            reward_bounds: self.reward_bounds,
            discount: self.gamma,
            stationary: self.stationary,
            ..EnvSpec::new(&self.name, self.observations.space(), self.n_actions, self.horizon)
        }
    }

    pub fn nature(&self) -> Nature {
        Nature { spec: self.spec(), format: self.observations.clone() }
    }

    /// As a table's own environment is described.
    pub fn of_table(name: &str, spec: &EnvSpec) -> Self {
        let ObservationSpace::Discrete { n, ordered } = spec.observations else {
            unreachable!("a table shows indices")
        };
        Self {
            name: name.to_owned(),
            observations: Format {
                n: Some(n),
                start: 0,
                ordered,
                shape: Vec::new(),
                stack: None,
                bits: false,
                channels_last: false,
            },
            n_actions: spec.n_actions,
            horizon: spec.horizon,
            horizon_is_task: spec.horizon_is_task,
            stationary: spec.stationary,
            reward_bounds: spec.reward_bounds,
            gamma: spec.discount,
        }
    }
}
