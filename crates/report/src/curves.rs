//! Curves over episodes (the paper's Figures 1, 3 and 4), or over the values of a setting: the mean over seeds with a
//! pointwise interval as a band.
//!
//! Every series has a colour and a marker, the same in all figures; its name is at the right end of its curve, behind its marker. Names
//! that would overlap are stacked beside a bar that spans the ends of their curves. Dots mean one thing: a value to
//! compare with that no method has learned. Each panel has its own scale, unless the figure asks for a shared one. A band may be
//! cut: few seeds give intervals far wider than the curves themselves.

use std::fmt::Write as _;

use crate::axis::{Scale, Tick, four_digits, padded, ticks, ticks_that_fit};
use crate::figure::Figure;
use crate::page::{BOTTOM_MARGIN, Margin, Page, columns, left_margin, x_axis, y_axis};
use crate::statistics::CurvePoint;
use crate::svg::{Anchor, Area, Canvas, Fill, LABEL, Lettering, Marker, Point, TICK, Tone, number};

/// Learning curves, a panel for each measure and level.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvePlot {
    /// The headline.
    pub title: String,
    /// The name of the problem, and the number of seeds; below the headline.
    pub problem: String,
    /// One plot each, side by side.
    pub panels: Vec<CurvePanel>,
    /// Whether all panels have the same vertical scale, which suits measures that mean the same in each.
    pub shared_scale: bool,
    /// A note below the plots; may be empty.
    pub note: String,
}

/// Curves on common axes.
#[derive(Debug, Clone, PartialEq)]
pub struct CurvePanel {
    /// The line above the plot; `_τ` and `^β` are set as indices.
    pub heading: String,
    /// The title of the vertical axis.
    pub measure: String,
    /// The horizontal axis.
    pub over: Over,
    /// Whether the vertical scale reaches down (or up) to zero.
    pub from_zero: bool,
    /// Whether a curve holds its value until the next point. A straight line would show values that were never measured.
    pub steps: bool,
    /// The curves.
    pub curves: Vec<Curve>,
    /// Values that others have printed, at the right edge.
    pub marks: Vec<Mark>,
}

/// A value from elsewhere, to compare the end of a curve with.
#[derive(Debug, Clone, PartialEq)]
pub struct Mark {
    /// Whose value it is.
    pub label: String,
    /// The series.
    pub colour: usize,
    /// The value.
    pub value: f64,
}

/// How a curve is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Of a method.
    Method,
    /// A second curve of a method: thinner.
    Second,
    /// A value to compare with, not learned: gray dots.
    Reference,
}

/// The horizontal axis of a panel.
#[derive(Debug, Clone, PartialEq)]
pub enum Over {
    /// Numbers from 0 on, in these words; all such panels of a figure reach as far.
    Numbers(String),
    /// The values of a setting, in order and one step apart: point k of a curve has x = k.
    Values {
        /// The title of the axis.
        setting: String,
        /// The values as they are written.
        values: Vec<String>,
        /// The place of a value to point out.
        marked: Option<usize>,
    },
}

/// One curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Curve {
    /// Its name, written at its end.
    pub label: String,
    /// Which colour and marker: the same number has the same in every figure.
    pub colour: usize,
    /// How it is drawn.
    pub kind: Kind,
    /// From left to right.
    pub points: Vec<CurvePoint>,
}

const BAND: f64 = 0.16;
const CURVE: f64 = 1.9;
const SECOND: f64 = 0.9;
const LEADER: f64 = 10.0;
const DOT: f64 = 3.0;
/// Markers along a curve.
const MARKERS: usize = 5;
/// The dashes of everything that is not learned.
pub(crate) const REFERENCE_DASHES: &str = "1.2 2.6";
/// Margin left of the first and right of the last value of a setting, in steps.
const BESIDE: f64 = 0.3;
const ROW: f64 = 13.0;
const LONGEST_NAME: f64 = 150.0;
pub(crate) const CUT_NOTE: &str = "bands are cut where they leave the plot";

/// Draws the curves.
///
/// Every number is finite; anything else is a mistake of the caller.
pub fn draw(plot: &CurvePlot) -> Figure {
    let domains: Vec<(f64, f64)> = plot.panels.iter().map(|panel| vertical_domain(plot, panel)).collect();
    let y_ticks: Vec<_> = domains.iter().map(|&domain| ticks(domain, 7)).collect();
    let widest = y_ticks.iter().flatten().map(|tick| TICK.width(&tick.label)).fold(0.0, f64::max);
    let name = |curve: &Curve| LABEL.shorten(&curve.label, LONGEST_NAME);
    let names = plot.panels.iter().flat_map(|panel| &panel.curves).map(|curve| LABEL.width(&name(curve)));
    let right = LEADER + 18.0 + names.fold(0.0, f64::max);
    let cut = plot.panels.iter().zip(&domains).any(|(panel, domain)| leaves(panel, *domain));
    let note = with_cut_note(&plot.note, cut);
    let page = Page {
        title: &plot.title,
        problem: &plot.problem,
        legend: &[],
        headings: plot.panels.iter().map(|panel| panel.heading.as_str()).collect(),
        note: &note,
        plot: ([460.0, 320.0, 230.0][columns(plot.panels.len()) - 1], 210.0),
        margin: Margin { left: left_margin(widest), right, top: 0.0, bottom: BOTTOM_MARGIN },
    };
    let (mut canvas, areas) = page.open();
    for (((panel, &domain), ticks), &area) in plot.panels.iter().zip(&domains).zip(&y_ticks).zip(&areas) {
        let x = Scale { domain: horizontal_domain(plot, panel), range: (area.left, area.right()) };
        let y = Scale { domain, range: (area.bottom(), area.top) };
        if let Over::Values { marked: Some(marked), .. } = panel.over {
            let place = x.at(marked as f64);
            canvas.line((place, area.top), (place, area.bottom()), Tone::Reference, 1.0, REFERENCE_DASHES);
        }
        for tick in ticks {
            let level = y.at(tick.value);
            canvas.line((area.left, level), (area.right(), level), Tone::Rule, 0.8, "");
        }
        for curve in panel.curves.iter().filter(|curve| curve.kind != Kind::Reference) {
            if let Some(band) = band(&path_of(panel, &curve.points), x, y) {
                canvas.shape(&band, Fill::Tint(Tone::of_series(curve.colour), BAND));
            }
        }
        for curve in &panel.curves {
            let (tone, width, dashes) = style(curve);
            let path = path_of(panel, &curve.points);
            let points = path.iter().map(|point| (x.at(point.x), y.at(point.mean)));
            canvas.curve(&polyline(points), tone, width, dashes);
        }
        for (index, curve) in panel.curves.iter().enumerate() {
            for k in marked_points(panel, index, curve.points.len()) {
                let point = curve.points[k];
                put_marker(&mut canvas, curve, (x.at(point.x), y.at(point.mean)));
            }
        }
        draw_marks(&mut canvas, area, panel, y);
        canvas.frame(area, Tone::Ink);
        let (x_ticks, x_title) = match &panel.over {
            Over::Numbers(title) => (ticks_that_fit(x.domain, area.width, &TICK), title),
            Over::Values { setting, values, .. } => (named_ticks(values), setting),
        };
        x_axis(&mut canvas, area, &x_ticks, |value| x.at(value), x_title);
        y_axis(&mut canvas, area, ticks, |value| y.at(value), (&panel.measure, widest));
        let last = match &panel.over {
            Over::Numbers(_) => area.right(),
            Over::Values { values, .. } => x.at(values.len() as f64 - 1.0),
        };
        draw_names(&mut canvas, (area, last), &ends(panel, x, y), &panel.curves, |index| {
            name(&panel.curves[index])
        });
    }
    canvas.finish(&format!("{}, {}", plot.title, plot.problem), &describe(plot, &note))
}

fn style(curve: &Curve) -> (Tone, f64, &'static str) {
    match curve.kind {
        Kind::Method => (Tone::of_series(curve.colour), CURVE, ""),
        Kind::Second => (Tone::of_series(curve.colour), SECOND, ""),
        Kind::Reference => (Tone::Reference, CURVE, REFERENCE_DASHES),
    }
}

fn put_marker(canvas: &mut Canvas, curve: &Curve, centre: Point) {
    if curve.kind != Kind::Reference {
        let hollow = curve.kind == Kind::Second;
        let tone = Tone::of_series(curve.colour);
        canvas.marker(Marker::of_series(curve.colour), centre, DOT, tone, hollow);
    }
}

/// The points that carry a marker: all values of a setting; over training a few, in other places for each curve.
fn marked_points(panel: &CurvePanel, index: usize, n: usize) -> Vec<usize> {
    if n == 0 {
        return Vec::new();
    }
    if matches!(panel.over, Over::Values { .. }) {
        return (0..n).collect();
    }
    let shift = (index as f64 + 0.5) / panel.curves.len() as f64;
    let place = |k: usize| ((k as f64 + shift) / MARKERS as f64 * (n - 1) as f64).round() as usize;
    let mut places: Vec<usize> = (0..MARKERS).map(place).collect();
    places.dedup();
    places
}

/// The corners of a curve: each value is held until the next point, or joined to it.
fn path_of(panel: &CurvePanel, points: &[CurvePoint]) -> Vec<CurvePoint> {
    let mut path: Vec<CurvePoint> = Vec::with_capacity(2 * points.len());
    for &point in points {
        if let Some(&last) = path.last().filter(|_| panel.steps) {
            path.push(CurvePoint { x: point.x, ..last });
        }
        path.push(point);
    }
    path
}

/// Printed values at the right edge; those above the plot in words at its top.
fn draw_marks(canvas: &mut Canvas, area: Area, panel: &CurvePanel, y: Scale) {
    let (inside, above): (Vec<&Mark>, Vec<&Mark>) =
        panel.marks.iter().partition(|mark| mark.value <= y.domain.1);
    for mark in inside {
        let tone = Tone::of_series(mark.colour);
        let at = y.at(mark.value.max(y.domain.0));
        canvas.line((area.right() - 14.0, at), (area.right(), at), tone, 1.2, "");
        canvas.marker(Marker::of_series(mark.colour), (area.right() - 14.0, at), 1.3 * DOT, tone, true);
    }
    if !above.is_empty() {
        let words: Vec<String> =
            above.iter().map(|mark| format!("{} {}", mark.label, four_digits(mark.value))).collect();
        let lettering = Lettering { tone: Tone::Muted, size: 9.5, anchor: Anchor::Start, ..LABEL };
        let text = format!("paper, above: {}", words.join(", "));
        for (row, line) in lettering.wrap(&text, area.width - 12.0).iter().enumerate() {
            canvas.text((area.left + 6.0, area.top + 12.0 + 11.5 * row as f64), line, &lettering);
        }
    }
}

fn horizontal_domain(plot: &CurvePlot, panel: &CurvePanel) -> (f64, f64) {
    if let Over::Values { values, .. } = &panel.over {
        return (-BESIDE, (values.len().max(1) - 1) as f64 + BESIDE);
    }
    let panels = plot.panels.iter().filter(|panel| matches!(panel.over, Over::Numbers(_)));
    let points = panels.flat_map(|panel| &panel.curves).flat_map(|curve| &curve.points);
    let last = points.map(|point| point.x).fold(0.0, f64::max);
    (0.0, if last > 0.0 { last } else { 1.0 })
}

fn named_ticks(values: &[String]) -> Vec<Tick> {
    let tick = |(place, label): (usize, &String)| Tick { value: place as f64, label: label.clone() };
    values.iter().enumerate().map(tick).collect()
}

/// The vertical scale: all curves, and the bands up to a third beyond them.
fn vertical_domain(plot: &CurvePlot, panel: &CurvePanel) -> (f64, f64) {
    let alone = std::slice::from_ref(panel);
    let panels = if plot.shared_scale { &plot.panels } else { alone };
    let points: Vec<&CurvePoint> =
        panels.iter().flat_map(|panel| &panel.curves).flat_map(|curve| &curve.points).collect();
    let means = || points.iter().map(|point| point.mean);
    let (low, high) = if panel.from_zero {
        (means().fold(0.0, f64::min), means().fold(0.0, f64::max))
    } else {
        (means().reduce(f64::min).unwrap_or(0.0), means().reduce(f64::max).unwrap_or(1.0))
    };
    let bands = || points.iter().filter_map(|point| point.band);
    // Around a flat curve, the bands alone give the scale.
    let room = if panel.from_zero || high > low { 0.35 * (high - low) } else { f64::INFINITY };
    let lowest = bands().map(|band| band.low).fold(low, f64::min).max(low - room);
    let highest = bands().map(|band| band.high).fold(high, f64::max).min(high + room);
    // Printed values that are not far above the curves are in the plot as well.
    let marks = panels.iter().flat_map(|panel| &panel.marks).map(|mark| mark.value);
    let highest = marks.filter(|&value| value <= high + room).fold(highest, f64::max);
    if !panel.from_zero {
        return padded(lowest, highest);
    }
    // Measures that are never negative start at zero.
    let bottom = if low < 0.0 { lowest } else { 0.0 };
    if highest > bottom { (bottom, highest + 0.04 * (highest - bottom)) } else { (0.0, 1.0) }
}

fn leaves(panel: &CurvePanel, (low, high): (f64, f64)) -> bool {
    let bands = panel.curves.iter().flat_map(|curve| &curve.points).filter_map(|point| point.band);
    let slack = 1e-9 * (high - low);
    let mut cut = bands.filter(|band| band.low < low - slack || band.high > high + slack);
    cut.next().is_some()
}

/// The note of a figure, which also says where bands are cut.
pub(crate) fn with_cut_note(note: &str, cut: bool) -> String {
    match (cut, note.is_empty()) {
        (false, _) => note.to_owned(),
        (true, true) => CUT_NOTE.to_owned(),
        (true, false) => format!("{}; {CUT_NOTE}", note.trim_end_matches('.')),
    }
}

/// A path through `points`.
pub(crate) fn polyline(points: impl Iterator<Item = Point>) -> String {
    let mut path = String::new();
    for (x, y) in points {
        let _ = write!(path, "{}{} {}", if path.is_empty() { 'M' } else { 'L' }, number(x), number(y));
    }
    path
}

/// The outline of the intervals, cut to the plot; `None` where there are fewer than two.
pub(crate) fn band(points: &[CurvePoint], x: Scale, y: Scale) -> Option<String> {
    let inside = |value: f64| y.at(value.clamp(y.domain.0, y.domain.1));
    let bands: Vec<_> =
        points.iter().filter_map(|point| point.band.map(|band| (x.at(point.x), band))).collect();
    let upper = bands.iter().map(|(x, band)| (*x, inside(band.high)));
    let lower = bands.iter().rev().map(|(x, band)| (*x, inside(band.low)));
    (bands.len() > 1).then(|| polyline(upper.chain(lower)) + "z")
}

fn ends(panel: &CurvePanel, x: Scale, y: Scale) -> Vec<(usize, Point)> {
    let end = |(index, curve): (usize, &Curve)| {
        curve.points.last().map(|point| (index, (x.at(point.x), y.at(point.mean))))
    };
    panel.curves.iter().enumerate().filter_map(end).collect()
}

/// Writes each curve's name right of the plot, as near to its end as the others allow.
///
/// `last` is where a curve ends that has all its points.
fn draw_names(
    canvas: &mut Canvas,
    (area, last): (Area, f64),
    ends: &[(usize, Point)],
    curves: &[Curve],
    name: impl Fn(usize) -> String,
) {
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|&a, &b| ends[a].1.1.total_cmp(&ends[b].1.1));
    let wanted: Vec<f64> = order.iter().map(|&k| ends[k].1.1).collect();
    let places = spread(&wanted, (area.top + 5.0, area.bottom() - 5.0));
    let start = area.right() + LEADER;
    let mut first = 0;
    while first < order.len() {
        // Names that are a row apart form a stack.
        let mut end = first + 1;
        while end < order.len() && places[end] - places[end - 1] < ROW + 0.5 {
            end += 1;
        }
        if end - first > 1 {
            // One bar for the stack, as long as the names and the ends of the curves: lines from each end to its name would fan out.
            let all = || (first..end).flat_map(|k| [wanted[k], places[k]]);
            let (top, bottom) = (all().fold(f64::INFINITY, f64::min), all().fold(0.0, f64::max));
            let bar = area.right() + 0.6 * LEADER;
            canvas.line((bar, top), (bar, bottom), Tone::Blank, 1.0, "");
        }
        for k in first..end {
            let (index, at) = ends[order[k]];
            let curve = &curves[index];
            let tone = style(curve).0;
            if at.0 < last - 2.0 {
                // The curve ends early: its end is marked, and no line crosses the plot.
                put_marker(canvas, curve, at);
            } else if end - first > 1 {
                canvas.line((area.right(), at.1), (area.right() + 0.6 * LEADER, at.1), tone, 0.9, "");
            } else {
                canvas.line((area.right(), at.1), (start - 1.0, places[k]), tone, 0.9, "");
            }
            let place = places[k];
            if curve.kind == Kind::Reference {
                canvas.line((start, place), (start + 9.0, place), tone, CURVE, REFERENCE_DASHES);
            } else {
                put_marker(canvas, curve, (start + 4.0, place));
            }
            canvas.text((start + 12.0, place + 3.8), &name(index), &Lettering { tone, ..LABEL });
        }
        first = end;
    }
}

/// The nearest places to `wanted` (ascending) that are a row apart and, as long as they fit, within the bounds.
fn spread(wanted: &[f64], (top, bottom): (f64, f64)) -> Vec<f64> {
    let mut places: Vec<f64> = Vec::with_capacity(wanted.len());
    // Names that overlap form a block around their mean; blocks that overlap are joined. (first, number, centre)
    let mut blocks: Vec<(usize, usize, f64)> = Vec::new();
    for (index, _) in wanted.iter().enumerate() {
        let mut block = (index, 1, 0.0);
        loop {
            let (first, count, _) = block;
            let mean = wanted[first..first + count].iter().sum::<f64>() / count as f64;
            let half = ROW * (count - 1) as f64 / 2.0;
            block.2 = mean.min(bottom - half).max(top + half);
            match blocks.last() {
                Some(&(before, n, centre)) if centre + ROW * (n - 1) as f64 / 2.0 + ROW > block.2 - half => {
                    blocks.pop();
                    block = (before, n + count, 0.0);
                }
                _ => break,
            }
        }
        blocks.push(block);
    }
    for (_, count, centre) in blocks {
        let first = centre - ROW * (count - 1) as f64 / 2.0;
        places.extend((0..count).map(|k| first + ROW * k as f64));
    }
    places
}

fn describe(plot: &CurvePlot, note: &str) -> String {
    let mut text = String::from("Curves.");
    for panel in &plot.panels {
        let (Over::Numbers(over) | Over::Values { setting: over, .. }) = &panel.over;
        let _ = write!(text, " {}, {} over {over}:", panel.heading, panel.measure);
        for curve in &panel.curves {
            if let Some(last) = curve.points.last() {
                let _ = write!(text, " {} ends at {};", curve.label, four_digits(last.mean));
            }
        }
        for mark in &panel.marks {
            let _ = write!(text, " the paper prints {} for {};", four_digits(mark.value), mark.label);
        }
    }
    format!("{text} {note}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bqrl_math::Interval;

    fn curve(label: &str, colour: usize, points: &[(f64, f64)]) -> Curve {
        let point = |&(x, mean): &(f64, f64)| CurvePoint {
            x,
            mean,
            band: Some(Interval { low: mean - 1.0, high: mean + 1.0 }),
        };
        Curve { label: label.into(), colour, kind: Kind::Method, points: points.iter().map(point).collect() }
    }

    fn plot(panels: Vec<CurvePanel>) -> CurvePlot {
        let (title, problem) = ("Learning".into(), "coin".into());
        CurvePlot { title, problem, panels, shared_scale: false, note: String::new() }
    }

    fn panel(curves: Vec<Curve>) -> CurvePanel {
        let over = Over::Numbers("training episodes".into());
        CurvePanel {
            heading: "τ = 0.1".into(),
            measure: "cumulative gap".into(),
            over,
            from_zero: true,
            steps: false,
            curves,
            marks: Vec::new(),
        }
    }

    #[test]
    fn values_of_a_setting_stand_one_step_apart_and_one_is_pointed_out() {
        let values: Vec<String> = ["0", "0.5", "5"].map(String::from).into();
        let setting = Over::Values { setting: "λ_0".into(), values, marked: Some(1) };
        let curves = vec![curve("τ = 0.1", 0, &[(0.0, 3.0), (1.0, 2.0), (2.0, 1.0)])];
        let figure = draw(&plot(vec![CurvePanel { over: setting, ..panel(curves) }]));
        let centres: Vec<f64> = figure
            .svg()
            .split("<circle cx=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().parse().unwrap())
            .collect();
        // Two steps and 0.3 to each side over 460 units; the last circle stands at the name.
        assert_eq!(centres.len(), 4);
        for pair in centres[..3].windows(2) {
            assert!((pair[1] - pair[0] - 460.0 / 2.6).abs() < 0.02, "{centres:?}");
        }
        let line =
            figure.svg().split("<line x1=\"").find(|rest| rest.contains("stroke-dasharray=\"1.2 2.6\""));
        assert!(line.unwrap().starts_with(&centres[1].to_string()));
        assert!(figure.svg().contains(">0.5<") && figure.svg().contains(">λ_0<"));
    }

    #[test]
    fn names_are_a_row_apart_and_as_near_as_can_be() {
        assert_eq!(spread(&[20.0, 60.0], (0.0, 100.0)), [20.0, 60.0]);
        // Two at 50: half a row to each side.
        assert_eq!(spread(&[50.0, 50.0], (0.0, 100.0)), [43.5, 56.5]);
        // At the bottom they are stacked upwards from the bound.
        assert_eq!(spread(&[98.0, 99.0, 100.0], (0.0, 100.0)), [74.0, 87.0, 100.0]);
        for n in 1..9 {
            let wanted: Vec<f64> = (0..n).map(|k| f64::from(k * k)).collect();
            let places = spread(&wanted, (0.0, 200.0));
            assert!(places.windows(2).all(|pair| pair[1] - pair[0] >= ROW - 1e-9), "{places:?}");
            assert!(places.iter().all(|place| (0.0..=200.0).contains(place)), "{places:?}");
        }
    }

    #[test]
    fn the_path_is_where_the_numbers_are() {
        // Episodes 0..100 over 460 units, values 0..20.8 (20 and a little room) over 210 units.
        let svg = draw(&plot(vec![panel(vec![curve("Deep-BQRL", 0, &[(0.0, 0.0), (100.0, 19.0)])])]));
        let path = svg.svg().split("stroke-width=\"1.9\"").next().unwrap().rsplit("d=\"M").next().unwrap();
        let numbers: Vec<f64> =
            path.split('"').next().unwrap().split(['L', ' ']).map(|n| n.parse().unwrap()).collect();
        assert_eq!(numbers[2] - numbers[0], 460.0);
        assert!((numbers[1] - numbers[3] - 210.0 * 19.0 / 20.8).abs() < 0.02, "{numbers:?}");
    }

    #[test]
    fn steps_are_drawn_as_steps_and_only_references_in_dots() {
        let curves = vec![curve("a", 0, &[(0.0, 0.0), (10.0, 1.0)])];
        let stepped = CurvePanel { steps: true, ..panel(curves.clone()) };
        let corners: Vec<(f64, f64)> =
            path_of(&stepped, &curves[0].points).iter().map(|point| (point.x, point.mean)).collect();
        assert_eq!(corners, [(0.0, 0.0), (10.0, 0.0), (10.0, 1.0)]);
        assert_eq!(path_of(&panel(vec![]), &curves[0].points), curves[0].points);
        assert!(!draw(&plot(vec![stepped.clone()])).svg().contains("dasharray"));
        let reference = Curve { kind: Kind::Reference, ..curves[0].clone() };
        assert!(draw(&plot(vec![panel(vec![reference])])).svg().contains("dasharray"));
        let second = Curve { kind: Kind::Second, ..curves[0].clone() };
        assert!(!draw(&plot(vec![panel(vec![second])])).svg().contains("dasharray"));
    }

    #[test]
    fn printed_values_near_the_curves_are_marked_and_others_are_written() {
        let mark = |value| Mark { label: "TRPO".into(), colour: 4, value };
        let curves = vec![curve("TRPO", 4, &[(0.0, 0.0), (10.0, 100.0)])];
        let marked = |value| CurvePanel { marks: vec![mark(value)], ..panel(curves.clone()) };
        let near = draw(&plot(vec![marked(110.0)]));
        assert!(!near.svg().contains("paper, above"));
        let far = draw(&plot(vec![marked(5000.0)]));
        assert!(far.svg().contains("paper, above: TRPO 5000"), "{}", far.svg());
        assert!(far.svg().contains("the paper prints 5000 for TRPO"));
    }

    #[test]
    fn panels_share_a_scale_only_where_the_figure_says_so() {
        let small = panel(vec![curve("a", 0, &[(0.0, 0.0), (1.0, 5.0)])]);
        let large = panel(vec![curve("a", 0, &[(0.0, 0.0), (1.0, 50.0)])]);
        let mut plot = plot(vec![small.clone(), large.clone()]);
        assert_ne!(vertical_domain(&plot, &small), vertical_domain(&plot, &large));
        plot.shared_scale = true;
        assert_eq!(vertical_domain(&plot, &small), vertical_domain(&plot, &large));
    }

    #[test]
    fn a_band_out_of_proportion_is_cut_and_the_figure_says_so() {
        let mut wide = curve("a", 0, &[(0.0, 0.0), (1.0, 5.0)]);
        assert!(
            !draw(&plot(vec![panel(vec![curve("a", 0, &[(0.0, 2.0), (1.0, 5.0)])])]))
                .svg()
                .contains(CUT_NOTE)
        );
        wide.points[1].band = Some(Interval { low: -500.0, high: 500.0 });
        let figure = draw(&plot(vec![panel(vec![wide])]));
        assert!(figure.svg().contains(CUT_NOTE));
        assert!(figure.svg().contains(">Deep-BQRL<") || figure.svg().contains(">a<"));
    }

    #[test]
    fn degenerate_curves_are_drawn() {
        let empty = Curve { points: vec![], ..curve("none", 1, &[]) };
        let flat = curve("flat", 2, &[(0.0, 0.0)]);
        for panels in [vec![], vec![panel(vec![])], vec![panel(vec![empty, flat])]] {
            let figure = draw(&plot(panels));
            assert!(!figure.svg().contains("NaN") && !figure.svg().contains("inf"), "{}", figure.svg());
            assert!(figure.png(1.0).is_ok());
        }
    }
}
