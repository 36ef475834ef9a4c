//! Averaging of the weights of checkpoints (Vaswani et al. 2017, section 6.1), and of a run's
//! weights with the weights from which the run began.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use taper_model::is_adapter;

use super::tensors::Named;
use crate::checkpoints::{self, MODEL_FILE, Weights};
use crate::{CheckpointError, State};

/// The mean of the weights of some checkpoints.
#[derive(Debug, Clone)]
pub struct AveragedWeights {
    tensors: Vec<Named>,
    state: State,
}

/// Averages the weights of `checkpoints`. Sums are computed in `f64`, and the mean is rounded once
/// to `f32`.
///
/// The matrices A and B of adapters are averaged separately. An adapter changes a weight by the
/// product of A and B. The product of the averages is not exactly the average of the products: they
/// differ by terms of second order in the distances between the checkpoints.
///
/// # Errors
/// If `checkpoints` is empty, if one of them cannot be loaded, or if they differ in tensors, shapes
/// or tokenizer.
pub fn average(checkpoints: &[PathBuf]) -> Result<AveragedWeights, CheckpointError> {
    let (first, rest) = checkpoints.split_first().ok_or(CheckpointError::NothingToAverage)?;
    let mut state = checkpoints::read_state(first)?;
    checkpoints::require_float(first, &state)?;
    let mut tensors = checkpoints::open_tensors(first, &state, MODEL_FILE)?.all()?;
    let mut sums: Vec<Vec<f64>> = tensors
        .iter()
        .map(|tensor| tensor.values.iter().map(|&value| f64::from(value)).collect())
        .collect();
    for path in rest {
        let next = checkpoints::read_state(path)?;
        checkpoints::require_float(path, &next)?;
        checkpoints::check_tokenizer(path, &next, &state.identity.tokenizer_hash)?;
        if next.base != state.base {
            return Err(CheckpointError::OtherBase { path: path.clone() });
        }
        let others = checkpoints::open_tensors(path, &next, MODEL_FILE)?.all()?;
        check_same(&path.join(MODEL_FILE), &tensors, &others)?;
        for (sum, other) in sums.iter_mut().zip(&others) {
            sum.iter_mut().zip(&other.values).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        if next.step > state.step {
            state = next;
        }
    }
    let count = checkpoints.len() as f64;
    for (tensor, sum) in tensors.iter_mut().zip(sums) {
        tensor.values = sum.into_iter().map(|sum| (sum / count) as f32).collect();
    }
    // The score in `state` belongs to the newest checkpoint, not to the average.
    state.score = None;
    state.interim = false;
    Ok(AveragedWeights { tensors, state })
}

impl AveragedWeights {
    /// Whether the weights include adapters, whose matrices are averaged separately.
    #[must_use]
    pub fn has_adapters(&self) -> bool {
        self.tensors.iter().any(|tensor| is_adapter(&tensor.name))
    }

    /// Returns `weight` times these weights plus `1 - weight` times the weights of the checkpoint
    /// in the directory `parent`, from which the run began (Wortsman et al. 2022, "Robust
    /// fine-tuning of zero-shot models", equation 1). Weights that the parent does not have, or
    /// that have another shape there, are not changed.
    ///
    /// In the tensors of adapters, the matrix B is multiplied by `weight`. This gives the same
    /// result: the change that an adapter makes to a weight is proportional to B, and the parent
    /// has no such change.
    ///
    /// # Errors
    /// If the parent cannot be loaded or has another tokenizer. Also if the adapters are those of
    /// DoRA, because their change of the weights is not proportional to B.
    pub fn with_parent(mut self, parent: &Path, weight: f64) -> Result<Self, CheckpointError> {
        if self.tensors.iter().any(|tensor| tensor.name.ends_with(".magnitude")) {
            return Err(CheckpointError::Magnitudes { path: parent.to_owned() });
        }
        let state = checkpoints::read_state(parent)?;
        checkpoints::check_tokenizer(parent, &state, &self.state.identity.tokenizer_hash)?;
        let rest = 1.0 - weight;
        let places: HashMap<String, usize> =
            self.tensors.iter().enumerate().map(|(at, one)| (one.name.clone(), at)).collect();
        for tensor in self.tensors.iter_mut().filter(|one| one.name.contains(".lora_b.")) {
            tensor.values.iter_mut().for_each(|value| *value = (f64::from(*value) * weight) as f32);
        }
        Weights::open(parent, &state)?.each(&mut |theirs| {
            let tensor = places.get(&theirs.name).map(|&at| &mut self.tensors[at]);
            if let Some(tensor) = tensor.filter(|tensor| tensor.shape == theirs.shape) {
                tensor.values.iter_mut().zip(&theirs.values).for_each(|(value, &theirs)| {
                    *value = (f64::from(*value) * weight + f64::from(theirs) * rest) as f32;
                });
            }
            Ok(())
        })?;
        Ok(self)
    }

    /// Saves the average as a directory that [`load_model`](crate::load_model) loads. The directory
    /// has no state of the optimizer, so training cannot be resumed from it.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), CheckpointError> {
        checkpoints::write(directory, &self.state, &[(MODEL_FILE, &self.tensors)])
    }
}

/// Returns an error if tensors of the two models differ in name or shape.
fn check_same(path: &Path, expected: &[Named], got: &[Named]) -> Result<(), CheckpointError> {
    let path = path.to_owned();
    for tensor in got {
        if !expected.iter().any(|other| other.name == tensor.name) {
            let (name, got) = (tensor.name.clone(), tensor.shape.clone());
            return Err(CheckpointError::UnexpectedTensor { path, name, got });
        }
    }
    for tensor in expected {
        let (name, expected) = (tensor.name.clone(), tensor.shape.clone());
        match got.iter().find(|other| other.name == tensor.name) {
            None => return Err(CheckpointError::MissingTensor { path, name, expected }),
            Some(other) if other.shape != expected => {
                return Err(CheckpointError::Shape {
                    path,
                    name,
                    expected,
                    got: other.shape.clone(),
                });
            }
            Some(_) => {}
        }
    }
    Ok(())
}
