//! The policy: one half of the counts chooses an action for every (h, s, y).

use super::bet::{bets, l1};
use super::{ConfidentError, Construction, arrival};
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
pub(super) struct Outcome {
    pub next: u32,
    pub arrival: Arrival,
    pub reward: f64,
    pub plan: u64,
    pub check: u64,
}

/// The outcomes of one action in one state.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub action: u32,
    pub plan: u64,
    pub check: u64,
    pub outcomes: Vec<Outcome>,
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

/// The counts as both passes need them, and the policy for every (h, s, y).
#[derive(Debug)]
pub(super) struct Table {
    pub horizon: usize,
    pub quantum: f64,
    discounts: Vec<f64>,
    construction: Construction,
    /// (state, count in the half that plans, in the half that checks); one that is certain has no counts.
    pub starts: Vec<(usize, u64, u64)>,
    /// Per kernel and state, the actions that were tried.
    tried: Vec<Vec<Vec<Tried>>>,
    /// Per stage and state, the smallest and the largest remaining return in rungs; `None` where no decision is planned.
    pub range: Vec<Vec<Option<(i64, i64)>>>,
    /// Per stage and state, the first of its cells; then their number.
    first: Vec<Vec<usize>>,
    /// ln(1/δ') of one row in the pass that chooses.
    log: f64,
    /// `None` where the half that plans knows nothing.
    stages: Vec<Vec<Option<Actions>>>,
    /// The action that was tried most often, for states outside the plan.
    usual: Vec<Vec<u32>>,
}

/// The distinct rewards of the outcomes that are wanted.
pub(super) fn rewards(counts: &Counts, wanted: impl Fn(&Seen) -> bool) -> Vec<f64> {
    let mut rewards = Vec::new();
    for kernel in 0..counts.n_kernels() {
        for state in 0..counts.n_states() {
            for action in 0..counts.n_actions() {
                let seen = counts.seen(kernel, state, action).iter().filter(|seen| wanted(seen));
                rewards.extend(seen.map(|seen| seen.reward));
            }
        }
    }
    rewards.sort_unstable_by(f64::total_cmp);
    rewards.dedup();
    rewards
}

impl Outcome {
    /// Whether the half that plans has a decision to take after it.
    pub fn continues(&self) -> bool {
        self.plan > 0 && self.arrival == Arrival::Continues
    }
}

impl Table {
    /// The policy, and its bounds at the start by the half that chose it (by all counts for the L1 ball, where they are valid).
    pub fn new(
        model: &Model,
        counts: &Counts,
        quantum: f64,
        discounts: &[f64],
        delta: f64,
        construction: Construction,
    ) -> Result<(Self, Row), ConfidentError> {
        let n_states = counts.n_states();
        let mut table = Self {
            horizon: model.horizon(),
            quantum,
            discounts: discounts.to_vec(),
            construction,
            starts: starts(model, counts, construction),
            tried: tried(counts, construction),
            range: Vec::new(),
            first: Vec::new(),
            log: 0.0,
            stages: vec![Vec::new(); model.horizon()],
            usual: usual(counts),
        };
        table.find_ranges(n_states);
        if table.range[0].iter().flatten().next().is_none() {
            return Err(ConfidentError::TooFew);
        }
        let bytes = bytes(&table.range);
        if bytes > MEMORY_LIMIT {
            return Err(ConfidentError::TooLarge { stages: table.horizon, bytes });
        }
        table.first = table.range.iter().map(|states| places(states)).collect();
        table.log = table.union(counts, delta);

        let means = table.means(n_states);
        let mut later = vec![Row::over(); n_states];
        for stage in (0..table.horizon).rev() {
            let chosen: Vec<Option<(Row, Actions)>> =
                (0..n_states).map(|state| table.choose(stage, state, &later, &means[stage])).collect();
            let (rows, actions): (Vec<Row>, Vec<Option<Actions>>) = chosen
                .into_iter()
                .map(|found| found.map_or((Row::over(), None), |(row, actions)| (row, Some(actions))))
                .unzip();
            (later, table.stages[stage]) = (rows, actions);
        }
        let root = table.root(&later);
        Ok((table, root))
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

    /// The row of the chosen action at a point of the plan.
    pub fn chosen(&self, stage: usize, state: usize, rung: i64) -> &Tried {
        let action = self.action(stage, state, rung) as u32;
        self.tried(stage, state).iter().find(|row| row.action == action).expect("chosen among these")
    }

    /// The number of cells of a stage: a cell is a state and a rung.
    pub fn cells(&self, stage: usize) -> usize {
        self.first[stage].last().copied().unwrap_or(0)
    }

    /// The cell of a point; `None` if the target is out of reach. All targets that cannot be missed are one cell.
    pub fn cell(&self, stage: usize, state: usize, rung: i64) -> Option<usize> {
        let (low, high) = self.range[stage][state]?;
        (rung <= high).then(|| self.first[stage][state] + (rung.max(low) - low) as usize)
    }
}

/// The first cell of every state, then the number of cells.
fn places(states: &[Option<(i64, i64)>]) -> Vec<usize> {
    let mut next = 0;
    let mut places = vec![0];
    places.extend(states.iter().map(|range| {
        next += range.map_or(0, |(low, high)| (high - low + 1) as usize);
        next
    }));
    places
}

/// The size of the tables: the actions of all stages, what is known of one target, and the bounds of two stages.
fn bytes(range: &[Vec<Option<(i64, i64)>>]) -> f64 {
    let rungs = |states: &Vec<Option<(i64, i64)>>| {
        states.iter().flatten().map(|(low, high)| (high - low + 1) as f64).sum::<f64>()
    };
    let stages: Vec<f64> = range.iter().map(rungs).collect();
    let widest = stages.iter().copied().fold(0.0, f64::max);
    let cell = size_of::<u32>() + 2 * size_of::<f32>();
    cell as f64 * stages.iter().sum::<f64>() + 2.0 * size_of::<f64>() as f64 * widest
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

impl Table {
    fn tried(&self, stage: usize, state: usize) -> &[Tried] {
        &self.tried[if self.tried.len() == 1 { 0 } else { stage }][state]
    }

    /// γ^h r in rungs, rounded down if it is not a whole number, and whether it was rounded.
    pub fn shift(&self, stage: usize, reward: f64) -> (i64, bool) {
        let quanta = self.discounts[stage] * reward / self.quantum;
        let nearest = quanta.round();
        let inexact = (quanta - nearest).abs() >= 1e-6;
        (if inexact { quanta.floor() } else { nearest } as i64, inexact)
    }

    /// F̃ of an outcome: the cost for the worst residual target of a rung. `rest` is that of a point of the next stage.
    pub fn cost(&self, stage: usize, outcome: &Outcome, rung: i64, rest: impl Fn(u32, i64) -> f64) -> f64 {
        let (shift, inexact) = self.shift(stage, outcome.reward);
        let left = rung - shift;
        let last = stage + 1 == self.horizon;
        match outcome.arrival {
            _ if outcome.plan == 0 => 1.0,
            Arrival::Continues if !last => {
                let cost = rest(outcome.next, left);
                // y − r lies between two rungs for some y of this rung: the rung below is possible too.
                if inexact { cost.max(rest(outcome.next, left - 1)) } else { cost }
            }
            Arrival::Unknown if !last => 1.0,
            _ => f64::from(left > 0),
        }
    }

    /// The states in which a decision can be due, and the returns that are possible from there.
    fn find_ranges(&mut self, n_states: usize) {
        let mut reached = vec![vec![false; n_states]; self.horizon + 1];
        for &(state, ..) in &self.starts {
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
                    let (shift, _) = self.shift(stage, outcome.reward);
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

    /// ln(1/δ') for one row of the pass that chooses. The L1 ball holds for all (s, a) together. The bets only choose here: about as
    /// many points as there are states at all stages will be checked.
    fn union(&self, counts: &Counts, delta: f64) -> f64 {
        let rows = match self.construction {
            Construction::Bets => self.range.iter().flatten().flatten().count(),
            Construction::L1 => counts.n_kernels() * counts.n_states() * counts.n_actions() + 1,
        };
        (rows as f64 / delta).ln()
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
                self.costs(stage, row, |o| o.plan, rung, |s, y| later[s as usize].at(y), &mut costs);
                let bound = self.row_bound(&mut costs, row.plan);
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

    /// The bound of the start distribution.
    fn root(&self, later: &[Row]) -> Row {
        if let [(state, ..)] = &self.starts[..] {
            return later[*state].clone();
        }
        let ranges = self.starts.iter().filter_map(|&(state, ..)| self.range[0][state]);
        let (low, high) = ranges.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1))).unwrap_or((0, 0));
        let n: u64 = self.starts.iter().map(|start| start.1).sum();
        let at = |rung: i64| {
            let cost = |&(state, plan, _): &(usize, u64, u64)| {
                let known = plan > 0 && self.range[0][state].is_some();
                (if known { later[state].at(rung) } else { 1.0 }, plan as f64)
            };
            let mut costs: Vec<(f64, f64)> = self.starts.iter().map(cost).collect();
            self.row_bound(&mut costs, n)
        };
        Row { first: low + 1, values: (low + 1..=high).map(at).collect(), low: at(low) }
    }

    fn row_bound(&self, costs: &mut [(f64, f64)], n: u64) -> f64 {
        if n == 0 {
            return 1.0;
        }
        match self.construction {
            Construction::Bets => bets(costs, n as f64, self.log).1,
            Construction::L1 => l1(costs, n as f64, self.log),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_do_not_fit_are_refused_with_their_size() {
        // 40·10·10,000 cells of 12 bytes, and two stages of 10·10,000 bounds of 8.
        assert_eq!(bytes(&vec![vec![Some((0, 9_999)); 10]; 40]), 48e6 + 1.6e6);
        let large = bytes(&vec![vec![Some((0, 9_999)); 1_000]; 400]);
        assert!(large > MEMORY_LIMIT);
        let error = ConfidentError::TooLarge { stages: 400, bytes: large };
        assert_eq!(
            error.to_string(),
            "the tables of 400 stages may need 48.2 GB for a plan with a confidence (limit 8.6 GB)"
        );
    }
}
