//! The `bqrl` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(bqrl_cli::run(std::env::args_os().collect()))
}
