//! The lock of a run: one process writes, and readers can see that it does.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::Path;
use std::time::Duration;

use crate::{beneath, naming};

/// How long a writer tries to get the lock, and how often.
const PATIENCE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(5);

/// The right to write to a run, until it is dropped.
///
/// The operating system holds the lock and releases it when the process ends, even after a kill, so there are no stale
/// locks. The file is never removed: if it were removed while another process waits for it, it would protect nothing.
/// While locked it contains the process id, for the error message.
///
/// A reader tests the lock by taking a shared lock for a moment, and only if the file contains a process id: a writer that
/// ended normally has emptied it. So a reader can disturb a writer only when a killed run is resumed. The writer then tries
/// again for [`PATIENCE`], thousands of times longer than a reader holds the lock.
#[derive(Debug)]
pub struct Lock {
    file: File,
}

impl Lock {
    pub(crate) fn acquire(path: &Path) -> io::Result<Self> {
        let mut file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(naming("locking", path))?;
        match try_for(PATIENCE, || file.try_lock()) {
            Ok(()) => {}
            // Some network file systems have no locks; a run there is not protected.
            Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => {}
            Err(TryLockError::Error(error)) => return Err(naming("locking", path)(error)),
            Err(TryLockError::WouldBlock) => {
                let holder = match fs::read_to_string(path).as_deref().map(str::trim) {
                    Ok(pid) if !pid.is_empty() => format!("process {pid}"),
                    _ => "another process".to_string(),
                };
                let message = format!("locking {}: {holder} is writing this run", path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
            }
        }
        file.set_len(0)
            .and_then(|()| writeln!(file, "{}", std::process::id()))
            .map_err(naming("locking", path))?;
        Ok(Self { file })
    }

    /// The lock is a file below `root`; no link is followed, and a pipe does not make the caller wait.
    pub(crate) fn is_held(root: &Path, below: &Path) -> bool {
        let Ok(mut file) = beneath::open(root, below) else { return false };
        let mut process = String::new();
        // On some systems a locked file cannot be read. Then only the lock itself can be tested.
        if file.read_to_string(&mut process).is_ok() && process.trim().is_empty() {
            return false;
        }
        match file.try_lock_shared() {
            Ok(()) => {
                let _ = file.unlock();
                false
            }
            // The lock is held; or the file system has no locks, and the process id in the file is the only information.
            Err(_) => true,
        }
    }
}

/// Tries to lock until it succeeds, fails for another reason than a held lock, or `patience` is over.
fn try_for(
    patience: Duration,
    mut lock: impl FnMut() -> Result<(), TryLockError>,
) -> Result<(), TryLockError> {
    let mut waited = Duration::ZERO;
    loop {
        match lock() {
            Err(TryLockError::WouldBlock) if waited < patience => {
                std::thread::sleep(PAUSE);
                waited += PAUSE;
            }
            result => return result,
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Two equal runs should leave equal files. Closing the file afterwards unlocks it.
        let _ = self.file.set_len(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_for_a_reader_that_holds_the_lock_for_a_moment() {
        let mut tries = 0;
        let held_twice = || {
            tries += 1;
            if tries <= 2 { Err(TryLockError::WouldBlock) } else { Ok(()) }
        };
        assert!(try_for(PATIENCE, held_twice).is_ok());
        assert_eq!(tries, 3);
        let held_for_good = || Err(TryLockError::WouldBlock);
        assert!(matches!(try_for(2 * PAUSE, held_for_good), Err(TryLockError::WouldBlock)));
    }
}
