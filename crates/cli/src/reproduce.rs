//! `bqrl reproduce`: the paper's experiments, its figures and its numbers beside ours.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use bqrl_lab::batch::{Ready, run_all};
use bqrl_lab::config::Length;
use bqrl_lab::reproduce::{Planned, experiment};
use bqrl_lab::run::RunError;
use bqrl_report::figure::Figure;
use bqrl_report::paper;
use bqrl_report::statistics::Estimate;
use bqrl_report::study::{Measure, Study, display_name};
use bqrl_runs::reader::Run;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::{atomic, monitor};
use serde::Serialize;

use crate::failure::Failure;
use crate::problem;
use crate::progress::{Display, pool, total, with_hooks};
use crate::studies::{self, Only};
use crate::text::number;

/// What there is to reproduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Figures 1 and 2
    AssetSelling,
    /// Figures 3 and 4
    FrozenLake,
    /// Both
    All,
    /// What the paper leaves open: settings, variants, scaling, and the floor under its rule
    Studies,
}

impl What {
    fn problems(self) -> &'static [&'static str] {
        match self {
            What::AssetSelling => &["asset-selling"],
            What::FrozenLake => &["frozen-lake"],
            What::All => &["asset-selling", "frozen-lake"],
            What::Studies => &[],
        }
    }
}

/// Flags of `bqrl reproduce`.
#[allow(clippy::struct_excessive_bools)] // Flags are.
#[derive(clap::Args)]
pub struct ReproduceArgs {
    /// Which experiment
    #[arg(value_enum, default_value_t = What::All)]
    what: What,
    /// Only this part of the studies; may be repeated
    #[arg(long, value_enum, value_name = "PART")]
    pub only: Vec<Only>,
    /// A tenth of the episodes: a look at the shape of things, not at the numbers
    #[arg(long)]
    pub quick: bool,
    /// Seeds: the paper's 42, 10042, 20042, then 101, 102, …
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub seeds: u16,
    /// Where everything is written; an interrupted reproduction goes on there [default: runs/reproduce or
    /// runs/studies, with -quick behind it]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the tables as a Markdown page, and its figures beside it under figures/
    #[arg(long, value_name = "FILE.md")]
    pub doc: Option<PathBuf>,
    /// Begin again where runs with other settings are in the way
    #[arg(long)]
    force: bool,
    /// Seeds trained at a time; the results do not depend on it [default: all cores]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
}

#[derive(Serialize)]
struct Output {
    directory: String,
    figures: Vec<String>,
    rows: Vec<RowOutput>,
}

/// One of the paper's numbers beside ours.
#[derive(Serialize)]
struct RowOutput {
    problem: &'static str,
    measure: &'static str,
    tau: f64,
    algo: &'static str,
    paper: [f64; 2],
    ours: f64,
    interval: Option<[f64; 2]>,
    ahead: &'static str,
}

/// Reproduces, and returns what to print.
pub fn run(args: &ReproduceArgs) -> Result<String, Failure> {
    if args.what == What::Studies {
        return studies::run(args);
    }
    if !args.only.is_empty() {
        return Err(
            Failure::usage("--only chooses among the studies").hint("`bqrl reproduce studies --only …`")
        );
    }
    let default = if args.quick { "runs/reproduce-quick" } else { "runs/reproduce" };
    let root = args.out.clone().unwrap_or_else(|| default.into());
    let mut planned = Vec::new();
    for problem in args.what.problems() {
        planned.extend(experiment(problem, usize::from(args.seeds), args.quick).map_err(Failure::usage)?);
    }
    train(args, &root, &planned)?;

    let mut studies = Vec::new();
    for problem in args.what.problems() {
        let own = planned.iter().filter(|run| run.config.problem.name == *problem);
        let runs: Result<Vec<Run>, _> = own.map(|run| Run::read_finished(&root.join(&run.name))).collect();
        studies.push(runs.map_err(Failure::runtime)?);
    }
    let studies: Vec<Study<'_>> =
        studies.iter().map(|runs| Study::new(runs)).collect::<Result<_, _>>().map_err(Failure::runtime)?;
    let about = |problem: &str| studies.iter().find(|study| study.problem_name() == problem);
    let figures = paper::figures(about("asset-selling"), about("frozen-lake"));
    let rows = paper::compare(&studies.iter().collect::<Vec<_>>());
    let page = page(args, &studies, &rows, &figures);
    let mut written = write(&root.join("results.md"), &page, &figures)?;
    if let Some(doc) = &args.doc {
        written.extend(write(doc, &page, &figures)?);
    }
    if args.json {
        let row = |row: &paper::Row| RowOutput {
            problem: row.claim.problem,
            measure: row.claim.measure.key(),
            tau: row.claim.tau,
            algo: row.claim.algo,
            paper: [row.claim.value.0, row.claim.value.1],
            ours: row.ours.mean,
            interval: row.ours.interval.map(|interval| [interval.low, interval.high]),
            ahead: row.verdict(),
        };
        let output = Output {
            directory: root.display().to_string(),
            figures: written.iter().map(|path| path.display().to_string()).collect(),
            rows: rows.iter().map(row).collect(),
        };
        return Ok(serde_json::to_string(&output).expect("plain numbers and text serialise") + "\n");
    }
    Ok(format!("{page}\nEverything is in {}\n", root.display()))
}

/// Trains what is not there yet.
pub fn train(args: &ReproduceArgs, root: &Path, planned: &[Planned]) -> Result<(), Failure> {
    let mut ready = Vec::new();
    for run in planned {
        ready.extend(prepare(&root.join(&run.name), run, args.force)?);
    }
    let lengths: Vec<Length> =
        ready.iter().flat_map(|run| run.config.run.seeds.iter().map(|_| run.config.run.length())).collect();
    let (total, unit) = total(&lengths);
    let display = Display::new(args.quiet, total, unit);
    let results = with_hooks(&display, |hooks| Ok(pool(args.threads)?.install(|| run_all(&ready, hooks))))?;
    display.finish();
    let mut interrupted = None;
    for (result, run) in results.into_iter().zip(&ready) {
        match result {
            Ok(_) => {}
            Err(error @ RunError::Interrupted { .. }) => interrupted = Some(error),
            Err(error) => return Err(Failure::runtime(format!("{}: {error}", run.dir.path().display()))),
        }
    }
    match interrupted {
        Some(error) => Err(Failure::interrupted(error).hint("the same command goes on")),
        None => Ok(()),
    }
}

/// A run to begin or to go on with; `None` when it is finished.
fn prepare(path: &Path, run: &Planned, force: bool) -> Result<Option<Ready>, Failure> {
    let text = run.config.to_toml();
    let stored = std::fs::read_to_string(path.join("config.toml")).ok();
    let (dir, lock) = match stored {
        Some(stored) if stored == text => {
            let dir = RunDir::open(path).map_err(Failure::usage)?;
            if dir.summary().exists() {
                return Ok(None);
            }
            let lock = dir.lock().map_err(Failure::usage)?;
            (dir, lock)
        }
        Some(_) if !force => {
            let message = format!("{} was run with other settings", path.display());
            return Err(Failure::usage(message).hint("--force begins it again, --out DIR goes elsewhere"));
        }
        _ => {
            if let Some(parent) = path.parent() {
                let named = |error| Failure::runtime(format!("creating {}: {error}", parent.display()));
                std::fs::create_dir_all(parent).map_err(named)?;
            }
            let (dir, lock) = RunDir::create(path, true).map_err(Failure::runtime)?;
            atomic::write(&dir.config(), text.as_bytes()).map_err(Failure::runtime)?;
            (dir, lock)
        }
    };
    Ok(Some(problem::prepare(run.config.clone())?.in_directory(dir, lock)))
}

/// The page and, beside it, its figures as SVG and PNG.
pub fn write(
    page_path: &Path,
    page: &str,
    figures: &[(&'static str, Figure)],
) -> Result<Vec<PathBuf>, Failure> {
    let folder = page_path.parent().unwrap_or(Path::new("")).join("figures");
    std::fs::create_dir_all(&folder)
        .map_err(|error| Failure::runtime(format!("creating {}: {error}", folder.display())))?;
    let mut written = Vec::new();
    for (name, figure) in figures {
        for extension in ["svg", "png"] {
            let path = folder.join(format!("{name}.{extension}"));
            let bytes = figure.encode(&path).map_err(Failure::runtime)?;
            atomic::write(&path, &bytes).map_err(Failure::runtime)?;
            written.push(path);
        }
    }
    atomic::write(page_path, page.as_bytes()).map_err(Failure::runtime)?;
    Ok(written)
}

fn page(
    args: &ReproduceArgs,
    studies: &[Study<'_>],
    rows: &[paper::Row],
    figures: &[(&'static str, Figure)],
) -> String {
    let what = match args.what {
        What::AssetSelling => "asset-selling",
        What::FrozenLake => "frozen-lake",
        What::All => "all",
        What::Studies => "studies",
    };
    let quick = if args.quick { " --quick" } else { "" };
    let mut page = format!(
        "# Results\n\nWritten by `bqrl reproduce {what}{quick} --seeds {}`{}; do not edit.\n\n\
         Settings are the presets in `crates/lab/presets/`; seeds are the paper's 42, 10042, 20042{}. The gap is \
         cumulative over all episodes, of the greedy policy (for PPO, TRPO and QPPO: the mode), evaluated exactly every ten \
         episodes; the regret counts exploration. Intervals are 95 % Student-t over seeds.\n",
        args.seeds,
        commit(),
        if args.seeds > 3 { ", then 101, 102, …" } else { "" },
    );
    if rows.is_empty() {
        page += "\nNo table beside the paper's numbers: they belong to the full number of episodes.\n";
    } else {
        page += "\n## Beside the paper\n\n";
        page += &paper::markdown(rows);
    }
    for study in studies {
        let _ = write!(page, "\n## {}\n\n", study.problem_name());
        page += "| method | τ | gap | regret | final Q_τ | best Q*_τ | final mean | last 50 episodes |\n";
        page += "|---|---|---|---|---|---|---|---|\n";
        for method in &study.methods {
            for level in &method.levels {
                let cell = |measure| {
                    // Half of the whole interval: the part that is possible may not lie around the mean.
                    let samples = level.samples(measure);
                    if samples.is_empty() {
                        return "–".to_owned();
                    }
                    let estimate = Estimate::of(&samples);
                    let around = |interval: bqrl_math::Interval| {
                        format!(" ± {}", number(round(interval.high - estimate.mean)))
                    };
                    let around = estimate.interval.map(around).unwrap_or_default();
                    format!("{}{around}", number(round(estimate.mean)))
                };
                let _ = writeln!(
                    page,
                    "| {} | {} | {} | {} | {} | {} | {} | {} |",
                    method.name,
                    level.facts.tau,
                    cell(Measure::QuantilePolicyGap),
                    cell(Measure::ExpectedReturnRegret),
                    cell(Measure::FinalQuantile),
                    level.facts.best_quantile.map_or("–".to_owned(), |best| number(round(best))),
                    cell(Measure::FinalMean),
                    cell(Measure::MovingAverageReward),
                );
            }
        }
    }
    page += &robust_tables(studies);
    page += "\n## Figures\n";
    for (name, _) in figures {
        let _ = write!(page, "\n![{name}](figures/{name}.svg)\n");
    }
    page += "\n## Where the time went\n\n";
    page += &time_table(studies);
    page += "\n| run | seconds | steps | updates |\n|---|---|---|---|\n";
    for run in studies.iter().flat_map(|study| study.runs) {
        let name = run.path.components().rev().take(2).collect::<Vec<_>>();
        let name: PathBuf = name.into_iter().rev().collect();
        let summary = &run.summary;
        let seconds = number((summary.seconds * 10.0).round() / 10.0);
        let _ = writeln!(
            page,
            "| {} | {seconds} | {} | {} |",
            name.display(),
            summary.env_steps,
            summary.updates
        );
    }
    page
}

/// Interquartile means with bootstrap intervals; nothing where there are too few seeds for them.
fn robust_tables(studies: &[Study<'_>]) -> String {
    let mut text = String::new();
    for study in studies {
        let mut rows = String::new();
        for method in &study.methods {
            for level in &method.levels {
                let cell = |measure| {
                    let (middle, interval) = level.estimate(measure)?.iqm?;
                    let [low, high] = [interval.low, interval.high].map(|end| number(round(end)));
                    Some(format!("{} [{low}, {high}]", number(round(middle))))
                };
                let cells: Option<Vec<String>> = ROBUST.into_iter().map(cell).collect();
                if let Some(cells) = cells {
                    let n = level.seeds.len();
                    let _ = writeln!(
                        rows,
                        "| {} | {} | {n} | {} |",
                        method.name,
                        level.facts.tau,
                        cells.join(" | ")
                    );
                }
            }
        }
        if !rows.is_empty() {
            let _ = write!(
                text,
                "\n## {}: interquartile means\n\nThe mean of the middle half of the seeds, with the 95 % percentile \
                 bootstrap interval over seeds (10 000 resamples from a fixed seed).\n\n\
                 | method | τ | seeds | gap | regret | final Q_τ | final mean |\n|---|---|---|---|---|---|---|\n{rows}",
                study.problem_name()
            );
        }
    }
    text
}

const ROBUST: [Measure; 4] =
    [Measure::QuantilePolicyGap, Measure::ExpectedReturnRegret, Measure::FinalQuantile, Measure::FinalMean];

/// Which method took how much of the time, on which problem.
fn time_table(studies: &[Study<'_>]) -> String {
    let mut rows: Vec<(String, &str, f64)> = Vec::new();
    for study in studies {
        for run in study.runs {
            let name = display_name(&run.summary.algo);
            let seconds: f64 = run.summary.seeds.iter().map(|&seed| seed_seconds(run, seed)).sum();
            match rows.iter_mut().find(|row| (row.0.as_str(), row.1) == (name, study.problem_name())) {
                Some(row) => row.2 += seconds,
                None => rows.push((name.to_owned(), study.problem_name(), seconds)),
            }
        }
    }
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    let total: f64 = rows.iter().map(|row| row.2).sum();
    let mut text = String::from(
        "Wall time of all seeds of all levels, one after the other, evaluations included; other work on the machine, and a \
         pause before a run went on, count too.\n\n| method | problem | seconds | share |\n|---|---|---|---|\n",
    );
    for (name, problem, seconds) in rows {
        let share = if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
        let _ = writeln!(text, "| {name} | {problem} | {seconds:.1} | {share:.1} % |");
    }
    text
}

/// From the start of a seed to the end of its last episode, as its Monitor file has it; nothing where that is not there.
fn seed_seconds(run: &Run, seed: u64) -> f64 {
    let times = RunDir::open(&run.path).and_then(|dir| monitor::times(&dir.seed(seed).monitor()));
    times.ok().and_then(|times| times.last().map(|&(_, time)| time)).unwrap_or(0.0)
}

/// Three decimals are more than three seeds can tell.
pub fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

/// The commit of the sources that are being run, where there is one.
pub fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    match output {
        Ok(output) if output.status.success() => {
            format!(" at commit {}", String::from_utf8_lossy(&output.stdout).trim())
        }
        _ => String::new(),
    }
}
