//! Outputs of saved critics: `cargo run --example forward -- weights.safetensors < inputs`.
//!
//! Reads one input per line, D numbers with spaces between; prints one line per input, the outputs of all critics one after
//! the other. `xtask/peers/bench_peers.py` compares them with PyTorch's.

#![allow(clippy::print_stdout, clippy::print_stderr)] // It prints what it found.

use std::error::Error;
use std::path::Path;

use bqrl_nn::{Ensemble, Which};

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: forward weights.safetensors < inputs")?;
    let critics = Ensemble::load(Path::new(&path))?;
    for line in std::io::stdin().lines() {
        let x = line?.split_whitespace().map(str::parse).collect::<Result<Vec<f32>, _>>()?;
        let n_inputs = critics.shape().n_inputs;
        if x.len() != n_inputs {
            return Err(format!("an input has {n_inputs} numbers, got {}", x.len()).into());
        }
        let outputs: Vec<String> = critics.act(Which::Online, &x).iter().map(ToString::to_string).collect();
        println!("{}", outputs.join(" "));
    }
    Ok(())
}
