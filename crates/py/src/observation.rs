//! Observations of an environment as the agent wants them: an index, bytes of an image, or numbers in single precision.

use bqrl_mdp::env::ObservationSpace;
use bqrl_mdp::trajectory::Observation;
use numpy::{Element, PyArrayDyn, PyArrayMethods, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use serde::{Deserialize, Serialize};

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
}

impl Format {
    /// As the agent knows them.
    pub fn space(&self) -> ObservationSpace {
        match (self.n, self.stack) {
            (Some(n), _) => ObservationSpace::Discrete { n, ordered: self.ordered },
            (None, Some(stack)) => ObservationSpace::Bytes { shape: self.shape.clone(), stack },
            (None, None) => ObservationSpace::Dense(self.shape.clone()),
        }
    }

    /// Reads one observation; a wrong one is a `ValueError` or a `TypeError` that says what is wrong.
    pub fn read(&self, seen: &Bound<'_, PyAny>) -> PyResult<Observation> {
        let Some(n) = self.n else {
            return match self.stack {
                Some(_) => self.read_bytes(seen).map(Observation::Bytes),
                None => self.read_dense(seen).map(Observation::Dense),
            };
        };
        let index: i64 = seen.extract().map_err(|_| {
            PyTypeError::new_err(format!("want an integer observation, got {}", describe(seen)))
        })?;
        let index = index.wrapping_sub(self.start);
        if (0..n as i64).contains(&index) {
            return Ok(Observation::Index(index as usize));
        }
        let (low, high) = (self.start, self.start + n as i64 - 1);
        Err(PyValueError::new_err(format!(
            "want an observation from {low} to {high}, got {}",
            describe(seen)
        )))
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
                let message = format!(
                    "want whole numbers from 0 to 255, got {} at position {at} of the observation",
                    values[at]
                );
                Err(PyValueError::new_err(message))
            }
        }
    }

    /// The observation as an array of the right shape.
    fn array<'py>(&self, seen: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyUntypedArray>> {
        let py = seen.py();
        let seen = if let Ok(array) = seen.cast::<PyUntypedArray>() {
            array.clone()
        } else {
            // Lists, scalars, whatever NumPy can make an array of.
            let array = py.import(intern!(py, "numpy"))?.call_method1(intern!(py, "asarray"), (seen,))?;
            array.cast_into::<PyUntypedArray>()?
        };
        if seen.shape() != self.shape {
            let (want, got) = (&self.shape, seen.shape());
            return Err(PyValueError::new_err(format!("want an observation of shape {want:?}, got {got:?}")));
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
                let message = format!("want an observation of numbers, got dtype {}", seen.dtype());
                return Err(PyTypeError::new_err(message));
            }
            let single = seen.as_any().call_method1(intern!(py, "astype"), (intern!(py, "float32"),))?;
            numbers::<f32, f32>(&single.cast_into::<PyUntypedArray>()?, |x| x).expect("just converted")
        };
        match values.iter().position(|x| !x.is_finite()) {
            None => Ok(values),
            Some(at) => {
                let message =
                    format!("want finite numbers, got {} at position {at} of the observation", values[at]);
                Err(PyValueError::new_err(message))
            }
        }
    }
}

/// The elements in row-major order, when the array is of this type.
fn numbers<T: Element + Copy, U>(
    array: &Bound<'_, PyUntypedArray>,
    convert: impl Fn(T) -> U,
) -> Option<Vec<U>> {
    let array = array.cast::<PyArrayDyn<T>>().ok()?;
    let array = array.try_readonly().ok()?;
    Some(match array.as_slice() {
        Ok(values) => values.iter().map(|&x| convert(x)).collect(),
        Err(_) => array.as_array().iter().map(|&x| convert(x)).collect(),
    })
}

/// A value as Python prints it, shortened.
fn describe(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    if text.chars().count() > 80 { text.chars().take(77).collect::<String>() + "…" } else { text }
}
