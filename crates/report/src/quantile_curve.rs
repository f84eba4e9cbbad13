//! The achieved quantile at every level, compared with the best possible one and that of a risk-neutral policy.
//!
//! ```text
//! x: level τ     y: Q_τ of the return of the policy for level τ
//! ```
//!
//! An agent that serves every level is a curve with a band; one trained for single levels is a mark with a bar at each.
//! All curves meet where τ → 1, so they are named in a legend and not at their ends.

use std::fmt::Write as _;

use crate::axis::{Scale, four_digits, padded, ticks};
use crate::curves::{REFERENCE_DASHES, band, polyline, with_cut_note};
use crate::figure::Figure;
use crate::page::{BOTTOM_MARGIN, Entry, Margin, Page, left_margin, x_axis, y_axis};
use crate::statistics::CurvePoint;
use crate::svg::{Fill, Marker, TICK, Tone};

/// Achieved quantiles of several methods, beside exact ones.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantileCurve {
    /// The headline.
    pub title: String,
    /// The name of the problem, and the number of seeds; below the headline.
    pub problem: String,
    /// Exact curves.
    pub exact: Vec<ExactCurve>,
    /// Learned ones.
    pub learned: Vec<Learned>,
    /// A note below the plot; may be empty.
    pub note: String,
}

/// Q_τ of an exact policy.
#[derive(Debug, Clone, PartialEq)]
pub struct ExactCurve {
    /// Its name.
    pub label: String,
    /// How it is drawn.
    pub role: Role,
    /// (τ, Q_τ), by τ.
    pub points: Vec<(f64, f64)>,
}

/// The policy of an exact curve.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The best possible quantile at each level.
    Best,
    /// The policy with the largest mean.
    RiskNeutral,
    /// The paper's rule, solved exactly.
    Rule,
}

/// Q_τ as it was learned.
#[derive(Debug, Clone, PartialEq)]
pub struct Learned {
    /// Name of the method.
    pub label: String,
    /// Which colour: the same number is the same colour in every figure.
    pub colour: usize,
    /// (τ, mean over seeds, interval), by τ.
    pub points: Vec<CurvePoint>,
    /// (τ, Q_τ) of each seed, drawn thin behind the mean.
    pub seeds: Vec<Vec<(f64, f64)>>,
    /// A curve over all levels, or marks at some.
    pub connected: bool,
}

const BAND: f64 = 0.16;
const MEAN: f64 = 2.0;
const MARK: f64 = 4.0;
const CAP: f64 = 3.5;
const BESIDE: f64 = 9.0;

impl Role {
    fn style(self) -> (Tone, f64, &'static str) {
        match self {
            // Dots: solved exactly, nothing was learned. The three differ in tone and width.
            Self::Best => (Tone::Ink, 1.8, REFERENCE_DASHES),
            Self::RiskNeutral => (Tone::Reference, 1.8, REFERENCE_DASHES),
            Self::Rule => (Tone::Muted, 0.9, REFERENCE_DASHES),
        }
    }
}

/// Draws the curves.
///
/// Every number is finite; anything else is a mistake of the caller.
pub fn draw(plot: &QuantileCurve) -> Figure {
    let domain = range(plot);
    let y_ticks = ticks(domain, 8);
    let x_ticks = ticks((0.0, 1.0), 10);
    let widest = y_ticks.iter().map(|tick| TICK.width(&tick.label)).fold(0.0, f64::max);
    let mut bands = plot.learned.iter().flat_map(|learned| &learned.points).filter_map(|point| point.band);
    let cut = bands.any(|band| band.low < domain.0 || band.high > domain.1);
    let note = with_cut_note(&plot.note, cut);
    let page = Page {
        title: &plot.title,
        problem: &plot.problem,
        legend: &legend(plot),
        headings: vec![""],
        note: &note,
        plot: (560.0, 300.0),
        margin: Margin { left: left_margin(widest), right: 14.0, top: 0.0, bottom: BOTTOM_MARGIN },
    };
    let (mut canvas, areas) = page.open();
    let area = areas[0];
    let x = Scale { domain: (0.0, 1.0), range: (area.left, area.right()) };
    let y = Scale { domain, range: (area.bottom(), area.top) };
    for tick in &y_ticks {
        let level = y.at(tick.value);
        canvas.line((area.left, level), (area.right(), level), Tone::Rule, 0.8, "");
    }
    let at = |&(tau, value): &(f64, f64)| (x.at(tau), y.at(value));
    for learned in plot.learned.iter().filter(|learned| learned.connected) {
        if let Some(band) = band(&held_points(&learned.points), x, y) {
            canvas.shape(&band, Fill::Tint(Tone::of_series(learned.colour), BAND));
        }
    }
    for exact in &plot.exact {
        let (tone, width, dashes) = exact.role.style();
        let path = match exact.role {
            Role::Rule => held(&exact.points),
            Role::Best | Role::RiskNeutral => steps(&exact.points),
        };
        canvas.curve(&polyline(path.iter().map(at)), tone, width, dashes);
    }
    // Marks of several methods at one level are drawn side by side.
    let marked = plot.learned.iter().filter(|learned| !learned.connected).count();
    let mut aside = -BESIDE * marked.saturating_sub(1) as f64 / 2.0;
    for learned in &plot.learned {
        let (tone, marker) = (Tone::of_series(learned.colour), Marker::of_series(learned.colour));
        if learned.connected {
            for seed in &learned.seeds {
                canvas.curve(&polyline(held(seed).iter().map(at)), tone, 0.5, "");
            }
            let mean: Vec<(f64, f64)> = learned.points.iter().map(|point| (point.x, point.mean)).collect();
            canvas.curve(&polyline(held(&mean).iter().map(at)), tone, MEAN, "");
        } else {
            for point in &learned.points {
                let centre = x.at(point.x) + aside;
                if let Some(band) = point.band {
                    let [low, high] = [band.low, band.high].map(|end| y.at(end.clamp(domain.0, domain.1)));
                    canvas.line((centre, low), (centre, high), tone, 1.4, "");
                    for (end, value) in [(low, band.low), (high, band.high)] {
                        // A bar that leaves the plot has no end in it.
                        if value < domain.0 || value > domain.1 {
                            continue;
                        }
                        canvas.line((centre - CAP, end), (centre + CAP, end), tone, 1.4, "");
                    }
                }
                canvas.marker(marker, (centre, y.at(point.mean)), MARK, tone, false);
            }
            aside += BESIDE;
        }
    }
    canvas.frame(area, Tone::Ink);
    x_axis(&mut canvas, area, &x_ticks, |value| x.at(value), "level τ");
    y_axis(&mut canvas, area, &y_ticks, |value| y.at(value), ("τ-quantile of the total return Q_τ", widest));
    canvas.finish(&format!("{}, {}", plot.title, plot.problem), &describe(plot, &note))
}

/// A step function known on a grid of levels; where it jumps between two of them, the jump is drawn halfway.
fn steps(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut path: Vec<(f64, f64)> = Vec::new();
    for &(tau, value) in points {
        if let Some(&(before, last)) = path.last()
            && last != value
        {
            let halfway = f64::midpoint(before, tau);
            path.extend([(halfway, last), (halfway, value)]);
        }
        path.push((tau, value));
    }
    path
}

/// A curve that holds each value until the next level.
///
/// Quantiles do not fall as the level rises, so the policy for one level attains at least this much up to the next level.
/// A line between the two would show more than is known, and could be above the best possible quantile.
fn held(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let mut path: Vec<(f64, f64)> = Vec::with_capacity(2 * points.len());
    for &(tau, value) in points {
        if let Some(&(_, last)) = path.last() {
            path.push((tau, last));
        }
        path.push((tau, value));
    }
    path
}

/// The same with intervals.
fn held_points(points: &[CurvePoint]) -> Vec<CurvePoint> {
    let mut path: Vec<CurvePoint> = Vec::with_capacity(2 * points.len());
    for &point in points {
        if let Some(&last) = path.last() {
            path.push(CurvePoint { x: point.x, ..last });
        }
        path.push(point);
    }
    path
}

/// The range of all values; intervals may leave it.
fn range(plot: &QuantileCurve) -> (f64, f64) {
    let exact = plot.exact.iter().flat_map(|exact| exact.points.iter().map(|point| point.1));
    let learned = plot.learned.iter().flat_map(|learned| learned.points.iter().map(|point| point.mean));
    let seeds = plot.learned.iter().flat_map(|learned| learned.seeds.iter().flatten().map(|point| point.1));
    let values: Vec<f64> = exact.chain(learned).chain(seeds).collect();
    let low = values.iter().copied().reduce(f64::min).unwrap_or(0.0);
    let high = values.iter().copied().reduce(f64::max).unwrap_or(1.0);
    padded(low, high)
}

fn legend(plot: &QuantileCurve) -> Vec<Entry> {
    let mut entries = Vec::new();
    for exact in &plot.exact {
        let (tone, width, dashes) = exact.role.style();
        entries.push(Entry::Line { tone, width, dashes, label: exact.label.clone() });
    }
    for learned in &plot.learned {
        let (tone, marker) = (Tone::of_series(learned.colour), Marker::of_series(learned.colour));
        let label = learned.label.clone();
        entries.push(if learned.connected {
            Entry::Line { tone, width: MEAN, dashes: "", label }
        } else {
            Entry::Marker { tone, marker, label }
        });
    }
    entries
}

fn describe(plot: &QuantileCurve, note: &str) -> String {
    let mut text = String::from("Achieved quantile of the return against its level.");
    for learned in &plot.learned {
        let _ = write!(text, " {}:", learned.label);
        // A few numbers are enough for a screen reader.
        let step = learned.points.len().div_ceil(5).max(1);
        for point in learned.points.iter().step_by(step) {
            let _ = write!(text, " {} at τ = {};", four_digits(point.mean), four_digits(point.x));
        }
    }
    format!("{text} {note}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bqrl_math::Interval;

    fn learned(connected: bool) -> Learned {
        let point = |x: f64| CurvePoint { x, mean: x, band: Some(Interval { low: x - 9.0, high: x + 0.1 }) };
        Learned {
            label: "Deep-BQRL".into(),
            colour: 0,
            points: vec![point(0.1), point(0.9)],
            seeds: vec![vec![(0.1, 0.0), (0.9, 1.0)]],
            connected,
        }
    }

    fn plot(learned: Vec<Learned>) -> QuantileCurve {
        QuantileCurve {
            title: "Achieved quantiles".into(),
            problem: "coin".into(),
            exact: vec![ExactCurve {
                label: "best possible".into(),
                role: Role::Best,
                points: vec![(0.01, 0.0), (0.99, 1.0)],
            }],
            learned,
            note: String::new(),
        }
    }

    #[test]
    fn the_range_holds_every_value_but_not_every_interval() {
        let (low, high) = range(&plot(vec![learned(true)]));
        assert!(low < 0.0 && low > -1.0 && high > 1.0 && high < 2.0);
    }

    #[test]
    fn curves_and_marks_are_told_apart() {
        let marks = draw(&plot(vec![learned(false)]));
        let curve = draw(&plot(vec![learned(true)]));
        // One in the legend, two in the plot.
        assert_eq!(marks.svg().matches("<circle").count(), 3);
        assert_eq!(curve.svg().matches("<circle").count(), 0);
        assert_eq!(curve.svg().matches("fill-opacity").count(), 1);
        for figure in [marks, curve] {
            assert!(!figure.svg().contains("NaN"));
        }
    }

    #[test]
    fn exact_curves_jump_halfway_between_levels() {
        let path = steps(&[(0.1, 0.0), (0.2, 0.0), (0.4, 1.0)]);
        let jump = f64::midpoint(0.2, 0.4);
        assert_eq!(path, [(0.1, 0.0), (0.2, 0.0), (jump, 0.0), (jump, 1.0), (0.4, 1.0)]);
    }

    #[test]
    fn learned_curves_hold_their_value_and_never_pass_above_the_best() {
        assert_eq!(held(&[(0.1, 0.0), (0.3, 1.0)]), [(0.1, 0.0), (0.3, 0.0), (0.3, 1.0)]);
        let points: Vec<CurvePoint> =
            [(0.1, 0.0), (0.3, 1.0)].map(|(x, mean)| CurvePoint { x, mean, band: None }).to_vec();
        let means: Vec<(f64, f64)> = held_points(&points).iter().map(|point| (point.x, point.mean)).collect();
        assert_eq!(means, held(&[(0.1, 0.0), (0.3, 1.0)]));
        // The best quantile jumps at 0.29; an agent that is best at the levels 0.1 and 0.3 stays below it in between.
        let best: Vec<(f64, f64)> =
            (10..=30).map(|k| (f64::from(k) / 100.0, f64::from(u8::from(k >= 29)))).collect();
        let at = |path: &[(f64, f64)], tau: f64| path.iter().rev().find(|point| point.0 <= tau).unwrap().1;
        let (agent, best) = (held(&[(0.1, 0.0), (0.3, 1.0)]), steps(&best));
        assert!((100..300).all(|k| at(&agent, f64::from(k) / 1000.0) <= at(&best, f64::from(k) / 1000.0)));
    }

    #[test]
    fn an_empty_plot_is_drawn() {
        let mut empty = plot(vec![]);
        empty.exact.clear();
        assert!(draw(&empty).png(1.0).is_ok());
    }
}
