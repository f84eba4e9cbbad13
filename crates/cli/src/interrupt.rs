//! Ctrl-C while a file is being written: the write is cancelled, and no temporary file stays behind.
//!
//! A file is written under a temporary name and then renamed ([`bqrl_runs::atomic`]). A signal that ends the process in
//! between leaves the temporary file in the user's folder, and a policy of a long problem takes minutes to write. So
//! signals are caught from the first write on. Before that, while planning, they end the process as usual.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bqrl_runs::atomic;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;

/// Writes files until it is interrupted.
pub struct Writes {
    interrupted: Arc<AtomicBool>,
}

impl Writes {
    /// Catches SIGINT and SIGTERM from now on. The second signal ends the process at once.
    pub fn begin() -> Result<Self, Failure> {
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register_conditional_shutdown(signal, 130, interrupted.clone())
                .and_then(|_| signal_hook::flag::register(signal, interrupted.clone()))
                .map_err(|error| Failure::runtime(format!("listening for signals: {error}")))?;
        }
        Ok(Self { interrupted })
    }

    /// Writes `contents` to `path`.
    pub fn write(&self, path: &Path, contents: &[u8]) -> Result<(), Failure> {
        self.write_with(path, |out| out.write_all(contents))
    }

    /// Writes to `path` whatever `fill` writes.
    pub fn write_with(
        &self,
        path: &Path,
        fill: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Failure> {
        let interrupted = &*self.interrupted;
        let written = atomic::write_with(path, |out| fill(&mut Cancellable { out, interrupted }));
        if interrupted.load(Ordering::Relaxed) {
            return Err(Failure::interrupted(format!("interrupted while writing {}", path.display())));
        }
        written.map_err(Failure::runtime)
    }
}

/// Passes on what is written, until an interrupt.
struct Cancellable<'a> {
    out: &'a mut dyn Write,
    interrupted: &'a AtomicBool,
}

impl Write for Cancellable<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.interrupted.load(Ordering::Relaxed) {
            // Not `ErrorKind::Interrupted`: writers take that as a request to try again.
            return Err(io::Error::other("interrupted"));
        }
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupt_in_the_middle_of_a_write_keeps_the_old_file_and_leaves_no_other() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.csv");
        let writes = Writes { interrupted: Arc::default() };
        writes.write(&path, b"old").unwrap();
        let failure = writes
            .write_with(&path, |out| {
                out.write_all(&vec![b'x'; 100_000])?;
                writes.interrupted.store(true, Ordering::Relaxed);
                out.write_all(b"more")
            })
            .unwrap_err();
        assert_eq!(failure.code, 130);
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
