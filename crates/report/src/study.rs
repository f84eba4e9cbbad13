//! Finished runs, grouped as method → level → seeds.
//!
//! Runs of one algorithm with the same settings are one method, whatever levels and seeds each of them has: three runs of
//! Deep-BQRL at three levels are one method at three levels. Where settings differ, or two runs hold the same seed at
//! the same level, each is a method of its own, told apart by the name of its directory.

use bqrl_math::{Buffer, ReturnLaw};
use bqrl_runs::reader::{Evaluation, LevelFacts, ProblemFacts, Reference, Run, SeedRecord};
use thiserror::Error;
use toml::Table;

use crate::statistics::{Estimate, moving_average};

/// The window of the moving-average reward (§4.2).
pub const WINDOW: usize = 50;

/// Runs on one problem.
#[derive(Debug)]
pub struct Study<'a> {
    /// The runs, as they were given.
    pub runs: &'a [Run],
    /// The methods, in the order of their first runs.
    pub methods: Vec<Method<'a>>,
}

/// One way to learn.
#[derive(Debug)]
pub struct Method<'a> {
    /// Name of the algorithm, as configurations spell it.
    pub algo: &'a str,
    /// The name in figures and tables.
    pub name: String,
    /// Its levels, ascending.
    pub levels: Vec<Level<'a>>,
}

/// A method at one level.
#[derive(Debug)]
pub struct Level<'a> {
    /// τ, β and what is best.
    pub facts: LevelFacts,
    /// One agent per seed.
    pub seeds: Vec<Trained<'a>>,
}

/// An agent after training, looked at from one level.
#[derive(Debug, Clone, Copy)]
pub struct Trained<'a> {
    /// The run it belongs to.
    pub run: &'a Run,
    /// Its files.
    pub record: &'a SeedRecord,
    /// The place of the level in its run.
    pub index: usize,
}

/// What is measured of an agent at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Measure {
    /// 𝒢_τ, cumulative.
    QuantilePolicyGap,
    /// Reg_E, cumulative.
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

    /// In full, as axes and columns say it.
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

    /// As machines spell it.
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

    /// Of one agent at the end of its training.
    pub fn of(self, trained: &Trained<'_>) -> f64 {
        match self {
            Self::MovingAverageReward => {
                let returns = &trained.record.returns;
                moving_average(returns, WINDOW, &[returns.len() - 1])[0]
            }
            _ => self.in_evaluation(trained.last()),
        }
    }

    /// Of an evaluation, which does not know the rewards of training.
    fn in_evaluation(self, evaluation: &Evaluation) -> f64 {
        match self {
            Self::QuantilePolicyGap => evaluation.quantile_policy_gap,
            Self::ExpectedReturnRegret => evaluation.expected_return_regret,
            Self::FinalQuantile => evaluation.quantile,
            Self::FinalBufferedQuantile => evaluation.buffered_quantile,
            Self::FinalMean => evaluation.mean,
            Self::MovingAverageReward => unreachable!("read from the returns"),
        }
    }
}

impl<'a> Trained<'a> {
    /// Evaluations of the greedy policy.
    pub fn evaluations(&self) -> &'a [Evaluation] {
        &self.record.evaluations[self.index]
    }

    /// Evaluations of a stochastic policy itself.
    pub fn distribution(&self) -> Option<&'a [Evaluation]> {
        self.record.distribution.as_ref().map(|levels| levels[self.index].as_slice())
    }

    /// The last evaluation.
    pub fn last(&self) -> &'a Evaluation {
        self.evaluations().last().expect("a run that was read has evaluations at every level")
    }

    /// The law of the final policy's return.
    pub fn law(&self) -> Option<ReturnLaw> {
        let tau = self.facts().tau;
        let rows = self.record.law.as_ref()?.iter().filter(|row| row.tau.is_none_or(|of| of == tau));
        ReturnLaw::from_atoms(rows.map(|row| (row.value, row.probability))).ok()
    }

    /// τ, β and what is best.
    pub fn facts(&self) -> LevelFacts {
        self.run.summary.taus[self.index]
    }

    /// The final policy, `cells[stage][state]`.
    pub fn policy(&self, problem: &ProblemFacts) -> Option<Vec<Vec<Option<usize>>>> {
        let tau = self.facts().tau;
        let mut cells = vec![vec![None; problem.states.len()]; problem.horizon];
        let mut any = false;
        for row in self.record.policy.as_ref()? {
            if row.tau.is_none_or(|of| of == tau) {
                // A run without a problem.json of its own was read without these bounds.
                if row.action >= problem.actions.len() {
                    return None;
                }
                *cells.get_mut(row.stage)?.get_mut(row.state)? = Some(row.action);
                any = true;
            }
        }
        any.then_some(cells)
    }

    /// Whether one policy was written down for all levels.
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
    /// A measure of all seeds.
    pub fn samples(&self, measure: Measure) -> Vec<f64> {
        self.seeds.iter().map(|trained| measure.of(trained)).collect()
    }

    /// A measure over seeds.
    pub fn estimate(&self, measure: Measure) -> Estimate {
        Estimate::of(&self.samples(measure))
    }

    /// The same for the stochastic policies themselves, where all seeds have them.
    pub fn distribution_samples(&self, measure: Measure) -> Option<Vec<f64>> {
        let of = |trained: &Trained<'_>| {
            let last = trained.distribution()?.last()?;
            Some(if measure == Measure::MovingAverageReward {
                measure.of(trained)
            } else {
                measure.in_evaluation(last)
            })
        };
        self.seeds.iter().map(of).collect()
    }
}

impl<'a> Method<'a> {
    /// The method at a level.
    pub fn level(&self, tau: f64) -> Option<&Level<'a>> {
        self.levels.iter().find(|level| level.facts.tau == tau)
    }

    /// Every agent once.
    pub fn agents(&self) -> Vec<Trained<'a>> {
        let mut agents: Vec<Trained<'a>> = Vec::new();
        for &trained in self.levels.iter().flat_map(|level| &level.seeds) {
            if !agents.iter().any(|known| std::ptr::eq(known.record, trained.record)) {
                agents.push(trained);
            }
        }
        agents
    }
}

/// Runs that cannot be compared.
#[derive(Debug, Error, PartialEq, Eq)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum StudyError {
    #[error("there is no run to report on")]
    NoRuns,
    #[error(
        "{path} is about {problem}, {first_path} about {first_problem}: a report compares runs on one problem"
    )]
    Problems { path: String, problem: String, first_path: String, first_problem: String },
    #[error("{path} and {first_path} are both about {problem}, but not the same one: {difference}")]
    Variants { path: String, first_path: String, problem: String, difference: String },
    #[error("{path} was given twice")]
    Twice { path: String },
    #[error("reading {path}: {message}")]
    Config { path: String, message: String },
}

impl<'a> Study<'a> {
    /// Groups runs, which must be about one problem.
    pub fn new(runs: &'a [Run]) -> Result<Self, StudyError> {
        let first = runs.first().ok_or(StudyError::NoRuns)?;
        for (index, run) in runs.iter().enumerate() {
            if runs[..index].iter().any(|other| other.path == run.path) {
                return Err(StudyError::Twice { path: shown(run) });
            }
            same_problem(first, run)?;
        }
        let settings = runs.iter().map(settings).collect::<Result<Vec<Table>, _>>()?;
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for (index, run) in runs.iter().enumerate() {
            let joins = |group: &&mut Vec<usize>| {
                settings[group[0]] == settings[index]
                    && runs[group[0]].summary.algo == run.summary.algo
                    && episodes_evaluated(&runs[group[0]]) == episodes_evaluated(run)
                    && !group.iter().any(|&other| overlap(&runs[other], run))
            };
            match groups.iter_mut().find(joins) {
                Some(group) => group.push(index),
                None => groups.push(vec![index]),
            }
        }
        let ambiguous = |group: &[usize]| {
            let algo = &runs[group[0]].summary.algo;
            groups.iter().filter(|other| runs[other[0]].summary.algo == *algo).count() > 1
        };
        let directory = |run: &Run| {
            run.path.file_name().map_or_else(|| shown(run), |name| name.to_string_lossy().into_owned())
        };
        let all: Vec<String> = runs.iter().map(directory).collect();
        let method = |group: &Vec<usize>| {
            let run = &runs[group[0]];
            let mut name = display_name(&run.summary.algo).to_owned();
            if ambiguous(group) {
                let unique = all.iter().filter(|other| **other == all[group[0]]).count() == 1;
                name = format!("{name} ({})", if unique { all[group[0]].clone() } else { shown(run) });
            }
            let members: Vec<&Run> = group.iter().map(|&index| &runs[index]).collect();
            Method { algo: &run.summary.algo, name, levels: levels(&members) }
        };
        Ok(Self { runs, methods: groups.iter().map(method).collect() })
    }

    /// All levels, ascending.
    pub fn taus(&self) -> Vec<f64> {
        let levels = self.methods.iter().flat_map(|method| &method.levels);
        let mut taus: Vec<f64> = levels.map(|level| level.facts.tau).collect();
        taus.sort_by(f64::total_cmp);
        taus.dedup();
        taus
    }

    /// The problem's name.
    pub fn problem_name(&self) -> &'a str {
        self.problem().map_or(&self.runs[0].summary.problem, |problem| &problem.name)
    }

    /// The problem, from the first run that describes it.
    pub fn problem(&self) -> Option<&'a ProblemFacts> {
        self.runs.iter().find_map(|run| run.problem.as_ref())
    }

    /// The exact references, from the first run that has them.
    pub fn reference(&self) -> Option<&'a [Reference]> {
        self.runs.iter().find_map(|run| run.reference.as_deref())
    }
}

fn shown(run: &Run) -> String {
    run.path.display().to_string()
}

fn levels<'a>(runs: &[&'a Run]) -> Vec<Level<'a>> {
    let mut levels: Vec<Level<'a>> = Vec::new();
    for run in runs {
        for (index, &facts) in run.summary.taus.iter().enumerate() {
            // A level that was asked for twice is one level.
            if run.summary.taus[..index].contains(&facts) {
                continue;
            }
            let seeds = run.seeds.iter().map(|record| Trained { run, record, index });
            match levels.iter_mut().find(|level| level.facts == facts) {
                Some(level) => level.seeds.extend(seeds),
                None => levels.push(Level { facts, seeds: seeds.collect() }),
            }
        }
    }
    levels.sort_by(|a, b| a.facts.tau.total_cmp(&b.facts.tau));
    levels
}

/// Whether two runs hold the same seed at the same level, or other windows at one level.
fn overlap(a: &Run, b: &Run) -> bool {
    let seeds = a.summary.seeds.iter().any(|seed| b.summary.seeds.contains(seed));
    let pairs = || a.summary.taus.iter().flat_map(|a| b.summary.taus.iter().map(move |b| (a, b)));
    pairs().any(|(a, b)| a.tau == b.tau && (seeds || a != b))
}

fn episodes_evaluated(run: &Run) -> Vec<usize> {
    run.seeds[0].evaluations[0].iter().map(|row| row.episode).collect()
}

/// The configuration but for what may differ within a method: levels, seeds, and how often a checkpoint is made.
fn settings(run: &Run) -> Result<Table, StudyError> {
    let mut table: Table = run.config.parse().map_err(|error: toml::de::Error| StudyError::Config {
        path: run.path.join("config.toml").display().to_string(),
        message: error.message().to_owned(),
    })?;
    // The problem is compared by what it is.
    table.remove("problem");
    if let Some(toml::Value::Table(protocol)) = table.get_mut("run") {
        for key in ["tau", "beta", "seeds", "checkpoint_every"] {
            protocol.remove(key);
        }
    }
    Ok(table)
}

fn same_problem(first: &Run, run: &Run) -> Result<(), StudyError> {
    let name =
        |run: &Run| run.problem.as_ref().map_or(run.summary.problem.clone(), |facts| facts.name.clone());
    if name(first) != name(run) {
        return Err(StudyError::Problems {
            path: shown(run),
            problem: name(run),
            first_path: shown(first),
            first_problem: name(first),
        });
    }
    let mut difference = None;
    if let (Some(a), Some(b)) = (&first.problem, &run.problem) {
        if a.horizon != b.horizon {
            difference = Some(format!("horizon {} and {}", b.horizon, a.horizon));
        } else if a.discount != b.discount {
            difference = Some(format!("discount {} and {}", b.discount, a.discount));
        } else if a.states != b.states {
            difference = Some(format!("{} and {} states, or other names", b.states.len(), a.states.len()));
        } else if a.actions != b.actions {
            difference = Some(format!("actions {} and {}", b.actions.join(", "), a.actions.join(", ")));
        }
    }
    let (a, b) = (first.summary.max_mean, run.summary.max_mean);
    if difference.is_none() && a != b {
        difference = Some(format!("largest mean {b} and {a}"));
    }
    for level in &run.summary.taus {
        let same = first.summary.taus.iter().find(|other| other.tau == level.tau);
        if let Some(other) = same.filter(|other| other.best_quantile != level.best_quantile) {
            let (a, b) = (other.best_quantile, level.best_quantile);
            difference.get_or_insert(format!("best quantile {b} and {a} at tau {}", level.tau));
        }
    }
    match difference {
        None => Ok(()),
        Some(difference) => Err(StudyError::Variants {
            path: shown(run),
            first_path: shown(first),
            problem: name(run),
            difference,
        }),
    }
}

/// An algorithm's name as texts spell it.
pub fn display_name(algo: &str) -> &str {
    match algo {
        "deep-bqrl" => "Deep-BQRL",
        "ucb-bqrl" => "UCB-BQRL",
        "target-tracking" => "Target tracking",
        "qr-dqn" => "QR-DQN",
        "ppo" => "PPO",
        "trpo" => "TRPO",
        "qppo" => "QPPO",
        "var-q" => "VaR-Q",
        other => other,
    }
}
