//! A minibatch ℬ drawn from 𝒟, encoded for the critics; its memory is reused from update to update.

use bqrl_math::rng::Rng;
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::Batch;

use super::encode::{Encoded, Encoder};
use super::replay::Replay;
use crate::Input;

/// Memory for a minibatch.
#[derive(Default)]
pub struct Minibatch {
    inputs: Encoded,
    actions: Vec<usize>,
    rewards: Vec<f32>,
    next_inputs: Encoded,
    continuation: Vec<f32>,
}

/// The size of a minibatch, the steps of each transition, and the unit of its rewards.
#[derive(Clone, Copy, Debug)]
pub struct Draw {
    /// |ℬ|.
    pub size: usize,
    /// Rewards that are summed, at most.
    pub n_steps: usize,
    /// γ.
    pub discount: f64,
    /// σ.
    pub sigma: f64,
    /// H and the problem's γ, where transitions may be moved to other stages.
    pub stages: Option<(usize, f64)>,
}

/// The share of the transitions that are moved, where they may be.
const MOVED: f64 = 0.5;

/// Imagined transitions: in the states of a minibatch, an action that was hardly tried ends at once with more than the best return.
///
/// The earlier it is tried, the more. Without this, trying it later would be worth as much, and it would be put off for ever.
pub struct Imagined<'a> {
    /// Tries of every action in every state, s · A + a; empty where nothing is imagined.
    pub tries: &'a [u32],
    /// A.
    pub n_actions: usize,
    /// Tries after which an action is known.
    pub known: u32,
    /// The best return.
    pub best: f64,
    /// What is added to it at the start; it falls to nothing over H stages.
    pub more: f64,
    /// H.
    pub horizon: usize,
}

impl Imagined<'_> {
    /// The imagined return.
    fn worth(&self, stage: usize) -> f64 {
        self.best + self.more * (self.horizon.saturating_sub(stage) as f64 / self.horizon as f64)
    }

    /// The actions that are not known in a state.
    fn at(&self, observation: &Observation) -> impl Iterator<Item = usize> {
        let tries = match observation {
            Observation::Index(s) if !self.tries.is_empty() => {
                &self.tries[s * self.n_actions..(s + 1) * self.n_actions]
            }
            _ => &[],
        };
        tries.iter().enumerate().filter(|&(_, &tries)| tries < self.known).map(|(action, _)| action)
    }
}

impl Minibatch {
    /// Draws transitions uniformly, each over some steps or to the end of its episode. In a stationary task, half of them are moved to a
    /// stage drawn uniformly: late stages are rarely visited, but their transitions are those of all stages. Imagined transitions come
    /// on top.
    pub fn draw(
        &mut self,
        of: &Draw,
        replay: &Replay,
        encoder: &Encoder,
        imagined: &Imagined,
        rng: &mut Rng,
    ) -> Batch<'_> {
        let Draw { size, n_steps, discount, sigma, stages } = *of;
        let Self { inputs, actions, rewards, next_inputs, continuation } = self;
        inputs.clear();
        actions.clear();
        rewards.clear();
        next_inputs.clear();
        continuation.clear();
        for _ in 0..size {
            let transition = match stages {
                Some((horizon, gamma)) if rng.uniform() < MOVED => {
                    let stage = rng.below(horizon);
                    let sampled = replay.sample(n_steps.min(horizon - stage), discount, rng);
                    sampled.at_stage(stage, horizon, gamma)
                }
                _ => replay.sample(n_steps, discount, rng),
            };
            let (stage, observation, collected) = &transition.x;
            encoder.encode(&Input { stage: *stage, observation, collected: *collected }, sigma, inputs);
            // If d = 1 what follows is not evaluated; x takes the place of x'.
            let (stage, observation, collected) = transition.next.as_ref().unwrap_or(&transition.x);
            encoder.encode(&Input { stage: *stage, observation, collected: *collected }, sigma, next_inputs);
            actions.push(transition.action);
            rewards.push((transition.reward / sigma) as f32);
            continuation.push(transition.continuation as f32);
            for action in imagined.at(&transition.x.1) {
                let (stage, observation, collected) = &transition.x;
                let x = Input { stage: *stage, observation, collected: *collected };
                encoder.encode(&x, sigma, inputs);
                encoder.encode(&x, sigma, next_inputs);
                actions.push(action);
                rewards.push((imagined.worth(x.stage) / sigma) as f32);
                continuation.push(0.0);
            }
        }
        let (inputs, next_inputs) = (encoder.rows(inputs), encoder.rows(next_inputs));
        Batch { inputs, actions, rewards, next_inputs, continuation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_try_is_worth_more_the_earlier_it_is_made_and_known_actions_are_not_imagined() {
        let imagined =
            Imagined { tries: &[3, 0, 2, 3], n_actions: 2, known: 3, best: 1.0, more: 2.0, horizon: 4 };
        assert_eq!([0, 1, 2, 4].map(|stage| imagined.worth(stage)), [3.0, 2.5, 2.0, 1.0]);
        let unknown = |s| imagined.at(&Observation::Index(s)).collect::<Vec<_>>();
        assert_eq!([unknown(0), unknown(1)], [vec![1], vec![0]]);
    }
}
