//! Tables: built in, read from a file, or made of arrays; and played.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bqrl_cli::{outputs, pictures};
use bqrl_lab::config::{ProblemConfig, StartState};
use bqrl_lab::given;
use bqrl_lab::task::Table;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_mdp::csv;
use bqrl_mdp::env::Env;
use bqrl_mdp::model::{self, Kernel, Model, Outcome};
use bqrl_mdp::tabular::TabularEnv;
use bqrl_mdp::trajectory::Observation;
use bqrl_runs::atomic;
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::convert::{os_error, value_error};
use crate::native;

/// Sizes of a table that fit in memory, whatever else is in it.
const MOST_STATES: usize = 10_000_000;
const MOST_ACTIONS: usize = 65_536;
const MOST_PAIRS: usize = 50_000_000;

/// (name, one line, parameters as (name, default, allowed, meaning)).
pub type Listed = (&'static str, &'static str, Vec<(&'static str, &'static str, String, &'static str)>);

/// The built-in problems.
#[pyfunction]
pub fn problems() -> Vec<Listed> {
    let list = bqrl_mdp::problems::list().iter();
    list.map(|info| {
        let parameters = info.parameters.iter();
        let parameters = parameters.map(|p| (p.name, p.default, p.allowed.to_string(), p.meaning)).collect();
        (info.name, info.summary, parameters)
    })
    .collect()
}

/// A finite-horizon Markov decision process.
#[pyclass(module = "bqrl._bqrl", frozen)]
pub struct Problem {
    pub inner: Arc<model::Problem>,
    /// How a configuration names it; `None` for a table made of arrays.
    pub config: Option<ProblemConfig>,
}

#[pymethods]
impl Problem {
    /// A built-in problem, or an MDP file.
    #[staticmethod]
    #[pyo3(signature = (name, parameters, horizon=None, start=None, discount=None))]
    fn load(
        py: Python<'_>,
        name: String,
        parameters: BTreeMap<String, String>,
        horizon: Option<usize>,
        start: Option<String>,
        discount: Option<f64>,
    ) -> PyResult<Self> {
        let start = start.as_deref().map(StartState::from);
        let config = ProblemConfig { name, horizon, start, discount, parameters, ..ProblemConfig::default() };
        let problem = native::detached(py, || config.load().map_err(value_error))?;
        Ok(Self { inner: Arc::new(problem), config: Some(config) })
    }

    /// Outcomes (s, a, p, s', r, terminated), one per row of the arrays, as Gymnasium's toy-text tables have them.
    ///
    /// A state that is entered only by outcomes that end the episode is terminal. Where an ending outcome leads to a
    /// state in which play can also go on, it is led to one terminal state more instead.
    #[staticmethod]
    #[pyo3(signature = (name, n_states, n_actions, rows, start, horizon, discount))]
    fn from_rows(
        py: Python<'_>,
        name: String,
        n_states: usize,
        n_actions: usize,
        rows: Rows<'_>,
        start: Vec<(usize, f64)>,
        horizon: usize,
        discount: f64,
    ) -> PyResult<Self> {
        let rows = rows.read()?;
        let tabulate = || tabulate(name, n_states, n_actions, rows, &start, horizon, discount);
        let problem = native::detached(py, tabulate)?;
        Ok(Self { inner: Arc::new(problem), config: None })
    }

    /// The table as arrays (s, a, p, s', r, terminated).
    fn rows<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let model = &self.inner.model;
        if !model.is_stationary() {
            return Err(value_error(format!("{} has another table at every stage", self.inner.name)));
        }
        let mut columns = (vec![], vec![], vec![], vec![], vec![], vec![]);
        for state in 0..model.n_states() {
            for action in 0..model.n_actions() {
                for outcome in model.outcomes(0, state, action) {
                    columns.0.push(state as i64);
                    columns.1.push(action as i64);
                    columns.2.push(outcome.probability);
                    columns.3.push(outcome.next as i64);
                    columns.4.push(outcome.reward);
                    columns.5.push(model.is_terminal(0, outcome.next));
                }
            }
        }
        (
            columns.0.into_pyarray(py),
            columns.1.into_pyarray(py),
            columns.2.into_pyarray(py),
            columns.3.into_pyarray(py),
            columns.4.into_pyarray(py),
            columns.5.into_pyarray(py),
        )
            .into_pyobject(py)
    }

    /// Whether it is learned on natively: a run directory can name it, and every action can be taken everywhere.
    #[getter]
    fn is_native(&self) -> bool {
        self.config.is_some() && Table::new((*self.inner).clone()).is_ok()
    }

    #[getter]
    fn name(&self) -> &str {
        &self.inner.name
    }

    #[getter]
    fn n_states(&self) -> usize {
        self.inner.model.n_states()
    }

    #[getter]
    fn n_actions(&self) -> usize {
        self.inner.model.n_actions()
    }

    #[getter]
    fn horizon(&self) -> usize {
        self.inner.model.horizon()
    }

    #[getter]
    fn discount(&self) -> f64 {
        self.inner.model.discount()
    }

    /// (state, probability) pairs.
    #[getter]
    fn start(&self) -> Vec<(usize, f64)> {
        self.inner.model.start().to_vec()
    }

    #[getter]
    fn states(&self) -> Vec<String> {
        self.inner.states.clone()
    }

    #[getter]
    fn actions(&self) -> Vec<String> {
        self.inner.actions.clone()
    }

    #[getter]
    fn ordered(&self) -> bool {
        self.inner.ordered
    }

    /// The smallest and the largest reward of a step.
    #[getter]
    fn reward_bounds(&self) -> Option<(f64, f64)> {
        TabularEnv::new(self.inner.clone()).spec().reward_bounds
    }

    /// Whether the probabilities are estimates from counts.
    #[getter]
    fn is_counted(&self) -> bool {
        self.inner.data.counts.is_some()
    }

    /// How often each outcome was seen, as columns (stage, state, action, next state, reward, count, probability), states and actions by
    /// their names; `None` if the probabilities are no estimates.
    fn counts<'py>(&self, py: Python<'py>) -> Option<Counted<'py>> {
        let problem = &*self.inner;
        let counts = problem.data.counts.as_ref()?;
        let (mut stages, mut states, mut actions, mut nexts) = (vec![], vec![], vec![], vec![]);
        let (mut rewards, mut seen, mut shares) = (vec![], vec![], vec![]);
        for kernel in 0..counts.n_kernels() {
            for (state, from) in problem.states.iter().enumerate() {
                for (action, name) in problem.actions.iter().enumerate() {
                    let tried = counts.tried(kernel, state, action) as f64;
                    for outcome in counts.seen(kernel, state, action) {
                        stages.push(kernel as i64);
                        states.push(from.clone());
                        actions.push(name.clone());
                        nexts.push(problem.states[outcome.next as usize].clone());
                        rewards.push(outcome.reward);
                        seen.push(outcome.count as i64);
                        shares.push(outcome.count as f64 / tried);
                    }
                }
            }
        }
        let staged = (counts.n_kernels() > 1).then(|| stages.into_pyarray(py));
        let (rewards, seen, shares) =
            (rewards.into_pyarray(py), seen.into_pyarray(py), shares.into_pyarray(py));
        Some((staged, states, actions, nexts, rewards, seen, shares))
    }

    /// How often each action was tried, as SVG.
    fn counts_svg(&self) -> PyResult<String> {
        let figure = pictures::counts(&self.inner);
        let none = || value_error(format!("{} has no counts", self.inner.name));
        figure.map(|figure| figure.svg().to_owned()).ok_or_else(none)
    }

    /// What a state is, in a word.
    #[getter]
    fn state_axis(&self) -> &'static str {
        self.inner.state_axis()
    }

    /// The labels of the states in figures.
    #[getter]
    fn state_labels(&self) -> Vec<String> {
        self.inner.state_labels().to_vec()
    }

    /// Of a grid world: the number of columns, and a letter per cell.
    #[getter]
    fn grid(&self) -> Option<(usize, String)> {
        self.inner.data.look.grid.as_ref().map(|grid| (grid.columns, grid.letters.clone()))
    }

    /// Writes the table as an MDP file, with counts if it has them.
    fn write(&self, py: Python<'_>, path: PathBuf, overwrite: bool) -> PyResult<()> {
        if !overwrite {
            crate::planning::free(&path, outputs::Kind::Fitted)?;
        }
        let fill = |out: &mut dyn io::Write| {
            csv::write(&self.inner, out).map_err(|error| io::Error::other(error.to_string()))
        };
        native::detached(py, || atomic::write_with(&path, fill).map_err(os_error))
    }

    /// The actions available in a state at a stage.
    fn available(&self, stage: usize, state: usize) -> PyResult<Vec<usize>> {
        if state >= self.n_states() {
            return Err(value_error(format!("state must be below {}, got {state}", self.n_states())));
        }
        if stage >= self.horizon() {
            return Err(value_error(format!("stage must be below {}, got {stage}", self.horizon())));
        }
        Ok(self.inner.model.actions(stage, state).collect())
    }
}

type Ints<'py> = Bound<'py, PyArray1<i64>>;
type Floats<'py> = Bound<'py, PyArray1<f64>>;
type Counted<'py> =
    (Option<Ints<'py>>, Vec<String>, Vec<String>, Vec<String>, Floats<'py>, Ints<'py>, Floats<'py>);

/// The index of a state or an action, given by its name. A number is a name where names are numbers, and otherwise an index.
pub fn place(names: &[String], what: &str, given: &Bound<'_, PyAny>) -> PyResult<usize> {
    let text = given.str()?.to_string();
    let whole = text.parse::<f64>().ok().filter(|x| x.fract() == 0.0 && x.abs() < 1e15);
    let text = whole.map_or(text, |x| format!("{}", x + 0.0));
    given::place(names, &text).ok_or_else(|| {
        value_error(format!("there is no {what} {text:?}; there are {}", given::listed(names)))
    })
}

/// Names as Python would write them: whole numbers as `int`, other numbers as `float`, and text.
pub fn values<'py>(py: Python<'py>, names: &[String]) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let value = |name: &String| {
        if let Ok(whole) = name.parse::<i64>() {
            return Ok(whole.into_pyobject(py)?.into_any());
        }
        match name.parse::<f64>().ok().filter(|x| x.is_finite()) {
            Some(number) => Ok(number.into_pyobject(py)?.into_any()),
            None => Ok(name.into_pyobject(py)?.into_any()),
        }
    };
    names.iter().map(value).collect()
}

/// One column each.
#[derive(FromPyObject)]
pub struct Rows<'py>(
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, f64>,
    PyReadonlyArray1<'py, i64>,
    PyReadonlyArray1<'py, f64>,
    PyReadonlyArray1<'py, bool>,
);

/// (s, a, outcome, whether it ends the episode).
type Row = (usize, usize, Outcome, bool);

impl Rows<'_> {
    fn read(&self) -> PyResult<Vec<Row>> {
        let (s, a, p) = (self.0.as_array(), self.1.as_array(), self.2.as_array());
        let (next, r, ends) = (self.3.as_array(), self.4.as_array(), self.5.as_array());
        let n = s.len();
        if [a.len(), p.len(), next.len(), r.len(), ends.len()] != [n; 5] {
            return Err(value_error("the columns of a table must be equally long"));
        }
        let index = |what, value: i64| {
            usize::try_from(value)
                .map_err(|_| value_error(format!("{what} must not be negative, got {value}")))
        };
        (0..n)
            .map(|i| {
                let outcome =
                    Outcome { probability: p[i], next: index("next state", next[i])?, reward: r[i] };
                Ok((index("state", s[i])?, index("action", a[i])?, outcome, ends[i]))
            })
            .collect()
    }
}

fn tabulate(
    name: String,
    n_states: usize,
    n_actions: usize,
    mut rows: Vec<Row>,
    start: &[(usize, f64)],
    horizon: usize,
    discount: f64,
) -> PyResult<model::Problem> {
    if n_states > MOST_STATES || n_actions > MOST_ACTIONS || n_states * n_actions > MOST_PAIRS {
        return Err(value_error(format!(
            "a table may have at most {MOST_STATES} states, {MOST_ACTIONS} actions and {MOST_PAIRS} pairs of them, \
             got {n_states} states and {n_actions} actions"
        )));
    }
    if let Some((.., outcome, _)) = rows.iter().find(|(.., outcome, _)| outcome.next >= n_states) {
        let next = outcome.next;
        return Err(value_error(format!("next state {next} is out of range, there are {n_states} states")));
    }
    let mut terminal = vec![false; n_states];
    for (.., outcome, ends) in &rows {
        terminal[outcome.next] |= ends;
    }
    for (.., outcome, ends) in &rows {
        terminal[outcome.next] &= ends;
    }
    for &(state, _) in start {
        if let Some(entry) = terminal.get_mut(state) {
            *entry = false;
        }
    }
    let mut states: Vec<String> = (0..n_states).map(|s| s.to_string()).collect();
    if rows.iter().any(|(.., outcome, ends)| *ends && !terminal[outcome.next]) {
        states.push("end".to_owned());
        for (.., outcome, ends) in &mut rows {
            if *ends && !terminal[outcome.next] {
                outcome.next = n_states;
            }
        }
    }
    let rows = rows.into_iter().filter(|(s, ..)| !terminal.get(*s).copied().unwrap_or(false));
    let rows: Vec<_> = rows.map(|(s, a, outcome, _)| (s, a, outcome)).collect();
    let kernel = Kernel::new(states.len(), n_actions, rows).map_err(value_error)?;
    let model = Model::new(vec![kernel], horizon, discount, start.to_vec()).map_err(value_error)?;
    let actions = (0..n_actions).map(|a| a.to_string()).collect();
    Ok(model::Problem { name, model, states, actions, ordered: false, data: model::Data::default() })
}

/// A table being played.
#[pyclass(module = "bqrl._bqrl")]
pub struct Simulator {
    env: TabularEnv,
    rng: Rng,
    /// (h, s) while an episode is on.
    at: Option<(usize, usize)>,
}

#[pymethods]
impl Simulator {
    #[new]
    fn new(problem: &Problem, seed: u64) -> Self {
        Self { env: TabularEnv::new(problem.inner.clone()), rng: stream(seed, Purpose::Env), at: None }
    }

    /// Draws from another stream from now on.
    fn seed(&mut self, seed: u64) {
        self.rng = stream(seed, Purpose::Env);
    }

    /// Starts an episode.
    fn reset(&mut self) -> usize {
        let state = index(&self.env.reset(&mut self.rng));
        self.at = Some((0, state));
        state
    }

    /// (next state, reward, whether the episode is over).
    fn step(&mut self, action: i64) -> PyResult<(usize, f64, bool)> {
        let Some((stage, state)) = self.at else {
            return Err(PyRuntimeError::new_err("the episode is over or has not begun: reset first"));
        };
        let problem = self.env.problem();
        let n_actions = problem.model.n_actions();
        let known = usize::try_from(action).ok().filter(|&action| action < n_actions);
        let Some(action) = known else {
            return Err(PyValueError::new_err(format!("action must lie in 0..{n_actions}, got {action}")));
        };
        if problem.model.outcomes(stage, state, action).is_empty() {
            let (name, label) = (&problem.actions[action], &problem.states[state]);
            let message = format!("action {name:?} is not available in state {label:?} at stage {stage}");
            return Err(PyValueError::new_err(message));
        }
        let step = self.env.step(action, &mut self.rng);
        let state = index(&step.observation);
        self.at = (!step.end.is_over()).then_some((stage + 1, state));
        Ok((state, step.reward, step.end.is_over()))
    }
}

fn index(observation: &Observation) -> usize {
    match observation {
        Observation::Index(state) => *state,
        _ => unreachable!("a table shows indices"),
    }
}
