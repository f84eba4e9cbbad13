//! The paper's rule, solved exactly over levels and buffer widths. Nothing is trained.

use bqrl_math::buffer::Buffer;
use bqrl_mdp::plan::{Planner, conditional};
use bqrl_mdp::problems;
use rayon::prelude::*;

use crate::config::ConfigError;
use crate::outcome::RULE_ATOMS;

/// The widths of the buffer as shares of the level, narrow first.
pub const SHARES: [(&str, f64); 5] =
    [("τ/16", 1.0 / 16.0), ("τ/8", 1.0 / 8.0), ("τ/4", 1.0 / 4.0), ("τ/2", 1.0 / 2.0), ("τ", 1.0)];

/// The paper's rule on a problem, and the optimum.
#[derive(Clone, Debug, PartialEq)]
pub struct Floor {
    /// The problem, by name.
    pub problem: &'static str,
    /// The smallest and the largest return.
    pub range: (f64, f64),
    /// τ = 0.05, 0.1, …, 0.95.
    pub taus: Vec<f64>,
    /// Q*_τ at each.
    pub best: Vec<f64>,
    /// Q_τ of the rule, `rule[share][tau]` with β a share of τ as in [`SHARES`].
    pub rule: Vec<Vec<f64>>,
}

/// The problems whose floor is computed: the paper's two, and those of ours on which the rule has few laws to carry.
pub const FLOORS: [&str; 5] =
    ["asset-selling", "frozen-lake", "gamble-chain", "machine-replacement", "gamblers-ruin"];

/// Solves the rule over all levels and widths, on the current thread pool.
pub fn floor(problem: &'static str) -> Result<Floor, ConfigError> {
    let model = problems::build(problem, &[])?.model;
    let planner = Planner::exact(&model, &|_, _, _| {}).expect("a problem with few returns");
    let taus: Vec<f64> = (1..20).map(|k| f64::from(k) / 20.0).collect();
    let cells: Vec<(f64, f64)> =
        SHARES.iter().flat_map(|&(_, share)| taus.iter().map(move |&tau| (tau, tau * share))).collect();
    let attained: Vec<f64> = cells
        .par_iter()
        .map(|&(tau, beta)| {
            let buffer = Buffer::new(tau, beta).expect("0 < β ≤ τ < 1");
            let rule = conditional::greedy(&model, buffer, RULE_ATOMS).expect("a problem with few returns");
            rule.law.quantile(tau)
        })
        .collect();
    Ok(Floor {
        problem,
        range: planner.range(),
        best: taus.iter().map(|&tau| planner.best_quantile(tau).value).collect(),
        rule: attained.chunks(taus.len()).map(<[f64]>::to_vec).collect(),
        taus,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_floor_on_asset_selling_is_the_known_one() {
        let floor = floor("asset-selling").unwrap();
        let at = |tau: f64| floor.taus.iter().position(|&known| known == tau).unwrap();
        // Q*_τ ≥ k/24 exactly when (k/25)⁹ < τ: Q*_.1, Q*_.5, Q*_.9 = 19/24, 23/24, 1.
        for (tau, best) in [(0.1, 19.0), (0.5, 23.0), (0.9, 24.0)] {
            assert!((floor.best[at(tau)] - best / 24.0).abs() < 1e-12, "τ = {tau}");
        }
        // The rule's own, at β = τ/16, τ/8, τ/4, τ/2, τ: a separate program in exact fractions gives the same.
        for (tau, offers) in [(0.1, [13, 13, 11, 10, 9]), (0.5, [22, 22, 22, 21, 20]), (0.9, [24; 5])] {
            for ((rule, offer), (label, _)) in floor.rule.iter().zip(offers).zip(SHARES) {
                let attained = rule[at(tau)] * 24.0;
                assert!((attained - f64::from(offer)).abs() < 1e-9, "τ = {tau}, β = {label}: {attained}");
            }
        }
        assert_eq!(floor.range, (0.0, 1.0));
    }

    #[test]
    fn no_rule_beats_the_optimum() {
        for problem in ["frozen-lake", "gamble-chain"] {
            let floor = floor(problem).unwrap();
            for rule in &floor.rule {
                assert_eq!(rule.len(), floor.best.len());
                assert!(rule.iter().zip(&floor.best).all(|(rule, best)| *rule <= best + 1e-9), "{problem}");
            }
        }
    }
}
