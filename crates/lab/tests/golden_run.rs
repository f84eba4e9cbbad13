//! A tiny run, pinned: what training computes must not move unnoticed.

use std::sync::atomic::{AtomicBool, Ordering};

use bqrl_lab::config::{Config, Layers};
use bqrl_lab::run::{Finished, Hooks, RunError, run_seed};
use bqrl_lab::train::Yardstick;
use bqrl_runs::run_dir::RunDir;

/// Five offers, three decisions, forty episodes; small networks, so that every setting has time to matter.
fn tiny() -> Layers {
    let mut layers = Layers::preset("deep-bqrl").unwrap();
    layers.set("problem", "name", "asset-selling");
    for (key, value) in [("offers", "5"), ("horizon", "3"), ("start", "1")] {
        layers.set_parameter(key, value);
    }
    for text in [
        "run.episodes=40",
        "run.evaluate_every=5",
        "run.checkpoint_every=10",
        "run.seeds=[42]",
        "run.tau=[0.5]",
        "agent.n_quantiles=4",
        "agent.n_critics=2",
        "agent.hidden=[8]",
        "agent.batch_size=4",
        "agent.learning_starts=4",
        "agent.learning_rate=0.01",
        "agent.learning_rate_extra=0.01",
        "agent.learning_rate_decay=10.0",
        "agent.lambda_decay=10.0",
        "agent.replay_capacity=50",
        // The same bits on every machine.
        "agent.kernels=scalar",
    ] {
        layers.override_with(text).unwrap();
    }
    layers
}

struct Ran {
    finished: Result<Finished, RunError>,
    episodes: String,
    evaluations: String,
    weights: Vec<u8>,
    folder: tempfile::TempDir,
}

fn run(config: &Config) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let (dir, _lock) = RunDir::create(folder.path(), false).unwrap();
    go_on(config, &dir, &AtomicBool::new(false), folder)
}

fn go_on(config: &Config, dir: &RunDir, stop: &AtomicBool, folder: tempfile::TempDir) -> Ran {
    let problem = config.problem.load().unwrap();
    let yardstick = Yardstick::new(config, &problem).unwrap();
    let hooks = Hooks { stop, watch: &|_, _| {}, warn: &|_| {}, clock: &|| 0.0 };
    let seed = dir.seed(42);
    let finished = run_seed(config, &problem, &yardstick, 42, &seed, &hooks);
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    Ran {
        finished,
        episodes: text(seed.episodes()),
        evaluations: text(seed.evaluations()),
        weights: std::fs::read(seed.weights()).unwrap_or_default(),
        folder,
    }
}

#[test]
fn the_golden_run_is_what_it_was() {
    let ran = run(&tiny().finish("test").unwrap());
    let progress = ran.finished.unwrap().progress;
    let last = progress.last[0];
    let got = (progress.env_steps, last.quantile, last.quantile_policy_gap);
    // Offers k/4, two fresh ones after the first: Q*_.5 = 3/4, since P(R < 3/4) ≥ (3/5)² = .36 < .5 ≤ (4/5)² = .64.
    assert_eq!(got, GOLDEN, "a change that moves results belongs under Numbers in the changelog");
}

const GOLDEN: (u64, f64, f64) = (88, 0.75, 10.0);

#[test]
fn every_setting_of_the_agent_changes_the_golden_run() {
    let golden = run(&tiny().finish("test").unwrap()).weights;
    for text in [
        "agent.n_quantiles=5",
        "agent.n_critics=3",
        "agent.hidden=[9]",
        "agent.kappa=0.01",
        "agent.zeta=0.5",
        "agent.lambda_0=0.0",
        "agent.lambda_decay=1.0",
        "agent.tie_break=0.5",
        "agent.output_scale=1.0",
        "agent.output_bias=0.0",
        "agent.learning_rate=0.02",
        "agent.learning_rate_extra=0.0",
        "agent.learning_rate_decay=100.0",
        "agent.batch_size=5",
        "agent.replay_capacity=20",
        "agent.learning_starts=8",
        "agent.updates_per_step=2",
        "agent.state_encoding=\"one-hot\"",
        "agent.reward_scale=2.0",
        "agent.kernels=auto",
        "run.tau=[0.25]",
        "run.beta=[0.1]",
    ] {
        let mut layers = tiny();
        layers.override_with(text).unwrap();
        assert_ne!(run(&layers.finish("test").unwrap()).weights, golden, "{text} has no effect");
    }
}

#[test]
fn a_run_stopped_again_and_again_ends_as_if_it_never_had_been() {
    let config = tiny().finish("test").unwrap();
    let whole = run(&config);
    let mut folder = tempfile::tempdir().unwrap();
    let (dir, _lock) = RunDir::create(folder.path(), false).unwrap();
    let mut stops = 0;
    let pieces = loop {
        // Stop at once: one episode at a time.
        let ran = go_on(&config, &dir, &AtomicBool::new(stops < 15), folder);
        match ran.finished {
            Err(RunError::Interrupted { episode }) => {
                stops += 1;
                assert_eq!(episode, stops);
                folder = ran.folder;
            }
            Ok(_) => break ran,
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(stops, 15);
    assert_eq!(pieces.episodes, whole.episodes);
    assert_eq!(pieces.evaluations, whole.evaluations);
    assert_eq!(pieces.weights, whole.weights);
    assert_eq!(pieces.finished.unwrap(), whole.finished.unwrap());
}

#[test]
fn evaluating_more_often_does_not_change_what_is_learned() {
    let mut often = tiny();
    often.override_with("run.evaluate_every=1").unwrap();
    let (rarely, often) = (run(&tiny().finish("test").unwrap()), run(&often.finish("test").unwrap()));
    assert_eq!(rarely.weights, often.weights);
    assert_eq!(rarely.episodes, often.episodes);
    assert!(often.evaluations.lines().count() > rarely.evaluations.lines().count());
}

#[test]
fn a_stop_flag_after_the_last_episode_changes_nothing() {
    let config = tiny().finish("test").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (dir, _lock) = RunDir::create(folder.path(), false).unwrap();
    let stop = AtomicBool::new(false);
    let problem = config.problem.load().unwrap();
    let yardstick = Yardstick::new(&config, &problem).unwrap();
    let watch =
        |_, progress: &bqrl_lab::train::Progress| stop.store(progress.episode == 40, Ordering::Relaxed);
    let hooks = Hooks { stop: &stop, watch: &watch, warn: &|_| {}, clock: &|| 0.0 };
    assert!(run_seed(&config, &problem, &yardstick, 42, &dir.seed(42), &hooks).is_ok());
}
