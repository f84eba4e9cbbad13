//! Files of a run on disk.
//!
//! An interrupted run never leaves half a file: each file is either old or new. A resumed run writes the same bytes as it
//! would have written without the interruption:
//!
//! ```text
//! while running   append rows to the logs
//! now and then    sync the logs → save a checkpoint that holds their positions
//! to resume       load the latest complete checkpoint → cut each log at its position → continue
//! ```
//!
//! The order matters: a log is on disk up to its position before the checkpoint with this position is.
//! Rows after the last checkpoint are cut and written again.
//!
//! Nothing here reads a clock, and every error names its path.

use std::io;
use std::path::Path;

pub mod atomic;
pub mod beneath;
pub mod checkpoint;
pub mod events;
pub mod lock;
pub mod log;
pub mod model_dir;
pub mod monitor;
pub mod reader;
pub mod regular;
pub mod run_dir;
pub mod schema;
pub mod shared_dir;

/// Adds the action and the path to the front of an error; its kind stays.
fn naming(action: &str, path: &Path) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{action} {}: {error}", path.display()))
}

/// The entries of a directory, sorted.
#[cfg(test)]
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}
