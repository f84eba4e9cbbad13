//! An agent in the hands of Python.
//!
//! | call | does |
//! |---|---|
//! | `learn` | trains through the one play loop, on a table or on a Python environment; with a run directory where one is given |
//! | `predict` | what the agent would do, learning nothing |
//! | `evaluate`, `play` | what its policy is worth: exactly on a table, or by playing |
//! | `save`, `load`, `load_run` | a model's own directory, and the runs of the command line |
//!
//! Python is let go while the agent acts and learns.

mod train;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bqrl_agents::play::SavedPlay;
use bqrl_agents::{Agent, Input, Memo, Objective, Part, ServedPolicy, Target};
use bqrl_lab::config::{Config, Layers, ProblemConfig};
use bqrl_lab::evaluate::play;
use bqrl_lab::run::make_agent;
use bqrl_lab::task::{Table, Task};
use bqrl_lab::train::Progress;
use bqrl_math::buffer::Buffer;
use bqrl_mdp::evaluate::{Evaluator, Policy};
use bqrl_mdp::trajectory::{AugmentedInput, Observation};
use bqrl_runs::model_dir::ModelDir;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};

use crate::convert::{level_error, os_error, setting_error, to_toml, value_error};
use crate::described::Described;
use crate::lanes::PyTask;
use crate::law::Law;
use crate::native::{self, Stop};
use crate::observation::Format;
use crate::problem::Problem;
use crate::run::Log;
use crate::saved::{self, FORMAT, Saved, plausible};
use crate::shared::{Shared, Turns};
use train::Busy;
pub use train::failed;

/// Stages in the state of `predict` are below this, so that γ^h can be had.
const LAST_STAGE: f64 = 2_147_483_647.0;

/// The part that changes while the agent learns.
#[derive(Clone, Default)]
struct State {
    progress: Progress,
    /// The lanes as the last call of `learn` left them.
    play: Option<SavedPlay>,
    extra: String,
    /// The run directory that `progress` belongs to.
    log: Option<PathBuf>,
}

/// An agent in the hands of Python.
#[pyclass(module = "bqrl._bqrl", frozen)]
pub struct Learner {
    agent: Shared,
    config: Config,
    environment: Described,
    /// The table that it learns on, where the environment is one of ours.
    table: Option<Arc<bqrl_mdp::model::Problem>>,
    seed: u64,
    state: Mutex<State>,
    /// Held during a tick on a table, and during a save.
    tick: Turns<()>,
    /// Whether some thread is in `learn`.
    busy: AtomicBool,
}

/// Returns, plain sums of rewards, and lengths of episodes.
type Played<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<i64>>);

/// Mean, standard deviation and number of observations.
type SeenMoments<'py> = (Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<f64>>, u64);

/// Actions and the state after them.
type Predicted<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray2<f64>>);

#[pymethods]
impl Learner {
    /// An untrained agent. `settings` override keys of the preset's agent section. With `problem`, the environment is that
    /// table itself, which is then played natively. `arguments` are those of the environment, for the run's settings.
    #[new]
    #[pyo3(signature = (algo, settings, risk_levels, betas, environment, n_lanes, seed, problem=None, normalize_observations=true, arguments=BTreeMap::new()))]
    fn new(
        algo: &str,
        settings: &Bound<'_, PyDict>,
        risk_levels: Vec<f64>,
        betas: Vec<f64>,
        environment: Described,
        n_lanes: usize,
        seed: u64,
        problem: Option<PyRef<'_, Problem>>,
        normalize_observations: bool,
        arguments: BTreeMap<String, String>,
    ) -> PyResult<Self> {
        let observations = environment.observations.space();
        let mut layers = Layers::preset_for(algo, &observations).map_err(value_error)?;
        let whole = |seed| i64::try_from(seed).map_err(|_| value_error("seed must be below 2^63"));
        layers.set("run", "tau", risk_levels);
        layers.set("run", "beta", betas);
        layers.set("run", "seeds", vec![whole(seed)?]);
        layers.set("run", "lanes", whole(n_lanes as u64)?);
        for (key, value) in settings {
            let key: String = key.extract()?;
            layers.set("agent", &key, to_toml(&key, &value)?);
        }
        let named = problem.as_ref().and_then(|problem| problem.config.clone());
        let mut named = named.unwrap_or(ProblemConfig {
            name: environment.name.clone(),
            python: true,
            // With these, a seed that has not begun can be begun by whoever resumes the run.
            horizon: Some(environment.horizon),
            discount: (environment.gamma < 1.0).then_some(environment.gamma),
            parameters: arguments,
            ..ProblemConfig::default()
        });
        named.normalize_observations = (!normalize_observations).then_some(false);
        layers.set_problem(&named);
        let config = layers.finish(algo).map_err(setting_error)?;
        Self::make(config, environment, problem.map(|problem| problem.inner.clone()), seed)
    }

    /// Restores what [`save`](Self::save) wrote.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        native::detached(py, || {
            let loaded = ModelDir::at(&path).load().map_err(os_error)?;
            let named = path.display();
            let loaded = loaded.ok_or_else(|| value_error(format!("{named}: there is no saved model")))?;
            let wrong = |error: &dyn std::fmt::Display| value_error(format!("{named}: {error}"));
            let json = loaded.part("model.json").ok_or_else(|| wrong(&"model.json: missing"))?;
            Self::from_saved(&json, &|name| loaded.part(name))
                .map_err(|error| wrong(&Python::attach(|py| error.value(py).to_string())))
        })
    }

    /// One seed of a run directory, as its last checkpoint left it.
    #[staticmethod]
    #[pyo3(signature = (path, seed=None))]
    fn load_run(py: Python<'_>, path: PathBuf, seed: Option<u64>) -> PyResult<Self> {
        native::detached(py, || {
            let named = path.display();
            let wrong = |error: &dyn std::fmt::Display| value_error(format!("{named}: {error}"));
            let run = crate::run::open(&path, seed).map_err(|error| wrong(&error))?;
            // One of several seeds cannot go on by itself in their directory.
            let log = (run.n_seeds == 1).then(|| path.clone());
            let (environment, table, extra) = if let Some(json) = &run.model {
                let saved = Saved::read(json).map_err(|error| wrong(&error))?;
                (saved.environment, None, saved.extra)
            } else {
                let problem = run.config.problem.load().map_err(|error| wrong(&error))?;
                let table = Table::new(problem.clone()).map_err(|error| wrong(&error))?;
                (Described::of_table(&problem.name, table.spec()), Some(Arc::new(problem)), String::new())
            };
            let learner = Self::make(run.config, environment, table, run.seed)?;
            let part = |name: &str| run.checkpoint.part(name);
            learner.agent.lock().restore(&part).map_err(|error| wrong(&error))?;
            let (progress, play) = bqrl_lab::run::standing(&run.checkpoint).map_err(|error| wrong(&error))?;
            let progress = plausible(progress).map_err(|error| wrong(&error))?;
            *learner.state() = State { progress, play: Some(play), extra, log };
            Ok(learner)
        })
    }

    /// Writes a directory from which [`load`](Self::load) resumes: whole or not at all, the one before kept. A directory
    /// that holds anything else is refused.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        native::detached(py, || {
            let (number, files, weights) = self.files();
            let parts: Vec<(&str, &[u8])> =
                files.iter().filter_map(|part| Some((&*part.name, part.bytes()?))).collect();
            ModelDir::at(&path).save(number, &parts, &weights).map_err(os_error)
        })
    }

    /// The files of a [`save`](Self::save) as one safetensors file, which has an array of bytes for each.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = native::detached(py, || Ok(saved::pack(&self.files().1)))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Restores what [`to_bytes`](Self::to_bytes) gave.
    #[staticmethod]
    fn from_bytes(py: Python<'_>, bytes: &[u8]) -> PyResult<Self> {
        native::detached(py, || {
            let files = saved::Unpacked::read(bytes).map_err(value_error)?;
            let json = files.part("model.json").ok_or_else(|| value_error("model.json: missing"))?;
            Self::from_saved(&json, &|name| files.part(name))
        })
    }

    /// The learned networks or tables as a safetensors file.
    fn weights<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = native::detached(py, || Ok(self.agent.weights()))?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Learns until so many steps or episodes in all. `lanes` is the environment (see `bqrl._lanes`); a table is played
    /// natively instead. `watch` has `on_step()` and `on_episode(number, return, length)`; either may be None, and stops the
    /// training by returning True. With `actions`, the environment is a log, and they are the actions in it.
    #[pyo3(signature = (lanes, watch, steps=None, episodes=None, log=None, actions=None))]
    fn learn(
        &self,
        py: Python<'_>,
        lanes: Option<Py<PyAny>>,
        watch: Py<PyAny>,
        steps: Option<u64>,
        episodes: Option<u64>,
        log: Option<Log>,
        actions: Option<Vec<usize>>,
    ) -> PyResult<()> {
        if self.busy.swap(true, Ordering::AcqRel) {
            return Err(PyRuntimeError::new_err("the model is learning already"));
        }
        let _busy = Busy(&self.busy);
        native::detached(py, || self.train(lanes, &watch, steps, episodes, log, actions))
    }

    /// The actions of the greedy policy. `state` holds a row (h, c) per observation, and (u, v, w) of a policy that holds a target;
    /// rewards came with the observations.
    #[pyo3(signature = (observations, state, episode_start, rewards, level, buffered, deterministic, draws))]
    fn predict<'py>(
        &self,
        py: Python<'py>,
        observations: &Bound<'py, PyList>,
        state: Option<PyReadonlyArray2<'py, f64>>,
        episode_start: Option<PyReadonlyArray1<'py, bool>>,
        rewards: Option<PyReadonlyArray1<'py, f64>>,
        level: (f64, f64),
        buffered: bool,
        deterministic: bool,
        draws: Option<PyReadonlyArray1<'py, f64>>,
    ) -> PyResult<Predicted<'py>> {
        let n = observations.len();
        let rows = |what, len: usize| {
            if len == n { Ok(()) } else { Err(value_error(format!("{what} has {len} rows, want {n}"))) }
        };
        let seen: Vec<Observation> = observations
            .iter()
            .map(|observation| self.environment.observations.read(&observation))
            .collect::<PyResult<_>>()?;
        let buffer = Buffer::new(level.0, level.1).map_err(level_error)?;
        let holds_target = self.holds_target();
        let columns = if holds_target { 6 } else { 2 };
        let state = state.map(|state| state.as_array().to_owned());
        let starts = episode_start.map(|starts| starts.as_array().to_vec());
        let rewards = rewards.map(|rewards| rewards.as_array().to_vec());
        let draws = draws.map(|draws| draws.as_array().to_vec());
        if let Some(state) = &state {
            rows("state", state.nrows())?;
            if state.ncols() != columns {
                return Err(value_error(format!("state has {} columns, want {columns}", state.ncols())));
            }
            let is_stage = |&h: &f64| (0.0..LAST_STAGE).contains(&h) && h.fract() == 0.0;
            if !state.iter().all(|x| x.is_finite()) || !state.column(0).iter().all(is_stage) {
                return Err(value_error(
                    "state must hold stages, whole and not negative, and finite numbers",
                ));
            }
        }
        if let Some(reward) = rewards.iter().flatten().find(|reward| !reward.is_finite()) {
            return Err(value_error(format!("want a finite reward, got {reward}")));
        }
        rows("episode_start", starts.as_ref().map_or(n, Vec::len))?;
        rows("reward", rewards.as_ref().map_or(n, Vec::len))?;
        let (actions, after) = native::detached(py, || {
            let agent = self.agent.lock();
            let starts_at = |row: usize| state.is_none() || starts.as_ref().is_some_and(|starts| starts[row]);
            // The target is chosen once per episode: later rows hold it in their state.
            let fresh = (!holds_target || (0..n).any(starts_at))
                .then(|| *agent.serve(&[buffer], objective(buffered)).at(0));
            let (mut actions, mut after, mut choice) =
                (Vec::with_capacity(n), Vec::with_capacity(columns * n), Vec::new());
            for (row, observation) in seen.iter().enumerate() {
                let before = state.as_ref().filter(|_| !starts_at(row));
                let (stage, collected) = before.map_or((0, 0.0), |state| {
                    let stage = state[(row, 0)] as usize;
                    // The reward that came with this observation is that of the decision before.
                    let reward = rewards.as_ref().map_or(0.0, |rewards| rewards[row]);
                    (stage, state[(row, 1)] + self.discounted(stage.saturating_sub(1), reward))
                });
                if !collected.is_finite() {
                    return Err(value_error(format!(
                        "the rewards of an episode must add up, got {collected}"
                    )));
                }
                let memo = match before {
                    Some(state) if holds_target => {
                        let [u, v, weight, ramp] = [2, 3, 4, 5].map(|column| state[(row, column)]);
                        if !(ramp >= 0.0 && ramp.fract() == 0.0) {
                            return Err(value_error(format!(
                                "state: a ramp must be a whole number, got {ramp}"
                            )));
                        }
                        let memo =
                            Memo { target: Some(Target { u, v, weight, ramp: ramp as usize }), critic: None };
                        agent.check_memo(&memo).map_err(|error| value_error(format!("state: {error}")))?;
                        memo
                    }
                    _ => fresh.unwrap_or_default(),
                };
                let policy = if deterministic {
                    ServedPolicy::mode(&**agent, &memo)
                } else {
                    ServedPolicy::new(&**agent, &memo)
                };
                choice.clear();
                policy.decide(&Input { stage, observation, collected }, &mut choice);
                let action = match &draws {
                    Some(draws) => pick(&choice, draws[row]),
                    None => choice[0].0,
                };
                actions.push(action as i64);
                after.extend([(stage + 1) as f64, collected]);
                if holds_target {
                    let target = memo.target.unwrap_or(Target { u: 0.0, v: 0.0, weight: 0.0, ramp: 0 });
                    after.extend([target.u, target.v, target.weight, target.ramp as f64]);
                }
            }
            Ok((actions, after))
        })?;
        let after =
            numpy::ndarray::Array2::from_shape_vec((n, columns), after).expect("as many numbers a row");
        Ok((actions.into_pyarray(py), after.into_pyarray(py)))
    }

    /// The law of the policy's return on a table, exactly; `None` where the set of returns is too large for that.
    fn evaluate(
        &self,
        py: Python<'_>,
        problem: &Problem,
        level: (f64, f64),
        buffered: bool,
    ) -> PyResult<Option<Law>> {
        let buffer = Buffer::new(level.0, level.1).map_err(level_error)?;
        let evaluate = |stop: &Stop| {
            let evaluator = Evaluator::new(&problem.inner.model).ok()?;
            let agent = self.agent.lock();
            let served = agent.serve(&[buffer], objective(buffered));
            Some(evaluator.evaluate(&Stoppable { policy: ServedPolicy::mode(&**agent, served.at(0)), stop }))
        };
        let evaluation = native::detached(py, || native::run(evaluate))?;
        Ok(evaluation.as_ref().map(Law::new))
    }

    /// So many episodes of the greedy policy in an environment: returns, discounted; plain sums of rewards; lengths.
    fn play<'py>(
        &self,
        py: Python<'py>,
        lanes: Py<PyAny>,
        level: (f64, f64),
        buffered: bool,
        episodes: usize,
        seed: u64,
    ) -> PyResult<Played<'py>> {
        let buffer = Buffer::new(level.0, level.1).map_err(level_error)?;
        let make = py.eval(c"lambda lanes: lambda: lanes", None, None)?.call1((lanes,))?.unbind();
        let task = PyTask::new(self.environment.nature(), None, Some(make));
        let played = native::detached(py, || {
            let served = self.agent.serve(&[buffer], objective(buffered));
            let policy = ServedPolicy::mode(&self.agent, served.at(0));
            play(policy, &task, episodes, seed).map_err(|error| failed(error, 0, 0))
        })?;
        let returns: Vec<f64> = played.iter().map(|episode| episode.episode_return).collect();
        let sums: Vec<f64> = played.iter().map(|episode| episode.undiscounted).collect();
        let lengths: Vec<i64> = played.iter().map(|episode| episode.length as i64).collect();
        Ok((returns.into_pyarray(py), sums.into_pyarray(py), lengths.into_pyarray(py)))
    }

    #[getter]
    fn updates(&self, py: Python<'_>) -> PyResult<u64> {
        // Waits while another thread learns.
        native::detached(py, || Ok(self.agent.updates()))
    }

    #[getter]
    fn timesteps(&self) -> u64 {
        self.state().progress.clock.steps
    }

    #[getter]
    fn episodes(&self) -> u64 {
        self.state().progress.clock.episodes
    }

    #[getter]
    fn seed(&self) -> u64 {
        self.seed
    }

    #[getter]
    fn algo(&self) -> &'static str {
        self.config.algo().name
    }

    #[getter]
    fn gamma(&self) -> f64 {
        self.environment.gamma
    }

    #[getter]
    fn horizon(&self) -> usize {
        self.environment.horizon
    }

    #[getter]
    fn horizon_is_task(&self) -> bool {
        self.environment.horizon_is_task
    }

    #[getter]
    fn n_actions(&self) -> usize {
        self.environment.n_actions
    }

    /// Its observations: (how many, the first) of whole numbers, else the shape of an array.
    #[getter]
    fn observations(&self) -> (Option<(usize, i64)>, Vec<usize>) {
        let Format { n, start, shape, .. } = &self.environment.observations;
        (n.map(|n| (n, *start)), shape.clone())
    }

    /// The table that it learns on natively.
    #[getter]
    fn problem(&self) -> Option<Problem> {
        let inner = self.table.clone()?;
        Some(Problem { inner, config: Some(self.config.problem.clone()) })
    }

    /// Mean and standard deviation of every number of a vector observation, and how many were seen; `None` where nothing is
    /// normalised.
    #[getter]
    fn observation_moments<'py>(&self, py: Python<'py>) -> PyResult<Option<SeenMoments<'py>>> {
        let moments = native::detached(py, || Ok(self.agent.moments()))?;
        Ok(moments.map(|moments| {
            let [mean, deviation] = [moments.mean().to_vec(), moments.deviation()];
            (mean.into_pyarray(py), deviation.into_pyarray(py), moments.count() as u64)
        }))
    }

    /// (τ, β) of every level it was made for.
    #[getter]
    fn levels(&self) -> Vec<(f64, f64)> {
        let levels = self.config.levels().expect("checked when it was made");
        levels.iter().map(|buffer| (buffer.tau(), buffer.beta())).collect()
    }

    /// Every setting, as a run directory's `config.toml` has it.
    #[getter]
    fn config(&self) -> String {
        self.config.to_toml()
    }

    /// Data of the Python half.
    #[getter]
    fn extra(&self) -> String {
        self.state().extra.clone()
    }

    #[setter]
    fn set_extra(&self, extra: String) {
        self.state().extra = extra;
    }

    /// Refuses an environment that its policy cannot act in.
    fn check_spaces(&self, environment: Described) -> PyResult<()> {
        self.environment.check_like(&environment, false).map_err(value_error)
    }

    /// Refuses an environment that is not like the one it was made for; `problem` is its table, where it can be played
    /// natively.
    #[pyo3(signature = (environment, problem=None))]
    fn check(&self, environment: Described, problem: Option<PyRef<'_, Problem>>) -> PyResult<()> {
        self.environment.check_like(&environment, true).map_err(value_error)?;
        match (&self.table, problem) {
            (Some(ours), Some(given)) if ours.model == given.inner.model => Ok(()),
            (Some(ours), _) => {
                let name = &ours.name;
                Err(value_error(format!(
                    "the model learns on the table {name} itself, the environment is another or is wrapped; make a new model"
                )))
            }
            (None, _) => Ok(()),
        }
    }
}

/// A policy whose evaluation can be stopped.
struct Stoppable<'a> {
    policy: ServedPolicy<'a>,
    stop: &'a Stop,
}

impl Policy for Stoppable<'_> {
    fn decide(&self, x: &AugmentedInput, choice: &mut Vec<(usize, f64)>) {
        self.stop.ask();
        Policy::decide(&self.policy, x, choice);
    }
}

impl Learner {
    fn make(
        config: Config,
        environment: Described,
        table: Option<Arc<bqrl_mdp::model::Problem>>,
        seed: u64,
    ) -> PyResult<Self> {
        environment.check().map_err(value_error)?;
        // A table tells more of itself: rewards, terminal states. Agents that keep tables use it.
        let spec = match &table {
            Some(problem) => Table::new((**problem).clone()).map_err(value_error)?.spec().clone(),
            None => environment.spec(),
        };
        // Saved with the model, which may be loaded without its table.
        let environment = Described { stationary: spec.stationary, ..environment };
        let agent = make_agent(&config, &spec, seed).map_err(setting_error)?;
        Ok(Self {
            agent: Shared::new(agent),
            config,
            environment,
            table,
            seed,
            state: Mutex::default(),
            tick: Turns::default(),
            busy: AtomicBool::new(false),
        })
    }

    fn from_saved(json: &[u8], part: &dyn Fn(&str) -> Option<Vec<u8>>) -> PyResult<Self> {
        let saved = Saved::read(json).map_err(value_error)?;
        let config = Layers::written(&saved.config, "model.json")
            .and_then(|layers| layers.finish("model.json"))
            .map_err(value_error)?;
        let table = if config.problem.python {
            None
        } else {
            Some(Arc::new(config.problem.load().map_err(value_error)?))
        };
        let learner = Self::make(config, saved.environment, table, saved.seed)?;
        learner.agent.lock().restore(part).map_err(value_error)?;
        *learner.state() =
            State { progress: saved.progress, play: saved.play, extra: saved.extra, log: saved.log };
        Ok(learner)
    }

    /// The steps, every file of a save, and the weights for other tools.
    fn files(&self) -> (u64, Vec<Part>, Vec<u8>) {
        // An environment of Python may save the model that plays in it: there, the tick is not waited for.
        let _between_ticks = self.table.is_some().then(|| self.tick.lock());
        let agent = self.agent.lock();
        let saved = self.saved();
        let json = serde_json::to_vec_pretty(&saved).expect("plain values serialise");
        // A model is whole in itself: nothing is shared with another save.
        let mut files = agent.save(&|_| false);
        files.push(Part::new("model.json", json));
        (saved.progress.clock.steps, files, agent.weights())
    }

    fn saved(&self) -> Saved {
        let State { progress, play, extra, log } = self.state().clone();
        Saved {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            algo: self.config.algo().name.to_owned(),
            config: self.config.to_toml(),
            environment: self.environment.clone(),
            seed: self.seed,
            progress,
            play,
            extra,
            log,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Whether its policies hold a target for a whole episode.
    fn holds_target(&self) -> bool {
        self.config.algo().name == "target-tracking"
    }

    /// γ^h r.
    fn discounted(&self, stage: usize, reward: f64) -> f64 {
        self.environment.gamma.powi(stage as i32) * reward
    }
}

/// The action whose share of [0, 1) the draw falls into.
fn pick(choice: &[(usize, f64)], draw: f64) -> usize {
    let mut sum = 0.0;
    let found = choice.iter().find(|(_, probability)| {
        sum += probability;
        draw < sum
    });
    found.or(choice.last()).map_or(0, |&(action, _)| action)
}

fn objective(buffered: bool) -> Objective {
    if buffered { Objective::Buffered } else { Objective::Quantile }
}
