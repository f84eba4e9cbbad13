//! Statistics of returns.

use bqrl_math::buffer::Buffer;
use bqrl_math::interval::quantile_interval;
use bqrl_math::law::ReturnLaw;
use numpy::{IntoPyArray, PyReadonlyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::convert::value_error;

/// Mean, Q_τ and Q_τ^β of a law.
pub fn return_stats<'py>(
    py: Python<'py>,
    law: &ReturnLaw,
    mean: f64,
    buffer: &Buffer,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    dict.set_item("mean", mean)?;
    dict.set_item("quantile", law.quantile(buffer.tau()))?;
    dict.set_item("buffered_quantile", law.buffered_quantile(buffer))?;
    dict.set_item("values", law.values().to_vec().into_pyarray(py))?;
    dict.set_item("probabilities", law.probabilities().to_vec().into_pyarray(py))?;
    Ok(dict)
}

/// The same of a sample, with a distribution-free interval of Q_τ; `None` when the sample is too small for one.
#[pyfunction]
pub fn summary<'py>(
    py: Python<'py>,
    returns: PyReadonlyArray1<'py, f64>,
    level: (f64, f64),
    confidence: f64,
) -> PyResult<Bound<'py, PyDict>> {
    let buffer = Buffer::new(level.0, level.1).map_err(value_error)?;
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(value_error(format!("confidence must lie in (0, 1), got {confidence}")));
    }
    let returns = returns.as_array().to_vec();
    let law = ReturnLaw::from_samples(&returns).map_err(value_error)?;
    let dict = return_stats(py, &law, law.mean(), &buffer)?;
    let interval = quantile_interval(&returns, buffer.tau(), confidence);
    dict.set_item("interval", interval.map(|interval| (interval.low, interval.high)))?;
    Ok(dict)
}

/// 1 − τ in words: "9 times in 10" for 0.1.
#[pyfunction]
pub fn often(risk_level: f64) -> String {
    bqrl_cli::pictures::often(risk_level)
}
