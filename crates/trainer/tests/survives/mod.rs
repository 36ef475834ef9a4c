//! What damaged checkpoints are put through: by the property tests beside this, and by the fuzz
//! targets in `fuzz`. Needs the module `common` beside it.
#![allow(dead_code, reason = "each program that includes it uses a part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use sha2::{Digest, Sha256};
use taper_model::Transformer;
use taper_trainer::{
    Checkpoints, Event, FileEntry, Identity, MODEL_FILE, NoValidation, OPTIMIZER_FILE, STATE_FILE,
    State, Trainer, load_model, read_state,
};

use crate::common::{Generated, Task, model, short_run, tiny};

/// A checkpoint whose files are damaged again and again.
pub(crate) struct Checkpoint {
    path: PathBuf,
    state: State,
    target: Transformer,
    folder: tempfile::TempDir,
}

impl Checkpoint {
    /// The last checkpoint of a short run.
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut trainer =
            Trainer::new(model(&tiny(0.0)), short_run(2), Identity::default(), folder.path())
                .unwrap();
        let mut observer = |_: &Event| Ok(());
        trainer
            .train(
                &mut Generated::new(Task::Copy),
                &mut NoValidation,
                &mut observer,
                &AtomicBool::new(false),
            )
            .unwrap();
        let path = Checkpoints::new(folder.path()).resolve("last").unwrap();
        Self { state: read_state(&path).unwrap(), path, target: model(&tiny(0.0)), folder }
    }

    /// The folder of the checkpoints.
    pub(crate) fn root(&self) -> &Path {
        self.folder.path()
    }

    /// The bytes of one of its files.
    pub(crate) fn file(&self, name: &str) -> Vec<u8> {
        fs::read(self.path.join(name)).unwrap()
    }

    /// Of damaged states, only what means the same may be accepted. One whose checksum was made
    /// anew is not damaged: a fuzzer that sees what checksums are compared with finds such.
    pub(crate) fn state(&self, bytes: &[u8]) {
        fs::write(self.path.join(STATE_FILE), bytes).unwrap();
        match read_state(&self.path) {
            Ok(read) if read.checksum == self.state.checksum => assert_eq!(read, self.state),
            Ok(read) => assert_eq!(read.checksum, checksum(read.clone())),
            Err(error) => assert!(error.to_string().contains(STATE_FILE), "{error}"),
        }
    }

    /// Weights that are not those that were saved are refused.
    pub(crate) fn weights(&self, bytes: &[u8]) -> bool {
        fs::write(self.path.join(MODEL_FILE), bytes).unwrap();
        load_model(&self.path, &self.target, "").is_ok()
    }

    /// Weights that the state vouches for are loaded, or refused for what they are.
    pub(crate) fn vouched_weights(&self, bytes: &[u8]) {
        fs::write(self.path.join(MODEL_FILE), bytes).unwrap();
        self.vouch_for(MODEL_FILE, bytes);
        if let Err(error) = load_model(&self.path, &self.target, "") {
            assert!(error.to_string().contains(MODEL_FILE), "{error}");
        }
    }

    /// The same of moments.
    pub(crate) fn vouched_moments(&self, bytes: &[u8]) {
        fs::write(self.path.join(OPTIMIZER_FILE), bytes).unwrap();
        self.vouch_for(OPTIMIZER_FILE, bytes);
        let resumed = Trainer::resume(
            model(&tiny(0.0)),
            short_run(4),
            Identity::default(),
            self.root(),
            "last",
        );
        if let Err(error) = resumed {
            assert!(error.to_string().contains(OPTIMIZER_FILE), "{error}");
        }
    }

    /// Makes the state vouch for a file with this content.
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

/// The checksum that a state should have.
fn checksum(mut state: State) -> String {
    state.checksum.clear();
    sha256(&encoded(&state))
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}
