//! `bqrl eval`: a trained run, asked again.

mod support;

use support::{Desk, levels, number};

#[test]
fn the_final_policy_is_worth_what_training_said_and_has_other_levels_too() {
    let desk = Desk::new();
    let train = ["train", "--tau", "0.5", "--episodes", "60", "--seeds", "42,7", "--out", "run", "--quiet"];
    let trained = desk.json(&train);
    let own = desk.json(&["eval", "run"]);
    assert_eq!(
        (&own["exact"], &own["episodes"], &own["seed"]),
        (&true.into(), &serde_json::Value::Null, &42.into())
    );
    for (k, seed) in own["seeds"].as_array().unwrap().iter().enumerate() {
        let level = &levels(seed)[0];
        assert_eq!(level["quantile"], trained["taus"][0]["final_quantile"][k]);
        assert_eq!(level["buffered_quantile"], trained["taus"][0]["final_buffered_quantile"][k]);
        assert_eq!(level["mean"], trained["final_mean"][k]);
        assert_eq!(level["interval"], serde_json::Value::Null);
    }
    let other = desk.json(&["eval", "run", "--seed", "7", "--tau", "0.1,0.5,0.9", "--beta", "0.05"]);
    assert_eq!(other["seed"], 7);
    let taus = levels(&other);
    assert_eq!(taus.len(), 3);
    assert_eq!(taus[1]["quantile"], trained["taus"][0]["final_quantile"][1]);
    // Quantiles of one law rise with the level, and a buffer below τ can only lower them.
    assert!(number(&taus[0], "quantile") <= number(&taus[2], "quantile"));
    assert!(taus.iter().all(|level| number(level, "buffered_quantile") <= number(level, "quantile")));
    assert!(desk.ok(&["eval", "run"]).contains("after 60 episodes, exact values"));
}

#[test]
fn wrong_requests_are_refused() {
    let desk = Desk::new();
    desk.ok(&["train", "--episodes", "20", "--out", "run", "--quiet"]);
    for (arguments, said) in [
        (&["eval", "nowhere"][..], "nowhere"),
        (&["eval", "run", "--tau", "1.5"], "(0, 1)"),
        (&["eval", "run", "--tau", "0.1", "--beta", "0.2"], "(0, tau]"),
        (&["eval", "run", "--tau", "0.1,0.5,0.9", "--beta", "0.1,0.1"], "one per level"),
        (&["eval", "run", "--seed", "5"], "no seed 5"),
    ] {
        let message = desk.refusal(arguments);
        assert!(message.contains(said), "bqrl {}: {message}", arguments.join(" "));
    }
    std::fs::remove_dir_all(desk.path("run/seed-42/checkpoints")).unwrap();
    assert!(desk.refusal(&["eval", "run"]).contains("seed 42, its checkpoint: no checkpoint has been written yet"));
}
