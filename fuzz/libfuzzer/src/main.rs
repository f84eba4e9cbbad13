//! One target under libFuzzer; `BQRL_FUZZ_TARGET` names it. Built and started by `cargo xtask fuzz`.
//!
//! libFuzzer keeps an input that reaches new code and goes on from there. Its own mutations are blind, so every other one is
//! ours, which knows the formats and keeps the files of an input apart.

#![no_main]

use std::sync::OnceLock;

use bqrl_fuzz::mutate::mutate;
use bqrl_fuzz::{Input, TARGETS, Target};
use bqrl_math::rng::{Purpose, stream};
use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};

/// The target and its seeds.
fn target() -> &'static (&'static Target, Vec<Input>) {
    static TARGET: OnceLock<(&Target, Vec<Input>)> = OnceLock::new();
    TARGET.get_or_init(|| {
        let name = std::env::var("BQRL_FUZZ_TARGET").expect("BQRL_FUZZ_TARGET names a target");
        let target = TARGETS.iter().find(|target| target.name == name).expect("a target has this name");
        (target, target.seeds().expect("its seeds"))
    })
}

fuzz_target!(|bytes: &[u8]| {
    let (target, _) = target();
    (target.run)(&target.decode(bytes));
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let (target, seeds) = target();
    let mut rng = stream(u64::from(seed), Purpose::Test);
    let mut input = target.decode(&data[..size]);
    if input.files.is_empty() {
        return fuzzer_mutate(data, size, max_size);
    }
    if rng.below(2) == 0 {
        mutate(&mut input, seeds, &mut rng);
    } else {
        // Theirs, on one file: what they learned from comparisons in the code goes into it.
        let k = rng.below(input.files.len());
        let bytes = &mut input.files[k].1;
        let length = bytes.len();
        bytes.resize(length + 64, 0);
        let room = bytes.len();
        let length = fuzzer_mutate(bytes, length, room);
        bytes.truncate(length);
    }
    let new = target.encode(&input);
    let length = new.len().min(max_size);
    data[..length].copy_from_slice(&new[..length]);
    length
});
