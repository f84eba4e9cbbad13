//! Runs, grouped as method → level → seeds.
//!
//! Runs of one algorithm with the same settings are one method. Their levels and seeds may differ: three runs of Deep-BQRL
//! at three levels are one method at three levels. If settings differ, or two runs hold the same seed at
//! the same level, each is a separate method, named with its directory.
//!
//! Unfinished runs take part with the rows that they have. A level without any rows is absent.

mod measure;

use bqrl_runs::reader::{Reference, Run};
use bqrl_runs::schema::{SummaryLevel, TaskFacts};
use thiserror::Error;
use toml::Table;

pub use self::measure::{Level, Measure, Trained};
use crate::axis::four_digits;

/// The horizontal axis of curves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Axis {
    /// Training episodes.
    Episodes,
    /// Environment steps of all lanes.
    Steps,
}

impl Axis {
    /// Its name.
    pub fn title(self) -> &'static str {
        match self {
            Self::Episodes => "training episodes",
            Self::Steps => "environment steps",
        }
    }
}

/// Runs on one problem.
#[derive(Debug)]
pub struct Study<'a> {
    /// The runs, as they were given.
    pub runs: &'a [Run],
    /// The methods, in the order of their first runs.
    pub methods: Vec<Method<'a>>,
}

/// An algorithm with its settings.
#[derive(Debug)]
pub struct Method<'a> {
    /// Name of the algorithm, as configurations spell it.
    pub algo: &'a str,
    /// The name in figures and tables.
    pub name: String,
    /// The number of its colour and marker: the algorithm's own, in every figure.
    pub colour: usize,
    /// Its levels, ascending.
    pub levels: Vec<Level<'a>>,
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
            Method { algo: &run.summary.algo, name, colour: 0, levels: levels(&members) }
        };
        let mut methods: Vec<Method<'a>> = groups.iter().map(method).collect();
        choose_colours(&mut methods);
        share_references(&mut methods);
        Ok(Self { runs, methods })
    }

    /// All levels, ascending.
    pub fn taus(&self) -> Vec<f64> {
        let levels = self.methods.iter().flat_map(|method| &method.levels);
        let mut taus: Vec<f64> = levels.map(|level| level.facts.tau).collect();
        taus.sort_by(f64::total_cmp);
        taus.dedup();
        taus
    }

    /// The measures that some seed has, in the order of the tables.
    pub fn measures(&self) -> Vec<Measure> {
        let has = |measure: &Measure| {
            let mut levels = self.methods.iter().flat_map(|method| &method.levels);
            levels.any(|level| !level.samples(*measure).is_empty())
        };
        Measure::ALL.into_iter().filter(has).collect()
    }

    /// The axis of all curves: episodes, unless a run counts steps or has several lanes.
    pub fn axis(&self) -> Axis {
        if self.runs.iter().any(Run::counts_steps) { Axis::Steps } else { Axis::Episodes }
    }

    /// Whether every policy was evaluated exactly.
    pub fn is_exact(&self) -> bool {
        self.runs.iter().all(|run| run.summary.exact)
    }

    /// Warnings about comparing the runs, a sentence each.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut lengths: Vec<(&str, String)> = Vec::new();
        for method in &self.methods {
            for trained in method.agents() {
                let entry = (method.name.as_str(), length(trained.run));
                if !lengths.contains(&entry) {
                    lengths.push(entry);
                }
            }
        }
        if lengths.iter().any(|(_, length)| *length != lengths[0].1) {
            let words: Vec<String> =
                lengths.iter().map(|(name, length)| format!("{name} {length}")).collect();
            let cumulative = self.measures().iter().any(|measure| measure.is_loss());
            let means = if cumulative { "; cumulative measures grow with the length" } else { "" };
            warnings.push(format!("The runs differ in length ({}){means}.", words.join(", ")));
        }
        warnings
    }

    /// The problem's name.
    pub fn problem_name(&self) -> &'a str {
        self.problem().map_or(&self.runs[0].summary.problem, |problem| &problem.name)
    }

    /// The problem, from the first run that describes it.
    pub fn problem(&self) -> Option<&'a TaskFacts> {
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

/// How long each seed of a run trained, or has trained so far.
pub(crate) fn length(run: &Run) -> String {
    match run.summary.steps {
        None => format!("{} episodes", run.summary.episodes),
        Some(steps) if run.is_finished() => format!("{steps} steps"),
        Some(steps) => format!("{} steps", four_digits(steps as f64 * run.state.fraction())),
    }
}

fn levels<'a>(runs: &[&'a Run]) -> Vec<Level<'a>> {
    let mut levels: Vec<Level<'a>> = Vec::new();
    for run in runs.iter().filter(|run| !run.seeds.is_empty()) {
        let taus = &run.summary.taus;
        for (index, facts) in taus.iter().map(SummaryLevel::facts).enumerate() {
            let same = |tau: f64, beta: f64| (tau, beta) == (facts.tau, facts.beta);
            // A level that was asked for twice is one level.
            if taus[..index].iter().any(|other| same(other.tau, other.beta)) {
                continue;
            }
            let seeds = run.seeds.iter().map(|record| Trained { run, record, index });
            match levels.iter_mut().find(|level| same(level.facts.tau, level.facts.beta)) {
                Some(level) => {
                    level.facts.best_quantile = level.facts.best_quantile.or(facts.best_quantile);
                    level.seeds.extend(seeds);
                }
                None => levels.push(Level { facts, seeds: seeds.collect() }),
            }
        }
    }
    levels.sort_by(|a, b| a.facts.tau.total_cmp(&b.facts.tau));
    levels
}

/// The best quantile belongs to the problem: a run that does not have it yet takes it from another run.
fn share_references(methods: &mut [Method<'_>]) {
    let levels = || methods.iter().flat_map(|method| &method.levels);
    let known: Vec<(f64, f64)> =
        levels().filter_map(|level| Some((level.facts.tau, level.facts.best_quantile?))).collect();
    for level in methods.iter_mut().flat_map(|method| &mut method.levels) {
        let same = known.iter().find(|(tau, _)| *tau == level.facts.tau).map(|&(_, best)| best);
        level.facts.best_quantile = level.facts.best_quantile.or(same);
    }
}

/// Whether two runs hold the same seed at the same level, or other windows at one level.
fn overlap(a: &Run, b: &Run) -> bool {
    let seeds = a.summary.seeds.iter().any(|seed| b.summary.seeds.contains(seed));
    let pairs = || a.summary.taus.iter().flat_map(|a| b.summary.taus.iter().map(move |b| (a, b)));
    pairs().any(|(a, b)| a.tau == b.tau && (seeds || a.beta != b.beta))
}

/// The configuration without the keys that may differ within a method: levels, seeds, and how often a checkpoint is made.
fn settings(run: &Run) -> Result<Table, StudyError> {
    let mut table: Table = run.config.parse().map_err(|error: toml::de::Error| StudyError::Config {
        path: run.path.join("config.toml").display().to_string(),
        message: error.message().to_owned(),
    })?;
    // Problems are compared by `same_problem`.
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
    // A reference that only one of them has does not contradict the other.
    if let (Some(a), Some(b)) = (first.summary.max_mean, run.summary.max_mean)
        && a != b
    {
        difference.get_or_insert(format!("largest mean {b} and {a}"));
    }
    for level in &run.summary.taus {
        let same = first.summary.taus.iter().find(|other| other.tau == level.tau);
        if let (Some(a), Some(b)) = (same.and_then(|other| other.best_quantile), level.best_quantile)
            && a != b
        {
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

/// The algorithms, each with the colour and the marker of its place.
const COLOURS: [&str; 8] =
    ["deep-bqrl", "target-tracking", "ucb-bqrl", "ppo", "trpo", "qr-dqn", "qppo", "var-q"];

/// The number of an algorithm's colour and marker.
pub fn colour_of(algo: &str) -> Option<usize> {
    COLOURS.iter().position(|&known| known == algo)
}

/// The first method of an algorithm has its colour; further ones, and unknown algorithms, have those that are left.
fn choose_colours(methods: &mut [Method<'_>]) {
    let mut taken: Vec<Option<usize>> = Vec::new();
    for method in methods.iter() {
        taken.push(colour_of(method.algo).filter(|&colour| !taken.contains(&Some(colour))));
    }
    for (place, method) in methods.iter_mut().enumerate() {
        // Fewer than this many are taken.
        let free = (0..=taken.len()).find(|&colour| !taken.contains(&Some(colour)));
        let free = free.expect("there are more numbers than methods");
        method.colour = *taken[place].get_or_insert(free);
    }
}

/// An algorithm's name in texts.
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
