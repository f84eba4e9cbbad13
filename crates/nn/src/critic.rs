//! One critic: forward, backward, update.
//!
//! ```text
//! H_0 = x        H_l = relu(norm(W_l H_{l−1} + b_l))        z = W_L H_{L−1} + b_L        norm: see kernels::norm, or none
//! dW_l = dZ_l H_{l−1}ᵀ       db_l = Σ_s dZ_l       dZ_{l−1} = 1{H_{l−1} > 0} ⊙ W_lᵀ dZ_l
//! ```

use bqrl_math::Rng;

use std::ops::Range;

use crate::adam::Adam;
use crate::aligned::{Aligned, padded};
use crate::batch::Span;
use crate::ensemble::Which;
use crate::kernels::Kernels;
use crate::kernels::act::Matvec;
use crate::kernels::adam::{AdamStep, Rates};
use crate::kernels::norm::{Normalise, NormaliseGradient, RowDots, normalise_one};
use crate::kernels::product::{Finish, Left, Product, RowSums, Start};
use crate::kernels::transpose::Transpose;
use crate::panels::{Blocks, Inputs, PANEL, Panels};
use crate::shape::{Layer, Shape};

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
            let bound = scale * (3.0 * variance / layer.n_inputs as f64).sqrt();
            for row in critic.online[layer.weights()].chunks_exact_mut(layer.stride()) {
                row[..layer.n_inputs].fill_with(|| (bound * (2.0 * rng.uniform() - 1.0)) as f32);
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
            to.resize(inputs.n_samples(), layer.n_outputs);
            for Part { rows, panel, lanes } in self.parts(l, inputs, needed) {
                let width = inputs.width(panel);
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
            if layer.norm {
                let [normalised, inverse] = [&mut work.normalised[l], &mut work.inverses[l]];
                normalised.resize(inputs.n_samples(), layer.n_outputs);
                inverse.resize(inputs.n_samples(), 1);
                for panel in 0..inputs.n_panels() {
                    self.kernels.run(Normalise {
                        rows: to.panel_mut(panel),
                        width: inputs.width(panel),
                        gain: &parameters[layer.gain()],
                        shift: &parameters[layer.shift()],
                        normalised: normalised.panel_mut(panel),
                        inverse: inverse.panel_mut(panel),
                    });
                }
            }
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
            let blocks = match l.checked_sub(1) {
                None => &inputs.blocks,
                Some(before) => {
                    hidden_blocks[before].resize(n_samples, layer.n_inputs);
                    self.transpose(&hidden[before], &mut hidden_blocks[before]);
                    &hidden_blocks[before]
                }
            };
            let parts = self.parts(l, d_z, needed);
            self.weight_gradient(layer, &parts, d_z, blocks, gradient);
            if let Some(d_h) = gradients_before.last_mut() {
                d_h.resize(n_samples, layer.n_inputs);
                self.input_gradient(layer, &parts, parameters, d_z, &hidden[l - 1], d_h);
                let before = &self.layers[l - 1];
                if before.norm {
                    self.norm_gradient(
                        before,
                        parameters,
                        &normalised[l - 1],
                        &inverses[l - 1],
                        d_h,
                        gradient,
                    );
                }
            }
        }
        gradient
    }

    fn transpose(&self, from: &Panels, to: &mut Blocks) {
        for panel in 0..from.n_panels() {
            let width = from.width(panel);
            for (block, rows) in from.panel(panel).chunks(PANEL * width).enumerate() {
                let out_width = to.width(block);
                self.kernels.run(Transpose { rows, width, out: to.block_mut(panel, block), out_width });
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
        // Parts add up, and an action that nobody took has none.
        gradient[layer.weights()].fill(0.0);
        gradient[layer.bias()].fill(0.0);
        for Part { rows, panel, lanes } in parts {
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
                    start: Start::Out,
                    finish: Finish::Keep,
                });
            }
            let out = &mut gradient[layer.bias()][rows.clone()];
            self.kernels.run(RowSums { rows: d_z, width, lanes: lanes.clone(), out, accumulate: true });
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
        // Parts add up. A gate may be passed more than once.
        d_h.fill(0.0);
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
                start: Start::Out,
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
            let (a, b) = (d.panel(panel), normalised.panel(panel));
            self.kernels.run(RowDots { a, b, width, count, out: &mut gradient[layer.gain()], accumulate });
            let out = &mut gradient[layer.shift()];
            self.kernels.run(RowSums { rows: d.panel(panel), width, lanes: 0..count, out, accumulate });
            self.kernels.run(NormaliseGradient {
                rows: d.panel_mut(panel),
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
            let input = if l == 0 { x } else { &from[..layer.stride()] };
            let matvec = |out| Matvec {
                weights: &parameters[layer.weights()],
                bias: &parameters[layer.bias()],
                x: input,
                out,
                relu: !is_output && !layer.norm,
            };
            if is_output {
                self.kernels.run(matvec(&mut *out));
            } else {
                self.kernels.run(matvec(&mut to[..layer.n_outputs]));
                if layer.norm {
                    let (gain, shift) = (&parameters[layer.gain()], &parameters[layer.shift()]);
                    normalise_one(&mut to[..layer.n_outputs], gain, shift);
                }
                to[layer.n_outputs..padded(layer.n_outputs)].fill(0.0);
                std::mem::swap(from, to);
            }
        }
    }
}
