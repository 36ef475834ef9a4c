//! Fuzz target for the reader of `state.json`, the state of a training in a checkpoint.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use taper_hostile::checkpoints::Checkpoint;
use taper_trainer::STATE_FILE;

thread_local! {
    static CHECKPOINT: LazyCell<Checkpoint> = LazyCell::new(Checkpoint::trained);
}

fuzz_target!(
    init: {
        CHECKPOINT.with(|checkpoint| taper_fuzz::seed("state", "valid", &checkpoint.file(STATE_FILE)));
    },
    |bytes: &[u8]| CHECKPOINT.with(|checkpoint| checkpoint.state(bytes))
);
