//! The runs and MDP files below the served directory, found again whenever somebody looks.
//!
//! ```text
//! walk the directory ─► fingerprint of each run (sizes and times) ─► read the runs that changed ─► cards
//! ```
//!
//! Links are not followed: a run or a file that is a link, or contains one, is not shown. A run is read at most once
//! per change, one at a time, and the next look waits for a multiple of the time that the last one took. So a tree
//! with many files, or a run with many rows, slows the page down but not the machine. The rows of a run that grows are kept, up
//! to a limit, so that only new ones are read.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use bqrl_mdp::csv;
use bqrl_runs::beneath;
use bqrl_runs::reader::{Follower, Run, State};
use bqrl_runs::run_dir::{MARK_NAME, RunDir};

use crate::card::Card;
use crate::trained::{lock, shown};

/// The tables of a run that are larger, taken together, are not read: a run of two million episodes has less.
pub const LARGEST_TABLES: u64 = 128 << 20;
/// Tables of runs that grow whose rows are kept; in memory they are about three times as large.
const MOST_FOLLOWED: u64 = 64 << 20;
/// An MDP file that is larger is not planned.
pub const LARGEST_MODEL: u64 = 32 << 20;
/// Bytes that the header of an MDP file may have.
const LONGEST_HEADER: u64 = 4 << 10;
/// How deep the directory is searched, and how many entries are looked at.
const DEPTH: usize = 8;
const ENTRIES: usize = 100_000;
/// The most runs and MDP files that are shown.
pub const MOST_RUNS: usize = 2_000;
const MOST_FILES: usize = 500;
/// The shortest time between two looks, and how much longer than the last look or the last reading of a run it is.
const PAUSE: Duration = Duration::from_millis(400);
const PAUSE_FACTOR: u32 = 2;
/// How long a page waits for the next look when its run may be new.
const LONGEST_WAIT: Duration = Duration::from_secs(2);

/// The served directory.
pub struct Shelf {
    root: PathBuf,
    seen: RwLock<Arc<Seen>>,
    looking: Mutex<Looking>,
    /// The runs that grow, the latest at the end. Held while the rows of a run are in memory.
    reading: Mutex<Vec<Followed>>,
}

/// A run whose rows are kept, so that only new ones have to be read.
struct Followed {
    id: String,
    follower: Follower,
    /// Of its tables.
    bytes: u64,
}

/// The contents of the directory at one moment.
#[derive(Debug, Default)]
pub struct Seen {
    /// Changes with the contents.
    pub version: u64,
    /// Cards by id.
    pub runs: BTreeMap<String, Arc<Card>>,
    /// Paths of MDP files below the directory.
    pub files: Vec<String>,
    /// Whether there is more than is shown.
    pub limited: bool,
    /// The ids that changed with this version.
    pub changed: Vec<String>,
}

#[derive(Default)]
struct Looking {
    /// When the next look may begin.
    next: Option<Instant>,
    /// Steps at the latest heartbeat of a running run, and its speed.
    speeds: HashMap<String, Speed>,
    /// Whether a CSV file with this fingerprint is an MDP file.
    tables: HashMap<String, (u64, bool)>,
    /// When a run may be read again.
    due: HashMap<String, Instant>,
}

#[derive(Clone, Copy)]
struct Speed {
    time: f64,
    steps: u64,
    per_second: Option<f64>,
}

impl Shelf {
    /// Serves a directory.
    pub fn new(root: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        fs::read_dir(&root)?;
        Ok(Self { root, seen: RwLock::default(), looking: Mutex::default(), reading: Mutex::default() })
    }

    /// The served directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The contents, at most about a second old.
    pub fn look(&self) -> Arc<Seen> {
        // Whoever comes second does not wait for the first, unless there is nothing to show yet.
        let looking = match self.looking.try_lock() {
            Ok(looking) => Some(looking),
            Err(std::sync::TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(std::sync::TryLockError::WouldBlock) if self.seen().version == 0 => Some(self.lock()),
            Err(std::sync::TryLockError::WouldBlock) => None,
        };
        if let Some(mut looking) = looking
            && looking.next.is_none_or(|next| Instant::now() >= next)
        {
            let begun = Instant::now();
            self.look_again(&mut looking);
            looking.next = Some(Instant::now() + PAUSE.max(begun.elapsed() * PAUSE_FACTOR));
        }
        self.seen()
    }

    /// The contents, with a run that may be new: one that is unknown or could not be read is looked for once more.
    pub fn look_for(&self, id: &str) -> Arc<Seen> {
        let seen = self.look();
        if seen.runs.get(id).is_some_and(|card| card.error.is_none()) {
            return seen;
        }
        let next = self.lock().next;
        let wait = next.map_or(Duration::ZERO, |next| next.saturating_duration_since(Instant::now()));
        thread::sleep(wait.min(LONGEST_WAIT));
        self.look()
    }

    fn seen(&self) -> Arc<Seen> {
        self.seen.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn lock(&self) -> MutexGuard<'_, Looking> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look_again(&self, looking: &mut Looking) {
        let before = self.seen();
        let mut walk = Walk { root: &self.root, left: ENTRIES, found: Found::default() };
        walk.directory(&self.root, 0);
        let found = walk.found;
        let mut runs = BTreeMap::new();
        let mut changed = Vec::new();
        for (id, path) in found.runs {
            let known = before.runs.get(&id);
            let marked = fingerprint(&self.root, &path);
            let same = known.is_some_and(|card| Ok(card.fingerprint) == marked);
            let wait = looking.due.get(&id).is_some_and(|&due| Instant::now() < due);
            let card = match known {
                Some(card) if same || wait => card.clone(),
                _ => {
                    let begun = Instant::now();
                    let card = self.card(&id, marked, looking);
                    looking.due.insert(id.clone(), Instant::now() + begun.elapsed() * PAUSE_FACTOR);
                    changed.push(id.clone());
                    Arc::new(card)
                }
            };
            runs.insert(id, card);
        }
        changed.extend(before.runs.keys().filter(|id| !runs.contains_key(*id)).cloned());
        looking.due.retain(|id, _| runs.contains_key(id));
        looking.speeds.retain(|id, _| runs.contains_key(id));
        let files = mdp_files(&self.root, found.tables, &mut looking.tables);
        let same = changed.is_empty() && files == before.files && found.limited == before.limited;
        if same && before.version > 0 {
            return;
        }
        let version = before.version + 1;
        let seen = Seen { version, runs, files, limited: found.limited, changed };
        *self.seen.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(seen);
    }

    fn card(&self, id: &str, marked: Result<u64, String>, looking: &mut Looking) -> Card {
        let fingerprint = match marked {
            Ok(fingerprint) => fingerprint,
            Err(error) => return Card::unreadable(id.to_owned(), 0, error),
        };
        let card = self.read(id, |run| {
            let speed = looking.speed(id, run);
            Card::of(id.to_owned(), fingerprint, run, speed)
        });
        card.unwrap_or_else(|error| Card::unreadable(id.to_owned(), fingerprint, error))
    }

    /// Hands a run to `then`. Of a run that grows, only the new rows are read.
    pub fn read<T>(&self, id: &str, then: impl FnOnce(&Run) -> T) -> Result<T, String> {
        let path = self.run_path(id);
        let mut kept = lock(&self.reading);
        let known = kept.iter().position(|followed| followed.id == id).map(|at| kept.remove(at).follower);
        let mut follower = known.unwrap_or_else(|| Follower::new(&path, Some(&self.root)));
        let bytes = self.readable(id, LARGEST_TABLES)?;
        let run = follower.read().map_err(|error| shown(&error, &path, id))?;
        // Reports name runs by their paths.
        run.path = PathBuf::from(id);
        let made = then(run);
        if follower.is_growing() {
            kept.push(Followed { id: id.to_owned(), follower, bytes });
            while kept.iter().map(|followed| followed.bytes).sum::<u64>() > MOST_FOLLOWED {
                kept.remove(0);
            }
        }
        Ok(made)
    }

    /// Hands several runs to `then`.
    pub fn read_all<T>(&self, ids: &[String], then: impl FnOnce(Vec<Run>) -> T) -> Result<T, String> {
        let mut kept = lock(&self.reading);
        // Space for those that are read now.
        kept.clear();
        let mut runs = Vec::with_capacity(ids.len());
        let mut left = LARGEST_TABLES;
        for id in ids {
            let path = self.run_path(id);
            left -= self.readable(id, left)?;
            let mut run = Run::read_below(&self.root, &path).map_err(|error| shown(&error, &path, id))?;
            run.path = PathBuf::from(id);
            runs.push(run);
        }
        Ok(then(runs))
    }

    /// Refuses a run with links, or with more than so many bytes of tables; the bytes that it has.
    fn readable(&self, id: &str, most: u64) -> Result<u64, String> {
        let dir = self.run_dir(id)?;
        dir.refuse_links().map_err(|error| shown(&error, dir.path(), id))?;
        let size = tables_size(dir.path());
        if size > most {
            return Err(format!(
                "{id} has {} MB of tables, the page reads at most {} MB at a time; `bqrl report` reads more",
                size >> 20,
                LARGEST_TABLES >> 20
            ));
        }
        Ok(size)
    }

    /// The directory of a run that was found.
    pub fn run_path(&self, id: &str) -> PathBuf {
        if is_run(&self.root, &self.root) { self.root.clone() } else { self.root.join(id) }
    }

    /// The run in that directory, to read it without following links.
    pub fn run_dir(&self, id: &str) -> Result<RunDir, String> {
        let path = self.run_path(id);
        RunDir::open_to_read_below(&self.root, &path).map_err(|error| shown(&error, &path, id))
    }

    /// A file of a run, opened without following links.
    pub fn open_in_run(&self, id: &str, below: impl AsRef<Path>) -> io::Result<File> {
        let path = self.run_path(id).join(below);
        beneath::open(&self.root, path.strip_prefix(&self.root).map_err(|_| io::ErrorKind::NotFound)?)
    }
}

impl Looking {
    /// Steps a second between the two latest heartbeats of a running run.
    fn speed(&mut self, id: &str, run: &Run) -> Option<f64> {
        let State::Unfinished { running: true, seeds, .. } = &run.state else {
            self.speeds.remove(id);
            return None;
        };
        let steps = seeds.iter().map(|seed| seed.progress.steps).fold(0, u64::saturating_add);
        let time = seeds.iter().map(|seed| seed.progress.time).fold(0.0, f64::max);
        let now = Speed { time, steps, per_second: None };
        let speed = match self.speeds.get(id) {
            Some(last) if time > last.time && steps >= last.steps => {
                Speed { per_second: Some((steps - last.steps) as f64 / (time - last.time)), ..now }
            }
            Some(last) if time == last.time => *last,
            _ => now,
        };
        self.speeds.insert(id.to_owned(), speed);
        speed.per_second
    }
}

/// Whether a directory has the mark of a run. A link is none.
fn is_run(root: &Path, path: &Path) -> bool {
    path.join(MARK_NAME).strip_prefix(root).is_ok_and(|mark| beneath::open(root, mark).is_ok())
}

/// Everything of a run that the reader may hold in memory.
fn tables_size(path: &Path) -> u64 {
    let size = |path: &Path| -> u64 {
        let Ok(entries) = fs::read_dir(path) else { return 0 };
        let files = entries.flatten().filter_map(|entry| entry.metadata().ok()).filter(Metadata::is_file);
        files.map(|metadata| metadata.len()).sum()
    };
    // Monitor and event files are not read, and the weights neither; they are of the size of the rest.
    let read = |path: &Path| {
        [
            "episodes.csv",
            "evaluations.csv",
            "evaluations-distribution.csv",
            "policy.csv",
            "law.csv",
            "predictions.csv",
            "achieved.csv",
        ]
        .iter()
        .filter_map(|name| fs::symlink_metadata(path.join(name)).ok())
        .map(|metadata| metadata.len())
        .sum::<u64>()
    };
    size(path) + seeds(path).iter().map(|seed| read(seed)).sum::<u64>()
}

fn seeds(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let is_seed = |entry: &fs::DirEntry| {
        entry.file_name().to_string_lossy().starts_with("seed-")
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    };
    let mut seeds: Vec<PathBuf> = entries.flatten().filter(is_seed).map(|entry| entry.path()).collect();
    seeds.sort();
    seeds
}

/// A number that changes whenever a file of the run does.
fn fingerprint(root: &Path, path: &Path) -> Result<u64, String> {
    let mut hash = DefaultHasher::new();
    let mut add = |path: PathBuf| {
        if let Ok(metadata) = fs::symlink_metadata(&path) {
            mark(&metadata).hash(&mut hash);
        } else {
            0.hash(&mut hash);
        }
    };
    for name in ["config.toml", "summary.json", "problem.json", "reference.csv"] {
        add(path.join(name));
    }
    for seed in seeds(path) {
        for name in ["episodes.csv", "evaluations.csv", "progress.json", "law.csv", "achieved.csv"] {
            add(seed.join(name));
        }
    }
    let dir = RunDir::open_to_read_below(root, path).map_err(|error| error.to_string())?;
    // A run that is interrupted changes in nothing but this.
    let running = !dir.summary().exists() && dir.is_locked();
    running.hash(&mut hash);
    Ok(hash.finish())
}

fn mark(metadata: &Metadata) -> (u64, Option<Duration>, bool) {
    let time = metadata.modified().ok().and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    (metadata.len(), time, metadata.is_file())
}

#[derive(Default)]
struct Found {
    runs: Vec<(String, PathBuf)>,
    tables: Vec<(String, u64)>,
    limited: bool,
}

struct Walk<'a> {
    root: &'a Path,
    left: usize,
    found: Found,
}

impl Walk<'_> {
    /// Runs and CSV files of a directory and below. A run is not searched further.
    fn directory(&mut self, path: &Path, depth: usize) {
        if is_run(self.root, path) {
            return self.run(path);
        }
        let Ok(entries) = fs::read_dir(path) else { return };
        let mut directories = Vec::new();
        for entry in entries.flatten() {
            if self.left == 0 {
                self.found.limited = true;
                return;
            }
            self.left -= 1;
            // Hidden files are not ours, and a name that is not text cannot be part of an address.
            let Some(name) = entry.file_name().to_str().map(str::to_owned) else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            if name.starts_with('.') {
                continue;
            }
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file()
                && Path::new(&name).extension().is_some_and(|end| end.eq_ignore_ascii_case("csv"))
            {
                self.table(&entry);
            }
        }
        if depth == DEPTH {
            self.found.limited |= !directories.is_empty();
            return;
        }
        directories.sort();
        for directory in directories {
            self.directory(&directory, depth + 1);
        }
    }

    fn id(&self, path: &Path) -> Option<String> {
        let below = path.strip_prefix(self.root).ok()?;
        if below.as_os_str().is_empty() {
            let name = path.file_name().and_then(|name| name.to_str());
            return Some(name.unwrap_or("run").to_owned());
        }
        let parts: Option<Vec<&str>> = below.iter().map(|part| part.to_str()).collect();
        parts.map(|parts| parts.join("/"))
    }

    fn run(&mut self, path: &Path) {
        match self.id(path) {
            Some(id) if self.found.runs.len() < MOST_RUNS => self.found.runs.push((id, path.to_path_buf())),
            _ => self.found.limited = true,
        }
    }

    fn table(&mut self, entry: &fs::DirEntry) {
        if let (Some(id), Ok(metadata)) = (self.id(&entry.path()), entry.metadata())
            && metadata.len() <= LARGEST_MODEL
        {
            let mut hash = DefaultHasher::new();
            mark(&metadata).hash(&mut hash);
            self.found.tables.push((id, hash.finish()));
        }
    }
}

/// The CSV files with the columns of an MDP file.
fn mdp_files(
    root: &Path,
    tables: Vec<(String, u64)>,
    known: &mut HashMap<String, (u64, bool)>,
) -> Vec<String> {
    let mut checked = HashMap::with_capacity(tables.len());
    let mut files = Vec::new();
    for (id, mark) in tables {
        let is_model = match known.get(&id) {
            Some(&(same, is_model)) if same == mark => is_model,
            _ => has_columns(root, Path::new(&id)),
        };
        if is_model && files.len() < MOST_FILES {
            files.push(id.clone());
        }
        checked.insert(id, (mark, is_model));
    }
    *known = checked;
    files.sort();
    files
}

fn has_columns(root: &Path, below: &Path) -> bool {
    // A header is short; a file without lines is not read to its end.
    beneath::open(root, below).is_ok_and(|file| csv::has_header(file.take(LONGEST_HEADER)))
}
