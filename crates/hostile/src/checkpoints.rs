//! Checks that damaged checkpoints are refused, or at least do no harm. Each check gets the bytes
//! of one damaged file.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use candle_core::{DType, Device};
use sha2::{Digest, Sha256};
use taper_model::{Batch, Builder, ModelConfig, Sequences, Transformer};
use taper_trainer::{
    BoxError, Checkpoints, Event, FileEntry, Identity, MODEL_FILE, NoValidation, OPTIMIZER_FILE,
    Position, STATE_FILE, Source, State, Trainer, TrainingConfig, load_model, read_state,
    round_to_int8,
};

/// Vocabulary size of source and target.
const VOCABULARY: usize = 14;

/// Makes the smallest model that has every kind of parameter.
fn model() -> Transformer {
    let config = ModelConfig {
        d_model: 32,
        d_ff: 64,
        heads: 4,
        encoder_layers: 1,
        decoder_layers: 1,
        max_positions: 16,
        ..ModelConfig::default()
    };
    Transformer::new(&config, VOCABULARY, VOCABULARY, Builder::seeded(3, &Device::Cpu, DType::F32))
        .unwrap()
}

/// Returns the configuration of a training of `max_updates` updates, which also keeps a moving
/// average of the weights.
fn short_run(max_updates: u64) -> TrainingConfig {
    TrainingConfig { max_updates, ema_decay: 0.9, ..TrainingConfig::default() }
}

/// A source of data. Each epoch has one batch with one pair of sentences.
struct OneBatch;

impl Source for OneBatch {
    fn batches(&mut self, _epoch: u64) -> Result<u64, BoxError> {
        Ok(1)
    }

    fn batch(&mut self, _position: Position) -> Result<Batch, BoxError> {
        let (source, target_in) = (vec![4, 5, 3], vec![2, 4, 5]);
        let streams = vec![Sequences::pack(&[source]), Sequences::pack(&[target_in])];
        Ok(Batch::new(streams, vec![4, 5, 3]))
    }
}

/// A checkpoint whose files are damaged repeatedly.
pub struct Checkpoint {
    path: PathBuf,
    state: State,
    target: Transformer,
    folder: tempfile::TempDir,
}

impl Checkpoint {
    /// Makes the last checkpoint of a short run.
    ///
    /// # Panics
    /// If temporary files cannot be made.
    pub fn trained() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut trainer =
            Trainer::new(model(), short_run(2), Identity::default(), folder.path()).unwrap();
        let mut observer = |_: &Event| Ok(());
        trainer
            .train(&mut OneBatch, &mut NoValidation, &mut observer, &AtomicBool::new(false))
            .unwrap();
        let path = Checkpoints::new(folder.path()).resolve("last").unwrap();
        Self { state: read_state(&path).unwrap(), path, target: model(), folder }
    }

    /// Makes the last checkpoint of a short run, with its weights in int8.
    ///
    /// # Panics
    /// If temporary files cannot be made.
    pub fn in_int8() -> Self {
        let mut checkpoint = Self::trained();
        let path = checkpoint.folder.path().join("int8");
        round_to_int8(&checkpoint.path).unwrap().save(&path).unwrap();
        checkpoint.state = read_state(&path).unwrap();
        Self { path, ..checkpoint }
    }

    /// Returns the folder of the checkpoints.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the bytes of the checkpoint's file `name`.
    ///
    /// # Panics
    /// If the checkpoint has no such file.
    pub fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path.join(name)).unwrap()
    }

    /// Checks that a damaged state is refused, or is equal to the valid state after it is read. A
    /// changed state with a correct checksum is accepted, because a fuzzer that observes the
    /// comparison of checksums can compute the checksum that is needed.
    ///
    /// # Panics
    /// If the check fails.
    pub fn state(&self, bytes: &[u8]) {
        fs::write(self.path.join(STATE_FILE), bytes).unwrap();
        match read_state(&self.path) {
            Ok(read) if read.checksum == self.state.checksum => assert_eq!(read, self.state),
            Ok(read) => assert_eq!(read.checksum, checksum(read.clone())),
            Err(error) => assert!(error.to_string().contains(STATE_FILE), "{error}"),
        }
    }

    /// Tries to load `bytes` as the checkpoint's weights; returns true if they were loaded. The
    /// state has the checksum of the saved weights, so no other weights should be loaded.
    ///
    /// # Panics
    /// If the weights cannot be written.
    pub fn weights(&self, bytes: &[u8]) -> bool {
        fs::write(self.path.join(MODEL_FILE), bytes).unwrap();
        load_model(&self.path, &self.target, "").is_ok()
    }

    /// Replaces the weights by `bytes`, and writes the correct checksum of `bytes` to the state.
    /// Checks that the new weights are loaded, or refused with an error that names their file.
    ///
    /// # Panics
    /// If the check fails.
    pub fn vouched_weights(&self, bytes: &[u8]) {
        fs::write(self.path.join(MODEL_FILE), bytes).unwrap();
        self.vouch_for(MODEL_FILE, bytes);
        if let Err(error) = load_model(&self.path, &self.target, "") {
            assert!(error.to_string().contains(MODEL_FILE), "{error}");
        }
    }

    /// Replaces the optimizer's moments by `bytes`, and writes the correct checksum of `bytes` to
    /// the state. Checks that the new moments are loaded, or refused with an error that names their
    /// file.
    ///
    /// # Panics
    /// If the check fails.
    pub fn vouched_moments(&self, bytes: &[u8]) {
        fs::write(self.path.join(OPTIMIZER_FILE), bytes).unwrap();
        self.vouch_for(OPTIMIZER_FILE, bytes);
        let resumed =
            Trainer::resume(model(), short_run(4), Identity::default(), self.root(), "last");
        if let Err(error) = resumed {
            assert!(error.to_string().contains(OPTIMIZER_FILE), "{error}");
        }
    }

    /// Writes the checksum of `bytes`, the content of the file `name`, to the state.
    fn vouch_for(&self, name: &str, bytes: &[u8]) {
        let mut state = self.state.clone();
        state.files.insert(
            name.to_owned(),
            FileEntry { sha256: sha256(bytes), bytes: bytes.len() as u64 },
        );
        state.checksum = checksum(state.clone());
        fs::write(self.path.join(STATE_FILE), encoded(&state)).unwrap();
    }
}

fn encoded(state: &State) -> Vec<u8> {
    [serde_json::to_vec_pretty(state).unwrap(), b"\n".to_vec()].concat()
}

/// Computes the correct checksum of a state, that is, of its content without the field `checksum`.
fn checksum(mut state: State) -> String {
    state.checksum.clear();
    sha256(&encoded(&state))
}

fn sha256(bytes: &[u8]) -> String {
    taper_data::hexadecimal(&Sha256::digest(bytes))
}
