//! The figures of the studies.

use bqrl_math::Interval;

use super::{Cell, Floor, Number, Part, Sweep};
use crate::curves::{self, Curve, CurvePanel, CurvePlot, Kind, Over};
use crate::figure::Figure;
use crate::heat_map::{self, HeatMap, HeatPanel};
use crate::numbers::number;
use crate::statistics::CurvePoint;
use crate::study::Measure;

/// All figures that there are results for: file name and figure.
pub fn figures(sweeps: &[Sweep], floors: &[Floor]) -> Vec<(&'static str, Figure)> {
    let mut figures = Vec::new();
    let of = |part: Part| sweeps.iter().filter(move |sweep| sweep.outline.part == part);
    if let Some(first) = of(Part::Sensitivity).next() {
        for (name, title, measure) in [
            ("studies-gap", "Quantile policy gap of Deep-BQRL over its settings", Measure::QuantilePolicyGap),
            (
                "studies-regret",
                "Expected-return regret of Deep-BQRL over its settings",
                Measure::ExpectedReturnRegret,
            ),
        ] {
            let value = |cell: &Cell| match measure {
                Measure::QuantilePolicyGap => cell.quantile_policy_gap,
                _ => cell.expected_return_regret,
            };
            let plot = CurvePlot {
                title: title.to_owned(),
                problem: about(first),
                panels: of(Part::Sensitivity).filter(|sweep| is_drawn(sweep)).map(|sweep| panel(sweep, measure.title(), true, value)).collect(),
                shared_scale: true,
                note: "lower is better; one setting at a time, values are not to scale; dotted line: the preset, in \
                       the second panel the preset with K = 32"
                    .to_owned(),
            };
            figures.push((name, curves::draw(&plot)));
        }
        figures.extend(beta_and_k(sweeps).map(|figure| ("studies-beta-k", figure)));
    }
    for sweep in of(Part::Scaling) {
        let name = if sweep.outline.name == "horizon" { "studies-horizon" } else { "studies-actions" };
        let episodes = sweep.outline.episodes as f64;
        let gap = panel(sweep, "quantile policy gap an episode", false, |cell| {
            cell.quantile_policy_gap.per(episodes)
        });
        let time = panel(sweep, "microseconds a step", false, |cell| cell.cost.seconds_per_step.per(1e-6));
        let plot = CurvePlot {
            title: format!("Deep-BQRL over the {}", sweep.outline.setting),
            problem: about(sweep),
            panels: vec![
                CurvePanel { heading: "what is lost".to_owned(), ..gap },
                CurvePanel { heading: "what it costs".to_owned(), ..time },
            ],
            shared_scale: false,
            note: "values are not to scale; wall time of a step with its update, on one machine".to_owned(),
        };
        figures.push((name, curves::draw(&plot)));
    }
    if !floors.is_empty() {
        figures.push(("studies-floor", floor_curves(floors)));
        figures.push(("studies-floor-map", floor_map(floors)));
    }
    figures
}

/// Widths at other K than the preset's and 32 are in the map alone.
fn is_drawn(sweep: &Sweep) -> bool {
    !sweep.outline.name.starts_with("beta-") || sweep.outline.name == "beta-32"
}

/// The sweeps over β, by K.
const BETAS: [(&str, &str); 5] =
    [("beta-2", "2"), ("beta", "4"), ("beta-8", "8"), ("beta-16", "16"), ("beta-32", "32")];

/// The gap over β and K, a map for each level; `None` unless every K was run.
fn beta_and_k(sweeps: &[Sweep]) -> Option<Figure> {
    let of = |(name, _): &(&str, &str)| sweeps.iter().find(|sweep| sweep.outline.name == *name);
    let rows: Vec<&Sweep> = BETAS.iter().map(of).collect::<Option<_>>()?;
    let first = rows.first()?;
    let half = |cell: &Cell| {
        let Number { mean, interval } = cell.quantile_policy_gap;
        interval.map(|[_, high]| high - mean)
    };
    let panel = |(level, tau): (usize, &f64)| HeatPanel {
        heading: format!("τ = {tau}"),
        cells: rows
            .iter()
            .map(|sweep| sweep.cells[level].iter().map(|cell| Some(cell.quantile_policy_gap.mean)).collect())
            .collect(),
        notes: rows
            .iter()
            .map(|sweep| {
                let note = |cell: &Cell| {
                    let around = half(cell).map(|half| format!(" ± {}", half.round())).unwrap_or_default();
                    format!("{}{around}", cell.quantile_policy_gap.mean.round())
                };
                sweep.cells[level].iter().map(note).collect()
            })
            .collect(),
    };
    Some(heat_map::draw(&HeatMap {
        title: "Quantile policy gap of Deep-BQRL over β and K".to_owned(),
        measure: about(first).replace("band: pointwise", "±: half a"),
        columns: ("buffer width β".to_owned(), first.outline.values.clone()),
        rows: ("number of quantiles K".to_owned(), BETAS.iter().map(|&(_, k)| k.to_owned()).collect()),
        panels: first.outline.taus.iter().enumerate().map(panel).collect(),
        note: "lower is better; differences within the ± of two cells mean nothing".to_owned(),
    }))
}

fn about(sweep: &Sweep) -> String {
    let n_seeds = sweep.cells.first().and_then(|level| level.first()).map_or(0, |cell| cell.n_seeds);
    format!(
        "{} · {} episodes · mean of {n_seeds} seeds, band: pointwise 95 % Student-t interval",
        sweep.outline.problem, sweep.outline.episodes
    )
}

/// A panel of a sweep: a curve for each level.
fn panel(sweep: &Sweep, measure: &str, marked: bool, value: impl Fn(&Cell) -> Number) -> CurvePanel {
    let outline = &sweep.outline;
    let point = |(place, cell): (usize, &Cell)| {
        let Number { mean, interval } = value(cell);
        let band = interval.map(|[low, high]| Interval { low, high });
        CurvePoint { x: place as f64, mean, band }
    };
    let curve = |(colour, (cells, tau)): (usize, (&Vec<Cell>, &f64))| Curve {
        label: format!("τ = {tau}"),
        colour,
        kind: Kind::Method,
        points: cells.iter().enumerate().map(point).collect(),
    };
    CurvePanel {
        heading: outline.setting.clone(),
        measure: measure.to_owned(),
        over: Over::Values {
            setting: outline.setting.clone(),
            values: outline.values.clone(),
            marked: marked.then_some(outline.reference),
        },
        from_zero: true,
        steps: false,
        marks: Vec::new(),
        curves: sweep.cells.iter().zip(&outline.taus).enumerate().map(curve).collect(),
    }
}

fn floor_curves(floors: &[Floor]) -> Figure {
    let panel = |floor: &Floor| {
        let exact = |values: &[f64]| -> Vec<CurvePoint> {
            let points = floor.taus.iter().zip(values);
            points.map(|(&x, &mean)| CurvePoint { x, mean, band: None }).collect()
        };
        let mut curves: Vec<Curve> = floor
            .widths
            .iter()
            .enumerate()
            .map(|(colour, (label, _, rule))| Curve {
                label: format!("β = {label}"),
                colour,
                kind: Kind::Method,
                points: exact(rule),
            })
            .collect();
        let points = exact(&floor.best);
        curves.push(Curve { label: "optimum".to_owned(), colour: 0, kind: Kind::Reference, points });
        CurvePanel {
            heading: floor.problem.clone(),
            measure: "quantile Q_τ of the return".to_owned(),
            over: Over::Numbers("level τ".to_owned()),
            from_zero: true,
            steps: true,
            curves,
            marks: Vec::new(),
        }
    };
    curves::draw(&CurvePlot {
        title: "What the paper's rule attains, solved exactly".to_owned(),
        problem: "exact values at τ = 0.05, 0.1, …, 0.95; nothing is learned".to_owned(),
        panels: floors.iter().map(panel).collect(),
        shared_scale: false,
        note: "the distance to the optimum is a floor under the gap that no training removes; each value is held until the next level; dots: the optimum"
            .to_owned(),
    })
}

fn floor_map(floors: &[Floor]) -> Figure {
    let panel = |floor: &Floor| {
        let span = floor.range.1 - floor.range.0;
        let row = |(_, _, rule): &(String, f64, Vec<f64>)| {
            rule.iter().zip(&floor.best).map(|(rule, best)| Some(((best - rule) / span).max(0.0))).collect()
        };
        HeatPanel {
            heading: floor.problem.clone(),
            cells: floor.widths.iter().map(row).collect(),
            notes: Vec::new(),
        }
    };
    let taus = floors[0].taus.iter().map(|&tau| number(tau)).collect();
    heat_map::draw(&HeatMap {
        title: "The floor under the paper's rule".to_owned(),
        measure: "Q*_τ − Q_τ of the rule, as a share of the range of returns; exact".to_owned(),
        columns: ("level τ".to_owned(), taus),
        rows: (
            "buffer width β".to_owned(),
            floors[0].widths.iter().map(|(label, ..)| label.clone()).collect(),
        ),
        panels: floors.iter().map(panel).collect(),
        note: String::new(),
    })
}
