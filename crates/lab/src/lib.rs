//! Experiments: TOML → checked configuration ([`config`]) → training and its measures ([`train`]) → a run directory that
//! survives anything ([`run`]) and holds what reports need ([`outcome`]).

pub mod config;
pub mod outcome;
pub mod run;
pub mod train;
