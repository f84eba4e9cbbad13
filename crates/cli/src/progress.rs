//! What the user sees while runs go on, and how Ctrl-C reaches them.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bqrl_lab::run::Hooks;
use bqrl_lab::train::{Evaluated, Progress};
use indicatif::{ProgressBar, ProgressStyle};
use rayon::ThreadPool;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::text::number;

/// A bar on a terminal, a line at every tenth elsewhere.
pub struct Display {
    bar: ProgressBar,
    lines: bool,
    notes: bool,
    done: AtomicU64,
    total: u64,
}

impl Display {
    /// For so many episodes in all.
    pub fn new(quiet: bool, total: u64) -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = if quiet || !terminal { ProgressBar::hidden() } else { ProgressBar::new(total) };
        let template = "{bar:30} {pos}/{len} episodes, {per_sec:0}, {eta} left · {msg}";
        bar.set_style(ProgressStyle::with_template(template).expect("a valid template"));
        Self { bar, lines: !quiet && !terminal, notes: !quiet, done: AtomicU64::new(0), total }
    }

    fn watch(&self, seed: u64, progress: &Progress) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        let standing = || {
            let level = |e: &Evaluated| {
                format!("Q_{} = {}, gap {}", e.tau, number(e.quantile), number(e.quantile_policy_gap))
            };
            format!("seed {seed}: {}", progress.greedy.last.iter().map(level).collect::<Vec<_>>().join("; "))
        };
        if self.bar.is_hidden() {
            if self.lines && done * 10 / self.total > (done - 1) * 10 / self.total {
                eprintln!("{done}/{} episodes · {}", self.total, standing());
            }
        } else {
            self.bar.set_position(done);
            if progress.episode.is_multiple_of(10) {
                self.bar.set_message(standing());
            }
        }
    }

    /// Something odd but not fatal.
    pub fn note(&self, message: &str) {
        if self.notes {
            self.bar.suspend(|| eprintln!("warning: {message}"));
        }
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// Does the work with hooks that show progress and stop at the first Ctrl-C; the second one ends the process at once.
pub fn with_hooks<T>(
    display: &Display,
    work: impl FnOnce(&Hooks) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, stop.clone())
            .and_then(|_| signal_hook::flag::register(signal, stop.clone()))
            .map_err(|error| Failure::runtime(format!("listening for signals: {error}")))?;
    }
    work(&Hooks {
        stop: &stop,
        watch: &|seed, progress| display.watch(seed, progress),
        warn: &|message| display.note(message),
        clock: &|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64()),
    })
}

/// Threads to train on: so many, or one per core.
pub fn pool(threads: Option<u16>) -> Result<ThreadPool, Failure> {
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.map_or(0, usize::from))
        .build()
        .map_err(|error| Failure::runtime(format!("starting threads: {error}")))
}
