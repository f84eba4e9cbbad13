//! Exact planning: the best quantile, the best buffered quantile, their policies and their certificates.
//!
//! ```text
//! let planner = Planner::exact(&model)?;      one backward pass
//! planner.best_quantile(0.1)                  Q*_τ and its proof, for any τ, at no further cost
//! planner.quantile_policy(0.1)                a policy that attains it, with the slack spent on the mean
//! planner.buffered(buffer)                    UB1 ≥ UB2 ≥ best deterministic ≥ LB
//! conditional::greedy(&model, buffer)         what the paper's own rule attains
//! ```

pub mod buffered;
pub mod conditional;
pub mod mean;
mod policy;
mod sweep;
pub mod threshold;

use std::sync::Arc;

use bqrl_math::law::ReturnLaw;

pub use self::buffered::{BufferedPlan, Mixture};
pub use self::mean::MeanPlan;
pub use self::policy::PlannedPolicy;
pub use self::threshold::{BestQuantile, QuantilePlan};
use self::policy::Index;
use self::sweep::{Cost, Pass, Row, Swept};
use crate::evaluate::{Evaluation, Policy, forward};
use crate::model::Model;
use crate::returns::{Compiled, Ladders, Rounding, TooManyReturns};

/// Told that `stages` of `horizon` stages of a pass are done; passes are counted from 1.
pub type Progress<'a> = &'a (dyn Fn(u64, usize, usize) + Sync);

/// A model, ready to be planned for any risk level.
pub struct Planner<'a> {
    compiled: Compiled,
    ladders: Arc<Ladders>,
    mean: Arc<MeanPlan>,
    /// F_0 over all targets: least attainable P(R < g).
    root: Row,
    rounding: Rounding,
    passes: std::cell::Cell<u64>,
    updates: std::cell::Cell<u64>,
    progress: Progress<'a>,
}

impl<'a> Planner<'a> {
    /// Plans without rounding, or says that the return set is too large for that.
    pub fn exact(model: &Model, progress: Progress<'a>) -> Result<Self, TooManyReturns> {
        let compiled = Compiled::new(model);
        let ladders = Ladders::exact(&compiled)?;
        Ok(Self::new(compiled, ladders, Rounding::Exact, progress))
    }

    /// Plans with rewards rounded to about `grid` values of the return. With [`Rounding::Down`] every value is a lower
    /// bound that the policy attains, with [`Rounding::Up`] an upper bound on what any policy can attain.
    pub fn rounded(model: &Model, grid: usize, rounding: Rounding, progress: Progress<'a>) -> Self {
        assert!(rounding != Rounding::Exact, "a rounded plan rounds down or up");
        let compiled = Compiled::new(model);
        let ladders = Ladders::rounded(&compiled, grid, rounding);
        Self::new(compiled, ladders, rounding, progress)
    }

    fn new(compiled: Compiled, ladders: Ladders, rounding: Rounding, progress: Progress<'a>) -> Self {
        let mean = Arc::new(MeanPlan::new(&compiled));
        let mut planner = Self {
            compiled,
            ladders: Arc::new(ladders),
            mean,
            root: Row::default(),
            rounding,
            passes: 0.into(),
            updates: 0.into(),
            progress,
        };
        planner.root = planner.residual_pass(Cost::Step, 0.0, false).root;
        planner
    }

    /// True unless rewards were rounded.
    pub fn is_exact(&self) -> bool {
        self.rounding == Rounding::Exact
    }

    /// The number of rungs on the ladder of returns.
    pub fn n_returns(&self) -> usize {
        self.ladders.size
    }

    /// Backward passes and (transition × target) updates so far.
    pub fn cost(&self) -> (u64, u64) {
        (self.passes.get(), self.updates.get())
    }

    /// max_π E[R^π].
    pub fn max_mean(&self) -> f64 {
        self.mean.max_mean()
    }

    /// The risk-neutral policy.
    pub fn mean_policy(&self) -> PlannedPolicy {
        PlannedPolicy::mean_optimal(&self.ladders, &self.mean)
    }

    /// The exact law of R^π (of the rounded return, when rewards were rounded).
    pub fn evaluate(&self, policy: &dyn Policy) -> Evaluation {
        forward(&self.compiled, &self.ladders.collected, policy)
    }

    /// The law whose CDF is the least P(R ≤ w) that any policy attains, separately for each w. No policy need attain
    /// it, and none can beat it anywhere: its quantiles are Q*_q.
    pub fn envelope(&self) -> ReturnLaw {
        let below = |rung| if rung < self.root.first { 0.0 } else { self.root.at(rung) };
        let rungs = self.root.first - 1..self.root.end();
        let atoms = rungs.map(|rung| (self.value(rung), (below(rung + 1) - below(rung)).max(0.0)));
        ReturnLaw::from_atoms(atoms).expect("F_0 rises from 0 to 1")
    }

    /// For each stage and state, the rewards that can have been collected there under some policy.
    pub fn reachable_collected(&self) -> Vec<Vec<Vec<f64>>> {
        let collected = &self.ladders.collected;
        let mut now = vec![std::collections::BTreeSet::new(); self.compiled.n_states + 1];
        for &(state, _) in &self.compiled.start {
            now[state].insert(0);
        }
        let mut stages = Vec::with_capacity(self.compiled.horizon);
        for stage in 0..self.compiled.horizon {
            let mut next = vec![std::collections::BTreeSet::new(); self.compiled.n_states + 1];
            for &state in &self.compiled.alive[stage] {
                let state = state as usize;
                for action in 0..self.compiled.n_actions {
                    for t in self.compiled.transitions(stage, state, action) {
                        let step = collected.step(stage, t.code);
                        next[t.next as usize].extend(now[state].iter().map(|&rung| step.apply(rung)));
                    }
                }
            }
            now.pop();
            stages.push(
                now.iter()
                    .map(|rungs| {
                        let mut values: Vec<f64> = rungs.iter().map(|&r| collected.value(stage, r)).collect();
                        values.sort_unstable_by(f64::total_cmp);
                        values
                    })
                    .collect(),
            );
            now = next;
        }
        stages
    }

    /// The return that a rung of the first stage stands for.
    fn value(&self, rung: i64) -> f64 {
        self.ladders.residual.value(0, rung)
    }

    /// A pass over residual targets.
    fn residual_pass(&self, cost: Cost, mean_price: f64, keep_policy: bool) -> Swept {
        self.run(None, cost, mean_price, keep_policy)
    }

    fn run(&self, anchor: Option<f64>, cost: Cost, mean_price: f64, keep_policy: bool) -> Swept {
        self.passes.set(self.passes.get() + 1);
        let (pass, horizon, progress) = (self.passes.get(), self.compiled.horizon, self.progress);
        let ladder = if anchor.is_some() { &self.ladders.collected } else { &self.ladders.residual };
        let swept = Pass {
            compiled: &self.compiled,
            mean: &self.mean,
            ladder,
            anchor,
            cost,
            mean_price,
            keep_policy,
            progress: &|stages| progress(pass, stages, horizon),
        }
        .run();
        self.updates.set(self.updates.get() + swept.updates);
        swept
    }

    fn policy(&self, actions: &Arc<Vec<Vec<Option<sweep::ActionRow>>>>, index: Index) -> PlannedPolicy {
        PlannedPolicy::new(&self.ladders, &self.mean, actions, index)
    }
}
