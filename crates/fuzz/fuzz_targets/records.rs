//! Logs of runs, as reports and `taper top` read them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use taper_hostile::records::{LOG, log};

fuzz_target!(
    init: { taper_fuzz::seed("records", "log", LOG); },
    |bytes: &[u8]| log(bytes)
);
