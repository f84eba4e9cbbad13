//! The files of a run, and what returns are worth.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bqrl_math::buffer::Buffer;
use bqrl_math::interval::quantile_interval;
use bqrl_math::law::ReturnLaw;
use bqrl_runs::events::EventWriter;
use bqrl_runs::log::AppendLog;
use bqrl_runs::monitor;
use bqrl_runs::run_dir::EPISODES_HEADER;
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::value_error;

/// Episodes over which `rollout/…` is averaged, as Stable-Baselines3 does.
const WINDOW: usize = 100;

/// Mean, Q_τ and Q_τ^β of a law.
pub fn worth<'py>(
    py: Python<'py>,
    law: &ReturnLaw,
    mean: f64,
    buffer: &Buffer,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("mean", mean)?;
    dict.set_item("quantile", law.quantile(buffer.tau()))?;
    dict.set_item("buffered_quantile", law.buffered_quantile(buffer))?;
    dict.set_item("values", law.values().to_vec().into_pyarray(py))?;
    dict.set_item("probabilities", law.probabilities().to_vec().into_pyarray(py))?;
    Ok(dict)
}

/// The same of a sample, with a distribution-free interval of Q_τ; `None` when the sample is too small for one.
#[pyfunction]
pub fn summary<'py>(
    py: Python<'py>,
    returns: PyReadonlyArray1<'py, f64>,
    level: (f64, f64),
    confidence: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let buffer = Buffer::new(level.0, level.1).map_err(value_error)?;
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(value_error(format!("confidence must lie in (0, 1), got {confidence}")));
    }
    let returns = returns.as_array().to_vec();
    let law = ReturnLaw::from_samples(&returns).map_err(value_error)?;
    let dict = worth(py, &law, law.mean(), &buffer)?;
    let interval = quantile_interval(&returns, buffer.tau(), confidence);
    dict.set_item("interval", interval.map(|interval| (interval.low, interval.high)))?;
    Ok(dict)
}

/// `episodes.csv`, `monitor.csv` and TensorBoard events.
#[pyclass(module = "bqrl._bqrl")]
pub struct Recorder {
    logs: Option<Logs>,
    start: f64,
    recent: VecDeque<(f64, u64)>,
}

struct Logs {
    episodes: AppendLog,
    monitor: AppendLog,
    events: EventWriter,
}

fn files(dir: &Path) -> (PathBuf, PathBuf) {
    (dir.join("episodes.csv"), dir.join("monitor.csv"))
}

#[pymethods]
impl Recorder {
    /// Starts the files, or goes on where `positions` (of an earlier recorder) say.
    #[new]
    #[pyo3(signature = (path, name, now, positions=None))]
    fn new(path: PathBuf, name: &str, now: f64, positions: Option<(u64, u64, u64, f64)>) -> PyResult<Self> {
        std::fs::create_dir_all(&path)?;
        let (episodes, monitor) = files(&path);
        let (logs, start) = if let Some((at, monitor_at, events_at, start)) = positions {
            let logs = Logs {
                episodes: AppendLog::resume(&episodes, at)?,
                monitor: AppendLog::resume(&monitor, monitor_at)?,
                events: EventWriter::resume(&path, events_at)?,
            };
            (logs, start)
        } else {
            let logs = Logs {
                episodes: AppendLog::create(&episodes, EPISODES_HEADER)?,
                monitor: monitor::create(&monitor, now, name)?,
                events: EventWriter::create(&path, now)?,
            };
            (logs, now)
        };
        Ok(Self { logs: Some(logs), start, recent: VecDeque::new() })
    }

    /// One finished episode.
    fn episode(&mut self, episode: u64, episode_return: f64, length: u64, now: f64) -> PyResult<()> {
        if self.recent.len() == WINDOW {
            self.recent.pop_front();
        }
        self.recent.push_back((episode_return, length));
        let start = self.start;
        let logs = self.logs()?;
        logs.episodes.append(&format!("{episode},{episode_return},{length}"))?;
        logs.monitor.append(&monitor::row(episode_return, length, now - start))?;
        Ok(())
    }

    /// A point of the usual curves.
    fn point(&mut self, now: f64, timesteps: u64, episodes: u64, updates: u64, fps: f64) -> PyResult<()> {
        let n = self.recent.len().max(1) as f64;
        let mean_return = self.recent.iter().map(|(r, _)| r).sum::<f64>() / n;
        let mean_length = self.recent.iter().map(|&(_, l)| l as f64).sum::<f64>() / n;
        let events = &mut self.logs()?.events;
        for (tag, value) in [
            ("rollout/ep_rew_mean", mean_return),
            ("rollout/ep_len_mean", mean_length),
            ("time/episodes", episodes as f64),
            ("time/fps", fps),
            ("train/n_updates", updates as f64),
        ] {
            events.scalar(now, timesteps, tag, value)?;
        }
        Ok(())
    }

    /// A point of a curve of the caller's.
    fn scalar(&mut self, now: f64, timesteps: u64, tag: &str, value: f64) -> PyResult<()> {
        Ok(self.logs()?.events.scalar(now, timesteps, tag, value)?)
    }

    /// Waits for the disk, and says where the files end.
    fn sync(&mut self) -> PyResult<(u64, u64, u64, f64)> {
        let start = self.start;
        let logs = self.logs()?;
        logs.episodes.sync()?;
        logs.monitor.sync()?;
        logs.events.sync()?;
        Ok((logs.episodes.position(), logs.monitor.position(), logs.events.position(), start))
    }

    /// Closes the files.
    fn close(&mut self) -> PyResult<()> {
        if self.logs.is_some() {
            self.sync()?;
            self.logs = None;
        }
        Ok(())
    }
}

impl Recorder {
    fn logs(&mut self) -> PyResult<&mut Logs> {
        self.logs.as_mut().ok_or_else(|| PyRuntimeError::new_err("the recorder is closed"))
    }
}
