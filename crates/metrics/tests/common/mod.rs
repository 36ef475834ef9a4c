//! Reader of golden files: reference results as compressed JSON, which `scripts/golden` makes.

use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use flate2::read::GzDecoder;
use serde::de::DeserializeOwned;

pub(crate) type TestResult = Result<(), Box<dyn Error>>;

/// Reads a golden file by its name.
pub(crate) fn golden<T: DeserializeOwned>(name: &str) -> Result<T, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    let mut text = String::new();
    GzDecoder::new(File::open(path)?).read_to_string(&mut text)?;
    Ok(serde_json::from_str(&text)?)
}
