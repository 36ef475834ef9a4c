//! Damaged checkpoints are refused, whatever was damaged: also by somebody who makes the hashes fit.
//!
//! A few thousand cases run with the other tests; a million of each kind with
//! `cargo test --release -p taper-trainer --test hostile -- --ignored`.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use common::{Generated, Task, model, short_run, tiny};
use sha2::{Digest, Sha256};
use taper_hostile::assault;
use taper_trainer::{
    Checkpoints, Event, FileEntry, Identity, MODEL_FILE, NoValidation, OPTIMIZER_FILE, STATE_FILE, State, Trainer, load_model, read_state,
};

const FEW: u32 = 2_000;
const MANY: u32 = 1_000_000;

fn checkpoint(folder: &Path) -> PathBuf {
    let mut trainer = Trainer::new(model(&tiny(0.0)), short_run(2), Identity::default(), folder).unwrap();
    let mut observer = |_: &Event| Ok(());
    trainer.train(&mut Generated::new(Task::Copy), &mut NoValidation, &mut observer, &AtomicBool::new(false)).unwrap();
    Checkpoints::new(folder).resolve("last").unwrap()
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Makes the state vouch for a file with this content.
fn vouch_for(checkpoint: &Path, state: &State, name: &str, bytes: &[u8]) {
    let mut state = state.clone();
    state.files.insert(name.to_owned(), FileEntry { sha256: sha256(bytes), bytes: bytes.len() as u64 });
    let encode = |state: &State| [serde_json::to_vec_pretty(state).unwrap(), b"\n".to_vec()].concat();
    state.checksum.clear();
    state.checksum = sha256(&encode(&state));
    fs::write(checkpoint.join(STATE_FILE), encode(&state)).unwrap();
}

fn states(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let path = checkpoint.join(STATE_FILE);
    let seed = fs::read(&path).unwrap();
    let state = read_state(&checkpoint).unwrap();
    assault(cases, &[&seed], |bytes| {
        fs::write(&path, bytes).unwrap();
        match read_state(&checkpoint) {
            // Only what means the same may be accepted.
            Ok(read) => assert_eq!(read, state),
            Err(error) => assert!(error.to_string().contains(STATE_FILE), "{error}"),
        }
    });
}

fn tensors(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = checkpoint(folder.path());
    let state = read_state(&checkpoint).unwrap();
    let target = model(&tiny(0.0));
    let path = checkpoint.join(MODEL_FILE);
    let seed = fs::read(&path).unwrap();
    // The header is where damage is understood: a copy of the file in which most of the damage falls there.
    let header = 8 + u64::from_le_bytes(seed[..8].try_into().unwrap()) as usize;
    assault(cases, &[&seed[..header + 64], &seed], |bytes| {
        fs::write(&path, bytes).unwrap();
        let loaded = load_model(&checkpoint, &target, "");
        assert!(bytes == seed || loaded.is_err());
    });
    assault(cases, &[&seed[..header + 64], &seed], |bytes| {
        // Cut short above, so that it has to be filled up again to be a file of the right size.
        let bytes = [bytes, &seed[bytes.len().min(seed.len())..]].concat();
        fs::write(&path, &bytes).unwrap();
        vouch_for(&checkpoint, &state, MODEL_FILE, &bytes);
        if let Err(error) = load_model(&checkpoint, &target, "") {
            assert!(error.to_string().contains(MODEL_FILE), "{error}");
        }
    });
    fs::write(&path, &seed).unwrap();
    let path = checkpoint.join(OPTIMIZER_FILE);
    let seed = fs::read(&path).unwrap();
    let header = 8 + u64::from_le_bytes(seed[..8].try_into().unwrap()) as usize;
    assault(cases / 8, &[&seed[..header + 64]], |bytes| {
        let bytes = [bytes, &seed[bytes.len().min(seed.len())..]].concat();
        fs::write(&path, &bytes).unwrap();
        vouch_for(&checkpoint, &state, OPTIMIZER_FILE, &bytes);
        let resumed = Trainer::resume(model(&tiny(0.0)), short_run(4), Identity::default(), folder.path(), "last");
        if let Err(error) = resumed {
            assert!(error.to_string().contains(OPTIMIZER_FILE), "{error}");
        }
    });
}

/// The pointers and the names of directories come from the disk, too.
fn pointers(cases: u32) {
    let folder = tempfile::tempdir().unwrap();
    checkpoint(folder.path());
    let checkpoints = Checkpoints::new(folder.path());
    assault(cases, &[b"step-00000002\n", b"../step-00000002", b"/"], |bytes| {
        fs::write(folder.path().join("last"), bytes).unwrap();
        if let Ok(path) = checkpoints.resolve("last") {
            assert_eq!(path.parent(), Some(folder.path()), "a pointer must not lead elsewhere");
        }
    });
}

#[test]
fn damaged_checkpoints_are_refused() {
    states(FEW);
    tensors(FEW);
    pointers(FEW);
}

#[test]
#[ignore = "hours; see the head of this file"]
fn a_million_of_each_kind() {
    states(MANY);
    tensors(MANY);
    pointers(MANY);
}
