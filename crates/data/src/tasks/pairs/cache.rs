//! Pairs in the [tokenised cache](crate::text::cache): of each its line (u64), source length
//! (u32), target length (u32), and the ids of both (u32 each). In memory is only where each pair
//! begins, 16 bytes a pair.

use std::path::Path;

use crate::text::cache::{Cache, CacheWriter, ID_BYTES, Items, Key, ids, u64_at};
use crate::{DataReport, Result};

/// What stands before the ids of a pair.
const HEAD_BYTES: usize = 16;

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

/// The tokenised pairs of a split on disk.
#[derive(Debug)]
pub(crate) struct PairCache {
    cache: Cache,
    index: Vec<Entry>,
}

impl PairCache {
    /// As [`Cache::open`].
    pub(crate) fn open(path: &Path, key: &Key) -> Result<Option<(Self, DataReport)>> {
        let opened = Cache::open(path, key, index)?;
        Ok(opened.map(|(cache, index, report)| (Self { cache, index }, report)))
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
        let count = HEAD_BYTES + (source as usize + target as usize) * ID_BYTES;
        let bytes = self.cache.read(at, count)?;
        let (head, rest) = bytes.split_at(HEAD_BYTES);
        let mut ids = ids(rest);
        let source = ids.by_ref().take(source as usize).collect();
        Ok(Pair { line: u64_at(head, 0), source, target: ids.collect() })
    }
}

/// Where each pair stands.
fn index(items: &mut Items<'_>) -> std::io::Result<Vec<Entry>> {
    // Before the checksum is known to be right nothing is believed that would take more memory than
    // the file.
    let most = items.count.min(items.length / HEAD_BYTES as u64);
    let mut index = Vec::with_capacity(usize::try_from(most).unwrap_or(0));
    for _ in 0..items.count {
        let at = items.at;
        let mut head = [0; HEAD_BYTES];
        items.read(&mut head)?;
        let lengths = u64_at(&head, 8);
        let entry = Entry { at, source: lengths as u32, target: (lengths >> 32) as u32 };
        items.skip((u64::from(entry.source) + u64::from(entry.target)) * ID_BYTES as u64)?;
        index.push(entry);
    }
    Ok(index)
}

/// Adds a pair to a cache.
pub(crate) fn push(
    writer: &mut CacheWriter,
    source: &[u32],
    target: &[u32],
    line: u64,
) -> Result<()> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + (source.len() + target.len()) * ID_BYTES);
    bytes.extend(line.to_le_bytes());
    bytes.extend((source.len() as u32).to_le_bytes());
    bytes.extend((target.len() as u32).to_le_bytes());
    bytes.extend(source.iter().chain(target).flat_map(|id| id.to_le_bytes()));
    writer.push(1, &bytes)
}
