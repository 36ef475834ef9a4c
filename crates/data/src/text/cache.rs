//! The file of a tokenised split, and how files come to be whole or not at all.
//!
//! ```text
//! header   magic (8 bytes), key (32), pairs (u64), report bytes (u64), checksum (32)
//! pairs    of each its line (u64), source length (u32), target length (u32), and the ids of both (u32 each)
//! report   JSON
//! ```
//!
//! Integers are little-endian. The key is a hash of everything the content follows from; the
//! checksum is the SHA-256 of all that comes after the header. Whatever does not fit is rebuilt,
//! never repaired.
//!
//! **Decision.** Pairs are read from the file one by one when a batch wants them; in memory is only
//! where each begins, 16 bytes a pair. A mapped file was rejected: what has been touched of it
//! counts as the process's memory, and a disk that goes away ends the process where a failed read
//! is an error.

use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::{DataReport, Error, Result};

/// Changes with the format, so that a cache of another version is rebuilt.
const MAGIC: &[u8; 8] = b"TAPERTC2";
const HEADER_BYTES: usize = 88;
/// What stands before the ids of a pair.
const HEAD_BYTES: usize = 16;
const ID_BYTES: usize = 4;
/// Bytes read from the disk at a time while a file is checked.
const BUFFER: usize = 1 << 18;

/// What the content of a cache follows from.
pub(crate) type Key = [u8; 32];

/// A sentence pair as ids without special tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Its line in the corpus, counted from 1.
    pub line: u64,
    /// The ids of the sentence to translate.
    pub source: Vec<u32>,
    /// The ids of its translation.
    pub target: Vec<u32>,
}

/// Where a pair stands in the file, and how long its sides are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    at: u64,
    pub(crate) source: u32,
    pub(crate) target: u32,
}

/// A tokenised split on disk.
#[derive(Debug)]
pub(crate) struct Cache {
    path: PathBuf,
    file: File,
    index: Vec<Entry>,
}

impl Cache {
    /// Opens a cache and reads its report. `None` means that there is none to use: no file, another
    /// key, another version, or a damaged file.
    pub(crate) fn open(path: &Path, key: &Key) -> Result<Option<(Self, DataReport)>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, error)),
        };
        match check(&file, key) {
            Ok(Some((index, report))) => {
                Ok(Some((Self { path: path.to_owned(), file, index }, report)))
            }
            Ok(None) => Ok(None),
            // Shorter than it says.
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Error::io(path, error)),
        }
    }

    /// The number of pairs.
    pub(crate) fn pairs(&self) -> usize {
        self.index.len()
    }

    /// Where a pair stands. Panics beyond the last pair.
    pub(crate) fn entry(&self, pair: usize) -> Entry {
        self.index[pair]
    }

    /// Reads a pair. Panics beyond the last.
    pub(crate) fn read(&self, pair: usize) -> Result<Pair> {
        let Entry { at, source, target } = self.entry(pair);
        let mut bytes = vec![0; HEAD_BYTES + (source as usize + target as usize) * ID_BYTES];
        read_at(&self.file, &mut bytes, at).map_err(|error| Error::io(&self.path, error))?;
        let (head, ids) = bytes.split_at(HEAD_BYTES);
        let mut ids = ids.as_chunks::<ID_BYTES>().0.iter().map(|&id| u32::from_le_bytes(id));
        let source = ids.by_ref().take(source as usize).collect();
        Ok(Pair { line: u64_at(head, 0), source, target: ids.collect() })
    }
}

/// Reads a file to its end: where its pairs stand, and its report; nothing if it is not whole or
/// has another key.
fn check(file: &File, key: &Key) -> io::Result<Option<(Vec<Entry>, DataReport)>> {
    let length = file.metadata()?.len();
    let mut header = [0; HEADER_BYTES];
    let mut unread = file;
    unread.read_exact(&mut header)?;
    if &header[..8] != MAGIC || &header[8..40] != key {
        return Ok(None);
    }
    let mut reader = BufReader::with_capacity(BUFFER, Digested { file, digest: Sha256::new() });
    let (pairs, report) = (u64_at(&header, 40), u64_at(&header, 48));
    let mut at = HEADER_BYTES as u64;
    // Before the checksum is known to be right nothing is believed that would take more memory than
    // the file.
    let mut index =
        Vec::with_capacity(usize::try_from(pairs.min(length / HEAD_BYTES as u64)).unwrap_or(0));
    for _ in 0..pairs {
        let mut head = [0; HEAD_BYTES];
        reader.read_exact(&mut head)?;
        let lengths = u64_at(&head, 8);
        let entry = Entry { at, source: lengths as u32, target: (lengths >> 32) as u32 };
        let ids = (u64::from(entry.source) + u64::from(entry.target)) * ID_BYTES as u64;
        skip(&mut reader, ids)?;
        index.push(entry);
        at += HEAD_BYTES as u64 + ids;
    }
    if at.checked_add(report) != Some(length) {
        return Ok(None);
    }
    let mut json = Vec::new();
    reader.read_to_end(&mut json)?;
    if reader.into_inner().digest.finalize()[..] != header[56..88] {
        return Ok(None);
    }
    Ok(serde_json::from_slice(&json).ok().map(|report| (index, report)))
}

/// Passes over bytes, which have to be there.
fn skip(reader: &mut impl BufRead, mut count: u64) -> io::Result<()> {
    while count > 0 {
        let there = reader.fill_buf()?.len();
        if there == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        let step = there.min(usize::try_from(count).unwrap_or(there));
        reader.consume(step);
        count -= step as u64;
    }
    Ok(())
}

/// A file whose bytes are hashed as they are read.
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

/// Fills `bytes` from a place in the file; any number of threads may at once.
#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], at: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, at)
}

/// Fills `bytes` from a place in the file; any number of threads may at once.
#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, at) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                bytes = &mut bytes[count..];
                at += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The integer at a place; the caller has checked the length.
fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}

/// Writes a cache as its pairs come; nothing is under the final name until [`CacheWriter::finish`].
pub(crate) struct CacheWriter {
    path: PathBuf,
    partial: Partial,
    file: BufWriter<File>,
    digest: Sha256,
    pairs: u64,
}

impl CacheWriter {
    /// Begins a cache that will be called `path`, in a folder that exists.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let partial = Partial::beside(path);
        let file = File::create(&partial.0).map_err(|error| Error::io(&partial.0, error))?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(BUFFER, file),
            partial,
            digest: Sha256::new(),
            pairs: 0,
        };
        writer.raw(&[0; HEADER_BYTES])?;
        Ok(writer)
    }

    /// Adds a pair.
    pub(crate) fn push(&mut self, source: &[u32], target: &[u32], line: u64) -> Result<()> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES + (source.len() + target.len()) * ID_BYTES);
        bytes.extend(line.to_le_bytes());
        bytes.extend((source.len() as u32).to_le_bytes());
        bytes.extend((target.len() as u32).to_le_bytes());
        bytes.extend(source.iter().chain(target).flat_map(|id| id.to_le_bytes()));
        self.pairs += 1;
        self.content(&bytes)
    }

    /// Writes report and header, and gives the file its name.
    pub(crate) fn finish(mut self, key: &Key, report: &DataReport) -> Result<()> {
        let report = serde_json::to_vec(report)
            .map_err(|error| Error::io(&self.path, io::Error::other(error)))?;
        self.content(&report)?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(key);
        for size in [self.pairs, report.len() as u64] {
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

/// A file under a temporary name, removed unless it was renamed.
struct Partial(PathBuf);

impl Partial {
    fn beside(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        // Two processes that prepare the same run do not write into one file.
        name.push(format!(".{}.partial", std::process::id()));
        Self(PathBuf::from(name))
    }

    fn rename(&self, path: &Path) -> Result<()> {
        std::fs::rename(&self.0, path).map_err(|error| Error::io(path, error))?;
        // Makes the name durable too. Only Unix lets a directory be opened for this.
        match path.parent().filter(|parent| cfg!(unix) && !parent.as_os_str().is_empty()) {
            Some(parent) => File::open(parent)
                .and_then(|directory| directory.sync_all())
                .map_err(|error| Error::io(parent, error)),
            None => Ok(()),
        }
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // Gone already if it was renamed; otherwise what failed has been reported.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a small file so that it is whole under its name or not there.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let partial = Partial::beside(path);
    let mut file = File::create(&partial.0).map_err(|error| Error::io(&partial.0, error))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(|error| Error::io(&partial.0, error))?;
    partial.rename(path)
}
