//! Ensembles as safetensors files; the layout is described in the [crate documentation](crate#files).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::path::Path;

use safetensors::tensor::{Dtype, SafeTensors, TensorView};
use thiserror::Error;

use crate::critic::Critic;
use crate::ensemble::Ensemble;
use crate::shape::{Convolution, Layer, Shape, ShapeError, Sight};

/// The one key of the file's metadata. A single one, because safetensors writes several in random order.
const KEY: &str = "bqrl_nn";
const STEPS: &str = "adam.step";
/// No training makes more steps; adding to a larger number might overflow.
const MOST_STEPS: u64 = 1 << 53;

/// A file that holds no ensemble.
#[derive(Debug, Error)]
pub enum LoadError {
    /// The file cannot be read.
    #[error("reading the file: {0}")]
    Io(#[from] std::io::Error),
    /// Not a safetensors file, or a damaged one.
    #[error("not a safetensors file: {0}")]
    Format(#[from] safetensors::SafeTensorError),
    /// The metadata is absent or not ours.
    #[error("metadata {KEY:?} should be \"{want}\", got {got:?}")]
    Metadata {
        /// The expected value.
        want: &'static str,
        /// The value in the file.
        got: Option<String>,
    },
    /// The sizes are impossible.
    #[error(transparent)]
    Shape(#[from] ShapeError),
    /// A tensor is absent, or there is one too many.
    #[error("tensor {name:?} is {what}")]
    Tensor {
        /// Its name.
        name: String,
        /// Missing, or unexpected.
        what: &'static str,
    },
    /// A tensor has the wrong type or size.
    #[error("tensor {name:?} should be {want_type} {want:?}, got {got_type} {got:?}")]
    TensorShape {
        /// Its name.
        name: String,
        /// The right type.
        want_type: String,
        /// The right size.
        want: Vec<usize>,
        /// The type in the file.
        got_type: String,
        /// The size in the file.
        got: Vec<usize>,
    },
    /// A number that no training can have produced.
    #[error("tensor {name:?} holds {value} at {index}, want {want}")]
    Value {
        /// Its name.
        name: String,
        /// Where.
        index: usize,
        /// The number.
        value: f64,
        /// The allowed values.
        want: &'static str,
    },
}

impl Ensemble {
    /// The whole state as the bytes of a safetensors file: the same bytes for the same state.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut tensors = BTreeMap::new();
        for (m, critic) in self.critics.iter().enumerate() {
            for (prefix, floats) in PREFIXES.iter().zip(sets(critic)) {
                for (l, layer) in self.network.layers.iter().enumerate() {
                    let weights = floats[layer.weights()].chunks_exact(layer.stride());
                    let weights = weights.flat_map(|row| &row[..layer.columns]);
                    let [weight, others @ ..] = names(prefix, m, l);
                    tensors.insert(weight, (size(layer), bytes(weights)));
                    for (name, place) in others.into_iter().zip(vectors(layer)) {
                        tensors.insert(name, (vec![place.len()], bytes(&floats[place])));
                    }
                }
            }
        }
        let steps: Vec<u8> = self.critics.iter().flat_map(|critic| critic.steps.to_le_bytes()).collect();
        let views =
            tensors.iter().map(|(name, (shape, bytes))| (name.as_str(), view(Dtype::F32, shape, bytes)));
        let steps = (STEPS, view(Dtype::I64, &[self.critics.len()], &steps));
        let metadata = HashMap::from([(KEY.to_owned(), describe(self.shape()))]);
        safetensors::serialize(views.chain([steps]), Some(metadata))
            .expect("our own header is small and valid")
    }

    /// The ensemble of [`to_bytes`](Self::to_bytes), on the widest kernels of this machine and one thread.
    ///
    /// Training continues with the same bits if kernels and binary are the same too.
    pub fn from_bytes(file: &[u8]) -> Result<Self, LoadError> {
        let (_, header) = SafeTensors::read_metadata(file)?;
        let shape = parse(header.metadata().as_ref().and_then(|metadata| metadata.get(KEY)))?;
        shape.check()?;
        let file: BTreeMap<String, TensorView> =
            SafeTensors::deserialize(file)?.tensors().into_iter().collect();
        // Checked before memory is allocated: with the right names and sizes, the ensemble is no larger than its file.
        check_tensors(&file, &shape)?;
        let mut ensemble = Self::zeros(shape)?;
        for (m, critic) in ensemble.critics.iter_mut().enumerate() {
            let Critic { online, target, first, second, .. } = critic;
            for (prefix, floats) in PREFIXES.iter().zip([online, target, first, second]) {
                for (l, layer) in ensemble.network.layers.iter().enumerate() {
                    let [weight, others @ ..] = names(prefix, m, l);
                    let weights = read(&file, &weight)?;
                    let rows = floats[layer.weights()].chunks_exact_mut(layer.stride());
                    for (row, values) in rows.zip(weights.chunks_exact(layer.columns)) {
                        row[..layer.columns].copy_from_slice(values);
                    }
                    for (name, place) in others.iter().zip(vectors(layer)) {
                        floats[place].copy_from_slice(&read(&file, name)?);
                    }
                }
            }
        }
        let steps = file[STEPS].data().as_chunks().0.iter().map(|&bytes| i64::from_le_bytes(bytes));
        for (m, (critic, steps)) in ensemble.critics.iter_mut().zip(steps).enumerate() {
            let counted = u64::try_from(steps).ok().filter(|&steps| steps <= MOST_STEPS);
            critic.steps = counted.ok_or_else(|| LoadError::Value {
                name: STEPS.to_owned(),
                index: m,
                value: steps as f64,
                want: "a number from 0 to 2^53",
            })?;
        }
        Ok(ensemble)
    }

    /// Writes [`to_bytes`](Self::to_bytes).
    pub fn save(&self, path: &Path) -> std::io::Result<()> {
        std::fs::write(path, self.to_bytes())
    }

    /// Reads a file that [`save`](Self::save) wrote.
    pub fn load(path: &Path) -> Result<Self, LoadError> {
        Self::from_bytes(&std::fs::read(path)?)
    }
}

const SECOND: &str = "adam.v.";

/// The name prefixes of the four parameter sets of a critic, in the order of [`sets`].
const PREFIXES: [&str; 4] = ["", "target.", "adam.m.", SECOND];

fn sets(critic: &Critic) -> [&[f32]; 4] {
    [&critic.online, &critic.target, &critic.first, &critic.second]
}

fn names(prefix: &str, critic: usize, layer: usize) -> [String; 4] {
    let parts = ["weight", "bias", "norm.weight", "norm.bias"];
    parts.map(|part| format!("{prefix}critic.{critic}.layer.{layer}.{part}"))
}

/// The size of W.
fn size(layer: &Layer) -> Vec<usize> {
    let columns = layer.window.as_ref().map_or(vec![layer.columns], |window| window.size.to_vec());
    [vec![layer.rows], columns].concat()
}

/// Where bias, gain and shift lie; the latter two only in a layer that is normalised.
fn vectors(layer: &Layer) -> Vec<Range<usize>> {
    let all = [layer.bias(), layer.gain(), layer.shift()];
    all.into_iter().take(if layer.norm { 3 } else { 1 }).collect()
}

fn bytes<'a>(floats: impl IntoIterator<Item = &'a f32>) -> Vec<u8> {
    floats.into_iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn view<'a>(dtype: Dtype, shape: &[usize], bytes: &'a [u8]) -> TensorView<'a> {
    TensorView::new(dtype, shape.to_vec(), bytes).expect("a tensor is as long as its shape says")
}

/// Refuses a file that lacks a tensor, has one too many, or one of the wrong type or size.
fn check_tensors(file: &BTreeMap<String, TensorView>, shape: &Shape) -> Result<(), LoadError> {
    let mut expected = BTreeSet::new();
    let mut check = |name: String, dtype: Dtype, want: &[usize]| {
        let Some(tensor) = file.get(&name) else {
            return Err(LoadError::Tensor { name, what: "missing" });
        };
        if (tensor.dtype(), tensor.shape()) != (dtype, want) {
            let (want_type, got_type) = (format!("{dtype:?}"), format!("{:?}", tensor.dtype()));
            let (want, got) = (want.to_vec(), tensor.shape().to_vec());
            return Err(LoadError::TensorShape { name, want_type, want, got_type, got });
        }
        expected.insert(name);
        Ok(())
    };
    for m in 0..shape.n_critics {
        for prefix in PREFIXES {
            for (l, layer) in shape.layers().iter().enumerate() {
                let [weight, others @ ..] = names(prefix, m, l);
                check(weight, Dtype::F32, &size(layer))?;
                for (name, place) in others.into_iter().zip(vectors(layer)) {
                    check(name, Dtype::F32, &[place.len()])?;
                }
            }
        }
    }
    check(STEPS.to_owned(), Dtype::I64, &[shape.n_critics])?;
    match file.keys().find(|&name| !expected.contains(name)) {
        Some(name) => Err(LoadError::Tensor { name: name.clone(), what: "unexpected" }),
        None => Ok(()),
    }
}

/// Finite numbers; second moments are not negative.
fn read(file: &BTreeMap<String, TensorView>, name: &str) -> Result<Vec<f32>, LoadError> {
    let values: Vec<f32> =
        file[name].data().as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let is_second = name.starts_with(SECOND);
    if let Some(index) = values.iter().position(|value| !value.is_finite() || (is_second && *value < 0.0)) {
        let want = if is_second { "a finite number, at least 0" } else { "a finite number" };
        return Err(LoadError::Value { name: name.to_owned(), index, value: values[index].into(), want });
    }
    Ok(values)
}

/// For instance `version=1 n_inputs=28 hidden=64,64 n_actions=2 n_quantiles=51 n_critics=5`. With normalised layers, several
/// heads or twins, `version=3`, and `layer_norm=true n_heads=2 n_twins=1` after the hidden layers. With convolutions, `version=4`,
/// and `planes=4,10,10 convolutions=16x3x1` (channels, kernel, stride of each) before them.
fn describe(shape: &Shape) -> String {
    let Shape { n_inputs, sight, hidden, layer_norm, n_heads, n_twins, n_actions, n_quantiles, n_critics } =
        shape;
    let joined = |numbers: &[usize]| numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let hidden = joined(hidden);
    let seen = sight.as_ref().map_or(String::new(), |Sight { planes, convolutions }| {
        let one = |c: &Convolution| format!("{}x{}x{}", c.channels, c.kernel, c.stride);
        let convolutions: Vec<String> = convolutions.iter().map(one).collect();
        format!(" planes={} convolutions={}", joined(planes), convolutions.join(","))
    });
    let heads = format!(" layer_norm={layer_norm} n_heads={n_heads} n_twins={n_twins}");
    let (version, more) = match (sight, layer_norm, n_heads, n_twins) {
        (Some(_), ..) => (4, heads),
        (None, false, 1, 1) => (1, String::new()),
        (None, ..) => (3, heads),
    };
    format!(
        "version={version} n_inputs={n_inputs}{seen} hidden={hidden}{more} n_actions={n_actions} n_quantiles={n_quantiles} \
         n_critics={n_critics}"
    )
}

fn numbers(text: &str, between: char) -> Option<Vec<usize>> {
    text.split(between).map(|number| number.parse().ok()).collect()
}

fn parse(metadata: Option<&String>) -> Result<Shape, LoadError> {
    let want = "version=1 n_inputs=… hidden=…,… n_actions=… n_quantiles=… n_critics=…";
    let shape = metadata.and_then(|text| {
        let mut fields = text.split(' ');
        let mut field = |name| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let version = field("version")?;
        let plain = match version {
            "1" => true,
            "3" | "4" => false,
            _ => return None,
        };
        let n_inputs = field("n_inputs")?.parse().ok()?;
        let sight = if version == "4" {
            let planes = numbers(field("planes")?, ',')?.try_into().ok()?;
            let one = |text: &str| match numbers(text, 'x')?[..] {
                [channels, kernel, stride] => Some(Convolution { channels, kernel, stride }),
                _ => None,
            };
            Some(Sight {
                planes,
                convolutions: field("convolutions")?.split(',').map(one).collect::<Option<_>>()?,
            })
        } else {
            None
        };
        let hidden = field("hidden")?;
        let widths = hidden.split(',').filter(|_| !hidden.is_empty());
        let shape = Shape {
            n_inputs,
            sight,
            hidden: widths.map(str::parse).collect::<Result<_, _>>().ok()?,
            layer_norm: if plain { false } else { field("layer_norm")?.parse().ok()? },
            n_heads: if plain { 1 } else { field("n_heads")?.parse().ok()? },
            n_twins: if plain { 1 } else { field("n_twins")?.parse().ok()? },
            n_actions: field("n_actions")?.parse().ok()?,
            n_quantiles: field("n_quantiles")?.parse().ok()?,
            n_critics: field("n_critics")?.parse().ok()?,
        };
        fields.next().is_none().then_some(shape)
    });
    shape.ok_or_else(|| LoadError::Metadata { want, got: metadata.cloned() })
}
