//! RiverSwim: drift with the current to a small reward, or struggle against it to a large one.
//!
//! ```text
//! states   0..n−1 from the left bank to the right end, never terminal      n = 6
//! left     s' = max(s − 1, 0); reward 0.005 at s = 0, else 0
//! right    s = 0         0: 0.4,  1: 0.6
//!          0 < s < n−1   s−1: 0.05,  s: 0.6,  s+1: 0.35
//!          s = n−1       s−1: 0.4,  s: 0.6;  reward 1 either way
//! start    s = 0, H = 20 decisions
//! ```
//!
//! Strehl and Littman, An analysis of model-based interval estimation for Markov decision processes (2008), with the
//! numbers of Osband, Russo and Van Roy, (More) efficient reinforcement learning via posterior sampling (2013).
//!
//! The return is the number of strokes at the right end plus 0.005 for each stroke to the left at the bank. Whether a
//! swimmer arrives in time is a matter of luck: the policy with the best mean, 3.40, has Q_.1 = 0, while the best policy for
//! τ = .1 stays at the bank for a certain 20·0.005 = 0.1.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, outcome, tabulate};
use crate::model::{Look, Problem};

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "river-swim",
    summary: "swim against the current to a large reward or rest at a small one; the return is the sum",
    parameters: &[
        Parameter {
            name: "states",
            default: "6",
            allowed: Allowed::Count(2, 1000),
            meaning: "length of the river",
        },
        Parameter { name: "horizon", default: "20", allowed: Allowed::Count(1, 1000), meaning: "decisions" },
    ],
    ordered: true,
    table,
};

const LEFT: usize = 0;
const RIGHT: usize = 1;

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let states = parameters.count("states");
    let end = states - 1;

    let mut rows = vec![
        (0, LEFT, outcome(1.0, 0, 0.005)),
        (0, RIGHT, outcome(0.4, 0, 0.0)),
        (0, RIGHT, outcome(0.6, 1, 0.0)),
        (end, RIGHT, outcome(0.4, end - 1, 1.0)),
        (end, RIGHT, outcome(0.6, end, 1.0)),
    ];
    rows.extend((1..states).map(|s| (s, LEFT, outcome(1.0, s - 1, 0.0))));
    for s in 1..end {
        rows.push((s, RIGHT, outcome(0.05, s - 1, 0.0)));
        rows.push((s, RIGHT, outcome(0.6, s, 0.0)));
        rows.push((s, RIGHT, outcome(0.35, s + 1, 0.0)));
    }
    let actions = vec!["left".to_owned(), "right".to_owned()];
    let look = Look { axis: "position", ..Look::default() };
    Ok(tabulate(&INFO, parameters.count("horizon"), 0, numbered(states), actions, rows).looking(look))
}

#[cfg(test)]
mod tests {
    use super::super::tests::built;
    use super::*;

    #[test]
    fn the_current_is_that_of_the_literature() {
        let model = built("river-swim", &[]).model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (6, 2, 20));
        assert_eq!(model.outcomes(0, 0, LEFT), [outcome(1.0, 0, 0.005)]);
        assert_eq!(model.outcomes(0, 4, LEFT), [outcome(1.0, 3, 0.0)]);
        assert_eq!(model.outcomes(0, 0, RIGHT), [outcome(0.4, 0, 0.0), outcome(0.6, 1, 0.0)]);
        assert_eq!(
            model.outcomes(0, 3, RIGHT),
            [outcome(0.05, 2, 0.0), outcome(0.6, 3, 0.0), outcome(0.35, 4, 0.0)]
        );
        assert_eq!(model.outcomes(0, 5, RIGHT), [outcome(0.4, 4, 1.0), outcome(0.6, 5, 1.0)]);
    }

    #[test]
    fn the_shortest_river_has_two_banks() {
        let model = built("river-swim", &[("states", "2")]).model;
        assert_eq!(model.outcomes(0, 1, RIGHT), [outcome(0.4, 0, 1.0), outcome(0.6, 1, 1.0)]);
        assert_eq!(model.outcomes(0, 1, LEFT), [outcome(1.0, 0, 0.0)]);
    }
}
