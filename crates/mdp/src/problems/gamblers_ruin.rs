//! The gambler's ruin: bet until the goal, the ruin, or the end of the evening.
//!
//! ```text
//! states    capital k = 0..goal; 0 and goal are terminal                 goal = 10
//! bet b     stake min(b, k, goal − k), b = 0..max_bet                    max_bet = 5
//!           won with `probability`, else lost                            0.45
//! reward    the change of capital
//! start     k = 5, H = 20 decisions
//! ```
//!
//! The return is the gain, between −start and goal − start. The game is unfair, so the mean and τ = .1 do not play at
//! all (gain 0). The best quantile is 3 at τ = .5 and the goal at τ = .9: bold play, which stakes as much as
//! is useful, has the largest probability of reaching a target (Dubins and Savage, How to Gamble If You Must, 1965).

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, outcome, tabulate};
use crate::model::{Look, Problem};

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "gamblers-ruin",
    summary: "bet until the goal or the ruin; the return is the gain",
    parameters: &[
        Parameter {
            name: "goal",
            default: "10",
            allowed: Allowed::Count(2, 500),
            meaning: "capital at which the gambler leaves",
        },
        Parameter {
            name: "start",
            default: "5",
            allowed: Allowed::Count(1, 499),
            meaning: "initial capital, below the goal",
        },
        Parameter {
            name: "max_bet",
            default: "5",
            allowed: Allowed::Count(1, 500),
            meaning: "the largest stake; a stake is limited to the capital and to the distance to the goal",
        },
        Parameter {
            name: "probability",
            default: "0.45",
            allowed: Allowed::Number(0.0, 1.0),
            meaning: "probability of winning a bet",
        },
        Parameter { name: "horizon", default: "20", allowed: Allowed::Count(1, 1000), meaning: "decisions" },
    ],
    ordered: true,
    table,
};

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let goal = parameters.count("goal");
    let start = parameters.count_within("start", 1, goal - 1)?;
    let max_bet = parameters.count("max_bet");
    let win_probability = parameters.number("probability");

    let mut rows = Vec::with_capacity(2 * goal * (max_bet + 1));
    for capital in 1..goal {
        for bet in 0..=max_bet {
            let stake = bet.min(capital).min(goal - capital);
            rows.push((capital, bet, outcome(win_probability, capital + stake, stake as f64)));
            rows.push((capital, bet, outcome(1.0 - win_probability, capital - stake, -(stake as f64))));
        }
    }
    let actions = (0..=max_bet).map(|bet| format!("bet-{bet}")).collect();
    let look = Look { axis: "capital", ..Look::default() };
    Ok(tabulate(&INFO, parameters.count("horizon"), start, numbered(goal + 1), actions, rows).looking(look))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{built, try_built};
    use super::*;

    #[test]
    fn a_bet_is_won_or_lost() {
        let problem = built("gamblers-ruin", &[]);
        let model = &problem.model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (11, 6, 20));
        assert_eq!(model.start(), [(5, 1.0)]);
        assert_eq!(model.outcomes(0, 5, 3), [outcome(0.55, 2, -3.0), outcome(0.45, 8, 3.0)]);
        // Betting nothing changes nothing: one outcome, since winning and losing are the same.
        assert_eq!(model.outcomes(0, 5, 0), [outcome(1.0, 5, 0.0)]);
        assert!(model.is_terminal(0, 0) && model.is_terminal(0, 10));
    }

    #[test]
    fn a_stake_is_cut_to_the_capital_and_to_what_is_missing() {
        let model = built("gamblers-ruin", &[]).model;
        assert_eq!(model.outcomes(0, 2, 5), [outcome(0.55, 0, -2.0), outcome(0.45, 4, 2.0)]);
        assert_eq!(model.outcomes(0, 9, 5), [outcome(0.55, 8, -1.0), outcome(0.45, 10, 1.0)]);
    }

    #[test]
    fn the_first_capital_lies_between_ruin_and_goal() {
        assert_eq!(
            try_built("gamblers-ruin", &[("goal", "5")]).unwrap_err().to_string(),
            "gamblers-ruin: start must be an integer from 1 to 4, got \"5\""
        );
    }
}
