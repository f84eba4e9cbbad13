//! `fit` and `simulate`: tables with counts, from logs and from simulators.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::log::{
    Binned, Columns, Fitted, Labelled, LogError, Options, Simulated, find_columns, fit, fit_columns, sample,
    unseen,
};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::convert::{shown, type_error, value_error};
use crate::native;
use crate::problem::Problem;

/// The table; (episodes, transitions); pairs that were never tried, by name; cut points; remarks.
type Fit = (Problem, (usize, usize), Vec<(String, String)>, Vec<(&'static str, Vec<f64>)>, Vec<String>);
/// Places of names, and the names.
type Named<'py> = (PyReadonlyArray1<'py, i64>, Vec<String>);

/// Which header is the episode, stage, state, action, reward, next state and end.
#[pyfunction]
pub fn log_columns(headers: Vec<String>) -> PyResult<Vec<Option<usize>>> {
    find_columns(&headers).map_err(value_error)
}

/// Fits a table to a log in a file.
#[pyfunction]
#[pyo3(signature = (path, by_stage, horizon, bins))]
pub fn fit_file(
    py: Python<'_>,
    path: PathBuf,
    by_stage: bool,
    horizon: Option<usize>,
    bins: Vec<(String, usize)>,
) -> PyResult<Fit> {
    let options = options(by_stage, horizon, &bins)?;
    native::detached(py, || {
        let name = path.display().to_string();
        let file = File::open(&path).map_err(|error| value_error(format!("reading {name}: {error}")))?;
        fit(file, &name, &options).map(found).map_err(|error| value_error(format!("reading {name}: {error}")))
    })
}

/// Fits a table to a log in memory.
#[pyfunction]
#[pyo3(signature = (name, episode, stage, state, action, reward, next_state, end, by_stage, horizon, bins))]
pub fn fit_arrays(
    py: Python<'_>,
    name: String,
    episode: Named<'_>,
    stage: Option<PyReadonlyArray1<'_, i64>>,
    state: Named<'_>,
    action: Named<'_>,
    reward: PyReadonlyArray1<'_, f64>,
    next_state: Option<Named<'_>>,
    end: Option<PyReadonlyArray1<'_, bool>>,
    by_stage: bool,
    horizon: Option<usize>,
    bins: Vec<(String, usize)>,
) -> PyResult<Fit> {
    let labelled = |(codes, labels): Named<'_>| Labelled { codes: codes.as_array().to_vec(), labels };
    let columns = Columns {
        episode: labelled(episode),
        stage: stage.map(|stage| stage.as_array().to_vec()),
        state: labelled(state),
        action: labelled(action),
        reward: reward.as_array().to_vec(),
        next_state: next_state.map(labelled),
        end: end.map(|end| end.as_array().to_vec()),
    };
    let options = options(by_stage, horizon, &bins)?;
    native::detached(py, || fit_columns(&columns, &name, &options).map(found).map_err(log_error))
}

fn log_error(error: LogError) -> PyErr {
    match error {
        LogError::TooManyPairs { .. } => {
            value_error(format!("{error}; bins={{\"state\": N}} puts states into N bins"))
        }
        error => value_error(error),
    }
}

fn options(by_stage: bool, horizon: Option<usize>, bins: &[(String, usize)]) -> PyResult<Options> {
    let bin = |(column, n): &(String, usize)| {
        let column = match &column[..] {
            "state" => Binned::State,
            "reward" => Binned::Reward,
            _ => return Err(value_error(format!("bins are for state or reward, got {column:?}"))),
        };
        Ok((column, *n))
    };
    Ok(Options { by_stage, horizon, bins: bins.iter().map(bin).collect::<PyResult<_>>()?, ends_known: false })
}

fn found(fitted: Fitted) -> Fit {
    let Fitted { problem, episodes, transitions, cuts, notes, .. } = fitted;
    let counts = problem.data.counts.as_ref().expect("a fitted table has counts");
    let name = |(s, a): (usize, usize)| (problem.states[s].clone(), problem.actions[a].clone());
    let missing = unseen(counts).into_iter().map(name).collect();
    let cuts = cuts.into_iter().map(|cut| match cut.column {
        Binned::State => ("state", cut.points),
        Binned::Reward => ("reward", cut.points),
    });
    let cuts = cuts.collect();
    (Problem { inner: Arc::new(problem), config: None }, (episodes, transitions), missing, cuts, notes)
}

/// Plays a simulator of Python with random actions, and fits a table to what it did.
#[pyfunction]
pub fn simulate<'py>(
    py: Python<'py>,
    name: String,
    step: Bound<'py, PyAny>,
    start: Bound<'py, PyAny>,
    actions: Bound<'py, PyAny>,
    rng: Bound<'py, PyAny>,
    horizon: usize,
    episodes: usize,
    seed: u64,
    by_stage: bool,
    bins: Vec<(String, usize)>,
) -> PyResult<Fit> {
    let options = Options { ends_known: true, ..options(by_stage, Some(horizon), &bins)? };
    let mut played = Played {
        step,
        start,
        actions,
        rng,
        states: Known::new(py),
        names: Known::new(py),
        fixed: None,
        asked: 0,
    };
    let mut columns = sample(&mut played, horizon, episodes, &mut stream(seed, Purpose::Agent))?;
    columns.state.labels = played.states.labels()?;
    columns.action.labels = played.names.labels()?;
    if let Some(next) = &mut columns.next_state {
        next.labels.clone_from(&columns.state.labels);
    }
    native::detached(py, || fit_columns(&columns, &name, &options).map(found).map_err(log_error))
}

/// Objects of Python, numbered as they appear.
struct Known<'py> {
    numbers: Bound<'py, PyDict>,
    objects: Vec<Bound<'py, PyAny>>,
}

impl<'py> Known<'py> {
    fn new(py: Python<'py>) -> Self {
        Self { numbers: PyDict::new(py), objects: Vec::new() }
    }

    fn number(&mut self, object: &Bound<'py, PyAny>) -> PyResult<u32> {
        if let Some(number) = self.numbers.get_item(object)? {
            return number.extract();
        }
        let number = self.objects.len() as u32;
        self.numbers.set_item(object, number)?;
        self.objects.push(object.clone());
        Ok(number)
    }

    fn labels(&self) -> PyResult<Vec<String>> {
        self.objects.iter().map(|object| Ok(object.str()?.to_string())).collect()
    }
}

/// A simulator of Python.
struct Played<'py> {
    step: Bound<'py, PyAny>,
    /// A state, or a function of the generator.
    start: Bound<'py, PyAny>,
    /// A list of actions, or a function of the state.
    actions: Bound<'py, PyAny>,
    rng: Bound<'py, PyAny>,
    states: Known<'py>,
    names: Known<'py>,
    /// The numbers of the actions, if they are the same everywhere.
    fixed: Option<Vec<u32>>,
    /// Steps so far.
    asked: u64,
}

impl Played<'_> {
    fn place(&self, state: u32, action: u32) -> String {
        let (state, action) = (&self.states.objects[state as usize], &self.names.objects[action as usize]);
        format!("step({}, {}, rng)", shown(state), shown(action))
    }
}

impl Simulated for Played<'_> {
    type Error = PyErr;

    fn start(&mut self) -> PyResult<u32> {
        let state =
            if self.start.is_callable() { self.start.call1((&self.rng,))? } else { self.start.clone() };
        self.states.number(&state)
    }

    fn actions(&mut self, state: u32) -> PyResult<Vec<u32>> {
        if let Some(actions) = &self.fixed {
            return Ok(actions.clone());
        }
        let varying = self.actions.is_callable();
        let listed = if varying {
            self.actions.call1((&self.states.objects[state as usize],))?
        } else {
            self.actions.clone()
        };
        let mut numbers = Vec::new();
        for action in listed.try_iter()? {
            numbers.push(self.names.number(&action?)?);
        }
        if numbers.is_empty() {
            let at = shown(&self.states.objects[state as usize]);
            return Err(value_error(format!(
                "there must be at least one action in every state, got none in {at}"
            )));
        }
        if !varying {
            self.fixed = Some(numbers.clone());
        }
        Ok(numbers)
    }

    fn step(&mut self, state: u32, action: u32) -> PyResult<(u32, f64, bool)> {
        // Ctrl-C is looked at now and then: a step may take a microsecond.
        self.asked += 1;
        if self.asked.is_multiple_of(1024) {
            self.step.py().check_signals()?;
        }
        let (from, name) = (&self.states.objects[state as usize], &self.names.objects[action as usize]);
        let answer = self.step.call1((from, name, &self.rng))?;
        let wrong = || {
            let place = self.place(state, action);
            type_error(format!(
                "{place} must return (next state, reward) or (next state, reward, end), got {}",
                shown(&answer)
            ))
        };
        let parts = answer.cast::<PyTuple>().map_err(|_| wrong())?;
        if !(2..=3).contains(&parts.len()) {
            return Err(wrong());
        }
        let reward: f64 = parts.get_item(1)?.extract().map_err(|_| wrong())?;
        if !reward.is_finite() {
            let place = self.place(state, action);
            return Err(value_error(format!("{place} must return a finite reward, got {reward}")));
        }
        let over = if parts.len() == 3 { parts.get_item(2)?.is_truthy()? } else { false };
        let next = parts.get_item(0)?;
        Ok((self.states.number(&next)?, reward, over))
    }
}
