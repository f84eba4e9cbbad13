//! `bqrl sweep`: whole, in shards, interrupted, killed, and refused.

mod support;

#[cfg(unix)]
use std::process::Stdio;

use support::{Desk, assert_same_files};
#[cfg(unix)]
use support::{signal, wait_until};

/// Two settings at two levels, two seeds: eight runs of a second or less.
const FILE: &str = "\
[problem]
name = \"frozen-lake\"
[run]
episodes = 60
checkpoint_every = 10
seeds = [1000, 1001]
[agent]
kind = \"deep-bqrl\"
hidden = [16]
[grid]
agent.kappa = [0.1, 1.0]
run.tau = [[0.5], [0.9]]
";

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("s.toml", FILE);
    desk
}

fn sweep<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&["sweep", "s.toml", "--quiet"][..], more].concat()
}

/// Every file below a sweep's directory, by path. Wall time is left out: `t` of monitor.csv, `seconds` (and the place) of
/// summary.json, events, and checkpoints, which hold the time of the start.
fn contents(desk: &Desk, root: &str) -> Vec<(String, Vec<u8>)> {
    let mut files = Vec::new();
    let mut folders = vec![desk.path(root)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                if name != "checkpoints" {
                    folders.push(path);
                }
                continue;
            }
            let bytes = std::fs::read(&path).unwrap();
            let text = || String::from_utf8(bytes.clone()).unwrap();
            let bytes = match name.as_str() {
                name if name.starts_with("events.out") => continue,
                // A process killed between its last file and its end leaves its id there, which binds nobody.
                // Its time of writing is wall time.
                ".bqrl-lock" | "progress.json" => continue,
                "monitor.csv" => {
                    let untimed = |line: &str| line.rsplit_once(',').unwrap().0.to_owned() + "\n";
                    text().lines().skip(1).map(untimed).collect::<String>().into_bytes()
                }
                "summary.json" => {
                    let mut summary: serde_json::Value = serde_json::from_str(&text()).unwrap();
                    for wall_time in ["seconds", "frames_per_second"] {
                        assert!(summary[wall_time].take().is_number());
                    }
                    assert!(summary["run"].take().is_string());
                    summary.to_string().into_bytes()
                }
                _ => bytes,
            };
            files.push((path.strip_prefix(desk.path(root)).unwrap().to_str().unwrap().to_owned(), bytes));
        }
    }
    files.sort();
    files
}

#[test]
fn shards_together_are_the_sweep_in_one_piece() {
    let desk = desk();
    let table = desk.ok(&sweep(&["--out", "whole", "--threads", "2"]));
    // A line per setting and level, means over the two seeds.
    assert!(table.contains("kappa") && table.contains('±'), "{table}");
    assert_eq!(
        table.lines().filter(|line| line.contains('±') && !line.starts_with('±')).count(),
        4,
        "{table}"
    );

    for shard in ["3/3", "1/3"] {
        assert!(desk.ok(&sweep(&["--out", "parts", "--shard", shard])).contains("--collect"));
    }
    let missing = desk.run(&sweep(&["--out", "parts", "--collect"]));
    assert_eq!(missing.code, Some(1));
    // Runs 1, 4 and 7 (from 0) are those of shard 2/3.
    let said = "error: 3 of 8 runs are not finished, the first is kappa=0.1,tau=0.5,seed=1001\n\
                hint: parts/sweep.csv has the others\n";
    assert_eq!(missing.stderr, said);
    assert_eq!(desk.read("parts/sweep.csv").lines().count(), 1 + 5);
    let list = desk.ok(&sweep(&["--out", "parts", "--list"]));
    assert_eq!((list.matches("not begun").count(), list.matches("finished").count()), (3, 5), "{list}");

    desk.ok(&sweep(&["--out", "parts", "--shard", "2/3"]));
    desk.ok(&sweep(&["--out", "parts", "--collect"]));
    let (whole, parts) = (contents(&desk, "whole"), contents(&desk, "parts"));
    assert_eq!(whole, parts);
    assert!(whole.iter().any(|(name, _)| name == "sweep.csv"));
    assert_eq!(whole.iter().filter(|(name, _)| name.ends_with("weights.safetensors")).count(), 8);

    // The table says what the runs say, and an ordinary run with these settings is one of them.
    let csv = desk.read("whole/sweep.csv");
    let row = csv.lines().nth(1).unwrap();
    assert!(row.starts_with("\"kappa=0.1,tau=0.5,seed=1000\",0.1,0.5,1000,0.5,0.5,"), "{row}");
    let summary = desk.json(&[
        "train",
        "--config",
        "whole/kappa=0.1,tau=0.5,seed=1000/config.toml",
        "frozen-lake",
        "--out",
        "alone",
        "--quiet",
    ]);
    let gap = summary["taus"][0]["quantile_policy_gap"][0].to_string();
    assert_eq!(row.split(',').rev().nth(4).unwrap().parse::<f64>().unwrap(), gap.parse::<f64>().unwrap());
    let weights = "seed-1000/weights.safetensors";
    let of = |run: &str| desk.bytes(&format!("{run}/{weights}"));
    assert_eq!(of("alone"), of("whole/kappa=0.1,tau=0.5,seed=1000"));
}

#[test]
fn a_killed_sweep_goes_on_and_ends_the_same() {
    let desk = desk();
    desk.ok(&sweep(&["--out", "whole"]));
    let kills = desk.kill_until_done(|| sweep(&["--out", "killed"]), "killed");
    assert!(kills > 0, "the sweep was too short to be killed");
    assert_same_files(&contents(&desk, "killed"), &contents(&desk, "whole"));
}

#[cfg(unix)]
#[test]
fn an_interrupted_sweep_goes_on_and_computes_nothing_twice() {
    let desk = desk();
    desk.write("s.toml", FILE.replace("episodes = 60", "episodes = 400"));
    let mut command = desk.command(&sweep(&["--out", "r", "--threads", "1"]));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let (first, second) =
        ("r/kappa=0.1,tau=0.5,seed=1000/summary.json", "r/kappa=0.1,tau=0.5,seed=1001/config.toml");
    wait_until("the second run", || desk.path(second).exists());
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let said = String::from_utf8(output.stderr).unwrap();
    // Seven, unless this test was kept from interrupting for the length of a run.
    assert!(
        said.starts_with("error: interrupted with ") && said.contains(" of 8 runs to go\nhint: the same"),
        "{said}"
    );
    assert!(!desk.path("r/kappa=1.0,tau=0.9,seed=1001").exists(), "a run was begun after the interrupt");

    let written = || desk.path(first).metadata().unwrap().modified().unwrap();
    let before = written();
    let output = desk.json(&sweep(&["--out", "r"]));
    assert_eq!(written(), before, "a finished run was made again");
    assert_eq!(output["runs"].as_array().unwrap().len(), 8);
    assert_eq!(output["table"], "r/sweep.csv");
    assert_eq!(output["runs"][7]["name"], "kappa=1.0,tau=0.9,seed=1001");
    assert_eq!(output["runs"][7]["settings"], serde_json::json!({"agent.kappa": "1.0", "run.tau": "0.9"}));
    assert_eq!(output["runs"][7]["summary"]["seeds"], serde_json::json!([1001]));
}

#[test]
fn one_run_that_diverges_does_not_stop_the_others() {
    let desk = Desk::new();
    // An Adam step is about the learning rate: a rate of 1e38 overflows what single precision holds at once.
    desk.write(
        "s.toml",
        "[run]\nseeds = [1000]\nepisodes = 60\n[grid]\nagent.learning_rate = [1e38, 1e-3]\n",
    );
    let run = desk.run(&sweep(&["--out", "r"]));
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("learning_rate=1e38,seed=1000: seed 1000, episode "), "{}", run.stderr);
    assert!(desk.path("r/learning_rate=0.001,seed=1000/summary.json").exists());
    assert!(run.stderr.contains("--collect"), "{}", run.stderr);
}

#[test]
fn slurm_gets_a_script_that_runs_every_shard() {
    let desk = desk();
    let flags = ["--out", "r", "--slurm", "--no-submit", "--tasks", "3", "--json", "--", "--time=5"];
    let submitted: serde_json::Value = serde_json::from_str(&desk.ok(&sweep(&flags))).unwrap();
    assert_eq!(
        (&submitted["runs"], &submitted["tasks"], &submitted["job"]),
        (&8.into(), &3.into(), &().into())
    );
    let script = desk.read("r/sweep.sbatch");
    assert!(script.contains("#SBATCH --array=1-3\n") && script.contains("#SBATCH --time=5\n"), "{script}");
    // The script, as Slurm would run its tasks; the user's file is gone by then.
    std::fs::remove_file(desk.path("s.toml")).unwrap();
    for task in ["1", "2", "3"] {
        let mut command = std::process::Command::new("sh");
        command.arg(submitted["script"].as_str().unwrap()).current_dir(desk.path("r"));
        let output = command.env("SLURM_ARRAY_TASK_ID", task).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    desk.ok(&["sweep", "r/sweep.toml", "--out", "r", "--collect"]);
    assert_eq!(desk.read("r/sweep.csv").lines().count(), 9);
}

#[test]
fn without_sbatch_the_script_is_written_and_the_error_says_so() {
    let desk = desk();
    let output = desk.command(&sweep(&["--out", "r", "--slurm"])).env("PATH", "").output().unwrap();
    let run = support::Run::of(output);
    assert_eq!(run.code, Some(1));
    assert!(run.stderr.starts_with("error: sbatch is not installed here\nhint: `sbatch "), "{}", run.stderr);
    assert!(desk.path("r/sweep.sbatch").exists());
}

#[test]
fn mistakes_are_refused_before_anything_is_written() {
    let desk = desk();
    desk.write("typo.toml", FILE.replace("agent.kappa", "agent.kapa"));
    desk.write("empty.toml", FILE.replace("[0.1, 1.0]", "[]"));
    desk.write("seedless.toml", FILE.replace("seeds = [1000, 1001]", ""));
    desk.write("wrong.toml", FILE.replace("agent.kappa = [0.1, 1.0]", "agent.zeta = [0.5, 2.0]"));
    for (arguments, said) in [
        (&["sweep"][..], "FILE.toml"),
        (&["sweep", "nowhere.toml"], "nowhere.toml"),
        (
            &["sweep", "typo.toml"],
            "typo.toml: kapa=0.1,tau=0.5,seed=1000: settings: deep-bqrl has no setting \"kapa\"",
        ),
        (&["sweep", "empty.toml"], "empty.toml: grid: agent.kappa has no values"),
        (&["sweep", "seedless.toml"], "seedless.toml: run.seeds is missing"),
        (&["sweep", "wrong.toml"], "wrong.toml: zeta=2.0,tau=0.5,seed=1000: agent.zeta must lie in (0, 1]"),
        (&["sweep", "s.toml", "--shard", "9/8"], "1 <= I <= N"),
        (&["sweep", "s.toml", "--shard", "1/2", "--slurm"], "--slurm"),
        (&["sweep", "s.toml", "--tasks", "2"], "--slurm"),
        (&["sweep", "s.toml", "--threads", "0"], "--threads"),
        (&["sweep", "s.toml", "--", "--time=5"], "--slurm"),
    ] {
        let message = desk.refusal(arguments);
        assert!(message.contains(said), "bqrl {}: {message}", arguments.join(" "));
    }
}

#[test]
fn runs_with_other_settings_are_refused_and_more_values_are_added() {
    let desk = desk();
    desk.write("s.toml", FILE.replace("episodes = 60", "episodes = 10"));
    desk.ok(&sweep(&["--out", "r"]));
    let before = contents(&desk, "r");
    desk.write("s.toml", FILE.replace("episodes = 60", "episodes = 20"));
    let message = desk.refusal(&sweep(&["--out", "r"]));
    assert!(
        message.contains("was run with other settings: run.episodes") && message.contains("--force"),
        "{message}"
    );
    assert_eq!(contents(&desk, "r"), before);

    let more = FILE.replace("episodes = 60", "episodes = 10").replace("[0.1, 1.0]", "[0.1, 0.3, 1.0]");
    desk.write("s.toml", more);
    let list = desk.ok(&sweep(&["--out", "r", "--list"]));
    assert_eq!((list.matches("finished").count(), list.matches("not begun").count()), (8, 4), "{list}");
    desk.ok(&sweep(&["--out", "r"]));
    assert_eq!(desk.read("r/sweep.csv").lines().count(), 13);

    desk.write("s.toml", FILE.replace("episodes = 60", "episodes = 20"));
    desk.ok(&sweep(&["--out", "r", "--force"]));
    assert_eq!(desk.read("r/kappa=0.1,tau=0.5,seed=1000/seed-1000/episodes.csv").lines().count(), 21);
}
