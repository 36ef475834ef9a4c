//! Averaging the weights of checkpoints (Vaswani et al. 2017, section 6.1).

use std::path::{Path, PathBuf};

use super::tensors::Named;
use crate::checkpoints::{self, MODEL_FILE};
use crate::{CheckpointError, State};

/// The mean of the weights of some checkpoints.
#[derive(Debug, Clone)]
pub struct Averaged {
    tensors: Vec<Named>,
    state: State,
}

/// Averages the weights of `checkpoints`: sums in `f64`, and the mean rounded once to `f32`.
///
/// # Errors
/// There are none; one cannot be loaded; they differ in tensors, shapes or tokenizer.
pub fn average(checkpoints: &[PathBuf]) -> Result<Averaged, CheckpointError> {
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
    // What was measured on the newest checkpoint was not measured on the average.
    state.score = None;
    state.interim = false;
    Ok(Averaged { tensors, state })
}

impl Averaged {
    /// Saves the average as a directory that [`load_model`](crate::load_model) loads. It has no
    /// moments, so training cannot be resumed from it.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), CheckpointError> {
        checkpoints::write(directory, &self.state, &[(MODEL_FILE, &self.tensors)])
    }
}

/// Refuses to average models that differ in more than their values.
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
