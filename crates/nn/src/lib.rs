//! The numeric core: an ensemble of quantile critics, trained and saved.
//!
//! ```text
//! z_θm(x, a)_j ≈ Q_{η_j}(Z(x, a))      m = 1..M critics, a of A actions, j = 1..K levels η_j = (j − ½)/K
//! ```
//!
//! One critic is a multi-layer perceptron with ReLU (normalised or not), D inputs, convolutions in front where these are planes, and one
//! or more heads of A·K outputs, in single precision. Every head has its own way to choose the next action; twins are copies of all heads. One
//! [`Ensemble::train_step`] is the paper's update of all M of them on one minibatch: target critic at x', sort,
//! buffered score, one next action, targets, quantile Huber gradient, backward pass, Adam, soft update (§3.1,
//! Eqs. 3–5). [`Ensemble::update`] and [`Ensemble::each_member`] train the same networks on any other loss.
//!
//! | module | holds |
//! |---|---|
//! | `ensemble` | the critics and the ways to train them |
//! | `rule`, `batch`, `bellman` | how targets are made from transitions and compared with outputs |
//! | `critic`, `shape` | one network: places of its parameters, forward, backward |
//! | `rows` | inputs as they are stored: floats, and planes of bits or bytes |
//! | `panels`, `aligned` | batches in memory, one sample per SIMD lane |
//! | `kernels` | the inner loops of training, one source for all instruction sets |
//! | `file` | safetensors |
//! | `workload` | the steps that benchmarks measure |
//!
//! Nothing here knows an environment. These are the kernels of networks; exact planning has vector code of its own, in
//! double precision (`plan/sweep.rs` of `bqrl-mdp`).
//!
//! # Reproducibility
//!
//! The same seed, binary and [`Kernels`] give the same bits. This holds for any number of threads, because each critic is
//! trained by one thread and no sum is split. It also holds across [`save`](Ensemble::save) and [`load`](Ensemble::load).
//! Different kernels round differently; [`Ensemble::with_kernels`] pins one.
//!
//! # Files
//!
//! A file holds everything that is needed to continue training, as plain safetensors, for critic m and layer l = 0, 1, …:
//!
//! | tensor | type | size |
//! |---|---|---|
//! | `critic.{m}.layer.{l}.weight` | F32 | `[out, in]`; of a convolution `[out, in, kernel, kernel]` |
//! | `critic.{m}.layer.{l}.bias` | F32 | `[out]` |
//! | `critic.{m}.layer.{l}.norm.weight`, `….norm.bias`, where hidden layers are normalised | F32 | `[out]`, times the positions of a convolution |
//! | `target.critic.…`, `adam.m.critic.…`, `adam.v.critic.…` | F32 | as above |
//! | `adam.step` | I64 | `[M]` |
//!
//! The metadata has one entry, `bqrl_nn`, such as
//! `version=1 n_inputs=28 hidden=64,64 n_actions=2 n_quantiles=51 n_critics=5`. Normalised layers, several heads or twins make it
//! `version=3 n_inputs=28 hidden=64,64 layer_norm=true n_heads=3 n_twins=2 n_actions=2 n_quantiles=51 n_critics=1`, and
//! convolutions `version=4 n_inputs=410 planes=4,10,10 convolutions=16x3x1 hidden=128 …` (channels, kernel, stride). Output
//! ((twin·heads + head)·A + a)·K + j is quantile j of action a. Without convolutions, in PyTorch:
//!
//! ```python
//! import torch
//! from safetensors.torch import load_file
//!
//! def critic(path, m):
//!     tensors, layers, l = load_file(path), [], 0
//!     while (name := f"critic.{m}.layer.{l}") + ".weight" in tensors:
//!         linear = torch.nn.Linear(*reversed(tensors[name + ".weight"].shape))
//!         linear.load_state_dict({"weight": tensors[name + ".weight"], "bias": tensors[name + ".bias"]})
//!         layers.append(linear)
//!         if name + ".norm.weight" in tensors:
//!             norm = torch.nn.LayerNorm(linear.out_features)
//!             norm.load_state_dict({"weight": tensors[name + ".norm.weight"], "bias": tensors[name + ".norm.bias"]})
//!             layers.append(norm)
//!         layers.append(torch.nn.ReLU())
//!         l += 1
//!     return torch.nn.Sequential(*layers[:-1])  # critic(path, 0)(x).view(-1, twins, heads, A, K)
//! ```
//!
//! With convolutions, which are always normalised here; planes and strides are in the metadata, and x begins with the planes:
//!
//! ```python
//! import torch
//! from safetensors.torch import load_file
//! from torch.nn import functional
//!
//! def seeing_critic(path, m, x, planes, strides):
//!     tensors, n, l = load_file(path), planes[0] * planes[1] * planes[2], 0
//!     x, beside = x[:, :n].view(-1, *planes), x[:, n:]
//!     while (name := f"critic.{m}.layer.{l}") + ".weight" in tensors:
//!         weight, bias = tensors[name + ".weight"], tensors[name + ".bias"]
//!         if l == len(strides):
//!             x = torch.cat([x.flatten(1), beside], 1)
//!         x = functional.conv2d(x, weight, bias, strides[l]) if l < len(strides) else functional.linear(x, weight, bias)
//!         if name + ".norm.weight" in tensors:
//!             flat, norm = x.flatten(1), (tensors[name + ".norm.weight"], tensors[name + ".norm.bias"])
//!             x = functional.layer_norm(flat, flat.shape[1:], *norm).relu().view_as(x)
//!         l += 1
//!     return x
//! ```

mod adam;
mod aligned;
mod batch;
mod bellman;
mod critic;
mod ensemble;
mod file;
mod kernels;
mod panels;
mod rows;
mod rule;
mod shape;
mod workload;

pub use adam::Adam;
pub use batch::Batch;
pub use critic::Init;
pub use ensemble::{Ensemble, Member, UpdateError, Which};
pub use file::LoadError;
pub use kernels::Kernels;
pub use panels::{Inputs, Panels};
pub use rows::{Cells, Planes, Rows};
pub use rule::{Choice, Head, RuleError, TargetRule};
pub use shape::{Convolution, Shape, ShapeError, Sight};
pub use workload::Workload;
