//! What one run through the model is for: training, with dropout and gradients, or evaluation.

use candle_core::Tensor;
use std::cell::RefCell;
use taper_ops::Dropout;
use taper_ops::rng::mix;

/// One run through the model.
#[derive(Debug, Default)]
pub struct Pass {
    /// The dropout key of this pass; none when evaluating.
    dropout_key: Option<u64>,
    recorder: Option<RefCell<Vec<AttentionRecord>>>,
}

/// The attention weights of one layer.
#[derive(Debug, Clone)]
pub struct AttentionRecord {
    /// The layer's full name, such as `decoder.layers.0.cross_attention`.
    pub layer: String,
    /// `(B, H, Tq, Tk)`, zero where a sequence is shorter than the longest.
    pub weights: Tensor,
}

impl Pass {
    /// A training pass: dropout is drawn from (seed, step, micro-batch, layer), so that it can be repeated.
    #[must_use]
    pub fn train(seed: u64, step: u64, micro_batch: u64) -> Self {
        Self { dropout_key: Some(mix(seed, &[0x6472_6f70, step, micro_batch])), recorder: None }
    }

    /// A pass without dropout and without gradients.
    #[must_use]
    pub fn evaluate() -> Self {
        Self::default()
    }

    /// As [`Pass::evaluate`], and every layer's attention weights are kept.
    #[must_use]
    pub fn evaluate_with_attention() -> Self {
        Self { dropout_key: None, recorder: Some(RefCell::default()) }
    }

    /// Whether gradients are wanted.
    #[must_use]
    pub fn is_training(&self) -> bool {
        self.dropout_key.is_some()
    }

    /// The weights that layers recorded, in the order in which they ran.
    #[must_use]
    pub fn into_attention(self) -> Vec<AttentionRecord> {
        self.recorder.map(RefCell::into_inner).unwrap_or_default()
    }

    pub(crate) fn records_attention(&self) -> bool {
        self.recorder.is_some()
    }

    pub(crate) fn record(&self, layer: &str, weights: Tensor) {
        if let Some(recorder) = &self.recorder {
            recorder.borrow_mut().push(AttentionRecord { layer: layer.to_owned(), weights });
        }
    }

    /// The dropout of a site, which is a number that no other place in the model has.
    pub(crate) fn dropout(&self, rate: f64, site: u64) -> Dropout {
        match self.dropout_key {
            Some(key) if rate > 0.0 => Dropout::new(rate, mix(key, &[site])),
            _ => Dropout::none(),
        }
    }
}
