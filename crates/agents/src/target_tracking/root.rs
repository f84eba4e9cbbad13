//! The choice of a target at the root, from the predicted law and from what episodes have measured.
//!
//! ```text
//! P̂(g)      = mean_i clip((z_i − g)/(2κσ) + ½, 0, 1)                    z_i the quantiles of the best law at the start
//! corrected   logit P = logit P̂ + b,  b from: success ~ logistic(logit(P̂ − spent) + b) over recent trials
//! goal(τ)   = the return g seen with the best expected quantile: g if P(g) > 1 − τ, else what failing episodes would leave of it
//! share(τ)  = the largest 1 − w whose measured cost fits into the slack P̂(g) − (1 − τ)
//! ```
//!
//! A trial is a calm episode that held a target: it reached it or not. `spent` is by how much its actions lowered the predicted
//! chance, Σ_h max_a P(x_h, a) − P(x_h, a_h). By the lemma of performance differences, its mean is the loss of P against the best policy: an
//! estimate with far less noise than counting successes.
//!
//! Returns that repeat are atoms, and a network puts the quantiles of an atom around it. So an atom counts as reached from half-way to the
//! next lower atom on. Returns that do not repeat count as they are. Every return ever seen stays a possible target, because a
//! policy that has settled reaches few of them; only where there are too many are they the newest ones.
//!
//! P is not known exactly, and mistakes are not equal. Selling at 18 instead of 19 costs little; a bet that is won with probability .49
//! instead of .51 costs the stake at τ = .5. So P is taken at nine points around its estimate. Where it is too small, the quantile
//! is one of the returns of failed trials: the one that ranks (1 − τ − P)/(1 − P) from above.

use serde::{Deserialize, Serialize};

use crate::{RestoreError, Target};

/// Trials that are kept, the newest ones.
const TRIALS: usize = 512;
/// Different returns that are kept.
const RETURNS: usize = 512;
/// The correction b has the prior N(0, 2²), and counts by how much it exceeds one standard error.
const PRIOR_VARIANCE: f64 = 4.0;
/// A share of 1 − w is expected to cost 0.3 (1−w)² before trials show it; this counts as two of them.
const PRIOR_COST: f64 = 0.3;
const PRIOR_TRIALS: f64 = 2.0;
/// Trials count by their distance in P̂ and in 1 − w, in these units.
const NEAR_CHANCE: f64 = 0.05;
const NEAR_SHARE: f64 = 0.1;
/// The standard deviation of P, in units of √(P(1−P)/trials). It is smaller than that of counting successes, because the networks learn from
/// all transitions. Measured on asset selling.
const DOUBT: f64 = 0.3;
/// The middles of nine equal parts of the normal law.
const POINTS: [f64; 9] = [-1.59, -0.97, -0.59, -0.28, 0.0, 0.28, 0.59, 0.97, 1.59];
/// Failed trials count by their distance in P̂, in this unit. Before there are any, two are taken to have missed by up to σ.
const NEAR_FAILURE: f64 = 0.1;
const PRIOR_FAILURES: f64 = 2.0;
/// The steps in which the share of the mean is chosen, and the part of the slack that it may spend.
const SHARE_STEP: f64 = 0.05;
const SPENDABLE: f64 = 0.5;

/// A law by its quantiles at equally spaced levels, sorted.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    quantiles: Vec<f64>,
    /// The width over which P falls at a quantile.
    width: f64,
}

impl Curve {
    /// The mixture of laws in units of σ, each so many times.
    pub fn pooled(laws: impl Iterator<Item = (Vec<f64>, usize)>, sigma: f64, width: f64) -> Self {
        let mut quantiles = Vec::new();
        for (law, n) in laws {
            (0..n).for_each(|_| quantiles.extend(law.iter().map(|z| z * sigma)));
        }
        quantiles.sort_unstable_by(f64::total_cmp);
        Self { quantiles, width }
    }

    /// P(Z ≥ y).
    pub fn chance(&self, y: f64) -> f64 {
        let reached = |z: &f64| ((z - y) / self.width + 0.5).clamp(0.0, 1.0);
        self.quantiles.iter().map(reached).sum::<f64>() / self.quantiles.len().max(1) as f64
    }

    /// The τ-quantile.
    pub fn quantile(&self, tau: f64) -> f64 {
        let place = (tau * self.quantiles.len() as f64) as usize;
        self.quantiles.get(place).or(self.quantiles.last()).copied().unwrap_or(0.0)
    }
}

/// A return to aim at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Returns from here on count as reaching it.
    pub from: f64,
    /// The return itself.
    pub value: f64,
}

/// An episode that holds a target.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
pub struct Trial {
    /// Whether it explores nothing.
    pub calm: bool,
    /// Whether its result counts as a measurement.
    pub counts: bool,
    /// The target.
    pub target: Target,
    /// P̂ at the start.
    pub predicted: f64,
    /// By how much the actions so far have lowered it.
    pub spent: f64,
}

impl Trial {
    /// Refuses numbers that no episode can have left.
    pub fn check(&self) -> Result<(), RestoreError> {
        let holds = (0.0..=1.0).contains(&self.predicted) && self.spent >= 0.0 && self.spent.is_finite();
        if holds { Ok(()) } else { Err(RestoreError(format!("agent.json: a trial is {self:?}"))) }
    }
}

/// The result of a trial.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
struct Record {
    predicted: f64,
    spent: f64,
    /// 1 − w.
    share: f64,
    success: bool,
    /// By how much its return fell short of the target; 0 in checkpoints from before this was kept.
    #[serde(default)]
    short: f64,
}

/// By how much trials fell short, smallest first, with their weights and the sum of these.
struct Failed {
    short: Vec<(f64, f64)>,
    weight: f64,
}

impl Failed {
    /// The quantile of this rank, drawn towards a uniform law on (0, σ).
    fn short(&self, rank: f64, sigma: f64) -> f64 {
        let mut left = rank * self.weight;
        let at = self.short.iter().find(|&&(_, weight)| {
            left -= weight;
            left < 0.0
        });
        let short = at.or(self.short.last()).map_or(0.0, |&(short, _)| short);
        (self.weight * short + PRIOR_FAILURES * rank * sigma) / (self.weight + PRIOR_FAILURES)
    }
}

/// Returns, successes and costs of the finished episodes.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub struct Measured {
    /// Different returns and whether they were seen again, smallest first.
    returns: Vec<(f64, bool)>,
    /// The newest trials; the next one replaces number n mod length.
    trials: Vec<Record>,
    n_trials: u64,
    /// b.
    correction: f64,
}

fn logit(p: f64) -> f64 {
    let p = p.clamp(1e-4, 1.0 - 1e-4);
    (p / (1.0 - p)).ln()
}

fn logistic(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

impl Measured {
    /// An episode with this return has ended.
    pub fn episode(&mut self, trial: Option<Trial>, total: f64, sigma: f64) {
        self.see(total, sigma);
        if let Some(Trial { counts: true, target, predicted, spent, .. }) = trial {
            let (share, success) = (1.0 - target.weight, total >= target.u);
            let record =
                Record { predicted, spent, share, success, short: (target.v - total).clamp(0.0, f64::MAX) };
            if self.trials.len() < TRIALS {
                self.trials.push(record);
            } else {
                self.trials[(self.n_trials % TRIALS as u64) as usize] = record;
            }
            self.n_trials += 1;
            self.correction = self.fitted_correction();
        }
    }

    /// Takes a return among those that were seen. Where there are too many, it replaces the nearest of them.
    fn see(&mut self, total: f64, sigma: f64) {
        let same = 1e-9 * total.abs().max(sigma);
        let place = self.returns.partition_point(|&(value, _)| value < total - same);
        let known = self.returns.get(place).is_some_and(|&(value, _)| value <= total + same);
        if known {
            self.returns[place].1 = true;
        } else if self.returns.len() < RETURNS {
            self.returns.insert(place, (total, false));
        } else {
            let far = |place: usize| (self.returns[place].0 - total).abs();
            let (above, below) = (place.min(RETURNS - 1), place.saturating_sub(1));
            let nearest = if far(below) < far(above) { below } else { above };
            self.returns[nearest] = (total, false);
        }
    }

    /// The maximum of the posterior of b, by Newton's method, less one standard error.
    fn fitted_correction(&self) -> f64 {
        let (mut b, mut precision) = (0.0, 1.0);
        for _ in 0..20 {
            let mut slope = -b / PRIOR_VARIANCE;
            precision = 1.0 / PRIOR_VARIANCE;
            for trial in &self.trials {
                let p = logistic(logit(trial.predicted - trial.spent) + b);
                slope += f64::from(u8::from(trial.success)) - p;
                precision += p * (1.0 - p);
            }
            b += (slope / precision).clamp(-1.0, 1.0);
        }
        b.signum() * (b.abs() - 1.0 / precision.sqrt()).max(0.0)
    }

    /// The returns that were seen, smallest first.
    pub fn goals(&self, sigma: f64) -> Vec<Goal> {
        let mut below = f64::NEG_INFINITY;
        let goal = |&(value, is_atom): &(f64, bool)| {
            if !is_atom {
                return Goal { from: value, value };
            }
            let from = f64::midpoint(below, value).max(value - sigma);
            below = value;
            Goal { from, value }
        };
        self.returns.iter().map(goal).collect()
    }

    /// P of a policy with this share of the mean: what the share costs is not in P̂.
    pub fn attained(&self, chance: f64, share: f64) -> f64 {
        self.corrected(chance - self.cost(chance, share))
    }

    /// P, from P̂.
    fn corrected(&self, chance: f64) -> f64 {
        logistic(logit(chance) + self.correction)
    }

    /// The return seen whose expected quantile is best.
    pub fn goal(&self, root: &Curve, tau: f64, sigma: f64) -> Goal {
        let goals = self.goals(sigma);
        let mut best: Option<(f64, Goal)> = None;
        for &goal in goals.iter().rev() {
            // A target is worth at most itself.
            if best.is_some_and(|(worth, _)| worth >= goal.value) {
                break;
            }
            if let Some(lost) = self.lost(root.chance(goal.from), tau, sigma)
                && best.is_none_or(|(worth, _)| goal.value - lost > worth)
            {
                best = Some((goal.value - lost, goal));
            }
        }
        let nothing = Goal { from: 0.0, value: 0.0 };
        best.map(|(_, goal)| goal).or(goals.first().copied()).unwrap_or(nothing)
    }

    /// By how much the τ-quantile is expected to fall short of a target with this P̂; `None` where P exceeds 1 − τ at none of the points.
    fn lost(&self, chance: f64, tau: f64, sigma: f64) -> Option<f64> {
        let p = self.corrected(chance);
        let deviation = DOUBT * (p * (1.0 - p) / (self.n_trials as f64 + 1.0)).sqrt();
        let points = POINTS.map(|z| (p + z * deviation).clamp(0.0, 1.0));
        if points[POINTS.len() - 1] <= 1.0 - tau {
            return None;
        }
        let too_small = || points.iter().filter(|&&p| p <= 1.0 - tau);
        if too_small().next().is_none() {
            return Some(0.0);
        }
        let failed = self.failed(chance);
        let rank = |p: &f64| (1.0 - tau - p) / (1.0 - p);
        let lost: f64 = too_small().map(|p| failed.short(rank(p), sigma)).sum();
        Some(lost / POINTS.len() as f64)
    }

    /// By how much failed trials near a P̂ fell short.
    fn failed(&self, chance: f64) -> Failed {
        let weighted = |trial: &Record| {
            let far = (trial.predicted - chance) / NEAR_FAILURE;
            (trial.short, (-0.5 * far * far).exp())
        };
        let mut short: Vec<_> = self.trials.iter().filter(|trial| !trial.success).map(weighted).collect();
        short.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        Failed { weight: short.iter().map(|&(_, weight)| weight).sum(), short }
    }

    /// The expected cost in P of a share of the mean at a level, from the trials near it.
    fn cost(&self, chance: f64, share: f64) -> f64 {
        let (mut sum, mut weight) = (PRIOR_TRIALS * PRIOR_COST * share * share, PRIOR_TRIALS);
        for trial in &self.trials {
            let far = [(trial.predicted - chance) / NEAR_CHANCE, (trial.share - share) / NEAR_SHARE];
            let w = (-0.5 * (far[0] * far[0] + far[1] * far[1])).exp();
            sum += w * trial.spent;
            weight += w;
        }
        sum / weight
    }

    /// The largest share of the mean that the slack at a level pays for, and at least this one.
    pub fn share(&self, chance: f64, tau: f64, least: f64) -> f64 {
        let slack = SPENDABLE * (chance - (1.0 - tau));
        let mut share = least;
        while share < 1.0 && self.cost(chance, share + SHARE_STEP) <= slack {
            share += SHARE_STEP;
        }
        share.min(1.0)
    }

    /// Refuses numbers that no training can have left.
    pub fn check(&self) -> Result<(), RestoreError> {
        let record = |r: &Record| {
            (0.0..=1.0).contains(&r.predicted)
                && (0.0..=1.0).contains(&r.share)
                && [r.spent, r.short].iter().all(|&value| value >= 0.0 && value.is_finite())
        };
        let counts =
            self.returns.len() <= RETURNS && self.trials.len() == self.n_trials.min(TRIALS as u64) as usize;
        let numbers = self.returns.iter().all(|(g, _)| g.is_finite())
            && self.returns.is_sorted_by(|a, b| a.0 < b.0)
            && self.trials.iter().all(record)
            && self.correction.is_finite();
        if counts && numbers && self.n_trials < 1 << 53 {
            Ok(())
        } else {
            Err(RestoreError("agent.json: measured holds numbers that no training leaves".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn law(quantiles: &[f64]) -> Curve {
        Curve::pooled([(quantiles.to_vec(), 1)].into_iter(), 1.0, 0.01)
    }

    fn seen(returns: &[f64]) -> Measured {
        let mut measured = Measured::default();
        for &g in returns {
            measured.episode(None, g, 1.0);
        }
        measured
    }

    fn trial(predicted: f64, share: f64, spent: f64) -> Trial {
        let target = Target { u: 1.0, v: 1.0, weight: 1.0 - share, ramp: 0 };
        Trial { calm: true, counts: true, target, predicted, spent }
    }

    #[test]
    fn atoms_count_from_half_way_and_other_returns_as_they_are() {
        let goals = seen(&[3.0, 1.0, 3.0, 1.0, 2.5]).goals(10.0);
        let want = [(-9.0, 1.0), (2.5, 2.5), (2.0, 3.0)];
        assert_eq!(goals, want.map(|(from, value)| Goal { from, value }));
    }

    #[test]
    fn the_goal_is_the_largest_return_that_is_reached_often_enough() {
        // Half of the mass at 1, half at 2.
        let root = law(&[1.0, 1.0, 2.0, 2.0]);
        let measured = seen(&[1.0, 2.0, 1.0, 2.0]);
        for (tau, want) in [(0.1, 1.0), (0.2, 1.0), (0.55, 2.0), (0.9, 2.0)] {
            assert_eq!(measured.goal(&root, tau, 1.0).value, want, "{tau}");
        }
        assert_eq!((root.quantile(0.1), root.quantile(0.6)), (1.0, 2.0));
    }

    #[test]
    fn of_two_doubtful_targets_the_one_that_fails_gently_is_taken() {
        // Half of the mass at 1, half at 2: whether P(2) exceeds 1 − τ is a matter of luck.
        let root = law(&[1.0, 1.0, 2.0, 2.0]);
        for (falls_to, want) in [(1.9, 2.0), (-20.0, 1.0)] {
            let mut measured = seen(&[1.0, 2.0, 1.0, 2.0]);
            for k in 0..100 {
                let target = Target { u: 2.0, v: 2.0, weight: 1.0, ramp: 0 };
                let held = Trial { calm: true, counts: true, target, predicted: 0.5, spent: 0.0 };
                measured.episode(Some(held), if k % 2 == 0 { 2.0 } else { falls_to }, 1.0);
            }
            assert_eq!(measured.goal(&root, 0.5, 1.0).value, want, "{falls_to}");
        }
    }

    #[test]
    fn failed_trials_rank_from_the_gentlest_on() {
        let failed = Failed { short: vec![(1.0, 10.0), (2.0, 10.0), (5.0, 80.0)], weight: 100.0 };
        // Two imagined failures, uniform on (0, σ), count as well.
        for (rank, want) in [(0.05, 1.0), (0.15, 2.0), (0.5, 5.0), (1.0, 5.0)] {
            assert!((failed.short(rank, 1.0) - (100.0 * want + 2.0 * rank) / 102.0).abs() < 1e-12, "{rank}");
        }
        let none = Failed { short: Vec::new(), weight: 0.0 };
        assert_eq!(none.short(0.5, 4.0), 2.0);
    }

    #[test]
    fn a_target_that_play_contradicts_is_not_served() {
        let root = law(&[1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0]);
        let mut measured = seen(&[1.0, 2.0, 1.0, 2.0]);
        assert_eq!(measured.goal(&root, 0.2, 1.0).value, 2.0);
        // P̂(2) = .9; of 100 trials half reach it.
        for k in 0..100 {
            measured.episode(Some(trial(0.9, 0.2, 0.0)), f64::from(k % 2), 1.0);
        }
        assert!(measured.correction < -1.0);
        assert_eq!(measured.goal(&root, 0.2, 1.0).value, 1.0);
    }

    #[test]
    fn agreement_within_the_noise_corrects_nothing() {
        let mut measured = Measured::default();
        for k in 0..100 {
            measured.episode(Some(trial(0.9, 0.2, 0.0)), if k % 10 == 0 { 0.0 } else { 1.0 }, 1.0);
        }
        assert_eq!(measured.correction, 0.0);
    }

    #[test]
    fn the_attained_chance_is_less_by_the_cost_of_the_share() {
        let mut measured = Measured::default();
        for k in 0..400 {
            // A share of .5 costs .1: of the episodes with P̂ = .9, eight in ten succeed.
            measured.episode(Some(trial(0.9, 0.5, 0.1)), if k % 5 == 0 { 0.0 } else { 1.0 }, 1.0);
        }
        assert!((measured.attained(0.9, 0.5) - 0.8).abs() < 0.01, "{}", measured.attained(0.9, 0.5));
        assert!((measured.corrected(0.9) - 0.9).abs() < 1e-12);
    }

    #[test]
    fn slack_buys_the_share_that_it_pays_for() {
        let mut measured = Measured::default();
        // At P̂ = .9, a share costs a tenth of itself, squared.
        for k in 0..400 {
            let share = f64::from(k % 20) / 20.0;
            measured.episode(Some(trial(0.9, share, 0.1 * share * share)), 1.0, 1.0);
        }
        let shares = [0.11, 0.15, 0.19, 0.5].map(|tau| measured.share(0.9, tau, 0.05));
        assert!(shares.windows(2).all(|pair| pair[0] <= pair[1]), "{shares:?}");
        // .5 · .05 = .025 pays for (1−w)² = .25.
        assert!((shares[1] - 0.5).abs() < 0.1 && shares[3] > 0.99, "{shares:?}");
    }

    #[test]
    fn forged_measurements_are_refused() {
        let mut measured = seen(&[1.0, 2.0]);
        measured.episode(Some(trial(0.5, 0.5, 0.1)), 1.0, 1.0);
        assert!(measured.check().is_ok());
        assert!(Measured { n_trials: 7, ..measured.clone() }.check().is_err());
        let returns = vec![(2.0, false), (1.0, false)];
        assert!(Measured { returns, ..measured.clone() }.check().is_err());
        assert!(Measured { correction: f64::NAN, ..measured.clone() }.check().is_err());
        let mut forged = measured.clone();
        forged.trials[0].predicted = 2.0;
        assert!(forged.check().is_err());
    }
}
