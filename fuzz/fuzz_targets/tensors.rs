//! The tensors of a checkpoint, for which its state is made to vouch; the first byte chooses weights or moments.
#![no_main]

#[path = "../../crates/trainer/tests/common/mod.rs"]
mod common;
#[path = "../../crates/trainer/tests/survives/mod.rs"]
mod survives;

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use survives::Checkpoint;
use taper_trainer::{MODEL_FILE, OPTIMIZER_FILE};

thread_local! {
    static CHECKPOINT: LazyCell<Checkpoint> = LazyCell::new(Checkpoint::new);
}

fuzz_target!(
    init: {
        CHECKPOINT.with(|checkpoint| {
            for (choice, name) in [(0, MODEL_FILE), (1, OPTIMIZER_FILE)] {
                taper_fuzz::seed("tensors", name, &[&[choice], checkpoint.file(name).as_slice()].concat());
            }
        });
    },
    |bytes: &[u8]| {
        CHECKPOINT.with(|checkpoint| match bytes {
            [0, bytes @ ..] => checkpoint.vouched_weights(bytes),
            [_, bytes @ ..] => checkpoint.vouched_moments(bytes),
            [] => {}
        });
    }
);
