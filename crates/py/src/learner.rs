//! An agent and the episodes it is in.
//!
//! ```text
//! begin(e, s)                      an episode starts in environment e; returns the first action
//! step(e, r, s', terminated, …)    learns from (x, a, r, x', d) and returns the next action, or None: the episode is over
//! predict(s, state, …)             what the agent would do, learning nothing
//! ```
//!
//! The stage h and the collected reward c of every environment are kept here, and rewards are discounted here. Python
//! is let go while the agent acts and learns.

use std::path::PathBuf;

use bqrl_agents::{Agent, Input, Mode, Objective, OnTable, OutputPolicy, Target, Transition, policies};
use bqrl_lab::config::{ALGOS, Config, Layers, Levels};
use bqrl_lab::run::make_agent;
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, RngState, stream};
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::evaluate::Evaluator;
use bqrl_mdp::trajectory::{End, Observation};
use bqrl_nn::UpdateError;
use bqrl_runs::model_dir::ModelDir;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::{PyFloatingPointError, PyRuntimeError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use serde::{Deserialize, Serialize};

use crate::convert::{to_toml, toml_to_py, value_error};
use crate::observation::Format;
use crate::problem::Problem;
use crate::record;

/// The layout of `model.json`; a later layout gets the next number.
const FORMAT: u32 = 1;

/// (name, one line, whether it is trained for one level) of every algorithm.
#[pyfunction]
pub fn algos() -> Vec<(&'static str, &'static str, bool)> {
    ALGOS.iter().map(|algo| (algo.name, algo.about, algo.levels == Levels::One)).collect()
}

/// The preset of an algorithm: {"agent": {…}, "run": {…}}.
#[pyfunction]
pub fn preset<'py>(py: Python<'py>, algo: &str) -> PyResult<Bound<'py, PyDict>> {
    let layers = Layers::preset(algo).map_err(value_error)?;
    let sections = PyDict::new(py);
    for name in ["agent", "run"] {
        let mut section = layers.section(name).expect("a preset has both sections").clone();
        section.remove("kind");
        sections.set_item(name, toml_to_py(py, &section.into())?)?;
    }
    Ok(sections)
}

/// What an environment is, as Python describes it.
#[derive(Clone, Debug, Deserialize, FromPyObject, PartialEq, Serialize)]
#[pyo3(from_item_all)]
struct Described {
    name: String,
    observations: Format,
    n_actions: usize,
    horizon: usize,
    horizon_is_task: bool,
    reward_bounds: Option<(f64, f64)>,
    gamma: f64,
}

impl Described {
    fn spec(&self) -> EnvSpec {
        EnvSpec {
            horizon_is_task: self.horizon_is_task,
            reward_bounds: self.reward_bounds,
            discount: self.gamma,
            ..EnvSpec::new(&self.name, self.observations.space(), self.n_actions, self.horizon)
        }
    }
}

/// `model.json`.
#[derive(Deserialize, Serialize)]
struct Saved {
    format: u32,
    version: String,
    algo: String,
    config: String,
    environment: Described,
    seed: u64,
    timesteps: u64,
    episodes: usize,
    begun: u64,
    /// Seed, stream and position of the stream that seeds episodes.
    seeds: [u64; 3],
    /// Whatever the Python half wants to keep.
    extra: String,
}

/// One environment's episode.
#[allow(clippy::struct_field_names)] // The name that run files have.
struct Episode {
    stage: usize,
    collected: f64,
    /// Not discounted, as Monitor files have it.
    episode_return: f64,
    observation: Observation,
    /// Chosen at x, not yet taken.
    action: usize,
}

/// An agent in the hands of Python.
#[pyclass(module = "bqrl._bqrl")]
pub struct Learner {
    agent: Box<dyn Agent>,
    config: Config,
    environment: Described,
    seed: u64,
    /// By environment; `None` between episodes.
    open: Vec<Option<Episode>>,
    timesteps: u64,
    episodes: usize,
    begun: u64,
    seeds: Rng,
    #[pyo3(get, set)]
    extra: String,
}

/// Actions and the state after them.
type Predicted<'py> = (Bound<'py, PyArray1<i64>>, Bound<'py, PyArray2<f64>>);

/// How a step went, before Python hears of it.
enum Stepped {
    Action(usize),
    Over(f64, usize),
}

#[pymethods]
impl Learner {
    /// An untrained agent. `settings` override keys of the preset's agent section.
    #[new]
    #[pyo3(signature = (algo, settings, risk_levels, betas, environment, seed))]
    fn new(
        algo: &str,
        settings: &Bound<'_, PyDict>,
        risk_levels: Vec<f64>,
        betas: Vec<f64>,
        environment: Described,
        seed: u64,
    ) -> PyResult<Self> {
        let mut layers = Layers::preset(algo).map_err(value_error)?;
        let whole = |seed| i64::try_from(seed).map_err(|_| value_error("seed must be below 2^63"));
        layers.set("problem", "name", environment.name.clone());
        layers.set("run", "tau", risk_levels);
        layers.set("run", "beta", betas);
        layers.set("run", "seeds", vec![whole(seed)?]);
        for (key, value) in settings {
            let key: String = key.extract()?;
            layers.set("agent", &key, to_toml(&key, &value)?);
        }
        let config = layers.finish(algo).map_err(value_error)?;
        Self::make(config, environment, seed)
    }

    /// Restores what [`save`](Self::save) wrote.
    #[staticmethod]
    fn load(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        py.detach(|| {
            let loaded = ModelDir::at(&path).load()?;
            let named = path.display();
            let loaded = loaded.ok_or_else(|| value_error(format!("{named}: there is no saved model")))?;
            let wrong = |error: &dyn std::fmt::Display| value_error(format!("{named}: {error}"));
            let part = |name: &str| loaded.part(name);
            let json = part("model.json").ok_or_else(|| wrong(&"model.json: missing"))?;
            let saved: Saved = serde_json::from_slice(&json).map_err(|error| wrong(&error))?;
            if saved.format != FORMAT {
                return Err(wrong(&format!("model.json has format {}, want {FORMAT}", saved.format)));
            }
            let config = Layers::written(&saved.config, "model.json")
                .and_then(|layers| layers.finish("model.json"))
                .map_err(|error| wrong(&error))?;
            let mut learner = Self::make(config, saved.environment, saved.seed)?;
            learner.agent.restore(&part).map_err(|error| wrong(&error))?;
            let [seed, stream, word_pos] = saved.seeds;
            learner.seeds = Rng::from_state(RngState { seed, stream, word_pos });
            learner.timesteps = saved.timesteps;
            learner.episodes = saved.episodes;
            learner.begun = saved.begun;
            learner.extra = saved.extra;
            Ok(learner)
        })
    }

    /// Writes a directory from which [`load`](Self::load) resumes: whole or not at all, the one before kept. A directory
    /// that holds anything else is refused.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        let RngState { seed, stream, word_pos } = self.seeds.state();
        let saved = Saved {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            algo: self.config.algo().name.to_owned(),
            config: self.config.to_toml(),
            environment: self.environment.clone(),
            seed: self.seed,
            timesteps: self.timesteps,
            episodes: self.episodes,
            begun: self.begun,
            seeds: [seed, stream, word_pos],
            extra: self.extra.clone(),
        };
        py.detach(|| {
            let json = serde_json::to_vec_pretty(&saved).expect("plain values serialise");
            // A model is whole in itself: nothing is shared with another save.
            let files = self.agent.save(&|_| false);
            let mut parts: Vec<(&str, &[u8])> =
                files.iter().filter_map(|part| Some((&*part.name, part.bytes()?))).collect();
            parts.push(("model.json", &json));
            Ok(ModelDir::at(&path).save(self.timesteps, &parts, &self.agent.weights())?)
        })
    }

    /// The learned networks or tables as a safetensors file.
    fn weights<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let bytes = py.detach(|| self.agent.weights());
        PyBytes::new(py, &bytes)
    }

    /// Makes room for n environments; episodes that were open are given up.
    fn open(&mut self, n: usize) {
        self.open = (0..n).map(|_| None).collect();
    }

    /// Gives up the open episodes: what was learned of them stays.
    fn abandon(&mut self) {
        self.open.iter_mut().for_each(|episode| *episode = None);
    }

    /// True while environment e is in an episode.
    fn is_open(&self, env: usize) -> bool {
        self.open.get(env).is_some_and(Option::is_some)
    }

    /// A seed for the next episode: a function of the agent's seed and of how many episodes have begun.
    fn next_seed(&mut self) -> u64 {
        self.seeds.below(1 << 31) as u64
    }

    /// The action that waits to be taken in environment e.
    fn action(&self, env: usize) -> PyResult<usize> {
        let waiting = self.open.get(env).and_then(Option::as_ref);
        waiting.map(|episode| episode.action).ok_or_else(|| PyRuntimeError::new_err(not_open(env)))
    }

    /// Starts an episode and returns its first action.
    fn begin(&mut self, py: Python<'_>, env: usize, observation: &Bound<'_, PyAny>) -> PyResult<usize> {
        let observation = self
            .environment
            .observations
            .read(observation)
            .map_err(|error| self.place(py, env, 0, &error))?;
        self.begun += 1;
        let action = py.detach(|| {
            self.agent.begin_episode(self.episodes);
            self.agent.act(&Input { stage: 0, observation: &observation, collected: 0.0 })
        });
        self.open[env] = Some(Episode { stage: 0, collected: 0.0, episode_return: 0.0, observation, action });
        Ok(action)
    }

    /// Learns from the step that was just taken. Returns the next action, or (return, length) of the finished episode.
    #[pyo3(signature = (env, reward, observation, terminated, truncated))]
    fn step<'py>(
        &mut self,
        py: Python<'py>,
        env: usize,
        reward: &Bound<'py, PyAny>,
        observation: &Bound<'py, PyAny>,
        terminated: &Bound<'py, PyAny>,
        truncated: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let open = self.open.get(env).and_then(Option::as_ref);
        let stage = open.ok_or_else(|| PyRuntimeError::new_err(not_open(env)))?.stage;
        let given = reward.extract::<f64>().map_err(|_| {
            let message = format!("want a number as reward, got {}", reward.get_type());
            self.place(py, env, stage + 1, &PyTypeError::new_err(message))
        })?;
        if !given.is_finite() {
            let error = PyValueError::new_err(format!("want a finite reward, got {given}"));
            return Err(self.place(py, env, stage + 1, &error));
        }
        let next = self
            .environment
            .observations
            .read(observation)
            .map_err(|error| self.place(py, env, stage + 1, &error))?;
        let (terminated, truncated) = (terminated.is_truthy()?, truncated.is_truthy()?);
        let stepped = py.detach(|| self.learn(env, given, next, terminated, truncated));
        match stepped {
            Ok(Stepped::Action(action)) => Ok(action.into_pyobject(py)?.into_any()),
            Ok(Stepped::Over(episode_return, length)) => {
                Ok((episode_return, length).into_pyobject(py)?.into_any())
            }
            Err(error) => {
                let (episode, update) = (self.episodes + 1, self.agent.updates());
                let message = format!("episode {episode}, update {update}: {error}");
                Err(PyFloatingPointError::new_err(message))
            }
        }
    }

    /// What the agent would do. `state` holds a row (h, c) per observation, and (u, v, w) of a policy that holds on to a target;
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
        let buffer = Buffer::new(level.0, level.1).map_err(value_error)?;
        let objective = objective(buffered);
        let chosen = py.detach(|| self.agent.target(&buffer, objective));
        let columns = if chosen.is_some() { 5 } else { 2 };
        let state = state.map(|state| state.as_array().to_owned());
        let starts = episode_start.map(|starts| starts.as_array().to_vec());
        let rewards = rewards.map(|rewards| rewards.as_array().to_vec());
        let draws = draws.map(|draws| draws.as_array().to_vec());
        if let Some(state) = &state {
            rows("state", state.nrows())?;
            if state.ncols() != columns {
                return Err(value_error(format!("state has {} columns, want {columns}", state.ncols())));
            }
            if !state.iter().all(|x| x.is_finite()) || state.column(0).iter().any(|&h| h < 0.0) {
                return Err(value_error("state must hold stages, not negative, and finite numbers"));
            }
        }
        rows("episode_start", starts.as_ref().map_or(n, Vec::len))?;
        rows("reward", rewards.as_ref().map_or(n, Vec::len))?;
        let (actions, after) = py.detach(|| {
            let policies = if chosen.is_some() { Vec::new() } else { self.agent.output(&[buffer]) };
            let (mut actions, mut after, mut choice) =
                (Vec::with_capacity(n), Vec::with_capacity(columns * n), Vec::new());
            for (row, observation) in seen.iter().enumerate() {
                let start = state.is_none() || starts.as_ref().is_some_and(|starts| starts[row]);
                let (stage, collected) = match &state {
                    Some(state) if !start => {
                        let stage = state[(row, 0)] as usize;
                        // The reward that came with this observation is that of the decision before.
                        let reward = rewards.as_ref().map_or(0.0, |rewards| rewards[row]);
                        (stage, state[(row, 1)] + self.discounted(stage.saturating_sub(1), reward))
                    }
                    _ => (0, 0.0),
                };
                let target = chosen.map(|chosen| match &state {
                    Some(state) if !start => {
                        Target { u: state[(row, 2)], v: state[(row, 3)], weight: state[(row, 4)] }
                    }
                    _ => chosen,
                });
                let held = target.and_then(|target| self.agent.holding(target));
                let policy = held.as_ref().unwrap_or_else(|| &policies[0]);
                choice.clear();
                let x = Input { stage, observation, collected };
                if deterministic {
                    Mode(&**policy).decide(&x, &mut choice);
                } else {
                    policy.decide(&x, &mut choice);
                }
                let action = match &draws {
                    Some(draws) => pick(&choice, draws[row]),
                    None => choice[0].0,
                };
                actions.push(action as i64);
                after.extend([(stage + 1) as f64, collected]);
                after.extend(target.into_iter().flat_map(|target| [target.u, target.v, target.weight]));
            }
            (actions, after)
        });
        let after =
            numpy::ndarray::Array2::from_shape_vec((n, columns), after).expect("as many numbers a row");
        Ok((actions.into_pyarray(py), after.into_pyarray(py)))
    }

    /// The policy's value on a table, exactly; `None` where the set of returns is too large for that.
    fn evaluate<'py>(
        &self,
        py: Python<'py>,
        problem: &Problem,
        level: (f64, f64),
        buffered: bool,
    ) -> PyResult<Option<Bound<'py, PyDict>>> {
        let buffer = Buffer::new(level.0, level.1).map_err(value_error)?;
        let evaluation = py.detach(|| {
            let evaluator = Evaluator::new(&problem.inner.model).ok()?;
            let policies = policies(&*self.agent, &[buffer], objective(buffered));
            let evaluation = evaluator.evaluate(&OnTable(&Mode(&*policies[0])));
            Some(evaluation)
        });
        evaluation.map(|found| record::worth(py, &found.law, found.mean, &buffer)).transpose()
    }

    /// c' = c + γ^h r.
    fn collect(&self, stage: usize, collected: f64, reward: f64) -> f64 {
        collected + self.discounted(stage, reward)
    }

    /// Whether the output draws its actions.
    #[getter]
    fn is_stochastic(&self) -> bool {
        self.agent.is_stochastic()
    }

    #[getter]
    fn updates(&self) -> u64 {
        self.agent.updates()
    }

    #[getter]
    fn timesteps(&self) -> u64 {
        self.timesteps
    }

    #[getter]
    fn episodes(&self) -> usize {
        self.episodes
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

    /// Refuses an environment that is not like the one it was made for.
    fn check(&self, environment: Described) -> PyResult<()> {
        let ours = &self.environment;
        for (what, same, ours, given) in [
            (
                "observations",
                ours.observations == environment.observations,
                format!("{:?}", ours.observations.space()),
                format!("{:?}", environment.observations.space()),
            ),
            (
                "actions",
                ours.n_actions == environment.n_actions,
                ours.n_actions.to_string(),
                environment.n_actions.to_string(),
            ),
        ] {
            if !same {
                return Err(value_error(format!(
                    "the model was made for {what} {ours}, the environment has {given}"
                )));
            }
        }
        Ok(())
    }
}

impl Learner {
    fn make(config: Config, environment: Described, seed: u64) -> PyResult<Self> {
        if !(environment.gamma > 0.0 && environment.gamma <= 1.0) {
            return Err(value_error(format!("gamma must lie in (0, 1], got {}", environment.gamma)));
        }
        if environment.horizon == 0 || environment.n_actions == 0 {
            return Err(value_error("an environment needs a horizon and actions of at least 1"));
        }
        let agent = make_agent(&config, &environment.spec(), seed).map_err(value_error)?;
        Ok(Self {
            agent,
            config,
            environment,
            seed,
            open: Vec::new(),
            timesteps: 0,
            episodes: 0,
            begun: 0,
            seeds: stream(seed, Purpose::Env),
            extra: String::new(),
        })
    }

    /// γ^h r.
    fn discounted(&self, stage: usize, reward: f64) -> f64 {
        self.environment.gamma.powi(stage as i32) * reward
    }

    /// One transition, and the next decision.
    fn learn(
        &mut self,
        env: usize,
        reward: f64,
        next: Observation,
        terminated: bool,
        truncated: bool,
    ) -> Result<Stepped, UpdateError> {
        let Episode { stage, collected, episode_return, observation, action } =
            self.open[env].take().expect("seen by the caller");
        let at_horizon = stage + 1 >= self.environment.horizon;
        let end = if terminated {
            End::Terminated
        } else if at_horizon && self.environment.horizon_is_task {
            End::Horizon
        } else if truncated || at_horizon {
            End::Cutoff
        } else {
            End::NotYet
        };
        let reward_now = self.discounted(stage, reward);
        let after = (stage + 1, collected + reward_now, episode_return + reward);
        let input = Input { stage: after.0, observation: &next, collected: after.1 };
        self.timesteps += 1;
        self.agent.observe(&Transition {
            x: Input { stage, observation: &observation, collected },
            action,
            reward: reward_now,
            next: input,
            end,
        })?;
        if end.is_over() {
            self.episodes += 1;
            return Ok(Stepped::Over(after.2, after.0));
        }
        let action = self.agent.act(&input);
        let (stage, collected, episode_return) = after;
        self.open[env] = Some(Episode { stage, collected, episode_return, observation: next, action });
        Ok(Stepped::Action(action))
    }

    /// The same exception, with where it came from in front.
    fn place(&self, py: Python<'_>, env: usize, step: usize, error: &PyErr) -> PyErr {
        let episode = self.episodes + 1;
        let (name, n) = (&self.environment.name, self.open.len());
        let which = if n > 1 { format!(" {env}") } else { String::new() };
        let message = format!("{name}{which}, episode {episode}, step {step}: {}", error.value(py));
        if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::new_err(message)
        } else {
            PyValueError::new_err(message)
        }
    }
}

fn not_open(env: usize) -> String {
    format!("environment {env} is not in an episode")
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
