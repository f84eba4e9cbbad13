//! `bqrl report`: one self-contained page and its figures, about one run or several on the same problem.
//!
//! For a run that is still training, or was interrupted, the report covers the rows that are on disk.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bqrl_report::document::{document, slug};
use bqrl_report::progress;
use bqrl_report::statistics::Estimate;
use bqrl_report::study::{Measure, Study};
use bqrl_runs::atomic;
use bqrl_runs::reader::{Run, State};
use bqrl_runs::run_dir::unique_name;
use serde::Serialize;

use crate::failure::Failure;
use crate::terminal::say;
use crate::text::{number, table};

/// Flags of `bqrl report`.
#[allow(clippy::struct_excessive_bools)] // Flags are.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// Run directories; several runs must be on the same problem and are compared
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Directory of report.html and figures/ [default: one run: its directory; several: reports/PROBLEM-1, -2, …]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace an existing report
    #[arg(long)]
    force: bool,
    /// Leave out runs that are damaged or have another format, instead of stopping
    #[arg(long)]
    skip_broken: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// No notes on standard error
    #[arg(long)]
    quiet: bool,
}

/// `--json`.
#[derive(Serialize)]
struct Output {
    report: String,
    figures: Vec<String>,
    problem: String,
    runs: Vec<String>,
    /// `running` if a run is running, else `interrupted` if a run was interrupted, else `finished`.
    state: &'static str,
    /// The finished part, as a mean over runs, from 0 to 1.
    fraction: f64,
    /// The runs that are unfinished.
    unfinished: Vec<UnfinishedOutput>,
    /// Warnings about comparing the runs.
    warnings: Vec<String>,
    skipped: Vec<Skipped>,
    methods: Vec<MethodOutput>,
}

#[derive(Serialize)]
struct UnfinishedOutput {
    run: String,
    state: &'static str,
    fraction: f64,
    seeds: Vec<SeedOutput>,
    /// The same in words, for the table on the terminal.
    #[serde(skip)]
    words: Vec<String>,
}

#[derive(Serialize)]
struct SeedOutput {
    seed: u64,
    fraction: f64,
    episodes: usize,
    steps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_episodes: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    of_steps: Option<u64>,
    done: bool,
}

#[derive(Serialize)]
struct Skipped {
    run: String,
    reason: String,
}

#[derive(Serialize)]
struct MethodOutput {
    name: String,
    algo: String,
    taus: Vec<LevelOutput>,
}

#[derive(Serialize)]
struct LevelOutput {
    tau: f64,
    beta: f64,
    /// Present if it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    best_quantile: Option<f64>,
    seeds: Vec<u64>,
    /// The measures that the runs have, by their names in `summary.json`.
    measures: BTreeMap<&'static str, EstimateOutput>,
}

#[derive(Serialize)]
struct EstimateOutput {
    mean: f64,
    /// Student-t, 95 %, clipped to possible values. For one seed, the interval of its evaluation, or null.
    interval: Option<[f64; 2]>,
    /// Interquartile mean; null for fewer than five seeds.
    iqm: Option<f64>,
    /// Bootstrap, 95 %.
    iqm_interval: Option<[f64; 2]>,
}

impl EstimateOutput {
    fn of(estimate: &Estimate) -> Self {
        Self {
            mean: estimate.mean,
            interval: estimate.interval.map(|interval| [interval.low, interval.high]),
            iqm: estimate.iqm.map(|(iqm, _)| iqm),
            iqm_interval: estimate.iqm.map(|(_, interval)| [interval.low, interval.high]),
        }
    }
}

/// Writes the report, and returns what to print.
pub fn run(args: &ReportArgs) -> Result<String, Failure> {
    let (runs, skipped) = read(args)?;
    let study = Study::new(&runs).map_err(Failure::usage)?;
    let document = document(&study, env!("CARGO_PKG_VERSION"));
    // Draw everything before writing anything.
    let mut files: Vec<(PathBuf, Vec<u8>)> = vec![(PathBuf::from("report.html"), document.html.into_bytes())];
    for (name, figure) in &document.figures {
        for extension in ["svg", "png"] {
            let path = Path::new("figures").join(format!("{name}.{extension}"));
            let bytes = figure.encode(&path).map_err(Failure::runtime)?;
            files.push((path, bytes));
        }
    }
    let directory = directory(args, &study, &files)?;
    let figures = directory.join("figures");
    std::fs::create_dir_all(&figures)
        .map_err(|error| Failure::runtime(format!("creating {}: {error}", figures.display())))?;
    // The page is written last, after all its figures.
    for (path, bytes) in files.iter().rev() {
        atomic::write(&directory.join(path), bytes).map_err(Failure::runtime)?;
    }
    let shown = |path: &Path| directory.join(path).display().to_string();
    let output = Output {
        report: shown(Path::new("report.html")),
        figures: files[1..].iter().map(|(path, _)| shown(path)).collect(),
        problem: study.problem_name().to_owned(),
        runs: runs.iter().map(|run| run.path.display().to_string()).collect(),
        state: state(&runs),
        fraction: runs.iter().map(|run| run.state.fraction()).sum::<f64>() / runs.len() as f64,
        unfinished: runs.iter().filter_map(unfinished).collect(),
        warnings: study.warnings(),
        skipped,
        methods: methods(&study),
    };
    Ok(if args.json {
        serde_json::to_string(&output).expect("plain numbers and text serialise") + "\n"
    } else {
        human(&output)
    })
}

fn read(args: &ReportArgs) -> Result<(Vec<Run>, Vec<Skipped>), Failure> {
    let mut runs = Vec::new();
    let mut skipped = Vec::new();
    for path in &args.runs {
        match Run::read(path) {
            Ok(run) => runs.push(run),
            Err(error) if args.skip_broken => {
                if !args.quiet {
                    say(&format!("warning: left out {}: {error}", path.display()));
                }
                skipped.push(Skipped { run: path.display().to_string(), reason: error.to_string() });
            }
            Err(error) => {
                let failure = Failure::usage(error);
                return Err(match args.runs.len() {
                    1 => failure,
                    _ => failure.hint("--skip-broken leaves it out"),
                });
            }
        }
    }
    if runs.is_empty() {
        return Err(Failure::usage(format!("none of {} runs could be read", args.runs.len())));
    }
    Ok((runs, skipped))
}

/// The directory of the report. Existing files are not replaced without `--force`.
fn directory(args: &ReportArgs, study: &Study<'_>, files: &[(PathBuf, Vec<u8>)]) -> Result<PathBuf, Failure> {
    let directory = match (&args.out, study.runs) {
        (Some(out), _) => out.clone(),
        (None, [run]) if args.runs.len() == 1 => run.path.clone(),
        (None, _) => {
            let problem = Path::new(study.problem_name()).file_stem().unwrap_or_default().to_string_lossy();
            return unique_name(Path::new("reports"), &slug(&problem)).map_err(Failure::runtime);
        }
    };
    if directory.exists() && !directory.is_dir() {
        return Err(Failure::usage(format!("{} is not a directory", directory.display())));
    }
    // Writing would change what a link leads to.
    let places = files.iter().map(|(path, _)| directory.join(path)).chain([directory.join("figures")]);
    if let Some(link) = places.into_iter().find(|path| path.is_symlink()) {
        return Err(Failure::usage(format!("{} is a symbolic link", link.display()))
            .hint("remove it, or write the report elsewhere with --out DIR"));
    }
    let existing = files.iter().map(|(path, _)| directory.join(path)).find(|path| path.exists());
    match existing {
        Some(path) if !args.force => Err(Failure::usage(format!("{} already exists", path.display()))
            .hint("--force replaces the report, --out DIR writes another")),
        _ => Ok(directory),
    }
}

/// The state of all runs together.
fn state(runs: &[Run]) -> &'static str {
    let any = |name: &str| runs.iter().any(|run| run.state.name() == name);
    ["running", "interrupted"].into_iter().find(|name| any(name)).unwrap_or("finished")
}

fn unfinished(run: &Run) -> Option<UnfinishedOutput> {
    let State::Unfinished { seeds, fraction, .. } = &run.state else { return None };
    let seed = |state: &bqrl_runs::reader::SeedState| SeedOutput {
        seed: state.seed,
        fraction: state.progress.fraction(),
        episodes: state.progress.episodes,
        steps: state.progress.steps,
        of_episodes: state.progress.of_episodes,
        of_steps: state.progress.of_steps,
        done: state.progress.done,
    };
    Some(UnfinishedOutput {
        run: run.path.display().to_string(),
        state: run.state.name(),
        fraction: *fraction,
        seeds: seeds.iter().map(seed).collect(),
        words: [vec![progress::headline(run)], progress::seeds(run)].concat(),
    })
}

fn methods(study: &Study<'_>) -> Vec<MethodOutput> {
    let level = |level: &bqrl_report::study::Level<'_>| LevelOutput {
        tau: level.facts.tau,
        beta: level.facts.beta,
        best_quantile: level.facts.best_quantile,
        seeds: level.seeds.iter().map(|trained| trained.record.seed).collect(),
        measures: Measure::ALL
            .iter()
            .filter_map(|&measure| Some((measure.key(), EstimateOutput::of(&level.estimate(measure)?))))
            .collect(),
    };
    let method = |method: &bqrl_report::study::Method<'_>| MethodOutput {
        name: method.name.clone(),
        algo: method.algo.to_owned(),
        taus: method.levels.iter().map(level).collect(),
    };
    study.methods.iter().map(method).collect()
}

/// The measures of the table on the terminal.
const SHOWN: [Measure; 4] =
    [Measure::FinalQuantile, Measure::FinalMean, Measure::QuantilePolicyGap, Measure::ExpectedReturnRegret];

fn human(output: &Output) -> String {
    let levels = || output.methods.iter().flat_map(|method| &method.taus);
    // A column without any value is left out.
    let shown: Vec<Measure> = SHOWN
        .into_iter()
        .filter(|measure| levels().any(|level| level.measures.contains_key(measure.key())))
        .collect();
    let with_best = levels().any(|level| level.best_quantile.is_some());
    let mut head = vec!["method", "τ", "seeds"];
    for measure in &shown {
        head.push(match measure {
            Measure::FinalQuantile => "final Q_τ",
            Measure::FinalMean => "final mean",
            Measure::QuantilePolicyGap => "quantile policy gap",
            _ => "expected-return regret",
        });
        if with_best && *measure == Measure::FinalQuantile {
            head.push("best Q*_τ");
        }
    }
    let mut rows = vec![head.into_iter().map(str::to_owned).collect()];
    for method in &output.methods {
        for level in &method.taus {
            let mut row = vec![method.name.clone(), number(level.tau), level.seeds.len().to_string()];
            for measure in &shown {
                row.push(level.measures.get(measure.key()).map_or("–".to_owned(), mean_and_interval));
                if with_best && *measure == Measure::FinalQuantile {
                    row.push(level.best_quantile.map_or("–".to_owned(), short));
                }
            }
            rows.push(row);
        }
    }
    let mut text = String::new();
    for line in output.unfinished.iter().flat_map(|run| &run.words) {
        let _ = writeln!(text, "{line}");
    }
    for warning in &output.warnings {
        let _ = writeln!(text, "note: {warning}");
    }
    if rows.len() > 1 {
        let _ = writeln!(
            text,
            "{}: means over seeds and their 95 % intervals\n\n{}",
            output.problem,
            table(&rows)
        );
    }
    text + &format!("The report is {} ({} figures next to it)\n", output.report, output.figures.len())
}

/// `0.5 [0.4, 0.6]`; the mean alone if there is no interval.
fn mean_and_interval(estimate: &EstimateOutput) -> String {
    match estimate.interval {
        Some([low, high]) => format!("{} [{}, {}]", short(estimate.mean), short(low), short(high)),
        None => short(estimate.mean),
    }
}

/// Four digits are enough beside an interval.
fn short(value: f64) -> String {
    let scale = if value == 0.0 { 1.0 } else { 10f64.powi(3 - value.abs().log10().floor() as i32) };
    number((value * scale).round() / scale)
}
