//! The deterministic engine: execution n of a target is a function of the seed and n alone.
//!
//! Executions run in a process of their own, whose address space is limited to 1 GiB by the shell's `ulimit -v`. That
//! needs no allocator of ours (which would be `unsafe`), and counts memory that is reserved and never touched, too. The
//! process notes the number of the execution that it begins, so that an abort (out of memory, a full stack) is
//! traced to its input. A thread ends it when an execution takes longer than 20 seconds. Panics are caught, and each place
//! in the code is reported once.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Seek as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bqrl_math::rng::{Purpose, lane_stream};

use crate::mutate::mutate;
use crate::{Input, Target};

/// The longest that an execution may take; the slowest legitimate one takes some milliseconds.
const LIMIT: Duration = Duration::from_secs(20);
/// Seconds in its place, so that the test of the engine need not wait.
const LIMIT_VARIABLE: &str = "BQRL_FUZZ_LIMIT";
/// Kilobytes of address space of the process.
const ADDRESS_SPACE: u32 = 1 << 20;
/// Different failures after which a target is given up.
const MOST_FAILURES: usize = 20;

/// Exit codes of the process: a panic was caught, an execution took too long.
const PANICKED: i32 = 1;
const HUNG: i32 = 3;

/// Which executions to make.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Names the mutations.
    pub seed: u64,
    /// The first execution.
    pub from: u64,
    /// The one after the last.
    pub to: u64,
}

/// Execution n: the seeds as they are, and then mutations of them.
pub fn input(seeds: &[Input], seed: u64, n: u64) -> Input {
    if let Some(input) = seeds.get(n as usize) {
        return input.clone();
    }
    let mut rng = lane_stream(seed, Purpose::Test, n as usize);
    let mut input = seeds[rng.below(seeds.len())].clone();
    mutate(&mut input, seeds, &mut rng);
    input
}

/// Runs a target in processes of its own, and says how it went. True if nothing was found.
pub fn run(target: &Target, plan: Plan) -> io::Result<bool> {
    let begun = Instant::now();
    let (mut from, mut failures) = (plan.from, 0);
    let note = failures_directory()?.join(format!("{}.note", target.name));
    while from < plan.to {
        let status = spawn(target, Plan { from, ..plan }, &note)?;
        if status.success() {
            break;
        }
        failures += 1;
        if status.code() == Some(PANICKED) {
            break;
        }
        let n = fs::read_to_string(&note)?.trim().parse().unwrap_or(from);
        if status.code() != Some(HUNG) {
            report(target, plan.seed, n, &format!("the process ended with {status}"));
        }
        if failures == MOST_FAILURES {
            break;
        }
        from = n + 1;
    }
    let _ = fs::remove_file(&note);
    let seconds = begun.elapsed().as_secs_f64();
    let n = plan.to - plan.from;
    println!(
        "{:<12} {n:>10} executions, seed {}, {seconds:.1} s, {failures} failures",
        target.name, plan.seed
    );
    Ok(failures == 0)
}

/// A process for the executions from a number on.
fn spawn(target: &Target, plan: Plan, note: &Path) -> io::Result<ExitStatus> {
    let program = std::env::current_exe()?;
    let arguments = [
        "child".to_owned(),
        target.name.to_owned(),
        plan.seed.to_string(),
        plan.from.to_string(),
        plan.to.to_string(),
        note.display().to_string(),
    ];
    if cfg!(unix) {
        let limited = format!("ulimit -v {ADDRESS_SPACE} && exec \"$0\" \"$@\"");
        Command::new("sh").args(["-c", &limited]).arg(program).args(arguments).status()
    } else {
        Command::new(program).args(arguments).status()
    }
}

/// Where failing inputs are kept.
fn failures_directory() -> io::Result<PathBuf> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"));
    let directory = target.join("fuzz");
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// Keeps a failing input, and says how to see the failure again.
fn report(target: &Target, seed: u64, n: u64, what: &str) {
    let path = failures_directory().map(|directory| directory.join(format!("{}-{seed}-{n}", target.name)));
    let kept = path.and_then(|path| {
        fs::write(&path, target.encode(&input(&target.seeds()?, seed, n)))?;
        path.canonicalize()
    });
    let kept = kept.map_or_else(|error| error.to_string(), |path| path.display().to_string());
    let name = target.name;
    eprintln!(
        "{name}, seed {seed}, execution {n}: {what}\n  see it again: cargo run -p bqrl-fuzz -- replay {name} {kept}"
    );
}

/// The place and the words of the last panic.
static LAST_PANIC: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

/// Remembers panics instead of printing them.
fn keep_panics() {
    panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(String::new, ToString::to_string);
        *LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner) = (place, info.to_string());
    }));
}

/// The executions of one process. Returns its exit code.
pub fn child(target: &'static Target, plan: Plan, note: &Path) -> io::Result<i32> {
    keep_panics();
    let seeds = target.seeds()?;
    let mut note = File::create(note)?;
    let begun = Instant::now();
    watch(target, plan.seed, begun);
    let (mut places, mut accepted) = (BTreeSet::new(), 0_u64);
    for n in plan.from..plan.to {
        note.rewind()?;
        writeln!(note, "{n}")?;
        let input = input(&seeds, plan.seed, n);
        NOW.store(n, Ordering::Relaxed);
        SINCE.store(begun.elapsed().as_millis() as u64, Ordering::Release);
        let result = panic::catch_unwind(AssertUnwindSafe(|| (target.run)(&input)));
        SINCE.store(u64::MAX, Ordering::Release);
        accepted += u64::from(*result.as_ref().unwrap_or(&false));
        if result.is_err() {
            let (place, words) = LAST_PANIC.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if places.insert(place) {
                report(target, plan.seed, n, &words);
            }
            if places.len() == MOST_FAILURES {
                break;
            }
        }
    }
    let share = 100.0 * accepted as f64 / (plan.to - plan.from).max(1) as f64;
    eprintln!("{}: {share:.1} % of the inputs were accepted", target.name);
    Ok(if places.is_empty() { 0 } else { PANICKED })
}

/// The execution that is running, and since when in milliseconds; `u64::MAX` between two.
static NOW: AtomicU64 = AtomicU64::new(0);
static SINCE: AtomicU64 = AtomicU64::new(u64::MAX);

/// Ends the process when an execution takes too long.
fn watch(target: &'static Target, seed: u64, begun: Instant) {
    let told = std::env::var(LIMIT_VARIABLE).ok().and_then(|seconds| seconds.parse().ok());
    let limit = told.map_or(LIMIT, Duration::from_secs);
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let (since, now) = (SINCE.load(Ordering::Acquire), begun.elapsed().as_millis() as u64);
            if since != u64::MAX && now.saturating_sub(since) > limit.as_millis() as u64 {
                let n = NOW.load(Ordering::Relaxed);
                report(target, seed, n, &format!("no end after {} s", limit.as_secs()));
                std::process::exit(HUNG);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_execution_is_the_same_whenever_it_is_made() {
        let seeds = [Input::one("a.csv", b"a,b\n1,2\n"), Input::one("a.csv", b"a,b\n3,4\n")];
        let all: Vec<Input> = (0..200).map(|n| input(&seeds, 7, n)).collect();
        assert!((0..200).rev().all(|n| input(&seeds, 7, n) == all[n as usize]));
        assert_eq!(all[..2], seeds);
        assert!((2..200).filter(|&n| input(&seeds, 8, n) == all[n as usize]).count() < 40);
    }
}
