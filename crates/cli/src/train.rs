//! `bqrl train`: learn a policy, measured against the exact optimum where it is known; several seeds in parallel; resumable.

use std::io;
use std::path::{Path, PathBuf};

use bqrl_lab::batch::{Prepared, Ready, run_all};
use bqrl_lab::config::{ALGOS, Algo, Config, Layers, StartState, read_settings};
use bqrl_lab::run::RunError;
use bqrl_runs::run_dir::{RunDir, unique_name};
use bqrl_runs::schema::{Summary, SummaryLevel};

use crate::failure::Failure;
use crate::problem::{self, ProblemFlags};
use crate::progress::{Display, MOST_THREADS, pool, with_hooks};
use crate::text::{number, table};

/// Flags of `bqrl train`.
#[derive(clap::Args)]
pub struct TrainArgs {
    /// A built-in problem (`bqrl envs` lists them) or an MDP file [default: asset-selling]
    problem: Option<String>,
    #[command(flatten)]
    flags: ProblemFlags,
    #[arg(long, value_name = "NAME", help = algo_help())]
    algo: Option<String>,
    /// Risk level in (0, 1), or several for an algorithm that serves several [default: 0.1]
    #[arg(long, allow_negative_numbers = true, value_delimiter = ',', value_name = "TAU,…")]
    tau: Vec<f64>,
    /// Buffer width in (0, tau] [default: tau]
    #[arg(long, allow_negative_numbers = true, value_delimiter = ',', value_name = "BETA,…")]
    beta: Vec<f64>,
    /// Training episodes [default: 2000; 5000 on frozen-lake]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    episodes: Option<u32>,
    /// Training steps over all lanes; replaces --episodes
    #[arg(long, allow_negative_numbers = true, value_name = "N", conflicts_with = "episodes")]
    steps: Option<u64>,
    /// Copies of the environment that are played side by side [default: 1]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    lanes: Option<u32>,
    /// Seeds, one run each, in parallel [default: 42]
    #[arg(long, alias = "seed", allow_negative_numbers = true, value_delimiter = ',', value_name = "SEED,…")]
    seeds: Vec<u32>,
    /// Settings from a TOML file, on top of the algorithm's preset
    #[arg(long, value_name = "FILE.toml")]
    config: Option<PathBuf>,
    /// One setting, e.g. --set agent.kappa=1.0; may be repeated
    #[arg(long, value_name = "SECTION.KEY=VALUE")]
    set: Vec<String>,
    /// Directory of the run [default: runs/PROBLEM-ALGO-1, -2, …]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    out: Option<PathBuf>,
    /// Replace the run that is in this directory
    #[arg(long, requires = "out")]
    force: bool,
    /// Resume an interrupted run
    #[arg(long, value_name = "DIR")]
    resume: Option<PathBuf>,
    /// Seeds trained at the same time; the results do not depend on it [default: all cores]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// No progress and no notes on standard error
    #[arg(long)]
    quiet: bool,
}

/// The algorithms, a line each.
fn algo_help() -> String {
    let width = ALGOS.iter().map(|algo| algo.name.len()).max().unwrap_or(0);
    let line = |algo: &Algo| format!("\n  {:width$}  {}", algo.name, algo.about);
    let lines = ALGOS.iter().map(line).collect::<Vec<_>>().concat();
    format!("The algorithm [default: deep-bqrl]{lines}")
}

/// Trains, and returns what to print.
pub fn run(args: &TrainArgs) -> Result<String, Failure> {
    let (config, existing) = configuration(args)?;
    let prepared = problem::prepare(config)?;
    let run = &prepared.config.run;
    let total = run.length().amount().saturating_mul(run.seeds.len() as u64);
    let display = Display::new(args.quiet, total, run.length().unit());
    let ready = [directory(args, prepared, existing)?];
    let result = with_hooks(&display, |hooks| {
        let mut results = pool(args.threads)?.install(|| run_all(&ready, hooks));
        Ok(results.pop().expect("one run, one result"))
    })?;
    display.finish();

    let again = format!("`bqrl train --resume {}` resumes it", ready[0].dir.path().display());
    match result {
        Ok(summary) if args.json => Ok(summary.to_json()),
        Ok(summary) => Ok(human(&summary)),
        Err(error @ RunError::Interrupted { .. }) => Err(Failure::interrupted(error).hint(again)),
        Err(error @ RunError::Changed { .. }) => Err(Failure::usage(error).hint(
            "a run is resumed with the files it was left with; restore them, or start a new run with --out",
        )),
        Err(error) => Err(Failure::runtime(error).hint(again)),
    }
}

/// The configuration from preset, file, flags and overrides; or that of the run to resume, which flags may not change.
fn configuration(args: &TrainArgs) -> Result<(Config, Option<RunDir>), Failure> {
    let read = |path: &Path| read_settings(path).map_err(Failure::usage);
    let Some(resume) = &args.resume else {
        let file = match &args.config {
            Some(path) => {
                Some(Layers::written(&read(path)?, &path.display().to_string()).map_err(Failure::usage)?)
            }
            None => None,
        };
        // A file may name algorithm and problem; flags win over it.
        let in_file = |key: &str| Some(file.as_ref()?.value(key)?.as_str()?.to_owned());
        let algo = args.algo.clone().or(in_file("agent.kind")).unwrap_or("deep-bqrl".to_owned());
        let name = args.problem.clone().or(in_file("problem.name")).unwrap_or("asset-selling".to_owned());
        let mut layers = Layers::of(&algo, &name).map_err(Failure::usage)?;
        if let Some(file) = file {
            layers.add_layers(file);
        }
        if args.algo.is_some() {
            layers.set("agent", "kind", algo);
        }
        apply_flags(args, &name, &mut layers)?;
        return Ok((layers.finish("settings").map_err(Failure::usage)?, None));
    };
    let dir = RunDir::open(resume).map_err(Failure::usage)?;
    let mut layers = Layers::of_run(&dir).map_err(Failure::usage)?;
    let stored = Config::of_run(&dir).map_err(Failure::usage)?;
    if let Some(path) = &args.config {
        layers.file(&read(path)?, &path.display().to_string()).map_err(Failure::usage)?;
    }
    apply_flags(args, args.problem.as_deref().unwrap_or(&stored.problem.name), &mut layers)?;
    let wanted = layers.finish("settings").map_err(Failure::usage)?;
    let mut differing = wanted.differences(&stored);
    if args.algo.as_deref().is_some_and(|algo| algo != stored.algo().name) {
        differing.push("agent.kind".into());
    }
    if !differing.is_empty() {
        return Err(Failure::usage(format!(
            "{} was started with other settings: {}",
            resume.display(),
            differing.join(", ")
        ))
        .hint("a run is resumed with the settings it began with; start a new one for others"));
    }
    Ok((stored, Some(dir)))
}

fn apply_flags(args: &TrainArgs, name: &str, layers: &mut Layers) -> Result<(), Failure> {
    let problem = args.flags.config(name)?;
    layers.set("problem", "name", name);
    if let Some(horizon) = problem.horizon {
        layers.set("problem", "horizon", horizon as i64);
    }
    match problem.start {
        Some(StartState::Id(id)) => layers.set("problem", "start", id as i64),
        Some(StartState::Name(name)) => layers.set("problem", "start", name),
        None => {}
    }
    if problem.normalise {
        layers.set("problem", "normalise", true);
    }
    if let Some(discount) = problem.discount {
        layers.set("problem", "discount", discount);
    }
    for (key, value) in problem.parameters {
        layers.set_parameter(&key, &value);
    }
    if !args.tau.is_empty() {
        layers.set("run", "tau", args.tau.clone());
    }
    if !args.beta.is_empty() {
        layers.set("run", "beta", args.beta.clone());
    }
    if let Some(episodes) = args.episodes {
        layers.set("run", "episodes", i64::from(episodes));
    }
    if let Some(steps) = args.steps {
        layers.set("run", "steps", i64::try_from(steps).unwrap_or(i64::MAX));
    }
    if let Some(lanes) = args.lanes {
        layers.set("run", "lanes", i64::from(lanes));
    }
    if !args.seeds.is_empty() {
        layers.set("run", "seeds", args.seeds.iter().map(|&seed| i64::from(seed)).collect::<Vec<_>>());
    }
    args.set.iter().try_for_each(|text| layers.override_with(text)).map_err(Failure::usage)
}

/// The run in its directory, which is locked and holds the configuration.
fn directory(args: &TrainArgs, prepared: Prepared, existing: Option<RunDir>) -> Result<Ready, Failure> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            Failure::usage(error).hint("--resume resumes it, --force replaces it")
        }
        io::ErrorKind::DirectoryNotEmpty
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::ResourceBusy
        | io::ErrorKind::InvalidInput => Failure::usage(error),
        _ => Failure::runtime(error),
    };
    if let Some(dir) = existing {
        let lock = dir.lock().map_err(refused)?;
        return Ok(prepared.resume(dir, lock));
    }
    let path = if let Some(path) = &args.out {
        path.clone()
    } else {
        let config = &prepared.config;
        let problem = Path::new(&config.problem.name).file_stem().unwrap_or_default().to_string_lossy();
        unique_name(Path::new("runs"), &format!("{problem}-{}", config.algo().name))
            .map_err(Failure::runtime)?
    };
    let (dir, lock) = RunDir::create(&path, args.force).map_err(refused)?;
    prepared.begin(dir, lock).map_err(Failure::runtime)
}

fn human(summary: &Summary) -> String {
    // A column is shown only if its reference is known.
    let best = summary.taus.iter().all(|level| level.best_quantile.is_some());
    let rule = summary.taus.iter().any(|level| level.rule_quantile.is_some());
    let mut head = vec!["seed", "τ", "final Q_τ"];
    head.extend((!summary.exact).then_some("95 % interval"));
    head.extend(best.then_some("best Q*_τ"));
    head.extend(rule.then_some("the rule's Q_τ"));
    head.push("final mean");
    head.extend(summary.max_mean.map(|_| "best mean"));
    head.extend(best.then_some("quantile policy gap"));
    head.extend(summary.expected_return_regret.as_ref().map(|_| "expected-return regret"));
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    let mut add = |policy: &str, levels: &[SummaryLevel]| {
        for (k, seed) in summary.seeds.iter().enumerate() {
            for level in levels {
                let mut row =
                    vec![format!("{seed}{policy}"), number(level.tau), number(level.final_quantile[k])];
                if !summary.exact {
                    let interval = level.interval.as_ref().and_then(|intervals| intervals[k]);
                    let text = |[low, high]: [f64; 2]| format!("{} … {}", number(low), number(high));
                    row.push(interval.map_or("too few episodes".to_owned(), text));
                }
                row.extend(level.best_quantile.filter(|_| best).map(number));
                row.extend(rule.then(|| level.rule_quantile.map(number).unwrap_or_default()));
                row.push(number(level.final_mean[k]));
                row.extend(summary.max_mean.map(number));
                row.extend(level.quantile_policy_gap.as_ref().filter(|_| best).map(|gaps| number(gaps[k])));
                row.extend(summary.expected_return_regret.as_ref().map(|regrets| number(regrets[k])));
                rows.push(row);
            }
        }
    };
    match &summary.distribution {
        None => add("", &summary.taus),
        Some(distribution) => {
            add(" mode", &summary.taus);
            add(" distribution", distribution);
        }
    }
    let how = match (summary.exact, best) {
        (true, _) => "",
        (false, true) => {
            "Too many possible returns for exact values: policies were played, and the best quantile is a lower bound.\n"
        }
        (false, false) => "Policies were played to evaluate them.\n",
    };
    let lanes = summary.lanes.map_or(String::new(), |lanes| format!(" in {lanes} lanes"));
    format!(
        "{} on {}: {} episodes a seed{lanes}, {} steps, {} updates, {} s\n\n{}\n{how}{}The run is in {}\n",
        summary.algo,
        summary.problem,
        summary.episodes,
        summary.env_steps,
        summary.updates,
        number((summary.seconds * 10.0).round() / 10.0),
        table(&rows),
        rule_note(summary),
        summary.run
    )
}

/// Deep-BQRL's rule re-imposes the level at every stage. Where that keeps it from the optimum, say what does not.
fn rule_note(summary: &Summary) -> String {
    let short = |level: &SummaryLevel| {
        let (rule, best) = (level.rule_quantile?, level.best_quantile?);
        (rule < best).then_some((level.tau, rule, best))
    };
    let Some((tau, rule, best)) = summary.taus.iter().find_map(short) else { return String::new() };
    format!(
        "At τ = {tau} the paper's rule, solved without error, attains {} (critics that are smoothed by κ may end\n\
         elsewhere); {} is possible, and `bqrl train {} --algo target-tracking` learns towards that.\n",
        number(rule),
        number(best),
        summary.problem
    )
}
