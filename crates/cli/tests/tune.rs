//! `bqrl tune`: a small search, interrupted and not.

mod support;

use support::Desk;

/// Four values of one setting, forty episodes, small networks.
const SMALL: [&str; 21] = [
    "tune",
    "asset-selling",
    "--tau",
    "0.5",
    "--key",
    "agent.kappa",
    "--low",
    "0.1",
    "--high",
    "0.8",
    "--points",
    "4",
    "--episodes",
    "40",
    "--seeds",
    "1000,1001",
    "--set",
    "agent.n_critics=2",
    "--set",
    "agent.hidden=[8]",
    "--quiet",
];

#[test]
fn the_better_half_goes_on_and_the_best_becomes_a_preset_that_train_takes() {
    let desk = Desk::new();
    let report = desk.json(&[&SMALL[..], &["--out", "search"]].concat());
    let rounds = report["rounds"].as_array().unwrap();
    let sizes: Vec<usize> = rounds.iter().map(|round| round["standings"].as_array().unwrap().len()).collect();
    assert_eq!(sizes, [4, 2]);
    for round in rounds {
        let scores: Vec<f64> = round["standings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|standing| standing["score"].as_f64().unwrap())
            .collect();
        assert!(scores.is_sorted(), "{scores:?}");
    }
    let best = report["best"].as_str().unwrap();
    assert!(["0.1", "0.2", "0.4", "0.8"].contains(&best), "{best}");
    let preset = desk.read("search/preset.toml");
    let want = format!("kappa = {best}  # tuned: best of 4 in [0.1, 0.8] on seeds 1000, 1001");
    assert!(preset.lines().any(|line| line == want), "{preset}");
    desk.ok(&["train", "--config", "search/preset.toml", "--episodes", "10", "--out", "run", "--quiet"]);
    assert!(desk.read("run/config.toml").contains(&format!("kappa = {best}")));
    // What is written: seven lines of results, and the full length only for the finalists.
    assert_eq!(desk.read("search/results.csv").lines().count(), 7);
    let long = |value: &str| {
        let path = format!("search/trials/{value}/asset-selling-0.5/seed-1000/episodes.csv");
        desk.read(&path).lines().count() - 1
    };
    let lengths: Vec<usize> = ["0.1", "0.2", "0.4", "0.8"].map(long).to_vec();
    assert_eq!(lengths.iter().filter(|&&n| n == 40).count(), 2, "{lengths:?}");
    assert_eq!(lengths.iter().filter(|&&n| n == 20).count(), 2, "{lengths:?}");
}

#[test]
fn a_search_that_lost_its_last_round_ends_the_same() {
    let desk = Desk::new();
    desk.ok(&[&SMALL[..], &["--out", "search"]].concat());
    let whole = (desk.read("search/results.csv"), desk.read("search/preset.toml"));
    // As a kill in the second round leaves it: only the first round is written down, some trials are further.
    let rounds: serde_json::Value = serde_json::from_str(&desk.read("search/rounds.json")).unwrap();
    desk.write("search/rounds.json", serde_json::to_string(&vec![&rounds[0]]).unwrap());
    std::fs::remove_file(desk.path("search/preset.toml")).unwrap();
    desk.ok(&["tune", "--resume", "search", "--quiet"]);
    assert_eq!((desk.read("search/results.csv"), desk.read("search/preset.toml")), whole);
}

#[test]
fn a_search_killed_while_it_wrote_its_last_files_ends_the_same_and_leaves_no_temporaries() {
    let desk = Desk::new();
    desk.ok(&[&SMALL[..], &["--out", "search"]].concat());
    let whole = (desk.read("search/results.csv"), desk.read("search/preset.toml"));
    // As a kill between the two files of the last round leaves it.
    let first: Vec<&str> = whole.0.lines().take(5).collect();
    desk.write("search/results.csv", first.join("\n"));
    std::fs::remove_file(desk.path("search/preset.toml")).unwrap();
    desk.write("search/.bqrl-x1.tmp", "half a fi");
    desk.ok(&["tune", "--resume", "search", "--quiet"]);
    assert_eq!((desk.read("search/results.csv"), desk.read("search/preset.toml")), whole);
    assert!(!desk.path("search/.bqrl-x1.tmp").exists());
}

#[test]
fn wrong_searches_are_refused() {
    let desk = Desk::new();
    for (arguments, said) in [
        (&["tune", "--seeds", "1000,42"][..], "42 is held out"),
        (&["tune", "--algo", "sarsa"], "deep-bqrl"),
        (&["tune", "--key", "agent.kapa", "--low", "1", "--high", "2"], "agent.kapa"),
        (&["tune", "--key", "agent.kappa"], "--low"),
        (&["tune", "--points", "1"], "--points"),
        (&["tune", "--tau", "1.5"], "(0, 1)"),
        (&["tune", "nowhere"], "nowhere"),
        (&["tune", "--resume", "nowhere"], "nowhere"),
    ] {
        let message = desk.refusal(arguments);
        assert!(message.contains(said), "bqrl {}: {message}", arguments.join(" "));
    }
}
