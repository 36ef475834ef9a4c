//! Fuzz target for the reader of corpora with tabs between columns. The first byte of an input
//! chooses which columns are read.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use taper_hostile::corpora::{COLUMNS, Split, TABLE};

static SPLITS: LazyLock<[Split; 3]> = LazyLock::new(|| COLUMNS.map(Split::table));

fuzz_target!(
    init: {
        for choice in 0..3 {
            taper_fuzz::seed("table", &format!("valid-{choice}"), &[&[choice], TABLE].concat());
        }
    },
    |bytes: &[u8]| {
        if let [choice, bytes @ ..] = bytes {
            SPLITS[usize::from(*choice) % SPLITS.len()].read(bytes);
        }
    }
);
