//! The set of possible returns, numbered so that they can index a table.
//!
//! A planner follows a *residual target* y (the return that is still missing), an evaluation the *collected* reward c. Both
//! change by the reward of a transition, y' = y − γ^h r and c' = c + γ^h r. The values of each stage form a ladder of rungs:
//!
//! - **lattice**: every reward is a whole multiple of one quantum (k/24, cents, …). A rung is an integer, a transition
//!   shifts it by an integer, and a row of the table is a contiguous array. This is the usual case, and it is fast.
//! - **listed**: the distinct values are few but irregular (option payoffs, discounting). Rungs are sorted lists, and a
//!   table per reward says where each rung goes.
//! - **rounded**: neither holds. Rewards are rounded down (or up) to a lattice, which bounds every monotone objective
//!   from below (above). This happens only if the caller asks for it.
//!
//! Rewards that differ by less than [`RETURN_TOLERANCE`] times the largest |reward| are one value: real files contain noise,
//! such as 999.9999999999942 and 999.9999999999856.

use thiserror::Error;

use crate::model::{Kernel, Model};

/// Rewards and returns closer than this, relative to the largest |reward|, are one value.
pub const RETURN_TOLERANCE: f64 = 1e-9;

/// The most rungs that an exact lattice may have.
const LATTICE_LIMIT: usize = 1 << 22;
/// The most (state, rung) cells of one stage: 2 GiB of `f64`.
const CELL_LIMIT: usize = 1 << 28;
/// The most values that a listed ladder may have at a stage.
const LIST_LIMIT: usize = 1 << 18;
/// A listed ladder is used if it is this many times shorter than the lattice, because its look-ups are slower.
const LIST_ADVANTAGE: usize = 16;
/// The most sums that may be formed while a list is built; fewer if a lattice is possible instead.
const LIST_WORK: usize = 1 << 25;
const LIST_TRIAL: usize = 1 << 20;
/// The most entries of all tables of a listed ladder: 2 GiB of `u32`.
const TABLE_LIMIT: usize = 1 << 29;
/// The most bytes of the tables of a plan. Fixed, so that whether a plan is exact does not depend on the machine.
pub(crate) const MEMORY_LIMIT: f64 = (8u64 << 30) as f64;

#[derive(Clone, Copy)]
struct ListLimit {
    values: usize,
    work: usize,
}

/// The return set has too many values: to be exact, or for the given grid.
#[derive(Clone, Debug, Error, PartialEq)]
#[error("the return set is too large: {size} (limit {limit})")]
pub struct TooManyReturns {
    /// Its size, in words.
    pub size: String,
    /// The limit that it exceeds, in words.
    pub limit: String,
}

/// How rewards become whole numbers of quanta.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rounding {
    /// Every reward is (within the tolerance) a multiple of the quantum.
    Exact,
    /// Down: all results are lower bounds.
    Down,
    /// Up: all results are upper bounds.
    Up,
}

/// One transition of the compiled table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transition {
    pub probability: f64,
    /// The next state, or `n_states` when the episode is over on arrival.
    pub next: u32,
    /// Which reward, and whether the episode is over: see [`Compiled::code`].
    pub code: u32,
}

/// The model in the form that the passes use: numbered rewards, all terminal states as one, rows end to end.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub n_states: usize,
    pub n_actions: usize,
    pub horizon: usize,
    pub start: Vec<(usize, f64)>,
    /// The distinct rewards, noise removed, ascending.
    pub rewards: Vec<f64>,
    /// γ^h for every stage.
    pub discounts: Vec<f64>,
    /// For every stage 0..=H: the states in which a decision can be due.
    pub alive: Vec<Vec<u32>>,
    /// Returns closer than this are one value.
    pub tolerance: f64,
    /// The smallest and the largest possible return.
    pub range: (f64, f64),
    kernels: Vec<(Vec<usize>, Vec<Transition>)>,
}

impl Compiled {
    pub fn new(model: &Model) -> Self {
        let reachable = model.reachable();
        // The largest reward that can be earned: that of a state which is never reached must not make others alike.
        let is_reached = |kernel: usize, state: usize| match model.kernels().len() {
            1 => reachable.iter().any(|reached| reached[state]),
            _ => reachable[kernel][state],
        };
        let mut scale = 0.0_f64;
        for (index, kernel) in model.kernels().iter().enumerate() {
            for state in (0..model.n_states()).filter(|&state| is_reached(index, state)) {
                let outcomes = (0..model.n_actions()).flat_map(|action| kernel.outcomes(state, action));
                scale = outcomes.fold(scale, |scale, outcome| scale.max(outcome.reward.abs()));
            }
        }
        let rewards = distinct_rewards(model, scale);
        let (n_states, n_actions, horizon) = (model.n_states(), model.n_actions(), model.horizon());
        let kernels = (0..model.kernels().len())
            .map(|stage| {
                let mut first = vec![0];
                let mut transitions = Vec::with_capacity(model.kernel(stage).all_outcomes().len());
                for row in 0..n_states * n_actions {
                    let begin = transitions.len();
                    for outcome in model.outcomes(stage, row / n_actions, row % n_actions) {
                        let over = model.is_terminal(stage + 1, outcome.next);
                        let next = if over { n_states } else { outcome.next } as u32;
                        let code = Self::code(nearest(&rewards, outcome.reward), over);
                        // Holes, goals and noisy copies of one reward become the same entry here.
                        match transitions[begin..]
                            .iter_mut()
                            .find(|t: &&mut Transition| t.next == next && t.code == code)
                        {
                            Some(same) => same.probability += outcome.probability,
                            None => {
                                transitions.push(Transition { probability: outcome.probability, next, code });
                            }
                        }
                    }
                    first.push(transitions.len());
                }
                (first, transitions)
            })
            .collect();
        let alive = reachable
            .iter()
            .enumerate()
            .map(|(stage, reached)| {
                let due = |s: &usize| reached[*s] && !model.is_terminal(stage, *s);
                (0..n_states).filter(due).map(|s| s as u32).collect()
            })
            .collect();
        let mut compiled = Self {
            n_states,
            n_actions,
            horizon,
            start: model.start().to_vec(),
            rewards,
            discounts: (0..horizon).map(|stage| model.discount_at(stage)).collect(),
            alive,
            tolerance: RETURN_TOLERANCE * scale,
            range: (0.0, 0.0),
            kernels,
        };
        compiled.range = compiled.find_range(|_, _| {});
        compiled
    }

    /// The reward number and "the episode is over" in one number: the two cases lead to different rungs of a listed ladder.
    fn code(reward: usize, over: bool) -> u32 {
        2 * reward as u32 + u32::from(over)
    }

    /// γ^h r of a transition.
    pub fn reward(&self, stage: usize, code: u32) -> f64 {
        self.discounts[stage] * self.rewards[code as usize / 2]
    }

    fn kernel(&self, stage: usize) -> &(Vec<usize>, Vec<Transition>) {
        &self.kernels[if self.kernels.len() == 1 { 0 } else { stage }]
    }

    /// The number of transitions of stage h.
    pub fn n_transitions(&self, stage: usize) -> usize {
        self.kernel(stage).1.len()
    }

    /// The transitions of (s, a) at stage h; empty when the action is not available.
    pub fn transitions(&self, stage: usize, state: usize, action: usize) -> &[Transition] {
        let (first, transitions) = self.kernel(stage);
        let row = state * self.n_actions + action;
        &transitions[first[row]..first[row + 1]]
    }

    /// The smallest and the largest return. `visit` gets those of the rest of the episode, for each stage and state.
    fn find_range(&self, mut visit: impl FnMut(usize, (f64, f64))) -> (f64, f64) {
        let mut bounds = vec![(0.0f64, 0.0f64); self.n_states + 1];
        for stage in (0..self.horizon).rev() {
            let mut earlier = vec![(0.0, 0.0); self.n_states + 1];
            for &state in &self.alive[stage] {
                let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
                for action in 0..self.n_actions {
                    for t in self.transitions(stage, state as usize, action) {
                        let (reward, rest) = (self.reward(stage, t.code), bounds[t.next as usize]);
                        low = low.min(reward + rest.0);
                        high = high.max(reward + rest.1);
                    }
                }
                visit(stage, (low, high));
                earlier[state as usize] = (low, high);
            }
            bounds = earlier;
        }
        let starts = self.start.iter().map(|&(state, _)| bounds[state]);
        starts.fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), (low, high)| (a.min(low), b.max(high)))
    }

    /// The codes that occur at a stage, ascending.
    fn codes(&self, stage: usize) -> Vec<u32> {
        let mut used = vec![false; 2 * self.rewards.len()];
        for &state in &self.alive[stage] {
            for action in 0..self.n_actions {
                for t in self.transitions(stage, state as usize, action) {
                    used[t.code as usize] = true;
                }
            }
        }
        (0..used.len() as u32).filter(|&code| used[code as usize]).collect()
    }
}

/// The map of a transition from the rungs of stage h to those of stage h + 1.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Adds this number to the rung.
    Shift(i64),
    /// Takes the listed rung; the list never decreases.
    Table(Vec<u32>),
}

impl Step {
    /// The first rung of stage h that goes to rung `to` or above.
    pub fn preimage(&self, to: i64) -> i64 {
        match self {
            Step::Shift(by) => to - by,
            Step::Table(table) => table.partition_point(|&rung| i64::from(rung) < to) as i64,
        }
    }

    /// The image of one rung.
    pub fn apply(&self, rung: i64) -> i64 {
        match self {
            Step::Shift(by) => rung + by,
            Step::Table(table) => i64::from(table[rung as usize]),
        }
    }
}

/// The rungs of every stage, and how transitions move between them.
#[derive(Debug)]
pub(crate) struct Ladder {
    /// The spacing of a lattice; `None` when rungs are listed.
    quantum: Option<f64>,
    /// Listed rungs where a decision is due, per stage 0..=H.
    alive: Vec<Vec<f64>>,
    /// Listed rungs where the episode is over, per stage 0..=H.
    ended: Vec<Vec<f64>>,
    /// Per stage (or one for all), per code.
    steps: Vec<Vec<Step>>,
    tolerance: f64,
}

/// The two ladders of a model: residual targets (rising) and collected rewards.
#[derive(Debug)]
pub(crate) struct Ladders {
    pub residual: Ladder,
    pub collected: Ladder,
    /// The number of rungs of the first stage, a measure of the problem's size.
    pub size: usize,
}

impl Ladders {
    /// The exact ladders: listed if that is much shorter, otherwise a lattice.
    pub fn exact(compiled: &Compiled) -> Result<Self, TooManyReturns> {
        let (low, high) = compiled.range;
        let undiscounted = compiled.discounts.iter().all(|&d| d == 1.0);
        let quantum = if undiscounted { quantum(&compiled.rewards) } else { None };
        let lattice_size = quantum.map(|q| ((high - low) / q).round() + 1.0);

        let limit = match lattice_size {
            Some(n) => {
                ListLimit { values: LIST_LIMIT.min((n / LIST_ADVANTAGE as f64) as usize), work: LIST_TRIAL }
            }
            None => ListLimit { values: LIST_LIMIT, work: LIST_WORK },
        };
        if let Some(residual) = listed_residual(compiled, limit)
            && let Some(collected) = listed_collected(compiled, limit)
        {
            let size = residual.alive[0].len();
            check_cells(compiled, size as f64)?;
            return Ok(Self { residual, collected, size });
        }
        match (quantum, lattice_size) {
            (Some(quantum), Some(size)) if size <= LATTICE_LIMIT as f64 => {
                check_cells(compiled, size)?;
                Ok(Self::lattice(compiled, quantum, Rounding::Exact, size as usize))
            }
            (_, size) => Err(TooManyReturns {
                size: match size {
                    Some(n) => format!("{n:.0} possible values between {low} and {high}"),
                    None => format!("too many irregular values between {low} and {high}"),
                },
                limit: format!("{} values", if size.is_some() { LATTICE_LIMIT } else { LIST_LIMIT }),
            }),
        }
    }

    /// Ladders of at most about `grid` rungs with rewards rounded one way.
    pub fn rounded(compiled: &Compiled, grid: usize, rounding: Rounding) -> Self {
        let (low, high) = compiled.range;
        // A degenerate range still needs a positive spacing.
        let quantum = if high > low { (high - low) / grid as f64 } else { 1.0 };
        Self::lattice(compiled, quantum, rounding, grid)
    }

    fn lattice(compiled: &Compiled, quantum: f64, rounding: Rounding, size: usize) -> Self {
        let stationary = compiled.discounts.iter().all(|&d| d == 1.0);
        let stages = if stationary { 1 } else { compiled.horizon };
        let shifts = |sign: i64| -> Vec<Vec<Step>> {
            (0..stages)
                .map(|stage| {
                    (0..2 * compiled.rewards.len() as u32)
                        .map(|code| {
                            let quanta = compiled.reward(stage, code) / quantum;
                            // A multiple stays a multiple although the division may miss it by rounding.
                            let whole = match rounding {
                                Rounding::Exact => quanta.round(),
                                Rounding::Down => (quanta + 1e-9).floor(),
                                Rounding::Up => (quanta - 1e-9).ceil(),
                            };
                            Step::Shift(sign * (whole as i64).clamp(-FARTHEST, FARTHEST))
                        })
                        .collect()
                })
                .collect()
        };
        let ladder = |steps| Ladder {
            quantum: Some(quantum),
            alive: Vec::new(),
            ended: Vec::new(),
            steps,
            tolerance: compiled.tolerance,
        };
        Self { residual: ladder(shifts(-1)), collected: ladder(shifts(1)), size }
    }
}

fn check_cells(compiled: &Compiled, size: f64) -> Result<(), TooManyReturns> {
    let states = compiled.alive.iter().map(Vec::len).max().unwrap_or(0);
    if size * states as f64 <= CELL_LIMIT as f64 {
        return Ok(());
    }
    Err(TooManyReturns {
        size: format!("{size:.0} possible values for each of {states} states"),
        limit: format!("{CELL_LIMIT} (state, value) pairs"),
    })
}

/// Refuses tables of a plan that would be too large: the actions of all stages, and the values of two stages.
///
/// The bound is not tight, because a row holds only the rungs between the certain and the impossible.
pub(crate) fn check_memory(compiled: &Compiled, ladder: &Ladder) -> Result<(), TooManyReturns> {
    let (mut all, mut values) = (0.0f64, vec![0.0f64; compiled.horizon]);
    compiled.find_range(|stage, (low, high)| {
        let rungs = match ladder.quantum {
            Some(quantum) => (high - low) / quantum + 1.0,
            None => ladder.alive[stage].len() as f64,
        };
        all += rungs;
        values[stage] += rungs;
    });
    let action = if compiled.n_actions <= 256 { 1.0 } else { 2.0 };
    let widest = values.into_iter().fold(0.0, f64::max);
    let bytes = action * all + 2.0 * size_of::<f64>() as f64 * widest;
    if bytes <= MEMORY_LIMIT {
        return Ok(());
    }
    Err(TooManyReturns {
        size: format!("the tables of {} stages may need {:.1} GB", compiled.horizon, bytes / 1e9),
        limit: format!("{:.1} GB", MEMORY_LIMIT / 1e9),
    })
}

impl Ladder {
    /// The spacing of the rungs, if they are evenly spaced.
    pub fn quantum(&self) -> Option<f64> {
        self.quantum
    }

    /// How a transition with this code moves between the rungs of stage h and h + 1.
    pub fn step(&self, stage: usize, code: u32) -> &Step {
        &self.steps[if self.steps.len() == 1 { 0 } else { stage }][code as usize]
    }

    /// The value of a rung at which a decision is due (or the horizon is reached).
    pub fn value(&self, stage: usize, rung: i64) -> f64 {
        self.quantum.map_or_else(|| self.alive[stage][rung as usize], |q| q * rung as f64)
    }

    /// The value of a rung on which an episode ended early.
    pub fn ended_value(&self, stage: usize, rung: i64) -> f64 {
        self.quantum.map_or_else(|| self.ended[stage][rung as usize], |q| q * rung as f64)
    }

    /// Listed values of a stage: (due, over). `None` on a lattice.
    pub fn listed(&self, stage: usize) -> Option<(&[f64], &[f64])> {
        self.quantum.is_none().then(|| (&self.alive[stage][..], &self.ended[stage][..]))
    }

    /// The rung of a residual target: the lowest rung that is not below it.
    pub fn rung_of_target(&self, stage: usize, target: f64) -> i64 {
        match self.quantum {
            Some(q) => (target / q).round() as i64,
            None => self.alive[stage].partition_point(|&d| d < target - self.tolerance) as i64,
        }
    }

    /// The rung of a collected reward (collected ladders list their values falling).
    pub fn rung_of_collected(&self, stage: usize, collected: f64) -> i64 {
        match self.quantum {
            Some(q) => (collected / q).round() as i64,
            None => self.alive[stage].partition_point(|&c| c > collected + self.tolerance) as i64,
        }
    }

    /// Whether a collected reward is that of some rung of a stage, within `slack`.
    pub fn occurs(&self, stage: usize, collected: f64, slack: f64) -> bool {
        match self.quantum {
            Some(q) => ((collected / q).round() * q - collected).abs() <= slack,
            None => self.alive[stage].iter().any(|c| (c - collected).abs() <= slack),
        }
    }
}

/// The longest step, in rungs. The ladders that fit in memory are much shorter; but the rewards of states that are never
/// reached do not count for their length, and may be any number of quanta. Sums over all stages do not overflow.
const FARTHEST: i64 = 1 << 40;

/// Residual targets: D_H = {0}, D_h = { γ^h r + d } ∪ { γ^h r that end the episode }, rising. Rung i stands for the
/// targets in (d_{i−1}, d_i]; one rung more, for targets beyond every return, closes the list.
fn listed_residual(compiled: &Compiled, limit: ListLimit) -> Option<Ladder> {
    let horizon = compiled.horizon;
    let mut alive = vec![vec![0.0]; horizon + 1];
    let ended = vec![vec![0.0]; horizon + 1];
    let mut steps = vec![Vec::new(); horizon];
    let (mut work, mut entries) = (0, 0);
    for stage in (0..horizon).rev() {
        let codes = compiled.codes(stage);
        let mut values = Vec::new();
        for &code in &codes {
            let reward = compiled.reward(stage, code);
            let later = if code % 2 == 1 { &ended } else { &alive };
            work += later[stage + 1].len();
            if work > limit.work {
                return None;
            }
            values.extend(later[stage + 1].iter().map(|d| reward + d));
        }
        let rungs = merge_close(values, compiled.tolerance);
        entries += codes.len() * (rungs.len() + 1);
        if rungs.len() > limit.values || entries > TABLE_LIMIT {
            return None;
        }
        let mut tables = vec![Step::Shift(0); 2 * compiled.rewards.len()];
        for &code in &codes {
            let reward = compiled.reward(stage, code);
            let later = &(if code % 2 == 1 { &ended } else { &alive })[stage + 1];
            let mut below = 0;
            let mut table = Vec::with_capacity(rungs.len() + 1);
            for y in &rungs {
                while below < later.len() && later[below] < y - reward - compiled.tolerance {
                    below += 1;
                }
                table.push(below as u32);
            }
            table.push(later.len() as u32);
            tables[code as usize] = Step::Table(table);
        }
        alive[stage] = rungs;
        steps[stage] = tables;
    }
    Some(Ladder { quantum: None, alive, ended, steps, tolerance: compiled.tolerance })
}

/// Collected rewards: C_0 = {0}, C_{h+1} = C_h + γ^h r, falling, so that the residual target g − c rises with the rung
/// as it does on every other ladder.
fn listed_collected(compiled: &Compiled, limit: ListLimit) -> Option<Ladder> {
    let mut alive = vec![vec![0.0]];
    let mut ended = vec![Vec::new()];
    let mut steps = Vec::new();
    let (mut work, mut entries) = (0, 0);
    for stage in 0..compiled.horizon {
        let codes = compiled.codes(stage);
        let mut next: [Vec<f64>; 2] = [Vec::new(), Vec::new()];
        for &code in &codes {
            let reward = compiled.reward(stage, code);
            work += alive[stage].len();
            if work > limit.work {
                return None;
            }
            next[code as usize % 2].extend(alive[stage].iter().map(|c| c + reward));
        }
        let next = next.map(|values| {
            let mut rungs = merge_close(values, compiled.tolerance);
            rungs.reverse();
            rungs
        });
        entries += codes.len() * alive[stage].len();
        if next.iter().any(|rungs| rungs.len() > limit.values) || entries > TABLE_LIMIT {
            return None;
        }
        let mut tables = vec![Step::Shift(0); 2 * compiled.rewards.len()];
        for &code in &codes {
            let (reward, rungs) = (compiled.reward(stage, code), &next[code as usize % 2]);
            let to = |c: &f64| rungs.partition_point(|&value| value > c + reward + compiled.tolerance) as u32;
            tables[code as usize] = Step::Table(alive[stage].iter().map(to).collect());
        }
        let [next_alive, next_ended] = next;
        alive.push(next_alive);
        ended.push(next_ended);
        steps.push(tables);
    }
    Some(Ladder { quantum: None, alive, ended, steps, tolerance: compiled.tolerance })
}

/// Sorts, and keeps the smallest of every cluster of values no wider than the tolerance.
fn merge_close(mut values: Vec<f64>, tolerance: f64) -> Vec<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let mut kept: Vec<f64> = Vec::new();
    for value in values {
        if kept.last().is_none_or(|&last| value - last > tolerance) {
            kept.push(value);
        }
    }
    kept
}

/// The distinct rewards with their noise removed: clusters no wider than the tolerance become their middle, and the
/// middle becomes a short decimal when one lies within rounding error (999.9999999999942 → 1000).
fn distinct_rewards(model: &Model, scale: f64) -> Vec<f64> {
    let mut rewards: Vec<f64> =
        model.kernels().iter().flat_map(Kernel::all_outcomes).map(|outcome| outcome.reward).collect();
    rewards.sort_unstable_by(f64::total_cmp);
    rewards.dedup();
    rewards
        .chunk_by({
            let mut first = None;
            move |&a, &b| {
                let start = *first.get_or_insert(a);
                let together = b - start <= RETURN_TOLERANCE * scale;
                if !together {
                    first = Some(b);
                }
                together
            }
        })
        .map(|cluster| {
            let middle = f64::midpoint(cluster[0], cluster[cluster.len() - 1]);
            let short = |digits: i32| (middle * 10f64.powi(digits)).round() / 10f64.powi(digits);
            (0..=9).map(short).find(|s| (s - middle).abs() <= 1e-12 * scale).unwrap_or(middle)
        })
        .collect()
}

/// The closest reward of the list.
fn nearest(rewards: &[f64], reward: f64) -> usize {
    let above = rewards.partition_point(|&r| r < reward);
    if above == rewards.len() || (above > 0 && reward - rewards[above - 1] < rewards[above] - reward) {
        above - 1
    } else {
        above
    }
}

/// The largest number of which every reward is a whole multiple, by Euclid's algorithm with a tolerance.
pub(crate) fn quantum(rewards: &[f64]) -> Option<f64> {
    let scale = rewards.iter().fold(0.0f64, |scale, r| scale.max(r.abs()));
    if scale == 0.0 {
        return Some(1.0);
    }
    let tolerance = 1e-10 * scale;
    let mut common = scale;
    for reward in rewards.iter().filter(|r| r.abs() > tolerance) {
        let (mut a, mut b) = (reward.abs().max(common), reward.abs().min(common));
        while b > tolerance {
            let rest = a % b;
            (a, b) = (b, if b - rest <= tolerance { 0.0 } else { rest });
        }
        if a < 1e-7 * scale {
            return None;
        }
        // A remainder of large numbers is inexact; as a fraction of the largest reward it is accurate again.
        common = scale / (scale / a).round();
    }
    // The least-squares fit over all rewards is the most accurate of all.
    let multiples: Vec<f64> = rewards.iter().map(|r| (r / common).round()).collect();
    let fitted = rewards.iter().zip(&multiples).map(|(r, n)| r * n).sum::<f64>()
        / multiples.iter().map(|n| n * n).sum::<f64>();
    let fits = rewards.iter().zip(&multiples).all(|(r, n)| (r - n * fitted).abs() <= tolerance);
    fits.then_some(fitted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantum_is_found_through_noise_and_refused_for_incommensurable_rewards() {
        let offers: Vec<f64> = (0..25).map(|k| f64::from(k) / 24.0).collect();
        assert!((quantum(&offers).unwrap() - 1.0 / 24.0).abs() < 1e-15);
        assert!((quantum(&[-7.3, 63.0, 18.799999999999997]).unwrap() - 0.1).abs() < 1e-14);
        let decimals: Vec<f64> = (-2970..4890).map(|k| 0.1 * f64::from(k)).collect();
        assert!((quantum(&decimals).unwrap() - 0.1).abs() < 1e-14);
        assert!((quantum(&[0.005, 1.0]).unwrap() - 0.005).abs() < 1e-16);
        assert_eq!(quantum(&[0.0]), Some(1.0));
        assert_eq!(quantum(&[1.0, std::f64::consts::SQRT_2]), None);
    }

    #[test]
    fn nearest_takes_the_closer_neighbour() {
        assert_eq!(nearest(&[-1.0, 0.0, 5.0], 2.4), 1);
        assert_eq!(nearest(&[-1.0, 0.0, 5.0], 2.6), 2);
        assert_eq!(nearest(&[-1.0, 0.0, 5.0], 9.0), 2);
        assert_eq!(nearest(&[-1.0, 0.0, 5.0], -9.0), 0);
    }

    #[test]
    fn preimage_is_the_first_rung_that_reaches() {
        assert_eq!(Step::Shift(-3).preimage(4), 7);
        let table = Step::Table(vec![0, 0, 2, 2, 5]);
        assert_eq!([0, 1, 2, 3, 6].map(|to| table.preimage(to)), [0, 2, 2, 4, 5]);
    }
}
