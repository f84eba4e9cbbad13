//! Files that a command writes where the user says.
//!
//! One rule for tables: a file that exists is replaced only if the same command wrote it, which its first line tells, or with `--force`.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use crate::failure::Failure;

/// The longest first line of a table of ours.
const LONGEST: usize = 200;

/// Refuses a path whose folder does not exist, before the work starts.
pub fn check_folder(path: &Path) -> Result<(), Failure> {
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

/// Refuses to replace a file whose first line is not one of ours. Empty files, devices and pipes may be written to.
pub fn check(path: &Path, force: bool, ours: impl Fn(&str) -> bool) -> Result<(), Failure> {
    if force || !path.is_file() {
        return Ok(());
    }
    let mut start = [0; LONGEST];
    let read = File::open(path).and_then(|mut file| {
        let mut n = 0;
        while n < LONGEST {
            match file.read(&mut start[n..])? {
                0 => break,
                more => n += more,
            }
        }
        Ok(n)
    });
    let n = read.map_err(|error| Failure::runtime(format!("reading {}: {error}", path.display())))?;
    let first = start[..n].split(|&byte| byte == b'\n').next().unwrap_or_default();
    if n == 0 || std::str::from_utf8(first).is_ok_and(|first| ours(first.trim_end())) {
        return Ok(());
    }
    let message = format!("{} exists and is not a file that this command wrote", path.display());
    Err(Failure::usage(message).hint("--force replaces it, another name keeps it"))
}
