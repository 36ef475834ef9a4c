//! Checksums with which the hub identifies files.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use sha1::Sha1;
use sha2::{Digest, Sha256};

use crate::{HubError, Result};

/// Returns the SHA-256 of a file in hexadecimal. Git LFS identifies a file by it.
pub(crate) fn sha256_of(path: &Path) -> Result<String> {
    digest::<Sha256>(path, &[])
}

/// Returns the SHA-1 by which Git identifies a file of `bytes` bytes (its blob id), in hexadecimal.
pub(crate) fn git_blob_of(path: &Path, bytes: u64) -> Result<String> {
    digest::<Sha1>(path, format!("blob {bytes}\0").as_bytes())
}

fn digest<D: Digest>(path: &Path, before: &[u8]) -> Result<String> {
    let fault = |error| HubError::file(path, error);
    let mut file = File::open(path).map_err(fault)?;
    let (mut digest, mut piece) = (D::new(), vec![0; 1 << 16]);
    digest.update(before);
    loop {
        match file.read(&mut piece).map_err(fault)? {
            0 => break,
            count => digest.update(&piece[..count]),
        }
    }
    Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}
