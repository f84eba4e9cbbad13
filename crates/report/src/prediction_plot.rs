//! Quantiles of the return that the critics predict at the start, and the law of the return.
//!
//! ```text
//! curve   P(R ≤ w) of the final policy        band   the buffer window [τ−β, τ]
//! dots    (mean over critics of z̃_j, η_j)     bars   from the lowest to the highest critic
//! ```
//!
//! Only the action with the highest mean score is drawn with dots and bars, because the policy with this law would take it.
//! The other actions are thin lines; their predictions do not have to be on the curve.

use std::fmt::Write as _;

use crate::axis::{Scale, four_digits, padded, ticks, ticks_that_fit};
use crate::curves::polyline;
use crate::figure::Figure;
use crate::law_plot::{CURVE, Law, draw_window};
use crate::page::{BOTTOM_MARGIN, Entry, Margin, Page, columns, left_margin, x_axis, y_axis};
use crate::svg::{TICK, Tone};

/// Laws and predictions of one method, a panel for each level or seed.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionPlot {
    /// The headline.
    pub title: String,
    /// The name of the problem, below the headline.
    pub problem: String,
    /// One plot each, side by side.
    pub panels: Vec<PredictionPanel>,
    /// A note below the plots; may be empty.
    pub note: String,
}

/// The law and the predictions of one trained agent.
#[derive(Debug, Clone, PartialEq)]
pub struct PredictionPanel {
    /// The line above the plot; `_τ` and `^β` are set as indices.
    pub heading: String,
    /// The returns that can occur, in any order.
    pub values: Vec<f64>,
    /// The probability of each of `values`.
    pub probabilities: Vec<f64>,
    /// The target level τ.
    pub tau: f64,
    /// The width β of the buffer window.
    pub beta: f64,
    /// Q_τ of the law.
    pub quantile: f64,
    /// Predictions, the action with the highest mean score first; none from an agent without critics.
    pub actions: Vec<ActionPrediction>,
}

/// The predictions of an ensemble for one action.
#[derive(Debug, Clone, PartialEq)]
pub struct ActionPrediction {
    /// Name of the action.
    pub action: String,
    /// η_j, ascending.
    pub levels: Vec<f64>,
    /// z̃ of every critic, ascending, one value per level.
    pub critics: Vec<Vec<f64>>,
}

impl ActionPrediction {
    /// Level, mean over critics, lowest, highest.
    fn spread(&self) -> Vec<(f64, f64, f64, f64)> {
        let at = |(j, &level): (usize, &f64)| {
            let values = self.critics.iter().map(|critic| critic[j]);
            let (mut sum, mut low, mut high) = (0.0, f64::INFINITY, f64::NEG_INFINITY);
            for value in values {
                sum += value;
                low = low.min(value);
                high = high.max(value);
            }
            (level, sum / self.critics.len() as f64, low, high)
        };
        self.levels.iter().enumerate().map(at).collect()
    }
}

const DOT: f64 = 2.4;
const CAP: f64 = 4.0;
const OTHER: (f64, &str) = (0.9, "3 2");

/// Draws laws and predictions.
///
/// Every value is finite and has a probability, every critic a value per level; anything else is a mistake of the caller.
pub fn draw(plot: &PredictionPlot) -> Figure {
    for prediction in plot.panels.iter().flat_map(|panel| &panel.actions) {
        for critic in &prediction.critics {
            assert_eq!(critic.len(), prediction.levels.len(), "values of a critic, want one per level");
        }
    }
    let laws: Vec<Law> =
        plot.panels.iter().map(|panel| Law::new(&panel.values, &panel.probabilities)).collect();
    let domain = range(plot, &laws);
    let y_ticks = ticks((0.0, 1.0), 5);
    let widest = y_ticks.iter().map(|tick| TICK.width(&tick.label)).fold(0.0, f64::max);
    let page = Page {
        title: &plot.title,
        problem: &plot.problem,
        legend: &legend(plot),
        headings: plot.panels.iter().map(|panel| panel.heading.as_str()).collect(),
        note: &plot.note,
        plot: ([500.0, 370.0, 270.0][columns(plot.panels.len()) - 1], 260.0),
        margin: Margin { left: left_margin(widest), right: 30.0, top: 0.0, bottom: BOTTOM_MARGIN },
    };
    let (mut canvas, areas) = page.open();
    for ((panel, law), &area) in plot.panels.iter().zip(&laws).zip(&areas) {
        let x = Scale { domain, range: (area.left, area.right()) };
        let y = Scale { domain: (-0.02, 1.03), range: (area.bottom(), area.top) };
        for tick in &y_ticks {
            let level = y.at(tick.value);
            canvas.line((area.left, level), (area.right(), level), Tone::Rule, 0.8, "");
        }
        draw_window(&mut canvas, area, y, panel.tau, Some(panel.beta));
        canvas.curve(&law.steps(x, y), Tone::Planned, CURVE, "");
        let inside = |value: f64| x.at(value.clamp(domain.0, domain.1));
        for other in panel.actions.iter().skip(1) {
            let spread = other.spread().into_iter();
            let visible = spread.filter(|&(_, mean, _, _)| domain.0 <= mean && mean <= domain.1);
            let points = visible.map(|(level, mean, _, _)| (x.at(mean), y.at(level)));
            canvas.curve(&polyline(points), Tone::Reference, OTHER.0, OTHER.1);
        }
        for (level, mean, low, high) in
            panel.actions.first().map(ActionPrediction::spread).unwrap_or_default()
        {
            let height = y.at(level);
            canvas.line((inside(low), height), (inside(high), height), Tone::Quantile, 1.4, "");
            for end in [inside(low), inside(high)] {
                canvas.line((end, height - CAP), (end, height + CAP), Tone::Quantile, 1.2, "");
            }
            canvas.circle((inside(mean), height), DOT, Tone::Quantile);
        }
        canvas.frame(area, Tone::Ink);
        let x_ticks = ticks_that_fit(domain, area.width, &TICK);
        x_axis(&mut canvas, area, &x_ticks, |value| x.at(value), "total return R");
        y_axis(&mut canvas, area, &y_ticks, |value| y.at(value), ("cumulative probability P(R ≤ w)", widest));
    }
    canvas.finish(&format!("{}, {}", plot.title, plot.problem), &describe(plot))
}

/// One range for all panels: the central part of the laws, and the predictions of the action that is taken.
fn range(plot: &PredictionPlot, laws: &[Law]) -> (f64, f64) {
    let laws = laws.iter().filter_map(|law| law.span(0.001));
    let predicted = plot.panels.iter().filter_map(|panel| panel.actions.first());
    let predicted = predicted.flat_map(ActionPrediction::spread).map(|(_, _, low, high)| (low, high));
    let whole = laws.chain(predicted).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let (low, high) = whole.unwrap_or((0.0, 1.0));
    padded(low, high)
}

fn legend(plot: &PredictionPlot) -> Vec<Entry> {
    let mut entries = vec![
        Entry::Line {
            tone: Tone::Planned,
            width: CURVE,
            dashes: "",
            label: "law of the final policy".to_owned(),
        },
        Entry::Band { tone: Tone::Window, opacity: 0.28, label: "buffer window [τ−β, τ]".to_owned() },
    ];
    let first = |panel: &PredictionPanel| panel.actions.first().map(|action| action.critics.len());
    if let Some(critics) = plot.panels.iter().find_map(first) {
        let label = match critics {
            1 => "predicted for the action with the highest score".to_owned(),
            _ => format!(
                "predicted for the action with the highest score: mean and range of {critics} critics"
            ),
        };
        entries.push(Entry::Circle { tone: Tone::Quantile, label });
    }
    if plot.panels.iter().any(|panel| panel.actions.len() > 1) {
        let (width, dashes) = OTHER;
        let label = "predicted for other actions".to_owned();
        entries.push(Entry::Line { tone: Tone::Reference, width, dashes, label });
    }
    entries
}

fn describe(plot: &PredictionPlot) -> String {
    let mut text = String::from("Cumulative distribution of the total return, and predicted quantiles.");
    for panel in &plot.panels {
        let quantile = four_digits(panel.quantile);
        let _ = write!(text, " {}: quantile at level {} is {quantile}", panel.heading, panel.tau);
        if let Some(taken) = panel.actions.first() {
            let _ = write!(text, ", action with the highest score: {}", taken.action);
        }
        text.push('.');
    }
    format!("{text} {}", plot.note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panel(actions: Vec<ActionPrediction>) -> PredictionPanel {
        PredictionPanel {
            heading: "τ = 0.5".into(),
            values: vec![0.0, 1.0],
            probabilities: vec![0.25, 0.75],
            tau: 0.5,
            beta: 0.1,
            quantile: 1.0,
            actions,
        }
    }

    fn plot(panels: Vec<PredictionPanel>) -> PredictionPlot {
        PredictionPlot { title: "Laws".into(), problem: "coin".into(), panels, note: String::new() }
    }

    fn prediction(critics: &[[f64; 2]]) -> ActionPrediction {
        ActionPrediction {
            action: "go".into(),
            levels: vec![0.25, 0.75],
            critics: critics.iter().map(|critic| critic.to_vec()).collect(),
        }
    }

    #[test]
    fn the_spread_is_mean_and_range_over_critics() {
        let spread = prediction(&[[0.0, 1.0], [0.5, 2.0]]).spread();
        assert_eq!(spread, [(0.25, 0.25, 0.0, 0.5), (0.75, 1.5, 1.0, 2.0)]);
    }

    #[test]
    fn only_the_action_taken_has_dots() {
        let both = vec![prediction(&[[0.0, 1.0], [0.5, 1.2]]), prediction(&[[0.1, 0.2], [0.3, 0.4]])];
        let figure = draw(&plot(vec![panel(both)]));
        // One in the legend, one per level.
        assert_eq!(figure.svg().matches("<circle").count(), 3);
        assert!(figure.svg().contains("mean and range of 2 critics"));
        assert!(figure.svg().contains("other actions"));
    }

    #[test]
    fn a_law_without_predictions_is_drawn_and_none_are_named() {
        let figure = draw(&plot(vec![panel(vec![])]));
        assert!(!figure.svg().contains("predicted for") && !figure.svg().contains("<circle"));
        assert!(draw(&plot(vec![])).png(1.0).is_ok());
    }

    #[test]
    fn predictions_of_other_actions_do_not_stretch_the_range() {
        let wild = vec![prediction(&[[0.0, 1.0]]), prediction(&[[-900.0, 900.0]])];
        let (low, high) = range(&plot(vec![panel(wild)]), &[Law::new(&[0.0, 1.0], &[0.25, 0.75])]);
        assert!(low > -1.0 && high < 2.0);
    }
}
