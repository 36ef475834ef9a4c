//! Fuzz target for the reader of corpora with a JSON object on each line.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use taper_hostile::corpora::{JSON_LINES, Split};

static SPLIT: LazyLock<Split> = LazyLock::new(Split::json_lines);

fuzz_target!(
    init: {
        taper_fuzz::seed("json_lines", "valid", JSON_LINES);
    },
    |bytes: &[u8]| SPLIT.read(bytes)
);
