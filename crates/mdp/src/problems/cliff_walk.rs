//! Cliff walking: along the edge or by the safe way round. The table of Gymnasium's CliffWalking-v1.
//!
//! ```text
//! ............    cell (i, j) is state i·width + j
//! ............    actions   up 0, right 1, down 2, left 3; a step off the map stays where it is
//! ............    slippery  the direction meant and the two perpendicular ones with 1/3 each
//! SCCCCCCCCCCG    reward    −1 a step; into the cliff C: −100 and back to S; G is terminal
//! ```
//!
//! Sutton and Barto, Reinforcement Learning (2018), example 6.6, with Gymnasium's `is_slippery`. As there, the cells of
//! the cliff have rows of their own, which no episode ever visits.
//!
//! The return is −(steps) − 99·(falls), cut at the horizon. In wind a fall along the edge is likely and costly, so the
//! best policies for the mean and for low, middle and high τ all stay away from the edge. The problem is a control: a
//! quantile objective does not justify risks that do not pay. By default the best mean is −63.01 and Q*_τ = −97, −60, −38 at τ = .1, .5, .9.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, outcome, tabulate};
use crate::model::{Grid, Look, Problem};

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "cliff-walk",
    summary: "walk along a cliff in the wind; the return is -1 a step and -100 a fall",
    parameters: &[
        Parameter {
            name: "slippery",
            default: "true",
            allowed: Allowed::Flag,
            meaning: "whether a step may go sideways",
        },
        Parameter { name: "width", default: "12", allowed: Allowed::Count(3, 100), meaning: "columns" },
        Parameter { name: "height", default: "4", allowed: Allowed::Count(2, 100), meaning: "rows" },
        Parameter {
            name: "horizon",
            default: "100",
            allowed: Allowed::Count(1, 10000),
            meaning: "decisions",
        },
    ],
    ordered: false,
    table,
};

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let (width, height) = (parameters.count("width"), parameters.count("height"));
    let start = (height - 1) * width;
    let goal = height * width - 1;
    let cliff = start + 1..goal;
    let neighbour = |cell: usize, direction: usize| match direction {
        0 => cell.checked_sub(width).unwrap_or(cell),
        1 => cell + usize::from(!(cell + 1).is_multiple_of(width)),
        2 => {
            if cell < start {
                cell + width
            } else {
                cell
            }
        }
        _ => cell - usize::from(!cell.is_multiple_of(width)),
    };
    let turns: &[usize] = if parameters.flag("slippery") { &[3, 0, 1] } else { &[0] };

    let mut rows = Vec::with_capacity(goal * 12);
    for cell in 0..goal {
        for action in 0..4 {
            for turn in turns {
                let next = neighbour(cell, (action + turn) % 4);
                let (next, reward) = if cliff.contains(&next) { (start, -100.0) } else { (next, -1.0) };
                rows.push((cell, action, outcome(1.0 / turns.len() as f64, next, reward)));
            }
        }
    }
    let actions = ["up", "right", "down", "left"].map(str::to_owned).to_vec();
    let letter = |cell: usize| match cell {
        _ if cell == start => 'S',
        _ if cell == goal => 'G',
        _ if cliff.contains(&cell) => 'C',
        _ => '.',
    };
    let grid = Grid { columns: width, letters: (0..=goal).map(letter).collect() };
    let look = Look { axis: "cell", grid: Some(grid), ..Look::default() };
    let problem = tabulate(&INFO, parameters.count("horizon"), start, numbered(goal + 1), actions, rows);
    Ok(problem.looking(look))
}

#[cfg(test)]
mod tests {
    use super::super::tests::built;
    use super::*;

    #[test]
    fn the_wind_blows_to_either_side() {
        let problem = built("cliff-walk", &[]);
        let model = &problem.model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (48, 4, 100));
        assert_eq!(model.start(), [(36, 1.0)]);
        let third = 1.0 / 3.0;
        // Start 36, right: meant into the cliff (−100, back to 36), blown up to 24 or down (stay, −1).
        assert_eq!(
            model.outcomes(0, 36, 1),
            [outcome(third, 24, -1.0), outcome(third, 36, -100.0), outcome(third, 36, -1.0)]
        );
        // Cell 35 lies above the goal. Down: meant 47, blown right (stay) or left to 34.
        assert_eq!(
            model.outcomes(0, 35, 2),
            [outcome(third, 34, -1.0), outcome(third, 35, -1.0), outcome(third, 47, -1.0)]
        );
        // The top left corner, up: meant up (stay), blown left (stay) or right.
        assert_eq!(model.outcomes(0, 0, 0), [outcome(third + third, 0, -1.0), outcome(third, 1, -1.0)]);
        assert!(model.is_terminal(0, 47));
        assert_eq!((0..48).filter(|&s| model.is_terminal(0, s)).count(), 1);
    }

    #[test]
    fn without_wind_each_step_goes_where_it_was_meant_to() {
        let model = built("cliff-walk", &[("slippery", "false")]).model;
        assert_eq!(model.outcomes(0, 25, 2), [outcome(1.0, 36, -100.0)]);
        assert_eq!(model.outcomes(0, 24, 2), [outcome(1.0, 36, -1.0)]);
        assert_eq!(model.outcomes(0, 11, 1), [outcome(1.0, 11, -1.0)]);
    }

    #[test]
    fn the_smallest_cliff_is_one_cell() {
        // Cells 0 1 2 above S 3, cliff 4, G 5.
        let model = built("cliff-walk", &[("slippery", "false"), ("width", "3"), ("height", "2")]).model;
        assert_eq!(model.outcomes(0, 1, 2), [outcome(1.0, 3, -100.0)]);
        assert_eq!(model.outcomes(0, 2, 2), [outcome(1.0, 5, -1.0)]);
        assert!(model.is_terminal(0, 5));
    }
}
