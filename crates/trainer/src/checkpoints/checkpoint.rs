//! Files of a checkpoint: they are written together, and verified when they are read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use candle_core::Tensor;
use taper_model::Model;
use taper_ops::ParameterStore;

use super::state::{ADAPTERS_FORMAT_VERSION, FileEntry, State};
use super::tensor_reader::Reader;
use super::tensors::{self, Named, Written};
use super::verified::BeingVerified;
use super::weights::{Weights, load_base};
use super::{MODEL_FILE, STATE_FILE, files};
use crate::CheckpointError;

/// Writes a checkpoint directory with the state file, and with one file for each pair of a file
/// name and tensors in `contents`.
pub(crate) fn write<T: Written>(
    path: &Path,
    state: &State,
    contents: &[(&str, &[T])],
) -> Result<(), CheckpointError> {
    let files = contents
        .iter()
        .map(|&(name, all)| (name, move |file: &Path| tensors::write_named(file, all)));
    write_files(path, || Ok(state.clone()), files)
}

/// Writes a checkpoint directory like [`write`], but `contents` pairs the name of each file with a
/// function that writes this file. The functions are called one after the other. `state` is called
/// when all these files are on the disk.
pub(super) fn write_files<'a, F>(
    path: &Path,
    state: impl FnOnce() -> Result<State, CheckpointError>,
    contents: impl Iterator<Item = (&'a str, F)>,
) -> Result<(), CheckpointError>
where
    F: FnOnce(&Path) -> Result<FileEntry, CheckpointError>,
{
    files::commit_directory(path, |directory| {
        let mut files = BTreeMap::new();
        for (name, write) in contents {
            let entry = write(&directory.join(name))?;
            files.insert(name.to_owned(), entry);
        }
        let state = state()?;
        let mut state = State { format_version: state.format(), files, ..state };
        let file = directory.join(STATE_FILE);
        state.checksum = checksum(&file, &state)?;
        files::write_synced(&file, &encode_state(&file, &state)?).map(|_| ())
    })
}

/// Replaces the state file of the checkpoint in the directory `path`. Its other files are not
/// changed.
pub(crate) fn replace_state(path: &Path, state: &State) -> Result<(), CheckpointError> {
    let file = path.join(STATE_FILE);
    files::replace(&file, &signed(&file, state)?)
}

/// Returns the content of the state file (`state.json`) of a checkpoint for `state`, after its
/// format and its checksum have been filled in.
///
/// # Errors
/// If the state cannot be written as JSON.
pub fn state_json(state: &State) -> Result<Vec<u8>, CheckpointError> {
    signed(Path::new(STATE_FILE), state)
}

/// Content of the state file for `state`, after its format and its checksum have been filled in.
/// `file`: path for error messages.
fn signed(file: &Path, state: &State) -> Result<Vec<u8>, CheckpointError> {
    let mut state = State { format_version: state.format(), ..state.clone() };
    state.checksum = checksum(file, &state)?;
    encode_state(file, &state)
}

/// Reads and verifies the state of a checkpoint.
///
/// # Errors
/// If the state is missing, corrupt, in a newer format than this version reads, or has fields that
/// this version does not know.
pub fn read_state(checkpoint: &Path) -> Result<State, CheckpointError> {
    #[derive(serde::Deserialize)]
    struct Version {
        format_version: u32,
    }
    let path = checkpoint.join(STATE_FILE);
    let bytes = files::read(&path)?;
    let corrupt = |error: serde_json::Error| CheckpointError::Corrupt {
        path: path.clone(),
        reason: error.to_string(),
    };
    // The version is checked first, because a newer format can have other fields.
    let version: Version = serde_json::from_slice(&bytes).map_err(corrupt)?;
    if version.format_version > ADAPTERS_FORMAT_VERSION {
        return Err(CheckpointError::NewerFormat {
            path,
            found: version.format_version,
            supported: ADAPTERS_FORMAT_VERSION,
        });
    }
    let state: State = match serde_json::from_slice(&bytes) {
        Ok(state) => state,
        Err(error) if matches_own_checksum(&bytes) => {
            return Err(CheckpointError::NewerFields { path, field: error.to_string() });
        }
        Err(error) => return Err(corrupt(error)),
    };
    if checksum(&path, &state)? != state.checksum {
        let reason = "its content does not match its checksum".to_owned();
        return Err(CheckpointError::Corrupt { path, reason });
    }
    Ok(state)
}

/// Loads the weights of a checkpoint into `model`, and returns the checkpoint's state. See
/// [`PendingWeights::load`].
///
/// # Errors
/// The errors of [`PendingWeights::open`] and [`PendingWeights::load`].
pub fn load_model(
    checkpoint: &Path,
    model: &dyn Model,
    tokenizer_hash: &str,
) -> Result<State, CheckpointError> {
    PendingWeights::open(checkpoint, None)?.load(model, tokenizer_hash)
}

/// Weights of a checkpoint that can be loaded while another thread still verifies their file. For a
/// large file this takes longer than loading, so it starts before there is a model.
#[derive(Debug)]
pub struct PendingWeights {
    checkpoint: PathBuf,
    state: State,
    /// Path of the file with weights.
    path: PathBuf,
    file: BeingVerified,
}

impl PendingWeights {
    /// Opens the weights of the directory `checkpoint`, and starts to verify them. If there is a
    /// file `memory`, it has the weights that were verified last, and the same file is not verified
    /// again. The file is written when other weights have been loaded.
    ///
    /// # Errors
    /// If a file is missing or truncated, or the state file is corrupt.
    pub fn open(checkpoint: &Path, memory: Option<&Path>) -> Result<Self, CheckpointError> {
        let state = read_state(checkpoint)?;
        let path = checkpoint.join(MODEL_FILE);
        let file = BeingVerified::open(&path, entry_of(&state, &path, MODEL_FILE)?, memory)?;
        Ok(Self { checkpoint: checkpoint.to_owned(), state, path, file })
    }

    /// State of the checkpoint.
    #[must_use]
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Loads the weights into `model`, and returns the checkpoint's state. If both the checkpoint
    /// and `model` have adapters, the frozen weights that they change are loaded, too. If only the
    /// checkpoint has adapters, the weights of `model` are set to the frozen weights plus the
    /// changes of the adapters.
    ///
    /// # Errors
    /// If a file is missing, a tensor does not fit the model, or the checkpoint was trained with a
    /// tokenizer with another hash than `tokenizer_hash`; in these cases the model is unchanged.
    /// Also if the content is corrupt, or a value is not finite; the values of the model are then
    /// undefined.
    pub fn load(self, model: &dyn Model, tokenizer_hash: &str) -> Result<State, CheckpointError> {
        let Self { checkpoint, state, path, file } = self;
        check_tokenizer(&checkpoint, &state, tokenizer_hash)?;
        let failed = |source| CheckpointError::Tensor { path: path.clone(), source };
        let store = model.parameters();
        if state.base.is_some() && store.adapter_scale().is_none() {
            let weights = Weights::open(&checkpoint, &state)?;
            let wanted = tensors::assigned(&path, weights.shapes(), store.parameters(), &[""])?;
            weights.each(&mut |Named { name, values, .. }| match wanted.get(&name) {
                Some((_, parameter)) => parameter
                    .set(values)
                    .and_then(|()| model.finish_loading(parameter))
                    .map_err(failed),
                None => Ok(()),
            })?;
            return Ok(state);
        }
        file.read(|file, is_known| {
            let reader = Reader::new(&path, file)?;
            reader.require(store.parameters())?;
            load_base(&checkpoint, &state, store)?;
            reader.load(store.parameters(), Some(model), is_known)
        })?;
        Ok(state)
    }
}

/// Returns an error if the checkpoint was trained with a tokenizer with another hash than
/// `tokenizer_hash`.
pub(crate) fn check_tokenizer(
    checkpoint: &Path,
    state: &State,
    tokenizer_hash: &str,
) -> Result<(), CheckpointError> {
    let expected = &state.identity.tokenizer_hash;
    if expected == tokenizer_hash {
        return Ok(());
    }
    let path = checkpoint.join(STATE_FILE);
    Err(CheckpointError::Tokenizer {
        path,
        expected: expected.clone(),
        got: tokenizer_hash.to_owned(),
    })
}

/// Sets all parameters of `store` to `flat`: their values, one parameter after the other, in the
/// order of the store.
pub(crate) fn set_weights(
    checkpoint: &Path,
    store: &ParameterStore,
    flat: Vec<f32>,
) -> Result<(), CheckpointError> {
    let count = flat.len();
    Tensor::from_vec(flat, count, store.device())
        .and_then(|flat| store.set_flat(&flat))
        .map_err(|source| CheckpointError::Tensor { path: checkpoint.join(MODEL_FILE), source })
}

/// Opens the file `name` of a checkpoint for reading its tensors, and verifies the hash of the
/// file.
pub(crate) fn open_tensors(
    checkpoint: &Path,
    state: &State,
    name: &str,
) -> Result<Reader, CheckpointError> {
    let path = checkpoint.join(name);
    Reader::new(&path, files::open_verified(&path, entry_of(state, &path, name)?)?)
}

/// Returns the size and hash of the file `name`, as recorded in `state`. `path`: path of the file,
/// for the error message.
fn entry_of<'a>(
    state: &'a State,
    path: &Path,
    name: &str,
) -> Result<&'a FileEntry, CheckpointError> {
    state.files.get(name).ok_or_else(|| CheckpointError::Missing { path: path.to_owned() })
}

fn encode_state(path: &Path, state: &State) -> Result<Vec<u8>, CheckpointError> {
    let mut bytes = serde_json::to_vec_pretty(state).map_err(|error| CheckpointError::Corrupt {
        path: path.to_owned(),
        reason: error.to_string(),
    })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Whether the content of a state file is what some version of this program wrote, by its checksum.
/// Unlike [`checksum`], this needs no knowledge of the fields.
fn matches_own_checksum(bytes: &[u8]) -> bool {
    #[derive(serde::Deserialize)]
    struct Checksum {
        checksum: String,
    }
    let Ok(Checksum { checksum }) = serde_json::from_slice(bytes) else { return false };
    let text = String::from_utf8_lossy(bytes);
    let quoted = |checksum: &str| format!("\"checksum\": \"{checksum}\"");
    let bare = text.replacen(&quoted(&checksum), &quoted(""), 1);
    !checksum.is_empty() && files::sha256(bare.as_bytes()) == checksum
}

/// Returns the SHA-256 hash of the JSON text of `state` with an empty checksum. The hash can be
/// computed again from a state that was read, because reading a number from the JSON text gives the
/// same bits that were written.
fn checksum(path: &Path, state: &State) -> Result<String, CheckpointError> {
    let bare = State { checksum: String::new(), ..state.clone() };
    Ok(files::sha256(&encode_state(path, &bare)?))
}
