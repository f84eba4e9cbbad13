//! Games to watch: at random, and under a run.

mod support;

use serde_json::Value;
use support::{Running, trained};

fn positions(played: &Value) -> &Vec<Value> {
    played["positions"].as_array().unwrap()
}

#[test]
fn a_game_without_a_run_is_played_at_random_and_repeats_with_its_seed() {
    let directory = tempfile::tempdir().unwrap();
    let server = Running::over(directory.path());
    let played = server.get("/api/game?game=minatar/breakout&seed=1").json();
    assert_eq!((played["target"].is_null(), played["trained"].is_null()), (true, true));
    assert!(positions(&played)[0]["action"].is_null(), "nothing led to the start");
    let glyphs: Vec<&str> =
        played["looks"].as_array().unwrap().iter().map(|look| look["glyph"].as_str().unwrap()).collect();
    for position in positions(&played) {
        let cells = position["cells"].as_str().unwrap();
        assert_eq!(cells.chars().count(), 100);
        assert!(cells.chars().all(|cell| cell == ' ' || glyphs.contains(&&*cell.to_string())), "{cells:?}");
        assert!(position["chance"].is_null());
    }
    assert_eq!(played, server.get("/api/game?game=minatar/breakout&seed=1").json());
    assert_ne!(played, server.get("/api/game?game=minatar/breakout&seed=2").json());
    // Parameters arrive, and a long game is cut.
    let long = server.get("/api/game?game=minatar/freeway&env.horizon=5000&seed=1").json();
    assert_eq!((positions(&long).len(), long["over"].as_bool()), (2001, Some(false)));
    let short = server.get("/api/game?game=minatar/freeway&env.horizon=7&seed=1").json();
    assert_eq!((positions(&short).len(), short["over"].as_bool()), (8, Some(true)));
    for target in [
        "/api/game?game=minatar/chess",
        "/api/game",
        "/api/game?game=minatar/breakout&env.sticky=2",
        "/api/game?game=minatar/breakout&seed=x",
        "/api/game?run=nope&who=1",
        "/play?game=minatar/chess",
        "/play?run=nope",
    ] {
        let answer = server.get(target);
        assert!((400..500).contains(&answer.status), "{target}: {}", answer.status);
    }
    let list = server.get("/play").body;
    assert!(list.contains("/play?game=minatar/seaquest") && list.contains("bqrl train minatar/breakout"));
}

#[test]
fn a_run_plays_with_its_target_and_its_own_estimate_of_the_chance() {
    let directory = tempfile::tempdir().unwrap();
    trained(&directory.path().join("game"), "minatar/breakout", "target-tracking", 20);
    trained(&directory.path().join("table"), "gamble-chain", "target-tracking", 10);
    let server = Running::over(directory.path());
    let played = server.get("/api/game?run=game&who=1&tau=0.5&seed=4").json();
    // Games are played in lanes, so that a few more episodes may end together.
    assert!(
        played["every_level"].as_bool().unwrap() && played["trained"][0].as_u64().unwrap() >= 20,
        "{played}"
    );
    let target = played["target"].as_f64().unwrap();
    for position in positions(&played) {
        let chance = position["chance"].as_f64().unwrap();
        assert!((0.0..=1.0).contains(&chance));
    }
    let last = positions(&played).last().unwrap();
    let reached = last["collected"].as_f64().unwrap() >= target;
    // At the end the chance is what happened. Scores are whole: a target that is met exactly counts.
    assert_eq!(last["chance"].as_f64().unwrap(), f64::from(u8::from(reached)), "{target} {last}");
    assert_eq!(server.get("/api/game?run=table&who=1").status, 400);
    assert_eq!(server.get("/api/game?run=game&who=1&tau=1.5").status, 400);
    assert!(server.get("/runs/game").body.contains("/play?run=game&amp;who=1"));
    assert!(server.get("/play?run=game").body.contains("data-query=\"run=game&amp;who=1\""));
    assert!(!server.get("/dial").body.contains("/dial?run=game"), "a game has no table to plan");
    assert_eq!(server.get("/play?run=table").status, 404);
}

#[test]
fn a_run_that_was_begun_a_moment_ago_is_found_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let run = directory.path().join("game");
    let server = Running::over(directory.path());
    // The directory was looked at just now, and the next look is not due yet.
    assert!(!server.get("/").body.contains("game"));
    trained(&directory.path().join("elsewhere"), "minatar/breakout", "qr-dqn", 1);
    server.get("/");
    std::fs::rename(directory.path().join("elsewhere"), &run).unwrap();
    assert!(server.get("/runs/game").body.contains("Watch this run play"));
}
