//! `bqrl plan`: the exact optimum at any risk level, its certificate, the policy, and figures.

use std::ffi::OsStr;
use std::fmt::Write;
use std::path::{Path, PathBuf};

use bqrl_lab::plan::{Answer, Certificate, DEFAULT_GRID, PlanError, Report, Request, Solved, solve};
use bqrl_lab::sheet::write_xlsx;
use bqrl_math::buffer::{Buffer, check_tau};
use bqrl_mdp::evaluate::Policy;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Planner;
use bqrl_mdp::plan::export::write_csv;
use bqrl_mdp::returns::TooManyReturns;
use bqrl_report::figure::Figure;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::interrupt::Writes;
use crate::outputs;
use crate::pictures;
use crate::problem::{self, ProblemFlags, key_value};
use crate::progress::{MOST_THREADS, pool};
use crate::terminal::say;
use crate::text::{self, number, often, table};

/// Flags of `bqrl plan`.
#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // Flags are.
pub struct PlanArgs {
    /// A built-in problem (`bqrl envs` lists them) or an MDP file: CSV with the columns idstatefrom, idaction, idstateto,
    /// probability, reward
    problem: String,
    #[command(flatten)]
    flags: ProblemFlags,
    /// Risk levels in (0, 1)
    #[arg(
        long,
        value_delimiter = ',',
        allow_negative_numbers = true,
        default_value = "0.1,0.5,0.9",
        value_name = "TAU,…"
    )]
    tau: Vec<f64>,
    /// Buffer widths in (0, tau], one for all levels or one per level. Adds the buffered optimum and the value of the
    /// paper's rule; policies and figures are then those of the buffered objective
    #[arg(long, value_delimiter = ',', allow_negative_numbers = true, value_name = "BETA,…")]
    beta: Vec<f64>,
    /// Round rewards so that the return has about this many values, and report lower and upper bounds
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
    grid: Option<u32>,
    /// At most this many passes per level to raise a policy's mean within its slack [default: 12, fewer on large problems]
    #[arg(long, allow_negative_numbers = true, value_name = "N")]
    refine: Option<usize>,
    /// At most this many passes per level to tighten the buffered certificate [default: 200, fewer on large problems]
    #[arg(long, allow_negative_numbers = true, value_name = "N", requires = "beta")]
    passes: Option<usize>,
    /// For a table with counts (`bqrl fit`): a policy whose percentile holds with this confidence, in (0, 1), beside the
    /// plain estimate; policies are then those of the promise
    #[arg(long, allow_negative_numbers = true, value_name = "C")]
    confidence: Option<f64>,
    /// Write the policies as CSV, or as a spreadsheet with a sheet per level: tau, stage, state, collected, action. A file that exists is
    /// replaced only if `bqrl plan` wrote it as CSV, or with --force
    #[arg(long, value_name = "FILE.csv|xlsx")]
    policy: Option<PathBuf>,
    /// Replace the files of --policy, --plot and --plot-law, whatever they are
    #[arg(long)]
    force: bool,
    /// Write the policies of --policy with ranges of the collected reward, and only where they can come
    #[arg(long, requires = "policy")]
    compact: bool,
    /// Plan again for each value of a parameter, `horizon` or one of --env, and compare
    #[arg(long, value_name = "KEY=V,V,…", value_parser = key_value, conflicts_with_all = ["policy", "plot", "plot_law", "confidence"])]
    vary: Option<(String, String)>,
    /// Draw the policies: periods × states, a panel per level
    #[arg(long, value_name = "FILE.svg|png")]
    plot: Option<PathBuf>,
    /// Draw the laws of the return, with the buffer window shaded
    #[arg(long, value_name = "FILE.svg|png")]
    plot_law: Option<PathBuf>,
    /// Number of threads; the results do not depend on it [default: all cores]
    #[arg(long, allow_negative_numbers = true, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_THREADS))]
    threads: Option<u16>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// No progress and no notes on standard error
    #[arg(long)]
    quiet: bool,
}

/// Plans, writes the requested files, and returns the text to print.
pub fn run(args: &PlanArgs) -> Result<String, Failure> {
    let levels = levels(args)?;
    for path in [&args.plot, &args.plot_law].into_iter().flatten() {
        check_figure_path(path)?;
    }
    check_outputs(args)?;
    if let Some((key, values)) = &args.vary {
        return pool(args.threads)?.install(|| vary(args, key, values, &levels));
    }
    let problem = problem::load(&args.flags.config(&args.problem)?)?;
    pool(args.threads)?.install(|| plan(args, &problem, &levels))
}

/// One value of a varied parameter.
#[derive(Serialize)]
struct Varied {
    value: String,
    #[serde(flatten)]
    report: Report,
}

/// Plans for every value of a parameter: what a percentile gains, and what it costs in the mean.
fn vary(
    args: &PlanArgs,
    key: &str,
    values: &str,
    levels: &[(f64, Option<Buffer>)],
) -> Result<String, Failure> {
    let mut plans = Vec::new();
    for value in values.split(',').map(str::trim) {
        let mut config = args.flags.config(&args.problem)?;
        if key == "horizon" {
            let horizon = value
                .parse()
                .map_err(|_| Failure::usage(format!("--vary horizon: want whole numbers, got {value:?}")))?;
            config.horizon = Some(horizon);
        } else {
            config.parameters.insert(key.to_owned(), value.to_owned());
        }
        let problem = problem::load(&config)?;
        let grid = args.grid.map(|grid| grid as usize);
        let (refine, passes) = (args.refine, args.passes);
        let request = Request { levels: levels.to_vec(), grid, refine, passes, confidence: None };
        let answer = solve(&problem, &request, &|_, _, _| {}, &|_| {})
            .map_err(|error| Failure::usage(format!("{key} = {value}: {error}")))?;
        plans.push(Varied { value: value.to_owned(), report: answer.report(&problem) });
    }
    if args.json {
        let json = serde_json::json!({ "problem": args.problem, "vary": key, "plans": plans });
        return Ok(json.to_string() + "\n");
    }
    let headings = [key, "τ", "best Q_τ", "Q_τ of the largest mean", "gained", "mean given up", "in words"];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for Varied { value, report } in &plans {
        for level in &report.taus {
            let best = level.best_quantile.or(level.best_quantile_lower).unwrap_or(f64::NAN);
            rows.push(vec![
                value.clone(),
                number(level.tau),
                number(best),
                number(level.risk_neutral_quantile),
                number(best - level.risk_neutral_quantile),
                number((report.max_mean - level.policy_mean).max(0.0)),
                format!("{} at least {}", often(level.tau), number(best)),
            ]);
        }
    }
    let estimated = plans.iter().any(|plan| plan.report.estimated);
    let how = if estimated { "; estimates from counts, no promises" } else { "" };
    Ok(format!("{}, {key} varied{how}\n\n{}", args.problem, table(&rows)))
}

/// τ with its buffer, checked.
fn levels(args: &PlanArgs) -> Result<Vec<(f64, Option<Buffer>)>, Failure> {
    if args.beta.len() > 1 && args.beta.len() != args.tau.len() {
        return Err(Failure::usage(format!(
            "--beta takes one value, or one per level: got {} for {} levels",
            args.beta.len(),
            args.tau.len()
        )));
    }
    let level = |(index, &tau): (usize, &f64)| {
        let tau = check_tau(tau).map_err(Failure::usage)?;
        let beta = args.beta.get(index).or(args.beta.first());
        let buffer = beta.map(|&beta| Buffer::new(tau, beta).map_err(Failure::usage)).transpose()?;
        Ok((tau, buffer))
    };
    args.tau.iter().enumerate().map(level).collect()
}

/// A figure has a format that we write.
pub fn check_figure_path(path: &Path) -> Result<(), Failure> {
    let extension = path.extension().map(OsStr::to_ascii_lowercase);
    if extension.is_some_and(|e| e == "svg" || e == "png") {
        return Ok(());
    }
    Err(Failure::usage(format!("a figure is written as .svg or .png, got {}", path.display())))
}

/// Refuses outputs that would overwrite the input or each other, and missing folders, before the work starts.
fn check_outputs(args: &PlanArgs) -> Result<(), Failure> {
    let place = |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).ok();
    let mut taken = vec![place(Path::new(&args.problem)).filter(|path| path.is_file())];
    for path in [&args.policy, &args.plot, &args.plot_law].into_iter().flatten() {
        outputs::check_folder(path)?;
        let target = place(path);
        let is_policy = Some(path) == args.policy.as_ref();
        let kind = if is_policy { outputs::Kind::Policies } else { outputs::Kind::Figure };
        outputs::check(path, args.force, kind)?;
        let special = target.as_ref().is_some_and(|path| path.exists() && !path.is_file());
        if !special && taken.contains(&target) {
            return Err(Failure::usage(format!(
                "{} would be overwritten: the command already reads or writes it",
                path.display()
            )));
        }
        taken.push(target);
    }
    Ok(())
}

fn plan(args: &PlanArgs, problem: &Problem, levels: &[(f64, Option<Buffer>)]) -> Result<String, Failure> {
    let bar = if args.quiet || args.json { ProgressBar::hidden() } else { ProgressBar::no_length() };
    bar.set_style(ProgressStyle::with_template("{spinner} {msg} · {elapsed}").expect("a valid template"));
    let progress = |pass: u64, stages: usize, horizon: usize| {
        bar.set_message(format!("planning: pass {pass}, stage {stages} of {horizon}"));
        bar.tick();
    };
    let note = |error: &TooManyReturns| {
        if !args.quiet {
            say(&format!(
                "note: {error}; rounding to {DEFAULT_GRID} values and reporting bounds (--grid changes the number)"
            ));
        }
    };
    let request = Request {
        levels: levels.to_vec(),
        grid: args.grid.map(|grid| grid as usize),
        refine: args.refine,
        passes: args.passes,
        confidence: args.confidence,
    };
    let answer = solve(problem, &request, &progress, &note).map_err(|error| {
        let hint = match (&error, args.grid) {
            (PlanError::TooManyReturns(_), None) => {
                format!("--grid {DEFAULT_GRID} rounds returns to that many values and reports bounds")
            }
            (PlanError::TooManyReturns(_), Some(_)) => "a smaller --grid needs less memory".to_owned(),
            (PlanError::NoCounts { .. }, _) => "`bqrl fit LOG.csv --out MODEL.csv` makes one".to_owned(),
            _ => return Failure::usage(error),
        };
        Failure::usage(error).hint(hint)
    })?;
    bar.finish_and_clear();

    let report = answer.report(problem);
    let Answer { planner, solved } = answer;
    write_files(args, problem, &planner, levels, &solved)?;
    if args.json {
        let json = serde_json::to_string(&report).expect("plain numbers and text serialise");
        return Ok(json + "\n");
    }
    if args.confidence.is_some() {
        return Ok(promises(&report));
    }
    Ok(human(&report, problem, &planner, &solved))
}

/// The plan for a confidence in words and in one table.
fn promises(report: &Report) -> String {
    let mut out = format!(
        "{}: {} states, {} actions, horizon {}; probabilities are estimates from counts\n\n",
        report.problem, report.states, report.actions, report.horizon
    );
    let promised = || report.taus.iter().filter_map(|level| Some((level, level.promise?)));
    for (level, promise) in promised() {
        let (tau, often) = (number(level.tau), often(level.tau));
        let confidence = number(100.0 * promise.confidence);
        if promise.supported {
            let _ = writeln!(
                out,
                "τ = {tau}: with {confidence} % confidence, {often} at least {} under the policy for it. Your data do not support more than this.",
                number(promise.certified_quantile)
            );
        } else {
            let _ = writeln!(
                out,
                "τ = {tau}: your data support no promise that holds {often}. Only the worst is sure: at least {} if no reward is smaller than those in the log. The policy for this level is that of the plain estimate, for want of a better one: nothing is promised about it.",
                number(promise.certified_quantile)
            );
        }
        let _ = writeln!(
            out,
            "         If the estimated probabilities were true, {often} the best policy would give at least {}: an estimate, no promise.",
            number(promise.estimated_quantile)
        );
    }
    let headings = [
        "τ",
        "promised Q_τ",
        "its P(R ≥ promise) is at least",
        "its estimated Q_τ",
        "bootstrap (indicator)",
        "its estimated mean",
        "best Q_τ, if the estimates were true",
    ];
    let mut rows = vec![headings.map(str::to_owned).to_vec()];
    for (level, promise) in promised() {
        let interval = |[low, high]: [f64; 2]| format!("{} … {}", number(low), number(high));
        rows.push(vec![
            number(level.tau),
            if promise.supported { number(promise.certified_quantile) } else { "none".to_owned() },
            if promise.supported { number(promise.certified_probability) } else { "–".to_owned() },
            number(promise.policy_estimate),
            promise.bootstrap_interval.map_or("–".to_owned(), interval),
            number(promise.policy_estimated_mean),
            number(promise.estimated_quantile),
        ]);
    }
    out += "\n";
    out += &table(&rows);
    for (level, promise) in promised() {
        if let (Some(buffered), Some(value)) = (&level.buffered, promise.certified_buffered) {
            let _ = writeln!(
                out,
                "  τ = {}, β = {}: the promised buffered quantile is {}, if no reward is smaller than those in the log; the estimate is {}",
                number(level.tau),
                number(buffered.beta),
                number(value),
                number(buffered.buffered_lower)
            );
        }
    }
    out += "\nHalf of the episodes chose the policy, the other half checked it. All levels hold together.\n";
    out
}

/// One line per level: the two inequalities that prove its best quantile.
fn certificates(report: &Report) -> String {
    let mut out = String::new();
    for level in &report.taus {
        let Certificate { least_probability_below, next_return, least_probability_below_next } =
            level.certificate;
        let value = level.best_quantile.or(level.best_quantile_lower).unwrap_or(f64::NAN);
        let _ = write!(
            out,
            "  τ = {}: some policy has P(R < {}) = {} < τ",
            number(level.tau),
            number(value),
            number(least_probability_below)
        );
        let _ = match (next_return, least_probability_below_next) {
            (Some(next), Some(p)) if report.exact => {
                writeln!(out, "; every policy has P(R < {}) ≥ {} ≥ τ", number(next), number(p))
            }
            (None, _) if report.exact => writeln!(out, "; no return is larger"),
            _ => writeln!(out, "; the upper bound holds for every policy"),
        };
    }
    out
}

fn human(report: &Report, problem: &Problem, planner: &Planner, solved: &[Solved]) -> String {
    let kind = match (report.estimated, report.exact) {
        (true, _) => "estimates from counts",
        (false, true) => "exact",
        (false, false) => "bounds, rewards rounded",
    };
    let mut out = format!(
        "{}: {} states, {} actions, horizon {}; {kind} over {} return values\nlargest mean {}\n\n",
        report.problem,
        report.states,
        report.actions,
        report.horizon,
        report.returns,
        number(report.max_mean)
    );
    let headings = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let mut rows =
        vec![headings(&["τ", "best quantile Q*_τ", "its P(R ≥ Q*_τ)", "its mean", "risk-neutral Q_τ"])];
    let mut words = String::new();
    let optional = |value: Option<f64>| value.map_or("–".to_owned(), number);
    for level in &report.taus {
        let best = match (level.best_quantile, level.best_quantile_lower, level.best_quantile_upper) {
            (None, Some(low), Some(high)) => format!("{} … {}", number(low), number(high)),
            (value, ..) => optional(value),
        };
        let least = level.best_quantile.or(level.best_quantile_lower).map_or("–".to_owned(), number);
        let _ = writeln!(
            words,
            "  {} you can have at least {least} (τ = {})",
            often(level.tau),
            number(level.tau)
        );
        rows.push(vec![
            number(level.tau),
            best,
            number(level.probability_at_least),
            number(level.policy_mean),
            number(level.risk_neutral_quantile),
        ]);
    }
    out += &table(&rows);
    let if_true = if report.estimated { ", if the estimated probabilities were true" } else { "" };
    let _ = writeln!(out, "\nIn words{if_true}");
    out += &words;

    if report.estimated {
        out += "  these are no promises: --confidence 0.95 makes one\n";
    }

    let _ = writeln!(out, "\nCertificate{if_true}");
    out += &certificates(report);

    if report.taus.iter().any(|level| level.buffered.is_some()) {
        out += "\nBuffered quantile: UB1 ≥ UB2 (best mixture) ≥ best deterministic ≥ LB (attained)\n";
        let mut rows = vec![headings(&[
            "τ",
            "β",
            "UB1",
            "UB2",
            "LB",
            "its Q_τ",
            "its mean",
            "mixture",
            "paper's rule: Q_τ^β",
            "Q_τ",
        ])];
        for (level, buffered) in
            report.taus.iter().filter_map(|level| Some((level, level.buffered.as_ref()?)))
        {
            rows.push(vec![
                number(level.tau),
                number(buffered.beta),
                number(buffered.buffered_upper),
                number(buffered.buffered_mixture),
                number(buffered.buffered_lower),
                number(buffered.buffered_policy_quantile),
                number(buffered.buffered_policy_mean),
                buffered
                    .mixture_weight
                    .map_or("none needed".into(), |w| format!("{} : {}", number(w), number(1.0 - w))),
                optional(buffered.paper_rule_buffered),
                optional(buffered.paper_rule_quantile),
            ]);
        }
        out += &table(&rows);
    }

    let mut too_large = false;
    for (level, solved) in report.taus.iter().zip(solved) {
        let (cells, at) = pictures::policy_cells(&planner.evaluator(), &solved.policy);
        match text::policy_map(&cells, &problem.states, &problem.actions) {
            Some(map) => {
                let _ = write!(out, "\nPolicy for τ = {} ({at})\n{map}", number(level.tau));
            }
            None => too_large = true,
        }
    }
    if too_large {
        out += "\nThe policies are too large for the screen: --policy FILE.csv writes them, --plot FILE.svg draws them.\n";
    }
    out
}

fn write_files(
    args: &PlanArgs,
    problem: &Problem,
    planner: &Planner,
    levels: &[(f64, Option<Buffer>)],
    solved: &[Solved],
) -> Result<(), Failure> {
    if [&args.policy, &args.plot, &args.plot_law].into_iter().all(Option::is_none) {
        return Ok(());
    }
    let evaluator = planner.evaluator();
    let writes = Writes::begin()?;
    let write = |path: &PathBuf, figure: Figure| {
        let bytes = figure.encode(path).map_err(Failure::runtime)?;
        writes.write(path, &bytes)
    };
    if let Some(path) = &args.policy {
        let policies: Vec<(f64, &dyn Policy)> =
            levels.iter().zip(solved).map(|(&(tau, _), solved)| (tau, &solved.policy as _)).collect();
        let sheet = path.extension().is_some_and(|e| e.eq_ignore_ascii_case("xlsx"));
        let write = if sheet { write_xlsx } else { write_csv };
        writes.write_with(path, |out| write(&evaluator, problem, &policies, args.compact, out))?;
    }
    if let Some(path) = &args.plot {
        let headed: Vec<(String, &dyn Policy)> =
            solved.iter().map(|solved| (pictures::heading(solved), &solved.policy as _)).collect();
        write(path, pictures::policies(problem, &evaluator, &headed))?;
    }
    if let Some(path) = &args.plot_law {
        write(path, pictures::laws(problem, planner.is_exact(), planner.mean_evaluation(), solved))?;
    }
    Ok(())
}
