//! Reads and writes the cache of a split: a file with its tokenised text.
//!
//! ```text
//! header   magic (8 bytes), key (32), items (u64), report bytes (u64), checksum (32)
//! items    what the task keeps: pairs of sentences, or the ids of running text
//! report   JSON
//! ```
//!
//! Integers are little-endian. The key is a hash of everything that determines the content. The
//! checksum is the SHA-256 of all bytes after the header. A file that is damaged or has another key
//! is made again, never repaired.
//!
//! **Decision.** Items are read from the file one by one when a batch needs them. Memory holds at
//! most an index of the items. The file is not mapped into memory, because the pages that were used
//! would count as memory of the process, and because the process would be killed if the disk
//! disappeared. A read that fails only returns an error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use crate::files::{Partial, read_at};
use crate::{Error, Result};

/// First bytes of a file. They change with the format, so that a cache in another format is made
/// again.
const MAGIC: &[u8; 8] = b"TAPERTC2";
/// Folder of the tokenised splits within a run.
pub(crate) const CACHE_FOLDER: &str = "cache";
/// Number of bytes of the header, after which the items begin.
pub(crate) const HEADER_BYTES: usize = 88;
/// Number of bytes of an id.
pub(crate) const ID_BYTES: usize = 4;
/// Number of bytes that are read from the disk at a time while a file is verified.
const BUFFER: usize = 1 << 18;

/// Hash of everything that determines the content of a cache.
pub(crate) type Key = [u8; 32];

/// A tokenised split on disk.
#[derive(Debug)]
pub(crate) struct Cache {
    path: PathBuf,
    file: File,
}

impl Cache {
    /// Opens a cache. Returns the cache, the result of `index` (which reads all items), and the
    /// report. `None` if there is no file, or the file has another key or format or is damaged.
    pub(crate) fn open<T, R: DeserializeOwned>(
        path: &Path,
        key: &Key,
        index: impl FnOnce(&mut Items<'_>) -> io::Result<T>,
    ) -> Result<Option<(Self, T, R)>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, error)),
        };
        match check(&file, key, index) {
            Ok(Some((index, report))) => {
                Ok(Some((Self { path: path.to_owned(), file }, index, report)))
            }
            Ok(None) => Ok(None),
            Err(error) => match error.kind() {
                // The file is shorter than a header or than its header says, or `index` cannot
                // decode its bytes.
                ErrorKind::UnexpectedEof | ErrorKind::InvalidData => Ok(None),
                _ => Err(Error::io(path, error)),
            },
        }
    }

    /// Report of the cache at `path`; `None` if the file is missing, has another key, or has no
    /// readable report. Its items are not examined, so they may be damaged.
    pub(crate) fn report<R: DeserializeOwned>(path: &Path, key: &Key) -> Result<Option<R>> {
        let failed = |error| Error::io(path, error);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let length = file.metadata().map_err(failed)?.len();
        let mut header = [0; HEADER_BYTES];
        if length < HEADER_BYTES as u64 {
            return Ok(None);
        }
        read_at(&file, &mut header, 0).map_err(failed)?;
        let (report, content) = (u64_at(&header, 48), length - HEADER_BYTES as u64);
        if &header[..8] != MAGIC || &header[8..40] != key || report > content {
            return Ok(None);
        }
        let mut json = vec![0; usize::try_from(report).unwrap_or(0)];
        read_at(&file, &mut json, length - report).map_err(failed)?;
        Ok(serde_json::from_slice(&json).ok())
    }

    /// Reads `count` bytes from byte `at` of the file. Several threads may call this at once.
    pub(crate) fn read(&self, at: u64, count: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; count];
        read_at(&self.file, &mut bytes, at).map_err(|error| Error::io(&self.path, error))?;
        Ok(bytes)
    }
}

/// Decodes ids from bytes of a cache.
pub(crate) fn ids(bytes: &[u8]) -> impl Iterator<Item = u32> {
    bytes.as_chunks::<ID_BYTES>().0.iter().map(|&id| u32::from_le_bytes(id))
}

/// Reader of the items of a file whose checksum is being computed.
pub(crate) struct Items<'a> {
    reader: BufReader<Digested<'a>>,
    /// Number of items according to the header. The checksum has not been verified yet.
    pub(crate) count: u64,
    /// Number of bytes of the file.
    pub(crate) length: u64,
    /// Place after the last byte of the items, according to the header.
    pub(crate) end: u64,
    /// Place of the next byte in the file.
    pub(crate) at: u64,
}

impl Items<'_> {
    /// Fills `bytes`. Fails if the file has fewer bytes left.
    pub(crate) fn read(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        self.at += bytes.len() as u64;
        self.reader.read_exact(bytes)
    }

    /// Skips `count` bytes. Fails if the file has fewer bytes left.
    pub(crate) fn skip(&mut self, mut count: u64) -> io::Result<()> {
        self.at = self.at.checked_add(count).ok_or(ErrorKind::UnexpectedEof)?;
        while count > 0 {
            let there = self.reader.fill_buf()?.len();
            if there == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let step = there.min(usize::try_from(count).unwrap_or(there));
            self.reader.consume(step);
            count -= step as u64;
        }
        Ok(())
    }
}

/// Reads a whole file and verifies its checksum. `index` reads the items. Returns the result of
/// `index` and the report; `None` if the file is damaged or has another key.
fn check<T, R: DeserializeOwned>(
    file: &File,
    key: &Key,
    index: impl FnOnce(&mut Items<'_>) -> io::Result<T>,
) -> io::Result<Option<(T, R)>> {
    let length = file.metadata()?.len();
    let mut header = [0; HEADER_BYTES];
    let mut unread = file;
    unread.read_exact(&mut header)?;
    if &header[..8] != MAGIC || &header[8..40] != key {
        return Ok(None);
    }
    let (count, report) = (u64_at(&header, 40), u64_at(&header, 48));
    let reader = BufReader::with_capacity(BUFFER, Digested { file, digest: Sha256::new() });
    let end = length.saturating_sub(report);
    let mut items = Items { reader, count, length, end, at: HEADER_BYTES as u64 };
    let index = index(&mut items)?;
    if items.at.checked_add(report) != Some(length) {
        return Ok(None);
    }
    let mut json = Vec::new();
    items.reader.read_to_end(&mut json)?;
    if items.reader.into_inner().digest.finalize()[..] != header[56..88] {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&json).ok().map(|report| (index, report)))
}

/// Reader of a file that hashes the bytes that it reads.
struct Digested<'a> {
    file: &'a File,
    digest: Sha256,
}

impl Read for Digested<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.digest.update(&buffer[..count]);
        Ok(count)
    }
}

/// Integer in `bytes[at..at + 8]`. Panics if `bytes` is too short.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Writes a cache item by item. The file gets its final name in [`CacheWriter::finish`].
pub(crate) struct CacheWriter {
    path: PathBuf,
    partial: Partial,
    file: BufWriter<File>,
    digest: Sha256,
    items: u64,
}

impl CacheWriter {
    /// Begins a cache with the final name `path`, in an existing folder.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let partial = Partial::beside(path);
        let file = File::create(&partial.0).map_err(|error| Error::io(&partial.0, error))?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(BUFFER, file),
            partial,
            digest: Sha256::new(),
            items: 0,
        };
        writer.raw(&[0; HEADER_BYTES])?;
        Ok(writer)
    }

    /// Adds `items` items, which are encoded in `bytes`.
    pub(crate) fn push(&mut self, items: u64, bytes: &[u8]) -> Result<()> {
        self.items += items;
        self.content(bytes)
    }

    /// Writes the report and the header, and gives the file its final name.
    pub(crate) fn finish(mut self, key: &Key, report: &impl Serialize) -> Result<()> {
        let report = serde_json::to_vec(report)
            .map_err(|error| Error::io(&self.path, io::Error::other(error)))?;
        self.content(&report)?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(key);
        for size in [self.items, report.len() as u64] {
            header.extend(size.to_le_bytes());
        }
        header.extend(self.digest.finalize_reset());
        self.file.seek(SeekFrom::Start(0)).map_err(|error| Error::io(&self.partial.0, error))?;
        self.raw(&header)?;
        self.file
            .flush()
            .and_then(|()| self.file.get_ref().sync_all())
            .map_err(|error| Error::io(&self.partial.0, error))?;
        self.partial.rename(&self.path)
    }

    fn content(&mut self, bytes: &[u8]) -> Result<()> {
        self.digest.update(bytes);
        self.raw(bytes)
    }

    fn raw(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|error| Error::io(&self.partial.0, error))
    }
}
