//! How counts become a model, with a radius around every row, and a plan.
//!
//! ```text
//! P̂(s'|s,a) = (N(s,a,s') + κ Q_a(s'|s)) / (n + κ)   Q_a alone where n = 0
//! ρ(s,a)    = min{ 2, c √(2 (S ln 2 + ln(2SAHT/δ)) / max(1, n)) }     c = radius_scale, T = episodes so far + 1
//! ```

use bqrl_math::buffer::Buffer;
use bqrl_mdp::env::KnownRewards;
use bqrl_mdp::model::Outcome;
use bqrl_mdp::plan::robust::{RobustModel, RobustPlanner, RobustPolicy, RobustRow};

use super::counts::{Counts, Row, Seen};
use super::prior::priors;
use super::{Config, Objective, Output};

/// The number of return values of a plan if rewards have to be rounded.
const ROUNDED_RETURNS: usize = 2048;
/// Window widths that a buffered plan tries, a pass each.
const N_WIDTHS: usize = 8;
/// Further passes that a plan may make to use its slack.
const REFINEMENTS: usize = 6;

/// How counts become a model and a plan.
pub(super) struct Beliefs<'a> {
    pub config: &'a Config,
    pub n_states: usize,
    pub n_actions: usize,
    pub horizon: usize,
    pub discount: f64,
    pub known_rewards: Option<&'a KnownRewards>,
    pub top: f64,
}

impl Beliefs<'_> {
    /// ρ.
    pub fn radius(&self, n: u64, episodes: u64) -> f64 {
        let (s, a, h) = (self.n_states as f64, self.n_actions as f64, self.horizon as f64);
        let t = episodes as f64 + 1.0;
        let log = s * std::f64::consts::LN_2 + (2.0 * s * a * h * t / self.config.delta).ln();
        (self.config.radius_scale * (2.0 * log / n.max(1) as f64).sqrt()).min(2.0)
    }

    /// P̂, ρ and the rewards.
    fn model(&self, counts: &Counts) -> RobustModel {
        let (of_action, arrival) = match self.known_rewards {
            Some(KnownRewards::OfAction(r)) => (Some(r), vec![0.0; self.n_states]),
            Some(KnownRewards::OfNext(r)) => (None, r.clone()),
            None => (None, vec![0.0; self.n_states]),
        };
        // The reward for a successor that was not seen there: known, or the largest possible.
        let elsewhere = |row: usize| match self.known_rewards {
            Some(KnownRewards::OfAction(r)) => r[row],
            Some(KnownRewards::OfNext(_)) => 0.0,
            None => self.top,
        };
        let reward = |row: usize, seen: &Seen| match self.known_rewards {
            Some(KnownRewards::OfAction(_)) => of_action.map_or(0.0, |r| r[row]),
            Some(KnownRewards::OfNext(r)) => r[seen.next as usize],
            None => seen.reward,
        };
        let prior = priors(self.config.prior, self.n_states, self.n_actions, counts);
        let kernel = |rows: &Vec<Row>| {
            let row = |(index, row): (usize, &Row)| {
                let (state, prior) = (index / self.n_actions, &prior[index % self.n_actions]);
                // Without observations the prior alone counts, even a weak one.
                let kappa = if row.n == 0 { 1.0 } else { self.config.prior_strength };
                let total = row.n as f64 + kappa;
                let mut outcomes: Vec<Outcome> = row
                    .seen
                    .iter()
                    .map(|seen| Outcome {
                        probability: seen.count as f64 / total,
                        next: seen.next as usize,
                        reward: reward(index, seen),
                    })
                    .collect();
                let mut shared = kappa / total;
                let moves = prior.moves(state, self.n_states);
                if !moves.is_empty() {
                    for (next, p) in moves {
                        let unseen = Seen { next: next as u32, reward: self.top, count: 0 };
                        let reward = reward(index, &unseen);
                        outcomes.push(Outcome { probability: shared * p, next, reward });
                    }
                    shared = 0.0;
                }
                let radius = self.radius(row.n, counts.episodes);
                RobustRow { outcomes, shared, elsewhere: elsewhere(index), radius }
            };
            rows.iter().enumerate().map(row).collect()
        };
        let shared = prior.iter().map(|prior| prior.shared.clone()).collect();
        RobustModel {
            n_states: self.n_states,
            n_actions: self.n_actions,
            horizon: self.horizon,
            discount: self.discount,
            start: self.start(counts),
            terminal: counts.terminal.clone(),
            arrival,
            shared,
            kernels: counts.kernels.iter().map(kernel).collect(),
        }
    }

    /// The distribution of first states; before the first episode, uniform.
    fn start(&self, counts: &Counts) -> Vec<(usize, f64)> {
        let begun: u64 = counts.starts.iter().sum();
        if begun == 0 {
            let open: Vec<usize> = (0..self.n_states).filter(|&s| !counts.terminal[s]).collect();
            return open.iter().map(|&s| (s, 1.0 / open.len() as f64)).collect();
        }
        let share = |(s, &n): (usize, &u64)| (n > 0).then_some((s, n as f64 / begun as f64));
        counts.starts.iter().enumerate().filter_map(share).collect()
    }

    /// The behaviour and the output.
    pub fn plan(&self, counts: &Counts, buffer: &Buffer) -> (RobustPolicy, RobustPolicy) {
        let Config { objective, output, slack, max_returns, .. } = *self.config;
        let model = self.model(counts);
        let grid = ROUNDED_RETURNS.min(max_returns);
        let optimistic = RobustPlanner::new(&model, self.config.radius_scale > 0.0, max_returns, grid);
        let nominal = || RobustPlanner::new(&model, false, max_returns, grid);
        match objective {
            Objective::Point => {
                let behaviour = optimistic.quantile_policy(buffer.tau(), slack, REFINEMENTS).policy;
                let keeping = |planner: &RobustPlanner| planner.quantile_policy(buffer.tau(), 0.0, 0).policy;
                let greedy = match output {
                    Output::Optimistic => keeping(&optimistic),
                    Output::Nominal => keeping(&nominal()),
                };
                (behaviour, greedy)
            }
            Objective::Buffered => {
                let behaviour = optimistic.buffered_policy(buffer, N_WIDTHS);
                let greedy = match output {
                    Output::Optimistic => behaviour.clone(),
                    Output::Nominal => nominal().buffered_policy(buffer, N_WIDTHS),
                };
                (behaviour, greedy)
            }
        }
    }
}
