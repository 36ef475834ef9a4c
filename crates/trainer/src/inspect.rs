//! Where a value that is not finite first shows: asked only after an update was skipped for one, so
//! it may be slow.

use std::collections::HashMap;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_model::{Pass, Sequences, Transformer};

use crate::update::loss_scale;
use crate::{BoxError, MicroBatch, TrainingConfig};

/// Target tokens that are looked at together. The graph of the composed operations holds every
/// intermediate result, all logits several times over, and the memory of a large batch was only
/// found to suffice for the fused ones.
const TOKENS_AT_ONCE: usize = 1024;

/// The origin, in words, of the value that is not finite in update `step` on `batches`.
///
/// Makes the passes of the update again, and looks at everything they computed: first at the
/// weights, then at the outputs of each batch in the order of the computation, of which the first
/// that is not finite had finite inputs, then at the gradients in the reverse order. Dropout is
/// that of the update in batches of up to [`TOKENS_AT_ONCE`]; larger ones are divided.
pub(crate) fn first_not_finite(
    model: &Transformer,
    config: &TrainingConfig,
    step: u64,
    batches: &[MicroBatch],
) -> Result<String, BoxError> {
    let parameters = model.parameters().parameters();
    for parameter in parameters {
        if !is_finite(parameter.var().as_tensor())? {
            return Ok(format!("first in the parameter {}", parameter.name()));
        }
    }
    let names: HashMap<_, _> =
        parameters.iter().map(|parameter| (parameter.var().as_tensor().id(), parameter)).collect();
    let total: usize = batches.iter().map(MicroBatch::target_tokens).sum();
    for (index, batch) in batches.iter().enumerate() {
        for part in divided(batch) {
            // The composed operations leave a graph that can be walked.
            let pass = Pass::train(config.seed, step, index as u64).composed();
            let scale = loss_scale(model) / total as f64;
            let output = model.loss(
                &part.source,
                &part.target_in,
                &part.target_out,
                &config.objective(),
                scale,
                &pass,
            )?;
            // The parameters met so far, in the order of the computation: a layer's output follows
            // its parameters.
            let mut met = Vec::new();
            for node in output.loss.sorted_nodes().into_iter().rev() {
                if let Some(parameter) = names.get(&node.id()) {
                    met.push(*parameter);
                } else if !is_finite(node)? {
                    let layer =
                        met.last().map_or("the embedding", |parameter| layer_of(parameter.name()));
                    return Ok(format!("first in the output of {layer}"));
                }
            }
            let gradients = output.loss.backward()?;
            for parameter in met.into_iter().rev() {
                if let Some(gradient) = gradients.get(parameter.var())
                    && !is_finite(gradient)?
                {
                    return Ok(format!("first in the gradient of {}", parameter.name()));
                }
            }
        }
    }
    Ok("no part shows it by itself: their sum overflows".to_owned())
}

/// The sentence pairs of a batch in parts of at most [`TOKENS_AT_ONCE`] target tokens, a longer
/// pair by itself.
fn divided(batch: &MicroBatch) -> Vec<MicroBatch> {
    let mut parts: Vec<MicroBatch> = Vec::new();
    let (mut source_at, mut target_at) = (0, 0);
    for (&source, &target) in batch.source.lengths.iter().zip(&batch.target_in.lengths) {
        if parts.last().is_none_or(|part| part.target_tokens() + target > TOKENS_AT_ONCE) {
            let nothing = || Sequences { ids: Vec::new(), lengths: Vec::new() };
            parts.push(MicroBatch {
                source: nothing(),
                target_in: nothing(),
                target_out: Vec::new(),
            });
        }
        if let Some(part) = parts.last_mut() {
            part.source.ids.extend_from_slice(&batch.source.ids[source_at..source_at + source]);
            part.source.lengths.push(source);
            part.target_in
                .ids
                .extend_from_slice(&batch.target_in.ids[target_at..target_at + target]);
            part.target_in.lengths.push(target);
            part.target_out.extend_from_slice(&batch.target_out[target_at..target_at + target]);
        }
        source_at += source;
        target_at += target;
    }
    parts
}

/// The name of the layer that a parameter belongs to.
fn layer_of(parameter: &str) -> &str {
    parameter.rsplit_once('.').map_or(parameter, |(layer, _)| layer)
}

fn is_finite(tensor: &Tensor) -> CandleResult<bool> {
    if !tensor.dtype().is_float() {
        return Ok(true);
    }
    let values: Vec<f32> = tensor.flatten_all()?.to_dtype(DType::F32)?.to_vec1()?;
    Ok(values.iter().all(|value| value.is_finite()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_batch_is_divided_between_its_sentences() {
        let row = |length: usize, first: u32| (first..first + length as u32).collect::<Vec<_>>();
        let lengths = [(3, 600), (5, 424), (1, 1), (2, 3000), (4, 7)];
        let sources: Vec<_> = lengths.iter().map(|&(source, _)| row(source, 0)).collect();
        let targets: Vec<_> = lengths.iter().map(|&(_, target)| row(target, 10)).collect();
        let batch = MicroBatch {
            source: Sequences::pack(&sources),
            target_in: Sequences::pack(&targets),
            target_out: targets.concat(),
        };
        let parts = divided(&batch);
        assert_eq!(
            parts.iter().map(MicroBatch::target_tokens).collect::<Vec<_>>(),
            [1024, 1, 3000, 7]
        );
        let ids = |pick: fn(&MicroBatch) -> &Vec<u32>| {
            parts.iter().flat_map(pick).copied().collect::<Vec<_>>()
        };
        assert_eq!(ids(|part| &part.source.ids), batch.source.ids);
        assert_eq!(ids(|part| &part.target_in.ids), batch.target_in.ids);
        assert_eq!(ids(|part| &part.target_out), batch.target_out);
        assert_eq!(parts[0].source.lengths, [3, 5]);
    }
}
