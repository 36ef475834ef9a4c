//! Attention as nodes of an ONNX graph. In shapes, B is the batch size, T the number of tokens, D
//! the width of the model, H the number of query heads, Hkv the number of key-value heads, and Dh
//! the width of a head.

use anyhow::Result;
use taper_model::QueryKeyNorm;

use super::graph::Attribute;
use super::layers::Writer;
use super::positions::Angles;

/// Names of the graph's results that contain the keys and the values of attention, each of shape
/// (B, Hkv, T, Dh).
#[derive(Debug, Clone)]
pub(super) struct KeyValue {
    pub(super) key: String,
    pub(super) value: String,
}

impl Writer<'_> {
    /// Adds self-attention, `(B, T, D)` → `(B, T, D)`. Also returns the keys and values of all
    /// tokens: first the keys and values of earlier tokens, which are in `past`, and then the new
    /// ones.
    pub(super) fn self_attention(
        &mut self,
        x: &str,
        name: &str,
        (angles, biases): (Option<&Angles>, Option<&str>),
        past: Option<&KeyValue>,
    ) -> Result<(String, KeyValue)> {
        let shape = self.model.attention_shape();
        let all = self.linear(x, &format!("{name}.qkv"))?;
        let widths = [shape.query_width(), shape.key_value_width(), shape.key_value_width()];
        let parts = self.graph.split(&all, &widths);
        let mut query = self.heads(&parts[0], shape.heads, &format!("{name}.query_norm"))?;
        let mut key = self.heads(&parts[1], shape.key_value_heads, &format!("{name}.key_norm"))?;
        let mut value = self.heads(&parts[2], shape.key_value_heads, "")?;
        if let Some(angles) = angles {
            query = self.rotated(&query, angles);
            key = self.rotated(&key, angles);
        }
        if let Some(past) = past {
            let axis = [("axis", Attribute::Integer(2))];
            key = self.graph.node_with("Concat", &[&past.key, &key], &axis);
            value = self.graph.node_with("Concat", &[&past.value, &value], &axis);
        }
        let key_value = KeyValue { key, value };
        Ok((self.attended(query, &key_value, biases, name)?, key_value))
    }

    /// Adds the keys and values computed from the encoder's output `encoded`, for the
    /// cross-attention called `name` in the decoder.
    pub(super) fn encoder_key_value(&mut self, encoded: &str, name: &str) -> Result<KeyValue> {
        let shape = self.model.attention_shape();
        let both = self.linear(encoded, &format!("{name}.kv"))?;
        let parts = self.graph.split(&both, &[shape.key_value_width(); 2]);
        let key = self.heads(&parts[0], shape.key_value_heads, &format!("{name}.key_norm"))?;
        Ok(KeyValue { key, value: self.heads(&parts[1], shape.key_value_heads, "")? })
    }

    /// Adds attention of a decoder to an encoder, `(B, T, D)` → `(B, T, D)`. `padding` is the name
    /// of biases that are added to the scores, so that padding gets no attention.
    pub(super) fn cross_attention(
        &mut self,
        x: &str,
        name: &str,
        key_value: &KeyValue,
        padding: &str,
    ) -> Result<String> {
        let query = self.linear(x, &format!("{name}.q"))?;
        let heads = self.model.heads;
        let query = self.heads(&query, heads, &format!("{name}.query_norm"))?;
        self.attended(query, key_value, Some(padding), name)
    }

    /// Divides the last dimension into heads, and normalises queries or keys if the model has the
    /// norm called `norm`: `(B, T, H·Dh)` → `(B, H, T, Dh)`.
    fn heads(&mut self, x: &str, heads: usize, norm: &str) -> Result<String> {
        let width = self.model.attention_shape().head_width;
        let of_all = self.model.query_key_norm == QueryKeyNorm::AllHeads;
        let mut x = x.to_owned();
        if of_all {
            x = self.norm_if_any(x, norm)?;
        }
        let shape = self.graph.integers(&[0, 0, heads as i64, width as i64]);
        x = self.graph.node("Reshape", &[&x, &shape]);
        if !of_all {
            x = self.norm_if_any(x, norm)?;
        }
        Ok(self.exchanged(&x, [0, 2, 1, 3]))
    }

    fn exchanged(&mut self, x: &str, order: [i64; 4]) -> String {
        let order = [("perm", Attribute::Integers(order.to_vec()))];
        self.graph.node_with("Transpose", &[x], &order)
    }

    /// If several query heads share keys and values, repeats these so that each query head has its
    /// own: `(B, Hkv, T, Dh)` → `(B, H, T, Dh)`.
    fn repeated(&mut self, x: &str) -> String {
        let shape = self.model.attention_shape();
        if shape.key_value_heads == shape.heads {
            return x.to_owned();
        }
        let group = (shape.heads / shape.key_value_heads) as i64;
        let x = self.unsqueezed(x, &[2]);
        let repeats = self.graph.integers(&[1, 1, group, 1, 1]);
        let x = self.graph.node("Tile", &[&x, &repeats]);
        let target = self.graph.integers(&[0, shape.heads as i64, -1, shape.head_width as i64]);
        self.graph.node("Reshape", &[&x, &target])
    }

    /// Adds softmax attention for the queries, of shape (B, H, T, Dh), and the output projection of
    /// its result.
    fn attended(
        &mut self,
        query: String,
        key_value: &KeyValue,
        biases: Option<&str>,
        name: &str,
    ) -> Result<String> {
        let shape = self.model.attention_shape();
        let usual = 1.0 / (shape.head_width as f64).sqrt();
        let query = self.scaled(query, self.model.attention_scale.unwrap_or(usual));
        let (key, value) = (self.repeated(&key_value.key), self.repeated(&key_value.value));
        let key = self.exchanged(&key, [0, 1, 3, 2]);
        let mut scores = self.graph.node("MatMul", &[&query, &key]);
        if let Some(biases) = biases {
            scores = self.graph.node("Add", &[&scores, biases]);
        }
        let axis = [("axis", Attribute::Integer(-1))];
        let weights = self.graph.node_with("Softmax", &[&scores], &axis);
        let result = self.graph.node("MatMul", &[&weights, &value]);
        let result = self.exchanged(&result, [0, 2, 1, 3]);
        let joined = self.graph.integers(&[0, 0, shape.query_width() as i64]);
        let result = self.graph.node("Reshape", &[&result, &joined]);
        self.linear(&result, &format!("{name}.out"))
    }
}
