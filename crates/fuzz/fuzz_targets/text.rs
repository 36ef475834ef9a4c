//! Fuzz target for the reader of corpora that consist of two text files.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use taper_hostile::corpora::{Split, TEXT};

static SPLIT: LazyLock<Split> = LazyLock::new(Split::text);

fuzz_target!(
    init: {
        taper_fuzz::seed("text", "valid", TEXT);
    },
    |bytes: &[u8]| SPLIT.read(bytes)
);
