//! The Transformer as a step model.

use candle_core::{Device, Storage};
use taper_model::{DecodeState, Inference, Sequences};

use crate::{DecodingError, Result, StepModel};

impl StepModel for Inference {
    type State = DecodeState;

    fn vocabulary_size(&self) -> usize {
        self.model().vocab_target()
    }

    fn longest_output(&self) -> Option<usize> {
        // `<s>` takes the first position.
        self.model().config().longest_sequence().map(|positions| positions.saturating_sub(1))
    }

    fn start(&self, sources: &[&[u32]]) -> Result<DecodeState> {
        Inference::start(self, &Sequences::pack(sources))
            .map_err(|error| DecodingError::model("start", error))
    }

    fn step(
        &self,
        state: &mut DecodeState,
        tokens: &[u32],
        mut read: impl FnMut(&[f32]) -> Result<()>,
    ) -> Result<()> {
        let failed = |error: candle_core::Error| DecodingError::model("step", error);
        for block in Inference::step(self, state, tokens)
            .map_err(|error| DecodingError::model("step", error))?
        {
            let logits = block.map_err(|error| DecodingError::model("step", error))?; // (rows, V)
            let logits = logits
                .to_device(&Device::Cpu)
                .and_then(|logits| logits.contiguous())
                .map_err(failed)?;
            let (storage, layout) = logits.storage_and_layout();
            match (&*storage, layout.contiguous_offsets()) {
                (Storage::Cpu(host), Some((from, to))) => {
                    read(&host.as_slice::<f32>().map_err(failed)?[from..to])?
                }
                _ => {
                    return Err(DecodingError::model(
                        "step",
                        "its output did not arrive on the host",
                    ));
                }
            }
        }
        Ok(())
    }

    fn select(&self, state: &mut DecodeState, rows: &[usize]) -> Result<()> {
        state.select(rows).map_err(|error| DecodingError::model("select rows", error))
    }
}
