//! Settings: `config.toml` alone and on top of a preset, and sweep files.

use bqrl_lab::config::Layers;
use bqrl_lab::sweep::Sweep;

use crate::Input;

/// The line after which the lines are overrides.
const OVERRIDES: &str = "\n# overrides\n";
/// Runs of a sweep that are looked at.
const RUNS: usize = 16;

pub(super) fn config(input: &Input) -> bool {
    let Some(text) = input.text("config.toml") else { return false };
    let (file, overrides) = text.split_once(OVERRIDES).unwrap_or((text, ""));
    let alone = Layers::written(file, "fuzz").and_then(|layers| layers.finish("fuzz"));
    if let Ok(config) = &alone {
        let again = Layers::written(&config.to_toml(), "again").and_then(|layers| layers.finish("again"));
        assert_eq!(again.as_ref().ok(), Some(config), "settings that were written and read back");
        let _ = (config.levels(), config.run.length());
    }
    let mut layers = Layers::of("qr-dqn", "asset-selling").expect("a preset");
    let on_top = layers.file(file, "fuzz").and_then(|()| {
        overrides.lines().try_for_each(|line| layers.override_with(line))?;
        layers.finish("fuzz")
    });
    alone.is_ok() || on_top.is_ok()
}

/// Only what the file says: that its runs fit their problem is found out when they are made.
pub(super) fn sweep(input: &Input) -> bool {
    let Some(text) = input.text("sweep.toml") else { return false };
    let Ok(sweep) = Sweep::parse(text, "fuzz") else { return false };
    let n = sweep.len();
    assert!(n > 0, "a sweep has a run");
    let looked: Vec<_> = (0..n.min(RUNS)).chain([n - 1]).map(|k| sweep.trial(k)).collect();
    looked.iter().all(Result::is_ok)
}
