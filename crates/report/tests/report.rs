//! Runs made by hand, as pages: what is written there is what the runs hold.

mod support;

use bqrl_math::Interval;
use bqrl_report::document::document;
use bqrl_report::paper;
use bqrl_report::study::{Measure, Study};
use bqrl_runs::reader::{Achieved, Run};
use support::{page, rows_after, run};

/// Half-width of the interval of three numbers with s = 1: t_{.975, 2}/√3.
const T_OF_THREE: f64 = 4.302652729911275 / 1.7320508075688772;

#[test]
fn the_numbers_of_every_seed_are_in_the_page_to_the_last_digit() {
    let runs = [run("a", "deep-bqrl", &[0.1, 0.5], &[1, 2, 3], 100)];
    let rows = rows_after(&page(&runs), "<h2>Seed by seed</h2>");
    let mut wanted = Vec::new();
    for (index, tau) in [0.1, 0.5].into_iter().enumerate() {
        for record in &runs[0].seeds {
            let last = record.evaluations[index].last().unwrap();
            let reward = record.returns()[50..].iter().sum::<f64>() / 50.0;
            wanted.push(vec![
                tau,
                tau,
                record.seed as f64,
                last.quantile,
                last.buffered_quantile,
                last.mean,
                last.quantile_policy_gap.unwrap(),
                last.expected_return_regret.unwrap(),
                reward,
            ]);
        }
    }
    assert_eq!(rows, wanted);
}

#[test]
fn means_and_intervals_are_those_of_the_seeds() {
    let html = page(&[run("a", "deep-bqrl", &[0.5], &[1, 2, 3], 100)]);
    let row = &rows_after(&html, "<h2>Results</h2>")[0];
    assert_eq!(row[0], 3.0);
    // Q: .55 + .001, .002, .003: mean .552, s = .001.
    let close = |got: f64, want: f64| assert!((got - want).abs() < 1e-9, "{got}, want {want}");
    close(row[1], 0.552);
    close(row[2], 0.552 - 0.001 * T_OF_THREE);
    close(row[3], 0.552 + 0.001 * T_OF_THREE);
    // Gap: 100 · .5 · (1.1, 1.2, 1.3): mean 60, s = 5.
    close(row[10], 60.0);
    close(row[11], 60.0 - 5.0 * T_OF_THREE);
    close(row[12], 60.0 + 5.0 * T_OF_THREE);
}

#[test]
fn a_robust_mean_stands_beside_the_mean_from_five_seeds_on() {
    let five = page(&[run("a", "deep-bqrl", &[0.5], &[1, 2, 3, 4, 90], 100)]);
    let row = &rows_after(&five, "interquartile mean")[0];
    // One of five is dropped at each end: seeds 2, 3, 4 remain.
    assert!((row[1] - 0.553).abs() < 1e-12 && row[2] < row[1] && row[1] < row[3], "{row:?}");
    assert!(!page(&[run("a", "deep-bqrl", &[0.5], &[1, 2, 3, 4], 100)]).contains("interquartile mean"));
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let html = page(&[
        run("a", "deep-bqrl", &[0.1, 0.5], &[1, 2, 3], 100),
        run("b", "qr-dqn", &[0.1, 0.5], &[1], 100),
    ]);
    for outside in ["http", "//", "<script", " src=", " href=", "@import", "<link", "<iframe", "<img"] {
        assert!(!html.contains(outside), "{outside}");
    }
    // References inside, to things that exist once.
    for reference in html.split("url(#").skip(1).map(|rest| rest.split(')').next().unwrap()) {
        assert_eq!(html.matches(&format!("id=\"{reference}\"")).count(), 1, "{reference}");
    }
    let mut ids: Vec<&str> =
        html.split(" id=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    let all = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), all);
    // Page and figures follow the reader's colours; figures have descriptions for those who cannot see them.
    let figures = html.matches("<svg").count();
    assert!(figures >= 6, "{figures}");
    // The figures of a page share one set of dark colours.
    assert_eq!(html.matches("(prefers-color-scheme: dark)").count(), 0);
    assert!(html.contains("(prefers-color-scheme:dark){.bqrl-fill-") && html.contains("@media print"));
    assert_eq!(html.matches("role=\"img\"").count(), figures);
    assert_eq!(html.matches("<desc>").count(), figures);
}

#[test]
fn markup_in_names_is_text() {
    let mut hostile = run("<script>alert(1)</script>", "deep-bqrl", &[0.5], &[1], 20);
    hostile.problem.as_mut().unwrap().name = "<img src=x>&".into();
    hostile.problem.as_mut().unwrap().actions[0] = "</svg><script>".into();
    hostile.config += "# </pre><script>\n";
    let html = page(&[hostile]);
    assert!(!html.contains("<script") && !html.contains("<img"), "{html}");
    assert!(html.contains("&lt;img src=x&gt;&amp;"));
}

#[test]
fn the_same_runs_give_the_same_bytes() {
    let deep = || run("a", "deep-bqrl", &[0.1, 0.5], &[1, 2, 3, 4, 5], 100);
    let make = || [deep(), run("b", "ppo", &[0.1], &[1], 100)];
    let (a, b) = (make(), make());
    let (a, b) = (Study::new(&a).unwrap(), Study::new(&b).unwrap());
    assert_eq!(document(&a, "0.0.0"), document(&b, "0.0.0"));
}

#[test]
fn runs_of_one_setting_are_one_method_whatever_their_levels_and_seeds() {
    let runs = [
        run("a", "deep-bqrl", &[0.9], &[1, 2], 100),
        run("b", "ppo", &[0.1, 0.9], &[1], 100),
        run("c", "deep-bqrl", &[0.1], &[1, 2], 100),
        run("d", "deep-bqrl", &[0.1], &[3], 100),
    ];
    let study = Study::new(&runs).unwrap();
    let names: Vec<&str> = study.methods.iter().map(|method| method.name.as_str()).collect();
    assert_eq!(names, ["Deep-BQRL", "PPO"]);
    let seeds = |tau| -> Vec<u64> {
        study.methods[0].level(tau).unwrap().seeds.iter().map(|trained| trained.record.seed).collect()
    };
    assert_eq!((seeds(0.1), seeds(0.9)), (vec![1, 2, 3], vec![1, 2]));
    assert_eq!(study.taus(), [0.1, 0.9]);
}

#[test]
fn other_settings_or_the_same_seed_twice_are_told_apart_by_directory() {
    let mut other = run("x/big", "deep-bqrl", &[0.1], &[5], 100);
    other.config += "hidden = [512]\n";
    let runs = [
        run("x/small", "deep-bqrl", &[0.1], &[1], 100),
        other,
        run("y/small", "deep-bqrl", &[0.1], &[1], 100),
        run("y small", "deep-bqrl", &[0.1], &[1], 100),
    ];
    let study = Study::new(&runs).unwrap();
    let names: Vec<&str> = study.methods.iter().map(|method| method.name.as_str()).collect();
    let wanted = ["Deep-BQRL (x/small)", "Deep-BQRL (big)", "Deep-BQRL (y/small)", "Deep-BQRL (y small)"];
    assert_eq!(names, wanted);
    // A file each, although two names differ only in what file names cannot hold.
    let figures = document(&study, "0.0.0").figures;
    let mut files: Vec<&String> = figures.iter().map(|(name, _)| name).collect();
    files.sort();
    files.dedup();
    assert_eq!(files.len(), figures.len(), "{files:?}");
}

#[test]
fn different_problems_are_not_mixed() {
    let a = run("a", "deep-bqrl", &[0.1], &[1], 100);
    let refused = |change: &dyn Fn(&mut Run)| {
        let mut b = run("b", "ppo", &[0.1], &[1], 100);
        change(&mut b);
        Study::new(&[a.clone(), b]).unwrap_err().to_string()
    };
    assert_eq!(
        refused(&|b| b.problem.as_mut().unwrap().name = "dice".into()),
        "b is about dice, a about coin: a report compares runs on one problem"
    );
    assert!(refused(&|b| b.problem.as_mut().unwrap().horizon = 9).contains("horizon 9 and 4"));
    assert!(
        refused(&|b| b.problem.as_mut().unwrap().actions[1] = "run".into()).contains("actions stop, run")
    );
    assert!(refused(&|b| b.summary.max_mean = Some(0.5)).contains("largest mean 0.5 and 0.875"));
    assert!(refused(&|b| b.summary.taus[0].best_quantile = Some(0.0)).contains("best quantile 0 and 0.775"));
    assert!(refused(&|b| b.config = "tau = ".into()).starts_with("reading b/config.toml: "));
    assert_eq!(refused(&|b| b.path = "a".into()), "a was given twice");
    assert_eq!(Study::new(&[]).unwrap_err().to_string(), "there is no run to report on");
}

#[test]
fn missing_files_leave_parts_out_and_a_line_says_so() {
    let mut old = run("a", "deep-bqrl", &[0.1], &[1, 2], 100);
    old.problem = None;
    old.reference = None;
    for record in &mut old.seeds {
        (record.policy, record.law, record.predictions) = (None, None, None);
    }
    let html = page(&[old]);
    for line in
        ["no run has a reference.csv", "no run has a problem.json", "no law.csv", "no predictions.csv"]
    {
        assert_eq!(html.matches(line).count(), 1, "{line}");
    }
    // Learning, attained quantiles and reward need nothing of it.
    assert_eq!(html.matches("<svg").count(), 3);
}

#[test]
fn a_stochastic_policy_is_shown_as_its_mode_and_as_itself() {
    let mut ppo = run("a", "ppo", &[0.5], &[1, 2], 100);
    for record in &mut ppo.seeds {
        let mut drawn = record.evaluations.clone();
        drawn[0]
            .iter_mut()
            .for_each(|row| row.quantile_policy_gap = row.quantile_policy_gap.map(|gap| 2.0 * gap));
        record.distribution = Some(drawn);
    }
    let html = page(&[ppo]);
    let rows = rows_after(&html, "<h2>Results</h2>");
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[1][10], 2.0 * rows[0][10]);
    assert!(html.contains("PPO, most probable actions") && html.contains("PPO, actions drawn"));
    assert!(html.contains(">PPO drawn<") && html.contains("thin: the stochastic policy itself"));
}

#[test]
fn an_agent_that_serves_every_level_is_a_curve_with_a_band() {
    let mut all = run("a", "target-tracking", &[0.1, 0.5], &[1, 2, 3], 100);
    for record in &mut all.seeds {
        let row = |k: u32| Achieved {
            tau: f64::from(k) / 20.0,
            quantile: f64::from(k) / 20.0 + record.seed as f64 / 100.0,
            mean: 0.5,
        };
        record.achieved = Some((1..20).map(row).collect());
    }
    let html = page(&[all]);
    let figure = html.split("<title>Achieved quantile").nth(1).unwrap().split("</svg>").next().unwrap();
    assert!(figure.contains("agents that serve every level"));
    // The band, and one thin line per seed.
    assert_eq!(figure.matches("fill-opacity").count(), 1);
    assert_eq!(figure.matches("stroke-width=\"0.5\"").count(), 3);
}

#[test]
fn a_long_run_makes_a_small_page() {
    let html = page(&[run("a", "deep-bqrl", &[0.1, 0.5, 0.9], &[1, 2, 3], 100_000)]);
    assert!(html.len() < 400_000, "{} bytes", html.len());
}

#[test]
fn the_papers_figures_and_numbers_come_from_grouped_runs() {
    let on = |name: &str, mut run: Run| {
        run.summary.problem = name.into();
        run.problem.as_mut().unwrap().name = name.into();
        run
    };
    let seeds = [42, 10042, 20042];
    let selling = [
        on("asset-selling", run("a", "deep-bqrl", &[0.1], &seeds, 2000)),
        on("asset-selling", run("b", "deep-bqrl", &[0.5], &seeds, 2000)),
        on("asset-selling", run("c", "deep-bqrl", &[0.9], &seeds, 2000)),
        on("asset-selling", run("d", "ppo", &[0.1, 0.5, 0.9], &seeds, 2000)),
        // Of another length: nothing in the paper to compare it with.
        on("asset-selling", run("e", "trpo", &[0.1, 0.9], &seeds, 100)),
    ];
    let lake = [on("frozen-lake", run("f", "deep-bqrl", &[0.5], &seeds, 5000))];
    let (selling, lake) = (Study::new(&selling).unwrap(), Study::new(&lake).unwrap());
    let figures = paper::figures(Some(&selling), Some(&lake));
    let names: Vec<&str> = figures.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["figure-1", "figure-2", "figure-3", "figure-4"]);
    // Figure 2 shows the paper's choice of seeds.
    for heading in ["τ = 0.1 · seed 10042", "τ = 0.5 · seed 42", "τ = 0.9 · seed 20042"] {
        assert!(figures[1].1.svg().contains(&format!(">{heading}<")), "{heading}");
    }
    let rows = paper::compare(&[&selling, &lake]);
    // Gap and regret at two levels for two methods; reward, gap and regret on the lake for one.
    assert_eq!(rows.len(), 8 + 3);
    let row = &rows[0];
    assert_eq!((row.claim.measure, row.claim.tau), (Measure::QuantilePolicyGap, 0.1));
    assert_eq!((row.method.as_str(), row.claim.value.0), ("Deep-BQRL", 538.33));
    let gaps: Vec<f64> = seeds.iter().map(|&seed| 2000.0 * 0.1 * (1.0 + seed as f64 / 10.0)).collect();
    assert!((row.ours.mean - gaps.iter().sum::<f64>() / 3.0).abs() < 1e-6);
    let table = paper::markdown(&rows);
    assert_eq!(table.lines().filter(|line| line.starts_with('|')).count(), 2 + 11);
    let first = "| asset-selling | cumulative quantile policy gap | 0.1 | Deep-BQRL | 538.3 |";
    assert!(table.contains(first), "{table}");
}

#[test]
fn intervals_do_not_reach_beyond_what_is_possible() {
    // Three seeds whose quantiles are 0, 0.775 and 0.775, the best possible: Student-t reaches from −0.59 to 1.6.
    let mut wide = run("a", "deep-bqrl", &[0.1], &[1, 2, 3], 100);
    for (record, quantile) in wide.seeds.iter_mut().zip([0.0, 0.775, 0.775]) {
        for row in &mut record.evaluations[0] {
            row.quantile = quantile;
            row.quantile_policy_gap = Some((0.775 - quantile) * row.episode as f64);
        }
    }
    let runs = [wide];
    let study = Study::new(&runs).unwrap();
    let level = study.methods[0].level(0.1).unwrap();
    let interval = |measure| level.estimate(measure).unwrap().interval.unwrap();
    assert_eq!(interval(Measure::FinalQuantile), Interval { low: 0.0, high: 0.775 });
    let gap = interval(Measure::QuantilePolicyGap);
    // A hundred episodes, each at most 0.775 below the best.
    assert!(gap.low == 0.0 && (gap.high - 77.5).abs() < 1e-9, "{gap:?}");
    // The regret may be negative; its interval is not cut.
    assert!(interval(Measure::ExpectedReturnRegret).low.is_finite());
    // Where the optimum is a lower bound, it bounds nothing.
    let mut played = runs.clone();
    played[0].summary.exact = false;
    let study = Study::new(&played).unwrap();
    let level = study.methods[0].level(0.1).unwrap();
    let interval = |measure| level.estimate(measure).unwrap().interval.unwrap();
    // The highest return of law.csv is 1.
    assert_eq!(interval(Measure::FinalQuantile).high, 1.0);
    assert!(interval(Measure::QuantilePolicyGap).low < 0.0);
}

#[test]
fn runs_of_different_lengths_are_pointed_out() {
    let runs = [run("a", "deep-bqrl", &[0.1], &[1], 100), run("b", "ppo", &[0.1], &[1], 50)];
    let wanted =
        "The runs differ in length (Deep-BQRL 100 episodes, PPO 50 episodes); cumulative measures grow";
    assert!(page(&runs).contains(wanted));
    assert_eq!(page(&runs[..1]).matches("differ in length").count(), 0);
}
