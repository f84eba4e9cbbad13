//! The steps that benchmarks measure: the reference shapes, on one fixed minibatch of noise.
//!
//! `bqrl bench`, `cargo bench` and the comparison with other libraries (`cargo xtask bench-peers`) all measure these.

use std::hint::black_box;

use bqrl_math::{Buffer, Purpose, Rng, stream};

use crate::{
    Adam, Batch, Cells, Choice, Convolution, Ensemble, Head, Init, Kernels, Planes, Rows, Shape, Sight,
    TargetRule, Which,
};

/// Critics and the minibatch to train them on.
#[derive(Clone, Debug)]
pub struct Workload {
    critics: Ensemble,
    rule: TargetRule,
    inputs: Stored,
    /// The first of them.
    x: Vec<f32>,
    actions: Vec<usize>,
    rewards: Vec<f32>,
    next_inputs: Stored,
    continuation: Vec<f32>,
}

/// Inputs as agents keep them.
#[derive(Clone, Debug)]
struct Stored {
    /// Their kind, and cells of a sample.
    cells: Option<(Cells, usize)>,
    bytes: Vec<u8>,
    floats: Vec<f32>,
}

impl Stored {
    /// Noise: normal floats, and planes where the networks see. Planes of games are bits, those of videos are bytes.
    fn noise(shape: &Shape, cells: Cells, n_samples: usize, rng: &mut Rng) -> Self {
        let n = shape.sight.as_ref().map_or(0, |sight| sight.planes.iter().product());
        Self {
            cells: shape.sight.as_ref().map(|_| (cells, n)),
            bytes: (0..n_samples * cells.bytes(n)).map(|_| rng.below(256) as u8).collect(),
            floats: (0..n_samples * (shape.n_inputs - n)).map(|_| rng.normal() as f32).collect(),
        }
    }

    fn rows(&self) -> Rows<'_> {
        let planes = |(cells, n)| Planes { cells, n, bytes: &self.bytes };
        Rows { planes: self.cells.map(planes), floats: &self.floats }
    }
}

impl Workload {
    /// The reference shapes of Deep-BQRL: small, medium, large, and one with more inputs and actions. Target tracking on a
    /// table (t) and on vectors (v). QR-DQN on a MinAtar game with few and many samples (g, h), and on Atari (a).
    pub const NAMES: [&str; 9] = ["s", "m", "l", "x", "t", "v", "g", "h", "a"];

    /// Always the same critics and batch for a name. `None` for a name that is not among [`NAMES`](Self::NAMES).
    pub fn named(name: &str, kernels: Kernels) -> Option<Self> {
        let paper = |n_inputs, width, n_actions, n_quantiles| Shape {
            n_inputs,
            sight: None,
            hidden: vec![width; 2],
            layer_norm: false,
            n_heads: 1,
            n_twins: 1,
            n_actions,
            n_quantiles,
            n_critics: 5,
        };
        let tracking = |n_inputs, hidden: &[usize], n_heads, n_twins| Shape {
            n_inputs,
            sight: None,
            hidden: hidden.to_vec(),
            layer_norm: true,
            n_heads,
            n_twins,
            n_actions: 2,
            n_quantiles: 64,
            n_critics: 1,
        };
        let seeing = |planes: [usize; 3], convolutions: &[[usize; 3]], width, n_actions, n_quantiles| {
            let convolution =
                |&[channels, kernel, stride]: &[usize; 3]| Convolution { channels, kernel, stride };
            let convolutions = convolutions.iter().map(convolution).collect();
            Shape {
                // Beside the planes: the time to go.
                n_inputs: planes.iter().product::<usize>() + 15,
                sight: Some(Sight { planes, convolutions }),
                n_actions,
                n_quantiles,
                ..tracking(0, &[width], 1, 1)
            }
        };
        let game = seeing([4, 10, 10], &[[16, 3, 1]], 128, 6, 51);
        let (shape, batch) = match name {
            "s" => (paper(28, 64, 2, 51), 64),
            "m" => (paper(28, 128, 2, 51), 64),
            "l" => (paper(28, 256, 2, 51), 256),
            "x" => (paper(128, 64, 4, 32), 64),
            "t" => (tracking(30, &[64], 4, 1), 32),
            "v" => (tracking(14, &[128, 128], 2, 2), 64),
            "g" => (game, 32),
            "h" => (game, 128),
            "a" => (seeing([4, 84, 84], &[[32, 5, 5], [64, 5, 5]], 256, 4, 51), 32),
            _ => return None,
        };
        let Shape { n_actions, n_quantiles, n_heads, .. } = shape;
        let rule = if shape.layer_norm {
            // The envelope, the mean, and ramps.
            let per_level = |ramp| Head { choice: Choice::PerLevel, ramp };
            let choice = Choice::One(vec![1.0 / n_quantiles as f32; n_quantiles]);
            let mean = Head { choice, ramp: 0.0 };
            let heads = match n_heads {
                1 => vec![mean],
                _ => [per_level(0.0), mean, per_level(0.3), per_level(1.0)][..n_heads].to_vec(),
            };
            let rule = TargetRule::heads_of(heads, n_quantiles, 0.02);
            let rule = rule.expect("a valid rule").smooth();
            if shape.n_twins > 1 { rule.double() } else { rule }
        } else {
            let buffer = Buffer::new(0.1, 0.05).expect("a valid buffer");
            TargetRule::buffered(&buffer, n_quantiles, 0.0, 1.0).expect("a valid rule")
        };
        let rng = &mut stream(7, Purpose::Test);
        let cells = if name == "a" { Cells::Bytes } else { Cells::Bits };
        let inputs = Stored::noise(&shape, cells, batch, rng);
        Some(Self {
            x: inputs.rows().expanded(shape.n_inputs)[..shape.n_inputs].to_vec(),
            inputs,
            next_inputs: Stored::noise(&shape, cells, batch, rng),
            rewards: (0..batch).map(|_| rng.normal() as f32).collect(),
            rule,
            actions: (0..batch).map(|_| rng.below(n_actions)).collect(),
            continuation: (0..batch).map(|_| if rng.below(10) == 0 { 0.0 } else { 1.0 }).collect(),
            critics: Ensemble::new(shape, Init::default(), rng).expect("a valid shape").with_kernels(kernels),
        })
    }

    /// One [`Ensemble::train_step`] with learning rate 1e-4 and ζ = 0.005.
    pub fn step(&mut self) {
        let Self { critics, rule, inputs, actions, rewards, next_inputs, continuation, .. } = self;
        let (inputs, next_inputs) = (inputs.rows(), next_inputs.rows());
        let batch = Batch { inputs, actions, rewards, next_inputs, continuation };
        critics.train_step(black_box(&batch), rule, &Adam::new(1e-4), 0.005).expect("noise is learned by");
    }

    /// All outputs of all critics for the first input.
    pub fn act(&self) -> Vec<f32> {
        self.critics.act(Which::Online, black_box(&self.x))
    }

    /// Floating-point operations of one step's matrix products, see [`Shape::train_flops`]. (With twins, the online critic's second
    /// forward pass is not counted.)
    pub fn flops(&self) -> f64 {
        self.critics.shape().train_flops(self.actions.len())
    }

    /// The critics as they are now.
    pub fn critics(&self) -> &Ensemble {
        &self.critics
    }

    /// The minibatch.
    pub fn batch(&self) -> Batch<'_> {
        let Self { actions, rewards, continuation, .. } = self;
        let (inputs, next_inputs) = (self.inputs.rows(), self.next_inputs.rows());
        Batch { inputs, actions, rewards, next_inputs, continuation }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_workload_takes_its_steps() {
        for name in Workload::NAMES {
            let mut workload = Workload::named(name, Kernels::detect()).unwrap();
            let before = workload.act();
            workload.step();
            assert_ne!(workload.act(), before, "{name}");
        }
        assert!(Workload::named("xl", Kernels::detect()).is_none());
    }
}
