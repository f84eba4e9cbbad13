//! `cargo run -p bqrl-fuzz -- run | replay | seeds | list`: see README.md.

#![allow(clippy::print_stdout, clippy::print_stderr)] // It prints what it found.

use std::path::Path;
use std::process::ExitCode;

use bqrl_fuzz::engine::{self, Plan};
use bqrl_fuzz::targets::CANARY;
use bqrl_fuzz::{TARGETS, Target, seeds};

/// Executions per target unless told otherwise.
const EXECUTIONS: u64 = 10_000;
const USAGE: &str = "usage: bqrl-fuzz run [TARGET …] [--executions N] [--seed S]   mutations of the seeds
       bqrl-fuzz replay TARGET FILE …                         inputs from files
       bqrl-fuzz seeds                                        writes the seeds that real runs give
       bqrl-fuzz list                                         the targets";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(code) => code,
        Err(message) => {
            eprintln!("bqrl-fuzz: {message}");
            ExitCode::from(2)
        }
    }
}

fn command(arguments: &[String]) -> Result<ExitCode, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["list"] => {
            for Target { name, about, .. } in TARGETS {
                println!("{name:<12} {about}");
            }
            Ok(ExitCode::SUCCESS)
        }
        ["seeds"] => seeds::write().map(|()| ExitCode::SUCCESS).map_err(|error| error.to_string()),
        ["run", ref rest @ ..] => run(rest),
        ["replay", name, ref files @ ..] => {
            let target = named(name)?;
            for file in files {
                let bytes = std::fs::read(file).map_err(|error| format!("reading {file}: {error}"))?;
                let accepted = (target.run)(&target.decode(&bytes));
                println!("{file}: {}", if accepted { "accepted" } else { "refused" });
            }
            Ok(ExitCode::SUCCESS)
        }
        // One process of `run`.
        ["child", name, seed, from, to, note] => {
            let plan = Plan { seed: number(seed)?, from: number(from)?, to: number(to)? };
            let code =
                engine::child(named(name)?, plan, Path::new(note)).map_err(|error| error.to_string())?;
            Ok(ExitCode::from(code as u8))
        }
        _ => Err(USAGE.to_owned()),
    }
}

fn run(mut words: &[&str]) -> Result<ExitCode, String> {
    let (mut targets, mut plan) = (Vec::new(), Plan { seed: 1, from: 0, to: EXECUTIONS });
    loop {
        match words {
            ["--executions", n, rest @ ..] => (plan.to, words) = (number(n)?, rest),
            ["--seed", n, rest @ ..] => (plan.seed, words) = (number(n)?, rest),
            [name, rest @ ..] => {
                targets.push(named(name)?);
                words = rest;
            }
            [] => break,
        }
    }
    if targets.is_empty() {
        targets = TARGETS.iter().collect();
    }
    let mut clean = true;
    for target in targets {
        clean &= engine::run(target, plan).map_err(|error| format!("{}: {error}", target.name))?;
    }
    Ok(if clean { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn named(name: &str) -> Result<&'static Target, String> {
    TARGETS.iter().chain([&CANARY]).find(|target| target.name == name).ok_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        format!("no target {name:?}, want one of {}", names.join(", "))
    })
}

fn number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("want a whole number, got {text:?}"))
}
