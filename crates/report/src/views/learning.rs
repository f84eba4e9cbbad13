//! Curves over training, a row of panels per measure.

use bqrl_math::Interval;
use bqrl_runs::schema::{EvaluationRow, MOVING_AVERAGE};

use crate::axis::four_digits;
use crate::curves::{self, Curve, CurvePanel, CurvePlot, Kind, Mark, Over};
use crate::figure::Figure;
use crate::statistics::{CurvePoint, Track, aligned, cut, moving_average};
use crate::study::{Axis, Level, Measure, Method, Study, Trained};

/// Points of a curve: one per unit of a narrow plot, few enough for a small file after 100 000 episodes.
const POINTS: usize = 250;

/// A printed value: measure, level, name of the algorithm, value.
pub type Printed = (Measure, f64, &'static str, f64);

/// Measures over training: a row of panels per measure, one per level.
pub fn learning_curves(study: &Study<'_>, title: &str, measures: &[Measure], taus: &[f64]) -> Figure {
    learning_of(study, title, (measures, taus), |_| true, &[])
}

/// The same of some methods, with values that others have printed.
pub fn learning_of(
    study: &Study<'_>,
    title: &str,
    (measures, taus): (&[Measure], &[f64]),
    shown: impl Fn(&Method<'_>) -> bool,
    printed: &[Printed],
) -> Figure {
    let axis = study.axis();
    let methods: Vec<&Method<'_>> = study.methods.iter().filter(|method| shown(method)).collect();
    let mark = |&(_, _, algo, value): &Printed| {
        let method = methods.iter().find(|method| method.algo == algo)?;
        Some(Mark { label: method.name.clone(), colour: method.colour, value })
    };
    let panel = |measure: Measure, tau: f64| CurvePanel {
        heading: format!("τ = {}", four_digits(tau)),
        measure: measure.axis_title().to_owned(),
        over: Over::Numbers(axis.title().to_owned()),
        from_zero: measure.is_loss() || measure == Measure::MovingAverageReward,
        // A policy keeps its value until it is evaluated again; cumulative measures grow in between.
        steps: !measure.is_loss() && measure != Measure::MovingAverageReward,
        curves: methods.iter().flat_map(|method| curves_of(method, measure, tau, axis)).collect(),
        marks: printed
            .iter()
            .filter(|printed| (printed.0, printed.1) == (measure, tau))
            .filter_map(mark)
            .collect(),
    };
    let panel = |measure: Measure, tau: f64| {
        let mut panel = panel(measure, tau);
        if measure == Measure::FinalQuantile {
            panel.curves.extend(best_possible(study, tau, &panel.curves));
        }
        panel
    };
    let panels: Vec<CurvePanel> =
        measures.iter().flat_map(|&measure| taus.iter().map(move |&tau| panel(measure, tau))).collect();
    let mut notes = Vec::new();
    if measures.iter().all(|measure| measure.is_loss()) {
        notes.push("lower is better");
    }
    let shared_scale = measures == [Measure::MovingAverageReward];
    if !shared_scale && panels.len() > 1 {
        notes.push("each panel has its own scale");
    }
    if panels.iter().flat_map(|panel| &panel.curves).any(|curve| curve.kind == Kind::Second) {
        notes.push("thin: the stochastic policy itself; the other curve: its most probable actions");
    }
    if panels.iter().any(|panel| !panel.marks.is_empty()) {
        notes.push("hollow marks at the right edge: the values that the paper prints");
    }
    let warnings = study.warnings();
    notes.extend(warnings.iter().map(|warning| warning.trim_end_matches('.')));
    if study.runs.iter().any(|run| !run.is_finished()) {
        notes.push("unfinished seeds count up to their latest row");
    }
    curves::draw(&CurvePlot {
        title: title.to_owned(),
        problem: format!("{} · {}", study.problem_name(), seeds_in_words(study, measures, taus)),
        panels,
        shared_scale,
        note: notes.join("; "),
    })
}

/// Q*_τ as a dotted line as long as the longest curve, where it is known.
fn best_possible(study: &Study<'_>, tau: f64, curves: &[Curve]) -> Option<Curve> {
    let best = study.methods.iter().find_map(|method| method.level(tau)?.facts.best_quantile)?;
    let end = curves.iter().filter_map(|curve| curve.points.last()).map(|point| point.x).fold(0.0, f64::max);
    let label = if study.is_exact() { "best possible" } else { "best known" };
    let points = [0.0, end].map(|x| CurvePoint { x, mean: best, band: None }).to_vec();
    (end > 0.0).then(|| Curve { label: label.to_owned(), colour: 0, kind: Kind::Reference, points })
}

fn curves_of<'a>(method: &Method<'a>, measure: Measure, tau: f64, axis: Axis) -> Vec<Curve> {
    let Some(level) = method.level(tau) else { return Vec::new() };
    let (bounds, colour) = (level.bounds(measure), method.colour);
    let draw = |label: String, kind: Kind, tracks: Vec<Track<'_>>| {
        let possible = |point: CurvePoint| {
            let so_far = if axis == Axis::Episodes { reachable(level, measure, point.x) } else { None };
            let bounds = so_far.map_or(bounds, |so_far| cut(bounds, so_far));
            CurvePoint { band: point.band.map(|band| cut(band, bounds)), ..point }
        };
        let points: Vec<CurvePoint> = aligned(&tracks, POINTS).into_iter().map(possible).collect();
        (!points.is_empty()).then_some(Curve { label, colour, kind, points })
    };
    if measure == Measure::MovingAverageReward {
        return draw(method.name.clone(), Kind::Method, rewards(level, axis)).into_iter().collect();
    }
    let greedy =
        level.seeds.iter().filter_map(|trained| track(trained, trained.evaluations(), measure, axis));
    let mut curves: Vec<Curve> =
        draw(method.name.clone(), Kind::Method, greedy.collect()).into_iter().collect();
    // Regret is about the returns of training: the same for both policies.
    if measure != Measure::ExpectedReturnRegret {
        let drawn = |trained: &Trained<'a>| track(trained, trained.distribution()?, measure, axis);
        if let Some(tracks) = level.seeds.iter().map(drawn).collect::<Option<Vec<_>>>() {
            curves.extend(draw(format!("{} drawn", method.name), Kind::Second, tracks));
        }
    }
    curves
}

/// The range of values that a cumulative measure can have after so many episodes, given the returns seen; `None` for other measures.
fn reachable(level: &Level<'_>, measure: Measure, episodes: f64) -> Option<Interval> {
    let returns = level.bounds(Measure::MovingAverageReward);
    match measure {
        Measure::QuantilePolicyGap => {
            let best = level.facts.best_quantile?;
            Some(Interval { low: f64::NEG_INFINITY, high: episodes * (best - returns.low) })
        }
        Measure::ExpectedReturnRegret => {
            let largest = level.seeds[0].run.summary.max_mean?;
            let [low, high] = [returns.high, returns.low].map(|collected| episodes * (largest - collected));
            Some(Interval { low, high })
        }
        _ => None,
    }
}

/// A measure of one seed at its evaluations; `None` where it has none.
fn track<'a>(
    trained: &Trained<'a>,
    rows: &'a [EvaluationRow],
    measure: Measure,
    axis: Axis,
) -> Option<Track<'a>> {
    let values: Vec<f64> = rows.iter().map_while(|row| measure.in_evaluation(row)).collect();
    let x = match axis {
        Axis::Episodes => rows.iter().map(|row| row.episode as f64).collect(),
        Axis::Steps => steps_of(trained, rows),
    };
    // Evaluations may be on disk before the episodes that they came after.
    let x: Vec<f64> = x.into_iter().take(values.len()).collect();
    let interval = move |k: usize| {
        let [low, high] = rows[k].interval.filter(|_| measure == Measure::FinalQuantile)?;
        Some(Interval { low, high })
    };
    let value = move |k: usize| (values[k], interval(k));
    (!x.is_empty()).then(|| Track { x, done: trained.is_done(), value: Box::new(value) })
}

/// Steps before each evaluation, up to the first one that is not known.
fn steps_of(trained: &Trained<'_>, rows: &[EvaluationRow]) -> Vec<f64> {
    let ends = trained.record.episode_steps();
    let before = trained.record.episodes.first().map_or(0, |row| row.episode - 1);
    let step = |row: &EvaluationRow| match (row.step, row.episode.saturating_sub(before)) {
        (Some(step), _) => Some(step as f64),
        (None, 0) => Some(0.0),
        (None, episode) => ends.get(episode - 1).map(|&step| step as f64),
    };
    rows.iter().map_while(step).collect()
}

/// The moving averages of all seeds: only whole windows, unless no seed has one.
fn rewards<'a>(level: &Level<'a>, axis: Axis) -> Vec<Track<'a>> {
    let longest = level.seeds.iter().map(|trained| trained.record.episodes.len()).max().unwrap_or(0);
    let first = MOVING_AVERAGE.min(longest).saturating_sub(1);
    let track = |trained: &Trained<'a>| {
        let returns = trained.record.returns();
        let ends: Vec<f64> = match axis {
            Axis::Episodes => trained.record.episodes.iter().map(|row| row.episode as f64).collect(),
            Axis::Steps => trained.record.episode_steps().into_iter().map(|step| step as f64).collect(),
        };
        let value = move |k: usize| (moving_average(&returns, MOVING_AVERAGE, k + first), None);
        Track { x: ends.into_iter().skip(first).collect(), done: trained.is_done(), value: Box::new(value) }
    };
    level.seeds.iter().map(track).filter(|track| !track.x.is_empty()).collect()
}

/// "mean of 3 seeds, pointwise 95 % Student-t interval", with the numbers of each method where they differ.
pub(crate) fn seeds_in_words(study: &Study<'_>, measures: &[Measure], taus: &[f64]) -> String {
    let counts: Vec<(&str, usize)> = study
        .methods
        .iter()
        .flat_map(|method| {
            let levels = method.levels.iter().filter(|level| taus.contains(&level.facts.tau));
            levels.map(|level| (method.name.as_str(), level.seeds.len()))
        })
        .collect();
    let (fewest, most) = (
        counts.iter().map(|count| count.1).min().unwrap_or(0),
        counts.iter().map(|count| count.1).max().unwrap_or(0),
    );
    if most <= 1 {
        let levels = study.methods.iter().flat_map(|method| &method.levels);
        let mut rows = levels.flat_map(|level| &level.seeds).flat_map(Trained::evaluations);
        let played = measures.contains(&Measure::FinalQuantile) && rows.any(|row| row.interval.is_some());
        let interval = if played {
            "band: 95 % interval of Q_τ from the episodes played"
        } else {
            "so there is no interval"
        };
        return format!("one seed, {interval}");
    }
    if fewest == most {
        return format!("mean of {most} seeds, band: pointwise 95 % Student-t interval");
    }
    let mut by_method: Vec<(&str, usize, usize)> = Vec::new();
    for (name, n) in counts {
        match by_method.iter_mut().find(|known| known.0 == name) {
            Some(known) => *known = (name, known.1.min(n), known.2.max(n)),
            None => by_method.push((name, n, n)),
        }
    }
    let words = by_method.iter().map(|&(name, low, high)| {
        if low == high { format!("{name} {low}") } else { format!("{name} {low} to {high}") }
    });
    let words = words.collect::<Vec<_>>().join(", ");
    format!("mean over seeds ({words}), band: pointwise 95 % Student-t interval")
}
