//! One life of a scenario: begun, interrupted and resumed several times, ended, and compared with its reference.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::disk::{Disk, Size};
use super::draws::Draws;
use super::process::{Ended, Errors, Running, Starter};
use super::scenario::Scenario;
use super::{compare, stores};

/// A kind of interruption.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    Kill,
    Int,
    Term,
    /// Two signals in a row: the process ends at once.
    Twice,
    /// Stopped for a moment, then continued: the process goes on.
    Pause,
}

impl Kind {
    pub const ALL: [Kind; 5] = [Kind::Kill, Kind::Int, Kind::Term, Kind::Twice, Kind::Pause];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Kill => "KILL",
            Kind::Int => "INT",
            Kind::Term => "TERM",
            Kind::Twice => "twice",
            Kind::Pause => "STOP",
        }
    }

    /// Half of them are kills.
    fn draw(draws: &mut Draws) -> Self {
        match draws.below(16) {
            0..8 => Kind::Kill,
            8..10 => Kind::Int,
            10..12 => Kind::Term,
            12..14 => Kind::Twice,
            _ => Kind::Pause,
        }
    }
}

/// When an interruption comes.
#[derive(Clone, Copy, Debug)]
enum Moment {
    After(Duration),
    /// So long after the n-th checkpoint from now on has appeared.
    Checkpoint(usize, Duration),
    /// So long after the n-th temporary file or directory from now on has appeared.
    Temporary(usize, Duration),
}

impl Moment {
    /// Half of them uniformly over the time that is left; the others in the first moments, and while files are written.
    fn draw(draws: &mut Draws, left: f64) -> Self {
        let after = |seconds: f64| Duration::from_secs_f64(seconds.max(0.0));
        let soon = after(draws.between(0.0, 0.004));
        match draws.below(10) {
            0..5 => Moment::After(after(draws.between(0.0, left))),
            5 => Moment::After(after(draws.between(0.0, 0.05))),
            6..8 => Moment::Checkpoint(1 + draws.below(5), soon),
            _ => Moment::Temporary(1 + draws.below(20), soon),
        }
    }
}

/// The scenario without interruption.
pub struct Reference {
    pub directory: PathBuf,
    pub seconds: f64,
    pub steps: u64,
    pub stdout: Vec<u8>,
    pub size: Size,
}

/// What was done to a scenario.
#[derive(Default)]
pub struct Tally {
    /// The wall time of the reference.
    pub seconds: f64,
    pub stories: usize,
    pub processes: usize,
    /// By kind, as in [`Kind::ALL`].
    pub interruptions: [usize; 5],
    /// Signals that came when there was nothing left to interrupt: the process ended with exit code 0.
    pub late: usize,
    /// The shares of the steps in the last checkpoint of what was resumed.
    pub shares: Vec<f64>,
    pub full_disks: usize,
    pub mute: usize,
    pub looks: usize,
    pub failures: usize,
}

impl Tally {
    /// Interruptions that ended a process.
    pub fn kills(&self) -> usize {
        self.interruptions[..4].iter().sum()
    }
}

pub struct Story<'a> {
    pub starter: &'a Starter<'a>,
    pub scenario: &'a Scenario,
    pub reference: &'a Reference,
    pub directory: PathBuf,
    pub draws: Draws,
    pub tally: &'a mut Tally,
    /// What was done, to be printed after a failure.
    pub log: Vec<String>,
}

impl<'a> Story<'a> {
    /// Interrupts up to `most` times; then the last process ends by itself.
    pub fn interrupted(&mut self, most: usize) -> Result<(), String> {
        prepare(self.scenario, &self.directory)?;
        let n = self.scenario.workers.len();
        let mut running: Vec<Option<Running<'a>>> = (0..n).map(|_| None).collect();
        let mut done = vec![false; n];
        let (mut left, mut stdout) = (most, Vec::new());
        loop {
            for k in 0..n {
                if let Some(mut process) = running[k].take() {
                    if process.has_ended()? {
                        stdout = process.end()?.success()?;
                        done[k] = true;
                    } else {
                        running[k] = Some(process);
                    }
                } else if !done[k] {
                    running[k] = Some(self.start(k, Errors::File)?);
                }
            }
            let alive: Vec<usize> = (0..n).filter(|&k| running[k].is_some()).collect();
            if done.iter().all(|&done| done) {
                break;
            }
            if alive.is_empty() {
                continue;
            }
            let victim = alive[self.draws.below(alive.len())];
            let mut process = running[victim].take().expect("it is alive");
            if left == 0 {
                stdout = process.end()?.success()?;
                done[victim] = true;
                continue;
            }
            let before = stores::progress(&self.directory);
            let time_left = self.time_left(self.share(before));
            let kind = Kind::draw(&mut self.draws);
            let moment = Moment::draw(&mut self.draws, time_left);
            if wait(&mut process, moment, &self.directory)? {
                self.log.push(format!("  it ended before {} {moment:?}", kind.name()));
                stdout = process.end()?.success()?;
                done[victim] = true;
                continue;
            }
            left -= 1;
            let at = process.started.elapsed();
            self.interrupt(&process, kind);
            if kind == Kind::Pause {
                self.tell(kind, at, moment, "it goes on");
                self.tally.interruptions[kind as usize] += 1;
                running[victim] = Some(process);
                continue;
            }
            let ended = process.end()?;
            self.tell(kind, at, moment, &ended.summary());
            if self.judge(kind, &ended, before, n == 1)? {
                self.tally.late += 1;
                stdout = ended.stdout;
                done[victim] = true;
                continue;
            }
            self.tally.interruptions[kind as usize] += 1;
            let share = self.share(stores::progress(&self.directory));
            self.tally.shares.push(share);
            if n == 1 && ended.code() == Some(130) && self.draws.chance(0.4) {
                self.look()?;
            }
        }
        self.conclude(stdout)?;
        if self.draws.chance(0.25) {
            // A finished run has nothing left to do.
            for k in 0..n {
                self.start(k, Errors::File)?.end()?.success()?;
            }
            self.check()?;
        }
        Ok(())
    }

    /// Interrupts once, with a standard error that takes nothing: the messages are lost, and nothing else.
    pub fn mute(&mut self, errors: Errors) -> Result<(), String> {
        prepare(self.scenario, &self.directory)?;
        let mut stdout = Vec::new();
        for k in 0..self.scenario.workers.len() {
            let after = self.draws.between(0.05, 0.05 + self.reference.seconds);
            let moment = Moment::After(Duration::from_secs_f64(after));
            let before = stores::progress(&self.directory);
            let mut process = self.start(k, errors)?;
            self.tally.mute += 1;
            if wait(&mut process, moment, &self.directory)? {
                stdout = process.end()?.success()?;
                continue;
            }
            let at = process.started.elapsed();
            process.signal(Signal::INT);
            let ended = process.end()?;
            self.tell(Kind::Int, at, moment, &ended.summary());
            // Like after two signals, no message is expected.
            stdout = if self.judge(Kind::Twice, &ended, before, true)? {
                self.tally.late += 1;
                ended.stdout
            } else {
                self.tally.interruptions[Kind::Int as usize] += 1;
                self.start(k, errors)?.end()?.success()?
            };
        }
        self.conclude(stdout)
    }

    /// Runs on disks that are too small, each larger than the one before, until one is large enough.
    pub fn full_disk(&mut self) -> Result<(), String> {
        let whole = self.reference.size;
        let draw = |draws: &mut Draws, low: f64, high: f64| {
            let share = draws.between(low, high);
            // Bytes run out on some disks, names on others.
            if draws.chance(0.7) {
                Size { bytes: ((whole.bytes as f64 * share) as u64).max(4096), files: 100_000 }
            } else {
                Size {
                    bytes: 1 << 30,
                    files: ((whole.files as f64 * share) as u64).max(3 + self.scenario.files.len() as u64),
                }
            }
        };
        let mut size = draw(&mut self.draws, 0.05, 0.9);
        let disk = Disk::mount(&self.directory, size)?;
        prepare(self.scenario, &self.directory)?;
        for attempt in 0.. {
            self.log.push(format!("a disk of {size:?}"));
            let before = stores::progress(&self.directory);
            let ended = self.start(0, Errors::File)?.end()?;
            if ended.code() == Some(0) {
                return self.conclude(ended.stdout).map_err(|error| self.rescue(disk, &error));
            }
            self.log.push(format!("  {}", ended.summary()));
            if let Err(error) = self.judge_full_disk(&ended, before) {
                return Err(self.rescue(disk, &error));
            }
            self.tally.full_disks += 1;
            self.tally.shares.push(self.share(stores::progress(&self.directory)));
            if attempt == 4 || self.draws.chance(0.3) {
                // To another disk, as a user would, or enough space on this one.
                size = Size { bytes: 1 << 30, files: 100_000 };
            } else {
                let larger = draw(&mut self.draws, 0.3, 1.3);
                size = Size { bytes: size.bytes.max(larger.bytes), files: size.files.max(larger.files) };
            }
            disk.resize(size)?;
        }
        unreachable!("the last disk is large enough")
    }

    fn judge_full_disk(&self, ended: &Ended, before: u64) -> Result<(), String> {
        if let Some(complaint) = ended.complaint() {
            return Err(complaint);
        }
        let names_path = |line: &str| line.contains("out") && line.contains("No space left");
        if ended.code() != Some(1) || !ended.error_line().is_some_and(names_path) {
            return Err(format!(
                "a full disk: want exit code 1 and one line with the path, got {}",
                ended.summary()
            ));
        }
        self.check_progress(before)
    }

    /// Keeps what is on a disk that is about to be unmounted.
    fn rescue(&self, disk: Disk, error: &str) -> String {
        let kept = self.directory.with_extension("rescued");
        let copied = copy(&self.directory, &kept).and_then(|()| {
            drop(disk);
            copy(&kept, &self.directory)
        });
        copied.err().map_or(error.to_owned(), |failed| format!("{error}; {failed}"))
    }

    fn start(&mut self, worker: usize, errors: Errors) -> Result<Running<'a>, String> {
        let scenario = self.scenario;
        let command = match &scenario.resume {
            Some((file, command)) if self.directory.join("out").join(file).exists() => command,
            _ => &scenario.workers[worker],
        };
        self.run(command, errors)
    }

    fn run(&mut self, command: &[String], errors: Errors) -> Result<Running<'a>, String> {
        self.tally.processes += 1;
        let to =
            if errors == Errors::File { String::new() } else { format!(" with standard error {errors:?}") };
        self.log.push(format!("bqrl {}{to}", command.join(" ")));
        self.starter.start(command, &self.directory, &self.tally.processes.to_string(), errors)
    }

    fn interrupt(&mut self, process: &Running, kind: Kind) {
        match kind {
            Kind::Kill => process.signal(Signal::KILL),
            Kind::Int => process.signal(Signal::INT),
            Kind::Term => process.signal(Signal::TERM),
            Kind::Twice => {
                let second = if self.draws.chance(0.5) { Signal::INT } else { Signal::TERM };
                process.signal(Signal::INT);
                thread::sleep(Duration::from_secs_f64(self.draws.between(0.0, 0.005)));
                process.signal(second);
            }
            Kind::Pause => {
                process.signal(Signal::STOP);
                thread::sleep(Duration::from_secs_f64(self.draws.between(0.001, 0.05)));
                process.signal(Signal::CONT);
            }
        }
    }

    fn tell(&mut self, kind: Kind, at: Duration, moment: Moment, then: &str) {
        let (name, at) = (kind.name(), at.as_secs_f64());
        self.log.push(format!("  {name} after {at:.4} s ({moment:?}): {then}"));
    }

    /// Whether the process was through, or was interrupted as it should be.
    fn judge(&self, kind: Kind, ended: &Ended, before: u64, alone: bool) -> Result<bool, String> {
        if let Some(complaint) = ended.complaint() {
            return Err(complaint);
        }
        let wrong = |want: &str| Err(format!("{}: want {want}, got {}", kind.name(), ended.summary()));
        if ended.code() == Some(0) {
            return Ok(true);
        }
        if kind == Kind::Kill {
            if !ended.died_of(Signal::KILL) {
                return wrong("an end by signal 9");
            }
        } else if ended.code() == Some(130) {
            let is_told = |line: &str| line.starts_with("error: interrupted");
            if kind != Kind::Twice && !ended.error_line().is_some_and(is_told) {
                return wrong("one line that tells of the interruption");
            }
        } else {
            // Before it listens, a signal ends it as it ends any process; then nothing has been learned.
            let died = ended.died_of(Signal::INT) || ended.died_of(Signal::TERM);
            if !died || (alone && stores::progress(&self.directory) != before) {
                return wrong("exit code 130 or 0");
            }
        }
        if alone {
            self.check_progress(before)?;
        }
        Ok(false)
    }

    /// Nothing that was saved is lost, and whatever can be seen is whole.
    fn check_progress(&self, before: u64) -> Result<(), String> {
        let now = stores::progress(&self.directory);
        if now < before {
            return Err(format!("checkpoints up to step {before} were there, now only up to step {now}"));
        }
        match stores::damages(&self.directory).first() {
            Some(damage) => Err(format!("after the interruption: {damage}")),
            None => Ok(()),
        }
    }

    /// Reports and evaluates what is there: that works or is an error of one line, and changes nothing.
    fn look(&mut self) -> Result<(), String> {
        let scenario = self.scenario;
        for command in &scenario.looks {
            let before = contents(&self.directory)?;
            let ended = self.run(command, Errors::File)?.end()?;
            self.tally.looks += 1;
            let is_told = ended.code() == Some(0)
                || (matches!(ended.code(), Some(1 | 2)) && ended.error_line().is_some());
            if !is_told || ended.complaint().is_some() {
                return Err(format!("bqrl {} on an unfinished run: {}", command.join(" "), ended.summary()));
            }
            if contents(&self.directory)? != before {
                return Err(format!("bqrl {} changes the run", command.join(" ")));
            }
        }
        Ok(())
    }

    /// Everything is finished: it must be as without interruptions.
    fn conclude(&mut self, mut stdout: Vec<u8>) -> Result<(), String> {
        let scenario = self.scenario;
        if let Some(last) = &scenario.last {
            stdout = self.run(last, Errors::File)?.end()?.success()?;
        }
        self.check()?;
        compare::outputs(&self.reference.stdout, &stdout).map_or(Ok(()), Err)
    }

    fn check(&self) -> Result<(), String> {
        let differences = compare::directories(&self.reference.directory, &self.directory)?;
        if differences.is_empty() { Ok(()) } else { Err(differences.join("\n")) }
    }

    fn share(&self, steps: u64) -> f64 {
        (steps as f64 / self.reference.steps.max(1) as f64).min(1.0)
    }

    fn time_left(&self, share: f64) -> f64 {
        0.02 + self.reference.seconds * (1.0 - share)
    }
}

/// Runs a scenario without interruption.
pub fn reference(starter: &Starter, scenario: &Scenario, directory: PathBuf) -> Result<Reference, String> {
    prepare(scenario, &directory)?;
    let began = Instant::now();
    let started = scenario.workers.iter().enumerate();
    let started =
        started.map(|(k, worker)| starter.start(worker, &directory, &format!("reference-{k}"), Errors::File));
    let mut stdout = Vec::new();
    for process in started.collect::<Result<Vec<_>, _>>()? {
        stdout = process.end()?.success()?;
    }
    let seconds = began.elapsed().as_secs_f64();
    if let Some(last) = &scenario.last {
        stdout = starter.start(last, &directory, "reference-last", Errors::File)?.end()?.success()?;
    }
    let all = stores::walk(&directory);
    let pages = |path: &PathBuf| fs::metadata(path).map_or(0, |file| file.len().div_ceil(4096) * 4096);
    let size = Size { bytes: all.iter().map(pages).sum(), files: all.len() as u64 };
    Ok(Reference { steps: stores::progress(&directory), seconds, stdout, size, directory })
}

/// Makes the directory with its files.
fn prepare(scenario: &Scenario, directory: &Path) -> Result<(), String> {
    let failed = |error| format!("preparing {}: {error}", directory.display());
    fs::create_dir_all(directory).map_err(failed)?;
    scenario.files.iter().try_for_each(|(name, text)| fs::write(directory.join(name), text).map_err(failed))
}

/// Waits for the moment. Returns whether the process ended before it.
fn wait(process: &mut Running, moment: Moment, directory: &Path) -> Result<bool, String> {
    let is_sign = |path: &PathBuf| match moment {
        Moment::After(_) => false,
        Moment::Checkpoint(..) => {
            path.parent().is_some_and(|folder| folder.ends_with(stores::STORE))
                && !compare::is_temporary(path)
        }
        Moment::Temporary(..) => compare::is_temporary(path),
    };
    let (n, delay) = match moment {
        Moment::After(delay) => (0, delay),
        Moment::Checkpoint(n, delay) | Moment::Temporary(n, delay) => (n, delay),
    };
    let signs = || stores::walk(directory).into_iter().filter(is_sign);
    if n > 0 {
        let before: BTreeSet<PathBuf> = signs().collect();
        let mut seen = BTreeSet::new();
        let is_time = |_| {
            seen.extend(signs().filter(|path| !before.contains(path)));
            seen.len() >= n
        };
        if process.wait_until(is_time)? {
            return Ok(true);
        }
    }
    let now = Instant::now();
    process.wait_until(|_| now.elapsed() >= delay)
}

/// Every file with its bytes.
fn contents(directory: &Path) -> Result<Vec<(PathBuf, Vec<u8>)>, String> {
    let read = |path: PathBuf| {
        let full = directory.join(&path);
        let bytes = if full.is_dir() { Ok(Vec::new()) } else { fs::read(&full) };
        bytes.map(|bytes| (path, bytes)).map_err(|error| format!("reading {}: {error}", full.display()))
    };
    compare::files(directory)?.into_iter().map(read).collect()
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    for (path, bytes) in contents(from)? {
        let target = to.join(&path);
        let folder =
            if from.join(&path).is_dir() { &*target } else { target.parent().expect("a file has a folder") };
        let failed = |error| format!("copying {}: {error}", target.display());
        fs::create_dir_all(folder).map_err(failed)?;
        if !from.join(&path).is_dir() {
            fs::write(&target, bytes).map_err(failed)?;
        }
    }
    Ok(())
}
