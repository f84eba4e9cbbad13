//! `evaluate` and `compare`: policies that users bring along, a Python function among them.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::path::Path;

use bqrl_cli::pictures;
use bqrl_lab::compare::compare as compared;
use bqrl_lab::given::{GivenError, GivenPolicy, Valued};
use bqrl_lab::plan::bootstrap;
use bqrl_mdp::evaluate::Policy;
use bqrl_mdp::model;
use bqrl_mdp::trajectory::AugmentedInput;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::convert::{json_to_py, shown, type_error, value_error};
use crate::law::Law;
use crate::native;
use crate::planning::{PlannedPolicy, levels, plan_error};
use crate::problem::{Problem, place, values};

/// The law, whether it is exact, whether probabilities are estimates, and per level a bootstrap interval.
type Evaluated = (Law, bool, bool, Vec<Option<[f64; 2]>>);

/// The law of a policy: the path of a file, a rule, a planned policy, or a function of (stage, state, collected).
#[pyfunction]
pub fn evaluate(
    py: Python<'_>,
    problem: &Problem,
    policy: &Bound<'_, PyAny>,
    risk_levels: Vec<f64>,
) -> PyResult<Evaluated> {
    let taus = checked(&risk_levels)?;
    let table = &*problem.inner;
    let one_level = if let [tau] = taus[..] { Some(tau) } else { None };
    with_policy(py, table, policy, one_level, |policy| {
        let valued = Valued::new(table, policy);
        let intervals = taus.iter().map(|&tau| bootstrap(table, policy, tau)).collect();
        (Law::new(&valued.evaluation), valued.exact, table.data.counts.is_some(), intervals)
    })
}

/// What `bqrl compare --json` says, the laws in the same order, a picture, and a note where returns were rounded unasked.
type Compared<'py> = (Bound<'py, PyAny>, Vec<Law>, String, Option<String>);

/// A policy beside the largest mean and the best percentiles.
#[pyfunction]
pub fn compare<'py>(
    py: Python<'py>,
    problem: &Problem,
    policy: &Bound<'py, PyAny>,
    risk_levels: Vec<f64>,
    name: &str,
) -> PyResult<Compared<'py>> {
    let taus = checked(&risk_levels)?;
    let table = &*problem.inner;
    let one_level = if let [tau] = taus[..] { Some(tau) } else { None };
    let yours = with_policy(py, table, policy, one_level, |policy| Valued::new(table, policy))?;
    let work = |stop: &native::Stop| {
        let note = RefCell::new(None);
        let progress = |_, _, _| stop.ask();
        let found = compared(table, &yours, &taus, &progress, &|error| {
            *note.borrow_mut() = Some(error.to_string());
        });
        found.map(|found| (pictures::comparison(&found, name).svg().to_owned(), found, note.into_inner()))
    };
    let found = native::detached(py, || native::run(work))?;
    let (svg, found, note) = found.map_err(plan_error)?;
    let json = serde_json::to_value(&found).expect("plain numbers and text serialise");
    let laws = found.policies.into_iter().map(|row| Law::of(row.law, row.mean)).collect();
    Ok((json_to_py(py, &json)?, laws, svg, note))
}

/// The law of one policy as SVG.
#[pyfunction]
pub fn law_svg(
    problem: &str,
    policy: &str,
    law: &Law,
    risk_levels: Vec<f64>,
    note: &str,
) -> PyResult<String> {
    let taus = checked(&risk_levels)?;
    Ok(pictures::law(problem, policy, &law.law, &taus, note).svg().to_owned())
}

fn checked(risk_levels: &[f64]) -> PyResult<Vec<f64>> {
    let plain = risk_levels.iter().map(|&tau| (tau, None)).collect();
    Ok(levels(plain)?.into_iter().map(|(tau, _)| tau).collect())
}

/// Uses a policy, whatever it is, and passes on the first mistake in it.
fn with_policy<T: Send>(
    py: Python<'_>,
    problem: &model::Problem,
    policy: &Bound<'_, PyAny>,
    one_level: Option<f64>,
    work: impl FnOnce(&dyn Policy) -> T + Send,
) -> PyResult<T> {
    if let Ok(planned) = policy.cast::<PlannedPolicy>() {
        let (policy, own) = planned.get().parts();
        if own.states != problem.states
            || own.actions != problem.actions
            || own.model.horizon() != problem.model.horizon()
        {
            return Err(value_error(format!(
                "the policy was planned for {}, which has other states, actions or stages than {}",
                own.name, problem.name
            )));
        }
        return native::detached(py, || Ok(work(policy)));
    }
    if let Ok(text) = policy.cast::<PyString>() {
        let text = text.to_string();
        return native::detached(py, || {
            let given = read(problem, &text, one_level)?;
            let done = work(&given);
            given.failure().map_or(Ok(done), |error| Err(value_error(format!("{text}: {error}"))))
        });
    }
    if !policy.is_callable() {
        return Err(type_error(format!(
            "a policy is a planned policy, the path of a CSV file, a rule, or a function of (stage, state, collected), got {}",
            shown(policy)
        )));
    }
    let asked = Asked::new(py, problem, policy)?;
    // A function of Python is asked while the thread is attached.
    let done = work(&asked);
    asked.error.into_inner().map_or(Ok(done), Err)
}

/// A file by its path, or else a rule.
fn read<'a>(problem: &'a model::Problem, text: &str, tau: Option<f64>) -> PyResult<GivenPolicy<'a>> {
    let path = Path::new(text);
    let is_file = path.exists() || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv"));
    if !is_file {
        return GivenPolicy::rule(text, problem).map_err(|error| {
            value_error(format!(
                "{error}; a rule is an action, \"up to N\", or \"if state >= N then ACTION else ACTION\", and a file ends in .csv"
            ))
        });
    }
    let wrong = |error: &dyn std::fmt::Display| value_error(format!("reading {text}: {error}"));
    let file = File::open(path).map_err(|error| wrong(&error))?;
    GivenPolicy::read(file, problem, tau).map_err(|error| match error {
        GivenError::Levels { .. } => wrong(&format!("{error} with risk_levels=")),
        error => wrong(&error),
    })
}

type Key = (usize, usize, u64);

/// A function of Python as a policy: asked once at every point, states go by their names.
struct Asked<'a, 'py> {
    function: &'a Bound<'py, PyAny>,
    problem: &'a model::Problem,
    states: Vec<Bound<'py, PyAny>>,
    known: RefCell<HashMap<Key, usize>>,
    /// The first mistake. After it nothing is asked any more.
    error: RefCell<Option<PyErr>>,
}

impl<'a, 'py> Asked<'a, 'py> {
    fn new(py: Python<'py>, problem: &'a model::Problem, function: &'a Bound<'py, PyAny>) -> PyResult<Self> {
        let states = values(py, &problem.states)?;
        Ok(Self { function, problem, states, known: RefCell::default(), error: RefCell::new(None) })
    }

    fn ask(&self, x: &AugmentedInput) -> PyResult<usize> {
        let answer = self.function.call1((x.stage, &self.states[x.state], x.collected))?;
        let at = || {
            let state = &self.problem.states[x.state];
            format!("at stage {}, state {state}, collected {}", x.stage, x.collected)
        };
        let action = place(&self.problem.actions, "action", &answer).map_err(|error| {
            value_error(format!("{}: the policy says {}: {}", at(), shown(&answer), error.value(answer.py())))
        })?;
        if self.problem.model.outcomes(x.stage, x.state, action).is_empty() {
            let name = &self.problem.actions[action];
            return Err(value_error(format!(
                "{}: the policy chooses {name}, which is not possible there",
                at()
            )));
        }
        Ok(action)
    }
}

impl Policy for Asked<'_, '_> {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        let possible = || self.problem.model.actions(x.stage, x.state).next().unwrap_or(0);
        let key = (x.stage, x.state, x.collected.to_bits());
        let known = self.known.borrow().get(&key).copied();
        let action = match known {
            Some(action) => action,
            None if self.error.borrow().is_some() => possible(),
            None => {
                let action = self.function.py().check_signals().and_then(|()| self.ask(x));
                let action = action.unwrap_or_else(|error| {
                    *self.error.borrow_mut() = Some(error);
                    possible()
                });
                self.known.borrow_mut().insert(key, action);
                action
            }
        };
        choice.push((action, 1.0));
    }
}
