//! The law of a policy's return: exact if the set of possible returns allows it, otherwise from played episodes.
//!
//! Playing uses the common play loop, with many lanes at a time. Lane k plays episodes k, k + n, k + 2n, … and then stops. If
//! episodes were counted as they finish, short ones would be over-represented. Every evaluation of a seed uses the same
//! random draws, so that two policies differ by their actions and not by luck.

use bqrl_agents::play::{Finished, Play, PlayError, Player};
use bqrl_agents::{Agent, Input, LearnError, Memo, ServedPolicies, ServedPolicy, Transition, Waiting};
use bqrl_math::interval::quantile_interval;
use bqrl_math::law::ReturnLaw;
use bqrl_math::rng::{Purpose, Rng, lane_stream};
use bqrl_mdp::evaluate::{Choice, Evaluation};
use bqrl_mdp::trajectory::Observation;

use crate::task::{References, Task};

/// Lanes of an evaluation. A constant, so that the draws do not depend on the machine.
const LANES: usize = 32;

/// The confidence of reported intervals.
pub const CONFIDENCE: f64 = 0.95;

/// The measured return of a policy.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Its law, or that of the sample.
    pub law: ReturnLaw,
    /// Its mean.
    pub mean: f64,
    /// The returns that were played, where the law is not exact.
    pub sample: Option<Vec<f64>>,
    /// First observations, each with its probability; some of them where episodes were played.
    pub starts: Vec<(Observation, f64)>,
}

impl Measured {
    /// A distribution-free interval of Q_τ, where episodes were played and there are enough for one.
    pub fn interval(&self, tau: f64) -> Option<[f64; 2]> {
        let sample = self.sample.as_ref()?;
        quantile_interval(sample, tau, CONFIDENCE).map(|interval| [interval.low, interval.high])
    }
}

/// First observations that are kept of an evaluation.
const STARTS: usize = 32;

/// The prediction of an agent for a served policy, and the measurement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Calibration {
    /// The return in question: the target that the policy holds, or else the predicted Q_τ.
    pub goal: f64,
    /// The predicted P(R ≥ goal).
    pub predicted: f64,
    /// The measured one.
    pub measured: f64,
}

impl Calibration {
    /// At a level; `None` for an agent that predicts nothing, or has seen nothing.
    pub fn new(agent: &dyn Agent, memo: &Memo, tau: f64, measured: &Measured) -> Option<Self> {
        let (goal, predicted) = if let Some(target) = &memo.target {
            (target.u, agent.chance(target)?)
        } else {
            let law = predicted_law(agent, memo, &measured.starts)?;
            let goal = law.quantile(tau);
            (goal, law.probability_at_least(goal))
        };
        Some(Self { goal, predicted, measured: measured.law.probability_at_least(goal) })
    }
}

/// The law of the return that the critics predict for the policy's first actions.
fn predicted_law(agent: &dyn Agent, memo: &Memo, starts: &[(Observation, f64)]) -> Option<ReturnLaw> {
    let mut atoms = Vec::new();
    for (observation, share) in starts {
        let x = Input { stage: 0, observation, collected: 0.0 };
        let action = ServedPolicy::mode(agent, memo).action(&x);
        let of_action: Vec<f64> = agent
            .predictions(&x)
            .iter()
            .filter(|prediction| prediction.action == action)
            .map(|prediction| prediction.value)
            .collect();
        let n = of_action.len() as f64;
        atoms.extend(of_action.into_iter().map(|value| (value, share / n)));
    }
    ReturnLaw::from_atoms(atoms).ok()
}

/// Measures policies; `episodes` of each are played if exact evaluation is not possible.
pub fn measure(
    policies: ServedPolicies,
    task: &dyn Task,
    references: &References,
    episodes: usize,
    seed: u64,
) -> Result<Vec<Measured>, PlayError> {
    if let Some(evaluator) = &references.evaluator {
        let table = task.table().expect("only a table has an evaluator");
        let starts: Vec<_> =
            table.model.start().iter().map(|&(state, p)| (Observation::Index(state), p)).collect();
        let exact = |evaluation: Evaluation| Measured {
            law: evaluation.law,
            mean: evaluation.mean,
            sample: None,
            starts: starts.clone(),
        };
        return Ok(evaluator.evaluate_all(&policies).into_iter().map(exact).collect());
    }
    let played = |policy| {
        let (played, starts) = play_from(policy, task, episodes, seed)?;
        let returns: Vec<f64> = played.iter().map(|episode| episode.episode_return).collect();
        let law = ReturnLaw::from_samples(&returns).expect("there are episodes, and rewards are finite");
        let share = 1.0 / starts.len().max(1) as f64;
        let starts = starts.into_iter().map(|start| (start, share)).collect();
        Ok(Measured { mean: law.mean(), law, sample: Some(returns), starts })
    };
    policies.each().map(played).collect()
}

/// Plays this many episodes and returns them in their order.
pub fn play(
    policy: ServedPolicy,
    task: &dyn Task,
    episodes: usize,
    seed: u64,
) -> Result<Vec<Finished>, PlayError> {
    play_from(policy, task, episodes, seed).map(|(played, _)| played)
}

/// The same, with the first observations of the first episodes.
fn play_from(
    policy: ServedPolicy,
    task: &dyn Task,
    episodes: usize,
    seed: u64,
) -> Result<(Vec<Finished>, Vec<Observation>), PlayError> {
    let lanes = task.lanes(seed, Purpose::Evaluation, LANES.min(episodes))?;
    let n = lanes.n_lanes();
    let draws = (0..n).map(|lane| lane_stream(seed, Purpose::EvaluationActions, lane)).collect();
    let mut player = Evaluated { policy, draws, starts: Vec::new() };
    let mut play = Play::new(lanes);
    let mut played: Vec<Vec<Finished>> = vec![Vec::new(); n];
    let quota = |lane: usize| episodes / n + usize::from(lane < episodes % n);
    (0..n).filter(|&lane| quota(lane) == 0).for_each(|lane| play.close(lane));
    while (0..n).any(|lane| played[lane].len() < quota(lane)) {
        let (_, finished) = play.tick(&mut player)?;
        for episode in finished {
            // A vector environment may continue to play in a lane that has finished its episodes.
            if played[episode.lane].len() < quota(episode.lane) {
                played[episode.lane].push(episode);
            }
            if played[episode.lane].len() == quota(episode.lane) {
                play.close(episode.lane);
            }
        }
    }
    Ok(((0..episodes).map(|episode| played[episode % n][episode / n]).collect(), player.starts))
}

/// A policy that plays and learns nothing.
struct Evaluated<'a> {
    policy: ServedPolicy<'a>,
    /// Draws the actions of a stochastic policy, per lane.
    draws: Vec<Rng>,
    /// The first observations that it saw, at most [`STARTS`].
    starts: Vec<Observation>,
}

impl Player for Evaluated<'_> {
    fn begin(&mut self, _lane: usize, start: &Observation) -> Memo {
        if self.starts.len() < STARTS {
            self.starts.push(start.clone());
        }
        self.policy.memo()
    }

    fn act(&mut self, lanes: &[usize], waiting: &[Waiting]) -> Vec<usize> {
        let action = |(&lane, choice): (&usize, Choice)| {
            if let [(action, _)] = choice[..] {
                return action;
            }
            let probabilities: Vec<f64> = choice.iter().map(|&(_, probability)| probability).collect();
            choice[self.draws[lane].categorical(&probabilities)].0
        };
        lanes
            .iter()
            .zip(self.policy.decide_all(waiting.iter().map(|waiting| waiting.x)))
            .map(action)
            .collect()
    }

    fn observe(&mut self, _: usize, _: &Transition) -> Result<(), LearnError> {
        Ok(())
    }

    fn tick_is_over(&mut self) -> Result<(), LearnError> {
        Ok(())
    }
}
