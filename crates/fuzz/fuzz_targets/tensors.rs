//! Fuzz target for the readers of the files of tensors in a checkpoint. The first byte of an input
//! chooses the file: the weights or the optimizer's moments. The other bytes replace the content of
//! this file, and the checkpoint's state gets the correct checksum of the new content.
#![no_main]

use std::cell::LazyCell;

use libfuzzer_sys::fuzz_target;
use taper_hostile::checkpoints::Checkpoint;
use taper_trainer::{MODEL_FILE, OPTIMIZER_FILE};

thread_local! {
    /// One checkpoint whose weights are replaced, and one whose moments are replaced. With a single
    /// checkpoint, a damaged file would also affect inputs that choose the other file.
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
