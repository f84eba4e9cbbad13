//! `PROBLEM` on the command line: a built-in name with `--env key=value`, or the path of an MDP file.

use std::path::Path;

use bqrl_mdp::csv;
use bqrl_mdp::model::{Model, Problem};
use bqrl_mdp::problems::{self, ProblemError};

use crate::failure::Failure;

/// The flags that choose a problem.
#[derive(clap::Args)]
pub struct ProblemArgs {
    /// A built-in problem (`bqrl envs` lists them) or an MDP file: CSV with the columns idstatefrom, idaction, idstateto,
    /// probability, reward
    pub problem: String,
    /// A parameter of a built-in problem, e.g. --env offers=40; may be repeated
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = key_value)]
    pub parameters: Vec<(String, String)>,
    /// Number of decisions in an episode; an MDP file needs it
    #[arg(long, allow_negative_numbers = true, value_name = "H")]
    pub horizon: Option<usize>,
    /// The state in which episodes start, by its id; an MDP file needs it
    #[arg(long, allow_negative_numbers = true, value_name = "S")]
    pub start: Option<u64>,
    /// Weight of a reward one stage later, in (0, 1]
    #[arg(long, allow_negative_numbers = true, value_name = "G")]
    pub discount: Option<f64>,
}

/// Splits `key=value`.
pub fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or_else(|| format!("want KEY=VALUE, got {text:?}"))?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Builds or reads the problem.
pub fn load(args: &ProblemArgs) -> Result<Problem, Failure> {
    if problems::names().any(|name| name == args.problem) {
        return built_in(args);
    }
    let path = Path::new(&args.problem);
    if path.exists() || args.problem.contains(['/', '\\', '.']) { file(args, path) } else { built_in(args) }
}

fn built_in(args: &ProblemArgs) -> Result<Problem, Failure> {
    let mut parameters = args.parameters.clone();
    parameters.extend(args.horizon.map(|h| ("horizon".to_owned(), h.to_string())));
    parameters.extend(args.start.map(|s| ("start".to_owned(), s.to_string())));
    let mut problem = problems::build(&args.problem, &parameters).map_err(|error| {
        let hint = match error {
            ProblemError::UnknownProblem { .. } => {
                "`bqrl envs` lists the problems; an MDP file is given by its path".into()
            }
            _ => format!("`bqrl envs {}` lists its parameters", args.problem),
        };
        Failure::usage(error).hint(hint)
    })?;
    if let Some(discount) = args.discount {
        let model = &problem.model;
        if model.discount() != 1.0 {
            return Err(Failure::usage(format!(
                "{} has a discount of its own, {}",
                problem.name,
                model.discount()
            ))
            .hint("change the parameter that it follows from instead of --discount"));
        }
        problem.model =
            Model::new(model.kernels().to_vec(), model.horizon(), discount, model.start().to_vec())
                .map_err(Failure::usage)?;
    }
    Ok(problem)
}

fn file(args: &ProblemArgs, path: &Path) -> Result<Problem, Failure> {
    if let Some((key, _)) = args.parameters.first() {
        return Err(Failure::usage(format!("an MDP file has no parameters, got --env {key}=…")));
    }
    let (Some(horizon), Some(start)) = (args.horizon, args.start) else {
        return Err(Failure::usage(format!(
            "an MDP file needs --horizon H and --start S, reading {}",
            path.display()
        )));
    };
    csv::read_path(path, horizon, start, args.discount.unwrap_or(1.0))
        .map_err(|error| Failure::usage(format!("reading {}: {error}", path.display())))
}
