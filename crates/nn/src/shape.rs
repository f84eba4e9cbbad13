//! Sizes of the networks, and where each layer's parameters lie.

use std::ops::Range;

use thiserror::Error;

use crate::aligned::padded;

/// Sizes of an ensemble of critics: M networks with D inputs, ReLU layers and heads x ↦ z(x, a)_j of A·K outputs each.
///
/// Output `((twin * n_heads + head) * n_actions + a) * n_quantiles + j` is quantile j of action a. Heads of one critic share its
/// hidden layers; critics share nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// D, the length of an input.
    pub n_inputs: usize,
    /// Widths of the hidden layers; none makes the critics linear.
    pub hidden: Vec<usize>,
    /// Whether hidden layers are normalised before their ReLU.
    pub layer_norm: bool,
    /// Heads of each critic, each with its own way to choose the next action.
    pub n_heads: usize,
    /// Copies of the heads, which start from other weights.
    pub n_twins: usize,
    /// A.
    pub n_actions: usize,
    /// K, the number of outputs per action.
    pub n_quantiles: usize,
    /// M.
    pub n_critics: usize,
}

/// A shape that no ensemble can have.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ShapeError {
    /// A size is zero.
    #[error("{name} must be at least 1, got 0")]
    Zero {
        /// The field that is zero.
        name: &'static str,
    },
    /// More parameters than fit in memory.
    #[error(
        "at most {max} parameters are supported, got more for {} critics with {} inputs, hidden layers {:?} and {} outputs",
        shape.n_critics, shape.n_inputs, shape.hidden, shape.n_outputs()
    )]
    TooLarge {
        /// The offending shape.
        shape: Box<Shape>,
        /// The largest number.
        max: usize,
    },
}

/// Enough for any network that one core should train, and small enough that no product of sizes overflows.
const MAX_PARAMETERS: usize = 1 << 28;

impl Shape {
    /// The number of outputs of each critic: A·K for each head.
    pub fn n_outputs(&self) -> usize {
        self.n_twins
            .saturating_mul(self.n_heads)
            .saturating_mul(self.n_actions)
            .saturating_mul(self.n_quantiles)
    }

    /// Floating-point operations of the matrix products of one [`train_step`](crate::Ensemble::train_step).
    ///
    /// A multiplication and an addition count as two. For every critic and sample: the target's forward pass, the online
    /// forward pass and the gradient of the weights, each 2·out·in per layer; and the gradient of the layer's input,
    /// 2·out·in for all but the first layer. The last three need only the outputs of the action taken. Nothing else is counted.
    pub fn train_flops(&self, batch: usize) -> f64 {
        let products = |widths: &[usize]| -> Vec<f64> {
            widths.windows(2).map(|pair| (pair[0] * pair[1]) as f64).collect()
        };
        let mut widths = self.widths();
        let target: f64 = products(&widths).iter().sum();
        *widths.last_mut().expect("there are outputs") /= self.n_actions;
        let online = products(&widths);
        let (all, but_first): (f64, f64) = (online.iter().sum(), online[1..].iter().sum());
        2.0 * (target + 2.0 * all + but_first) * (batch * self.n_critics) as f64
    }

    /// D, the hidden widths, the outputs.
    fn widths(&self) -> Vec<usize> {
        let mut widths = vec![self.n_inputs];
        widths.extend(&self.hidden);
        widths.push(self.n_outputs());
        widths
    }

    pub(crate) fn check(&self) -> Result<(), ShapeError> {
        let zero = [
            ("n_inputs", self.n_inputs),
            ("hidden", self.hidden.iter().copied().min().unwrap_or(1)),
            ("n_heads", self.n_heads),
            ("n_twins", self.n_twins),
            ("n_actions", self.n_actions),
            ("n_quantiles", self.n_quantiles),
            ("n_critics", self.n_critics),
        ]
        .into_iter()
        .find(|&(_, size)| size == 0);
        if let Some((name, _)) = zero {
            return Err(ShapeError::Zero { name });
        }
        // In floating point, so that a wild shape cannot overflow the check itself.
        let outputs = [self.n_twins, self.n_heads, self.n_actions, self.n_quantiles];
        let outputs: f64 = outputs.iter().map(|&size| size as f64).product();
        let widths = || self.hidden.iter().map(|&width| width as f64);
        let inputs = std::iter::once(self.n_inputs as f64).chain(widths());
        let parameters: f64 =
            inputs.zip(widths().chain([outputs])).map(|(i, o)| (i + 48.0) * (o + 16.0)).sum();
        if parameters * self.n_critics as f64 > MAX_PARAMETERS as f64 {
            return Err(ShapeError::TooLarge { shape: Box::new(self.clone()), max: MAX_PARAMETERS });
        }
        Ok(())
    }

    /// The layers of one critic, first to last.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        let mut end = 0;
        let layer = |(l, pair): (usize, &[usize])| {
            let is_hidden = l < self.hidden.len();
            let norm = self.layer_norm && is_hidden;
            let layer = Layer { n_inputs: pair[0], n_outputs: pair[1], norm, begin: end };
            end = layer.end();
            layer
        };
        self.widths().windows(2).enumerate().map(layer).collect()
    }
}

/// A dense layer, and where its parameters lie among those of its critic: W as `[out][in]`, then b, then gain and shift of
/// its normalisation.
///
/// Rows of W are padded with zeros to whole vectors. A padded weight meets only padded inputs, so its gradient is
/// exactly zero and it stays zero; in exchange no kernel has a tail.
///
/// Convolutions, when they come, are a second kind of layer in front of these (im2col and the same product, planes in
/// place of features), so that `Layer` becomes an enum; critics, updates and files need not know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub n_inputs: usize,
    pub n_outputs: usize,
    /// Whether it is normalised.
    pub norm: bool,
    begin: usize,
}

impl Layer {
    /// Floats from one row of W to the next.
    pub fn stride(&self) -> usize {
        padded(self.n_inputs)
    }

    pub fn weights(&self) -> Range<usize> {
        self.begin..self.begin + self.n_outputs * self.stride()
    }

    /// Some rows of W.
    pub fn weights_of(&self, rows: &Range<usize>) -> Range<usize> {
        self.begin + rows.start * self.stride()..self.begin + rows.end * self.stride()
    }

    pub fn bias(&self) -> Range<usize> {
        let begin = self.weights().end;
        begin..begin + self.n_outputs
    }

    /// g of the normalisation; empty without one.
    pub fn gain(&self) -> Range<usize> {
        let begin = self.weights().end + padded(self.n_outputs);
        begin..begin + if self.norm { self.n_outputs } else { 0 }
    }

    /// t of the normalisation; empty without one.
    pub fn shift(&self) -> Range<usize> {
        let gain = self.gain();
        let begin = gain.start + padded(gain.len());
        begin..begin + gain.len()
    }

    /// One past the last parameter, padding included.
    pub fn end(&self) -> usize {
        let shift = self.shift();
        shift.start + padded(shift.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(n_inputs: usize, hidden: &[usize], n_actions: usize) -> Shape {
        Shape {
            n_inputs,
            hidden: hidden.to_vec(),
            layer_norm: false,
            n_heads: 1,
            n_twins: 1,
            n_actions,
            n_quantiles: 51,
            n_critics: 5,
        }
    }

    #[test]
    fn layers_lie_one_after_the_other_on_whole_vectors() {
        let layers = shape(28, &[64, 10], 2).layers();
        let places: Vec<_> = layers.iter().map(|l| (l.weights(), l.bias(), l.end())).collect();
        assert_eq!(
            places,
            [
                (0..64 * 32, 2048..2112, 2112),
                (2112..2112 + 10 * 64, 2752..2762, 2768),
                (2768..2768 + 102 * 16, 4400..4502, 4512),
            ]
        );
    }

    #[test]
    fn normalised_layers_have_a_gain_and_a_shift_but_the_output_has_none() {
        let shape = Shape { layer_norm: true, n_heads: 2, ..shape(28, &[10], 2) };
        let places: Vec<_> =
            shape.layers().iter().map(|l| (l.bias(), l.gain(), l.shift(), l.end())).collect();
        assert_eq!(
            places,
            [(320..330, 336..346, 352..362, 368), (3632..3836, 3840..3840, 3840..3840, 3840),]
        );
    }

    #[test]
    fn flops_match_hand_computation() {
        // 28→64→64→102: products 1792 + 4096 + 6528 = 12416. With one of two actions 9152, without the first 7360.
        // Per sample 2 (12416 + 2·9152 + 7360) = 76160; 5 critics, 64 samples.
        assert_eq!(shape(28, &[64, 64], 2).train_flops(64), 76160.0 * 320.0);
    }

    #[test]
    fn impossible_shapes_are_refused() {
        assert!(shape(28, &[], 2).check().is_ok());
        assert_eq!(shape(0, &[], 2).check(), Err(ShapeError::Zero { name: "n_inputs" }));
        assert_eq!(shape(3, &[4, 0], 2).check(), Err(ShapeError::Zero { name: "hidden" }));
        assert!(matches!(shape(usize::MAX, &[4], 2).check(), Err(ShapeError::TooLarge { .. })));
        assert!(matches!(shape(3, &[], usize::MAX).check(), Err(ShapeError::TooLarge { .. })));
    }
}
