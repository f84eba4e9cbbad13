//! The `bqrl` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    ExitCode::from(bqrl_cli::run(&arguments))
}
