//! How fast the core is: `cargo bench -p bqrl-nn`.
//!
//! First a table: steps per second, the rate of the matrix products alone (see `Shape::train_flops`), and that rate as a
//! fraction of what the core can do at best. Steps and peak are measured in turns, many short rounds of each, and the
//! fastest round of each counts: the machine may be busy, but it is never faster than it is. Then divan's statistics of the
//! same steps, and of acting. One core throughout; `BQRL_KERNELS=avx2` pins a variant.

// What runs inside a dispatch is compiled for the variant, and for that it must be inlined.
#![allow(clippy::inline_always)]

use std::time::Instant;

use bqrl_math::{Buffer, Purpose, Rng, stream};
use bqrl_nn::{Adam, Batch, Ensemble, Init, Kernels, Shape, TargetRule, Which};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use pulp::{Arch, Simd, WithSimd};

const SHAPES: [&str; 4] = ["s", "m", "l", "x"];
const ROUNDS: usize = 200;

fn main() {
    table();
    divan::main();
}

/// Shapes of the performance notes: D inputs, two hidden layers, A actions, K quantiles, five critics; and the batch.
fn shape(name: &str) -> (Shape, usize) {
    let (n_inputs, width, n_actions, n_quantiles, batch) = match name {
        "s" => (28, 64, 2, 51, 64),
        "m" => (28, 128, 2, 51, 64),
        "l" => (28, 256, 2, 51, 256),
        "x" => (128, 64, 4, 32, 64),
        // The settings that Algorithm 1 was tuned to: small enough for overheads to show.
        "tuned" => (60, 64, 2, 8, 24),
        _ => unreachable!("no shape {name}"),
    };
    (Shape { n_inputs, hidden: vec![width; 2], n_actions, n_quantiles, n_critics: 5 }, batch)
}

struct Training {
    critics: Ensemble,
    rule: TargetRule,
    batch: usize,
    inputs: Vec<f32>,
    actions: Vec<usize>,
    rewards: Vec<f32>,
    next_inputs: Vec<f32>,
    done: Vec<bool>,
}

impl Training {
    fn new(name: &str) -> Self {
        let (shape, batch) = shape(name);
        let rng = &mut stream(7, Purpose::Test);
        let mut floats = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.normal() as f32).collect() };
        let (inputs, next_inputs) = (floats(batch * shape.n_inputs), floats(batch * shape.n_inputs));
        let rewards = floats(batch);
        let buffer = Buffer::new(0.1, 0.05).unwrap();
        Self {
            rule: TargetRule::buffered(&buffer, shape.n_quantiles, 0.0, 1.0).unwrap(),
            batch,
            inputs,
            actions: (0..batch).map(|_| rng.below(shape.n_actions)).collect(),
            rewards,
            next_inputs,
            done: (0..batch).map(|_| rng.below(10) == 0).collect(),
            critics: critics(shape, rng),
        }
    }

    fn step(&mut self) {
        let batch = Batch {
            inputs: &self.inputs,
            actions: &self.actions,
            rewards: &self.rewards,
            next_inputs: &self.next_inputs,
            done: &self.done,
        };
        self.critics.train_step(black_box(&batch), &self.rule, &Adam::new(1e-4), 0.005).unwrap();
    }
}

fn critics(shape: Shape, rng: &mut Rng) -> Ensemble {
    let kernels = match std::env::var("BQRL_KERNELS") {
        Ok(name) => Kernels::named(&name).unwrap_or_else(|| panic!("this machine has no {name}")),
        Err(_) => Kernels::detect(),
    };
    Ensemble::new(shape, Init::default(), rng).unwrap().with_kernels(kernels)
}

/// Fused multiply-adds on registers alone: the most that one core can do.
struct Peak {
    rounds: usize,
}

impl WithSimd for Peak {
    /// Floating-point operations per second.
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        const CHAINS: usize = 12;
        let (factor, term) = (simd.splat_f32s(black_box(0.999)), simd.splat_f32s(black_box(0.001)));
        let mut sums = [simd.splat_f32s(black_box(1.0)); CHAINS];
        let start = Instant::now();
        for _ in 0..self.rounds {
            for sum in &mut sums {
                *sum = simd.mul_add_e_f32s(*sum, factor, term);
            }
        }
        let seconds = start.elapsed().as_secs_f64();
        for sum in sums {
            black_box(simd.reduce_sum_f32s(sum));
        }
        (2 * CHAINS * S::F32_LANES * self.rounds) as f64 / seconds
    }
}

fn table() {
    println!("kernels: {}", critics(shape("s").0, &mut stream(1, Purpose::Test)).kernels().name());
    println!("{:>6} {:>10} {:>10} {:>12} {:>10}", "shape", "steps/s", "GFLOP/s", "peak GFLOP/s", "fraction");
    for name in ["s", "m", "l", "x", "tuned"] {
        let mut training = Training::new(name);
        let flops = training.critics.shape().train_flops(training.batch);
        let steps = (2e8 / flops).ceil() as usize;
        let (mut rate, mut peak) = (0.0_f64, 0.0_f64);
        for _ in 0..ROUNDS {
            peak = peak.max(Arch::new().dispatch(Peak { rounds: 500_000 }));
            let start = Instant::now();
            for _ in 0..steps {
                training.step();
            }
            rate = rate.max(steps as f64 / start.elapsed().as_secs_f64());
        }
        let gflops = rate * flops / 1e9;
        let (peak, fraction) = (peak / 1e9, rate * flops / peak);
        println!("{name:>6} {rate:>10.0} {gflops:>10.1} {peak:>12.1} {fraction:>10.3}");
    }
}

/// One update of five critics; items are floating-point operations.
#[divan::bench(args = SHAPES)]
fn train_step(bencher: Bencher, name: &str) {
    let mut training = Training::new(name);
    let flops = training.critics.shape().train_flops(training.batch);
    bencher.counter(ItemsCount::new(flops as u64)).bench_local(|| training.step());
}

/// All outputs of five critics for one input.
#[divan::bench(args = SHAPES)]
fn act(bencher: Bencher, name: &str) {
    let training = Training::new(name);
    let x = &training.inputs[..training.critics.shape().n_inputs];
    bencher.bench_local(|| training.critics.act(Which::Online, black_box(x)));
}
