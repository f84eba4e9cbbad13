//! The problem behind a dial: a built-in one, an MDP file below the served directory, or that of a run.

use std::path::Path;
use std::{fs, io};

use bqrl_mdp::csv::{self, CsvError, Given};
use bqrl_mdp::model::Problem;
use bqrl_mdp::problems;
use bqrl_runs::beneath;
use serde::Serialize;

use crate::request::Query;
use crate::shelf::{LARGEST_MODEL, Shelf};
use crate::trained;

/// The horizon of an MDP file, unless the address or the file has one.
pub const DEFAULT_HORIZON: usize = 10;

/// A problem that can be planned.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    /// A name, and parameters.
    BuiltIn(String, Vec<(String, String)>),
    /// A file, with what it does not say itself.
    File {
        /// Below the served directory.
        path: String,
        /// H; if absent, that of the file or [`DEFAULT_HORIZON`].
        horizon: Option<usize>,
        /// The start state; if absent, that of the file, "0" or the first one.
        start: Option<String>,
        /// γ.
        discount: f64,
    },
    /// The id of a run.
    Run(String),
}

/// What a seed of a run attained at a level.
#[derive(Debug, Serialize)]
pub struct Attained {
    seed: u64,
    /// (τ, Q_τ, mean)
    points: Vec<(f64, f64, f64)>,
}

impl Source {
    /// The source that a query asks for: `problem=`, `file=` or `run=`.
    pub fn of(query: &Query, shelf: &Shelf) -> Result<Self, String> {
        if let Some(name) = query.get("problem") {
            if !problems::names().any(|known| known == name) {
                return Err(format!("there is no problem {name:?}"));
            }
            return Ok(Self::BuiltIn(name.to_owned(), query.parameters()));
        }
        if let Some(path) = query.get("file") {
            if !shelf.look().files.iter().any(|known| known == path) {
                return Err(format!("there is no MDP file {path:?} in the served directory"));
            }
            return Ok(Self::File {
                path: path.to_owned(),
                horizon: query.number("horizon", "a whole number")?,
                start: query.get("start").map(str::to_owned),
                discount: query.number("discount", "a number in (0, 1]")?.unwrap_or(1.0),
            });
        }
        let run = query.get("run").ok_or("the address names no problem, file or run")?;
        if !shelf.look_for(run).runs.contains_key(run) {
            return Err(format!("there is no run {run:?} in the served directory"));
        }
        Ok(Self::Run(run.to_owned()))
    }

    /// The query that names the source again.
    pub fn query(&self) -> String {
        use crate::request::encode;
        match self {
            Self::BuiltIn(name, parameters) => {
                parameters.iter().fold(format!("problem={}", encode(name)), |query, (key, value)| {
                    format!("{query}&env.{}={}", encode(key), encode(value))
                })
            }
            Self::File { path, horizon, start, discount } => {
                let horizon = horizon.map_or(String::new(), |horizon| format!("&horizon={horizon}"));
                let start = start.as_ref().map_or(String::new(), |start| format!("&start={}", encode(start)));
                let discount = if *discount == 1.0 { String::new() } else { format!("&discount={discount}") };
                format!("file={}{horizon}{start}{discount}", encode(path))
            }
            Self::Run(id) => format!("run={}", encode(id)),
        }
    }

    /// Different if the problem may be different.
    pub fn key(&self, shelf: &Shelf) -> String {
        let changed = |path: std::path::PathBuf| {
            fs::symlink_metadata(path)
                .map_or(String::new(), |m| format!("{} {:?}", m.len(), m.modified().ok()))
        };
        let mark = match self {
            Self::BuiltIn(..) => String::new(),
            Self::File { path, .. } => changed(shelf.root().join(path)),
            Self::Run(id) => changed(shelf.run_path(id).join("config.toml")),
        };
        format!("{self:?} {mark}")
    }

    /// Builds or reads the problem.
    pub fn load(&self, shelf: &Shelf) -> Result<Problem, String> {
        match self {
            Self::BuiltIn(name, parameters) => {
                problems::build(name, parameters).map_err(|error| error.to_string())
            }
            Self::File { path, horizon, start, discount } => {
                let read = |horizon: Option<usize>, start: Option<&str>| {
                    let file = beneath::open(shelf.root(), Path::new(path)).map_err(CsvError::Io)?;
                    if file.metadata()?.len() > LARGEST_MODEL {
                        let most = format!("it has more than {} MB", LARGEST_MODEL >> 20);
                        return Err(CsvError::Io(io::Error::new(io::ErrorKind::FileTooLarge, most)));
                    }
                    csv::read_with(
                        file,
                        path,
                        &Given { horizon, start, discount: *discount, normalise: false },
                    )
                };
                // The file's own, as far as it has them.
                let from = |horizon| match (read(horizon, start.as_deref()), start) {
                    (Err(CsvError::Incomplete), None) => match read(horizon, Some("0")) {
                        Err(CsvError::UnknownStart { first, .. }) => read(horizon, Some(&first)),
                        problem => problem,
                    },
                    (problem, _) => problem,
                };
                let problem = match (from(*horizon), horizon) {
                    (Err(CsvError::Incomplete), None) => from(Some(DEFAULT_HORIZON)),
                    (problem, _) => problem,
                };
                problem.map_err(|error| format!("{path}: {error}"))
            }
            Self::Run(id) => {
                let config = trained::config(shelf, id)?;
                trained::problem(shelf, id, &config.problem)
            }
        }
    }

    /// What the seeds of a run attained, where one agent serves every level.
    pub fn attained(&self, shelf: &Shelf) -> Vec<Attained> {
        let Self::Run(id) = self else { return Vec::new() };
        let of = |run: &bqrl_runs::reader::Run| {
            let seeds = run.seeds.iter().map(|seed| {
                let served = seed.achieved.iter().flatten().map(|row| (row.tau, row.quantile, row.mean));
                let last = seed.evaluations.iter().filter_map(|rows| rows.last());
                let last = last.map(|row| (row.tau, row.quantile, row.mean));
                let points = if seed.achieved.is_some() { served.collect() } else { last.collect() };
                Attained { seed: seed.seed, points }
            });
            seeds.collect()
        };
        shelf.read(id, of).unwrap_or_default()
    }
}
