//! The parts that all figures share: a title, a legend, panels in rows of at most three, and a note.

use crate::axis::Tick;
use crate::svg::{
    AXIS, Anchor, Area, Canvas, Fill, HEADING, LABEL, Lettering, Marker, NOTE, Point, SUBTITLE, TICK, TITLE,
    Tone,
};

const EDGE: f64 = 18.0;
const PANEL_GAP: f64 = 14.0;
const MARK: f64 = 22.0;
const DOT: f64 = 5.0;
const RAMP: f64 = 160.0;
const LEGEND_ROW: f64 = 19.0;

/// One entry of the legend.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Swatch {
        colour: String,
        label: String,
    },
    Hatch {
        label: String,
    },
    /// Ordered colours with the names of the first and the last.
    Ramp {
        colours: Vec<String>,
        first: String,
        last: String,
    },
    Line {
        tone: Tone,
        width: f64,
        dashes: &'static str,
        label: String,
    },
    Band {
        tone: Tone,
        opacity: f64,
        label: String,
    },
    Marker {
        tone: Tone,
        marker: Marker,
        label: String,
    },
    Circle {
        tone: Tone,
        label: String,
    },
    Diamond {
        tone: Tone,
        label: String,
    },
}

impl Entry {
    pub fn label(&self) -> &str {
        match self {
            Self::Ramp { last: label, .. }
            | Self::Swatch { label, .. }
            | Self::Hatch { label }
            | Self::Line { label, .. }
            | Self::Band { label, .. }
            | Self::Marker { label, .. }
            | Self::Circle { label, .. }
            | Self::Diamond { label, .. } => label,
        }
    }

    fn mark_width(&self) -> f64 {
        match self {
            Self::Ramp { first, .. } => LABEL.width(first) + 6.0 + RAMP,
            Self::Marker { .. } | Self::Circle { .. } | Self::Diamond { .. } => 2.0 * DOT,
            _ => MARK,
        }
    }

    fn draw(&self, canvas: &mut Canvas, left: f64, middle: f64, label: &str) {
        let swatch = Area { left, top: middle - 6.0, width: MARK, height: 12.0 };
        let centre = (left + DOT, middle);
        match self {
            Self::Swatch { colour, .. } => canvas.rect(swatch, Fill::Colour(colour)),
            Self::Hatch { .. } => {
                canvas.rect(swatch, Fill::Hatch);
                canvas.frame(swatch, Tone::Blank);
            }
            Self::Ramp { colours, first, .. } => {
                canvas.text((left, middle + 4.0), first, &LABEL);
                let start = left + LABEL.width(first) + 6.0;
                let width = RAMP / colours.len() as f64;
                for (index, colour) in colours.iter().enumerate() {
                    let left = start + index as f64 * width;
                    // Overlapping to the right hides the seams; the last one ends where the ramp does.
                    let width = if index + 1 < colours.len() { width + 0.5 } else { width };
                    canvas.rect(Area { left, width, ..swatch }, Fill::Colour(colour));
                }
            }
            Self::Line { tone, width, dashes, .. } => {
                canvas.line((left, middle), (left + MARK, middle), *tone, *width, dashes);
            }
            Self::Band { tone, opacity, .. } => {
                canvas.rect(swatch, Fill::Tint(*tone, *opacity));
                canvas.line((left, swatch.top), (left + MARK, swatch.top), *tone, 1.2, "");
            }
            Self::Marker { tone, marker, .. } => canvas.marker(*marker, centre, DOT - 1.0, *tone, false),
            Self::Circle { tone, .. } => canvas.circle(centre, DOT - 1.0, *tone),
            Self::Diamond { tone, .. } => canvas.diamond(centre, DOT, *tone),
        }
        canvas.text((left + self.mark_width() + 6.0, middle + 4.0), label, &LABEL);
    }
}

/// The space around the plot of each panel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Margin {
    pub left: f64,
    pub right: f64,
    /// Between the heading and the plot.
    pub top: f64,
    pub bottom: f64,
}

/// Everything around the plots.
#[derive(Debug)]
pub(crate) struct Page<'a> {
    pub title: &'a str,
    pub problem: &'a str,
    pub legend: &'a [Entry],
    pub headings: Vec<&'a str>,
    pub note: &'a str,
    /// Width and height of each plot.
    pub plot: (f64, f64),
    pub margin: Margin,
}

/// The number of panels in a row: at most three, and the rows are as equal as possible.
pub(crate) fn columns(panels: usize) -> usize {
    let panels = panels.max(1);
    panels.div_ceil(panels.div_ceil(3))
}

impl Page<'_> {
    /// Draws all but the plots, and says where those go.
    pub fn open(&self) -> (Canvas, Vec<Area>) {
        let columns = columns(self.headings.len());
        let panel = self.margin.left + self.plot.0 + self.margin.right;
        let gaps = PANEL_GAP * (columns - 1) as f64;
        // The page of a single narrow panel is wide enough for a title.
        let width = (2.0 * EDGE + panel * columns as f64 + gaps).max(400.0);
        let inner = width - 2.0 * EDGE;
        let start = EDGE + (inner - panel * columns as f64 - gaps) / 2.0;

        // The height is known only after all lines are broken, so texts are collected first and drawn later.
        let mut texts: Vec<(Point, String, Lettering)> = Vec::new();
        let mut y = EDGE - 4.0;
        let mut lines = |y: &mut f64, x: f64, lines: Vec<String>, lettering: Lettering| {
            for line in lines {
                *y += 1.3 * lettering.size;
                texts.push(((x, *y), line, lettering));
            }
        };
        lines(&mut y, EDGE, TITLE.wrap(self.title, inner), TITLE);
        lines(&mut y, EDGE, SUBTITLE.wrap(self.problem, inner), SUBTITLE);

        y += 12.0;
        let mut entries = Vec::new();
        let mut x = EDGE;
        for (index, entry) in self.legend.iter().enumerate() {
            let label = LABEL.shorten(entry.label(), inner - entry.mark_width() - 6.0);
            let width = entry.mark_width() + 6.0 + LABEL.width(&label);
            if index > 0 && x + width > EDGE + inner {
                x = EDGE;
                y += LEGEND_ROW;
            }
            entries.push((x, y + LEGEND_ROW / 2.0, entry, label));
            x += width + 16.0;
        }
        if !self.legend.is_empty() {
            y += LEGEND_ROW;
        }

        let mut plots = Vec::new();
        for row in self.headings.chunks(columns) {
            y += 12.0;
            let broken: Vec<Vec<String>> =
                row.iter().map(|heading| HEADING.wrap(heading, self.plot.0 + self.margin.right)).collect();
            let tallest = broken.iter().map(Vec::len).max().unwrap_or(0) as f64;
            let top = y + tallest * 1.3 * HEADING.size + 6.0 + self.margin.top;
            for (column, heading) in broken.into_iter().enumerate() {
                let left = start + (panel + PANEL_GAP) * column as f64 + self.margin.left;
                // A short heading is right above its plot, not at the height of the longest.
                let mut heading_y = y + (tallest - heading.len() as f64) * 1.3 * HEADING.size;
                lines(&mut heading_y, left, heading, HEADING);
                plots.push(Area { left, top, width: self.plot.0, height: self.plot.1 });
            }
            y = top + self.plot.1 + self.margin.bottom;
        }
        y += 4.0;
        lines(&mut y, EDGE, NOTE.wrap(self.note, inner), NOTE);

        let mut canvas = Canvas::new(width.ceil(), (y + EDGE - 4.0).ceil());
        for (at, text, lettering) in &texts {
            canvas.text(*at, text, lettering);
        }
        for (left, middle, entry, label) in entries {
            entry.draw(&mut canvas, left, middle, &label);
        }
        (canvas, plots)
    }
}

/// The distance from the y axis to the far side of its title, for tick labels this wide.
pub(crate) fn left_margin(widest_tick: f64) -> f64 {
    widest_tick + 7.0 + 1.6 * AXIS.size
}

/// The height of the tick labels and the title of the x axis.
pub(crate) const BOTTOM_MARGIN: f64 = 38.0;

/// Ticks and title below a plot; `position` turns a tick's value into an x coordinate.
pub(crate) fn x_axis(
    canvas: &mut Canvas,
    plot: Area,
    ticks: &[Tick],
    position: impl Fn(f64) -> f64,
    title: &str,
) {
    for tick in ticks {
        let x = position(tick.value);
        canvas.line((x, plot.bottom()), (x, plot.bottom() + 4.0), Tone::Ink, 1.0, "");
        canvas.text((x, plot.bottom() + 15.0), &tick.label, &TICK);
    }
    canvas.text((plot.left + plot.width / 2.0, plot.bottom() + 31.0), title, &AXIS);
}

/// Ticks and title left of a plot; `widest_tick` as for [`left_margin`].
pub(crate) fn y_axis(
    canvas: &mut Canvas,
    plot: Area,
    ticks: &[Tick],
    position: impl Fn(f64) -> f64,
    (title, widest_tick): (&str, f64),
) {
    for tick in ticks {
        let y = position(tick.value);
        canvas.line((plot.left - 4.0, y), (plot.left, y), Tone::Ink, 1.0, "");
        canvas.text((plot.left - 6.0, y + 3.6), &tick.label, &Lettering { anchor: Anchor::End, ..TICK });
    }
    let at = (plot.left - widest_tick - 7.0 - 0.5 * AXIS.size, plot.top + plot.height / 2.0);
    canvas.turned_text(at, &AXIS.shorten(title, plot.height + 30.0), &AXIS, -90.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_hold_at_most_three_panels_and_are_balanced() {
        assert_eq!([1, 2, 3, 4, 5, 6, 7, 9, 10].map(columns), [1, 2, 3, 2, 3, 3, 3, 3, 3]);
        assert_eq!(columns(0), 1);
    }

    #[test]
    fn plots_lie_inside_the_page_and_apart() {
        let margin = Margin { left: 40.0, right: 10.0, top: 0.0, bottom: BOTTOM_MARGIN };
        let page = Page {
            title: "title",
            problem: "problem",
            legend: &[],
            headings: vec!["a"; 7],
            note: "",
            plot: (200.0, 100.0),
            margin,
        };
        let plots = page.open().1;
        assert_eq!(plots.len(), 7);
        for (index, plot) in plots.iter().enumerate() {
            assert!(plot.left >= margin.left && plot.top > 0.0);
            for other in &plots[..index] {
                let beside = plot.left >= other.right() + margin.left;
                let below = plot.top >= other.bottom() + margin.bottom;
                assert!(beside || below, "{plot:?} and {other:?}");
            }
        }
    }
}
