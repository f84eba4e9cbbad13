//! `Learner.learn`: a training in the hands of Python, until its end or until the watcher stops it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use bqrl_agents::Agent;
use bqrl_agents::play::PlayError;
use bqrl_lab::task::{References, Table, Task};
use bqrl_lab::train::{Ended, Progress, Training};
use pyo3::exceptions::PyFloatingPointError;
use pyo3::prelude::*;

use super::{Learner, State};
use crate::convert::value_error;
use crate::lanes::{PyTask, py_error};
use crate::native::{self, PATIENCE};
use crate::run::{Course, Log, Run};

/// Held while some thread is in `learn`.
pub(super) struct Busy<'a>(pub(super) &'a AtomicBool);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl Learner {
    /// `learn`, without Python.
    pub(super) fn train(
        &self,
        lanes: Option<Py<PyAny>>,
        watch: &Py<PyAny>,
        steps: Option<u64>,
        episodes: Option<u64>,
        log: Option<Log>,
        actions: Option<Vec<usize>>,
    ) -> PyResult<()> {
        let mut config = self.config.clone();
        (config.run.steps, config.run.episodes) = (steps, episodes.map(|n| n as usize));
        let follows_log = actions.is_some();
        let State { progress, play, log: earlier, .. } = self.state().clone();
        let clock = progress.clock;
        let run =
            log.as_ref().map(|log| Run::open(log, &mut config, earlier.as_deref(), clock)).transpose()?;
        let evaluation =
            log.as_ref().and_then(|log| Python::attach(|py| Some(log.evaluation.as_ref()?.clone_ref(py))));
        let task: Arc<dyn Task> = match &self.table {
            Some(problem) if actions.is_none() => {
                Arc::new(Table::new((**problem).clone()).map_err(value_error)?)
            }
            _ => Arc::new(PyTask::new(self.environment.nature(), lanes, evaluation)),
        };
        let levels = config.levels().map_err(value_error)?;
        let references = Arc::new(match &run {
            Some(_) => native::run(|stop| References::planned(&*task, levels, &|_, _, _| stop.ask()))?,
            None => References::none(levels),
        });
        let agent: Box<dyn Agent> = Box::new(match actions {
            Some(actions) => self.agent.following(actions),
            None => self.agent.clone(),
        });
        let here = |error| py_error(error, clock.episodes + 1);
        let mut training = Training::new(task, references, agent, &config.run, self.seed).map_err(here)?;
        let Progress { recent, recent_lengths, .. } = progress;
        let progress = Progress { clock, recent, recent_lengths, ..training.progress.clone() };
        match play.filter(|_| !follows_log) {
            Some(play) => training.restore(progress, play).map_err(value_error)?,
            None => training.progress = progress,
        }
        let mut course = match (run, log) {
            (Some(run), Some(log)) => {
                // From here on the directory is this model's.
                self.state().log = Some(log.path);
                Course::logged(run, &config, training, &self.saved())?
            }
            _ => Course::Plain { training: Box::new(training), length: config.run.length() },
        };
        let result = self.attend(watch, &mut course, follows_log);
        // The learned state is kept, however the training ended.
        self.take(course.training(), follows_log);
        let ended = course.end(result.as_ref().err());
        result.and(ended)
    }

    /// Ticks until the end, until the watcher stops it, or until something goes wrong.
    fn attend(&self, watch: &Py<PyAny>, course: &mut Course, follows_log: bool) -> PyResult<()> {
        let (on_step, on_episode) = Python::attach(|py| {
            let method = |name: &str| -> PyResult<Option<Py<PyAny>>> {
                let method = watch.bind(py).getattr(name)?;
                Ok((!method.is_none()).then(|| method.unbind()))
            };
            Ok::<_, PyErr>((method("on_step")?, method("on_episode")?))
        })?;
        let mut looked = Instant::now();
        while !course.is_done() {
            native::go_on()?;
            let before = course.training().progress.clock.steps;
            let ended = {
                let _tick = self.table.is_some().then(|| self.tick.lock());
                let ended = course.tick()?;
                self.take(course.training(), follows_log);
                ended
            };
            let steps = course.training().progress.clock.steps - before;
            // Python is entered only where it must be: other threads may be using it. Signals are seen there.
            let watched = on_step.is_some() || (on_episode.is_some() && !ended.is_empty());
            if !watched && looked.elapsed() < PATIENCE {
                continue;
            }
            looked = Instant::now();
            let stop = Python::attach(|py| {
                py.check_signals()?;
                let mut stop = false;
                if let Some(on_step) = &on_step {
                    for _ in 0..steps {
                        stop |= on_step.bind(py).call0()?.is_truthy()?;
                    }
                }
                if let Some(on_episode) = &on_episode {
                    for Ended { row, undiscounted } in &ended {
                        let told = on_episode.bind(py).call1((row.episode, *undiscounted, row.length))?;
                        stop |= told.is_truthy()?;
                    }
                }
                Ok::<_, PyErr>(stop)
            })?;
            if stop {
                break;
            }
        }
        Ok(())
    }

    /// Takes over where a training stands. The lanes of the environment stay where they are while a log is followed.
    fn take(&self, training: &Training, follows_log: bool) {
        let mut state = self.state();
        state.progress.clone_from(&training.progress);
        if !follows_log {
            state.play = Some(training.play.save());
        }
    }
}

/// An error of play as the exception that Python expects.
pub fn failed(error: PlayError, episode: u64, update: u64) -> PyErr {
    match error {
        PlayError::Env(error) => py_error(error, episode),
        PlayError::Learn(error) => {
            PyFloatingPointError::new_err(format!("episode {episode}, update {update}: {error}"))
        }
    }
}
