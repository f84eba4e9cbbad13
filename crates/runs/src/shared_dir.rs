//! A directory that several processes may write to at the same time, such as that of a sweep in shards.
//!
//! Each process holds a shared lock on `.bqrl-lock` while it writes files there. A process that starts while no other one
//! holds the lock removes temporary files that a kill left: nobody is about to rename them. A run has a lock of its own,
//! for one writer, see [`run_dir`](crate::run_dir).

use std::fs::{self, File};
use std::io;
use std::path::Path;

use crate::{atomic, naming};

/// The right to write to a shared directory, until it is dropped.
#[derive(Debug)]
pub struct SharedDir {
    _lock: File,
}

impl SharedDir {
    /// Makes the directory if it is missing, and waits while another process removes leftovers there.
    ///
    /// `folders` are the folders in it in which files are written too; they may be missing.
    pub fn open(path: &Path, folders: &[&str]) -> io::Result<Self> {
        fs::create_dir_all(path).map_err(naming("creating", path))?;
        let lock = path.join(".bqrl-lock");
        if fs::symlink_metadata(&lock).is_ok_and(|metadata| !metadata.is_file()) {
            let message = format!("{} is in the way: it is not a regular file", lock.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let file = File::options().write(true).create(true).truncate(false).open(&lock);
        let file = file.map_err(naming("locking", &lock))?;
        if file.try_lock().is_ok() {
            atomic::sweep(path)?;
            let folders = folders.iter().map(|folder| path.join(folder)).filter(|folder| folder.is_dir());
            folders.into_iter().try_for_each(|folder| atomic::sweep(&folder))?;
            file.unlock().map_err(naming("locking", &lock))?;
        }
        match file.lock_shared() {
            // Some network file systems have no locks. Nothing is removed there.
            Err(error) if error.kind() != io::ErrorKind::Unsupported => Err(naming("locking", &lock)(error)),
            _ => Ok(Self { _lock: file }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    #[test]
    fn leftovers_are_removed_when_nobody_else_writes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sweep");
        fs::create_dir_all(path.join("figures")).unwrap();
        let leave = || {
            for name in [".bqrl-x1.tmp", "sweep.csv", "figures/.bqrl-x2.tmp"] {
                fs::write(path.join(name), "").unwrap();
            }
        };
        leave();
        let first = SharedDir::open(&path, &["figures", "missing"]).unwrap();
        assert_eq!(names(&path), [".bqrl-lock", "figures", "sweep.csv"]);
        assert!(names(&path.join("figures")).is_empty());
        // These temporary files may belong to the first process.
        leave();
        let second = SharedDir::open(&path, &["figures"]).unwrap();
        assert_eq!(names(&path), [".bqrl-lock", ".bqrl-x1.tmp", "figures", "sweep.csv"]);
        drop((first, second));
        SharedDir::open(&path, &["figures"]).unwrap();
        assert_eq!(names(&path), [".bqrl-lock", "figures", "sweep.csv"]);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_in_the_place_of_the_lock_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("elsewhere", directory.path().join(".bqrl-lock")).unwrap();
        let error = SharedDir::open(directory.path(), &[]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(names(directory.path()), [".bqrl-lock"]);
    }
}
