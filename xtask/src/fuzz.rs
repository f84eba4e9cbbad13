//! `cargo xtask fuzz [TARGET …] [--executions N] [--seed S]`: the fuzz targets under libFuzzer, which follows the coverage.
//!
//! libFuzzer is built by the package in `fuzz/libfuzzer`, on the stable toolchain: the flags below are what cargo-fuzz
//! passes with `--sanitizer none`. Inputs that reach new code are kept in `target/fuzz/corpus`, and a second run goes on from
//! them. A crash, a hang, or an allocation that is too large stops its target and leaves the input in `target/fuzz`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::{root, run as run_command, target};

/// Coverage of edges, and the operands of comparisons, for every crate but build scripts.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";
/// Kilobytes of address space. libFuzzer itself, its corpus and the program need less than half of them, so an
/// allocation of 1 GiB fails. (`-malloc_limit_mb` has no effect without a sanitizer.)
const ADDRESS_SPACE: u32 = 3 << 19;
/// Executions per target unless told otherwise.
const EXECUTIONS: &str = "1000000";

pub(crate) fn run() -> Result<(), String> {
    let arguments: Vec<String> = std::env::args().skip(2).collect();
    let (mut chosen, mut executions, mut seed) = (Vec::new(), EXECUTIONS.to_owned(), "1".to_owned());
    let mut rest = arguments.into_iter();
    while let Some(word) = rest.next() {
        let mut value = || rest.next().ok_or(format!("{word} needs a number"));
        match word.as_str() {
            "--executions" => executions = value()?,
            "--seed" => seed = value()?,
            _ => chosen.push(word),
        }
    }
    let all = targets()?;
    if let Some(unknown) = chosen.iter().find(|name| !all.contains(*name)) {
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        return Err(format!("no target {unknown:?}, want one of {}", all.join(", ")));
    }
    let program = build()?;
    let mut failed = Vec::new();
    for name in if chosen.is_empty() { all.into_iter().collect() } else { chosen } {
        if !one(&program, &name, &executions, &seed)? {
            failed.push(name);
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("inputs were found by {}", failed.join(", "))) }
}

/// A target has a folder of seeds.
fn targets() -> Result<BTreeSet<String>, String> {
    let folder = root().join("fuzz/seeds");
    let entries = fs::read_dir(&folder).map_err(|error| format!("reading {}: {error}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect())
}

fn build() -> Result<String, String> {
    let version = Command::new("rustc").arg("-vV").output().map_err(|error| format!("rustc: {error}"))?;
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).ok_or("rustc names no host")?;
    let directory = target()?.join("libfuzzer");
    let manifest = root().join("fuzz/libfuzzer/Cargo.toml");
    // With a target the flags do not apply to build scripts and macros.
    run_command(
        Command::new("cargo")
            .args(["build", "--release", "--locked", "--target", host, "--manifest-path"])
            .arg(manifest)
            .env("CARGO_TARGET_DIR", &directory)
            .env("RUSTFLAGS", FLAGS),
    )?;
    Ok(directory.join(host).join("release/bqrl-libfuzzer").display().to_string())
}

/// One target; true if nothing was found.
fn one(program: &str, name: &str, executions: &str, seed: &str) -> Result<bool, String> {
    let kept = target()?.join("fuzz");
    let corpus = kept.join("corpus").join(name);
    let io = |error| format!("{}: {error}", kept.display());
    fs::create_dir_all(&corpus).map_err(io)?;
    let log = kept.join(format!("{name}.log"));
    let output = fs::File::create(&log).map_err(io)?;
    let limited = format!("ulimit -v {ADDRESS_SPACE} && exec \"$0\" \"$@\"");
    let status = Command::new("sh")
        .args(["-c", &limited, program])
        .args([format!("-runs={executions}"), format!("-seed={seed}")])
        .args(["-timeout=20", "-rss_limit_mb=1024", "-max_len=131072", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/{name}-", kept.display()))
        .arg(&corpus)
        .arg(root().join("fuzz/seeds").join(name))
        .env("BQRL_FUZZ_TARGET", name)
        .stdout(Stdio::null())
        .stderr(output)
        .status()
        .map_err(|error| format!("starting {program}: {error}"))?;
    println!("{name:<12} seed {seed}, {}", summary(&log));
    if !status.success() {
        println!("  failed, see {}; cargo run -p bqrl-fuzz -- replay {name} FILE", log.display());
    }
    Ok(status.success())
}

/// The last line of libFuzzer that counts executions and coverage.
fn summary(log: &Path) -> String {
    let text = fs::read(log).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let last = text.lines().rev().find(|line| line.starts_with('#') && line.contains("cov:"));
    last.unwrap_or("no execution").to_owned()
}
