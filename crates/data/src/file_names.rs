//! Names of files: their endings, and names that are derived from names of splits.

use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Largest number of bytes that [`split_name`] returns. File systems allow names of 255 bytes, and
/// the callers add endings to the returned name.
const LONGEST_NAME: usize = 160;

/// The name of a file about a split, without its extension. The name of a split may be a path, so
/// path separators are replaced.
///
/// The name of a split with many corpora can be too long for a file name. The end of such a name is
/// replaced by a hash.
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

/// Endings of files that are decompressed while they are read.
const COMPRESSED: [&str; 5] = ["gz", "zst", "xz", "bz2", "zip"];

/// [`COMPRESSED`] as text for messages.
pub(crate) const COMPRESSED_IN_WORDS: &str = ".gz, .zst, .xz, .bz2 or .zip";

/// Possible names of a file whose name is `path` followed by one of `endings`. For each ending, the
/// plain name comes first, then the names of compressed files.
pub(crate) fn names_of(path: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let with = |ending: &str, compressed: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(ending);
        name.push(compressed);
        PathBuf::from(name)
    };
    let of_ending = |ending: &&str| {
        let ending = *ending;
        let plain = std::iter::once(with(ending, ""));
        let compressed = COMPRESSED.map(|compressed| with(ending, &format!(".{compressed}")));
        plain.chain(compressed).collect::<Vec<_>>()
    };
    endings.iter().flat_map(of_ending).collect()
}

/// True if a file's name has the ending of a ZIP archive.
pub(crate) fn is_archive(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("zip"))
}

/// The path without the ending of a compressed file, such as `.gz`. A path without such an ending
/// is not changed.
pub(crate) fn uncompressed(path: &Path) -> PathBuf {
    if is_compressed(path) { path.with_extension("") } else { path.to_owned() }
}

/// True if [`open_stream`](crate::open_stream) decompresses a file with this name. Case is ignored.
#[must_use]
pub fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|ending| {
        COMPRESSED.iter().any(|compressed| ending.eq_ignore_ascii_case(compressed))
    })
}

/// Bytes as lowercase hexadecimal digits.
#[must_use]
pub fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
