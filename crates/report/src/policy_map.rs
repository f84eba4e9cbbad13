//! The policy map (the paper's Figure 2): which action is chosen in which state, period by period.
//!
//! ```text
//! x: period, counted from 1      y: state, the first at the bottom      colour: action
//! ```
//!
//! Colours: the first action is gray, the second blue, the next ones follow the palette of Okabe and Ito, which
//! colour-blind readers can distinguish. Of two actions the one named Stop is gray, as in the paper.
//! More than eight actions count as quantities, such as order sizes, and get an ordered ramp.
//!
//! A grid world is drawn as its map instead ([`GridMap`]): a cell shows the action of most periods, as an arrow if it is a direction.
//!
//! Equal neighbours are drawn as one rectangle, which keeps a map of 500 × 500 cells within a few megabytes
//! even when it looks like noise.

use std::fmt::Write as _;

use crate::axis::{Tick, label_every};
use crate::figure::Figure;
use crate::page::{BOTTOM_MARGIN, Entry, Margin, Page, columns, left_margin, x_axis, y_axis};
use crate::svg::{AXIS, Area, Canvas, Fill, LABEL, Lettering, TICK, Tone};

/// A policy, or several for comparison, over the periods and states of one problem.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyMap {
    /// The headline.
    pub title: String,
    /// The name of the problem, below the headline.
    pub problem: String,
    /// Names of the actions, in the order of their indices.
    pub actions: Vec<String>,
    /// The title of the vertical axis.
    pub state_axis: String,
    /// Labels of the states, from the bottom to the top.
    pub states: Vec<String>,
    /// The map, if the states are the cells of a grid world.
    pub grid: Option<GridMap>,
    /// One map each, side by side.
    pub panels: Vec<Panel>,
    /// A note below the maps; may be empty.
    pub note: String,
}

/// The map of a grid world: state i lies in row i / columns, from the top, and column i % columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GridMap {
    columns: usize,
    letters: Vec<char>,
}

impl GridMap {
    /// A map with a letter per cell; `None` unless it has one cell for each of `n_states` states.
    pub fn new(columns: usize, letters: &str, n_states: usize) -> Option<Self> {
        let letters: Vec<char> = letters.chars().collect();
        (columns > 0 && n_states > 0 && letters.len() == n_states && n_states.is_multiple_of(columns))
            .then_some(Self { columns, letters })
    }

    fn rows(&self) -> usize {
        self.letters.len() / self.columns
    }
}

/// One map.
#[derive(Debug, Clone, PartialEq)]
pub struct Panel {
    /// The line above the map; `_τ` and `^β` are set as indices.
    pub heading: String,
    /// The action chosen, `cells[period][state]`; `None` where there is nothing to choose.
    pub cells: Vec<Vec<Option<usize>>>,
}

const QUALITATIVE: [&str; 8] =
    ["#b8b8b8", "#0072b2", "#e69f00", "#009e73", "#d55e00", "#56b4e9", "#cc79a7", "#f0e442"];

/// Viridis at tenths.
const RAMP: [[u8; 3]; 11] = [
    [68, 1, 84],
    [72, 36, 117],
    [65, 68, 135],
    [53, 95, 141],
    [42, 120, 142],
    [33, 145, 140],
    [34, 168, 132],
    [68, 191, 112],
    [122, 209, 81],
    [189, 223, 38],
    [253, 231, 37],
];

impl PolicyMap {
    /// Leaves out the states in which no panel ever chooses, such as an absorbing one. A grid keeps all its cells.
    #[must_use]
    pub fn where_something_is_chosen(mut self) -> Self {
        if self.grid.is_some() {
            return self;
        }
        let chosen = |s: usize| self.panels.iter().any(|panel| panel.cells.iter().any(|c| c[s].is_some()));
        let shown: Vec<usize> = (0..self.states.len()).filter(|&s| chosen(s)).collect();
        self.states = shown.iter().map(|&s| self.states[s].clone()).collect();
        for cells in self.panels.iter_mut().flat_map(|panel| &mut panel.cells) {
            *cells = shown.iter().map(|&s| cells[s]).collect();
        }
        self
    }
}

/// Draws the map.
///
/// Every period has one cell per state, and every action drawn has a name; anything else is a mistake of the caller.
pub fn draw(map: &PolicyMap) -> Figure {
    for panel in &map.panels {
        for (h, cells) in panel.cells.iter().enumerate() {
            assert_eq!(cells.len(), map.states.len(), "cells of period {}, want one per state", h + 1);
            let highest = cells.iter().flatten().max().map_or(0, |action| action + 1);
            assert!(highest <= map.actions.len(), "{highest} actions drawn, {} named", map.actions.len());
        }
    }
    let colours = colours(&map.actions);
    if let Some(grid) = &map.grid {
        return draw_grid(map, grid, &colours);
    }
    let n_periods = map.panels.iter().map(|panel| panel.cells.len()).max().unwrap_or(0);
    let n_states = map.states.len();
    let any_blank = map
        .panels
        .iter()
        .any(|panel| panel.cells.len() < n_periods || panel.cells.iter().flatten().any(Option::is_none));

    let plot = plot_size(map.panels.len(), n_periods, n_states);
    let state_ticks = state_ticks(&map.states, plot.1 / n_states.max(1) as f64);
    let widest = state_ticks.iter().map(|tick| TICK.width(&tick.label)).fold(0.0, f64::max);
    let page = Page {
        title: &map.title,
        problem: &map.problem,
        legend: &legend(&map.actions, &colours, any_blank),
        headings: map.panels.iter().map(|panel| panel.heading.as_str()).collect(),
        note: &map.note,
        plot,
        margin: Margin { left: left_margin(widest), right: 10.0, top: 0.0, bottom: BOTTOM_MARGIN },
    };
    let (mut canvas, plots) = page.open();

    for (panel, &area) in map.panels.iter().zip(&plots) {
        if n_periods > 0 && n_states > 0 {
            draw_cells(&mut canvas, area, &panel.cells, (n_periods, n_states), &colours);
        }
        canvas.frame(area, Tone::Ink);
        let (cell_width, cell_height) = (area.width / n_periods as f64, area.height / n_states as f64);
        // Period 1 is the first column; its label is below the middle.
        let x = |period: f64| area.left + (period - 0.5) * cell_width;
        let y = |state: f64| area.bottom() - (state + 0.5) * cell_height;
        x_axis(&mut canvas, area, &period_ticks(n_periods, cell_width), x, "period");
        y_axis(&mut canvas, area, &state_ticks, y, (&map.state_axis, widest));
    }

    let headings: Vec<&str> = map.panels.iter().map(|panel| panel.heading.as_str()).collect();
    let description = format!(
        "Policy map. Colour shows the action ({}) chosen in each of {n_states} states and {n_periods} periods. \
         Panels: {}. {}",
        map.actions.join(", "),
        headings.join("; "),
        map.note
    );
    canvas.finish(&format!("{}, {}", map.title, map.problem), &description)
}

/// The action of a state in most periods, the first one of several, and whether there are others. `None` if nothing is ever chosen.
pub fn usual(cells: &[Vec<Option<usize>>], state: usize) -> Option<(usize, bool)> {
    let chosen = || cells.iter().filter_map(|stage| stage[state]);
    let mut counts = vec![0; chosen().max()? + 1];
    chosen().for_each(|action| counts[action] += 1);
    let most = (0..counts.len()).rev().max_by_key(|&action| counts[action])?;
    Some((most, chosen().any(|action| action != most)))
}

/// Letters of cells that have nothing to say.
const PLAIN: [char; 4] = ['F', '.', ' ', '-'];

/// Whether the letter of a cell is written: that of a start, a goal or a hole, but not that of open ground.
pub fn is_named(letter: char) -> bool {
    !PLAIN.contains(&letter)
}

fn draw_grid(map: &PolicyMap, grid: &GridMap, colours: &[String]) -> Figure {
    let (n_columns, n_rows) = (grid.columns, grid.rows());
    let widest = [520.0, 360.0, 270.0][columns(map.panels.len()) - 1];
    let side = f64::min(widest / n_columns as f64, 420.0 / n_rows as f64).clamp(4.0, 46.0);
    let legend: Vec<Entry> = colours
        .iter()
        .zip(&map.actions)
        .map(|(colour, label)| Entry::Swatch { colour: colour.clone(), label: label.clone() })
        .collect();
    let said = "each cell shows the action of most periods, a dot marks cells where it changes over time";
    let note = format!("{}; {said}.", map.note.trim_end_matches('.'));
    let page = Page {
        title: &map.title,
        problem: &map.problem,
        legend: &legend,
        headings: map.panels.iter().map(|panel| panel.heading.as_str()).collect(),
        note: &note,
        plot: ((side * n_columns as f64).max(180.0), side * n_rows as f64),
        margin: Margin { left: 6.0, right: 10.0, top: 4.0, bottom: 12.0 },
    };
    let (mut canvas, plots) = page.open();
    for (panel, area) in map.panels.iter().zip(plots) {
        for (cell, &letter) in grid.letters.iter().enumerate() {
            let left = area.left + side * (cell % n_columns) as f64;
            let top = area.top + side * (cell / n_columns) as f64;
            let square = Area { left, top, width: side, height: side };
            let middle = (left + side / 2.0, top + side / 2.0);
            let named = is_named(letter);
            if let Some((action, changes)) = usual(&panel.cells, cell) {
                canvas.rect(square, Fill::Colour(&colours[action]));
                draw_arrow(&mut canvas, middle, side * 0.3, &map.actions[action]);
                if changes {
                    canvas.circle((left + side * 0.84, top + side * 0.16), side * 0.06, Tone::Ink);
                }
                if named && side >= 14.0 {
                    let corner = Lettering { size: side * 0.26, ..LABEL };
                    canvas.text((left + side * 0.08, top + side * 0.3), &letter.to_string(), &corner);
                }
            } else {
                canvas.rect(square, Fill::Hatch);
                if named {
                    let large = Lettering { size: side * 0.5, bold: true, ..AXIS };
                    canvas.text((middle.0, middle.1 + side * 0.18), &letter.to_string(), &large);
                }
            }
            canvas.frame(square, Tone::Paper);
        }
        canvas
            .frame(Area { width: side * n_columns as f64, height: side * n_rows as f64, ..area }, Tone::Ink);
    }
    let headings: Vec<&str> = map.panels.iter().map(|panel| panel.heading.as_str()).collect();
    let description = format!(
        "Policy on a grid of {n_rows} rows and {n_columns} columns. Colours and arrows show the action ({}). Panels: {}. {note}",
        map.actions.join(", "),
        headings.join("; "),
    );
    canvas.finish(&format!("{}, {}", map.title, map.problem), &description)
}

/// A line between two points.
pub type Stroke = [(f64, f64); 2];

/// An arrow for a direction, within a square from −1 to 1: its shaft and two barbs. Other actions have none; their colour says what
/// they are.
pub fn arrow(action: &str) -> Option<[Stroke; 3]> {
    let (dx, dy) = match &action.to_ascii_lowercase()[..] {
        "left" | "west" => (-1.0, 0.0),
        "right" | "east" => (1.0, 0.0),
        "up" | "north" => (0.0, -1.0),
        "down" | "south" => (0.0, 1.0),
        _ => return None,
    };
    let barb = |turn: f64| (dx - 0.5 * (dx + turn * dy), dy - 0.5 * (dy + turn * dx));
    Some([[(-dx, -dy), (dx, dy)], [(dx, dy), barb(-1.0)], [(dx, dy), barb(1.0)]])
}

fn draw_arrow(canvas: &mut Canvas, (x, y): (f64, f64), reach: f64, action: &str) {
    for [from, to] in arrow(action).into_iter().flatten() {
        let place = |(dx, dy): (f64, f64)| (x + reach * dx, y + reach * dy);
        canvas.line(place(from), place(to), Tone::Ink, (reach / 6.0).max(0.8), "");
    }
}

fn plot_size(panels: usize, n_periods: usize, n_states: usize) -> (f64, f64) {
    let widest = [520.0, 360.0, 270.0][columns(panels) - 1];
    let narrowest = f64::min(widest, 200.0);
    ((n_periods as f64 * 52.0).clamp(narrowest, widest), (n_states as f64 * 26.0).clamp(104.0, 270.0))
}

/// Lines between cells help to count them; they are left out if the cells are too small.
const SMALLEST_RULED: f64 = 7.0;

fn draw_cells(
    canvas: &mut Canvas,
    area: Area,
    cells: &[Vec<Option<usize>>],
    (n_periods, n_states): (usize, usize),
    colours: &[String],
) {
    // Blank cells are those that nothing is drawn over.
    if cells.len() < n_periods || cells.iter().flatten().any(Option::is_none) {
        canvas.rect(area, Fill::Hatch);
    }
    let mut paths = vec![String::new(); colours.len()];
    for block in blocks(cells, n_states) {
        let Block { period, state, periods, states, action } = block;
        // SVG counts rows from the top, the figure counts states from the bottom.
        let top = n_states - state - states;
        let _ = write!(paths[action], "M{period} {top}h{periods}v{states}h-{periods}z");
    }
    let drawn: Vec<(String, String)> =
        colours.iter().cloned().zip(paths).filter(|(_, path)| !path.is_empty()).collect();
    canvas.cells(area, (n_periods, n_states), &drawn);

    let (width, height) = (area.width / n_periods as f64, area.height / n_states as f64);
    if width >= SMALLEST_RULED && height >= SMALLEST_RULED {
        for column in 1..n_periods {
            let x = area.left + column as f64 * width;
            canvas.line((x, area.top), (x, area.bottom()), Tone::Paper, 0.45, "");
        }
        for row in 1..n_states {
            let y = area.top + row as f64 * height;
            canvas.line((area.left, y), (area.right(), y), Tone::Paper, 0.45, "");
        }
    }
}

/// A rectangle of cells with the same action, from its first period and lowest state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Block {
    period: usize,
    state: usize,
    periods: usize,
    states: usize,
    action: usize,
}

/// Covers every cell that has an action exactly once: runs along each state, where equal runs of neighbouring states are
/// joined.
fn blocks(cells: &[Vec<Option<usize>>], n_states: usize) -> Vec<Block> {
    let mut done = Vec::new();
    let mut growing: Vec<Block> = Vec::new();
    for state in 0..n_states {
        let mut row: Vec<Block> = Vec::new();
        for (period, column) in cells.iter().enumerate() {
            let Some(action) = column[state] else { continue };
            match row.last_mut() {
                Some(run) if run.action == action && run.period + run.periods == period => run.periods += 1,
                _ => row.push(Block { period, state, periods: 1, states: 1, action }),
            }
        }
        // Both rows are ordered by period, so one pass finds the runs that continue.
        let mut below = growing.into_iter().peekable();
        for run in &mut row {
            while let Some(old) = below.next_if(|old| old.period <= run.period) {
                if (old.period, old.periods, old.action) == (run.period, run.periods, run.action) {
                    run.state = old.state;
                    run.states = old.states + 1;
                } else {
                    done.push(old);
                }
            }
        }
        done.extend(below);
        growing = row;
    }
    done.extend(growing);
    done
}

/// The colour of each action.
pub fn colours(actions: &[String]) -> Vec<String> {
    let n = actions.len();
    if n > QUALITATIVE.len() {
        return (0..n).map(|action| ramp(action as f64 / (n - 1) as f64)).collect();
    }
    let mut colours: Vec<String> = QUALITATIVE[..n].iter().map(|&colour| colour.to_owned()).collect();
    if n == 2 && actions[1].eq_ignore_ascii_case("stop") {
        colours.swap(0, 1);
    }
    colours
}

/// The colour at `place` in [0, 1] of the ramp.
pub(crate) fn ramp(place: f64) -> String {
    let position = place * (RAMP.len() - 1) as f64;
    let below = (position as usize).min(RAMP.len() - 2);
    let share = position - below as f64;
    let mut colour = String::from("#");
    for (&from, &to) in RAMP[below].iter().zip(&RAMP[below + 1]) {
        let channel = f64::from(from) + share * (f64::from(to) - f64::from(from));
        let _ = write!(colour, "{:02x}", channel.round() as u8);
    }
    colour
}

fn legend(actions: &[String], colours: &[String], any_blank: bool) -> Vec<Entry> {
    let mut entries: Vec<Entry> = if actions.len() > QUALITATIVE.len() {
        let first = actions.first().cloned().unwrap_or_default();
        let last = actions.last().cloned().unwrap_or_default();
        vec![Entry::Ramp { colours: colours.to_vec(), first, last }]
    } else {
        let named = colours.iter().cloned().zip(actions.iter().cloned());
        named.map(|(colour, label)| Entry::Swatch { colour, label }).collect()
    };
    if any_blank {
        entries.push(Entry::Hatch { label: "cannot occur".to_owned() });
    }
    entries
}

fn state_ticks(states: &[String], cell_height: f64) -> Vec<Tick> {
    let step = label_every(cell_height, 13.0);
    let labelled = states.iter().enumerate().step_by(step);
    labelled.map(|(state, label)| Tick { value: state as f64, label: TICK.shorten(label, 110.0) }).collect()
}

/// Period 1 and the round periods after it, as far apart as their labels need.
fn period_ticks(n_periods: usize, cell_width: f64) -> Vec<Tick> {
    let step = label_every(cell_width, TICK.width(&n_periods.to_string()) + 9.0);
    let from_first = |period: usize| f64::midpoint(TICK.width("1"), TICK.width(&period.to_string())) + 6.0;
    let round = (2..=n_periods).filter(|period| period % step == 0);
    let clear = round.filter(|&period| (period - 1) as f64 * cell_width >= from_first(period));
    let all = (1..=n_periods.min(1)).chain(clear);
    all.map(|period| Tick { value: period as f64, label: period.to_string() }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cheap generator, so that the maps below are varied and always the same.
    fn noise(seed: &mut u64, n: usize) -> usize {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 33) as usize % n
    }

    fn random_cells(
        seed: u64,
        n_periods: usize,
        n_states: usize,
        n_actions: usize,
    ) -> Vec<Vec<Option<usize>>> {
        let mut seed = seed;
        let mut cell = || match noise(&mut seed, n_actions + 1) {
            0 => None,
            action => Some(action - 1),
        };
        (0..n_periods).map(|_| (0..n_states).map(|_| cell()).collect()).collect()
    }

    fn map_of(cells: Vec<Vec<Option<usize>>>, n_actions: usize) -> PolicyMap {
        PolicyMap {
            title: "Exact policies".to_owned(),
            problem: "noise".to_owned(),
            actions: (0..n_actions).map(|action| format!("a{action}")).collect(),
            state_axis: "state".to_owned(),
            states: (0..cells[0].len()).map(|state| state.to_string()).collect(),
            grid: None,
            panels: vec![Panel { heading: "τ = 0.5".to_owned(), cells }],
            note: String::new(),
        }
    }

    /// Reads the rectangles back out of the drawing: (colour, x, y, width, height) in cells from the top left.
    fn drawn_rectangles(svg: &str) -> Vec<(String, [usize; 4])> {
        let group = svg.split("crispEdges\">").nth(1).unwrap().split("</g>").next().unwrap();
        let mut rectangles = Vec::new();
        for path in group.split("<path ").skip(1) {
            let attributes: Vec<&str> = path.split('"').collect();
            for part in attributes[3].split('z').filter(|part| !part.is_empty()) {
                let numbers: Vec<usize> = part
                    .split(|letter: char| !letter.is_ascii_digit())
                    .filter_map(|n| n.parse().ok())
                    .collect();
                let [x, y, width, height, back] = numbers[..] else { panic!("{part}") };
                assert_eq!(width, back, "{part} does not close");
                rectangles.push((attributes[1].to_owned(), [x, y, width, height]));
            }
        }
        rectangles
    }

    #[test]
    fn a_grid_world_is_drawn_as_its_map_with_arrows() {
        // Two periods; the cell in the corner changes its mind, the goal has nothing to choose.
        let cells = vec![
            vec![Some(0), Some(1), Some(0), None],
            vec![Some(1), Some(1), Some(0), None],
            vec![Some(1), Some(1), Some(0), None],
        ];
        assert_eq!([0, 1, 3].map(|state| usual(&cells, state)), [Some((1, true)), Some((1, false)), None]);
        let mut map = map_of(cells, 2);
        map.actions = ["right".to_owned(), "down".to_owned()].to_vec();
        map.grid = GridMap::new(2, "SFFG", 4);
        let svg = draw(&map.clone().where_something_is_chosen()).svg().to_owned();
        assert!(svg.contains(">S<") && svg.contains(">G<") && !svg.contains(">F<"), "{svg}");
        // Three arrows of three lines, and one dot.
        let lines = svg.lines().filter(|line| line.starts_with("<line") && line.contains("bqrl-stroke-ink"));
        assert_eq!((lines.count(), svg.matches("<circle").count()), (9, 1), "{svg}");
        assert!(svg.contains("a dot marks cells where it changes over time"));
        assert!(draw(&map).png(1.0).is_ok());
        for (columns, letters, n_states) in [(0, "SFFG", 4), (2, "SFF", 4), (3, "SFFG", 4), (1, "", 0)] {
            assert_eq!(GridMap::new(columns, letters, n_states), None);
        }
    }

    #[test]
    fn drawn_rectangles_cover_each_decided_cell_once_in_its_colour() {
        for seed in 0..60 {
            let mut sizes = seed + 1000;
            let n_periods = 1 + noise(&mut sizes, 12);
            let n_states = 1 + noise(&mut sizes, 12);
            // Few actions make long runs, many make none.
            let n_actions = 1 + noise(&mut sizes, 10);
            let map = map_of(random_cells(seed, n_periods, n_states, n_actions), n_actions);
            let palette = colours(&map.actions);
            let mut covered: Vec<Vec<Option<usize>>> = vec![vec![None; n_states]; n_periods];
            if map.panels[0].cells.iter().flatten().all(Option::is_none) {
                continue;
            }
            for (colour, [x, y, width, height]) in drawn_rectangles(draw(&map).svg()) {
                let action = palette.iter().position(|known| *known == colour);
                for (period, column) in covered.iter_mut().enumerate().skip(x).take(width) {
                    for row in y..y + height {
                        let cell = &mut column[n_states - 1 - row];
                        assert_eq!(*cell, None, "seed {seed}: period {period}, row {row} drawn twice");
                        *cell = action;
                    }
                }
            }
            assert_eq!(covered, map.panels[0].cells, "seed {seed}");
        }
    }

    #[test]
    fn a_threshold_policy_takes_few_rectangles() {
        // Stop (0) at state ≥ 3 in all periods: two rectangles, whatever the number of cells.
        let cells = vec![(0..10).map(|state| Some(usize::from(state < 3))).collect(); 40];
        assert_eq!(blocks(&cells, 10).len(), 2);
    }

    #[test]
    fn a_large_map_of_noise_stays_within_a_few_megabytes() {
        let figure = draw(&map_of(random_cells(7, 500, 500, 4), 4));
        assert!(figure.svg().len() < 5_000_000, "{} bytes", figure.svg().len());
    }

    #[test]
    fn the_same_map_gives_the_same_bytes() {
        let map = map_of(random_cells(3, 9, 7, 3), 3);
        assert_eq!(draw(&map), draw(&map));
        assert_eq!(draw(&map).png(1.0).unwrap(), draw(&map).png(1.0).unwrap());
    }

    #[test]
    fn stop_is_gray_and_continue_blue_in_either_order() {
        let named = |names: [&str; 2]| colours(&names.map(str::to_owned));
        assert_eq!(named(["Stop", "Continue"]), ["#b8b8b8", "#0072b2"]);
        assert_eq!(named(["Continue", "Stop"]), ["#0072b2", "#b8b8b8"]);
    }

    #[test]
    fn colours_differ_for_any_number_of_actions() {
        for n in 1..60 {
            let mut found = colours(&vec![String::from("a"); n]);
            found.sort();
            found.dedup();
            assert_eq!(found.len(), n);
        }
        assert_eq!(ramp(0.0), "#440154");
        assert_eq!(ramp(1.0), "#fde725");
    }

    #[test]
    fn periods_are_counted_from_one_and_thinned() {
        let labels = |n, width| period_ticks(n, width).into_iter().map(|tick| tick.label).collect::<Vec<_>>();
        assert_eq!(labels(4, 50.0), ["1", "2", "3", "4"]);
        assert_eq!(labels(100, 2.7), ["1", "20", "40", "60", "80", "100"]);
        // The 2 would touch the 1.
        assert_eq!(labels(9, 8.0), ["1", "4", "6", "8"]);
        assert!(labels(0, 50.0).is_empty());
    }

    #[test]
    fn the_drawing_describes_itself() {
        let mut map = map_of(vec![vec![Some(0), None]], 1);
        map.title = "a < b".to_owned();
        let svg = draw(&map).svg().to_owned();
        assert!(svg.contains("role=\"img\"") && svg.contains("<title>a &lt; b, noise</title>"));
        assert!(svg.contains("2 states and 1 periods") && svg.contains(">cannot occur<"));
    }

    #[test]
    fn a_map_without_panels_or_states_is_drawn_empty() {
        let mut map = map_of(vec![vec![Some(0)]], 1);
        map.panels[0].cells.clear();
        map.states.clear();
        assert!(draw(&map).png(1.0).is_ok());
        map.panels.clear();
        assert!(draw(&map).png(1.0).is_ok());
    }

    #[test]
    #[should_panic(expected = "3 actions drawn, 2 named")]
    fn an_action_without_a_name_is_refused() {
        draw(&map_of(vec![vec![Some(2)]], 2));
    }
}
