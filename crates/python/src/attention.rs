//! Attention weights of a model on a text.

use pyo3::prelude::*;
use serde_json::json;
use taper_run::attention::{self, attention_page};

use crate::array::Array;
use crate::error::TaperError;
use crate::report::page_language;

/// Attention weights of every layer and head on one text.
#[pyclass(frozen, module = "taper._native")]
pub(crate) struct AttentionMap(attention::AttentionMap);

impl AttentionMap {
    pub(crate) fn new(map: attention::AttentionMap) -> Self {
        Self(map)
    }
}

#[pymethods]
impl AttentionMap {
    /// Texts and layers as JSON, without the weights.
    #[getter]
    fn record(&self) -> String {
        let layer = |layer: &attention::AttentionLayer| {
            json!({
                "part": layer.part,
                "layer": layer.layer,
                "queries": layer.queries,
                "keys": layer.keys,
            })
        };
        json!({
            "text": self.0.text,
            "translation": self.0.translation,
            "layers": self.0.layers.iter().map(layer).collect::<Vec<_>>(),
        })
        .to_string()
    }

    /// Returns the weights of the layer at `index`, with the shape (heads, queries, keys).
    fn weights(&self, index: usize) -> PyResult<Array> {
        let layer = self.0.layers.get(index);
        let layer = layer.ok_or_else(|| TaperError::new_err(format!("no layer {index}")))?;
        let values = layer.heads.iter().flatten().flatten().copied().collect();
        let shape = vec![layer.heads.len(), layer.queries.len(), layer.keys.len()];
        Ok(Array::new(values, shape))
    }

    /// Returns an HTML page that shows any layer and head, in English (`en`) or Chinese (`zh`).
    fn page(&self, language: &str) -> PyResult<String> {
        Ok(attention_page(&self.0, page_language(language)?))
    }
}
