//! Inventory: how much to order before the demand is known.
//!
//! ```text
//! states    stock s = 0..capacity at the start of a period, never terminal             capacity = 10
//! order q   a = min(q, capacity − s) units arrive at once; q = 0..capacity
//!           demand D ~ Poisson(demand), or as often as in a file of observed demands (`demand=@FILE.csv`);
//!           min(s + a, D) units are sold, the rest of D is lost
//!           s' = s + a − min(s + a, D)
//! reward    price·min(s + a, D) − cost·a − holding·s'                                  8, 4, 1
//! start     s = 0, H = 12 periods; stock left at the end is worth nothing
//! ```
//!
//! The return is the profit, an integer. Large orders pay when demand is high and cost when it is low, and the result of
//! the first periods decides which risks are still worth taking. By default the best mean is 152.11; its policy has Q_τ = 116, 152, 188 at
//! τ = .1, .5, .9, the best possible is 128, 162, 197.

use super::{
    Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, observed, outcome, parse_number,
    tabulate,
};
use crate::model::{Look, Problem};
use crate::records::{Column, Field};

const DEMAND: &str = "a number from 0 to 100, or @FILE.csv";

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
            allowed: Allowed::Text(DEMAND),
            meaning: "mean of the Poisson demand of a period; or observed demands: a column demand, and optionally count",
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

/// The largest demand that a file may name.
const MOST_DEMAND: u64 = 1_000_000;

const COLUMNS: &[Column] =
    &[Column::required("demand", &["value", "quantity", "units", "sales", "d"]), observed::COUNT];

/// The law of the demand of a period.
enum Demand {
    Poisson(f64),
    /// Demands with how often each was observed.
    Observed(Vec<(u64, f64)>),
}

impl Demand {
    fn new(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('@') else {
            let mean = parse_number(text).filter(|mean| (0.0..=100.0).contains(mean));
            return mean.map(Demand::Poisson).ok_or_else(|| DEMAND.to_owned());
        };
        let whole = |field: &Field| {
            let demand = field.id()?;
            if demand > MOST_DEMAND {
                return Err(field.refuse("a demand of at most 1000000"));
            }
            Ok(demand as f64)
        };
        let observed = observed::read(path, COLUMNS, "a file of demands", whole)?;
        Ok(Demand::Observed(observed.into_iter().map(|(demand, share)| (demand as u64, share)).collect()))
    }

    /// P(min(D, most) = d) for d = 0..=most.
    fn truncated(&self, most: usize) -> Vec<f64> {
        match self {
            Demand::Poisson(mean) => truncated_poisson(*mean, most),
            Demand::Observed(observed) => {
                let mut law = vec![0.0; most + 1];
                for &(demand, probability) in observed {
                    law[(demand as usize).min(most)] += probability;
                }
                law
            }
        }
    }
}

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

    let demand = Demand::new(parameters.text("demand")).map_err(|want| parameters.refuse("demand", want))?;

    let mut rows = Vec::new();
    for stock in 0..=capacity {
        for order in 0..=capacity {
            let arriving = order.min(capacity - stock);
            let available = stock + arriving;
            // Demand beyond the stock is lost: only min(D, available) matters.
            for (sold, probability) in demand.truncated(available).into_iter().enumerate() {
                let left = available - sold;
                let reward = price * sold as f64 - cost * arriving as f64 - holding * left as f64;
                rows.push((stock, order, outcome(probability, left, reward)));
            }
        }
    }
    let actions = (0..=capacity).map(|order| format!("order-{order}")).collect();
    let look = Look { axis: "stock", ..Look::default() };
    Ok(tabulate(&INFO, parameters.count("horizon"), start, numbered(capacity + 1), actions, rows)
        .looking(look))
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

    #[test]
    fn observed_demands_replace_the_poisson_law() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("demand.csv");
        let at = |text: &str| {
            std::fs::write(&path, text).unwrap();
            let demand = format!("@{}", path.display());
            try_built("inventory", &[("capacity", "2"), ("demand", &demand)])
        };
        // Demands 0, 1, 1 and 7: with two units in stock, 2 are sold 1 time in 4.
        for text in ["demand\n0\n1\n1\n7\n", "Units;Count\n0;1\n1;2\n7;1,0\n"] {
            let row = at(text).unwrap().model.outcomes(0, 2, 0).to_vec();
            assert_eq!(row, [outcome(0.25, 0, 16.0), outcome(0.5, 1, 7.0), outcome(0.25, 2, -2.0)]);
        }
        let message = at("demand\n-1\n").unwrap_err().to_string();
        assert!(message.contains("line 2, column demand: want a non-negative integer"), "{message}");
        let missing = try_built("inventory", &[("demand", "@nowhere.csv")]).unwrap_err().to_string();
        assert!(missing.contains("a file that can be read"), "{missing}");
        let wrong = try_built("inventory", &[("demand", "-1")]).unwrap_err().to_string();
        assert_eq!(wrong, "inventory: demand must be a number from 0 to 100, or @FILE.csv, got \"-1\"");
    }
}
