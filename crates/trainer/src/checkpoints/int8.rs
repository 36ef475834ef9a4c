//! Weights in int8, which need a quarter of the memory of f32. They are for translation, not for
//! training.
//!
//! A matrix is saved as a tensor of type I8. The scales of its rows are saved as another tensor,
//! with the matrix's name followed by `.scales`. Other tensors stay in f32. When a matrix is read,
//! its values are converted to f32: each int8 value times the scale of its row. Rounding these
//! numbers to int8 again gives the same int8 values.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::View;
use taper_ops::Int8Matrix;

use super::tensor_reader::SCALES;
use super::tensors::Named;
use crate::checkpoints::{self, MODEL_FILE, Weights};
use crate::{CheckpointError, Parent, State};

/// The weights of a checkpoint, rounded to int8.
#[derive(Debug, Clone)]
pub struct QuantizedWeights {
    floats: Vec<Named>,
    matrices: Vec<(String, Int8Matrix)>,
    state: State,
    path: PathBuf,
}

/// Rounds the weights of the checkpoint in the directory `checkpoint` to int8.
///
/// # Errors
/// If the checkpoint cannot be loaded, or if its weights are in int8 already or not finite.
pub fn round_to_int8(checkpoint: &Path) -> Result<QuantizedWeights, CheckpointError> {
    let mut state = checkpoints::read_state(checkpoint)?;
    let path = checkpoint.join(MODEL_FILE);
    require_float(checkpoint, &state)?;
    let (mut floats, mut matrices) = (Vec::new(), Vec::new());
    Weights::open(checkpoint, &state)?.each(&mut |tensor| {
        match tensor.shape[..] {
            [_, width] if width > 0 && Int8Matrix::holds(&tensor.name, &tensor.shape) => {
                let matrix = Int8Matrix::round(&tensor.values, width);
                if !matrix.scales().iter().all(|scale| scale.is_finite()) {
                    let (path, name) = (path.clone(), tensor.name);
                    return Err(CheckpointError::NotFinite { path, name });
                }
                matrices.push((tensor.name, matrix));
            }
            _ => floats.push(tensor),
        }
        Ok(())
    })?;
    let sha256 = state.files.get(MODEL_FILE).map_or_else(String::new, |file| file.sha256.clone());
    let absolute = checkpoint.canonicalize().unwrap_or_else(|_| checkpoint.to_owned());
    state.int8_of = Some(Parent { path: absolute, step: state.step, sha256 });
    // The score was measured with the original weights, not with the rounded ones.
    state.score = None;
    state.interim = false;
    state.base = None;
    Ok(QuantizedWeights { floats, matrices, state, path })
}

/// Returns an error for a checkpoint whose weights are in int8.
pub(crate) fn require_float(checkpoint: &Path, state: &State) -> Result<(), CheckpointError> {
    match &state.int8_of {
        Some(Parent { path: parent, .. }) => {
            Err(CheckpointError::Int8 { path: checkpoint.join(MODEL_FILE), parent: parent.clone() })
        }
        None => Ok(()),
    }
}

impl QuantizedWeights {
    /// Number of updates after which the weights were saved.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// Saves the weights as a directory that [`load_model`](crate::load_model) loads. The directory
    /// has no state of the optimizer, so training cannot be resumed from it.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), CheckpointError> {
        let write = |file: &Path| super::files::write_synced(file, &self.encode()?);
        super::checkpoint::write_files(
            directory,
            || Ok(self.state.clone()),
            [(MODEL_FILE, write)].into_iter(),
        )
    }

    /// Returns the bytes of the safetensors file. In it, all f32 tensors stand before the int8
    /// tensors, so that a reader gets the scales of a matrix before its values.
    fn encode(&self) -> Result<Vec<u8>, CheckpointError> {
        let floats = self.floats.iter().map(|tensor| (tensor.name.clone(), Part::Float(tensor)));
        let parts = self.matrices.iter().flat_map(|(name, matrix)| {
            let scales = Part::Scales(matrix, [matrix.rows()]);
            let values = Part::Values(matrix, [matrix.rows(), matrix.width()]);
            [(format!("{name}{SCALES}"), scales), (name.clone(), values)]
        });
        let metadata = HashMap::from([("format".to_owned(), "pt".to_owned())]);
        safetensors::serialize(floats.chain(parts), Some(metadata)).map_err(|error| {
            CheckpointError::Corrupt { path: self.path.clone(), reason: error.to_string() }
        })
    }
}

/// A tensor of the safetensors file.
enum Part<'a> {
    Float(&'a Named),
    Scales(&'a Int8Matrix, [usize; 1]),
    Values(&'a Int8Matrix, [usize; 2]),
}

impl View for Part<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Float(_) | Self::Scales(..) => Dtype::F32,
            Self::Values(..) => Dtype::I8,
        }
    }

    fn shape(&self) -> &[usize] {
        match self {
            Self::Float(tensor) => &tensor.shape,
            Self::Scales(_, shape) => shape,
            Self::Values(_, shape) => shape,
        }
    }

    fn data(&self) -> Cow<'_, [u8]> {
        let floats = |values: &[f32]| {
            values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into()
        };
        match self {
            Self::Float(tensor) => floats(&tensor.values),
            Self::Scales(matrix, _) => floats(matrix.scales()),
            Self::Values(matrix, _) => matrix
                .values()
                .iter()
                .map(|value| value.cast_unsigned())
                .collect::<Vec<u8>>()
                .into(),
        }
    }

    fn data_len(&self) -> usize {
        self.shape().iter().product::<usize>() * if self.dtype() == Dtype::I8 { 1 } else { 4 }
    }
}
