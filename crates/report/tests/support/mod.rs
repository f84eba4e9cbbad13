//! Runs made by hand, and the numbers of their pages.

// Every test file uses a part of these.
#![allow(dead_code)]

use std::path::PathBuf;

use bqrl_report::document::document;
use bqrl_report::study::Study;
use bqrl_runs::reader::{Atom, Choice, Prediction, Reference, Run, SeedRecord, State};
use bqrl_runs::schema::{EpisodeRow, EvaluationRow, LevelFacts, Summary, SummaryLevel, TaskFacts};

fn level(tau: f64) -> LevelFacts {
    LevelFacts { tau, beta: tau, best_quantile: Some(0.75 + tau / 4.0) }
}

fn summary_level(facts: &LevelFacts) -> SummaryLevel {
    SummaryLevel {
        tau: facts.tau,
        beta: facts.beta,
        best_quantile: facts.best_quantile,
        rule_quantile: None,
        quantile_policy_gap: None,
        final_quantile: Vec::new(),
        final_buffered_quantile: Vec::new(),
        final_mean: Vec::new(),
        interval: None,
    }
}

/// A seed whose numbers follow from the seed: every one differs from every other.
fn seed(seed: u64, taus: &[f64], episodes: usize) -> SeedRecord {
    let evaluation = |tau: f64, episode: usize| EvaluationRow {
        episode,
        step: None,
        tau,
        quantile: 0.5 + tau / 10.0 + seed as f64 / 1000.0,
        buffered_quantile: 0.4 + tau / 10.0 + seed as f64 / 1000.0,
        mean: 0.6 + tau / 10.0 + seed as f64 / 1000.0,
        quantile_policy_gap: Some(episode as f64 * tau * (1.0 + seed as f64 / 10.0)),
        expected_return_regret: Some(episode as f64 / 7.0 * (1.0 + seed as f64 / 10.0)),
        interval: None,
    };
    let rows = |&tau: &f64| (0..=episodes / 10).map(|k| evaluation(tau, 10 * k)).collect();
    let choice = |k: usize| Choice { tau: None, stage: k / 3, state: k % 3, action: (k + k / 3) % 2 };
    let prediction = |k: usize| Prediction {
        critic: k / 8,
        action: k / 4 % 2,
        level: (k % 4) as f64 / 4.0 + 0.125,
        value: (k % 8) as f64 / 10.0 + (k / 8) as f64 / 50.0,
    };
    let episode = |t: usize| EpisodeRow {
        episode: t + 1,
        episode_return: ((t * 7 + seed as usize) % 11) as f64 / 11.0,
        length: 2,
        step: None,
    };
    let atom = |(value, probability)| Atom { tau: None, value, probability };
    SeedRecord {
        seed,
        episodes: (0..episodes).map(episode).collect(),
        evaluations: taus.iter().map(rows).collect(),
        distribution: None,
        policy: Some((0..12).map(choice).collect()),
        law: Some([(0.0, 0.25), (0.5, 0.25), (1.0, 0.5)].map(atom).to_vec()),
        predictions: Some((0..16).map(prediction).collect()),
        achieved: None,
    }
}

pub fn run(path: &str, algo: &str, taus: &[f64], seeds: &[u64], episodes: usize) -> Run {
    let levels: Vec<LevelFacts> = taus.iter().map(|&tau| level(tau)).collect();
    let reference = |policy: &str, drop: f64| -> Vec<Reference> {
        let row = |k: u32| Reference {
            policy: policy.into(),
            tau: f64::from(k) / 20.0,
            quantile: (f64::from(k) / 5.0).floor() / 4.0 - drop,
            mean: None,
        };
        (1..20).map(row).collect()
    };
    let (run, agent) = (format!("tau = {taus:?}\nseeds = {seeds:?}"), format!("kind = \"{algo}\""));
    Run {
        path: PathBuf::from(path),
        config: format!("[problem]\nname = \"coin\"\n[run]\n{run}\n[agent]\n{agent}\n"),
        state: State::Finished,
        summary: Summary {
            run: path.into(),
            problem: "coin".into(),
            algo: algo.into(),
            episodes,
            steps: None,
            lanes: None,
            seeds: seeds.to_vec(),
            exact: true,
            max_mean: Some(0.875),
            taus: levels.iter().map(summary_level).collect(),
            distribution: None,
            final_mean: Vec::new(),
            expected_return_regret: None,
            moving_average_reward: Vec::new(),
            env_steps: 1,
            updates: 2,
            seconds: 3.0,
            frames_per_second: 0.0,
        },
        problem: Some(TaskFacts {
            name: "coin".into(),
            horizon: 4,
            discount: 1.0,
            states: ["low", "middle", "high", "over"].map(str::to_owned).to_vec(),
            look: None,
            actions: ["stop", "go"].map(str::to_owned).to_vec(),
            ordered: true,
            exact: true,
            max_mean: Some(0.875),
            levels,
        }),
        reference: Some([reference("optimal", 0.0), reference("risk-neutral", 0.1)].concat()),
        seeds: seeds.iter().map(|&s| seed(s, taus, episodes)).collect(),
    }
}

pub fn page(runs: &[Run]) -> String {
    document(&Study::new(runs).unwrap(), "0.0.0").html
}

/// The numbers in each row of the table after `heading`, to the last digit.
pub fn rows_after(html: &str, heading: &str) -> Vec<Vec<f64>> {
    let table = html.split(heading).nth(1).unwrap().split("<tbody>").nth(1).unwrap().split("</tbody>").next();
    let numbers = |row: &str| {
        row.split("<data value=\"").skip(1).map(|n| n.split('"').next().unwrap().parse().unwrap()).collect()
    };
    table.unwrap().split("<tr>").skip(1).map(numbers).collect()
}
