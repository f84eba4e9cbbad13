//! Statistics of returns that were played.

use bqrl_math::buffer::check_tau;
use bqrl_math::interval;
use bqrl_math::law::ReturnLaw;
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;

use crate::convert::{level_error, value_error};
use crate::law::Law;

/// The law of a sample.
#[pyfunction]
pub fn sample_law(returns: PyReadonlyArray1<'_, f64>) -> PyResult<Law> {
    let law = ReturnLaw::from_samples(&returns.as_array().to_vec()).map_err(value_error)?;
    let mean = law.mean();
    Ok(Law::of(law, mean))
}

/// Two order statistics that enclose Q_τ with this confidence, whatever the law; `None` when there are too few returns.
#[pyfunction]
pub fn quantile_interval(
    returns: PyReadonlyArray1<'_, f64>,
    risk_level: f64,
    confidence: f64,
) -> PyResult<Option<(f64, f64)>> {
    let tau = check_tau(risk_level).map_err(level_error)?;
    if !(confidence > 0.0 && confidence < 1.0) {
        return Err(value_error(format!("confidence must lie in (0, 1), got {confidence}")));
    }
    let found = interval::quantile_interval(&returns.as_array().to_vec(), tau, confidence);
    Ok(found.map(|interval| (interval.low, interval.high)))
}

/// 1 − τ in words: "9 times in 10" for 0.1.
#[pyfunction]
pub fn often(risk_level: f64) -> String {
    bqrl_cli::pictures::often(risk_level)
}
