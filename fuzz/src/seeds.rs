//! Seeds that real code writes: checkpoints, replays, networks, run directories. Those of text formats are written by hand
//! and lie beside them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::{fs, io};

use bqrl_lab::batch::{Prepared, run_all};
use bqrl_lab::config::{ALGOS, Layers};
use bqrl_lab::run::{Hooks, SeedRun};
use bqrl_lab::task::References;
use bqrl_math::rng::{Purpose, stream};
use bqrl_nn::{Ensemble, Init, Shape};
use bqrl_runs::atomic;
use bqrl_runs::checkpoint::{CheckpointStore, Contents};
use bqrl_runs::run_dir::RunDir;

use crate::targets::{KINDS, Setting, played, saved};
use crate::{Input, TARGETS, Target};

/// Writes all seeds that are made by code.
pub fn write() -> io::Result<()> {
    for name in Setting::names() {
        let mut training = Setting::named(&name).expect("one of them").training();
        training.evaluate().map_err(io::Error::other)?;
        // Long enough to learn, and into the middle of an episode; an agent that ends every episode at once has no middle.
        let mut ticks = 0;
        while ticks < 23 || (!training.play.is_open() && ticks < 200) {
            training.tick().map_err(io::Error::other)?;
            ticks += 1;
        }
        put("agents", &name.replace(' ', "-"), &saved(&name, &training))?;
    }
    for algo in ALGOS {
        let layers = Layers::of(algo.name, "asset-selling").map_err(io::Error::other)?;
        let config = layers.finish("seeds").map_err(io::Error::other)?.to_toml();
        put("config", &format!("{}.toml", algo.name), &Input::one("config.toml", config.as_bytes()))?;
    }
    for kind in &KINDS {
        for transitions in [5, 21, 90] {
            put("replay", &format!("{}-{transitions}", kind.0), &played(kind, transitions))?;
        }
    }
    let shape = Shape {
        n_inputs: 3,
        sight: None,
        hidden: vec![4],
        layer_norm: true,
        n_heads: 2,
        n_twins: 2,
        n_actions: 2,
        n_quantiles: 2,
        n_critics: 2,
    };
    let networks =
        Ensemble::new(shape, Init::default(), &mut stream(1, Purpose::Init)).map_err(io::Error::other)?;
    put("networks", "small", &Input::one("networks.safetensors", &networks.to_bytes()))?;
    let shape = Shape {
        n_inputs: 1,
        sight: None,
        hidden: vec![],
        layer_norm: false,
        n_heads: 1,
        n_twins: 1,
        n_actions: 1,
        n_quantiles: 1,
        n_critics: 1,
    };
    let networks =
        Ensemble::new(shape, Init::default(), &mut stream(1, Purpose::Init)).map_err(io::Error::other)?;
    put("networks", "linear", &Input::one("networks.safetensors", &networks.to_bytes()))?;
    checkpoints()?;
    runs()
}

fn target(name: &str) -> &'static Target {
    TARGETS.iter().find(|target| target.name == name).expect("a target")
}

fn put(of: &str, name: &str, input: &Input) -> io::Result<()> {
    let target = target(of);
    fs::create_dir_all(target.folder())?;
    fs::write(target.folder().join(name), target.encode(input))
}

/// Two checkpoints that share a sealed part, as one directory.
fn checkpoints() -> io::Result<()> {
    let directory = tempfile::tempdir()?;
    let store = CheckpointStore::open(directory.path());
    let segment = "replay-000000.safetensors";
    let first = [("state.json", Contents::Plain(b"{}")), (segment, Contents::Sealed(Some(b"sealed")))];
    store.save_parts(1, &first)?;
    put("checkpoint", "first", &files(directory.path())?)?;
    let second = [("state.json", Contents::Plain(b"{\"a\":1}")), (segment, Contents::Sealed(None))];
    store.save_parts(22, &second)?;
    put("checkpoint", "second", &files(directory.path())?)
}

/// Finished runs of three algorithms, one of several levels, one counted in steps, and one that was interrupted.
fn runs() -> io::Result<()> {
    let stop = AtomicBool::new(false);
    let hooks = Hooks { stop: &stop, watch: &|_| {}, warn: &|_| {}, clock: &|| 1e9 };
    for (name, algo, problem, settings) in [
        (
            "1-levels",
            "qr-dqn",
            "asset-selling",
            &["run.episodes=6", "run.seeds=[1, 2]", "agent.hidden=[4]"][..],
        ),
        ("2-drawn", "ppo", "gamble-chain", &["run.episodes=6", "run.seeds=[1]"]),
        ("3-steps", "target-tracking", "asset-selling", &["run.steps=12", "run.lanes=2", "agent.hidden=[4]"]),
        (
            "4-begun",
            "deep-bqrl",
            "asset-selling",
            &["run.episodes=9", "run.seeds=[1, 2]", "agent.hidden=[4]"],
        ),
    ] {
        let directory = tempfile::tempdir()?;
        let mut layers = Layers::of(algo, problem).map_err(io::Error::other)?;
        layers.set_parameter("horizon", "3");
        if problem == "asset-selling" {
            layers.set_parameter("offers", "3");
            layers.set_parameter("start", "1");
        }
        for setting in settings.iter().chain(&["run.evaluate_every=\"3 episodes\""]) {
            layers.override_with(setting).map_err(io::Error::other)?;
        }
        let config = layers.finish("seeds").map_err(io::Error::other)?;
        let path = directory.path().join(name);
        let (dir, lock) = RunDir::create(&path, false)?;
        atomic::write(&dir.config(), config.to_toml().as_bytes())?;
        if name == "4-begun" {
            let task = bqrl_lab::batch::load(&config).map_err(io::Error::other)?;
            let references = Arc::new(References::new(&*task, config.levels().map_err(io::Error::other)?));
            let mut run = SeedRun::open(&config, task, references, 1, &dir.seed(1), &hooks)
                .map_err(io::Error::other)?;
            for _ in 0..8 {
                run.tick(&hooks).map_err(io::Error::other)?;
            }
            run.pause(&hooks)?;
        } else {
            let prepared = Prepared::new(config).map_err(io::Error::other)?;
            let ready = prepared.resume(dir, lock);
            run_all(&[ready], &hooks).pop().expect("one run").map_err(io::Error::other)?;
        }
        let mut input = files(&path)?;
        // The summary names its directory, a temporary one.
        for (_, bytes) in input.files.iter_mut().filter(|(name, _)| name == "summary.json") {
            *bytes = String::from_utf8_lossy(bytes).replace(&path.display().to_string(), name).into_bytes();
        }
        // A report does not read these; the lock holds the number of a process.
        let other = ["checkpoints/", "tfevents", "weights.safetensors", ".bqrl-lock"];
        input.files.retain(|(name, _)| !other.iter().any(|other| name.contains(other)));
        put("run", name, &input)?;
        if name == "1-levels" {
            let policy = input.get("seed-1/policy.csv").expect("a finished run has its policy");
            put("policy", "levels.csv", &Input::one("policy.csv", policy))?;
        }
        if name == "3-steps" {
            let of_seed = |(name, _): &&(String, Vec<u8>)| name.ends_with("policy.csv");
            let (_, policy) = input.files.iter().find(of_seed).expect("a finished run has its policy");
            put("policy", "per-level.csv", &Input::one("policy.csv", policy))?;
        }
    }
    Ok(())
}

/// The files of a directory, in the order of their names.
fn files(directory: &Path) -> io::Result<Input> {
    let mut files = Vec::new();
    let mut folders = vec![directory.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(directory).map_err(io::Error::other)?;
            files.push((name.to_string_lossy().replace('\\', "/"), fs::read(&path)?));
        }
    }
    files.sort();
    Ok(Input { files })
}
