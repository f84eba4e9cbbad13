//! The project's own tasks.
//!
//! `cargo xtask test` runs everything that is tested, in the order in which failures are cheapest to find; it is what
//! CI runs. `cargo xtask test-python` is its Python part alone, `cargo xtask test-web` its part in a browser.
//! `cargo xtask test-clients` tries the Python package with PyTorch, Stable-Baselines3, Ray and others, and a sweep on
//! Slurm where it is installed; it downloads several gigabytes.
//! `cargo xtask bench` runs the benchmarks. `cargo xtask bench-peers` measures our training step beside the same
//! mathematics in PyTorch and JAX, and whole runs beside Stable-Baselines3; it downloads several gigabytes.
//! `cargo xtask survive` kills runs at random instants and compares what becomes of them with runs that were left alone.
//! `cargo xtask house` checks the rules of the house alone. `cargo xtask package` makes the packages of all crates that are
//! published. `cargo xtask deny` runs cargo-deny, which also looks for known vulnerabilities; nothing else here needs it.
//! `cargo xtask fuzz` feeds hostile files to every reader for as long as it is told, guided by coverage; it needs a C++
//! compiler. The short form, without one, is part of `cargo xtask test`.

#![allow(clippy::print_stdout, clippy::print_stderr)] // It prints what it found.

mod fuzz;
#[cfg(unix)]
mod survive;
mod web;

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
const MAY_USE: [(&str, &[&str]); 13] = [
    ("bqrl-math", &[]),
    ("bqrl-mdp", &["bqrl-math"]),
    ("bqrl-games", &["bqrl-math", "bqrl-mdp"]),
    ("bqrl-nn", &["bqrl-math"]),
    ("bqrl-agents", &["bqrl-math", "bqrl-mdp", "bqrl-nn"]),
    ("bqrl-runs", &[]),
    ("bqrl-lab", &["bqrl-math", "bqrl-mdp", "bqrl-games", "bqrl-nn", "bqrl-agents", "bqrl-runs"]),
    ("bqrl-report", &["bqrl-math", "bqrl-runs"]),
    (
        "bqrl-web",
        &["bqrl-math", "bqrl-mdp", "bqrl-games", "bqrl-agents", "bqrl-lab", "bqrl-report", "bqrl-runs"],
    ),
    (
        "bqrl-cli",
        &[
            "bqrl-math",
            "bqrl-mdp",
            "bqrl-games",
            "bqrl-nn",
            "bqrl-lab",
            "bqrl-report",
            "bqrl-runs",
            "bqrl-web",
        ],
    ),
    (
        "bqrl-py",
        &[
            "bqrl-cli",
            "bqrl-math",
            "bqrl-mdp",
            "bqrl-games",
            "bqrl-nn",
            "bqrl-agents",
            "bqrl-lab",
            "bqrl-report",
            "bqrl-runs",
            "bqrl-web",
        ],
    ),
    (
        "bqrl-fuzz",
        &["bqrl-math", "bqrl-mdp", "bqrl-nn", "bqrl-agents", "bqrl-lab", "bqrl-report", "bqrl-runs"],
    ),
    ("xtask", &[]),
];

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let result = match task.as_str() {
        "test" => test(),
        "test-python" => test_python(),
        "test-clients" => test_clients(),
        "test-web" => web::test(false),
        "bench" => cargo(&["bench", "--package", "bqrl-mdp", "--bench", "plan"])
            .and_then(|()| cargo(&["bench", "--package", "bqrl-nn", "--bench", "train_step"]))
            .and_then(|()| cargo(&["bench", "--package", "bqrl-agents", "--bench", "replay"])),
        "bench-peers" => bench_peers(),
        "house" => check_house(),
        "package" => package(),
        "survive" => survive(&std::env::args().skip(2).collect::<Vec<_>>()),
        "deny" => deny(),
        "fuzz" => fuzz::run(),
        _ => Err("usage: cargo xtask test | test-python | test-web | test-clients | bench | bench-peers [--shapes s,m,l,x,g,h] [--rounds N] [--only-steps] | \
                  survive [--kills N] [--seed S] [--only SCENARIO] [--in DIR] [--short] [--keep] [--list] | \
                  fuzz [TARGET …] [--executions N] [--seed S] | house | package | deny"
            .to_owned()),
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
    survive(&["--short".to_owned()])?;
    test_python()?;
    web::test(true)?;
    println!("everything passed");
    Ok(())
}

/// Interrupts, resumes, compares; with signals, so on Unix only.
fn survive(arguments: &[String]) -> Result<(), String> {
    #[cfg(unix)]
    return survive::run(arguments);
    #[cfg(not(unix))]
    {
        println!("survive {}: skipped, there are no signals on this system", arguments.join(" "));
        Ok(())
    }
}

/// The package as a user installs it, in a fresh virtual environment: types, stubs, tests, the tutorial.
fn test_python() -> Result<(), String> {
    let python = virtual_environment("python-test", true)?;
    // Built like the tests of the crates, which share most of the work.
    cargo(&["build", "--locked", "--package", "bqrl-cli"])?;
    install(&python, &[".[test]", "tensorboard", "optuna"], &["--config-settings=build-args=--profile=dev"])?;
    let large = [
        "--ignore=clients/test_envpool.py",
        "--ignore=clients/test_joblib.py",
        "--ignore=clients/test_minari.py",
        "--ignore=clients/test_minatar.py",
        "--ignore=clients/test_ray.py",
        "--ignore=clients/test_rliable.py",
        "--ignore=clients/test_sb3.py",
        "--ignore=clients/test_slurm.py",
        "--ignore=clients/test_torch.py",
    ];
    pytest(&python, &large)?;
    run(Command::new(&python).args(["-m", "mypy", "python/bqrl"]).current_dir(root()))?;
    run(Command::new(&python).args(["-m", "mypy.stubtest", "bqrl"]).current_dir(root()))
}

/// Everything that needs large installations, in an environment that is kept.
fn test_clients() -> Result<(), String> {
    let python = virtual_environment("python-clients", false)?;
    cargo(&["build", "--locked", "--package", "bqrl-cli"])?;
    let clients = [
        "torch",
        "stable-baselines3",
        "sb3-contrib",
        "safetensors",
        "rliable",
        "tensorboard",
        "optuna",
        "MinAtar",
        "envpool",
        "minari[hdf5,create]",
        "cloudpickle",
        "joblib",
    ];
    install(&python, &clients, &[])?;
    install(&python, &[".[test]"], &["--force-reinstall", "--no-deps"])?;
    install(&python, &[".[test,ray]"], &[])?;
    // Skipped tests say why: Slurm is not everywhere.
    pytest(&python, &["-rs"])
}

/// The interpreter of a virtual environment in the target directory, made anew if it is not there or not to be kept.
fn virtual_environment(name: &str, fresh: bool) -> Result<PathBuf, String> {
    let directory = target()?.join(name);
    let python = directory.join(if cfg!(windows) { "Scripts/python.exe" } else { "bin/python" });
    if fresh || !python.exists() {
        let base = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
        run(Command::new(&base).args(["-m", "venv", "--clear"]).arg(&directory)).map_err(|error| {
            format!(
                "{error}; the Python package is tested with Python 3.10 or later and its venv module \
                 (Debian and Ubuntu: apt-get install python3-venv); PYTHON names another interpreter"
            )
        })?;
    }
    Ok(python)
}

fn install(python: &Path, what: &[&str], how: &[&str]) -> Result<(), String> {
    println!("\n$ pip install {}", what.join(" "));
    let constraints = root().join("python/tests/constraints.txt");
    let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--constraint"];
    let mut command = Command::new(python);
    command.args(pip).arg(constraints).args(how).args(what).current_dir(root());
    // Cargo's own variables describe xtask, not what is built here.
    run(command.env("CARGO_TARGET_DIR", target()?).env_remove("CARGO_MANIFEST_DIR"))
}

fn pytest(python: &Path, how: &[&str]) -> Result<(), String> {
    println!("\n$ python -m pytest {}", how.join(" "));
    let binary = target()?.join("debug").join(format!("bqrl{}", std::env::consts::EXE_SUFFIX));
    // Not from the root: there, `python/bqrl` could hide what was installed.
    let mut command = Command::new(python);
    command.args([
        "-m",
        "pytest",
        "-q",
        "-c",
        "../../pyproject.toml",
        "--rootdir=../..",
        "-p",
        "no:cacheprovider",
        ".",
    ]);
    run(command.args(how).current_dir(root().join("python/tests")).env("BQRL_BIN", binary))
}

fn target() -> Result<PathBuf, String> {
    Ok(PathBuf::from(metadata()?["target_directory"].as_str().expect("cargo has a target directory")))
}

/// Both sides in one run; whatever follows the task's name goes to the script.
fn bench_peers() -> Result<(), String> {
    let target = target()?;
    let python = virtual_environment("peers", false)?;
    let packages = ["torch", "jax", "numpy", "safetensors", "gymnasium", "stable-baselines3", "sb3-contrib"];
    install(&python, &packages, &[])?;
    install(&python, &["."], &["--force-reinstall", "--no-deps"])?;
    cargo(&["build", "--release", "--locked", "--package", "bqrl-cli"])?;
    cargo(&["build", "--release", "--locked", "--package", "bqrl-nn", "--examples"])?;
    let script = root().join("xtask/peers/bench_peers.py");
    run(Command::new(&python).arg(script).arg(target.join("release")).args(std::env::args().skip(2)))
}

/// The packages of all crates that are published, not built again: in target/package.
fn package() -> Result<(), String> {
    cargo(&[
        "package",
        "--workspace",
        "--exclude",
        "bqrl-py",
        "--exclude",
        "bqrl-fuzz",
        "--exclude",
        "xtask",
        "--locked",
        "--no-verify",
        "--allow-dirty",
    ])
}

/// Licences, vulnerabilities, doubtful sources: cargo-deny by deny.toml, where it is installed.
fn deny() -> Result<(), String> {
    let installed = Command::new("cargo").args(["deny", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        return Err(
            "cargo-deny is not installed; `cargo install --locked cargo-deny` installs it. Without it, \
                    `cargo xtask test` still checks the licences"
                .to_owned(),
        );
    }
    cargo(&["deny", "check", "bans", "licenses", "sources"])?;
    // Last: it fetches the database of known vulnerabilities, which needs a network.
    cargo(&["deny", "check", "advisories"])
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
    metadata_of(&root())
}

/// The same for the workspace in a folder. An error if its lock file is not up to date.
fn metadata_of(folder: &Path) -> Result<serde_json::Value, String> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--locked"])
        .current_dir(folder)
        .output()
        .map_err(|error| format!("starting cargo metadata: {error}"))?;
    serde_json::from_slice(&output.stdout)
        .map_err(|error| format!("cargo metadata: {error}: {}", String::from_utf8_lossy(&output.stderr)))
}

/// The rules of the house that a compiler does not know: who may use whom, which licences may come in (deny.toml has the
/// same list), that every published crate carries our licence texts, and that the map in ARCHITECTURE.md names exactly
/// the crates that exist.
fn check_house() -> Result<(), String> {
    let metadata = metadata()?;
    // libFuzzer's package has a workspace of its own, so no other build notices that its lock file is out of date.
    metadata_of(&root().join("fuzz/libfuzzer")).map_err(|error| format!("fuzz/libfuzzer: {error}"))?;
    let map = std::fs::read_to_string(root().join("ARCHITECTURE.md"))
        .map_err(|error| format!("reading ARCHITECTURE.md: {error}"))?;
    let mut ours = BTreeSet::new();
    let mut complaints = check_licence_list()?;
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
        // `null`: to any registry; `[]`: to none.
        if package["publish"].is_null() {
            complaints.extend(check_licence_texts(package)?);
        }
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

/// cargo-deny must let in what we let in, and nothing else.
fn check_licence_list() -> Result<Vec<String>, String> {
    let path = root().join("deny.toml");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("reading deny.toml: {error}"))?;
    let list = text.split_once("\nallow = [").and_then(|(_, rest)| rest.split_once(']'));
    let list = list.ok_or("deny.toml has no list of licences")?.0;
    let theirs: BTreeSet<&str> = list.split('"').skip(1).step_by(2).collect();
    let same = theirs == BTreeSet::from(LICENCES);
    Ok(if same { vec![] } else { vec!["deny.toml and xtask allow different licences".to_owned()] })
}

/// A package holds only files of its own folder, so each has a copy of the licence texts.
fn check_licence_texts(package: &serde_json::Value) -> Result<Vec<String>, String> {
    let manifest = Path::new(package["manifest_path"].as_str().unwrap_or_default());
    let folder = manifest.parent().unwrap_or(manifest);
    let mut complaints = Vec::new();
    for name in ["LICENSE-MIT", "LICENSE-APACHE"] {
        let ours = std::fs::read(root().join(name)).map_err(|error| format!("reading {name}: {error}"))?;
        if std::fs::read(folder.join(name)).ok() != Some(ours) {
            complaints.push(format!("{} must be a copy of {name}", folder.join(name).display()));
        }
    }
    Ok(complaints)
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
