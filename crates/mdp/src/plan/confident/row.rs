//! The two backward passes: one half of the counts chooses the actions, the other half bounds what they are worth.

use super::{ConfidentError, Construction, STAKES, arrival};
use crate::counts::{Counts, Seen};
use crate::model::Model;
use crate::returns::MEMORY_LIMIT;

/// Costs this close are ties; the mean decides.
const TIE: f64 = 1e-12;

/// What follows an outcome.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Arrival {
    Continues,
    Ends,
    Unknown,
}

/// An outcome with both of its counts.
#[derive(Clone, Copy, Debug)]
struct Outcome {
    next: u32,
    arrival: Arrival,
    reward: f64,
    plan: u64,
    check: u64,
}

/// The outcomes of one action in one state.
#[derive(Clone, Debug)]
struct Tried {
    action: u32,
    plan: u64,
    check: u64,
    outcomes: Vec<Outcome>,
}

/// An upper bound of P(remaining return < y) over rungs: `low` below `first`, `values`, then 1.
#[derive(Clone, Debug, Default)]
pub(super) struct Row {
    pub first: i64,
    pub values: Vec<f64>,
    pub low: f64,
}

impl Row {
    /// The end of an episode: a target above 0 is missed.
    fn over() -> Self {
        Self { first: 1, values: Vec::new(), low: 0.0 }
    }

    pub fn end(&self) -> i64 {
        self.first + self.values.len() as i64
    }

    pub fn at(&self, rung: i64) -> f64 {
        match rung {
            _ if rung < self.first => self.low,
            _ if rung >= self.end() => 1.0,
            _ => self.values[(rung - self.first) as usize],
        }
    }
}

/// The actions of one state: at the rungs below `first`, from there on, and above.
#[derive(Clone, Debug, Default)]
struct Actions {
    first: i64,
    below: u32,
    cells: Vec<u32>,
    above: u32,
}

impl Actions {
    fn at(&self, rung: i64) -> u32 {
        match usize::try_from(rung.saturating_sub(self.first)) {
            Err(_) => self.below,
            Ok(cell) => self.cells.get(cell).copied().unwrap_or(self.above),
        }
    }
}

/// The policy for every (h, s, y).
#[derive(Debug)]
pub(super) struct Table {
    pub quantum: f64,
    /// `None` where the half that plans knows nothing.
    stages: Vec<Vec<Option<Actions>>>,
    /// The action that was tried most often, for states outside the plan.
    usual: Vec<Vec<u32>>,
}

/// The distinct rewards.
pub(super) fn rewards(counts: &Counts) -> Vec<f64> {
    let mut rewards = Vec::new();
    for kernel in 0..counts.n_kernels() {
        for state in 0..counts.n_states() {
            for action in 0..counts.n_actions() {
                rewards.extend(counts.seen(kernel, state, action).iter().map(|seen| seen.reward));
            }
        }
    }
    rewards.sort_unstable_by(f64::total_cmp);
    rewards.dedup();
    rewards
}

/// What both passes need.
struct Pass<'a> {
    horizon: usize,
    quantum: f64,
    discounts: &'a [f64],
    /// Per kernel and state, the actions that were tried.
    tried: Vec<Vec<Vec<Tried>>>,
    /// Per stage and state, the smallest and the largest remaining return in rungs; `None` where no decision is planned.
    range: Vec<Vec<Option<(i64, i64)>>>,
    construction: Construction,
    /// ln(1/δ') of one row.
    log_union: f64,
}

impl Table {
    /// The policy, and the bounds at the start.
    pub fn new(
        model: &Model,
        counts: &Counts,
        quantum: f64,
        discounts: &[f64],
        delta: f64,
        construction: Construction,
    ) -> Result<(Self, Row), ConfidentError> {
        let n_states = counts.n_states();
        let mut pass = Pass {
            horizon: model.horizon(),
            quantum,
            discounts,
            tried: tried(counts, construction),
            range: Vec::new(),
            construction,
            log_union: 0.0,
        };
        let starts = starts(model, counts, construction);
        pass.find_ranges(&starts, n_states);
        if pass.range[0].iter().flatten().next().is_none() {
            return Err(ConfidentError::TooFew);
        }
        let bytes = pass.bytes();
        if bytes > MEMORY_LIMIT {
            return Err(ConfidentError::TooLarge { stages: pass.horizon, bytes });
        }
        pass.log_union = pass.union(counts, starts.len(), delta);

        // The first pass chooses.
        let mut stages = vec![Vec::new(); pass.horizon];
        let means = pass.means(n_states);
        let mut later = vec![Row::over(); n_states];
        for stage in (0..pass.horizon).rev() {
            let chosen: Vec<Option<(Row, Actions)>> =
                (0..n_states).map(|state| pass.choose(stage, state, &later, &means[stage])).collect();
            let (rows, actions): (Vec<Row>, Vec<Option<Actions>>) = chosen
                .into_iter()
                .map(|found| found.map_or((Row::over(), None), |(row, actions)| (row, Some(actions))))
                .unzip();
            (later, stages[stage]) = (rows, actions);
        }
        // The second pass checks. The L1 ball holds for every policy, so its first pass is its bound.
        if construction == Construction::Bets {
            later = vec![Row::over(); n_states];
            for stage in (0..pass.horizon).rev() {
                later = (0..n_states)
                    .map(|state| pass.check(stage, state, &later, stages[stage][state].as_ref()))
                    .collect();
            }
        }
        let root = pass.root(&starts, &later);
        let usual = usual(counts);
        Ok((Self { quantum, stages, usual }, root))
    }

    /// The rung of a residual target.
    pub fn rung(&self, target: f64) -> i64 {
        (target / self.quantum - 1e-6).ceil() as i64
    }

    pub fn action(&self, stage: usize, state: usize, rung: i64) -> usize {
        let planned = self.stages[stage][state].as_ref().map(|actions| actions.at(rung));
        let usual = || self.usual[if self.usual.len() == 1 { 0 } else { stage }][state];
        planned.unwrap_or_else(usual) as usize
    }
}

/// The actions that were tried in the half that plans, with all outcomes of that half. An outcome that only the other half has is
/// unknown to the plan: it counts there, at cost 1.
fn tried(counts: &Counts, construction: Construction) -> Vec<Vec<Vec<Tried>>> {
    let after =
        |kernel: usize| if counts.n_kernels() == 1 { 0 } else { (kernel + 1).min(counts.n_kernels() - 1) };
    let planned =
        |seen: &Seen| if construction == Construction::L1 { seen.count } else { seen.count - seen.check };
    let of_pair = |kernel: usize, state: usize, action: usize| {
        let seen = counts.seen(kernel, state, action);
        let outcomes: Vec<Outcome> = seen
            .iter()
            .map(|seen| {
                let plan = planned(seen);
                let arrival = match plan {
                    0 => Arrival::Unknown,
                    _ => arrival(counts, after(kernel), seen.next, seen.ends, |seen| planned(seen) > 0),
                };
                Outcome { next: seen.next, arrival, reward: seen.reward, plan, check: seen.check }
            })
            .collect();
        let plan = outcomes.iter().map(|o| o.plan).sum();
        let check = outcomes.iter().map(|o| o.check).sum();
        (plan > 0).then_some(Tried { action: action as u32, plan, check, outcomes })
    };
    (0..counts.n_kernels())
        .map(|kernel| {
            let of_state =
                |state| (0..counts.n_actions()).filter_map(|action| of_pair(kernel, state, action)).collect();
            (0..counts.n_states()).map(of_state).collect()
        })
        .collect()
}

/// Start states with their counts in both halves; one that is certain has none.
fn starts(model: &Model, counts: &Counts, construction: Construction) -> Vec<(usize, u64, u64)> {
    let seen = counts.starts();
    if seen.len() <= 1 {
        return model.start().iter().map(|&(state, _)| (state, 0, 0)).collect();
    }
    let all = construction == Construction::L1;
    let planned = |count: u64, check: u64| if all { count } else { count - check };
    seen.iter().map(|start| (start.state as usize, planned(start.count, start.check), start.check)).collect()
}

fn usual(counts: &Counts) -> Vec<Vec<u32>> {
    let most = |kernel: usize, state: usize| {
        let actions = (0..counts.n_actions()).rev();
        actions.max_by_key(|&action| counts.tried(kernel, state, action)).unwrap_or(0) as u32
    };
    (0..counts.n_kernels())
        .map(|kernel| (0..counts.n_states()).map(|state| most(kernel, state)).collect())
        .collect()
}

impl Pass<'_> {
    fn tried(&self, stage: usize, state: usize) -> &[Tried] {
        &self.tried[if self.tried.len() == 1 { 0 } else { stage }][state]
    }

    /// γ^h r in rungs, rounded down if it is not a whole number.
    fn shift(&self, stage: usize, reward: f64) -> i64 {
        let quanta = self.discounts[stage] * reward / self.quantum;
        let nearest = quanta.round();
        (if (quanta - nearest).abs() < 1e-6 { nearest } else { quanta.floor() }) as i64
    }

    /// The states in which a decision can be due, and the returns that are possible from there.
    fn find_ranges(&mut self, starts: &[(usize, u64, u64)], n_states: usize) {
        let mut reached = vec![vec![false; n_states]; self.horizon + 1];
        for &(state, ..) in starts {
            reached[0][state] = true;
        }
        for stage in 0..self.horizon {
            for state in (0..n_states).filter(|&state| reached[stage][state]).collect::<Vec<_>>() {
                for outcome in self.tried(stage, state).iter().flat_map(|tried| &tried.outcomes) {
                    if outcome.arrival == Arrival::Continues {
                        reached[stage + 1][outcome.next as usize] = true;
                    }
                }
            }
        }
        let mut range = vec![vec![None; n_states]; self.horizon + 1];
        for stage in (0..self.horizon).rev() {
            for state in (0..n_states).filter(|&state| reached[stage][state]) {
                let outcomes = self.tried(stage, state).iter().flat_map(|tried| &tried.outcomes);
                let ends = outcomes.filter(|outcome| outcome.plan > 0).map(|outcome| {
                    let shift = self.shift(stage, outcome.reward);
                    let rest: Option<(i64, i64)> = range[stage + 1][outcome.next as usize];
                    let (low, high) =
                        rest.filter(|_| outcome.arrival == Arrival::Continues).unwrap_or((0, 0));
                    (shift + low, shift + high)
                });
                range[stage][state] = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
            }
        }
        self.range = range;
    }

    /// The size of the tables: the actions of all stages, and the bounds of two of them.
    fn bytes(&self) -> f64 {
        let rungs = |states: &Vec<Option<(i64, i64)>>| {
            states.iter().flatten().map(|(low, high)| (high - low + 1) as f64).sum::<f64>()
        };
        let stages: Vec<f64> = self.range.iter().map(rungs).collect();
        let widest = stages.iter().copied().fold(0.0, f64::max);
        size_of::<u32>() as f64 * stages.iter().sum::<f64>() + 2.0 * size_of::<f64>() as f64 * widest
    }

    /// ln(1/δ') for one row. The union is over everything that is promised: all (h, s, y), or all (s, a) for the L1 ball.
    fn union(&self, counts: &Counts, starts: usize, delta: f64) -> f64 {
        let root = self.range[0].iter().flatten().map(|(low, high)| (high - low + 1) as f64).sum::<f64>();
        let root = if starts > 1 { root } else { 0.0 };
        let promises = match self.construction {
            Construction::Bets => {
                let ranges = self.range.iter().flatten().flatten();
                let cells: f64 = ranges.map(|(low, high)| (high - low + 1) as f64).sum();
                (cells + root) * STAKES.len() as f64
            }
            Construction::L1 => (counts.n_kernels() * counts.n_states() * counts.n_actions() + 1) as f64,
        };
        (promises / delta).ln()
    }

    /// Mean of the rest of the episode for each stage, state and tried action, by the half that plans. It breaks ties.
    fn means(&self, n_states: usize) -> Vec<Vec<Vec<f64>>> {
        let mut later = vec![0.0; n_states];
        let mut stages = vec![Vec::new(); self.horizon];
        for stage in (0..self.horizon).rev() {
            let mut now = vec![0.0; n_states];
            for (state, value) in now.iter_mut().enumerate() {
                let mean = |tried: &Tried| {
                    let value = |o: &Outcome| {
                        let rest = if o.arrival == Arrival::Continues { later[o.next as usize] } else { 0.0 };
                        o.plan as f64 * (self.discounts[stage] * o.reward + rest)
                    };
                    tried.outcomes.iter().map(value).sum::<f64>() / tried.plan as f64
                };
                let means: Vec<f64> = self.tried(stage, state).iter().map(mean).collect();
                *value = means.iter().copied().reduce(f64::max).unwrap_or(0.0);
                stages[stage].push(means);
            }
            later = now;
        }
        stages
    }

    /// The best action at every rung of a state, by the half that plans.
    fn choose(
        &self,
        stage: usize,
        state: usize,
        later: &[Row],
        means: &[Vec<f64>],
    ) -> Option<(Row, Actions)> {
        let (low, high) = self.range[stage][state]?;
        let tried = self.tried(stage, state);
        let mut costs = Vec::new();
        let mut pick = |rung: i64| {
            let mut best = (0, f64::INFINITY);
            for (place, row) in tried.iter().enumerate() {
                let bound = self.bound(stage, row, row.plan, |o| o.plan, rung, later, &mut costs);
                let better = bound < best.1 - TIE
                    || (bound <= best.1 + TIE && means[state][place] > means[state][best.0] + TIE);
                if better {
                    best = (place, bound);
                }
            }
            (tried[best.0].action, best.1)
        };
        let (below, low_cost) = pick(low);
        let (cells, values): (Vec<u32>, Vec<f64>) = (low + 1..=high).map(&mut pick).unzip();
        let above = (0..tried.len()).max_by(|&a, &b| means[state][a].total_cmp(&means[state][b]))?;
        let actions = Actions { first: low + 1, below, cells, above: tried[above].action };
        Some((Row { first: low + 1, values, low: low_cost }, actions))
    }

    /// The bound of the chosen actions, by the half that checks.
    fn check(&self, stage: usize, state: usize, later: &[Row], actions: Option<&Actions>) -> Row {
        let (Some((low, high)), Some(actions)) = (self.range[stage][state], actions) else {
            return Row::over();
        };
        let tried = self.tried(stage, state);
        let mut costs = Vec::new();
        let mut bound = |rung: i64| {
            let action = actions.at(rung);
            let row = tried.iter().find(|row| row.action == action).expect("chosen among these");
            self.bound(stage, row, row.check, |o| o.check, rung, later, &mut costs)
        };
        let low_cost = bound(low);
        let values = (low + 1..=high).map(bound).collect();
        Row { first: low + 1, values, low: low_cost }
    }

    /// The bound of the start distribution.
    fn root(&self, starts: &[(usize, u64, u64)], later: &[Row]) -> Row {
        if let [(state, ..)] = starts {
            return later[*state].clone();
        }
        let ranges = starts.iter().filter_map(|&(state, ..)| self.range[0][state]);
        let (low, high) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        let l1 = self.construction == Construction::L1;
        let count = |&(_, plan, check): &(usize, u64, u64)| if l1 { plan } else { check };
        let n: u64 = starts.iter().map(count).sum();
        let at = |rung: i64| {
            let cost = |start: &(usize, u64, u64)| {
                // A start that only the other half has is unknown to the plan.
                let known = start.1 > 0 && self.range[0][start.0].is_some();
                (if known { later[start.0].at(rung) } else { 1.0 }, count(start) as f64)
            };
            let mut costs: Vec<(f64, f64)> = starts.iter().map(cost).collect();
            self.row_bound(&mut costs, n)
        };
        Row { first: low + 1, values: (low + 1..=high).map(at).collect(), low: at(low) }
    }

    #[allow(clippy::too_many_arguments)] // Two halves, one formula.
    fn bound(
        &self,
        stage: usize,
        row: &Tried,
        n: u64,
        count: impl Fn(&Outcome) -> u64,
        rung: i64,
        later: &[Row],
        costs: &mut Vec<(f64, f64)>,
    ) -> f64 {
        costs.clear();
        for outcome in row.outcomes.iter().filter(|outcome| count(outcome) > 0) {
            let left = rung - self.shift(stage, outcome.reward);
            let last = stage + 1 == self.horizon;
            let cost = match outcome.arrival {
                _ if outcome.plan == 0 => 1.0,
                Arrival::Continues if !last => later[outcome.next as usize].at(left),
                Arrival::Unknown if !last => 1.0,
                _ => f64::from(left > 0),
            };
            costs.push((cost, count(outcome) as f64));
        }
        self.row_bound(costs, n)
    }

    fn row_bound(&self, costs: &mut [(f64, f64)], n: u64) -> f64 {
        if n == 0 {
            return 1.0;
        }
        match self.construction {
            Construction::Bets => bets(costs, n as f64, self.log_union),
            Construction::L1 => l1(costs, n as f64, self.log_union),
        }
    }
}

/// The least of B_a over the stakes near the best one. `costs` are (cost, count) pairs, `log_union` is ln(1/δ').
fn bets(costs: &[(f64, f64)], n: f64, log_union: f64) -> f64 {
    let mean = costs.iter().map(|(cost, count)| cost * count).sum::<f64>() / n;
    if mean >= 1.0 {
        return 1.0;
    }
    let variance = costs.iter().map(|(cost, count)| (cost - mean).powi(2) * count).sum::<f64>() / n;
    let stake = (variance * n / (2.0 * log_union)).sqrt() - (1.0 - mean);
    let place = STAKES.partition_point(|&a| a < stake).min(STAKES.len() - 1);
    let at = |a: f64| {
        let logs = costs.iter().map(|(cost, count)| count * (1.0 + a - cost).ln()).sum::<f64>();
        1.0 + a - ((logs - log_union) / n).exp()
    };
    // Any stake gives a valid bound, so it is enough to look on both sides of the best one.
    let near = STAKES[place.saturating_sub(1)..(place + 2).min(STAKES.len())].iter();
    near.map(|&a| at(a)).fold(1.0, f64::min).max(mean)
}

/// Σ p̂ F with ρ/2 of the mass moved from the smallest costs to cost 1.
fn l1(costs: &mut [(f64, f64)], n: f64, log_union: f64) -> f64 {
    // 2^K − 2 events, where one more outcome stands for all that were never seen.
    let events = (costs.len() + 1) as f64 * std::f64::consts::LN_2;
    let mut moved = ((2.0 * (events + log_union) / n).sqrt() / 2.0).min(1.0);
    let mean = costs.iter().map(|(cost, count)| cost * count).sum::<f64>() / n;
    let mut bound = mean + moved;
    costs.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (cost, count) in costs {
        let taken = moved.min(*count / n);
        bound -= taken * *cost;
        moved -= taken;
    }
    bound.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_certain_success_is_that_of_outcomes_never_seen() {
        // All costs 0: with a = 0, B = 1 − δ'^{1/n}.
        let log_union = (1.0f64 / 0.01).ln();
        let want = 1.0 - 0.01f64.powf(1.0 / 50.0);
        assert!((bets(&[(0.0, 50.0)], 50.0, log_union) - want).abs() < 1e-12);
    }

    #[test]
    fn the_bound_never_falls_if_a_cost_rises() {
        // Each stake has this property; the stakes are chosen by the costs, so try many.
        let log_union = 12.0;
        for n in [3.0, 40.0, 1000.0] {
            for low in 0..20 {
                let costs = |high: f64| [(f64::from(low) / 20.0, n / 2.0), (high, n / 2.0)];
                let bounds: Vec<f64> =
                    (0..=20).map(|high| bets(&costs(f64::from(high) / 20.0), n, log_union)).collect();
                assert!(bounds.is_sorted_by(|a, b| *a <= b + 1e-3), "{n} {low}: {bounds:?}");
            }
        }
    }

    #[test]
    fn more_data_make_both_bounds_tighter_and_bets_are_the_tighter_ones() {
        let costs = |n: f64| vec![(0.0, 0.8 * n), (0.3, 0.1 * n), (1.0, 0.1 * n)];
        let mut last = 1.0;
        for n in [100.0, 1000.0, 10_000.0] {
            let (bet, ball) = (bets(&costs(n), n, 12.0), l1(&mut costs(n), n, 8.0));
            assert!(bet > 0.13 && bet < last && bet < ball, "{n}: {bet} {ball}");
            last = bet;
        }
        assert!(last < 0.15, "{last}");
    }

    #[test]
    fn tables_that_do_not_fit_are_refused_with_their_size() {
        let mut pass = Pass {
            horizon: 40,
            quantum: 1.0,
            discounts: &[],
            tried: Vec::new(),
            range: vec![vec![Some((0, 9_999)); 10]; 40],
            construction: Construction::Bets,
            log_union: 0.0,
        };
        // 40·10·10,000 actions of 4 bytes, and two stages of 10·10,000 bounds of 8.
        assert_eq!(pass.bytes(), 16e6 + 1.6e6);
        pass.range = vec![vec![Some((0, 9_999)); 1_000]; 400];
        assert!(pass.bytes() > MEMORY_LIMIT);
        let error = ConfidentError::TooLarge { stages: 400, bytes: pass.bytes() };
        assert_eq!(
            error.to_string(),
            "the tables of 400 stages may need 16.2 GB for a plan with a confidence (limit 8.6 GB)"
        );
    }
}
