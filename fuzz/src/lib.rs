//! Hostile files for every reader of this project.
//!
//! ```text
//! seeds/TARGET/NAME     files that real runs wrote
//! input(seed, n)        one of them, changed in a few places: a function of the target, the seed and n alone
//! target                reads the input, and uses what was accepted
//! ```
//!
//! A reader may refuse an input with an error. It may not panic, hang, or allocate more than 1 GiB.
//!
//! Two engines run the same targets. [`engine`] is deterministic, needs nothing but the stable toolchain, and is part of
//! `cargo xtask test`. The package in `libfuzzer/` follows the coverage and is what `cargo xtask fuzz` runs.

#![allow(clippy::print_stdout, clippy::print_stderr)] // It prints what it found.

pub mod engine;
pub mod input;
pub mod mutate;
pub mod seeds;
pub mod targets;

pub use input::Input;
pub use targets::{TARGETS, Target};
