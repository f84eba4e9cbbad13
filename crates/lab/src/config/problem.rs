//! Which problem: a built-in one by its name, or an MDP file.

use std::collections::BTreeMap;
use std::path::Path;

use bqrl_mdp::csv;
use bqrl_mdp::model::{Model, Problem};
use bqrl_mdp::problems;
use serde::{Deserialize, Serialize};

use super::ConfigError;

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
    /// True for an environment that Python handed in: only Python can play it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub python: bool,
}

impl ProblemConfig {
    /// Builds or reads the problem.
    pub fn load(&self) -> Result<Problem, ConfigError> {
        if self.python {
            return Err(ConfigError::Python { name: self.name.clone() });
        }
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
