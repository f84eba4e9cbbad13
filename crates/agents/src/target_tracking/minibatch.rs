//! Samples for one update of target tracking: sorted by action, with imagined trials and the priors at them.

use std::ops::Range;

use bqrl_math::rng::Rng;
use bqrl_mdp::trajectory::Observation;
use bqrl_nn::{Ensemble, Inputs, Panels, Which};

use super::Config;
use crate::Input;
use crate::experience::encode::Encoder;
use crate::experience::replay::Replay;

/// √D/|x| makes a random network without biases have root mean square 1 over its weights, at every x.
pub(super) fn prior_factor(input: &[f32], prior_t: f64) -> f32 {
    let square: f64 = input.iter().map(|&x| f64::from(x).powi(2)).sum();
    (prior_t * (input.len() as f64 / square.max(1e-12)).sqrt()) as f32
}

fn input((stage, observation, collected): &(usize, Observation, f64)) -> Input<'_> {
    Input { stage: *stage, observation, collected: *collected }
}

/// Real samples for every imagined trial.
const REAL_PER_IMAGINED: usize = 4;

/// A minibatch, sorted by action.
#[derive(Default)]
pub(super) struct Minibatch {
    /// The first sample of each action, and the end.
    pub(super) bounds: Vec<usize>,
    /// x of the samples of an action and then of its imagined trials.
    pub(super) inputs: Vec<Inputs>,
    pub(super) next_inputs: Inputs,
    /// Which transitions they are.
    pub(super) numbers: Vec<u64>,
    pub(super) rewards: Vec<f64>,
    pub(super) done: Vec<bool>,
    /// Total number of imagined trials.
    pub(super) n_imagined: usize,
    /// Priors at the inputs, and at x', per network.
    pub(super) shifts: Vec<Vec<f32>>,
    pub(super) next_shifts: Vec<Vec<f32>>,
    /// The inputs as rows, per action.
    pub(super) rows: Vec<Vec<f32>>,
    pub(super) next_rows: Vec<f32>,
}

impl Minibatch {
    pub(super) fn len(&self) -> usize {
        self.done.len()
    }

    pub(super) fn of_action(&self, action: usize) -> Range<usize> {
        self.bounds[action]..self.bounds[action + 1]
    }

    pub(super) fn draw(
        &mut self,
        config: &Config,
        n_actions: usize,
        replay: &Replay,
        encoder: &Encoder,
        rng: &mut Rng,
    ) {
        let mut samples: Vec<_> = (0..config.batch_size).map(|_| replay.sample(rng)).collect();
        self.n_imagined = if config.imagined > 0.0 && encoder.is_one_hot() {
            config.batch_size.div_ceil(REAL_PER_IMAGINED)
        } else {
            0
        };
        let imagined: Vec<_> = samples[..self.n_imagined]
            .iter()
            .map(|sample| (rng.below(n_actions), sample.x.clone()))
            .collect();
        samples.sort_by_key(|sample| sample.action);

        let Self { bounds, inputs, next_inputs, numbers, rewards, done, rows, next_rows, .. } = self;
        rows.resize_with(n_actions, Vec::new);
        rows.iter_mut().for_each(Vec::clear);
        numbers.clear();
        next_rows.clear();
        rewards.clear();
        done.clear();
        for sample in &samples {
            encoder.encode(&input(&sample.x), &mut rows[sample.action]);
            encoder.encode(&input(sample.next.as_ref().unwrap_or(&sample.x)), next_rows);
            numbers.push(sample.number);
            rewards.push(sample.reward);
            done.push(sample.next.is_none());
        }
        for (action, x) in &imagined {
            encoder.encode(&input(x), &mut rows[*action]);
        }
        bounds.clear();
        bounds.extend((0..=n_actions).map(|a| samples.partition_point(|sample| sample.action < a)));
        inputs.resize_with(n_actions, Inputs::default);
        for (inputs, rows) in inputs.iter_mut().zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            inputs.fill_from_rows(rows, encoder.width());
        }
        next_inputs.fill_from_rows(next_rows, encoder.width());
    }

    /// Priors at the inputs of each action, and at x'.
    pub(super) fn shift(&mut self, priors: &mut Ensemble, prior_t: f64) {
        let width = priors.shape().n_inputs;
        let n_actions = self.inputs.len();
        let factors =
            |rows: &[f32]| rows.chunks_exact(width).map(|row| prior_factor(row, prior_t)).collect::<Vec<_>>();
        let of_action: Vec<Vec<f32>> = self.rows.iter().map(|rows| factors(rows)).collect();
        let of_next = factors(&self.next_rows);
        let shifts = priors.each_member(|member| {
            let a = member.index() % n_actions;
            let mut shift = |inputs: &Inputs, factors: &[f32]| -> Vec<f32> {
                let mut outputs = Panels::default();
                member.predict(Which::Target, inputs, &mut outputs);
                factors.iter().enumerate().map(|(s, factor)| factor * outputs.get(s, 0)).collect()
            };
            let here =
                if of_action[a].is_empty() { Vec::new() } else { shift(&self.inputs[a], &of_action[a]) };
            (here, shift(&self.next_inputs, &of_next))
        });
        (self.shifts, self.next_shifts) = shifts.into_iter().unzip();
    }
}
