//! The ensemble of critics and its updates (§3.1, Algorithm 1 lines 13–23).
//!
//! Three levels, each built from the one below:
//!
//! | call | does | for |
//! |---|---|---|
//! | [`Ensemble::train_step`] | the paper's update of all critics | Deep-BQRL, QR-DQN |
//! | [`Ensemble::update`] | forward, your output gradient, backward, Adam, soft update; one batch for all | other losses |
//! | [`Ensemble::each_member`] | the same for one critic at a time, in parallel, with its own batches | anything else |
//!
//! The gradient is a closure between the forward and the backward pass, so neither can be called without the other.

use std::ops::Range;

use bqrl_math::Rng;
use rayon::prelude::*;
use thiserror::Error;

use crate::adam::Adam;
use crate::aligned::{Aligned, padded};
use crate::batch::{Batch, Transitions};
use crate::bellman::Bellman;
use crate::critic::{Critic, Init, Needed, Network, Workspace};
use crate::kernels::Kernels;
use crate::kernels::sort::comparators;
use crate::panels::{Inputs, Panels};
use crate::rows::Rows;
use crate::rule::TargetRule;
use crate::shape::{Shape, ShapeError};

/// One of the two parameter sets of a critic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// θ_m, which learns.
    Online,
    /// θ̄_m, which follows slowly.
    Target,
}

/// M separately initialised critics z_θm(x, a), their slow copies and their optimiser.
///
/// ```
/// use bqrl_math::{Buffer, Purpose, stream};
/// use bqrl_nn::{Adam, Batch, Ensemble, Init, Rows, Shape, TargetRule, Which};
///
/// let shape = Shape { n_inputs: 3, sight: None, hidden: vec![16], layer_norm: false, n_heads: 1, n_twins: 1, n_actions: 2, n_quantiles: 8, n_critics: 2 };
/// let mut critics = Ensemble::new(shape, Init::default(), &mut stream(42, Purpose::Init))?;
/// let rule = TargetRule::buffered(&Buffer::new(0.5, 0.2)?, 8, 0.0, 1.0)?;
///
/// // One transition that ends with reward 1 after action 0: every quantile of z(x, 0) is drawn to 1.
/// let x = [0.1, 0.2, 0.3];
/// let batch = Batch { inputs: Rows::floats(&x), actions: &[0], rewards: &[1.0], next_inputs: Rows::floats(&x), continuation: &[0.0] };
/// for _ in 0..2000 {
///     critics.train_step(&batch, &rule, &Adam::new(0.01), 0.01)?;
/// }
/// let z = critics.act(Which::Online, &x);
/// assert!(z[..8].iter().all(|z| (z - 1.0).abs() < 0.01), "{:?}", &z[..8]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Ensemble {
    pub(crate) network: Network,
    pub(crate) critics: Vec<Critic>,
    threads: usize,
    scratch: Vec<Scratch>,
    transitions: Transitions,
}

/// An update that failed.
#[derive(Clone, Copy, Debug, Error, PartialEq)]
pub enum UpdateError {
    /// The batch holds a number that is not finite. Nothing was changed.
    #[error("{name} of the batch must be finite, got {value} in transition {transition}")]
    NotFinite {
        /// Which array of the [`Batch`].
        name: &'static str,
        /// Which transition.
        transition: usize,
        /// The number.
        value: f32,
    },
    /// A parameter is no longer a finite number. The ensemble is lost; smaller steps may help.
    #[error("critic {critic} is no longer finite after its update {step}")]
    Diverged {
        /// Index of the critic.
        critic: usize,
        /// The critic's updates so far.
        step: u64,
    },
}

impl Ensemble {
    /// Critics with weights drawn one after the other from `rng`, and targets equal to them.
    pub fn new(shape: Shape, init: Init, rng: &mut Rng) -> Result<Self, ShapeError> {
        let mut ensemble = Self::zeros(shape)?;
        for critic in &mut ensemble.critics {
            *critic = Critic::random(&ensemble.network.layers, init, rng);
        }
        Ok(ensemble)
    }

    pub(crate) fn zeros(shape: Shape) -> Result<Self, ShapeError> {
        shape.check()?;
        let layers = shape.layers();
        let critics = (0..shape.n_critics).map(|_| Critic::zeros(&layers)).collect();
        let comparators = comparators(shape.n_quantiles).into();
        let network = Network { shape, layers, comparators, kernels: Kernels::detect() };
        Ok(Self { network, critics, threads: 1, scratch: Vec::new(), transitions: Transitions::default() })
    }

    /// Pins the instructions to use. Variants differ in the last bits.
    #[must_use]
    pub fn with_kernels(mut self, kernels: Kernels) -> Self {
        self.network.kernels = kernels;
        self
    }

    /// Trains up to `threads` critics at a time on the current rayon pool. One at a time unless asked; the results are
    /// the same bits for any number. A loop of small steps is best run inside the pool (`pool.install`): waking it from
    /// outside costs some microseconds each time.
    #[must_use]
    pub fn with_threads(mut self, threads: usize) -> Self {
        assert!(threads > 0, "threads must be at least 1, got 0");
        self.threads = threads;
        self
    }

    /// Multiplies all outputs, of all critics and their targets, by a factor: for outputs whose unit changes.
    ///
    /// ```
    /// use bqrl_math::{Purpose, stream};
    /// use bqrl_nn::{Ensemble, Init, Shape, Which};
    ///
    /// let shape = Shape { n_inputs: 1, sight: None, hidden: vec![4], layer_norm: false, n_heads: 1, n_twins: 1, n_actions: 1, n_quantiles: 2, n_critics: 1 };
    /// let mut critics = Ensemble::new(shape, Init::default(), &mut stream(42, Purpose::Init))?;
    /// let z = critics.act(Which::Online, &[0.7]);
    /// critics.scale_outputs(0.5);
    /// assert_eq!(critics.act(Which::Online, &[0.7]), [0.5 * z[0], 0.5 * z[1]]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn scale_outputs(&mut self, factor: f32) {
        self.scale_outputs_of(0..self.critics.len(), factor);
    }

    /// The same for some of the critics alone.
    pub fn scale_outputs_of(&mut self, critics: Range<usize>, factor: f32) {
        let layer = self.network.layers.last().expect("a network has an output layer");
        for critic in &mut self.critics[critics] {
            for parameters in [&mut critic.online, &mut critic.target] {
                for place in [layer.weights(), layer.bias()] {
                    parameters[place].iter_mut().for_each(|parameter| *parameter *= factor);
                }
            }
        }
    }

    /// The sizes.
    pub fn shape(&self) -> &Shape {
        &self.network.shape
    }

    /// The instructions in use.
    pub fn kernels(&self) -> Kernels {
        self.network.kernels
    }

    /// Updates made to a critic so far.
    pub fn steps(&self, critic: usize) -> u64 {
        self.critics[critic].steps
    }

    /// Outputs of one critic for every sample, in the order of [`Shape`]: raw z, not sorted.
    ///
    /// For frequent calls in a training loop use [`Member::predict`], which reuses its memory.
    pub fn forward(&self, which: Which, critic: usize, inputs: &Inputs) -> Panels {
        let mut outputs = Panels::default();
        let parameters = self.critics[critic].parameters(which);
        let work = &mut Workspace::default();
        self.network.forward(parameters, &inputs.panels, Needed::All, work, &mut outputs);
        outputs
    }

    /// Outputs of all critics for one input, one after the other, each in the order of [`Shape`]. Raw z, not sorted.
    pub fn act(&self, which: Which, x: &[f32]) -> Vec<f32> {
        let Network { shape, layers, .. } = &self.network;
        assert_eq!(x.len(), shape.n_inputs, "length of x, want n_inputs");
        let n_outputs = shape.n_outputs();
        let mut input = Aligned::zeros(padded(x.len()));
        input[..x.len()].copy_from_slice(x);
        let widest = layers.iter().map(|layer| padded(layer.n_outputs + layer.n_beside)).max().unwrap_or(0);
        let mut spare = [Aligned::zeros(widest), Aligned::zeros(widest)];
        let mut outputs = vec![0.0; self.critics.len() * n_outputs];
        for (critic, out) in self.critics.iter().zip(outputs.chunks_exact_mut(n_outputs)) {
            self.network.forward_one(critic.parameters(which), &input, &mut spare, out);
        }
        outputs
    }

    /// As [`act`](Self::act) for many inputs in one pass: one vector per input.
    ///
    /// The last bits may differ from those of [`act`](Self::act).
    pub fn act_many(&self, which: Which, rows: Rows) -> Vec<Vec<f32>> {
        let Shape { n_inputs, .. } = self.network.shape;
        let n_samples = rows.n_samples(n_inputs);
        assert!(n_samples > 0, "no inputs to act for");
        let order: Vec<usize> = (0..n_samples).collect();
        let mut inputs = Panels::default();
        inputs.fill_in_order(self.network.kernels, rows, n_inputs, &order);
        let (n_outputs, work) = (self.network.shape.n_outputs(), &mut Workspace::default());
        let mut outputs = vec![Vec::with_capacity(self.critics.len() * n_outputs); n_samples];
        for critic in &self.critics {
            let mut panels = Panels::default();
            self.network.forward(critic.parameters(which), &inputs, Needed::All, work, &mut panels);
            for (sample, outputs) in outputs.iter_mut().enumerate() {
                outputs.extend((0..n_outputs).map(|output| panels.get(sample, output)));
            }
        }
        outputs
    }

    /// One update of every critic on one shared minibatch: Eqs. (3)–(5), with Adam.
    pub fn train_step(
        &mut self,
        batch: &Batch,
        rule: &TargetRule,
        adam: &Adam,
        zeta: f64,
    ) -> Result<(), UpdateError> {
        self.train_critics(0..self.critics.len(), batch, rule, adam, zeta, false).map(drop)
    }

    /// As [`train_step`](Self::train_step); returns the loss 𝒥_m of every critic before its update, Eq. (4).
    ///
    /// Training does not need the loss, and computing it costs about as much as its gradient, so call this only occasionally.
    pub fn train_step_with_loss(
        &mut self,
        batch: &Batch,
        rule: &TargetRule,
        adam: &Adam,
        zeta: f64,
    ) -> Result<Vec<f64>, UpdateError> {
        self.train_critics(0..self.critics.len(), batch, rule, adam, zeta, true)
    }

    /// As [`train_step`](Self::train_step) for some of the critics alone, which may have a batch and a rule of their own. Returns their
    /// losses before the update if they are wanted, else zeros.
    pub fn train_critics(
        &mut self,
        critics: Range<usize>,
        batch: &Batch,
        rule: &TargetRule,
        adam: &Adam,
        zeta: f64,
        with_loss: bool,
    ) -> Result<Vec<f64>, UpdateError> {
        let mut transitions = std::mem::take(&mut self.transitions);
        transitions.fill(self.network.kernels, &self.network.shape, batch)?;
        let bellman = Bellman::new(&self.network, rule, &transitions);
        let losses = self.members(critics, |member| {
            let [mut next, mut choosing, mut targets] = std::mem::take(&mut member.scratch.bellman);
            member.forward(Which::Target, &transitions.next_inputs, &mut next);
            if rule.is_double() {
                member.forward(Which::Online, &transitions.next_inputs, &mut choosing);
            }
            bellman.targets(&mut next, rule.is_double().then_some(&mut choosing), &mut targets);
            let mut loss = 0.0;
            let taken = Needed::Taken(&transitions.spans);
            let learned = member.step(&transitions.inputs, taken, adam, zeta, |outputs, d_outputs| {
                bellman.gradient(outputs, &targets, d_outputs);
                if with_loss {
                    loss = bellman.loss(outputs, &targets);
                }
            });
            member.scratch.bellman = [next, choosing, targets];
            learned.map(|()| loss)
        });
        self.transitions = transitions;
        losses.into_iter().collect()
    }

    /// One update of every critic on shared inputs, for a loss of your own: `gradient(m, outputs, d_outputs)` is given the
    /// online outputs of critic m and writes the gradient of its loss into `d_outputs`, which is zero at first.
    ///
    /// ζ = 0 leaves the target critics unchanged and ζ = 1 makes them equal to the online ones.
    ///
    /// ```
    /// use bqrl_math::{Purpose, stream};
    /// use bqrl_nn::{Adam, Ensemble, Init, Inputs, Shape, Which};
    ///
    /// // Least squares: 2 outputs towards the constant 3.
    /// let shape = Shape { n_inputs: 1, sight: None, hidden: vec![], layer_norm: false, n_heads: 1, n_twins: 1, n_actions: 1, n_quantiles: 2, n_critics: 2 };
    /// let mut critics = Ensemble::new(shape, Init::default(), &mut stream(42, Purpose::Init))?;
    /// let inputs = Inputs::from_rows(&[-1.0, 1.0], 1);
    /// for _ in 0..2000 {
    ///     critics.update(&inputs, &Adam::new(0.01), 1.0, |_, z, d_z| {
    ///         for (sample, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
    ///             d_z.set(sample, j, z.get(sample, j) - 3.0);
    ///         }
    ///     })?;
    /// }
    /// assert!(critics.act(Which::Target, &[0.5]).iter().all(|z| (z - 3.0).abs() < 1e-3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn update(
        &mut self,
        inputs: &Inputs,
        adam: &Adam,
        zeta: f64,
        gradient: impl Fn(usize, &Panels, &mut Panels) + Sync,
    ) -> Result<(), UpdateError> {
        let one = |member: &mut Member| {
            let m = member.index();
            member.learn(inputs, adam, zeta, |outputs, d_outputs| gradient(m, outputs, d_outputs))
        };
        self.each_member(one).into_iter().collect()
    }

    /// Runs `work` once for every critic, several at a time if [allowed](Self::with_threads), and collects the
    /// results in the order of the critics.
    pub fn each_member<R: Send>(&mut self, work: impl Fn(&mut Member) -> R + Sync) -> Vec<R> {
        self.members(0..self.critics.len(), work)
    }

    fn members<R: Send>(&mut self, range: Range<usize>, work: impl Fn(&mut Member) -> R + Sync) -> Vec<R> {
        let network = &self.network;
        let (first, chosen) = (range.start, &mut self.critics[range]);
        // Critics share no mutable data, so it does not matter which thread takes which critic.
        let group = chosen.len().div_ceil(self.threads);
        let n_groups = chosen.len().div_ceil(group);
        self.scratch.resize_with(n_groups.max(self.scratch.len()), Scratch::default);
        let run = |(g, (critics, scratch)): (usize, (&mut [Critic], &mut Scratch))| -> Vec<R> {
            let member = |(i, critic)| {
                work(&mut Member { index: first + g * group + i, critic, network, scratch: &mut *scratch })
            };
            critics.iter_mut().enumerate().map(member).collect()
        };
        if n_groups == 1 {
            return run((0, (chosen, &mut self.scratch[0])));
        }
        let groups: Vec<Vec<R>> =
            chosen.par_chunks_mut(group).zip(&mut self.scratch).enumerate().map(run).collect();
        groups.into_iter().flatten().collect()
    }
}

/// One critic during an update.
pub struct Member<'a> {
    index: usize,
    critic: &'a mut Critic,
    network: &'a Network,
    scratch: &'a mut Scratch,
}

impl Member<'_> {
    /// Which critic this is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Outputs for every sample, in the order of [`Shape`]: raw z, not sorted.
    pub fn predict(&mut self, which: Which, inputs: &Inputs, outputs: &mut Panels) {
        self.forward(which, &inputs.panels, outputs);
    }

    fn forward(&mut self, which: Which, inputs: &Panels, outputs: &mut Panels) {
        let parameters = self.critic.parameters(which);
        self.network.forward(parameters, inputs, Needed::All, &mut self.scratch.work, outputs);
    }

    /// One update: forward, `gradient(outputs, d_outputs)`, backward, Adam, soft update. The gradient of the loss goes into
    /// `d_outputs`, which is zero at first.
    pub fn learn(
        &mut self,
        inputs: &Inputs,
        adam: &Adam,
        zeta: f64,
        gradient: impl FnOnce(&Panels, &mut Panels),
    ) -> Result<(), UpdateError> {
        self.step(inputs, Needed::All, adam, zeta, |outputs, d_outputs| {
            d_outputs.fill(0.0);
            gradient(outputs, d_outputs);
        })
    }

    /// The same where `gradient` gets, and gives, only what is needed.
    fn step(
        &mut self,
        inputs: &Inputs,
        needed: Needed,
        adam: &Adam,
        zeta: f64,
        gradient: impl FnOnce(&Panels, &mut Panels),
    ) -> Result<(), UpdateError> {
        let Scratch { work, outputs, output_gradient, .. } = &mut *self.scratch;
        self.network.forward(&self.critic.online, &inputs.panels, needed, work, outputs);
        output_gradient.resize(inputs.n_samples(), self.network.shape.n_outputs());
        gradient(outputs, output_gradient);
        let gradient = self.network.backward(&self.critic.online, inputs, output_gradient, needed, work);
        if self.critic.apply(self.network, gradient, adam, zeta) {
            Ok(())
        } else {
            Err(UpdateError::Diverged { critic: self.index, step: self.critic.steps })
        }
    }
}

/// Memory of one thread, reused between steps.
#[derive(Clone, Debug, Default)]
struct Scratch {
    work: Workspace,
    outputs: Panels,
    output_gradient: Panels,
    /// The outputs of the slow critic and of the one that chooses at x', and y.
    bellman: [Panels; 3],
}
