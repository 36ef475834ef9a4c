//! Python class for tokenizers.

use std::path::PathBuf;

use pyo3::prelude::*;

use crate::error::exception;

/// A trained tokenizer, which converts text to token ids and token ids to text.
#[pyclass(frozen, module = "taper._native")]
pub(crate) struct Tokenizer(taper_data::Tokenizer);

impl Tokenizer {
    pub(crate) fn new(tokenizer: &taper_data::Tokenizer) -> Self {
        Self(tokenizer.clone())
    }
}

fn result<T>(result: taper_data::Result<T>) -> PyResult<T> {
    result.map_err(|error| exception(&error.into()))
}

#[pymethods]
impl Tokenizer {
    #[staticmethod]
    fn load(path: PathBuf) -> PyResult<Self> {
        result(taper_data::Tokenizer::load(&path)).map(Self)
    }

    fn encode(&self, py: Python<'_>, texts: Vec<String>) -> PyResult<Vec<Vec<u32>>> {
        py.allow_threads(|| result(self.0.encode_batch(&texts)))
    }

    fn decode(&self, py: Python<'_>, rows: Vec<Vec<u32>>) -> PyResult<Vec<String>> {
        py.allow_threads(|| result(self.0.decode_batch(&rows)))
    }

    fn token(&self, id: u32) -> Option<String> {
        self.0.token(id)
    }

    fn id(&self, token: &str) -> Option<u32> {
        self.0.id(token)
    }

    #[getter]
    fn vocabulary_size(&self) -> usize {
        self.0.vocabulary_size()
    }
}
