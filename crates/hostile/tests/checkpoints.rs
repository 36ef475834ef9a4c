//! Damaged checkpoints are refused, whatever was damaged. If the checksums of a damaged checkpoint
//! are corrected afterwards, it is loaded or refused, and does not end the program.
//!
//! A few thousand cases run with the other tests; a million of each kind with
//! `cargo test --release -p taper-hostile --test checkpoints -- --ignored`.

use std::fs;

use taper_hostile::assault;
use taper_hostile::checkpoints::Checkpoint;
use taper_trainer::{Checkpoints, MODEL_FILE, OPTIMIZER_FILE, STATE_FILE};

const FEW: u32 = 2_000;
const MANY: u32 = 1_000_000;

fn states(cases: u32) {
    let checkpoint = Checkpoint::trained();
    assault(cases, &[&checkpoint.file(STATE_FILE)], |bytes| checkpoint.state(bytes));
}

fn tensors(cases: u32) {
    let checkpoint = Checkpoint::trained();
    weights(cases, &checkpoint);
    let seed = checkpoint.file(OPTIMIZER_FILE);
    let beginning = &seed[..header(&seed) + 64];
    assault(cases / 8, &[beginning], |bytes| checkpoint.vouched_moments(&filled_up(bytes, &seed)));
}

/// Checks damaged weights in int8. In their file, the values of a matrix and its scales are
/// separate tensors.
fn int8_tensors(cases: u32) {
    weights(cases, &Checkpoint::in_int8());
}

fn weights(cases: u32, checkpoint: &Checkpoint) {
    let seed = checkpoint.file(MODEL_FILE);
    // The seed `beginning` ends soon after the header of the file. So most of the damage falls in
    // the header, which the reader parses.
    let beginning = &seed[..header(&seed) + 64];
    assault(cases, &[beginning, &seed], |bytes| {
        assert!(!checkpoint.weights(bytes) || bytes == seed)
    });
    assault(cases, &[beginning, &seed], |bytes| {
        checkpoint.vouched_weights(&filled_up(bytes, &seed))
    });
    checkpoint.vouched_weights(&seed);
}

/// Number of bytes of a safetensors file before its values.
fn header(file: &[u8]) -> usize {
    8 + u64::from_le_bytes(file[..8].try_into().unwrap()) as usize
}

/// Extends a file that is shorter than `seed` with the last bytes of `seed`, so that it has the
/// size of `seed`.
fn filled_up(bytes: &[u8], seed: &[u8]) -> Vec<u8> {
    [bytes, &seed[bytes.len().min(seed.len())..]].concat()
}

/// Checks damaged pointers. A pointer is a file that contains the name of a checkpoint's folder; it
/// must not lead out of the folder of checkpoints.
fn pointers(cases: u32) {
    let checkpoint = Checkpoint::trained();
    let checkpoints = Checkpoints::new(checkpoint.root());
    assault(cases, &[b"step-00000002\n", b"../step-00000002", b"/"], |bytes| {
        fs::write(checkpoint.root().join("last"), bytes).unwrap();
        if let Ok(path) = checkpoints.resolve("last") {
            assert_eq!(path.parent(), Some(checkpoint.root()), "a pointer must not lead elsewhere");
        }
    });
}

#[test]
fn damaged_checkpoints_are_refused() {
    states(FEW);
    tensors(FEW);
    int8_tensors(FEW);
    pointers(FEW);
}

#[test]
#[ignore = "hours; see the head of this file"]
fn a_million_of_each_kind() {
    states(MANY);
    tensors(MANY);
    int8_tensors(MANY);
    pointers(MANY);
}
