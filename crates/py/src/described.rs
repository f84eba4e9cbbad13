//! The algorithms for Python, and Python's description of an environment.

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

/// The preset of an algorithm: {"agent": {…}, "run": {…}}.
#[pyfunction]
pub fn preset<'py>(py: Python<'py>, algo: &str) -> PyResult<Bound<'py, PyDict>> {
    let layers = Layers::preset(algo).map_err(value_error)?;
    let sections = PyDict::new(py);
    for name in ["agent", "run"] {
        let mut section = layers.section(name).expect("a preset has both sections").clone();
        section.remove("kind");
        sections.set_item(name, toml_to_py(py, &section.into())?)?;
    }
    Ok(sections)
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
}

impl Described {
    pub fn spec(&self) -> EnvSpec {
        EnvSpec {
            horizon_is_task: self.horizon_is_task,
            reward_bounds: self.reward_bounds,
            discount: self.gamma,
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
            observations: Format { n: Some(n), start: 0, ordered, shape: Vec::new(), stack: None },
            n_actions: spec.n_actions,
            horizon: spec.horizon,
            horizon_is_task: spec.horizon_is_task,
            reward_bounds: spec.reward_bounds,
            gamma: spec.discount,
        }
    }
}
