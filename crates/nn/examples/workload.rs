//! A reference workload on disk: `cargo run --example workload -- s 50 DIR` trains shape s for 50 steps and writes
//! `before.safetensors`, `after.safetensors` and `batch.safetensors`.
//!
//! `xtask/peers/bench_peers.py` starts the other libraries from there and checks that they arrive at the same place.

use std::error::Error;
use std::path::Path;

use bqrl_nn::{Kernels, Workload};
use safetensors::tensor::{Dtype, TensorView};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [name, steps, dir] = &args[..] else { return Err("usage: workload SHAPE STEPS DIR".into()) };
    let (steps, dir): (usize, _) = (steps.parse()?, Path::new(dir));
    let mut workload = Workload::named(name, Kernels::detect()).ok_or("no such shape")?;

    workload.critics().save(&dir.join("before.safetensors"))?;
    for _ in 0..steps {
        workload.step();
    }
    workload.critics().save(&dir.join("after.safetensors"))?;

    let (batch, shape) = (workload.batch(), workload.critics().shape());
    let n = batch.actions.len();
    let floats = |values: &[f32]| -> Vec<u8> { values.iter().flat_map(|v| v.to_le_bytes()).collect() };
    let actions: Vec<u8> = batch.actions.iter().flat_map(|&a| (a as i64).to_le_bytes()).collect();
    let done: Vec<f32> = batch.continuation.iter().map(|c| 1.0 - c).collect();
    let tensors = [
        ("inputs", Dtype::F32, vec![n, shape.n_inputs], floats(&batch.inputs.expanded(shape.n_inputs))),
        (
            "next_inputs",
            Dtype::F32,
            vec![n, shape.n_inputs],
            floats(&batch.next_inputs.expanded(shape.n_inputs)),
        ),
        ("rewards", Dtype::F32, vec![n], floats(batch.rewards)),
        ("done", Dtype::F32, vec![n], floats(&done)),
        ("actions", Dtype::I64, vec![n], actions),
    ];
    let views = tensors
        .iter()
        .map(|(name, dtype, size, bytes)| Ok((*name, TensorView::new(*dtype, size.clone(), bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()?;
    std::fs::write(dir.join("batch.safetensors"), safetensors::serialize(views, None)?)?;
    Ok(())
}
