//! A run that is killed again and again, and one whose disk is full, in processes of their own.
//!
//! The processes are this test program itself: the tests marked `ignore` are what they run.
#![cfg(unix)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use bqrl_runs::checkpoint::{CheckpointStore, Contents, Loaded};
use bqrl_runs::events::EventWriter;
use bqrl_runs::log::{AppendLog, Position};
use bqrl_runs::run_dir::{EPISODES_HEADER, RunDir};
use bqrl_runs::{atomic, monitor};

/// Names the directory that a child works in.
const DIRECTORY: &str = "BQRL_RUNS_TEST_DIRECTORY";

const EPISODES: u64 = 210;
const EPISODES_PER_CHECKPOINT: u64 = 7;
/// The latest checkpoint before the last one.
const LAST_BUT_ONE: &str = "000203";
/// How long an episode takes: a run of a tenth of a second can be caught in the middle.
const PACE: Duration = Duration::from_micros(500);

/// The run seals a block of data every so many episodes, and forgets all but the last few blocks.
const EPISODES_PER_BLOCK: u64 = 10;
const BLOCKS: u64 = 4;

fn block_name(block: u64) -> String {
    format!("block-{block:06}")
}

fn blocks(next: u64) -> std::ops::Range<u64> {
    let sealed = next / EPISODES_PER_BLOCK;
    sealed.saturating_sub(BLOCKS)..sealed
}

/// Saves a checkpoint whose sealed parts are given only where the store has none.
fn save(store: &CheckpointStore, next: u64, state: &[u8]) -> io::Result<()> {
    let replay = vec![next as u8; 50_000];
    let sealed: Vec<(String, Vec<u8>)> =
        blocks(next).map(|block| (block_name(block), vec![block as u8; 20_000])).collect();
    let mut parts = vec![("state", Contents::Plain(state)), ("replay", Contents::Plain(&replay))];
    for (name, bytes) in &sealed {
        parts.push((name, Contents::Sealed((!store.has(name)).then_some(bytes))));
    }
    store.save_parts(next, &parts)
}

fn check_blocks(loaded: &Loaded) {
    for block in blocks(loaded.number) {
        assert_eq!(loaded.part(&block_name(block)), Some(vec![block as u8; 20_000]));
    }
}

/// The contents of a checkpoint of the run below: the next episode and the positions of the three logs.
type State = (u64, [Position; 3]);

/// A run whose episodes are numbers: everything the crate offers, in the order that its documentation asks for.
/// One that `waits` does not get to its end: it waits in its last episode to be killed.
fn train(directory: &Path, waits: bool) -> io::Result<()> {
    let (run, _lock) = if directory.join("config.toml").exists() {
        let run = RunDir::open(directory)?;
        let lock = run.lock()?;
        (run, lock)
    } else {
        let (run, lock) = RunDir::create(directory, false)?;
        atomic::write(&run.config(), b"seed = 42\n")?;
        (run, lock)
    };
    let seed = run.seed(42);
    seed.create()?;
    let store = CheckpointStore::open(seed.checkpoints());
    let loaded = store.latest()?;
    let (mut episodes, mut monitor, mut events, first) = if let Some(loaded) = loaded {
        assert!(loaded.warnings.is_empty(), "a kill never damages a checkpoint: {:?}", loaded.warnings);
        assert_eq!(loaded.parts["replay"], vec![loaded.number as u8; 50_000]);
        check_blocks(&loaded);
        let (next, [episodes, monitor, events]): State = serde_json::from_slice(&loaded.parts["state"])?;
        (
            AppendLog::resume(&seed.episodes(), episodes)?,
            AppendLog::resume(&seed.monitor(), monitor)?,
            EventWriter::resume(seed.path(), events)?,
            next,
        )
    } else {
        (
            AppendLog::create(&seed.episodes(), EPISODES_HEADER)?,
            monitor::create(&seed.monitor(), 0.0, "counting")?,
            EventWriter::create(seed.path(), 0.0)?,
            0,
        )
    };
    for episode in first..EPISODES {
        thread::sleep(PACE);
        if waits && episode + 1 == EPISODES {
            // Not for ever: this process must not outlive a test that was killed itself.
            thread::sleep(Duration::from_mins(5));
            panic!("nobody killed the run");
        }
        let value = (episode as f64).sin();
        episodes.append(&format!("{episode},{value:?},1"))?;
        monitor.append(&monitor::row(value, 1, 0.0))?;
        events.scalar(0.0, episode, "rollout/ep_rew_mean", value)?;
        // So that a kill finds half of this work in the files.
        episodes.flush()?;
        let next = episode + 1;
        if next % EPISODES_PER_CHECKPOINT == 0 || next == EPISODES {
            episodes.sync()?;
            monitor.sync()?;
            events.sync()?;
            let state: State = (next, [episodes.position(), monitor.position(), events.position()]);
            save(&store, next, &serde_json::to_vec(&state)?)?;
        }
    }
    atomic::write(&run.summary(), b"{}\n")
}

fn child(test: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--ignored"]).env(DIRECTORY, directory).stdout(Stdio::null());
    command
}

fn directory_of_child() -> Option<PathBuf> {
    std::env::var_os(DIRECTORY).map(PathBuf::from)
}

/// Every file below a directory with its contents.
fn contents(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut files = Vec::new();
    let mut open = vec![directory.to_path_buf()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            files.push((path.strip_prefix(directory).unwrap().to_path_buf(), fs::read(&path).unwrap()));
        }
    }
    files.sort();
    files
}

/// The name of the latest checkpoint of a run that may be writing the next one.
fn latest_checkpoint(run: &Path) -> Option<String> {
    let entries = fs::read_dir(run.join("seed-42/checkpoints")).ok()?;
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with('0')).max()
}

#[test]
#[ignore = "the child of a_run_killed_at_any_instant_ends_byte_identical"]
fn trains() {
    if let Some(directory) = directory_of_child() {
        train(&directory, true).unwrap();
    }
}

#[test]
fn a_run_killed_at_any_instant_ends_byte_identical() {
    let directory = tempfile::tempdir().unwrap();
    let (killed, whole) = (directory.path().join("killed"), directory.path().join("whole"));
    train(&whole, false).unwrap();

    for attempt in 0..20_u32 {
        let before = latest_checkpoint(&killed);
        if before.as_deref() == Some(LAST_BUT_ONE) {
            break;
        }
        let mut run = child("trains", &killed).stderr(Stdio::null()).spawn().unwrap();
        // Every fourth kill comes while the run starts, the others after a new checkpoint; none at the same instant. The
        // run waits before its end, so a kill is never too late, however busy the machine is.
        if attempt % 4 != 0 {
            while latest_checkpoint(&killed) == before && run.try_wait().unwrap().is_none() {
                thread::sleep(PACE);
            }
        }
        thread::sleep(PACE * (attempt * 7 % 23));
        run.kill().unwrap();
        assert!(!run.wait().unwrap().success(), "the run ended by itself");
    }
    assert!(latest_checkpoint(&killed).is_some() && !killed.join("summary.json").exists());
    train(&killed, false).unwrap();
    for ((name, left), (other, right)) in contents(&killed).into_iter().zip(contents(&whole)) {
        assert_eq!(name, other);
        assert!(left == right, "{} differs", name.display());
    }
    assert_eq!(contents(&killed).len(), contents(&whole).len());
}

#[test]
#[ignore = "the child of a_full_disk_is_an_error_and_keeps_the_earlier_checkpoint"]
fn saves_too_much() {
    let Some(directory) = directory_of_child() else { return };
    let store = CheckpointStore::open(&directory);
    let error = store.save(2, &[("state.json", b"{}"), ("replay", &vec![2; 1_000_000])]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
    assert!(error.to_string().contains("replay"), "{error}");
    let parts = [("state.json", Contents::Plain(b"{}")), ("small", Contents::Sealed(Some(b"2")))];
    let bytes = vec![2; 1_000_000];
    let large = ("large", Contents::Sealed(Some(&bytes)));
    let error = store.save_parts(2, &[parts[0], parts[1], large]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge, "{error}");
    assert!(error.to_string().contains("large"), "{error}");

    let mut log = AppendLog::create(&directory.join("episodes.csv"), EPISODES_HEADER).unwrap();
    let error = (0..1_000_000).find_map(|_| log.append("1,0.5,3").err()).unwrap();
    assert!(error.to_string().contains("episodes.csv"), "{error}");
}

#[test]
fn a_full_disk_is_an_error_and_keeps_the_earlier_checkpoint() {
    let directory = tempfile::tempdir().unwrap();
    let store = CheckpointStore::open(directory.path());
    let parts = [("state.json", Contents::Plain(b"{}")), ("sealed", Contents::Sealed(Some(b"1")))];
    store.save_parts(1, &parts).unwrap();
    // No file may grow beyond a few kilobytes: the write that crosses the limit comes back short, the next one fails.
    let limited = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 64; exec \"$0\" --exact saves_too_much --ignored"])
        .arg(std::env::current_exe().unwrap())
        .env(DIRECTORY, directory.path())
        .output()
        .unwrap();
    assert!(limited.status.success(), "{}", String::from_utf8_lossy(&limited.stdout));

    let loaded = store.latest().unwrap().unwrap();
    assert_eq!((loaded.number, loaded.warnings.len()), (1, 0));
    assert_eq!(loaded.part("sealed").unwrap(), b"1");
    assert_eq!(fs::read_dir(directory.path().join("sealed")).unwrap().count(), 1);
    let mut left: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    left.sort();
    assert_eq!(left, ["000001", "episodes.csv", "sealed"]);
}
