//! `summary.json`: what a finished run amounts to, in the form that users and scripts rely on.

use bqrl_math::buffer::Buffer;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::run::Finished;
use crate::train::{Evaluated, Standing, Yardstick};

/// A whole run; one entry per seed in each list.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Summary {
    /// Its directory.
    pub run: String,
    /// The problem's name.
    pub problem: String,
    /// The algorithm's name.
    pub algo: String,
    /// Training episodes.
    pub episodes: usize,
    /// The seeds.
    pub seeds: Vec<u64>,
    /// False where policies are evaluated by playing, and `best_quantile` is a lower bound.
    pub exact: bool,
    /// max_π `E[R^π]`.
    pub max_mean: f64,
    /// Of the greedy policy; for a stochastic one, of its mode.
    pub taus: Vec<Level>,
    /// Of a stochastic policy itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<Vec<Level>>,
    /// At the first level.
    pub final_mean: Vec<f64>,
    /// Reg_E.
    pub expected_return_regret: Vec<f64>,
    /// Of the last 50 episodes.
    pub moving_average_reward: Vec<f64>,
    /// Decisions taken, all seeds together.
    pub env_steps: u64,
    /// Updates made, all seeds together.
    pub updates: u64,
    /// Wall time.
    pub seconds: f64,
}

/// The measures at one level.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct Level {
    /// τ.
    pub tau: f64,
    /// β.
    pub beta: f64,
    /// Q*_τ.
    pub best_quantile: f64,
    /// Q_τ of the paper's rule, solved exactly: what Deep-BQRL would learn without error. Given for Deep-BQRL alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule_quantile: Option<f64>,
    /// 𝒢_τ.
    pub quantile_policy_gap: Vec<f64>,
    /// Q_τ of the final policy.
    pub final_quantile: Vec<f64>,
    /// Q_τ^β of the final policy.
    pub final_buffered_quantile: Vec<f64>,
    /// `E[R]` of the final policy.
    pub final_mean: Vec<f64>,
}

impl Summary {
    /// Sums up the seeds of a run, in their order.
    pub fn new(
        run: String,
        config: &Config,
        yardstick: &Yardstick,
        finished: &[Finished],
        seconds: f64,
    ) -> Self {
        let greedy: Vec<&Standing> = finished.iter().map(|done| &done.progress.greedy).collect();
        // The seeds of a run agree on whether there is one.
        let distribution: Option<Vec<&Standing>> =
            finished.iter().map(|done| done.progress.distribution.as_ref()).collect();
        let each = |value: fn(&Finished) -> f64| finished.iter().map(value).collect();
        Self {
            run,
            problem: config.problem.name.clone(),
            algo: config.algo().name.to_owned(),
            episodes: config.run.episodes,
            seeds: config.run.seeds.clone(),
            exact: yardstick.evaluator.is_some(),
            max_mean: yardstick.max_mean,
            taus: levels(yardstick, &greedy),
            distribution: distribution.map(|standings| levels(yardstick, &standings)),
            final_mean: greedy.iter().map(|standing| standing.last[0].mean).collect(),
            expected_return_regret: each(|done| done.progress.regret),
            moving_average_reward: each(|done| done.progress.moving_average_reward()),
            env_steps: finished.iter().map(|done| done.progress.env_steps).sum(),
            updates: finished.iter().map(|done| done.updates).sum(),
            seconds,
        }
    }

    /// One line of JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain numbers and text serialise") + "\n"
    }
}

fn levels(yardstick: &Yardstick, standings: &[&Standing]) -> Vec<Level> {
    let level = |(index, (buffer, best)): (usize, &(Buffer, f64))| {
        let each = |value: fn(&Evaluated) -> f64| {
            standings.iter().map(|standing| value(&standing.last[index])).collect()
        };
        Level {
            tau: buffer.tau(),
            beta: buffer.beta(),
            best_quantile: *best,
            rule_quantile: None,
            quantile_policy_gap: each(|e| e.quantile_policy_gap),
            final_quantile: each(|e| e.quantile),
            final_buffered_quantile: each(|e| e.buffered_quantile),
            final_mean: each(|e| e.mean),
        }
    };
    yardstick.levels.iter().enumerate().map(level).collect()
}
