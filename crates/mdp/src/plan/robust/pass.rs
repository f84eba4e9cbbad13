//! One backward pass: ℓ and b of all targets at a stage, from those of the next.

use super::mean::{Entry, move_mass};
use super::{RobustModel, RobustPlanner, RobustRow, TIE, TRIM};
use crate::plan::sweep::Cost;

/// ℓ and b over rungs, a row per state: 0 below `low`, 1 from `low + width` on.
#[derive(Clone, Debug, Default)]
pub(super) struct Band {
    pub(super) low: i64,
    pub(super) width: usize,
    pub(super) loss: Vec<f64>,
    pub(super) below: Vec<f64>,
}

impl Band {
    pub(super) fn high(&self) -> i64 {
        self.low + self.width as i64
    }

    pub(super) fn at(values: &[f64], low: i64, rung: i64) -> f64 {
        match usize::try_from(rung - low) {
            Err(_) => 0.0,
            Ok(cell) => values.get(cell).copied().unwrap_or(1.0),
        }
    }

    pub(super) fn loss_at(&self, state: usize, rung: i64) -> f64 {
        Self::at(&self.loss[state * self.width..(state + 1) * self.width], self.low, rung)
    }

    pub(super) fn below_at(&self, state: usize, rung: i64) -> f64 {
        Self::at(&self.below[state * self.width..(state + 1) * self.width], self.low, rung)
    }

    /// `acc[i] += p · row(from + i)`, the row being 0 below its cells and 1 above them.
    pub(super) fn add(acc: &mut [f64], p: f64, cells: &[f64], low: i64, from: i64) {
        let n = acc.len() as i64;
        let begin = (low - from).clamp(0, n);
        let end = (low + cells.len() as i64 - from).clamp(begin, n);
        let source = (from + begin - low).max(0) as usize;
        let (band, lost) = acc[begin as usize..].split_at_mut((end - begin) as usize);
        for (cell, value) in band.iter_mut().zip(&cells[source.min(cells.len())..]) {
            *cell += p * value;
        }
        for cell in lost {
            *cell += p;
        }
    }

    /// Removes the rungs that are 0, or 1, for all states.
    pub(super) fn trim(self, n_states: usize) -> Self {
        let Self { low, width, loss, below } = self;
        let column = |cell: usize| (0..n_states).map(move |s| s * width + cell);
        let is = |cell: usize, edge: f64| {
            column(cell).all(|at| (loss[at] - edge).abs() <= TRIM && (below[at] - edge).abs() <= TRIM)
        };
        let from = (0..width).take_while(|&cell| is(cell, 0.0)).count();
        let to = width - (from..width).rev().take_while(|&cell| is(cell, 1.0)).count();
        let cut = |values: &[f64]| -> Vec<f64> {
            (0..n_states).flat_map(|s| &values[s * width + from..s * width + to]).copied().collect()
        };
        Self { low: low + from as i64, width: to - from, loss: cut(&loss), below: cut(&below) }
    }
}

/// The actions of one stage, over the rungs of its band; elsewhere the mean-optimal one.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    pub(super) low: i64,
    pub(super) width: usize,
    pub(super) cells: Vec<u16>,
}

/// The parameters of a pass.
#[derive(Clone, Copy)]
pub(super) struct Ask {
    pub(super) cost: Cost,
    /// 1/λ.
    pub(super) price: f64,
    pub(super) optimistic: bool,
    /// At the root.
    pub(super) wanted: Targets,
}

/// The targets at which a pass must be right, as rungs, both ends included.
#[derive(Clone, Copy)]
pub(super) struct Targets {
    pub(super) from: i64,
    pub(super) to: i64,
}

impl Targets {
    pub(super) const ALL: Self = Self { from: i64::MIN, to: i64::MAX };

    /// The residual targets after a reward in this range.
    pub(super) fn after(self, (least, most): (i64, i64)) -> Self {
        let end = |at: i64, by: i64| if at == i64::MIN || at == i64::MAX { at } else { at - by };
        Self { from: end(self.from, most), to: end(self.to, least) }
    }

    /// The wanted part of low..high. Rungs below count as certain, rungs above as impossible; they are never read.
    pub(super) fn cut(self, low: i64, high: i64) -> (i64, i64) {
        let end = self.to.saturating_add(1);
        (low.clamp(self.from, end), high.clamp(self.from, end))
    }
}

pub(super) fn argmax(values: &[f64]) -> usize {
    (0..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

/// Rewards of one stage as rungs.
pub(super) struct Shifts {
    pub(super) outcomes: Vec<Vec<i64>>,
    pub(super) elsewhere: Vec<i64>,
    pub(super) arrival: Vec<i64>,
    /// The least and the most of them.
    pub(super) range: (i64, i64),
}

/// One stage of a pass.
pub(super) struct StagePass<'a> {
    pub(super) planner: &'a RobustPlanner<'a>,
    pub(super) stage: usize,
    pub(super) ask: Ask,
    pub(super) wanted: Targets,
    pub(super) shifts: &'a Shifts,
    pub(super) later: &'a Band,
    pub(super) over: &'a Band,
}

/// Values that all rows of a stage share: transitions to any state, over the residual rungs after `elsewhere`.
pub(super) struct Anywhere {
    /// ℓ and b on arrival, by state.
    pub(super) there: Band,
    /// The state with the least ℓ, by rung.
    pub(super) best: Vec<u32>,
    /// States from the largest ℓ to the least, by rung; empty when no row needs it.
    pub(super) order: Vec<u32>,
    /// Per shared distribution: its expected ℓ and b, by rung.
    pub(super) means: Vec<(Vec<f64>, Vec<f64>)>,
    /// Rows that were never tried, by (distribution, radius): their ℓ and b.
    pub(super) untried: Vec<Untried>,
}

/// ℓ and b, by rung, of rows without data that have a distribution and a radius in common.
pub(super) struct Untried {
    pub(super) which: usize,
    pub(super) radius: f64,
    pub(super) loss: Vec<f64>,
    pub(super) below: Vec<f64>,
}

impl StagePass<'_> {
    pub(super) fn run(&self) -> (Band, Stage) {
        let RobustModel { n_states, n_actions, ref terminal, .. } = *self.planner.model;
        let rows = &self.planner.model.kernels[self.planner.model.kernel(self.stage)];
        let mut anywhere = self.anywhere(rows);
        let (low, high) = self.reach(rows, &anywhere);
        let (low, high) = self.wanted.cut(low, high);
        let width = (high - low) as usize;
        let mut band =
            Band { low, width, loss: vec![1.0; n_states * width], below: vec![1.0; n_states * width] };
        let mut cells = vec![0; n_states * width];
        let (mut loss, mut below, mut entries) = (vec![0.0; width], vec![0.0; width], Vec::new());
        for (state, &is_terminal) in terminal.iter().enumerate() {
            let cut = state * width..(state + 1) * width;
            if is_terminal {
                for (cell, rung) in (low..high).enumerate() {
                    let cost = Band::at(&self.over.loss[..self.over.width], self.over.low, rung);
                    (band.loss[cut.start + cell], band.below[cut.start + cell]) = (cost, cost);
                }
                continue;
            }
            let favourite = self.planner.mean.action(self.stage, state);
            cells[cut.clone()].fill(favourite as u16);
            let others = (0..n_actions).filter(|&a| a != favourite);
            for action in std::iter::once(favourite).chain(others) {
                let index = state * n_actions + action;
                let price = match self.planner.mean.losses[self.stage][index] {
                    _ if action == favourite => 0.0,
                    lost => (self.ask.price * lost).min(f64::MAX),
                };
                if price >= 1.0 {
                    continue;
                }
                self.row(index, &rows[index], low, &mut anywhere, &mut loss, &mut below, &mut entries);
                let (best, below_best) = (&mut band.loss[cut.clone()], &mut band.below[cut.clone()]);
                let chosen = &mut cells[cut.clone()];
                if action == favourite {
                    best.copy_from_slice(&loss);
                    below_best.copy_from_slice(&below);
                    continue;
                }
                for cell in 0..width {
                    if loss[cell] + price < best[cell] - TIE {
                        best[cell] = loss[cell] + price;
                        below_best[cell] = below[cell];
                        chosen[cell] = action as u16;
                    }
                }
            }
        }
        (band.trim(n_states), Stage { low, width, cells })
    }

    pub(super) fn radius(&self, row: &RobustRow) -> f64 {
        if self.ask.optimistic { row.radius } else { 0.0 }
    }

    pub(super) fn anywhere(&self, rows: &[RobustRow]) -> Anywhere {
        let RobustModel { n_states, n_actions, ref shared, .. } = *self.planner.model;
        let (later, arrival) = (self.later, &self.shifts.arrival);
        let low = later.low + arrival.iter().min().expect("there are states");
        let high = later.high() + arrival.iter().max().expect("there are states");
        let width = (high - low) as usize;
        let mut there =
            Band { low, width, loss: vec![0.0; n_states * width], below: vec![0.0; n_states * width] };
        for (state, &shift) in arrival.iter().enumerate() {
            let (to, from) =
                (state * width..(state + 1) * width, state * later.width..(state + 1) * later.width);
            let begin = low - shift;
            Band::add(&mut there.loss[to.clone()], 1.0, &later.loss[from.clone()], later.low, begin);
            Band::add(&mut there.below[to], 1.0, &later.below[from], later.low, begin);
        }
        let needed = |test: &dyn Fn(&RobustRow) -> bool| rows.iter().any(test);
        let mut best = Vec::new();
        if self.ask.optimistic && needed(&|row| row.radius > 0.0) {
            best = vec![0; width];
            for state in 1..n_states {
                for (cell, best) in best.iter_mut().enumerate() {
                    if there.loss[state * width + cell] < there.loss[*best as usize * width + cell] {
                        *best = state as u32;
                    }
                }
            }
        }
        let mut order = Vec::new();
        if needed(&|row| row.shared > 0.0 && self.radius(row) > 0.0 && self.radius(row) < 2.0) {
            let mut states: Vec<u32> = (0..n_states as u32).collect();
            for cell in 0..width {
                let at = |&s: &u32| there.loss[s as usize * width + cell];
                // Sorted from the order of the rung before, which is nearly right.
                states.sort_by(|a, b| at(b).total_cmp(&at(a)));
                order.extend_from_slice(&states);
            }
        }
        let used = |which: usize| {
            rows.iter()
                .enumerate()
                .any(|(i, row)| row.shared > 0.0 && (shared.len() == 1 || i % n_actions == which))
        };
        let means = (0..shared.len())
            .map(|which| {
                let (mut loss, mut below) = (vec![0.0; width], vec![0.0; width]);
                if used(which) {
                    for (state, &p) in shared[which].iter().enumerate().filter(|&(_, &p)| p > 0.0) {
                        let cut = state * width..(state + 1) * width;
                        Band::add(&mut loss, p, &there.loss[cut.clone()], low, low);
                        Band::add(&mut below, p, &there.below[cut], low, low);
                    }
                }
                (loss, below)
            })
            .collect();
        Anywhere { there, best, order, means, untried: Vec::new() }
    }

    /// The rungs at which some row is neither certain nor impossible.
    pub(super) fn reach(&self, rows: &[RobustRow], anywhere: &Anywhere) -> (i64, i64) {
        let (later, there) = (self.later, &anywhere.there);
        let (mut low, mut high) = (self.over.low, self.over.high());
        for (index, row) in rows.iter().enumerate() {
            if self.planner.model.terminal[index / self.planner.model.n_actions] {
                continue;
            }
            for shift in &self.shifts.outcomes[index] {
                (low, high) = (low.min(later.low + shift), high.max(later.high() + shift));
            }
            if row.shared > 0.0 || self.radius(row) > 0.0 {
                let shift = self.shifts.elsewhere[index];
                (low, high) = (low.min(there.low + shift), high.max(there.high() + shift));
            }
        }
        (low, high)
    }

    /// ℓ and b of one row, over the rungs from `low` on.
    #[allow(clippy::too_many_arguments)] // The buffers are lent so that nothing is allocated per row.
    pub(super) fn row(
        &self,
        index: usize,
        row: &RobustRow,
        low: i64,
        anywhere: &mut Anywhere,
        loss: &mut [f64],
        below: &mut [f64],
        entries: &mut Vec<Entry>,
    ) {
        let (later, radius) = (self.later, self.radius(row));
        let which = self.planner.model.shared_of(index % self.planner.model.n_actions);
        let elsewhere = low - self.shifts.elsewhere[index];
        loss.fill(0.0);
        below.fill(0.0);
        if row.outcomes.is_empty() && radius > 0.0 {
            let first = anywhere.there.low;
            let (l, b) = self.untried(which, radius, anywhere, entries);
            Band::add(loss, 1.0, l, first, elsewhere);
            Band::add(below, 1.0, b, first, elsewhere);
            return;
        }
        if row.shared > 0.0 {
            let (l, b) = &anywhere.means[which];
            Band::add(loss, row.shared, l, anywhere.there.low, elsewhere);
            Band::add(below, row.shared, b, anywhere.there.low, elsewhere);
        }
        for (o, shift) in row.outcomes.iter().zip(&self.shifts.outcomes[index]) {
            let cut = o.next * later.width..(o.next + 1) * later.width;
            Band::add(loss, o.probability, &later.loss[cut.clone()], later.low, low - shift);
            Band::add(below, o.probability, &later.below[cut], later.low, low - shift);
        }
        if radius > 0.0 {
            for cell in 0..loss.len() {
                if loss[cell] <= TRIM {
                    continue;
                }
                let rung = low + cell as i64;
                entries.extend(row.outcomes.iter().zip(&self.shifts.outcomes[index]).map(|(o, shift)| {
                    Entry {
                        loss: later.loss_at(o.next, rung - shift),
                        below: later.below_at(o.next, rung - shift),
                        mass: o.probability,
                    }
                }));
                let shared = (row.shared > 0.0).then_some((which, row.shared));
                let moved = self.move_at(elsewhere + cell as i64, radius, shared, anywhere, entries);
                loss[cell] = (loss[cell] - moved.0).max(0.0);
                below[cell] = (below[cell] - moved.1).max(0.0);
            }
        }
    }

    /// A row without data: its shared distribution, with the most favourable ρ/2 moved. Made once for all such rows.
    pub(super) fn untried<'b>(
        &self,
        which: usize,
        radius: f64,
        anywhere: &'b mut Anywhere,
        entries: &mut Vec<Entry>,
    ) -> (&'b [f64], &'b [f64]) {
        let known = anywhere.untried.iter().position(|u| u.which == which && u.radius == radius);
        let at = known.unwrap_or_else(|| {
            let (mut loss, mut below) = anywhere.means[which].clone();
            for cell in 0..loss.len() {
                let rung = anywhere.there.low + cell as i64;
                let moved = self.move_at(rung, radius, Some((which, 1.0)), anywhere, entries);
                loss[cell] = (loss[cell] - moved.0).max(0.0);
                below[cell] = (below[cell] - moved.1).max(0.0);
            }
            anywhere.untried.push(Untried { which, radius, loss, below });
            anywhere.untried.len() - 1
        });
        let Untried { loss, below, .. } = &anywhere.untried[at];
        (loss, below)
    }

    /// The decrease of ℓ and b at a rung (after `elsewhere`) by the most favourable probabilities of the ball, given the seen
    /// outcomes there and the weight of a shared distribution.
    pub(super) fn move_at(
        &self,
        rung: i64,
        radius: f64,
        shared: Option<(usize, f64)>,
        anywhere: &Anywhere,
        entries: &mut Vec<Entry>,
    ) -> (f64, f64) {
        let (there, n_states) = (&anywhere.there, self.planner.model.n_states);
        let cell = usize::try_from(rung - there.low).ok();
        let best = match cell {
            None => (0.0, 0.0),
            Some(cell) if cell >= there.width => (1.0, 1.0),
            Some(cell) => {
                let at = anywhere.best[cell] as usize * there.width + cell;
                (there.loss[at], there.below[at])
            }
        };
        if let Some((which, weight)) = shared {
            let distribution = &self.planner.model.shared[which];
            let inside = cell.filter(|&cell| cell < there.width);
            if let Some(cell) = inside {
                // From the worst on, no more than can be moved; with every distribution in the ball, all of it.
                let states = anywhere.order.get(cell * n_states..(cell + 1) * n_states);
                let mut left = radius / 2.0;
                let mut take = |state: usize| {
                    let (at, mass) = (state * there.width + cell, weight * distribution[state]);
                    if mass > 0.0 && left > 0.0 {
                        left -= mass;
                        entries.push(Entry { loss: there.loss[at], below: there.below[at], mass });
                    }
                };
                match states {
                    Some(states) => states.iter().for_each(|&s| take(s as usize)),
                    None => (0..n_states).for_each(take),
                }
            }
        }
        move_mass(entries, best, radius)
    }
}
