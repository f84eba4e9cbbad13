//! A minibatch ℬ drawn from 𝒟, encoded for the critics; its memory is reused from update to update.

use bqrl_math::rng::Rng;
use bqrl_nn::Batch;

use super::encode::Encoder;
use super::replay::Replay;
use crate::Input;

/// Memory for a minibatch.
#[derive(Default)]
pub struct Minibatch {
    inputs: Vec<f32>,
    actions: Vec<usize>,
    rewards: Vec<f32>,
    next_inputs: Vec<f32>,
    done: Vec<bool>,
}

impl Minibatch {
    /// Draws `size` transitions uniformly; rewards are divided by `reward_scale`.
    pub fn draw(
        &mut self,
        size: usize,
        replay: &Replay,
        encoder: &Encoder,
        reward_scale: f64,
        rng: &mut Rng,
    ) -> Batch<'_> {
        let Self { inputs, actions, rewards, next_inputs, done } = self;
        inputs.clear();
        actions.clear();
        rewards.clear();
        next_inputs.clear();
        done.clear();
        for _ in 0..size {
            let transition = replay.sample(rng);
            let (stage, observation, collected) = &transition.x;
            encoder.encode(&Input { stage: *stage, observation, collected: *collected }, inputs);
            // If d = 1 the continuation is not evaluated; x takes the place of x'.
            let (stage, observation, collected) = transition.next.as_ref().unwrap_or(&transition.x);
            encoder.encode(&Input { stage: *stage, observation, collected: *collected }, next_inputs);
            actions.push(transition.action);
            rewards.push((transition.reward / reward_scale) as f32);
            done.push(transition.next.is_none());
        }
        Batch { inputs, actions, rewards, next_inputs, done }
    }
}
