//! `bqrl tune`: one hyperparameter on a logarithmic grid, by successive halving on validation seeds.

use std::path::{Path, PathBuf};

use bqrl_lab::config::{Algo, Layers, ProblemConfig, paper_episodes, read_settings};
use bqrl_lab::run::RunError;
use bqrl_lab::tune::{Episodes, Round, Search, TuneError, VALIDATION};
use bqrl_runs::atomic;
use bqrl_runs::run_dir::unique_name;
use serde::Serialize;

use crate::failure::Failure;
use crate::progress::{Display, MOST_THREADS, pool, with_hooks};
use crate::text::{number, table};

/// Flags of `bqrl tune`.
#[derive(clap::Args)]
pub struct TuneArgs {
    /// Built-in problems or MDP files; one value is chosen for all of them [default: asset-selling]
    #[arg(value_delimiter = ',', value_name = "PROBLEM,…")]
    problems: Vec<String>,
    /// The algorithm; `bqrl train --help` lists them [default: deep-bqrl]
    #[arg(long, value_name = "NAME")]
    algo: Option<String>,
    /// Risk levels in (0, 1); one value is chosen for all of them [default: the preset's]
    #[arg(long, allow_negative_numbers = true, value_delimiter = ',', value_name = "TAU,…")]
    tau: Vec<f64>,
    /// The setting to vary [default: the algorithm's dominant one]
    #[arg(long, value_name = "agent.KEY", requires_all = ["low", "high"])]
    key: Option<String>,
    /// The smallest value
    #[arg(long, allow_negative_numbers = true, value_name = "LOW")]
    low: Option<f64>,
    /// The largest value
    #[arg(long, allow_negative_numbers = true, value_name = "HIGH")]
    high: Option<f64>,
    /// Number of values on the logarithmic grid
    #[arg(long, allow_negative_numbers = true, value_name = "N", default_value_t = 16)]
    points: usize,
    /// Training episodes of a full trial [default: 2000; 5000 on frozen-lake]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    episodes: Option<u32>,
    /// Validation seeds; the held-out ones are refused [default: 1000,1001,1002]
    #[arg(long, allow_negative_numbers = true, value_delimiter = ',', value_name = "SEED,…")]
    seeds: Vec<u32>,
    /// Another setting, the same in all trials; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Directory of the search [default: runs/tune-ALGO-1, -2, …]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Resume an interrupted search
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Seeds trained at the same time; the results do not depend on it [default: all cores]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// No progress on standard error
    #[arg(long)]
    quiet: bool,
}

#[derive(Serialize)]
struct Report<'a> {
    search: &'a Search,
    directory: String,
    preset: String,
    best: &'a str,
    rounds: &'a [Round],
}

/// Searches, and returns what to print.
pub fn run(args: &TuneArgs) -> Result<String, Failure> {
    let (search, dir) = match &args.resume {
        Some(dir) => (resume(args, dir)?, dir.clone()),
        None => begin(args)?,
    };
    let episodes = search.episodes().map_err(|error| failure(error, &dir))?;
    let display = Display::new(args.quiet, episodes, "episodes");
    let rounds = with_hooks(&display, |hooks| {
        pool(args.threads)?.install(|| search.run(&dir, hooks)).map_err(|error| failure(error, &dir))
    });
    display.finish();
    let rounds = rounds?;
    let preset = search.preset(&rounds).map_err(|error| failure(error, &dir))?;
    let path = dir.join("preset.toml");
    atomic::write(&path, preset.as_bytes()).map_err(Failure::runtime)?;
    let last = rounds.last().expect("a search has rounds");
    let report = Report {
        search: &search,
        directory: dir.display().to_string(),
        preset: path.display().to_string(),
        best: &last.standings[0].value,
        rounds: &rounds,
    };
    if args.json {
        return Ok(serde_json::to_string(&report).expect("plain numbers and text serialise") + "\n");
    }
    Ok(human(&report))
}

/// A new search in a directory of its own.
fn begin(args: &TuneArgs) -> Result<(Search, PathBuf), Failure> {
    let name = args.algo.as_deref().unwrap_or("deep-bqrl");
    let algo = Algo::named(name).map_err(Failure::usage)?;
    let (key, low, high) = algo.dominant;
    let preset = Layers::preset(name).map_err(Failure::usage)?;
    let levels = || {
        let levels = preset.value("run.tau").and_then(|tau| tau.as_array()).cloned().unwrap_or_default();
        levels.iter().filter_map(toml::Value::as_float).collect()
    };
    let names =
        if args.problems.is_empty() { vec!["asset-selling".to_owned()] } else { args.problems.clone() };
    let problem = |name: &String| Episodes {
        // §4.1 and §4.2.
        episodes: args.episodes.map_or(paper_episodes(name), |n| n as usize),
        problem: ProblemConfig { name: name.clone(), ..ProblemConfig::default() },
    };
    let search = Search {
        algo: name.to_owned(),
        key: args.key.clone().unwrap_or_else(|| key.to_owned()),
        low: args.low.unwrap_or(low),
        high: args.high.unwrap_or(high),
        points: args.points,
        tau: if args.tau.is_empty() { levels() } else { args.tau.clone() },
        seeds: if args.seeds.is_empty() {
            VALIDATION.to_vec()
        } else {
            args.seeds.iter().map(|&seed| u64::from(seed)).collect()
        },
        set: args.set.clone(),
        problems: names.iter().map(problem).collect(),
    };
    search.prepare().map_err(|error| failure(error, Path::new("")))?;
    let dir = match &args.out {
        Some(dir) if dir.join("tune.toml").exists() => {
            return Err(Failure::usage(format!("{} already holds a search", dir.display()))
                .hint("--resume resumes it"));
        }
        Some(dir) => dir.clone(),
        None => unique_name(Path::new("runs"), &format!("tune-{name}")).map_err(Failure::runtime)?,
    };
    std::fs::create_dir_all(&dir)
        .map_err(|error| Failure::runtime(format!("creating {}: {error}", dir.display())))?;
    let text = toml::to_string(&search).expect("tables of plain values");
    atomic::write(&dir.join("tune.toml"), text.as_bytes()).map_err(Failure::runtime)?;
    Ok((search, dir))
}

/// Reads the stored search.
fn resume(args: &TuneArgs, dir: &Path) -> Result<Search, Failure> {
    let given = !args.problems.is_empty()
        || args.algo.is_some()
        || !args.tau.is_empty()
        || args.key.is_some()
        || args.episodes.is_some()
        || !args.seeds.is_empty()
        || !args.set.is_empty();
    if given {
        return Err(Failure::usage("--resume uses the settings of the search and takes no others"));
    }
    let path = dir.join("tune.toml");
    let named = |error: &dyn ToString| Failure::usage(format!("{}: {}", path.display(), error.to_string()));
    let text = read_settings(&path).map_err(Failure::usage)?;
    toml::from_str(&text).map_err(|error: toml::de::Error| named(&error.message()))
}

fn failure(error: TuneError, dir: &Path) -> Failure {
    let again = format!("`bqrl tune --resume {}` resumes it", dir.display());
    match error {
        TuneError::Run { error: error @ RunError::Interrupted { .. }, .. } => {
            Failure::interrupted(error).hint(again)
        }
        TuneError::Run { .. } | TuneError::Io(_) => Failure::runtime(error).hint(again),
        _ => Failure::usage(error),
    }
}

fn human(report: &Report) -> String {
    let mut rows = vec![
        ["round", "episodes", report.search.key.as_str(), "score", "late return", "continues"]
            .map(str::to_owned)
            .to_vec(),
    ];
    for (index, Round { share, standings }) in report.rounds.iter().enumerate() {
        for standing in standings {
            rows.push(vec![
                (index + 1).to_string(),
                if *share == 1 { "all".to_owned() } else { format!("1/{share}") },
                standing.value.clone(),
                number(standing.score),
                number(standing.late_return),
                if standing.survives { "yes" } else { "" }.to_owned(),
            ]);
        }
    }
    format!(
        "{}\n\nBest: {} = {}. The score is the mean gap per episode, divided by the range of returns; lower is better.\n\
         The preset is {}; `bqrl train --algo {} --config {}` uses it.\n",
        table(&rows).trim_end_matches('\n'),
        report.search.key,
        report.best,
        report.preset,
        report.search.algo,
        report.preset
    )
}
