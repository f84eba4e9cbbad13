//! Games on the command line: listed, learned, played, drawn; and what is refused.

mod support;

use support::Desk;

const GAMES: [&str; 5] =
    ["minatar/breakout", "minatar/asterix", "minatar/freeway", "minatar/seaquest", "minatar/space-invaders"];

/// A short run, which leaves a checkpoint.
const TRAIN: [&str; 13] = [
    "train",
    "minatar/breakout",
    "--algo",
    "qr-dqn",
    "--steps",
    "60",
    "--quiet",
    "--out",
    "run",
    "--set",
    "agent.hidden=[8]",
    "--set",
    "run.evaluation_episodes=2",
];

#[test]
fn games_are_listed_with_their_parameters() {
    let desk = Desk::new();
    let listed = desk.json(&["envs"]);
    let names: Vec<_> = listed["games"].as_array().unwrap().iter().map(|game| &game["name"]).collect();
    assert_eq!(names, GAMES);
    let text = desk.ok(&["envs"]);
    for name in GAMES {
        assert!(text.contains(name), "{name}");
        let detail = desk.json(&["envs", name, "--env", "actions=minimal"]);
        assert_eq!((&detail["name"], &detail["shape"][1]), (&name.into(), &10.into()));
        assert_eq!(detail["parameters"].as_array().unwrap().len(), 5);
        assert!(desk.ok(&["envs", name]).contains("6 actions"));
    }
}

#[test]
fn impossible_requests_are_refused_in_one_line() {
    let desk = Desk::new();
    for (arguments, said) in [
        (&["train", "minatar/brekout"][..], "the closest name is minatar/breakout"),
        (&["train", "minatar/pong"], "minatar/space-invaders"),
        (&["train", "minatar/breakout", "--algo", "var-q"], "var-q"),
        (&["train", "minatar/breakout", "--algo", "ppo"], "ppo"),
        (&["train", "minatar/breakout", "--algo", "ucb-bqrl"], "ucb-bqrl"),
        (&["train", "minatar/breakout", "--env", "sticky=2"], "a number from 0 to 1"),
        (&["train", "minatar/breakout", "--start", "3"], "start"),
        (&["train", "minatar/breakout", "--discount", "2"], "(0, 1]"),
        (&["train", "minatar/breakout", "--normalise"], "normalise"),
        (&["plan", "minatar/breakout"], "no table"),
        (&["eval", "minatar/breakout", "--policy", "left"], "no table"),
        (&["envs", "minatar/breakout", "--export", "x.csv"], "no table"),
        (&["envs", "minatar/tetris"], "minatar/tetris"),
        (&["play", "minatar/brekout"], "minatar/breakout"),
        (&["play", "asset-selling"], "asset-selling"),
        (&["play", "minatar/breakout", "--fps", "0"], "fps"),
        (&["play", "minatar/breakout", "--out", "game.bmp"], "game.bmp"),
        (&["play", "minatar/breakout", "--out", "game.gif", "--steps", "1000000"], "positions"),
        (&["play", "minatar/breakout", "--tau", "0.5"], "--tau"),
        (&["bench", "--games", "--shape", "s"], "--shape"),
    ] {
        let refusal = desk.refusal(arguments);
        assert!(refusal.contains(said), "{arguments:?}: {refusal}");
    }
}

#[test]
fn random_play_is_shown_as_text_and_a_seed_repeats_it() {
    let desk = Desk::new();
    let play = |seed: &str| desk.run(&["play", "minatar/breakout", "--steps", "40", "--seed", seed]);
    let shown = play("1");
    assert_eq!(shown.code, Some(0));
    // In a pipe: a frame of 12 lines and a line below it for the start and for every step; no control characters.
    assert!(!shown.stdout.contains('\u{1b}') && !shown.stdout.contains("\\u001b"));
    assert!(shown.stdout.starts_with("+----------+\n"));
    assert!(shown.stdout.lines().count() >= 41 * 13);
    assert!(shown.stderr.contains("40 steps"), "{}", shown.stderr);
    assert_eq!(play("1").stdout, shown.stdout);
    assert_ne!(play("2").stdout, shown.stdout);
}

#[test]
fn games_are_drawn_into_files() {
    let desk = Desk::new();
    for name in GAMES {
        for (file, magic) in [("game.gif", &b"GIF89a"[..]), ("game.png", b"\x89PNG")] {
            assert_eq!(desk.ok(&["play", name, "--steps", "30", "--out", file]), "");
            assert!(desk.bytes(file).starts_with(magic), "{name} {file}");
        }
    }
    assert_eq!(desk.names(), ["game.gif", "game.png"]);
}

#[test]
fn a_run_on_a_game_is_trained_evaluated_and_watched() {
    let desk = Desk::new();
    let summary = desk.json(&TRAIN);
    assert_eq!(summary["problem"], "minatar/breakout");
    let evaluated = desk.json(&["eval", "run", "--episodes", "3"]);
    assert_eq!(evaluated["exact"], false);
    let shown = desk.ok(&["play", "run", "--steps", "5", "--tau", "0.5"]);
    assert!(shown.contains("step 5"), "{shown}");
    assert!(desk.refusal(&["play", "run", "--seed", "7"]).contains("no seed 7"));
    assert!(desk.refusal(&["play", "run", "--env", "sticky=0"]).contains("--env"));
    // A run on a table is no game.
    desk.ok(&["train", "asset-selling", "--episodes", "5", "--out", "table", "--quiet"]);
    assert!(desk.refusal(&["play", "table"]).contains("no game"));
}

#[test]
fn a_run_that_is_resumed_in_the_middle_of_a_game_ends_the_same() {
    let desk = Desk::new();
    let start = |out: &'static str| {
        let game = [
            "train",
            "minatar/seaquest",
            "--algo",
            "qr-dqn",
            "--steps",
            "400",
            "--lanes",
            "2",
            "--seeds",
            "3",
        ];
        let small =
            ["--set", "agent.hidden=[8]", "--set", "run.evaluation_episodes=2", "--quiet", "--out", out];
        [&game[..], &small, &["--set", "run.checkpoint_every=\"100 steps\""]].concat()
    };
    desk.ok(&start("whole"));
    let resume = vec!["train", "--resume", "parts", "--quiet"];
    let has_begun = || desk.path("parts/config.toml").exists();
    let kills = desk.kill_until_done(|| if has_begun() { resume.clone() } else { start("parts") }, "parts");
    let rows = |out: &str| {
        let text = desk.read(&format!("{out}/seed-3/episodes.csv"));
        let cut = |line: &str| line.split(',').take(3).collect::<Vec<_>>().join(",");
        text.lines().map(cut).collect::<Vec<String>>()
    };
    assert_eq!(rows("whole"), rows("parts"), "after {kills} kills");
}

#[test]
fn the_speed_of_every_game_is_measured() {
    let report = Desk::new().json(&["bench", "--games", "--seconds", "0.01"]);
    let games = report["games"].as_array().unwrap();
    assert_eq!(games.iter().map(|speed| &speed["game"]).collect::<Vec<_>>(), GAMES);
    assert!(games.iter().all(|speed| speed["steps_per_second"].as_f64().is_some_and(|speed| speed > 0.0)));
}
