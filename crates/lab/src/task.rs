//! The task that an agent is trained on, and the references of its measures.
//!
//! | task | from | references |
//! |---|---|---|
//! | [`Table`] | a built-in problem or an MDP file | exact evaluation, Q*_τ and the largest mean by planning |
//! | [`Simulator`] | native code, such as a game | none |
//! | implemented elsewhere | an environment of Python | none |
//!
//! Each reference is optional. A measure exists only if its reference does: without Q*_τ there is no quantile policy gap,
//! without the largest mean no expected-return regret. They are then absent, not zero.

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::Purpose;
use bqrl_mdp::env::{Env, EnvSpec};
use bqrl_mdp::evaluate::Evaluator;
use bqrl_mdp::lanes::{EnvError, Lanes, NativeLanes};
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::{Planner, Progress};
use bqrl_mdp::returns::Rounding;
use bqrl_mdp::tabular::TabularEnv;
use thiserror::Error;

/// Something to be trained on.
pub trait Task: Send + Sync {
    /// The facts that an agent may know.
    fn spec(&self) -> &EnvSpec;
    /// Fresh copies of the environment, which draw from the seed's streams for this purpose.
    fn lanes(&self, seed: u64, purpose: Purpose, n: usize) -> Result<Box<dyn Lanes>, EnvError>;
    /// Its exact model, if it has one.
    fn table(&self) -> Option<&Problem>;
    /// Names of the actions.
    fn actions(&self) -> Vec<String>;
}

/// crc32c of a table: every number that training depends on.
pub fn fingerprint(problem: &Problem) -> u32 {
    let model = &problem.model;
    let mut crc32c = 0;
    let mut add = |number: u64| crc32c = crc32c::crc32c_append(crc32c, &number.to_le_bytes());
    for size in [model.n_states(), model.n_actions(), model.horizon(), model.kernels().len()] {
        add(size as u64);
    }
    add(model.discount().to_bits());
    for &(state, probability) in model.start() {
        add(state as u64);
        add(probability.to_bits());
    }
    for stage in 0..model.kernels().len() {
        for row in 0..model.n_states() * model.n_actions() {
            let outcomes = model.outcomes(stage, row / model.n_actions(), row % model.n_actions());
            add(outcomes.len() as u64);
            for outcome in outcomes {
                add(outcome.next as u64);
                add(outcome.probability.to_bits());
                add(outcome.reward.to_bits());
            }
        }
    }
    crc32c
}

/// A problem whose every probability is known.
pub struct Table {
    problem: Problem,
    env: TabularEnv,
}

/// A table that cannot be trained on.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("action {action} is not available in state {state}; training needs every action in every state")]
pub struct RestrictedActions {
    /// A state by its label.
    pub state: String,
    /// An action by its name.
    pub action: String,
}

impl Table {
    /// Refuses a table in which some action cannot be taken: agents choose among all actions everywhere.
    pub fn new(problem: Problem) -> Result<Self, RestrictedActions> {
        let model = &problem.model;
        for stage in 0..model.kernels().len() {
            for state in (0..model.n_states()).filter(|&state| !model.is_terminal(stage, state)) {
                let missing = |&action: &usize| model.outcomes(stage, state, action).is_empty();
                if let Some(action) = (0..model.n_actions()).find(missing) {
                    let (state, action) = (problem.states[state].clone(), problem.actions[action].clone());
                    return Err(RestrictedActions { state, action });
                }
            }
        }
        Ok(Self { env: TabularEnv::new(problem.clone()), problem })
    }
}

impl Task for Table {
    fn spec(&self) -> &EnvSpec {
        self.env.spec()
    }

    fn lanes(&self, seed: u64, purpose: Purpose, n: usize) -> Result<Box<dyn Lanes>, EnvError> {
        Ok(Box::new(NativeLanes::new(n, seed, purpose, || Box::new(self.env.clone()))))
    }

    fn table(&self) -> Option<&Problem> {
        Some(&self.problem)
    }

    fn actions(&self) -> Vec<String> {
        self.problem.actions.clone()
    }
}

/// Makes an environment.
type Make = Box<dyn Fn() -> Box<dyn Env> + Send + Sync>;

/// A native environment without a table.
pub struct Simulator {
    make: Make,
    spec: EnvSpec,
    actions: Vec<String>,
}

impl Simulator {
    /// From a function that makes the environment, and the names of its actions.
    pub fn new(actions: Vec<String>, make: impl Fn() -> Box<dyn Env> + Send + Sync + 'static) -> Self {
        let spec = make().spec().clone();
        assert_eq!(actions.len(), spec.n_actions, "names of actions, want one each");
        Self { make: Box::new(make), spec, actions }
    }
}

impl Task for Simulator {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn lanes(&self, seed: u64, purpose: Purpose, n: usize) -> Result<Box<dyn Lanes>, EnvError> {
        Ok(Box::new(NativeLanes::new(n, seed, purpose, &self.make)))
    }

    fn table(&self) -> Option<&Problem> {
        None
    }

    fn actions(&self) -> Vec<String> {
        self.actions.clone()
    }
}

/// (state, return) pairs of a rounded plan.
const ROUNDED_CELLS: usize = 1 << 26;

/// A level that is reported.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Level {
    /// τ and β.
    pub buffer: Buffer,
    /// Q*_τ, where it is known; a value that some policy attains where rewards had to be rounded.
    pub best_quantile: Option<f64>,
}

/// The references of a run's measures.
pub struct References {
    /// The levels.
    pub levels: Vec<Level>,
    /// max_π E[R^π], where it is known.
    pub max_mean: Option<f64>,
    /// Evaluates policies exactly, if that is possible.
    pub evaluator: Option<Evaluator>,
}

impl References {
    /// Plans a task that has a table, so that every learning curve is measured against the true optimum.
    pub fn new(task: &dyn Task, levels: Vec<Buffer>) -> Self {
        Self::planned(task, levels, &|_, _, _| {})
    }

    /// The same, with news of the planning.
    pub fn planned(task: &dyn Task, levels: Vec<Buffer>, progress: Progress) -> Self {
        let Some(problem) = task.table() else { return Self::none(levels) };
        let model = &problem.model;
        // Too many returns: a plan on a grid that fits in memory gives a value that some policy attains.
        let grid = (ROUNDED_CELLS / model.n_states()).clamp(500, 20_000);
        let planner = Planner::exact(model, progress)
            .or_else(|_| Planner::rounded(model, grid, Rounding::Down, progress));
        let Ok(planner) = planner else { return Self::none(levels) };
        let evaluator = || Evaluator::new(model).expect("the planner found the returns few enough");
        let level =
            |buffer: Buffer| Level { buffer, best_quantile: Some(planner.best_quantile(buffer.tau()).value) };
        Self {
            evaluator: planner.is_exact().then(evaluator),
            max_mean: Some(planner.max_mean()),
            levels: levels.into_iter().map(level).collect(),
        }
    }

    /// No references.
    pub fn none(levels: Vec<Buffer>) -> Self {
        let level = |buffer| Level { buffer, best_quantile: None };
        Self { levels: levels.into_iter().map(level).collect(), max_mean: None, evaluator: None }
    }

    /// τ and β of the levels.
    pub fn buffers(&self) -> Vec<Buffer> {
        self.levels.iter().map(|level| level.buffer).collect()
    }

    /// Whether every level has its optimum.
    pub fn has_best(&self) -> bool {
        self.levels.iter().all(|level| level.best_quantile.is_some())
    }
}
