//! One target: P(R < g) of the policy that follows g, bounded by the half that checks.
//!
//! ```text
//! 𝒩_g   the points (h, s, y) that the policy can come to from g, by the outcomes of the half that plans
//! δ_x   = δ (1/2|𝒩_g| + c_x/2Σc)        c_x = P(x) √(Var_x/n_x): how much the point adds to the width, by the half that plans
//! a_x   the stake that would have been best in the half that plans
//! U_x   = B_{a_x} of the costs U of the points that follow, with δ_x, by the half that checks
//! ```
//!
//! 𝒩_g, δ_x and a_x do not depend on the half that checks, and Σ δ_x = δ, so U ≥ F at all points of 𝒩_g at once with probability at least 1 − δ.

use super::bet::{bet, bets, moments};
use super::row::{Outcome, Table, Tried};

/// The points of one target, with what the half that plans decides for them.
pub(super) struct Trace {
    target: i64,
    delta: f64,
    /// Per stage and cell: 0 where the policy never comes; before the first backward pass the probability of the point, after it c_x.
    weights: Vec<Vec<f32>>,
    stakes: Vec<Vec<f32>>,
    /// Stake and c_x of the start, if it is not certain.
    start: Option<(f64, f64)>,
    points: f64,
    total: f64,
    /// The bound that the half that plans expects.
    pub expected: f64,
}

impl Table {
    /// Plans the check of a target that may fail with probability δ: its points, their shares of δ and their stakes.
    pub fn trace(&self, target: i64, delta: f64) -> Trace {
        let mut trace = self.reach(target, delta);
        let log = (trace.points / delta).ln();
        let mut costs = Vec::new();
        let mut later = Vec::new();
        for stage in (0..self.horizon).rev() {
            let mut now = vec![1.0; trace.weights[stage].len()];
            self.points(stage, &trace.weights[stage].clone(), |cell, rung, row, probability| {
                let n = row.plan as f64;
                self.costs(stage, row, |o| o.plan, rung, |s, y| self.later(stage, &later, s, y), &mut costs);
                let (stake, bound) = bets(&costs, n, log);
                let weight = probability * (moments(&costs, n).1 / n).sqrt() as f32;
                trace.weights[stage][cell] = weight.max(f32::MIN_POSITIVE);
                trace.stakes[stage][cell] = stake as f32;
                now[cell] = bound;
            });
            later = now;
        }
        trace.expected = match &self.starts[..] {
            [(state, ..)] => self.at(0, &later, *state, target),
            starts => {
                let n = starts.iter().map(|start| start.1).sum::<u64>() as f64;
                let costs = self.start_costs(|start| start.1, target, &later);
                let (stake, bound) = bets(&costs, n, log);
                trace.start = Some((stake, (moments(&costs, n).1 / n).sqrt()));
                bound
            }
        };
        let inner: f64 = trace.weights.iter().flatten().map(|&weight| f64::from(weight)).sum();
        trace.total = inner + trace.start.map_or(0.0, |(_, weight)| weight);
        trace
    }

    /// U at the start.
    pub fn check(&self, trace: &Trace) -> f64 {
        // ln(1/δ_x).
        let log = |weight: f64| {
            let share = if trace.total > 0.0 { weight / trace.total } else { 1.0 / trace.points };
            -(trace.delta * 0.5 * (1.0 / trace.points + share)).ln()
        };
        let mut costs = Vec::new();
        let mut later = Vec::new();
        for stage in (0..self.horizon).rev() {
            let mut now = vec![1.0; trace.weights[stage].len()];
            self.points(stage, &trace.weights[stage], |cell, rung, row, weight| {
                if row.check > 0 {
                    let rest = |s, y| self.later(stage, &later, s, y);
                    self.costs(stage, row, |o| o.check, rung, rest, &mut costs);
                    let stake = f64::from(trace.stakes[stage][cell]);
                    now[cell] = bet(&costs, row.check as f64, log(f64::from(weight)), stake);
                }
            });
            later = now;
        }
        match (&self.starts[..], trace.start) {
            ([(state, ..)], _) => self.at(0, &later, *state, trace.target),
            (starts, Some((stake, weight))) => {
                let n = starts.iter().map(|start| start.2).sum::<u64>() as f64;
                if n == 0.0 {
                    return 1.0;
                }
                bet(&self.start_costs(|start| start.2, trace.target, &later), n, log(weight), stake)
            }
            (_, None) => 1.0,
        }
    }

    /// The points of a target with their probabilities.
    fn reach(&self, target: i64, delta: f64) -> Trace {
        let mut weights: Vec<Vec<f32>> =
            (0..self.horizon).map(|stage| vec![0.0; self.cells(stage)]).collect();
        let stakes = weights.clone();
        let all = self.starts.iter().map(|start| start.1).sum::<u64>().max(1) as f32;
        let certain = self.starts.len() == 1;
        for &(state, plan, _) in self.starts.iter().filter(|start| certain || start.1 > 0) {
            if let Some(cell) = self.cell(0, state, target) {
                weights[0][cell] = if certain { 1.0 } else { plan as f32 / all };
            }
        }
        let mut points = f64::from(u8::from(!certain));
        for stage in 0..self.horizon {
            let (now, next) = weights.split_at_mut(stage + 1);
            self.points(stage, &now[stage], |_, rung, row, probability| {
                points += 1.0;
                let Some(next) = next.first_mut() else { return };
                for outcome in row.outcomes.iter().filter(|outcome| outcome.continues()) {
                    let (shift, inexact) = self.shift(stage, outcome.reward);
                    let share = probability * (outcome.plan as f32 / row.plan as f32);
                    for left in
                        [Some(rung - shift), inexact.then_some(rung - shift - 1)].into_iter().flatten()
                    {
                        if let Some(cell) = self.cell(stage + 1, outcome.next as usize, left) {
                            // A point that the policy can come to is never lost to rounding.
                            next[cell] = (next[cell] + share).max(f32::MIN_POSITIVE);
                        }
                    }
                }
            });
        }
        Trace {
            target,
            delta,
            weights,
            stakes,
            start: None,
            points: points.max(1.0),
            total: 0.0,
            expected: 1.0,
        }
    }

    /// Calls `visit(cell, rung, the row of the chosen action, weight)` for all points of a stage.
    fn points<'a>(
        &'a self,
        stage: usize,
        weights: &[f32],
        mut visit: impl FnMut(usize, i64, &'a Tried, f32),
    ) {
        for state in 0..self.range[stage].len() {
            let (Some((low, high)), Some(begin)) =
                (self.range[stage][state], self.cell(stage, state, i64::MIN))
            else {
                continue;
            };
            let width = (high - low + 1) as usize;
            for (place, &weight) in weights[begin..begin + width].iter().enumerate() {
                if weight > 0.0 {
                    let rung = low + place as i64;
                    visit(begin + place, rung, self.chosen(stage, state, rung), weight);
                }
            }
        }
    }

    /// The bound at a point of the next stage.
    fn later(&self, stage: usize, later: &[f64], state: u32, rung: i64) -> f64 {
        self.at(stage + 1, later, state as usize, rung)
    }

    /// The bound at a point: 1 if the target is out of reach.
    fn at(&self, stage: usize, bounds: &[f64], state: usize, rung: i64) -> f64 {
        self.cell(stage, state, rung).map_or(1.0, |cell| bounds[cell])
    }

    /// The costs of the start states with their counts. One that only the other half has is unknown to the plan.
    fn start_costs(
        &self,
        count: impl Fn(&(usize, u64, u64)) -> u64,
        target: i64,
        later: &[f64],
    ) -> Vec<(f64, f64)> {
        let cost = |start: &(usize, u64, u64)| {
            let known = start.1 > 0;
            (if known { self.at(0, later, start.0, target) } else { 1.0 }, count(start) as f64)
        };
        self.starts.iter().map(cost).collect()
    }

    /// The costs of a row's outcomes with their counts; `rest` is the cost of a point of the next stage.
    pub(super) fn costs(
        &self,
        stage: usize,
        row: &Tried,
        count: impl Fn(&Outcome) -> u64,
        rung: i64,
        rest: impl Fn(u32, i64) -> f64,
        costs: &mut Vec<(f64, f64)>,
    ) {
        costs.clear();
        for outcome in row.outcomes.iter().filter(|outcome| count(outcome) > 0) {
            costs.push((self.cost(stage, outcome, rung, &rest), count(outcome) as f64));
        }
    }
}
