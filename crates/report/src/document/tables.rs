//! The tables of the page: means over seeds, and the numbers of every seed.

use bqrl_math::Interval;

use super::{Writer, data, rich};
use crate::statistics::{Estimate, SEEDS_FOR_IQM};
use crate::study::{Level, Measure, Method, Study};
use crate::svg::escape;

/// For a measure that a method does not have and another does.
const NONE: &str = "–";

/// A mean, and below it the interval.
fn cell(mean: f64, interval: Option<Interval>) -> String {
    let below = interval.map_or(String::new(), |interval| {
        format!("<small>[{}, {}]</small>", data(interval.low), data(interval.high))
    });
    data(mean) + &below
}

/// A table per level, and from [`SEEDS_FOR_IQM`] seeds on a second one with interquartile means.
pub(super) fn results(page: &mut Writer, study: &Study<'_>) {
    page.heading("Results");
    let measures = study.measures();
    if measures.is_empty() {
        page.absent("Left out: no rows have been written yet.");
        return;
    }
    let mut head = vec!["method".to_owned(), "seeds".to_owned()];
    head.extend(measures.iter().map(|measure| rich(measure.title())));
    for tau in study.taus() {
        let mut means = Vec::new();
        let mut robust = Vec::new();
        for method in &study.methods {
            let Some(level) = method.level(tau) else { continue };
            for (name, estimates) in estimates(method, level, &measures) {
                let row = |cells: Vec<String>| {
                    [vec![escape(&name), data(level.seeds.len() as f64)], cells].concat()
                };
                let mean =
                    |e: &Option<Estimate>| e.as_ref().map_or(NONE.to_owned(), |e| cell(e.mean, e.interval));
                means.push(row(estimates.iter().map(mean).collect()));
                let iqm =
                    |e: &Option<Estimate>| e.as_ref()?.iqm.map(|(iqm, interval)| cell(iqm, Some(interval)));
                let cells: Vec<Option<String>> = estimates.iter().map(iqm).collect();
                if cells.iter().any(Option::is_some) {
                    robust.push(row(cells
                        .into_iter()
                        .map(|cell| cell.unwrap_or_else(|| NONE.to_owned()))
                        .collect()));
                }
            }
        }
        page.table(&caption(study, tau), &head, &means);
        if !robust.is_empty() {
            let caption = format!(
                "τ = {}: interquartile mean over seeds (from {SEEDS_FOR_IQM} on), below it the 95 % bootstrap interval.",
                data(tau)
            );
            page.table(&caption, &head, &robust);
        }
    }
}

/// The rows of a method: one, or two where its policy is stochastic.
fn estimates(
    method: &Method<'_>,
    level: &Level<'_>,
    measures: &[Measure],
) -> Vec<(String, Vec<Option<Estimate>>)> {
    let mode = measures.iter().map(|&measure| level.estimate(measure)).collect();
    if level.distribution_estimate(Measure::FinalQuantile).is_none() {
        return vec![(method.name.clone(), mode)];
    }
    let drawn = measures.iter().map(|&measure| level.distribution_estimate(measure)).collect();
    vec![
        (format!("{}, most probable actions", method.name), mode),
        (format!("{}, actions drawn", method.name), drawn),
    ]
}

fn caption(study: &Study<'_>, tau: f64) -> String {
    let levels: Vec<&Level<'_>> = study.methods.iter().filter_map(|method| method.level(tau)).collect();
    let mut betas = levels.iter().map(|level| level.facts.beta);
    let window = match betas.next() {
        Some(first) if betas.all(|beta| beta == first) => format!("β = {}", data(first)),
        _ => "β differs between methods, see below".to_owned(),
    };
    let mut references = Vec::new();
    if let Some(best) = levels.iter().find_map(|level| level.facts.best_quantile) {
        let which = if study.is_exact() { "best possible" } else { "best known (a lower bound)" };
        references.push(format!("{which} Q<sub>τ</sub> is {}", data(best)));
    }
    if let Some(largest) = study.runs.iter().find_map(|run| run.summary.max_mean) {
        references.push(format!(
            "the largest mean return {}{}",
            if references.is_empty() { "is " } else { "" },
            data(largest)
        ));
    }
    let references =
        if references.is_empty() { String::new() } else { format!(": {}", references.join(", ")) };
    let played = levels.iter().any(|level| {
        level.seeds.len() == 1 && level.estimate(Measure::FinalQuantile).is_some_and(|e| e.interval.is_some())
    });
    let one = if played { "; of one seed, the 95 % interval of its evaluation" } else { "" };
    format!(
        "τ = {}, {window}{references}. Mean over seeds, below it the 95 % Student-t interval{one}.",
        data(tau)
    )
}

/// Every seed at every level.
pub(super) fn seeds(page: &mut Writer, study: &Study<'_>) {
    let measures = study.measures();
    if measures.is_empty() {
        return;
    }
    page.heading("Seed by seed");
    let mut head: Vec<String> = ["method", "τ", "β", "seed"].map(str::to_owned).to_vec();
    head.extend(measures.iter().map(|measure| rich(measure.title())));
    let mut rows = Vec::new();
    for method in &study.methods {
        for level in &method.levels {
            for trained in &level.seeds {
                let mut row = vec![escape(&method.name), data(level.facts.tau), data(level.facts.beta)];
                row.push(format!("<data value=\"{0}\">{0}</data>", trained.record.seed));
                row.extend(measures.iter().map(|measure| measure.of(trained).map_or(NONE.to_owned(), data)));
                rows.push(row);
            }
        }
    }
    page.table("The numbers that the tables above summarise.", &head, &rows);
}
