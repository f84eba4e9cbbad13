//! The paper's experiments on a Markdown page: its numbers compared with ours, tables, figures, and the time by method.

use std::fmt::Write as _;
use std::io;
use std::path::{Path, PathBuf};

use bqrl_runs::reader::Run;
use bqrl_runs::run_dir::RunDir;
use bqrl_runs::{atomic, monitor};
use thiserror::Error;

use crate::document::markdown_page;
use crate::figure::{Figure, RenderError};
use crate::numbers::{number, three_decimals};
use crate::paper;
use crate::study::{Level, Measure, Study, Trained, display_name};

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

/// The page as one HTML file with its figures inside: no script, no network.
pub fn html(page: &str, figures: &[(&'static str, Figure)]) -> String {
    let drawn = |name: &str, number: usize| {
        let (_, figure) = figures.iter().find(|(known, _)| *known == name)?;
        Some(figure.inline(number))
    };
    markdown_page(page, drawn)
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
         cumulative over all episodes, of the greedy policy (for PPO, TRPO and QPPO: the mode), evaluated exactly after every \
         episode; the regret counts exploration. Intervals are 95 % Student-t over seeds, cut at what is possible.\n",
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
                    let Some(estimate) = level.estimate(measure) else { return "–".to_owned() };
                    let around = |interval: bqrl_math::Interval| {
                        let [low, high] = [interval.low, interval.high].map(three_decimals);
                        format!(" [{low}, {high}]")
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
    page += &cadence_table(studies);
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
                    let _ = writeln!(
                        rows,
                        "| {} | {} | {} | {} | {} | {} |",
                        method.name,
                        level.facts.tau,
                        level.seeds.len(),
                        papers_seeds(level),
                        cells.join(" | "),
                        worst(level),
                    );
                }
            }
        }
        if !rows.is_empty() {
            let _ = write!(
                text,
                "\n## {}: all seeds beside the paper's three\n\nThe mean of the gap over the paper's seeds; then, over all \
                 seeds, interquartile means (the mean of the middle half) with the 95 % percentile bootstrap interval (10 000 \
                 resamples from a fixed seed), and the seed with the largest gap.\n\n\
                 | method | τ | seeds | gap, the paper's seeds | gap | regret | final Q_τ | final mean | worst seed |\n\
                 |---|---|---|---|---|---|---|---|---|\n{rows}",
                study.problem_name()
            );
        }
    }
    text
}

/// The mean gap of the paper's three seeds, where all of them were run.
fn papers_seeds(level: &Level<'_>) -> String {
    let of = |seed: u64| {
        let trained = level.seeds.iter().find(|trained| trained.record.seed == seed)?;
        Measure::QuantilePolicyGap.of(trained)
    };
    let gaps: Option<Vec<f64>> = paper::SEEDS.into_iter().map(of).collect();
    gaps.map_or("–".to_owned(), |gaps| three_decimals(gaps.iter().sum::<f64>() / gaps.len() as f64))
}

/// "gap (seed)" of the seed with the largest gap.
fn worst(level: &Level<'_>) -> String {
    let gap = |trained: &Trained<'_>| Some((Measure::QuantilePolicyGap.of(trained)?, trained.record.seed));
    let worst = level.seeds.iter().filter_map(gap).max_by(|a, b| a.0.total_cmp(&b.0));
    worst.map_or("–".to_owned(), |(gap, seed)| format!("{} ({seed})", three_decimals(gap)))
}

/// The coarser cadence of the table.
const TENTH: usize = 10;

/// The gap of the same runs under two cadences of evaluation; empty if no run was evaluated after every episode.
fn cadence_table(studies: &[Study<'_>]) -> String {
    let mut rows = String::new();
    for study in studies {
        for method in &study.methods {
            for level in &method.levels {
                let coarse: Option<Vec<f64>> =
                    level.seeds.iter().map(|trained| coarse_gap(trained, level, TENTH)).collect();
                let Some(coarse) = coarse else { continue };
                let fine = level.samples(Measure::QuantilePolicyGap);
                let mean = |samples: &[f64]| samples.iter().sum::<f64>() / samples.len() as f64;
                if fine.len() != coarse.len() || coarse.is_empty() {
                    continue;
                }
                let _ = writeln!(
                    rows,
                    "| {} | {} | {} | {} | {} | {} |",
                    study.problem_name(),
                    method.name,
                    level.facts.tau,
                    three_decimals(mean(&fine)),
                    three_decimals(mean(&coarse)),
                    three_decimals(mean(&coarse) - mean(&fine)),
                );
            }
        }
    }
    if rows.is_empty() {
        return rows;
    }
    format!(
        "\n## The cadence of evaluation\n\nThe mean gap over seeds of the same runs. An episode counts with the \
         policy of the latest evaluation before it. If policies are evaluated every tenth episode, the untrained policy counts \
         ten times instead of once, and every later improvement up to nine episodes late.\n\n\
         | problem | method | τ | after every episode | every tenth episode | difference |\n|---|---|---|---|---|---|\n{rows}"
    )
}

/// The gap as if only every `every`-th evaluation had been made; `None` unless there is one after every episode.
fn coarse_gap(trained: &Trained<'_>, level: &Level<'_>, every: usize) -> Option<f64> {
    let (best, rows) = (level.facts.best_quantile?, trained.evaluations());
    if rows.len() < 2 || rows.iter().enumerate().any(|(episode, row)| row.episode != episode) {
        return None;
    }
    let episodes = 0..rows.len() - 1;
    Some(episodes.map(|episode| best - rows[episode - episode % every].quantile).sum())
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
