//! `bqrl reproduce`: the paper's experiments, its figures and its numbers beside ours.

use std::path::{Path, PathBuf};

use bqrl_lab::batch::run_all;
use bqrl_lab::config::Length;
use bqrl_lab::reproduce::{BeginError, Planned, begin, experiment, longest_first};
use bqrl_lab::run::RunError;
use bqrl_report::figure::Figure;
use bqrl_report::study::Study;
use bqrl_report::{paper, results};
use bqrl_runs::atomic;
use bqrl_runs::reader::Run;
use bqrl_runs::shared_dir::SharedDir;
use serde::Serialize;

use crate::failure::Failure;
use crate::games;
use crate::progress::{Display, MOST_THREADS, pool, total, with_hooks};
use crate::promises;
use crate::studies::{self, Only};

/// The experiments that can be reproduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum What {
    /// Figures 1 and 2
    AssetSelling,
    /// Figures 3 and 4
    FrozenLake,
    /// Both
    All,
    /// Five games (MinAtar): QR-DQN, and on two of them, with a third of the seeds, Deep-BQRL and target tracking at three levels; hours
    Games,
    /// Questions that the paper leaves open: settings, variants, scaling, and the exact limit of its rule
    Studies,
    /// Whether promises of `bqrl plan --confidence` hold on simulated logs, and how tight they are
    Promises,
}

impl What {
    fn problems(self) -> &'static [&'static str] {
        match self {
            What::AssetSelling => &["asset-selling"],
            What::FrozenLake => &["frozen-lake"],
            What::All => &["asset-selling", "frozen-lake"],
            What::Games | What::Studies | What::Promises => &[],
        }
    }

    fn name(self) -> String {
        let value = clap::ValueEnum::to_possible_value(&self).expect("no experiment is hidden");
        value.get_name().to_owned()
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
    /// Train for a tenth of the episodes: shows the shape of the results, not the numbers
    #[arg(long)]
    pub quick: bool,
    /// Number of seeds: the paper's 42, 10042, 20042, then 101, 102, …
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u16).range(2..=1000))]
    pub seeds: u16,
    /// Games: train nothing, write the page of the seeds that are finished
    #[arg(long)]
    pub so_far: bool,
    /// Games: seeds that were finished elsewhere, from the games.csv of another directory; they are not trained again
    #[arg(long, value_name = "FILE.csv")]
    pub with: Option<PathBuf>,
    /// Directory of all results; an interrupted reproduction is resumed there [default: runs/reproduce,
    /// runs/games, runs/promises or runs/studies, followed by -quick with --quick]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Also write the tables as a Markdown page, with its figures in figures/ next to it
    #[arg(long, value_name = "FILE.md")]
    pub doc: Option<PathBuf>,
    /// Replace runs that have other settings
    #[arg(long)]
    force: bool,
    /// Seeds trained at the same time; the results do not depend on it [default: all cores]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
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

/// One of the paper's numbers and ours.
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
        return Err(Failure::usage("--only is for the studies").hint("`bqrl reproduce studies --only …`"));
    }
    for (flag, given) in [("--so-far", args.so_far), ("--with", args.with.is_some())] {
        if given && args.what != What::Games {
            return Err(Failure::usage(format!("{flag} is for the games"))
                .hint(format!("`bqrl reproduce games {flag}`")));
        }
    }
    if args.what == What::Promises {
        return promises::run(args);
    }
    if args.what == What::Games {
        return games::run(args);
    }
    let default = if args.quick { "runs/reproduce-quick" } else { "runs/reproduce" };
    let root = args.out.clone().unwrap_or_else(|| default.into());
    let mut planned = Vec::new();
    for problem in args.what.problems() {
        planned.extend(experiment(problem, usize::from(args.seeds), args.quick).map_err(Failure::usage)?);
    }
    let _shared = train(args, &root, &planned)?;

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
    let written_by = args.written_by(&args.what.name());
    let page = results::page(&written_by, usize::from(args.seeds), &studies, &rows, &figures);
    let written = write(args, &root.join("results.md"), &page, &figures)?;
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
    let html = root.join("results.html");
    Ok(format!("{page}\nEverything is in {}; one page with all of it: {}\n", root.display(), html.display()))
}

/// Trains the runs that are not finished. Returns the right to write pages and figures beside them.
pub fn train(args: &ReproduceArgs, root: &Path, planned: &[Planned]) -> Result<SharedDir, Failure> {
    let mut ready = begin(root, planned, args.force).map_err(|error| match &error {
        BeginError::OtherSettings { .. } => {
            Failure::usage(error).hint("--force starts it again, --out DIR writes elsewhere")
        }
        error if error.is_usage() => Failure::usage(error),
        error => Failure::runtime(error),
    })?;
    longest_first(&mut ready);
    let shared = SharedDir::open(root, &["figures"]).map_err(Failure::runtime)?;
    let lengths: Vec<Length> =
        ready.iter().flat_map(|run| run.config.run.seeds.iter().map(|_| run.config.run.length())).collect();
    let (total, unit) = total(&lengths);
    let display = Display::new(args.quiet, total, unit);
    let results = with_hooks(&display, |hooks| Ok(pool(args.threads)?.install(|| run_all(&ready, hooks))))?;
    display.finish();
    let mut unfinished = 0;
    for (result, run) in results.into_iter().zip(&ready) {
        match result {
            Ok(_) => {}
            Err(RunError::Interrupted { .. }) => unfinished += 1,
            Err(error) => return Err(Failure::runtime(format!("{}: {error}", run.dir.path().display()))),
        }
    }
    if unfinished == 0 {
        return Ok(shared);
    }
    let (finished, all) = (planned.len() - unfinished, planned.len());
    Err(Failure::interrupted(format!("interrupted after checkpoints: {finished} of {all} runs are finished"))
        .hint("the same command resumes it"))
}

impl ReproduceArgs {
    /// The command that writes a page, and the commit of the sources, if there is one.
    pub fn written_by(&self, what: &str) -> String {
        let quick = if self.quick { " --quick" } else { "" };
        let so_far = if self.so_far { " --so-far" } else { "" };
        let only = |only: &Only| format!(" --only {}", only.name());
        let only: String = self.only.iter().map(only).collect();
        format!("`bqrl reproduce {what}{quick}{only} --seeds {}{so_far}`{}", self.seeds, commit())
    }
}

/// Writes the page with its figures to `path`, and to the path of `--doc`. Returns the paths of the figures.
pub fn write(
    args: &ReproduceArgs,
    path: &Path,
    page: &str,
    figures: &[(&'static str, Figure)],
) -> Result<Vec<PathBuf>, Failure> {
    let mut written = results::write(path, page, figures).map_err(Failure::runtime)?;
    // The page for readers without the repository: one file, with its figures inside.
    let html = results::html(page, figures);
    atomic::write(&path.with_extension("html"), html.as_bytes()).map_err(Failure::runtime)?;
    if let Some(doc) = &args.doc {
        written.extend(results::write(doc, page, figures).map_err(Failure::runtime)?);
    }
    Ok(written)
}

/// The commit of the sources, if there is one.
fn commit() -> String {
    let output = std::process::Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    match output {
        Ok(output) if output.status.success() => {
            format!(" at commit {}", String::from_utf8_lossy(&output.stdout).trim())
        }
        _ => String::new(),
    }
}
