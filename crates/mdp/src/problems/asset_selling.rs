//! Asset selling (§4.1): accept today's offer, or wait for another.
//!
//! ```text
//! states    offers s = 0..n−1, and "sold", terminal              n = 25
//! stop      reward s/(n−1), to sold
//! continue  reward 0, to a fresh offer, uniform on 0..n−1
//! start     S_0 = 5, at most H = 10 decisions
//! ```
//!
//! The return is the accepted offer on the scale 0..1, or 0 when nothing was sold in time. A low τ accepts offers that
//! a high τ lets pass: with k > S_0 and n = 25, Q*_τ ≥ k/24 exactly when (k/25)⁹ < τ.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, outcome, tabulate};
use crate::model::Problem;

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "asset-selling",
    summary: "accept today's offer or wait for another; the return is the accepted offer, scaled to 0..1",
    parameters: &[
        Parameter {
            name: "offers",
            default: "25",
            allowed: Allowed::Count(2, 2000),
            meaning: "number of offers n, worth 0, 1/(n-1), ..., 1",
        },
        Parameter { name: "horizon", default: "10", allowed: Allowed::Count(1, 10000), meaning: "decisions" },
        Parameter {
            name: "start",
            default: "5",
            allowed: Allowed::Count(0, 1999),
            meaning: "the first offer, below the number of offers",
        },
    ],
    ordered: true,
    table,
};

const STOP: usize = 0;
const CONTINUE: usize = 1;

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let offers = parameters.count("offers");
    let start = parameters.count_within("start", 0, offers - 1)?;
    let sold = offers;

    let mut rows = Vec::with_capacity(offers * (offers + 1));
    for offer in 0..offers {
        rows.push((offer, STOP, outcome(1.0, sold, offer as f64 / (offers - 1) as f64)));
        for fresh in 0..offers {
            rows.push((offer, CONTINUE, outcome(1.0 / offers as f64, fresh, 0.0)));
        }
    }
    let mut states = numbered(offers);
    states.push("sold".to_owned());
    let actions = vec!["stop".to_owned(), "continue".to_owned()];
    Ok(tabulate(&INFO, parameters.count("horizon"), start, states, actions, rows))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{built, try_built};
    use super::*;

    #[test]
    fn the_papers_problem_has_its_rewards_and_chances() {
        let problem = built("asset-selling", &[]);
        let model = &problem.model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (26, 2, 10));
        assert_eq!(model.start(), [(5, 1.0)]);
        assert_eq!(model.discount(), 1.0);
        // Stopping at 19 sells for 19/24.
        assert_eq!(model.outcomes(0, 19, STOP), [outcome(1.0, 25, 19.0 / 24.0)]);
        // Waiting draws each of the 25 offers with 1/25, whatever the offer at hand.
        let fresh: Vec<_> = (0..25).map(|offer| outcome(1.0 / 25.0, offer, 0.0)).collect();
        assert_eq!(model.outcomes(9, 0, CONTINUE), fresh);
        assert_eq!(model.outcomes(0, 24, CONTINUE), fresh);
        assert!(model.is_terminal(0, 25));
        assert_eq!((&*problem.states[24], &*problem.states[25]), ("24", "sold"));
        assert_eq!(problem.actions, ["stop", "continue"]);
    }

    #[test]
    fn the_first_offer_is_one_of_the_offers() {
        assert_eq!(built("asset-selling", &[("offers", "6"), ("horizon", "3")]).model.start(), [(5, 1.0)]);
        assert_eq!(
            try_built("asset-selling", &[("offers", "5")]).unwrap_err().to_string(),
            "asset-selling: start must be an integer from 0 to 4, got \"5\""
        );
    }
}
