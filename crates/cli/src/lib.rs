//! The `bqrl` command. Data goes to standard output, everything else to standard error.
//!
//! Exit codes: 0 done, 2 the caller's mistake, 1 failure at run time, 130 interrupted, with nothing half written.

mod bench;
mod compare;
mod envs;
mod eval;
mod explain;
mod failure;
mod fit;
mod games;
mod interrupt;
pub mod outputs;
mod picture;
pub mod pictures;
mod plan;
mod play;
mod policies;
mod problem;
mod progress;
mod promises;
mod report;
mod reproduce;
mod scores;
mod serve;
mod slurm;
mod studies;
mod sweep;
pub mod terminal;
mod text;
mod train;
mod tune;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::{ContextKind, ErrorKind as ClapKind};
use clap::{CommandFactory, Parser, Subcommand};

use crate::failure::Failure;
use crate::terminal::print;

/// Act well at a chosen percentile of outcomes, not on average.
#[derive(Parser)]
#[command(name = "bqrl", version, propagate_version = true, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Compute the exact optimum of a problem at any risk level, with a certificate and the policy
    Plan(plan::PlanArgs),
    /// Learn a policy and measure it against the exact optimum
    Train(train::TrainArgs),
    /// Choose an algorithm's dominant setting by successive halving on validation seeds
    Tune(tune::TuneArgs),
    /// Run every combination of listed settings for every seed: on the local cores, in shards, or on Slurm
    Sweep(sweep::SweepArgs),
    /// Repeat the paper's experiments: its figures, its numbers compared with ours, and further studies
    Reproduce(reproduce::ReproduceArgs),
    /// Evaluate a trained policy, or a policy or rule of your own, at any risk level
    Eval(eval::EvalArgs),
    /// Make a table with counts from logged episodes, and say what is missing
    Fit(fit::FitArgs),
    /// Put your own policy beside the largest mean and the best percentiles
    Compare(compare::CompareArgs),
    /// Say what each action is worth at one point: its chance to reach the target, and the expected total
    Explain(explain::ExplainArgs),
    /// Write figures and one self-contained HTML page about runs, finished or not
    Report(report::ReportArgs),
    /// Show runs while they learn, and the risk dial, on a page of this machine
    Serve(serve::ServeArgs),
    /// Watch a game: random play, or a trained run; in the terminal, as a GIF or as a PNG
    Play(play::PlayArgs),
    /// Measure the speed of the training step, or of the games, on this machine
    Bench(bench::BenchArgs),
    /// List the built-in problems and games and their parameters
    Envs(envs::EnvsArgs),
}

/// Runs the command with its arguments, the program's name first, and returns the exit code.
///
/// The `bqrl` program is this function, and so is the command that the Python package installs.
pub fn run(arguments: &[OsString]) -> u8 {
    let verb = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli.verb,
        Err(error) => return parse_failure(&error, arguments),
    };
    let result = match verb {
        Verb::Plan(args) => plan::run(&args),
        Verb::Envs(args) => envs::run(&args),
        Verb::Train(args) => train::run(&args),
        Verb::Tune(args) => tune::run(&args),
        Verb::Sweep(args) => sweep::run(&args, &program(arguments)),
        Verb::Reproduce(args) => reproduce::run(&args),
        Verb::Eval(args) => eval::run(&args),
        Verb::Fit(args) => fit::run(&args),
        Verb::Compare(args) => compare::run(&args),
        Verb::Explain(args) => explain::run(&args),
        Verb::Report(args) => report::run(&args),
        Verb::Serve(args) => serve::run(&args),
        Verb::Play(args) => play::run(&args),
        Verb::Bench(args) => bench::run(&args),
    };
    finish(result.and_then(|output| print(&output)))
}

/// The program to run again in a job: this executable, or the script that called it from Python.
fn program(arguments: &[OsString]) -> PathBuf {
    let script = || arguments.first().map(PathBuf::from).unwrap_or_default();
    let own = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "bqrl");
    std::env::current_exe().ok().filter(own).unwrap_or_else(script)
}

fn finish(result: Result<(), Failure>) -> u8 {
    match result {
        Ok(()) => 0,
        Err(failure) => {
            failure.report();
            failure.code
        }
    }
}

/// Clap's message in this program's form: one `error:` line, one `hint:` line. Help and version are not errors.
fn parse_failure(error: &clap::Error, arguments: &[OsString]) -> u8 {
    if matches!(error.kind(), ClapKind::DisplayHelp | ClapKind::DisplayVersion) {
        return finish(print(&error.render().to_string()));
    }
    if error.kind() == ClapKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return 2;
    }
    let rendered = error.to_string();
    // The message ends at the first blank line. Tips and a usage line follow.
    let message = rendered.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ");
    let suggestion =
        [ContextKind::SuggestedArg, ContextKind::SuggestedSubcommand, ContextKind::SuggestedValue]
            .iter()
            .find_map(|&kind| error.get(kind))
            .map(|value| format!("did you mean {value}?"));
    let verb = arguments.get(1).filter(|arg| Cli::command().find_subcommand(arg).is_some());
    let help = verb.map_or("bqrl --help".to_owned(), |verb| format!("bqrl {} --help", verb.display()));
    let hint = suggestion.unwrap_or_else(|| format!("`{help}` lists what is allowed"));
    let failure = Failure::usage(message).hint(hint);
    failure.report();
    failure.code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_all_verbs_are_consistent() {
        Cli::command().debug_assert();
    }
}
