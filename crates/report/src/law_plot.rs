//! The return law of a policy, with its quantile and its buffered quantile.
//!
//! ```text
//! curve   P(R ≤ w)                       Q_τ     the lowest w with P(R ≤ w) ≥ τ
//! band    the buffer window [τ−β, τ]     Q_τ^β   the mean of the quantiles in the window
//! ```
//!
//! Q_τ is marked where the curve crosses τ, Q_τ^β at half the height of the window it averages over.
//! Both values are written above the plot, at the top of their guides, where no curve crosses them.
//! All panels share one range of returns. Where far tails would make the rest too narrow, the range is cut and the
//! figure says so.

use std::fmt::Write as _;

use crate::axis::{Scale, four_digits, padded, ticks, ticks_that_fit};
use crate::figure::Figure;
use crate::page::{BOTTOM_MARGIN, Entry, Margin, Page, columns, left_margin, x_axis, y_axis};
use crate::svg::{Anchor, Area, Canvas, Fill, LABEL, Lettering, TICK, Tone, number};

/// The return laws of one problem, a panel for each level.
#[derive(Debug, Clone, PartialEq)]
pub struct LawPlot {
    /// The headline.
    pub title: String,
    /// The name of the problem, below the headline.
    pub problem: String,
    /// The name of the policy in the legend: "planned policy".
    pub policy: String,
    /// One plot each, side by side.
    pub panels: Vec<LawPanel>,
    /// A note below the plots; may be empty.
    pub note: String,
}

/// The law at one level.
#[derive(Debug, Clone, PartialEq)]
pub struct LawPanel {
    /// The line above the plot; `_τ` and `^β` are set as indices.
    pub heading: String,
    /// The returns that can occur, in any order.
    pub values: Vec<f64>,
    /// The probability of each of `values`.
    pub probabilities: Vec<f64>,
    /// Name, values and probabilities of at most two other laws to compare with.
    pub references: Vec<(String, Vec<f64>, Vec<f64>)>,
    /// The target level τ.
    pub tau: f64,
    /// The width β of the buffer window; without one only the level is drawn.
    pub beta: Option<f64>,
    /// Q_τ of the law.
    pub quantile: f64,
    /// Q_τ^β of the law.
    pub buffered: Option<f64>,
}

/// The width of the labels of τ and τ−β.
const MARGIN_RIGHT: f64 = 28.0;
const BAND: f64 = 0.28;
pub(crate) const CURVE: f64 = 2.2;
/// The first and the second law to compare with.
const REFERENCES: [(Tone, f64, &str); 2] = [(Tone::Reference, 1.3, "5 3"), (Tone::Amber, 1.4, "2 2")];
const GUIDE: (f64, &str) = (1.0, "2 3");
const VALUE_ROW: f64 = 15.0;
const MARK_RADIUS: (f64, f64) = (4.0, 5.0);

/// Draws the laws.
///
/// Every value is finite and has a probability; anything else is a mistake of the caller.
pub fn draw(plot: &LawPlot) -> Figure {
    let laws: Vec<Law> =
        plot.panels.iter().map(|panel| Law::new(&panel.values, &panel.probabilities)).collect();
    let references: Vec<Vec<Law>> = plot
        .panels
        .iter()
        .map(|panel| panel.references.iter().map(|(_, values, chances)| Law::new(values, chances)).collect())
        .collect();
    let all: Vec<&Law> = laws.iter().chain(references.iter().flatten()).collect();
    let (domain, cut) = shared_range(&plot.panels, &all);

    let y_ticks = ticks((0.0, 1.0), 5);
    let widest = y_ticks.iter().map(|tick| TICK.width(&tick.label)).fold(0.0, f64::max);
    let (width, height) = ([500.0, 370.0, 270.0][columns(plot.panels.len()) - 1], 260.0);
    // The number of rows that its values take does not depend on the position of a panel.
    let anywhere = Area { left: 0.0, top: 0.0, width, height };
    let x = Scale { domain, range: (0.0, width) };
    let all_values = plot.panels.iter().flat_map(|panel| values(anywhere, x, panel));
    let rows = 1.0 + all_values.map(|value| value.row).fold(0.0, f64::max);
    let note = match (cut, plot.note.is_empty()) {
        (false, _) => plot.note.clone(),
        (true, true) => CUT_NOTE.to_owned(),
        (true, false) => format!("{}; {CUT_NOTE}", plot.note.trim_end_matches('.')),
    };
    let page = Page {
        title: &plot.title,
        problem: &plot.problem,
        legend: &legend(plot),
        headings: plot.panels.iter().map(|panel| panel.heading.as_str()).collect(),
        note: &note,
        plot: (width, height),
        margin: Margin {
            left: left_margin(widest),
            right: 30.0,
            top: rows * VALUE_ROW,
            bottom: BOTTOM_MARGIN,
        },
    };
    let (mut canvas, areas) = page.open();

    for (((panel, law), references), &area) in plot.panels.iter().zip(&laws).zip(&references).zip(&areas) {
        let x = Scale { domain, range: (area.left, area.right()) };
        let y = Scale { domain: (-0.02, 1.03), range: (area.bottom(), area.top) };
        let x_ticks = ticks_that_fit(domain, area.width, &TICK);
        for tick in &y_ticks {
            let level = y.at(tick.value);
            canvas.line((area.left, level), (area.right(), level), Tone::Rule, 0.8, "");
        }
        draw_window(&mut canvas, area, y, panel.tau, panel.beta);
        draw_guides(&mut canvas, area, x, panel);
        canvas.curve(&law.steps(x, y), Tone::Planned, CURVE, "");
        // On top, so that its dashes show where the two laws coincide.
        for (reference, (tone, width, dashes)) in references.iter().zip(REFERENCES) {
            canvas.curve(&reference.steps(x, y), tone, width, dashes);
        }
        if let Some(buffered) = panel.buffered {
            let level = panel.tau - panel.beta.unwrap_or(0.0) / 2.0;
            canvas.diamond((x.at(buffered), y.at(level)), MARK_RADIUS.1, Tone::Buffered);
        }
        canvas.circle((x.at(panel.quantile), y.at(panel.tau)), MARK_RADIUS.0, Tone::Quantile);
        canvas.frame(area, Tone::Ink);
        x_axis(&mut canvas, area, &x_ticks, |value| x.at(value), "total return R");
        let title = ("cumulative probability P(R ≤ w)", widest);
        y_axis(&mut canvas, area, &y_ticks, |value| y.at(value), title);
    }
    canvas.finish(&format!("{}, {}", plot.title, plot.problem), &describe(plot, &note))
}

const CUT_NOTE: &str = "the range of returns is cut to the central 99.8 % of each law";

fn describe(plot: &LawPlot, note: &str) -> String {
    let mut text = String::from("Cumulative distribution of the total return, one panel per level.");
    for panel in &plot.panels {
        let _ = write!(
            text,
            " {}: {} returns, quantile at level {} is {}",
            panel.heading,
            panel.values.len(),
            panel.tau,
            four_digits(panel.quantile)
        );
        if let Some(buffered) = panel.buffered {
            let _ = write!(text, ", buffered quantile is {}", four_digits(buffered));
        }
        text.push('.');
    }
    format!("{text} {note}")
}

fn legend(plot: &LawPlot) -> Vec<Entry> {
    let mut entries =
        vec![Entry::Line { tone: Tone::Planned, width: CURVE, dashes: "", label: plot.policy.clone() }];
    let mut named: Vec<&str> = Vec::new();
    for panel in &plot.panels {
        for ((name, _, _), (tone, width, dashes)) in panel.references.iter().zip(REFERENCES) {
            if !named.contains(&name.as_str()) {
                named.push(name);
                entries.push(Entry::Line { tone, width, dashes, label: name.clone() });
            }
        }
    }
    if plot.panels.iter().any(|panel| panel.beta.is_some()) {
        let label = "buffer window [τ−β, τ]".to_owned();
        entries.push(Entry::Band { tone: Tone::Window, opacity: BAND, label });
    }
    if plot.panels.iter().any(|panel| panel.beta.is_none()) {
        entries
            .push(Entry::Line { tone: Tone::Window, width: 1.2, dashes: "", label: "level τ".to_owned() });
    }
    if !plot.panels.is_empty() {
        entries.push(Entry::Circle { tone: Tone::Quantile, label: "quantile Q_τ".to_owned() });
    }
    if plot.panels.iter().any(|panel| panel.buffered.is_some()) {
        entries.push(Entry::Diamond { tone: Tone::Buffered, label: "buffered quantile Q_τ^β".to_owned() });
    }
    entries
}

/// The level τ, and the window below it.
pub(crate) fn draw_window(canvas: &mut Canvas, area: Area, y: Scale, level: f64, beta: Option<f64>) {
    let tau = y.at(level);
    let beside = Lettering { anchor: Anchor::Start, ..TICK };
    if let Some(beta) = beta {
        let low = y.at(level - beta);
        canvas.rect(Area { top: tau, height: low - tau, ..area }, Fill::Tint(Tone::Window, BAND));
        // A window too thin for two labels keeps the one of τ.
        if low - tau >= 10.0 {
            canvas.text((area.right() + 4.0, low + 3.6), "τ−β", &beside);
        }
    }
    canvas.line((area.left, tau), (area.right(), tau), Tone::Window, 1.2, "");
    canvas.text((area.right() + 4.0, tau + 3.6), "τ", &beside);
}

/// Which side of its guide a value is written on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Left,
    Right,
}

/// A value written above the plot, at the top of its guide.
#[derive(Debug)]
struct Value {
    at: f64,
    label: String,
    tone: Tone,
    side: Side,
    /// Counted upwards from the plot.
    row: f64,
}

/// Q_τ and Q_τ^β of a panel.
fn values(area: Area, x: Scale, panel: &LawPanel) -> Vec<Value> {
    let quantile = (x.at(panel.quantile), format!("Q_τ = {}", four_digits(panel.quantile)), Tone::Quantile);
    let mut marks = vec![quantile];
    if let Some(buffered) = panel.buffered {
        let mark = (x.at(buffered), format!("Q_τ^β = {}", four_digits(buffered)), Tone::Buffered);
        // Q_τ^β ≤ Q_τ up to rounding, and at the same place it still comes first.
        let first = mark.0 <= marks[0].0 + 0.5;
        marks.insert(usize::from(!first), mark);
    }
    let spans: Vec<(f64, f64)> = marks.iter().map(|(at, label, _)| (*at, LABEL.width(label) + 4.0)).collect();
    let placed = marks.into_iter().zip(places(area, &spans));
    placed.map(|((at, label, tone), (side, row))| Value { at, label, tone, side, row }).collect()
}

fn draw_guides(canvas: &mut Canvas, area: Area, x: Scale, panel: &LawPanel) {
    for Value { at, label, tone, side, row } in values(area, x, panel) {
        let baseline = area.top - 5.0 - VALUE_ROW * row;
        canvas.line((at, baseline - 8.0), (at, area.bottom()), tone, GUIDE.0, GUIDE.1);
        let (offset, anchor) = match side {
            Side::Left => (-4.0, Anchor::End),
            Side::Right => (4.0, Anchor::Start),
        };
        canvas.text((at + offset, baseline), &label, &Lettering { tone, anchor, ..LABEL });
    }
}

/// The side and the row of one value or two, given as (position, width) from the left.
///
/// Two values are written away from each other unless that leaves the panel; a single one goes right if it can.
/// A value that had to be written towards the other goes above it, so that neither the texts meet, nor a text and
/// the other's guide.
fn places(area: Area, values: &[(f64, f64)]) -> Vec<(Side, f64)> {
    let left_if = |left: bool| if left { Side::Left } else { Side::Right };
    let overflows = |&(at, width): &(f64, f64)| at + width > area.right() + MARGIN_RIGHT;
    match values {
        [low, high] => {
            let sides = [left_if(low.0 - low.1 >= area.left), left_if(overflows(high))];
            let rows = match sides {
                [Side::Left, Side::Right] => [0.0, 0.0],
                [_, Side::Left] => [0.0, 1.0],
                [Side::Right, Side::Right] => [1.0, 0.0],
            };
            sides.into_iter().zip(rows).collect()
        }
        _ => values.iter().map(|value| (left_if(overflows(value)), 0.0)).collect(),
    }
}

/// A discrete law, ordered.
#[derive(Debug)]
pub(crate) struct Law {
    /// Value and probability, the value not decreasing.
    atoms: Vec<(f64, f64)>,
}

impl Law {
    pub fn new(values: &[f64], probabilities: &[f64]) -> Self {
        assert_eq!(values.len(), probabilities.len(), "values and probabilities of a law");
        let mut atoms: Vec<(f64, f64)> = values.iter().copied().zip(probabilities.iter().copied()).collect();
        for (value, probability) in &atoms {
            assert!(
                value.is_finite() && probability.is_finite(),
                "atom {value} with probability {probability}"
            );
        }
        atoms.sort_by(|a, b| a.0.total_cmp(&b.0));
        Self { atoms }
    }

    /// The lowest and highest value after `tail` of the probability is cut off each end.
    pub fn span(&self, tail: f64) -> Option<(f64, f64)> {
        first_beyond(tail, self.atoms.iter()).zip(first_beyond(tail, self.atoms.iter().rev()))
    }

    /// The curve P(R ≤ w) as an SVG path over the whole width of the plot.
    pub fn steps(&self, x: Scale, y: Scale) -> String {
        let (left, right) = x.range;
        let mut cumulative = 0.0;
        let mut steps: Vec<(f64, f64)> = vec![(left, 0.0)];
        for (value, probability) in &self.atoms {
            cumulative += probability;
            let at = x.at(*value).max(left);
            if at > right {
                break;
            }
            // Steps that are too close to see are merged, so that thousands of atoms make a short path.
            match steps.last_mut() {
                Some(last) if at - last.0 < 0.2 => last.1 = cumulative,
                _ => steps.push((at, cumulative)),
            }
        }
        let mut path = format!("M{} {}", number(left), number(y.at(steps[0].1)));
        for (at, level) in &steps[1..] {
            let _ = write!(path, "H{}V{}", number(*at), number(y.at(*level)));
        }
        let _ = write!(path, "H{}", number(right));
        path
    }
}

/// The first value at which more than `tail` of the probability is collected.
fn first_beyond<'a>(tail: f64, mut atoms: impl Iterator<Item = &'a (f64, f64)>) -> Option<f64> {
    let mut collected = 0.0;
    let reached = atoms.find(|(_, probability)| {
        collected += probability;
        collected > tail
    });
    reached.map(|(value, _)| *value)
}

/// One range for all panels, and whether it leaves out tails.
fn shared_range(panels: &[LawPanel], laws: &[&Law]) -> ((f64, f64), bool) {
    let marks = panels.iter().flat_map(|panel| [Some(panel.quantile), panel.buffered]).flatten();
    let marks: Vec<(f64, f64)> = marks.map(|mark| (mark, mark)).collect();
    let range = |tail: f64| {
        let spans = laws.iter().filter_map(|law| law.span(tail)).chain(marks.iter().copied());
        spans.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0.0, 1.0))
    };
    let (whole, central) = (range(0.0), range(0.001));
    // Tails that take less than a third of the plot are shown.
    let cut = whole.1 - whole.0 > 1.5 * (central.1 - central.0) && central.1 > central.0;
    let (low, high) = if cut { central } else { whole };
    (padded(low, high), cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(values: &[f64], probabilities: &[f64]) -> LawPanel {
        LawPanel {
            heading: "τ = 0.5".to_owned(),
            values: values.to_vec(),
            probabilities: probabilities.to_vec(),
            references: Vec::new(),
            tau: 0.5,
            beta: Some(0.1),
            quantile: values[0],
            buffered: None,
        }
    }

    fn plot(panels: Vec<LawPanel>) -> LawPlot {
        LawPlot {
            title: "Return law".to_owned(),
            problem: "coin".to_owned(),
            policy: "planned policy".to_owned(),
            panels,
            note: String::new(),
        }
    }

    const UNIT: (Scale, Scale) = (
        Scale { domain: (-1.0, 2.0), range: (0.0, 300.0) },
        Scale { domain: (0.0, 1.0), range: (100.0, 0.0) },
    );

    #[test]
    fn the_curve_steps_up_at_each_atom() {
        // Atoms 0 and 1 with 1/4 and 3/4, given out of order: from the left edge at 0, up by 25 at x = 100, by 75 at 200.
        let law = Law::new(&[1.0, 0.0], &[0.75, 0.25]);
        assert_eq!(law.steps(UNIT.0, UNIT.1), "M0 100H100V75H200V0H300");
    }

    #[test]
    fn atoms_left_of_the_range_count_and_those_to_the_right_do_not() {
        let law = Law::new(&[-5.0, 0.0, 9.0], &[0.25, 0.25, 0.5]);
        assert_eq!(law.steps(UNIT.0, UNIT.1), "M0 75H100V50H300");
    }

    #[test]
    fn thousands_of_atoms_make_a_short_path_that_ends_at_one() {
        let values: Vec<f64> = (0..50_000).map(|k| f64::from(k) / 50_000.0).collect();
        let path = Law::new(&values, &vec![1.0 / 50_000.0; 50_000]).steps(UNIT.0, UNIT.1);
        assert!(path.len() < 12_000, "{}", path.len());
        assert!(path.ends_with("V0H300"), "{}", &path[path.len() - 30..]);
    }

    #[test]
    fn far_tails_are_cut_and_the_figure_says_so() {
        let near = plot(vec![panel(&[0.0, 1.0, 1.2], &[0.5, 0.4999, 0.0001])]);
        assert!(!draw(&near).svg().contains(CUT_NOTE));
        let far = plot(vec![panel(&[0.0, 1.0, 1000.0], &[0.5, 0.4999, 0.0001])]);
        assert!(draw(&far).svg().contains(CUT_NOTE));
    }

    #[test]
    fn marks_are_inside_the_range_even_in_a_tail_that_is_cut() {
        let mut tail = panel(&[-1000.0, 0.0, 1.0], &[0.0001, 0.5, 0.4999]);
        tail.quantile = -1000.0;
        let law = Law::new(&tail.values, &tail.probabilities);
        let ((low, _), _) = shared_range(&[tail], &[&law]);
        assert!(low < -1000.0);
    }

    #[test]
    fn values_never_leave_the_panel_nor_meet_each_other() {
        let area = Area { left: 50.0, top: 0.0, width: 270.0, height: 260.0 };
        for a in 0..=54 {
            for b in a..=54 {
                let values = [(50.0 + 5.0 * f64::from(a), 92.0), (50.0 + 5.0 * f64::from(b), 84.0)];
                let places = places(area, &values);
                let texts: Vec<(f64, f64)> = values
                    .iter()
                    .zip(&places)
                    .map(|(&(at, width), (side, _))| match side {
                        Side::Left => (at - width, at),
                        Side::Right => (at, at + width),
                    })
                    .collect();
                let inside = |text: &(f64, f64)| text.0 >= area.left && text.1 <= area.right() + MARGIN_RIGHT;
                assert!(texts.iter().all(inside), "{values:?} {places:?}");
                let same_row = places[0].1 == places[1].1;
                assert!(!same_row || texts[0].1 <= texts[1].0, "{values:?} {places:?}");
                // The guide of the upper value passes the row of the lower one.
                let (upper, lower) = if places[0].1 > places[1].1 { (0, 1) } else { (1, 0) };
                let through = values[upper].0 > texts[lower].0 && values[upper].0 < texts[lower].1;
                assert!(same_row || !through, "{values:?} {places:?}");
            }
        }
    }

    #[test]
    fn the_legend_names_what_is_drawn_and_nothing_else() {
        let mut one = panel(&[0.0, 1.0], &[0.5, 0.5]);
        let svg = draw(&plot(vec![one.clone()])).svg().to_owned();
        assert!(
            svg.contains("buffer window [τ−β, τ]") && !svg.contains("level τ<") && !svg.contains(">buffered")
        );
        one.beta = None;
        for name in ["your rule", "risk-neutral policy"] {
            one.references.push((name.to_owned(), vec![0.0], vec![1.0]));
        }
        let svg = draw(&plot(vec![one.clone(), one])).svg().to_owned();
        assert!(!svg.contains("buffer window") && svg.contains("level τ<"));
        for name in ["your rule", "risk-neutral policy"] {
            assert_eq!(svg.matches(name).count(), 1, "once for two panels");
        }
    }

    #[test]
    fn degenerate_laws_are_drawn() {
        let mut empty = panel(&[0.0], &[1.0]);
        empty.values.clear();
        empty.probabilities.clear();
        let constant = panel(&[-3.0], &[1.0]);
        for panels in [vec![], vec![empty], vec![constant]] {
            let figure = draw(&plot(panels));
            assert!(!figure.svg().contains("NaN") && !figure.svg().contains("inf"), "{}", figure.svg());
            assert!(figure.png(1.0).is_ok());
        }
    }

    #[test]
    fn the_same_law_gives_the_same_bytes() {
        let plot = plot(vec![panel(&[0.0, 0.3, 1.0], &[0.2, 0.3, 0.5])]);
        assert_eq!(draw(&plot), draw(&plot));
    }

    #[test]
    #[should_panic(expected = "values and probabilities of a law")]
    fn a_value_without_probability_is_refused() {
        draw(&plot(vec![panel(&[0.0, 1.0], &[1.0])]));
    }
}
