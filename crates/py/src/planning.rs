//! `plan`: what `bqrl plan --json` says, and policies to follow.

use std::cell::RefCell;
use std::sync::Arc;

use bqrl_lab::plan::{DEFAULT_GRID, PlanError, Request, solve};
use bqrl_math::buffer::{Buffer, check_tau};
use bqrl_mdp::model;
use bqrl_mdp::plan::PlannedPolicy as Planned;
use bqrl_mdp::returns::TooManyReturns;
use bqrl_mdp::trajectory::AugmentedInput;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::convert::{json_to_py, value_error};
use crate::native;
use crate::problem::Problem;

/// (values, probabilities) of a law.
type Law<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>);
/// The report, a policy and the law of its return per level, and a note where returns were rounded unasked.
type Planning<'py> = (Bound<'py, PyAny>, Vec<PlannedPolicy>, Vec<Law<'py>>, Option<String>);

/// Plans every level; a buffered optimum where its β is given.
#[pyfunction]
#[pyo3(signature = (problem, levels, grid=None, refine=None, passes=None))]
pub fn plan<'py>(
    py: Python<'py>,
    problem: &Problem,
    levels: Vec<(f64, Option<f64>)>,
    grid: Option<usize>,
    refine: Option<usize>,
    passes: Option<usize>,
) -> PyResult<Planning<'py>> {
    if let Some(grid) = grid.filter(|grid| !(10..=10_000_000).contains(grid)) {
        return Err(value_error(format!("grid must lie in 10..=10000000, got {grid}")));
    }
    let level = |(tau, beta): (f64, Option<f64>)| {
        let tau = check_tau(tau)?;
        Ok((tau, beta.map(|beta| Buffer::new(tau, beta)).transpose()?))
    };
    let levels: Result<Vec<_>, bqrl_math::buffer::BufferError> = levels.into_iter().map(level).collect();
    let request = Request { levels: levels.map_err(value_error)?, grid, refine, passes, confidence: None };
    let work = |stop: &native::Stop| {
        let note = RefCell::new(None);
        let tell = |error: &TooManyReturns| {
            *note.borrow_mut() = Some(format!("{error}; returns were rounded to {DEFAULT_GRID} values"));
        };
        let progress = |_, _, _| stop.ask();
        let answer = solve(&problem.inner, &request, &progress, &tell)?;
        let report = answer.report(&problem.inner);
        let found = answer.solved.iter().map(|s| (s.policy().clone(), s.evaluation().law.clone()));
        Ok((report, found.collect::<Vec<_>>(), note.into_inner()))
    };
    let found = native::detached(py, || native::run(work))?;
    let (report, solved, note) = found.map_err(|error: PlanError| match error {
        PlanError::TooManyReturns(error) => value_error(format!(
            "{error}; grid={DEFAULT_GRID} rounds returns to that many values and gives bounds"
        )),
        error => value_error(error),
    })?;
    let json = serde_json::to_value(&report).expect("plain numbers and text serialise");
    let mut policies = Vec::with_capacity(solved.len());
    let mut laws = Vec::with_capacity(solved.len());
    for (policy, law) in solved {
        policies.push(PlannedPolicy { policy, problem: problem.inner.clone() });
        laws.push((law.values().to_vec().into_pyarray(py), law.probabilities().to_vec().into_pyarray(py)));
    }
    Ok((json_to_py(py, &json)?, policies, laws, note))
}

/// A planned policy on x = (h, s, c).
#[pyclass(module = "bqrl._bqrl", frozen)]
pub struct PlannedPolicy {
    policy: Planned,
    problem: Arc<model::Problem>,
}

#[pymethods]
impl PlannedPolicy {
    /// The action at stage h (from 0) in a state (its index), with c collected so far.
    fn action(&self, stage: usize, state: usize, collected: f64) -> PyResult<usize> {
        let model = &self.problem.model;
        let (horizon, n_states) = (model.horizon(), model.n_states());
        if stage >= horizon || state >= n_states || !collected.is_finite() {
            return Err(value_error(format!(
                "want stage below {horizon}, state below {n_states} and a finite collected reward, \
                 got {stage}, {state}, {collected}"
            )));
        }
        if model.is_terminal(stage, state) {
            let label = &self.problem.states[state];
            return Err(value_error(format!("state {label} is terminal: there is nothing to decide")));
        }
        Ok(self.policy.action(&AugmentedInput { stage, state, collected }))
    }
}
