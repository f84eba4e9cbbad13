//! Files that are written where the user says.
//!
//! One rule for tables and figures: a file that exists is replaced only if it is one of the same kind that bqrl wrote, which its first
//! bytes tell, or with `--force` (`overwrite=True` in Python).

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use bqrl_mdp::csv::is_counted_header;
use bqrl_mdp::plan::export::{COLUMNS, COMPACT_COLUMNS};
use bqrl_report::figure::Figure;

use crate::failure::Failure;

/// As much of a file as tells whether it is ours.
const START: u64 = 1 << 16;

/// A kind of file.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// An MDP file with counts, of `bqrl fit`.
    Fitted,
    /// Policies, of `bqrl plan`.
    Policies,
    /// Figures, of `--plot`.
    Figure,
}

impl Kind {
    fn begins(self, start: &[u8]) -> bool {
        let first = start.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let line = std::str::from_utf8(first).unwrap_or_default().trim_end();
        match self {
            Self::Fitted => is_counted_header(line),
            Self::Policies => [COLUMNS, COMPACT_COLUMNS].iter().any(|columns| line == columns.join(",")),
            Self::Figure => Figure::is_ours(start),
        }
    }

    /// Whether such a file may be written there: nothing is there yet, or an empty file, or one of this kind, or no regular file at all.
    pub fn may_replace(self, path: &Path) -> io::Result<bool> {
        if !path.is_file() {
            return Ok(true);
        }
        let mut start = Vec::new();
        File::open(path)?.take(START).read_to_end(&mut start)?;
        Ok(start.is_empty() || self.begins(&start))
    }
}

/// Refuses to replace a file of another kind.
pub(crate) fn check(path: &Path, force: bool, kind: Kind) -> Result<(), Failure> {
    let allowed = if force { Ok(true) } else { kind.may_replace(path) };
    if allowed.map_err(|error| Failure::runtime(format!("reading {}: {error}", path.display())))? {
        return Ok(());
    }
    let message = format!("{} exists and is not a file that this command wrote", path.display());
    Err(Failure::usage(message).hint("--force replaces it, another name keeps it"))
}

/// Refuses a path whose folder does not exist, before the work starts.
pub(crate) fn check_folder(path: &Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match folder.filter(|folder| !folder.is_dir()) {
        Some(folder) => Err(Failure::runtime(format!(
            "writing {}: the folder {} does not exist",
            path.display(),
            folder.display()
        ))),
        None => Ok(()),
    }
}
