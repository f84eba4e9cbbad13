//! Observations of an environment as the agent wants them: an index, bits or bytes of an image, or numbers in single precision.

use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::Observation;
use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::intern;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

use crate::convert::{shown, type_error, value_error};

/// The observations of one environment.
#[derive(Clone, Debug, Deserialize, FromPyObject, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[pyo3(from_item_all)]
pub struct Format {
    /// `Discrete`: how many there are.
    pub n: Option<usize>,
    /// `Discrete`: the smallest.
    pub start: i64,
    /// `Discrete`: whether neighbours are alike.
    pub ordered: bool,
    /// Everything else: the shape of an array.
    pub shape: Vec<usize>,
    /// Bytes of an image: how many equal groups its first axis stacks, oldest first, shifting by one a step; 1 for none.
    pub stack: Option<usize>,
    /// Zeros and ones.
    #[serde(default)]
    pub bits: bool,
    /// An image whose last axis holds its channels. Networks want them first.
    #[serde(default)]
    pub channels_last: bool,
}

impl Format {
    /// As the agent knows them.
    pub fn space(&self) -> ObservationSpace {
        match (self.n, self.stack) {
            (Some(n), _) => ObservationSpace::Discrete { n, ordered: self.ordered },
            (None, Some(stack)) => ObservationSpace::Bytes { shape: self.planes(), stack },
            (None, None) if self.bits => ObservationSpace::Bits(self.planes()),
            (None, None) => ObservationSpace::Dense(self.shape.clone()),
        }
    }

    /// The shape with the channels first. Images in a stack are channels, too.
    fn planes(&self) -> Vec<usize> {
        match (self.channels_last, self.shape.as_slice()) {
            (true, &[height, width, channels]) => vec![channels, height, width],
            (true, &[stack, height, width, channels]) | (false, &[stack, channels, height, width]) => {
                vec![stack * channels, height, width]
            }
            _ => self.shape.clone(),
        }
    }

    /// The numbers of an image in the order of [`planes`](Self::planes).
    fn channels_first<T: Copy>(&self, numbers: Vec<T>) -> Vec<T> {
        let (true, &[.., height, width, channels]) = (self.channels_last, self.shape.as_slice()) else {
            return numbers;
        };
        let cells = height * width;
        let mut planes = Vec::with_capacity(numbers.len());
        for image in numbers.chunks_exact((cells * channels).max(1)) {
            planes.extend((0..channels).flat_map(|c| (0..cells).map(move |cell| image[cell * channels + c])));
        }
        planes
    }

    /// Reads one observation; a wrong one is a `ValueError` or a `TypeError` that says what is wrong.
    pub fn read(&self, seen: &Bound<'_, PyAny>) -> PyResult<Observation> {
        let Some(n) = self.n else {
            return match self.stack {
                Some(_) => Ok(Observation::Bytes(self.channels_first(self.read_bytes(seen)?))),
                None if self.bits => self.read_bits(seen).map(Observation::Bits),
                None => self.read_dense(seen).map(Observation::Dense),
            };
        };
        let py = seen.py();
        let index = match seen.extract::<i64>() {
            Ok(index) => index.checked_sub(self.start).and_then(|index| usize::try_from(index).ok()),
            // An integer, but a huge one.
            Err(error) if error.is_instance_of::<PyOverflowError>(py) => None,
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                return Err(type_error(format!("want an integer observation, got {}", shown(seen))));
            }
            // An exception of the observation's own.
            Err(error) => return Err(error),
        };
        if let Some(index) = index.filter(|&index| index < n) {
            return Ok(Observation::Index(index));
        }
        let (low, high) = (self.start, i128::from(self.start) + n as i128 - 1);
        Err(value_error(format!("want an observation from {low} to {high}, got {}", shown(seen))))
    }

    fn read_bytes(&self, seen: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
        let array = self.array(seen)?;
        if let Some(bytes) = numbers::<u8, u8>(&array, |x| x) {
            return Ok(bytes);
        }
        // Another type of numbers will do, if they are bytes.
        let byte = |x: &f32| (0.0..=255.0).contains(x) && x.fract() == 0.0;
        let values = self.read_dense(seen)?;
        match values.iter().position(|x| !byte(x)) {
            None => Ok(values.into_iter().map(|x| x as u8).collect()),
            Some(at) => {
                let got = values[at];
                Err(value_error(format!(
                    "want whole numbers from 0 to 255, got {got} at position {at} of the observation"
                )))
            }
        }
    }

    fn read_bits(&self, seen: &Bound<'_, PyAny>) -> PyResult<Vec<u64>> {
        let values = match numbers::<bool, f32>(&self.array(seen)?, |x| f32::from(u8::from(x))) {
            Some(values) => values,
            None => self.read_dense(seen)?,
        };
        if let Some(at) = values.iter().position(|&x| x != 0.0 && x != 1.0) {
            let got = values[at];
            return Err(value_error(format!(
                "want zeros and ones, got {got} at position {at} of the observation"
            )));
        }
        let word = |values: &[f32]| {
            values.iter().enumerate().fold(0, |word, (i, &x)| word | u64::from(x == 1.0) << i)
        };
        Ok(self.channels_first(values).chunks(64).map(word).collect())
    }

    /// The observation as an array of the right shape.
    fn array<'py>(&self, seen: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let py = seen.py();
        let seen = if let Ok(array) = seen.cast::<PyUntypedArray>() {
            if !seen.is_exact_instance_of::<PyUntypedArray>() && is_masked(seen)? {
                return Err(value_error("want an observation of numbers, some of it is masked"));
            }
            array.clone()
        } else {
            // Lists, scalars, whatever NumPy can make an array of.
            let array = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (seen,))?;
            array.cast_into::<PyUntypedArray>()?
        };
        if seen.shape() != self.shape {
            let (want, got) = (&self.shape, seen.shape());
            return Err(value_error(format!("want an observation of shape {want:?}, got {got:?}")));
        }
        Ok(seen)
    }

    fn read_dense(&self, seen: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
        let py = seen.py();
        let seen = self.array(seen)?;
        let values = if let Some(values) = numbers::<f32, f32>(&seen, |x| x) {
            values
        } else if let Some(values) = numbers::<f64, f32>(&seen, |x| x as f32) {
            values
        } else if let Some(values) = numbers::<u8, f32>(&seen, f32::from) {
            values
        } else if let Some(values) = numbers::<i64, f32>(&seen, |x| x as f32) {
            values
        } else {
            let kind: String = seen.dtype().getattr(intern!(py, "kind"))?.extract()?;
            if !"biuf".contains(&kind) {
                return Err(type_error(format!(
                    "want an observation of numbers, got dtype {}",
                    seen.dtype()
                )));
            }
            // Copied, so that it lies in memory as it should.
            let numpy = py.import(intern!(py, "numpy"))?;
            let single = numpy.call_method1(intern!(py, "array"), (&seen, intern!(py, "float32")))?;
            numbers::<f32, f32>(&single.cast_into::<PyUntypedArray>()?, |x| x)
                .ok_or_else(|| type_error(format!("want an observation of numbers, got {}", shown(&seen))))?
        };
        match values.iter().position(|x| !x.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let got = values[at];
                Err(value_error(format!(
                    "want finite numbers, got {got} at position {at} of the observation"
                )))
            }
        }
    }
}

/// Whether an array of a class of its own (such as `numpy.ma.MaskedArray`) has elements that do not count.
fn is_masked(array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let py = array.py();
    py.import(intern!(py, "numpy.ma"))?.call_method1(intern!(py, "is_masked"), (array,))?.is_truthy()
}

/// The elements in row-major order, when the array is of this type and lies in memory as such an array does.
fn numbers<T: Element + Copy, U>(
    array: &Bound<'_, PyUntypedArray>,
    convert: impl Fn(T) -> U,
) -> Option<Vec<U>> {
    // A field of packed records need not begin where a number can.
    let array = array.cast::<PyArrayDyn<T>>().ok().filter(|array| array.is_aligned())?;
    let array = array.try_readonly().ok()?;
    Some(match array.as_slice() {
        Ok(values) => values.iter().map(|&x| convert(x)).collect(),
        Err(_) => array.as_array().iter().map(|&x| convert(x)).collect(),
    })
}
