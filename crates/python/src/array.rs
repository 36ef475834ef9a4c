//! Arrays of numbers, which NumPy views without a copy.

use pyo3::prelude::*;
use pyo3::types::PyDict;

/// A dense array of f32 in row-major order, which `numpy.asarray` views.
///
/// The view keeps the array alive, and is read-only.
#[pyclass(frozen, module = "taper._native")]
pub(crate) struct Array {
    values: Vec<f32>,
    shape: Vec<usize>,
}

impl Array {
    /// Makes an array of values; their number must be the product of `shape`.
    pub(crate) fn new(values: Vec<f32>, shape: Vec<usize>) -> Self {
        debug_assert_eq!(values.len(), shape.iter().product::<usize>());
        Self { values, shape }
    }
}

#[pymethods]
impl Array {
    /// Description of the array's memory by NumPy's array interface protocol, version 3.
    #[getter(__array_interface__)]
    fn interface<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let description = PyDict::new(py);
        description.set_item("version", 3)?;
        description.set_item("typestr", if cfg!(target_endian = "big") { ">f4" } else { "<f4" })?;
        description.set_item("shape", pyo3::types::PyTuple::new(py, &self.shape)?)?;
        description.set_item("data", (self.values.as_ptr().addr(), true))?;
        Ok(description)
    }
}
