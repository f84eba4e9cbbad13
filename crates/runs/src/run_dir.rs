//! The paths of a run's files, the mark of its directory, and the lock for writing.
//!
//! ```text
//! runs/asset-selling-deep-bqrl-1/
//!   config.toml · summary.json · figures/ · report.html · problem.csv (a copy, if the problem is an MDP file)
//!   seed-42/
//!     episodes.csv · evaluations.csv · monitor.csv · events.out.tfevents.* · checkpoints/ · weights.safetensors
//!   .bqrl-run     says that the directory is a run, and in which format
//!   .bqrl-lock    locked by the process that writes the run
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::checkpoint::CheckpointStore;
use crate::lock::Lock;
use crate::{atomic, naming, regular};

/// The columns of `episodes.csv`.
pub const EPISODES_HEADER: &str = "episode,episode_return,length";

/// The columns of `evaluations.csv`.
pub const EVALUATIONS_HEADER: &str =
    "episode,tau,quantile,buffered_quantile,mean,quantile_policy_gap,expected_return_regret";

/// The layout described above; a later layout gets the next number. Tables and summaries of all earlier layouts can be read,
/// their checkpoints cannot be resumed.
const FORMAT: u32 = 3;
const MARK: &str = "bqrl run, format ";
/// The file that says that a directory is a run.
pub const MARK_NAME: &str = ".bqrl-run";
const LOCK: &str = ".bqrl-lock";
const LONGEST_MARK: u64 = 1 << 10;

/// The paths of a run.
#[derive(Debug, Clone)]
pub struct RunDir {
    path: PathBuf,
    /// The directory that reading must not leave, not even through a link; otherwise links are followed.
    below: Option<PathBuf>,
}

impl RunDir {
    /// Makes the directory of a new run, with its parents, and locks it.
    ///
    /// An empty directory is used. A directory that holds a run is refused with [`io::ErrorKind::AlreadyExists`],
    /// unless `force` allows to remove that run. A directory with other files is always refused, with
    /// [`io::ErrorKind::DirectoryNotEmpty`].
    pub fn create(path: &Path, force: bool) -> io::Result<(Self, Lock)> {
        Self::create_while(path, force, || {})
    }

    /// In tests, `others` does what another process may do before this one gets the lock.
    fn create_while(path: &Path, force: bool, others: impl FnOnce()) -> io::Result<(Self, Lock)> {
        make_directory(path)?;
        let run = Self { path: path.to_path_buf(), below: None };
        // A directory of someone else must not even get a lock file.
        run.check_free(force)?;
        others();
        let lock = run.lock()?;
        // Meanwhile another process may have begun a run here and finished it.
        run.check_free(force)?;
        run.clear()?;
        atomic::write(&run.mark(), format!("{MARK}{FORMAT}\n").as_bytes())?;
        Ok((run, lock))
    }

    /// Refuses a directory that holds something else, or a run that may not be removed.
    fn check_free(&self, force: bool) -> io::Result<()> {
        let (path, mut entries) = (self.path.display(), self.visible_entries()?);
        if self.mark().exists() {
            // The copy of the MDP file is written before the configuration: alone, it is left by a kill.
            entries.retain(|name| self.path.join(name) != self.table());
        }
        let occupied = !entries.is_empty();
        if occupied && !self.mark().exists() {
            let message = format!("{path} is not empty and not a run");
            return Err(io::Error::new(io::ErrorKind::DirectoryNotEmpty, message));
        }
        if occupied && !force {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{path} already holds a run")));
        }
        Ok(())
    }

    /// Finds the run in a directory, to continue it after [`lock`](Self::lock), or to restore its agent.
    ///
    /// A run of an earlier format is refused; [`open_to_read`](Self::open_to_read) takes it.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::open_any(path, None)?.of_this_format()
    }

    /// The same for a directory that somebody else may write to: no link below `root` is followed.
    pub fn open_below(root: &Path, path: &Path) -> io::Result<Self> {
        Self::open_any(path, Some(root))?.of_this_format()
    }

    /// Finds the run in a directory, to read its tables.
    pub fn open_to_read(path: &Path) -> io::Result<Self> {
        Self::open_any(path, None).map(|opened| opened.run)
    }

    /// The same for a directory that somebody else may write to: no link below `root` is followed.
    pub fn open_to_read_below(root: &Path, path: &Path) -> io::Result<Self> {
        Self::open_any(path, Some(root)).map(|opened| opened.run)
    }

    fn open_any(path: &Path, below: Option<&Path>) -> io::Result<Opened> {
        let run = Self { path: path.to_path_buf(), below: below.map(Path::to_path_buf) };
        let refused = |kind, reason: &str| Err(io::Error::new(kind, format!("{} {reason}", path.display())));
        if !fs::metadata(path).map_err(naming("opening", path))?.is_dir() {
            return refused(io::ErrorKind::NotADirectory, "is not a run: it is not a directory");
        }
        let mark = match regular::read_below(&run.mark(), below, LONGEST_MARK) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return refused(io::ErrorKind::InvalidInput, "is not a run: it has no .bqrl-run");
            }
            mark => String::from_utf8_lossy(&mark?).into_owned(),
        };
        let Some(format) = mark.strip_prefix(MARK).map(str::trim_end) else {
            return refused(io::ErrorKind::InvalidData, "is not a run: its .bqrl-run is damaged");
        };
        let Some(known) = (1..=FORMAT).find(|known| known.to_string() == format) else {
            let reason = format!("is a run of format {format:?}, this program reads formats up to {FORMAT}");
            return refused(io::ErrorKind::InvalidInput, &reason);
        };
        if regular::open_below(&run.config(), below)
            .is_err_and(|error| error.kind() != io::ErrorKind::PermissionDenied)
        {
            return refused(io::ErrorKind::InvalidInput, "is a run without its config.toml");
        }
        Ok(Opened { run, format: known })
    }

    /// Locks the run, so that no other process writes to it until the lock is dropped.
    ///
    /// [`io::ErrorKind::ResourceBusy`] if another process holds the lock.
    pub fn lock(&self) -> io::Result<Lock> {
        self.refuse_links()?;
        let lock = Lock::acquire(&self.path.join(LOCK))?;
        atomic::sweep(&self.path)?;
        Ok(lock)
    }

    /// Whether a process is writing the run. Readers may ask at any time; see [`Lock`].
    pub fn is_locked(&self) -> bool {
        let root = self.below.as_deref().unwrap_or(&self.path);
        self.path.join(LOCK).strip_prefix(root).is_ok_and(|below| Lock::is_held(root, below))
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

    /// `problem.csv`: a copy of the MDP file, so that the run does not depend on the original.
    pub fn table(&self) -> PathBuf {
        self.path.join("problem.csv")
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
        SeedDir { path: self.path.join(format!("seed-{seed}")), below: self.below.clone() }
    }

    fn mark(&self) -> PathBuf {
        self.path.join(MARK_NAME)
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
        self.own_entries()?.iter().try_for_each(|path| atomic::remove(path))
    }

    /// The paths of a run's files, whether they exist or not, and of its seeds. The configuration comes first: without it,
    /// the leftovers of a kill do not count as a run.
    fn own_entries(&self) -> io::Result<Vec<PathBuf>> {
        let mut own = vec![
            self.config(),
            self.summary(),
            self.problem(),
            self.table(),
            self.reference(),
            self.figures(),
            self.report(),
        ];
        let is_seed =
            |name: &String| name.strip_prefix("seed-").is_some_and(|seed| seed.parse::<u64>().is_ok());
        own.extend(
            self.visible_entries()?.iter().filter(|name| is_seed(name)).map(|name| self.path.join(name)),
        );
        Ok(own)
    }

    /// Refuses a run in which a file or a directory of ours is a symbolic link, a pipe or a device: writing would change
    /// what the link leads to, or wait forever.
    pub fn refuse_links(&self) -> io::Result<()> {
        let hidden = [self.mark(), self.path.join(LOCK)];
        self.own_entries()?.iter().chain(&hidden).try_for_each(|path| refuse_links(path))
    }
}

/// A run that was found, of any format.
struct Opened {
    run: RunDir,
    format: u32,
}

impl Opened {
    fn of_this_format(self) -> io::Result<RunDir> {
        let Self { run, format } = self;
        if format == FORMAT {
            return Ok(run);
        }
        let reason = format!(
            "was written by an earlier bqrl (run format {format}, now {FORMAT}): it can be reported, but not resumed or \
             evaluated"
        );
        Err(io::Error::new(io::ErrorKind::InvalidInput, format!("{} {reason}", run.path.display())))
    }
}

/// Refuses anything but regular files and directories at a path and below it. A missing path is fine.
fn refuse_links(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        metadata => metadata.map_err(naming("reading", path))?.file_type(),
    };
    if kind.is_dir() {
        for entry in fs::read_dir(path).map_err(naming("reading", path))? {
            refuse_links(&entry.map_err(naming("reading", path))?.path())?;
        }
    } else if !kind.is_file() {
        let what = if kind.is_symlink() { "a symbolic link" } else { "not a regular file" };
        let message = format!("{} is {what}, which a run does not have", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// Makes a directory and its parents, unless it exists.
fn make_directory(path: &Path) -> io::Result<()> {
    let refused =
        |why: &str| Err(io::Error::new(io::ErrorKind::NotADirectory, format!("{} {why}", path.display())));
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => refused("is not a directory"),
        Err(_) if fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink()) => {
            refused("is a symbolic link that leads nowhere")
        }
        Err(_) => fs::create_dir_all(path).map_err(naming("creating", path)),
    }
}

/// The paths of one seed of a run.
#[derive(Debug, Clone)]
pub struct SeedDir {
    path: PathBuf,
    below: Option<PathBuf>,
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

    /// `calibration.csv`: what the agent expects of its policies, beside what was measured.
    pub fn calibration(&self) -> PathBuf {
        self.path.join("calibration.csv")
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

    /// The checkpoints, read as the run is: through links, or not.
    pub fn checkpoint_store(&self) -> CheckpointStore {
        match &self.below {
            Some(root) => CheckpointStore::open_below(root, self.checkpoints()),
            None => CheckpointStore::open(self.checkpoints()),
        }
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
    fn a_run_killed_before_its_configuration_was_written_can_be_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let (run, lock) = RunDir::create(directory.path(), false).unwrap();
        atomic::write(&run.table(), b"half of a beginning").unwrap();
        drop(lock);
        RunDir::create(directory.path(), false).unwrap();
        assert!(!run.table().exists());
        // A table of the user's in a directory that is no run.
        let theirs = directory.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("problem.csv"), "mine").unwrap();
        assert_eq!(RunDir::create(&theirs, false).unwrap_err().kind(), io::ErrorKind::DirectoryNotEmpty);
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
    fn a_run_that_another_process_finished_meanwhile_is_not_erased() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run");
        let error = RunDir::create_while(&path, false, || run(&path)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(path.join("seed-42/episodes.csv").exists());
    }

    #[cfg(unix)]
    #[test]
    fn links_in_the_place_of_our_files_are_refused_and_their_targets_are_untouched() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let (path, mine) = (directory.path().join("run"), directory.path().join("mine"));
        let seed = path.join("seed-42");
        for place in [
            path.join(".bqrl-lock"),
            path.join(".bqrl-run"),
            path.join("config.toml"),
            path.join("summary.json"),
            seed.join("episodes.csv"),
            seed.join("checkpoints/000007/state.json"),
            seed.clone(),
        ] {
            for target in ["a file", "a directory", "nothing"] {
                let _ = fs::remove_dir_all(&path);
                run(&path);
                fs::create_dir_all(seed.join("checkpoints/000007")).unwrap();
                atomic::remove(&place).unwrap();
                atomic::remove(&mine).unwrap();
                match target {
                    "a file" => fs::write(&mine, "mine").unwrap(),
                    "a directory" => fs::create_dir(&mine).unwrap(),
                    _ => {}
                }
                symlink(&mine, &place).unwrap();
                let run = RunDir { path: path.clone(), below: None };
                let error = run.lock().unwrap_err();
                assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{error}");
                let said = format!("{} is a symbolic link", place.display());
                assert!(error.to_string().contains(&said), "{error}");
                match target {
                    "a file" => assert_eq!(fs::read_to_string(&mine).unwrap(), "mine"),
                    "a directory" => assert!(names(&mine).is_empty()),
                    _ => assert!(!mine.exists()),
                }
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_link_of_the_users_beside_our_files_and_a_linked_run_are_fine() {
        use std::os::unix::fs::symlink;

        let directory = tempfile::tempdir().unwrap();
        let (path, link) = (directory.path().join("run"), directory.path().join("latest"));
        run(&path);
        symlink(directory.path(), path.join("data")).unwrap();
        symlink(&path, &link).unwrap();
        RunDir::open(&link).unwrap().lock().unwrap();
    }

    #[cfg(unix)]
    #[test]
    fn a_directory_that_cannot_be_made_is_not_called_a_run() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        fs::write(&file, "mine").unwrap();
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        for (path, why) in [(&file, "is not a directory"), (&link, "is a symbolic link that leads nowhere")] {
            let error = RunDir::create(path, false).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotADirectory);
            assert!(error.to_string().ends_with(why), "{error}");
        }
        assert_eq!(names(directory.path()), ["file", "link"]);
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
        fs::write(path.join(".bqrl-run"), "bqrl run, format 3\n").unwrap();
        assert!(message(path).ends_with("is a run without its config.toml"));
        fs::write(path.join(".bqrl-run"), "bqrl run, format 4\n").unwrap();
        assert!(message(path).ends_with("is a run of format \"4\", this program reads formats up to 3"));
        // Earlier formats are read, but their checkpoints are not.
        fs::write(path.join("config.toml"), "").unwrap();
        for earlier in [1, 2] {
            fs::write(path.join(".bqrl-run"), format!("bqrl run, format {earlier}\n")).unwrap();
            let said = format!("was written by an earlier bqrl (run format {earlier}, now 3)");
            assert!(message(path).contains(&said));
            assert!(RunDir::open_to_read(path).is_ok());
        }
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
