//! Experiments: TOML → checked configuration ([`config`]) → training and its measures ([`train`]) → a run directory that
//! survives anything ([`run`]).

pub mod config;
pub mod run;
pub mod train;
