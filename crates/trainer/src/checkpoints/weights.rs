//! Complete weights of a checkpoint: the weights in its file or, for a checkpoint of adapters, the
//! frozen weights with the changes of the adapters added.
//!
//! **Decision.** The frozen weights of a run with adapters are a single file next to the run's
//! checkpoints; the state of each checkpoint has that file's hash. So a checkpoint contains only
//! adapters and the state of their optimizer, and the run needs no other folder. All code except
//! training reads the sum of frozen weights and changes, so it does not depend on adapters.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use taper_model::is_adapter;
use taper_ops::{Adapted, ParameterStore};

use super::files;
use super::state::Base;
use super::tensor_reader::Reader;
use super::tensors::{self, Named};
use super::{BASE_FILE, Checkpoints, MODEL_FILE};
use crate::checkpoints;
use crate::{CheckpointError, Parent, State};

/// Complete weights of a checkpoint, which are read one tensor after the other.
pub(crate) struct Weights {
    reader: Reader,
    adapters: Option<Adapters>,
}

/// Tensors in the file of a checkpoint with adapters.
struct Adapters {
    /// Path of the file.
    path: PathBuf,
    /// Matrices of the adapters, and other tensors that are trained as a whole, by name.
    tensors: HashMap<String, Named>,
    scale: f64,
}

impl Weights {
    /// Opens the weights of the checkpoint in the directory `checkpoint`, whose state is `state`.
    ///
    /// # Errors
    /// If a file is missing or damaged.
    pub(crate) fn open(checkpoint: &Path, state: &State) -> Result<Self, CheckpointError> {
        let model = checkpoints::open_tensors(checkpoint, state, MODEL_FILE)?;
        let Some(base) = &state.base else { return Ok(Self { reader: model, adapters: None }) };
        let tensors =
            model.all()?.into_iter().map(|tensor| (tensor.name.clone(), tensor)).collect();
        let (path, scale) = (checkpoint.join(MODEL_FILE), base.scale);
        let adapters = Some(Adapters { path, tensors, scale });
        Ok(Self { reader: open_base(checkpoint, base)?, adapters })
    }

    /// Names and shapes of all complete weights.
    pub(crate) fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = self.reader.shapes().to_vec();
        let trained = self.adapters.iter().flat_map(|adapters| adapters.tensors.values());
        let trained = trained.filter(|tensor| !is_adapter(&tensor.name));
        all.extend(trained.map(|tensor| (tensor.name.clone(), tensor.shape.clone())));
        all
    }

    /// Passes all complete weights to `take`. There is an error at a weight with a value that is
    /// not finite.
    ///
    /// # Errors
    /// If adapters do not fit the weight that they change, a value is not finite, or `take` fails.
    pub(crate) fn each(
        self,
        take: &mut dyn FnMut(Named) -> Result<(), CheckpointError>,
    ) -> Result<(), CheckpointError> {
        let Some(adapters) = self.adapters else { return self.reader.each(take) };
        self.reader.each(&mut |mut tensor| {
            adapters.add_to(&mut tensor)?;
            take(tensor)
        })?;
        let mut tensors: Vec<Named> =
            adapters.tensors.into_values().filter(|tensor| !is_adapter(&tensor.name)).collect();
        tensors.sort_by(|a, b| a.name.cmp(&b.name));
        tensors.into_iter().try_for_each(take)
    }
}

impl Adapters {
    /// If there are adapters for the weight `tensor`, adds their change to it.
    fn add_to(&self, tensor: &mut Named) -> Result<(), CheckpointError> {
        let Some(layer) = tensor.name.strip_suffix(".weight") else { return Ok(()) };
        let factor = |kind: &str, part: usize| {
            let tensor = self.tensors.get(&format!("{layer}.lora_{kind}.{part}"))?;
            Some(tensor.values.as_slice())
        };
        let factors: Vec<_> =
            (0..).map_while(|part| Some((factor("a", part)?, factor("b", part)?))).collect();
        let [_, width] = tensor.shape[..] else { return Ok(()) };
        if factors.is_empty() {
            return Ok(());
        }
        let magnitude = self.tensors.get(&format!("{layer}.magnitude"));
        let magnitude = magnitude.map(|magnitude| magnitude.values.as_slice());
        let adapted = Adapted { width, factors, scale: self.scale, magnitude };
        if taper_ops::merge(&mut tensor.values, &adapted) {
            return Ok(());
        }
        let reason = format!("the adapters of '{layer}' do not fit its weight {:?}", tensor.shape);
        Err(CheckpointError::Corrupt { path: self.path.clone(), reason })
    }
}

/// Path of the file with the frozen weights that the adapters in the directory `checkpoint` change.
fn base_path(checkpoint: &Path) -> PathBuf {
    let canonical = checkpoint.canonicalize().unwrap_or_else(|_| checkpoint.to_owned());
    canonical.with_file_name(BASE_FILE)
}

fn open_base(checkpoint: &Path, base: &Base) -> Result<Reader, CheckpointError> {
    let path = base_path(checkpoint);
    Reader::new(&path, files::open_verified(&path, &base.file).map_err(missing_base)?)
}

/// Replaces the error that a file is missing by the error that the frozen weights are missing.
fn missing_base(error: CheckpointError) -> CheckpointError {
    match error {
        CheckpointError::Missing { path } => CheckpointError::MissingBase { path },
        other => other,
    }
}

/// If `store` has adapters, loads its frozen weights (its base) from the file next to the directory
/// `checkpoint`.
///
/// # Errors
/// If the file is missing or damaged, or does not fit the store.
pub(crate) fn load_base(
    checkpoint: &Path,
    state: &State,
    store: &ParameterStore,
) -> Result<(), CheckpointError> {
    let Some(base) = state.base.as_ref().filter(|_| store.adapter_scale().is_some()) else {
        return Ok(());
    };
    open_base(checkpoint, base)?.load(store.base(), None, false)
}

/// Writes the frozen weights of `store` (its base) to a file next to the checkpoints. Returns a
/// record of this file, or `None` if `store` has no adapters.
///
/// # Errors
/// If the file cannot be written, or a value cannot be copied from the device.
pub(crate) fn save_base(
    checkpoints: &Checkpoints,
    store: &ParameterStore,
) -> Result<Option<Base>, CheckpointError> {
    let Some(scale) = store.adapter_scale() else { return Ok(None) };
    files::create_directory(&checkpoints.root)?;
    let path = checkpoints.root.join(BASE_FILE);
    let shapes = store.base().iter().map(|one| (one.name().to_owned(), one.shape().to_vec()));
    let file = files::replace_by(&path, |partial| {
        tensors::write_tensors(partial, shapes, |name| {
            let failed = |source| CheckpointError::Tensor { path: path.clone(), source };
            let Some(parameter) = store.get(name) else { return Ok(Vec::new().into()) };
            Ok(parameter.values().map_err(failed)?.into())
        })
    })?;
    Ok(Some(Base { file, scale }))
}

/// Copies a file of frozen weights from the folder of one run's checkpoints to the folder of
/// another run's checkpoints, unless it is there already. `base` describes the file.
///
/// # Errors
/// If the file is missing or damaged, or cannot be written.
pub(crate) fn copy_base(
    base: &Base,
    from: &Checkpoints,
    to: &Checkpoints,
) -> Result<(), CheckpointError> {
    let (from, path) = (from.root.join(BASE_FILE), to.root.join(BASE_FILE));
    if files::open_verified(&path, &base.file).is_ok() {
        return Ok(());
    }
    files::create_directory(&to.root)?;
    files::replace_by(&path, |partial| {
        files::copy_verified(&from, &base.file, partial).map_err(missing_base)
    })
}

/// Weights of a checkpoint with its adapters added.
#[derive(Debug, Clone)]
pub struct MergedWeights {
    tensors: Vec<Named>,
    state: State,
}

/// Adds the adapters of the checkpoint in the directory `checkpoint` to the weights that they
/// change. `recipe`: the configuration of a run that would have the resulting weights and no
/// adapters; it becomes the [`Identity::recipe`](crate::Identity) of the result.
///
/// # Errors
/// If the checkpoint cannot be loaded, or has no adapters.
pub fn merge(
    checkpoint: &Path,
    recipe: Map<String, Value>,
) -> Result<MergedWeights, CheckpointError> {
    let mut state = checkpoints::read_state(checkpoint)?;
    if state.base.is_none() {
        return Err(CheckpointError::NoAdapters { path: checkpoint.to_owned() });
    }
    let mut tensors = Vec::new();
    Weights::open(checkpoint, &state)?.each(&mut |tensor| {
        tensors.push(tensor);
        Ok(())
    })?;
    let sha256 = state.files.get(MODEL_FILE).map_or_else(String::new, |file| file.sha256.clone());
    let path = checkpoint.canonicalize().unwrap_or_else(|_| checkpoint.to_owned());
    state.parent = Some(Parent { path, step: state.step, sha256 });
    state.identity.recipe = recipe;
    state.base = None;
    // The score was measured with the checkpoint of adapters, not with the rounded sum.
    state.score = None;
    state.interim = false;
    Ok(MergedWeights { tensors, state })
}

impl MergedWeights {
    /// Number of updates after which the adapters were saved.
    #[must_use]
    pub fn step(&self) -> u64 {
        self.state.step
    }

    /// Saves the weights as a directory that [`load_model`](crate::load_model) loads. The directory
    /// has no state of the optimizer, so training cannot be resumed from it, but a new run can take
    /// its weights.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), CheckpointError> {
        checkpoints::write(directory, &self.state, &[(MODEL_FILE, &self.tensors)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn frozen_weights_are_copied_only_unchanged() {
        let folder = tempfile::tempdir().expect("a folder");
        let [from, to] = ["from", "to"].map(|name| Checkpoints::new(&folder.path().join(name)));
        fs::create_dir(&from.root).expect("a folder");
        let (original, copied) = (from.root.join(BASE_FILE), to.root.join(BASE_FILE));
        let bytes: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        let file = files::write_synced(&original, &bytes).expect("written");
        let base = Base { file, scale: 1.0 };

        copy_base(&base, &from, &to).expect("copied");
        assert_eq!(fs::read(&copied).expect("read"), bytes);
        fs::remove_file(&copied).expect("removed");

        let changed: Vec<u8> = bytes.iter().map(|byte| byte ^ 1).collect();
        fs::write(&original, changed).expect("written");
        let error = copy_base(&base, &from, &to).expect_err("damaged");
        assert!(matches!(&error, CheckpointError::Corrupt { path, .. } if *path == original));
        assert_eq!(fs::read_dir(&to.root).expect("a folder").count(), 0);

        fs::remove_file(&original).expect("removed");
        let error = copy_base(&base, &from, &to).expect_err("missing");
        assert!(matches!(error, CheckpointError::MissingBase { path } if path == original));
    }
}
