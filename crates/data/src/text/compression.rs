//! Methods of compression of text files, by the endings of file names, and decompression.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::zstandard::Frames;
use crate::{Error, Result};

/// Number of bytes that are read from the disk at a time.
const BUFFER: usize = 1 << 18;

/// Largest memory of an xz decoder, in KiB. A file of `xz -9` needs a quarter of it.
const XZ_MEMORY: u32 = 1 << 18;

/// Number of decompressed bytes up to which any ratio of compression is allowed.
const ANY_RATIO: u64 = 1 << 28;

/// Largest ratio of decompressed bytes to bytes of the file. The ratio of text is about 10. A file
/// with a ratio above this limit was probably made to fill a disk.
const LARGEST_RATIO: u64 = 1000;

/// Stream of decompressed bytes, and a counter of the bytes of the file that were read for it.
pub(crate) type Stream = (Box<dyn BufRead + Send>, Arc<AtomicU64>);

/// Method with which bytes are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Method {
    Plain,
    /// Deflate, without the frame of gzip.
    Deflate,
    Gzip,
    Zstandard,
    Xz,
    Bzip2,
}

impl Method {
    /// Method of a file, by its ending. Case is ignored.
    pub(crate) fn by_ending(ending: Option<&str>) -> Self {
        match ending.map(str::to_ascii_lowercase).as_deref() {
            Some("gz") => Self::Gzip,
            Some("zst") => Self::Zstandard,
            Some("xz") => Self::Xz,
            Some("bz2") => Self::Bzip2,
            _ => Self::Plain,
        }
    }

    /// Decompressed stream of `bytes`.
    pub(crate) fn decode(self, bytes: impl Read + Send + 'static) -> io::Result<Stream> {
        let count = Arc::new(AtomicU64::new(0));
        let bytes = Counted { inner: bytes, count: Arc::clone(&count) };
        let buffered = |bytes| BufReader::with_capacity(BUFFER, bytes);
        let decoded: Box<dyn Read + Send> = match self {
            Self::Plain => return Ok((Box::new(buffered(bytes)), count)),
            Self::Deflate => Box::new(flate2::bufread::DeflateDecoder::new(buffered(bytes))),
            // A gzip file may have many members, one after another. This is also true of the
            // formats below.
            Self::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(buffered(bytes))),
            Self::Zstandard => Box::new(Frames::new(buffered(bytes))),
            Self::Xz => {
                Box::new(lzma_rust2::XzReader::new_mem_limit(buffered(bytes), true, XZ_MEMORY))
            }
            Self::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(buffered(bytes))),
        };
        let bounded = Bounded { inner: decoded, read: Arc::clone(&count), written: 0 };
        Ok((Box::new(BufReader::with_capacity(BUFFER, bounded)), count))
    }
}

/// Opens a file without decompressing it.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    File::open(path).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound => Error::Missing {
            path: path.to_owned(),
            tried: String::new(),
            hint: "check the path".to_owned(),
        },
        _ => Error::io(path, source),
    })
}

/// Reader that counts the bytes that it reads.
struct Counted<R> {
    inner: R,
    count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.count.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Reader of decompressed bytes. It fails if there are far more of them than compressed bytes.
struct Bounded {
    inner: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
    written: u64,
}

impl Read for Bounded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.written += count as u64;
        let read = self.read.load(Ordering::Relaxed).max(1);
        if self.written > ANY_RATIO && self.written / read > LARGEST_RATIO {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!(
                    "grows to more than {LARGEST_RATIO} times its size, as no text does: the file \
                     may have been made to fill a disk; if you trust the file, unpack it yourself"
                ),
            ));
        }
        Ok(count)
    }
}
