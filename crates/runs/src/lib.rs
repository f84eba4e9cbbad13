//! Files of a run on disk.
//!
//! A run that is interrupted leaves each of its files either as it was or as it was meant to be, never half of one,
//! and continues to the bytes it would have written without the interruption:
//!
//! ```text
//! while running   append rows to the logs
//! now and then    sync the logs → save a checkpoint that holds their positions
//! to resume       load the latest whole checkpoint → cut each log at its position → go on
//! ```
//!
//! The order matters: a log is on disk up to its position before the checkpoint that names this position is.
//! Rows behind the last checkpoint are cut and written once more.
//!
//! Nothing here reads a clock, and every error names its path.

use std::io;
use std::path::Path;

pub mod atomic;
pub mod checkpoint;
pub mod events;
pub mod log;
pub mod model_dir;
pub mod monitor;
pub mod reader;
pub mod run_dir;
pub mod schema;

/// Puts what was being done, and to which path, in front of an error; its kind stays.
fn naming(action: &str, path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{action} {}: {error}", path.display()))
}

/// What a directory holds, sorted.
#[cfg(test)]
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
