//! `bqrl report`: one self-contained page and its figures, about one run or several on the same problem.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bqrl_report::document::{document, slug};
use bqrl_report::statistics::Estimate;
use bqrl_report::study::{Measure, Study};
use bqrl_runs::atomic;
use bqrl_runs::reader::{ReadError, Run};
use bqrl_runs::run_dir::unique_name;
use serde::Serialize;

use crate::failure::Failure;
use crate::text::{number, table};

/// Flags of `bqrl report`.
#[allow(clippy::struct_excessive_bools)] // Flags are.
#[derive(clap::Args)]
pub struct ReportArgs {
    /// Run directories; several must be about the same problem, and are compared
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Where report.html and figures/ go [default: one run: into its directory; several: reports/PROBLEM-1, -2, …]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Replace a report that is already there
    #[arg(long)]
    force: bool,
    /// Leave out runs that are unfinished, damaged or of another format, instead of stopping
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
    skipped: Vec<Skipped>,
    methods: Vec<MethodOutput>,
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
    best_quantile: f64,
    seeds: Vec<u64>,
    /// By the names of `summary.json`.
    measures: BTreeMap<&'static str, EstimateOutput>,
}

#[derive(Serialize)]
struct EstimateOutput {
    mean: f64,
    /// Student-t, 95 %; null for one seed.
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
    // Everything is drawn before anything is written.
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
    // The page last: where it stands, its figures do.
    for (path, bytes) in files.iter().rev() {
        atomic::write(&directory.join(path), bytes).map_err(Failure::runtime)?;
    }
    let shown = |path: &Path| directory.join(path).display().to_string();
    let output = Output {
        report: shown(Path::new("report.html")),
        figures: files[1..].iter().map(|(path, _)| shown(path)).collect(),
        problem: study.problem_name().to_owned(),
        runs: runs.iter().map(|run| run.path.display().to_string()).collect(),
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
                    eprintln!("warning: left out {}: {error}", path.display());
                }
                skipped.push(Skipped { run: path.display().to_string(), reason: error.to_string() });
            }
            Err(error) => {
                let several = args.runs.len() > 1;
                let hint = match &error {
                    ReadError::Unfinished(path) => {
                        Some(format!("`bqrl train --resume {}` goes on with it", path.display()))
                    }
                    _ if several => Some("--skip-broken leaves it out".to_owned()),
                    _ => None,
                };
                let failure = Failure::usage(error);
                return Err(match hint {
                    Some(hint) => failure.hint(hint),
                    None => failure,
                });
            }
        }
    }
    if runs.is_empty() {
        return Err(Failure::usage(format!("none of {} runs could be read", args.runs.len())));
    }
    Ok((runs, skipped))
}

/// Where the report goes. Whatever it would replace is refused without `--force`.
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
    let existing = files.iter().map(|(path, _)| directory.join(path)).find(|path| path.exists());
    match existing {
        Some(path) if !args.force => Err(Failure::usage(format!("{} already exists", path.display()))
            .hint("--force replaces the report, --out DIR writes another")),
        _ => Ok(directory),
    }
}

fn methods(study: &Study<'_>) -> Vec<MethodOutput> {
    let level = |level: &bqrl_report::study::Level<'_>| LevelOutput {
        tau: level.facts.tau,
        beta: level.facts.beta,
        best_quantile: level.facts.best_quantile,
        seeds: level.seeds.iter().map(|trained| trained.record.seed).collect(),
        measures: Measure::ALL
            .iter()
            .map(|&measure| (measure.key(), EstimateOutput::of(&level.estimate(measure))))
            .collect(),
    };
    let method = |method: &bqrl_report::study::Method<'_>| MethodOutput {
        name: method.name.clone(),
        algo: method.algo.to_owned(),
        taus: method.levels.iter().map(level).collect(),
    };
    study.methods.iter().map(method).collect()
}

fn human(output: &Output) -> String {
    let head =
        ["method", "τ", "seeds", "final Q_τ", "best Q*_τ", "quantile policy gap", "expected-return regret"];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    for method in &output.methods {
        for level in &method.taus {
            let mean = |measure: Measure| {
                let estimate = &level.measures[measure.key()];
                match estimate.interval {
                    Some([low, high]) => {
                        // Equal seeds leave a width of rounding errors.
                        let half = (high - low) / 2.0;
                        let half = if half < 1e-12 * estimate.mean.abs() { 0.0 } else { half };
                        format!("{} ± {}", short(estimate.mean), short(half))
                    }
                    None => short(estimate.mean),
                }
            };
            rows.push(vec![
                method.name.clone(),
                number(level.tau),
                level.seeds.len().to_string(),
                mean(Measure::FinalQuantile),
                short(level.best_quantile),
                mean(Measure::QuantilePolicyGap),
                mean(Measure::ExpectedReturnRegret),
            ]);
        }
    }
    format!(
        "{}: means over seeds ± half of the 95 % Student-t interval\n\n{}\nThe report is {} ({} figures beside it)\n",
        output.problem,
        table(&rows),
        output.report,
        output.figures.len()
    )
}

/// Four digits are enough beside an interval.
fn short(value: f64) -> String {
    let scale = if value == 0.0 { 1.0 } else { 10f64.powi(3 - value.abs().log10().floor() as i32) };
    number((value * scale).round() / scale)
}
