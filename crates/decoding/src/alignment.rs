//! Alignment of target tokens with source tokens, derived from the decoder's attention to the
//! encoder.

use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use taper_model::{Architecture, Model, Pass, Sequences, TranslationModel};

use crate::forced::check_counts;
use crate::tokens::{END, START};
use crate::{DecodingError, Result};

/// Largest number of attention weights per head that are computed in one batch, including padding.
/// 2^18 weights take 1 MiB per head, and are enough for hundreds of sentences of usual length. A
/// single translation with more weights is aligned in its own batch.
const AT_ONCE: usize = 1 << 18;

/// Selects the attention weights that serve as an alignment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AlignedAttention {
    /// Index of the decoder layer, from 0. `None` selects the layer whose attention usually aligns
    /// best. In a Transformer, this is the layer before the last, or the only layer if there is
    /// just one.
    pub layer: Option<usize>,
    /// Index of the head, from 0; `None` selects the mean of all heads.
    pub head: Option<usize>,
}

impl AlignedAttention {
    /// Checks that the decoder of `model` attends to the source, and has the selected layer and
    /// head.
    ///
    /// # Errors
    /// If the model has no such attention, layer or head; the error says which layers and heads it
    /// has.
    pub fn check(self, model: &TranslationModel) -> Result<()> {
        let config = model.config();
        if self == Self::default() {
            return model.aligning_layer().map(|_| ()).ok_or(DecodingError::NoAttention);
        }
        if config.architecture != Architecture::Transformer {
            let message = "only a Transformer has layers and heads to choose from: name neither";
            return Err(DecodingError::model("align", message));
        }
        let has = |chosen: Option<usize>, count: usize| chosen.is_none_or(|one| one < count);
        if has(self.layer, config.decoder_layers) && has(self.head, config.heads) {
            return Ok(());
        }
        let named = |one: Option<usize>| one.map_or("any".to_owned(), |one| (one + 1).to_string());
        Err(DecodingError::model(
            "align",
            format!(
                "layer {} and head {} are requested, but the decoder has {} layers of {} heads",
                named(self.layer),
                named(self.head),
                config.decoder_layers,
                config.heads
            ),
        ))
    }
}

/// The alignment of one translation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Alignment {
    /// For each target token, the source token to which it attends most, as a pair of positions
    /// (source, target). Positions are counted from 0. No pair has the `</s>` of the source or of
    /// the target. No pair has a token after the `</s>` of the source, either, such as one that
    /// names a language.
    pub pairs: Vec<(usize, usize)>,
    /// For each target token, its attention weights for all tokens of the source, including `</s>`.
    /// The weights of each target token sum to 1.
    pub weights: Vec<Vec<f32>>,
}

/// Aligns each of `targets`, which have neither `<s>` nor `</s>`, with its source, which contains
/// `</s>` after the text.
///
/// The decoder predicts each target token at one of its positions. The weights of the token are the
/// attention weights of that position, in the layer and head that `attention` selects.
///
/// # Errors
/// [`DecodingError::UnequalCounts`], [`DecodingError::NoAttention`], [`DecodingError::NotFinite`],
/// and errors of the model.
pub fn align(
    model: &TranslationModel,
    attention: AlignedAttention,
    sources: &[&[u32]],
    targets: &[&[u32]],
) -> Result<Vec<Alignment>> {
    let mut aligned = Vec::with_capacity(sources.len());
    let aligner = (model, START, END);
    align_with(aligner, attention, sources, targets, |alignment| aligned.push(alignment))?;
    Ok(aligned)
}

/// Aligns like [`align`], but passes the alignments to `each` one after the other, so that only the
/// alignments of one batch are in memory. `start` is the first input of the decoder, and `end` is
/// the end token (`</s>`) in the sources.
///
/// # Errors
/// The errors of [`align`].
pub fn align_with(
    (model, start, end): (&TranslationModel, u32, u32),
    attention: AlignedAttention,
    sources: &[&[u32]],
    targets: &[&[u32]],
    mut each: impl FnMut(Alignment),
) -> Result<()> {
    check_counts(sources.len(), targets.len())?;
    let mut done = 0;
    while done < sources.len() {
        let (sources, targets) = (&sources[done..], &targets[done..]);
        let count = fitting(sources, targets);
        let (batch_sources, batch_targets) = (&sources[..count], &targets[..count]);
        let aligned = align_batch((model, start, end), attention, batch_sources, batch_targets)?;
        for (index, alignment) in aligned.into_iter().enumerate() {
            if !alignment.weights.iter().flatten().all(|weight| weight.is_finite()) {
                let (quantity, sentence) = ("the alignment", done + index);
                return Err(DecodingError::NotFinite { quantity, sentence });
            }
            each(alignment);
        }
        done += count;
    }
    Ok(())
}

/// Returns the number of sentences, from the first one on, that are aligned in the next batch: as
/// many as [`AT_ONCE`] allows, and at least one. Because of padding, each of them takes as much
/// memory as a sentence with the longest source and the longest target of the batch.
fn fitting(sources: &[&[u32]], targets: &[&[u32]]) -> usize {
    let (mut longest_source, mut longest_target) = (0, 0);
    let fits = |(before, (source, target)): &(usize, (&&[u32], &&[u32]))| {
        longest_source = longest_source.max(source.len());
        longest_target = longest_target.max(target.len() + 1);
        *before == 0 || (before + 1) * longest_source * longest_target <= AT_ONCE
    };
    sources.iter().zip(targets).enumerate().take_while(fits).count()
}

fn align_batch(
    (model, start, end): (&TranslationModel, u32, u32),
    chosen: AlignedAttention,
    sources: &[&[u32]],
    targets: &[&[u32]],
) -> Result<Vec<Alignment>> {
    if sources.iter().all(|source| source.is_empty()) {
        // The model cannot run without any token, but the choice of layer and head is checked as
        // usual.
        chosen.check(model)?;
        let nothing = |target: &&[u32]| {
            let weights = vec![Vec::new(); target.len()];
            Alignment { pairs: Vec::new(), weights }
        };
        return Ok(targets.iter().map(nothing).collect());
    }
    let weights = attention((model, start), chosen, sources, targets)?;
    // Shape (B, T, S) for B sentences, which are padded to T inputs of the decoder and S source
    // tokens.
    let (_, queries, keys) = weights.dims3().map_err(failed)?;
    let values: Vec<f32> = weights.flatten_all().and_then(|all| all.to_vec1()).map_err(failed)?;
    let rows: Vec<&[f32]> = values.chunks(keys).collect();
    Ok(sources
        .iter()
        .zip(targets)
        .enumerate()
        .map(|(sentence, (source, target))| {
            let weights: Vec<Vec<f32>> = rows[sentence * queries..][..target.len()]
                .iter()
                .map(|row| row[..source.len()].to_vec())
                .collect();
            let words = source.iter().rposition(|&token| token == end).unwrap_or(source.len());
            let pairs = weights
                .iter()
                .enumerate()
                .filter_map(|(target, row)| Some((heaviest(&row[..words])?, target)))
                .collect();
            Alignment { pairs, weights }
        })
        .collect())
}

/// Computes the attention weights of the selected layer, for the selected head or as the mean over
/// heads. The result has the shape `(B, T, S)` for B sentences, padded to T inputs of the decoder
/// and S source tokens.
fn attention(
    (model, start): (&TranslationModel, u32),
    chosen: AlignedAttention,
    sources: &[&[u32]],
    targets: &[&[u32]],
) -> Result<Tensor> {
    chosen.check(model)?;
    let memory = model
        .encode(&Sequences::pack(sources), &Pass::evaluate())
        .map_err(|error| DecodingError::model("encode", error))?;
    let inputs: Vec<Vec<u32>> = targets.iter().map(|target| [&[start], *target].concat()).collect();
    let layer = match chosen.layer {
        Some(layer) => format!("decoder.layers.{layer}.cross_attention"),
        None => model.aligning_layer().ok_or(DecodingError::NoAttention)?,
    };
    let pass = Pass::evaluate_with_attention_of(&layer);
    model
        .decode(&Sequences::pack(&inputs), &memory, &pass)
        .map_err(|error| DecodingError::model("align", error))?;
    let record = pass
        .into_attention()
        .pop()
        .ok_or_else(|| DecodingError::model("align", "no layer attends to the source"))?;
    record
        .weights
        .to_device(&Device::Cpu)
        .and_then(|all| all.to_dtype(DType::F32))
        .and_then(|all| match chosen.head {
            Some(head) => all.narrow(1, head, 1)?.squeeze(1),
            None => all.mean(1),
        })
        .map_err(failed)
}

fn failed(error: candle_core::Error) -> DecodingError {
    DecodingError::model("align", error)
}

/// Returns the index of the largest weight, or the first such index if several weights are equally
/// large; `None` if there are no weights.
fn heaviest(weights: &[f32]) -> Option<usize> {
    (0..weights.len())
        .reduce(|best, place| if weights[place] > weights[best] { place } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_aligned_at_once_is_bounded_with_its_padding() {
        let (short, long): (&[u32], &[u32]) = (&[4; 20], &[4; 400]);
        let count = fitting(&[short; 1000], &[short; 1000]);
        assert!(count > 100 && count * 20 * 21 <= AT_ONCE, "{count}");
        // Because of padding, every sentence takes as much memory as the longest sentence of its
        // batch.
        let mut mixed = [short; 100];
        mixed[50] = long;
        assert_eq!(fitting(&mixed, &[short; 100]), 50);
        assert_eq!(fitting(&mixed, &mixed), 50);
        let longer: &[u32] = &[4; 4000];
        assert_eq!(fitting(&[longer, short], &[longer, short]), 1);
    }
}
