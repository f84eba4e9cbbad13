//! A mistake of the caller is refused: exit code 2, one `error:` line, perhaps a `hint:`, nothing printed or written.

mod support;

use std::fmt::Write;
#[cfg(target_os = "linux")]
use std::{fs::File, process::Command};

#[cfg(target_os = "linux")]
use support::Run;
use support::{Desk, Dice, HEADER};

/// Plans an MDP file with these contents; the refusal.
fn refused_file(contents: impl AsRef<[u8]>, flags: &[&str]) -> String {
    let desk = Desk::new();
    desk.write("mdp.csv", contents);
    let arguments = [&["plan", "mdp.csv"], flags, &["--policy", "p.csv", "--plot", "p.svg"]].concat();
    let said = desk.refusal(&arguments);
    assert!(said.len() < 600, "{said}");
    said
}

fn refused_rows(rows: &str) -> String {
    let said = refused_file(format!("{HEADER}{rows}"), &["--horizon", "3", "--start", "0"]);
    assert!(said.contains("mdp.csv"), "the file is named: {said}");
    said
}

#[track_caller]
fn assert_says(said: &str, parts: &[&str]) {
    for part in parts {
        assert!(said.contains(part), "{part:?} in {said}");
    }
}

#[test]
fn unknown_problem_is_refused_with_the_closest_name() {
    let desk = Desk::new();
    assert_says(&desk.refusal(&["plan", "aset-seling"]), &["aset-seling", "asset-selling"]);
    assert_says(&desk.refusal(&["plan", "frozenlake", "--json"]), &["frozenlake", "frozen-lake"]);
    assert_says(&desk.refusal(&["envs", "river-swin"]), &["river-swin", "river-swim"]);
}

#[test]
fn gymnasium_environments_need_the_python_package() {
    let desk = Desk::new();
    for name in ["gym:CartPole-v1", "CartPole-v1"] {
        let said = desk.refusal(&["train", name]);
        assert_says(
            &said,
            &["CartPole-v1 is a Gymnasium environment, which only the Python package can play"],
        );
        assert_says(&said, &["`python -m bqrl train CartPole-v1`"]);
        assert!(!said.contains("gym:") && !said.contains("unknown problem"), "{said}");
    }
    assert_says(&desk.refusal(&["train", "asset-v"]), &["unknown problem"]);
}

#[test]
fn parameters_are_checked_by_name_and_range() {
    let desk = Desk::new();
    let refused = |set: &str| desk.refusal(&["plan", "asset-selling", "--env", set, "--policy", "p.csv"]);
    assert_says(&refused("offer=3"), &["offer", "offers, horizon, start"]);
    assert_says(&refused("offers=abc"), &["offers", "2 to 2000", "abc"]);
    assert_says(&refused("offers=-3"), &["offers", "2 to 2000", "-3"]);
    assert_says(&refused("offers="), &["offers", "2 to 2000"]);
    assert_says(&refused("offers"), &["KEY=VALUE"]);
    assert_says(&refused("start=25"), &["start", "0 to 24", "25"]);
    assert_says(&refused("horizon=0"), &["horizon", "1 to"]);
    let twice = desk.refusal(&["plan", "asset-selling", "--env", "horizon=5", "--horizon", "6"]);
    assert_says(&twice, &["horizon", "twice"]);
    let map = desk.refusal(&["plan", "frozen-lake", "--env", "map=SFX/FFG"]);
    assert_says(&map, &["map", "SFX/FFG"]);
    assert_says(&desk.refusal(&["plan", "gamble-chain", "--env", "probability=1.5"]), &["0 to 1", "1.5"]);
    assert_says(&desk.refusal(&["plan", "gamble-chain", "--env", "win=nan"]), &["win", "nan"]);
    assert_says(&desk.refusal(&["plan", "gamble-chain", "--start", "0"]), &["gamble-chain", "start"]);
    assert_says(
        &desk.refusal(&["envs", "asset-selling", "--env", "offers=1", "--export", "x.csv"]),
        &["offers"],
    );
}

#[test]
fn tau_outside_its_range_is_refused() {
    let desk = Desk::new();
    for tau in ["0", "1", "1.5", "nan", "inf", "-0.1", "abc", "", "0.1,", ",0.1", "0.1,2", "0,5", "1e-400"] {
        let flag = format!("--tau={tau}");
        let said = desk.refusal(&["plan", "asset-selling", &flag, "--policy", "p.csv", "--plot", "p.svg"]);
        assert_says(&said, &["tau"]);
    }
    assert_says(&desk.refusal(&["plan", "asset-selling", "--tau", "1.5"]), &["(0, 1)", "1.5"]);
    assert_says(&desk.refusal(&["plan", "asset-selling", "--tau"]), &["--tau"]);
}

#[test]
fn negative_numbers_after_a_flag_are_read_as_its_value() {
    let desk = Desk::new();
    assert_says(&desk.refusal(&["plan", "asset-selling", "--tau", "-0.1"]), &["tau", "(0, 1)", "-0.1"]);
    assert_says(&desk.refusal(&["plan", "asset-selling", "--beta", "-0.1"]), &["beta", "-0.1"]);
    assert_says(&desk.refusal(&["plan", "asset-selling", "--discount", "-0.5"]), &["discount", "-0.5"]);
    assert_says(&desk.refusal(&["plan", "asset-selling", "--horizon", "-5"]), &["horizon", "-5"]);
}

#[test]
fn beta_outside_its_range_is_refused() {
    let desk = Desk::new();
    for beta in ["0", "0.2", "nan", "-0.05", "abc", ""] {
        let flag = format!("--beta={beta}");
        let said = desk.refusal(&["plan", "asset-selling", "--tau", "0.1", &flag, "--plot-law", "p.svg"]);
        assert_says(&said, &["beta"]);
    }
    let above = desk.refusal(&["plan", "asset-selling", "--tau", "0.5,0.1", "--beta", "0.2"]);
    assert_says(&above, &["(0, 0.1]", "0.2"]);
    let count = desk.refusal(&["plan", "asset-selling", "--tau", "0.1,0.5,0.9", "--beta", "0.1,0.2"]);
    assert_says(&count, &["--beta", "2", "3"]);
    assert_says(&desk.refusal(&["plan", "asset-selling", "--passes", "5"]), &["--beta"]);
}

#[test]
fn other_flags_are_checked_before_anything_happens() {
    let desk = Desk::new();
    let refused = |flag: &str, value: &str| desk.refusal(&["plan", "asset-selling", flag, value]);
    assert_says(&refused("--plot", "p.pdf"), &[".svg", ".png", "p.pdf"]);
    assert_says(&refused("--plot", "p"), &[".svg", ".png"]);
    assert_says(&refused("--plot-law", "p.jpeg"), &[".svg", ".png", "p.jpeg"]);
    assert_says(&refused("--threads", "0"), &["--threads"]);
    assert_says(&refused("--threads", "two"), &["--threads", "two"]);
    assert_says(&refused("--grid", "0"), &["--grid"]);
    assert_says(&refused("--refine", "x"), &["--refine"]);
    for discount in ["0", "1.1", "nan", "abc"] {
        assert_says(&refused("--discount", discount), &["discount"]);
    }
}

#[test]
fn unknown_words_are_refused_with_a_suggestion() {
    let desk = Desk::new();
    assert_says(
        &desk.refusal(&["plan", "asset-selling", "--polcy", "p.csv"]),
        &["--polcy", "hint", "--policy"],
    );
    assert_says(&desk.refusal(&["plan", "asset-selling", "--taus", "0.1"]), &["--taus", "hint", "--tau"]);
    assert_says(&desk.refusal(&["plna", "asset-selling"]), &["plna", "hint", "plan"]);
    assert_says(&desk.refusal(&["plan", "asset-selling", "frozen-lake"]), &["frozen-lake"]);
    assert_says(&desk.refusal(&["plan"]), &["PROBLEM", "bqrl plan --help"]);
    assert_says(&desk.refusal(&["envs", "--export", "x.csv"]), &["PROBLEM"]);
    assert_says(&desk.refusal(&["--tau", "0.1"]), &["--tau"]);
    assert_says(&desk.refusal(&[""]), &["error: "]);
    assert_says(&desk.refusal(&["plan", ""]), &["error: "]);
}

#[test]
fn no_arguments_show_the_help_and_fail() {
    let run = Desk::new().run(&[]);
    assert_eq!((run.code, run.stdout.as_str()), (Some(2), ""));
    assert_says(&run.stderr, &["Usage: bqrl", "plan", "envs"]);
}

#[test]
fn missing_file_and_directory_are_refused_by_name() {
    let desk = Desk::new();
    let flags = ["--horizon", "3", "--start", "0"];
    let plan = |path: &str| desk.refusal(&[&["plan", path], &flags[..]].concat());
    let missing = if cfg!(windows) { "cannot find" } else { "No such file" };
    assert_says(&plan("no-such.csv"), &["no-such.csv", missing]);
    assert_says(&plan("./asset"), &["./asset", missing]);
    assert_says(&plan("."), &["directory"]);
}

#[test]
fn file_needs_a_horizon_and_a_start_that_make_sense() {
    let good = format!("{HEADER}4,0,4,0.5,1\n4,0,9,0.5,0\n");
    let refused = |flags: &[&str]| refused_file(&good, flags);
    assert_says(&refused(&[]), &["--horizon", "--start"]);
    assert_says(&refused(&["--start", "4"]), &["--horizon"]);
    assert_says(&refused(&["--horizon", "4"]), &["--start"]);
    assert_says(&refused(&["--horizon", "0", "--start", "4"]), &["horizon", "0"]);
    assert_says(&refused(&["--horizon", "3", "--start", "0"]), &["start", "0", "4", "9"]);
    assert_says(&refused(&["--horizon", "3", "--start", "9"]), &["start", "9", "terminal"]);
    assert_says(&refused(&["--horizon", "3", "--start", "4", "--env", "offers=3"]), &["offers"]);
    assert_says(&refused(&["--horizon", "3", "--start", "4", "--discount", "2"]), &["discount", "2"]);
    assert_says(&refused(&["--horizon", "1.5", "--start", "4"]), &["--horizon", "1.5"]);
}

#[test]
fn wrong_values_are_refused_with_their_line_and_column() {
    let cases = [
        ("0,0,0,one,1", "probability", "one"),
        ("0,0,0,1,x", "reward", "x"),
        ("0,0,0,1,", "reward", ""),
        ("0,0,0,1,NaN", "reward", "NaN"),
        ("0,0,0,1,inf", "reward", "inf"),
        ("0,0,0,1,-1e999", "reward", "-1e999"),
        ("0,0,0,nan,1", "probability", "nan"),
        ("0,0,0,-0.5,1", "probability", "-0.5"),
        ("0,0,0,1.5,1", "probability", "1.5"),
        ("-1,0,0,1,1", "idstatefrom", "-1"),
        ("0,0.5,0,1,1", "idaction", "0.5"),
        ("0,0,state,1,1", "idstateto", "state"),
    ];
    for (row, column, value) in cases {
        assert_says(&refused_rows(&format!("0,0,0,0.5,1\n{row}\n")), &["line 3", column, value]);
    }
    assert_says(&refused_rows("0,0,0,1\n"), &["line 2", "4 fields"]);
    assert_says(&refused_rows("0,0,0,1,1,1\n"), &["line 2", "6 fields"]);
}

#[test]
fn probabilities_that_do_not_sum_to_one_are_refused_with_state_action_and_sum() {
    let said = refused_rows("0,0,7,1,1\n7,3,0,0.5,1\n7,3,7,0.499,1\n");
    assert_says(&said, &["state 7", "action 3", "0.999", "1e-6"]);
    assert_says(&refused_rows("0,2,0,0.5,1\n0,2,1,0.501,1\n"), &["state 0", "action 2", "1.001"]);
    assert_says(&refused_rows("0,0,0,0,1\n"), &["state 0", "action 0", "got 0"]);
}

#[test]
fn missing_columns_and_rows_are_refused() {
    let flags = ["--horizon", "3", "--start", "0"];
    assert_says(&refused_file("", &flags), &["empty"]);
    assert_says(&refused_file("\n \r\n", &flags), &["empty"]);
    assert_says(&refused_file(HEADER, &flags), &["no rows"]);
    assert_says(&refused_file(HEADER.trim_end(), &flags), &["no rows"]);
    let missing = refused_file("idstatefrom,idaction,idstateto,probability\n0,0,0,1\n", &flags);
    assert_says(&missing, &["missing", "reward"]);
    assert_says(&refused_file("0,0,0,1,1\n", &flags), &["missing", "idstatefrom"]);
    let twice = "idstatefrom,idaction,idstateto,probability,reward,reward\n0,0,0,1,1,2\n";
    assert_says(&refused_file(twice, &flags), &["reward", "twice"]);
}

#[test]
fn binary_files_are_refused_without_their_bytes_reaching_the_terminal() {
    let mut dice = Dice(7);
    let noise: Vec<u8> = (0..200_000).map(|_| dice.next() as u8).collect();
    let flags = ["--horizon", "3", "--start", "0"];
    for contents in [&noise[..], b"\x1b[2J\x1b[31mhello\n\x07", b"\0\0\0\0\n\0"] {
        let said = refused_file(contents, &flags);
        assert!(!said.chars().any(|c| c.is_control() && c != '\n'), "{said:?}");
    }
    let after_header = [HEADER.as_bytes(), &noise].concat();
    refused_file(after_header, &flags);
}

// macOS does not limit address space.
#[cfg(target_os = "linux")]
#[test]
fn hundred_megabytes_of_garbage_are_refused_in_little_memory() {
    let desk = Desk::new();
    // Zeros without a line end, lines of another kind, and a quote that never closes.
    File::create(desk.path("zeros.csv")).unwrap().set_len(100 << 20).unwrap();
    desk.write("lines.csv", "no MDP file\n".repeat((100 << 20) / 12));
    desk.write("quote.csv", format!("{HEADER}\"{}", "0,0,0,1,1\n".repeat((100 << 20) / 10)));
    for name in ["zeros.csv", "lines.csv", "quote.csv"] {
        // Less address space than the file has bytes: reading it whole would fail otherwise than with exit code 2.
        let limited = format!(
            "ulimit -v 80000 && exec '{}' plan {name} --horizon 3 --start 0 --policy p.csv",
            env!("CARGO_BIN_EXE_bqrl")
        );
        let output = Command::new("sh").args(["-c", &limited]).current_dir(desk.path("")).output();
        let run = Run::of(output.unwrap());
        assert_eq!(run.code, Some(2), "{name}: {}", run.stderr);
        assert!(run.stderr.starts_with("error: ") && run.stderr.lines().count() == 1, "{}", run.stderr);
    }
    assert_eq!(desk.names(), ["lines.csv", "quote.csv", "zeros.csv"]);
}

#[test]
fn too_many_returns_are_refused_with_their_number_and_the_way_out() {
    let mut dice = Dice(3);
    let mut rows = String::new();
    for state in 0..5 {
        for action in 0..2 {
            for _ in 0..3 {
                writeln!(rows, "{state},{action},{},{},{}", dice.below(5), 1.0 / 3.0, dice.unit()).unwrap();
            }
        }
    }
    let said = refused_file(format!("{HEADER}{rows}"), &["--horizon", "30", "--start", "0"]);
    assert_says(&said, &["too large", "262144", "hint: --grid"]);
    let desk = Desk::new();
    let plan = desk.plan_rows(&rows, &["--horizon", "30", "--start", "0", "--grid", "2000"]);
    assert_eq!(plan["exact"], false);
    // With a discount nobody expects exact returns: bounds are the answer, and a note says so.
    let run =
        desk.run(&["plan", "mdp.csv", "--horizon", "30", "--start", "0", "--discount", "0.95", "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.starts_with("note: ") && run.stdout.contains("\"exact\":false"), "{}", run.stderr);
    let quiet =
        desk.run(&["plan", "mdp.csv", "--horizon", "30", "--start", "0", "--discount", "0.95", "--quiet"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
}

#[cfg(target_os = "linux")]
#[test]
fn absurd_horizon_is_refused_before_memory_runs_out() {
    let desk = Desk::new();
    desk.write("mdp.csv", format!("{HEADER}0,0,0,1,1\n"));
    // A few digits too many; 1 GB of address space keeps a failing test from taking the machine with it.
    let limited = format!(
        "ulimit -v 1000000 && exec '{}' plan mdp.csv --horizon 99999999999 --start 0",
        env!("CARGO_BIN_EXE_bqrl")
    );
    let output = Command::new("sh").args(["-c", &limited]).current_dir(desk.path("")).output();
    let run = Run::of(output.unwrap());
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert_says(&run.stderr, &["error: ", "horizon", "99999999999"]);
}

#[test]
fn returns_beyond_floating_point_are_refused_and_not_planned() {
    let said = refused_file(format!("{HEADER}0,0,0,1,1e308\n"), &["--horizon", "3", "--start", "0"]);
    assert!(!said.contains("NaN"), "{said}");
    let flags = ["--horizon", "3", "--start", "0", "--grid", "100"];
    refused_file(format!("{HEADER}0,0,0,1,1e308\n"), &flags);
}

#[test]
fn an_mdp_file_is_never_overwritten_by_its_own_policy() {
    let desk = Desk::new();
    let contents = format!("{HEADER}0,0,0,1,1\n");
    desk.write("mdp.csv", &contents);
    desk.refusal(&["plan", "mdp.csv", "--horizon", "3", "--start", "0", "--policy", "mdp.csv"]);
    assert_eq!(desk.read("mdp.csv"), contents);
}
