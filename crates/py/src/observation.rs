//! What an environment shows, as the agent wants it: an index, or numbers in single precision, converted once.

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
    /// What numbers are divided by: 255 for bytes of an image, else 1.
    pub divisor: f32,
}

impl Format {
    /// As the agent knows them.
    pub fn space(&self) -> ObservationSpace {
        match self.n {
            Some(n) => ObservationSpace::Discrete { n, ordered: self.ordered },
            None => ObservationSpace::Dense(self.shape.clone()),
        }
    }

    /// Reads one observation; a wrong one is a `ValueError` or a `TypeError` that says what is wrong.
    pub fn read(&self, seen: &Bound<'_, PyAny>) -> PyResult<Observation> {
        let Some(n) = self.n else { return self.read_dense(seen).map(Observation::Dense) };
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

    fn read_dense(&self, seen: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
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
        let mut values = if let Some(values) = numbers::<f32>(&seen, |x| x) {
            values
        } else if let Some(values) = numbers::<f64>(&seen, |x| x as f32) {
            values
        } else if let Some(values) = numbers::<u8>(&seen, f32::from) {
            values
        } else if let Some(values) = numbers::<i64>(&seen, |x| x as f32) {
            values
        } else {
            let kind: String = seen.dtype().getattr(intern!(py, "kind"))?.extract()?;
            if !"biuf".contains(&kind) {
                let message = format!("want an observation of numbers, got dtype {}", seen.dtype());
                return Err(PyTypeError::new_err(message));
            }
            let single = seen.as_any().call_method1(intern!(py, "astype"), (intern!(py, "float32"),))?;
            numbers::<f32>(&single.cast_into::<PyUntypedArray>()?, |x| x).expect("just converted")
        };
        if self.divisor != 1.0 {
            for x in &mut values {
                *x /= self.divisor;
            }
        }
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
fn numbers<T: Element + Copy>(
    array: &Bound<'_, PyUntypedArray>,
    single: impl Fn(T) -> f32,
) -> Option<Vec<f32>> {
    let array = array.cast::<PyArrayDyn<T>>().ok()?;
    let array = array.try_readonly().ok()?;
    Some(match array.as_slice() {
        Ok(values) => values.iter().map(|&x| single(x)).collect(),
        Err(_) => array.as_array().iter().map(|&x| single(x)).collect(),
    })
}

/// A value as Python prints it, shortened.
fn describe(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    if text.chars().count() > 80 { text.chars().take(77).collect::<String>() + "…" } else { text }
}
