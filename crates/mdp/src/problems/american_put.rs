//! An American put: when to exercise the right to sell at the strike.
//!
//! ```text
//! dt = maturity/(H − 1): H decisions, the first today and the last at maturity             H = 20
//! u = exp(σ√dt), d = 1/u                                                                   σ = 0.2
//! states     net number k of up moves, −(H−1)..H−1, price S = spot·u^k; and "exercised", terminal
//! exercise   reward max(strike − S, 0), to exercised
//! hold       reward 0, to k + 1 with p = (exp(drift·dt) − d)/(u − d), else to k − 1
//! start      k = 0; discount exp(−rate·dt) a step
//! ```
//!
//! Cox, Ross and Rubinstein, Option pricing: a simplified approach (1979). p is the real-world probability; with
//! drift = rate, the default, it is the risk-neutral one, and the best mean is the option's price in that tree.
//! Holding at the last decision lets the option expire. The prices at both ends of the range can occur only at
//! that decision; holding there does not change the price.
//!
//! The return is the discounted payoff. By default the best mean is 6.163, and its policy has the median 0: it waits for a
//! deep fall, which usually does not come. The best quantile is 8.72 at τ = .5, by exercising at the first fall that pays it,
//! and 23.44 at τ = .9 in the same way; at τ = .1 it is 0.

use super::{Allowed, Parameter, Parameters, ProblemError, ProblemInfo, outcome};
use crate::model::{Data, Kernel, Look, Model, Problem};

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "american-put",
    summary: "when to exercise the right to sell at the strike; the return is the discounted payoff",
    parameters: &[
        Parameter {
            name: "spot",
            default: "100",
            allowed: Allowed::Number(0.01, 1e6),
            meaning: "today's price",
        },
        Parameter {
            name: "strike",
            default: "100",
            allowed: Allowed::Number(0.01, 1e6),
            meaning: "the price at which the holder may sell",
        },
        Parameter {
            name: "volatility",
            default: "0.2",
            allowed: Allowed::Number(0.01, 5.0),
            meaning: "standard deviation of the yearly logarithmic return",
        },
        Parameter {
            name: "rate",
            default: "0.05",
            allowed: Allowed::Number(0.0, 1.0),
            meaning: "yearly interest rate, continuously compounded",
        },
        Parameter {
            name: "drift",
            default: "the rate",
            allowed: Allowed::Number(-10.0, 10.0),
            meaning: "expected yearly growth rate of the price, at most volatility/sqrt(dt) in absolute value",
        },
        Parameter {
            name: "maturity",
            default: "1",
            allowed: Allowed::Number(0.01, 100.0),
            meaning: "years until the option expires",
        },
        Parameter {
            name: "horizon",
            default: "20",
            allowed: Allowed::Count(2, 1000),
            meaning: "decisions, evenly spread from today to maturity",
        },
    ],
    ordered: true,
    table,
};

// Holding comes first: ties go to the lowest index, so a worthless option is not exercised.
const HOLD: usize = 0;
const EXERCISE: usize = 1;

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let [spot, strike, volatility, rate, maturity] =
        ["spot", "strike", "volatility", "rate", "maturity"].map(|name| parameters.number(name));
    let drift = if parameters.is_given("drift") { parameters.number("drift") } else { rate };
    let horizon = parameters.count("horizon");
    let dt = maturity / (horizon - 1) as f64;
    let up = (volatility * dt.sqrt()).exp();
    let down = 1.0 / up;
    let up_probability = ((drift * dt).exp() - down) / (up - down);
    if !(0.0..=1.0).contains(&up_probability) {
        let largest = volatility / dt.sqrt();
        let allowed =
            format!("within {largest} of 0 for this volatility and step (it is the rate unless given)");
        return Err(parameters.refuse("drift", allowed));
    }

    let most = horizon - 1;
    let exercised = 2 * most + 1;
    let mut rows = Vec::with_capacity(3 * exercised);
    let mut labels = Vec::with_capacity(exercised + 1);
    for state in 0..exercised {
        let net = state as f64 - most as f64;
        let price = spot * (volatility * dt.sqrt() * net).exp();
        labels.push(format!("{price:.2}"));
        rows.push((state, EXERCISE, outcome(1.0, exercised, (strike - price).max(0.0))));
        rows.push((state, HOLD, outcome(up_probability, (state + 1).min(exercised - 1), 0.0)));
        rows.push((state, HOLD, outcome(1.0 - up_probability, state.saturating_sub(1), 0.0)));
    }
    let mut states: Vec<String> = (0..exercised).map(|s| (s as i64 - most as i64).to_string()).collect();
    states.push("exercised".to_owned());
    labels.push("exercised".to_owned());
    let actions = vec!["hold".to_owned(), "exercise".to_owned()];
    let model = Kernel::new(states.len(), actions.len(), rows)
        .and_then(|kernel| Model::new(vec![kernel], horizon, (-rate * dt).exp(), vec![(most, 1.0)]))
        .expect("parameters within their ranges make a Markov decision process");
    Ok(Problem {
        name: INFO.name.to_owned(),
        model,
        states,
        actions,
        ordered: INFO.ordered,
        data: Data { look: Look { axis: "price", labels, grid: None }, ..Data::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{built, try_built};
    use super::*;

    #[test]
    fn two_decisions_are_one_binomial_step() {
        // H = 2: dt = 1, u = e^0.2, p = (e^0.05 − e^−0.2)/(e^0.2 − e^−0.2) = 0.57749…, states −1, 0, 1, exercised.
        let problem = built("american-put", &[("horizon", "2"), ("spot", "90")]);
        let model = &problem.model;
        assert_eq!(problem.states, ["-1", "0", "1", "exercised"]);
        // 90·e^−0.2 and 90·e^0.2.
        assert_eq!(problem.state_labels(), ["73.69", "90.00", "109.93", "exercised"]);
        assert_eq!(model.start(), [(1, 1.0)]);
        assert!((model.discount() - 0.951229424500714).abs() < 1e-15);
        assert_eq!(model.outcomes(0, 1, EXERCISE), [outcome(1.0, 3, 10.0)]);
        let hold = model.outcomes(0, 1, HOLD);
        assert_eq!((hold[0].next, hold[1].next), (0, 2));
        assert!((hold[1].probability - 0.5774931964).abs() < 1e-9);
        // One down move: 100 − 90e^−0.2. One up move: 90e^0.2 > 100 pays nothing.
        let payoff = model.outcomes(1, 0, EXERCISE)[0].reward;
        assert!((payoff - 26.3142322230).abs() < 1e-9);
        assert_eq!(model.outcomes(1, 2, EXERCISE), [outcome(1.0, 3, 0.0)]);
        assert!(model.is_terminal(0, 3));
    }

    #[test]
    fn the_best_mean_is_the_price_of_the_option() {
        // S = K = 100, σ = 0.2, r = 0.05, one year: 6.0904 in the limit of small steps.
        let model = built("american-put", &[("horizon", "501")]).model;
        let mut value = vec![0.0; model.n_states()];
        for stage in (0..model.horizon()).rev() {
            let worth = |state, action| -> f64 {
                let outcomes = model.outcomes(stage, state, action);
                outcomes.iter().map(|o| o.probability * (o.reward + model.discount() * value[o.next])).sum()
            };
            value = (0..model.n_states()).map(|s| worth(s, EXERCISE).max(worth(s, HOLD))).collect();
        }
        let price = value[model.start()[0].0];
        assert!((price - 6.0904).abs() < 0.01, "{price}");
    }

    #[test]
    fn a_drift_that_no_tree_can_have_is_refused() {
        // dt = 1, u = e^0.2: the price grows by at most 0.2 a step.
        assert_eq!(
            try_built("american-put", &[("horizon", "2"), ("drift", "0.3")]).unwrap_err().to_string(),
            "american-put: drift must be within 0.2 of 0 for this volatility and step (it is the rate unless \
             given), got \"0.3\""
        );
        assert!(try_built("american-put", &[("horizon", "2"), ("rate", "0.3")]).is_err());
        assert!(try_built("american-put", &[("horizon", "2"), ("drift", "-0.1")]).is_ok());
    }
}
