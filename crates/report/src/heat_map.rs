//! A heat map: a number over two settings, as colour.
//!
//! ```text
//! x: the columns, in order      y: the rows, the first at the bottom      colour: the number, from 0 to the largest of all
//! ```
//!
//! One scale for all panels, so that equal colours are equal numbers. The ramp is viridis, which colour-blind readers can
//! order; it is the same in light and dark. A cell without a number is hatched.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::axis::{Tick, four_digits, label_every};
use crate::figure::Figure;
use crate::page::{BOTTOM_MARGIN, Entry, Margin, Page, columns, left_margin, x_axis, y_axis};
use crate::policy_map::ramp;
use crate::svg::{Fill, Lettering, TICK, Tone};

/// Numbers over two settings, a map each.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatMap {
    /// The headline.
    pub title: String,
    /// The meaning of the colour; below the headline.
    pub measure: String,
    /// Title of the horizontal axis, and the labels of the columns.
    pub columns: (String, Vec<String>),
    /// Title of the vertical axis, and the labels of the rows from the bottom.
    pub rows: (String, Vec<String>),
    /// One map each, side by side.
    pub panels: Vec<HeatPanel>,
    /// A note below the maps; may be empty.
    pub note: String,
}

/// One map.
#[derive(Debug, Clone, PartialEq)]
pub struct HeatPanel {
    /// The line above the map; `_τ` and `^β` are set as indices.
    pub heading: String,
    /// `cells[row][column]`, not negative; `None` where there is no number.
    pub cells: Vec<Vec<Option<f64>>>,
    /// Words in the cells, `notes[row][column]`; may be empty. Those that do not fit are left out.
    pub notes: Vec<Vec<String>>,
}

const ROW_HEIGHT: f64 = 24.0;
const STEPS: usize = 40;

/// Draws the maps.
///
/// Every panel has a cell for each row and column, and every number is finite; anything else is a mistake of the caller.
pub fn draw(map: &HeatMap) -> Figure {
    let (n_columns, n_rows) = (map.columns.1.len(), map.rows.1.len());
    for panel in &map.panels {
        let sizes: Vec<usize> = panel.cells.iter().map(Vec::len).collect();
        assert_eq!(sizes, vec![n_columns; n_rows], "columns of each row of {}", panel.heading);
    }
    let numbers = || map.panels.iter().flat_map(|panel| &panel.cells).flatten();
    let highest = numbers().flatten().copied().fold(0.0, f64::max);
    let mut legend = vec![Entry::Ramp {
        colours: (0..STEPS).map(|step| ramp(step as f64 / (STEPS - 1) as f64)).collect(),
        first: "0".to_owned(),
        last: four_digits(highest),
    }];
    if numbers().any(Option::is_none) {
        legend.push(Entry::Hatch { label: "not known".to_owned() });
    }
    let widest = map.rows.1.iter().map(|label| TICK.width(label)).fold(0.0, f64::max);
    let page = Page {
        title: &map.title,
        problem: &map.measure,
        legend: &legend,
        headings: map.panels.iter().map(|panel| panel.heading.as_str()).collect(),
        note: &map.note,
        plot: ([460.0, 330.0, 250.0][columns(map.panels.len()) - 1], ROW_HEIGHT * n_rows as f64),
        margin: Margin { left: left_margin(widest), right: 10.0, top: 0.0, bottom: BOTTOM_MARGIN },
    };
    let (mut canvas, areas) = page.open();
    for (panel, &area) in map.panels.iter().zip(&areas) {
        let mut paths: BTreeMap<String, String> = BTreeMap::new();
        for (row, cells) in panel.cells.iter().enumerate() {
            for (column, value) in cells.iter().enumerate() {
                let Some(value) = value else { continue };
                let colour = ramp(if highest > 0.0 { (value / highest).clamp(0.0, 1.0) } else { 0.0 });
                // SVG counts rows from the top.
                let _ = write!(paths.entry(colour).or_default(), "M{column} {}h1v1h-1z", n_rows - 1 - row);
            }
        }
        if panel.cells.iter().flatten().any(Option::is_none) {
            canvas.rect(area, Fill::Hatch);
        }
        if !paths.is_empty() {
            canvas.cells(area, (n_columns, n_rows), &paths.into_iter().collect::<Vec<_>>());
        }
        canvas.frame(area, Tone::Ink);
        let (width, height) = (area.width / n_columns as f64, area.height / n_rows as f64);
        for (row, notes) in panel.notes.iter().enumerate() {
            for (column, note) in notes.iter().enumerate() {
                let lettering = Lettering { size: 8.5, tone: Tone::Paper, ..TICK };
                if lettering.width(note) > width {
                    continue;
                }
                let middle = area.left + (column as f64 + 0.5) * width;
                let at = (middle, area.bottom() - (row as f64 + 0.5) * height + 3.0);
                // Light cells have dark words; the colours are the same in light and dark.
                let value = panel.cells[row][column].unwrap_or(0.0);
                let light = highest > 0.0 && value / highest > 0.6;
                canvas.coloured_text(at, note, &lettering, if light { "#1a1a1a" } else { "#ffffff" });
            }
        }
        let label = map.columns.1.iter().map(|label| TICK.width(label)).fold(0.0, f64::max);
        let every = label_every(width, label + 6.0);
        let ticks = |labels: &[String], every: usize| -> Vec<Tick> {
            let labels = labels.iter().enumerate().step_by(every);
            labels.map(|(place, label)| Tick { value: place as f64, label: label.clone() }).collect()
        };
        let x = |place: f64| area.left + (place + 0.5) * width;
        let y = |place: f64| area.bottom() - (place + 0.5) * height;
        x_axis(&mut canvas, area, &ticks(&map.columns.1, every), x, &map.columns.0);
        y_axis(&mut canvas, area, &ticks(&map.rows.1, 1), y, (&map.rows.0, widest));
    }
    canvas.finish(&map.title, &describe(map))
}

fn describe(map: &HeatMap) -> String {
    let mut text = format!("Heat map. Colour: {}, over {} and {}.", map.measure, map.columns.0, map.rows.0);
    for panel in &map.panels {
        let values = || panel.cells.iter().flatten().flatten().copied();
        let (low, high) =
            (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
        if low <= high {
            let _ = write!(text, " {}: from {} to {}.", panel.heading, four_digits(low), four_digits(high));
        }
    }
    format!("{text} {}", map.note)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(cells: Vec<Vec<Option<f64>>>) -> HeatMap {
        let labels = |n: usize| (0..n).map(|k| k.to_string()).collect::<Vec<_>>();
        HeatMap {
            title: "Floor".into(),
            measure: "distance".into(),
            columns: ("level τ".into(), labels(cells.first().map_or(0, Vec::len))),
            rows: ("width β".into(), labels(cells.len())),
            panels: vec![HeatPanel { heading: "coin".into(), cells, notes: Vec::new() }],
            note: String::new(),
        }
    }

    #[test]
    fn the_first_row_is_at_the_bottom_and_the_largest_number_has_the_last_colour() {
        let figure = draw(&map(vec![vec![Some(0.0), Some(0.0)], vec![Some(0.25), Some(0.5)]]));
        // Row 1 of 2 is the upper one, which SVG counts as 0.
        assert!(figure.svg().contains(&format!("fill=\"{}\" d=\"M1 0h1v1h-1z\"", ramp(1.0))));
        assert!(figure.svg().contains(&format!("fill=\"{}\" d=\"M0 0h1v1h-1z\"", ramp(0.5))));
        assert!(figure.svg().contains(&format!("fill=\"{}\" d=\"M0 1h1v1h-1zM1 1h1v1h-1z\"", ramp(0.0))));
        assert!(figure.svg().contains("coin: from 0 to 0.5."));
    }

    #[test]
    fn a_cell_without_a_number_is_hatched_and_named_in_the_legend() {
        let whole = draw(&map(vec![vec![Some(1.0), Some(2.0)]]));
        let holed = draw(&map(vec![vec![Some(1.0), None]]));
        assert!(!whole.svg().contains("not known") && holed.svg().contains("not known"));
        assert!(!holed.svg().contains("M1 0h1"));
    }

    #[test]
    fn degenerate_maps_are_drawn() {
        for cells in [vec![], vec![vec![]], vec![vec![Some(0.0)]], vec![vec![None]]] {
            let figure = draw(&map(cells));
            assert!(!figure.svg().contains("NaN") && !figure.svg().contains("inf"), "{}", figure.svg());
            assert!(figure.png(1.0).is_ok());
        }
    }
}
