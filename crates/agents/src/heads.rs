//! The questions that a critic of target tracking answers, their backup, and the choice between them at the root.
//!
//! ```text
//! heads     reach g_i, weight w_j    outputs P, E    U = w_j P + (1−w_j) E       P ≈ P(R ≥ g_i), E ≈ E[R]
//!           clip to [u, v]           one output      U ≈ E clip((R−u)/(v−u), 0, 1)    u < v among B+1 edges
//! backup    a' = argmax_a mean_m Ū_m(x', a)          one next action per head
//!           y_m = the head's outcome at R = c'       if d = 1
//!               = its values of critic m at (x', a') if d = 0, clipped to 0..1
//! ```
//!
//! R stands for c + Z on the scale 0..1 of the return range. Edges lie at every n/B-th target.

use std::ops::Range;

use bqrl_math::buffer::Buffer;

use crate::Target;
use crate::experience::grid::Grid;

/// The heads of every critic: n·J that reach, then B(B+1)/2 that clip.
#[derive(Clone, Copy)]
pub(crate) struct Heads<'a> {
    pub grid: Grid,
    /// w_j.
    pub weights: &'a [f64],
    /// B.
    pub n_clips: usize,
}

impl Heads<'_> {
    fn n_reach(&self) -> usize {
        self.grid.n * self.weights.len()
    }

    pub fn n_heads(&self) -> usize {
        self.n_reach() + self.n_clips * (self.n_clips + 1) / 2
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

    /// Clip (l, k) with l < k: all that end at edge 1, then all that end at edge 2, ….
    fn clip(&self, lower: usize, upper: usize) -> usize {
        self.n_reach() + upper * (upper - 1) / 2 + lower
    }

    /// The edges of a head that clips.
    fn edges(&self, head: usize) -> (usize, usize) {
        let at = head - self.n_reach();
        let upper = (1..=self.n_clips).rfind(|k| k * (k - 1) / 2 <= at).expect("the first edge begins at 0");
        (at - upper * (upper - 1) / 2, upper)
    }

    fn edge(&self, k: usize) -> f64 {
        self.grid.low + self.grid.width() * k as f64 / self.n_clips as f64
    }

    /// What a head asks for.
    pub fn target(&self, head: usize) -> Target {
        if head < self.n_reach() {
            let (i, j) = (head / self.weights.len(), head % self.weights.len());
            let g = self.grid.target(i);
            Target { u: g, v: g, weight: self.weights[j] }
        } else {
            let (lower, upper) = self.edges(head);
            Target { u: self.edge(lower), v: self.edge(upper), weight: 1.0 }
        }
    }

    /// The head that comes nearest to a target.
    pub fn nearest(&self, target: &Target) -> usize {
        let Target { u, v, weight } = *target;
        if u < v && self.n_clips > 0 {
            let at = |value| (self.grid.scaled(value) * self.n_clips as f64).round().max(0.0) as usize;
            let upper = at(v).clamp(1, self.n_clips);
            return self.clip(at(u).min(upper - 1), upper);
        }
        let step = (self.grid.scaled(v) * self.grid.n as f64).round().max(1.0) as usize;
        let far = |j: &usize| (self.weights[*j] - weight).abs();
        let nearer = |a: usize, b: usize| if far(&b) < far(&a) { b } else { a };
        let j = (0..self.weights.len()).reduce(nearer).expect("there is a weight");
        (step.min(self.grid.n) - 1) * self.weights.len() + j
    }

    /// The outcomes of a head's outputs where an episode ended with a return.
    fn outcome(&self, head: usize, episode_return: f64) -> [f32; 2] {
        let scaled = self.grid.scaled(episode_return);
        if head < self.n_reach() {
            let reached = self.grid.reached(episode_return, head / self.weights.len());
            [f32::from(u8::from(reached)), scaled.clamp(0.0, 1.0) as f32]
        } else {
            let (lower, upper) = self.edges(head);
            let b = self.n_clips as f64;
            let share = (scaled * b - lower as f64) / (upper - lower) as f64;
            [share.clamp(0.0, 1.0) as f32, 0.0]
        }
    }

    /// y of every critic: a row of n samples per output. `next` holds such rows of the slow copies' values at x' for every network
    /// m·A + a, `collected` is c' and `done` is d.
    pub fn backup(
        &self,
        n_actions: usize,
        next: &[Vec<f32>],
        collected: &[f64],
        done: &[bool],
    ) -> Vec<Vec<f32>> {
        let n = done.len();
        let n_critics = next.len() / n_actions;
        let mut targets = vec![vec![0.0; self.n_outputs() * n]; n_critics];
        let (mut utility, mut best, mut chosen) = (vec![0.0_f32; n], vec![0.0_f32; n], vec![0_u32; n]);
        for head in 0..self.n_heads() {
            // a' = argmax_a Σ_m Ū_m(x', a); the lowest index wins a tie.
            for a in 0..n_actions {
                utility.fill(0.0);
                for network in next.iter().skip(a).step_by(n_actions) {
                    for (output, share) in self.outputs(head).zip(self.shares(head)) {
                        for (u, v) in utility.iter_mut().zip(&network[output * n..]) {
                            *u += share as f32 * v;
                        }
                    }
                }
                for ((u, best), chosen) in utility.iter().zip(&mut best).zip(&mut chosen) {
                    let better = a == 0 || *u > *best;
                    *best = if better { *u } else { *best };
                    *chosen = if better { a as u32 } else { *chosen };
                }
            }
            for (m, targets) in targets.iter_mut().enumerate() {
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
                    for (output, y) in self.outputs(head).zip(self.outcome(head, collected[s])) {
                        targets[output * n + s] = y;
                    }
                }
            }
        }
        targets
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
    /// u and v is narrower than the edges can tell.
    pub fn for_buffered(&self, root: &[f64], level: &Buffer, margin: f64) -> usize {
        let clip = self.saddle(root, level).and_then(|(_, head)| head);
        clip.unwrap_or_else(|| self.for_quantile(root, level.tau(), margin))
    }

    /// The value and the head of the saddle
    ///
    /// ```text
    /// β Q_τ^β = max_v min_{u≤v} { (τ−1) v − (τ−β) u + E clip(R, u, v) }
    /// ```
    ///
    /// on the scale 0..1, with v on the edges and u on those below; no head where u = v, or one target below v, is the minimiser.
    fn saddle(&self, root: &[f64], level: &Buffer) -> Option<(f64, Option<usize>)> {
        let (tau, lower_tau) = (level.tau(), level.lower());
        let edge = |k: usize| k as f64 / self.n_clips as f64;
        let at = |u: f64, v: f64, p: f64| (tau - 1.0) * v - lower_tau * u + u + (v - u) * p.clamp(0.0, 1.0);
        let of_upper = |upper: usize| {
            let v = edge(upper);
            let reach = (upper * self.grid.n / self.n_clips - 1) * self.weights.len();
            let p = (reach..reach + self.weights.len()).map(|head| root[2 * head]).fold(0.0, f64::max);
            let narrow = at(v - 1.0 / self.grid.n as f64, v, p).min(level.beta() * v);
            let clips = (0..upper).map(|lower| {
                let head = self.clip(lower, upper);
                (at(edge(lower), v, root[self.outputs(head).start]), Some(head))
            });
            clips.fold((narrow, None), |least, next| if next.0 < least.0 { next } else { least })
        };
        (1..=self.n_clips).map(of_upper).reduce(|best, next| if next.0 > best.0 { next } else { best })
    }
}

#[cfg(test)]
mod tests {
    use bqrl_mdp::model::Model;
    use bqrl_mdp::plan::Planner;
    use bqrl_mdp::problems;

    use super::*;

    #[test]
    fn the_root_takes_the_largest_reached_target_and_then_the_larger_mean() {
        // Three targets, two weights; (P, E) of each head.
        let heads = Heads { grid: Grid { low: 0.0, high: 3.0, n: 3 }, weights: &[0.3, 0.7], n_clips: 0 };
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
    fn targets_match_hand_computation() {
        // Two critics, two actions, targets 1 and 2 of the range 0..2, one weight .5, two samples.
        let heads = Heads { grid: Grid { low: 0.0, high: 2.0, n: 2 }, weights: &[0.5], n_clips: 0 };
        // Rows P_1, E_1, P_2, E_2, two samples each; networks (m, a) = (0,0), (0,1), (1,0), (1,1). Sample 1 has ended.
        let next = [
            vec![0.9, 0.0, 0.5, 0.0, 0.1, 0.0, 0.2, 0.0],
            vec![0.2, 0.0, 0.6, 0.0, 0.6, 0.0, 1.1, 0.0],
            vec![0.3, 0.0, 0.5, 0.0, 0.3, 0.0, -0.1, 0.0],
            vec![0.8, 0.0, 0.5, 0.0, 0.4, 0.0, 0.5, 0.0],
        ];
        let y = heads.backup(2, &next, &[0.0, 1.5], &[false, true]);
        // Target 1: 2 ΣU = (.9+.5)+(.3+.5) = 2.2 for action 0, (.2+.6)+(.8+.5) = 2.1 for action 1: action 0 for both critics,
        // though critic 1 alone would take action 1. Target 2: .3 + .2 against 1.7 + .9: action 1, values clipped to 1.
        // The ended sample has c' = 1.5: it reached 1, not 2, and 1.5 of 2 is .75.
        assert_eq!(y[0], [0.9, 1.0, 0.5, 0.75, 0.6, 0.0, 1.0, 0.75]);
        assert_eq!(y[1], [0.3, 1.0, 0.5, 0.75, 0.4, 0.0, 0.5, 0.75]);
    }

    /// max_π P(R ≥ g_i) and the mean of the policy, by the agent's own backup on a table of all (h, s, c), averaged over the
    /// true outcomes.
    fn fixed_point(model: &Model, heads: Heads) -> Vec<f32> {
        let n_actions = model.n_actions();
        let rows = heads.n_outputs();
        let key = |state: usize, c: f64| (state, (c * 1000.0).round() as i64);
        // What can have been collected, forward.
        let mut reachable = vec![std::collections::BTreeMap::from([(key(model.start()[0].0, 0.0), 0.0)])];
        for h in 0..model.horizon() {
            let mut next = std::collections::BTreeMap::new();
            for (&(s, _), &c) in &reachable[h] {
                for a in 0..n_actions {
                    for o in model.outcomes(h, s, a) {
                        next.insert(key(o.next, c + o.reward), c + o.reward);
                    }
                }
            }
            reachable.push(next);
        }
        let mut values: std::collections::BTreeMap<(usize, i64), Vec<Vec<f32>>> =
            std::collections::BTreeMap::new();
        for h in (0..model.horizon()).rev() {
            let mut here = std::collections::BTreeMap::new();
            for (&(s, at), &c) in reachable[h].iter().filter(|((s, _), _)| !model.is_terminal(h, *s)) {
                let mut actions = vec![vec![0.0; rows]; n_actions];
                for (a, sums) in actions.iter_mut().enumerate() {
                    for o in model.outcomes(h, s, a) {
                        let after = c + o.reward;
                        let done = h + 1 == model.horizon() || model.is_terminal(h + 1, o.next);
                        let nothing = vec![vec![0.0; rows]; n_actions];
                        let next = if done { &nothing } else { &values[&key(o.next, after)] };
                        let y = &heads.backup(n_actions, next, &[after], &[done])[0];
                        sums.iter_mut().zip(y).for_each(|(sum, y)| *sum += o.probability as f32 * y);
                    }
                }
                here.insert((s, at), actions);
            }
            values = here;
        }
        let root = &values[&key(model.start()[0].0, 0.0)];
        heads.backup(n_actions, root, &[0.0], &[false]).swap_remove(0)
    }

    #[test]
    fn the_fixed_point_of_the_backup_is_the_optimum_at_every_target() {
        for (name, parameters, high) in [
            ("asset-selling", vec![("offers", "5"), ("horizon", "3"), ("start", "1")], 1.0),
            ("gamble-chain", vec![("horizon", "4")], 12.0),
            ("gamble-chain", vec![("horizon", "3"), ("safe", "-1"), ("win", "2"), ("loss", "3")], 9.0),
        ] {
            let owned: Vec<(String, String)> =
                parameters.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let model = problems::build(name, &owned).unwrap().model;
            let planner = Planner::exact(&model, &|_, _, _| {}).unwrap();
            let best = planner.envelope();
            let grid = Grid { low: -high, high, n: 24 };
            let root = fixed_point(&model, Heads { grid, weights: &[0.0, 1.0], n_clips: 0 });
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
    fn the_saddle_at_the_fixed_point_is_the_best_buffered_quantile() {
        // Returns 0, 1/4, …, 1 lie on the edges, so the saddle misses no v; u matters only for β < τ, and may lie between.
        let parameters = [("offers", "5"), ("horizon", "3"), ("start", "1")];
        let owned = parameters.map(|(k, v)| (k.to_owned(), v.to_owned()));
        let model = problems::build("asset-selling", &owned).unwrap().model;
        let planner = Planner::exact(&model, &|_, _, _| {}).unwrap();
        let heads = Heads { grid: Grid { low: 0.0, high: 1.0, n: 4 }, weights: &[1.0], n_clips: 4 };
        let root: Vec<f64> = fixed_point(&model, heads).into_iter().map(f64::from).collect();
        for (tau, beta) in [(0.1, 0.1), (0.25, 0.25), (0.5, 0.5), (0.9, 0.9), (0.5, 0.25), (0.9, 0.2)] {
            let level = Buffer::new(tau, beta).unwrap();
            let (value, _) = heads.saddle(&root, &level).unwrap();
            let best = planner.buffered(level, 1000).mixture_upper;
            let over = value / beta - best;
            assert!(over > -1e-6, "τ = {tau}, β = {beta}: {} of {best}", value / beta);
            assert!(
                over < if tau == beta { 1e-6 } else { 0.02 },
                "τ = {tau}, β = {beta}: {over} above {best}"
            );
        }
    }

    #[test]
    fn heads_targets_and_outputs_name_each_other() {
        let heads = Heads { grid: Grid { low: -2.0, high: 10.0, n: 12 }, weights: &[0.3, 0.7], n_clips: 4 };
        assert_eq!((heads.n_heads(), heads.n_outputs()), (24 + 10, 48 + 10));
        let mut next = 0;
        for head in 0..heads.n_heads() {
            assert_eq!(heads.nearest(&heads.target(head)), head);
            assert_eq!(heads.outputs(head).start, next);
            next = heads.outputs(head).end;
        }
        assert_eq!(next, heads.n_outputs());
        // Edges -2, 1, 4, 7, 10: the last head but three clips to [-2, 10], and 4 lies half way.
        assert_eq!(heads.target(30), Target { u: -2.0, v: 10.0, weight: 1.0 });
        assert_eq!(heads.outcome(30, 4.0), [0.5, 0.0]);
        assert_eq!(heads.outcome(30, -5.0), [0.0, 0.0]);
        assert_eq!(heads.outcome(33, 8.5), [0.5, 0.0]);
    }
}
