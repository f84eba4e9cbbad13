//! `PROBLEM` on the command line: a built-in name with `--env key=value`, or the path of an MDP file.

use std::sync::Arc;

use bqrl_lab::batch::{PrepareError, Prepared, load as load_task};
use bqrl_lab::config::{Config, ConfigError, ProblemConfig, StartState};
use bqrl_lab::task::Task;
use bqrl_mdp::csv::CsvError;
use bqrl_mdp::log::find_columns;
use bqrl_mdp::model::Problem;
use bqrl_mdp::problems::ProblemError;
use bqrl_mdp::records::RecordError;

use crate::failure::Failure;
use crate::terminal::say;

/// The flags that describe a problem.
#[derive(clap::Args)]
pub struct ProblemFlags {
    /// A parameter of a built-in problem, e.g. --env offers=40; may be repeated
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = key_value)]
    pub parameters: Vec<(String, String)>,
    /// Number of decisions in an episode; required for an MDP file that does not say
    #[arg(long, allow_negative_numbers = true, value_name = "H")]
    pub horizon: Option<usize>,
    /// The state in which episodes start, by its id or name; required for an MDP file that does not say
    #[arg(long, allow_negative_numbers = true, value_name = "S", value_parser = start_state)]
    pub start: Option<StartState>,
    /// Discount factor per stage, in (0, 1]
    #[arg(long, allow_negative_numbers = true, value_name = "G")]
    pub discount: Option<f64>,
    /// Scale the probabilities of an MDP file that miss 1 by rounding, by at most 0.05
    #[arg(long)]
    pub normalise: bool,
}

/// An id or a name.
fn start_state(text: &str) -> Result<StartState, String> {
    if text.trim().is_empty() {
        Err("want the id or the name of a state".to_owned())
    } else {
        Ok(text.into())
    }
}

/// Splits `key=value`.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("want KEY=VALUE, got {text:?}"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

impl ProblemFlags {
    /// Whether any of them was given.
    pub fn is_given(&self) -> bool {
        let Self { parameters, horizon, start, discount, normalise } = self;
        !parameters.is_empty() || horizon.is_some() || start.is_some() || discount.is_some() || *normalise
    }

    /// The problem as a configuration names it.
    pub fn config(&self, name: &str) -> Result<ProblemConfig, Failure> {
        let mut config = ProblemConfig {
            name: name.to_owned(),
            horizon: self.horizon,
            start: self.start.clone(),
            discount: self.discount,
            normalise: self.normalise,
            ..ProblemConfig::default()
        };
        for (key, value) in &self.parameters {
            if config.parameters.insert(key.clone(), value.clone()).is_some() {
                return Err(Failure::usage(format!("{name}: {key} is given twice")));
            }
        }
        Ok(config)
    }
}

/// Builds or reads the problem.
pub fn load(config: &ProblemConfig) -> Result<Problem, Failure> {
    let problem = config.load().map_err(|error| failure(&error, config))?;
    for note in &problem.data.notes {
        say(&format!("note: {note}"));
    }
    Ok(problem)
}

/// The task of a configuration.
pub fn task(config: &Config) -> Result<Arc<dyn Task>, Failure> {
    load_task(config).map_err(|error| unprepared(&error, &config.problem))
}

/// A run, checked and with its references planned.
pub fn prepare(config: Config) -> Result<Prepared, Failure> {
    let problem = config.problem.clone();
    Prepared::new(config).map_err(|error| unprepared(&error, &problem))
}

fn unprepared(error: &PrepareError, problem: &ProblemConfig) -> Failure {
    match error {
        PrepareError::Config(error) => failure(error, problem),
        PrepareError::Restricted { .. } => {
            Failure::usage(error).hint("`bqrl plan` respects restricted actions")
        }
        PrepareError::Agent(_) | PrepareError::Lanes { .. } => Failure::usage(error),
    }
}

/// The id of a Gymnasium environment: `gym:ID`, or a name with a version at its end.
fn gymnasium_id(name: &str) -> Option<&str> {
    let versioned = name.rsplit_once("-v").is_some_and(|(stem, version)| {
        !stem.is_empty() && !version.is_empty() && version.bytes().all(|digit| digit.is_ascii_digit())
    });
    name.strip_prefix("gym:").filter(|id| !id.is_empty()).or(versioned.then_some(name))
}

/// A header with columns for episodes, actions and rewards.
fn looks_like_a_log(header: &str) -> bool {
    let names: Vec<String> =
        header.trim_matches('"').split([',', ';', '\t', '|']).map(|name| name.trim().to_owned()).collect();
    find_columns(&names).is_ok()
}

fn failure(error: &ConfigError, config: &ProblemConfig) -> Failure {
    let hint = match error {
        ConfigError::Problem(ProblemError::UnknownProblem { .. }) if gymnasium_id(&config.name).is_some() => {
            let id = gymnasium_id(&config.name).expect("asked above");
            return Failure::usage(format!(
                "{id} is a Gymnasium environment, which only the Python package can play"
            ))
            .hint(format!("install the package with pip, then `python -m bqrl train {id}`"));
        }
        ConfigError::Problem(ProblemError::UnknownProblem { .. }) => {
            "`bqrl envs` lists the problems; an MDP file is given by its path".to_owned()
        }
        ConfigError::Problem(_) => format!("`bqrl envs {}` lists its parameters", config.name),
        ConfigError::FileNeeds { .. } => "add --horizon H --start S".to_owned(),
        ConfigError::Game { name } => format!("`bqrl train {name}` learns it, `bqrl play {name}` shows it"),
        ConfigError::Python { .. } => {
            "`python -m bqrl train --resume RUN` resumes it, bqrl.load(RUN) opens it in Python".to_owned()
        }
        ConfigError::File {
            error: CsvError::Records(RecordError::MissingColumns { header, .. }), ..
        } if looks_like_a_log(header) => {
            format!(
                "if this is a log of episodes, `bqrl fit {} --out MODEL.csv` makes a table of it",
                config.name
            )
        }
        ConfigError::File { error: CsvError::Sum { .. }, .. } if !config.normalise => {
            "--normalise scales probabilities that miss 1 by rounding".to_owned()
        }
        _ => return Failure::usage(error),
    };
    Failure::usage(error).hint(hint)
}
