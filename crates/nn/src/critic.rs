//! One critic: forward, backward, update.
//!
//! ```text
//! H_0 = x        H_l = relu(norm(W_l H_{l−1} + b_l))        z = W_L H_{L−1} + b_L        norm: see kernels::norm, or none
//! dW_l = dZ_l H_{l−1}ᵀ       db_l = Σ_s dZ_l       dZ_{l−1} = 1{H_{l−1} > 0} ⊙ W_lᵀ dZ_l
//! ```
//!
//! A convolution is the same with one W at every position of its window (kernels::convolve). Inputs that are not planes join the
//! results of the last convolution.

use bqrl_math::Rng;

use std::ops::Range;
use std::sync::Arc;

use crate::adam::Adam;
use crate::aligned::{Aligned, padded};
use crate::batch::Span;
use crate::ensemble::Which;
use crate::kernels::Kernels;
use crate::kernels::act::Matvec;
use crate::kernels::adam::{AdamStep, Rates};
use crate::kernels::convolve::{Convolve, ConvolveBack, Gate, WindowGradient};
use crate::kernels::norm::{Normalise, NormaliseGradient, RowDots, normalise_one};
use crate::kernels::product::{Finish, Left, Product, RowSums, Start};
use crate::kernels::transpose::Transpose;
use crate::panels::{Blocks, Inputs, PANEL, Panels};
use crate::shape::{Layer, Shape, Window};

/// The initial weights.
///
/// Hidden weights are He-uniform, U(±√(6/in)), and output weights LeCun-uniform, U(±√(3/in)), times `output_scale`.
/// Hidden biases are zero, and a normalisation changes nothing at first (gain 1, shift 0). A small scale makes all actions look alike at first. A bias above the largest return makes them
/// look good: the critic is then optimistic about actions that were not tried.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Init {
    /// Factor on the weights of the output layer.
    pub output_scale: f32,
    /// Every bias of the output layer.
    pub output_bias: f32,
}

impl Default for Init {
    fn default() -> Self {
        Self { output_scale: 1.0, output_bias: 0.0 }
    }
}

/// Parameters θ_m, their slow copy θ̄_m and Adam's moments, each one array with the same places.
#[derive(Clone, Debug)]
pub(crate) struct Critic {
    pub online: Aligned,
    pub target: Aligned,
    pub first: Aligned,
    pub second: Aligned,
    /// Updates made so far.
    pub steps: u64,
}

impl Critic {
    pub fn zeros(layers: &[Layer]) -> Self {
        let n = layers.last().map_or(0, Layer::end);
        let zeros = || Aligned::zeros(n);
        Self { online: zeros(), target: zeros(), first: zeros(), second: zeros(), steps: 0 }
    }

    pub fn random(layers: &[Layer], init: Init, rng: &mut Rng) -> Self {
        let mut critic = Self::zeros(layers);
        for (l, layer) in layers.iter().enumerate() {
            let is_output = l + 1 == layers.len();
            let variance = if is_output { 1.0 } else { 2.0 };
            let scale = if is_output { f64::from(init.output_scale) } else { 1.0 };
            let bound = scale * (3.0 * variance / layer.columns as f64).sqrt();
            for row in critic.online[layer.weights()].chunks_exact_mut(layer.stride()) {
                row[..layer.columns].fill_with(|| (bound * (2.0 * rng.uniform() - 1.0)) as f32);
            }
            if is_output {
                critic.online[layer.bias()].fill(init.output_bias);
            }
            critic.online[layer.gain()].fill(1.0);
        }
        critic.target = critic.online.clone();
        critic
    }

    pub fn parameters(&self, which: Which) -> &[f32] {
        match which {
            Which::Online => &self.online,
            Which::Target => &self.target,
        }
    }

    /// Moves θ along the gradient and θ̄ towards θ. Returns whether θ and the second moments are still finite.
    pub fn apply(&mut self, network: &Network, gradient: &[f32], adam: &Adam, zeta: f64) -> bool {
        self.steps += 1;
        let decaying = adam.rates(self.steps, zeta);
        let staying = Rates { keep: 1.0, ..decaying };
        let mut step = |part: Range<usize>, rates| {
            network.kernels.run(AdamStep {
                online: &mut self.online[part.clone()],
                target: &mut self.target[part.clone()],
                first: &mut self.first[part.clone()],
                second: &mut self.second[part.clone()],
                gradient: &gradient[part],
                rates,
            })
        };
        let mut finite = true;
        for layer in &network.layers {
            let weights = layer.weights();
            let others = weights.end..layer.end();
            finite &= step(weights, decaying);
            finite &= step(others, staying);
        }
        finite
    }
}

/// The parts of an ensemble that all critics share.
#[derive(Clone, Debug)]
pub(crate) struct Network {
    pub shape: Shape,
    pub layers: Vec<Layer>,
    /// The comparators that sort the quantiles of an action.
    pub comparators: Arc<[(usize, usize)]>,
    pub kernels: Kernels,
}

/// The results of a forward pass that the backward pass needs, and the gradients. The memory is reused between steps.
#[derive(Clone, Debug, Default)]
pub(crate) struct Workspace {
    /// H_1 .. H_{L−1}, and their transposes.
    hidden: Vec<Panels>,
    /// n and s of the normalisations.
    normalised: Vec<Panels>,
    inverses: Vec<Panels>,
    hidden_blocks: Vec<Blocks>,
    /// dZ_1 .. dZ_{L−1}.
    hidden_gradients: Vec<Panels>,
    /// Gradient of the parameters, in their places.
    gradient: Aligned,
}

/// The outputs of a critic that are needed.
#[derive(Clone, Copy)]
pub(crate) enum Needed<'a> {
    All,
    /// Those of the action taken; the others have arbitrary contents.
    Taken(&'a [Span]),
}

/// A part of a layer's outputs: rows of W, and lanes of a panel.
struct Part {
    rows: Range<usize>,
    panel: usize,
    lanes: Range<usize>,
}

impl Network {
    /// z for every sample, in `outputs`; the activations stay in `work`.
    pub fn forward(
        &self,
        parameters: &[f32],
        inputs: &Panels,
        needed: Needed,
        work: &mut Workspace,
        outputs: &mut Panels,
    ) {
        assert_eq!(inputs.n_features(), self.shape.n_inputs, "features of the inputs, want n_inputs");
        for panels in [&mut work.hidden, &mut work.normalised, &mut work.inverses] {
            panels.resize_with(self.layers.len() - 1, Panels::default);
        }
        for (l, layer) in self.layers.iter().enumerate() {
            let (before, after) = work.hidden.split_at_mut(l);
            let from = before.last().unwrap_or(inputs);
            let (to, finish) = match after.first_mut() {
                Some(hidden) if layer.norm => (hidden, Finish::Keep),
                Some(hidden) => (hidden, Finish::Relu),
                None => (&mut *outputs, Finish::Keep),
            };
            to.resize(inputs.n_samples(), layer.n_outputs + layer.n_beside);
            match &layer.window {
                Some(window) => self.convolve(layer, window, parameters, from, to),
                None => self.dense(l, parameters, from, needed, to, finish),
            }
            for panel in (0..inputs.n_panels()).filter(|_| layer.n_beside > 0) {
                let beside = inputs.panel(panel);
                let beside = &beside[beside.len() - layer.n_beside * inputs.width(panel)..];
                to.panel_mut(panel)[layer.n_outputs * inputs.width(panel)..].copy_from_slice(beside);
            }
            if layer.norm {
                let [normalised, inverse] = [&mut work.normalised[l], &mut work.inverses[l]];
                normalised.resize(inputs.n_samples(), layer.n_outputs);
                inverse.resize(inputs.n_samples(), 1);
                for panel in 0..inputs.n_panels() {
                    let width = inputs.width(panel);
                    self.kernels.run(Normalise {
                        rows: &mut to.panel_mut(panel)[..layer.n_outputs * width],
                        width,
                        gain: &parameters[layer.gain()],
                        shift: &parameters[layer.shift()],
                        normalised: normalised.panel_mut(panel),
                        inverse: inverse.panel_mut(panel),
                    });
                }
            }
        }
    }

    /// W H + b of a dense layer.
    fn dense(
        &self,
        l: usize,
        parameters: &[f32],
        from: &Panels,
        needed: Needed,
        to: &mut Panels,
        finish: Finish,
    ) {
        let layer = &self.layers[l];
        for Part { rows, panel, lanes } in self.parts(l, from, needed) {
            let width = from.width(panel);
            self.kernels.run(Product {
                left: Left {
                    floats: &parameters[layer.weights_of(&rows)],
                    stride: layer.stride(),
                    transposed: false,
                },
                right: from.panel(panel),
                width,
                lanes,
                depth: layer.n_inputs,
                out: &mut to.panel_mut(panel)[rows.start * width..],
                out_stride: width,
                rows: rows.len(),
                start: Start::Bias(&parameters[layer.bias()][rows]),
                finish,
            });
        }
    }

    /// The same of a convolution.
    fn convolve(&self, layer: &Layer, window: &Window, parameters: &[f32], from: &Panels, to: &mut Panels) {
        for panel in 0..from.n_panels() {
            self.kernels.run(Convolve {
                weights: &parameters[layer.weights()],
                stride: layer.stride(),
                bias: &parameters[layer.bias()],
                window,
                inputs: from.panel(panel),
                width: from.width(panel),
                out: to.panel_mut(panel),
                relu: !layer.norm,
            });
        }
    }

    /// The parts of a layer's outputs that are needed: all of them, panel by panel, but for the last layer.
    fn parts(&self, l: usize, samples: &Panels, needed: Needed) -> Vec<Part> {
        match needed {
            Needed::Taken(spans) if l + 1 == self.layers.len() => {
                let Shape { n_heads, n_twins, n_actions, n_quantiles, .. } = self.shape;
                let part = |span: &Span, head: usize| {
                    let first = (head * n_actions + span.action) * n_quantiles;
                    Part { rows: first..first + n_quantiles, panel: span.panel, lanes: span.lanes.clone() }
                };
                let heads = |span| (0..n_heads * n_twins).map(move |head| part(span, head));
                spans.iter().flat_map(heads).collect()
            }
            _ => {
                let rows = 0..self.layers[l].n_outputs;
                let part = |panel| Part { rows: rows.clone(), panel, lanes: 0..samples.count(panel) };
                (0..samples.n_panels()).map(part).collect()
            }
        }
    }

    /// The gradient of the parameters from that of the outputs, after a forward pass of the same inputs.
    pub fn backward<'w>(
        &self,
        parameters: &[f32],
        inputs: &Inputs,
        output_gradient: &Panels,
        needed: Needed,
        work: &'w mut Workspace,
    ) -> &'w [f32] {
        let n_samples = inputs.n_samples();
        let size = (output_gradient.n_samples(), output_gradient.n_features());
        assert_eq!(size, (n_samples, self.shape.n_outputs()), "size of the output gradient, want B × A·K");
        let n_hidden = self.layers.len() - 1;
        let Workspace { hidden, normalised, inverses, hidden_blocks, hidden_gradients, gradient } = work;
        hidden_blocks.resize_with(n_hidden, Blocks::default);
        hidden_gradients.resize_with(n_hidden, Panels::default);
        gradient.reserve(parameters.len());
        for (l, layer) in self.layers.iter().enumerate().rev() {
            let (gradients_before, gradients_after) = hidden_gradients.split_at_mut(l);
            let d_z = gradients_after.first().unwrap_or(output_gradient);
            let parts = self.parts(l, d_z, needed);
            let before = l.checked_sub(1);
            if let Some(window) = &layer.window {
                let from = before.map_or(&inputs.panels, |before| &hidden[before]);
                self.window_gradient(layer, window, d_z, from, gradient);
            } else if let Some(before) = before {
                hidden_blocks[before].resize(n_samples, layer.n_inputs);
                self.transpose(&hidden[before], &mut hidden_blocks[before]);
                self.weight_gradient(layer, &parts, d_z, &hidden_blocks[before], gradient);
            } else {
                self.weight_gradient(layer, &parts, d_z, &inputs.blocks, gradient);
            }
            let (Some(d_h), Some(before)) = (gradients_before.last_mut(), before) else { continue };
            d_h.resize(n_samples, layer.n_inputs);
            match &layer.window {
                Some(window) => {
                    self.window_input_gradient(layer, window, parameters, d_z, &hidden[before], d_h);
                }
                None => self.input_gradient(layer, &parts, parameters, d_z, &hidden[before], d_h),
            }
            let (layer, n, s) = (&self.layers[before], &normalised[before], &inverses[before]);
            if layer.norm {
                self.norm_gradient(layer, parameters, n, s, d_h, gradient);
            }
        }
        gradient
    }

    /// dW and db of a convolution.
    fn window_gradient(
        &self,
        layer: &Layer,
        window: &Window,
        d_z: &Panels,
        from: &Panels,
        gradient: &mut [f32],
    ) {
        gradient[layer.weights()].fill(0.0);
        gradient[layer.bias()].fill(0.0);
        let mut sums = vec![0.0; layer.n_outputs];
        for panel in 0..d_z.n_panels() {
            let (width, count) = (d_z.width(panel), d_z.count(panel));
            let d_z = &d_z.panel(panel)[..layer.n_outputs * width];
            self.kernels.run(WindowGradient {
                window,
                d_z,
                inputs: from.panel(panel),
                width,
                count,
                out: &mut gradient[layer.weights()],
                stride: layer.stride(),
                rows: layer.rows,
            });
            let accumulate = panel > 0;
            self.kernels.run(RowSums { rows: d_z, width, lanes: 0..count, out: &mut sums, accumulate });
        }
        let of_channel = sums.chunks_exact(window.positions.len()).map(|sums| sums.iter().sum::<f32>());
        gradient[layer.bias()].iter_mut().zip(of_channel).for_each(|(bias, sum)| *bias = sum);
    }

    /// dZ of the layer before a convolution.
    fn window_input_gradient(
        &self,
        layer: &Layer,
        window: &Window,
        parameters: &[f32],
        d_z: &Panels,
        active: &Panels,
        d_h: &mut Panels,
    ) {
        d_h.fill(0.0);
        for panel in 0..d_z.n_panels() {
            self.kernels.run(ConvolveBack {
                weights: &parameters[layer.weights()],
                stride: layer.stride(),
                rows: layer.rows,
                window,
                d_z: d_z.panel(panel),
                width: d_z.width(panel),
                out: d_h.panel_mut(panel),
            });
            self.kernels.run(Gate { active: active.panel(panel), out: d_h.panel_mut(panel) });
        }
    }

    fn transpose(&self, from: &Panels, to: &mut Blocks) {
        for panel in 0..from.n_panels() {
            let (width, count) = (from.width(panel), from.count(panel));
            let begins: [usize; PANEL] = std::array::from_fn(|row| row * width);
            for (block, rows) in from.panel(panel).chunks(PANEL * width).enumerate() {
                let (begins, out_width) = (&begins[..rows.len() / width], to.width(block));
                let out = to.block_mut(panel, block);
                self.kernels.run(Transpose { from: rows, begins, n: count, out, out_width });
            }
        }
    }

    /// dW and db.
    fn weight_gradient(
        &self,
        layer: &Layer,
        parts: &[Part],
        d_z: &Panels,
        blocks: &Blocks,
        gradient: &mut [f32],
    ) {
        // Parts add up, and an action that nobody took has none; but where parts are whole, the first writes everything.
        let whole = parts.iter().all(|part| part.rows.len() == layer.n_outputs);
        if !whole {
            gradient[layer.weights()].fill(0.0);
            gradient[layer.bias()].fill(0.0);
        }
        for Part { rows, panel, lanes } in parts {
            let accumulate = !whole || *panel > 0;
            let width = d_z.width(*panel);
            let d_z = &d_z.panel(*panel)[rows.start * width..rows.end * width];
            for block in 0..blocks.n_blocks() {
                let columns = blocks.width(block);
                self.kernels.run(Product {
                    left: Left { floats: &d_z[lanes.start..], stride: width, transposed: false },
                    right: &blocks.block(*panel, block)[lanes.start * columns..],
                    width: columns,
                    lanes: 0..columns,
                    depth: lanes.len(),
                    out: &mut gradient[layer.weights_of(rows)][block * PANEL..],
                    out_stride: layer.stride(),
                    rows: rows.len(),
                    start: if accumulate { Start::Out } else { Start::Zero },
                    finish: Finish::Keep,
                });
            }
            let out = &mut gradient[layer.bias()][rows.clone()];
            self.kernels.run(RowSums { rows: d_z, width, lanes: lanes.clone(), out, accumulate });
        }
    }

    /// dZ of the layer before.
    fn input_gradient(
        &self,
        layer: &Layer,
        parts: &[Part],
        parameters: &[f32],
        d_z: &Panels,
        active: &Panels,
        d_h: &mut Panels,
    ) {
        // Parts add up, unless they are whole. A gate may be passed more than once.
        let whole = parts.iter().all(|part| part.rows.len() == layer.n_outputs);
        if !whole {
            d_h.fill(0.0);
        }
        for Part { rows, panel, lanes } in parts {
            let width = d_z.width(*panel);
            self.kernels.run(Product {
                left: Left {
                    floats: &parameters[layer.weights_of(rows)],
                    stride: layer.stride(),
                    transposed: true,
                },
                right: &d_z.panel(*panel)[rows.start * width..],
                width,
                lanes: lanes.clone(),
                depth: rows.len(),
                out: d_h.panel_mut(*panel),
                out_stride: width,
                rows: layer.n_inputs,
                start: if whole { Start::Zero } else { Start::Out },
                finish: Finish::Gate(active.panel(*panel)),
            });
        }
    }

    /// The gradient of gain and shift; and d, the gradient behind the normalisation, becomes the one before it.
    fn norm_gradient(
        &self,
        layer: &Layer,
        parameters: &[f32],
        normalised: &Panels,
        inverses: &Panels,
        d: &mut Panels,
        gradient: &mut [f32],
    ) {
        for panel in 0..d.n_panels() {
            let (width, count, accumulate) = (d.width(panel), d.count(panel), panel > 0);
            // What joined the outputs was not normalised.
            let rows = &mut d.panel_mut(panel)[..layer.n_outputs * width];
            let b = normalised.panel(panel);
            self.kernels.run(RowDots {
                a: rows,
                b,
                width,
                count,
                out: &mut gradient[layer.gain()],
                accumulate,
            });
            let out = &mut gradient[layer.shift()];
            self.kernels.run(RowSums { rows, width, lanes: 0..count, out, accumulate });
            self.kernels.run(NormaliseGradient {
                rows,
                width,
                gain: &parameters[layer.gain()],
                normalised: normalised.panel(panel),
                inverse: inverses.panel(panel),
            });
        }
    }

    /// z of a single input. The input is padded with zeros to whole vectors, as is `spare`.
    pub fn forward_one(&self, parameters: &[f32], x: &[f32], spare: &mut [Aligned; 2], out: &mut [f32]) {
        let [from, to] = spare;
        for (l, layer) in self.layers.iter().enumerate() {
            let is_output = l + 1 == self.layers.len();
            let input = if l == 0 { x } else { &from[..padded(layer.n_inputs)] };
            if is_output {
                self.matvec(layer, parameters, input, out, false);
                return;
            }
            let made = &mut to[..layer.n_outputs];
            match &layer.window {
                Some(window) => self.convolve_one(layer, window, parameters, input, made),
                None => self.matvec(layer, parameters, input, made, !layer.norm),
            }
            if layer.norm {
                let (gain, shift) = (&parameters[layer.gain()], &parameters[layer.shift()]);
                normalise_one(made, gain, shift);
            }
            let n = layer.n_outputs + layer.n_beside;
            let beside = &x[self.shape.n_inputs - layer.n_beside..self.shape.n_inputs];
            to[layer.n_outputs..n].copy_from_slice(beside);
            to[n..padded(n)].fill(0.0);
            std::mem::swap(from, to);
        }
    }

    fn matvec(&self, layer: &Layer, parameters: &[f32], x: &[f32], out: &mut [f32], relu: bool) {
        let (weights, bias) = (&parameters[layer.weights()], &parameters[layer.bias()]);
        self.kernels.run(Matvec { weights, bias, x, out, relu });
    }

    /// One window after the other.
    fn convolve_one(
        &self,
        layer: &Layer,
        window: &Window,
        parameters: &[f32],
        input: &[f32],
        out: &mut [f32],
    ) {
        let mut seen = Aligned::zeros(layer.stride());
        let mut made = vec![0.0; layer.rows];
        for (p, &position) in window.positions.iter().enumerate() {
            for (seen, &column) in seen.iter_mut().zip(&window.columns) {
                *seen = input[column + position];
            }
            self.matvec(layer, parameters, &seen, &mut made, !layer.norm);
            let places = out[p..].iter_mut().step_by(window.positions.len());
            places.zip(&made).for_each(|(out, &made)| *out = made);
        }
    }
}
