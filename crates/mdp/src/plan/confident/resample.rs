//! The same table with other counts that the log might as well have had: the Bayesian bootstrap (Rubin 1981).
//!
//! Every outcome gets a weight from a gamma law with its count as the shape; the weights of a row, scaled to 1, are its probabilities.
//! How much a value varies over such tables is a practical indicator of its uncertainty. It is no promise: what was never seen
//! stays impossible.

use bqrl_math::Rng;

use crate::counts::Counts;
use crate::model::{Kernel, Model, ModelError, Outcome};

/// A model with probabilities drawn around those of the counts.
pub fn resampled(model: &Model, counts: &Counts, rng: &mut Rng) -> Result<Model, ModelError> {
    let mut kernels = Vec::with_capacity(counts.n_kernels());
    for kernel in 0..counts.n_kernels() {
        let mut rows = Vec::new();
        for state in 0..counts.n_states() {
            for action in 0..counts.n_actions() {
                let seen = counts.seen(kernel, state, action);
                let weights = weights(seen.iter().map(|seen| seen.count), rng);
                rows.extend(seen.iter().zip(weights).map(|(seen, probability)| {
                    (state, action, Outcome { probability, next: seen.next as usize, reward: seen.reward })
                }));
            }
        }
        kernels.push(Kernel::new(counts.n_states(), counts.n_actions(), rows)?);
    }
    let start = match counts.starts() {
        [] | [_] => model.start().to_vec(),
        starts => {
            let weights = weights(starts.iter().map(|start| start.count), rng);
            starts.iter().map(|start| start.state as usize).zip(weights).collect()
        }
    };
    Model::new(kernels, model.horizon(), model.discount(), start)
}

/// Weights that sum to 1.
fn weights(counts: impl Iterator<Item = u64>, rng: &mut Rng) -> Vec<f64> {
    let drawn: Vec<f64> = counts.map(|count| gamma(count as f64, rng)).collect();
    let sum: f64 = drawn.iter().sum();
    drawn.into_iter().map(|weight| weight / sum).collect()
}

/// A draw from the gamma law with shape ≥ 1 and scale 1 (Marsaglia and Tsang 2000).
fn gamma(shape: f64, rng: &mut Rng) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = rng.normal();
        let v = (1.0 + c * x).powi(3);
        let u = 1.0 - rng.uniform();
        if v > 0.0 && u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

#[cfg(test)]
mod tests {
    use bqrl_math::{Purpose, stream};

    use super::*;

    #[test]
    fn gamma_draws_have_their_mean_and_variance() {
        // Mean and variance are the shape. n = 20 000, five standard errors; the fourth moment about the mean is 3k² + 6k.
        let mut rng = stream(1, Purpose::Test);
        for shape in [1.0, 2.5, 40.0] {
            let n = 20_000.0;
            let draws: Vec<f64> = (0..20_000).map(|_| gamma(shape, &mut rng)).collect();
            let mean = draws.iter().sum::<f64>() / n;
            let variance = draws.iter().map(|x| (x - shape).powi(2)).sum::<f64>() / n;
            assert!((mean - shape).abs() < 5.0 * (shape / n).sqrt(), "{shape} {mean}");
            assert!(
                (variance - shape).abs() < 5.0 * ((2.0 * shape * shape + 6.0 * shape) / n).sqrt(),
                "{variance}"
            );
        }
    }
}
