//! Sweeps over settings and the floor under the paper's rule, as tables ([`page`]) and figures ([`figures`]).
//!
//! ```text
//! runs of a sweep ─► Cell (means over seeds, differences from the reference, cost) ─► page, figures, JSON
//! ```

mod drawn;
mod written;

use std::io;

use bqrl_runs::monitor;
use bqrl_runs::reader::Run;
use bqrl_runs::run_dir::RunDir;
use serde::Serialize;

pub use self::drawn::figures;
pub use self::written::page;
use crate::numbers::three_decimals;
use crate::statistics::Estimate;
use crate::study::{Measure, Trained};

/// The section of the page that a sweep belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// One setting at a time.
    Sensitivity,
    /// The score that compares actions, and the bonus.
    Variants,
    /// Larger problems, with their cost.
    Scaling,
}

/// One setting that is varied on one problem, at one or more levels.
#[derive(Clone, Debug)]
pub struct Outline {
    /// The section.
    pub part: Part,
    /// A short name that no other sweep has.
    pub name: String,
    /// The full name of the varied setting.
    pub setting: String,
    /// The problem, by name.
    pub problem: String,
    /// The parameters of the problem that are not varied, ` (goal=64, …)`; may be empty.
    pub parameters: String,
    /// Training episodes.
    pub episodes: usize,
    /// Its values, as tables write them.
    pub values: Vec<String>,
    /// The place of the value that the others are compared with.
    pub reference: usize,
    /// τ.
    pub taus: Vec<f64>,
}

/// A run of a sweep, with facts that are not in its files.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    /// Its files.
    pub run: &'a Run,
    /// Its place below the directory of the studies.
    pub name: &'a str,
    /// Of the matrix products of one update.
    pub multiply_adds: f64,
    /// Q_τ of the paper's rule on its problem.
    pub rule_quantile: Option<f64>,
}

/// A sweep and its results.
#[derive(Clone, Debug)]
pub struct Sweep {
    /// The varied setting.
    pub outline: Outline,
    /// `cells[level][value]`.
    pub cells: Vec<Vec<Cell>>,
}

/// A run of a sweep, as the tables show it.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // The names are those of the tables and of the JSON output.
pub struct Cell {
    pub sweep: String,
    pub setting: String,
    pub problem: String,
    pub tau: f64,
    pub value: String,
    /// Whether this is the reference of the comparison.
    pub reference: bool,
    pub run: String,
    pub episodes: usize,
    pub n_seeds: usize,
    pub quantile_policy_gap: Number,
    /// Gap less that of the reference, seed by seed; absent for the reference itself.
    pub difference: Option<Number>,
    pub expected_return_regret: Number,
    pub final_quantile: Number,
    pub final_buffered_quantile: Number,
    pub final_mean: Number,
    pub best_quantile: f64,
    pub max_mean: f64,
    /// Q_τ of the paper's rule on this problem; absent outside the scaling study.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_quantile: Option<f64>,
    pub cost: Cost,
}

/// The cost of training, over all seeds.
#[derive(Clone, Debug, Serialize)]
#[allow(missing_docs)] // As above.
pub struct Cost {
    pub env_steps: u64,
    pub updates: u64,
    /// Of the matrix products of one update.
    pub multiply_adds: f64,
    /// Wall time of a step with its update, the tenth percentile over episodes.
    pub seconds_per_step: Number,
}

/// A mean over seeds with its 95 % Student-t interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Number {
    /// The mean.
    pub mean: f64,
    /// The interval, from two seeds on.
    pub interval: Option<[f64; 2]>,
}

/// The paper's rule on a problem, solved exactly, and the optimum.
#[derive(Clone, Debug)]
pub struct Floor {
    /// The problem, by name.
    pub problem: String,
    /// The smallest and the largest return.
    pub range: (f64, f64),
    /// The levels.
    pub taus: Vec<f64>,
    /// Q*_τ at each.
    pub best: Vec<f64>,
    /// The widths of the buffer: a label, β as a share of τ, and Q_τ of the rule at each level.
    pub widths: Vec<(String, f64, Vec<f64>)>,
}

/// One level and one width of a [`Floor`].
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)] // As above.
pub struct FloorCell {
    pub problem: String,
    pub tau: f64,
    pub beta: f64,
    pub best_quantile: f64,
    pub rule_quantile: f64,
}

impl Sweep {
    /// Takes the results from the runs, `entries[level][value]`.
    pub fn new(outline: Outline, entries: &[Vec<Entry<'_>>]) -> io::Result<Self> {
        assert_eq!(entries.len(), outline.taus.len(), "rows of runs, want one per level");
        let row = |(entries, &tau): (&Vec<Entry<'_>>, &f64)| -> io::Result<Vec<Cell>> {
            assert_eq!(entries.len(), outline.values.len(), "runs of a level, want one per value");
            let reference = samples(entries[outline.reference].run, Measure::QuantilePolicyGap)?;
            let cells = entries.iter().enumerate();
            cells.map(|(place, entry)| Cell::new(&outline, tau, place, entry, &reference)).collect()
        };
        let cells = entries.iter().zip(&outline.taus).map(row).collect::<io::Result<_>>()?;
        Ok(Self { outline, cells })
    }
}

impl Cell {
    fn new(
        outline: &Outline,
        tau: f64,
        place: usize,
        entry: &Entry<'_>,
        reference: &[f64],
    ) -> io::Result<Self> {
        let Entry { run, name, multiply_adds, rule_quantile } = *entry;
        let (is_reference, is_scaling) = (place == outline.reference, outline.part == Part::Scaling);
        let gaps = samples(run, Measure::QuantilePolicyGap)?;
        let paired: Vec<f64> = gaps.iter().zip(reference).map(|(gap, other)| gap - other).collect();
        let number = |measure| Ok::<_, io::Error>(Number::of(&samples(run, measure)?));
        Ok(Self {
            sweep: outline.name.clone(),
            setting: outline.setting.clone(),
            problem: outline.problem.clone(),
            tau,
            value: outline.values[place].clone(),
            reference: is_reference,
            run: name.to_owned(),
            episodes: outline.episodes,
            n_seeds: gaps.len(),
            quantile_policy_gap: Number::of(&gaps),
            difference: (!is_reference && !is_scaling).then(|| Number::of(&paired)),
            expected_return_regret: number(Measure::ExpectedReturnRegret)?,
            final_quantile: number(Measure::FinalQuantile)?,
            final_buffered_quantile: number(Measure::FinalBufferedQuantile)?,
            final_mean: number(Measure::FinalMean)?,
            best_quantile: run.summary.taus[0].best_quantile.ok_or_else(|| unknown(run, "best quantile"))?,
            max_mean: run.summary.max_mean.ok_or_else(|| unknown(run, "largest mean"))?,
            rule_quantile: rule_quantile.filter(|_| is_scaling),
            cost: Cost {
                env_steps: run.summary.env_steps,
                updates: run.summary.updates,
                multiply_adds,
                seconds_per_step: Number::of(&paces(run)?),
            },
        })
    }
}

/// A measure of every seed, at the one level that these runs have.
fn samples(run: &Run, measure: Measure) -> io::Result<Vec<f64>> {
    let of = |record| measure.of(&Trained { run, record, index: 0 });
    let samples: Option<Vec<f64>> = run.seeds.iter().map(of).collect();
    samples.ok_or_else(|| unknown(run, measure.title()))
}

/// The studies are about problems whose optimum is known.
fn unknown(run: &Run, what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} has no {what}", run.path.display()))
}

/// Wall time of a step of each seed, in the fastest tenth of the episodes: evaluations between episodes, pauses and other
/// work on the machine do not count.
fn paces(run: &Run) -> io::Result<Vec<f64>> {
    let dir = RunDir::open_to_read(&run.path)?;
    let of = |&seed: &u64| {
        let path = dir.seed(seed).monitor();
        let failed = |kind, message: &dyn std::fmt::Display| {
            io::Error::new(kind, format!("reading {}: {message}", path.display()))
        };
        let times = monitor::times(&path).map_err(|error| failed(error.kind(), &error))?;
        let pace = |pair: &[(u64, f64)]| (pair[1].1 - pair[0].1) / pair[1].0 as f64;
        let mut paces: Vec<f64> = times.windows(2).map(pace).collect();
        paces.sort_by(f64::total_cmp);
        let fast = paces.get(paces.len() / 10).copied();
        fast.ok_or_else(|| failed(io::ErrorKind::InvalidData, &"want two episodes"))
    };
    run.summary.seeds.iter().map(of).collect()
}

impl Number {
    /// Of at least one number per seed.
    pub fn of(samples: &[f64]) -> Self {
        let estimate = Estimate::of(samples);
        let interval = estimate.interval.map(|interval| [interval.low, interval.high]);
        Self { mean: estimate.mean, interval }
    }

    /// Whether the interval leaves out zero.
    pub fn is_clear(&self) -> bool {
        self.interval.is_some_and(|[low, high]| low > 0.0 || high < 0.0)
    }

    /// `mean ± half the interval`.
    fn text(&self) -> String {
        let around = self.interval.map(|[_, high]| format!(" ± {}", three_decimals(high - self.mean)));
        format!("{}{}", three_decimals(self.mean), around.unwrap_or_default())
    }

    fn per(&self, divisor: f64) -> Self {
        let interval = self.interval.map(|ends| ends.map(|end| end / divisor));
        Self { mean: self.mean / divisor, interval }
    }
}

impl Floor {
    /// Every width and level.
    pub fn cells(&self) -> Vec<FloorCell> {
        let mut cells = Vec::new();
        for (_, share, rule) in &self.widths {
            for ((&tau, &best_quantile), &rule_quantile) in self.taus.iter().zip(&self.best).zip(rule) {
                let (problem, beta) = (self.problem.clone(), tau * share);
                cells.push(FloorCell { problem, tau, beta, best_quantile, rule_quantile });
            }
        }
        cells
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_is_clear_when_its_interval_leaves_out_zero() {
        // t_{0.975, 1} = 12.706: two seeds 1 apart have a half-width of 12.706 · (1/√2) / √2 = 6.353.
        let number = Number::of(&[7.0, 8.0]);
        assert!(number.is_clear());
        assert_eq!(number.text(), "7.5 ± 6.353");
        assert!(!Number::of(&[5.0, 6.0]).is_clear());
        assert_eq!(number.per(2.0).mean, 3.75);
        // One seed has no interval, so nothing is clear.
        assert!(!Number::of(&[7.0]).is_clear());
    }

    #[test]
    fn a_floor_has_a_cell_for_every_width_and_level() {
        let floor = Floor {
            problem: "lottery".to_owned(),
            range: (0.0, 1.0),
            taus: vec![0.2, 0.4],
            best: vec![0.5, 0.75],
            widths: vec![("τ/2".to_owned(), 0.5, vec![0.25, 0.5]), ("τ".to_owned(), 1.0, vec![0.0, 0.5])],
        };
        let betas: Vec<(f64, f64)> = floor.cells().iter().map(|cell| (cell.tau, cell.beta)).collect();
        assert_eq!(betas, [(0.2, 0.1), (0.4, 0.2), (0.2, 0.2), (0.4, 0.4)]);
        assert_eq!(floor.cells()[1].rule_quantile, 0.5);
    }
}
