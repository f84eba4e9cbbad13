//! The paths of a run's files, the mark of its directory, and the lock for writing.
//!
//! ```text
//! runs/asset-selling-deep-bqrl-1/
//!   config.toml · summary.json · figures/ · report.html
//!   seed-42/
//!     episodes.csv · evaluations.csv · monitor.csv · events.out.tfevents.* · checkpoints/ · weights.safetensors
//!   .bqrl-run     says that the directory is a run, and in which format
//!   .bqrl-lock    locked by the process that writes the run
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::{atomic, naming};

/// The columns of `episodes.csv`.
pub const EPISODES_HEADER: &str = "episode,episode_return,length";

/// The columns of `evaluations.csv`.
pub const EVALUATIONS_HEADER: &str =
    "episode,tau,quantile,buffered_quantile,mean,quantile_policy_gap,expected_return_regret";

/// The layout described above; a later layout gets the next number.
const FORMAT: u32 = 2;
/// The first layout: its tables and summary can be read, its checkpoints cannot be resumed.
const FIRST_FORMAT: u32 = 1;
const MARK: &str = "bqrl run, format ";
/// How long a writer tries to get the lock, and how often.
const PATIENCE: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(5);

/// The paths of a run.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
}

impl RunDir {
    /// Makes the directory of a new run, with its parents, and locks it.
    ///
    /// An empty directory is used. A directory that holds a run is refused with [`io::ErrorKind::AlreadyExists`],
    /// unless `force` allows to remove that run. A directory with other files is always refused, with
    /// [`io::ErrorKind::DirectoryNotEmpty`].
    pub fn create(path: &Path, force: bool) -> io::Result<(Self, Lock)> {
        fs::create_dir_all(path).map_err(naming("creating", path))?;
        let run = Self { path: path.to_path_buf() };
        let occupied = !run.visible_entries()?.is_empty();
        if occupied && !run.mark().exists() {
            let message = format!("{} is not empty and not a run", path.display());
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, message));
        }
        if occupied && !force {
            let message = format!("{} already holds a run", path.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        let lock = run.lock()?;
        run.clear()?;
        atomic::write(&run.mark(), format!("{MARK}{FORMAT}\n").as_bytes())?;
        Ok((run, lock))
    }

    /// Finds the run in a directory, to continue it after [`lock`](Self::lock), or to restore its agent.
    ///
    /// A run of an earlier format is refused; [`open_to_read`](Self::open_to_read) takes it.
    pub fn open(path: &Path) -> io::Result<Self> {
        let (run, format) = Self::open_any(path)?;
        if format == FORMAT {
            return Ok(run);
        }
        let reason = format!(
            "was written by an earlier bqrl (run format {format}, now {FORMAT}): it can be reported, but not resumed or \
             evaluated"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} {reason}", path.display())))
    }

    /// Finds the run in a directory, to read its tables.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        Self::open_any(path).map(|(run, _)| run)
    }

    fn open_any(path: &Path) -> io::Result<(Self, u32)> {
        let run = Self { path: path.to_path_buf() };
        let refused = |kind, reason: &str| Err(io::Error::new(kind, format!("{} {reason}", path.display())));
        if !fs::metadata(path).map_err(naming("opening", path))?.is_dir() {
            return refused(io::ErrorKind::NotADirectory, "is not a run: it is not a directory");
        }
        let mark = match fs::read_to_string(run.mark()) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return refused(io::ErrorKind::InvalidInput, "is not a run: it has no .bqrl-run");
            }
            mark => mark.map_err(naming("reading", &run.mark()))?,
        };
        let Some(format) = mark.strip_prefix(MARK).map(str::trim_end) else {
            return refused(io::ErrorKind::InvalidData, "is not a run: its .bqrl-run is damaged");
        };
        let Some(known) = [FORMAT, FIRST_FORMAT].into_iter().find(|known| known.to_string() == format) else {
            let reason = format!("is a run of format {format:?}, this program reads formats up to {FORMAT}");
            return refused(io::ErrorKind::InvalidInput, &reason);
        };
        if !run.config().is_file() {
            return refused(io::ErrorKind::InvalidInput, "is a run without its config.toml");
        }
        Ok((run, known))
    }

    /// Locks the run, so that no other process writes to it until the lock is dropped.
    ///
    /// [`io::ErrorKind::ResourceBusy`] if another process holds the lock.
    pub fn lock(&self) -> io::Result<Lock> {
        let lock = Lock::acquire(&self.path.join(".bqrl-lock"))?;
        atomic::sweep(&self.path)?;
        Ok(lock)
    }

    /// Whether a process is writing the run. Readers may ask at any time; see [`Lock`].
    pub fn is_locked(&self) -> bool {
        Lock::is_held(&self.path.join(".bqrl-lock"))
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `config.toml`: every setting.
    pub fn config(&self) -> PathBuf {
        self.path.join("config.toml")
    }

    /// `summary.json`: the results.
    pub fn summary(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    /// `problem.json`: names, horizon, and the exact optima.
    pub fn problem(&self) -> PathBuf {
        self.path.join("problem.json")
    }

    /// `reference.csv`: the quantiles of exact policies.
    pub fn reference(&self) -> PathBuf {
        self.path.join("reference.csv")
    }

    /// `figures/`: SVG and PNG.
    pub fn figures(&self) -> PathBuf {
        self.path.join("figures")
    }

    /// `report.html`: one page.
    pub fn report(&self) -> PathBuf {
        self.path.join("report.html")
    }

    /// The part of the run that belongs to one seed.
    pub fn seed(&self, seed: u64) -> SeedDir {
        SeedDir { path: self.path.join(format!("seed-{seed}")) }
    }

    fn mark(&self) -> PathBuf {
        self.path.join(".bqrl-run")
    }

    /// Names of all entries except our own hidden ones.
    fn visible_entries(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.path).map_err(naming("reading", &self.path))? {
            let name = entry.map_err(naming("reading", &self.path))?.file_name();
            names.push(name.to_string_lossy().into_owned());
        }
        names.retain(|name| !name.starts_with(".bqrl-"));
        Ok(names)
    }

    /// Removes the files of a run, and no others.
    fn clear(&self) -> io::Result<()> {
        // Removed first: without this file, the leftovers of a kill do not count as a run.
        atomic::remove(&self.config())?;
        for path in [self.summary(), self.problem(), self.reference(), self.figures(), self.report()] {
            atomic::remove(&path)?;
        }
        for name in self.visible_entries()? {
            if name.strip_prefix("seed-").is_some_and(|seed| seed.parse::<u64>().is_ok()) {
                atomic::remove(&self.path.join(name))?;
            }
        }
        Ok(())
    }
}

/// The paths of one seed of a run.
#[derive(Debug, Clone)]
pub struct SeedDir {
    path: PathBuf,
}

impl SeedDir {
    /// Makes the directory unless it exists, and removes unfinished files that a kill left in it.
    pub fn create(&self) -> io::Result<()> {
        atomic::create_dir(&self.path)?;
        atomic::sweep(&self.path)
    }

    /// The directory itself, where the event file is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `episodes.csv`, with the columns of [`EPISODES_HEADER`].
    pub fn episodes(&self) -> PathBuf {
        self.path.join("episodes.csv")
    }

    /// `evaluations.csv`, with the columns of [`EVALUATIONS_HEADER`].
    pub fn evaluations(&self) -> PathBuf {
        self.path.join("evaluations.csv")
    }

    /// `evaluations-distribution.csv`: the same for a stochastic policy itself; `evaluations.csv` is about its mode.
    pub fn distribution(&self) -> PathBuf {
        self.path.join("evaluations-distribution.csv")
    }

    /// `policy.csv`: the final policy at c = 0.
    pub fn policy(&self) -> PathBuf {
        self.path.join("policy.csv")
    }

    /// `law.csv`: the law of the final policy's return.
    pub fn law(&self) -> PathBuf {
        self.path.join("law.csv")
    }

    /// `predictions.csv`: the predictions of the critics at the start.
    pub fn predictions(&self) -> PathBuf {
        self.path.join("predictions.csv")
    }

    /// `achieved.csv`: quantiles over many levels, for an agent that serves them all.
    pub fn achieved(&self) -> PathBuf {
        self.path.join("achieved.csv")
    }

    /// `monitor.csv`, see [`monitor`](crate::monitor).
    pub fn monitor(&self) -> PathBuf {
        self.path.join("monitor.csv")
    }

    /// `progress.json`: how far the seed is, see [`SeedProgress`](crate::schema::SeedProgress).
    pub fn progress(&self) -> PathBuf {
        self.path.join("progress.json")
    }

    /// `checkpoints/`, see [`checkpoint`](crate::checkpoint).
    pub fn checkpoints(&self) -> PathBuf {
        self.path.join("checkpoints")
    }

    /// `weights.safetensors`: the networks after training.
    pub fn weights(&self) -> PathBuf {
        self.path.join("weights.safetensors")
    }
}

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
    fn acquire(path: &Path) -> io::Result<Self> {
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

    fn is_held(path: &Path) -> bool {
        let Ok(mut file) = File::open(path) else { return false };
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

/// Makes the directory `base/stem-1`, or the one with the first free number, and returns its path.
///
/// Two processes never get the same directory. `base` is made if it is missing.
pub fn unique_name(base: &Path, stem: &str) -> io::Result<PathBuf> {
    fs::create_dir_all(base).map_err(naming("creating", base))?;
    let mut number = 1_u64;
    loop {
        let path = base.join(format!("{stem}-{number}"));
        match fs::create_dir(&path) {
            Ok(()) => return Ok(path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(naming("creating", &path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names;

    /// A run with a config, a seed and a note of the user's.
    fn run(path: &Path) {
        let (run, _lock) = RunDir::create(path, false).unwrap();
        atomic::write(&run.config(), b"tau = 0.1\n").unwrap();
        run.seed(42).create().unwrap();
        fs::write(run.seed(42).episodes(), EPISODES_HEADER).unwrap();
        fs::write(path.join("notes.txt"), "mine").unwrap();
    }

    #[test]
    fn the_files_are_where_the_interface_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("runs/a");
        let (run, _lock) = RunDir::create(&path, false).unwrap();
        assert_eq!(run.config(), path.join("config.toml"));
        assert_eq!(run.summary(), path.join("summary.json"));
        assert_eq!(run.figures(), path.join("figures"));
        assert_eq!(run.report(), path.join("report.html"));
        let seed = run.seed(42);
        assert_eq!(seed.path(), path.join("seed-42"));
        assert_eq!(seed.episodes(), path.join("seed-42/episodes.csv"));
        assert_eq!(seed.evaluations(), path.join("seed-42/evaluations.csv"));
        assert_eq!(seed.monitor(), path.join("seed-42/monitor.csv"));
        assert_eq!(seed.checkpoints(), path.join("seed-42/checkpoints"));
        assert_eq!(seed.weights(), path.join("seed-42/weights.safetensors"));
    }

    #[test]
    fn a_run_that_was_created_can_be_opened_and_is_not_created_again() {
        let directory = tempfile::tempdir().unwrap();
        run(directory.path());
        assert_eq!(RunDir::open(directory.path()).unwrap().path(), directory.path());
        let error = RunDir::create(directory.path(), false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(error.to_string(), format!("{} already holds a run", directory.path().display()));
        assert!(directory.path().join("seed-42/episodes.csv").exists());
    }

    #[test]
    fn force_removes_the_old_run_and_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        run(directory.path());
        fs::create_dir(directory.path().join("seed-potatoes")).unwrap();
        RunDir::create(directory.path(), true).unwrap();
        assert_eq!(names(directory.path()), [".bqrl-lock", ".bqrl-run", "notes.txt", "seed-potatoes"]);
    }

    #[test]
    fn a_directory_that_is_not_a_run_is_refused_even_by_force() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("config.toml"), "theirs").unwrap();
        for force in [false, true] {
            let error = RunDir::create(directory.path(), force).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::DirectoryNotEmpty);
            assert!(error.to_string().contains(&directory.path().display().to_string()), "{error}");
        }
        assert_eq!(names(directory.path()), ["config.toml"]);
    }

    #[test]
    fn a_run_killed_before_it_had_a_config_may_be_created_again() {
        let directory = tempfile::tempdir().unwrap();
        RunDir::create(directory.path(), false).unwrap();
        // The state after a kill in the middle of writing the config.
        fs::write(atomic::temporary(directory.path(), "x"), "tau").unwrap();
        RunDir::create(directory.path(), false).unwrap();
        assert_eq!(names(directory.path()), [".bqrl-lock", ".bqrl-run"]);
    }

    #[test]
    fn opening_says_what_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let message = |path: &Path| RunDir::open(path).unwrap_err().to_string();

        let missing = path.join("missing");
        assert!(message(&missing).starts_with(&format!("opening {}: ", missing.display())));
        assert!(message(path).ends_with("is not a run: it has no .bqrl-run"));
        fs::write(path.join("file"), "").unwrap();
        assert!(message(&path.join("file")).ends_with("is not a run: it is not a directory"));
        fs::write(path.join(".bqrl-run"), "bqrl run, format 2\n").unwrap();
        assert!(message(path).ends_with("is a run without its config.toml"));
        fs::write(path.join(".bqrl-run"), "bqrl run, format 3\n").unwrap();
        assert!(message(path).ends_with("is a run of format \"3\", this program reads formats up to 2"));
        // The first format is read, but its checkpoints are not.
        fs::write(path.join("config.toml"), "").unwrap();
        fs::write(path.join(".bqrl-run"), "bqrl run, format 1\n").unwrap();
        assert!(message(path).contains("was written by an earlier bqrl (run format 1, now 2)"));
        assert!(RunDir::open_to_read(path).is_ok());
        fs::remove_file(path.join("config.toml")).unwrap();
        fs::write(path.join(".bqrl-run"), "").unwrap();
        assert!(message(path).ends_with("is not a run: its .bqrl-run is damaged"));
    }

    #[test]
    fn a_locked_run_is_refused_until_the_lock_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let (run, lock) = RunDir::create(directory.path(), false).unwrap();
        for error in [run.lock().unwrap_err(), RunDir::create(directory.path(), true).unwrap_err()] {
            assert_eq!(error.kind(), io::ErrorKind::ResourceBusy);
            #[cfg(unix)]
            assert!(error.to_string().contains(&format!("process {} is", std::process::id())), "{error}");
        }
        drop(lock);
        assert_eq!(fs::read(directory.path().join(".bqrl-lock")).unwrap(), b"");
        run.lock().unwrap();
    }

    #[test]
    fn the_lock_of_a_process_that_is_gone_is_taken_over() {
        let directory = tempfile::tempdir().unwrap();
        let (run, lock) = RunDir::create(directory.path(), false).unwrap();
        drop(lock);
        // The state after a kill: the longer id of a dead process.
        fs::write(directory.path().join(".bqrl-lock"), "99999999999\n").unwrap();
        let _lock = run.lock().unwrap();
        #[cfg(unix)]
        assert_eq!(
            fs::read_to_string(directory.path().join(".bqrl-lock")).unwrap(),
            format!("{}\n", std::process::id())
        );
    }

    #[test]
    fn a_reader_sees_whether_the_lock_is_held() {
        let directory = tempfile::tempdir().unwrap();
        let (run, lock) = RunDir::create(directory.path(), false).unwrap();
        assert!(run.is_locked() && run.is_locked());
        drop(lock);
        assert!(!run.is_locked());
        // A process that was killed leaves its id behind.
        fs::write(directory.path().join(".bqrl-lock"), "99999999999\n").unwrap();
        assert!(!run.is_locked());
        fs::remove_file(directory.path().join(".bqrl-lock")).unwrap();
        assert!(!run.is_locked());
    }

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

    #[test]
    fn unique_names_count_from_one_and_fill_gaps() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("runs");
        let name = || unique_name(&base, "asset-selling-deep-bqrl").unwrap();
        assert_eq!(name(), base.join("asset-selling-deep-bqrl-1"));
        assert_eq!(name(), base.join("asset-selling-deep-bqrl-2"));
        assert_eq!(name(), base.join("asset-selling-deep-bqrl-3"));
        fs::remove_dir(base.join("asset-selling-deep-bqrl-2")).unwrap();
        assert_eq!(name(), base.join("asset-selling-deep-bqrl-2"));
        RunDir::create(&name(), false).unwrap();
    }

    #[test]
    fn unique_names_are_never_shared() {
        let directory = tempfile::tempdir().unwrap();
        let mut paths: Vec<PathBuf> = std::thread::scope(|scope| {
            let name = || (0..20).map(|_| unique_name(directory.path(), "x").unwrap()).collect::<Vec<_>>();
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(name)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 80);
    }

    #[test]
    fn a_base_that_is_a_file_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("runs");
        fs::write(&base, "").unwrap();
        let error = unique_name(&base, "x").unwrap_err();
        assert!(error.to_string().starts_with(&format!("creating {}: ", base.display())), "{error}");
    }
}
