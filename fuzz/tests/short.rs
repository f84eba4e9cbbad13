//! Every target for a fixed number of executions: the short form of `cargo xtask fuzz`, about a minute on two cores.

use std::process::{Command, Output};

use bqrl_fuzz::TARGETS;

fn run(name: &str, executions: u64) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bqrl-fuzz"));
    command.args(["run", name, "--executions", &executions.to_string()]);
    command.env("BQRL_FUZZ_LIMIT", if name == "canary" { "2" } else { "60" }).output().unwrap()
}

fn is_clean(name: &str, executions: u64) {
    let Output { status, stdout, stderr } = run(name, executions);
    let said = format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{said}");
    assert!(said.contains(&format!("{executions} executions, seed 1")), "{said}");
}

#[test]
fn mdp_files() {
    is_clean("mdp", 100_000);
}

#[test]
fn settings() {
    is_clean("config", 50_000);
}

#[test]
fn sweeps() {
    is_clean("sweep", 15_000);
}

#[test]
fn checkpoints() {
    is_clean("checkpoint", 20_000);
}

#[test]
fn agents() {
    is_clean("agents", 30_000);
}

#[test]
fn replays() {
    is_clean("replay", 20_000);
}

#[test]
fn networks() {
    is_clean("networks", 20_000);
}

#[test]
fn runs() {
    is_clean("run", 8_000);
}

#[test]
fn policies() {
    is_clean("policy", 8_000);
}

/// So that a new target is not forgotten above.
#[test]
fn all_targets_are_tested() {
    assert_eq!(TARGETS.len(), 9);
}

#[cfg(unix)]
#[test]
fn a_panic_a_hang_an_allocation_and_a_full_stack_are_found() {
    // Executions in the order of the names: allocate, fine, hang, overflow, panic.
    let Output { status, stderr, .. } = run("canary", 5);
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{said}");
    for what in [
        "execution 0: the process ended with signal",
        "execution 2: no end after 2 s",
        "execution 3: the process ended with signal",
        "execution 4: panicked at",
        "the canary was told to panic",
        "see it again: cargo run -p bqrl-fuzz -- replay canary",
    ] {
        assert!(said.contains(what), "{what:?} is missing: {said}");
    }
    assert!(!said.contains("execution 1:"), "{said}");
}
