//! `Law`: the law of a return, and its functionals.

use bqrl_math::ReturnLaw;
use bqrl_math::buffer::{Buffer, check_tau};
use bqrl_mdp::evaluate::Evaluation;
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;

use crate::convert::level_error;

/// The law of a return.
#[pyclass(module = "bqrl._bqrl", frozen)]
pub struct Law {
    pub law: ReturnLaw,
    mean: f64,
}

impl Law {
    pub fn new(evaluation: &Evaluation) -> Self {
        Self { law: evaluation.law.clone(), mean: evaluation.mean }
    }

    pub fn of(law: ReturnLaw, mean: f64) -> Self {
        Self { law, mean }
    }
}

#[pymethods]
impl Law {
    #[getter]
    fn mean(&self) -> f64 {
        self.mean
    }

    /// The returns that can occur, rising.
    #[getter]
    fn values<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.law.values().to_vec().into_pyarray(py)
    }

    /// How likely each is.
    #[getter]
    fn probabilities<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.law.probabilities().to_vec().into_pyarray(py)
    }

    /// Q_τ.
    fn quantile(&self, risk_level: f64) -> PyResult<f64> {
        Ok(self.law.quantile(check_tau(risk_level).map_err(level_error)?))
    }

    /// Q_τ^β.
    fn buffered_quantile(&self, risk_level: f64, beta: f64) -> PyResult<f64> {
        Ok(self.law.buffered_quantile(&Buffer::new(risk_level, beta).map_err(level_error)?))
    }

    /// P(R ≥ value); values that miss it by rounding count.
    fn probability_at_least(&self, value: f64) -> f64 {
        let slack = 1e-9 * (1.0 + value.abs());
        self.law.probability_at_least(value - slack)
    }
}
