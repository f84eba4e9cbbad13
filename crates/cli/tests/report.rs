//! `bqrl report`, as users run it on what `bqrl train` left.

mod support;

use support::Desk;

fn train(desk: &Desk, out: &str, more: &[&str]) {
    let arguments = [&["train", "--episodes", "60", "--quiet", "--out", out], more].concat();
    desk.ok(&arguments);
}

fn two_seeds(desk: &Desk) {
    train(desk, "run", &["--seeds", "1,2"]);
}

#[test]
fn one_run_gets_its_page_and_figures_and_the_numbers_are_those_of_its_files() {
    let desk = Desk::new();
    two_seeds(&desk);
    let json = desk.json(&["report", "run"]);
    assert_eq!(json["report"], "run/report.html");
    for figure in json["figures"].as_array().unwrap() {
        let bytes = desk.bytes(figure.as_str().unwrap());
        assert!(bytes.starts_with(b"<svg ") || bytes.starts_with(b"\x89PNG"), "{figure}");
    }
    let html = desk.read("run/report.html");
    assert!(html.starts_with("<!DOCTYPE html>") && !html.contains("http"));
    let mut sums = [0.0; 2];
    for seed in [1, 2] {
        let rows = desk.read(&format!("run/seed-{seed}/evaluations.csv"));
        let last: Vec<&str> = rows.lines().last().unwrap().split(',').collect();
        // Final quantile, and cumulative gap.
        for (sum, column) in sums.iter_mut().zip([2, 5]) {
            let value: f64 = last[column].parse().unwrap();
            *sum += value;
            assert!(html.contains(&format!("<data value=\"{value}\">")), "{value}");
        }
    }
    let measures = &json["methods"][0]["taus"][0]["measures"];
    assert_eq!(measures["final_quantile"]["mean"], sums[0] / 2.0);
    assert_eq!(measures["quantile_policy_gap"]["mean"], sums[1] / 2.0);
    assert_eq!(json["methods"][0]["taus"][0]["seeds"].as_array().unwrap().len(), 2);
    // Every part is there: a run of today holds all that a page shows.
    for part in
        ["Learning against the optimum", "Achieved quantile", "Final policies", "What Deep-BQRL believes"]
    {
        assert!(html.contains(part), "{part}");
    }
}

#[test]
fn a_report_is_not_overwritten_without_force_and_is_the_same_bytes_with_it() {
    let desk = Desk::new();
    two_seeds(&desk);
    desk.ok(&["report", "run"]);
    let before = desk.bytes("run/report.html");
    let message = desk.refusal(&["report", "run"]);
    assert!(message.contains("run/report.html already exists") && message.contains("--force"), "{message}");
    desk.ok(&["report", "run", "--force"]);
    assert_eq!(desk.bytes("run/report.html"), before);
    // Its figures are protected as well.
    std::fs::remove_file(desk.path("run/report.html")).unwrap();
    assert!(desk.refusal(&["report", "run"]).contains("run/figures/"));
    desk.ok(&["report", "run", "--out", "elsewhere"]);
    assert_eq!(desk.bytes("elsewhere/report.html"), before);
}

#[test]
fn several_runs_are_compared_in_a_directory_of_their_own() {
    let desk = Desk::new();
    two_seeds(&desk);
    train(&desk, "other", &["--algo", "qr-dqn", "--tau", "0.1,0.9", "--seeds", "1"]);
    let json = desk.json(&["report", "run", "other"]);
    assert_eq!(json["report"], "reports/asset-selling-1/report.html");
    assert_eq!(desk.json(&["report", "run", "other"])["report"], "reports/asset-selling-2/report.html");
    let html = desk.read("reports/asset-selling-1/report.html");
    assert!(html.contains("<h1>Deep-BQRL, QR-DQN on asset-selling</h1>"));
    let text = desk.ok(&["report", "run", "other"]);
    assert!(text.contains("Deep-BQRL") && text.contains("QR-DQN"), "{text}");
    assert!(!desk.path("run/report.html").exists());
}

#[test]
fn the_command_on_the_page_repeats_the_run() {
    let desk = Desk::new();
    train(&desk, "run", &["--seeds", "7", "--tau", "0.3", "--set", "agent.kappa=0.5", "--env", "offers=10"]);
    desk.ok(&["report", "run"]);
    let html = desk.read("run/report.html");
    let command = html.split("<pre>bqrl ").nth(1).unwrap().split("</pre>").next().unwrap();
    let arguments: Vec<&str> = command.split(' ').collect();
    desk.ok(&arguments);
    for file in ["config.toml", "seed-7/episodes.csv", "seed-7/evaluations.csv"] {
        assert_eq!(
            desk.bytes(&format!("NEW_DIRECTORY/{file}")),
            desk.bytes(&format!("run/{file}")),
            "{file}"
        );
    }
}

#[test]
fn what_cannot_be_read_is_named_and_skipped_only_when_asked_to() {
    let desk = Desk::new();
    two_seeds(&desk);
    train(&desk, "cut", &["--seeds", "1"]);
    let rows = desk.read("cut/seed-1/episodes.csv");
    desk.write("cut/seed-1/episodes.csv", &rows[..rows.len() - 3]);
    train(&desk, "missing", &["--seeds", "1"]);
    std::fs::remove_file(desk.path("missing/seed-1/evaluations.csv")).unwrap();
    train(&desk, "unfinished", &["--seeds", "1"]);
    std::fs::remove_file(desk.path("unfinished/summary.json")).unwrap();
    train(&desk, "future", &["--seeds", "1"]);
    desk.write("future/.bqrl-run", "bqrl run, format 2\n");
    std::fs::create_dir(desk.path("empty")).unwrap();
    desk.write("file", "");
    for (broken, said) in [
        ("cut", "reading cut/seed-1/episodes.csv: line 61: the line is cut off"),
        ("missing", "reading missing/seed-1/evaluations.csv: the file is missing"),
        ("unfinished", "unfinished is not a finished run: it has no summary.json"),
        ("future", "future is a run of format 2, this program reads format 1"),
        ("empty", "empty is not a run: it has no .bqrl-run"),
        ("file", "file is not a run: it is not a directory"),
        ("nowhere", "nowhere"),
    ] {
        assert!(desk.refusal(&["report", broken]).contains(said), "{broken}");
        assert!(desk.refusal(&["report", "run", broken, "--out", "r"]).contains(said), "{broken}");
        assert!(
            desk.refusal(&["report", broken, "--skip-broken", "--quiet"]).contains("none of 1 runs"),
            "{broken}"
        );
    }
    let run = desk.run(&["report", "cut", "run", "empty", "--skip-broken", "--out", "r", "--json"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.stderr.matches("warning: left out ").count(), 2, "{}", run.stderr);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["skipped"][0]["run"], "cut");
    assert_eq!(json["runs"], serde_json::json!(["run"]));
}

#[test]
fn runs_on_different_problems_are_refused() {
    let desk = Desk::new();
    two_seeds(&desk);
    train(&desk, "lake", &["frozen-lake", "--seeds", "1"]);
    let message = desk.refusal(&["report", "run", "lake", "--out", "r"]);
    assert!(message.contains("lake is about frozen-lake, run about asset-selling"), "{message}");
    train(&desk, "larger", &["--env", "offers=40", "--seeds", "3"]);
    assert!(desk.refusal(&["report", "run", "larger", "--out", "r"]).contains("but not the same one"));
    assert!(desk.refusal(&["report"]).contains("RUN"));
    desk.write("file", "");
    assert!(desk.refusal(&["report", "run", "--out", "file"]).contains("file is not a directory"));
}
