//! The policy of a run at every level, beside the best one.
//!
//! The agent of a seed is asked at many levels. Each policy that it serves is evaluated exactly, on the model of the dial. An
//! agent with one policy for all levels is evaluated once.

use std::cell::RefCell;
use std::collections::HashMap;

use bqrl_agents::{Memo, Objective, ServedPolicy};
use bqrl_lab::train::Training;
use bqrl_math::buffer::Buffer;
use bqrl_mdp::evaluate::{Evaluation, Evaluator};
use bqrl_mdp::trajectory::AugmentedInput;
use hyper::body::Bytes;
use serde::Serialize;

use super::buffered::SHARES;
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
    /// Its policies for (τ, β), by τ and then by β; none for an agent with one policy, which is the same for every β.
    buffered: Vec<ServedLevel>,
    plans: Vec<Plan>,
}

#[derive(Serialize)]
struct ServedLevel {
    tau: f64,
    /// β as a share of τ, in per cent; 0 for the point quantile.
    share: usize,
    /// Q_τ^β of the policy, if the share is not 0.
    attained: Option<f64>,
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
    let every_level = training.agent.serve(&[level(0.5, 0)?], Objective::Quantile).is_per_level();
    let stride = |policies: usize| {
        let policies = |stride: usize| if every_level { 99 / stride * policies } else { 1 };
        STRIDES.into_iter().find(|&stride| policies(stride) * cost <= MOST_DECISIONS)
    };
    let finest = stride(1).ok_or(
        "the problem is too large to ask the run at many levels while you wait; `bqrl eval` asks it at those that you name",
    )?;
    let mut asking =
        Asking { dial, training, evaluator, plans: Vec::new(), known: Vec::new(), answers: Vec::new() };
    asking.ask(finest, &[0])?;
    let levels = std::mem::take(&mut asking.answers);
    if let Some(stride) = stride(SHARES.len()).filter(|_| every_level) {
        asking.ask(stride, &SHARES)?;
    }
    let clock = training.progress.clock;
    let answer = Served {
        seed,
        episodes: clock.episodes,
        steps: clock.steps,
        every_level,
        levels,
        buffered: asking.answers,
        plans: asking.plans,
    };
    Ok(serde_json::to_vec(&answer).expect("plain numbers and text serialise").into())
}

struct Asking<'a> {
    dial: &'a Dial,
    training: &'a Training,
    evaluator: Evaluator,
    plans: Vec<Plan>,
    /// Levels with the same memo have the same policy.
    known: Vec<(Memo, usize, Evaluation)>,
    answers: Vec<ServedLevel>,
}

impl Asking<'_> {
    /// Asks at every so many levels, with each of the shares.
    fn ask(&mut self, stride: usize, shares: &[usize]) -> Result<(), String> {
        let taus = (1..100).filter(|percent| percent % stride == 0).map(|percent| percent as f64 / 100.0);
        let asked: Vec<(usize, Buffer)> = taus
            .flat_map(|tau| shares.iter().map(move |&share| Ok((share, level(tau, share)?))))
            .collect::<Result<_, String>>()?;
        let levels: Vec<Buffer> = asked.iter().map(|&(_, buffer)| buffer).collect();
        let memos = self.training.agent.serve(&levels, objective(shares[0]));
        for (index, (share, buffer)) in asked.iter().enumerate() {
            let (memo, tau) = (*memos.at(index), buffer.tau());
            let (plan, evaluation) = self.evaluated(&memo, tau);
            let law = &evaluation.law;
            let answer = ServedLevel {
                tau,
                share: *share,
                attained: (*share > 0).then(|| rounded(law.buffered_quantile(buffer))),
                quantile: rounded(law.quantile(tau)),
                mean: rounded(evaluation.mean),
                aim: memo.target.map(|target| rounded(target.v)),
                plan,
            };
            self.answers.push(answer);
        }
        Ok(())
    }

    /// The place among the plans, and the evaluation, of the policy that starts with a memo.
    fn evaluated(&mut self, memo: &Memo, tau: f64) -> (usize, &Evaluation) {
        let known = self.known.iter().position(|(same, ..)| same == memo);
        let at = known.unwrap_or_else(|| {
            let policy = Remembered::new(ServedPolicy::mode(&*self.training.agent, memo));
            let decide = |x: &AugmentedInput| policy.action(x);
            let evaluation = self.evaluator.evaluate(&decide);
            let typical = self.evaluator.typical_collected(&decide);
            let target = evaluation.law.quantile(tau);
            let axes = Axes { stages: &self.dial.stages, rows: &self.dial.states };
            let plan = Plan::new(&self.dial.problem, axes, &decide, &evaluation, target, &typical);
            let at = self.plans.iter().position(|known| *known == plan).unwrap_or(self.plans.len());
            if at == self.plans.len() {
                self.plans.push(plan);
            }
            self.known.push((*memo, at, evaluation));
            self.known.len() - 1
        });
        let (_, plan, evaluation) = &self.known[at];
        (*plan, evaluation)
    }
}

/// An episode under the policy of a run for a level and a share of it. The target is what the agent aims at, or `otherwise`.
pub fn episode(
    dial: &Dial,
    training: &Training,
    (tau, share): (f64, usize),
    otherwise: f64,
    seed: u64,
) -> Result<Episode, String> {
    let memo = *training.agent.serve(&[level(tau, share)?], objective(share)).at(0);
    let policy = Remembered::new(ServedPolicy::mode(&*training.agent, &memo));
    let planner = lock(&dial.planner);
    let outlook = dial.outlook(&planner).ok_or(super::TOO_LARGE)?;
    let target = memo.target.map_or(otherwise, |target| target.v);
    Ok(play::episode(&dial.problem, &planner, outlook, &|x| policy.action(x), target, seed))
}

/// τ, and β as a share of it. Without a share β = τ: the policy for a point quantile does not depend on β.
fn level(tau: f64, share: usize) -> Result<Buffer, String> {
    let beta = if share == 0 { tau } else { tau * share as f64 / 100.0 };
    Buffer::new(tau, beta).map_err(|error| error.to_string())
}

fn objective(share: usize) -> Objective {
    if share == 0 { Objective::Quantile } else { Objective::Buffered }
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
