//! The lower-buffered quantile Q_τ^β, with a certificate.
//!
//! Write v for the top of the window's values and w ≥ 0 for their spread. From the saddle form of β·Q_τ^β,
//!
//! ```text
//! f_π(v, w) = v − (1/β) { E_π min((v − R)₊, w) − (τ − β) w }
//! Q_τ^β(R^π) = max_v min_w f_π(v, w)
//! J_mix      = max_v min_w max_π f_π(v, w)
//! ```
//!
//! For fixed (v, w) the best π minimises an expected ramp cost: one pass of [`super::sweep`]. Every f_π is convex in w,
//! so cutting planes find the inner minimum: each policy found gives a whole curve f_π(v, ·) below the true one, and the
//! next w minimises the upper envelope of these curves. J_mix is the exact optimum over policies that may choose at random
//! between deterministic policies at the start; two are enough. In v the function is not concave, so all v are candidates.
//! The envelope law and every pass bound them from above, and they are tried best first until none can win.
//!
//! ```text
//! UB1 = (1/β) ∫ Q*_u du  ≥  UB2 = J_mix  ≥  best deterministic  ≥  LB = best Q_τ^β of all policies found
//! ```

use std::sync::Arc;

use bqrl_math::buffer::Buffer;
use bqrl_math::law::ReturnLaw;

use super::policy::Index;
use super::sweep::Cost;
use super::{PlannedPolicy, Planner};
use crate::evaluate::Evaluation;

/// A random choice between two policies at the start of an episode.
#[derive(Clone, Debug)]
pub struct Mixture {
    /// Probability of the first policy.
    pub weight: f64,
    /// Played with probability `weight`.
    pub first: PlannedPolicy,
    /// Played otherwise.
    pub second: PlannedPolicy,
    /// The law of the return, over both the choice and the episode.
    pub law: ReturnLaw,
}

/// The buffered optimum, bounded from both sides.
#[derive(Clone, Debug)]
pub struct BufferedPlan {
    /// (τ, β).
    pub buffer: Buffer,
    /// UB1: the buffered quantile of the envelope law.
    pub upper: f64,
    /// UB2: the best that any policy, mixtures included, can attain.
    pub mixture_upper: f64,
    /// A mixture that is better than every policy found, if randomising helps.
    pub mixture: Option<Mixture>,
    /// LB: attained by `policy`.
    pub lower: f64,
    /// The best deterministic policy found.
    pub policy: PlannedPolicy,
    /// Its exact law and mean.
    pub evaluation: Evaluation,
}

/// A policy found during the search.
struct Met {
    policy: PlannedPolicy,
    evaluation: Evaluation,
}

/// A candidate for the top of the window.
struct Top {
    v: f64,
    /// An upper bound for every policy at this v.
    upper: f64,
}

impl Planner<'_> {
    /// Bounds max_π Q_τ^β(R^π) with at most `passes` further passes. With too few passes UB2 is less tight.
    pub fn buffered(&self, buffer: Buffer, passes: usize) -> BufferedPlan {
        let search = Search { planner: self, buffer, tolerance: 1e-11 * self.span() };
        let mut met = search.starting_policies();
        let mut tops = search.tops();
        let mut budget = passes;
        let mut saddle: Option<(f64, f64)> = None; // (v, w) of the best solved top
        let mut solved = f64::NEG_INFINITY;
        while budget > 0 {
            let Some(top) = tops.iter().enumerate().max_by(|(_, a), (_, b)| a.upper.total_cmp(&b.upper))
            else {
                break;
            };
            let (index, &Top { v, upper }) = top;
            if upper <= solved + search.tolerance {
                break;
            }
            if let Some(w) = search.solve(v, index, solved, &mut tops, &mut met, &mut budget) {
                solved = tops[index].upper;
                saddle = Some((v, w));
                // This candidate is settled; the others must be better.
                tops[index].upper = f64::NEG_INFINITY;
            }
        }
        let open = tops.iter().map(|top| top.upper).fold(f64::NEG_INFINITY, f64::max);
        let mixture_upper = if budget > 0 { solved } else { solved.max(open) };

        let value = |m: &Met| m.evaluation.law.buffered_quantile(&buffer);
        let best =
            met.iter().max_by(|a, b| value(a).total_cmp(&value(b))).expect("there are starting policies");
        let lower = value(best);
        let mixture = saddle
            .and_then(|(v, w)| search.mixture(v, w, &met))
            .filter(|mixture| mixture.law.buffered_quantile(&buffer) > lower + search.tolerance);
        BufferedPlan {
            buffer,
            upper: self.envelope().buffered_quantile(&buffer),
            // Rounding in the last digits must not reverse the order of the bounds.
            mixture_upper: mixture_upper.max(lower),
            mixture,
            lower,
            policy: best.policy.clone(),
            evaluation: best.evaluation.clone(),
        }
    }
}

struct Search<'a> {
    planner: &'a Planner<'a>,
    buffer: Buffer,
    tolerance: f64,
}

impl Search<'_> {
    /// τ − β, the share of outcomes below the window.
    fn ignored(&self) -> f64 {
        self.buffer.lower()
    }

    fn met(&self, policy: PlannedPolicy) -> Met {
        let evaluation = self.planner.evaluate(&policy);
        Met { policy, evaluation }
    }

    /// The risk-neutral policy, and policies that attain Q*_u at levels across the window. They all come from one pass, and
    /// good deterministic policies are often among them. At both ends of the window also policies that use their slack to
    /// raise the mean.
    fn starting_policies(&self) -> Vec<Met> {
        const LEVELS: u32 = 8;
        const REFINEMENTS: usize = 6;
        let neutral = self.planner.mean_evaluation().clone();
        let mut met = vec![Met { policy: self.planner.mean_policy(), evaluation: neutral }];
        let level = |k: u32| self.ignored() + self.buffer.beta() * f64::from(k) / f64::from(LEVELS);
        let mut targets: Vec<f64> =
            (1..=LEVELS).map(|k| self.planner.best_quantile(level(k)).value).collect();
        targets.dedup();
        for g in targets {
            met.push(self.met(self.planner.policy(self.planner.tie_broken(), Index::Residual(g))));
        }
        for level in [self.ignored(), self.buffer.tau()].into_iter().filter(|&level| level > 0.0) {
            let plan = self.planner.quantile_policy(level, REFINEMENTS);
            met.push(Met { policy: plan.policy, evaluation: plan.evaluation });
        }
        met
    }

    /// All candidates for v with the bound that the envelope law gives:
    /// v − (1/β) ∫_{t<v} (F_0(t) − (τ − β))₊ dt.
    fn tops(&self) -> Vec<Top> {
        let root = &self.planner.root;
        let mut excess = 0.0;
        let mut below = f64::NAN;
        (root.first - 1..=root.end())
            .take_while(|&rung| !self.planner.is_beyond(rung))
            .map(|rung| {
                let v = self.planner.value(rung);
                if !below.is_nan() {
                    excess += (v - below) * (root.at(rung) - self.ignored()).max(0.0);
                }
                below = v;
                Top { v, upper: v - excess / self.buffer.beta() }
            })
            .collect()
    }

    /// f_π(v, w).
    fn value(&self, law: &ReturnLaw, v: f64, w: f64) -> f64 {
        let clipped = law.expected_shortfall(v) - law.expected_shortfall(v - w);
        v - (clipped - self.ignored() * w) / self.buffer.beta()
    }

    /// Finds min_w max_π f_π(v, w). Returns the minimiser, or `None` as soon as v is known not to be better than `rival`, or
    /// when the budget is used up; the bound in `tops` then holds the result so far.
    fn solve(
        &self,
        v: f64,
        index: usize,
        rival: f64,
        tops: &mut [Top],
        met: &mut Vec<Met>,
        budget: &mut usize,
    ) -> Option<f64> {
        let (mut w, mut least) = self.minimise(v, met);
        loop {
            if tops[index].upper - least <= self.tolerance {
                return Some(w);
            }
            if *budget == 0 {
                return None;
            }
            *budget -= 1;
            met.push(self.pass(v, w, index, tops));
            if tops[index].upper <= rival + self.tolerance {
                return None;
            }
            let (next, bound) = self.minimise(v, met);
            // Within rounding no further cut exists.
            if bound <= least && (next - w).abs() <= f64::EPSILON * v.abs().max(w) {
                return Some(w);
            }
            (w, least) = (next, bound);
        }
    }

    /// Finds the best policy for (v, w) and tightens the bounds: of every v on a lattice, otherwise of this v.
    fn pass(&self, v: f64, w: f64, index: usize, tops: &mut [Top]) -> Met {
        let cost = if w > self.planner.compiled.tolerance { Cost::Ramp(w) } else { Cost::Step };
        let bound = |v: f64, cost: f64| v - w / self.buffer.beta() * (cost - self.ignored());
        let residual = &self.planner.ladders.residual;
        if residual.quantum().is_some() {
            let swept = self.planner.residual_pass(cost, 0.0, true);
            for top in tops.iter_mut().filter(|top| top.upper > f64::NEG_INFINITY) {
                top.upper = top.upper.min(bound(top.v, swept.root.at(residual.rung_of_target(0, top.v))));
            }
            self.met(self.planner.policy(&Arc::new(swept.actions), Index::Residual(v)))
        } else {
            let swept = self.planner.run(Some(v), cost, 0.0, true, 0);
            tops[index].upper = tops[index].upper.min(bound(v, swept.root.at(0)));
            self.met(self.planner.policy(&Arc::new(swept.actions), Index::Collected))
        }
    }

    /// The minimum of w ↦ max over the policies found of f_π(v, w): convex, and linear between the breakpoints
    /// w = v − (an atom of some law).
    fn minimise(&self, v: f64, met: &[Met]) -> (f64, f64) {
        let floor = self.planner.compiled.range.0;
        let mut breaks = vec![0.0, (v - floor).max(0.0)];
        for m in met {
            breaks.extend(m.evaluation.law.values().iter().map(|atom| v - atom).filter(|&w| w > 0.0));
        }
        breaks.sort_unstable_by(f64::total_cmp);
        breaks.dedup();
        let model = |w: f64| {
            met.iter().map(|m| self.value(&m.evaluation.law, v, w)).fold(f64::NEG_INFINITY, f64::max)
        };
        // Convex over the breakpoints: the minimum is where the first difference becomes positive.
        let (mut low, mut high) = (0, breaks.len() - 1);
        while low < high {
            let middle = usize::midpoint(low, high);
            if model(breaks[middle]) <= model(breaks[middle + 1]) { high = middle } else { low = middle + 1 }
        }
        let mut best = (breaks[low], model(breaks[low]));
        // The minimum may be inside a neighbouring interval, where two policies' lines cross.
        for (a, b) in [(low.saturating_sub(1), low), (low, (low + 1).min(breaks.len() - 1))] {
            let (a, b) = (breaks[a], breaks[b]);
            if b <= a {
                continue;
            }
            let lines: Vec<(f64, f64)> = met
                .iter()
                .map(|m| {
                    let (left, right) =
                        (self.value(&m.evaluation.law, v, a), self.value(&m.evaluation.law, v, b));
                    (left, (right - left) / (b - a))
                })
                .collect();
            let height = |w: f64| {
                lines.iter().map(|(left, slope)| left + slope * (w - a)).fold(f64::NEG_INFINITY, f64::max)
            };
            for (i, first) in lines.iter().enumerate() {
                for second in &lines[i + 1..] {
                    let w = a + (second.0 - first.0) / (first.1 - second.1);
                    if w > a && w < b && height(w) < best.1 {
                        best = (w, height(w));
                    }
                }
            }
        }
        best
    }

    /// The two policies that are optimal at the saddle and have slopes of opposite sign there, in the proportion with
    /// P(R < v − w) = τ − β. `None` if one policy alone satisfies this.
    fn mixture(&self, v: f64, w: f64, met: &[Met]) -> Option<Mixture> {
        let bottom = v - w;
        let slack = 1e-9 * self.planner.span();
        let top = met.iter().map(|m| self.value(&m.evaluation.law, v, w)).fold(f64::NEG_INFINITY, f64::max);
        let active = || met.iter().filter(|m| self.value(&m.evaluation.law, v, w) >= top - slack);
        let below = |m: &Met| m.evaluation.law.probability_below(bottom - self.planner.compiled.tolerance);
        let safer = active().min_by(|a, b| below(a).total_cmp(&below(b)))?;
        let bolder = active().max_by(|a, b| below(a).total_cmp(&below(b)))?;
        let (least, most) = (below(safer), below(bolder));
        if !(least < self.ignored() && self.ignored() < most) {
            return None;
        }
        let weight = (most - self.ignored()) / (most - least);
        let law =
            ReturnLaw::mixture(&[(weight, &safer.evaluation.law), (1.0 - weight, &bolder.evaluation.law)])
                .ok()?;
        Some(Mixture { weight, first: safer.policy.clone(), second: bolder.policy.clone(), law })
    }
}
