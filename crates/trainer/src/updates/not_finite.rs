//! Search for the first parameter or layer with a value that is not finite. It only runs after an
//! update was skipped because of such a value, so it need not be fast.

use std::collections::HashMap;

use candle_core::{DType, Result as CandleResult, Tensor};
use taper_model::{Batch, Model};

use super::Leaf;
use super::batch_shares::BatchShares;
use crate::{BoxError, TrainingConfig};

/// Number of target tokens that are computed at a time. The search uses plain Candle operations.
/// Their graph keeps all intermediate results, and all logits several times, so a large batch could
/// need too much memory.
const TOKENS_AT_ONCE: usize = 1024;

/// Describes in words where a value that is not finite first occurred in update `step`. Only the
/// `batches` of this process are searched. Returns `None` if no single batch has such a value.
///
/// First checks the weights. Then repeats the computation of each batch: checks the outputs of
/// operations in their order, and then the gradients of the batch in reverse order. So the first
/// output that is not finite was computed from finite inputs. A batch of up to [`TOKENS_AT_ONCE`]
/// tokens has the same dropout as in the update. A larger batch is divided, which changes dropout.
pub(crate) fn first_not_finite(
    model: &dyn Model,
    config: &TrainingConfig,
    step: u64,
    shares: &BatchShares,
    batches: &[Batch],
) -> Result<Option<String>, BoxError> {
    let parameters = model.parameters().parameters();
    for parameter in parameters {
        if !is_finite(parameter.var().as_tensor())? {
            return Ok(Some(format!("first in the parameter {}", parameter.name())));
        }
    }
    let names: HashMap<_, _> =
        parameters.iter().map(|parameter| (parameter.var().as_tensor().id(), parameter)).collect();
    let total = shares.total;
    for (number, batch) in shares.own_leaves().zip(batches) {
        for part in batch.divided(TOKENS_AT_ONCE) {
            // Plain Candle operations are used, because they record a graph that can be traversed.
            let leaf = Leaf { batch: &part, step, number, total, composed: true };
            let (output, _) = leaf.loss(model, config)?;
            // Parameters found so far, in the order of the computation. The output of a layer comes
            // after the layer's parameters, so the last parameter found belongs to the layer whose
            // output is checked.
            let mut met = Vec::new();
            for node in output.loss.sorted_nodes().into_iter().rev() {
                if let Some(parameter) = names.get(&node.id()) {
                    met.push(*parameter);
                } else if !is_finite(node)? {
                    let layer =
                        met.last().map_or("the embedding", |parameter| layer_of(parameter.name()));
                    return Ok(Some(format!("first in the output of {layer}")));
                }
            }
            let gradients = output.loss.backward()?;
            for parameter in met.into_iter().rev() {
                if let Some(gradient) = gradients.get(parameter.var())
                    && !is_finite(gradient)?
                {
                    return Ok(Some(format!("first in the gradient of {}", parameter.name())));
                }
            }
        }
    }
    Ok(None)
}

/// Name of the layer of a parameter.
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
