//! The whole of a training step once more: in f64, one sample, one critic and one pair at a time, straight from the paper.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, HashMap};

use bqrl_math::{Buffer, Rng, buffer, huber, score};
use bqrl_nn::{Adam, Batch, Ensemble, Kernels, Rows, Shape, TargetRule};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

/// W as [out][in], b, and gain and shift of the normalisation (or none). A convolution has one row for each channel, and `seen`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Layer {
    pub seen: Option<Seen>,
    pub weight: Vec<Vec<f64>>,
    pub bias: Vec<f64>,
    pub gain: Vec<f64>,
    pub shift: Vec<f64>,
}

/// What a convolution looks at: channels, height and width of its input; and how many further inputs join its results.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    pub planes: [usize; 3],
    pub kernel: usize,
    pub stride: usize,
    pub beside: usize,
}

impl Seen {
    /// For every position of the window, the input that every column of W meets.
    fn cells(&self) -> Vec<Vec<usize>> {
        let [channels, height, width] = self.planes;
        let (kernel, stride) = (self.kernel, self.stride);
        let mut all = Vec::new();
        for y in (0..).map(|y| y * stride).take_while(|y| y + kernel <= height) {
            for x in (0..).map(|x| x * stride).take_while(|x| x + kernel <= width) {
                let mut cells = Vec::new();
                for c in 0..channels {
                    for dy in 0..kernel {
                        for dx in 0..kernel {
                            cells.push((c * height + y + dy) * width + x + dx);
                        }
                    }
                }
                all.push(cells);
            }
        }
        all
    }
}

impl Layer {
    /// The same as a dense layer of so many inputs: a convolution is one whose rows share their weights.
    fn dense(&self, n_inputs: usize) -> (Vec<Vec<f64>>, Vec<f64>) {
        let Some(seen) = &self.seen else { return (self.weight.clone(), self.bias.clone()) };
        let (mut weight, mut bias) = (Vec::new(), Vec::new());
        for (row, b) in self.weight.iter().zip(&self.bias) {
            for cells in seen.cells() {
                let mut out = vec![0.0; n_inputs];
                cells.iter().zip(row).for_each(|(&cell, w)| out[cell] = *w);
                weight.push(out);
                bias.push(*b);
            }
        }
        (weight, bias)
    }

    fn beside(&self) -> usize {
        self.seen.as_ref().map_or(0, |seen| seen.beside)
    }

    /// Adds ∂𝒥/∂W and ∂𝒥/∂b for ∂𝒥/∂Z = d at an input h.
    fn add_gradient(&mut self, d: &[f64], h: &[f64]) {
        match &self.seen {
            None => {
                for (o, &d) in d.iter().enumerate() {
                    self.bias[o] += d;
                    self.weight[o].iter_mut().zip(h).for_each(|(w, h)| *w += d * h);
                }
            }
            Some(seen) => {
                let cells = seen.cells();
                for (o, &d) in d.iter().enumerate() {
                    let (channel, position) = (o / cells.len(), o % cells.len());
                    self.bias[channel] += d;
                    let row = self.weight[channel].iter_mut().zip(&cells[position]);
                    row.for_each(|(w, &cell)| *w += d * h[cell]);
                }
            }
        }
    }
}

pub type Net = Vec<Layer>;

#[derive(Clone, Debug)]
pub struct Critic {
    pub online: Net,
    pub target: Net,
    pub first: Net,
    pub second: Net,
    pub steps: u64,
}

/// How a head chooses the next action.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// By the buffered score, with its tie-break.
    Buffered(Buffer, f64),
    /// By the mean.
    Mean,
    /// At each level by itself.
    PerLevel,
}

/// The rule of a head: its way to choose, and the width ℓ of its ramp.
#[derive(Clone, Copy, Debug)]
pub struct Head {
    pub way: Way,
    pub ramp: f64,
}

/// The rule of a step.
#[derive(Clone, Debug)]
pub struct Rule {
    pub heads: Vec<Head>,
    pub kappa: f64,
    pub double: bool,
    pub smooth: bool,
    pub bounds: (f64, f64),
}

impl Rule {
    /// 𝒥 of one sample: mean over the K×K pairs.
    fn loss(&self, y: &[f64], z: &[f64]) -> f64 {
        if !self.smooth {
            return huber::critic_loss(self.kappa, y, z);
        }
        let eta = buffer::eta(z.len());
        let pair = |eta: f64, delta: f64| {
            let t = delta.clamp(-self.kappa, self.kappa);
            (eta - 0.5) * delta + t * (delta - t / 2.0) / (2.0 * self.kappa)
        };
        let total: f64 =
            z.iter().zip(&eta).flat_map(|(z, eta)| y.iter().map(move |y| pair(*eta, y - z))).sum();
        total / (y.len() * z.len()) as f64
    }

    /// −∂ρ/∂δ.
    fn slope(&self, eta: f64, delta: f64) -> f64 {
        let clamped = delta.clamp(-self.kappa, self.kappa) / self.kappa;
        if self.smooth {
            return eta - 0.5 + clamped / 2.0;
        }
        let below = if delta < 0.0 { 1.0 } else { 0.0 };
        (eta - below).abs() * clamped
    }

    pub fn compiled(&self, n_quantiles: usize) -> TargetRule {
        let (k, kappa) = (n_quantiles, self.kappa);
        let head = |head: &Head| {
            let alone = match &head.way {
                Way::Buffered(buffer, tie_break) => TargetRule::buffered(buffer, k, *tie_break, kappa),
                Way::Mean => TargetRule::mean(k, kappa),
                Way::PerLevel => TargetRule::per_level(k, kappa),
            };
            bqrl_nn::Head { choice: alone.unwrap().heads()[0].choice.clone(), ramp: head.ramp as f32 }
        };
        let rule = TargetRule::heads_of(self.heads.iter().map(head).collect(), k, kappa).unwrap();
        let rule = rule.within(self.bounds.0 as f32, self.bounds.1 as f32);
        let rule = if self.smooth { rule.smooth() } else { rule };
        if self.double { rule.double() } else { rule }
    }
}

/// A minibatch that owns its arrays.
#[derive(Clone, Debug)]
pub struct Sample {
    pub inputs: Vec<f32>,
    pub actions: Vec<usize>,
    pub rewards: Vec<f32>,
    pub next_inputs: Vec<f32>,
    pub continuation: Vec<f32>,
}

impl Sample {
    pub fn random(shape: &Shape, batch: usize, rng: &mut Rng) -> Self {
        let mut normals = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.normal() as f32).collect() };
        let (inputs, next_inputs) = (normals(batch * shape.n_inputs), normals(batch * shape.n_inputs));
        let rewards = normals(batch);
        let actions = (0..batch).map(|_| rng.below(shape.n_actions)).collect();
        // Of three, one is over, one goes on, one is discounted.
        let continuation = (0..batch).map(|_| [0.0, 1.0, 0.75][rng.below(3)]).collect();
        Self { inputs, actions, rewards, next_inputs, continuation }
    }

    pub fn batch(&self) -> Batch<'_> {
        let Self { inputs, actions, rewards, next_inputs, continuation } = self;
        let (inputs, next_inputs) = (Rows::floats(inputs), Rows::floats(next_inputs));
        Batch { inputs, actions, rewards, next_inputs, continuation }
    }
}

pub fn forward(net: &Net, x: &[f64]) -> Vec<f64> {
    activations(net, x).pop().unwrap()
}

/// x, H_1, …, z.
fn activations(net: &Net, x: &[f64]) -> Vec<Vec<f64>> {
    let mut all = vec![x.to_vec()];
    for (l, layer) in net.iter().enumerate() {
        let h = all.last().unwrap();
        let (weight, bias) = layer.dense(h.len());
        let sums = weight.iter().zip(&bias);
        let mut out: Vec<f64> =
            sums.map(|(row, b)| b + row.iter().zip(h).map(|(w, h)| w * h).sum::<f64>()).collect();
        if !layer.gain.is_empty() {
            let (normalised, _) = normalised(&out);
            let affine = layer.gain.iter().zip(&layer.shift);
            out = normalised.iter().zip(affine).map(|(n, (gain, shift))| gain * n + shift).collect();
        }
        if l + 1 < net.len() {
            for h in &mut out {
                *h = h.max(0.0);
            }
        }
        out.extend(&x[x.len() - layer.beside()..]);
        all.push(out);
    }
    all
}

/// n and s of a layer's sums.
fn normalised(u: &[f64]) -> (Vec<f64>, f64) {
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let away: Vec<f64> = u.iter().map(|x| x - mean(u)).collect();
    let squares: Vec<f64> = away.iter().map(|x| x * x).collect();
    let inverse = 1.0 / (mean(&squares) + 1e-5).sqrt();
    (away.iter().map(|x| x * inverse).collect(), inverse)
}

/// The sorted quantiles: `[twin][head][action][level]`.
fn sorted(net: &Net, shape: &Shape, x: &[f64]) -> Vec<Vec<Vec<Vec<f64>>>> {
    let z = forward(net, x);
    let place = |twin: usize, head: usize, a: usize| {
        ((twin * shape.n_heads + head) * shape.n_actions + a) * shape.n_quantiles
    };
    let quantiles = |twin, head, a| score::sort(&z[place(twin, head, a)..][..shape.n_quantiles]);
    let actions = |twin, head| (0..shape.n_actions).map(|a| quantiles(twin, head, a)).collect();
    let heads = |twin| (0..shape.n_heads).map(|head| actions(twin, head)).collect();
    (0..shape.n_twins).map(heads).collect()
}

/// One head, entry by entry over its twins: `[action][level]`.
fn combine(twins: &[Vec<Vec<Vec<f64>>>], head: usize, by: impl Fn(&[f64]) -> f64) -> Vec<Vec<f64>> {
    let (n_actions, k) = (twins[0][head].len(), twins[0][head][0].len());
    let entry = |a: usize, j: usize| by(&twins.iter().map(|twin| twin[head][a][j]).collect::<Vec<_>>());
    (0..n_actions).map(|a| (0..k).map(|j| entry(a, j)).collect()).collect()
}

/// y_1..y_K of one transition: the heads of the first twin, then those of the next.
fn targets(
    online: &Net,
    target: &Net,
    rule: &Rule,
    shape: &Shape,
    next: &[f64],
    reward: f64,
    continuation: f64,
) -> Vec<Vec<f64>> {
    let k = shape.n_quantiles;
    let eta = buffer::eta(k);
    let (fast, slow) = (sorted(online, shape, next), sorted(target, shape, next));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    let of_head = |twin: usize, head: usize| -> Vec<f64> {
        let (choosing, valued) = if rule.double {
            (combine(&fast, head, mean), combine(&slow, head, least))
        } else {
            (slow[twin][head].clone(), slow[twin][head].clone())
        };
        let Head { way, ramp } = &rule.heads[head];
        let best = |j: usize| {
            let score = |z: &Vec<f64>| match way {
                Way::Buffered(buffer, tie_break) => {
                    score::Score::buffered(buffer, k).with_tie_break(*tie_break).of(z)
                }
                Way::Mean => mean(z),
                Way::PerLevel => z[j],
            };
            score::argmax(&choosing.iter().map(score).collect::<Vec<f64>>())
        };
        let after = |j: usize| continuation * valued[best(j)][j] + (1.0 - continuation) * ramp * eta[j];
        (0..k).map(|j| (reward + after(j)).clamp(rule.bounds.0, rule.bounds.1 + ramp)).collect()
    };
    let pairs = (0..shape.n_twins).flat_map(|twin| (0..shape.n_heads).map(move |head| (twin, head)));
    pairs.map(|(twin, head)| of_head(twin, head)).collect()
}

fn row(rows: &[f32], n: usize, sample: usize) -> Vec<f64> {
    rows[sample * n..(sample + 1) * n].iter().copied().map(f64::from).collect()
}

/// 𝒥 as a function of the online parameters, for targets that stay as they are.
pub fn loss(online: &Net, y: &[Vec<Vec<f64>>], rule: &Rule, shape: &Shape, sample: &Sample) -> f64 {
    let (k, batch) = (shape.n_quantiles, sample.actions.len());
    let one = |s: usize| -> f64 {
        let z = forward(online, &row(&sample.inputs, shape.n_inputs, s));
        let heads = z.chunks(shape.n_actions * k).zip(&y[s]);
        let a = sample.actions[s];
        heads.map(|(z, y)| rule.loss(y, &z[a * k..(a + 1) * k])).sum()
    };
    (0..batch).map(one).sum::<f64>() / batch as f64
}

/// y of every transition.
pub fn all_targets(
    online: &Net,
    target: &Net,
    rule: &Rule,
    shape: &Shape,
    sample: &Sample,
) -> Vec<Vec<Vec<f64>>> {
    let one = |s: usize| {
        let next = row(&sample.next_inputs, shape.n_inputs, s);
        targets(online, target, rule, shape, &next, sample.rewards[s].into(), sample.continuation[s].into())
    };
    (0..sample.actions.len()).map(one).collect()
}

/// ∂𝒥/∂θ.
pub fn gradient(online: &Net, y: &[Vec<Vec<f64>>], rule: &Rule, shape: &Shape, sample: &Sample) -> Net {
    let (k, batch) = (shape.n_quantiles, sample.actions.len());
    let eta = buffer::eta(k);
    let mut total = zeros_like(online);
    for (s, y) in y.iter().enumerate() {
        let h = activations(online, &row(&sample.inputs, shape.n_inputs, s));
        let mut d_z = vec![0.0; h.last().unwrap().len()];
        for (head, j) in (0..y.len()).flat_map(|head| (0..k).map(move |j| (head, j))) {
            let (output, eta) = ((head * shape.n_actions + sample.actions[s]) * k + j, eta[j]);
            for &y in &y[head] {
                let delta = y - h.last().unwrap()[output];
                d_z[output] -= rule.slope(eta, delta) / (batch * k * k) as f64;
            }
        }
        for l in (0..online.len()).rev() {
            d_z.truncate(d_z.len() - online[l].beside());
            if !online[l].gain.is_empty() {
                d_z = norm_gradient(&online[l], &mut total[l], &h[l], &d_z);
            }
            total[l].add_gradient(&d_z, &h[l]);
            let (weight, _) = online[l].dense(h[l].len());
            let back = |i: usize| d_z.iter().zip(&weight).map(|(d, row)| d * row[i]).sum::<f64>();
            d_z = h[l].iter().enumerate().map(|(i, &h)| if h > 0.0 { back(i) } else { 0.0 }).collect();
        }
    }
    total
}

/// From the gradient behind a normalisation to the one before it; adds the gradients of gain and shift to `total`.
fn norm_gradient(layer: &Layer, total: &mut Layer, h: &[f64], d: &[f64]) -> Vec<f64> {
    let (weight, bias) = layer.dense(h.len());
    let sums = weight.iter().zip(&bias);
    let u: Vec<f64> = sums.map(|(row, b)| b + row.iter().zip(h).map(|(w, h)| w * h).sum::<f64>()).collect();
    let (n, inverse) = normalised(&u);
    for f in 0..d.len() {
        total.gain[f] += d[f] * n[f];
        total.shift[f] += d[f];
    }
    // ∂n_g/∂u_f = s (1{f = g} − 1/F − n_f n_g/F), summed over g.
    let features = d.len() as f64;
    let e: Vec<f64> = d.iter().zip(&layer.gain).map(|(d, gain)| d * gain).collect();
    let slope = |f: usize, g: usize| f64::from(u8::from(f == g)) - 1.0 / features - n[f] * n[g] / features;
    (0..d.len()).map(|f| inverse * (0..d.len()).map(|g| e[g] * slope(f, g)).sum::<f64>()).collect()
}

impl Critic {
    pub fn train_step(&mut self, rule: &Rule, shape: &Shape, sample: &Sample, adam: &Adam, zeta: f64) {
        let y = all_targets(&self.online, &self.target, rule, shape, sample);
        let gradient = gradient(&self.online, &y, rule, shape, sample);
        self.steps += 1;
        let t = self.steps as f64;
        let gradient = flat(&gradient);
        let is_weight: Vec<bool> = flat(&weights_alone(&self.online)).iter().map(|&one| one == 1.0).collect();
        let [mut online, mut target, mut first, mut second] =
            [&self.online, &self.target, &self.first, &self.second].map(flat);
        for (i, g) in gradient.into_iter().enumerate() {
            first[i] = adam.beta_1 * first[i] + (1.0 - adam.beta_1) * g;
            second[i] = adam.beta_2 * second[i] + (1.0 - adam.beta_2) * g * g;
            let m_hat = first[i] / (1.0 - adam.beta_1.powf(t));
            let v_hat = second[i] / (1.0 - adam.beta_2.powf(t));
            if is_weight[i] {
                online[i] -= adam.learning_rate * adam.weight_decay * online[i];
            }
            online[i] -= adam.learning_rate * m_hat / (v_hat.sqrt() + adam.epsilon);
            target[i] = (1.0 - zeta) * target[i] + zeta * online[i];
        }
        for (net, values) in [
            (&mut self.online, online),
            (&mut self.target, target),
            (&mut self.first, first),
            (&mut self.second, second),
        ] {
            unflatten(net, &values);
        }
    }
}

/// 1 in the place of every weight, 0 elsewhere.
fn weights_alone(net: &Net) -> Net {
    let mut ones = zeros_like(net);
    ones.iter_mut().flat_map(|layer| &mut layer.weight).flatten().for_each(|weight| *weight = 1.0);
    ones
}

fn zeros_like(net: &Net) -> Net {
    let mut zeros = net.clone();
    let n = flat(net).len();
    unflatten(&mut zeros, &vec![0.0; n]);
    zeros
}

pub fn flat(net: &Net) -> Vec<f64> {
    let all = |layer: &Layer| -> Vec<f64> {
        let weights = layer.weight.iter().flatten();
        weights.chain(&layer.bias).chain(&layer.gain).chain(&layer.shift).copied().collect()
    };
    net.iter().flat_map(all).collect()
}

pub fn unflatten(net: &mut Net, values: &[f64]) {
    let places = net.iter_mut().flat_map(|layer| {
        let weights = layer.weight.iter_mut().flatten();
        weights.chain(&mut layer.bias).chain(&mut layer.gain).chain(&mut layer.shift)
    });
    for (place, &value) in places.zip(values) {
        *place = value;
    }
}

/// A network of constants: no hidden layer, all weights zero, so that its outputs are its biases.
pub fn constant(outputs: &[f64]) -> Net {
    let weight = vec![vec![0.0]; outputs.len()];
    vec![Layer { weight, bias: outputs.to_vec(), ..Layer::default() }]
}

const PREFIXES: [&str; 4] = ["", "target.", "adam.m.", "adam.v."];

/// All critics of an ensemble, read from its own file.
pub fn critics(ensemble: &Ensemble) -> Vec<Critic> {
    let file = ensemble.to_bytes();
    let file = SafeTensors::deserialize(&file).unwrap();
    let floats = |name: &str| -> Vec<f64> {
        let tensor = file.tensor(name).unwrap();
        tensor.data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes).into()).collect()
    };
    let shape = ensemble.shape();
    let convolutions = shape.sight.as_ref().map_or(&[][..], |sight| &sight.convolutions);
    let n_layers = convolutions.len() + shape.hidden.len() + 1;
    // The planes that every convolution looks at.
    let mut planes = Vec::new();
    if let Some(sight) = &shape.sight {
        let mut at = sight.planes;
        for c in convolutions {
            planes.push(at);
            at = [c.channels, (at[1] - c.kernel) / c.stride + 1, (at[2] - c.kernel) / c.stride + 1];
        }
    }
    let seen = |l: usize| {
        let (planes_of, c) = (planes.get(l)?, convolutions[l]);
        let is_last = l + 1 == convolutions.len();
        let beside = if is_last { shape.n_inputs - planes[0].iter().product::<usize>() } else { 0 };
        Some(Seen { planes: *planes_of, kernel: c.kernel, stride: c.stride, beside })
    };
    let critic = |m: usize| {
        let [online, target, first, second] = PREFIXES.map(|prefix| -> Net {
            let layer = |l: usize| {
                let name = format!("{prefix}critic.{m}.layer.{l}");
                let n_inputs: usize =
                    file.tensor(&format!("{name}.weight")).unwrap().shape()[1..].iter().product();
                let weight =
                    floats(&format!("{name}.weight")).chunks(n_inputs).map(<[f64]>::to_vec).collect();
                let norm = ensemble.shape().layer_norm && l + 1 < n_layers;
                let [gain, shift] = ["norm.weight", "norm.bias"]
                    .map(|part| if norm { floats(&format!("{name}.{part}")) } else { vec![] });
                Layer { seen: seen(l), weight, bias: floats(&format!("{name}.bias")), gain, shift }
            };
            (0..n_layers).map(layer).collect()
        });
        Critic { online, target, first, second, steps: ensemble.steps(m) }
    };
    (0..ensemble.shape().n_critics).map(critic).collect()
}

/// The ensemble of given online and target networks, fresh moments, made by way of a file.
pub fn ensemble(shape: &Shape, critics: &[(Net, Net)], kernels: Kernels) -> Ensemble {
    let mut tensors: BTreeMap<String, (Vec<usize>, Vec<u8>)> = BTreeMap::new();
    let bytes =
        |values: &[f64]| -> Vec<u8> { values.iter().flat_map(|&v| (v as f32).to_le_bytes()).collect() };
    for (m, (online, target)) in critics.iter().enumerate() {
        let zeros = zeros_like(online);
        for (prefix, net) in PREFIXES.into_iter().zip([online, target, &zeros, &zeros]) {
            for (l, layer) in net.iter().enumerate() {
                let name = format!("{prefix}critic.{m}.layer.{l}");
                let shape = vec![layer.bias.len(), layer.weight[0].len()];
                tensors.insert(format!("{name}.bias"), (shape[..1].to_vec(), bytes(&layer.bias)));
                tensors.insert(format!("{name}.weight"), (shape, bytes(&layer.weight.concat())));
            }
        }
    }
    let steps = vec![0; 8 * critics.len()];
    let Shape { n_inputs, sight, hidden, layer_norm, n_heads, n_twins, n_actions, n_quantiles, n_critics } =
        shape;
    assert_eq!((*n_critics, *layer_norm), (critics.len(), false), "critics without normalisation");
    assert_eq!(*sight, None, "critics without convolutions");
    let hidden = hidden.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let metadata = format!(
        "version=3 n_inputs={n_inputs} hidden={hidden} layer_norm=false n_heads={n_heads} n_twins={n_twins} \
         n_actions={n_actions} n_quantiles={n_quantiles} n_critics={n_critics}"
    );
    let views = tensors.iter().map(|(name, (shape, bytes))| {
        (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
    });
    let steps = ("adam.step", TensorView::new(Dtype::I64, vec![critics.len()], &steps).unwrap());
    let metadata = HashMap::from([("bqrl_nn".to_owned(), metadata)]);
    let file = safetensors::serialize(views.chain([steps]), Some(metadata)).unwrap();
    Ensemble::from_bytes(&file).unwrap().with_kernels(kernels)
}

#[track_caller]
pub fn assert_close(actual: &[f64], wanted: &[f64], tolerance: f64, what: &str) {
    assert_eq!(actual.len(), wanted.len(), "{what}");
    for (i, (&a, &w)) in actual.iter().zip(wanted).enumerate() {
        assert!(
            (a - w).abs() <= tolerance * (1.0 + w.abs()),
            "{what}, [{i}]: got {a}, want {w} within {tolerance}"
        );
    }
}
