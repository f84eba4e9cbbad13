//! Pages of runs that are unfinished, that have no references, or that count steps.

mod support;

use std::path::Path;

use bqrl_math::Interval;
use bqrl_report::document::document;
use bqrl_report::study::{Axis, Measure, Study};
use bqrl_runs::reader::{Run, SeedState, State};
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::schema::SeedProgress;
use support::{page, rows_after, run};

/// The run after `episodes` of its 100 episodes in each seed; seeds without any are absent.
fn unfinished(mut run: Run, episodes: &[usize], running: bool) -> Run {
    let progress = |&episodes: &usize| SeedProgress {
        episodes,
        of_episodes: Some(100),
        done: episodes == 100,
        ..SeedProgress::default()
    };
    for (record, &reached) in run.seeds.iter_mut().zip(episodes) {
        record.episodes.truncate(reached);
        record.evaluations.iter_mut().for_each(|rows| rows.retain(|row| row.episode <= reached));
        if reached < 100 {
            (record.policy, record.law, record.predictions) = (None, None, None);
        }
    }
    run.seeds.retain(|record| !record.episodes.is_empty());
    let seeds: Vec<SeedState> = run
        .summary
        .seeds
        .iter()
        .zip(episodes.iter().map(progress))
        .map(|(&seed, progress)| SeedState { seed, progress })
        .collect();
    let fraction = seeds.iter().map(|seed| seed.progress.fraction()).sum::<f64>() / seeds.len() as f64;
    run.summary.episodes = episodes.iter().copied().max().unwrap_or(0);
    run.state = State::Unfinished { running, seeds, fraction };
    run
}

/// The run without anything that needs a reference: played, with intervals.
fn without_references(mut run: Run) -> Run {
    run.summary.exact = false;
    run.summary.max_mean = None;
    run.reference = None;
    if let Some(problem) = &mut run.problem {
        (problem.max_mean, problem.exact) = (None, false);
    }
    run.summary.taus.iter_mut().for_each(|level| level.best_quantile = None);
    for row in run.seeds.iter_mut().flat_map(|record| record.evaluations.iter_mut().flatten()) {
        (row.quantile_policy_gap, row.expected_return_regret) = (None, None);
        row.interval = Some([row.quantile - 0.03, row.quantile + 0.05]);
    }
    run
}

/// The run counted in steps: seed s takes 2 steps an episode and is evaluated after every tenth of its steps.
fn counted_in_steps(mut run: Run) -> Run {
    run.summary.steps = Some(200);
    run.summary.lanes = Some(2);
    for record in &mut run.seeds {
        record.episodes.iter_mut().for_each(|row| row.step = Some(2 * row.episode as u64));
        for row in record.evaluations.iter_mut().flatten() {
            row.step = Some(2 * row.episode as u64);
        }
    }
    run
}

/// The polylines of a page's figure, as numbers of points.
fn curve_points(html: &str, title: &str) -> Vec<usize> {
    let figure = html.split(&format!("<title>{title}")).nth(1).unwrap().split("</svg>").next().unwrap();
    let curves = figure.split("<path d=\"").skip(1).filter(|path| path.contains("stroke-width=\"1.9\""));
    curves.map(|path| path.split('"').next().unwrap().matches('L').count() + 1).collect()
}

#[test]
fn an_unfinished_run_says_how_far_it_is() {
    let whole = || run("a", "deep-bqrl", &[0.1], &[1, 2, 3], 100);
    let html = page(&[unfinished(whole(), &[100, 60, 0], true)]);
    assert!(html.contains("a is still running: 53 % is done. The numbers are those so far."), "{html}");
    for line in [
        "<li>seed 1: 100 of 100 episodes, 100 %; done</li>",
        "<li>seed 2: 60 of 100 episodes, 60 %; still running</li>",
        "<li>seed 3: 0 of 100 episodes, 0 %; not started</li>",
    ] {
        assert!(html.contains(line), "{line}");
    }
    assert!(html.contains("has reached") && html.contains("unfinished seeds count up to their latest row"));
    // Two seeds have rows. The first curve goes on alone after the second has stopped.
    assert_eq!(rows_after(&html, "<h2>Seed by seed</h2>").len(), 2);
    assert_eq!(curve_points(&html, "Learning against the optimum"), [11, 11]);
    let html = page(&[unfinished(whole(), &[60, 60, 60], false)]);
    assert!(html.contains("a was interrupted: 60 % is done") && html.contains("60 %; interrupted"));
    assert!(!page(&[whole()]).contains("class=\"note\""));
}

#[test]
fn a_run_without_any_rows_has_a_page() {
    let html = page(&[unfinished(run("a", "deep-bqrl", &[0.1], &[1], 100), &[0], true)]);
    assert!(html.contains("no rows have been written yet") && html.contains("seed 1: 0 of 100 episodes"));
    // Beside a run with rows it is only named.
    let html = page(&[
        unfinished(run("a", "deep-bqrl", &[0.1], &[1], 100), &[0], true),
        run("b", "ppo", &[0.1], &[1], 100),
    ]);
    assert_eq!(rows_after(&html, "<h2>Results</h2>").len(), 1);
}

#[test]
fn a_page_of_every_prefix_is_drawn() {
    for reached in 0..=100 {
        let part = unfinished(run("a", "ppo", &[0.1, 0.5], &[1, 2], 100), &[100, reached], true);
        let html = page(&[part]);
        assert!(!html.contains("NaN") && !html.contains("inf<"), "{reached}");
    }
}

#[test]
fn without_references_there_is_no_gap_regret_or_best_anywhere() {
    let runs = [without_references(run("a", "qr-dqn", &[0.1, 0.5], &[1, 2, 3], 100))];
    let study = Study::new(&runs).unwrap();
    let wanted = [
        Measure::FinalQuantile,
        Measure::FinalBufferedQuantile,
        Measure::FinalMean,
        Measure::MovingAverageReward,
    ];
    assert_eq!(study.measures(), wanted);
    let page = document(&study, "0.0.0");
    for word in ["gap", "regret", "best possible Q", "best known", "largest mean", "lower bound", "optimum"] {
        assert!(!page.html.contains(word), "{word}");
    }
    let names: Vec<&str> = page.figures.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..2], ["learning", "reward"]);
    assert!(page.html.contains("quantile Q<sub>τ</sub> of QR-DQN ends at"));
    let learning = page.figures[0].1.svg();
    assert!(learning.contains("of the greedy policy") && learning.contains("Student-t"));
}

#[test]
fn one_seed_that_was_played_has_the_interval_of_its_evaluation() {
    let runs = [without_references(run("a", "qr-dqn", &[0.1], &[1], 100))];
    let study = Study::new(&runs).unwrap();
    let level = study.methods[0].level(0.1).unwrap();
    let last = level.seeds[0].last().unwrap();
    let [low, high] = last.interval.unwrap();
    assert_eq!(level.estimate(Measure::FinalQuantile).unwrap().interval, Some(Interval { low, high }));
    assert_eq!(level.estimate(Measure::FinalMean).unwrap().interval, None);
    let html = page(&runs);
    assert!(html.contains("from the episodes played") && html.contains("of one seed, the 95 % interval"));
    let learning = html.split("<title>Learning").nth(1).unwrap().split("</svg>").next().unwrap();
    assert_eq!(learning.matches("fill-opacity").count(), 1, "one band");
}

#[test]
fn runs_of_steps_are_drawn_over_steps_and_share_that_axis() {
    let steps = counted_in_steps(without_references(run("a", "qr-dqn", &[0.1], &[1, 2], 100)));
    let html = page(std::slice::from_ref(&steps));
    assert!(html.contains(">environment steps<") && !html.contains(">training episodes<"));
    assert!(html.contains("200 steps in 2 lanes a seed"));
    // Beside it, a run counted in episodes is drawn over the steps of its episodes.
    let episodes = without_references(run("b", "ppo", &[0.1], &[1], 100));
    let runs = [steps, episodes];
    assert_eq!(Study::new(&runs).unwrap().axis(), Axis::Steps);
    let html = page(&runs);
    assert!(!html.contains(">training episodes<"));
    // 11 evaluations; a value is held until the next, so a curve has a corner between each two.
    assert_eq!(curve_points(&html, "Learning,"), [21, 21]);
    assert!(html.contains("The runs differ in length (QR-DQN 200 steps, PPO 100 episodes)."));
    assert_eq!(Study::new(&runs[1..]).unwrap().axis(), Axis::Episodes);
}

#[test]
fn seeds_evaluated_at_different_points_are_aligned() {
    let mut mixed = counted_in_steps(without_references(run("a", "qr-dqn", &[0.1], &[1, 2], 100)));
    // The second seed: 40 episodes, evaluated after 30, 130 and 200 steps.
    let record = &mut mixed.seeds[1];
    record.episodes.truncate(40);
    let row = record.evaluations[0][0];
    let rows = [(10, 30, 0.1), (25, 130, 0.2), (40, 200, 0.3)];
    record.evaluations[0] = rows
        .map(|(episode, step, quantile)| {
            let interval = Some([quantile, quantile]);
            bqrl_runs::schema::EvaluationRow { episode, step: Some(step), quantile, interval, ..row }
        })
        .to_vec();
    let html = page(&[mixed]);
    // 0, 20, …, 200 and, in between, 30 and 130: 13 points, and 12 corners between them.
    assert_eq!(curve_points(&html, "Learning,"), [25]);
    let last = &rows_after(&html, "<h2>Results</h2>")[0];
    assert!((last[1] - f64::midpoint(0.511, 0.3)).abs() < 1e-12, "{last:?}");
}

#[test]
fn references_that_a_run_does_not_know_yet_come_from_the_others() {
    let mut young = unfinished(run("a", "deep-bqrl", &[0.1], &[1], 100), &[50], true);
    (young.problem, young.reference, young.summary.max_mean) = (None, None, None);
    young.summary.taus[0].best_quantile = None;
    let runs = [young, run("b", "ppo", &[0.1], &[1], 100)];
    let study = Study::new(&runs).unwrap();
    assert_eq!(study.methods[0].level(0.1).unwrap().facts.best_quantile, Some(0.775));
}

/// A run on disk, cut at any byte, is a page or an error.
#[test]
fn a_log_cut_anywhere_is_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run");
    let (dir, _lock) = RunDir::create(&path, false).unwrap();
    let write = |name: &Path, text: &str| std::fs::write(name, text).unwrap();
    let config = "[problem]\nname = \"game\"\n[run]\ntau = [0.5]\nsteps = 40\nseeds = [1]\n[agent]\nkind = \"qr-dqn\"\n";
    write(&dir.config(), config);
    std::fs::create_dir(path.join("seed-1")).unwrap();
    let episodes = "episode,episode_return,length,step\n1,2.5,10,10\n2,-1,12,22\n3,4,8,30\n";
    let evaluations =
        "episode,step,tau,quantile,buffered_quantile,mean,low,high\n0,0,0.5,1,1,1,,\n2,22,0.5,2,2,2,1.5,3\n";
    write(&dir.seed(1).episodes(), episodes);
    for cut in 0..=evaluations.len() {
        write(&dir.seed(1).evaluations(), &evaluations[..cut]);
        let html = page(&[Run::read(&path).unwrap()]);
        // The last whole row is what the page shows.
        let rows = evaluations[..cut].matches('\n').count().saturating_sub(1);
        let shown = ["2.5", "1", "2"][rows];
        assert!(rows == 0 || html.contains(&format!("has reached <data value=\"{shown}\">")), "{cut}");
        assert!(html.contains("still running: 75 % is done"), "{cut}");
    }
    for cut in 0..=episodes.len() {
        write(&dir.seed(1).episodes(), &episodes[..cut]);
        page(&[Run::read(&path).unwrap()]);
    }
}
