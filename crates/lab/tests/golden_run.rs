//! Tiny runs, pinned: what training computes must not move unnoticed.

use std::sync::atomic::{AtomicBool, Ordering};

use bqrl_lab::config::{ALGOS, Config, Layers};
use bqrl_lab::run::{Finished, Hooks, RunError, run_seed};
use bqrl_lab::train::Yardstick;
use bqrl_runs::run_dir::RunDir;

/// A tiny run of one algorithm.
struct Golden {
    algo: &'static str,
    /// On top of the preset, so that every setting has time to matter in forty episodes.
    settings: &'static [&'static str],
    /// Each of these must change what is learned.
    changes: &'static [&'static str],
    /// Environment steps, final quantile and quantile policy gap.
    result: (u64, f64, f64),
}

const GOLDEN: [Golden; 2] = [
    Golden {
        algo: "deep-bqrl",
        settings: &[
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
        ],
        changes: &[
            "agent.n_quantiles=5",
            "agent.n_critics=3",
            "agent.hidden=[9]",
            "agent.kappa=0.01",
            "agent.zeta=0.5",
            "agent.lambda_0=0.0",
            "agent.lambda_decay=1.0",
            "agent.score=\"point\"",
            "agent.score=\"mean\"",
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
        ],
        result: (88, 0.75, 10.0),
    },
    Golden {
        algo: "ucb-bqrl",
        settings: &[
            "agent.radius_scale=0.25",
            "agent.prior=adaptive",
            "agent.prior_strength=4.0",
            "agent.slack=1.0",
        ],
        changes: &[
            "agent.radius_scale=0.0",
            "agent.delta=0.5",
            "agent.stationary=false",
            "agent.objective=buffered",
            "agent.output=optimistic",
            "agent.prior=uniform",
            "agent.prior=shifted",
            "agent.prior_strength=0.0",
            "agent.slack=0.0",
            "agent.replan_every=1",
            "agent.max_returns=5",
            "run.tau=[0.25]",
        ],
        result: (100, 0.75, 2.5),
    },
];

impl Golden {
    /// Five offers, three decisions, forty episodes.
    fn layers(&self) -> Layers {
        let mut layers = Layers::preset(self.algo).unwrap();
        layers.set("problem", "name", "asset-selling");
        for (key, value) in [("offers", "5"), ("horizon", "3"), ("start", "1")] {
            layers.set_parameter(key, value);
        }
        let protocol = [
            "run.episodes=40",
            "run.evaluate_every=5",
            "run.checkpoint_every=10",
            "run.seeds=[42]",
            "run.tau=[0.5]",
        ];
        for text in protocol.iter().chain(self.settings) {
            layers.override_with(text).unwrap();
        }
        layers
    }

    fn config(&self) -> Config {
        self.layers().finish("test").unwrap()
    }
}

#[test]
fn every_algorithm_has_a_golden_run() {
    assert_eq!(GOLDEN.map(|golden| golden.algo), ALGOS.map(|algo| algo.name));
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
fn the_golden_runs_are_what_they_were() {
    for golden in GOLDEN {
        let progress = run(&golden.config()).finished.unwrap().progress;
        let last = progress.greedy.last[0];
        let got = (progress.env_steps, last.quantile, last.quantile_policy_gap);
        // Offers k/4, two fresh ones after the first: Q*_.5 = 3/4, since P(R < 3/4) ≥ (3/5)² = .36 < .5 ≤ (4/5)² = .64.
        let why = "a change that moves results belongs under Numbers in the changelog";
        assert_eq!(got, golden.result, "{}: {why}", golden.algo);
    }
}

#[test]
fn every_setting_of_an_agent_changes_its_golden_run() {
    for golden in GOLDEN {
        let learned = run(&golden.config()).weights;
        for text in golden.changes {
            let mut layers = golden.layers();
            layers.override_with(text).unwrap();
            let changed = run(&layers.finish("test").unwrap()).weights;
            assert_ne!(changed, learned, "{}: {text} has no effect", golden.algo);
        }
    }
}

#[test]
fn a_run_stopped_again_and_again_ends_as_if_it_never_had_been() {
    for golden in GOLDEN {
        let config = golden.config();
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
                Err(error) => panic!("{}: {error}", golden.algo),
            }
        };
        assert_eq!(stops, 15);
        assert_eq!(pieces.episodes, whole.episodes, "{}", golden.algo);
        assert_eq!(pieces.evaluations, whole.evaluations, "{}", golden.algo);
        assert_eq!(pieces.weights, whole.weights, "{}", golden.algo);
        assert_eq!(pieces.finished.unwrap(), whole.finished.unwrap(), "{}", golden.algo);
    }
}

#[test]
fn evaluating_more_often_does_not_change_what_is_learned() {
    for golden in GOLDEN {
        let mut often = golden.layers();
        often.override_with("run.evaluate_every=1").unwrap();
        let (rarely, often) = (run(&golden.config()), run(&often.finish("test").unwrap()));
        assert_eq!(rarely.weights, often.weights, "{}", golden.algo);
        assert_eq!(rarely.episodes, often.episodes, "{}", golden.algo);
        assert!(often.evaluations.lines().count() > rarely.evaluations.lines().count());
    }
}

#[test]
fn a_stop_flag_after_the_last_episode_changes_nothing() {
    let config = GOLDEN[0].config();
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
