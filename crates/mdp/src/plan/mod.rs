//! Exact planning: the best quantile, the best buffered quantile, their policies and their certificates.
//!
//! ```
//! use bqrl_math::buffer::Buffer;
//! use bqrl_mdp::plan::{Planner, conditional};
//! use bqrl_mdp::problems;
//!
//! let model = problems::build("asset-selling", &[])?.model;
//! let planner = Planner::exact(&model, &|_pass, _stages, _horizon| {})?; // One backward pass.
//!
//! // Q*_τ and its proof, for any τ, without a further pass: some policy has P(R < 19/24) < τ, none has P(R < 20/24) < τ.
//! let best = planner.best_quantile(0.1);
//! assert!((best.value - 19.0 / 24.0).abs() < 1e-12);
//! assert!(best.least_below < 0.1 && best.next.is_some_and(|(_, least_below)| least_below >= 0.1));
//!
//! // A policy that attains it. At most 12 passes use its slack to raise the mean.
//! let plan = planner.quantile_policy(0.1, 12);
//! assert!((plan.evaluation.law.quantile(0.1) - best.value).abs() < 1e-12);
//!
//! // UB1 ≥ UB2 ≥ best deterministic ≥ LB, in at most 20 passes.
//! let buffer = Buffer::new(0.1, 0.05)?;
//! let buffered = planner.buffered(buffer, 20);
//! assert!(buffered.upper + 1e-9 >= buffered.mixture_upper && buffered.mixture_upper + 1e-9 >= buffered.lower);
//!
//! // The paper's rule attains less.
//! let rule = conditional::greedy(&model, buffer, 1000).expect("laws of few returns");
//! assert!(rule.law.quantile(0.1) < best.value);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`robust::RobustPlanner`] does the same if probabilities are only known to be in a ball.

pub mod buffered;
pub mod conditional;
pub mod confident;
pub mod export;
pub mod mean;
pub mod outlook;
pub mod points;
mod policy;
pub mod robust;
mod sweep;
pub mod threshold;

use std::cell::{Cell, OnceCell};
use std::sync::Arc;

use bqrl_math::law::ReturnLaw;

pub use self::buffered::{BufferedPlan, Mixture};
pub use self::mean::MeanPlan;
use self::policy::Index;
pub use self::policy::PlannedPolicy;
use self::sweep::{ActionTable, Cost, Pass, Row, Swept};
pub use self::threshold::{BestQuantile, QuantilePlan};
use crate::evaluate::{Evaluation, Evaluator, Policy, forward};
use crate::model::Model;
use crate::returns::{Compiled, Ladders, Rounding, TooManyReturns, check_memory};

/// Called with (pass, stages done, horizon); passes are counted from 1.
pub type Progress<'a> = &'a (dyn Fn(u64, usize, usize) + Sync);

/// A model, prepared for planning at any risk level.
pub struct Planner<'a> {
    compiled: Arc<Compiled>,
    ladders: Arc<Ladders>,
    mean: Arc<MeanPlan>,
    /// F_0 over all targets: least attainable P(R < g).
    root: Row,
    rounding: Rounding,
    /// The law of the risk-neutral policy, and the actions that minimise P(R < g) with ties broken by the mean: each is
    /// needed for every level and computed once.
    neutral: OnceCell<Evaluation>,
    tie_broken: OnceCell<Arc<ActionTable>>,
    passes: Cell<u64>,
    updates: Cell<u64>,
    progress: Progress<'a>,
}

impl<'a> Planner<'a> {
    /// Plans without rounding; an error if the return set is too large.
    pub fn exact(model: &Model, progress: Progress<'a>) -> Result<Self, TooManyReturns> {
        let compiled = Compiled::new(model);
        let ladders = Ladders::exact(&compiled)?;
        Self::new(compiled, ladders, Rounding::Exact, progress)
    }

    /// Plans with rewards rounded to about `grid` values of the return; an error if the tables would be too large. With [`Rounding::Down`] every value is a lower
    /// bound that the policy attains, with [`Rounding::Up`] an upper bound for every policy.
    pub fn rounded(
        model: &Model,
        grid: usize,
        rounding: Rounding,
        progress: Progress<'a>,
    ) -> Result<Self, TooManyReturns> {
        assert!(rounding != Rounding::Exact, "a rounded plan rounds down or up");
        let compiled = Compiled::new(model);
        let ladders = Ladders::rounded(&compiled, grid, rounding);
        Self::new(compiled, ladders, rounding, progress)
    }

    fn new(
        compiled: Compiled,
        ladders: Ladders,
        rounding: Rounding,
        progress: Progress<'a>,
    ) -> Result<Self, TooManyReturns> {
        check_memory(&compiled, &ladders.residual)?;
        let mean = Arc::new(MeanPlan::new(&compiled));
        let mut planner = Self {
            compiled: Arc::new(compiled),
            ladders: Arc::new(ladders),
            mean,
            root: Row::default(),
            rounding,
            neutral: OnceCell::new(),
            tie_broken: OnceCell::new(),
            passes: Cell::new(0),
            updates: Cell::new(0),
            progress,
        };
        planner.root = planner.residual_pass(Cost::Step, 0.0, false).root;
        Ok(planner)
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

    /// The smallest and the largest possible return.
    pub fn range(&self) -> (f64, f64) {
        self.compiled.range
    }

    /// max_π E[R^π].
    pub fn max_mean(&self) -> f64 {
        self.mean.max_mean()
    }

    /// The risk-neutral policy.
    pub fn mean_policy(&self) -> PlannedPolicy {
        PlannedPolicy::mean_optimal(&self.ladders, &self.mean)
    }

    /// The law and the mean of the risk-neutral policy.
    pub fn mean_evaluation(&self) -> &Evaluation {
        self.neutral.get_or_init(|| self.evaluate(&self.mean_policy()))
    }

    /// The exact law of R^π (of the rounded return, when rewards were rounded).
    pub fn evaluate(&self, policy: &dyn Policy) -> Evaluation {
        forward(&self.compiled, &self.ladders.collected, policy, |_, _, _| {})
    }

    /// The law whose CDF is the least P(R ≤ w) that any policy attains, separately for each w. There may be no
    /// policy with this law, and no policy is better at any w: its quantiles are Q*_q.
    pub fn envelope(&self) -> ReturnLaw {
        let below = |rung| if rung < self.root.first { 0.0 } else { self.root.at(rung) };
        let rungs = self.root.first - 1..self.root.end();
        let atoms = rungs.map(|rung| (self.value(rung), (below(rung + 1) - below(rung)).max(0.0)));
        ReturnLaw::from_atoms(atoms).expect("F_0 rises from 0 to 1")
    }

    /// The model and its returns as this plan sees them, for evaluations of other policies. It may outlive the plan.
    pub fn evaluator(&self) -> Evaluator {
        Evaluator::new_with(&self.compiled, &self.ladders, self.rounding)
    }

    /// The distance between the smallest and the largest return.
    fn span(&self) -> f64 {
        let (low, high) = self.compiled.range;
        (high - low).max(f64::MIN_POSITIVE)
    }

    /// The return that a rung of the first stage stands for.
    fn value(&self, rung: i64) -> f64 {
        self.ladders.residual.value(0, rung)
    }

    /// A pass over residual targets.
    fn residual_pass(&self, cost: Cost, mean_price: f64, keep_policy: bool) -> Swept {
        self.run(None, cost, mean_price, keep_policy, 0)
    }

    fn run(
        &self,
        anchor: Option<f64>,
        cost: Cost,
        mean_price: f64,
        keep_policy: bool,
        keep_rows: usize,
    ) -> Swept {
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
            keep_rows,
            arch: pulp::Arch::new(),
            progress: &|stages| progress(pass, stages, horizon),
        }
        .run();
        self.updates.set(self.updates.get() + swept.updates);
        swept
    }

    /// The actions that minimise P(R < g) for every g; the mean decides between those that differ by less than 1e-9.
    fn tie_broken(&self) -> &Arc<ActionTable> {
        self.tie_broken
            .get_or_init(|| Arc::new(self.residual_pass(Cost::Step, 1e-9 / self.span(), true).actions))
    }

    fn policy(&self, actions: &Arc<ActionTable>, index: Index) -> PlannedPolicy {
        PlannedPolicy::new(&self.ladders, &self.mean, actions, index)
    }
}
