//! Outputs that cannot leave an interval.
//!
//! ```text
//! v = low + (high − low)·σ(z + shift)            z an output, shift one number per sample
//! ```

use crate::kernels::{Kernels, squash};
use crate::panels::{PANEL, Panels};

/// The interval.
///
/// ```
/// use bqrl_nn::{Kernels, Panels, Squash};
///
/// // Two samples of one output; the second is shifted by 100.
/// let logits = Panels::from_rows(&[0.0, 0.0], 1);
/// let mut values = Panels::default();
/// Squash { low: -0.1, high: 1.1 }.apply(Kernels::detect(), &logits, &[0.0, 100.0], &mut values);
/// assert!((values.get(0, 0) - 0.5).abs() < 1e-6 && (values.get(1, 0) - 1.1).abs() < 1e-6);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Squash {
    /// The value at −∞.
    pub low: f32,
    /// The value at +∞.
    pub high: f32,
}

impl Squash {
    /// Values of a batch of outputs, `shift` holding one number per sample. To about 1e-6 of the interval.
    pub fn apply(&self, kernels: Kernels, logits: &Panels, shift: &[f32], values: &mut Panels) {
        assert_eq!(shift.len(), logits.n_samples(), "shifts, want one per sample");
        values.resize(logits.n_samples(), logits.n_features());
        for (panel, shift) in shift.chunks(PANEL).enumerate() {
            let mut lanes = [0.0; PANEL];
            lanes[..shift.len()].copy_from_slice(shift);
            kernels.run(squash::Squash {
                logits: logits.panel(panel),
                shift: &lanes[..logits.width(panel)],
                low: self.low,
                high: self.high,
                out: values.panel_mut(panel),
            });
        }
    }

    /// The same of a single output.
    pub fn value(&self, logit: f32) -> f32 {
        self.low + (self.high - self.low) / (1.0 + (-logit).exp())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_match_the_logistic_function_for_every_variant_and_size() {
        let squash = Squash { low: -0.1, high: 1.1 };
        let logits: Vec<f32> = (0..3 * 131).map(|i| -50.0 + i as f32 * 0.25).collect();
        let shift: Vec<f32> = (0..131).map(|s| (s % 7) as f32 - 3.0).collect();
        for kernels in Kernels::available() {
            let mut values = Panels::default();
            squash.apply(kernels, &Panels::from_rows(&logits, 3), &shift, &mut values);
            for (i, &z) in logits.iter().enumerate() {
                let z = f64::from(z + shift[i / 3]);
                let want = -0.1 + 1.2 / (1.0 + (-z).exp());
                let got = values.get(i / 3, i % 3);
                // A clamp at ±15.8 leaves e^−15.8 = 1.4e-7.
                assert!(
                    (f64::from(got) - want).abs() < 1e-6,
                    "{} at {z}: {got}, want {want}",
                    kernels.name()
                );
                assert!((f64::from(squash.value(z as f32)) - want).abs() < 1e-6);
            }
        }
    }
}
