//! Settings of the optimiser.

use crate::kernels::adam::Rates;

/// Adam with decoupled weight decay: the `torch.optim.AdamW` of the same settings.
///
/// The decay pulls weights towards zero, but not biases, gains and shifts; zero turns it off and leaves plain Adam.
/// Settings may change from step to step, as learning-rate schedules do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// Step size.
    pub learning_rate: f64,
    /// Decay of the first moment. Not the buffer width β.
    pub beta_1: f64,
    /// Decay of the second moment.
    pub beta_2: f64,
    /// Added to the root of the second moment.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
}

impl Adam {
    /// The usual settings: β₁ = 0.9, β₂ = 0.999, ε = 1e-8, no decay.
    pub fn new(learning_rate: f64) -> Self {
        Self { learning_rate, beta_1: 0.9, beta_2: 0.999, epsilon: 1e-8, weight_decay: 0.0 }
    }

    /// The scalars of step t = 1, 2, ….
    pub(crate) fn rates(&self, t: u64, zeta: f64) -> Rates {
        let Self { learning_rate, beta_1, beta_2, epsilon, weight_decay } = *self;
        assert!(t > 0, "steps count from 1");
        assert!((0.0..=1.0).contains(&zeta), "zeta must lie in [0, 1], got {zeta}");
        let moments = (0.0..1.0).contains(&beta_1) && (0.0..1.0).contains(&beta_2);
        assert!(
            moments && epsilon > 0.0,
            "beta_1 and beta_2 must lie in [0, 1) and epsilon above 0, got {self:?}"
        );
        let t = t as f64;
        Rates {
            beta_1: beta_1 as f32,
            rest_1: (1.0 - beta_1) as f32,
            beta_2: beta_2 as f32,
            rest_2: (1.0 - beta_2) as f32,
            step: (learning_rate / (1.0 - beta_1.powf(t))) as f32,
            root: (1.0 / (1.0 - beta_2.powf(t)).sqrt()) as f32,
            epsilon: epsilon as f32,
            keep: (1.0 - learning_rate * weight_decay) as f32,
            zeta: zeta as f32,
        }
    }
}
