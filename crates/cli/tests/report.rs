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
    for part in [
        "Learning against the optimum",
        "Achieved quantile",
        "Final policies",
        "Predicted and attained returns of Deep-BQRL",
    ] {
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
    let command = html.split("<pre tabindex=\"0\">bqrl ").nth(1).unwrap().split("</pre>").next().unwrap();
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
    train(&desk, "future", &["--seeds", "1"]);
    desk.write("future/.bqrl-run", "bqrl run, format 4\n");
    std::fs::create_dir(desk.path("empty")).unwrap();
    desk.write("file", "");
    for (broken, said) in [
        ("cut", "reading cut/seed-1/episodes.csv: line 61: the line is cut off"),
        ("missing", "reading missing/seed-1/evaluations.csv: the file is missing"),
        ("future", "future is a run of format \"4\", this program reads formats up to 3"),
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

/// A run of two seeds as it is before its summary: the second seed's logs end in the middle of a line.
fn unfinished(desk: &Desk) {
    train(desk, "live", &["--seeds", "1,2"]);
    std::fs::remove_file(desk.path("live/summary.json")).unwrap();
    for name in ["episodes.csv", "evaluations.csv"] {
        let path = format!("live/seed-2/{name}");
        let text = desk.read(&path);
        let half = text.lines().count() / 2;
        let kept: usize = text.split_inclusive('\n').take(half).map(str::len).sum();
        desk.write(&path, &text[..kept + 3]);
    }
    for name in ["policy.csv", "law.csv", "predictions.csv", "weights.safetensors", "progress.json"] {
        std::fs::remove_file(desk.path(&format!("live/seed-2/{name}"))).unwrap();
    }
}

#[test]
fn an_unfinished_run_is_reported_as_far_as_it_is() {
    let desk = Desk::new();
    unfinished(&desk);
    let text = desk.ok(&["report", "live"]);
    // 61 lines, of which 30 are kept: the header and 29 episodes. Episodes 0, 10 and 20 were evaluated before the cut.
    for line in [
        "live was interrupted: 74 % is done",
        "seed 1: 60 of 60 episodes, 100 %; done",
        "seed 2: 29 of 60 episodes, 48 %; interrupted",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let html = desk.read("live/report.html");
    assert!(html.contains("live was interrupted") && html.contains("Learning against the optimum"));
    let json = desk.json(&["report", "live", "--force"]);
    assert_eq!(json["state"], "interrupted");
    assert!((json["fraction"].as_f64().unwrap() - f64::midpoint(1.0, 29.0 / 60.0)).abs() < 1e-12);
    assert_eq!(json["unfinished"][0]["seeds"][1]["episodes"], 29);
    // A process that holds the lock is still at work.
    let lock = bqrl_runs::run_dir::RunDir::open(&desk.path("live")).unwrap().lock().unwrap();
    let json = desk.json(&["report", "live", "--force"]);
    assert_eq!(
        (json["state"].as_str(), json["unfinished"][0]["state"].as_str()),
        (Some("running"), Some("running"))
    );
    drop(lock);
    // A whole run beside it: the length is pointed out, and the state is that of the least finished.
    desk.ok(&["train", "--algo", "qr-dqn", "--episodes", "30", "--seeds", "1", "--quiet", "--out", "whole"]);
    let run = desk.run(&["report", "live", "whole", "--out", "both", "--json"]);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["state"], "interrupted");
    let warning = json["warnings"][0].as_str().unwrap();
    assert!(warning.contains("Deep-BQRL 60 episodes, QR-DQN 30 episodes"), "{warning}");
    assert!(
        desk.ok(&["report", "live", "whole", "--out", "both", "--force"]).contains("note: The runs differ")
    );
    assert!(desk.json(&["report", "whole"])["unfinished"].as_array().unwrap().is_empty());
}

#[test]
fn a_run_without_references_has_no_columns_for_them() {
    let desk = Desk::new();
    for folder in ["game", "game/seed-1"] {
        std::fs::create_dir(desk.path(folder)).unwrap();
    }
    desk.write("game/.bqrl-run", "bqrl run, format 1\n");
    let config = "[problem]\nname = \"game\"\n[run]\ntau = [0.5]\nsteps = 40\nseeds = [1]\n[agent]\nkind = \"qr-dqn\"\n";
    desk.write("game/config.toml", config);
    let summary = r#"{"problem":"game","algo":"qr-dqn","episodes":2,"steps":40,"seeds":[1],"exact":false,
        "taus":[{"tau":0.5,"beta":0.5}]}"#;
    desk.write("game/summary.json", summary);
    desk.write("game/seed-1/episodes.csv", "episode,episode_return,length,step\n1,2.5,10,10\n2,-1,12,22\n");
    let rows =
        "episode,step,tau,quantile,buffered_quantile,mean,low,high\n0,0,0.5,1,1,1,,\n2,40,0.5,2,2,2,1.5,3\n";
    desk.write("game/seed-1/evaluations.csv", rows);
    let text = desk.ok(&["report", "game"]);
    assert!(text.contains("2 [1.5, 3]"), "{text}");
    assert!(!text.contains("gap") && !text.contains("regret") && !text.contains("best"), "{text}");
    let json = desk.json(&["report", "game", "--force"]);
    assert_eq!((json["state"].as_str(), json["fraction"].as_f64()), (Some("finished"), Some(1.0)));
    let level = json["methods"][0]["taus"][0].as_object().unwrap();
    assert!(!level.contains_key("best_quantile"));
    let measures: Vec<&String> = level["measures"].as_object().unwrap().keys().collect();
    assert_eq!(
        measures,
        ["final_buffered_quantile", "final_mean", "final_quantile", "moving_average_reward"]
    );
    assert_eq!(level["measures"]["final_quantile"]["interval"], serde_json::json!([1.5, 3.0]));
}
