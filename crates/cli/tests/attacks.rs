//! Attacks that once succeeded, one test each. What each promise is, and where the other tests of it are:
//! docs/reliability.md.

mod support;

use std::fs;
#[cfg(target_os = "linux")]
use std::fs::File;
#[cfg(unix)]
use std::os::unix::fs::symlink;
use std::process::Stdio;

use support::{Desk, HEADER, Run};
#[cfg(unix)]
use support::{signal, wait_until};

/// A run of less than a second.
fn short<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["train", "frozen-lake", "--tau", "0.5", "--episodes", "60", "--out", out], more].concat()
}

/// A run that nobody waits for.
#[cfg(unix)]
fn long<'a>(out: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["train", "frozen-lake", "--tau", "0.5", "--episodes", "100000", "--out", out], more].concat()
}

#[track_caller]
fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

/// Trains until the first checkpoint, and is then killed.
#[cfg(unix)]
fn interrupted(desk: &Desk, arguments: &[&str], folder: &str) {
    let every = ["--set", "run.checkpoint_every=5"];
    let mut child = desk.spawn(&[arguments, &every].concat());
    wait_until("a checkpoint", || {
        assert!(child.try_wait().unwrap().is_none(), "the run ended");
        let whole = |path: &std::path::PathBuf| path.join("manifest.json").exists();
        desk.progress(folder).iter().filter(|path| whole(path)).count() >= 2
    });
    child.kill().unwrap();
    child.wait().unwrap();
}

/// D1.
#[cfg(target_os = "linux")]
#[test]
fn a_full_or_closed_standard_error_does_not_end_a_run() {
    let desk = Desk::new();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let want = desk.ok(&short("want", &["--json", "--quiet"]));
    let seconds = |text: &str| text.split(",\"seconds\"").next().unwrap().replace("want", "run");

    let run = desk.command(&short("run", &["--json"])).stderr(full()).output().unwrap();
    assert_eq!(run.status.code(), Some(0));
    assert_eq!(seconds(&String::from_utf8(run.stdout).unwrap()), seconds(&want));

    let mut child = desk
        .command(&short("closed", &["--json"]))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stderr.take());
    let run = child.wait_with_output().unwrap();
    assert_eq!(run.status.code(), Some(0));

    // Mistakes have their exit code, whether they can be told or not.
    for arguments in [&["train", "--nope"][..], &["plan", "nothing"], &[]] {
        assert_eq!(desk.command(arguments).stderr(full()).status().unwrap().code(), Some(2), "{arguments:?}");
    }
}

/// D3.
#[cfg(unix)]
#[test]
fn a_run_whose_settings_or_rows_were_changed_is_not_resumed() {
    let desk = Desk::new();
    interrupted(&desk, &long("run", &["--quiet"]), "run");
    let resume = ["train", "--resume", "run", "--quiet"];
    for (file, from, to, said) in [
        (
            "config.toml",
            "kappa = 0.2",
            "kappa = 0.3",
            "config.toml was changed after the run began: agent.kappa",
        ),
        ("config.toml", "episodes = 100000", "episodes = 20", "run.episodes"),
        ("seed-42/episodes.csv", "\n1,", "\n7,", "episodes.csv: its first"),
        ("seed-42/evaluations.csv", "\n0,", "\n1,", "evaluations.csv: its first"),
        ("seed-42/monitor.csv", "r,l,t", "l,r,t", "monitor.csv: its first"),
    ] {
        let path = format!("run/{file}");
        let text = desk.read(&path);
        let changed = text.replacen(from, to, 1);
        assert_ne!(text, changed, "{file}: {from}");
        desk.write(&path, &changed);
        assert_says(&desk.refusal(&resume), &[said, "hint: "]);
        assert_eq!(desk.read(&path), changed, "a refused run is not touched");
        desk.write(&path, text);
    }
    // Put right, it goes on.
    let mut child = desk.spawn(&resume);
    let before = desk.progress("run");
    wait_until("a further checkpoint", || desk.progress("run").iter().any(|path| !before.contains(path)));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// D3.
#[cfg(unix)]
#[test]
fn a_run_on_a_file_is_resumed_and_evaluated_from_any_directory_on_the_file_that_it_began_with() {
    let desk = Desk::new();
    // One certain reward, or two or none.
    let rows = "0,0,1,1,1\n0,1,1,.5,2\n0,1,1,.5,0\n1,0,0,1,1\n1,1,0,.5,2\n1,1,0,.5,0\n";
    desk.write("mdp.csv", format!("{HEADER}{rows}"));
    let train = |out, episodes| {
        [
            "train",
            "mdp.csv",
            "--horizon",
            "6",
            "--start",
            "0",
            "--out",
            out,
            "--episodes",
            episodes,
            "--quiet",
        ]
    };
    desk.ok(&train("whole", "40"));
    interrupted(&desk, &train("run", "100000"), "run");

    // The file changes, then it is gone, and the directory is another one.
    desk.write("mdp.csv", format!("{HEADER}{}", rows.replace(",2\n", ",200\n")));
    let of_whole = |desk: &Desk| desk.json(&["eval", "whole"])["taus"].clone();
    let changed = of_whole(&desk);
    fs::remove_file(desk.path("mdp.csv")).unwrap();
    assert_eq!(of_whole(&desk), changed);
    fs::create_dir(desk.path("elsewhere")).unwrap();
    let there = |arguments: &[&str]| {
        Run::of(desk.command(arguments).current_dir(desk.path("elsewhere")).output().unwrap())
    };
    let run = there(&["eval", "../whole", "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(
        changed[0]["best_quantile"].as_f64().unwrap() <= 12.0,
        "the first rewards are at most 2: {changed}"
    );
    let mut child = desk
        .command(&["train", "--resume", "../run", "--quiet"])
        .current_dir(desk.path("elsewhere"))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let before = desk.progress("run");
    wait_until("a further checkpoint", || desk.progress("run").iter().any(|path| !before.contains(path)));
    child.kill().unwrap();
    child.wait().unwrap();

    // The copy is covered by the checkpoint.
    let copy = desk.read("run/problem.csv");
    desk.write("run/problem.csv", copy.replacen(",2\n", ",3\n", 1));
    let said = desk.refusal(&["train", "--resume", "run", "--quiet"]);
    assert_says(&said, &["mdp.csv is another problem than when the run began"]);
}

/// D4 and D13.
#[test]
fn counts_without_reason_are_refused_with_their_range_and_nothing_is_written() {
    let desk = Desk::new();
    for (algo, setting, said) in [
        (
            "deep-bqrl",
            "run.evaluation_episodes=1000000000000",
            "run.evaluation_episodes must lie in 1..=10000000",
        ),
        ("deep-bqrl", "run.episodes=4611686018427387904", "run.episodes must lie in 1..=281474976710656"),
        (
            "deep-bqrl",
            "agent.batch_size=1000000000",
            "agent.batch_size must lie in 1..=65536, got 1000000000",
        ),
        ("deep-bqrl", "agent.n_quantiles=100000", "agent.n_quantiles must lie in 1..=1024"),
        ("deep-bqrl", "agent.n_critics=1000000", "agent.n_critics must lie in 2..=256, got 1000000"),
        ("deep-bqrl", "agent.updates_per_step=1000000000", "agent.updates_per_step must lie in [0, 1000]"),
        ("deep-bqrl", "agent.hidden=[64, 10000000]", "agent.hidden must be at most 16 widths in 1..=65536"),
        ("deep-bqrl", "agent.hidden=[65536, 65536]", "parameters are supported"),
        ("deep-bqrl", "agent.replay_capacity=1000000000000000", "GB"),
        ("qr-dqn", "agent.batch_size=0", "agent.batch_size must lie in 1..=65536"),
        ("target-tracking", "agent.updates_per_step=1e9", "agent.updates_per_step must lie in [0, 1000]"),
        ("target-tracking", "agent.n_critics=1000000", "agent.n_critics must lie in 1..=16"),
        ("ppo", "agent.epochs=1000000000", "agent.epochs must lie in 1..=10000"),
        ("ppo", "agent.episodes_per_update=1000000000000", "agent.episodes_per_update must lie in"),
        ("trpo", "agent.cg_iterations=1000000000", "agent.cg_iterations must lie in 1..=10000"),
        ("qppo", "agent.epochs=1000000000", "agent.epochs must lie in 1..=10000"),
        ("var-q", "agent.n_levels=1000000000", "agent.n_levels must lie in 1..=10000"),
        ("var-q", "agent.replay_episodes=1000000000", "agent.replay_episodes must lie in"),
        ("ucb-bqrl", "agent.max_returns=1000000000", "agent.max_returns must lie in"),
    ] {
        let said_now =
            desk.refusal(&["train", "--algo", algo, "--tau", "0.1", "--set", setting, "--seeds", "1,2,3,4"]);
        assert_says(&said_now, &[said]);
    }
    desk.ok(&short("run", &["--quiet"]));
    assert_says(&desk.refusal(&["eval", "run", "--episodes", "4294967295"]), &["--episodes", "10000000"]);
}

/// D4.
#[test]
fn a_plan_that_is_too_large_says_how_much_it_needs_and_offers_the_grid() {
    let desk = Desk::new();
    // 400 rewards that are multiples of a cent, 4000 stages: some 16 GB of actions.
    let row =
        |k: u32| format!("{},0,{},1,{}.01\n{},1,{},1,{}\n", k, (k + 1) % 400, k % 7, k, (k + 3) % 400, k % 5);
    desk.write("mdp.csv", format!("{HEADER}{}", (0..400).map(row).collect::<String>()));
    let plan = ["plan", "mdp.csv", "--horizon", "4000", "--start", "0"];
    let said = desk.refusal(&plan);
    assert_says(&said, &["the tables of 4000 stages may need", "GB (limit 8.6 GB)", "--grid 20000"]);
    let said = desk.refusal(&[&plan[..], &["--grid", "10000000"]].concat());
    assert_says(&said, &["GB (limit 8.6 GB)", "a smaller --grid"]);
}

/// D5.
#[cfg(target_os = "linux")]
#[test]
fn threads_are_a_few_per_core_whatever_is_asked_for() {
    let desk = Desk::new();
    assert_says(&desk.refusal(&["train", "--threads", "65535"]), &["65535", "1..=1024"]);
    let mut child = desk.spawn(&long("run", &["--threads", "1024"]));
    wait_until("a seed", || desk.path("run/seed-42/episodes.csv").exists());
    let threads = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap().count();
    child.kill().unwrap();
    child.wait().unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    // The main thread, and one that listens for signals or draws.
    assert!(threads <= 4 * cores + 3, "{threads} threads on {cores} cores");
}

/// D6.
#[cfg(unix)]
#[test]
fn after_an_interrupt_no_further_seed_is_begun() {
    let desk = Desk::new();
    let seeds: Vec<String> = (0..60).map(|seed| seed.to_string()).collect();
    let more = ["--threads", "1", "--seeds", &seeds.join(",")];
    let mut child = desk.spawn(&long("run", &more));
    wait_until("the first seed", || desk.path("run/seed-0/episodes.csv").exists());
    signal(&child, "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let begun = (0..60).filter(|seed| desk.path(&format!("run/seed-{seed}")).exists()).count();
    assert_eq!(begun, 1);
}

/// D8. More places are tried in `bqrl-runs`.
#[cfg(unix)]
#[test]
fn links_inside_a_run_are_refused_and_their_targets_are_untouched() {
    let desk = Desk::new();
    desk.write("mine", "precious");
    desk.ok(&short("run", &["--quiet"]));
    for place in [".bqrl-lock", "summary.json", "seed-42/episodes.csv", "seed-42/progress.json"] {
        let path = desk.path(&format!("run/{place}"));
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(desk.path("mine"), &path).unwrap();
        assert_says(&desk.refusal(&["train", "--resume", "run"]), &[place, "is a symbolic link"]);
        assert_says(&desk.refusal(&short("run", &["--force"])), &[place, "is a symbolic link"]);
        fs::remove_file(&path).unwrap();
        fs::write(&path, kept).unwrap();
    }
    for place in ["report.html", "figures"] {
        for target in ["mine", "nothing"] {
            let path = desk.path(&format!("run/{place}"));
            symlink(desk.path(target), &path).unwrap();
            assert_says(&desk.refusal(&["report", "run", "--force"]), &[place, "is a symbolic link"]);
            fs::remove_file(&path).unwrap();
        }
    }
    assert_eq!(desk.read("mine"), "precious");
    assert!(!desk.path("nothing").exists());
    desk.ok(&["report", "run"]);
}

/// D12.
#[test]
fn escape_sequences_in_files_do_not_reach_the_terminal() {
    // Clears the screen, sets a title, rings; in C1's form, too.
    const EVIL: &str = "\x1b[2J\x1b]0;owned\x07\u{9b}31m";
    let toml = |text: &str| text.replace("EVIL", r"\u001b[2J\u001b]0;owned\u0007\u009b31m");
    let desk = Desk::new();
    desk.ok(&short("run", &["--quiet"]));
    let shown = |arguments: &[&str]| {
        let run = desk.run(arguments);
        for text in [&run.stdout, &run.stderr] {
            let wild = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(wild, None, "bqrl {}: {text:?}", arguments.join(" "));
        }
        assert!(!run.stderr.contains("panicked"), "{}", run.stderr);
        run.stdout + &run.stderr
    };
    let each = |shows: bool| {
        let texts =
            [&["eval", "run"][..], &["report", "run", "--force"], &["train", "--resume", "run"]].map(shown);
        assert!(!shows || texts.iter().any(|text| text.contains(r"\u")), "{texts:?}");
    };
    let config = desk.read("run/config.toml");
    for (from, to) in [
        ("kind = \"deep-bqrl\"", "kind = \"EVIL\""),
        ("kappa = 0.2", "\"EVIL\" = 0.2"),
        ("kappa = 0.2", "kappa = \"EVIL\""),
        ("name = \"frozen-lake\"", "name = \"EVIL\""),
    ] {
        let changed = config.replacen(from, &toml(to), 1);
        assert_ne!(changed, config, "{from}");
        desk.write("run/config.toml", changed);
        each(true);
    }
    desk.write("run/config.toml", &config);
    let mark = desk.read("run/.bqrl-run");
    desk.write("run/.bqrl-run", format!("bqrl run, format {EVIL}"));
    each(true);
    desk.write("run/.bqrl-run", mark);
    for (file, from) in
        [("summary.json", "deep-bqrl"), ("problem.json", "frozen-lake"), ("problem.json", "left")]
    {
        let path = format!("run/{file}");
        let text = desk.read(&path);
        desk.write(&path, text.replace(from, &toml("EVIL")));
        each(false);
        desk.write(&path, text);
    }
    desk.write("evil.toml", toml("[run]\nseeds = [1]\n[grid.agent]\n\"EVIL\" = [1, 2]\n"));
    shown(&["sweep", "evil.toml", "--list"]);
    desk.write("mdp.csv", format!("{HEADER}0,{EVIL},1,1,1\n"));
    shown(&["plan", "mdp.csv", "--horizon", "2", "--start", "0"]);
    shown(&["plan", EVIL]);
    shown(&["train", "--out", &format!("{EVIL}/\n"), "--resume", "x"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_device_without_an_end_is_not_read_to_its_end() {
    let desk = Desk::new();
    assert_says(&desk.refusal(&["train", "--config", "/dev/zero"]), &["/dev/zero", "not a file of settings"]);
    assert_says(&desk.refusal(&["sweep", "/dev/zero"]), &["/dev/zero", "not a file of settings"]);
    let plan = ["plan", "/dev/zero", "--horizon", "3", "--start", "0"];
    assert_says(&desk.refusal(&plan), &["/dev/zero", "not an MDP file"]);
}

#[cfg(unix)]
#[test]
fn a_pipe_in_the_place_of_a_file_does_not_make_a_reader_wait() {
    let desk = Desk::new();
    desk.ok(&short("run", &["--quiet"]));
    for place in ["config.toml", ".bqrl-run", "summary.json", "seed-42/episodes.csv", "seed-42/law.csv"] {
        let path = desk.path(&format!("run/{place}"));
        let kept = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        for arguments in [&["report", "run", "--force"][..], &["train", "--resume", "run"]] {
            let said = desk.refusal(arguments);
            let known = ["regular file", "is a run without its config.toml"];
            assert!(known.iter().any(|known| said.contains(known)), "{place}: {said}");
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, kept).unwrap();
    }
}

/// Files belong to the user alone where the user's umask says so, and to the group where it does not.
#[cfg(unix)]
#[test]
fn every_file_is_created_with_the_users_umask() {
    use std::os::unix::fs::PermissionsExt;

    let desk = Desk::new();
    for (umask, forbidden) in [("077", 0o077), ("027", 0o027), ("002", 0o002)] {
        let run = format!("run-{umask}");
        let script = format!("umask {umask} && \"$@\"");
        let bqrl = env!("CARGO_BIN_EXE_bqrl");
        for arguments in [short(&run, &["--quiet"]), vec!["report", &run]] {
            let mut command = std::process::Command::new("sh");
            command.args(["-c", &script, "sh", bqrl]).args(&arguments).current_dir(desk.path("."));
            assert!(command.stdout(Stdio::null()).status().unwrap().success());
        }
        let mut open = vec![desk.path(&run)];
        while let Some(path) = open.pop() {
            let metadata = fs::symlink_metadata(&path).unwrap();
            let (mode, all) =
                (metadata.permissions().mode() & 0o777, if metadata.is_dir() { 0o777 } else { 0o666 });
            assert_eq!(mode, all & !forbidden, "{} under umask {umask}", path.display());
            if metadata.is_dir() {
                open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
    }
}

/// D14.
#[cfg(unix)]
#[test]
fn small_things_are_said_right() {
    let desk = Desk::new();
    symlink("nowhere", desk.path("link")).unwrap();
    let said = desk.refusal(&short("link", &[]));
    assert_says(&said, &["link is a symbolic link that leads nowhere"]);
    assert!(!said.contains("--resume"), "{said}");
    desk.write("file", "mine");
    assert_says(&desk.refusal(&short("file", &[])), &["file is not a directory"]);

    let said = desk.refusal(&["train", "--beta", "1e308"]);
    assert!(said.contains("1e308") && said.len() < 200, "{said}");

    // The name of a sweep's file becomes the name of a job.
    desk.write("a\ntouch hacked\n.toml", "[run]\nseeds = [1]\n[grid.agent]\nkappa = [0.1, 0.2]\n");
    desk.ok(&["sweep", "a\ntouch hacked\n.toml", "--slurm", "--no-submit", "--out", "sweep"]);
    let script = desk.read("sweep/sweep.sbatch");
    assert!(script.contains("#SBATCH --job-name=bqrl-a_touch_hacked_\n"), "{script}");
    assert!(!script.lines().any(|line| line.starts_with("touch")), "{script}");
}
