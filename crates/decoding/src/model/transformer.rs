//! Implementations of [`StepModel`] for the models of this project.

use candle_core::{Device, Storage, Tensor};
use taper_model::{DecodeState, Inference, Model, ModelError, Sequences, TextInference, TextState};
use taper_ops::composed::{self, Likeliest};
use taper_ops::{Kernel, Products};

use crate::{DecodingError, Result, START, StepModel};

/// Whether threads should take separate batches instead of sharing each operation. They should on a
/// CPU with a matrix kernel that packs its operands: with such a kernel, the division into batches
/// changes no bit of the results, because the result of a row does not depend on the number of
/// rows.
fn gains_from_workers(device: &Device) -> bool {
    device.is_cpu() && Kernel::best(Products::F32) != Kernel::Gemm
}

/// Writes the methods of [`StepModel`] that have the same body for each type of model that is
/// prepared for inference; `$inference` is the type.
macro_rules! steps_of {
    ($inference:ty) => {
        fn step(
            &self,
            state: &mut Self::State,
            tokens: &[u32],
            mut read: impl FnMut(&[f32]) -> Result<()>,
        ) -> Result<()> {
            let blocks = <$inference>::step(self, state, tokens)
                .map_err(|error| DecodingError::model("step", error))?;
            lend(blocks, &mut read)
        }

        fn gains_from_workers(&self) -> bool {
            gains_from_workers(self.model().device())
        }

        fn finds_likeliest(&self) -> bool {
            !self.model().device().is_cpu()
        }

        fn step_likeliest(
            &self,
            state: &mut Self::State,
            tokens: &[u32],
            count: usize,
            also: &[u32],
        ) -> Result<Vec<Likeliest>> {
            let blocks = <$inference>::step(self, state, tokens)
                .map_err(|error| DecodingError::model("step", error))?;
            likeliest(blocks, count, also)
        }

        fn select(&self, state: &mut Self::State, rows: &[usize]) -> Result<()> {
            state.select(rows).map_err(|error| DecodingError::model("select rows", error))
        }
    };
}

impl StepModel for Inference {
    type State = DecodeState;

    fn vocabulary_size(&self) -> usize {
        self.model().vocab_target()
    }

    fn longest_output(&self) -> Option<usize> {
        // `<s>` takes one of the positions.
        self.model().config().longest_sequence().map(|positions| positions.saturating_sub(1))
    }

    fn start(&self, sources: &[&[u32]]) -> Result<DecodeState> {
        Inference::start(self, &Sequences::pack(sources))
            .map_err(|error| DecodingError::model("start", error))
    }

    fn shortlists(&self) -> bool {
        true
    }

    fn start_shortlisted(&self, sources: &[&[u32]], tokens: &[u32]) -> Result<DecodeState> {
        Inference::start_shortlisted(self, &Sequences::pack(sources), tokens)
            .map_err(|error| DecodingError::model("start", error))
    }

    steps_of!(Inference);
}

/// A language model, which continues prompts: its sources are the prompts. When a batch starts, all
/// tokens of a prompt except the last are read in one pass. The last token is the input of the
/// first step.
impl StepModel for TextInference {
    type State = TextState;

    fn vocabulary_size(&self) -> usize {
        self.model().vocabulary()
    }

    /// Returns `None`: tokens beyond the context are forgotten, so outputs can have any length.
    fn longest_output(&self) -> Option<usize> {
        None
    }

    fn first_input(&self, source: &[u32]) -> u32 {
        source.last().copied().unwrap_or(START)
    }

    fn start(&self, sources: &[&[u32]]) -> Result<TextState> {
        let read: Vec<&[u32]> = sources
            .iter()
            .map(|source| source.split_last().map_or(*source, |(_, rest)| rest))
            .collect();
        TextInference::start(self, &read).map_err(|error| DecodingError::model("start", error))
    }

    steps_of!(TextInference);
}

/// Copies blocks of logits `(rows, V)` to main memory, and passes each to `read`. V is the number
/// of tokens whose logits are computed.
fn lend(
    blocks: impl Iterator<Item = std::result::Result<Tensor, ModelError>>,
    read: &mut impl FnMut(&[f32]) -> Result<()>,
) -> Result<()> {
    let failed = |error: candle_core::Error| DecodingError::model("step", error);
    for block in blocks {
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
                return Err(DecodingError::model("step", "its output did not arrive on the host"));
            }
        }
    }
    Ok(())
}

/// Finds the `count` likeliest tokens of each row `r`, and the logit of the token `also[r]`, on the
/// device. `blocks`: logits of all rows, in blocks of shape `(rows, V)`.
fn likeliest(
    blocks: impl Iterator<Item = std::result::Result<Tensor, ModelError>>,
    count: usize,
    also: &[u32],
) -> Result<Vec<Likeliest>> {
    let mut likeliest = Vec::with_capacity(also.len());
    for block in blocks {
        let logits = block.map_err(|error| DecodingError::model("step", error))?; // (rows, V)
        let of_block = logits.dim(0).and_then(|rows| {
            let also = also.get(likeliest.len()..likeliest.len() + rows).unwrap_or_default();
            composed::likeliest(&logits, count, also)
        });
        likeliest.extend(of_block.map_err(|error| DecodingError::model("step", error))?);
    }
    Ok(likeliest)
}
