//! `Sweep`: a sweep file, and its runs one at a time, for engines that live in Python.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bqrl_cli::terminal::say;
use bqrl_lab::run::Hooks;
use bqrl_lab::sweep::{self, State, SweepError, Trial};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;

use crate::convert::{one_line, value_error};
use crate::native;

/// How often Python is asked whether the user wants to stop.
const TICK: Duration = Duration::from_millis(100);

/// Read from a file's text; `origin` names it in messages.
#[pyclass(module = "bqrl._bqrl", frozen)]
pub struct Sweep {
    inner: sweep::Sweep,
}

fn python(error: SweepError) -> PyErr {
    if error.is_usage() { value_error(error) } else { PyRuntimeError::new_err(one_line(&error.to_string())) }
}

#[pymethods]
impl Sweep {
    #[new]
    fn new(text: &str, origin: &str) -> PyResult<Self> {
        Ok(Self { inner: sweep::Sweep::parse(text, origin).map_err(python)? })
    }

    fn __len__(&self) -> usize {
        self.inner.len()
    }

    /// The names of all runs, after a look at whether each can be made.
    fn names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let trials = native::detached(py, || native::run(|_| self.inner.trials()))?.map_err(python)?;
        Ok(trials.into_iter().map(|trial| trial.name).collect())
    }

    /// Whether run k is finished; runs with other settings in its place are an error.
    fn is_finished(&self, k: usize, out: PathBuf) -> PyResult<bool> {
        Ok(matches!(self.trial(k)?.state(&out).map_err(python)?, State::Finished(_)))
    }

    /// Makes run k, or resumes it. Ctrl-C stops it after a checkpoint.
    fn run(&self, py: Python<'_>, k: usize, out: PathBuf) -> PyResult<()> {
        let trial = self.trial(k)?;
        native::detached(py, || self.attend(&trial, &out))
    }

    /// Writes sweep.csv of what is finished; returns its path and the names of the other runs.
    fn collect(&self, py: Python<'_>, out: PathBuf) -> PyResult<(PathBuf, Vec<String>)> {
        let collect = || self.inner.collect(&self.inner.trials()?, &out);
        let (_, missing) = native::detached(py, || native::run(|_| collect()))?.map_err(python)?;
        Ok((out.join(sweep::TABLE), missing))
    }
}

impl Sweep {
    fn trial(&self, k: usize) -> PyResult<Trial> {
        if k >= self.inner.len() {
            return Err(PyValueError::new_err(format!("want a run below {}, got {k}", self.inner.len())));
        }
        self.inner.trial(k).map_err(python)
    }

    /// Signals are delivered to the thread that Python runs on, so that one waits and another works.
    #[allow(clippy::redundant_closure_for_method_calls)] // `Python::check_signals` has one lifetime, `attach` wants any.
    fn attend(&self, trial: &Trial, out: &std::path::Path) -> PyResult<()> {
        let pool = native::pool()?;
        let stop = AtomicBool::new(false);
        let (done, finished) = channel();
        std::thread::scope(|scope| {
            let worker = scope.spawn(|| {
                let hooks = Hooks {
                    stop: &stop,
                    watch: &|_| {},
                    warn: &|message| say(&format!("warning: {}: {message}", trial.name)),
                    clock: &|| {
                        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64())
                    },
                };
                // Dropped with this thread, however it ends: a panic is seen as a disconnection.
                let done = done;
                // Nobody listens only when the other thread is unwinding.
                let _ = done.send(pool.install(|| self.inner.run(trial, out, false, &hooks).map(drop)));
            });
            let mut signal = None;
            loop {
                match finished.recv_timeout(TICK) {
                    Ok(result) => return signal.map_or_else(|| result.map_err(python), Err),
                    Err(RecvTimeoutError::Disconnected) => {
                        // Joined, so that the panic ends here.
                        let _ = worker.join();
                        return Err(PyRuntimeError::new_err(format!("{}: the run panicked", trial.name)));
                    }
                    Err(RecvTimeoutError::Timeout) => {
                        if let Err(error) = Python::attach(|py| py.check_signals()) {
                            stop.store(true, Ordering::Relaxed);
                            signal = Some(error);
                        }
                    }
                }
            }
        })
    }
}
