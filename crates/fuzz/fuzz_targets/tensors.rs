//! Target: files of tensors in a checkpoint. The first byte chooses the weights or the optimizer's
//! moments; the rest replaces this file, and the checkpoint's state gets the correct checksum of
//! the new content.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use taper_hostile::checkpoints::Checkpoint;
use taper_trainer::{MODEL_FILE, OPTIMIZER_FILE};

thread_local! {
    /// One checkpoint for weights and one for moments, so that a file that one kind of input has
    /// changed does not affect the other kind.
    static CHECKPOINTS: LazyCell<[Checkpoint; 2]> = LazyCell::new(|| [Checkpoint::trained(), Checkpoint::trained()]);
}

fuzz_target!(
    init: {
        CHECKPOINTS.with(|checkpoints| {
            for (choice, name) in [(0, MODEL_FILE), (1, OPTIMIZER_FILE)] {
                taper_fuzz::seed("tensors", name, &[&[choice], checkpoints[0].file(name).as_slice()].concat());
            }
        });
    },
    |bytes: &[u8]| {
        CHECKPOINTS.with(|checkpoints| match bytes {
            [0, bytes @ ..] => checkpoints[0].vouched_weights(bytes),
            [_, bytes @ ..] => checkpoints[1].vouched_moments(bytes),
            [] => {}
        });
    }
);
