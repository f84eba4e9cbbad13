//! The project's own tasks.
//!
//! `cargo xtask test` runs everything that is tested, in the order in which failures are cheapest to find; it is what
//! CI runs. `cargo xtask bench` runs the benchmarks. `cargo xtask bench-peers` measures our training step beside the same
//! mathematics in PyTorch and JAX, and whole runs beside Stable-Baselines3; it downloads several gigabytes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Licences that MIT OR Apache-2.0 code may be built with and shipped.
const LICENCES: [&str; 12] = [
    "MIT",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "ISC",
    "Zlib",
    "Unlicense",
    "CC0-1.0",
    "Unicode-3.0",
    "BSL-1.0",
    "0BSD",
];

/// Which of our crates each may use: every crate only those to its left in the house.
const MAY_USE: [(&str, &[&str]); 9] = [
    ("bqrl-math", &[]),
    ("bqrl-mdp", &["bqrl-math"]),
    ("bqrl-nn", &["bqrl-math"]),
    ("bqrl-agents", &["bqrl-math", "bqrl-mdp", "bqrl-nn"]),
    ("bqrl-runs", &[]),
    ("bqrl-lab", &["bqrl-math", "bqrl-mdp", "bqrl-nn", "bqrl-agents", "bqrl-runs"]),
    ("bqrl-report", &["bqrl-math", "bqrl-runs"]),
    ("bqrl-cli", &["bqrl-math", "bqrl-mdp", "bqrl-nn", "bqrl-lab", "bqrl-report", "bqrl-runs"]),
    ("xtask", &[]),
];

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let result = match task.as_str() {
        "test" => test(),
        "bench" => cargo(&["bench", "--package", "bqrl-mdp", "--bench", "plan"])
            .and_then(|()| cargo(&["bench", "--package", "bqrl-nn", "--bench", "train_step"])),
        "bench-peers" => bench_peers(),
        _ => Err("usage: cargo xtask test | bench | bench-peers [--shapes s,m,l,x] [--rounds N]".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask {task}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn test() -> Result<(), String> {
    cargo(&["fmt", "--all", "--check"])?;
    check_house()?;
    cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "--deny", "warnings"])?;
    // Doc tests included; the command line tests run the binary itself.
    cargo(&["test", "--workspace", "--locked"])?;
    cargo(&["doc", "--workspace", "--no-deps", "--locked", "--document-private-items"])?;
    println!("everything passed");
    Ok(())
}

/// Both sides in one run; whatever follows the task's name goes to the script.
fn bench_peers() -> Result<(), String> {
    let target =
        PathBuf::from(metadata()?["target_directory"].as_str().expect("cargo has a target directory"));
    let environment = target.join("peers");
    let python = environment.join("bin/python");
    if !python.exists() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&environment))?;
    }
    let packages = ["torch", "jax", "numpy", "safetensors", "gymnasium", "stable-baselines3", "sb3-contrib"];
    run(Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages))?;
    cargo(&["build", "--release", "--locked", "--package", "bqrl-cli"])?;
    cargo(&["build", "--release", "--locked", "--package", "bqrl-nn", "--examples"])?;
    let script = root().join("xtask/peers/bench_peers.py");
    run(Command::new(&python).arg(script).arg(target.join("release")).args(std::env::args().skip(2)))
}

fn run(command: &mut Command) -> Result<(), String> {
    let status = command.status().map_err(|error| format!("starting {command:?}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{command:?} failed")) }
}

fn cargo(arguments: &[&str]) -> Result<(), String> {
    println!("\n$ cargo {}", arguments.join(" "));
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Private items are documented too, so links to them lead somewhere.
    let rustdoc = "--deny warnings --allow rustdoc::private-intra-doc-links";
    command.args(arguments).current_dir(root()).env("RUSTDOCFLAGS", rustdoc);
    let status = command.status().map_err(|error| format!("starting cargo: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("cargo {} failed", arguments.join(" "))) }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}

/// What cargo knows about the workspace and everything that it is built with.
fn metadata() -> Result<serde_json::Value, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(root())
        .output()
        .map_err(|error| format!("starting cargo metadata: {error}"))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The rules of the house that a compiler does not know: who may use whom, which licences may come in, and that the map
/// in ARCHITECTURE.md names exactly the crates that exist.
fn check_house() -> Result<(), String> {
    let metadata = metadata()?;
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md"))
        .map_err(|error| format!("reading ARCHITECTURE.md: {error}"))?;
    let mut ours = BTreeSet::new();
    let mut complaints = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let licence = package["license"].as_str().unwrap_or("none");
        if !is_allowed(licence) {
            complaints.push(format!("{name} has the licence {licence}"));
        }
        if !package["source"].is_null() {
            continue;
        }
        ours.insert(name);
        if name != "xtask" && !map.contains(&format!("`{name}`")) {
            complaints.push(format!("ARCHITECTURE.md does not name {name}"));
        }
        let Some((_, allowed)) = MAY_USE.iter().find(|(crate_name, _)| *crate_name == name) else {
            complaints.push(format!("{name} has no line in xtask's MAY_USE"));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let used = dependency["name"].as_str().unwrap_or_default();
            if used.starts_with("bqrl-") && !allowed.contains(&used) {
                complaints.push(format!("{name} may not use {used}"));
            }
        }
    }
    for (name, _) in MAY_USE {
        if !ours.contains(name) {
            complaints.push(format!("MAY_USE names {name}, which does not exist"));
        }
    }
    if complaints.is_empty() { Ok(()) } else { Err(complaints.join("\n")) }
}

/// An SPDX expression is fine when one side of every OR is, and both sides of every AND are. `/` is an old way to write
/// OR.
fn is_allowed(expression: &str) -> bool {
    let plain = expression.replace(['(', ')'], "").replace('/', " OR ");
    plain.split(" AND ").all(|part| part.split(" OR ").any(|licence| LICENCES.contains(&licence.trim())))
}

#[cfg(test)]
mod tests {
    use super::is_allowed;

    #[test]
    fn licence_expressions_are_read() {
        assert!(is_allowed("MIT OR Apache-2.0"));
        assert!(is_allowed("Unlicense/MIT"));
        assert!(is_allowed("(MIT OR GPL-3.0) AND Unicode-3.0"));
        assert!(!is_allowed("GPL-2.0-only"));
        assert!(!is_allowed("MIT AND GPL-2.0-only"));
        assert!(!is_allowed("none"));
    }
}
