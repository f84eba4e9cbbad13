//! A policy that is played step by step, so that one can watch it.
//!
//! It plays one episode after the other in one lane. Draws are those of evaluations: the first game of a seed is the first one that an
//! evaluation of that seed plays.

use bqrl_agents::{Input, Memo, Objective, ServedPolicy};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::{Purpose, lane_stream};
use bqrl_mdp::lanes::{EnvError, Seen};
use bqrl_mdp::trajectory::{End, Observation};

use crate::task::Task;
use crate::train::Training;

/// Who plays.
pub enum Watched<'a> {
    /// Uniformly random actions.
    Random,
    /// The greedy policy of a training, at a level.
    Trained(&'a Training, Buffer),
}

/// What there is to see: the start of an episode, or a step.
pub struct Sight<'a> {
    /// The observation.
    pub observation: &'a Observation,
    /// The action that led here; `None` at the start.
    pub action: Option<usize>,
    /// Steps of the episode so far.
    pub stage: usize,
    /// The rewards of the episode so far, not discounted.
    pub total: f64,
    /// Whether the episode is over.
    pub end: End,
}

/// Plays until `steps` were taken, or one episode if it is `None`. `show` is called with every sight and says whether to go on.
pub fn watch(
    task: &dyn Task,
    watched: &Watched,
    seed: u64,
    steps: Option<u64>,
    show: &mut dyn FnMut(&Sight) -> bool,
) -> Result<(), EnvError> {
    let memo = match watched {
        Watched::Random => Memo::default(),
        Watched::Trained(training, level) => training.agent.serve(&[*level], Objective::Quantile).memos()[0],
    };
    let mut draws = lane_stream(seed, Purpose::EvaluationActions, 0);
    let mut choose = |x: &Input| match watched {
        Watched::Random => draws.below(task.spec().n_actions),
        Watched::Trained(training, _) => ServedPolicy::new(&*training.agent, &memo).action(x),
    };
    let nothing = || EnvError::new("the environment shows nothing");
    let mut lanes = task.lanes(seed, Purpose::Evaluation, 1)?;
    let mut taken = 0;
    loop {
        let mut observation = lanes.reset(0)?.ok_or_else(nothing)?;
        let (mut stage, mut total, mut collected) = (0, 0.0, 0.0);
        let start = Sight { observation: &observation, action: None, stage, total, end: End::NotYet };
        if !show(&start) {
            return Ok(());
        }
        loop {
            if steps.is_some_and(|steps| taken >= steps) {
                return Ok(());
            }
            let action = choose(&Input { stage, observation: &observation, collected });
            let Some(Seen::Step(step)) = lanes.step(&[Some(action)])?.pop() else { return Err(nothing()) };
            collected += task.spec().discount.powi(stage as i32) * step.reward;
            total += step.reward;
            stage += 1;
            taken += 1;
            observation = step.observation;
            let end = step.end;
            if !show(&Sight { observation: &observation, action: Some(action), stage, total, end }) {
                return Ok(());
            }
            if end.is_over() {
                break;
            }
        }
        if steps.is_none() {
            return Ok(());
        }
    }
}
