//! Complete weights of a checkpoint: the weights in its file, or frozen weights plus the adapters
//! in its file.
//!
//! **Decision.** The frozen weights of a run with adapters are a file next to its checkpoints; the
//! state of each names this file by its hash. So a checkpoint has only adapters and the state of
//! their optimizer, and the run needs no other folder. Everything but training reads the sum of
//! frozen weights and adapters, and knows no adapters.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use taper_model::is_adapter;
use taper_ops::{Adapted, ParameterStore};

use super::files::{self, failed};
use super::state::Base;
use super::tensor_reader::Reader;
use super::tensors::{self, Named};
use super::{BASE_FILE, Checkpoints, MODEL_FILE};
use crate::checkpoints;
use crate::{CheckpointError, Parent, State};

/// Weights of a checkpoint, which are read tensor by tensor.
pub(crate) struct Weights {
    reader: Reader,
    adapters: Option<Adapters>,
}

/// Tensors of a checkpoint with adapters.
struct Adapters {
    /// Their file.
    path: PathBuf,
    /// Adapters, and tensors that are trained as a whole, by name.
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

    /// Names and shapes of all weights.
    pub(crate) fn shapes(&self) -> Vec<(String, Vec<usize>)> {
        let mut all = self.reader.shapes().to_vec();
        let trained = self.adapters.iter().flat_map(|adapters| adapters.tensors.values());
        let trained = trained.filter(|tensor| !is_adapter(&tensor.name));
        all.extend(trained.map(|tensor| (tensor.name.clone(), tensor.shape.clone())));
        all
    }

    /// Passes every weight to `take`, up to a weight that is not finite.
    ///
    /// # Errors
    /// If adapters do not fit their weight, and errors of `take`.
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
    /// Adds the change to a weight, if it has adapters.
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

/// Path of the frozen weights that the adapters in the directory `checkpoint` change.
fn base_path(checkpoint: &Path) -> PathBuf {
    let canonical = checkpoint.canonicalize().unwrap_or_else(|_| checkpoint.to_owned());
    canonical.with_file_name(BASE_FILE)
}

fn open_base(checkpoint: &Path, base: &Base) -> Result<Reader, CheckpointError> {
    let path = base_path(checkpoint);
    match files::open_verified(&path, &base.file) {
        Err(CheckpointError::Missing { path }) => Err(CheckpointError::MissingBase { path }),
        file => Reader::new(&path, file?),
    }
}

/// Loads the base of `store`, if it has one, from the file next to the checkpoint in the directory
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
    open_base(checkpoint, base)?.load(store.base())
}

/// Writes the base of `store` next to the checkpoints; `None` without adapters.
///
/// # Errors
/// If the disk refuses, or a value cannot be copied.
pub(crate) fn save_base(
    checkpoints: &Checkpoints,
    store: &ParameterStore,
) -> Result<Option<Base>, CheckpointError> {
    let Some(scale) = store.adapter_scale() else { return Ok(None) };
    files::create_directory(&checkpoints.root)?;
    let path = checkpoints.root.join(BASE_FILE);
    let partial = files::temporary_sibling(&path);
    let shapes = store.base().iter().map(|one| (one.name().to_owned(), one.shape().to_vec()));
    let file = tensors::write_tensors(&partial, shapes, |name| {
        let failed = |source| CheckpointError::Tensor { path: path.clone(), source };
        let Some(parameter) = store.get(name) else { return Ok(Vec::new().into()) };
        Ok(parameter.values().map_err(failed)?.into())
    })?;
    fs::rename(&partial, &path).map_err(failed("replace", &path))?;
    files::sync_parent(&path)?;
    Ok(Some(Base { file, scale }))
}

/// Copies frozen weights next to other checkpoints, unless they are there already.
///
/// # Errors
/// If they cannot be read or written.
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
    let partial = files::temporary_sibling(&path);
    fs::copy(&from, &partial).map_err(failed("copy", &from))?;
    fs::rename(&partial, &path).map_err(failed("replace", &path))?;
    files::sync_parent(&path)
}

/// Weights of a checkpoint with its adapters added.
#[derive(Debug, Clone)]
pub struct MergedWeights {
    tensors: Vec<Named>,
    state: State,
}

/// Adds the adapters of the checkpoint in the directory `checkpoint` to the weights that they
/// change; `recipe` is the recipe of a run with such weights, for
/// [`Identity::recipe`](crate::Identity).
///
/// # Errors
/// If it cannot be loaded, or has no adapters.
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
    // The scores of the original weights do not belong to the sum.
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

    /// Saves the weights as a directory that [`load_model`](crate::load_model) loads. It has no
    /// moments, so training cannot be resumed from it, but a new run can begin with it.
    ///
    /// # Errors
    /// If the directory cannot be written.
    pub fn save(&self, directory: &Path) -> Result<(), CheckpointError> {
        checkpoints::write(directory, &self.state, &[(MODEL_FILE, &self.tensors)])
    }
}
