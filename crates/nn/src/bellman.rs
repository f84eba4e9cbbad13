//! The paper's targets and loss, panel by panel (§3.1, Eqs. 3 and 4).

use crate::batch::{Outcome, Transitions};
use crate::critic::Network;
use crate::kernels::Kernels;
use crate::kernels::loss::{Gradient, Loss, Pairs};
use crate::kernels::sort::{Sort, network};
use crate::kernels::target::Targets;
use crate::panels::{PANEL, Panels};
use crate::rule::TargetRule;

/// One minibatch, seen through a rule.
pub(crate) struct Bellman<'a> {
    kernels: Kernels,
    network: Vec<(usize, usize)>,
    rule: &'a TargetRule,
    transitions: &'a Transitions,
}

impl<'a> Bellman<'a> {
    pub fn new(critics: &Network, rule: &'a TargetRule, transitions: &'a Transitions) -> Self {
        let k = critics.shape.n_quantiles;
        assert_eq!(rule.n_quantiles(), k, "quantiles of the rule, want those of the critics");
        Self { kernels: critics.kernels, network: network(k), rule, transitions }
    }

    /// y from the target critic's outputs at x', which are sorted on the way.
    pub fn targets(&self, next: &mut Panels, targets: &mut Panels) {
        let k = self.rule.n_quantiles();
        targets.resize(next.n_samples(), k);
        for panel in 0..next.n_panels() {
            let width = next.width(panel);
            let rows = next.panel_mut(panel);
            self.kernels.run(Sort { network: &self.network, n_quantiles: k, width, rows });
            self.kernels.run(Targets {
                sorted: rows,
                width,
                score: self.rule.score(),
                rewards: self.transitions.outcome(panel, Outcome::Reward),
                continuation: self.transitions.outcome(panel, Outcome::Continuation),
                out: targets.panel_mut(panel),
            });
        }
    }

    /// ∂𝒥/∂z. Raw z, not z̃: output j must stay tied to level η_j while it is trained (§3, Approximation II).
    pub fn gradient(&self, outputs: &Panels, targets: &Panels, gradient: &mut Panels) {
        let batch = outputs.n_samples();
        for panel in 0..outputs.n_panels() {
            let pairs = self.pairs(panel, outputs, targets);
            self.kernels.run(Gradient { pairs, batch, out: gradient.panel_mut(panel) });
        }
    }

    /// 𝒥.
    pub fn loss(&self, outputs: &Panels, targets: &Panels) -> f64 {
        let k = self.rule.n_quantiles();
        let mut total = 0.0;
        for panel in 0..outputs.n_panels() {
            let mut sums = [0.0; PANEL];
            let pairs = self.pairs(panel, outputs, targets);
            self.kernels.run(Loss { pairs, sums: &mut sums[..outputs.width(panel)] });
            total += sums[..outputs.count(panel)].iter().copied().map(f64::from).sum::<f64>();
        }
        // 𝒥, Eq. (4): mean over the batch and the K×K pairs.
        total / (outputs.n_samples() * k * k) as f64
    }

    fn pairs<'p>(&'p self, panel: usize, outputs: &'p Panels, targets: &'p Panels) -> Pairs<'p> {
        Pairs {
            outputs: outputs.panel(panel),
            targets: targets.panel(panel),
            width: outputs.width(panel),
            actions: self.transitions.outcome(panel, Outcome::Action),
            eta: self.rule.eta(),
            kappa: self.rule.kappa(),
        }
    }
}
