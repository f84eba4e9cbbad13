//! Which problem: a built-in one by its name, an MDP file, or a game by its name.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use bqrl_games::list as games;
use bqrl_mdp::csv::{self, CsvError, Given};
use bqrl_mdp::model::{Model, Problem};
use bqrl_mdp::problems;
use bqrl_runs::atomic;
use bqrl_runs::run_dir::RunDir;
use serde::{Deserialize, Serialize};

use super::ConfigError;

/// A built-in problem, an MDP file or a game.
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
    pub start: Option<StartState>,
    /// γ.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub discount: Option<f64>,
    /// Whether to scale the probabilities of a file that miss 1 by rounding.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub normalise: bool,
    /// False hands vectors to the networks as they are; by default they are normalised by their running moments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub normalize_observations: Option<bool>,
    /// Parameters of a built-in problem, or the arguments of a Gymnasium environment.
    #[serde(default)]
    pub parameters: BTreeMap<String, String>,
    /// True for an environment that Python handed in: only Python can play it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub python: bool,
    /// The copy of the MDP file in the directory of a run, which is read instead of the file itself.
    #[serde(skip)]
    pub copy: Option<PathBuf>,
}

/// The start state, by its id or by its name.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum StartState {
    /// A number.
    Id(u64),
    /// A name.
    Name(String),
}

impl From<&str> for StartState {
    fn from(text: &str) -> Self {
        text.trim().parse().map_or_else(|_| StartState::Name(text.trim().to_owned()), StartState::Id)
    }
}

impl fmt::Display for StartState {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            StartState::Id(id) => write!(f, "{id}"),
            StartState::Name(name) => write!(f, "{name}"),
        }
    }
}

impl ProblemConfig {
    /// Builds or reads the problem.
    pub fn load(&self) -> Result<Problem, ConfigError> {
        self.load_with_file().map(|(problem, _)| problem)
    }

    /// The problem, and the contents of its MDP file if it has one.
    pub fn load_with_file(&self) -> Result<(Problem, Option<Vec<u8>>), ConfigError> {
        if self.python {
            return Err(ConfigError::Python { name: self.name.clone() });
        }
        if self.game()?.is_some() {
            return Err(ConfigError::Game { name: self.name.clone() });
        }
        if !self.is_file() {
            return Ok((self.build()?, None));
        }
        let (problem, file) = self.read(self.copy.as_deref().unwrap_or(Path::new(&self.name)))?;
        Ok((problem, Some(file)))
    }

    /// Copies the MDP file into the directory of a run, unless it is there. For a problem that was loaded before.
    pub fn keep_file(&self, dir: &RunDir) -> Result<(), ConfigError> {
        if self.python || self.game()?.is_some() || !self.is_file() || dir.table().exists() {
            return Ok(());
        }
        let (_, file) = self.load_with_file()?;
        let kept = file.map_or(Ok(()), |file| atomic::write(&dir.table(), &file));
        kept.map_err(|error| ConfigError::Disk(error.to_string()))
    }

    /// The game, if it is one.
    pub fn game(&self) -> Result<Option<games::Game>, ConfigError> {
        let name = &self.name;
        let known = games::names().any(|known| known == name);
        // Any other name that begins like a game's is a typo, unless it is a file.
        let meant = || name.starts_with(games::PREFIX) && !Path::new(name).exists();
        if self.python || self.copy.is_some() || !(known || meant()) {
            return Ok(None);
        }
        let mut parameters: Vec<(String, String)> = self.parameters.clone().into_iter().collect();
        parameters.extend(self.horizon.map(|h| ("horizon".to_owned(), h.to_string())));
        parameters.extend(self.start.as_ref().map(|s| ("start".to_owned(), s.to_string())));
        let mut game = games::build(name, &parameters)?;
        if self.normalise {
            return Err(ConfigError::GameNormalise { name: name.clone() });
        }
        if let Some(discount) = self.discount {
            if !(discount > 0.0 && discount <= 1.0) {
                let (key, want) = ("problem.discount", "lie in (0, 1]".to_owned());
                return Err(ConfigError::Value { key, want, got: discount.to_string() });
            }
            game.settings.discount = discount;
        }
        Ok(Some(game))
    }

    /// Whether it is an MDP file.
    fn is_file(&self) -> bool {
        let built_in = problems::names().any(|name| name == self.name);
        let path = || Path::new(&self.name).exists() || self.name.contains(['/', '\\', '.']);
        self.copy.is_some() || (!built_in && path())
    }

    fn build(&self) -> Result<Problem, ConfigError> {
        let mut parameters: Vec<(String, String)> = self.parameters.clone().into_iter().collect();
        parameters.extend(self.horizon.map(|h| ("horizon".to_owned(), h.to_string())));
        parameters.extend(self.start.as_ref().map(|s| ("start".to_owned(), s.to_string())));
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

    /// Reads the problem from the contents of its MDP file.
    pub fn read_from(&self, file: impl Read) -> Result<Problem, CsvError> {
        let start = self.start.as_ref().map(StartState::to_string);
        let given = Given {
            horizon: self.horizon,
            start: start.as_deref(),
            discount: self.discount.unwrap_or(1.0),
            normalise: self.normalise,
        };
        csv::read_with(file, &self.name, &given)
    }

    fn read(&self, path: &Path) -> Result<(Problem, Vec<u8>), ConfigError> {
        let named = path.display().to_string();
        if let Some((key, value)) = self.parameters.iter().next() {
            return Err(ConfigError::FileParameter { key: format!("{key}={value}") });
        }
        let read = || {
            let mut file = Copying { from: File::open(path)?, bytes: Vec::new() };
            let problem = self.read_from(&mut file)?;
            Ok((problem, file.bytes))
        };
        read().map_err(|error| match error {
            CsvError::Incomplete => ConfigError::FileNeeds { path: named },
            error => ConfigError::File { path: named, error },
        })
    }
}

/// Keeps everything that is read. A file is read only once, because a pipe has nothing more to give, and only as far as it
/// makes sense, because a device has no end.
struct Copying {
    from: File,
    bytes: Vec<u8>,
}

impl Read for Copying {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let n = self.from.read(buffer)?;
        self.bytes.extend_from_slice(&buffer[..n]);
        Ok(n)
    }
}
