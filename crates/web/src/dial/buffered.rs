//! The best policies for buffered quantiles: a small grid of (τ, β) that is planned once.
//!
//! β is offered as a share of τ: a quarter, a half, three quarters, all of it. How many levels τ there are depends on what the first
//! ones cost. The page asks for the grid after it has drawn the levels with β = 0, so nobody waits for it.

use bqrl_math::buffer::Buffer;
use bqrl_mdp::model::Problem;
use bqrl_mdp::plan::Planner;
use hyper::body::Bytes;
use serde::Serialize;

use super::plan::{Axes, Plan, planner, rounded};
use super::{Planned, kept_cells};

/// β as shares of τ, in per cent.
pub const SHARES: [usize; 4] = [25, 50, 75, 100];
/// Updates of the backward pass that the whole grid may cost: half a minute on a busy core. Nobody waits for it.
const MOST_UPDATES: u64 = 5_000_000_000;
/// Passes of one search beyond those that it begins with.
const PASSES: usize = 16;
/// Distances between levels, in per cent, from the finest to the coarsest.
const STRIDES: [usize; 5] = [1, 2, 5, 10, 25];
/// The level whose cost predicts that of the others; it is part of every grid.
const FIRST: usize = 50;

/// The grid.
pub struct Grid {
    /// Everything that the browser needs, as JSON.
    pub json: Bytes,
    /// Its policies.
    pub plans: Vec<Planned>,
}

/// The answer to `GET /api/buffered`.
#[derive(Serialize)]
struct Answer {
    shares: [usize; 4],
    /// By τ, and then by β.
    levels: Vec<BufferedLevel>,
    plans: Vec<Plan>,
}

#[derive(Serialize)]
struct BufferedLevel {
    tau: f64,
    share: usize,
    /// The largest Q_τ^β that was found; `plan` attains it.
    attained: f64,
    /// No policy has more, not even one that draws lots between two others.
    bound: f64,
    /// Q_τ of the same policy.
    quantile: f64,
    mean: f64,
    plan: usize,
}

/// Plans the grid.
pub fn grid(problem: &Problem, axes: Axes<'_>) -> Result<Grid, String> {
    // A planner of its own: cells and episodes ask that of the dial meanwhile.
    let planner = &planner(&problem.model)?;
    let mut planned = Search { problem, planner, axes, answers: Vec::new(), plans: Vec::new() };
    let before = planner.cost().1;
    let first = planned.at(FIRST);
    let cost = (planner.cost().1 - before).max(1);
    let stride = *STRIDES.iter().find(|&&stride| (99 / stride) as u64 * cost <= MOST_UPDATES).ok_or(
        "the problem is too large to be planned for buffered quantiles while you wait; `bqrl plan --beta` does it for \
         the levels that you name",
    )?;
    let mut levels = Vec::new();
    let mut first = Some(first);
    for percent in (1..100).filter(|percent| percent % stride == 0) {
        let known = if percent == FIRST { first.take() } else { None };
        levels.extend(known.unwrap_or_else(|| planned.at(percent)));
    }
    let answer = Answer { shares: SHARES, levels, plans: planned.answers };
    let json = serde_json::to_vec(&answer).expect("plain numbers and text serialise").into();
    Ok(Grid { json, plans: planned.plans })
}

struct Search<'a> {
    problem: &'a Problem,
    planner: &'a Planner<'a>,
    axes: Axes<'a>,
    answers: Vec<Plan>,
    plans: Vec<Planned>,
}

impl Search<'_> {
    /// One level for every share.
    fn at(&mut self, percent: usize) -> Vec<BufferedLevel> {
        let tau = percent as f64 / 100.0;
        let level = |&share: &usize| {
            let buffer = Buffer::new(tau, tau * share as f64 / 100.0).expect("0 < β ≤ τ < 1");
            let found = self.planner.buffered(buffer, PASSES);
            let quantile = found.evaluation.law.quantile(tau);
            let typical = self.planner.evaluator().typical_collected(&found.policy);
            let decide = |x: &_| found.policy.action(x);
            let plan = Plan::new(self.problem, self.axes, &decide, &found.evaluation, quantile, &typical);
            // Neighbouring levels often have the same policy.
            let at = self.answers.iter().position(|known| *known == plan).unwrap_or(self.answers.len());
            if at == self.answers.len() {
                self.answers.push(plan);
                let typical = kept_cells(self.axes, &typical);
                self.plans.push(Planned { target: quantile, policy: found.policy, typical });
            }
            BufferedLevel {
                tau,
                share,
                attained: rounded(found.lower),
                bound: rounded(found.mixture_upper),
                quantile: rounded(quantile),
                mean: rounded(found.evaluation.mean),
                plan: at,
            }
        };
        SHARES.iter().map(level).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dial::plan;
    use bqrl_mdp::problems;

    #[test]
    fn the_grid_has_the_best_policy_for_each_level_and_share() {
        let dial = plan::dial(problems::build("asset-selling", &[]).unwrap()).unwrap();
        let grid = dial.buffered().unwrap();
        let answer: serde_json::Value = serde_json::from_slice(&grid.json).unwrap();
        let levels = answer["levels"].as_array().unwrap();
        assert_eq!(levels.len(), 99 * SHARES.len(), "a small problem is planned at every level");
        let planner = Planner::exact(&dial.problem.model, &|_, _, _| {}).unwrap();
        for (tau, share) in [(0.1, 50_u64), (0.1, 100), (0.5, 25), (0.9, 75)] {
            let find = |level: &&serde_json::Value| level["tau"] == tau && level["share"] == share;
            let level = levels.iter().find(find).unwrap();
            let (attained, bound) = (level["attained"].as_f64().unwrap(), level["bound"].as_f64().unwrap());
            let buffer = Buffer::new(tau, tau * share as f64 / 100.0).unwrap();
            // With many more passes nothing better is found; 1e-6: nine digits, and bounds that few passes leave open.
            let best = planner.buffered(buffer, 500);
            assert!(attained <= best.mixture_upper + 1e-6 && bound + 1e-6 >= best.lower, "{tau} {share}");
            // The policy for β = 0 does not have more.
            let point = planner.quantile_policy(tau, 12).evaluation.law.buffered_quantile(&buffer);
            assert!(attained >= point - 1e-6, "{tau} {share}: {attained} {point}");
        }
    }
}
