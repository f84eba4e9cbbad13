//! The `bqrl` process: started, sent signals, waited for.

use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Between two looks at a process or its files.
pub const PAUSE: Duration = Duration::from_micros(300);
/// No command of the campaign takes as long, on the slowest machine.
const PATIENCE: Duration = Duration::from_mins(15);

/// Where standard error goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Errors {
    /// To a file that is looked at.
    File,
    /// To a device that takes nothing.
    Full,
    /// To a pipe that nobody reads.
    Closed,
}

/// How commands are started.
pub struct Starter<'a> {
    pub program: &'a Path,
    /// Where outputs go.
    pub outputs: PathBuf,
    /// Set when the campaign is to end.
    pub stop: &'a AtomicBool,
}

/// A process under way. It does not outlive this value.
pub struct Running<'a> {
    child: Child,
    pub started: Instant,
    stdout: PathBuf,
    stderr: PathBuf,
    stop: &'a AtomicBool,
}

/// A process that has ended.
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl<'a> Starter<'a> {
    /// Starts a command in a directory. `name` is that of its output files.
    pub fn start(
        &self,
        arguments: &[String],
        directory: &Path,
        name: &str,
        errors: Errors,
    ) -> Result<Running<'a>, String> {
        let path = |kind: &str| self.outputs.join(format!("{name}.{kind}"));
        let create =
            |path: &Path| File::create(path).map_err(|error| format!("creating {}: {error}", path.display()));
        let (stdout, stderr) = (path("stdout"), path("stderr"));
        let out = create(&stdout)?;
        let file = create(&stderr)?;
        let err = match errors {
            Errors::File => Stdio::from(file),
            Errors::Full => {
                let device = File::options().write(true).open("/dev/full");
                Stdio::from(device.map_err(|error| format!("opening /dev/full: {error}"))?)
            }
            Errors::Closed => {
                let (reader, writer) = std::io::pipe().map_err(|error| format!("making a pipe: {error}"))?;
                drop(reader);
                Stdio::from(writer)
            }
        };
        let child = Command::new(self.program)
            .args(arguments)
            .current_dir(directory)
            // Pages name the commit of the sources, which may change during a campaign.
            .env("GIT_DIR", "none")
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            // A Ctrl-C at the terminal is for the campaign, which ends its children itself.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("starting {}: {error}", self.program.display()))?;
        Ok(Running { child, started: Instant::now(), stdout, stderr, stop: self.stop })
    }
}

impl Running<'_> {
    pub fn signal(&self, signal: Signal) {
        // An error means that the process has ended, which the status will show.
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    pub fn has_ended(&mut self) -> Result<bool, String> {
        if self.stop.load(Ordering::Relaxed) {
            return Err("the campaign was interrupted".to_owned());
        }
        if self.started.elapsed() > PATIENCE {
            return Err(format!("the process hangs: it has run for {} s", PATIENCE.as_secs()));
        }
        self.child.try_wait().map(|status| status.is_some()).map_err(|error| format!("waiting: {error}"))
    }

    /// Waits until the process has ended or `is_time` says so. Returns whether it has ended.
    pub fn wait_until(&mut self, mut is_time: impl FnMut(Duration) -> bool) -> Result<bool, String> {
        loop {
            if self.has_ended()? {
                return Ok(true);
            }
            if is_time(self.started.elapsed()) {
                return Ok(false);
            }
            thread::sleep(PAUSE);
        }
    }

    /// Waits for its end.
    pub fn end(mut self) -> Result<Ended, String> {
        self.wait_until(|_| false)?;
        let status = self.child.wait().map_err(|error| format!("waiting: {error}"))?;
        let read =
            |path: &Path| fs::read(path).map_err(|error| format!("reading {}: {error}", path.display()));
        let stderr = String::from_utf8_lossy(&read(&self.stderr)?).into_owned();
        Ok(Ended { status, stdout: read(&self.stdout)?, stderr })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Ended {
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    pub fn died_of(&self, signal: Signal) -> bool {
        self.status.signal() == Some(signal.as_raw())
    }

    /// The line that tells the error, if there is exactly one.
    pub fn error_line(&self) -> Option<&str> {
        let mut lines = self.stderr.lines().filter(|line| line.starts_with("error: "));
        lines.next().filter(|_| lines.next().is_none())
    }

    /// Messages that no command may write.
    pub fn complaint(&self) -> Option<String> {
        let bad = |line: &&str| line.contains("panicked") || line.starts_with("warning: ");
        self.stderr.lines().find(bad).map(|line| format!("standard error says: {line}"))
    }

    /// The standard output of a process that must have succeeded.
    pub fn success(self) -> Result<Vec<u8>, String> {
        match self.complaint() {
            Some(complaint) => Err(complaint),
            None if self.code() == Some(0) => Ok(self.stdout),
            None => Err(format!("want exit code 0, got {}", self.summary())),
        }
    }

    pub fn summary(&self) -> String {
        let last = self.stderr.lines().rev().take(3).collect::<Vec<_>>();
        let last: Vec<&str> = last.into_iter().rev().collect();
        format!("{}; standard error ends: {}", self.status, last.join(" / "))
    }
}
