//! Pages and data over real directories.

mod support;

use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

use support::{Running, unfinished, write_rows};

#[test]
fn a_running_run_is_kept_up_to_date() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, lock) = unfinished(&directory.path().join("group/a"), 20);
    let server = Running::over(directory.path());
    let run = server.get("/api/runs/group/a").json();
    assert_eq!((run["state"].as_str(), run["fraction"].as_f64()), (Some("running"), Some(0.2)));
    assert_eq!(run["taus"][0]["quantile"], 0.52);
    write_rows(&dir, 50);
    let begun = Instant::now();
    let fresh = loop {
        let run = server.get("/api/runs/group/a").json();
        if run["episodes"] == 50 {
            break run;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{run}");
        std::thread::sleep(Duration::from_millis(50));
    };
    // 90 steps in the 30 seconds between the two heartbeats.
    assert_eq!(fresh["steps_per_second"], 3.0);
    drop(lock);
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(server.get("/api/runs/group/a").json()["state"], "interrupted");
}

#[test]
fn the_overview_filters_sorts_and_works_without_a_script() {
    let directory = tempfile::tempdir().unwrap();
    let _held: Vec<_> = [("b", 20), ("a", 40), ("c", 30)]
        .map(|(name, rows)| unfinished(&directory.path().join(name), rows))
        .into();
    let server = Running::over(directory.path());
    let order = |target: &str| {
        let page = server.get(target).body;
        let names = page.split("<tr data-run=\"").skip(1).map(|row| row[..1].to_owned());
        names.collect::<String>()
    };
    assert_eq!(order("/"), "abc");
    assert_eq!(order("/?sort=progress"), "bca");
    assert_eq!(order("/?sort=quantile&down=1"), "acb");
    assert_eq!(order("/?q=b"), "b");
    assert_eq!(order("/?q=asset+running"), "abc");
    assert_eq!(order("/?q=nothing"), "");
    let page = server.get("/").body;
    assert!(page.contains("<form action=\"/compare\">") && page.contains("name=\"run\" value=\"a\""));
    let compared = server.get("/compare?run=a&run=b").body;
    assert!(
        compared.contains("Target tracking (a)") && compared.contains("Target tracking (b)"),
        "both are methods"
    );
    assert!(compared.contains("differ in length"), "40 and 20 episodes: {compared}");
    assert!(server.get("/compare").body.contains("Select 1 to 12 runs"));
}

#[test]
fn a_run_has_its_figures_settings_and_the_command_that_repeats_it() {
    let directory = tempfile::tempdir().unwrap();
    let _held = unfinished(&directory.path().join("a"), 40);
    let server = Running::over(directory.path());
    let page = server.get("/runs/a").body;
    for part in [
        "Target tracking on asset-selling",
        "is still running",
        "<svg role=\"img\"",
        "bqrl train asset-selling --algo target-tracking",
        "Where the settings come from",
        "run.tau",
        "/dial?run=a",
        "seed-1/episodes.csv",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let fragment = server.get("/runs/a?fragment=1").body;
    assert!(!fragment.contains("<html") && fragment.contains("<svg role=\"img\""));
}

#[test]
fn a_million_rows_do_not_stall_the_page() {
    let directory = tempfile::tempdir().unwrap();
    let (dir, _lock) = unfinished(&directory.path().join("a"), 20);
    let mut rows = String::from("episode,episode_return,length\n");
    for episode in 1..=1_000_000 {
        let _ = writeln!(rows, "{episode},0.{},10", episode % 997);
    }
    fs::write(dir.seed(1).episodes(), &rows).unwrap();
    let server = Running::over(directory.path());
    assert_eq!(server.get("/api/runs/a").json()["episodes"], 1_000_000);
    let page = server.get("/runs/a").body;
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let thin = server.get("/api/table?run=a&path=seed-1/episodes.csv&rows=500").body;
    assert!((250..=501).contains(&thin.lines().count()));
    assert_eq!(thin.lines().last(), rows.lines().last());
    assert_eq!(server.get("/files?run=a&path=seed-1/episodes.csv").body.len(), rows.len());
}

#[test]
fn hundreds_of_runs_are_listed() {
    let directory = tempfile::tempdir().unwrap();
    let held: Vec<_> =
        (0..300).map(|k| unfinished(&directory.path().join(format!("g{}/run-{k}", k % 7)), 20)).collect();
    let server = Running::over(directory.path());
    assert_eq!(server.get("/api/runs").json()["runs"].as_array().unwrap().len(), 300);
    assert!(server.get("/").body.contains("300 of 300 runs"));
    drop(held);
}

#[test]
fn every_built_in_problem_and_mdp_file_has_a_dial() {
    let directory = tempfile::tempdir().unwrap();
    let rows = "idstatefrom,idaction,idstateto,probability,reward\n3,0,3,0.5,1\n3,0,3,0.5,0\n3,1,9,1,2\n";
    fs::write(directory.path().join("model.csv"), rows).unwrap();
    fs::write(directory.path().join("other.csv"), "a,b\n1,2\n").unwrap();
    let server = Running::over(directory.path());
    let list = server.get("/dial").body;
    assert!(list.contains("/dial?problem=asset-selling") && list.contains("/dial?file=model.csv"));
    assert!(!list.contains("other.csv"));
    // Ten coins of 1, or 2 for sure at the end of any of them: the smallest id is where it starts.
    let dial = server.get("/api/dial?file=model.csv&horizon=10").json();
    assert_eq!((dial["levels"].as_array().unwrap().len(), dial["horizon"].as_u64()), (99, Some(10)));
    let asset = server.get("/api/dial?problem=asset-selling").json();
    assert!((asset["levels"][9]["best"].as_f64().unwrap() - 19.0 / 24.0).abs() < 1e-12);
    assert_eq!(asset["plans"][0]["map"].as_array().unwrap().len(), 10);
    let cell = server.get("/api/cell?problem=asset-selling&stage=3&state=17").json();
    let plan = asset["levels"][9]["plan"].as_u64().unwrap() as usize;
    // Period 4 with 17 offered: six more offers, each below 19 with 19/25.
    let wait = cell["plans"][plan]["actions"][1][1].as_f64().unwrap();
    assert!((wait - (1.0 - (19.0_f64 / 25.0).powi(6))).abs() < 1e-12, "{wait}");
    let page = server.get("/dial?problem=asset-selling").body;
    assert!(page.contains("9 times in 10 at least 0.7917"), "readers without a script have a table");
    let episode = server.get(&format!("/api/play?problem=asset-selling&plan={plan}&seed=3")).json();
    let steps = episode["steps"].as_array().unwrap();
    let total: f64 = steps.iter().map(|step| step["reward"].as_f64().unwrap()).sum();
    assert_eq!(episode["total"], total);
    assert_eq!(episode["reached"], total >= 19.0 / 24.0);
    // The same seed, the same episode.
    assert_eq!(server.get(&format!("/api/play?problem=asset-selling&plan={plan}&seed=3")).json(), episode);
}

#[test]
fn the_dial_of_an_estimated_table_says_that_it_is_one() {
    let directory = tempfile::tempdir().unwrap();
    let given = "idstatefrom,idaction,idstateto,probability,reward\n0,0,1,1,1\n";
    let estimated = "idstatefrom,idaction,idstateto,probability,reward,count\n0,0,1,0.5,1,5\n0,0,1,0.5,2,5\n";
    fs::write(directory.path().join("given.csv"), given).unwrap();
    fs::write(directory.path().join("estimated.csv"), estimated).unwrap();
    let server = Running::over(directory.path());
    let page = |file: &str| server.get(&format!("/dial?file={file}&horizon=2&start=0")).body;
    assert!(page("estimated.csv").contains("bqrl plan estimated.csv --confidence 0.95"));
    let given = page("given.csv");
    assert!(
        given.contains("The risk dial of given.csv") && !given.contains("estimated from a log"),
        "{given}"
    );
}
