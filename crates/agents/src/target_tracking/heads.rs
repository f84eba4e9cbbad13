//! The questions that a critic of target tracking answers, their backup, and the choice between them at the root.
//!
//! ```text
//! heads     reach y_i, weight w_j     outputs P, E    U = w_j P + (1−w_j) E       P ≈ P(Z ≥ y_i), E ≈ E[Z]
//!           ramp up to y_i, width l   one output      U ≈ E clip((Z − y_i)/l + 1, 0, 1)
//! backup    a' = argmax_a Σ_k Ū_k(x', a)              one next action per head; k the critics of the other half
//!           of head y  = its outcome at Z = r                             if d = 1
//!                      = the values of head y − r, critic m, at (x', a')  if d = 0; E plus r; clipped to 0..1
//! ```
//!
//! Z is what is still to come, y = g − c what is still missing; E and l are on the scale 0..1 of the range of y. The critics
//! with odd numbers choose the next action for those with even ones and the other way round, because a maximum over one's
//! own errors is too large, and that adds up over the stages. Where y − r lies between two targets, a cubic through their values
//! and the next ones is read there; beyond the last target it counts as the last.

use std::ops::Range;

use bqrl_math::buffer::Buffer;

use super::grid::Grid;
use crate::Target;

/// The heads of every critic: (n+1)·J that reach, then (n+1)·K that ramp.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    pub grid: Grid,
    /// w_j.
    pub weights: &'a [f64],
    /// l_k, as parts of the range.
    pub ramps: &'a [f64],
}

impl Heads<'_> {
    fn n_reach(&self) -> usize {
        self.grid.n_targets() * self.weights.len()
    }

    pub fn n_heads(&self) -> usize {
        self.grid.n_targets() * (self.weights.len() + self.ramps.len())
    }

    pub fn n_outputs(&self) -> usize {
        self.n_reach() + self.n_heads()
    }

    /// The outputs of a head, …
    pub fn outputs(&self, head: usize) -> Range<usize> {
        let n_reach = self.n_reach();
        if head < n_reach { 2 * head..2 * head + 2 } else { n_reach + head..n_reach + head + 1 }
    }

    /// … and how much each counts in U; a single one counts fully.
    pub fn shares(&self, head: usize) -> [f64; 2] {
        if head >= self.n_reach() {
            return [1.0, 0.0];
        }
        let weight = self.weights[head % self.weights.len()];
        [weight, 1.0 - weight]
    }

    /// The head that ramps up to y_i with width l_k.
    fn ramp(&self, i: usize, k: usize) -> usize {
        self.n_reach() + i * self.ramps.len() + k
    }

    /// The target and the width of a head that ramps.
    fn of_ramp(&self, head: usize) -> (usize, usize) {
        let at = head - self.n_reach();
        (at / self.ramps.len(), at % self.ramps.len())
    }

    /// The target of a head when nothing has been collected.
    pub fn target(&self, head: usize) -> Target {
        if head < self.n_reach() {
            let (i, j) = (head / self.weights.len(), head % self.weights.len());
            let g = self.grid.target(i);
            Target { u: g, v: g, weight: self.weights[j] }
        } else {
            let (i, k) = self.of_ramp(head);
            let v = self.grid.target(i);
            Target { u: v - self.ramps[k] * self.grid.width(), v, weight: 1.0 }
        }
    }

    /// The heads that a target asks after `collected`, and how much each counts: two where y lies between two targets.
    pub fn tracking(&self, target: &Target, collected: f64) -> [(usize, f64); 2] {
        let Target { u, v, weight } = *target;
        let nearest = |choices: &[f64], wanted: f64| {
            let far = |j: &usize| (choices[*j] - wanted).abs();
            (0..choices.len())
                .reduce(|a, b| if far(&b) < far(&a) { b } else { a })
                .expect("there is a choice")
        };
        let (first, stride) = if u < v && !self.ramps.is_empty() {
            (self.n_reach() + nearest(self.ramps, (v - u) / self.grid.width()), self.ramps.len())
        } else {
            (nearest(self.weights, weight), self.weights.len())
        };
        let (i, mix) = self.grid.place(v - collected);
        let above = (i + 1).min(self.grid.n);
        [(first + i * stride, 1.0 - mix), (first + above * stride, mix)]
    }

    /// The outcomes of a head's outputs where nothing comes after a reward.
    fn outcome(&self, head: usize, reward: f64) -> [f32; 2] {
        let scaled = self.grid.scaled(reward);
        if head < self.n_reach() {
            let reached = self.grid.reached(reward, head / self.weights.len());
            [f32::from(u8::from(reached)), scaled.clamp(0.0, 1.0) as f32]
        } else {
            let (i, k) = self.of_ramp(head);
            let missing = i as f64 / self.grid.n as f64 - scaled;
            [(1.0 - missing / self.ramps[k]).clamp(0.0, 1.0) as f32, 0.0]
        }
    }

    /// Outputs that differ only in their target: the first, the distance to the next, and whether they are means.
    fn families(&self) -> impl Iterator<Item = (usize, usize, bool)> {
        let (j, k, ramps) = (self.weights.len(), self.ramps.len(), 2 * self.n_reach());
        let reach = (0..2 * j).map(move |output| (output, 2 * j, output % 2 == 1));
        reach.chain((0..k).map(move |output| (ramps + output, k, false)))
    }

    /// The targets of every critic: a row of n samples per output. `next` holds such rows of the slow copies' values at x' for every
    /// network m·A + a, `done` is d.
    pub fn backup(
        &self,
        n_actions: usize,
        next: &[Vec<f32>],
        rewards: &[f64],
        done: &[bool],
    ) -> Vec<Vec<f32>> {
        let n = done.len();
        let n_critics = next.len() / n_actions;
        let mut targets = vec![vec![0.0; self.n_outputs() * n]; n_critics];
        let others =
            [0, 1].map(|half| (0..n_critics).filter(|m| n_critics == 1 || m % 2 != half).collect::<Vec<_>>());
        let (mut best, mut chosen) = (vec![0.0; n], vec![0; n]);
        for head in 0..self.n_heads() {
            for (half, others) in others.iter().enumerate() {
                self.choose(head, n_actions, next, others, &mut best, &mut chosen);
                for (m, targets) in targets.iter_mut().enumerate().skip(half).step_by(2) {
                    for output in self.outputs(head) {
                        let y = &mut targets[output * n..][..n];
                        for a in 0..n_actions {
                            let values = &next[m * n_actions + a][output * n..];
                            for ((y, v), c) in y.iter_mut().zip(values).zip(&chosen) {
                                *y = if *c == a as u32 { v.clamp(0.0, 1.0) } else { *y };
                            }
                        }
                    }
                    for s in (0..n).filter(|&s| done[s]) {
                        for (output, y) in self.outputs(head).zip(self.outcome(head, rewards[s])) {
                            targets[output * n + s] = y;
                        }
                    }
                }
            }
        }
        for s in (0..n).filter(|&s| !done[s] && rewards[s] != 0.0) {
            for targets in &mut targets {
                self.subtract(rewards[s], &mut targets[s..], n);
            }
        }
        targets
    }

    /// a' = argmax_a Σ_m Ū_m(x', a) of a head over some critics m, for every sample; the lowest index wins a tie.
    fn choose(
        &self,
        head: usize,
        n_actions: usize,
        next: &[Vec<f32>],
        critics: &[usize],
        best: &mut [f32],
        chosen: &mut [u32],
    ) {
        let n = best.len();
        let mut utility = vec![0.0_f32; n];
        for a in 0..n_actions {
            utility.fill(0.0);
            for m in critics {
                let network = &next[m * n_actions + a];
                for (output, share) in self.outputs(head).zip(self.shares(head)) {
                    for (u, v) in utility.iter_mut().zip(&network[output * n..]) {
                        *u += share as f32 * v;
                    }
                }
            }
            for ((u, best), chosen) in utility.iter().zip(&mut *best).zip(&mut *chosen) {
                let better = a == 0 || *u > *best;
                *best = if better { *u } else { *best };
                *chosen = if better { a as u32 } else { *chosen };
            }
        }
    }

    /// From values at every target y to those at y − r, for one sample; values lie n apart.
    fn subtract(&self, reward: f64, values: &mut [f32], n: usize) {
        let (whole, rest) = self.grid.shift(reward);
        let last = self.grid.n as i64;
        // Beyond the last target everything is alike; a reward far outside the range must not overflow.
        let whole = whole.clamp(-last - 2, last + 2);
        let earned = (reward / self.grid.width()) as f32;
        let mut before = Vec::with_capacity(self.grid.n_targets());
        for (first, stride, is_mean) in self.families() {
            let at = |i: usize| (first + i * stride) * n;
            before.clear();
            before.extend((0..self.grid.n_targets()).map(|i| values[at(i)]));
            for i in 0..self.grid.n_targets() {
                let value = |k: i64| before[(i as i64 + whole + k).clamp(0, last) as usize];
                let between =
                    if rest > 0.0 { cubic([-1, 0, 1, 2].map(value), rest as f32) } else { value(0) };
                values[at(i)] = if is_mean { (between + earned).clamp(0.0, 1.0) } else { between };
            }
        }
    }

    /// The head for the point quantile, from the values of every output at the root: the largest target that some weight
    /// reaches with P > 1 − τ − margin, and for it the weight with the largest E among those with P > 1 − τ + margin, or else
    /// with the largest P. The lowest target if none is reached.
    pub fn for_quantile(&self, root: &[f64], tau: f64, margin: f64) -> usize {
        let p = |head: usize| root[2 * head];
        let mean = |head: usize| root[2 * head + 1];
        let reached = (0..self.n_reach()).rev().find(|&head| p(head) > 1.0 - tau - margin).unwrap_or(0);
        let i = reached / self.weights.len();
        let heads = i * self.weights.len()..(i + 1) * self.weights.len();
        let largest = |best: usize, head: usize, value: &dyn Fn(usize) -> f64| {
            if value(head) > value(best) { head } else { best }
        };
        let safe = heads.clone().filter(|&head| p(head) > 1.0 - tau + margin);
        safe.reduce(|best, head| largest(best, head, &mean))
            .or_else(|| heads.reduce(|best, head| largest(best, head, &p)))
            .expect("there is a weight")
    }

    /// The head for the buffered quantile: that of the saddle, or the one for the point quantile where the window between
    /// u and v is narrower than the ramps can tell.
    pub fn for_buffered(&self, root: &[f64], level: &Buffer, margin: f64) -> usize {
        let (_, ramp) = self.saddle(root, level);
        ramp.unwrap_or_else(|| self.for_quantile(root, level.tau(), margin))
    }

    /// The value and the head of the saddle
    ///
    /// ```text
    /// β Q_τ^β = max_v min_{u≤v} { (τ−1) v − (τ−β) u + E clip(R, u, v) }
    /// ```
    ///
    /// on the scale 0..1, with v on the targets and u a ramp's width below; no head where u = v, or one step below v, is the
    /// minimiser.
    fn saddle(&self, root: &[f64], level: &Buffer) -> (f64, Option<usize>) {
        let (tau, lower_tau, step) = (level.tau(), level.lower(), 1.0 / self.grid.n as f64);
        let at = |u: f64, v: f64, p: f64| (tau - 1.0) * v - lower_tau * u + u + (v - u) * p.clamp(0.0, 1.0);
        let of_upper = |i: usize| {
            let v = i as f64 * step;
            let reach = i * self.weights.len()..(i + 1) * self.weights.len();
            let p = reach.map(|head| root[2 * head]).fold(0.0, f64::max);
            let narrow = at(v - step, v, p).min(level.beta() * v);
            let ramps = self.ramps.iter().enumerate().map(|(k, width)| {
                let head = self.ramp(i, k);
                (at(v - width, v, root[self.outputs(head).start]), Some(head))
            });
            ramps.fold((narrow, None), |least, next| if next.0 < least.0 { next } else { least })
        };
        let larger = |best: (f64, _), next: (f64, _)| if next.0 > best.0 { next } else { best };
        (0..self.grid.n_targets()).map(of_upper).reduce(larger).expect("there is a target")
    }
}

/// The cubic through four values in a row, between the inner two at t, and not beyond them. A straight line would blur a
/// curve a little at every reward as if y were rounded at random, and over twenty rewards that is no longer little.
fn cubic([before, low, high, after]: [f32; 4], t: f32) -> f32 {
    let outer = (t * (1.0 - t) / 6.0) * ((2.0 - t) * before + (1.0 + t) * after);
    let inner = 0.5 * (1.0 + t) * (2.0 - t) * ((1.0 - t) * low + t * high);
    (inner - outer).clamp(low.min(high), low.max(high))
}

#[cfg(test)]
mod tests {
    use bqrl_math::rng::{Purpose, stream};
    use bqrl_mdp::model::Model;
    use bqrl_mdp::plan::Planner;
    use bqrl_mdp::problems;

    use super::*;

    #[test]
    fn the_root_takes_the_largest_reached_target_and_then_the_larger_mean() {
        // Three targets, two weights; (P, E) of each head.
        let heads = Heads { grid: Grid { low: 0.0, high: 2.0, n: 2 }, weights: &[0.3, 0.7], ramps: &[] };
        let curve = [1.0, 0.5, 1.0, 0.4, 0.92, 0.6, 0.95, 0.55, 0.4, 0.7, 0.6, 0.3];
        // τ = .1: P > .9 at target 1 for both weights, the first has the larger mean.
        assert_eq!(heads.for_quantile(&curve, 0.1, 0.0), 2);
        // With a margin of .03 only the second is safe, P > .93.
        assert_eq!(heads.for_quantile(&curve, 0.1, 0.03), 3);
        // τ = .5: only the second weight reaches target 2. With a margin of .12 neither is safe, and P decides.
        assert_eq!(heads.for_quantile(&curve, 0.5, 0.0), 5);
        assert_eq!(heads.for_quantile(&curve, 0.5, 0.12), 5);
        // Q_τ ≥ g needs P(R ≥ g) > 1 − τ, strictly: τ = .4 leaves .6 out.
        assert_eq!(heads.for_quantile(&curve, 0.4, 0.0), 2);
        // Nothing is reached: the lowest target, the larger P.
        assert_eq!(
            heads.for_quantile(&[0.2, 0.9, 0.3, 0.1, 0.1, 0.9, 0.1, 0.9, 0.0, 0.9, 0.0, 0.9], 0.1, 0.0),
            1
        );
    }

    #[test]
    fn what_is_to_be_learned_matches_hand_computation() {
        // Two critics, two actions, targets 0, 1 and 2, one weight .5; samples: r = 0, r = 1, an end with r = 1.5, r = −.5.
        let heads = Heads { grid: Grid { low: 0.0, high: 2.0, n: 2 }, weights: &[0.5], ramps: &[] };
        // The same values at x' for every sample: P_0, E_0, P_1, E_1, P_2, E_2 of networks (m, a) = (0,0), (0,1), (1,0), (1,1).
        let networks = [
            [1.0, 0.5, 0.9, 0.5, 0.1, 0.2],
            [0.9, 0.5, 0.2, 0.6, 0.6, 1.1],
            [0.8, 0.5, 0.3, 0.5, 0.3, -0.1],
            [0.9, 0.5, 0.8, 0.5, 0.4, 0.5],
        ];
        let next = networks.map(|values| values.iter().flat_map(|&v| [v; 4]).collect::<Vec<f32>>());
        let y = heads.backup(2, &next, &[0.0, 1.0, 1.5, -0.5], &[false, false, true, false]);
        let of_sample = |m: usize, s: usize| y[m].iter().skip(s).step_by(4).copied().collect::<Vec<f32>>();
        // Critic 1 chooses for critic 0: action 1 for target 0 (.9 + .5 against .8 + .5), 1 for target 1 (1.3 against .8),
        // 1 for target 2 (.9 against .2); values of critic 0, clipped to 1.
        assert_eq!(of_sample(0, 0), [0.9, 0.5, 0.2, 0.6, 0.6, 1.0]);
        // Critic 0 chooses for critic 1: action 0 (1.5 against 1.4), 0 (1.4 against .8), 1 (1.7 against .3).
        assert_eq!(of_sample(1, 0), [0.8, 0.5, 0.3, 0.5, 0.4, 0.5]);
        // r = 1: target y is what y − 1 was, and the lowest for what is below it; the mean grows by half of the range.
        assert_eq!(of_sample(0, 1), [0.9, 1.0, 0.9, 1.0, 0.2, 1.0]);
        assert_eq!(of_sample(1, 1), [0.8, 1.0, 0.8, 1.0, 0.3, 1.0]);
        // The end with 1.5 reached 0 and 1, not 2, and 1.5 of 2 is .75.
        assert_eq!(of_sample(0, 2), [1.0, 0.75, 1.0, 0.75, 0.0, 0.75]);
        assert_eq!(of_sample(1, 2), of_sample(0, 2));
        // r = −.5: y + .5 lies halfway to the next target: 9/16 of either neighbour less 1/16 of those beyond, the last ones
        // counted twice. (9(.8 + .3) − .8 − .4)/16 = .54375, (9(.3 + .4) − .8 − .4)/16 = .31875. The mean falls by a quarter.
        for (got, want) in of_sample(1, 3).into_iter().zip([0.54375, 0.25, 0.31875, 0.25, 0.4, 0.25]) {
            assert!((got - want).abs() < 1e-6, "{got} for {want}");
        }
    }

    #[test]
    fn a_critic_does_not_choose_by_its_own_errors() {
        // Two actions are worth .5 to every critic, give or take an error of its own. Over a thousand samples a critic that chose
        // by its own values, or by those of all, would learn more than .5: the mean of the larger of two errors of spread .1 is
        // .056. The mean over 1,000 samples and four critics has a spread of about .002, so .01 is beyond five of them.
        let heads = Heads { grid: Grid { low: 0.0, high: 1.0, n: 1 }, weights: &[1.0], ramps: &[] };
        let n = 1000;
        let rng = &mut stream(5, Purpose::Test);
        let next: Vec<Vec<f32>> = (0..8)
            .map(|_| (0..heads.n_outputs() * n).map(|_| (0.5 + 0.1 * rng.normal()) as f32).collect())
            .collect();
        let y = heads.backup(2, &next, &vec![0.0; n], &vec![false; n]);
        let mean = y.iter().map(|y| y[..n].iter().sum::<f32>() / n as f32).sum::<f32>() / 4.0;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
    }

    /// The value of every head at the root by the agent's own backup, on a table of all (h, s), averaged over the true outcomes.
    fn fixed_point(model: &Model, heads: Heads) -> Vec<f32> {
        let (n_states, n_actions, rows) = (model.n_states(), model.n_actions(), heads.n_outputs());
        let mut values = vec![vec![vec![0.0; rows]; n_actions]; n_states];
        for h in (0..model.horizon()).rev() {
            let after = |s: usize, a: usize| {
                let mut sums = vec![0.0; rows];
                for o in model.outcomes(h, s, a) {
                    let done = h + 1 == model.horizon() || model.is_terminal(h + 1, o.next);
                    let y = &heads.backup(n_actions, &values[o.next], &[o.reward], &[done])[0];
                    sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += o.probability as f32 * y);
                }
                sums
            };
            values = (0..n_states).map(|s| (0..n_actions).map(|a| after(s, a)).collect()).collect();
        }
        heads.backup(n_actions, &values[model.start()[0].0], &[0.0], &[false]).swap_remove(0)
    }

    fn model(name: &str, parameters: &[(&str, &str)]) -> Model {
        let owned: Vec<(String, String)> =
            parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        problems::build(name, &owned).unwrap().model
    }

    #[test]
    fn the_fixed_point_of_the_backup_is_the_optimum_at_every_target() {
        for (name, parameters, (low, high)) in [
            ("asset-selling", vec![("offers", "5"), ("horizon", "3"), ("start", "1")], (0.0, 1.0)),
            ("gamble-chain", vec![("horizon", "4")], (0.0, 12.0)),
            (
                "gamble-chain",
                vec![("horizon", "3"), ("safe", "-1"), ("win", "2"), ("loss", "3")],
                (-12.0, 12.0),
            ),
            ("gamblers-ruin", vec![], (-12.0, 12.0)),
        ] {
            let model = model(name, &parameters);
            let planner = Planner::exact(&model, &|_, _, _| {}).unwrap();
            let best = planner.envelope();
            let grid = Grid { low, high, n: 24 };
            let root = fixed_point(&model, Heads { grid, weights: &[0.0, 1.0], ramps: &[] });
            for (i, head) in root.chunks_exact(4).enumerate() {
                // Weight 1: max_π P(R ≥ g), which the planner knows as 1 − min_π P(R < g).
                let want = 1.0 - best.probability_below(grid.target(i) - 1e-9);
                assert!((f64::from(head[2]) - want).abs() < 1e-5, "{name}, g = {}", grid.target(i));
                // Weight 0: the largest mean.
                let mean = grid.low + f64::from(head[1]) * grid.width();
                assert!((mean - planner.max_mean()).abs() < 1e-4, "{name}: {mean}");
            }
        }
    }

    #[test]
    fn a_cubic_is_read_between_two_values_and_stays_there() {
        // x³ at 1, 2, 3, 4 is read exactly at 2.25; a step is not overshot.
        assert!((cubic([1.0, 8.0, 27.0, 64.0], 0.25) - 2.25_f32.powi(3)).abs() < 1e-5);
        assert_eq!(cubic([1.0, 1.0, 0.0, 0.0], 0.5), 0.5);
        assert_eq!(cubic([1.0, 1.0, 1.0, 0.0], 0.5), 1.0);
    }

    #[test]
    fn off_the_grid_the_fixed_point_is_near_the_optimum() {
        // Targets 0..240 in steps of 5, and whole rewards of −40 to 10 in each of twenty stages: hardly any y − r is a target.
        let model = model("machine-replacement", &[]);
        let planner = Planner::exact(&model, &|_, _, _| {}).unwrap();
        let grid = Grid { low: 0.0, high: 240.0, n: 48 };
        let root = fixed_point(&model, Heads { grid, weights: &[1.0], ramps: &[] });
        for (i, head) in root.chunks_exact(2).enumerate() {
            let reach = |g: f64| 1.0 - planner.envelope().probability_below(g - 1e-9);
            let (p, g) = (f64::from(head[0]), grid.target(i));
            // Not off by more than half a step of the grid to either side.
            assert!(
                reach(g + 2.5) - 0.01 <= p && p <= reach(g - 2.5) + 0.01,
                "g = {g}: {p} for {}",
                reach(g)
            );
        }
    }

    #[test]
    fn the_saddle_at_the_fixed_point_is_the_best_buffered_quantile() {
        // Returns lie on the targets, so the saddle misses no v; u matters only for β < τ, where the widths are coarse.
        for (name, parameters, high) in [
            ("asset-selling", vec![("offers", "5"), ("horizon", "3"), ("start", "1")], 1.0),
            ("gamble-chain", vec![("horizon", "4")], 12.0),
        ] {
            let model = model(name, &parameters);
            let planner = Planner::exact(&model, &|_, _, _| {}).unwrap();
            let grid = Grid { low: 0.0, high, n: 12 };
            let heads = Heads { grid, weights: &[1.0], ramps: &[0.25, 0.5, 1.0] };
            let root: Vec<f64> = fixed_point(&model, heads).into_iter().map(f64::from).collect();
            for (tau, beta) in [(0.1, 0.1), (0.25, 0.25), (0.5, 0.5), (0.9, 0.9), (0.5, 0.25), (0.9, 0.2)] {
                let level = Buffer::new(tau, beta).unwrap();
                let (value, _) = heads.saddle(&root, &level);
                let best = planner.buffered(level, 1000).mixture_upper / high;
                let over = value / beta - best;
                assert!(over > -1e-5, "{name}, τ = {tau}, β = {beta}: {} of {best}", value / beta);
                let allowed = if tau == beta { 1e-5 } else { 0.05 };
                assert!(over < allowed, "{name}, τ = {tau}, β = {beta}: {over} above {best}");
            }
        }
    }

    #[test]
    fn heads_targets_and_outputs_name_each_other() {
        let grid = Grid { low: -2.0, high: 10.0, n: 12 };
        let heads = Heads { grid, weights: &[0.3, 0.7], ramps: &[0.25, 1.0] };
        assert_eq!((heads.n_heads(), heads.n_outputs()), (26 + 26, 52 + 26));
        let mut next = 0;
        for head in 0..heads.n_heads() {
            assert_eq!(heads.tracking(&heads.target(head), 0.0)[0], (head, 1.0));
            assert_eq!(heads.outputs(head).start, next);
            next = heads.outputs(head).end;
        }
        assert_eq!(next, heads.n_outputs());
        // The last head ramps from −2 to 10, the one before from 7: 4 lies half way, and below.
        assert_eq!(heads.target(51), Target { u: -2.0, v: 10.0, weight: 1.0 });
        assert_eq!(heads.target(50), Target { u: 7.0, v: 10.0, weight: 1.0 });
        assert_eq!(heads.outcome(51, 4.0), [0.5, 0.0]);
        assert_eq!(heads.outcome(50, 4.0), [0.0, 0.0]);
        assert_eq!(heads.outcome(50, 8.5), [0.5, 0.0]);
        // With 3.25 collected, 6.75 of 10 are missing: between 6 and 7, three quarters of the way; with 30, nothing is.
        let held = heads.target(51);
        assert_eq!(heads.tracking(&held, 3.25), [(51 - 8, 0.25), (51 - 6, 0.75)]);
        assert_eq!(heads.tracking(&held, 30.0)[0], (27, 1.0));
    }
}
