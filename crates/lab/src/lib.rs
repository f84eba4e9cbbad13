//! Experiments: TOML → checked configuration ([`config`]) → task and references ([`task`]) → training and its measures
//! ([`train`], [`evaluate`]) → a run directory that survives anything ([`run`], [`records`], many of them: [`batch`]) and
//! holds what reports need ([`outcome`], [`summary`]).
//! Whole plans: [`plan`]. Grids of settings, on any engine: [`sweep`]. The paper's experiments: [`reproduce`], and what it
//! leaves open: [`studies`].

pub mod batch;
pub mod config;
pub mod evaluate;
pub mod outcome;
pub mod plan;
pub mod records;
pub mod reproduce;
pub mod run;
pub mod studies;
pub mod summary;
pub mod sweep;
pub mod task;
pub mod train;
pub mod tune;
