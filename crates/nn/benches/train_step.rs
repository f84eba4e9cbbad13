//! Statistics of the training step and of acting: `cargo bench -p bqrl-nn`. One core; `BQRL_KERNELS=avx2` pins a variant.
//!
//! `bqrl bench` gives the same steps as rates and as a fraction of what the core can do.

use bqrl_nn::{Kernels, Workload};
use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

fn workload(name: &str) -> Workload {
    let kernels = match std::env::var("BQRL_KERNELS") {
        Ok(name) => Kernels::named(&name).unwrap_or_else(|| panic!("this machine has no {name}")),
        Err(_) => Kernels::detect(),
    };
    Workload::named(name, kernels).expect("divan passes the names of workloads")
}

/// One update of five critics; items are floating-point operations.
#[divan::bench(args = Workload::NAMES)]
fn train_step(bencher: Bencher, name: &str) {
    let mut workload = workload(name);
    bencher.counter(ItemsCount::new(workload.flops() as u64)).bench_local(|| workload.step());
}

/// All outputs of five critics for one input.
#[divan::bench(args = Workload::NAMES)]
fn act(bencher: Bencher, name: &str) {
    let workload = workload(name);
    bencher.bench_local(|| workload.act());
}
