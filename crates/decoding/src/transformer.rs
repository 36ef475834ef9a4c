//! The Transformer as a step model.

use candle_core::{DType, Device, Storage};
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

    fn step<T>(&self, state: &mut DecodeState, tokens: &[u32], read: impl FnOnce(&[f32]) -> Result<T>) -> Result<T> {
        let logits = Transformer::step(self, state, tokens).map_err(|error| DecodingError::model("step", error))?; // (R, V)
        let failed = |error: candle_core::Error| DecodingError::model("step", error);
        let logits = logits
            .to_device(&Device::Cpu)
            .and_then(|logits| logits.to_dtype(DType::F32))
            .and_then(|logits| logits.contiguous())
            .map_err(failed)?;
        let (storage, layout) = logits.storage_and_layout();
        match (&*storage, layout.contiguous_offsets()) {
            (Storage::Cpu(host), Some((from, to))) => read(&host.as_slice::<f32>().map_err(failed)?[from..to]),
            _ => Err(DecodingError::model("step", "its output did not arrive on the host")),
        }
    }

    fn select(&self, state: &mut DecodeState, rows: &[usize]) -> Result<()> {
        state.select(rows).map_err(|error| DecodingError::model("select rows", error))
    }
}
