//! How fast the backward pass is: `cargo bench -p bqrl-mdp`.
//!
//! The measure is (transition × target) updates per second on one core, and on all cores for the large problem. The
//! rates are those of the passes themselves; the number of updates is counted by the planner, not estimated.

use bqrl_math::rng::{Purpose, stream};
use bqrl_mdp::model::{Kernel, Model, Outcome};
use bqrl_mdp::plan::Planner;
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

fn silent(_: u64, _: usize, _: usize) {}

/// A problem without structure: every row has `successors` random next states and whole rewards in 0..=top.
fn random(n_states: usize, n_actions: usize, successors: usize, horizon: usize, top: usize) -> Model {
    let rng = &mut stream(7, Purpose::Test);
    let mut rows = Vec::new();
    for state in 0..n_states {
        for action in 0..n_actions {
            let weights: Vec<f64> = (0..successors).map(|_| 0.1 + rng.uniform()).collect();
            let sum: f64 = weights.iter().sum();
            for weight in weights {
                let reward = rng.below(top + 1) as f64;
                rows.push((
                    state,
                    action,
                    Outcome { probability: weight / sum, next: rng.below(n_states), reward },
                ));
            }
        }
    }
    let kernel = Kernel::new(n_states, n_actions, rows).unwrap();
    Model::new(vec![kernel], horizon, 1.0, vec![(0, 1.0)]).unwrap()
}

fn values_only(bencher: Bencher, model: &Model, threads: usize) {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
    let updates = pool.install(|| Planner::exact(model, &silent).unwrap().cost().1);
    bencher.counter(ItemsCount::new(updates)).bench_local(|| {
        pool.install(|| black_box(Planner::exact(black_box(model), &silent).unwrap().cost()))
    });
}

/// A stage fits in the second-level cache: 100 states × up to 500 targets × 8 bytes = 400 kB.
#[divan::bench(args = [5, 20], sample_count = 20, sample_size = 1)]
fn in_cache_by_targets(bencher: Bencher, top: usize) {
    values_only(bencher, &random(100, 4, 5, 100, top), 1);
}

/// The stage leaves the caches as states grow: 10,000 states, 4 actions, 5 successors, 100 stages, 501 targets.
#[divan::bench(args = [100, 1_000, 10_000], sample_count = 3, sample_size = 1)]
fn by_states(bencher: Bencher, n_states: usize) {
    values_only(bencher, &random(n_states, 4, 5, 100, 5), 1);
}

/// The same on two cores.
#[divan::bench(args = [1_000, 10_000], sample_count = 3, sample_size = 1)]
fn by_states_two_cores(bencher: Bencher, n_states: usize) {
    values_only(bencher, &random(n_states, 4, 5, 100, 5), 2);
}

#[divan::bench(args = [2, 8, 32], sample_count = 5, sample_size = 1)]
fn by_actions(bencher: Bencher, n_actions: usize) {
    values_only(bencher, &random(100, n_actions, 5, 100, 5), 1);
}

#[divan::bench(args = [50, 100, 200, 400], sample_count = 5, sample_size = 1)]
fn by_horizon(bencher: Bencher, horizon: usize) {
    values_only(bencher, &random(100, 4, 5, horizon, 5), 1);
}

/// One level with its policy, its slack spent on the mean: several passes, actions kept, laws evaluated.
#[divan::bench(args = [100, 1_000], sample_count = 3, sample_size = 1)]
fn with_policy(bencher: Bencher, n_states: usize) {
    let model = random(n_states, 4, 5, 100, 5);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    bencher.bench_local(|| {
        pool.install(|| {
            let planner = Planner::exact(&model, &silent).unwrap();
            black_box(planner.quantile_policy(0.1, 8).evaluation.mean)
        })
    });
}
