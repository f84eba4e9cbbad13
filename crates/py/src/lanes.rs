//! An environment of Python as lanes of the one play loop.
//!
//! The Python half hands in an adapter (`bqrl._lanes`) with three methods; rows are one per lane:
//!
//! ```text
//! start(seeds)          every lane begins, with these seeds: the first observations
//! reset(lane, seed)     the first observation of a later episode, or None: it comes with the next step
//! step(actions)         per lane: None, (observation,) of a new episode, or (observation, reward, terminated, truncated)
//! ```
//!
//! An exception of the environment passes through unchanged; what the agent cannot use is a `ValueError` or a `TypeError`
//! that says where it came from.

use std::error::Error;
use std::fmt;

use bqrl_lab::task::Task;
use bqrl_math::rng::{Purpose, Rng, RngState, lane_stream};
use bqrl_mdp::env::{EnvSpec, Step};
use bqrl_mdp::lanes::{EnvError, Lanes, SavedLanes, Seen};
use bqrl_mdp::model::Problem;
use bqrl_mdp::trajectory::{End, Observation};
use numpy::{PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyList, PyTuple};

use crate::convert::{one_line, shown, type_error, value_error};
use crate::native;
use crate::observation::Format;

/// The facts about the environment that lanes need.
#[derive(Clone)]
pub struct Nature {
    /// As the agent knows it.
    pub spec: EnvSpec,
    /// How observations are read.
    pub format: Format,
}

/// Lanes of a Python environment.
pub struct PyLanes {
    nature: Nature,
    adapter: Py<PyAny>,
    n: usize,
    evaluates: bool,
    /// Seeds the episodes of each lane.
    seeds: Vec<Rng>,
    /// First observations that no episode has begun with yet; `None` before the start.
    first: Option<Vec<Option<Observation>>>,
    /// Steps of the open episodes.
    stages: Vec<usize>,
}

/// An observation or reward that the agent cannot use.
#[derive(Debug)]
struct Refused {
    /// Which environment, where there are several; whether it was being evaluated.
    place: Option<String>,
    step: usize,
    error: PyErr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let message = Python::attach(|py| self.error.value(py).to_string());
        write!(f, "step {}: {}", self.step, one_line(&message))
    }
}

impl Error for Refused {}

/// A reward. An array of one number counts as that number.
fn reward(given: &Bound<'_, PyAny>) -> PyResult<f64> {
    let py = given.py();
    let given = item(given)?;
    match given.extract::<f64>() {
        // The replay would have it as infinite, and nothing could be learned from it any more.
        Ok(reward) if reward.is_finite() && reward.abs() > f64::from(f32::MAX) => {
            Err(value_error(format!("want a finite reward of single precision, got {reward:e}")))
        }
        Ok(reward) if reward.is_finite() => Ok(reward),
        Ok(reward) => Err(value_error(format!("want a finite reward, got {reward}"))),
        Err(error) if error.is_instance_of::<PyOverflowError>(py) => {
            Err(value_error("want a finite reward, got a whole number beyond 1e308"))
        }
        Err(error) if error.is_instance_of::<PyTypeError>(py) => {
            Err(type_error(format!("want a number as reward, got {}", given.get_type())))
        }
        // An exception of the reward's own.
        Err(error) => Err(error),
    }
}

/// Whether an episode ended: a truth value, or 0 or 1 in any of NumPy's types.
fn flag(name: &str, given: &Bound<'_, PyAny>) -> PyResult<bool> {
    if let Ok(flag) = given.cast::<PyBool>() {
        return Ok(flag.is_true());
    }
    let given = item(given)?;
    match given.extract::<f64>() {
        Ok(0.0) => Ok(false),
        Ok(1.0) => Ok(true),
        _ => Err(type_error(format!("want True or False as {name}, got {}", shown(&given)))),
    }
}

/// The number in an array of one, or the value itself.
fn item<'py>(given: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match given.cast::<PyUntypedArray>() {
        // Not of a class of its own: a masked number is none.
        Ok(array) if array.len() == 1 && given.is_exact_instance_of::<PyUntypedArray>() => {
            given.call_method0(intern!(given.py(), "item"))
        }
        _ => Ok(given.clone()),
    }
}

/// The exception as an error of the environment.
fn env_error(error: PyErr) -> EnvError {
    EnvError(Box::new(error))
}

/// The exception again, or one that says where the environment showed what cannot be used.
pub fn py_error(error: EnvError, episode: u64) -> PyErr {
    let other = match error.0.downcast::<PyErr>() {
        Ok(error) => return *error,
        Err(other) => other,
    };
    let refused = match other.downcast::<Refused>() {
        Ok(refused) => refused,
        Err(other) => return value_error(other),
    };
    let place = refused.place.clone().unwrap_or_else(|| format!("episode {episode}"));
    let message = format!("{place}, {refused}");
    if Python::attach(|py| refused.error.is_instance_of::<PyTypeError>(py)) {
        type_error(message)
    } else {
        value_error(message)
    }
}

impl PyLanes {
    /// From an adapter; episodes are seeded from the stream of this purpose.
    pub fn new(nature: Nature, adapter: Bound<'_, PyAny>, seed: u64, purpose: Purpose) -> PyResult<Self> {
        let n: usize = adapter.getattr(intern!(adapter.py(), "n"))?.extract()?;
        Ok(Self {
            nature,
            adapter: adapter.unbind(),
            n,
            evaluates: purpose == Purpose::Evaluation,
            seeds: (0..n).map(|lane| lane_stream(seed, purpose, lane)).collect(),
            first: None,
            stages: vec![0; n],
        })
    }

    fn next_seed(&mut self, lane: usize) -> u64 {
        self.seeds[lane].below(1 << 31) as u64
    }

    fn read(&self, lane: usize, step: usize, seen: &Bound<'_, PyAny>) -> Result<Observation, EnvError> {
        self.nature.format.read(seen).map_err(|error| self.refused(lane, step, error))
    }

    /// One lane's result.
    fn seen(&mut self, lane: usize, result: &Bound<'_, PyAny>) -> Result<Seen, EnvError> {
        if result.is_none() {
            return Ok(Seen::Nothing);
        }
        let row = result.cast::<PyTuple>().map_err(|error| env_error(error.into()))?;
        let cell = |k: usize| row.get_item(k).map_err(env_error);
        if row.len() == 1 {
            self.stages[lane] = 0;
            return Ok(Seen::Start(self.read(lane, 0, &cell(0)?)?));
        }
        let stage = self.stages[lane] + 1;
        let refused = |error| self.refused(lane, stage, error);
        let reward = reward(&cell(1)?).map_err(refused)?;
        let observation = self.read(lane, stage, &cell(0)?)?;
        let terminated = flag("terminated", &cell(2)?).map_err(refused)?;
        let truncated = flag("truncated", &cell(3)?).map_err(refused)?;
        let EnvSpec { horizon, horizon_is_task, .. } = self.nature.spec;
        let at_horizon = stage >= horizon;
        let end = if terminated {
            End::Terminated
        } else if at_horizon && horizon_is_task {
            End::Horizon
        } else if truncated || at_horizon {
            End::Cutoff
        } else {
            End::NotYet
        };
        self.stages[lane] = if end.is_over() { 0 } else { stage };
        Ok(Seen::Step(Step { observation, reward, end }))
    }

    /// Remembers where something came from. Another exception than a refusal is the environment's own.
    fn refused(&self, lane: usize, step: usize, error: PyErr) -> EnvError {
        let is_refusal = Python::attach(|py| {
            error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyValueError>(py)
        });
        if !is_refusal {
            return env_error(error);
        }
        let place = match (self.evaluates, self.n) {
            (true, _) => Some("evaluation".to_owned()),
            (false, 1) => None,
            (false, _) => Some(format!("environment {lane}")),
        };
        EnvError(Box::new(Refused { place, step, error }))
    }

    /// Every lane begins.
    fn start(&mut self, adapter: &Bound<'_, PyAny>) -> Result<(), EnvError> {
        let seeds: Vec<u64> = (0..self.n).map(|lane| self.next_seed(lane)).collect();
        let seen = adapter.call_method1(intern!(adapter.py(), "start"), (seeds,)).map_err(env_error)?;
        let seen = seen.cast::<PyList>().map_err(|error| env_error(error.into()))?;
        if seen.len() != self.n {
            let message = format!("want {} first observations, got {}", self.n, seen.len());
            return Err(env_error(value_error(message)));
        }
        let read = |(lane, seen): (usize, Bound<'_, PyAny>)| self.read(lane, 0, &seen).map(Some);
        self.first = Some(seen.iter().enumerate().map(read).collect::<Result<_, _>>()?);
        Ok(())
    }
}

impl Lanes for PyLanes {
    fn spec(&self) -> &EnvSpec {
        &self.nature.spec
    }

    fn n_lanes(&self) -> usize {
        self.n
    }

    fn reset(&mut self, lane: usize) -> Result<Option<Observation>, EnvError> {
        Python::attach(|py| {
            let adapter = self.adapter.clone_ref(py).into_bound(py);
            if self.first.is_none() {
                self.start(&adapter)?;
            }
            self.stages[lane] = 0;
            if let Some(waiting) = self.first.as_mut().and_then(|first| first[lane].take()) {
                return Ok(Some(waiting));
            }
            let seed = self.next_seed(lane);
            let seen = adapter.call_method1(intern!(py, "reset"), (lane, seed)).map_err(env_error)?;
            if seen.is_none() { Ok(None) } else { self.read(lane, 0, &seen).map(Some) }
        })
    }

    fn step(&mut self, actions: &[Option<usize>]) -> Result<Vec<Seen>, EnvError> {
        native::go_on().map_err(env_error)?;
        Python::attach(|py| {
            let adapter = self.adapter.clone_ref(py).into_bound(py);
            let results = PyList::new(py, actions)
                .and_then(|actions| adapter.call_method1(intern!(py, "step"), (actions,)))
                .map_err(env_error)?;
            let results = results.cast::<PyList>().map_err(|error| env_error(error.into()))?;
            results.iter().enumerate().map(|(lane, result)| self.seen(lane, &result)).collect()
        })
    }

    fn resumes_mid_episode(&self) -> bool {
        false
    }

    fn save(&self) -> SavedLanes {
        let position = |rng: &Rng| {
            let RngState { seed, stream, word_pos } = rng.state();
            [seed, stream, word_pos]
        };
        SavedLanes { envs: Vec::new(), rngs: self.seeds.iter().map(position).collect() }
    }

    /// In another number of lanes, those that were there before continue their streams.
    fn restore(&mut self, saved: &SavedLanes) -> Result<(), EnvError> {
        if !saved.envs.is_empty() {
            return Err(EnvError::new("the checkpoint is not of a Python environment"));
        }
        for (rng, &[seed, stream, word_pos]) in self.seeds.iter_mut().zip(&saved.rngs) {
            *rng = Rng::from_state(RngState { seed, stream, word_pos });
        }
        Ok(())
    }
}

/// A Python environment as a task: trained on through one adapter, evaluated through others.
pub struct PyTask {
    nature: Nature,
    training: Option<Py<PyAny>>,
    /// Makes an adapter for evaluation.
    evaluation: Option<Py<PyAny>>,
}

impl PyTask {
    /// With the adapter to train through and a function that makes one to evaluate through.
    pub fn new(nature: Nature, training: Option<Py<PyAny>>, evaluation: Option<Py<PyAny>>) -> Self {
        Self { nature, training, evaluation }
    }
}

impl Task for PyTask {
    fn spec(&self) -> &EnvSpec {
        &self.nature.spec
    }

    fn lanes(&self, seed: u64, purpose: Purpose, _n: usize) -> Result<Box<dyn Lanes>, EnvError> {
        Python::attach(|py| {
            let adapter = match (purpose, &self.evaluation, &self.training) {
                (Purpose::Evaluation, Some(make), _) => make.bind(py).call0()?,
                (Purpose::Evaluation, None, _) => {
                    return Err(PyValueError::new_err("there is no environment to evaluate in"));
                }
                (_, _, Some(adapter)) => adapter.bind(py).clone(),
                (_, _, None) => return Err(PyValueError::new_err("the model has no environment")),
            };
            Ok(Box::new(PyLanes::new(self.nature.clone(), adapter, seed, purpose)?) as Box<dyn Lanes>)
        })
        .map_err(env_error)
    }

    fn table(&self) -> Option<&Problem> {
        None
    }

    fn actions(&self) -> Vec<String> {
        (0..self.nature.spec.n_actions).map(|action| action.to_string()).collect()
    }
}
