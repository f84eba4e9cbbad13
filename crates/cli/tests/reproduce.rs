//! `bqrl reproduce`: quick, again, and in the way of itself.

mod support;

use support::Desk;

#[test]
fn a_quick_reproduction_leaves_figures_and_tables_and_computes_nothing_twice() {
    let desk = Desk::new();
    let quick = ["reproduce", "asset-selling", "--quick", "--seeds", "2", "--out", "r", "--quiet"];
    let output = desk.json(&quick);
    for name in ["figure-1.svg", "figure-1.png", "figure-2.svg", "figure-2.png"] {
        assert!(!desk.bytes(&format!("r/figures/{name}")).is_empty(), "{name}");
    }
    // A tenth of the episodes is not what the paper's numbers are about.
    assert_eq!(output["rows"], serde_json::json!([]));
    let page = desk.read("r/results.md");
    let gap = |text: &str| {
        let row = text.lines().find(|line| line.starts_with("| Deep-BQRL | 0.1 |")).unwrap().to_owned();
        row.split('|').nth(3).unwrap().trim().to_owned()
    };
    // The page says what the run's own summary says.
    let summary: serde_json::Value =
        serde_json::from_str(&desk.read("r/asset-selling/deep-bqrl-0.1/summary.json")).unwrap();
    let gaps: Vec<f64> = summary["taus"][0]["quantile_policy_gap"]
        .as_array()
        .unwrap()
        .iter()
        .map(|gap| gap.as_f64().unwrap())
        .collect();
    let shown: f64 = gap(&page).split(' ').next().unwrap().parse().unwrap();
    assert!((shown - f64::midpoint(gaps[0], gaps[1])).abs() < 1e-3, "{shown} {gaps:?}");

    let written = |desk: &Desk| {
        desk.path("r/asset-selling/deep-bqrl-0.1/summary.json").metadata().unwrap().modified().unwrap()
    };
    let before = written(&desk);
    desk.ok(&[&quick[..], &["--doc", "docs/results.md"]].concat());
    assert_eq!(written(&desk), before, "a finished run was trained again");
    assert_eq!(gap(&desk.read("docs/results.md")), gap(&page));
    assert!(!desk.bytes("docs/figures/figure-2.png").is_empty());

    // Other settings in the same place are refused, not mixed in.
    let other = ["reproduce", "asset-selling", "--quick", "--seeds", "3", "--out", "r", "--quiet"];
    assert!(desk.refusal(&other).contains("--force"));
}
