//! A forged `state.json` in a checkpoint whose checksums are right is refused by name.

use std::sync::atomic::{AtomicBool, Ordering};

use bqrl_lab::batch::{Prepared, run_all};
use bqrl_lab::config::{Config, Layers};
use bqrl_lab::run::{Hooks, News};
use bqrl_runs::checkpoint::CheckpointStore;
use bqrl_runs::run_dir::RunDir;
use serde_json::{Value, json};

fn config() -> Config {
    let mut layers = Layers::of("var-q", "asset-selling").unwrap();
    layers.set("run", "episodes", 20);
    layers.set("run", "tau", vec![0.5]);
    layers.finish("test").unwrap()
}

/// Resumes a run, or begins it, and stops after five episodes if it is asked to.
fn go_on(dir: &RunDir, stops: bool) -> Result<(), String> {
    let stop = AtomicBool::new(false);
    let watch = |news: &News| stop.store(stops && news.progress.clock.episodes == 5, Ordering::Relaxed);
    let hooks = Hooks { stop: &stop, watch: &watch, warn: &|_| {}, clock: &|| 0.0 };
    let ready = [Prepared::new(config()).unwrap().begin(dir.clone(), dir.lock().unwrap()).unwrap()];
    run_all(&ready, &hooks).remove(0).map(drop).map_err(|error| error.to_string())
}

#[test]
fn settings_positions_and_sessions_that_no_run_has_are_refused() {
    type Forge = fn(&mut Value);
    let forgeries: [(&str, Forge); 7] = [
        ("run.episodes", |state| state["config"]["run"]["episodes"] = Value::Null),
        ("run.lanes", |state| state["config"]["run"]["lanes"] = json!(0)),
        ("config.toml was changed", |state| state["config"]["run"]["tau"] = json!([0.25])),
        ("another problem", |state| state["table"] = json!(7)),
        ("episodes.csv: the file has", |state| state["positions"]["episodes"]["length"] = json!(1e15 as u64)),
        ("episodes.csv: its first", |state| state["positions"]["episodes"]["length"] = json!(3)),
        ("state.json", |state| state["sessions"] = json!([[1.0]])),
    ];
    for (said, forge) in forgeries {
        let folder = tempfile::tempdir().unwrap();
        let dir = RunDir::create(folder.path(), false).unwrap().0;
        assert!(go_on(&dir, true).unwrap_err().contains("interrupted"));
        let store = CheckpointStore::open(dir.seed(42).checkpoints());
        let loaded = store.latest().unwrap().unwrap();
        let mut state: Value = serde_json::from_slice(&loaded.parts["state.json"]).unwrap();
        forge(&mut state);
        let forged = state.to_string();
        let parts: Vec<(&str, &[u8])> = loaded
            .parts
            .iter()
            .map(|(name, bytes)| (&name[..], if name == "state.json" { forged.as_bytes() } else { bytes }))
            .collect();
        store.save(loaded.number + 1, &parts).unwrap();
        let error = go_on(&dir, false).unwrap_err();
        assert!(error.contains(said), "{said}: {error}");
    }
}
