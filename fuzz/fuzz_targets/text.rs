//! Corpora of two files of text.
#![no_main]

#[path = "../../crates/data/tests/survives/mod.rs"]
mod survives;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use survives::{Split, TEXT};

static SPLIT: LazyLock<Split> = LazyLock::new(Split::text);

fuzz_target!(
    init: {
        taper_fuzz::seed("text", "valid", TEXT);
    },
    |bytes: &[u8]| SPLIT.read(bytes)
);
