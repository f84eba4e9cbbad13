//! `bqrl fit`: a table with counts from logged episodes, and plain words about what is missing.

use std::fmt::Write;
use std::fs::File;
use std::path::{Path, PathBuf};

use bqrl_mdp::csv;
use bqrl_mdp::log::{Binned, Cut, Fitted, LogError, Options, column_names, fit};
use bqrl_mdp::records::RecordError;
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt::Writes;
use crate::outputs;
use crate::text::{number, table};

/// The most states and actions of a table of counts that is easy to read.
const MOST_STATES: usize = 40;
const MOST_ACTIONS: usize = 12;
/// The most bins of a column.
const MOST_BINS: usize = 10_000;

/// Flags of `bqrl fit`.
#[derive(clap::Args)]
pub struct FitArgs {
    /// The log: CSV with the columns episode, stage, state, action, reward, next_state, end
    log: PathBuf,
    /// Write the table as an MDP file with counts, for `bqrl plan`. A file that exists is replaced only if `bqrl fit` wrote it, or with
    /// --force
    #[arg(long, value_name = "MODEL.csv")]
    out: Option<PathBuf>,
    /// Replace the file of --out, whatever it is
    #[arg(long, requires = "out")]
    force: bool,
    /// One table per stage, instead of one for all stages
    #[arg(long)]
    by_stage: bool,
    /// Number of decisions in an episode [default: the longest episode]
    #[arg(long, allow_negative_numbers = true, value_name = "H")]
    horizon: Option<usize>,
    /// Put a continuous column, state or reward, into N bins with about equally many rows each; may be repeated
    #[arg(long, value_name = "COLUMN=N", value_parser = bins)]
    bins: Vec<(Binned, usize)>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

fn bins(text: &str) -> Result<(Binned, usize), String> {
    let wrong = || format!("want state=N or reward=N with N from 1 to {MOST_BINS}, got {text:?}");
    let (column, n) = text.split_once('=').ok_or_else(wrong)?;
    let column = match column.trim() {
        "state" => Binned::State,
        "reward" => Binned::Reward,
        _ => return Err(wrong()),
    };
    let n = n.trim().parse().ok().filter(|n| (1..=MOST_BINS).contains(n)).ok_or_else(wrong)?;
    Ok((column, n))
}

/// The output of `--json`, which users and scripts rely on.
#[derive(Serialize)]
struct Report<'a> {
    log: String,
    model: Option<String>,
    states: usize,
    actions: usize,
    horizon: usize,
    episodes: usize,
    transitions: usize,
    unseen_pairs: usize,
    cut_points: Vec<Points<'a>>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct Points<'a> {
    column: &'static str,
    points: &'a [f64],
}

fn column(cut: &Cut) -> &'static str {
    match cut.column {
        Binned::State => "state",
        Binned::Reward => "reward",
    }
}

/// Fits, writes the table, and returns the text to print.
pub fn run(args: &FitArgs) -> Result<String, Failure> {
    if let Some(out) = &args.out {
        check_output(&args.log, out, args.force)?;
    }
    let named = args.log.display();
    let file = File::open(&args.log).map_err(|error| Failure::usage(format!("reading {named}: {error}")))?;
    let bins = args.bins.clone();
    let options = Options { by_stage: args.by_stage, horizon: args.horizon, bins, ends_known: false };
    let fitted = fit(file, &named.to_string(), &options).map_err(|error| {
        let failure = Failure::usage(format!("reading {named}: {error}"));
        match error {
            LogError::TooManyPairs { .. } => failure.hint("--bins state=N puts states into N bins"),
            LogError::Records(RecordError::MissingColumns { .. }) => {
                failure.hint(format!("columns are found by these names: {}", column_names()))
            }
            _ => failure,
        }
    })?;
    if let Some(out) = &args.out {
        let write = |to: &mut dyn std::io::Write| {
            csv::write(&fitted.problem, to).map_err(|error| std::io::Error::other(error.to_string()))
        };
        Writes::begin()?.write_with(out, write)?;
    }
    if args.json {
        let points = |cut| Points { column: column(cut), points: &cut.points };
        let report = Report {
            log: named.to_string(),
            model: args.out.as_ref().map(|out| out.display().to_string()),
            states: fitted.problem.states.len(),
            actions: fitted.problem.actions.len(),
            horizon: fitted.problem.model.horizon(),
            episodes: fitted.episodes,
            transitions: fitted.transitions,
            unseen_pairs: fitted.unseen_pairs,
            cut_points: fitted.cuts.iter().map(points).collect(),
            notes: &fitted.notes,
        };
        return Ok(serde_json::to_string(&report).expect("plain numbers and text serialise") + "\n");
    }
    Ok(human(args, &fitted))
}

fn check_output(log: &Path, out: &Path, force: bool) -> Result<(), Failure> {
    if let (Ok(log), Ok(out)) = (log.canonicalize(), out.canonicalize())
        && log == out
    {
        return Err(Failure::usage(format!("{} would be overwritten: it is the log", out.display())));
    }
    outputs::check_folder(out)?;
    outputs::check(out, force, outputs::Kind::Fitted)
}

fn counted(n: usize, what: &str) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {what}{s}")
}

fn human(args: &FitArgs, fitted: &Fitted) -> String {
    let problem = &fitted.problem;
    let counts = problem.data.counts.as_ref().expect("a fitted table has counts");
    let mut out = format!(
        "{}: {}, {}, {}, {}, horizon {}\n",
        problem.name,
        counted(fitted.episodes, "episode"),
        counted(fitted.transitions, "transition"),
        counted(problem.states.len(), "state"),
        counted(problem.actions.len(), "action"),
        problem.model.horizon()
    );
    for cut in &fitted.cuts {
        let points: Vec<String> = cut.points.iter().map(|&point| number(point)).collect();
        let _ = writeln!(out, "bins of {} begin at {}", column(cut), points.join(", "));
    }
    let tried = |s: usize, a: usize| (0..counts.n_kernels()).map(|k| counts.tried(k, s, a)).sum::<u64>();
    let left: Vec<usize> =
        (0..problem.states.len()).filter(|&s| (0..problem.actions.len()).any(|a| tried(s, a) > 0)).collect();
    if left.len() <= MOST_STATES && problem.actions.len() <= MOST_ACTIONS {
        out += "\nHow often each action was tried\n";
        let mut rows = vec![vec!["state".to_owned()]];
        rows[0].extend(problem.actions.iter().cloned());
        for &state in &left {
            let mut row = vec![problem.states[state].clone()];
            row.extend((0..problem.actions.len()).map(|action| match tried(state, action) {
                0 => "never".to_owned(),
                n => n.to_string(),
            }));
            rows.push(row);
        }
        out += &table(&rows);
    }
    out += "\nWhat to know about these data\n";
    for note in &fitted.notes {
        let _ = writeln!(out, "  - {note}");
    }
    match &args.out {
        Some(path) => {
            let _ =
                writeln!(out, "\nThe table is in {0}. Next: bqrl plan {0} --confidence 0.95", path.display());
        }
        None => out += "\nNothing was written: --out MODEL.csv writes the table.\n",
    }
    out
}
