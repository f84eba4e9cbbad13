//! The policy of a run at every level, beside the best one.
//!
//! The agent of a seed is asked at many levels. Each policy that it serves is evaluated exactly, on the model of the dial. An
//! agent with one policy for all levels is evaluated once.

use std::cell::RefCell;
use std::collections::HashMap;

use bqrl_agents::{Memo, Objective, ServedPolicy};
use bqrl_lab::train::Training;
use bqrl_math::buffer::Buffer;
use bqrl_mdp::evaluate::Evaluation;
use bqrl_mdp::trajectory::AugmentedInput;
use hyper::body::Bytes;
use serde::Serialize;

use super::plan::{Axes, Plan, rounded};
use super::{Dial, Episode, play};
use crate::trained::lock;

/// Decisions that a network may make for one answer: a few seconds.
const MOST_DECISIONS: usize = 400_000;
/// Distances between levels, in per cent, from the finest to the coarsest.
const STRIDES: [usize; 4] = [1, 5, 10, 25];

/// The answer to `GET /api/served`.
#[derive(Serialize)]
struct Served {
    seed: u64,
    /// Episodes and steps that the agent was trained for.
    episodes: u64,
    steps: u64,
    /// Whether it has a policy of its own for every level.
    every_level: bool,
    levels: Vec<ServedLevel>,
    plans: Vec<Plan>,
}

#[derive(Serialize)]
struct ServedLevel {
    tau: f64,
    /// Q_τ of the policy for this level.
    quantile: f64,
    mean: f64,
    /// The target that the agent aims at, if it has one.
    aim: Option<f64>,
    plan: usize,
}

/// Asks an agent at as many levels as it can answer in a short time.
pub fn served(dial: &Dial, training: &Training, seed: u64) -> Result<Bytes, String> {
    let evaluator = lock(&dial.planner).evaluator();
    // A bound: a policy does not come to every place.
    let places: usize = evaluator.reachable_collected().iter().flatten().map(Vec::len).sum();
    let cost = (places + dial.stages.len() * dial.states.len()).max(1);
    let every_level = training.agent.serve(&[level(0.5)?], Objective::Quantile).is_per_level();
    let fits = |stride: &usize| if every_level { 99 / stride * cost } else { cost } <= MOST_DECISIONS;
    let stride = *STRIDES.iter().find(|stride| fits(stride)).ok_or(
        "the problem is too large to ask the run at many levels while you wait; `bqrl eval` asks it at those that you name",
    )?;
    let levels: Vec<Buffer> = (1..100)
        .filter(|percent| percent % stride == 0)
        .map(|percent| level(percent as f64 / 100.0))
        .collect::<Result<_, _>>()?;
    let memos = training.agent.serve(&levels, Objective::Quantile);
    let axes = Axes { stages: &dial.stages, rows: &dial.states };
    let mut plans: Vec<Plan> = Vec::new();
    // Levels with the same memo have the same policy.
    let mut known: Vec<(Memo, usize, Evaluation)> = Vec::new();
    let mut answers = Vec::with_capacity(levels.len());
    for (index, buffer) in levels.iter().enumerate() {
        let (memo, tau) = (*memos.at(index), buffer.tau());
        let at = known.iter().position(|(same, ..)| *same == memo).unwrap_or_else(|| {
            let policy = Remembered::new(ServedPolicy::mode(&*training.agent, &memo));
            let decide = |x: &AugmentedInput| policy.action(x);
            let evaluation = evaluator.evaluate(&decide);
            let typical = evaluator.typical_collected(&decide);
            let target = evaluation.law.quantile(tau);
            let plan = Plan::new(&dial.problem, axes, &decide, &evaluation, target, &typical);
            let at = plans.iter().position(|known| *known == plan).unwrap_or(plans.len());
            if at == plans.len() {
                plans.push(plan);
            }
            known.push((memo, at, evaluation));
            known.len() - 1
        });
        let (_, plan, evaluation) = &known[at];
        answers.push(ServedLevel {
            tau,
            quantile: rounded(evaluation.law.quantile(tau)),
            mean: rounded(evaluation.mean),
            aim: memo.target.map(|target| rounded(target.v)),
            plan: *plan,
        });
    }
    let clock = training.progress.clock;
    let answer =
        Served { seed, episodes: clock.episodes, steps: clock.steps, every_level, levels: answers, plans };
    Ok(serde_json::to_vec(&answer).expect("plain numbers and text serialise").into())
}

/// An episode under the policy of a run at a level. The target is what the agent aims at, or `otherwise`.
pub fn episode(
    dial: &Dial,
    training: &Training,
    tau: f64,
    otherwise: f64,
    seed: u64,
) -> Result<Episode, String> {
    let memo = *training.agent.serve(&[level(tau)?], Objective::Quantile).at(0);
    let policy = Remembered::new(ServedPolicy::mode(&*training.agent, &memo));
    let planner = lock(&dial.planner);
    let outlook = dial.outlook(&planner).ok_or(super::TOO_LARGE)?;
    let target = memo.target.map_or(otherwise, |target| target.v);
    Ok(play::episode(&dial.problem, &planner, outlook, &|x| policy.action(x), target, seed))
}

/// τ with β = τ: the policy for a point quantile does not depend on β.
fn level(tau: f64) -> Result<Buffer, String> {
    Buffer::new(tau, tau).map_err(|error| error.to_string())
}

/// A policy that computes each of its decisions once.
struct Remembered<'a> {
    policy: ServedPolicy<'a>,
    decided: RefCell<HashMap<(usize, usize, u64), usize>>,
}

impl<'a> Remembered<'a> {
    fn new(policy: ServedPolicy<'a>) -> Self {
        Self { policy, decided: RefCell::default() }
    }

    fn action(&self, x: &AugmentedInput) -> usize {
        let key = (x.stage, x.state, x.collected.to_bits());
        if let Some(&action) = self.decided.borrow().get(&key) {
            return action;
        }
        let mut choice = Vec::with_capacity(1);
        bqrl_mdp::evaluate::Policy::decide(&self.policy, x, &mut choice);
        let action = choice[0].0;
        self.decided.borrow_mut().insert(key, action);
        action
    }
}
