//! `bqrl sweep`: every combination of listed settings, for every seed, on these cores, in shards, or on Slurm.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bqrl_lab::config::{Length, read_settings};
use bqrl_lab::sweep::{Finished, Shard, State, Sweep, SweepError, TABLE, Trial};
use bqrl_math::interval::student_t;
use bqrl_runs::atomic;
use bqrl_runs::schema::Summary;
use bqrl_runs::shared_dir::SharedDir;
use serde::Serialize;

use crate::failure::Failure;
use crate::progress::{Display, MOST_THREADS, pool, total, with_hooks};
use crate::slurm::{self, Job, MOST_TASKS};
use crate::text::{number, table};

/// Flags of `bqrl sweep`.
#[allow(clippy::struct_excessive_bools)] // Flags are.
#[derive(clap::Args)]
pub struct SweepArgs {
    /// The sweep file: settings as in a configuration, and a section `grid` with lists of values
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Directory of the runs; an interrupted sweep is resumed there [default: runs/FILE]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Make only every N-th run, starting with the I-th
    #[arg(long, value_name = "I/N", conflicts_with_all = ["slurm", "collect"])]
    shard: Option<Shard>,
    /// List the runs and their states, and make none
    #[arg(long, conflicts_with_all = ["slurm", "collect", "force"])]
    list: bool,
    /// Make no runs; write the table of the finished ones
    #[arg(long, conflicts_with_all = ["slurm", "force"])]
    collect: bool,
    /// Write a job array for Slurm and submit it; options of sbatch follow after --
    #[arg(long, conflicts_with = "force")]
    slurm: bool,
    /// Tasks of the job array [default: one per run, at most 1000]
    #[arg(long, value_name = "N", requires = "slurm", value_parser = clap::value_parser!(u16).range(1..))]
    tasks: Option<u16>,
    /// Write the script of the job array, but do not submit it
    #[arg(long, requires = "slurm")]
    no_submit: bool,
    /// Replace runs that have other settings
    #[arg(long)]
    force: bool,
    /// Runs made at the same time; the results do not depend on it [default: all cores]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
    /// Options of sbatch, e.g. -- --partition=long --time=2:00:00
    #[arg(last = true, requires = "slurm", value_name = "SBATCH OPTION")]
    sbatch: Vec<String>,
}

#[derive(Serialize)]
struct Output {
    directory: String,
    /// Absent if only a shard was run.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<String>,
    runs: Vec<RunOutput>,
}

#[derive(Serialize)]
struct RunOutput {
    name: String,
    seed: u64,
    /// The values of the grid's keys.
    settings: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    summary: Option<Summary>,
}

impl RunOutput {
    fn new(sweep: &Sweep, trial: &Trial) -> Self {
        let keys = sweep.axes().iter().map(|axis| axis.key.clone());
        let settings = keys.zip(trial.point.iter().cloned()).collect();
        Self { name: trial.name.clone(), seed: trial.seed, settings, state: None, summary: None }
    }
}

#[derive(Serialize)]
struct Submitted {
    script: String,
    runs: usize,
    tasks: usize,
    job: Option<String>,
}

/// Sweeps, and returns what to print.
pub fn run(args: &SweepArgs, program: &Path) -> Result<String, Failure> {
    let text = read_settings(&args.file).map_err(Failure::usage)?;
    let sweep = Sweep::parse(&text, &args.file.display().to_string()).map_err(failure)?;
    let all = sweep.trials().map_err(failure)?;
    let stem = args.file.file_stem().unwrap_or_default();
    let root = args.out.clone().unwrap_or_else(|| Path::new("runs").join(stem));
    let trials = match args.shard {
        Some(shard) => shard.of(all),
        None => all,
    };
    if args.list {
        return list(args, &sweep, &trials, &root);
    }
    // Held until everything is written.
    let mut _shared = None;
    if !args.collect {
        let due = due(args, &trials, &root)?;
        _shared = Some(begin(&root, &text)?);
        if args.slurm {
            return to_slurm(args, &stem.to_string_lossy(), trials.len(), &root, program);
        }
        make(args, &sweep, &due, &root)?;
    } else if root.is_dir() {
        _shared = Some(SharedDir::open(&root, &[]).map_err(Failure::runtime)?);
    }
    match args.shard {
        Some(shard) => of_shard(args, shard, &sweep, &trials, &root),
        None => collect(args, &sweep, &trials, &root),
    }
}

/// The runs that are not finished. Existing runs with other settings are refused before anything is written.
fn due(args: &SweepArgs, trials: &[Trial], root: &Path) -> Result<Vec<Trial>, Failure> {
    let mut due = Vec::new();
    for trial in trials {
        match trial.state(root) {
            Ok(State::Finished(_)) => continue,
            Err(SweepError::OtherSettings { .. }) if args.force => {}
            state => drop(state.map_err(failure)?),
        }
        due.push(trial.clone());
    }
    Ok(due)
}

/// Makes the directory and copies the file into it, so that a submitted sweep does not change when the user edits the file.
fn begin(root: &Path, text: &str) -> Result<SharedDir, Failure> {
    let shared = SharedDir::open(root, &[]).map_err(Failure::runtime)?;
    let path = root.join("sweep.toml");
    if !std::fs::read_to_string(&path).is_ok_and(|stored| stored == text) {
        atomic::write(&path, text.as_bytes()).map_err(Failure::runtime)?;
    }
    Ok(shared)
}

/// Makes the runs that are due. If a run fails, for example because its settings diverge, the others still run to their end.
fn make(args: &SweepArgs, sweep: &Sweep, due: &[Trial], root: &Path) -> Result<(), Failure> {
    let lengths: Vec<Length> = due.iter().map(|trial| trial.config.run.length()).collect();
    let (total, unit) = total(&lengths);
    let display = Display::new(args.quiet, total, unit);
    let results = with_hooks(&display, |hooks| {
        Ok(pool(args.threads)?.install(|| sweep.run_all(due, root, args.force, hooks)))
    })?;
    display.finish();
    let errors = results.into_iter().filter_map(Result::err);
    let (stopped, failed): (Vec<_>, Vec<_>) = errors.partition(SweepError::is_interruption);
    if let n @ 1.. = stopped.len() {
        let message = format!("interrupted with {n} of {} runs to go", due.len());
        return Err(Failure::interrupted(message).hint("the same command resumes it"));
    }
    let n = failed.len();
    let Some(error) = failed.into_iter().next() else { return Ok(()) };
    let mut failure = failure(error);
    if n > 1 {
        failure.message = format!("{n} runs failed, the first is {}", failure.message);
    }
    let others = format!(
        "`bqrl sweep {} --out {} --collect` makes the table of the others",
        args.file.display(),
        root.display()
    );
    Err(if failure.hint.is_some() { failure } else { failure.hint(others) })
}

fn of_shard(
    args: &SweepArgs,
    shard: Shard,
    sweep: &Sweep,
    trials: &[Trial],
    root: &Path,
) -> Result<String, Failure> {
    let again = format!("`bqrl sweep {} --out {} --collect`", args.file.display(), root.display());
    if !args.json {
        return Ok(format!(
            "Shard {shard} is finished: {n} of all {total} runs, in {}\nAfter the last shard, {again} makes the table.\n",
            root.display(),
            n = trials.len(),
            total = sweep.len()
        ));
    }
    let mut finished = Vec::new();
    for trial in trials {
        if let State::Finished(summary) = trial.state(root).map_err(failure)? {
            finished.push((trial.clone(), *summary));
        }
    }
    Ok(report(sweep, root, None, &finished))
}

fn collect(args: &SweepArgs, sweep: &Sweep, trials: &[Trial], root: &Path) -> Result<String, Failure> {
    let (finished, missing) = sweep.collect(trials, root).map_err(failure)?;
    let path = root.join(TABLE).display().to_string();
    if let Some(first) = missing.first() {
        let message =
            format!("{} of {} runs are not finished, the first is {first}", missing.len(), trials.len());
        let failure = Failure::runtime(message);
        return Err(if finished.is_empty() {
            failure
        } else {
            failure.hint(format!("{path} has the others"))
        });
    }
    if args.json {
        return Ok(report(sweep, root, Some(path), &finished));
    }
    Ok(format!("{}\nThe table of all {} runs is {path}\n", human(sweep, &finished), finished.len()))
}

/// Means over seeds, a line per combination and level.
fn human(sweep: &Sweep, finished: &[Finished]) -> String {
    // The levels have a column of their own.
    let shown: Vec<usize> = (0..sweep.axes().len()).filter(|&k| sweep.axes()[k].key != "run.tau").collect();
    let mut rows = vec![shown.iter().map(|&k| sweep.axes()[k].label.clone()).collect::<Vec<_>>()];
    // A column is shown only if its reference is known.
    let best = finished.iter().all(|(_, run)| run.taus.iter().all(|level| level.best_quantile.is_some()));
    let regret = finished.iter().all(|(_, run)| run.expected_return_regret.is_some());
    rows[0].extend(["τ", "seeds", "final Q_τ"].map(str::to_owned));
    rows[0].extend(best.then(|| "best Q*_τ".to_owned()));
    rows[0].push("final mean".to_owned());
    rows[0].extend(best.then(|| "quantile policy gap".to_owned()));
    rows[0].extend(regret.then(|| "expected-return regret".to_owned()));
    for group in finished.chunks(sweep.seeds().len()) {
        let (trial, first) = &group[0];
        for (index, level) in first.taus.iter().enumerate() {
            let mean = |value: &dyn Fn(&Summary) -> f64| {
                let values: Vec<f64> = group.iter().map(|(_, summary)| value(summary)).collect();
                let around = student_t(&values, 0.95).map(|found| found.interval.high - found.mean);
                let mean = number(values.iter().sum::<f64>() / values.len() as f64);
                around.map_or(mean.clone(), |around| format!("{mean} ± {}", number(around)))
            };
            let mut row: Vec<String> = shown.iter().map(|&k| trial.point[k].clone()).collect();
            let gap = |summary: &Summary| {
                summary.taus[index].quantile_policy_gap.as_ref().map_or(f64::NAN, |gaps| gaps[0])
            };
            let regrets = |summary: &Summary| {
                summary.expected_return_regret.as_ref().map_or(f64::NAN, |regrets| regrets[0])
            };
            row.extend([number(level.tau), group.len().to_string()]);
            row.push(mean(&|summary| summary.taus[index].final_quantile[0]));
            row.extend(level.best_quantile.filter(|_| best).map(number));
            row.push(mean(&|summary| summary.taus[index].final_mean[0]));
            row.extend(best.then(|| mean(&gap)));
            row.extend(regret.then(|| mean(&regrets)));
            rows.push(row);
        }
    }
    let note = if sweep.seeds().len() > 1 { "\n± is the 95 % Student-t interval over seeds.\n" } else { "" };
    format!("{}{note}", table(&rows))
}

fn list(args: &SweepArgs, sweep: &Sweep, trials: &[Trial], root: &Path) -> Result<String, Failure> {
    let mut states = Vec::new();
    for trial in trials {
        states.push(match trial.state(root) {
            Ok(State::Missing) => "not begun",
            Ok(State::Begun) => "begun",
            Ok(State::Finished(_)) => "finished",
            Err(SweepError::OtherSettings { .. }) => "other settings",
            Err(error) => return Err(failure(error)),
        });
    }
    if args.json {
        let run = |(trial, &state)| RunOutput { state: Some(state), ..RunOutput::new(sweep, trial) };
        let runs = trials.iter().zip(&states).map(run).collect();
        return Ok(json(&Output { directory: root.display().to_string(), table: None, runs }));
    }
    let lines = trials.iter().zip(&states).map(|(trial, state)| format!("{}  {state}\n", trial.name));
    let total = match args.shard {
        Some(_) => format!(" of {}", sweep.len()),
        None => String::new(),
    };
    Ok(format!("{}{}{total} runs in {}\n", lines.collect::<String>(), trials.len(), root.display()))
}

fn to_slurm(
    args: &SweepArgs,
    name: &str,
    runs: usize,
    root: &Path,
    program: &Path,
) -> Result<String, Failure> {
    let tasks = args.tasks.map_or(MOST_TASKS, usize::from).min(runs);
    let named = |what: &str| {
        let what = what.to_owned();
        move |error: std::io::Error| Failure::runtime(format!("{what}: {error}"))
    };
    let root = std::path::absolute(root).map_err(named("finding the sweep's directory"))?;
    let script = Job {
        name: &format!("bqrl-{name}"),
        program,
        working_directory: &std::env::current_dir().map_err(named("finding the working directory"))?,
        root: &root,
        tasks,
        options: &args.sbatch,
    }
    .script()?;
    let path = root.join("sweep.sbatch");
    atomic::write(&path, script.as_bytes()).map_err(Failure::runtime)?;
    let job = if args.no_submit { None } else { Some(slurm::submit(&path)?) };
    let shown = path.display();
    if args.json {
        return Ok(json(&Submitted { script: shown.to_string(), runs, tasks, job }));
    }
    let what = match job {
        Some(job) => format!("Job {job}: {runs} runs in {tasks} tasks, by {shown}"),
        None => format!("`sbatch {shown}` submits {runs} runs in {tasks} tasks"),
    };
    Ok(format!(
        "{what}\nWhen all are finished, `bqrl sweep {} --out {} --collect` makes the table.\n",
        args.file.display(),
        root.display()
    ))
}

fn failure(error: SweepError) -> Failure {
    match error {
        SweepError::OtherSettings { .. } => {
            Failure::usage(error).hint("--force starts it again, --out DIR writes elsewhere")
        }
        error if error.is_usage() => Failure::usage(error),
        error => Failure::runtime(error),
    }
}

fn report(sweep: &Sweep, root: &Path, table: Option<String>, finished: &[Finished]) -> String {
    let run = |(trial, summary): &Finished| RunOutput {
        summary: Some(summary.clone()),
        ..RunOutput::new(sweep, trial)
    };
    json(&Output { directory: root.display().to_string(), table, runs: finished.iter().map(run).collect() })
}

fn json(output: &impl Serialize) -> String {
    serde_json::to_string(output).expect("plain numbers and text serialise") + "\n"
}
