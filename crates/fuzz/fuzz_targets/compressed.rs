//! Fuzz target for the reader of compressed corpora. The first byte of an input chooses gzip or
//! Zstandard.
#![no_main]

use std::io::Write;
use std::sync::LazyLock;

use flate2::Compression;
use flate2::write::GzEncoder;
use libfuzzer_sys::fuzz_target;
use taper_data::Format;
use taper_hostile::corpora::{Split, TEXT};

static SPLITS: LazyLock<[Split; 2]> = LazyLock::new(|| {
    ["train.en.gz", "train.en.zst"]
        .map(|name| Split::new(Format::Text, name, "eins\nzwei\n", ["", ""]))
});

fuzz_target!(
    init: {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(TEXT).expect("memory");
        taper_fuzz::seed("compressed", "gzip", &[&[0], gzip.finish().expect("memory").as_slice()].concat());
        taper_fuzz::seed("compressed", "zstandard", &[&[1], zstd::encode_all(TEXT, 3).expect("memory").as_slice()].concat());
    },
    |bytes: &[u8]| {
        if let [choice, bytes @ ..] = bytes {
            SPLITS[usize::from(*choice) % SPLITS.len()].read(bytes);
        }
    }
);
