//! Values between TOML, JSON and Python, and errors as Python knows them.

use std::fmt::Display;
use std::io;

pub use bqrl_cli::terminal::one_line;
use bqrl_math::buffer::BufferError;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString, PyTuple};

/// The caller's mistake.
pub fn value_error(error: impl Display) -> PyErr {
    PyValueError::new_err(one_line(&error.to_string()))
}

/// A wrong level or width, in Python's words.
pub fn level_error(error: BufferError) -> PyErr {
    value_error(error.to_string().replace("tau", "risk_level"))
}

/// A wrong setting, in Python's words: keywords without their section, and types as Python's users call them.
pub fn setting_error(error: impl Display) -> PyErr {
    let words = [
        ("agent.", ""),
        ("run.", ""),
        ("..=", " to "),
        ("usize", "a whole number that is not negative"),
        ("u32", "a whole number that is not negative"),
        ("u64", "a whole number that is not negative"),
        ("f64", "a number"),
        ("a sequence", "a list"),
        ("a boolean", "True or False"),
        (
            "rewards without bounds",
            "rewards without bounds: give reward_bounds=(low, high) of a step's reward",
        ),
    ];
    let message = words.iter().fold(error.to_string(), |said, (from, to)| said.replace(from, to));
    let level: Vec<&str> = message.split_inclusive(|c: char| !(c.is_alphanumeric() || c == '_')).collect();
    let named = |word: &str| match word.strip_prefix("tau") {
        Some(rest) if !rest.starts_with(|c: char| c.is_alphanumeric() || c == '_') => {
            format!("risk_level{rest}")
        }
        _ => word.to_owned(),
    };
    value_error(level.into_iter().map(named).collect::<String>())
}

/// A value of a wrong kind.
pub fn type_error(error: impl Display) -> PyErr {
    PyTypeError::new_err(one_line(&error.to_string()))
}

/// The error of a file as Python knows it: `FileNotFoundError`, `PermissionError`, another `OSError`.
pub fn os_error(error: io::Error) -> PyErr {
    io::Error::new(error.kind(), one_line(&error.to_string())).into()
}

/// A setting as TOML. NumPy's numbers are numbers.
pub fn to_toml(key: &str, value: &Bound<'_, PyAny>) -> PyResult<toml::Value> {
    if value.is_instance_of::<PyBool>() {
        return Ok(value.extract::<bool>()?.into());
    }
    if let Ok(text) = value.cast::<PyString>() {
        return Ok(text.to_string().into());
    }
    if value.is_instance_of::<PyList>() || value.is_instance_of::<PyTuple>() {
        let items: PyResult<Vec<_>> = value.try_iter()?.map(|item| to_toml(key, &item?)).collect();
        return Ok(items?.into());
    }
    if value.is_instance_of::<PyFloat>() {
        return Ok(value.extract::<f64>()?.into());
    }
    if value.is_instance_of::<PyInt>() || value.hasattr("__index__")? {
        let whole = value.extract::<i64>();
        return Ok(whole.map_err(|error| beyond(value, error, &format!("{key} must be below 2^63")))?.into());
    }
    value.extract::<f64>().map(Into::into).map_err(|_| {
        let kind = value.get_type().name().map_or_else(|_| "?".to_owned(), |name| name.to_string());
        type_error(format!("{key} must be a number, text, True, False or a list of these, got {kind}"))
    })
}

/// The error of a conversion, where a number that is too large is the caller's mistake.
pub fn beyond(value: &Bound<'_, PyAny>, error: PyErr, want: &str) -> PyErr {
    if error.is_instance_of::<PyOverflowError>(value.py()) {
        value_error(format!("{want}, got {}", shown(value)))
    } else {
        error
    }
}

/// A value as Python prints it, shortened.
pub fn shown(value: &Bound<'_, PyAny>) -> String {
    let text = value.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string());
    if text.chars().count() > 80 { text.chars().take(77).collect::<String>() + "…" } else { text }
}

/// A table as a dictionary.
pub fn toml_to_py<'py>(py: Python<'py>, value: &toml::Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match value {
        toml::Value::String(text) => text.into_pyobject(py)?.into_any(),
        toml::Value::Integer(number) => number.into_pyobject(py)?.into_any(),
        toml::Value::Float(number) => number.into_pyobject(py)?.into_any(),
        toml::Value::Boolean(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        toml::Value::Datetime(time) => time.to_string().into_pyobject(py)?.into_any(),
        toml::Value::Array(items) => {
            let items: PyResult<Vec<_>> = items.iter().map(|item| toml_to_py(py, item)).collect();
            PyList::new(py, items?)?.into_any()
        }
        toml::Value::Table(table) => {
            let dict = PyDict::new(py);
            for (key, value) in table {
                dict.set_item(key, toml_to_py(py, value)?)?;
            }
            dict.into_any()
        }
    })
}

/// JSON as Python objects; null is `None`.
pub fn json_to_py<'py>(py: Python<'py>, value: &serde_json::Value) -> PyResult<Bound<'py, PyAny>> {
    use serde_json::Value;
    Ok(match value {
        Value::Null => py.None().into_bound(py),
        Value::Bool(flag) => PyBool::new(py, *flag).to_owned().into_any(),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => whole.into_pyobject(py)?.into_any(),
            None => number.as_f64().into_pyobject(py)?,
        },
        Value::String(text) => text.into_pyobject(py)?.into_any(),
        Value::Array(items) => {
            let items: PyResult<Vec<_>> = items.iter().map(|item| json_to_py(py, item)).collect();
            PyList::new(py, items?)?.into_any()
        }
        Value::Object(entries) => {
            let dict = PyDict::new(py);
            for (key, value) in entries {
                dict.set_item(key, json_to_py(py, value)?)?;
            }
            dict.into_any()
        }
    })
}
