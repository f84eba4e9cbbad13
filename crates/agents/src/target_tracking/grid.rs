//! The residual targets y_i: a uniform grid on a range of what may still be earned, and how that range is found.
//!
//! ```text
//! y_i     = low + i/n · (high − low)                i = 0..n
//! z         what an episode earned from some step on: R − c
//! at first  0, and what one step can pay
//! z ≥ high  high ← low + 1.5 (z − low)              at most H times the largest reward after which an episode went on,
//!                                                   plus the largest of all
//! q < low   low  ← high − 1.5 (high − q)            q the 5 % quantile of the least z of each of the last 200 episodes
//! after 50, 100, 200, … episodes                    if [q, max z] is less than half as wide as the range, the range
//!                                                   becomes it, with a tenth on either side
//! then      high grows until a whole number of steps makes a unit, if all rewards after which an episode went on are
//!           multiples of one that is at least a step
//! ```
//!
//! The unit is why sums of such rewards stay on the grid: y − r is then a target again and nothing is interpolated.
//!
//! A return at the top suggests that higher returns exist, so the range is extended, unless rewards so far came only where
//! an episode ended: an agent without targets above what it earns has no reason to try for more.
//!
//! The range never exceeds what the horizon and the bounds of a step's reward allow, but for the unit. Returns outside the
//! range are clamped; clamping at the low end loses nothing, because a target only asks whether it was reached.

use std::collections::VecDeque;

use bqrl_mdp::env::EnvSpec;
use serde::{Deserialize, Serialize};

use crate::RestoreError;
use crate::experience::saved;

/// Episodes that the low end is judged by.
const RECENT: usize = 200;
/// The part of them that may lie below.
const BELOW: f64 = 0.05;
/// Room to grow into.
const GROWTH: f64 = 1.5;
/// The first episode count at which the range may shrink.
const FIRST_CHECK: u64 = 50;
/// Differences of sums of rewards that are rounding, as a part of what is compared.
const ROUNDING: f64 = 1e-6;

/// A uniform grid of targets.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Grid {
    /// The first target.
    pub low: f64,
    /// The last one.
    pub high: f64,
    /// Steps between them.
    pub n: usize,
}

impl Grid {
    /// Number of targets.
    pub fn n_targets(&self) -> usize {
        self.n + 1
    }

    /// y_i.
    pub fn target(&self, i: usize) -> f64 {
        self.low + self.width() * i as f64 / self.n as f64
    }

    /// How far apart the ends are.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// A return on the scale 0..1.
    pub fn scaled(&self, value: f64) -> f64 {
        (value - self.low) / self.width()
    }

    /// Whether a return reaches y_i. Sums of rewards that should meet a target exactly may miss it by rounding.
    pub fn reached(&self, value: f64, i: usize) -> bool {
        value >= self.target(i) - ROUNDING * self.width() / self.n as f64
    }

    /// Where a value lies among the targets: between y_i and y_{i+1}, how far along. The ends for what is outside.
    pub fn place(&self, value: f64) -> (usize, f64) {
        let (i, mix) = split(self.scaled(value) * self.n as f64);
        match i {
            ..0 => (0, 0.0),
            i if i >= self.n as i64 => (self.n, 0.0),
            i => (i as usize, mix),
        }
    }

    /// By how many steps y − r lies below y: whole ones, and the rest.
    pub fn shift(&self, reward: f64) -> (i64, f64) {
        split(-reward / self.width() * self.n as f64)
    }
}

/// The whole number below and the rest, 0 where that is rounding.
fn split(steps: f64) -> (i64, f64) {
    let whole = (steps + ROUNDING).floor();
    let rest = steps - whole;
    (whole as i64, if rest > ROUNDING { rest } else { 0.0 })
}

/// A grid that follows what episodes earn.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ReturnGrid {
    grid: Grid,
    /// A range that was given does not change.
    given: bool,
    /// Bounds of the return, if they are known.
    bounds: Option<(f64, f64)>,
    horizon: usize,
    /// The largest reward after which an episode went on, and the largest of all; at least 0.
    continued: f64,
    reward: f64,
    /// The common divisor of all rewards that did not end an episode; 0 if there were none.
    unit: f64,
    /// The least and the largest c so far in each lane's episode.
    collected: Vec<(f64, f64)>,
    recent: VecDeque<f64>,
    largest: Option<f64>,
    episodes: u64,
}

impl ReturnGrid {
    /// On a range that is given, or else on one to be found.
    pub fn new(given: Option<(f64, f64)>, n: usize, spec: &EnvSpec) -> Self {
        let step = spec.reward_bounds.map(|(least, most)| (least.min(0.0), most.max(0.0)));
        let (low, mut high) = given.or(step).unwrap_or((0.0, 1.0));
        if low >= high {
            high = low + 1.0;
        }
        Self {
            grid: Grid { low, high, n },
            given: given.is_some(),
            bounds: step.map(|(least, most)| (spec.horizon as f64 * least, spec.horizon as f64 * most)),
            horizon: spec.horizon,
            continued: 0.0,
            reward: 0.0,
            unit: 0.0,
            collected: Vec::new(),
            recent: VecDeque::new(),
            largest: None,
            episodes: 0,
        }
    }

    /// Refuses a saved grid that cannot have come of this one: another problem's, or one with impossible numbers.
    pub fn check(&self, fresh: &Self) -> Result<(), RestoreError> {
        let Grid { low, high, n } = self.grid;
        let of = |grid: &Self| (grid.given, grid.bounds, grid.horizon, grid.grid.n);
        if of(self) != of(fresh) {
            return Err(RestoreError(format!("the grid is of another problem: {:?}", of(self))));
        }
        if !(low < high && (high - low).is_finite()) {
            return Err(RestoreError(format!("the grid of {n} steps goes from {low:?} to {high:?}")));
        }
        let ranges = self.collected.iter().flat_map(|range| [range.0, range.1]);
        let numbers = [self.continued, self.reward, self.unit].into_iter().chain(self.largest);
        let numbers: Vec<f64> = numbers.chain(ranges).chain(self.recent.iter().copied()).collect();
        saved::finite("the grid", &numbers)?;
        if self.unit < 0.0 || self.recent.len() > RECENT {
            let n = self.recent.len();
            return Err(RestoreError(format!(
                "the grid has the unit {:?} and {n} recent returns",
                self.unit
            )));
        }
        saved::count("the grid's episodes", self.episodes).map(drop)
    }

    /// The grid now.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Whether rewards came before the end of an episode, so that a target comes nearer on the way.
    pub fn adds_up(&self) -> bool {
        self.unit > 0.0
    }

    /// Forgets the episode of a lane, which was given up.
    pub fn restart(&mut self, lane: usize) {
        if let Some(range) = self.collected.get_mut(lane) {
            *range = (0.0, 0.0);
        }
    }

    /// Learns of a step in a lane: c before it, its reward, whether the episode ended. True if the grid has changed, which
    /// it does only then.
    pub fn observe(&mut self, lane: usize, collected: f64, reward: f64, ended: bool) -> bool {
        if self.collected.len() <= lane {
            self.collected.resize(lane + 1, (0.0, 0.0));
        }
        let range = &mut self.collected[lane];
        *range = (range.0.min(collected), range.1.max(collected));
        self.reward = self.reward.max(reward);
        if !ended {
            self.continued = self.continued.max(reward);
            self.unit = common_divisor(self.unit, reward);
            return false;
        }
        let episode_return = collected + reward;
        let (least, most) = std::mem::take(&mut self.collected[lane]);
        !self.given && self.episode(episode_return - most, episode_return - least)
    }

    /// Learns of the least and the most that an episode earned from some step on.
    fn episode(&mut self, least: f64, most: f64) -> bool {
        self.episodes += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(least);
        let largest = self.largest.map_or(most, |largest| largest.max(most));
        self.largest = Some(largest);
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let least = sorted[(BELOW * sorted.len() as f64) as usize];

        let Grid { mut low, mut high, n } = self.grid;
        if most >= high {
            let possible = self.horizon as f64 * self.continued + self.reward;
            let wanted = low + GROWTH * (most - low);
            high = high.max(wanted.min(possible)).max(most);
        }
        if least < low {
            low = high - GROWTH * (high - least);
        }
        let checks =
            self.episodes.is_multiple_of(FIRST_CHECK) && (self.episodes / FIRST_CHECK).is_power_of_two();
        if checks && largest > least && largest - least < 0.5 * (high - low) {
            let room = 0.1 * (largest - least);
            (low, high) = (least - room, largest + room);
        }
        if let Some((least, most)) = self.bounds {
            (low, high) = (low.max(least), high.min(most));
        }
        let per_unit = (self.unit / ((high - low) / n as f64) + ROUNDING).floor();
        if per_unit >= 1.0 {
            high = low + n as f64 * self.unit / per_unit;
        }
        let grid = Grid { low, high, n };
        let changed = grid != self.grid && low < high && (high - low).is_finite();
        if changed {
            self.grid = grid;
        }
        changed
    }
}

/// The largest number that both are multiples of, by Euclid's algorithm with the nearest multiple; tiny if there is none.
fn common_divisor(a: f64, b: f64) -> f64 {
    let (mut a, mut b) = (a.abs().max(b.abs()), a.abs().min(b.abs()));
    let tiny = ROUNDING * a;
    while b > tiny {
        (a, b) = (b, (a - b * (a / b).round()).abs());
    }
    a
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::env::ObservationSpace;

    use super::*;

    fn spec(reward_bounds: Option<(f64, f64)>) -> EnvSpec {
        EnvSpec {
            name: "test".into(),
            observations: ObservationSpace::Discrete { n: 1, ordered: false },
            n_actions: 2,
            horizon: 10,
            horizon_is_task: true,
            reward_bounds,
            discount: 1.0,
            stationary: false,
            known_rewards: None,
            terminal: None,
        }
    }

    #[test]
    fn targets_rise_in_equal_steps_and_know_their_place() {
        let grid = Grid { low: -1.0, high: 3.0, n: 4 };
        assert_eq!([0, 1, 2, 3, 4].map(|i| grid.target(i)), [-1.0, 0.0, 1.0, 2.0, 3.0]);
        assert!(grid.reached(1.0, 2) && grid.reached(0.1 + 0.2 + 0.7 - 1e-12, 2) && !grid.reached(0.99, 2));
        assert_eq!(grid.scaled(0.0), 0.25);
        // 0.5 lies halfway from y_1 to y_2; what is outside lies at an end; rounding is no distance.
        assert_eq!(grid.place(0.5), (1, 0.5));
        assert_eq!(grid.place(3.0), (4, 0.0));
        assert_eq!(grid.place(-7.0), (0, 0.0));
        assert_eq!(grid.place(70.0), (4, 0.0));
        assert_eq!(grid.place(1.0 - 1e-12), (2, 0.0));
        // y − 2 lies two steps below y, y − 0.25 a quarter of a step: three quarters above the next one below.
        assert_eq!(grid.shift(2.0), (-2, 0.0));
        assert_eq!(grid.shift(-1.0), (1, 0.0));
        assert_eq!(grid.shift(0.25), (-1, 0.75));
    }

    /// An episode of one step from c = 0.
    fn single(grid: &mut ReturnGrid, reward: f64) -> bool {
        grid.observe(0, 0.0, reward, true)
    }

    #[test]
    fn the_range_grows_with_the_returns_up_to_what_is_possible() {
        // A step pays 0..3, ten of them at most 30.
        let mut grid = ReturnGrid::new(None, 4, &spec(Some((0.0, 3.0))));
        assert_eq!((grid.grid().low, grid.grid().high), (0.0, 3.0));
        assert!(!single(&mut grid, 2.0));
        // At the top, but so far all rewards came at an end: there is no more to earn.
        assert!(!single(&mut grid, 3.0) && !grid.adds_up());
        // Now the episode went on after a 2: up to 10·2 + 3 may follow. It earned 10 in all and 8 after the 2.
        assert!(!grid.observe(0, 0.0, 2.0, false) && grid.adds_up());
        assert!(grid.observe(0, 2.0, 8.0, true));
        // Four steps of 3.75 are longer than the unit 2, which then is no matter.
        assert_eq!(grid.grid().high, 15.0);
        grid.reward = 3.0;
        assert!(single(&mut grid, 16.0));
        assert_eq!(grid.grid().high, 24.0);
        // Without bounds the low end follows as well.
        let mut grid = ReturnGrid::new(None, 4, &spec(None));
        assert!(single(&mut grid, -5.0));
        // high − 1.5·(high − q) = 1 − 1.5·6.
        assert_eq!((grid.grid().low, grid.grid().high), (-8.0, 1.0));
    }

    #[test]
    fn the_range_is_of_what_is_still_to_come() {
        // Rewards 5, −7, 1 from c = 0, 5, −2: to come were −1, −6 and 1.
        let mut grid = ReturnGrid::new(None, 6, &spec(None));
        assert!(!grid.observe(0, 0.0, 5.0, false) && !grid.observe(0, 5.0, -7.0, false));
        assert!(grid.observe(0, -2.0, 1.0, true));
        // Up: 1 ≥ 1, by half; down: 1.5 − 1.5·7.5 = −9.75. Steps of 1.875 are longer than the unit 1.
        assert_eq!((grid.grid().low, grid.grid().high), (-9.75, 1.5));
    }

    #[test]
    fn the_range_shrinks_once_returns_fill_less_than_half_of_it() {
        let mut grid = ReturnGrid::new(None, 4, &spec(Some((-100.0, 0.0))));
        assert!(single(&mut grid, -900.0));
        // 0 − 1.5·900 is beyond ten times −100.
        assert_eq!(grid.grid().low, -1000.0);
        let changed: Vec<u64> =
            (2..=100).filter(|k| single(&mut grid, if k % 2 == 0 { -60.0 } else { -40.0 })).collect();
        // After 50 episodes 5 % of them, two, may lie below: −900 and one −60 do.
        assert_eq!(changed, [50]);
        assert_eq!((grid.grid().low, grid.grid().high), (-62.0, -38.0));
        let mut given = ReturnGrid::new(Some((0.0, 1.0)), 4, &spec(None));
        assert!(!single(&mut given, 7.0));
    }

    #[test]
    fn whole_steps_make_a_unit_of_the_rewards_if_they_can() {
        // Rewards 2 and 3 have the unit 1. Of 0..8.25 in ten steps, .825 each, one makes a unit if it is 1 long.
        let mut grid = ReturnGrid::new(None, 10, &spec(Some((0.0, 3.0))));
        grid.observe(0, 0.0, 2.0, false);
        grid.observe(0, 2.0, 3.0, false);
        assert!(grid.observe(0, 5.0, 0.5, true));
        assert_eq!((grid.grid().low, grid.grid().high), (0.0, 10.0));
        for (a, b, want) in [(0.0, 3.0, 3.0), (6.0, -4.0, 2.0), (0.3, 0.2, 0.1), (1.0, 0.005, 0.005)] {
            assert!((common_divisor(a, b) - want).abs() < 1e-9, "{a} and {b}");
        }
        assert!(common_divisor(1.0, std::f64::consts::SQRT_2) < 1e-3);
    }
}
