//! Conversion of parameters, and of buffers with one value per parameter, to safetensors files.
//!
//! Buffers with one value per parameter (moments, moving averages of weights, gradients) have a
//! flat layout: all parameters one after the other, in the order of the parameter store. In files,
//! each parameter is a tensor with its own name and shape, so that checkpoints can be inspected and
//! checked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;

use candle_core::{Result as CandleResult, Tensor};
use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use taper_ops::{Parameter, ParameterStore};

use super::files::HashedFile;
use crate::{CheckpointError, FileEntry};

/// Named tensor with `f32` values in main memory.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) values: Vec<f32>,
}

/// A named tensor that can be written.
pub(crate) trait Written {
    /// Name of the tensor.
    fn name(&self) -> &str;

    /// Shape of the tensor.
    fn shape(&self) -> &[usize];

    /// Values of the tensor, in row-major order.
    fn values(&self) -> CandleResult<Cow<'_, [f32]>>;
}

impl Written for Named {
    fn name(&self) -> &str {
        &self.name
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn values(&self) -> CandleResult<Cow<'_, [f32]>> {
        Ok(self.values.as_slice().into())
    }
}

/// A named tensor of a running training. Its values are copied to main memory only when it is
/// written, so that there is never a second copy of all tensors. If training changes the values
/// before that, the file gets the changed values.
#[derive(Debug)]
pub(crate) struct Live {
    name: String,
    shape: Vec<usize>,
    /// One-dimensional tensors that contain the values, one tensor after the other.
    parts: Vec<Tensor>,
}

impl Written for Live {
    fn name(&self) -> &str {
        &self.name
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn values(&self) -> CandleResult<Cow<'_, [f32]>> {
        let copy = |part: &Tensor| {
            // On a device other than the CPU, Candle would copy the whole buffer to main memory,
            // even if `part` is only a range of it.
            let part = if part.device().is_cpu() { part } else { &part.force_contiguous()? };
            part.to_vec1::<f32>()
        };
        let values = match self.parts.as_slice() {
            [whole] => copy(whole)?,
            parts => parts.iter().map(copy).collect::<CandleResult<Vec<_>>>()?.concat(),
        };
        Ok(values.into())
    }
}

/// Returns the parameters of `store` as tensors to write. The name of a tensor is `prefix` followed
/// by the parameter's name.
pub(crate) fn live_parameters(store: &ParameterStore, prefix: &str) -> CandleResult<Vec<Live>> {
    let live = |parameter: &Parameter| {
        let values = parameter.var().as_detached_tensor().flatten_all()?;
        Ok(Live {
            name: format!("{prefix}{}", parameter.name()),
            shape: parameter.shape().to_vec(),
            parts: vec![values],
        })
    };
    store.parameters().iter().map(live).collect()
}

/// Divides a flat buffer into tensors to write, one for each parameter of `store`. The name of a
/// tensor is `prefix` followed by the parameter's name. `parts`: the buffer as several tensors, one
/// after the other.
pub(crate) fn live_parts(
    store: &ParameterStore,
    prefix: &str,
    parts: &[Tensor],
) -> CandleResult<Vec<Live>> {
    let cut = |parameter: &Parameter| {
        let (first, end) = (parameter.offset(), parameter.offset() + parameter.len());
        let mut start = 0;
        let mut narrowed = Vec::new();
        for part in parts {
            let (from, to) = (first.max(start), end.min(start + part.elem_count()));
            if from < to {
                narrowed.push(part.narrow(0, from - start, to - from)?);
            }
            start += part.elem_count();
        }
        let name = format!("{prefix}{}", parameter.name());
        Ok(Live { name, shape: parameter.shape().to_vec(), parts: narrowed })
    };
    store.parameters().iter().map(cut).collect()
}

/// Writes a safetensors file of f32, one tensor after the other, so that only one tensor is in
/// memory at a time.
///
/// `tensors`: names and shapes of the tensors. `values` returns the values of the tensor with a
/// given name. It is called in ascending order of names, which is also the order in the file.
///
/// # Errors
/// If the file cannot be written, a name occurs twice, the number of values does not fit a shape,
/// or `values` fails.
pub fn write_tensors<'a>(
    path: &Path,
    tensors: impl IntoIterator<Item = (String, Vec<usize>)>,
    mut values: impl FnMut(&str) -> Result<Cow<'a, [f32]>, CheckpointError>,
) -> Result<FileEntry, CheckpointError> {
    let corrupt = |reason: String| CheckpointError::Corrupt { path: path.to_owned(), reason };
    let mut tensors: Vec<_> = tensors.into_iter().collect();
    tensors.sort();
    if let Some(twice) = tensors.windows(2).find(|two| two[0].0 == two[1].0) {
        return Err(corrupt(format!("two tensors are called '{}'", twice[0].0)));
    }
    let mut end = 0;
    let info = |(name, shape): &(String, Vec<usize>)| {
        let start = end;
        end += 4 * shape.iter().product::<usize>();
        let data_offsets = (start, end);
        (name.clone(), TensorInfo { dtype: Dtype::F32, shape: shape.clone(), data_offsets })
    };
    let infos = tensors.iter().map(info).collect();
    // The metadata has only one key, because equal runs must give equal files, and several keys
    // would be written in the varying order of a hash map.
    let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let mut header = Metadata::new(Some(metadata), infos)
        .map_err(|error| corrupt(error.to_string()))
        .and_then(|all| serde_json::to_vec(&all).map_err(|error| corrupt(error.to_string())))?;
    // The header is padded so that values begin at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(HEAD as usize), b' ');
    let mut file = HashedFile::create_large(path)?;
    file.write((header.len() as u64).to_le_bytes().to_vec())?;
    file.write(header)?;
    for (name, shape) in &tensors {
        let values = values(name)?;
        if values.len() != shape.iter().product::<usize>() {
            return Err(corrupt(format!(
                "{} values do not fit '{name}' of shape {shape:?}",
                values.len()
            )));
        }
        for piece in values.chunks(PIECE) {
            file.write(little_endian(piece))?;
        }
    }
    file.finish()
}

/// Writes a safetensors file of the tensors `all`.
pub(crate) fn write_named<T: Written>(
    path: &Path,
    all: &[T],
) -> Result<FileEntry, CheckpointError> {
    let by_name: HashMap<&str, &T> = all.iter().map(|tensor| (tensor.name(), tensor)).collect();
    let shapes = all.iter().map(|tensor| (tensor.name().to_owned(), tensor.shape().to_vec()));
    write_tensors(path, shapes, |name| {
        let values = by_name.get(name).map_or_else(|| Ok([].as_slice().into()), |it| it.values());
        values.map_err(|source| CheckpointError::Tensor { path: path.to_owned(), source })
    })
}

/// Returns a map from the name of each tensor in the file `path` to its parameter and to the index
/// of its prefix. The name of a tensor is one of `prefixes`, followed by the name of its parameter.
///
/// # Errors
/// If a parameter has no tensor or a tensor of another shape, or if there are other tensors.
pub(crate) fn assigned<'a, S: AsRef<str>>(
    path: &Path,
    tensors: impl IntoIterator<Item = (String, Vec<usize>)>,
    parameters: &'a [Parameter],
    prefixes: &[S],
) -> Result<HashMap<String, (usize, &'a Parameter)>, CheckpointError> {
    let path = path.to_owned();
    let mut left: HashMap<String, Vec<usize>> = tensors.into_iter().collect();
    let mut wanted = HashMap::new();
    for (number, prefix) in prefixes.iter().enumerate() {
        for parameter in parameters {
            let name = format!("{}{}", prefix.as_ref(), parameter.name());
            let expected = parameter.shape().to_vec();
            match left.remove(&name) {
                Some(shape) if shape == expected => wanted.insert(name, (number, parameter)),
                Some(got) => return Err(CheckpointError::Shape { path, name, expected, got }),
                None => return Err(CheckpointError::MissingTensor { path, name, expected }),
            };
        }
    }
    // The first name is reported, because the order of a hash map is not fixed.
    match left.into_iter().min() {
        Some((name, got)) => Err(CheckpointError::UnexpectedTensor { path, name, got }),
        None => Ok(wanted),
    }
}

/// Number of bytes at the beginning of a safetensors file, before the header; they contain the
/// header's length.
pub(super) const HEAD: u64 = 8;
/// Number of values that are read or written at once.
pub(super) const PIECE: usize = 1 << 14;

/// Returns the bytes of `values` in little-endian order, as in safetensors files.
fn little_endian(values: &[f32]) -> Vec<u8> {
    let mut bytes = vec![0; size_of_val(values)];
    for (bytes, value) in bytes.as_chunks_mut().0.iter_mut().zip(values) {
        *bytes = value.to_le_bytes();
    }
    bytes
}
