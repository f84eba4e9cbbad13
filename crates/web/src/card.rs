//! A run in one row: what the overview and `GET /api/runs` say about it.

use bqrl_report::study::display_name;
use bqrl_runs::reader::{Run, State};
use serde::Serialize;

/// A run in one row.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Card {
    /// The path of its directory below the served one.
    pub id: String,
    /// The problem's name.
    pub problem: String,
    /// The algorithm, as configurations spell it.
    pub algo: String,
    /// The algorithm, as pages spell it.
    pub method: String,
    /// `finished`, `running`, `interrupted`, or `unreadable`.
    pub state: &'static str,
    /// The part that is done, from 0 to 1.
    pub fraction: f64,
    /// Episodes of the longest seed so far.
    pub episodes: usize,
    /// Steps of all seeds so far.
    pub env_steps: u64,
    /// Steps a second, all seeds together, where it is known.
    pub steps_per_second: Option<f64>,
    /// Its seeds.
    pub seeds: Vec<u64>,
    /// Whether one agent serves every level.
    pub serves_every_level: bool,
    /// Whether quantiles are exact, or from played episodes.
    pub exact: bool,
    /// One per level.
    pub taus: Vec<CardLevel>,
    /// Why the run cannot be read, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What its files looked like when they were read.
    #[serde(skip)]
    pub fingerprint: u64,
}

/// One level of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CardLevel {
    /// τ.
    pub tau: f64,
    /// β.
    pub beta: f64,
    /// Q_τ of the latest evaluation, the mean over seeds.
    pub quantile: Option<f64>,
    /// Q*_τ, where it is known.
    pub best_quantile: Option<f64>,
    /// `E[R]` of the latest evaluation, the mean over seeds.
    pub mean: Option<f64>,
    /// 𝒢_τ so far, the mean over seeds.
    pub quantile_policy_gap: Option<f64>,
}

impl Card {
    /// The card of a run that was read.
    pub fn of(id: String, fingerprint: u64, run: &Run, steps_per_second: Option<f64>) -> Self {
        let summary = &run.summary;
        let finished = matches!(run.state, State::Finished).then_some(summary.frames_per_second);
        let level = |(index, level): (usize, &bqrl_runs::schema::SummaryLevel)| {
            let last = || run.seeds.iter().filter_map(move |seed| seed.evaluations[index].last());
            CardLevel {
                tau: level.tau,
                beta: level.beta,
                quantile: mean(last().map(|row| row.quantile)),
                best_quantile: level.best_quantile,
                mean: mean(last().map(|row| row.mean)),
                quantile_policy_gap: mean(last().filter_map(|row| row.quantile_policy_gap)),
            }
        };
        Self {
            id,
            problem: summary.problem.clone(),
            algo: summary.algo.clone(),
            method: display_name(&summary.algo).to_owned(),
            state: run.state.name(),
            fraction: run.state.fraction(),
            episodes: summary.episodes,
            env_steps: summary.env_steps,
            steps_per_second: finished.filter(|&speed| speed > 0.0).or(steps_per_second),
            seeds: summary.seeds.clone(),
            serves_every_level: run.seeds.iter().any(|seed| seed.achieved.is_some()),
            exact: summary.exact,
            taus: summary.taus.iter().enumerate().map(level).collect(),
            error: None,
            fingerprint,
        }
    }

    /// The card of a run that could not be read.
    pub fn unreadable(id: String, fingerprint: u64, error: String) -> Self {
        Self {
            id,
            problem: String::new(),
            algo: String::new(),
            method: String::new(),
            state: "unreadable",
            fraction: 0.0,
            episodes: 0,
            env_steps: 0,
            steps_per_second: None,
            seeds: Vec::new(),
            serves_every_level: false,
            exact: true,
            taus: Vec::new(),
            error: Some(error),
            fingerprint,
        }
    }

    /// Whether a word occurs in the name, the problem, the method or the state.
    pub fn matches(&self, word: &str) -> bool {
        let word = word.to_lowercase();
        [&self.id, &self.problem, &self.algo, &self.method]
            .into_iter()
            .any(|text| text.to_lowercase().contains(&word))
            || self.state.contains(&word)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, n) = values.fold((0.0, 0_usize), |(sum, n), value| (sum + value, n + 1));
    (n > 0).then(|| sum / n as f64)
}
