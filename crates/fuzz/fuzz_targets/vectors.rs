//! Fuzz target for the reader of files of word vectors, in text and binary form.
#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use taper_hostile::vectors::{BINARY_VECTORS, GLOVE, TEXT_VECTORS, vector_file};

static PATH: LazyLock<PathBuf> = LazyLock::new(|| taper_fuzz::folder().join("vectors"));

fuzz_target!(
    init: {
        for (name, bytes) in [("text", TEXT_VECTORS), ("binary", BINARY_VECTORS), ("glove", GLOVE)] {
            taper_fuzz::seed("vectors", name, bytes);
        }
    },
    |bytes: &[u8]| vector_file(&PATH, bytes)
);
