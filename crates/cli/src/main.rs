//! The `bqrl` command. Data goes to standard output, everything else to standard error.
//!
//! Exit codes: 0 done, 2 the caller's mistake, 1 failure at run time, 130 interrupted, with nothing half written.

mod bench;
mod envs;
mod eval;
mod failure;
mod interrupt;
mod plan;
mod problem;
mod progress;
mod report;
mod reproduce;
mod slurm;
mod studies;
mod sweep;
mod text;
mod train;
mod tune;

use std::io::{ErrorKind, Write};
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind as ClapKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;

/// Act well at a chosen percentile of outcomes, not on average.
#[derive(Parser)]
#[command(name = "bqrl", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// The exact optimum of a problem at any risk level, with a certificate and the policy
    Plan(plan::PlanArgs),
    /// Learn a policy and measure it against the exact optimum
    Train(train::TrainArgs),
    /// Choose an algorithm's dominant setting by successive halving on validation seeds
    Tune(tune::TuneArgs),
    /// Every combination of listed settings, for every seed: on these cores, in shards, or on Slurm
    Sweep(sweep::SweepArgs),
    /// The paper's experiments: its figures, its numbers beside ours, and the studies that it leaves open
    Reproduce(reproduce::ReproduceArgs),
    /// What a trained policy is worth, at any risk level
    Eval(eval::EvalArgs),
    /// Figures and one self-contained HTML page about finished runs
    Report(report::ReportArgs),
    /// How fast the training step is on this machine
    Bench(bench::BenchArgs),
    /// The built-in problems with their parameters
    Envs(envs::EnvsArgs),
}

fn main() -> ExitCode {
    let verb = match Cli::try_parse() {
        Ok(cli) => cli.verb,
        Err(error) => return parse_failure(&error),
    };
    let result = match verb {
        Verb::Plan(args) => plan::run(&args),
        Verb::Envs(args) => envs::run(&args),
        Verb::Train(args) => train::run(&args),
        Verb::Tune(args) => tune::run(&args),
        Verb::Sweep(args) => sweep::run(&args),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Eval(args) => eval::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Bench(args) => bench::run(&args),
    };
    finish(result.and_then(|output| print(&output)))
}

fn finish(result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            failure.report();
            ExitCode::from(failure.code)
        }
    }
}

/// A reader that has seen enough (`| head`) is no error.
fn print(output: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(output.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("writing to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Clap's message in this program's form: one `error:` line, one `hint:` line. Help and version are no errors.
fn parse_failure(error: &clap::Error) -> ExitCode {
    if matches!(error.kind(), ClapKind::DisplayHelp | ClapKind::DisplayVersion) {
        return finish(print(&error.render().to_string()));
    }
    if error.kind() == ClapKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return error.print().map_or(ExitCode::FAILURE, |()| ExitCode::from(2));
    }
    let rendered = error.to_string();
    // Up to the first blank line: what is wrong. After it come tips and a usage line.
    let message = rendered.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let suggestion =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .iter()
            .find_map(|&kind| error.get(kind))
            .map(|value| format!("did you mean {value}?"));
    let verb = std::env::args().nth(1).filter(|arg| Cli::command().find_subcommand(arg).is_some());
    let help = verb.map_or("bqrl --help".to_owned(), |verb| format!("bqrl {verb} --help"));
    let hint = suggestion.unwrap_or_else(|| format!("`{help}` lists what is allowed"));
    let failure = Failure::usage(message).hint(hint);
    failure.report();
    ExitCode::from(failure.code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_all_verbs_are_consistent() {
        Cli::command().debug_assert();
    }
}
