//! The whole of a training step once more: in f64, one sample, one critic and one pair at a time, straight from the paper.

#![allow(dead_code, reason = "each test file uses a part")]

use std::collections::{BTreeMap, HashMap};

use bqrl_math::{Buffer, Rng, buffer, huber, score};
use bqrl_nn::{Adam, Batch, Ensemble, Kernels, Shape};
use safetensors::SafeTensors;
use safetensors::tensor::{Dtype, TensorView};

/// W as [out][in], and b.
#[derive(Clone, Debug, PartialEq)]
pub struct Layer {
    pub weight: Vec<Vec<f64>>,
    pub bias: Vec<f64>,
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

#[derive(Clone, Copy, Debug)]
pub struct Rule {
    pub buffer: Buffer,
    pub tie_break: f64,
    pub kappa: f64,
}

/// A minibatch that owns its arrays.
#[derive(Clone, Debug)]
pub struct Sample {
    pub inputs: Vec<f32>,
    pub actions: Vec<usize>,
    pub rewards: Vec<f32>,
    pub next_inputs: Vec<f32>,
    pub done: Vec<bool>,
}

impl Sample {
    pub fn random(shape: &Shape, batch: usize, rng: &mut Rng) -> Self {
        let mut normals = |n: usize| -> Vec<f32> { (0..n).map(|_| rng.normal() as f32).collect() };
        let (inputs, next_inputs) = (normals(batch * shape.n_inputs), normals(batch * shape.n_inputs));
        let rewards = normals(batch);
        let actions = (0..batch).map(|_| rng.below(shape.n_actions)).collect();
        Self { inputs, actions, rewards, next_inputs, done: (0..batch).map(|_| rng.below(3) == 0).collect() }
    }

    pub fn batch(&self) -> Batch<'_> {
        let Self { inputs, actions, rewards, next_inputs, done } = self;
        Batch { inputs, actions, rewards, next_inputs, done }
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
        let out = layer.weight.iter().zip(&layer.bias).map(|(row, b)| {
            let sum = b + row.iter().zip(h).map(|(w, h)| w * h).sum::<f64>();
            if l + 1 < net.len() { sum.max(0.0) } else { sum }
        });
        let out = out.collect();
        all.push(out);
    }
    all
}

/// y_1..y_K of one transition.
fn targets(target: &Net, rule: Rule, k: usize, next: &[f64], reward: f64, done: bool) -> Vec<f64> {
    if done {
        return vec![reward; k];
    }
    let score = score::Score::buffered(&rule.buffer, k).with_tie_break(rule.tie_break);
    let sorted: Vec<Vec<f64>> = forward(target, next).chunks(k).map(score::sort).collect();
    let scores: Vec<f64> = sorted.iter().map(|z| score.of(z)).collect();
    sorted[score::argmax(&scores)].iter().map(|z| reward + z).collect()
}

fn row(rows: &[f32], n: usize, sample: usize) -> Vec<f64> {
    rows[sample * n..(sample + 1) * n].iter().copied().map(f64::from).collect()
}

/// 𝒥 as a function of the online parameters, for targets that stay as they are.
pub fn loss(online: &Net, target: &Net, rule: Rule, k: usize, sample: &Sample) -> f64 {
    let n_inputs = online[0].weight[0].len();
    let batch = sample.actions.len();
    let one = |s: usize| {
        let y = targets(
            target,
            rule,
            k,
            &row(&sample.next_inputs, n_inputs, s),
            sample.rewards[s].into(),
            sample.done[s],
        );
        let z = forward(online, &row(&sample.inputs, n_inputs, s));
        let a = sample.actions[s];
        huber::critic_loss(rule.kappa, &y, &z[a * k..(a + 1) * k])
    };
    (0..batch).map(one).sum::<f64>() / batch as f64
}

/// ∂𝒥/∂θ.
pub fn gradient(online: &Net, target: &Net, rule: Rule, k: usize, sample: &Sample) -> Net {
    let n_inputs = online[0].weight[0].len();
    let batch = sample.actions.len();
    let eta = buffer::eta(k);
    let mut total = zeros_like(online);
    for s in 0..batch {
        let y = targets(
            target,
            rule,
            k,
            &row(&sample.next_inputs, n_inputs, s),
            sample.rewards[s].into(),
            sample.done[s],
        );
        let h = activations(online, &row(&sample.inputs, n_inputs, s));
        let mut d_z = vec![0.0; h.last().unwrap().len()];
        for (j, eta) in eta.iter().enumerate() {
            let output = sample.actions[s] * k + j;
            for &y in &y {
                let delta = y - h.last().unwrap()[output];
                let below = if delta < 0.0 { 1.0 } else { 0.0 };
                let slope = (eta - below).abs() * delta.clamp(-rule.kappa, rule.kappa) / rule.kappa;
                d_z[output] -= slope / (batch * k * k) as f64;
            }
        }
        for l in (0..online.len()).rev() {
            for (o, &d) in d_z.iter().enumerate() {
                total[l].bias[o] += d;
                for (i, &h) in h[l].iter().enumerate() {
                    total[l].weight[o][i] += d * h;
                }
            }
            let back =
                |i: usize| d_z.iter().enumerate().map(|(o, d)| d * online[l].weight[o][i]).sum::<f64>();
            d_z = h[l].iter().enumerate().map(|(i, &h)| if h > 0.0 { back(i) } else { 0.0 }).collect();
        }
    }
    total
}

impl Critic {
    pub fn train_step(&mut self, rule: Rule, k: usize, sample: &Sample, adam: &Adam, zeta: f64) {
        let gradient = gradient(&self.online, &self.target, rule, k, sample);
        self.steps += 1;
        let t = self.steps as f64;
        let gradient = flat(&gradient);
        let [mut online, mut target, mut first, mut second] =
            [&self.online, &self.target, &self.first, &self.second].map(flat);
        for (i, g) in gradient.into_iter().enumerate() {
            first[i] = adam.beta_1 * first[i] + (1.0 - adam.beta_1) * g;
            second[i] = adam.beta_2 * second[i] + (1.0 - adam.beta_2) * g * g;
            let m_hat = first[i] / (1.0 - adam.beta_1.powf(t));
            let v_hat = second[i] / (1.0 - adam.beta_2.powf(t));
            online[i] -= adam.learning_rate * adam.weight_decay * online[i];
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

fn zeros_like(net: &Net) -> Net {
    let mut zeros = net.clone();
    let n = flat(net).len();
    unflatten(&mut zeros, &vec![0.0; n]);
    zeros
}

pub fn flat(net: &Net) -> Vec<f64> {
    net.iter().flat_map(|layer| layer.weight.iter().flatten().chain(&layer.bias)).copied().collect()
}

pub fn unflatten(net: &mut Net, values: &[f64]) {
    let places = net.iter_mut().flat_map(|layer| layer.weight.iter_mut().flatten().chain(&mut layer.bias));
    for (place, &value) in places.zip(values) {
        *place = value;
    }
}

/// A network of constants: no hidden layer, all weights zero, so that its outputs are its biases.
pub fn constant(outputs: &[f64]) -> Net {
    vec![Layer { weight: vec![vec![0.0]; outputs.len()], bias: outputs.to_vec() }]
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
    let n_layers = ensemble.shape().hidden.len() + 1;
    let critic = |m: usize| {
        let [online, target, first, second] = PREFIXES.map(|prefix| -> Net {
            let layer = |l: usize| {
                let name = format!("{prefix}critic.{m}.layer.{l}");
                let n_inputs = file.tensor(&format!("{name}.weight")).unwrap().shape()[1];
                let weight =
                    floats(&format!("{name}.weight")).chunks(n_inputs).map(<[f64]>::to_vec).collect();
                Layer { weight, bias: floats(&format!("{name}.bias")) }
            };
            (0..n_layers).map(layer).collect()
        });
        Critic { online, target, first, second, steps: ensemble.steps(m) }
    };
    (0..ensemble.shape().n_critics).map(critic).collect()
}

/// The ensemble of given online and target networks, fresh moments, made by way of a file.
pub fn ensemble(n_actions: usize, n_quantiles: usize, critics: &[(Net, Net)], kernels: Kernels) -> Ensemble {
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
    let net = &critics[0].0;
    let hidden: Vec<String> = net[1..].iter().map(|layer| layer.weight[0].len().to_string()).collect();
    let metadata = format!(
        "version=1 n_inputs={} hidden={} n_actions={n_actions} n_quantiles={n_quantiles} n_critics={}",
        net[0].weight[0].len(),
        hidden.join(","),
        critics.len()
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
