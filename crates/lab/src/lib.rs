//! Experiments: TOML → checked configuration ([`config`]) → task and references ([`task`]) → training and its measures
//! ([`train`], [`evaluate`]; to look on: [`watch`](mod@watch)) → a run directory that survives interruptions ([`run`], [`records`]; many runs: [`batch`])
//! and holds the tables for reports ([`outcome`], [`summary`]).
//! Complete plans: [`plan`]. Policies that users bring along: [`given`]; beside the best ones: [`compare`](mod@compare); planned ones as a spreadsheet: [`sheet`]. Grids of settings, on any engine: [`sweep`]. The paper's experiments: [`reproduce`], and further
//! studies: [`studies`].

pub mod batch;
pub mod compare;
pub mod config;
pub mod coverage;
pub mod evaluate;
pub mod given;
pub mod outcome;
pub mod plan;
pub mod records;
pub mod reproduce;
pub mod run;
pub mod sheet;
pub mod studies;
pub mod summary;
pub mod sweep;
pub mod task;
pub mod train;
pub mod tune;
pub mod watch;
