//! The measures of an agent, and their estimates over the seeds of a level.

use bqrl_math::{Buffer, Interval, ReturnLaw};
use bqrl_runs::reader::{Run, SeedRecord, State};
use bqrl_runs::schema::{EvaluationRow, LevelFacts, MOVING_AVERAGE, TaskFacts};

use crate::statistics::Estimate;

/// A method at one level.
#[derive(Debug)]
pub struct Level<'a> {
    /// τ, β and Q*_τ.
    pub facts: LevelFacts,
    /// One agent per seed, at least one.
    pub seeds: Vec<Trained<'a>>,
}

/// An agent at one level.
#[derive(Debug, Clone, Copy)]
pub struct Trained<'a> {
    /// The run it belongs to.
    pub run: &'a Run,
    /// Its files.
    pub record: &'a SeedRecord,
    /// The place of the level in its run.
    pub index: usize,
}

/// A measure of an agent at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// 𝒢_τ, cumulative; if Q*_τ is known.
    QuantilePolicyGap,
    /// Reg_E, cumulative; if the largest mean is known.
    ExpectedReturnRegret,
    /// The mean of the last fifty training returns.
    MovingAverageReward,
    /// Q_τ of the final policy.
    FinalQuantile,
    /// Q_τ^β of the final policy.
    FinalBufferedQuantile,
    /// The mean return of the final policy.
    FinalMean,
}

impl Measure {
    /// All of them, in the order of the tables.
    pub const ALL: [Self; 6] = [
        Self::FinalQuantile,
        Self::FinalBufferedQuantile,
        Self::FinalMean,
        Self::QuantilePolicyGap,
        Self::ExpectedReturnRegret,
        Self::MovingAverageReward,
    ];

    /// The full name, for columns.
    pub fn title(self) -> &'static str {
        match self {
            Self::QuantilePolicyGap => "cumulative quantile policy gap",
            Self::ExpectedReturnRegret => "cumulative expected-return regret",
            Self::MovingAverageReward => "50-episode moving-average reward",
            Self::FinalQuantile => "final quantile Q_τ",
            Self::FinalBufferedQuantile => "final buffered quantile Q_τ^β",
            Self::FinalMean => "final mean return",
        }
    }

    /// The full name, for an axis over training, where no value is final.
    pub fn axis_title(self) -> &'static str {
        match self {
            Self::FinalQuantile => "quantile Q_τ of the greedy policy",
            Self::FinalBufferedQuantile => "buffered quantile Q_τ^β of the greedy policy",
            Self::FinalMean => "mean return of the greedy policy",
            cumulative => cumulative.title(),
        }
    }

    /// The key in machine-readable output.
    pub fn key(self) -> &'static str {
        match self {
            Self::QuantilePolicyGap => "quantile_policy_gap",
            Self::ExpectedReturnRegret => "expected_return_regret",
            Self::MovingAverageReward => "moving_average_reward",
            Self::FinalQuantile => "final_quantile",
            Self::FinalBufferedQuantile => "final_buffered_quantile",
            Self::FinalMean => "final_mean",
        }
    }

    /// Whether less is better.
    pub fn is_loss(self) -> bool {
        matches!(self, Self::QuantilePolicyGap | Self::ExpectedReturnRegret)
    }

    /// Of one agent at its last evaluation; `None` where the run does not know it.
    pub fn of(self, trained: &Trained<'_>) -> Option<f64> {
        if self == Self::MovingAverageReward {
            let rows = &trained.record.episodes;
            let recent = &rows[rows.len().saturating_sub(MOVING_AVERAGE)..];
            let sum: f64 = recent.iter().map(|row| row.episode_return).sum();
            return (!recent.is_empty()).then(|| sum / recent.len() as f64);
        }
        self.in_evaluation(trained.last()?)
    }

    /// Of an evaluation; `None` also for the rewards of training, which an evaluation does not know.
    pub(crate) fn in_evaluation(self, row: &EvaluationRow) -> Option<f64> {
        match self {
            Self::QuantilePolicyGap => row.quantile_policy_gap,
            Self::ExpectedReturnRegret => row.expected_return_regret,
            Self::FinalQuantile => Some(row.quantile),
            Self::FinalBufferedQuantile => Some(row.buffered_quantile),
            Self::FinalMean => Some(row.mean),
            Self::MovingAverageReward => None,
        }
    }
}

impl<'a> Trained<'a> {
    /// Evaluations of the greedy policy.
    pub fn evaluations(&self) -> &'a [EvaluationRow] {
        &self.record.evaluations[self.index]
    }

    /// Evaluations of a stochastic policy itself.
    pub fn distribution(&self) -> Option<&'a [EvaluationRow]> {
        self.record.distribution.as_ref().map(|levels| levels[self.index].as_slice())
    }

    /// The last evaluation; an unfinished run may have none yet.
    pub fn last(&self) -> Option<&'a EvaluationRow> {
        self.evaluations().last()
    }

    /// Whether its training has ended.
    pub fn is_done(&self) -> bool {
        match &self.run.state {
            State::Finished => true,
            State::Unfinished { seeds, .. } => {
                seeds.iter().any(|seed| seed.seed == self.record.seed && seed.progress.done)
            }
        }
    }

    /// The law of the final policy's return.
    pub fn law(&self) -> Option<ReturnLaw> {
        let tau = self.facts().tau;
        let rows = self.record.law.as_ref()?.iter().filter(|row| row.tau.is_none_or(|of| of == tau));
        ReturnLaw::from_atoms(rows.map(|row| (row.value, row.probability))).ok()
    }

    /// τ, β and Q*_τ.
    pub fn facts(&self) -> LevelFacts {
        self.run.summary.taus[self.index].facts()
    }

    /// The final policy, `cells[stage][state]`.
    pub fn policy(&self, problem: &TaskFacts) -> Option<Vec<Vec<Option<usize>>>> {
        let tau = self.facts().tau;
        let policy = self.record.policy.as_ref()?;
        let rows = || policy.iter().filter(|row| row.tau.is_none_or(|of| of == tau));
        // A table that was cut short, or of another problem, is no policy. Nor can it be one if it has fewer rows than
        // there are stages: the horizon is then not that of its run, and may be any number.
        if rows().count() < problem.horizon {
            return None;
        }
        let mut cells = vec![vec![None; problem.states.len()]; problem.horizon];
        for row in rows() {
            // A run without a problem.json was read without these bounds.
            if row.action >= problem.actions.len() {
                return None;
            }
            *cells.get_mut(row.stage)?.get_mut(row.state)? = Some(row.action);
        }
        Some(cells)
    }

    /// Whether `policy.csv` has one policy for all levels.
    pub fn serves_all_levels(&self) -> bool {
        self.run.summary.taus.len() > 1
            && self.record.policy.as_ref().is_some_and(|rows| rows.iter().all(|row| row.tau.is_none()))
    }

    /// The window (τ, β).
    pub fn buffer(&self) -> Option<Buffer> {
        Buffer::new(self.facts().tau, self.facts().beta).ok()
    }
}

impl Level<'_> {
    /// A measure of all seeds that have it.
    pub fn samples(&self, measure: Measure) -> Vec<f64> {
        self.seeds.iter().filter_map(|trained| measure.of(trained)).collect()
    }

    /// A measure over seeds, with an interval inside [`bounds`](Self::bounds); `None` where no seed has it.
    ///
    /// One seed says nothing about other seeds. Its interval, where there is one, is that of the quantile itself, from
    /// the episodes that were played to evaluate it.
    pub fn estimate(&self, measure: Measure) -> Option<Estimate> {
        let mut estimate = self.bounded(measure, &self.samples(measure))?;
        if measure == Measure::FinalQuantile
            && let [trained] = self.seeds.as_slice()
        {
            let played = trained.last().and_then(|row| row.interval);
            estimate.interval = played.map(|[low, high]| Interval { low, high });
        }
        Some(estimate)
    }

    /// The same for the stochastic policies themselves, where all seeds have them.
    pub fn distribution_estimate(&self, measure: Measure) -> Option<Estimate> {
        if measure == Measure::MovingAverageReward {
            return self.estimate(measure);
        }
        let of = |trained: &Trained<'_>| measure.in_evaluation(trained.distribution()?.last()?);
        let samples = self.seeds.iter().map(of).collect::<Option<Vec<f64>>>()?;
        self.bounded(measure, &samples)
    }

    fn bounded(&self, measure: Measure, samples: &[f64]) -> Option<Estimate> {
        (!samples.is_empty()).then(|| Estimate::of(samples).within(self.bounds(measure)))
    }

    /// The possible range of a mean over seeds. Student-t intervals have no bounds, so they are clipped to this range.
    ///
    /// A quantile or a mean lies between the lowest and the highest possible return. These are not known in general; the
    /// returns seen in training, in evaluations and in `law.csv` are used instead. If the optima are exact, no
    /// quantile is above Q*_τ, no mean is above the largest one, and no gap is negative or larger than that of a policy with the lowest return. The regret has no bounds: lucky episodes
    /// collect more than the largest mean.
    pub fn bounds(&self, measure: Measure) -> Interval {
        let exact = self.seeds.iter().all(|trained| trained.run.summary.exact);
        let best = self.facts.best_quantile.filter(|_| exact).unwrap_or(f64::INFINITY);
        let largest_mean = self.seeds.iter().find_map(|trained| trained.run.summary.max_mean);
        let largest_mean = largest_mean.filter(|_| exact).unwrap_or(f64::INFINITY);
        match measure {
            Measure::ExpectedReturnRegret => Interval { low: f64::NEG_INFINITY, high: f64::INFINITY },
            Measure::QuantilePolicyGap => {
                if best.is_infinite() {
                    return Interval { low: f64::NEG_INFINITY, high: f64::INFINITY };
                }
                // No episode costs more than the distance from the best quantile to the lowest return.
                let episodes = self.seeds.iter().map(|trained| trained.record.episodes.len()).max();
                let high = episodes.unwrap_or(0) as f64 * (best - self.seen().low);
                // Episodes may be on disk after the evaluations that count them.
                let measured = self.samples(measure).into_iter().fold(0.0, f64::max);
                Interval { low: 0.0, high: high.max(measured) }
            }
            Measure::MovingAverageReward => self.seen(),
            Measure::FinalQuantile | Measure::FinalBufferedQuantile => {
                let seen = self.seen();
                Interval { low: seen.low, high: seen.high.min(best) }
            }
            Measure::FinalMean => {
                let seen = self.seen();
                Interval { low: seen.low, high: seen.high.min(largest_mean) }
            }
        }
    }

    /// The range of all returns, and of the numbers between them, that the files of the seeds hold.
    fn seen(&self) -> Interval {
        let mut range = Interval { low: f64::INFINITY, high: f64::NEG_INFINITY };
        let mut add = |value: f64| {
            range = Interval { low: range.low.min(value), high: range.high.max(value) };
        };
        for trained in &self.seeds {
            trained.record.episodes.iter().for_each(|row| add(row.episode_return));
            trained.record.law.iter().flatten().for_each(|atom| add(atom.value));
            for row in trained.evaluations().iter().chain(trained.distribution().unwrap_or_default()) {
                [row.quantile, row.buffered_quantile, row.mean].into_iter().for_each(&mut add);
                row.interval.into_iter().flatten().for_each(&mut add);
            }
        }
        range
    }
}
