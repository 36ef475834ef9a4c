//! Which source tokens each target token was made from, by the decoder's attention to the encoder.

use candle_core::{DType, Device, Tensor};
use serde::Serialize;
use taper_model::{Pass, Sequences, TranslationModel};

use crate::tokens::START;
use crate::{DecodingError, Result};

/// The most weights of a head that are computed at once, padding counted: 2^18 are 1 MiB a head,
/// and enough for hundreds of sentences of usual length. A translation with more of its own is
/// aligned alone.
const AT_ONCE: usize = 1 << 18;

/// The alignment of one translation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Alignment {
    /// The source token that each target token attends to most, as (source, target) positions from
    /// 0; `</s>` of either side takes no part.
    pub pairs: Vec<(usize, usize)>,
    /// For each target token the weight of each source token, `</s>` last; they sum to 1.
    pub weights: Vec<Vec<f32>>,
}

/// Aligns each of `targets`, without `<s>` and `</s>`, with its source, which ends with `</s>`.
///
/// The weights are those of the layer that its architecture says aligns best, mean over its heads, at
/// the position that predicts the token.
///
/// # Errors
/// [`DecodingError::UnequalCounts`], [`DecodingError::NoAttention`], and whatever the model reports.
pub fn align(
    model: &TranslationModel,
    sources: &[&[u32]],
    targets: &[&[u32]],
) -> Result<Vec<Alignment>> {
    let mut aligned = Vec::with_capacity(sources.len());
    align_with(model, sources, targets, |alignment| aligned.push(alignment))?;
    Ok(aligned)
}

/// As [`align`], calling `each` with one alignment after the other, so that only what it keeps of
/// them is held in memory.
///
/// # Errors
/// As [`align`].
pub fn align_with(
    model: &TranslationModel,
    sources: &[&[u32]],
    targets: &[&[u32]],
    mut each: impl FnMut(Alignment),
) -> Result<()> {
    if sources.len() != targets.len() {
        return Err(DecodingError::UnequalCounts {
            sources: sources.len(),
            targets: targets.len(),
        });
    }
    let mut done = 0;
    while done < sources.len() {
        let (sources, targets) = (&sources[done..], &targets[done..]);
        let count = fitting(sources, targets);
        align_batch(model, &sources[..count], &targets[..count])?.into_iter().for_each(&mut each);
        done += count;
    }
    Ok(())
}

/// How many sentences, at least one, may be aligned together: each takes as much as one with the
/// longest source and target would.
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
    model: &TranslationModel,
    sources: &[&[u32]],
    targets: &[&[u32]],
) -> Result<Vec<Alignment>> {
    let weights = attention(model, sources, targets)?;
    // (B, T, S) row-major, with the lengths of the longest.
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
            let words = source.len().saturating_sub(1);
            let pairs = weights
                .iter()
                .enumerate()
                .filter_map(|(target, row)| Some((heaviest(&row[..words])?, target)))
                .collect();
            Alignment { pairs, weights }
        })
        .collect())
}

/// The weights of the chosen layer, the only ones that are kept, mean over heads: `(B, T, S)`.
fn attention(model: &TranslationModel, sources: &[&[u32]], targets: &[&[u32]]) -> Result<Tensor> {
    let layer = model.aligning_layer().ok_or(DecodingError::NoAttention)?;
    let memory = model
        .encode(&Sequences::pack(sources), &Pass::evaluate())
        .map_err(|error| DecodingError::model("encode", error))?;
    let inputs: Vec<Vec<u32>> = targets.iter().map(|target| [&[START], *target].concat()).collect();
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
        .and_then(|all| all.mean(1))
        .map_err(failed)
}

fn failed(error: candle_core::Error) -> DecodingError {
    DecodingError::model("align", error)
}

/// The place of the largest weight, the first among equals.
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
        // A long sentence makes all beside it as large as itself.
        let mut mixed = [short; 100];
        mixed[50] = long;
        assert_eq!(fitting(&mixed, &[short; 100]), 50);
        assert_eq!(fitting(&mixed, &mixed), 50);
        let longer: &[u32] = &[4; 4000];
        assert_eq!(fitting(&[longer, short], &[longer, short]), 1);
    }
}
