//! `bqrl train`, as users run it, interrupt it and go on.

mod support;

use std::process::Stdio;
use std::time::Duration;

use support::{Desk, levels, number};

/// A run of a second or so; checkpoints are frequent, so that a kill falls between different ones.
const SHORT: [&str; 9] = [
    "train",
    "frozen-lake",
    "--tau",
    "0.5",
    "--episodes",
    "150",
    "--set",
    "run.checkpoint_every=10",
    "--quiet",
];

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&SHORT[..], more].concat()
}

/// Every file of a run but those that hold wall time, by path.
fn contents(desk: &Desk, run: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = vec![(format!("{run}/config.toml"), desk.bytes(&format!("{run}/config.toml")))];
    for seed in ["seed-42", "seed-7"] {
        for name in ["episodes.csv", "evaluations.csv", "evaluations-distribution.csv", "weights.safetensors"]
        {
            let path = format!("{run}/{seed}/{name}");
            if desk.path(&path).exists() {
                files.push((format!("{seed}/{name}"), desk.bytes(&path)));
            }
        }
        let monitor = format!("{run}/{seed}/monitor.csv");
        if desk.path(&monitor).exists() {
            let text = desk.read(&monitor);
            let untimed = text.lines().skip(1).map(|line| line.rsplit_once(',').unwrap().0.to_owned() + "\n");
            files.push((format!("{seed}/monitor.csv"), untimed.collect::<String>().into_bytes()));
        }
    }
    files[0].0 = "config.toml".into();
    files
}

#[test]
fn the_default_run_learns_asset_selling_and_says_where_it_is() {
    let desk = Desk::new();
    let summary = desk.json(&["train", "--quiet"]);
    assert_eq!(summary["run"], "runs/asset-selling-deep-bqrl-1");
    assert_eq!((&summary["problem"], &summary["algo"]), (&"asset-selling".into(), &"deep-bqrl".into()));
    assert_eq!(summary["episodes"], 2000);
    let level = &levels(&summary)[0];
    assert_eq!(number(level, "tau"), 0.1);
    // The paper reports 538.33 and a regret of 1025.44; about 210 and 50 are usual here.
    let gap = level["quantile_policy_gap"][0].as_f64().unwrap();
    assert!(gap < 400.0, "gap {gap}");
    assert!(summary["expected_return_regret"][0].as_f64().unwrap() < 150.0);
    assert_eq!(summary["updates"].as_u64().unwrap(), summary["env_steps"].as_u64().unwrap() - 23);
    // The summary on disk is what was printed.
    let stored: serde_json::Value =
        serde_json::from_str(&desk.read("runs/asset-selling-deep-bqrl-1/summary.json")).unwrap();
    assert_eq!(stored, summary);
    // A second run gets a directory of its own.
    assert!(desk.ok(&["train", "--episodes", "20", "--quiet"]).contains("runs/asset-selling-deep-bqrl-2"));
}

#[test]
fn seeds_in_parallel_are_the_same_runs_one_after_the_other() {
    let desk = Desk::new();
    desk.ok(&with(&["--seeds", "42,7", "--threads", "2", "--out", "a"]));
    desk.ok(&with(&["--seeds", "42,7", "--threads", "1", "--out", "b"]));
    assert_eq!(contents(&desk, "a"), contents(&desk, "b"));
    assert_eq!(contents(&desk, "a").len(), 9);
}

/// A stochastic policy at two levels: its mode in the places of a greedy policy, the distribution beside it.
#[test]
fn one_risk_neutral_run_serves_several_levels_and_reports_mode_and_distribution() {
    let desk = Desk::new();
    let command = ["train", "--algo", "ppo", "--tau", "0.1,0.9", "--episodes", "60", "--seeds", "42,7"];
    let with = |more: &[&'static str]| [&command[..], more].concat();
    let summary = desk.json(&with(&["--quiet", "--out", "run"]));
    let distribution = summary["distribution"].as_array().unwrap();
    assert_eq!((levels(&summary).len(), distribution.len()), (2, 2));
    for (mode, drawn) in levels(&summary).iter().zip(distribution) {
        assert_eq!(mode["tau"], drawn["tau"]);
        assert_eq!(mode["best_quantile"], drawn["best_quantile"]);
        assert_eq!(drawn["quantile_policy_gap"].as_array().unwrap().len(), 2);
        // The mode of a policy that is still uncertain earns something else than the policy.
        assert_ne!(mode["final_mean"], drawn["final_mean"]);
    }
    // One policy serves both levels.
    assert_eq!(distribution[0]["final_mean"], distribution[1]["final_mean"]);
    assert_eq!(summary["final_mean"], levels(&summary)[0]["final_mean"]);

    // Both files: the same rows (before the first episode, then every ten; two levels), the same regret, the last gap as
    // in the summary.
    for (name, of) in
        [("evaluations.csv", &summary["taus"]), ("evaluations-distribution.csv", &summary["distribution"])]
    {
        let text = desk.read(&format!("run/seed-42/{name}"));
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
        assert_eq!(rows.len(), 1 + 7 * 2, "{name}");
        assert_eq!(rows[0][5], "quantile_policy_gap");
        let [low, high] = [&rows[13], &rows[14]];
        assert_eq!((low[0], low[1], high[0], high[1]), ("60", "0.1", "60", "0.9"));
        for (level, row) in [low, high].into_iter().enumerate() {
            let gap: f64 = row[5].parse().unwrap();
            assert_eq!(of[level]["quantile_policy_gap"][0].as_f64().unwrap(), gap, "{name}");
        }
    }

    // The table has a line per seed, level and policy.
    let table = desk.ok(&with(&["--quiet", "--out", "again"]));
    assert_eq!(table.matches(" mode ").count(), 4, "{table}");
    assert_eq!(table.matches(" distribution ").count(), 4, "{table}");
}

#[test]
fn a_killed_run_goes_on_and_ends_byte_identical() {
    let desk = Desk::new();
    desk.ok(&with(&["--seeds", "42,7", "--out", "whole"]));
    let mut kills = 0;
    let mut arguments = with(&["--seeds", "42,7", "--out", "killed"]);
    // Killed after 150 ms, 300 ms, …: each time somewhere else, until it gets through.
    for attempt in 1..40 {
        let mut child = desk.command(&arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(150 * attempt));
        if child.try_wait().unwrap().is_some_and(|status| status.success()) {
            break;
        }
        child.kill().unwrap();
        child.wait().unwrap();
        kills += 1;
        if desk.path("killed/config.toml").exists() {
            arguments = vec!["train", "--resume", "killed", "--quiet"];
        }
    }
    assert!(kills > 0, "the run was too short to be killed");
    desk.ok(&["train", "--resume", "killed", "--quiet"]);
    assert_eq!(contents(&desk, "killed"), contents(&desk, "whole"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_policy_gradient_goes_on_and_ends_byte_identical() {
    // A checkpoint every 7 episodes falls into the middle of a rollout of 5; the interrupt falls anywhere.
    for algo in ["ppo", "trpo"] {
        let desk = Desk::new();
        let command = |out| {
            let set = "run.checkpoint_every=7";
            let levels = "0.1,0.5";
            [
                "train",
                "frozen-lake",
                "--algo",
                algo,
                "--tau",
                levels,
                "--episodes",
                "1500",
                "--set",
                set,
                "--out",
                out,
            ]
        };
        desk.ok(&command("whole"));
        let child =
            desk.command(&command("cut")).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !desk.path("cut/seed-42/checkpoints").exists() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let id = child.id().to_string();
        assert!(std::process::Command::new("kill").args(["-INT", &id]).status().unwrap().success());
        let code = child.wait_with_output().unwrap().status.code();
        assert_eq!(code, Some(130), "{algo} was too fast to be interrupted");
        let summary = desk.json(&["train", "--resume", "cut", "--quiet"]);
        assert_eq!(summary["distribution"].as_array().unwrap().len(), 2);
        assert_eq!(contents(&desk, "cut"), contents(&desk, "whole"), "{algo}");
        assert_eq!(contents(&desk, "cut").len(), 6);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_checkpoints_and_ends_with_130() {
    let desk = Desk::new();
    let long = ["train", "frozen-lake", "--tau", "0.5", "--episodes", "100000", "--out", "run", "--quiet"];
    for (signal, arguments) in [("-INT", &long[..]), ("-TERM", &["train", "--resume", "run", "--quiet"])] {
        let child = desk.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Wait until it is under way: a first row of episodes is on disk only with a checkpoint, the directory earlier.
        while !desk.path("run/seed-42/monitor.csv").exists() {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_secs(1)); // Long past the start, on a slow machine too.
        let id = child.id().to_string();
        assert!(std::process::Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error: interrupted after a checkpoint at episode "), "{said}");
        assert!(said.contains("hint: `bqrl train --resume run` goes on"), "{said}");
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_with_a_warning() {
    let desk = Desk::new();
    desk.ok(&with(&["--out", "whole"]));
    desk.ok(&with(&["--out", "damaged"]));
    desk.write("damaged/seed-42/checkpoints/000150/critics.safetensors", "torn");
    let run = desk.run(&["train", "--resume", "damaged"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("warning: ") && run.stderr.contains("critics.safetensors"), "{}", run.stderr);
    assert_eq!(contents(&desk, "damaged"), contents(&desk, "whole"));
}

#[test]
fn wrong_settings_are_refused_and_nothing_is_written() {
    let desk = Desk::new();
    for (arguments, said) in [
        (&["train", "--algo", "sarsa"][..], "deep-bqrl"),
        (&["train", "--tau", "0.1,0.5"], "one level"),
        (&["train", "--tau", "1.5"], "(0, 1)"),
        (&["train", "--beta", "0.2"], "(0, tau]"),
        (&["train", "--episodes", "0"], "run.episodes"),
        (&["train", "--episodes", "-5"], "-5"),
        (&["train", "--seeds", "1,1"], "run.seeds"),
        (&["train", "--set", "agent.zeta=2.0"], "zeta must lie in (0, 1]"),
        (&["train", "--set", "agent.zet=2.0"], "zet"),
        (&["train", "--set", "zeta"], "SECTION.KEY=VALUE"),
        (&["train", "--set", "agent.kernels=abacus"], "kernels"),
        (&["train", "--config", "missing.toml"], "missing.toml"),
        (&["train", "nowhere"], "nowhere"),
        (&["train", "--env", "offers=1"], "offers"),
        (&["train", "--resume", "nowhere"], "nowhere"),
        (&["train", "--force"], "--out"),
    ] {
        let message = desk.refusal(arguments);
        assert!(message.contains(said), "bqrl {}: {message}", arguments.join(" "));
    }
}

#[test]
fn a_run_is_neither_overwritten_nor_resumed_with_other_settings() {
    let desk = Desk::new();
    desk.ok(&with(&["--out", "run"]));
    let before = contents(&desk, "run");
    assert!(desk.refusal(&with(&["--out", "run"])).contains("--force"));
    let refused =
        desk.refusal(&["train", "--resume", "run", "--set", "agent.kappa=1.0", "--episodes", "300"]);
    assert!(refused.contains("agent.kappa") && refused.contains("run.episodes"), "{refused}");
    assert_eq!(contents(&desk, "run"), before);
    // The same settings again are no change, and a finished run has nothing left to do.
    desk.ok(&["train", "frozen-lake", "--resume", "run", "--tau", "0.5", "--quiet"]);
    assert_eq!(contents(&desk, "run"), before);
    desk.ok(&with(&["--out", "run", "--force", "--seeds", "7"]));
    assert_ne!(contents(&desk, "run"), before);
}

#[test]
fn a_configuration_file_goes_on_top_of_the_preset_and_flags_on_top_of_it() {
    let desk = Desk::new();
    desk.write("mine.toml", "[run]\nepisodes = 30\ntau = [0.9]\n[agent]\nkappa = 1.0\n");
    desk.ok(&[
        "train",
        "--config",
        "mine.toml",
        "--tau",
        "0.5",
        "--set",
        "agent.n_critics=2",
        "--out",
        "run",
        "--quiet",
    ]);
    let stored = desk.read("run/config.toml");
    for line in ["episodes = 30", "tau = [0.5]", "kappa = 1.0", "n_critics = 2", "zeta = 0.01"] {
        assert!(stored.lines().any(|stored| stored == line), "{line} in {stored}");
    }
}

#[test]
fn too_many_returns_are_sampled_and_say_so() {
    let desk = Desk::new();
    // Eleven irregular rewards over thirty stages have C(40, 10) sums; action 1 pays 0.3010299 for sure.
    let gamble = |k: u32| format!("0,0,0,{},{}\n", 1.0 / 11.0, f64::from(k).sqrt() - 2.5);
    let rows: String = (2..13).map(gamble).collect();
    desk.write("mdp.csv", format!("{}{rows}0,1,0,1,0.3010299\n", support::HEADER));
    let run = [
        "train",
        "mdp.csv",
        "--horizon",
        "30",
        "--start",
        "0",
        "--tau",
        "0.5",
        "--episodes",
        "40",
        "--quiet",
    ];
    let summary = desk.json(&run);
    assert_eq!(summary["exact"], false);
    // Thirty sure rewards make 9.03, less a little for rounding; a gamble pays less on average but may end above.
    let best = number(&levels(&summary)[0], "best_quantile");
    assert!((8.9..12.0).contains(&best), "{best}");
    let reached = levels(&summary)[0]["final_quantile"][0].as_f64().unwrap();
    assert!((-33.0..=12.0).contains(&reached), "{reached}");
    // The same draws every time: the same run again is the same.
    let again = desk.json(&run);
    assert_eq!(again["taus"], summary["taus"]);
}

#[test]
fn a_file_that_restricts_actions_is_refused() {
    let desk = Desk::new();
    desk.write("mdp.csv", format!("{}0,0,0,1,1\n0,1,1,1,2\n1,0,0,1,0\n", support::HEADER));
    let message = desk.refusal(&["train", "mdp.csv", "--horizon", "3", "--start", "0"]);
    assert!(message.contains("action 1 is not available in state 1"), "{message}");
}

#[test]
fn an_mdp_file_can_be_trained_on() {
    let desk = Desk::new();
    desk.ok(&["envs", "gamble-chain", "--export", "chain.csv"]);
    let summary = desk.json(&[
        "train",
        "chain.csv",
        "--horizon",
        "4",
        "--start",
        "0",
        "--tau",
        "0.5",
        "--episodes",
        "50",
        "--quiet",
    ]);
    assert_eq!(summary["run"], "runs/chain-deep-bqrl-1");
}
