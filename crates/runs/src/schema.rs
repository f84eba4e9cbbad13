//! The contents of a run's files: rows and summaries as types, written by `lab` and the Python package, read by `report`.
//!
//! Numbers that need a reference exist only if the reference does. A task without a known optimum has no gap and no best
//! quantile: the column or field is absent, not zero and not empty.
//!
//! | file | type | columns or fields |
//! |---|---|---|
//! | `seed-N/episodes.csv` | [`EpisodeRow`] | `episode,episode_return,length[,step]` |
//! | `seed-N/evaluations.csv` | [`EvaluationRow`] | `episode[,step],tau,quantile,buffered_quantile,mean[,quantile_policy_gap][,expected_return_regret][,low,high]` |
//! | `seed-N/progress.json` | [`SeedProgress`] | how far a seed is; a heartbeat while it trains |
//! | `summary.json` | [`Summary`] | the results |
//! | `problem.json` | [`TaskFacts`] | names, horizon, and the exact optima |

use serde::{Deserialize, Serialize};

/// Episodes over which the reported training reward is averaged (§4.2).
pub const MOVING_AVERAGE: usize = 50;

/// One finished episode of training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpisodeRow {
    /// Counted from 1.
    pub episode: usize,
    /// G_t, discounted as the task says.
    pub episode_return: f64,
    /// Decisions taken.
    pub length: usize,
    /// Steps of all lanes when it ended; only where the run counts steps or has several lanes.
    pub step: Option<u64>,
}

impl EpisodeRow {
    /// The columns, with or without `step`.
    pub fn header(with_step: bool) -> &'static str {
        if with_step { "episode,episode_return,length,step" } else { "episode,episode_return,length" }
    }

    /// The row as a line.
    pub fn line(&self) -> String {
        let Self { episode, episode_return, length, step } = self;
        let step = step.map_or(String::new(), |step| format!(",{step}"));
        format!("{episode},{episode_return},{length}{step}")
    }
}

/// One evaluation of the greedy policy at one level.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct EvaluationRow {
    /// Episodes trained so far.
    pub episode: usize,
    /// Steps trained so far; only where the run counts steps or has several lanes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
    /// τ.
    pub tau: f64,
    /// Q_τ of the greedy policy.
    pub quantile: f64,
    /// Q_τ^β of the greedy policy.
    pub buffered_quantile: f64,
    /// `E[R]` of the greedy policy.
    pub mean: f64,
    /// 𝒢_τ so far, where Q*_τ is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile_policy_gap: Option<f64>,
    /// Reg_E so far, where the largest mean is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_return_regret: Option<f64>,
    /// A 95 % interval of Q_τ, if the policy was evaluated by playing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<[f64; 2]>,
}

/// Which optional columns an `evaluations.csv` has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // One per optional column.
pub struct EvaluationColumns {
    /// `step`.
    pub step: bool,
    /// `quantile_policy_gap`.
    pub gap: bool,
    /// `expected_return_regret`.
    pub regret: bool,
    /// `low,high`.
    pub interval: bool,
}

impl EvaluationColumns {
    /// The header line.
    pub fn header(self) -> String {
        let mut columns = vec!["episode"];
        columns.extend(self.step.then_some("step"));
        columns.extend(["tau", "quantile", "buffered_quantile", "mean"]);
        columns.extend(self.gap.then_some("quantile_policy_gap"));
        columns.extend(self.regret.then_some("expected_return_regret"));
        columns.extend(self.interval.then_some(["low", "high"]).into_iter().flatten());
        columns.join(",")
    }

    /// The columns that a header line names, in any combination that [`header`](Self::header) writes.
    pub fn of_header(line: &str) -> Option<Self> {
        let all = (0..16).map(|bits: u8| Self {
            step: bits & 1 != 0,
            gap: bits & 2 != 0,
            regret: bits & 4 != 0,
            interval: bits & 8 != 0,
        });
        all.into_iter().find(|columns| columns.header() == line)
    }

    /// A row as a line. Without an interval (too few episodes) its cells are empty.
    pub fn line(self, row: &EvaluationRow) -> String {
        let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
        let mut cells = vec![row.episode.to_string()];
        cells.extend(self.step.then(|| row.step.map_or(String::new(), |step| step.to_string())));
        cells.extend([row.tau, row.quantile, row.buffered_quantile, row.mean].map(|value| value.to_string()));
        cells.extend(self.gap.then(|| number(row.quantile_policy_gap)));
        cells.extend(self.regret.then(|| number(row.expected_return_regret)));
        if self.interval {
            cells.extend([0, 1].map(|end| number(row.interval.map(|interval| interval[end]))));
        }
        cells.join(",")
    }
}

/// How far a seed is: written about once a second while it trains, and when it stops.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct SeedProgress {
    /// Episodes finished.
    pub episodes: usize,
    /// Steps of all lanes.
    pub steps: u64,
    /// Updates made.
    pub updates: u64,
    /// The run's length in episodes, if it is counted in episodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_episodes: Option<usize>,
    /// The run's length in steps, if it is counted in steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of_steps: Option<u64>,
    /// Whether the seed has finished.
    pub done: bool,
    /// When this was written, in seconds since 1970.
    pub time: f64,
}

impl SeedProgress {
    /// The finished part, from 0 to 1.
    pub fn fraction(&self) -> f64 {
        let part = |done: f64, of: f64| (done / of.max(1.0)).min(1.0);
        match (self.done, self.of_episodes, self.of_steps) {
            (true, ..) => 1.0,
            (false, Some(of), _) => part(self.episodes as f64, of as f64),
            (false, None, Some(of)) => part(self.steps as f64, of as f64),
            (false, None, None) => 0.0,
        }
    }
}

/// `summary.json` and `bqrl train --json`: a whole run; one entry per seed in each list.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Summary {
    /// Its directory.
    #[serde(default)]
    pub run: String,
    /// The problem's name, or the path of its file.
    pub problem: String,
    /// The algorithm's name.
    pub algo: String,
    /// Training episodes of a seed; of the longest where seeds differ.
    pub episodes: usize,
    /// Training steps of a seed, where the run counts steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<u64>,
    /// Lanes of a seed, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lanes: Option<usize>,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// False if policies are evaluated by playing; `best_quantile`, if present, is then a lower bound.
    #[serde(default = "yes")]
    pub exact: bool,
    /// max_π `E[R^π]`, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mean: Option<f64>,
    /// Of the greedy policy; for a stochastic one, of its mode.
    pub taus: Vec<SummaryLevel>,
    /// Of a stochastic policy itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Vec<SummaryLevel>>,
    /// At the first level.
    #[serde(default)]
    pub final_mean: Vec<f64>,
    /// Reg_E, where the largest mean is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_return_regret: Option<Vec<f64>>,
    /// Of the last [`MOVING_AVERAGE`] episodes.
    #[serde(default)]
    pub moving_average_reward: Vec<f64>,
    /// Decisions taken, all seeds together.
    #[serde(default)]
    pub env_steps: u64,
    /// Updates made, all seeds together.
    #[serde(default)]
    pub updates: u64,
    /// Wall time.
    #[serde(default)]
    pub seconds: f64,
    /// Decisions per second of wall time.
    #[serde(default)]
    pub frames_per_second: f64,
}

fn yes() -> bool {
    true
}

/// The measures at one level.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct SummaryLevel {
    /// τ.
    pub tau: f64,
    /// β.
    pub beta: f64,
    /// Q*_τ, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_quantile: Option<f64>,
    /// Q_τ of the paper's rule, solved exactly: the result of Deep-BQRL without learning errors. Only for Deep-BQRL.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_quantile: Option<f64>,
    /// 𝒢_τ, where Q*_τ is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quantile_policy_gap: Option<Vec<f64>>,
    /// Q_τ of the final policy.
    #[serde(default)]
    pub final_quantile: Vec<f64>,
    /// Q_τ^β of the final policy.
    #[serde(default)]
    pub final_buffered_quantile: Vec<f64>,
    /// `E[R]` of the final policy.
    #[serde(default)]
    pub final_mean: Vec<f64>,
    /// A 95 % interval of the final Q_τ, where the policy was played; null with too few episodes for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<Vec<Option<[f64; 2]>>>,
}

impl SummaryLevel {
    /// τ, β and Q*_τ.
    pub fn facts(&self) -> LevelFacts {
        LevelFacts { tau: self.tau, beta: self.beta, best_quantile: self.best_quantile }
    }
}

impl Summary {
    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and text serialise") + "\n"
    }
}

/// `problem.json`: the task of the run.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct TaskFacts {
    /// Its name.
    pub name: String,
    /// H.
    pub horizon: usize,
    /// γ.
    pub discount: f64,
    /// Labels of the states; empty where there is no table.
    pub states: Vec<String>,
    /// How figures show the states, where that is not by their labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub look: Option<Look>,
    /// Names of the actions.
    pub actions: Vec<String>,
    /// Whether the states have a meaningful order.
    pub ordered: bool,
    /// Whether its exact quantiles are known.
    pub exact: bool,
    /// The largest mean return of any policy, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_mean: Option<f64>,
    /// The levels of the run.
    pub levels: Vec<LevelFacts>,
}

/// How figures show the states of a task.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Look {
    /// What a state is, in a word.
    pub axis: String,
    /// A label per state, where that says more than its name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// For a grid world the number of columns, and a letter per cell, row by row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grid: Option<(usize, String)>,
}

/// A level and its optimum.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct LevelFacts {
    /// τ.
    pub tau: f64,
    /// β.
    pub beta: f64,
    /// Q*_τ, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub best_quantile: Option<f64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_columns_of_a_table_with_references_are_the_published_ones() {
        let columns = EvaluationColumns { gap: true, regret: true, ..EvaluationColumns::default() };
        let header = "episode,tau,quantile,buffered_quantile,mean,quantile_policy_gap,expected_return_regret";
        assert_eq!(columns.header(), header);
        let row = EvaluationRow {
            episode: 10,
            step: Some(7),
            tau: 0.1,
            quantile: 0.75,
            buffered_quantile: 0.5,
            mean: 0.8,
            quantile_policy_gap: Some(1.25),
            expected_return_regret: Some(-2.0),
            interval: None,
        };
        assert_eq!(columns.line(&row), "10,0.1,0.75,0.5,0.8,1.25,-2");
        let played = EvaluationColumns { step: true, interval: true, ..EvaluationColumns::default() };
        assert_eq!(played.header(), "episode,step,tau,quantile,buffered_quantile,mean,low,high");
        assert_eq!(
            played.line(&EvaluationRow { interval: Some([0.5, 1.0]), ..row }),
            "10,7,0.1,0.75,0.5,0.8,0.5,1"
        );
        assert_eq!(played.line(&row), "10,7,0.1,0.75,0.5,0.8,,");
    }

    #[test]
    fn every_header_names_its_columns_again() {
        for bits in 0..16_u8 {
            let [step, gap, regret, interval] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
            let columns = EvaluationColumns { step, gap, regret, interval };
            assert_eq!(EvaluationColumns::of_header(&columns.header()), Some(columns));
        }
        assert_eq!(EvaluationColumns::of_header("episode,tau"), None);
    }

    #[test]
    fn progress_is_a_part_of_episodes_or_of_steps() {
        let half = SeedProgress { episodes: 5, of_episodes: Some(10), ..SeedProgress::default() };
        assert_eq!(half.fraction(), 0.5);
        let quarter = SeedProgress { steps: 25, of_steps: Some(100), ..SeedProgress::default() };
        assert_eq!(quarter.fraction(), 0.25);
        assert_eq!(SeedProgress { done: true, ..quarter }.fraction(), 1.0);
    }
}
