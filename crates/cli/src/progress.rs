//! Progress of runs on the terminal, and the handling of Ctrl-C.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use bqrl_lab::config::Length;
use bqrl_lab::run::{Hooks, News};
use bqrl_runs::schema::EvaluationRow;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::ThreadPool;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::failure::Failure;
use crate::terminal::say;
use crate::text::number;

/// A progress bar on a terminal; otherwise a line at every tenth of the work.
pub struct Display {
    bar: ProgressBar,
    lines: bool,
    notes: bool,
    done: AtomicU64,
    total: u64,
    /// `episodes` or `steps`.
    unit: &'static str,
}

impl Display {
    /// A display for this many episodes or steps in total.
    pub fn new(quiet: bool, total: u64, unit: &'static str) -> Self {
        let terminal = io::stderr().is_terminal();
        let bar = if quiet || !terminal { ProgressBar::hidden() } else { ProgressBar::new(total) };
        let template = format!("{{bar:30}} {{pos}}/{{len}} {unit}, {{per_sec:0}}, {{eta}} left · {{msg}}");
        bar.set_style(ProgressStyle::with_template(&template).expect("a valid template"));
        Self { bar, lines: !quiet && !terminal, notes: !quiet, done: AtomicU64::new(0), total, unit }
    }

    fn watch(&self, news: &News) {
        let before = self.done.fetch_add(news.more, Ordering::Relaxed);
        let done = before + news.more;
        let standing = || {
            let level = |row: &EvaluationRow| {
                let gap =
                    row.quantile_policy_gap.map_or(String::new(), |gap| format!(", gap {}", number(gap)));
                format!("Q_{} = {}{gap}", row.tau, number(row.quantile))
            };
            let levels: Vec<String> = news.progress.greedy.last.iter().map(level).collect();
            format!("seed {}: {}", news.seed, levels.join("; "))
        };
        if self.bar.is_hidden() {
            if self.lines && done * 10 / self.total > before * 10 / self.total {
                say(&format!("{done}/{} {} · {}", self.total, self.unit, standing()));
            }
        } else {
            self.bar.set_position(done);
            if done / 10 > before / 10 {
                self.bar.set_message(standing());
            }
        }
    }

    /// Prints a warning.
    pub fn note(&self, message: &str) {
        if self.notes {
            self.bar.suspend(|| say(&format!("warning: {message}")));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The sum of the runs' lengths, and its unit. If the units are mixed, the sum counts as steps and is only approximate.
pub fn total(lengths: &[Length]) -> (u64, &'static str) {
    let unit =
        if lengths.iter().all(|length| matches!(length, Length::Episodes(_))) { "episodes" } else { "steps" };
    (lengths.iter().map(|length| length.amount()).sum(), unit)
}

/// Does the work with hooks that show progress and stop it at the first Ctrl-C. The second Ctrl-C ends the process at once.
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
        watch: &|news| display.watch(news),
        warn: &|message| display.note(message),
        clock: &|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |now| now.as_secs_f64()),
    })
}

/// The largest value of `--threads`, the same on every machine.
pub const MOST_THREADS: i64 = 1024;

/// Threads that are started per core, at most. The results do not depend on their number, and more would only take turns.
const THREADS_PER_CORE: usize = 4;

/// The thread pool of a command; one thread per core by default.
pub fn pool(threads: Option<u16>) -> Result<ThreadPool, Failure> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    rayon::ThreadPoolBuilder::new()
        .num_threads(threads.map_or(0, |n| usize::from(n).min(THREADS_PER_CORE * cores)))
        .build()
        .map_err(|error| Failure::runtime(format!("starting threads: {error}")))
}
