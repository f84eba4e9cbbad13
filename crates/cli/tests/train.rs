//! `bqrl train`, as users run it, interrupt it and go on.

mod support;

#[cfg(unix)]
use std::process::Stdio;

use support::{Desk, assert_close, assert_same_files, levels, number};
#[cfg(unix)]
use support::{signal, wait_until};

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
    // One update per step, from the eighth on.
    assert_eq!(summary["updates"].as_u64().unwrap(), summary["env_steps"].as_u64().unwrap() - 7);
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
    assert_same_files(&contents(&desk, "a"), &contents(&desk, "b"));
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
    // It is killed only after it has got further, so it can be resumed from then on.
    let arguments = || {
        if desk.path("killed/config.toml").exists() {
            vec!["train", "--resume", "killed", "--quiet"]
        } else {
            with(&["--seeds", "42,7", "--out", "killed"])
        }
    };
    let kills = desk.kill_until_done(arguments, "killed");
    assert!(kills > 0, "the run was too short to be killed");
    assert_same_files(&contents(&desk, "killed"), &contents(&desk, "whole"));
}

#[cfg(unix)]
#[test]
fn a_killed_run_in_lanes_and_steps_ends_byte_identical_and_can_be_read_meanwhile() {
    let desk = Desk::new();
    let command = |out| {
        let (every, often) = ("run.checkpoint_every=500 steps", "run.evaluate_every=500 steps");
        let length = ["train", "frozen-lake", "--tau", "0.5", "--lanes", "5", "--steps", "12000"];
        [&length[..], &["--set", every, "--set", often, "--seeds", "42,7", "--quiet", "--out", out]].concat()
    };
    let summary = desk.json(&command("whole"));
    assert_eq!((&summary["steps"], &summary["lanes"]), (&12000.into(), &5.into()));
    assert_eq!(summary["env_steps"], 2 * 12000);
    let arguments = || {
        if desk.path("killed/config.toml").exists() {
            vec!["train", "--resume", "killed", "--quiet"]
        } else {
            command("killed")
        }
    };
    let kills = desk.kill_until_done(arguments, "killed");
    assert!(kills > 0, "the run was too short to be killed");
    assert_same_files(&contents(&desk, "killed"), &contents(&desk, "whole"));
    // Before its end: the report says how far the run is.
    std::fs::remove_file(desk.path("killed/summary.json")).unwrap();
    let report = desk.json(&["report", "killed", "--out", "page"]);
    assert_eq!(report["state"], "interrupted");
    assert!(desk.ok(&["eval", "killed"]).contains("after 12000 steps"));
}

#[test]
fn lanes_and_lengths_that_cannot_be_are_refused_and_nothing_is_written() {
    let desk = Desk::new();
    for (more, said) in [
        (&["--lanes", "0"][..], "run.lanes must lie in 1..=4096, got 0"),
        (&["--lanes", "5000"], "run.lanes must lie in 1..=4096, got 5000"),
        (&["--steps", "0"], "run.steps must lie in 1..="),
        (&["--steps", "5", "--episodes", "5"], "cannot be used with"),
        (&["--tau", "1"], "tau must lie in (0, 1), got 1"),
        (&["--set", "agent.replay_capacity=1000000000000"], "a replay of 1000000000000 transitions needs"),
        (&["--set", "run.evaluate_every=often"], "500 episodes"),
    ] {
        let message = desk.refusal(&[&["train", "river-swim", "--out", "run"][..], more].concat());
        assert!(message.contains(said), "{more:?}: {message}");
        assert!(!desk.path("run").exists(), "{more:?}");
    }
    desk.write("m.csv", "idstatefrom,idaction,idstateto,probability,reward\n0,0,0,1,1\n0,1,0,1,0\n");
    let long = "train m.csv --horizon 60000000 --start 0 --lanes 4000 --out run";
    let message = desk.refusal(&long.split(' ').collect::<Vec<_>>());
    assert!(
        message.contains("run.lanes: 4000 lanes with episodes of up to 60000000 steps need"),
        "{message}"
    );
    assert!(!desk.path("run").exists());
}

#[test]
fn a_runs_own_configuration_reproduces_it_whatever_its_algorithm_and_problem() {
    let desk = Desk::new();
    desk.ok(&[
        "train",
        "river-swim",
        "--algo",
        "ppo",
        "--episodes",
        "30",
        "--seed",
        "7",
        "--quiet",
        "--out",
        "a",
    ]);
    desk.ok(&["train", "--config", "a/config.toml", "--quiet", "--out", "b"]);
    assert_same_files(&contents(&desk, "b"), &contents(&desk, "a"));
    // A flag wins over the file.
    let other = desk.json(&["train", "gamble-chain", "--config", "a/config.toml", "--quiet", "--out", "c"]);
    assert_eq!((&other["problem"], &other["algo"]), (&"gamble-chain".into(), &"ppo".into()));
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
        let child = desk.spawn(&command("cut"));
        wait_until("a checkpoint", || !desk.progress("cut").is_empty());
        signal(&child, "-INT");
        let code = child.wait_with_output().unwrap().status.code();
        assert_eq!(code, Some(130), "{algo} was too fast to be interrupted");
        let summary = desk.json(&["train", "--resume", "cut", "--quiet"]);
        assert_eq!(summary["distribution"].as_array().unwrap().len(), 2);
        assert_same_files(&contents(&desk, "cut"), &contents(&desk, "whole"));
        assert_eq!(contents(&desk, "cut").len(), 6);
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_checkpoints_and_ends_with_130() {
    let desk = Desk::new();
    let long =
        "train frozen-lake --tau 0.5 --episodes 100000 --set run.checkpoint_every=10 --out run --quiet";
    let long: Vec<&str> = long.split(' ').collect();
    for (kind, arguments) in [("-INT", &long[..]), ("-TERM", &["train", "--resume", "run", "--quiet"])] {
        let before = desk.progress("run");
        let child = desk.command(arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // A checkpoint of its own shows that it is under way, and that it listens.
        wait_until("a checkpoint", || desk.progress("run").iter().any(|path| !before.contains(path)));
        signal(&child, kind);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("error: interrupted after a checkpoint at episode "), "{said}");
        assert!(said.contains("hint: `bqrl train --resume run` resumes it"), "{said}");
    }
}

#[test]
fn a_damaged_checkpoint_is_passed_over_with_a_warning() {
    let desk = Desk::new();
    desk.ok(&with(&["--out", "whole"]));
    desk.ok(&with(&["--out", "damaged"]));
    let stored = desk.progress("damaged/seed-42/checkpoints").into_iter();
    let newest = stored.filter(|path| path.join("critics.safetensors").exists()).max().unwrap();
    std::fs::write(newest.join("critics.safetensors"), "torn").unwrap();
    let run = desk.run(&["train", "--resume", "damaged"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("warning: ") && run.stderr.contains("critics.safetensors"), "{}", run.stderr);
    assert_same_files(&contents(&desk, "damaged"), &contents(&desk, "whole"));
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
        (&["train", "--set", "agent.kernels=abacus"], "agent.kernels: unknown variant `abacus`"),
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
    // The reference lies within the bounds of `bqrl plan`. A policy that takes thirty sure rewards returns 9.031; one that
    // also gambles at the end when it is ahead does a little better.
    let plan = desk.json(&[
        "plan",
        "mdp.csv",
        "--horizon",
        "30",
        "--start",
        "0",
        "--tau",
        "0.5",
        "--grid",
        "20000",
        "--quiet",
    ]);
    let [low, high] =
        ["best_quantile_lower", "best_quantile_upper"].map(|key| number(&levels(&plan)[0], key));
    // Rounded rewards lose at most 30 · (28.93 + 32.58) / 20000 = 0.093 of the return.
    assert!(9.031 - 0.093 < low && high < low + 2.0 * 0.093, "{low} … {high}");
    let best = number(&levels(&summary)[0], "best_quantile");
    assert!((low..=high).contains(&best), "{best}, want {low} … {high}");
    assert_close(number(&summary, "max_mean"), 9.030897, 0.093, "max_mean");
    // A gamble has mean 0.0681 and standard deviation 0.6363; coin flips between the two actions make 15 · (0.0681 + 0.3010)
    // = 5.54. Played in 1000 episodes, a mean has the standard error 0.6363 · √30 / √1000 = 0.110 at most, a median about
    // 1.25 times that: five of them are 0.55 and 0.69. So a learner lies clearly above coin flips, and no policy lies above
    // the optimum by more.
    let level = &levels(&summary)[0];
    let [quantile, mean] = ["final_quantile", "final_mean"].map(|key| level[key][0].as_f64().unwrap());
    assert!((5.54 + 0.69..high + 0.69).contains(&quantile), "{quantile}");
    assert!((5.54 + 0.55..9.031 + 0.55).contains(&mean), "{mean}");
    // Coin flips in all 40 episodes cost 40 · (9.031 − 5.54) = 140. Luck is worth five standard errors of 3.485 · √40 at most.
    let regret = summary["expected_return_regret"][0].as_f64().unwrap();
    assert!((-110.0..140.0).contains(&regret), "{regret}");
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
