//! The gamble chain: a sure amount or a gamble, again and again.
//!
//! ```text
//! states   "play", never terminal
//! safe     reward `safe`                                                 1
//! gamble   reward `win` with `probability`, else −`loss`                 3 with 0.4, else 0
//! start    play, H = 10 decisions
//! ```
//!
//! The return is the sum. The state does not show the result so far; only the collected reward c does. So this is the
//! smallest problem in which a policy without c is not enough. The mean gambles every time (1.2 against 1) and has
//! Q_τ = 6, 12, 18 at τ = .1, .5, .9; the best possible is 10, 14, 19: a low τ plays safe unless it is ahead of its
//! target, a high τ plays safe once its target is sure.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, outcome, tabulate};
use crate::model::Problem;

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "gamble-chain",
    summary: "a sure amount or a gamble, again and again; the return is the sum",
    parameters: &[
        Parameter { name: "horizon", default: "10", allowed: Allowed::Count(1, 1000), meaning: "decisions" },
        Parameter {
            name: "safe",
            default: "1",
            allowed: Allowed::Number(-1e6, 1e6),
            meaning: "reward of playing safe",
        },
        Parameter {
            name: "win",
            default: "3",
            allowed: Allowed::Number(-1e6, 1e6),
            meaning: "reward of a gamble that is won",
        },
        Parameter {
            name: "probability",
            default: "0.4",
            allowed: Allowed::Number(0.0, 1.0),
            meaning: "probability of winning a gamble",
        },
        Parameter {
            name: "loss",
            default: "0",
            allowed: Allowed::Number(-1e6, 1e6),
            meaning: "cost of a gamble that is lost",
        },
    ],
    ordered: true,
    table,
};

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let win_probability = parameters.number("probability");
    let rows = [
        (0, 0, outcome(1.0, 0, parameters.number("safe"))),
        (0, 1, outcome(win_probability, 0, parameters.number("win"))),
        (0, 1, outcome(1.0 - win_probability, 0, -parameters.number("loss"))),
    ];
    let actions = vec!["safe".to_owned(), "gamble".to_owned()];
    Ok(tabulate(&INFO, parameters.count("horizon"), 0, vec!["play".to_owned()], actions, rows))
}

#[cfg(test)]
mod tests {
    use super::super::tests::built;
    use super::*;

    #[test]
    fn a_gamble_wins_three_or_nothing() {
        let model = built("gamble-chain", &[]).model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (1, 2, 10));
        assert_eq!(model.outcomes(0, 0, 0), [outcome(1.0, 0, 1.0)]);
        assert_eq!(model.outcomes(0, 0, 1), [outcome(0.6, 0, 0.0), outcome(0.4, 0, 3.0)]);
    }

    #[test]
    fn a_lost_gamble_may_cost() {
        let model = built("gamble-chain", &[("loss", "2"), ("win", "5"), ("probability", "1/2")]).model;
        assert_eq!(model.outcomes(0, 0, 1), [outcome(0.5, 0, -2.0), outcome(0.5, 0, 5.0)]);
    }
}
