//! The built-in problems and their parameters: `asset-selling`, `frozen-lake`, …
//!
//! Each problem is one file. It starts with the rules, names the parameters in `INFO` and turns them into a [`Problem`]. A
//! parameter's default and range are defined once, in `INFO`: listings print them and [`build`] enforces them. Ranges bound
//! the size of the table, so that a typo gives an error message instead of using up the memory.

// One signature for all tables, also for those that cannot fail.
#![allow(clippy::unnecessary_wraps)]

mod american_put;
mod asset_selling;
mod cliff_walk;
mod frozen_lake;
mod gamble_chain;
mod gamblers_ruin;
mod inventory;
mod machine_replacement;
mod observed;
mod river_swim;

use std::fmt;

use thiserror::Error;

use crate::model::{Data, Kernel, Model, Outcome, Problem};

static PROBLEMS: [ProblemInfo; 9] = [
    asset_selling::INFO,
    frozen_lake::INFO,
    cliff_walk::INFO,
    gamble_chain::INFO,
    machine_replacement::INFO,
    inventory::INFO,
    gamblers_ruin::INFO,
    river_swim::INFO,
    american_put::INFO,
];

/// A built-in problem as `bqrl envs` lists it.
#[derive(Clone, Copy, Debug)]
pub struct ProblemInfo {
    /// Its name in [`build`].
    pub name: &'static str,
    /// One line: the decision, and the return.
    pub summary: &'static str,
    /// Its parameters.
    pub parameters: &'static [Parameter],
    /// Whether neighbouring states are alike.
    ordered: bool,
    table: fn(&Parameters) -> Result<Problem, ProblemError>,
}

/// A parameter of a problem.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// The key of `key=value`.
    pub name: &'static str,
    /// The default value, or in words how it is derived.
    pub default: &'static str,
    /// Which values are allowed; prints as text.
    pub allowed: Allowed,
    /// Its meaning.
    pub meaning: &'static str,
}

/// Which values a parameter may take.
#[derive(Clone, Copy, Debug)]
pub enum Allowed {
    /// An integer, both ends included.
    Count(usize, usize),
    /// A number or a fraction such as 1/3, both ends included.
    Number(f64, f64),
    /// `true` or `false`.
    Flag,
    /// Text, described in words; the problem itself checks it.
    Text(&'static str),
}

impl Allowed {
    fn contains(self, value: &str) -> bool {
        match self {
            Allowed::Count(low, high) => parse_count(value).is_some_and(|x| (low..=high).contains(&x)),
            Allowed::Number(low, high) => parse_number(value).is_some_and(|x| (low..=high).contains(&x)),
            Allowed::Flag => parse_flag(value).is_some(),
            Allowed::Text(_) => true,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Count(low, high) => write!(f, "an integer from {low} to {high}"),
            Allowed::Number(low, high) => write!(f, "a number from {low} to {high}"),
            Allowed::Flag => write!(f, "true or false"),
            Allowed::Text(words) => write!(f, "{words}"),
        }
    }
}

fn parse_count(value: &str) -> Option<usize> {
    value.trim().parse().ok()
}

fn parse_number(value: &str) -> Option<f64> {
    let number = |text: &str| text.trim().parse::<f64>().ok();
    match value.split_once('/') {
        Some((numerator, denominator)) => Some(number(numerator)? / number(denominator)?),
        None => number(value),
    }
}

fn parse_flag(value: &str) -> Option<bool> {
    // Python users write True.
    value.trim().to_ascii_lowercase().parse().ok()
}

/// An invalid request for a problem.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum ProblemError {
    #[error("unknown problem {name:?}{}; the problems are {known}", .closest.map_or(String::new(), |c| format!(", the closest name is {c}")))]
    UnknownProblem { name: String, closest: Option<&'static str>, known: String },
    #[error("{problem} has no parameter {parameter:?}; its parameters are {known}")]
    UnknownParameter { problem: &'static str, parameter: String, known: String },
    #[error("{problem}: {parameter} is given twice")]
    Twice { problem: &'static str, parameter: &'static str },
    #[error("{problem}: {parameter} must be {allowed}, got {value:?}")]
    Value { problem: &'static str, parameter: &'static str, allowed: String, value: String },
}

/// Every built-in problem, the paper's two first.
pub fn list() -> &'static [ProblemInfo] {
    &PROBLEMS
}

/// The names that [`build`] knows.
pub fn names() -> impl Iterator<Item = &'static str> + Clone {
    PROBLEMS.iter().map(|info| info.name)
}

/// Builds a problem from its name and `key=value` pairs; the other parameters have their defaults.
pub fn build(name: &str, parameters: &[(String, String)]) -> Result<Problem, ProblemError> {
    let info = PROBLEMS.iter().find(|info| info.name == name).ok_or_else(|| unknown(name, names()))?;
    (info.table)(&Parameters::new(info.name, info.parameters, parameters)?)
}

/// The error for a name that is none of those that are known.
pub fn unknown(name: &str, names: impl Iterator<Item = &'static str> + Clone) -> ProblemError {
    // A name with half of the letters wrong is not a typo.
    let near = names.clone().map(|known| (edit_distance(name, known), known)).min();
    let closest = near.filter(|(distance, known)| 2 * distance < known.len()).map(|(_, known)| known);
    let known = names.collect::<Vec<_>>().join(", ");
    ProblemError::UnknownProblem { name: name.to_owned(), closest, known }
}

/// The checked parameters of one problem.
pub struct Parameters<'a> {
    problem: &'static str,
    known: &'static [Parameter],
    given: &'a [(String, String)],
}

impl<'a> Parameters<'a> {
    /// Refuses a parameter that the problem does not have, one that is given twice, and values outside their ranges.
    pub fn new(
        problem: &'static str,
        known: &'static [Parameter],
        given: &'a [(String, String)],
    ) -> Result<Self, ProblemError> {
        for (position, (name, value)) in given.iter().enumerate() {
            let Some(parameter) = known.iter().find(|p| p.name == name) else {
                let known = known.iter().map(|p| p.name).collect::<Vec<_>>().join(", ");
                return Err(ProblemError::UnknownParameter { problem, parameter: name.clone(), known });
            };
            if given[..position].iter().any(|(earlier, _)| earlier == name) {
                return Err(ProblemError::Twice { problem, parameter: parameter.name });
            }
            if !parameter.allowed.contains(value) {
                let (parameter, allowed) = (parameter.name, parameter.allowed.to_string());
                return Err(ProblemError::Value { problem, parameter, allowed, value: value.clone() });
            }
        }
        Ok(Self { problem, known, given })
    }

    fn is_given(&self, name: &str) -> bool {
        self.given.iter().any(|(given, _)| given == name)
    }

    /// A value as it was given, or the default.
    pub fn text(&self, name: &str) -> &str {
        let default = || self.known.iter().find(|p| p.name == name).map(|p| p.default);
        let given = self.given.iter().find(|(given, _)| given == name).map(|(_, value)| value.as_str());
        given.or_else(default).expect("a problem asks only for parameters of its own")
    }

    /// An integer.
    pub fn count(&self, name: &str) -> usize {
        parse_count(self.text(name)).expect("given values are checked and defaults parse")
    }

    /// A number.
    pub fn number(&self, name: &str) -> f64 {
        parse_number(self.text(name)).expect("given values are checked and defaults parse")
    }

    /// A yes or no.
    pub fn flag(&self, name: &str) -> bool {
        parse_flag(self.text(name)).expect("given values are checked and defaults parse")
    }

    /// A count whose largest value depends on other parameters.
    fn count_within(&self, name: &'static str, low: usize, high: usize) -> Result<usize, ProblemError> {
        let allowed = Allowed::Count(low, high);
        if allowed.contains(self.text(name)) {
            Ok(self.count(name))
        } else {
            Err(self.refuse(name, allowed.to_string()))
        }
    }

    /// The error for a text that the problem does not understand.
    pub fn refuse(&self, parameter: &'static str, allowed: String) -> ProblemError {
        let value = self.text(parameter).to_owned();
        ProblemError::Value { problem: self.problem, parameter, allowed, value }
    }
}

/// A stationary table with names, started in one state and not discounted.
fn tabulate(
    info: &ProblemInfo,
    horizon: usize,
    start: usize,
    states: Vec<String>,
    actions: Vec<String>,
    rows: impl IntoIterator<Item = (usize, usize, Outcome)>,
) -> Problem {
    let kernel = Kernel::new(states.len(), actions.len(), rows);
    let model = kernel.and_then(|kernel| Model::new(vec![kernel], horizon, 1.0, vec![(start, 1.0)]));
    let model = model.expect("parameters within their ranges make a Markov decision process");
    Problem {
        name: info.name.to_owned(),
        model,
        states,
        actions,
        ordered: info.ordered,
        data: Data::default(),
    }
}

/// Names for states or actions that are numbered 0..n.
fn numbered(n: usize) -> Vec<String> {
    (0..n).map(|i| i.to_string()).collect()
}

fn outcome(probability: f64, next: usize, reward: f64) -> Outcome {
    Outcome { probability, next, reward }
}

/// The Levenshtein distance: the number of letters to insert, delete or replace.
fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, &y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn try_built(name: &str, parameters: &[(&str, &str)]) -> Result<Problem, ProblemError> {
        let owned: Vec<_> = parameters.iter().map(|&(k, v)| (k.to_owned(), v.to_owned())).collect();
        build(name, &owned)
    }

    pub(super) fn built(name: &str, parameters: &[(&str, &str)]) -> Problem {
        try_built(name, parameters).unwrap()
    }

    fn message(name: &str, parameters: &[(&str, &str)]) -> String {
        try_built(name, parameters).unwrap_err().to_string()
    }

    #[test]
    fn every_problem_builds_and_giving_its_defaults_changes_nothing() {
        for info in list() {
            let default = built(info.name, &[]);
            let model = &default.model;
            assert_eq!(
                (default.states.len(), default.actions.len()),
                (model.n_states(), model.n_actions()),
                "{}",
                info.name
            );
            let stated = info.parameters.iter().filter(|p| p.allowed.contains(p.default));
            let stated: Vec<_> = stated.map(|p| (p.name, p.default)).collect();
            // success_rate has no say without slippery, but slippery is the default.
            assert_eq!(built(info.name, &stated), default, "{}", info.name);
        }
    }

    #[test]
    fn every_problem_takes_a_horizon() {
        for name in names() {
            assert_eq!(built(name, &[("horizon", "7")]).model.horizon(), 7, "{name}");
        }
    }

    #[test]
    fn an_unknown_problem_is_answered_with_the_closest_name_and_all_names() {
        assert_eq!(
            message("frozen_lak", &[]),
            "unknown problem \"frozen_lak\", the closest name is frozen-lake; the problems are asset-selling, \
             frozen-lake, cliff-walk, gamble-chain, machine-replacement, inventory, gamblers-ruin, river-swim, \
             american-put"
        );
    }

    #[test]
    fn an_unknown_parameter_is_answered_with_those_of_the_problem() {
        assert_eq!(
            message("asset-selling", &[("offer", "4")]),
            "asset-selling has no parameter \"offer\"; its parameters are offers, horizon, start"
        );
    }

    #[test]
    fn a_parameter_may_be_given_once() {
        assert_eq!(
            message("asset-selling", &[("start", "4"), ("start", "4")]),
            "asset-selling: start is given twice"
        );
    }

    #[test]
    fn a_value_that_does_not_parse_or_fit_is_answered_with_the_range() {
        let ranges = "asset-selling: offers must be an integer from 2 to 2000, or @FILE.csv, got";
        for value in ["many", "1", "2001", "-3", "2.5", "", "99999999999999999999"] {
            assert_eq!(message("asset-selling", &[("offers", value)]), format!("{ranges} {value:?}"));
        }
        assert_eq!(
            message("gamble-chain", &[("probability", "nan")]),
            "gamble-chain: probability must be a number from 0 to 1, got \"nan\""
        );
        assert_eq!(
            message("frozen-lake", &[("slippery", "icy\n")]),
            "frozen-lake: slippery must be true or false, got \"icy\\n\""
        );
    }

    #[test]
    fn fractions_and_python_spellings_are_understood() {
        assert_eq!(parse_number("1/3"), Some(1.0 / 3.0));
        assert_eq!(parse_number(" 2.5e-1 "), Some(0.25));
        assert_eq!(parse_number("1/"), None);
        assert_eq!(parse_flag("True"), Some(true));
        assert!(!Allowed::Number(0.0, 1.0).contains("1/0"));
        assert!(!Allowed::Number(0.0, 1.0).contains("0/0"));
    }

    #[test]
    fn edit_distance_counts_letters() {
        assert_eq!(edit_distance("", "abc"), 3);
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        assert_eq!(edit_distance("lake", "lake"), 0);
    }
}
