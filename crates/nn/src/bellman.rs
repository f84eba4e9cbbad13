//! The paper's targets and loss, panel by panel (§3.1, Eqs. 3 and 4).

use std::ops::Range;
use std::sync::Arc;

use crate::batch::{Outcome, Transitions};
use crate::critic::Network;
use crate::kernels::Kernels;
use crate::kernels::loss::{Gradient, Loss, Pairs};
use crate::kernels::sort::Sort;
use crate::kernels::target::{Combine, Targets};
use crate::panels::{PANEL, Panels};
use crate::rule::TargetRule;
use crate::shape::Shape;

/// One minibatch, seen through a rule.
pub(crate) struct Bellman<'a> {
    kernels: Kernels,
    comparators: Arc<[(usize, usize)]>,
    n_twins: usize,
    n_actions: usize,
    rule: &'a TargetRule,
    transitions: &'a Transitions,
}

impl<'a> Bellman<'a> {
    pub fn new(critics: &Network, rule: &'a TargetRule, transitions: &'a Transitions) -> Self {
        let k = critics.shape.n_quantiles;
        assert_eq!(rule.n_quantiles(), k, "quantiles of the rule, want those of the critics");
        let Shape { n_heads, n_twins, n_actions, .. } = critics.shape;
        assert_eq!(rule.heads().len(), n_heads, "heads of the rule, want those of the critics");
        Self {
            kernels: critics.kernels,
            comparators: critics.comparators.clone(),
            n_twins,
            n_actions,
            rule,
            transitions,
        }
    }

    /// y from the slow critic's outputs at x', and from those of the critic that chooses, if that is another one. Both are
    /// sorted on the way.
    pub fn targets(&self, slow: &mut Panels, choosing: Option<&mut Panels>, targets: &mut Panels) {
        let k = self.rule.n_quantiles();
        let n_twins = if self.rule.is_double() { 1 } else { self.n_twins };
        targets.resize(slow.n_samples(), n_twins * self.rule.heads().len() * k);
        let mut choosing = choosing;
        for panel in 0..slow.n_panels() {
            let width = slow.width(panel);
            self.sort(slow.panel_mut(panel), width);
            if let Some(choosing) = choosing.as_deref_mut() {
                let rows = choosing.panel_mut(panel);
                self.sort(rows, width);
                self.kernels.run(Combine { rows, n_twins: self.n_twins, least: false });
                self.kernels.run(Combine { rows: slow.panel_mut(panel), n_twins: self.n_twins, least: true });
            }
            let sorted = slow.panel(panel);
            let chooser = choosing.as_deref().map_or(sorted, |choosing| choosing.panel(panel));
            for (head, out) in targets.panel_mut(panel).chunks_exact_mut(k * width).enumerate() {
                let own = self.head(head, width);
                let rule = &self.rule.heads()[head % self.rule.heads().len()];
                self.kernels.run(Targets {
                    choosing: &chooser[own.clone()],
                    sorted: &sorted[own],
                    width,
                    n_quantiles: k,
                    head: rule,
                    eta: self.rule.eta(),
                    rewards: self.transitions.outcome(panel, Outcome::Reward),
                    continuation: self.transitions.outcome(panel, Outcome::Continuation),
                    bounds: self.rule.bounds(),
                    out,
                });
            }
        }
    }

    /// Sorts the quantiles of every action and head.
    fn sort(&self, rows: &mut [f32], width: usize) {
        let n_quantiles = self.rule.n_quantiles();
        self.kernels.run(Sort { comparators: &self.comparators, n_quantiles, width, rows });
    }

    /// The heads of all twins.
    fn n_heads(&self) -> usize {
        self.n_twins * self.rule.heads().len()
    }

    /// The rows of a head in a panel.
    fn head(&self, head: usize, width: usize) -> Range<usize> {
        let size = self.n_actions * self.rule.n_quantiles() * width;
        head * size..(head + 1) * size
    }

    /// ∂𝒥/∂z of the actions taken. Raw z, not z̃: output j must stay tied to level η_j while it is trained (§3, Approximation II).
    pub fn gradient(&self, outputs: &Panels, targets: &Panels, gradient: &mut Panels) {
        let batch = outputs.n_samples();
        for panel in 0..outputs.n_panels() {
            for head in 0..self.n_heads() {
                let pairs = self.pairs(panel, head, outputs, targets);
                let out = &mut gradient.panel_mut(panel)[self.head(head, pairs.width)];
                self.kernels.run(Gradient { pairs, batch, out });
            }
        }
    }

    /// 𝒥, summed over heads.
    pub fn loss(&self, outputs: &Panels, targets: &Panels) -> f64 {
        let k = self.rule.n_quantiles();
        let mut total = 0.0;
        for panel in 0..outputs.n_panels() {
            for head in 0..self.n_heads() {
                let mut sums = [0.0; PANEL];
                let pairs = self.pairs(panel, head, outputs, targets);
                let width = pairs.width;
                self.kernels.run(Loss { pairs, sums: &mut sums[..width] });
                total += sums[..outputs.count(panel)].iter().copied().map(f64::from).sum::<f64>();
            }
        }
        // 𝒥, Eq. (4): mean over the batch and the K×K pairs.
        total / (outputs.n_samples() * k * k) as f64
    }

    fn pairs<'p>(&'p self, panel: usize, head: usize, outputs: &'p Panels, targets: &'p Panels) -> Pairs<'p> {
        let (width, k) = (outputs.width(panel), self.rule.n_quantiles());
        // Targets for each twin, or one set for all.
        let own = if self.rule.is_double() { head % self.rule.heads().len() } else { head };
        Pairs {
            outputs: &outputs.panel(panel)[self.head(head, width)],
            targets: &targets.panel(panel)[own * k * width..][..k * width],
            width,
            taken: self.transitions.outcome(panel, Outcome::Action),
            spans: self.transitions.spans_of(panel),
            eta: self.rule.eta(),
            kappa: self.rule.kappa(),
            smooth: self.rule.is_smooth(),
        }
    }
}
