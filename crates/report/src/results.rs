//! The paper's experiments on a Markdown page: its numbers compared with ours, tables, figures, and the time by method.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use bqrl_runs::reader::Run;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::{atomic, monitor};
use thiserror::Error;

use crate::figure::{Figure, RenderError};
use crate::numbers::{number, three_decimals};
use crate::paper;
use crate::statistics::Estimate;
use crate::study::{Measure, Study, display_name};

/// A page or a figure could not be written.
#[derive(Debug, Error)]
#[allow(missing_docs)] // The messages say what the fields are.
pub enum WriteError {
    #[error("creating {}: {error}", .path.display())]
    Folder { path: PathBuf, error: io::Error },
    #[error(transparent)]
    Figure(#[from] RenderError),
    #[error(transparent)]
    File(#[from] io::Error),
}

/// The page and, beside it, its figures as SVG and PNG.
pub fn write(
    page_path: &Path,
    page: &str,
    figures: &[(&'static str, Figure)],
) -> Result<Vec<PathBuf>, WriteError> {
    let folder = page_path.parent().unwrap_or(Path::new("")).join("figures");
    std::fs::create_dir_all(&folder).map_err(|error| WriteError::Folder { path: folder.clone(), error })?;
    let mut written = Vec::new();
    for (name, figure) in figures {
        for extension in ["svg", "png"] {
            let path = folder.join(format!("{name}.{extension}"));
            let bytes = figure.encode(&path)?;
            atomic::write(&path, &bytes)?;
            written.push(path);
        }
    }
    atomic::write(page_path, page.as_bytes())?;
    Ok(written)
}

/// The page: the paper's numbers compared with ours, a table per problem, the figures, and the time by method. `written_by`
/// is the command, with the commit if it is known.
pub fn page(
    written_by: &str,
    n_seeds: usize,
    studies: &[Study<'_>],
    rows: &[paper::Row],
    figures: &[(&'static str, Figure)],
) -> String {
    let mut page = format!(
        "# Results\n\nWritten by {written_by}; do not edit.\n\n\
         Settings are the presets in `crates/lab/presets/`; seeds are the paper's 42, 10042, 20042{}. The gap is \
         cumulative over all episodes, of the greedy policy (for PPO, TRPO and QPPO: the mode), evaluated exactly every ten \
         episodes; the regret counts exploration. Intervals are 95 % Student-t over seeds.\n",
        if n_seeds > 3 { ", then 101, 102, …" } else { "" },
    );
    if rows.is_empty() {
        page += "\nNo table beside the paper's numbers: they belong to the full number of episodes.\n";
    } else {
        page += "\n## Beside the paper\n\n";
        page += &paper::markdown(rows);
    }
    for study in studies {
        let _ = write!(page, "\n## {}\n\n", study.problem_name());
        page += "| method | τ | gap | regret | final Q_τ | best Q*_τ | final mean | last 50 episodes |\n";
        page += "|---|---|---|---|---|---|---|---|\n";
        for method in &study.methods {
            for level in &method.levels {
                let cell = |measure| {
                    // Half of the full interval: the clipped interval may not be centred on the mean.
                    let samples = level.samples(measure);
                    if samples.is_empty() {
                        return "–".to_owned();
                    }
                    let estimate = Estimate::of(&samples);
                    let around = |interval: bqrl_math::Interval| {
                        format!(" ± {}", three_decimals(interval.high - estimate.mean))
                    };
                    let around = estimate.interval.map(around).unwrap_or_default();
                    format!("{}{around}", three_decimals(estimate.mean))
                };
                let _ = writeln!(
                    page,
                    "| {} | {} | {} | {} | {} | {} | {} | {} |",
                    method.name,
                    level.facts.tau,
                    cell(Measure::QuantilePolicyGap),
                    cell(Measure::ExpectedReturnRegret),
                    cell(Measure::FinalQuantile),
                    level.facts.best_quantile.map_or("–".to_owned(), three_decimals),
                    cell(Measure::FinalMean),
                    cell(Measure::MovingAverageReward),
                );
            }
        }
    }
    page += &robust_tables(studies);
    page += "\n## Figures\n";
    for (name, _) in figures {
        let _ = write!(page, "\n![{name}](figures/{name}.svg)\n");
    }
    page += "\n## Where the time went\n\n";
    page += &time_table(studies);
    page += "\n| run | seconds | steps | updates |\n|---|---|---|---|\n";
    for run in studies.iter().flat_map(|study| study.runs) {
        let name = run.path.components().rev().take(2).collect::<Vec<_>>();
        let name: PathBuf = name.into_iter().rev().collect();
        let summary = &run.summary;
        let seconds = number((summary.seconds * 10.0).round() / 10.0);
        let _ = writeln!(
            page,
            "| {} | {seconds} | {} | {} |",
            name.display(),
            summary.env_steps,
            summary.updates
        );
    }
    page
}

/// Interquartile means with bootstrap intervals; empty if there are too few seeds.
fn robust_tables(studies: &[Study<'_>]) -> String {
    let mut text = String::new();
    for study in studies {
        let mut rows = String::new();
        for method in &study.methods {
            for level in &method.levels {
                let cell = |measure| {
                    let (middle, interval) = level.estimate(measure)?.iqm?;
                    let [low, high] = [interval.low, interval.high].map(three_decimals);
                    Some(format!("{} [{low}, {high}]", three_decimals(middle)))
                };
                let cells: Option<Vec<String>> = ROBUST.into_iter().map(cell).collect();
                if let Some(cells) = cells {
                    let n = level.seeds.len();
                    let _ = writeln!(
                        rows,
                        "| {} | {} | {n} | {} |",
                        method.name,
                        level.facts.tau,
                        cells.join(" | ")
                    );
                }
            }
        }
        if !rows.is_empty() {
            let _ = write!(
                text,
                "\n## {}: interquartile means\n\nThe mean of the middle half of the seeds, with the 95 % percentile \
                 bootstrap interval over seeds (10 000 resamples from a fixed seed).\n\n\
                 | method | τ | seeds | gap | regret | final Q_τ | final mean |\n|---|---|---|---|---|---|---|\n{rows}",
                study.problem_name()
            );
        }
    }
    text
}

const ROBUST: [Measure; 4] =
    [Measure::QuantilePolicyGap, Measure::ExpectedReturnRegret, Measure::FinalQuantile, Measure::FinalMean];

/// The time by method and problem.
fn time_table(studies: &[Study<'_>]) -> String {
    let mut rows: Vec<(String, &str, f64)> = Vec::new();
    for study in studies {
        for run in study.runs {
            let name = display_name(&run.summary.algo);
            let seconds: f64 = run.summary.seeds.iter().map(|&seed| seed_seconds(run, seed)).sum();
            match rows.iter_mut().find(|row| (row.0.as_str(), row.1) == (name, study.problem_name())) {
                Some(row) => row.2 += seconds,
                None => rows.push((name.to_owned(), study.problem_name(), seconds)),
            }
        }
    }
    rows.sort_by(|a, b| b.2.total_cmp(&a.2));
    let total: f64 = rows.iter().map(|row| row.2).sum();
    let mut text = String::from(
        "Wall time of all seeds of all levels, one after the other, evaluations included; other work on the machine, and a \
         pause before a run went on, count too.\n\n| method | problem | seconds | share |\n|---|---|---|---|\n",
    );
    for (name, problem, seconds) in rows {
        let share = if total > 0.0 { 100.0 * seconds / total } else { 0.0 };
        let _ = writeln!(text, "| {name} | {problem} | {seconds:.1} | {share:.1} % |");
    }
    text
}

/// The time from the start of a seed to the end of its last episode, from its Monitor file, if there is one.
fn seed_seconds(run: &Run, seed: u64) -> f64 {
    let times = RunDir::open_to_read(&run.path).and_then(|dir| monitor::times(&dir.seed(seed).monitor()));
    times.ok().and_then(|times| times.last().map(|&(_, time)| time)).unwrap_or(0.0)
}
