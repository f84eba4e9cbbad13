//! The backward pass that every planner uses: the least expected cost over residual targets.
//!
//! ```text
//! ℓ_H(s, y) = cost(y)                          0 for y ≤ 0, rising to 1
//! ℓ_h(s, y) = min_a { A_h(s,a)/λ + Σ p(s'|s,a) ℓ_{h+1}(s', y − γ^h r) }
//! ```
//!
//! With the step cost 1{y > 0} and λ = ∞ this is F_h(s, y) = min_π P(remaining return < y), for **every** target y at
//! once. A finite λ prices the loss of mean (then Vmean − λℓ is max_π `E[R] − λ P(R < g)`), and the ramp
//! clip(y/w, 0, 1) in place of the step gives the clipped utilities of the buffered quantile.
//!
//! ℓ rises with y from 0 to 1, so a row stores only the band in between: targets below it are certain, targets above
//! it are impossible. The band is cut where ℓ is within [`TRIM`] of 0 or 1, which is below the rounding error of the sums. A
//! row is a contiguous array, an update is `acc[i] += p · later[i + shift]`, and nothing is reassociated: results
//! are the same bits for any number of threads and any vector width.

// Code inside a dispatch is compiled once per vector width, so it must be inlined.
#![allow(clippy::inline_always)]

use rayon::prelude::*;

use super::mean::MeanPlan;
use crate::returns::{Compiled, Ladder, Step};

/// Probabilities closer than this to 0 or 1 count as 0 or 1.
const TRIM: f64 = 1e-15;
/// Another action replaces the mean-optimal one only if it is better by this much.
const TIE: f64 = 1e-14;
/// Cells worked on at a time, so that they stay in the first-level cache.
const TILE: usize = 512;
/// A stage with fewer updates than this runs on one thread.
const PARALLEL_WORK: usize = 1 << 19;

/// The cost of ending with a residual target y > 0 unmet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cost {
    /// 1{y > 0}.
    Step,
    /// clip(y / w, 0, 1).
    Ramp(f64),
}

/// ℓ over rungs: 0 below `first`, `values`, then 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row {
    pub first: i64,
    pub values: Vec<f64>,
}

impl Row {
    pub fn end(&self) -> i64 {
        self.first + self.values.len() as i64
    }

    pub fn at(&self, rung: i64) -> f64 {
        match rung {
            _ if rung < self.first => 0.0,
            _ if rung >= self.end() => 1.0,
            _ => self.values[(rung - self.first) as usize],
        }
    }
}

/// Actions over the rungs at which they are not all the mean-optimal one; one byte each for up to 256 actions.
#[derive(Clone, Debug)]
pub(crate) struct ActionRow {
    first: i64,
    cells: Cells,
}

/// The actions of a whole pass, per stage and state.
pub(crate) type ActionTable = Vec<Vec<Option<ActionRow>>>;

#[derive(Clone, Debug)]
enum Cells {
    Narrow(Vec<u8>),
    Wide(Vec<u16>),
}

impl Cells {
    fn new(actions: &[f64], n_actions: usize) -> Self {
        if n_actions <= 256 {
            Cells::Narrow(actions.iter().map(|&a| a as u8).collect())
        } else {
            Cells::Wide(actions.iter().map(|&a| a as u16).collect())
        }
    }
}

impl ActionRow {
    /// The action at a rung, or `None` for the mean-optimal one.
    pub fn at(&self, rung: i64) -> Option<usize> {
        let cell = usize::try_from(rung - self.first).ok()?;
        match &self.cells {
            Cells::Narrow(cells) => cells.get(cell).map(|&a| usize::from(a)),
            Cells::Wide(cells) => cells.get(cell).map(|&a| usize::from(a)),
        }
    }
}

/// The parameters of a pass.
pub(crate) struct Pass<'a> {
    pub compiled: &'a Compiled,
    pub mean: &'a MeanPlan,
    pub ladder: &'a Ladder,
    /// For a ladder of collected rewards, the target g that turns its values into residual targets g − c.
    pub anchor: Option<f64>,
    pub cost: Cost,
    /// 1/λ; with 0 the mean only breaks ties.
    pub mean_price: f64,
    pub keep_policy: bool,
    /// Keep ℓ of every stage and state, up to this many numbers in all.
    pub keep_rows: usize,
    /// The vectors to use; results are the same bits with any.
    pub arch: pulp::Arch,
    /// Called with the number of stages done.
    pub progress: &'a (dyn Fn(usize) + Sync),
}

/// The result of a pass.
pub(crate) struct Swept {
    /// ℓ_0 of the start distribution.
    pub root: Row,
    /// Present if requested.
    pub actions: ActionTable,
    /// ℓ per stage 0..=H and state, the last state being the end of an episode. Empty if not requested, or too large.
    pub rows: Vec<Vec<Row>>,
    /// (transition × target) updates made.
    pub updates: u64,
}

impl Pass<'_> {
    pub fn run(&self) -> Swept {
        let Compiled { n_states, horizon, .. } = *self.compiled;
        let mut later: Vec<Row> = vec![self.final_row(horizon, false); n_states];
        later.push(self.final_row(horizon, true));
        let mut actions = Vec::new();
        let mut kept = Vec::new();
        let mut may_keep = self.keep_rows;
        let mut updates = 0;
        for stage in (0..horizon).rev() {
            let alive = &self.compiled.alive[stage];
            let width: usize = later.iter().map(|row| row.values.len()).sum::<usize>() / later.len() + 1;
            let compute = |scratch: &mut Scratch, &state: &u32| {
                self.arch.dispatch(RowTask {
                    pass: self,
                    stage,
                    state: state as usize,
                    later: &later,
                    scratch,
                })
            };
            let done: Vec<Computed> = if self.compiled.n_transitions(stage) * width < PARALLEL_WORK {
                let mut scratch = Scratch::default();
                alive.iter().map(|state| compute(&mut scratch, state)).collect()
            } else {
                alive.par_iter().map_init(Scratch::default, compute).collect()
            };
            let mut rows = vec![Row::default(); n_states];
            rows.push(self.final_row(stage, true));
            let mut stage_actions = if self.keep_policy { vec![None; n_states] } else { Vec::new() };
            for (&state, computed) in alive.iter().zip(done) {
                updates += computed.updates;
                rows[state as usize] = computed.row;
                if self.keep_policy {
                    stage_actions[state as usize] = computed.actions;
                }
            }
            actions.push(stage_actions);
            let last = std::mem::replace(&mut later, rows);
            keep(&mut kept, &mut may_keep, last);
            (self.progress)(horizon - stage);
        }
        actions.reverse();
        let root = self.root(&later);
        keep(&mut kept, &mut may_keep, later);
        kept.reverse();
        Swept { root, actions, rows: kept, updates }
    }

    /// The cost itself, on the rungs of a stage at which an episode ends.
    fn final_row(&self, stage: usize, over: bool) -> Row {
        let cost = |y: f64| match self.cost {
            Cost::Step => f64::from(u8::from(y > self.compiled.tolerance)),
            Cost::Ramp(w) => (y / w).clamp(0.0, 1.0),
        };
        let costs: Vec<f64> = match (self.ladder.quantum(), self.ladder.listed(stage)) {
            // Rung 1 of a lattice is the first positive target; the ramp has reached 1 by w/quantum.
            (Some(q), _) => {
                let width = if let Cost::Ramp(w) = self.cost { (w / q).ceil() as usize } else { 0 };
                return Row { first: 1, values: (1..=width).map(|y| cost(y as f64 * q)).collect() };
            }
            (None, Some((due, ended))) => {
                let rungs = if over { ended } else { due };
                match self.anchor {
                    Some(target) => rungs.iter().map(|c| cost(target - c)).collect(),
                    // Residual targets: each rung stands for the targets just above the rung before it.
                    None => rungs.iter().map(|&y| cost(y)).chain([1.0]).collect(),
                }
            }
            (None, None) => unreachable!("a ladder is a lattice or listed"),
        };
        trim(0, &costs)
    }

    /// ℓ_h(s, ·) and the actions that attain it.
    #[inline(always)]
    fn row(&self, stage: usize, state: usize, later: &[Row], scratch: &mut Scratch) -> Computed {
        let mut updates = 0;
        let favourite = self.mean.action(stage, state);
        self.lay_out(stage, state, favourite, later, scratch);
        let Scratch { spans, plans, best, which, acc } = scratch;

        // Below `low` the target is certain with some action (with the favourite itself, if actions are kept); from `high` on
        // it is impossible.
        let low = if self.keep_policy {
            plans[0].low
        } else {
            plans.iter().map(|plan| plan.low).max().expect("an alive state has an action")
        };
        let high = plans.iter().map(|plan| plan.high).max().expect("an alive state has an action").max(low);
        let width = (high - low) as usize;
        best.clear();
        best.resize(width, 1.0);
        which.clear();
        which.resize(if self.keep_policy { width } else { 0 }, favourite as f64);
        acc.resize(TILE, 0.0);

        for tile in (0..width).step_by(TILE) {
            let tile_low = low + tile as i64;
            for plan in &*plans {
                let tile_high = (tile_low + TILE as i64).min(plan.high);
                if tile_high <= tile_low || plan.price >= 1.0 {
                    continue;
                }
                let n = (tile_high - tile_low) as usize;
                let acc = &mut acc[..n];
                acc.fill(plan.price);
                // Transitions whose band covers the whole tile go four at a time, which halves the traffic on `acc`.
                let mut whole: [(f64, &[f64]); 4] = [(0.0, &[]); 4];
                let mut waiting = 0;
                for span in &spans[plan.spans.clone()] {
                    let (step, row) = (self.ladder.step(stage, span.code), &later[span.next as usize]);
                    match span.covering(tile_low, tile_high, step, row) {
                        Some(values) => {
                            whole[waiting] = (span.probability, values);
                            waiting += 1;
                            if waiting == 4 {
                                add_four(acc, &whole);
                                waiting = 0;
                            }
                        }
                        None => span.add(acc, tile_low, step, row),
                    }
                }
                for &(probability, values) in &whole[..waiting] {
                    add_scaled(acc, probability, values);
                }
                updates += (n * plan.spans.len()) as u64;
                let best = &mut best[tile..tile + n];
                if self.keep_policy {
                    keep_smaller_with_action(best, &mut which[tile..tile + n], acc, plan.action as f64);
                } else {
                    keep_smaller(best, acc);
                }
            }
        }
        let actions = self.keep_policy.then(|| {
            let other = |&action: &f64| action != favourite as f64;
            let from = which.iter().position(other).unwrap_or(0);
            let to = which.iter().rposition(other).map_or(0, |last| last + 1);
            ActionRow {
                first: low + from as i64,
                cells: Cells::new(&which[from..to], self.compiled.n_actions),
            }
        });
        Computed { row: trim(low, best), actions, updates }
    }

    /// For every available action, the favourite first: its transitions, where each enters its band, and its price.
    fn lay_out(&self, stage: usize, state: usize, favourite: usize, later: &[Row], scratch: &mut Scratch) {
        scratch.spans.clear();
        scratch.plans.clear();
        let others = (0..self.compiled.n_actions).filter(|&a| a != favourite);
        for action in std::iter::once(favourite).chain(others) {
            let begin = scratch.spans.len();
            let (mut low, mut high) = (i64::MAX, i64::MIN);
            for t in self.compiled.transitions(stage, state, action) {
                let (row, step) = (&later[t.next as usize], self.ladder.step(stage, t.code));
                let (from, to) = (step.preimage(row.first), step.preimage(row.end()));
                (low, high) = (low.min(from), high.max(to));
                scratch.spans.push(Span { from, to, probability: t.probability, next: t.next, code: t.code });
            }
            let spans = begin..scratch.spans.len();
            if spans.is_empty() {
                continue;
            }
            let mut price = 0.0;
            if self.mean_price > 0.0 && action != favourite {
                price = self.mean_price * self.mean.loss(self.compiled, stage, state, action);
                // An action that costs more than missing the target with certainty is never chosen.
                low = if price > 0.0 { i64::MIN } else { low };
            }
            scratch.plans.push(ActionPlan { action, price, low, high, spans });
        }
    }

    fn root(&self, rows: &[Row]) -> Row {
        let starts: Vec<(&Row, f64)> = self.compiled.start.iter().map(|&(s, p)| (&rows[s], p)).collect();
        let first = starts.iter().map(|(row, _)| row.first).min().unwrap_or(0);
        let end = starts.iter().map(|(row, _)| row.end()).max().unwrap_or(0);
        let mixed = |rung| starts.iter().map(|(row, p)| p * row.at(rung)).sum();
        Row { first, values: (first..end).map(mixed).collect() }
    }
}

/// Keeps the rows of a stage, or drops those of all stages once they are too many.
fn keep(kept: &mut Vec<Vec<Row>>, may_keep: &mut usize, rows: Vec<Row>) {
    // A row without values takes space too.
    let cells: usize = rows.iter().map(|row| row.values.len() + 4).sum();
    if cells <= *may_keep {
        *may_keep -= cells;
        kept.push(rows);
    } else {
        *may_keep = 0;
        kept.clear();
    }
}

/// [`Pass::row`], compiled once per vector width.
struct RowTask<'a> {
    pass: &'a Pass<'a>,
    stage: usize,
    state: usize,
    later: &'a [Row],
    scratch: &'a mut Scratch,
}

impl pulp::NullaryFnOnce for RowTask<'_> {
    type Output = Computed;

    #[inline(always)]
    fn call(self) -> Computed {
        self.pass.row(self.stage, self.state, self.later, self.scratch)
    }
}

struct Computed {
    row: Row,
    actions: Option<ActionRow>,
    updates: u64,
}

/// One transition's part of a row: nothing below `from`, the later row's band, and its whole probability from `to` on.
struct Span {
    from: i64,
    to: i64,
    probability: f64,
    next: u32,
    code: u32,
}

impl Span {
    /// The later row's values for the rungs from `low` to `high`, when they all lie in its band and in one piece.
    #[inline(always)]
    fn covering<'a>(&self, low: i64, high: i64, step: &Step, later: &'a Row) -> Option<&'a [f64]> {
        match step {
            Step::Shift(by) if self.from <= low && high <= self.to => {
                let source = (low + by - later.first) as usize;
                Some(&later.values[source..source + (high - low) as usize])
            }
            _ => None,
        }
    }

    #[inline(always)]
    fn add(&self, acc: &mut [f64], low: i64, step: &Step, later: &Row) {
        let n = acc.len() as i64;
        let from = (self.from - low).clamp(0, n) as usize;
        let to = (self.to - low).clamp(from as i64, n) as usize;
        let (band, lost) = acc[from..].split_at_mut(to - from);
        if !band.is_empty() {
            let begin = low + from as i64;
            match step {
                Step::Shift(by) => {
                    let source = (begin + by - later.first) as usize;
                    add_scaled(band, self.probability, &later.values[source..source + band.len()]);
                }
                Step::Table(table) => {
                    let sources = &table[begin as usize..begin as usize + band.len()];
                    for (cell, &source) in band.iter_mut().zip(sources) {
                        *cell += self.probability * later.values[(i64::from(source) - later.first) as usize];
                    }
                }
            }
        }
        for cell in lost {
            *cell += self.probability;
        }
    }
}

struct ActionPlan {
    action: usize,
    price: f64,
    low: i64,
    high: i64,
    spans: std::ops::Range<usize>,
}

#[derive(Default)]
struct Scratch {
    spans: Vec<Span>,
    plans: Vec<ActionPlan>,
    best: Vec<f64>,
    which: Vec<f64>,
    acc: Vec<f64>,
}

#[inline(always)]
fn add_scaled(acc: &mut [f64], by: f64, values: &[f64]) {
    for (cell, value) in acc.iter_mut().zip(values) {
        *cell += by * value;
    }
}

#[inline(always)]
fn add_four(acc: &mut [f64], terms: &[(f64, &[f64]); 4]) {
    let n = acc.len();
    let [(p, a), (q, b), (r, c), (s, d)] = terms.map(|(by, values)| (by, &values[..n]));
    for i in 0..n {
        acc[i] = (((acc[i] + p * a[i]) + q * b[i]) + r * c[i]) + s * d[i];
    }
}

#[inline(always)]
fn keep_smaller(best: &mut [f64], candidate: &[f64]) {
    for (best, &value) in best.iter_mut().zip(candidate) {
        *best = if value < *best { value } else { *best };
    }
}

/// As [`keep_smaller`], noting the action; it travels as `f64` so that both selections stay in one vector register.
#[inline(always)]
fn keep_smaller_with_action(best: &mut [f64], which: &mut [f64], candidate: &[f64], action: f64) {
    for ((best, which), &value) in best.iter_mut().zip(which).zip(candidate) {
        let better = value < *best - TIE;
        *which = if better { action } else { *which };
        *best = if better { value } else { *best };
    }
}

/// The band of a row of costs.
fn trim(first: i64, costs: &[f64]) -> Row {
    let from = costs.partition_point(|&cost| cost <= TRIM);
    let to = costs.partition_point(|&cost| cost < 1.0 - TRIM).max(from);
    Row { first: first + from as i64, values: costs[from..to].to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problems;
    use crate::returns::Ladders;

    #[test]
    fn every_vector_width_gives_the_same_bits() {
        let problem = problems::build("inventory", &[]).unwrap();
        let compiled = Compiled::new(&problem.model);
        let ladders = Ladders::exact(&compiled).unwrap();
        let mean = MeanPlan::new(&compiled);
        let sweep = |arch, cost, mean_price| {
            let (keep_policy, progress) = (true, &|_| {});
            let ladder = &ladders.residual;
            Pass {
                compiled: &compiled,
                mean: &mean,
                ladder,
                anchor: None,
                cost,
                mean_price,
                keep_policy,
                keep_rows: 0,
                arch,
                progress,
            }
            .run()
        };
        for (cost, mean_price) in [(Cost::Step, 0.0), (Cost::Step, 0.01), (Cost::Ramp(20.5), 0.0)] {
            let (wide, plain) =
                (sweep(pulp::Arch::new(), cost, mean_price), sweep(pulp::Arch::Scalar, cost, mean_price));
            assert_eq!(wide.root, plain.root);
            assert!(wide.root.values.len() > 100);
            for (a, b) in
                wide.actions.iter().flatten().flatten().zip(plain.actions.iter().flatten().flatten())
            {
                assert_eq!(format!("{a:?}"), format!("{b:?}"));
            }
        }
    }

    #[test]
    fn a_row_is_zero_below_its_band_and_one_above() {
        let row = trim(10, &[0.0, 1e-16, 0.25, 0.5, 1.0, 1.0]);
        assert_eq!(row, Row { first: 12, values: vec![0.25, 0.5] });
        assert_eq!([9, 11, 12, 13, 14, 99].map(|rung| row.at(rung)), [0.0, 0.0, 0.25, 0.5, 1.0, 1.0]);
        // Nothing in between is an empty band at the step.
        assert_eq!(trim(0, &[0.0, 0.0, 1.0]), Row { first: 2, values: vec![] });
    }

    #[test]
    fn an_action_must_be_better_by_more_than_rounding() {
        let (mut best, mut which) = ([0.5, 0.5], [0.0, 0.0]);
        keep_smaller_with_action(&mut best, &mut which, &[0.5 - 1e-15, 0.4], 3.0);
        assert_eq!((best, which), ([0.5, 0.4], [0.0, 3.0]));
    }
}
