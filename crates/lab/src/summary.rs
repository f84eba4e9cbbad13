//! From the seeds of a run to its [`Summary`].

use bqrl_runs::schema::{EvaluationRow, Summary, SummaryLevel};

use crate::config::Config;
use crate::run::Finished;
use crate::task::{Level, References};
use crate::train::PolicyMetrics;

/// Sums up the seeds of a run, in their order.
pub fn summarise(
    run: String,
    config: &Config,
    references: &References,
    finished: &[Finished],
    seconds: f64,
) -> Summary {
    let greedy: Vec<&PolicyMetrics> = finished.iter().map(|done| &done.progress.greedy).collect();
    // The seeds of a run agree on whether there is one.
    let distribution: Option<Vec<&PolicyMetrics>> =
        finished.iter().map(|done| done.progress.distribution.as_ref()).collect();
    let env_steps: u64 = finished.iter().map(|done| done.progress.clock.steps).sum();
    Summary {
        run,
        problem: config.problem.name.clone(),
        algo: config.algo().name.to_owned(),
        episodes: finished.iter().map(|done| done.progress.clock.episodes as usize).max().unwrap_or(0),
        steps: config.run.steps,
        lanes: (config.run.lanes > 1).then_some(config.run.lanes),
        seeds: config.run.seeds.clone(),
        exact: references.evaluator.is_some(),
        max_mean: references.max_mean,
        taus: levels(references, &greedy),
        distribution: distribution.map(|metrics| levels(references, &metrics)),
        final_mean: greedy.iter().map(|metrics| metrics.last[0].mean).collect(),
        expected_return_regret: finished.iter().map(|done| done.progress.regret).collect(),
        moving_average_reward: finished.iter().map(|done| done.progress.moving_average_reward()).collect(),
        env_steps,
        updates: finished.iter().map(|done| done.updates).sum(),
        seconds,
        frames_per_second: if seconds > 0.0 { env_steps as f64 / seconds } else { 0.0 },
    }
}

fn levels(references: &References, metrics: &[&PolicyMetrics]) -> Vec<SummaryLevel> {
    let level = |(index, level): (usize, &Level)| {
        let rows: Vec<&EvaluationRow> = metrics.iter().map(|metrics| &metrics.last[index]).collect();
        let each = |value: fn(&EvaluationRow) -> f64| rows.iter().map(|row| value(row)).collect();
        SummaryLevel {
            tau: level.buffer.tau(),
            beta: level.buffer.beta(),
            best_quantile: level.best_quantile,
            rule_quantile: None,
            quantile_policy_gap: rows.iter().map(|row| row.quantile_policy_gap).collect(),
            final_quantile: each(|row| row.quantile),
            final_buffered_quantile: each(|row| row.buffered_quantile),
            final_mean: each(|row| row.mean),
            interval: references.evaluator.is_none().then(|| rows.iter().map(|row| row.interval).collect()),
        }
    };
    references.levels.iter().enumerate().map(level).collect()
}
