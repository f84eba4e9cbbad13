//! Runs, pinned to their bytes: what training computes must not move unnoticed.
//!
//! The networks compute with the scalar kernels, so that the bits do not depend on the processor; they do depend on the
//! exponential function of the platform's C library.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use bqrl_lab::batch::Prepared;
use bqrl_lab::config::{ALGOS, Config, Layers};
use bqrl_lab::run::{Finished, Hooks, News, RunError, run_seed};
use bqrl_runs::run_dir::RunDir;

/// A tiny run of one algorithm.
#[derive(Clone, Copy)]
struct Golden {
    algo: &'static str,
    /// On top of the preset, so that every setting has time to matter in forty episodes.
    settings: &'static [&'static str],
    /// Each of these must change what is learned.
    changes: &'static [&'static str],
    /// Checksums (crc32c) of the weights, of `episodes.csv` and of `evaluations.csv`.
    result: [u32; 3],
}

const GOLDEN: [Golden; 8] = [
    Golden {
        algo: "deep-bqrl",
        settings: &[
            "agent.n_quantiles=4",
            "agent.n_critics=2",
            "agent.hidden=[8]",
            "agent.batch_size=4",
            "agent.learning_rate=0.005",
            "agent.updates_per_step=8.0",
            "agent.replay_capacity=50",
            "agent.lambda_decay=10.0",
            "agent.optimistic_tries=1",
            // The same bits on every machine.
            "agent.kernels=scalar",
        ],
        changes: &[
            "agent.n_quantiles=5",
            "agent.n_critics=3",
            "agent.hidden=[9]",
            "agent.kappa=0.5",
            "agent.zeta=0.5",
            "agent.learning_rate=0.02",
            "agent.batch_size=5",
            "agent.replay_capacity=20",
            "agent.updates_per_step=2.0",
            "agent.optimism=0.0",
            "agent.optimistic_tries=2",
            "agent.reward_scale=2.0",
            "agent.kernels=auto",
            "agent.lambda_0=0.0",
            "agent.lambda_decay=1.0",
            "agent.score=\"point\"",
            "agent.score=\"mean\"",
            "agent.tie_break=0.5",
            "run.tau=[0.25]",
            "run.beta=[0.1]",
        ],
        result: [1919698931, 828738820, 644491274],
    },
    Golden {
        algo: "target-tracking",
        settings: &[
            "agent.n_quantiles=16",
            "agent.n_critics=2",
            "agent.hidden=[16]",
            "agent.batch_size=8",
            "agent.learning_rate=0.005",
            "agent.updates_per_step=20.0",
            "agent.replay_capacity=100",
            "agent.epsilon=0.2",
            // The same bits on every machine.
            "agent.kernels=scalar",
        ],
        changes: &[
            "agent.n_quantiles=5",
            "agent.n_critics=3",
            "agent.hidden=[9]",
            "agent.kappa=0.5",
            "agent.zeta=0.5",
            "agent.learning_rate=0.02",
            "agent.batch_size=5",
            "agent.replay_capacity=20",
            "agent.updates_per_step=10.0",
            "agent.optimism=0.0",
            "agent.optimistic_tries=1",
            "agent.reward_scale=2.0",
            "agent.kernels=auto",
            "agent.epsilon=0.0",
            "agent.ramps=[0.5]",
        ],
        result: [226959450, 3666162594, 3421916608],
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
        result: [872536182, 1879875734, 4147802201],
    },
    Golden {
        algo: "ppo",
        settings: &[
            // Two minibatches a pass or so, and a limit that some passes meet.
            "agent.minibatch_size=6",
            "agent.target_kl=0.02",
            "agent.entropy_bonus=0.01",
            "agent.value_rate=0.1",
            "agent.value_prior=1.0",
        ],
        changes: &[
            "agent.episodes_per_update=4",
            "agent.epochs=2",
            "agent.minibatch_size=3",
            "agent.clip=0.05",
            "agent.learning_rate=0.3",
            "agent.learning_rate_decay=10.0",
            "agent.entropy_bonus=0.1",
            "agent.target_kl=0.0",
            "agent.gae_lambda=0.9",
            "agent.value_rate=0.5",
            "agent.value_prior=10.0",
            "agent.stage_widths=[1]",
        ],
        result: [4151605421, 1813959688, 1858110832],
    },
    Golden {
        algo: "trpo",
        // Steps so long that some of them are too long.
        settings: &[
            "agent.value_rate=0.1",
            "agent.cg_iterations=3",
            "agent.max_kl=0.5",
            "agent.damping=0.001",
        ],
        changes: &[
            "agent.episodes_per_update=4",
            "agent.max_kl=0.1",
            "agent.max_kl_decay=10.0",
            "agent.damping=0.2",
            "agent.cg_iterations=1",
            "agent.line_search_steps=1",
            "agent.backtrack_factor=0.5",
            "agent.gae_lambda=0.9",
            "agent.value_rate=0.5",
            "agent.value_prior=10.0",
            "agent.stage_widths=[1]",
        ],
        result: [1398073509, 3640657058, 444750950],
    },
    Golden {
        algo: "qr-dqn",
        settings: &[
            // With so few episodes, tries of every offer leave too few to learn from.
            "agent.optimistic_tries=0",
            "agent.n_quantiles=4",
            "agent.n_critics=2",
            "agent.hidden=[8]",
            "agent.zeta=0.005",
            "agent.batch_size=4",
            "agent.learning_rate=0.01",
            "agent.updates_per_step=20.0",
            "agent.replay_capacity=50",
            "agent.epsilon=0.2",
            // The same bits on every machine.
            "agent.kernels=scalar",
        ],
        changes: &[
            "agent.n_quantiles=5",
            "agent.n_critics=3",
            "agent.hidden=[9]",
            "agent.kappa=0.5",
            "agent.zeta=0.5",
            "agent.learning_rate=0.02",
            "agent.batch_size=5",
            "agent.replay_capacity=20",
            "agent.updates_per_step=10.0",
            "agent.optimism=0.0",
            "agent.optimistic_tries=1",
            "agent.reward_scale=2.0",
            "agent.kernels=auto",
            "agent.critic_discount=0.5",
            "agent.epsilon=0.0",
        ],
        result: [2276622998, 1171397979, 741521966],
    },
    Golden {
        algo: "var-q",
        settings: &[
            "agent.step_0=1.0",
            "agent.n_levels=8",
            "agent.epsilon_0=0.5",
            "agent.epsilon_decay=10.0",
            "agent.replay_episodes=2",
        ],
        changes: &[
            "agent.n_levels=9",
            "agent.kappa=0.2",
            "agent.initial_value=0.5",
            "agent.step_0=0.5",
            "agent.step_decay=5.0",
            "agent.epsilon_0=0.1",
            "agent.epsilon_decay=100.0",
            "agent.replay_episodes=0",
            "agent.share_stages=false",
            "agent.tie_tolerance=0.5",
            "agent.reward_scale=2.0",
            "run.tau=[0.9]",
        ],
        result: [1746678289, 192724244, 719494937],
    },
    Golden {
        algo: "qppo",
        settings: &[
            "agent.batch_episodes=4",
            "agent.quantile_step=0.4",
            "agent.quantile_decay=10.0",
            "agent.learning_rate_decay=10.0",
            "agent.slack=0.1",
            "agent.value_step=0.3",
        ],
        changes: &[
            "agent.stage_bins=0",
            "agent.collected_bins=2",
            "agent.batch_episodes=5",
            "agent.epochs=3",
            "agent.clip=0.01",
            "agent.learning_rate=1.0",
            "agent.learning_rate_decay=1.0",
            "agent.quantile_step=1.0",
            "agent.quantile_decay=1.0",
            "agent.slack=0.5",
            "agent.gae_lambda=0.5",
            "agent.value_step=1.0",
            "agent.entropy=1.0",
            "agent.reward_scale=20.0",
            "run.tau=[0.9]",
        ],
        result: [3604204481, 3972763626, 3477885241],
    },
];

impl Golden {
    /// Five offers, three decisions, forty episodes.
    fn layers(&self) -> Layers {
        self.on("asset-selling", &[("offers", "5"), ("horizon", "3"), ("start", "1")])
    }

    fn on(&self, problem: &str, parameters: &[(&str, &str)]) -> Layers {
        let mut layers = Layers::preset(self.algo).unwrap();
        layers.set("problem", "name", problem);
        for (key, value) in parameters {
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
    let Prepared { config, task, references, .. } = Prepared::new(config.clone()).unwrap();
    let hooks = Hooks { stop, watch: &|_| {}, warn: &|_| {}, clock: &|| 0.0 };
    let seed = dir.seed(42);
    let finished = run_seed(&config, task, references, 42, &seed, &hooks);
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    Ran {
        finished,
        episodes: text(seed.episodes()),
        evaluations: text(seed.evaluations()),
        weights: std::fs::read(seed.weights()).unwrap_or_default(),
        folder,
    }
}

impl Ran {
    fn checksums(&self) -> [u32; 3] {
        [&self.weights[..], self.episodes.as_bytes(), self.evaluations.as_bytes()].map(crc32c::crc32c)
    }
}

/// Why a checksum may only change on purpose.
const NUMBERS: &str = "a change that moves results belongs under Numbers in the changelog";

#[test]
fn the_golden_runs_are_what_they_were() {
    let got = GOLDEN.map(|golden| {
        let ran = run(&golden.config());
        let progress = &ran.finished.as_ref().unwrap().progress;
        // Offers k/4, two fresh ones after the first: Q*_.5 = 3/4, since P(R < 3/4) ≥ (3/5)² = .36 < .5 ≤ (4/5)² = .64.
        assert_eq!((golden.algo, progress.greedy.last[0].quantile), (golden.algo, 0.75));
        (golden.algo, ran.checksums())
    });
    assert_eq!(got, GOLDEN.map(|golden| (golden.algo, golden.result)), "{NUMBERS}");
}

/// An algorithm with the episodes and the checksums of two short runs.
type Short = (&'static str, [i64; 2], [[u32; 3]; 2]);

/// Short runs with the presets as they stand: asset selling, FrozenLake.
const PAPER: [Short; 8] = [
    ("deep-bqrl", [40, 100], [[1278686001, 1108861750, 2903185924], [3971351763, 915560838, 686175534]]),
    ("target-tracking", [20, 5], [[3250158335, 2160887628, 211067017], [2587693870, 266230042, 838913981]]),
    ("ucb-bqrl", [40, 100], [[1902053389, 3173074328, 960234178], [29922937, 1305951556, 1400790049]]),
    ("ppo", [40, 100], [[1754022648, 3538654751, 309250768], [337153496, 1949814112, 3872667745]]),
    ("trpo", [40, 100], [[1931810870, 1723783517, 3403056703], [3161969374, 3962714072, 2386467026]]),
    ("qr-dqn", [40, 100], [[1728776327, 2509539758, 1807766737], [273492523, 867809043, 1738431129]]),
    ("var-q", [40, 100], [[229498438, 949797260, 1688643643], [1123604348, 3654595994, 146754321]]),
    ("qppo", [40, 100], [[3643773985, 3061189945, 1357367088], [3106982678, 3897887630, 2765736156]]),
];

#[test]
fn short_runs_on_the_papers_problems_are_what_they_were() {
    let got = PAPER.map(|(algo, episodes, _)| {
        let checksums = [0, 1].map(|k: usize| {
            let mut layers = Layers::of(algo, ["asset-selling", "frozen-lake"][k]).unwrap();
            layers.set("run", "episodes", episodes[k]);
            if layers.value("agent.kernels").is_some() {
                layers.set("agent", "kernels", "scalar");
            }
            run(&layers.finish("test").unwrap()).checksums()
        });
        (algo, episodes, checksums)
    });
    assert_eq!(got, PAPER, "{NUMBERS}");
}

#[test]
fn every_setting_of_a_preset_is_among_the_changes() {
    for golden in GOLDEN {
        let layers = Layers::preset(golden.algo).unwrap();
        // Games have a test of their own: on a table there is nothing to convolve.
        let not_here = ["kind", "convolutions"];
        let keys = layers.section("agent").unwrap().keys().filter(|key| !not_here.contains(&key.as_str()));
        let keys: BTreeSet<String> = keys.map(|key| format!("agent.{key}")).collect();
        let changed = golden.changes.iter().map(|text| text.split('=').next().unwrap().to_owned());
        let changed: BTreeSet<String> = changed.filter(|key| key.starts_with("agent.")).collect();
        assert_eq!(changed, keys, "{}", golden.algo);
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
            assert!(changed != learned, "{}: {text} has no effect", golden.algo);
        }
    }
}

#[test]
fn a_game_is_learned_through_its_convolutions_and_goes_on_where_it_stopped() {
    for algo in ["deep-bqrl", "target-tracking", "qr-dqn"] {
        let config = |convolutions: &str| {
            let mut layers = Layers::of(algo, "minatar/breakout").unwrap();
            let small = [
                "run.steps=90",
                "run.lanes=2",
                "run.evaluation_episodes=2",
                "run.evaluate_every=\"40 steps\"",
            ];
            let tiny = [
                "agent.n_quantiles=4",
                "agent.hidden=[8]",
                "agent.batch_size=4",
                "agent.updates_per_step=1.0",
            ];
            for text in small.into_iter().chain(tiny).chain(["agent.kernels=scalar", convolutions]) {
                layers.override_with(text).unwrap();
            }
            layers.finish("test").unwrap()
        };
        let seen = config("agent.convolutions=[[2, 3, 1], [3, 2, 2]]");
        let whole = run(&seen);
        for other in ["agent.convolutions=[[2, 3, 2]]", "agent.convolutions=[]"] {
            assert!(run(&config(other)).weights != whole.weights, "{algo}: {other}");
        }
        let folder = tempfile::tempdir().unwrap();
        let (dir, _lock) = RunDir::create(folder.path(), false).unwrap();
        let first = go_on(&seen, &dir, &AtomicBool::new(true), folder);
        assert!(matches!(first.finished, Err(RunError::Interrupted { .. })), "{algo}");
        let second = go_on(&seen, &dir, &AtomicBool::new(false), first.folder);
        assert_eq!(second.weights, whole.weights, "{algo}");
        assert_eq!(second.evaluations, whole.evaluations, "{algo}");
    }
}

#[test]
fn a_run_stopped_again_and_again_ends_as_if_it_never_had_been() {
    for (golden, lanes) in GOLDEN.into_iter().flat_map(|golden| [(golden, 1), (golden, 3)]) {
        let mut layers = golden.layers();
        layers.set("run", "lanes", lanes);
        let config = layers.finish("test").unwrap();
        let whole = run(&config);
        let mut folder = tempfile::tempdir().unwrap();
        let (dir, _lock) = RunDir::create(folder.path(), false).unwrap();
        let mut stops = 0;
        let pieces = loop {
            // Stop at once: one step at a time, in the middle of episodes too.
            let ran = go_on(&config, &dir, &AtomicBool::new(stops < 12), folder);
            match ran.finished {
                Err(RunError::Interrupted { step, .. }) => {
                    stops += 1;
                    assert_eq!(step, stops * config.run.lanes as u64);
                    folder = ran.folder;
                }
                Ok(_) => break ran,
                Err(error) => panic!("{}: {error}", golden.algo),
            }
        };
        assert_eq!(stops, 12);
        assert_eq!(pieces.episodes, whole.episodes, "{}", golden.algo);
        assert_eq!(pieces.evaluations, whole.evaluations, "{}", golden.algo);
        assert_eq!(pieces.weights, whole.weights, "{}", golden.algo);
        let (pieces, whole) = (pieces.finished.unwrap(), whole.finished.unwrap());
        assert_eq!((pieces.progress, pieces.updates), (whole.progress, whole.updates), "{}", golden.algo);
        assert_eq!((pieces.sessions.len(), whole.sessions.len()), (13, 1), "{}", golden.algo);
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
    let Prepared { config, task, references, .. } = Prepared::new(config).unwrap();
    let watch = |news: &News| stop.store(news.progress.clock.episodes == 40, Ordering::Relaxed);
    let hooks = Hooks { stop: &stop, watch: &watch, warn: &|_| {}, clock: &|| 0.0 };
    assert!(run_seed(&config, task, references, 42, &dir.seed(42), &hooks).is_ok());
}
