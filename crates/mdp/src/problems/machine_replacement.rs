//! Machine replacement: run a wearing machine or buy a new one in time.
//!
//! ```text
//! states    wear w = 0..n−1, never terminal                                              n = 10
//! keep      with b(w) = breakdown·w/(n−1) it breaks down: reward −repair, w' = 0         0.3, 40
//!           else it earns n − w; then w' = min(w + 1, n − 1) with `wear`, else w' = w    0.5
//! replace   reward −replacement, w' = 0                                                  8
//! start     w = 0, H = 20 decisions
//! ```
//!
//! The return is the income minus the costs, an integer. Breakdowns are rare and expensive: the policy with the best mean
//! accepts a few, a policy for a low τ must not. By default the best mean is 120.94; its policy has Q_.1 = 82, the best possible is
//! Q*_.1 = 100.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, outcome, tabulate};
use crate::model::{Look, Problem};

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "machine-replacement",
    summary: "run a wearing machine or replace it before it breaks; the return is the profit",
    parameters: &[
        Parameter {
            name: "levels",
            default: "10",
            allowed: Allowed::Count(2, 1000),
            meaning: "levels of wear",
        },
        Parameter { name: "horizon", default: "20", allowed: Allowed::Count(1, 1000), meaning: "decisions" },
        Parameter {
            name: "wear",
            default: "0.5",
            allowed: Allowed::Number(0.0, 1.0),
            meaning: "probability that a kept machine wears by one level",
        },
        Parameter {
            name: "breakdown",
            default: "0.3",
            allowed: Allowed::Number(0.0, 1.0),
            meaning: "probability of a breakdown at the last level; proportional to the level below it",
        },
        Parameter {
            name: "repair",
            default: "40",
            allowed: Allowed::Count(0, 100_000),
            meaning: "cost of a breakdown",
        },
        Parameter {
            name: "replacement",
            default: "8",
            allowed: Allowed::Count(0, 100_000),
            meaning: "cost of a new machine",
        },
    ],
    ordered: true,
    table,
};

const KEEP: usize = 0;
const REPLACE: usize = 1;

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let levels = parameters.count("levels");
    let wear = parameters.number("wear");
    let repair = parameters.count("repair") as f64;
    let replacement = parameters.count("replacement") as f64;

    let mut rows = Vec::with_capacity(4 * levels);
    for level in 0..levels {
        let breaks = parameters.number("breakdown") * level as f64 / (levels - 1) as f64;
        let revenue = (levels - level) as f64;
        rows.push((level, KEEP, outcome(breaks, 0, -repair)));
        rows.push((level, KEEP, outcome((1.0 - breaks) * (1.0 - wear), level, revenue)));
        rows.push((level, KEEP, outcome((1.0 - breaks) * wear, (level + 1).min(levels - 1), revenue)));
        rows.push((level, REPLACE, outcome(1.0, 0, -replacement)));
    }
    let actions = vec!["keep".to_owned(), "replace".to_owned()];
    let look = Look { axis: "wear", ..Look::default() };
    Ok(tabulate(&INFO, parameters.count("horizon"), 0, numbered(levels), actions, rows).looking(look))
}

#[cfg(test)]
mod tests {
    use super::super::tests::built;
    use super::*;

    #[test]
    fn wear_earns_less_and_breaks_more() {
        let model = built("machine-replacement", &[]).model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (10, 2, 20));
        // New: no breakdown; earns 10, wears with 1/2.
        assert_eq!(model.outcomes(0, 0, KEEP), [outcome(0.5, 0, 10.0), outcome(0.5, 1, 10.0)]);
        // w = 3: b = 0.3·3/9 = 0.1; else earns 7 and wears with 1/2, so 0.45 each.
        let breaks = 0.3 * 3.0 / 9.0;
        let rest = (1.0 - breaks) * 0.5;
        assert_eq!(
            model.outcomes(0, 3, KEEP),
            [outcome(breaks, 0, -40.0), outcome(rest, 3, 7.0), outcome(rest, 4, 7.0)]
        );
        assert!((breaks - 0.1).abs() < 1e-15 && (rest - 0.45).abs() < 1e-15);
        // The last level cannot wear further: 0.3 and 0.7.
        assert_eq!(model.outcomes(0, 9, KEEP), [outcome(0.3, 0, -40.0), outcome(0.7, 9, 1.0)]);
        assert_eq!(model.outcomes(0, 9, REPLACE), [outcome(1.0, 0, -8.0)]);
    }
}
