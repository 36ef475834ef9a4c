//! The file of a tokenised split, and how files come to be whole or not at all.
//!
//! ```text
//! header   magic (8 bytes), key (32), ids (u64), pairs (u64), report bytes (u64), checksum (32)
//! ids      u32 each: the source of pair 0, its target, the source of pair 1, …
//! index    24 bytes a pair: first id (u64), source length (u32), target length (u32), line (u64)
//! report   JSON
//! ```
//!
//! Integers are little-endian. The key is a hash of everything the content follows from; the checksum is the
//! SHA-256 of all that comes after the header. Whatever does not fit is rebuilt, never repaired.

use std::fs::File;
use std::io::{BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use crate::mapping::Mapping;
use crate::{DataReport, Error, Result};

/// Changes with the format, so that a cache of another version is rebuilt.
const MAGIC: &[u8; 8] = b"TAPERTC1";
const HEADER_BYTES: usize = 96;
const INDEX_BYTES: usize = 24;
const ID_BYTES: usize = 4;

/// What the content of a cache follows from.
pub(crate) type Key = [u8; 32];

/// Where a pair stands in the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) first: u64,
    pub(crate) source: u32,
    pub(crate) target: u32,
    pub(crate) line: u64,
}

/// A tokenised split, mapped.
#[derive(Debug)]
pub(crate) struct Cache {
    mapping: Mapping,
    pairs: usize,
    index: usize,
}

impl Cache {
    /// Opens a cache and reads its report. `None` means that there is none to use: no file, another key,
    /// another version, or a damaged file.
    pub(crate) fn open(path: &Path, key: &Key) -> Result<Option<(Self, DataReport)>> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Error::io(path, error)),
        };
        let length = file.metadata().map_err(|error| Error::io(path, error))?.len();
        if length < HEADER_BYTES as u64 {
            return Ok(None);
        }
        let mapping = Mapping::new(&file).map_err(|error| Error::io(path, error))?;
        Ok(Self::check(mapping, key))
    }

    fn check(mapping: Mapping, key: &Key) -> Option<(Self, DataReport)> {
        let (header, content) = mapping.split_at_checked(HEADER_BYTES)?;
        if &header[..8] != MAGIC || &header[8..40] != key {
            return None;
        }
        let size = |at: usize| usize::try_from(u64_at(header, at)).ok();
        let (ids, pairs, report) = (size(40)?, size(48)?, size(56)?);
        let index = ids.checked_mul(ID_BYTES)?;
        let report_from = index.checked_add(pairs.checked_mul(INDEX_BYTES)?)?;
        if report_from.checked_add(report)? != content.len() {
            return None;
        }
        if Sha256::digest(content)[..] != header[64..96] {
            return None;
        }
        let report = serde_json::from_slice(&content[report_from..]).ok()?;
        let cache = Self { mapping, pairs, index: HEADER_BYTES + index };
        // The checksum vouches for what was written; this, that what was written makes sense.
        let sound = (0..pairs).all(|pair| {
            let entry = cache.entry(pair);
            let length = u64::from(entry.source) + u64::from(entry.target);
            entry.first.checked_add(length).is_some_and(|end| end <= ids as u64)
        });
        sound.then_some((cache, report))
    }

    /// The number of pairs.
    pub(crate) fn pairs(&self) -> usize {
        self.pairs
    }

    /// Where a pair stands. Panics beyond the last pair.
    pub(crate) fn entry(&self, pair: usize) -> Entry {
        assert!(pair < self.pairs, "pair {pair} of {}", self.pairs);
        let bytes = &self.mapping[self.index + pair * INDEX_BYTES..][..INDEX_BYTES];
        let lengths = u64_at(bytes, 8);
        Entry { first: u64_at(bytes, 0), source: lengths as u32, target: (lengths >> 32) as u32, line: u64_at(bytes, 16) }
    }

    /// Consecutive ids of the file.
    pub(crate) fn ids(&self, first: u64, count: u32) -> impl Iterator<Item = u32> + '_ {
        let from = HEADER_BYTES + first as usize * ID_BYTES;
        self.mapping[from..from + count as usize * ID_BYTES]
            .chunks_exact(ID_BYTES)
            .map(|bytes| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
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
    ids: u64,
    /// Kept until the ids are written: 24 bytes a pair, where the text may be any size.
    index: Vec<u8>,
    pairs: u64,
}

impl CacheWriter {
    /// Begins a cache that will be called `path`, in a folder that exists.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let partial = Partial::beside(path);
        let file = File::create(&partial.0).map_err(|error| Error::io(&partial.0, error))?;
        let mut writer = Self {
            path: path.to_owned(),
            file: BufWriter::with_capacity(1 << 18, file),
            partial,
            digest: Sha256::new(),
            ids: 0,
            index: Vec::new(),
            pairs: 0,
        };
        writer.raw(&[0; HEADER_BYTES])?;
        Ok(writer)
    }

    /// Adds a pair.
    pub(crate) fn push(&mut self, source: &[u32], target: &[u32], line: u64) -> Result<()> {
        self.index.extend(self.ids.to_le_bytes());
        self.index.extend((source.len() as u32).to_le_bytes());
        self.index.extend((target.len() as u32).to_le_bytes());
        self.index.extend(line.to_le_bytes());
        self.ids += (source.len() + target.len()) as u64;
        self.pairs += 1;
        let bytes: Vec<u8> = source.iter().chain(target).flat_map(|id| id.to_le_bytes()).collect();
        self.content(&bytes)
    }

    /// Writes index, report and header, and gives the file its name.
    pub(crate) fn finish(mut self, key: &Key, report: &DataReport) -> Result<()> {
        let index = std::mem::take(&mut self.index);
        self.content(&index)?;
        let report = serde_json::to_vec(report).map_err(|error| Error::io(&self.path, std::io::Error::other(error)))?;
        self.content(&report)?;
        let mut header = Vec::with_capacity(HEADER_BYTES);
        header.extend(MAGIC);
        header.extend(key);
        for size in [self.ids, self.pairs, report.len() as u64] {
            header.extend(size.to_le_bytes());
        }
        header.extend(self.digest.finalize_reset());
        self.file.seek(SeekFrom::Start(0)).map_err(|error| Error::io(&self.partial.0, error))?;
        self.raw(&header)?;
        self.file.flush().and_then(|()| self.file.get_ref().sync_all()).map_err(|error| Error::io(&self.partial.0, error))?;
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
            Some(parent) => File::open(parent).and_then(|directory| directory.sync_all()).map_err(|error| Error::io(parent, error)),
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
    file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| Error::io(&partial.0, error))?;
    partial.rename(path)
}
