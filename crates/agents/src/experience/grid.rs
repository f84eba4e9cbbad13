//! The targets g_i: a uniform grid on a range of returns, and how that range is found.
//!
//! ```text
//! g_i     = low + (i+1)/n · (high − low)            i = 0..n−1; every return counts as at least low
//! at first  0, and what one step can pay
//! R ≥ high  high ← low + 1.5 (R − low)              at most H times the largest reward after which an episode went on,
//!                                                   plus the largest of all
//! q < low   low  ← high − 1.5 (high − q)            q the 5 % quantile of the last 200 returns
//! after 50, 100, 200, … episodes                    if [q, max R] is less than half as wide as the range, the range
//!                                                   becomes it, with a tenth on either side
//! ```
//!
//! A return that reaches the top says that more may be had, unless rewards so far came only where an episode ended: an agent
//! without targets above what it earns has no reason to try for more.
//!
//! Never beyond what the horizon and the bounds of a step's reward allow. A return outside the range is told from none
//! beyond it, which is harmless below: a target only asks whether it was reached.

use std::collections::VecDeque;

use bqrl_mdp::env::EnvSpec;
use serde::{Deserialize, Serialize};

/// Returns that the low end is judged by.
const RECENT: usize = 200;
/// The part of them that may lie below.
const BELOW: f64 = 0.05;
/// Room to grow into.
const GROWTH: f64 = 1.5;
/// The first episode count at which the range may shrink.
const FIRST_CHECK: u64 = 50;

/// A uniform grid of targets.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Grid {
    /// The smallest return that is told apart.
    pub low: f64,
    /// The largest: the last target.
    pub high: f64,
    /// Number of targets.
    pub n: usize,
}

impl Grid {
    /// g_i.
    pub fn target(&self, i: usize) -> f64 {
        self.low + self.width() * (i + 1) as f64 / self.n as f64
    }

    /// How far apart the ends are.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// A return on the scale 0..1.
    pub fn scaled(&self, value: f64) -> f64 {
        (value - self.low) / self.width()
    }

    /// Whether a return reaches g_i. Sums of rewards that should meet a target exactly may miss it by rounding.
    pub fn reached(&self, value: f64, i: usize) -> bool {
        value >= self.target(i) - 1e-9 * self.width()
    }

    /// Where a return lies among the targets: between g_i and g_{i+1}, how far along. The ends for what is outside.
    pub fn place(&self, value: f64) -> (usize, f64) {
        let place = (self.scaled(value) * self.n as f64 - 1.0).clamp(0.0, (self.n - 1) as f64);
        let i = (place as usize).min(self.n.saturating_sub(2));
        (i, place - i as f64)
    }
}

/// A grid that follows the returns.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub struct ReturnGrid {
    grid: Grid,
    /// A range that was given does not change.
    given: bool,
    /// What returns cannot exceed, if that is known.
    bounds: Option<(f64, f64)>,
    horizon: usize,
    /// The largest reward after which an episode went on, and the largest of all; at least 0.
    continued: f64,
    reward: f64,
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
            recent: VecDeque::new(),
            largest: None,
            episodes: 0,
        }
    }

    /// The grid now.
    pub fn grid(&self) -> Grid {
        self.grid
    }

    /// Learns of a reward, and whether the episode ended with it.
    pub fn observe_reward(&mut self, reward: f64, ended: bool) {
        self.reward = self.reward.max(reward);
        if !ended {
            self.continued = self.continued.max(reward);
        }
    }

    /// Learns of an episode's return. True if the grid has changed.
    pub fn observe(&mut self, episode_return: f64) -> bool {
        if self.given {
            return false;
        }
        self.episodes += 1;
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(episode_return);
        let largest = self.largest.map_or(episode_return, |largest| largest.max(episode_return));
        self.largest = Some(largest);
        let mut sorted: Vec<f64> = self.recent.iter().copied().collect();
        sorted.sort_unstable_by(f64::total_cmp);
        let least = sorted[(BELOW * sorted.len() as f64) as usize];

        let Grid { mut low, mut high, n } = self.grid;
        if episode_return >= high {
            let most = self.horizon as f64 * self.continued + self.reward;
            let wanted = low + GROWTH * (episode_return - low);
            high = high.max(wanted.min(most)).max(episode_return);
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
        let grid = Grid { low, high, n };
        let changed = grid != self.grid && low < high && (high - low).is_finite();
        if changed {
            self.grid = grid;
        }
        changed
    }
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
    fn targets_rise_in_equal_steps_to_the_high_end_and_know_their_place() {
        let grid = Grid { low: -1.0, high: 3.0, n: 4 };
        assert_eq!([0, 1, 2, 3].map(|i| grid.target(i)), [0.0, 1.0, 2.0, 3.0]);
        assert!(grid.reached(1.0, 1) && grid.reached(0.1 + 0.2 + 0.7 - 1e-12, 1) && !grid.reached(0.99, 1));
        assert_eq!(grid.scaled(0.0), 0.25);
        // 0.5 lies halfway from g_0 to g_1; what is outside lies at an end.
        assert_eq!(grid.place(0.5), (0, 0.5));
        assert_eq!(grid.place(3.0), (2, 1.0));
        assert_eq!(grid.place(-7.0), (0, 0.0));
        assert_eq!(grid.place(70.0), (2, 1.0));
        assert_eq!(Grid { n: 1, ..grid }.place(3.0), (0, 0.0));
    }

    #[test]
    fn the_range_grows_with_the_returns_up_to_what_is_possible() {
        // A step pays 0..3, ten of them at most 30.
        let mut grid = ReturnGrid::new(None, 4, &spec(Some((0.0, 3.0))));
        assert_eq!((grid.grid().low, grid.grid().high), (0.0, 3.0));
        assert!(!grid.observe(2.0));
        // At the top, but so far all rewards came at an end: no more is to be had.
        grid.observe_reward(3.0, true);
        assert!(!grid.observe(3.0));
        // Now the episode went on after a 2: up to 10·2 + 3 may follow.
        grid.observe_reward(2.0, false);
        assert!(grid.observe(10.0));
        assert_eq!(grid.grid().high, 15.0);
        assert!(grid.observe(16.0));
        assert_eq!(grid.grid().high, 23.0);
        grid.observe_reward(3.0, false);
        assert!(grid.observe(23.0));
        assert_eq!(grid.grid().high, 30.0);
        assert!(!grid.observe(30.0));
        // Below: one return in seven is more than 5 %, so the low end follows, but not below 0.
        assert!(!grid.observe(-5.0));
        // Without bounds it does.
        let mut grid = ReturnGrid::new(None, 4, &spec(None));
        assert!(grid.observe(-5.0));
        // high − 1.5·(high − q) = 1 − 1.5·6.
        assert_eq!((grid.grid().low, grid.grid().high), (-8.0, 1.0));
    }

    #[test]
    fn the_range_shrinks_once_returns_fill_less_than_half_of_it() {
        let mut grid = ReturnGrid::new(None, 4, &spec(Some((-100.0, 0.0))));
        assert!(grid.observe(-900.0));
        // 0 − 1.5·900 is beyond ten times −100.
        assert_eq!(grid.grid().low, -1000.0);
        let changed: Vec<u64> =
            (2..=100).filter(|k| grid.observe(if k % 2 == 0 { -60.0 } else { -40.0 })).collect();
        // After 50 episodes 5 % of them, two, may lie below: −900 and one −60 do.
        assert_eq!(changed, [50]);
        assert_eq!((grid.grid().low, grid.grid().high), (-62.0, -38.0));
        let mut given = ReturnGrid::new(Some((0.0, 1.0)), 4, &spec(None));
        assert!(!given.observe(7.0));
    }
}
