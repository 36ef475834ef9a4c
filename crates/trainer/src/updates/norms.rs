//! Norms of the gradients and weights of each layer.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result as CandleResult, Tensor};
use serde::{Deserialize, Serialize};
use taper_ops::ParameterStore;

use crate::exchange::{Piece, everyone};
use crate::{BoxError, Exchange};

/// Euclidean norms of the gradients and weights of a layer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct NormsPerLayer {
    /// Norm of the gradients of the layer's parameters, before clipping.
    pub gradient: f32,
    /// Norm of the layer's parameters, before the update.
    pub weight: f32,
}

/// Returns the name of a parameter's layer. It is the beginning of the parameter's name up to the
/// index of the layer: `encoder.layers.3` for `encoder.layers.3.ffn.w1.weight`. If the name has no
/// index, it is the name without its last part.
fn layer_of(name: &str) -> &str {
    let mut end = 0;
    for part in name.split('.') {
        end += part.len() + usize::from(end > 0);
        if part.bytes().all(|byte| byte.is_ascii_digit()) {
            return &name[..end];
        }
    }
    name.rsplit_once('.').map_or(name, |(layer, _)| layer)
}

/// Returns the norms of all layers, by the layer's name. `pieces`: ranges of parameters that this
/// process updates. `gradients`: gradient of each of these ranges.
///
/// # Errors
/// If values cannot be read from the device, or another process has ended.
pub(super) fn of_layers(
    store: &ParameterStore,
    pieces: &[Piece],
    gradients: &[Tensor],
    exchange: &mut dyn Exchange,
) -> Result<BTreeMap<String, NormsPerLayer>, BoxError> {
    let pieces = pieces.iter().zip(gradients);
    let sums = pieces.map(|(piece, gradient)| sums_of_piece(store, piece, gradient));
    let sums = sums.collect::<CandleResult<Vec<_>>>()?;
    let mut totals: BTreeMap<String, (f64, f64)> = BTreeMap::new();
    let mut all: Vec<_> =
        everyone(exchange, sums)?.into_iter().map(IntoIterator::into_iter).collect();
    // The gradient is divided into buckets, and each bucket into one piece for each process. The
    // sums of pieces are added bucket by bucket, and within a bucket in the order of the processes'
    // ranks. This is the order of the parameters.
    loop {
        let of_bucket: Vec<Sum> = all.iter_mut().filter_map(Iterator::next).flatten().collect();
        if of_bucket.is_empty() && all.iter().all(|rest| rest.len() == 0) {
            break;
        }
        for (layer, gradient, weight) in of_bucket {
            let total = totals.entry(layer).or_default();
            total.0 += f64::from_bits(gradient);
            total.1 += f64::from_bits(weight);
        }
    }
    // If a layer is divided among processes, the last bits of its f64 sums depend on the division.
    // After rounding to f32, the norms usually do not show this.
    let root = |(gradient, weight): (f64, f64)| NormsPerLayer {
        gradient: gradient.sqrt() as f32,
        weight: weight.sqrt() as f32,
    };
    Ok(totals.into_iter().map(|(layer, total)| (layer, root(total))).collect())
}

/// Name of a layer, and the bits of two sums of squares: of its gradients and of its weights.
type Sum = (String, u64, u64);

/// Returns the sums of squares for each parameter, or part of a parameter, in a piece.
fn sums_of_piece(
    store: &ParameterStore,
    piece: &Piece,
    gradient: &Tensor,
) -> CandleResult<Vec<Sum>> {
    let piece_range = piece.own_range();
    let gradients = on_host(gradient)?;
    let weights = on_host(&store.part(piece_range.clone())?)?;
    let squares =
        |values: &[f32]| values.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
    let mut sums = Vec::new();
    for parameter in store.parameters() {
        let start = parameter.offset().max(piece_range.start);
        let end = (parameter.offset() + parameter.len()).min(piece_range.end);
        if start >= end {
            continue;
        }
        let range = start - piece_range.start..end - piece_range.start;
        let [gradient, weight] =
            [squares(&gradients[range.clone()]), squares(&weights[range])].map(f64::to_bits);
        sums.push((layer_of(parameter.name()).to_owned(), gradient, weight));
    }
    Ok(sums)
}

fn on_host(flat: &Tensor) -> CandleResult<Vec<f32>> {
    flat.to_dtype(DType::F32)?.to_device(&Device::Cpu)?.to_vec1()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::{Layout, SingleProcess};

    #[test]
    fn parameters_belong_to_the_layer_that_their_name_counts() {
        assert_eq!(layer_of("encoder.layers.3.ffn.w1.weight"), "encoder.layers.3");
        assert_eq!(layer_of("decoder.final_norm.gamma"), "decoder.final_norm");
        assert_eq!(layer_of("embedding"), "embedding");
    }

    #[test]
    fn norms_are_of_whole_layers() {
        let mut store = ParameterStore::new(&Device::Cpu);
        store.add("layers.0.weight", &[2], vec![3.0, 0.0]).expect("add");
        store.add("layers.0.bias", &[1], vec![4.0]).expect("add");
        store.add("layers.10.weight", &[1], vec![-2.0]).expect("add");
        let layout = Layout::new(&store, &*crate::OptimizerConfig::default().build());
        let pieces = [Piece::new(&layout, 0..store.len(), 0, 1)];
        let gradient = Tensor::new(&[1f32, 2.0, 2.0, 0.5], &Device::Cpu).expect("four");
        let alone = &mut SingleProcess::default();
        let norms = of_layers(&store, &pieces, &[gradient], alone).expect("norms");
        assert_eq!(norms["layers.0"], NormsPerLayer { gradient: 3.0, weight: 5.0 });
        assert_eq!(norms["layers.10"], NormsPerLayer { gradient: 0.5, weight: 2.0 });
    }
}
