//! Names of files: their endings, and those that are made of the names of splits.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Largest number of bytes of [`split_name`]: file systems take 255, and endings follow.
const LONGEST_NAME: usize = 160;

/// Name of a file about a split, without its extension: a stem may lie in a subfolder, or
/// anywhere.
///
/// One of many corpora, whose names together are longer than a file's may be, ends in a hash of it.
#[must_use]
pub fn split_name(split: &str) -> String {
    let name = split.replace(['/', '\\'], "_");
    if name.len() <= LONGEST_NAME {
        return name;
    }
    let hash = hexadecimal(&Sha256::digest(split.as_bytes()));
    let end = name.floor_char_boundary(LONGEST_NAME - 17);
    format!("{}-{}", &name[..end], &hash[..16])
}

/// Endings of compressed files, which are decompressed.
const COMPRESSED: [&str; 2] = ["gz", "zst"];

/// A path without the ending of a compressed file.
pub(crate) fn uncompressed(path: &Path) -> PathBuf {
    let is_compressed = path.extension().is_some_and(|extension| {
        COMPRESSED.iter().any(|compressed| extension.eq_ignore_ascii_case(compressed))
    });
    if is_compressed { path.with_extension("") } else { path.to_owned() }
}

/// Whether [`open_stream`](crate::open_stream) decompresses a file of this name.
pub(crate) fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| COMPRESSED.iter().any(|compressed| ending == *compressed))
}

/// Bytes as lowercase hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
