//! The common part of PPO and TRPO on tables: a softmax table that acts, a value table, and the episodes since the last
//! update.
//!
//! ```text
//! π(a | h, s) = softmax of logits(h, s)         at first all 0: every action equally likely
//! V(h, s)                                       at first 0
//! act ~ π,   output = π; evaluation reports its mode (the greedy policy) and π itself
//! ```

pub mod rollout;
pub mod stage_table;
pub mod value_table;

use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, Rng, stream};
use bqrl_math::schedule::Clock;
use bqrl_mdp::env::EnvSpec;
use bqrl_mdp::trajectory::Observation;
use serde::{Deserialize, Serialize};

use self::rollout::{Rollout, normalise};
use self::stage_table::{StageTable, check_widths, kl};
use self::value_table::ValueTable;
use crate::experience::arrays::{Array, Arrays, to_bytes};
use crate::experience::saved;
use crate::settings::{count, fits, n_states, not_negative, probability, share};
use crate::{
    Agent, AgentError, Input, LearnError, Memo, Objective, Part, Prediction, RestoreError, Served,
    Transition, Waiting, finite, state,
};

/// The settings that both have.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TableConfig {
    /// Episodes of one policy before it is changed.
    pub episodes_per_update: usize,
    /// λ of the advantages.
    pub gae_lambda: f64,
    /// Least step size of the values.
    pub value_rate: f64,
    /// Visits by which values are shrunk towards those of their group.
    pub value_prior: f64,
    /// Widths of the groups of stages whose tables add up: `[1]` is one row per (h, s).
    pub stage_widths: Vec<usize>,
}

impl TableConfig {
    pub(crate) fn check(&self) -> Result<(), AgentError> {
        count("episodes_per_update", self.episodes_per_update, 1..=1_000_000)?;
        probability("gae_lambda", self.gae_lambda)?;
        share("value_rate", self.value_rate)?;
        not_negative("value_prior", self.value_prior)?;
        check_widths(&self.stage_widths)
    }
}

/// Tables that are as large as the policy, at most: the policy, its gradient, a step, and the averages that Adam keeps.
const TABLES: u64 = 5;

/// Tables, memory and random streams.
pub struct ActorCritic {
    /// The policy.
    pub logits: StageTable,
    /// V.
    pub values: ValueTable,
    /// The episodes since the last update.
    pub rollout: Rollout,
    /// Draws the order of minibatches.
    pub order: Rng,
    /// Updates made.
    pub updates: u64,
    horizon: usize,
    n_states: usize,
    n_actions: usize,
    /// Draws actions.
    actions: Rng,
}

/// The saved state other than the arrays.
#[derive(Deserialize, Serialize)]
struct State {
    updates: u64,
    /// Seed, stream and position of the stream of actions.
    actions: [u64; 3],
    /// Seed, stream and position of the stream of minibatches.
    order: [u64; 3],
}

/// A visited (h, s): how often, and the policy that visited it.
#[derive(Clone, Debug, PartialEq)]
pub struct Visit {
    /// h.
    pub stage: usize,
    /// s.
    pub state: usize,
    /// d_hs: its share of the rollout's decisions.
    pub share: f64,
    /// π_old(· | h, s).
    pub policy: Vec<f64>,
}

impl ActorCritic {
    /// Untrained, for a problem with finitely many states.
    pub fn new(
        algo: &'static str,
        config: &TableConfig,
        spec: &EnvSpec,
        seed: u64,
    ) -> Result<Self, AgentError> {
        let n_states = n_states(algo, spec)?;
        let TableConfig { stage_widths, value_rate, value_prior, .. } = config;
        let what =
            format!("the tables of {algo}, horizon × states × actions for each of agent.stage_widths,");
        fits(&what, TABLES, 8, &[stage_widths.len(), spec.horizon, n_states, spec.n_actions])?;
        Ok(Self {
            logits: StageTable::new(stage_widths, spec.horizon, n_states, spec.n_actions),
            values: ValueTable::new(stage_widths, spec.horizon, n_states, *value_rate, *value_prior),
            rollout: Rollout::default(),
            order: stream(seed, Purpose::Replay),
            updates: 0,
            horizon: spec.horizon,
            n_states,
            n_actions: spec.n_actions,
            actions: stream(seed, Purpose::Agent),
        })
    }

    /// Draws an action for every waiting lane.
    pub fn act(&mut self, waiting: &[Waiting]) -> Vec<usize> {
        let draw =
            |lane: &Waiting| self.actions.categorical(&self.logits.policy(lane.x.stage, state(&lane.x)));
        waiting.iter().map(draw).collect()
    }

    /// π(· | h, s), to be appended to a choice.
    pub fn decide(&self, x: &Input, choice: &mut Vec<(usize, f64)>) {
        choice.extend(self.logits.policy(x.stage, state(x)).into_iter().enumerate());
    }

    /// Remembers a transition of a lane.
    pub fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        finite(transition.reward)?;
        let x = &transition.x;
        let probability = self.logits.policy(x.stage, state(x))[transition.action];
        self.rollout.store(lane, transition, probability);
        Ok(())
    }

    /// Refuses tables that are no longer finite.
    pub fn check(&self) -> Result<(), LearnError> {
        let diverged = |table| Err(LearnError::TableDiverged { table, step: self.updates });
        if self.logits.unbounded().is_some() {
            diverged("logits")
        } else if !self.values.is_finite() {
            diverged("values")
        } else {
            Ok(())
        }
    }

    /// The files of a checkpoint.
    pub fn save(&self) -> Vec<Part> {
        let state = State {
            updates: self.updates,
            actions: saved::position(&self.actions),
            order: saved::position(&self.order),
        };
        vec![
            Part::new("tables.safetensors", self.weights()),
            Part::new("rollout.safetensors", to_bytes(&self.rollout.to_arrays())),
            Part::new("agent.json", serde_json::to_vec(&state).expect("plain numbers serialise")),
        ]
    }

    /// Restores the result of [`save`](Self::save).
    pub fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        let bytes = saved::part("tables.safetensors", file)?;
        let tables = Arrays::read(&bytes).map_err(|error| saved::wrong("tables.safetensors", &error))?;
        let logits = tables.f64("logits").map_err(|error| saved::wrong("tables.safetensors", &error))?;
        let want = self.logits.values().len();
        if logits.len() != want {
            return Err(saved::wrong("tables.safetensors", &format!("{} logits, want {want}", logits.len())));
        }
        let mut table = self.logits.clone();
        table.values_mut().copy_from_slice(&logits);
        if let Some(logit) = table.unbounded() {
            let message = format!("logits holds {logit:?}, want numbers from -1e300 to 1e300");
            return Err(saved::wrong("tables.safetensors", &message));
        }
        let mut values = self.values.clone();
        values.restore(&tables).map_err(|error| saved::wrong("tables.safetensors", &error))?;
        let bytes = saved::part("rollout.safetensors", file)?;
        let rollout = Arrays::read(&bytes)
            .and_then(|arrays| Rollout::from_arrays(&arrays, self.horizon, self.n_states, self.n_actions))
            .map_err(|error| saved::wrong("rollout.safetensors", &error))?;
        let state: State = saved::json("agent.json", file)?;
        saved::count("agent.json: updates", state.updates)?;
        self.logits = table;
        self.values = values;
        self.rollout = rollout;
        self.updates = state.updates;
        self.actions = saved::at(state.actions);
        self.order = saved::at(state.order);
        Ok(())
    }

    /// Both tables.
    pub fn weights(&self) -> Vec<u8> {
        let mut arrays = vec![Array::f64("logits", self.logits.values())];
        arrays.extend(self.values.to_arrays());
        to_bytes(&arrays)
    }

    /// The visited (h, s), in order, with the policy as it stands.
    pub fn visits(&self) -> Vec<Visit> {
        let decisions = self.rollout.decisions();
        let mut counts = std::collections::BTreeMap::new();
        for decision in decisions {
            *counts.entry((decision.stage, decision.state)).or_insert(0) += 1;
        }
        let visit = |((stage, state), count): ((usize, usize), u32)| {
            let share = f64::from(count) / decisions.len() as f64;
            Visit { stage, state, share, policy: self.logits.policy(stage, state) }
        };
        counts.into_iter().map(visit).collect()
    }
}

/// Σ_hs d_hs KL(π_old(· | h, s) ‖ π(· | h, s)): from old to new, averaged over the visited states.
pub fn mean_kl(visits: &[Visit], logits: &StageTable) -> f64 {
    visits.iter().map(|visit| visit.share * kl(&visit.policy, &logits.policy(visit.stage, visit.state))).sum()
}

/// How a policy is changed after some of its episodes: all that PPO and TRPO differ in.
pub trait Improve: Send + Sync {
    /// The settings of the tables.
    fn tables(&self) -> &TableConfig;
    /// Moves the logits. The advantages are normalised; values are fitted and the rollout is forgotten afterwards.
    fn improve(&self, tables: &mut ActorCritic, advantages: &[f64], clock: &Clock);
}

/// An agent that learns from episodes of its current policy.
pub struct OnPolicy<I> {
    pub(crate) method: I,
    pub(crate) tables: ActorCritic,
}

impl<I: Improve> Agent for OnPolicy<I> {
    fn begin(&mut self, _: &Clock, lane: usize, _: &Observation) -> Memo {
        self.tables.rollout.restart(lane);
        Memo::default()
    }

    fn act(&mut self, _: &Clock, waiting: &[Waiting]) -> Vec<usize> {
        self.tables.act(waiting)
    }

    fn store(&mut self, lane: usize, transition: &Transition) -> Result<(), LearnError> {
        self.tables.store(lane, transition)
    }

    fn learn(&mut self, clock: &Clock) -> Result<(), LearnError> {
        let Self { method, tables } = self;
        if tables.rollout.episodes() < method.tables().episodes_per_update {
            return Ok(());
        }
        let mut estimates = tables.rollout.estimate(&tables.values, method.tables().gae_lambda);
        normalise(&mut estimates.advantages);
        method.improve(tables, &estimates.advantages, clock);
        tables.rollout.fit(&mut tables.values, &estimates.targets);
        tables.rollout.clear();
        tables.check()
    }

    fn serve(&self, _: &[Buffer], _: Objective) -> Served {
        Served::One(Memo::default())
    }

    fn decide(&self, _: &Memo, x: &Input, choice: &mut Vec<(usize, f64)>) {
        self.tables.decide(x, choice);
    }

    fn predictions(&self, _: &Input) -> Vec<Prediction> {
        Vec::new()
    }

    fn is_stochastic(&self) -> bool {
        true
    }

    fn updates(&self) -> u64 {
        self.tables.updates
    }

    /// Only an update changes the output.
    fn policy_version(&self) -> Option<u64> {
        Some(self.updates())
    }

    fn save(&self, _has: &dyn Fn(&str) -> bool) -> Vec<Part> {
        self.tables.save()
    }

    fn restore(&mut self, file: &dyn Fn(&str) -> Option<Vec<u8>>) -> Result<(), RestoreError> {
        self.tables.restore(file)
    }

    fn weights(&self) -> Vec<u8> {
        self.tables.weights()
    }
}
