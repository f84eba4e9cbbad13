//! Sizes of the networks, and where each layer's parameters lie.

use std::ops::Range;

use thiserror::Error;

use crate::aligned::padded;

/// Sizes of an ensemble of critics: M networks with D inputs, convolutions where they see planes, ReLU layers and heads
/// x ↦ z(x, a)_j of A·K outputs each.
///
/// Output `((twin * n_heads + head) * n_actions + a) * n_quantiles + j` is quantile j of action a. Heads of one critic share its
/// hidden layers; critics share nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shape {
    /// D, the length of an input. Where there are planes, they come first, and numbers that enter after the convolutions follow.
    pub n_inputs: usize,
    /// Convolutions in front of the dense layers.
    pub sight: Option<Sight>,
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

/// Planes as input, and the convolutions that look at them. Each is followed by a ReLU, normalised as the hidden layers are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sight {
    /// Channels, height and width: input (c·height + y)·width + x is the cell (y, x) of plane c.
    pub planes: [usize; 3],
    /// First to last.
    pub convolutions: Vec<Convolution>,
}

/// A convolution over all channels, without padding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Convolution {
    /// Channels of the result.
    pub channels: usize,
    /// Height and width of the window.
    pub kernel: usize,
    /// Cells from one window to the next.
    pub stride: usize,
}

/// The cells that a convolution looks at.
///
/// Column i of W meets feature `columns[i] + positions[p]` of the input at position p of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Window {
    pub columns: Vec<usize>,
    pub positions: Vec<usize>,
    /// Channels, height and width of a kernel.
    pub size: [usize; 3],
}

impl Window {
    /// The windows of a convolution over planes, and the planes that it makes.
    fn new([channels, height, width]: [usize; 3], convolution: &Convolution) -> (Self, [usize; 3]) {
        let Convolution { channels: made, kernel, stride } = *convolution;
        let (rows, across) = ((height - kernel) / stride + 1, (width - kernel) / stride + 1);
        let cells = move |y: usize| (0..kernel).map(move |x| y * width + x);
        let column = move |c: usize| (0..kernel).flat_map(cells).map(move |cell| c * height * width + cell);
        let position = move |y: usize| (0..across).map(move |x| (y * width + x) * stride);
        let window = Self {
            columns: (0..channels).flat_map(column).collect(),
            positions: (0..rows).flat_map(position).collect(),
            size: [channels, kernel, kernel],
        };
        (window, [made, rows, across])
    }
}

/// A shape that no ensemble can have.
#[derive(Clone, Debug, Error, PartialEq)]
pub enum ShapeError {
    /// A size is zero.
    #[error("{name} must be at least 1, got 0")]
    Zero {
        /// The field that is zero.
        name: &'static str,
    },
    /// A window is larger than what it looks at.
    #[error("convolution {layer} looks at {kernel} × {kernel} cells, but there are only {height} × {width}")]
    Window {
        /// Which convolution, counted from 1.
        layer: usize,
        /// Height and width of its window.
        kernel: usize,
        /// Height of the planes that it looks at.
        height: usize,
        /// Their width.
        width: usize,
    },
    /// Fewer inputs than the planes have cells.
    #[error("{planes:?} planes have {cells} cells, but there are only {n_inputs} inputs")]
    Planes {
        /// Channels, height and width.
        planes: [usize; 3],
        /// Their product.
        cells: f64,
        /// D.
        n_inputs: usize,
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
        let products: Vec<f64> = self.layers().iter().map(Layer::products).collect();
        let (last, before) = products.split_last().expect("there are outputs");
        let (before, taken) = (before.iter().sum::<f64>(), last / self.n_actions as f64);
        let (target, online, first) = (before + last, before + taken, products[0].min(before + taken));
        2.0 * (target + 3.0 * online - first) * (batch * self.n_critics) as f64
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
        let (seen, convolutions) = self.check_sight()?;
        let outputs = [self.n_twins, self.n_heads, self.n_actions, self.n_quantiles];
        let outputs: f64 = outputs.iter().map(|&size| size as f64).product();
        let widths = || self.hidden.iter().map(|&width| width as f64);
        let inputs = std::iter::once(seen).chain(widths());
        let dense: f64 = inputs.zip(widths().chain([outputs])).map(|(i, o)| (i + 48.0) * (o + 16.0)).sum();
        let parameters = convolutions + dense;
        if parameters * self.n_critics as f64 > MAX_PARAMETERS as f64 {
            return Err(ShapeError::TooLarge { shape: Box::new(self.clone()), max: MAX_PARAMETERS });
        }
        Ok(())
    }

    /// Refuses windows that do not fit. The number of inputs of the first dense layer, and the parameters before it, about.
    fn check_sight(&self) -> Result<(f64, f64), ShapeError> {
        let Some(Sight { planes, convolutions }) = &self.sight else {
            return Ok((self.n_inputs as f64, 0.0));
        };
        let cells: f64 = planes.iter().map(|&n| n as f64).product();
        if cells > self.n_inputs as f64 {
            return Err(ShapeError::Planes { planes: *planes, cells, n_inputs: self.n_inputs });
        }
        let mut parameters = 0.0;
        let [mut channels, mut height, mut width] = *planes;
        let zero = [("planes", channels.min(height).min(width)), ("convolutions", convolutions.len())];
        let sizes = convolutions.iter().map(|c| ("convolutions", c.channels.min(c.kernel).min(c.stride)));
        if let Some((name, _)) = zero.into_iter().chain(sizes).find(|&(_, size)| size == 0) {
            return Err(ShapeError::Zero { name });
        }
        for (l, &Convolution { channels: made, kernel, stride }) in convolutions.iter().enumerate() {
            if kernel > height.min(width) {
                return Err(ShapeError::Window { layer: l + 1, kernel, height, width });
            }
            let columns = channels as f64 * (kernel * kernel) as f64;
            (channels, height, width) = (made, (height - kernel) / stride + 1, (width - kernel) / stride + 1);
            // W and b, and gain and shift of every result.
            let results = made as f64 * (height * width) as f64;
            parameters += (columns + 48.0) * (made as f64 + 16.0) + 2.0 * (results + 16.0);
        }
        let results = channels as f64 * (height * width) as f64;
        Ok((results + self.n_inputs as f64 - cells, parameters))
    }

    /// The layers of one critic, first to last.
    pub(crate) fn layers(&self) -> Vec<Layer> {
        let mut layers: Vec<Layer> = Vec::new();
        let mut n_inputs = self.n_inputs;
        let mut add = |n_inputs: usize, rows: usize, norm: bool, window: Option<Window>| {
            let columns = window.as_ref().map_or(n_inputs, |window| window.columns.len());
            let n_outputs = rows * window.as_ref().map_or(1, |window| window.positions.len());
            let begin = layers.last().map_or(0, Layer::end);
            layers.push(Layer { n_inputs, n_outputs, rows, columns, n_beside: 0, norm, window, begin });
            n_outputs
        };
        if let Some(Sight { planes, convolutions }) = &self.sight {
            let n_beside = self.n_inputs - planes.iter().product::<usize>();
            let mut planes = *planes;
            for convolution in convolutions {
                let (window, made) = Window::new(planes, convolution);
                n_inputs = add(n_inputs, convolution.channels, self.layer_norm, Some(window));
                planes = made;
            }
            n_inputs += n_beside;
        }
        for &width in &self.hidden {
            n_inputs = add(n_inputs, width, self.layer_norm, None);
        }
        add(n_inputs, self.n_outputs(), false, None);
        // Numbers beside the planes enter after the last convolution.
        if let Some(last) = layers.iter().rposition(|layer| layer.window.is_some()) {
            layers[last].n_beside = layers[last + 1].n_inputs - layers[last].n_outputs;
        }
        layers
    }
}

/// A layer, and where its parameters lie among those of its critic: W as `[row][column]`, then b, then gain and shift of its
/// normalisation.
///
/// In a dense layer, the rows of W are its outputs and the columns its inputs. In a convolution, rows are channels and columns the
/// cells of a window; output row·positions + p is what W makes of the window at position p.
///
/// Rows of W are padded with zeros to whole vectors. A padded weight meets only padded inputs, so its gradient is
/// exactly zero and it stays zero; in exchange no kernel has a tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub n_inputs: usize,
    pub n_outputs: usize,
    /// The size of W.
    pub rows: usize,
    pub columns: usize,
    /// Inputs of the network that join the outputs.
    pub n_beside: usize,
    /// Whether it is normalised.
    pub norm: bool,
    /// A convolution has one.
    pub window: Option<Window>,
    begin: usize,
}

impl Layer {
    /// Floats from one row of W to the next.
    pub fn stride(&self) -> usize {
        padded(self.columns)
    }

    /// Multiplications of one sample.
    fn products(&self) -> f64 {
        self.columns as f64 * self.n_outputs as f64
    }

    pub fn weights(&self) -> Range<usize> {
        self.begin..self.begin + self.rows * self.stride()
    }

    /// Some rows of W.
    pub fn weights_of(&self, rows: &Range<usize>) -> Range<usize> {
        self.begin + rows.start * self.stride()..self.begin + rows.end * self.stride()
    }

    pub fn bias(&self) -> Range<usize> {
        let begin = self.weights().end;
        begin..begin + self.rows
    }

    /// g of the normalisation; empty without one.
    pub fn gain(&self) -> Range<usize> {
        let begin = self.weights().end + padded(self.rows);
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
            sight: None,
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
