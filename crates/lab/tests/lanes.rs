//! Runs in several lanes and counted in steps, runs on a simulator without a table, and evaluation by playing.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bqrl_agents::play::PlayError;
use bqrl_agents::{Agent, Memo, Objective, ServedPolicies};
use bqrl_lab::batch::{Prepared, conclude, run_all};
use bqrl_lab::config::{Config, Layers};
use bqrl_lab::evaluate::{Measured, measure};
use bqrl_lab::outcome;
use bqrl_lab::run::{Hooks, RunError, SeedRun, make_agent, run_seed};
use bqrl_lab::task::{Level, References, Simulator, Table, Task};
use bqrl_math::buffer::Buffer;
use bqrl_math::rng::Rng;
use bqrl_mdp::env::{Env, EnvSpec, ObservationSpace, Step};
use bqrl_mdp::lanes::EnvError;
use bqrl_mdp::problems;
use bqrl_mdp::trajectory::{End, Observation};
use bqrl_runs::atomic;
use bqrl_runs::lock::Lock;
use bqrl_runs::reader::Run;
use bqrl_runs::run_dir::RunDir;
use serde_json::Value;

/// Networks that are small enough for a test; a preset is named with them.
const SMALL: [(&str, &[&str]); 5] = [
    ("deep-bqrl", &["agent.n_quantiles=4", "agent.n_critics=2", "agent.hidden=[8]", "agent.batch_size=4"]),
    ("qr-dqn", &["agent.n_quantiles=4", "agent.hidden=[8]", "agent.batch_size=4"]),
    (
        "target-tracking",
        &[
            "agent.n_critics=2",
            "agent.hidden=[8]",
            "agent.n_quantiles=6",
            "agent.batch_size=4",
            "agent.updates_per_step=1.0",
        ],
    ),
    ("ppo", &[]),
    ("ucb-bqrl", &[]),
];

/// The preset of an algorithm, made small, with settings on top.
fn config(algo: &str, problem: &str, settings: &[&str]) -> Config {
    let mut layers = Layers::of(algo, problem).unwrap();
    let (_, small) = SMALL.iter().find(|(name, _)| *name == algo).unwrap();
    let protocol = ["run.seeds=[42]", "run.tau=[0.5]"];
    for text in protocol.iter().chain(*small).chain(settings) {
        layers.override_with(text).unwrap();
    }
    layers.finish("test").unwrap()
}

/// Five offers and three decisions.
const SELLING: [(&str, &str); 3] = [("offers", "5"), ("horizon", "3"), ("start", "1")];

fn selling() -> Table {
    let parameters = SELLING.map(|(key, value)| (key.to_owned(), value.to_owned()));
    Table::new(problems::build("asset-selling", &parameters).unwrap()).unwrap()
}

/// A directory with the configuration in place.
fn directory(folder: &tempfile::TempDir, config: &Config) -> (RunDir, Lock) {
    let (dir, lock) = RunDir::create(folder.path(), false).unwrap();
    atomic::write(&dir.config(), config.to_toml().as_bytes()).unwrap();
    (dir, lock)
}

fn never() -> &'static AtomicBool {
    static NEVER: AtomicBool = AtomicBool::new(false);
    &NEVER
}

fn hooks(stop: &AtomicBool) -> Hooks<'_> {
    Hooks { stop, watch: &|_| {}, warn: &|warning| panic!("{warning}"), clock: &|| 0.0 }
}

#[test]
fn a_run_in_lanes_counts_steps_stops_at_the_right_one_and_evaluates_when_multiples_are_passed() {
    // Steps come in as many at a time as there are lanes: with three, multiples of 100 are passed and not met.
    for (lanes, evaluated) in [(4, [0, 100, 200, 300, 400]), (3, [0, 102, 201, 300, 402])] {
        for algo in ["deep-bqrl", "target-tracking", "ppo", "ucb-bqrl"] {
            let settings = [
                "problem.parameters={ offers = \"5\", horizon = \"3\", start = \"1\" }",
                &format!("run.lanes={lanes}"),
                "run.steps=400",
                "run.evaluate_every=\"100 steps\"",
                "run.checkpoint_every=\"150 steps\"",
            ];
            let config = config(algo, "asset-selling", &settings);
            assert_eq!((config.run.episodes, config.run.steps), (None, Some(400)));
            let folder = tempfile::tempdir().unwrap();
            let (dir, lock) = directory(&folder, &config);
            let ready = [Prepared::new(config).unwrap().resume(dir, lock)];
            let summary = run_all(&ready, &hooks(never())).remove(0).unwrap();
            let dir = &ready[0].dir;

            let written: Value = serde_json::from_str(&fs::read_to_string(dir.summary()).unwrap()).unwrap();
            assert_eq!((&written["steps"], &written["lanes"]), (&400.into(), &lanes.into()), "{algo}");
            let stopped = evaluated[4];
            assert_eq!((summary.env_steps, summary.exact), (stopped, true), "{algo}");

            let text = |path| fs::read_to_string(path).unwrap();
            let seed = dir.seed(42);
            assert_eq!(text(seed.episodes()).lines().next().unwrap(), "episode,episode_return,length,step");
            let header =
                "episode,step,tau,quantile,buffered_quantile,mean,quantile_policy_gap,expected_return_regret";
            assert_eq!(text(seed.evaluations()).lines().next().unwrap(), header, "{algo}");

            let run = Run::read_finished(dir.path()).unwrap();
            assert!(run.summary == summary && run.counts_steps(), "{algo}");
            let record = &run.seeds[0];
            let steps: Vec<u64> = record.evaluations[0].iter().map(|row| row.step.unwrap()).collect();
            assert_eq!(steps, evaluated, "{algo}");
            // An evaluation counts the episodes that had ended by its step, and all of them at the end.
            for row in &record.evaluations[0] {
                let ended = record.episodes.iter().filter(|episode| episode.step <= row.step).count();
                assert_eq!(row.episode, ended, "{algo}, step {:?}", row.step);
            }
            assert_eq!(summary.episodes, record.episodes.len(), "{algo}");
            // Every step is one of an episode that has ended, but for one open episode per lane, of two steps at most.
            let mut before = 0;
            let mut of_episodes = 0;
            for (k, row) in record.episodes.iter().enumerate() {
                let step = row.step.unwrap();
                assert!(
                    row.episode == k + 1 && before <= step && step % lanes as u64 == 0,
                    "{algo}: {row:?}"
                );
                of_episodes += row.length as u64;
                assert!(of_episodes <= step, "{algo}: {row:?}");
                before = step;
            }
            assert!((stopped - of_episodes) <= 2 * lanes as u64, "{algo}: {of_episodes}");
            assert_eq!(summary.distribution.is_some(), algo == "ppo");
            assert_eq!(record.distribution.is_some(), algo == "ppo");
        }
    }
}

/// A noisy walk that is seen as a vector: after eight steps it pays where it stands.
///
/// ```text
/// p_0     = 0
/// p'      = p + a + U(−1, 1)        a is 0 or 1
/// reward  p − 4 after the eighth step, else 0
/// ```
#[derive(Clone)]
struct Walk {
    spec: EnvSpec,
    position: f64,
    stage: usize,
}

const HORIZON: usize = 8;

impl Walk {
    fn new() -> Self {
        let spec = EnvSpec::new("walk", ObservationSpace::Dense(vec![2]), 2, HORIZON);
        Self { spec, position: 0.0, stage: 0 }
    }

    fn look(&self) -> Observation {
        Observation::Dense(vec![self.position as f32, 1.0])
    }
}

impl Env for Walk {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, _: &mut Rng) -> Observation {
        (self.position, self.stage) = (0.0, 0);
        self.look()
    }

    fn step(&mut self, action: usize, rng: &mut Rng) -> Step {
        self.position += action as f64 + 2.0 * rng.uniform() - 1.0;
        self.stage += 1;
        let over = self.stage == HORIZON;
        Step {
            observation: self.look(),
            reward: if over { self.position - 4.0 } else { 0.0 },
            end: if over { End::Horizon } else { End::NotYet },
        }
    }

    fn save(&self) -> Vec<u64> {
        vec![self.position.to_bits(), self.stage as u64]
    }

    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError> {
        let [position, stage] = *state else { return Err(EnvError::new("want two numbers")) };
        (self.position, self.stage) = (f64::from_bits(position), stage as usize);
        Ok(())
    }
}

fn walk() -> Arc<dyn Task> {
    Arc::new(Simulator::new(vec!["stay".into(), "go".into()], || Box::new(Walk::new())))
}

/// All keys of a JSON value, at any depth.
fn keys(value: &Value) -> Vec<&str> {
    match value {
        Value::Object(fields) => {
            fields.iter().flat_map(|(key, value)| std::iter::once(&**key).chain(keys(value))).collect()
        }
        Value::Array(values) => values.iter().flat_map(keys).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn without_a_table_a_run_has_intervals_and_none_of_the_measures_that_need_a_reference() {
    // With one lane and a length in episodes, rows need no step.
    let lengths: [(&[&str], &str); 2] = [
        (&["run.lanes=2", "run.steps=320", "run.evaluate_every=\"100 steps\""], "episode,step,"),
        (&["run.episodes=20", "run.evaluate_every=\"5 episodes\""], "episode,"),
    ];
    for (length, first) in lengths {
        for algo in ["deep-bqrl", "qr-dqn", "target-tracking"] {
            let settings = [length, &["run.evaluation_episodes=100"]].concat();
            let config = config(algo, "walk", &settings);
            let task = walk();
            let references = Arc::new(References::new(&*task, config.levels().unwrap()));
            let folder = tempfile::tempdir().unwrap();
            let (dir, _lock) = directory(&folder, &config);
            outcome::describe(&dir, &*task, &references).unwrap();
            let (seed, hooks) = (dir.seed(42), hooks(never()));
            let mut run =
                SeedRun::open(&config, task.clone(), references.clone(), 42, &seed, &hooks).unwrap();
            while !run.is_done() {
                run.tick(&hooks).unwrap();
            }
            let finished = [run.finish(&hooks).unwrap()];
            assert!(finished[0].updates > 0 && finished[0].progress.regret.is_none(), "{algo}");
            conclude(&config, &*task, &references, &dir, &finished).unwrap();

            let evaluations = fs::read_to_string(seed.evaluations()).unwrap();
            let header = format!("{first}tau,quantile,buffered_quantile,mean,low,high");
            assert_eq!(evaluations.lines().next().unwrap(), header, "{algo}");
            for file in [dir.summary(), dir.problem()] {
                let json: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
                let keys = keys(&json);
                for absent in ["best_quantile", "quantile_policy_gap", "expected_return_regret", "max_mean"] {
                    assert!(!keys.contains(&absent), "{algo}: {absent} in {}", file.display());
                }
                assert!(keys.contains(&"exact") && json["exact"] == false, "{algo}: {keys:?}");
            }
            assert!(!dir.reference().exists() && !seed.policy().exists());

            let run = Run::read(dir.path()).unwrap();
            assert!(run.is_finished() && run.counts_steps() == (first == "episode,step,"));
            assert_eq!(run.problem.unwrap().actions, ["stay", "go"]);
            let record = &run.seeds[0];
            let n = record.evaluations[0].len();
            assert_eq!(n, 5, "{algo}: evaluations at the start, on the way and at the end");
            for row in &record.evaluations[0] {
                let [low, high] = row.interval.unwrap();
                assert!(low <= row.quantile && row.quantile <= high, "{algo}: {row:?}");
                assert!(row.quantile_policy_gap.is_none() && row.expected_return_regret.is_none());
            }
            // A hundred returns that are different from each other.
            let law = record.law.as_ref().unwrap();
            assert_eq!(law.len(), 100, "{algo}");
            assert!((law.iter().map(|atom| atom.probability).sum::<f64>() - 1.0).abs() < 1e-9);
            let last = record.evaluations[0][n - 1];
            assert_eq!(run.summary.taus[0].interval, Some(vec![last.interval]), "{algo}");
            assert_eq!(run.summary.taus[0].final_quantile, [last.quantile], "{algo}");
            // Episodes of eight steps, all lanes in step.
            assert!(record.episodes.iter().all(|row| row.length == HORIZON));
            assert_eq!(record.episodes.len(), if first == "episode," { 20 } else { 40 });
        }
    }
}

#[test]
fn a_simulator_resumes_in_the_middle_of_episodes_to_the_same_bytes() {
    let settings = [
        "run.lanes=3",
        "run.steps=120",
        "run.evaluate_every=\"50 steps\"",
        "run.evaluation_episodes=10",
        "run.checkpoint_every=\"1000 steps\"",
    ];
    let config = config("deep-bqrl", "walk", &settings);
    let references = || Arc::new(References::none(config.levels().unwrap()));
    let [whole, pieces] = [0, 1].map(|_| tempfile::tempdir().unwrap());
    let (whole_dir, _lock) = directory(&whole, &config);
    let seed = whole_dir.seed(42);
    let finished = run_seed(&config, walk(), references(), 42, &seed, &hooks(never())).unwrap();

    let (pieces_dir, _lock) = directory(&pieces, &config);
    let mut stops = 0;
    let in_pieces = loop {
        let stop = AtomicBool::new(stops < 25);
        match run_seed(&config, walk(), references(), 42, &pieces_dir.seed(42), &hooks(&stop)) {
            Err(RunError::Interrupted { step, .. }) => {
                stops += 1;
                assert_eq!(step, 3 * stops);
                // The unfinished run can be read.
                let run = Run::read(pieces_dir.path()).unwrap();
                assert!(!run.is_finished() && run.state.fraction() == step as f64 / 120.0);
            }
            other => break other.unwrap(),
        }
    };
    assert_eq!((stops, in_pieces.updates, &in_pieces.progress), (25, finished.updates, &finished.progress));
    for file in ["episodes.csv", "evaluations.csv", "law.csv", "weights.safetensors"] {
        let read = |dir: &RunDir| fs::read(dir.seed(42).path().join(file)).unwrap();
        assert!(read(&whole_dir) == read(&pieces_dir), "{file} differs");
    }
}

/// An agent that has learned nothing: its policy is the same for every seed, and PPO's draws its actions.
fn untrained(spec: &EnvSpec) -> (Box<dyn Agent>, [Memo; 1]) {
    let agent = make_agent(&config("ppo", "asset-selling", &[]), spec, 1).unwrap();
    assert!(agent.is_stochastic());
    let memo = *agent.serve(&[], Objective::Quantile).at(0);
    (agent, [memo])
}

fn level() -> Buffer {
    Buffer::new(0.5, 0.5).unwrap()
}

/// References by which a policy must be played.
fn unknown() -> References {
    let level = Level { buffer: level(), best_quantile: None };
    References { levels: vec![level], max_mean: None, evaluator: None }
}

/// The mean of a sample and its standard error.
fn mean(sample: &[f64]) -> (f64, f64) {
    let n = sample.len() as f64;
    let mean = sample.iter().sum::<f64>() / n;
    let variance = sample.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// The measurement of one policy.
fn only(measured: Result<Vec<Measured>, PlayError>) -> Measured {
    let [measured] = <[Measured; 1]>::try_from(measured.unwrap()).unwrap();
    measured
}

fn sample(measured: Measured) -> Vec<f64> {
    measured.sample.expect("the policy was played")
}

#[test]
fn played_episodes_agree_with_the_exact_law_of_a_policy() {
    let task = selling();
    let (agent, memo) = untrained(task.spec());
    let exact_references = References::new(&task, vec![level()]);
    for mode in [false, true] {
        let policy = ServedPolicies::new(&*agent, &memo, mode);
        let exact = only(measure(policy, &task, &exact_references, 1, 7));
        assert!(exact.sample.is_none() && exact.interval(0.5).is_none());
        let played = only(measure(policy, &task, &unknown(), 20_000, 7));
        let interval = played.interval(0.5).unwrap();
        let (played_mean, error) = mean(played.sample.as_ref().unwrap());
        assert_eq!(played.sample.as_ref().unwrap().len(), 20_000);
        assert!((played.mean - played_mean).abs() < 1e-12);
        // Five standard errors: a false alarm in one seed of two million.
        assert!((played_mean - exact.mean).abs() <= 5.0 * error, "{played_mean}, exactly {}", exact.mean);
        // Likewise every probability: √(¼/20 000) = .0035 is the largest standard error.
        for value in exact.law.values() {
            let (got, want) = (played.law.cdf(*value), exact.law.cdf(*value));
            assert!((got - want).abs() < 5.0 * 0.0036, "P(R ≤ {value}): {got}, exactly {want}");
        }
        let quantile = exact.law.quantile(0.5);
        assert!(interval[0] <= quantile && quantile <= interval[1], "{interval:?}, exactly {quantile}");
    }
    // The distribution and its mode are different policies, or one of the two would test nothing.
    let [drawn, mode] = [false, true].map(|mode| {
        only(measure(ServedPolicies::new(&*agent, &memo, mode), &task, &exact_references, 1, 7)).mean
    });
    assert!((drawn - mode).abs() > 0.01, "{drawn} {mode}");
}

/// One step or a hundred, as a coin falls at the start; every step pays 1.
#[derive(Clone)]
struct Lengths {
    spec: EnvSpec,
    left: usize,
}

impl Lengths {
    fn new() -> Self {
        let observations = ObservationSpace::Discrete { n: 1, ordered: false };
        Self { spec: EnvSpec::new("lengths", observations, 2, 100), left: 0 }
    }
}

impl Env for Lengths {
    fn spec(&self) -> &EnvSpec {
        &self.spec
    }

    fn reset(&mut self, rng: &mut Rng) -> Observation {
        self.left = if rng.uniform() < 0.5 { 1 } else { 100 };
        Observation::Index(0)
    }

    fn step(&mut self, _: usize, _: &mut Rng) -> Step {
        self.left -= 1;
        let end = if self.left == 0 { End::Terminated } else { End::NotYet };
        Step { observation: Observation::Index(0), reward: 1.0, end }
    }

    fn save(&self) -> Vec<u64> {
        vec![self.left as u64]
    }

    fn restore(&mut self, state: &[u64]) -> Result<(), EnvError> {
        self.left = state[0] as usize;
        Ok(())
    }
}

#[test]
fn short_episodes_are_not_over_represented_among_the_played() {
    let task = Simulator::new(vec!["a".into(), "b".into()], || Box::new(Lengths::new()));
    let (agent, memo) = untrained(task.spec());
    let play = |episodes, seed| {
        let policy = ServedPolicies::new(&*agent, &memo, false);
        sample(only(measure(policy, &task, &unknown(), episodes, seed)))
    };
    // The mean is 50½. Were the first 40 episodes taken that end in 32 lanes, 32 of them would be short (one for every lane,
    // before it meets a long one) and 8 long: a mean of 20.8. Over 100 seeds the standard error is 49.5/√4000 = .78.
    let returns: Vec<f64> = (0..100).flat_map(|seed| play(40, seed)).collect();
    assert_eq!(returns.len(), 4000);
    let (mean, error) = mean(&returns);
    assert!((mean - 50.5).abs() < 5.0 * error, "{mean} ± {error}");
    // More episodes are the same ones and some more: which are taken does not depend on which end first.
    let many = play(200, 3);
    for episodes in [32, 33, 40, 64, 199] {
        assert_eq!(play(episodes, 3), many[..episodes], "{episodes} episodes");
    }
    // Fewer episodes than lanes.
    assert!([1, 5, 31].iter().all(|&episodes| play(episodes, 3) == many[..episodes]));
}

#[test]
fn the_same_policy_and_seed_play_the_same_returns() {
    let (table, simulator) =
        (selling(), Simulator::new(vec!["a".into(), "b".into()], || Box::new(Lengths::new())));
    for task in [&table as &dyn Task, &simulator] {
        let (agent, memo) = untrained(task.spec());
        let policy = ServedPolicies::new(&*agent, &memo, false);
        let play = |seed| sample(only(measure(policy, task, &unknown(), 100, seed)));
        assert_eq!(play(1), play(1));
        assert_ne!(play(1), play(2), "the seed has no effect");
    }
}
