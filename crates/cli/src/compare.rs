//! `bqrl compare`: a given policy beside the largest mean and the best percentiles.

use std::fmt::Write as _;
use std::path::PathBuf;

use bqrl_lab::compare::{Comparison, compare};
use bqrl_lab::plan::PlanError;
use bqrl_math::buffer::check_tau;

use crate::failure::Failure;
use crate::interrupt::Writes;
use crate::outputs;
use crate::pictures;
use crate::plan::check_figure_path;
use crate::policies;
use crate::problem::{self, ProblemFlags};
use crate::text::{number, often, table};

/// Flags of `bqrl compare`.
#[derive(clap::Args)]
pub struct CompareArgs {
    /// A built-in problem or an MDP file
    problem: String,
    #[command(flatten)]
    flags: ProblemFlags,
    /// Your policy: a CSV file with the columns stage, state, collected, action, or a rule such as
    /// "if state >= 19 then stop else continue", "up to 5", or the name of an action
    #[arg(long, value_name = "FILE.csv|RULE")]
    policy: String,
    /// Risk levels in (0, 1)
    #[arg(
        long,
        value_delimiter = ',',
        allow_negative_numbers = true,
        default_value = "0.1,0.5",
        value_name = "TAU,…"
    )]
    tau: Vec<f64>,
    /// Draw the laws of the return
    #[arg(long, value_name = "FILE.svg|png")]
    plot: Option<PathBuf>,
    /// Replace the file of --plot, whatever it is
    #[arg(long)]
    force: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Compares, and returns the text to print.
pub fn run(args: &CompareArgs) -> Result<String, Failure> {
    for &tau in &args.tau {
        check_tau(tau).map_err(Failure::usage)?;
    }
    if let Some(path) = &args.plot {
        check_figure_path(path)?;
        outputs::check_folder(path)?;
        outputs::check(path, args.force, outputs::Kind::Figure)?;
    }
    let problem = problem::load(&args.flags.config(&args.problem)?)?;
    let one_level = if let [tau] = args.tau[..] { Some(tau) } else { None };
    let yours = policies::value(&problem, &args.policy, one_level)?;
    let report =
        compare(&problem, &yours, &args.tau, &|_, _, _| {}, &|_| {}).map_err(|error: PlanError| {
            Failure::usage(error).hint("`bqrl plan --grid N` plans with rounded rewards")
        })?;
    if let Some(path) = &args.plot {
        let bytes = pictures::comparison(&report, &args.policy).encode(path).map_err(Failure::runtime)?;
        Writes::begin()?.write(path, &bytes)?;
    }
    if args.json {
        return Ok(serde_json::to_string(&report).expect("plain numbers and text serialise") + "\n");
    }
    Ok(human(args, &report))
}

fn human(args: &CompareArgs, report: &Comparison) -> String {
    let how = match (report.estimated, report.exact) {
        (true, _) => "estimates from counts, no promises (`bqrl plan --confidence` makes one)",
        (false, true) => "exact values",
        (false, false) => "lower bounds, rewards rounded down",
    };
    let mut out = format!("{}, {how}; \"your rule\" is {}\n\n", report.problem, args.policy);
    let mut rows = vec![vec!["policy".to_owned(), "mean".to_owned()]];
    rows[0].extend(args.tau.iter().map(|&tau| format!("Q_τ, τ = {} ({})", number(tau), often(tau))));
    for row in &report.policies {
        let name = match (row.policy, row.tau) {
            ("yours", _) => "your rule".to_owned(),
            (_, None) => "largest mean".to_owned(),
            (_, Some(tau)) => format!("best at τ = {}", number(tau)),
        };
        let mut cells = vec![name, number(row.mean)];
        cells.extend(row.quantiles.iter().map(|q| number(q.quantile)));
        rows.push(cells);
    }
    out += &table(&rows);
    out += "\n";
    let (yours, neutral) = (&report.policies[0], &report.policies[1]);
    for (place, row) in report.policies[2..].iter().enumerate() {
        let tau = args.tau[place];
        let gained = row.quantiles[place].quantile - yours.quantiles[place].quantile;
        let _ = writeln!(
            out,
            "{} at least {} instead of {} under your rule ({}{}); this costs {} of the largest mean.",
            capital(&often(tau)),
            number(row.quantiles[place].quantile),
            number(yours.quantiles[place].quantile),
            if gained >= 0.0 { "+" } else { "" },
            number(gained),
            number((neutral.mean - row.mean).max(0.0))
        );
    }
    out
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
