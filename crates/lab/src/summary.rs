//! From the seeds of a run to its [`Summary`].

use bqrl_runs::schema::{EvaluationRow, Summary, SummaryLevel};

use crate::config::Config;
use crate::run::{Finished, Session};
use crate::task::{Level, References};
use crate::train::PolicyMetrics;

/// Sums up the seeds of a run, in their order.
pub fn summarise(run: String, config: &Config, references: &References, finished: &[Finished]) -> Summary {
    let seconds = seconds_of(finished);
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

/// The time during which at least one seed was trained, over all sessions of an interrupted run.
fn seconds_of(finished: &[Finished]) -> f64 {
    let mut sessions: Vec<Session> = finished.iter().flat_map(|done| &done.sessions).copied().collect();
    sessions.sort_by(|a, b| a.began.total_cmp(&b.began));
    let (mut total, mut counted) = (0.0, f64::NEG_INFINITY);
    for Session { began, ended } in sessions {
        // Seeds are trained side by side. A session in which the clock was set back counts nothing.
        total += (ended - began.max(counted)).max(0.0);
        counted = counted.max(ended);
    }
    total
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::Progress;

    #[test]
    fn seconds_add_up_over_sessions_and_seeds_side_by_side_count_once() {
        let seed = |sessions: &[(f64, f64)]| Finished {
            progress: Progress::default(),
            updates: 0,
            sessions: sessions.iter().map(|&(began, ended)| Session { began, ended }).collect(),
        };
        // Two seeds: 10 s together, an interruption, 5 s of the second one; then a clock that was set back by an hour.
        let seeds = [seed(&[(100.0, 108.0)]), seed(&[(101.0, 110.0), (500.0, 505.0), (505.0, -3000.0)])];
        assert_eq!(seconds_of(&seeds), 15.0);
        assert_eq!(seconds_of(&[]), 0.0);
    }
}
