//! The Transformer as a step model.

use candle_core::{DType, Device};
use taper_model::{DecodeState, Sequences, Transformer};

use crate::{DecodingError, Result, StepModel};

impl StepModel for Transformer {
    type State = DecodeState;

    fn vocabulary_size(&self) -> usize {
        self.vocab_target()
    }

    fn start(&self, sources: &[&[u32]]) -> Result<DecodeState> {
        Transformer::start(self, &Sequences::pack(sources)).map_err(|error| DecodingError::model("start", error))
    }

    fn step(&self, state: &mut DecodeState, tokens: &[u32]) -> Result<Vec<f32>> {
        let logits = Transformer::step(self, state, tokens).map_err(|error| DecodingError::model("step", error))?; // (R, V)
        logits
            .to_device(&Device::Cpu)
            .and_then(|logits| logits.to_dtype(DType::F32))
            .and_then(|logits| logits.flatten_all())
            .and_then(|logits| logits.to_vec1())
            .map_err(|error: candle_core::Error| DecodingError::model("step", error))
    }

    fn select(&self, state: &mut DecodeState, rows: &[usize]) -> Result<()> {
        state.select(rows).map_err(|error| DecodingError::model("select rows", error))
    }
}
