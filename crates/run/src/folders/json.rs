//! Reading and writing of JSON files in model folders.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Serialize;
use serde_json::Value;
use taper_data::read_regular;

use super::MOST_BYTES;
use crate::folder::files::write_atomically;

/// Reads a JSON file that contains an object, and returns the object. The file can begin with a
/// byte order mark.
pub(super) fn read_keys(path: &Path) -> Result<Value> {
    let bytes = read_regular(path, MOST_BYTES)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let keys: Value = serde_json::from_slice(without_mark(&bytes))
        .with_context(|| format!("{}: not JSON", path.display()))?;
    if !keys.is_object() {
        bail!("{}: not an object of JSON", path.display());
    }
    Ok(keys)
}

/// Returns the bytes of a text without its byte order mark, if it begins with one.
pub(super) fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// Writes `value` as a JSON file with keys in alphabetical order.
pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let mut value = serde_json::to_value(value)?;
    // If another crate switches on the feature `preserve_order` of serde_json, keys stay in the
    // order in which they were inserted.
    value.sort_all_objects();
    let mut json = serde_json::to_vec_pretty(&value)?;
    json.push(b'\n');
    write_atomically(path, &json)
}
