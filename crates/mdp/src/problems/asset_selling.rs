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
//!
//! With `offers=@FILE.csv` the offers are the prices of the file, drawn as often as they were seen there. States go by their prices, the
//! reward is the price itself, and the first offer is the smallest price unless `start` says which.

use super::{
    Allowed, Parameter, Parameters, ProblemError, ProblemInfo, numbered, observed, outcome, tabulate,
};
use crate::model::{Look, Problem};
use crate::records::{Column, Field};

pub(super) const INFO: ProblemInfo = ProblemInfo {
    name: "asset-selling",
    summary: "accept today's offer or wait for another; the return is the accepted offer, scaled to 0..1",
    parameters: &[
        Parameter {
            name: "offers",
            default: "25",
            allowed: Allowed::Text(OFFERS),
            meaning: "number of offers n, worth 0, 1/(n-1), ..., 1; or observed offers: a column price, and optionally count",
        },
        Parameter { name: "horizon", default: "10", allowed: Allowed::Count(1, 10000), meaning: "decisions" },
        Parameter {
            name: "start",
            default: "5",
            allowed: Allowed::Count(0, 1999),
            meaning: "the first offer, below the number of offers; of observed ones its place from the smallest, 0 by default",
        },
    ],
    ordered: true,
    table,
};

const OFFERS: &str = "an integer from 2 to 2000, or @FILE.csv";
/// The most offers.
const MOST: usize = 2000;

const COLUMNS: &[Column] =
    &[Column::required("price", &["offer", "value", "worth", "bid", "p"]), observed::COUNT];

const STOP: usize = 0;
const CONTINUE: usize = 1;

/// The offers that can come: name, worth and chance of each.
struct Offers {
    names: Vec<String>,
    law: Vec<(f64, f64)>,
    observed: bool,
}

impl Offers {
    fn new(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix('@') else {
            let n: usize = text
                .trim()
                .parse()
                .ok()
                .filter(|n| (2..=MOST).contains(n))
                .ok_or_else(|| OFFERS.to_owned())?;
            let law = (0..n).map(|offer| (offer as f64 / (n - 1) as f64, 1.0 / n as f64)).collect();
            return Ok(Self { names: numbered(n), law, observed: false });
        };
        let law = observed::read(path, COLUMNS, "a file of prices", |field: &Field| field.number())?;
        if law.len() > MOST {
            return Err(format!("a file with at most {MOST} different prices (it has {})", law.len()));
        }
        let names = law.iter().map(|(price, _)| price.to_string()).collect();
        Ok(Self { names, law, observed: true })
    }
}

fn table(parameters: &Parameters) -> Result<Problem, ProblemError> {
    let offers = Offers::new(parameters.text("offers")).map_err(|want| parameters.refuse("offers", want))?;
    let n = offers.law.len();
    let smallest = offers.observed && !parameters.is_given("start");
    let start = if smallest { 0 } else { parameters.count_within("start", 0, n - 1)? };
    let sold = n;

    let mut rows = Vec::with_capacity(n * (n + 1));
    for (offer, &(worth, _)) in offers.law.iter().enumerate() {
        rows.push((offer, STOP, outcome(1.0, sold, worth)));
        for (fresh, &(_, chance)) in offers.law.iter().enumerate() {
            rows.push((offer, CONTINUE, outcome(chance, fresh, 0.0)));
        }
    }
    let mut states = offers.names;
    states.push("sold".to_owned());
    let actions = vec!["stop".to_owned(), "continue".to_owned()];
    let look = Look { axis: if offers.observed { "price" } else { "offer" }, ..Look::default() };
    Ok(tabulate(&INFO, parameters.count("horizon"), start, states, actions, rows).looking(look))
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

    #[test]
    fn observed_prices_replace_the_uniform_law() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("prices.csv");
        let at = |text: &str, more: &[(&str, &str)]| {
            std::fs::write(&path, text).unwrap();
            let offers = format!("@{}", path.display());
            try_built("asset-selling", &[&[("offers", &offers[..])], more].concat())
        };
        // 99.5 was offered twice, 120 once, 80 once.
        for text in ["price\n99.5\n120\n80\n99.5\n", "Offer;Count\n120;1\n99,5;2\n80;1\n"] {
            let problem = at(text, &[]).unwrap();
            assert_eq!(problem.states, ["80", "99.5", "120", "sold"]);
            assert_eq!((problem.state_axis(), problem.model.start()), ("price", &[(0, 1.0)][..]));
            assert_eq!(problem.model.outcomes(0, 1, STOP), [outcome(1.0, 3, 99.5)]);
            let fresh = [outcome(0.25, 0, 0.0), outcome(0.5, 1, 0.0), outcome(0.25, 2, 0.0)];
            assert_eq!(problem.model.outcomes(0, 0, CONTINUE), fresh);
            assert_eq!(at(text, &[("start", "2")]).unwrap().model.start(), [(2, 1.0)]);
        }
        let message = at("price\ncheap\n", &[]).unwrap_err().to_string();
        assert!(message.contains("line 2, column price: want a finite number, got \"cheap\""), "{message}");
        let wrong = at("price\n1\n2\n", &[("start", "7")]).unwrap_err().to_string();
        assert!(wrong.contains("start must be an integer from 0 to 1"), "{wrong}");
    }
}
