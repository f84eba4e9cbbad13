//! FrozenLake (§4.2): cross the ice to the goal without falling into a hole. The table of Gymnasium's FrozenLake-v1.
//!
//! ```text
//! SFFF    S start, F frozen, H hole (terminal), G goal (terminal); cell (i, j) is state i·columns + j
//! FHFH    actions    left 0, down 1, right 2, up 3; a step off the map stays where it is
//! FFFH    slippery   the direction meant with success_rate, each perpendicular one with (1 − success_rate)/2
//! HFFG    reward     1 on entering G, else 0
//! ```
//!
//! The return is 1 when the goal is reached within the horizon (100 steps; 200 on 8x8) and else 0, so Q_τ is 1 exactly
//! when the probability of success exceeds 1 − τ. So the same policy is best for every τ: the one that succeeds most often.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, outcome, tabulate};
use crate::model::{Grid, Look, Problem};

const MAP_WORDS: &str =
    "4x4, 8x8 or at most 10000 letters S F H G in equal rows such as SFF/FHF/FFG, one S, at least one G";

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "frozen-lake",
    summary: "cross slippery ice to the goal, past the holes; the return is 1 at the goal, else 0",
    parameters: &[
        Parameter {
            name: "map",
            default: "4x4",
            allowed: Allowed::Text(MAP_WORDS),
            meaning: "the lake; rows are separated by / or , or a new line",
        },
        Parameter {
            name: "slippery",
            default: "true",
            allowed: Allowed::Flag,
            meaning: "whether a step may go sideways",
        },
        Parameter {
            name: "success_rate",
            default: "1/3",
            allowed: Allowed::Number(0.0, 1.0),
            meaning: "probability of the intended direction, on slippery ice",
        },
        Parameter {
            name: "horizon",
            default: "100, or 200 with map=8x8",
            allowed: Allowed::Count(1, 10000),
            meaning: "decisions",
        },
    ],
    ordered: false,
    table,
};

const MAP_4X4: &str = "SFFF/FHFH/FFFH/HFFG";
const MAP_8X8: &str = "SFFFFFFF/FFFFFFFF/FFFHFFFF/FFFFFHFF/FFFHFFFF/FHHFFFHF/FHFFHFHF/FFFHFFFG";
const MAX_CELLS: usize = 10_000;

/// The letters of a rectangular map, row by row.
struct Lake {
    cells: Vec<u8>,
    columns: usize,
}

impl Lake {
    fn parse(map: &str) -> Option<Self> {
        let map = match map.trim() {
            "4x4" => MAP_4X4,
            "8x8" => MAP_8X8,
            rows => rows,
        };
        let rows: Vec<&[u8]> = map.split(['/', ',', '\n']).map(|row| row.trim().as_bytes()).collect();
        let (columns, cells) = (rows[0].len(), rows.concat());
        let count = |letter| map.matches(letter).count();
        let rectangular = rows.iter().all(|row| row.len() == columns);
        let spelled = cells.iter().all(|c| b"SFHG".contains(c));
        (rectangular && spelled && count('S') == 1 && count('G') > 0 && cells.len() <= MAX_CELLS)
            .then_some(Self { cells, columns })
    }

    /// The cell after a step in a direction: left 0, down 1, right 2, up 3.
    fn neighbour(&self, cell: usize, direction: usize) -> usize {
        let (row, column) = (cell / self.columns, cell % self.columns);
        let rows = self.cells.len() / self.columns;
        let (row, column) = match direction {
            0 => (row, column.saturating_sub(1)),
            1 => ((row + 1).min(rows - 1), column),
            2 => (row, (column + 1).min(self.columns - 1)),
            _ => (row.saturating_sub(1), column),
        };
        row * self.columns + column
    }
}

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let map = parameters.text("map");
    let lake = Lake::parse(map).ok_or_else(|| parameters.refuse("map", MAP_WORDS.to_owned()))?;
    let slippery = parameters.flag("slippery");
    if !slippery && parameters.is_given("success_rate") {
        return Err(parameters.refuse("success_rate", "left out when slippery is false".to_owned()));
    }
    let success_rate = if slippery { parameters.number("success_rate") } else { 1.0 };
    let fail_rate = (1.0 - success_rate) / 2.0;
    let horizon = match map.trim() {
        _ if parameters.is_given("horizon") => parameters.count("horizon"),
        "8x8" => 200,
        _ => 100,
    };

    let mut rows = Vec::with_capacity(lake.cells.len() * 12);
    let dry = (0..lake.cells.len()).filter(|&cell| !b"HG".contains(&lake.cells[cell]));
    for cell in dry {
        for action in 0..4 {
            for (turn, probability) in [(3, fail_rate), (0, success_rate), (1, fail_rate)] {
                let next = lake.neighbour(cell, (action + turn) % 4);
                let reward = f64::from(lake.cells[next] == b'G');
                rows.push((cell, action, outcome(probability, next, reward)));
            }
        }
    }
    let start = lake.cells.iter().position(|&c| c == b'S').expect("the map has a start");
    let actions = ["left", "down", "right", "up"].map(str::to_owned).to_vec();
    let letters = lake.cells.iter().map(|&cell| char::from(cell)).collect();
    let grid = Grid { columns: lake.columns, letters };
    let look = Look { axis: "cell", grid: Some(grid), ..Look::default() };
    Ok(tabulate(&INFO, horizon, start, numbered(lake.cells.len()), actions, rows).looking(look))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{built, try_built};
    use super::*;

    // As Gymnasium computes it: one unit in the last place above 1/3.
    const FAIL: f64 = (1.0 - 1.0 / 3.0) / 2.0;

    #[test]
    fn slipping_on_4x4_matches_the_map() {
        let problem = built("frozen-lake", &[]);
        let model = &problem.model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (16, 4, 100));
        assert_eq!(model.start(), [(0, 1.0)]);
        // Cell 0 is the top left corner. Left: meant left (stay), slips down to 4 or up (stay).
        assert_eq!(model.outcomes(0, 0, 0), [outcome(FAIL + 1.0 / 3.0, 0, 0.0), outcome(FAIL, 4, 0.0)]);
        // Cell 14 lies left of the goal 15. Right: meant 15, slips down (stay) or up to 10.
        assert_eq!(
            model.outcomes(0, 14, 2),
            [outcome(FAIL, 10, 0.0), outcome(FAIL, 14, 0.0), outcome(1.0 / 3.0, 15, 1.0)]
        );
        let terminal: Vec<_> = (0..16).filter(|&s| model.is_terminal(0, s)).collect();
        assert_eq!(terminal, [5, 7, 11, 12, 15]);
        assert_eq!(problem.actions, ["left", "down", "right", "up"]);
        let grid = problem.data.look.grid.unwrap();
        assert_eq!((grid.columns, &grid.letters[..]), (4, "SFFFFHFHFFFHHFFG"));
    }

    #[test]
    fn firm_ice_leads_where_it_was_meant_to() {
        let model = built("frozen-lake", &[("slippery", "false"), ("map", "8x8")]).model;
        assert_eq!((model.n_states(), model.horizon()), (64, 200));
        assert_eq!(model.outcomes(0, 55, 1), [outcome(1.0, 63, 1.0)]);
        assert_eq!(model.outcomes(0, 18, 2), [outcome(1.0, 19, 0.0)]);
        assert!(model.is_terminal(0, 19));
    }

    #[test]
    fn maps_may_be_drawn_and_success_may_be_likelier() {
        for map in ["FFH/SFG", "FFH,SFG", "FFH\nSFG", " FFH / SFG "] {
            let model = built("frozen-lake", &[("map", map), ("success_rate", "0.8")]).model;
            assert_eq!((model.n_states(), model.horizon(), model.start()), (6, 100, &[(3, 1.0)][..]));
            // Cell 4, right: meant the goal 5, slips down (stay) or up to 1, (1 − 0.8)/2 each.
            let slip = (1.0 - 0.8) / 2.0;
            assert_eq!(
                model.outcomes(0, 4, 2),
                [outcome(slip, 1, 0.0), outcome(slip, 4, 0.0), outcome(0.8, 5, 1.0)]
            );
        }
    }

    #[test]
    fn impossible_maps_are_refused() {
        for map in ["", "9x9", "SF/G", "FFG", "SSG", "SFF", "SFX/FFG", "sfg", "S/G/"] {
            let message = try_built("frozen-lake", &[("map", map)]).unwrap_err().to_string();
            assert_eq!(message, format!("frozen-lake: map must be {MAP_WORDS}, got {map:?}"));
        }
        let huge = format!("S{}G", "F".repeat(MAX_CELLS));
        assert!(try_built("frozen-lake", &[("map", &huge)]).is_err());
    }

    #[test]
    fn a_success_rate_without_effect_is_refused() {
        let message =
            try_built("frozen-lake", &[("slippery", "false"), ("success_rate", "0.5")]).unwrap_err();
        assert_eq!(
            message.to_string(),
            "frozen-lake: success_rate must be left out when slippery is false, got \"0.5\""
        );
    }
}
