//! Changes to a safetensors file: numbers and lengths of its arrays, names and types, so that it stays one.

use std::collections::HashMap;

use bqrl_math::rng::Rng;
use safetensors::{Dtype, SafeTensors, tensor::TensorView};

use super::{NUMBERS, number};

struct Tensor {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

pub(super) fn mutate(file: &[u8], rng: &mut Rng) -> Option<Vec<u8>> {
    let (_, header) = SafeTensors::read_metadata(file).ok()?;
    let mut metadata = header.metadata().clone();
    let mut tensors: Vec<Tensor> = SafeTensors::deserialize(file)
        .ok()?
        .iter()
        .map(|(name, view)| Tensor {
            name: name.to_owned(),
            dtype: view.dtype(),
            shape: view.shape().to_vec(),
            bytes: view.data().to_vec(),
        })
        .collect();
    // The reader lists them in the order of a hash map.
    tensors.sort_by(|a, b| a.name.cmp(&b.name));
    let k = rng.below(tensors.len().max(1));
    match (tensors.get_mut(k), rng.below(20)) {
        (None, _) => return None,
        (_, 0) => {
            tensors.remove(k);
        }
        (Some(tensor), 1) => tensor.name.push('x'),
        (Some(tensor), 2) => retype(tensor, rng),
        (_, 3) => {
            // The numbers of another array.
            let from = rng.below(tensors.len());
            let Tensor { dtype, shape, bytes, .. } = &tensors[from];
            let (dtype, shape, bytes) = (*dtype, shape.clone(), bytes.clone());
            tensors[k] = Tensor { name: tensors[k].name.clone(), dtype, shape, bytes };
        }
        (_, 4) => metadata = change_metadata(metadata, rng),
        (Some(tensor), 5..=7) => resize(tensor, rng),
        (Some(tensor), _) => (0..=rng.below(3)).for_each(|_| overwrite(tensor, rng)),
    }
    let views = tensors.iter().filter_map(|tensor| {
        let view = TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).ok()?;
        Some((tensor.name.as_str(), view))
    });
    safetensors::serialize(views, metadata).ok()
}

fn size(dtype: Dtype) -> usize {
    (dtype.bitsize() / 8).max(1)
}

/// One number becomes one at the edge.
fn overwrite(tensor: &mut Tensor, rng: &mut Rng) {
    let size = size(tensor.dtype);
    let n = tensor.bytes.len() / size;
    if n == 0 {
        return;
    }
    let float: f64 = match rng.below(10) {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        _ => NUMBERS[rng.below(NUMBERS.len())].parse().expect("a number"),
    };
    let place = &mut tensor.bytes[rng.below(n) * size..][..size];
    match tensor.dtype {
        Dtype::F32 => place.copy_from_slice(&(float as f32).to_le_bytes()),
        Dtype::F64 => place.copy_from_slice(&float.to_le_bytes()),
        // Whole numbers wrap round at the end of their type, and change by one more often than not.
        _ => {
            let mut word = [0; 8];
            word[..size.min(8)].copy_from_slice(&place[..size.min(8)]);
            let old = u64::from_le_bytes(word);
            let new = match rng.below(4) {
                0 => old.wrapping_add(1),
                1 => old.wrapping_sub(1),
                _ => number(rng).parse::<i128>().map_or(float as i64 as u64, |n| n as u64),
            };
            place.copy_from_slice(&new.to_le_bytes()[..size]);
        }
    }
}

/// One number less or more.
fn resize(tensor: &mut Tensor, rng: &mut Rng) {
    let size = size(tensor.dtype);
    if rng.below(2) == 0 && tensor.bytes.len() >= size {
        tensor.bytes.truncate(tensor.bytes.len() - size);
    } else {
        let last: Vec<u8> = tensor.bytes.iter().rev().take(size).rev().copied().collect();
        tensor.bytes.extend(if last.len() == size { last } else { vec![0; size] });
    }
    tensor.shape = vec![tensor.bytes.len() / size];
}

/// The same bytes as numbers of another type.
fn retype(tensor: &mut Tensor, rng: &mut Rng) {
    tensor.dtype = [Dtype::U8, Dtype::U32, Dtype::F32, Dtype::U64, Dtype::F64][rng.below(5)];
    let n = tensor.bytes.len() / size(tensor.dtype);
    tensor.bytes.truncate(n * size(tensor.dtype));
    tensor.shape = vec![n];
}

fn change_metadata(
    metadata: Option<HashMap<String, String>>,
    rng: &mut Rng,
) -> Option<HashMap<String, String>> {
    let mut metadata = metadata?;
    let key = metadata.keys().min()?.clone();
    let mut text = metadata[&key].clone().into_bytes();
    super::bytes::replace_number(&mut text, rng);
    metadata.insert(key, String::from_utf8(text).ok()?);
    Some(metadata)
}
