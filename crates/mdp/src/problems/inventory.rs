//! Inventory: how much to order before the demand is known.
//!
//! ```text
//! states    stock s = 0..capacity at the start of a period, never terminal             capacity = 10
//! order q   a = min(q, capacity − s) units arrive at once; q = 0..capacity
//!           demand D ~ Poisson(demand); min(s + a, D) units are sold, the rest of D is lost
//!           s' = s + a − min(s + a, D)
//! reward    price·min(s + a, D) − cost·a − holding·s'                                  8, 4, 1
//! start     s = 0, H = 12 periods; stock left at the end is worth nothing
//! ```
//!
//! The return is the profit, an integer. Large orders pay when demand is high and cost when it is low, and the result of
//! the first periods decides which risks are still worth taking. By default the best mean is 152.11; its policy has Q_τ = 116, 152, 188 at
//! τ = .1, .5, .9, the best possible is 128, 162, 197.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, outcome, tabulate};
use crate::model::Problem;

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "inventory",
    summary: "order stock before the demand is known; the return is the profit",
    parameters: &[
        Parameter {
            name: "capacity",
            default: "10",
            allowed: Allowed::Count(1, 100),
            meaning: "the most that can be in stock; an order beyond the free space is cut to it",
        },
        Parameter { name: "horizon", default: "12", allowed: Allowed::Count(1, 1000), meaning: "periods" },
        Parameter {
            name: "demand",
            default: "4",
            allowed: Allowed::Number(0.0, 100.0),
            meaning: "mean of the Poisson demand of a period",
        },
        Parameter {
            name: "price",
            default: "8",
            allowed: Allowed::Count(0, 1000),
            meaning: "earned for a unit sold",
        },
        Parameter {
            name: "cost",
            default: "4",
            allowed: Allowed::Count(0, 1000),
            meaning: "paid for a unit ordered",
        },
        Parameter {
            name: "holding",
            default: "1",
            allowed: Allowed::Count(0, 1000),
            meaning: "paid for a unit kept for the next period",
        },
        Parameter {
            name: "start",
            default: "0",
            allowed: Allowed::Count(0, 100),
            meaning: "initial stock, at most the capacity",
        },
    ],
    ordered: true,
    table,
};

/// P(min(D, most) = d) for d = 0..=most, D ~ Poisson(mean).
fn truncated_poisson(mean: f64, most: usize) -> Vec<f64> {
    let mut law = Vec::with_capacity(most + 1);
    let mut probability = (-mean).exp();
    for d in 0..most {
        law.push(probability);
        probability *= mean / (d + 1) as f64;
    }
    law.push((1.0 - law.iter().sum::<f64>()).max(0.0));
    law
}

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let capacity = parameters.count("capacity");
    let start = parameters.count_within("start", 0, capacity)?;
    let [price, cost, holding] = ["price", "cost", "holding"].map(|name| parameters.count(name) as f64);

    let mut rows = Vec::new();
    for stock in 0..=capacity {
        for order in 0..=capacity {
            let arriving = order.min(capacity - stock);
            let available = stock + arriving;
            // Demand beyond the stock is lost: only min(D, available) matters.
            for (sold, probability) in
                truncated_poisson(parameters.number("demand"), available).into_iter().enumerate()
            {
                let left = available - sold;
                let reward = price * sold as f64 - cost * arriving as f64 - holding * left as f64;
                rows.push((stock, order, outcome(probability, left, reward)));
            }
        }
    }
    let actions = (0..=capacity).map(|order| format!("order-{order}")).collect();
    Ok(tabulate(&INFO, parameters.count("horizon"), start, numbered(capacity + 1), actions, rows))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{built, try_built};
    use super::*;

    #[test]
    fn a_period_pays_for_sales_orders_and_stock() {
        let problem = built("inventory", &[]);
        let model = &problem.model;
        assert_eq!((model.n_states(), model.n_actions(), model.horizon()), (11, 11, 12));
        // Stock 1, order 1: two units. D = 0 (e⁻⁴): pays 4 and holds 2. D = 1 (4e⁻⁴): 8 − 4 − 1. D ≥ 2: 16 − 4.
        let none = (-4.0_f64).exp();
        let row = model.outcomes(0, 1, 1);
        let expected = [(1.0 - 5.0 * none, 0, 12.0), (4.0 * none, 1, 3.0), (none, 2, -6.0)];
        assert_eq!(row.len(), 3);
        for (got, (probability, next, reward)) in row.iter().zip(expected) {
            assert_eq!((got.next, got.reward), (next, reward));
            assert!((got.probability - probability).abs() < 1e-15);
        }
        // Nothing in stock, nothing ordered, nothing earned.
        assert_eq!(model.outcomes(0, 0, 0), [outcome(1.0, 0, 0.0)]);
    }

    #[test]
    fn an_order_beyond_the_free_space_is_cut_to_it() {
        let model = built("inventory", &[("capacity", "3"), ("start", "2")]).model;
        assert_eq!(model.start(), [(2, 1.0)]);
        assert_eq!(model.outcomes(0, 2, 3), model.outcomes(0, 2, 1));
        assert_eq!(model.outcomes(0, 3, 3), model.outcomes(0, 3, 0));
    }

    #[test]
    fn the_first_stock_fits() {
        assert_eq!(
            try_built("inventory", &[("capacity", "3"), ("start", "4")]).unwrap_err().to_string(),
            "inventory: start must be an integer from 0 to 3, got \"4\""
        );
    }

    #[test]
    fn demand_sums_to_one_whatever_its_mean() {
        for mean in [0.0, 0.5, 4.0, 100.0] {
            for most in [0, 1, 10, 100] {
                let law = truncated_poisson(mean, most);
                assert_eq!(law.len(), most + 1);
                assert!((law.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            }
        }
    }
}
