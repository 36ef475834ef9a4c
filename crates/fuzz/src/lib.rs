//! Helpers for all fuzz targets: valid inputs to begin with, and temporary folders.

use std::fs;
use std::path::Path;

/// Writes valid input to the corpus of a target, before the fuzzer reads it.
///
/// # Panics
/// If the corpus cannot be written.
pub fn seed(target: &str, name: &str, bytes: &[u8]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder).expect("the corpus");
    fs::write(folder.join(name), bytes).expect("a seed");
}

/// Makes a temporary folder, which is not removed at the end.
///
/// # Panics
/// If there is no place for temporary files.
#[must_use]
pub fn folder() -> std::path::PathBuf {
    tempfile::tempdir().expect("a temporary folder").keep()
}
