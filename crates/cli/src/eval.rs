//! `bqrl eval`: evaluates a trained policy at any risk level.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bqrl_lab::config::{Config, MAX_EVALUATION_EPISODES};
use bqrl_lab::run::{Hooks, restore_seed};
use bqrl_lab::task::{Level as Reference, References};
use bqrl_lab::train::Objective;
use bqrl_math::buffer::{Buffer, check_tau};
use bqrl_math::schedule::Clock;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Planner;
use bqrl_runs::run_dir::RunDir;
use serde::Serialize;

use crate::failure::Failure;
use crate::policies;
use crate::problem::{self, ProblemFlags};
use crate::terminal::say;
use crate::text::{number, often, table};

/// Passes of the planner for a buffered optimum.
const PASSES: usize = 200;

/// Flags of `bqrl eval`.
#[derive(clap::Args)]
pub struct EvalArgs {
    /// The directory of a run; with --policy a built-in problem or an MDP file
    run: PathBuf,
    /// Evaluate this policy instead of a trained one: a CSV file with the columns stage, state, collected, action, or a rule such as
    /// "if state >= 19 then stop else continue", "up to 5", or the name of an action
    #[arg(long, value_name = "FILE.csv|RULE", conflicts_with_all = ["seed", "episodes"])]
    policy: Option<String>,
    #[command(flatten)]
    flags: ProblemFlags,
    /// Risk levels in (0, 1) [default: the run's own]
    #[arg(long, allow_negative_numbers = true, value_delimiter = ',', value_name = "TAU,…")]
    tau: Vec<f64>,
    /// Buffer width in (0, tau]: one, or one per level. An agent that serves every level then maximises the buffered
    /// quantile instead of the point quantile [default: tau, or the run's own]
    #[arg(long, allow_negative_numbers = true, value_delimiter = ',', value_name = "BETA,…")]
    beta: Vec<f64>,
    /// Evaluate only the policy of this seed [default: all seeds; the top level of --json has the first]
    #[arg(long, value_name = "SEED")]
    seed: Option<u64>,
    /// Episodes to play if exact evaluation is not possible [default: as in the run]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MAX_EVALUATION_EPISODES as i64))]
    episodes: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The output of `--json`, which users and scripts rely on.
#[derive(Serialize)]
struct Report {
    run: String,
    seed: u64,
    exact: bool,
    /// Episodes played, if values are not exact.
    episodes: Option<usize>,
    /// Of the seed above.
    taus: Vec<Level>,
    /// Of every seed.
    seeds: Vec<OfSeed>,
}

#[derive(Clone, Serialize)]
struct OfSeed {
    seed: u64,
    /// Episodes of training.
    trained: u64,
    /// Steps of training.
    trained_steps: u64,
    taus: Vec<Level>,
}

#[derive(Clone, Serialize)]
struct Level {
    tau: f64,
    beta: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    best_quantile: Option<f64>,
    /// UB2 of the plan for (τ, β), where `--beta` asks for it and exact planning is possible.
    best_buffered_quantile: Option<f64>,
    quantile: f64,
    buffered_quantile: f64,
    mean: f64,
    /// 95 %, where values are not exact.
    interval: Option<[f64; 2]>,
}

/// Evaluates, and returns what to print.
pub fn run(args: &EvalArgs) -> Result<String, Failure> {
    if let Some(policy) = &args.policy {
        return given(args, policy);
    }
    if args.flags.is_given() {
        return Err(Failure::usage("--env, --horizon, --start, --discount and --normalise go with --policy"));
    }
    let dir = RunDir::open(&args.run).map_err(Failure::usage)?;
    let config = Config::of_run(&dir).map_err(Failure::usage)?;
    let levels = levels(args, &config)?;
    let seeds = match args.seed {
        Some(seed) if !config.run.seeds.contains(&seed) => {
            let message = format!("the run has no seed {seed}, it has {:?}", config.run.seeds);
            return Err(Failure::usage(message));
        }
        Some(seed) => vec![seed],
        None => config.run.seeds.clone(),
    };
    let task = problem::task(&config)?;
    let mut config = config;
    config.run.evaluation_episodes =
        args.episodes.map_or(config.run.evaluation_episodes, |episodes| episodes as usize);
    let episodes = config.run.evaluation_episodes;
    let references = Arc::new(References::new(&*task, levels.clone()));
    let exact = references.evaluator.is_some();
    let hooks = Hooks {
        stop: &AtomicBool::new(false),
        watch: &|_| {},
        warn: &|message| say(&format!("warning: {message}")),
        clock: &|| 0.0,
    };
    let objective = if args.beta.is_empty() { Objective::Quantile } else { Objective::Buffered };
    let best_buffered = match task.table() {
        Some(problem) if !args.beta.is_empty() => best_buffered(&levels, problem),
        _ => Vec::new(),
    };
    let evaluate = |seed: u64| {
        let restored = restore_seed(&config, task.clone(), references.clone(), seed, &dir.seed(seed), &hooks);
        let training = restored.map_err(|error| {
            Failure::usage(format!("{}: {error}", dir.path().display()))
                .hint(format!("this run writes a checkpoint every {}", config.run.checkpoint_every))
        })?;
        let measured = training.measure(&levels, objective).map_err(Failure::runtime)?;
        let level = |(index, &Reference { buffer, best_quantile }): (usize, &Reference)| {
            // One policy per level, or one for all.
            let measured = measured.get(index).unwrap_or(&measured[0]);
            Level {
                tau: buffer.tau(),
                beta: buffer.beta(),
                best_quantile,
                best_buffered_quantile: best_buffered.get(index).copied(),
                quantile: measured.law.quantile(buffer.tau()),
                buffered_quantile: measured.law.buffered_quantile(&buffer),
                mean: measured.mean,
                interval: measured.interval(buffer.tau()),
            }
        };
        let taus = references.levels.iter().enumerate().map(level).collect();
        let clock = training.progress.clock;
        Ok(OfSeed { seed, trained: clock.episodes, trained_steps: clock.steps, taus })
    };
    let evaluated: Vec<OfSeed> = seeds.into_iter().map(evaluate).collect::<Result<_, Failure>>()?;
    let report = Report {
        run: dir.path().display().to_string(),
        seed: evaluated[0].seed,
        exact,
        episodes: (!exact).then_some(episodes),
        taus: evaluated[0].taus.clone(),
        seeds: evaluated,
    };
    if args.json {
        return Ok(serde_json::to_string(&report).expect("plain numbers and text serialise") + "\n");
    }
    Ok(human(&report, &config))
}

/// The output of `--json` for a given policy.
#[derive(Serialize)]
struct OfPolicy<'a> {
    run: &'a str,
    policy: &'a str,
    exact: bool,
    episodes: Option<usize>,
    mean: f64,
    taus: Vec<Level>,
}

fn given(args: &EvalArgs, policy: &str) -> Result<String, Failure> {
    let taus = if args.tau.is_empty() { &[0.1, 0.5, 0.9][..] } else { &args.tau };
    let levels = buffers(taus, &args.beta)?;
    let name = args.run.to_string_lossy();
    let problem = problem::load(&args.flags.config(&name)?)?;
    let one_level = if let [tau] = taus { Some(*tau) } else { None };
    let valued = policies::value(&problem, policy, one_level)?;
    let level = |buffer: &Buffer| Level {
        tau: buffer.tau(),
        beta: buffer.beta(),
        best_quantile: None,
        best_buffered_quantile: None,
        quantile: valued.evaluation.law.quantile(buffer.tau()),
        buffered_quantile: valued.evaluation.law.buffered_quantile(buffer),
        mean: valued.evaluation.mean,
        interval: policies::interval(&problem, policy, one_level, buffer.tau()),
    };
    let taus: Vec<Level> = levels.iter().map(level).collect();
    if args.json {
        let (exact, mean) = (valued.exact, valued.evaluation.mean);
        let output = OfPolicy { run: &problem.name, policy, exact, episodes: None, mean, taus };
        return Ok(serde_json::to_string(&output).expect("plain numbers and text serialise") + "\n");
    }
    let estimated = problem.data.counts.is_some();
    let how = match (estimated, valued.exact) {
        (true, _) => "estimated from counts; the interval is a bootstrap, an indicator and no promise",
        (false, true) => "exact values",
        (false, false) => "lower bounds, rewards rounded down",
    };
    let mut out = format!("{policy} on {}, {how}\nmean {}\n\n", problem.name, number(valued.evaluation.mean));
    let mut head = vec!["τ", "Q_τ", "in words", "β", "Q_τ^β"];
    head.extend(estimated.then_some("90 % bootstrap"));
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for level in &taus {
        let words = format!("{} at least {}", often(level.tau), number(level.quantile));
        let mut row = vec![number(level.tau), number(level.quantile), words];
        row.extend([level.beta, level.buffered_quantile].map(number));
        if estimated {
            let text = |[low, high]: [f64; 2]| format!("{} … {}", number(low), number(high));
            row.push(level.interval.map_or("–".to_owned(), text));
        }
        rows.push(row);
    }
    out += &table(&rows);
    Ok(out)
}

fn levels(args: &EvalArgs, config: &Config) -> Result<Vec<Buffer>, Failure> {
    if args.tau.is_empty() && args.beta.is_empty() {
        return config.levels().map_err(Failure::usage);
    }
    let taus = if args.tau.is_empty() { &config.run.tau } else { &args.tau };
    buffers(taus, &args.beta)
}

/// τ with its buffer; β = τ if none is given.
fn buffers(taus: &[f64], betas: &[f64]) -> Result<Vec<Buffer>, Failure> {
    if betas.len() > 1 && betas.len() != taus.len() {
        let (betas, taus) = (betas.len(), taus.len());
        return Err(Failure::usage(format!(
            "--beta: want one width or one per level, got {betas} for {taus}"
        )));
    }
    let level = |(index, &tau): (usize, &f64)| {
        let tau = check_tau(tau)?;
        let beta = betas.get(index).or(betas.first()).copied().unwrap_or(tau);
        Buffer::new(tau, beta)
    };
    taus.iter().enumerate().map(level).collect::<Result<_, _>>().map_err(Failure::usage)
}

/// The best Q_τ^β of any policy, mixtures included; empty if the problem has too many returns.
fn best_buffered(levels: &[Buffer], problem: &Problem) -> Vec<f64> {
    let Ok(planner) = Planner::exact(&problem.model, &|_, _, _| {}) else { return Vec::new() };
    levels.iter().map(|&level| planner.buffered(level, PASSES).mixture_upper).collect()
}

fn human(report: &Report, config: &Config) -> String {
    let buffered = report.taus.iter().any(|level| level.best_buffered_quantile.is_some());
    let known = report.taus.iter().all(|level| level.best_quantile.is_some());
    let mut head = vec!["seed", "τ", "Q_τ"];
    head.extend(known.then_some(["best Q*_τ", "short of it"]).into_iter().flatten());
    head.extend(["β", "Q_τ^β"]);
    head.extend(buffered.then_some("best Q_τ^β"));
    head.push("mean");
    head.extend((!report.exact).then_some("95 % interval of Q_τ"));
    let mut rows = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
    for OfSeed { seed, taus, .. } in &report.seeds {
        for level in taus {
            let mut row = vec![seed.to_string(), number(level.tau), number(level.quantile)];
            if let Some(best) = level.best_quantile.filter(|_| known) {
                row.extend([best, (best - level.quantile).max(0.0)].map(number));
            }
            row.extend([level.beta, level.buffered_quantile].map(number));
            row.extend(level.best_buffered_quantile.map(number));
            row.push(number(level.mean));
            if !report.exact {
                let text = |[low, high]: [f64; 2]| format!("{} … {}", number(low), number(high));
                row.push(level.interval.map_or("too few episodes".to_owned(), text));
            }
            rows.push(row);
        }
    }
    let how = match report.episodes {
        None => "exact values".to_owned(),
        Some(n) if known => format!("{n} episodes played; the best quantile is a lower bound"),
        Some(n) => format!("{n} episodes played"),
    };
    format!(
        "{} on {} after {}, {how}\n\n{}",
        config.algo().name,
        config.problem.name,
        trained(report, config),
        table(&rows)
    )
}

/// How long the policies were trained; for an unfinished run, also its full length.
fn trained(report: &Report, config: &Config) -> String {
    let length = config.run.length();
    let done = |seed: &OfSeed| length.done(&Clock { episodes: seed.trained, steps: seed.trained_steps });
    let least = report.seeds.iter().map(done).min().unwrap_or(0);
    if least < length.amount() {
        format!("{least} of {} {} (the run is not finished)", length.amount(), length.unit())
    } else {
        format!("{least} {}", length.unit())
    }
}
