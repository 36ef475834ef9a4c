//! Checkpoints on disk: a directory for each number of updates (step) after which weights were
//! saved, and two pointers, which are text files with the name of such a directory.
//!
//! ```text
//! checkpoints/step-00012000/model.safetensors      weights of the model
//! checkpoints/step-00012000/optimizer.safetensors  state of the optimizer, to resume training
//! checkpoints/step-00012000/state.json             counters, position in the data, hashes
//! checkpoints/last, checkpoints/best               text files with the name of a directory
//! ```
//!
//! A directory is written under a hidden name, flushed and renamed: it appears as a whole or not at
//! all. `state.json` has the hashes of all other files and of its own content, so that changed
//! files are not loaded. [`Checkpoints::recover`] repairs the directory after a process was killed
//! while it saved.

mod average;
mod checkpoint;
mod files;
mod int8;
mod retention;
mod state;
mod tensor_reader;
pub(crate) mod tensors;
mod verified;
mod warm_start;
mod weights;
mod winding_back;

use std::borrow::Cow;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use self::files::failed;
use self::retention::{Candidate, to_delete};
use self::tensors::Live;
use crate::{CheckpointError, Metric};

pub use average::{AveragedWeights, average};
pub use checkpoint::{PendingWeights, load_model, read_state, state_json};
pub(crate) use checkpoint::{check_tokenizer, open_tensors, replace_state, set_weights, write};
pub(crate) use int8::require_float;
pub use int8::{QuantizedWeights, round_to_int8};
pub use state::{
    ADAPTERS_FORMAT_VERSION, Base, FORMAT_VERSION, FileEntry, INT8_FORMAT_VERSION, Identity,
    Parent, State, Window,
};
pub use tensors::write_tensors;
pub use warm_start::{
    PartialTable, SharedRows, SkippedParameter, WarmStart, WarmStartSettings, warm_start,
};
pub use weights::{MergedWeights, merge};
pub(crate) use weights::{Weights, copy_base, load_base, save_base};

/// Name of the file with the weights.
pub const MODEL_FILE: &str = "model.safetensors";
/// Name of the file with the frozen weights that a run's adapters change. It lies next to the
/// checkpoints.
pub const BASE_FILE: &str = "base.safetensors";
/// Name of the file with the optimizer's state.
pub const OPTIMIZER_FILE: &str = "optimizer.safetensors";
/// Name of the file with the rest of the state, such as counters and hashes.
pub const STATE_FILE: &str = "state.json";
/// Name of the directory with the average of checkpoints that is made at the end of training.
pub const AVERAGED: &str = "averaged";
/// Name of the pointer to the newest checkpoint.
pub const LAST: &str = "last";
/// Name of the pointer to the checkpoint with the best validation score.
pub const BEST: &str = "best";

/// Prefix of the names of checkpoints that a run no longer uses, because it was resumed from an
/// earlier checkpoint.
pub const LEFT: &str = "left-";

/// Checkpoint that exists on the disk.
#[derive(Debug, Clone, PartialEq)]
pub struct SavedCheckpoint {
    /// Number of updates after which the checkpoint was saved.
    pub step: u64,
    /// Validation score by the metric of early stopping; `None` if the checkpoint was not
    /// validated.
    pub score: Option<f64>,
    /// Metric of the score; `None` if the checkpoint was saved by an earlier version of this
    /// program.
    pub metric: Option<Metric>,
    /// Text and method by which the score was measured; see
    /// [`Identity::validation`](crate::Identity).
    pub validation: Map<String, Value>,
    /// True if the checkpoint exists only because training was interrupted; see [`State::interim`].
    pub interim: bool,
    /// Directory of the checkpoint.
    pub path: PathBuf,
}

/// Properties that scores must have in common to be comparable: the metric, the text, and the
/// method of measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Comparable<'a> {
    /// Metric of early stopping.
    pub(crate) metric: Metric,
    /// Text and method of measurement; see [`Identity::validation`](crate::Identity).
    pub(crate) validation: &'a Map<String, Value>,
}

impl Comparable<'_> {
    /// Score of a checkpoint, or `None` if it is missing or not comparable. Properties that an
    /// earlier version of this program did not record count as equal.
    fn score(&self, saved: &SavedCheckpoint) -> Option<f64> {
        let same = saved.metric.is_none_or(|metric| metric == self.metric)
            && (saved.validation.is_empty() || saved.validation == *self.validation);
        saved.score.filter(|_| same)
    }
}

/// The checkpoints of one run.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    root: PathBuf,
}

impl Checkpoints {
    /// The checkpoints in the directory `root`, which need not exist yet.
    #[must_use]
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Directory of the checkpoint of update `step`, which need not exist.
    pub(crate) fn directory(&self, step: u64) -> PathBuf {
        self.root.join(checkpoint_name(step))
    }

    /// Returns the directory of the checkpoint `name`, which is `last`, `best`, `averaged` or the
    /// name of a checkpoint's directory.
    ///
    /// # Errors
    /// See [`Checkpoints::find`]. Also if no checkpoint has this name.
    pub fn resolve(&self, name: &str) -> Result<PathBuf, CheckpointError> {
        match self.find(name)? {
            Some(path) => Ok(path),
            None => Err(CheckpointError::NotFound {
                name: name.to_owned(),
                root: self.root.clone(),
                available: self.available()?,
            }),
        }
    }

    /// Returns the directory of a checkpoint like [`Checkpoints::resolve`], or `None` if no
    /// checkpoint has this name.
    ///
    /// # Errors
    /// If a pointer cannot be read, or does not name an existing checkpoint. Such a pointer is
    /// damaged, and another checkpoint must not silently be used instead.
    pub fn find(&self, alias_or_name: &str) -> Result<Option<PathBuf>, CheckpointError> {
        let plain =
            |name: &str| !name.is_empty() && !name.contains(['/', '\\']) && !name.starts_with('.');
        let directory = |name: &str| {
            Some(name)
                .filter(|name| plain(name))
                .map(|name| self.root.join(name))
                .filter(|path| path.is_dir())
        };
        if alias_or_name != LAST && alias_or_name != BEST {
            return Ok(directory(alias_or_name));
        }
        let Some(name) = self.pointer(alias_or_name)? else {
            // There is no pointer if a process was killed right after it saved the run's first
            // checkpoint.
            return Ok(if alias_or_name == LAST { self.newest()? } else { None });
        };
        if let Some(path) = directory(&name).filter(|_| checkpoint_step(&name).is_some()) {
            return Ok(Some(path));
        }
        // If a process was killed while it resumed from an earlier checkpoint, it may already have
        // renamed the checkpoint that the pointer names.
        if alias_or_name == LAST && plain(&name) && self.root.join(format!("{LEFT}{name}")).is_dir()
        {
            return self.newest();
        }
        let content: String = name.chars().take(60).collect();
        let path = self.root.join(alias_or_name);
        Err(CheckpointError::Pointer { path, content, available: self.available()? })
    }

    /// Directory of the checkpoint with the most updates; `None` if there are no checkpoints.
    fn newest(&self) -> Result<Option<PathBuf>, CheckpointError> {
        Ok(self.list()?.pop().map(|saved| saved.path))
    }

    /// Names of the existing checkpoints, for a message.
    fn available(&self) -> Result<String, CheckpointError> {
        let names: Vec<String> =
            self.list()?.iter().map(|saved| checkpoint_name(saved.step)).collect();
        Ok(if names.is_empty() { "none yet".to_owned() } else { names.join(", ") })
    }

    /// Existing checkpoints, sorted by their numbers of updates.
    ///
    /// A checkpoint whose state cannot be read is listed without a score, and is no error here.
    /// Loading such a checkpoint gives the error.
    ///
    /// # Errors
    /// If the directory cannot be read.
    pub fn list(&self) -> Result<Vec<SavedCheckpoint>, CheckpointError> {
        let entries = match fs::read_dir(&self.root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed("read", &self.root))?,
        };
        let mut saved = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed("read", &self.root))?.path();
            if let Some(step) =
                path.file_name().and_then(|name| checkpoint_step(&name.to_string_lossy()))
            {
                let state = read_state(&path).ok();
                let score = state.as_ref().and_then(|state| state.score);
                let metric = state.as_ref().and_then(|state| state.early_stopping.metric);
                saved.push(SavedCheckpoint {
                    step,
                    score,
                    metric,
                    interim: state.as_ref().is_some_and(|state| state.interim),
                    validation: state.map(|state| state.identity.validation).unwrap_or_default(),
                    path,
                });
            }
        }
        saved.sort_by_key(|saved| saved.step);
        Ok(saved)
    }

    /// Repairs the directory after a process was killed while it saved: removes unfinished files,
    /// and renames back a checkpoint that was renamed to make room for a new one. Only the process
    /// that has locked the run is allowed to call this.
    ///
    /// # Errors
    /// If the directory cannot be read or written.
    pub fn recover(&self) -> Result<(), CheckpointError> {
        files::recover(&self.root)
    }

    /// Saves a checkpoint, and returns its directory. Sets the pointer `last` to it, and also the
    /// pointer `best` if the parameter `best` is true.
    pub(crate) fn save(
        &self,
        state: &State,
        model: &[Live],
        optimizer: &[Live],
        best: bool,
    ) -> Result<PathBuf, CheckpointError> {
        files::create_directory(&self.root)?;
        let name = checkpoint_name(state.step);
        let path = self.root.join(&name);
        write(&path, state, &[(MODEL_FILE, model), (OPTIMIZER_FILE, optimizer)])?;
        // `last` is written after `best`. If the process is killed between the two, `last` still
        // names the previous checkpoint: the run resumes from there, reaches this step again, and
        // sets `best` again.
        if best {
            self.point(BEST, &name)?;
        }
        self.point(LAST, &name)?;
        Ok(path)
    }

    /// Saves weights as the checkpoint of step 0, and sets the pointer `last` to it. It has no
    /// state of the optimizer: new runs can take its weights, but training cannot be resumed from
    /// it.
    ///
    /// `tensors`: names and shapes of the tensors. `values` returns the values of the tensor with a
    /// given name, and is called when that tensor is written, so that not all tensors are in memory
    /// at once. `state` is called when all tensors are written.
    ///
    /// # Errors
    /// If the directory cannot be written, or `values` or `state` fails.
    pub fn save_weights<'a>(
        &self,
        tensors: impl IntoIterator<Item = (String, Vec<usize>)>,
        values: impl FnMut(&str) -> Result<Cow<'a, [f32]>, CheckpointError>,
        state: impl FnOnce() -> Result<State, CheckpointError>,
    ) -> Result<PathBuf, CheckpointError> {
        files::create_directory(&self.root)?;
        let name = checkpoint_name(0);
        let path = self.root.join(&name);
        let write = |file: &Path| write_tensors(file, tensors, values);
        checkpoint::write_files(&path, state, [(MODEL_FILE, write)].into_iter())?;
        self.point(LAST, &name)?;
        Ok(path)
    }

    /// Deletes those checkpoints of updates up to `step` that need not be kept, and returns their
    /// names.
    ///
    /// Checkpoints of later updates are not deleted. Interim checkpoints
    /// ([`SavedCheckpoint::interim`]) are deleted, unless a pointer names them.
    pub(crate) fn prune(
        &self,
        step: u64,
        keep_last: usize,
        keep_best: usize,
        comparable: &Comparable<'_>,
    ) -> Result<Vec<String>, CheckpointError> {
        let mut candidates = self.list()?;
        candidates.retain(|saved| saved.step <= step);
        let (interim, regular): (Vec<SavedCheckpoint>, Vec<SavedCheckpoint>) =
            candidates.into_iter().partition(|saved| saved.interim);
        let regular: Vec<Candidate> = regular
            .iter()
            .map(|saved| Candidate { step: saved.step, score: comparable.score(saved) })
            .collect();
        let mut protected = Vec::new();
        for pointer in [LAST, BEST] {
            protected.extend(self.pointer(pointer)?.as_deref().and_then(checkpoint_step));
        }
        let served =
            interim.iter().map(|saved| saved.step).filter(|step| !protected.contains(step));
        let mut deleted = Vec::new();
        for step in to_delete(&regular, keep_last, keep_best, comparable.metric, &protected)
            .into_iter()
            .chain(served)
        {
            let name = checkpoint_name(step);
            files::discard_directory(&self.root.join(&name))?;
            deleted.push(name);
        }
        Ok(deleted)
    }

    fn point(&self, pointer: &str, name: &str) -> Result<(), CheckpointError> {
        files::replace(&self.root.join(pointer), format!("{name}\n").as_bytes())
    }

    /// Content of a pointer, or `None` if the pointer does not exist.
    fn pointer(&self, pointer: &str) -> Result<Option<String>, CheckpointError> {
        let path = self.root.join(pointer);
        match files::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).trim().to_owned())),
            Err(CheckpointError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Returns the name of the checkpoint of update `step`. To sort names by their steps, use
/// [`checkpoint_step`]: from 100 million updates on, names have more digits.
#[must_use]
pub fn checkpoint_name(step: u64) -> String {
    format!("step-{step:08}")
}

/// Returns the number of updates in the name of a checkpoint; `None` if `name` is not such a name.
#[must_use]
pub fn checkpoint_step(name: &str) -> Option<u64> {
    name.strip_prefix("step-")?.parse().ok()
}
