//! Files of records of equal size. Each record is read from the disk when it is needed.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::file_names::is_compressed;
use crate::files::{not_a_file, read_at};
use crate::text::lines::open_stream;
use crate::{Error, Result};

/// An open file with records after a header.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    content: Content,
    length: u64,
}

#[derive(Debug)]
enum Content {
    /// The decompressed content of a compressed file.
    Held(Vec<u8>),
    OnDisk(File),
}

impl Records {
    /// Opens `path`. The function `length` computes the expected length of the content in bytes.
    /// Its arguments are the first `header` bytes of the content and the size of the file, which is
    /// `None` for a compressed file. A compressed file is decompressed up to the expected length.
    ///
    /// # Errors
    ///
    /// If the file cannot be read or decompressed, or does not have the length that `length`
    /// computes.
    pub(super) fn open(
        path: &Path,
        header: usize,
        length: impl FnOnce(&[u8], Option<u64>) -> Result<u64>,
    ) -> Result<Self> {
        let io = |error| Error::io(path, error);
        if let Some(kind) = not_a_file(path) {
            let message = format!("is {kind}, where a file of images is expected");
            return Err(Error::Malformed { path: path.to_owned(), message });
        }
        let mut stream = open_stream(path)?;
        let mut bytes = Vec::with_capacity(header);
        stream.by_ref().take(header as u64).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() < header {
            let size = bytes.len();
            return Err(wrong_length(path, &format!("at least {header}"), size as u64));
        }
        let (content, size) = if is_compressed(path) {
            let expected = length(&bytes, None)?;
            // One more byte is read, to find out whether the file is longer.
            let rest = expected.saturating_sub(header as u64).saturating_add(1);
            stream.take(rest).read_to_end(&mut bytes).map_err(io)?;
            let size = bytes.len() as u64;
            if size > expected {
                return Err(wrong_length(path, &expected.to_string(), size));
            }
            (Content::Held(bytes), (expected, size))
        } else {
            let file = File::open(path).map_err(io)?;
            let size = file.metadata().map_err(io)?.len();
            (Content::OnDisk(file), (length(&bytes, Some(size))?, size))
        };
        let (expected, size) = size;
        if size != expected {
            return Err(wrong_length(path, &expected.to_string(), size));
        }
        Ok(Self { path: path.to_owned(), content, length: expected })
    }

    /// Length of the whole content in bytes, decompressed.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Reads `count` bytes of the content into `into`, from the byte with index `at`.
    ///
    /// # Errors
    ///
    /// If the file can no longer be read.
    pub(super) fn read(&self, at: u64, count: usize, into: &mut Vec<u8>) -> Result<()> {
        into.clear();
        match &self.content {
            Content::Held(bytes) => {
                // `at` is within the length, which was checked when the file was opened.
                into.extend_from_slice(&bytes[at as usize..at as usize + count]);
                Ok(())
            }
            Content::OnDisk(file) => {
                into.resize(count, 0);
                read_at(file, into, at).map_err(|error| Error::io(&self.path, error))
            }
        }
    }
}

fn wrong_length(path: &Path, expected: &str, found: u64) -> Error {
    let message = format!(
        "has {found} bytes or more where {expected} are expected: it is cut off or damaged, or of \
         another format; fetch it again, or set data.images.format"
    );
    Error::Malformed { path: path.to_owned(), message }
}
