//! Experiments: TOML → checked configuration ([`config`]) → training and its measures ([`train`]) → a run directory that
//! survives anything ([`run`], many of them: [`batch`]) and holds what reports need ([`outcome`], [`summary`]).
//! Whole plans: [`plan`]. Grids of settings, on any engine: [`sweep`]. The paper's experiments: [`reproduce`], and what it
//! leaves open: [`studies`].

pub mod batch;
pub mod config;
pub mod outcome;
pub mod plan;
pub mod reproduce;
pub mod run;
pub mod studies;
pub mod summary;
pub mod sweep;
pub mod train;
pub mod tune;
