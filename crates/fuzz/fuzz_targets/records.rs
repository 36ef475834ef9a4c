//! Fuzz target for the reader of `metrics.jsonl`, the log of a training, which reports and
//! `taper top` read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taper_hostile::records::{LOG, log};

fuzz_target!(
    init: { taper_fuzz::seed("records", "log", LOG); },
    |bytes: &[u8]| log(bytes)
);
