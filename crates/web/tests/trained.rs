//! The policy of a trained run on the dial of its problem.

mod support;

use std::fs;

use serde_json::Value;
use support::{Running, trained};

#[test]
fn a_run_that_serves_every_level_is_asked_at_every_level() {
    let directory = tempfile::tempdir().unwrap();
    trained(&directory.path().join("a"), "asset-selling", "target-tracking", 60);
    let server = Running::over(directory.path());
    let dial = server.get("/api/dial?run=a").json();
    let served = server.get("/api/served?run=a&who=1").json();
    assert_eq!((served["seed"].as_u64(), served["episodes"].as_u64()), (Some(1), Some(60)));
    assert_eq!(served["every_level"], true);
    let levels = served["levels"].as_array().unwrap();
    assert_eq!(levels.len(), 99);
    let number = |value: &Value| value.as_f64().unwrap();
    for (level, best) in levels.iter().zip(dial["levels"].as_array().unwrap()) {
        assert_eq!(level["tau"], best["tau"]);
        assert!(number(&level["quantile"]) <= number(&best["best"]) + 1e-6, "nobody is better than the best");
        assert!(number(&level["mean"]) <= number(&dial["max_mean"]) + 1e-6);
        assert!(level["aim"].is_number(), "target tracking has a target");
        let plan = &served["plans"][level["plan"].as_u64().unwrap() as usize];
        assert_eq!(plan["map"].as_array().unwrap().len(), dial["stages"].as_array().unwrap().len());
    }
    // The evaluation that the run wrote says the same.
    let achieved = fs::read_to_string(directory.path().join("a/seed-1/achieved.csv")).unwrap();
    let tenth = achieved.lines().find(|line| line.starts_with("0.1,")).unwrap();
    let quantile: f64 = tenth.split(',').nth(1).unwrap().parse().unwrap();
    assert!((number(&levels[9]["quantile"]) - quantile).abs() < 1e-6, "{tenth}");
    // It has policies for (τ, β), too: each is measured by its own law, and none is better than the best.
    let best = server.get("/api/buffered?run=a").json();
    let buffered = served["buffered"].as_array().unwrap();
    assert!(buffered.len() >= 4 * 9, "{}", buffered.len());
    for level in buffered {
        let same = |best: &&Value| (&best["tau"], &best["share"]) == (&level["tau"], &level["share"]);
        let best = best["levels"].as_array().unwrap().iter().find(same).unwrap();
        assert!(number(&level["attained"]) <= number(&best["bound"]) + 1e-6, "{level} {best}");
        assert!(number(&level["attained"]) <= number(&level["quantile"]) + 1e-6, "{level}");
    }
    let play = server.get("/api/play?run=a&who=1&tau=0.1&share=50&seed=3");
    assert_eq!(play.status, 200, "{}", play.body);
    // An episode under its policy aims at its own target.
    let episode = server.get("/api/play?run=a&who=1&tau=0.1&seed=3").json();
    assert!((number(&episode["target"]) - number(&levels[9]["aim"])).abs() < 1e-6, "{episode}");
    assert!(!episode["steps"].as_array().unwrap().is_empty());
    // The page offers it, and a reader without a script sees what was attained.
    assert!(server.get("/runs/a").body.contains("/dial?run=a&amp;who=1"));
}

#[test]
fn a_run_with_one_policy_has_its_quantile_at_every_level() {
    let directory = tempfile::tempdir().unwrap();
    trained(&directory.path().join("a"), "gamble-chain", "ppo", 20);
    let server = Running::over(directory.path());
    let served = server.get("/api/served?run=a&who=1").json();
    assert_eq!(served["every_level"], false);
    assert_eq!(
        (served["levels"].as_array().unwrap().len(), served["plans"].as_array().unwrap().len()),
        (99, 1)
    );
    assert_eq!(served["buffered"].as_array().map(Vec::len), Some(0), "one policy for every β");
}

#[test]
fn a_run_without_a_checkpoint_says_so_and_nothing_else_is_restored() {
    let directory = tempfile::tempdir().unwrap();
    trained(&directory.path().join("a"), "gamble-chain", "target-tracking", 10);
    fs::remove_dir_all(directory.path().join("a/seed-1/checkpoints")).unwrap();
    trained(&directory.path().join("b"), "gamble-chain", "target-tracking", 20);
    let server = Running::over(directory.path());
    let refused_by = |server: &Running, target: &str, words: &str| {
        let answer = server.get(target);
        assert_eq!(answer.status, 400, "{target}: {}", answer.body);
        assert!(answer.body.contains(words), "{target}: {}", answer.body);
        assert!(!answer.body.contains(directory.path().to_str().unwrap()), "paths of the machine stay here");
    };
    let refused = |target: &str, words: &str| refused_by(&server, target, words);
    refused("/api/served?run=a&who=1", "no checkpoint yet");
    refused("/api/served?run=b&who=9", "no checkpoint yet");
    refused("/api/served?run=b", "who is missing");
    refused("/api/served?run=b&who=x", "who must be a seed");
    refused("/api/served?problem=gamble-chain&who=1", "only a run");
    refused("/api/play?run=b&who=1&tau=2&seed=1", "tau");
    refused("/api/play?run=b&who=1&tau=0.5&share=500&seed=1", "beta");
    // A network that would fill the memory is not made.
    let config = directory.path().join("b/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let wide =
        text.lines().map(|line| if line.starts_with("hidden") { "hidden = [65536, 65536]" } else { line });
    fs::write(&config, wide.collect::<Vec<_>>().join("\n")).unwrap();
    // Another server: this one has the agent in memory.
    refused_by(&Running::over(directory.path()), "/api/served?run=b&who=1", "weights");
    // Nor is a damaged checkpoint used.
    fs::write(&config, text).unwrap();
    for entry in fs::read_dir(directory.path().join("b/seed-1/checkpoints")).unwrap() {
        let manifest = entry.unwrap().path().join("manifest.json");
        if manifest.exists() {
            fs::write(manifest, "{}").unwrap();
        }
    }
    refused_by(&Running::over(directory.path()), "/api/served?run=b&who=1", "checkpoint");
}
