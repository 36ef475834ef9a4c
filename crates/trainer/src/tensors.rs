//! Parameters as flat buffers and as safetensors files.
//!
//! Moments, the moving average and gradients share the parameter store's flat layout; in files each
//! parameter has its own name and shape, so that a checkpoint can be inspected and checked tensor by tensor.

use std::collections::HashMap;
use std::path::Path;

use candle_core::{Result as CandleResult, Tensor};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use taper_ops::{Parameter, ParameterStore};

use crate::CheckpointError;

/// A named tensor of `f32` on the host.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// A flat buffer cut into tensors, each named as its parameter with `prefix` in front.
pub(crate) fn name_parts(store: &ParameterStore, prefix: &str, flat: &Tensor) -> CandleResult<Vec<Named>> {
    let values: Vec<f32> = flat.to_vec1()?;
    let cut = |parameter: &Parameter| Named {
        name: format!("{prefix}{}", parameter.name()),
        shape: parameter.shape().to_vec(),
        values: values[parameter.offset()..parameter.offset() + parameter.len()].to_vec(),
    };
    Ok(store.parameters().iter().map(cut).collect())
}

/// The bytes of a safetensors file.
pub(crate) fn encode(path: &Path, tensors: &[Named]) -> Result<Vec<u8>, CheckpointError> {
    let corrupt = |error| CheckpointError::Corrupt { path: path.to_owned(), reason: format!("{error}") };
    let bytes: Vec<Vec<u8>> = tensors.iter().map(|tensor| tensor.values.iter().flat_map(|value| value.to_le_bytes()).collect()).collect();
    let views = tensors
        .iter()
        .zip(&bytes)
        .map(|(tensor, bytes)| Ok((tensor.name.as_str(), TensorView::new(Dtype::F32, tensor.shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(corrupt)?;
    // One key only: the writer puts them in the order of a hash map, and equal runs must give equal bytes.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    safetensors::serialize(views, Some(metadata)).map_err(corrupt)
}

/// The tensors of a safetensors file, by name in ascending order.
pub(crate) fn decode(path: &Path, bytes: &[u8]) -> Result<Vec<Named>, CheckpointError> {
    let corrupt = |reason: String| CheckpointError::Corrupt { path: path.to_owned(), reason };
    let file = SafeTensors::deserialize(bytes).map_err(|error| corrupt(error.to_string()))?;
    let mut views = file.tensors();
    views.sort_by(|a, b| a.0.cmp(&b.0));
    views
        .into_iter()
        .map(|(name, view)| {
            if view.dtype() != Dtype::F32 {
                return Err(corrupt(format!("tensor '{name}' has type {:?}, expected F32", view.dtype())));
            }
            let values = view.data().as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
            Ok(Named { name, shape: view.shape().to_vec(), values })
        })
        .collect()
}

/// Takes the tensors whose names begin with `prefix` out of `tensors`, joined in the layout of the store.
pub(crate) fn take_flat(path: &Path, store: &ParameterStore, prefix: &str, tensors: &mut Vec<Named>) -> Result<Vec<f32>, CheckpointError> {
    let mut flat = vec![0f32; store.len()];
    for parameter in store.parameters() {
        let name = format!("{prefix}{}", parameter.name());
        let expected = parameter.shape().to_vec();
        let Ok(at) = tensors.binary_search_by(|tensor| tensor.name.as_str().cmp(&name)) else {
            return Err(CheckpointError::MissingTensor { path: path.to_owned(), name, expected });
        };
        let tensor = tensors.remove(at);
        if tensor.shape != expected {
            return Err(CheckpointError::Shape { path: path.to_owned(), name, expected, got: tensor.shape });
        }
        flat[parameter.offset()..parameter.offset() + parameter.len()].copy_from_slice(&tensor.values);
    }
    Ok(flat)
}

/// Refuses tensors that nothing took.
pub(crate) fn refuse_rest(path: &Path, tensors: Vec<Named>) -> Result<(), CheckpointError> {
    tensors
        .into_iter()
        .next()
        .map_or(Ok(()), |Named { name, shape: got, .. }| Err(CheckpointError::UnexpectedTensor { path: path.to_owned(), name, got }))
}
