//! Conversion of errors to Python's.

use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;

pyo3::create_exception!(
    taper,
    TaperError,
    PyException,
    "A request that cannot be fulfilled as given, or a computation that failed.\n\nThe message is \
     the one that the program `taper` prints: what is wrong, where, and what to do."
);

/// Makes the exception of an error, with the program's message.
pub(crate) fn exception(error: &anyhow::Error) -> PyErr {
    TaperError::new_err(taper_run::one_line(error))
}

/// Parses options that Python has written as JSON.
///
/// # Errors
/// When an option has a wrong type.
pub(crate) fn options<T: DeserializeOwned>(json: &str) -> PyResult<T> {
    serde_json::from_str(json).map_err(|error| TaperError::new_err(error.to_string()))
}
