//! Stores sentence pairs in the [tokenised cache](crate::text::cache), the file with the ids of a
//! split, and reads them from it.
//!
//! The file has these numbers for each pair, one after another:
//!
//! - the line of the pair in the corpus (u64);
//! - the number of source ids and the number of target ids (u32 each);
//! - the source ids, and then the target ids (u32 each).
//!
//! If the split has word links (links between source words and target words), the number of the
//! pair's links (u32) precedes its ids. These numbers (u32 each) follow its ids:
//!
//! - for each source token, the index of the source word to which it belongs;
//! - for each target token, the index of the target word to which it belongs;
//! - for each link, the index of its source word and the index of its target word.
//!
//! Memory holds only the lengths of both sides of each pair (8 bytes for each pair), and the place
//! in the file of every 64th pair. If the split has word links, memory holds the place of every
//! pair.

use std::path::Path;

use crate::text::cache::{Cache, ID_BYTES, Items, Key, ids, u64_at};
use crate::{DataReport, PairLinks, Result};

/// Number of bytes before the ids of a pair.
const HEAD_BYTES: usize = 16;

/// A sentence pair as ids without special tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// Line in the corpus, counted from 1.
    pub line: u64,
    /// Ids of the sentence to translate.
    pub source: Vec<u32>,
    /// Ids of the translation.
    pub target: Vec<u32>,
    /// Word links; `None` in a split without any.
    pub links: Option<PairLinks>,
}

/// Memory holds the places in the file only of pairs whose index is a multiple of this number. The
/// places of other pairs are computed from the lengths of the pairs before them.
const STRIDE: usize = 64;

/// Places of pairs in the file, and the lengths of both sides of each pair.
#[derive(Debug)]
struct Index {
    lengths: Vec<(u32, u32)>,
    /// Place of every `stride`-th pair.
    places: Vec<u64>,
    stride: usize,
}

impl Index {
    /// Byte at which a pair begins in the file. Panics if there is no such pair.
    fn place(&self, pair: usize) -> u64 {
        let near = pair / self.stride;
        let between = &self.lengths[near * self.stride..pair];
        let tokens = |&(source, target): &(u32, u32)| u64::from(source) + u64::from(target);
        let bytes = |lengths| HEAD_BYTES as u64 + tokens(lengths) * ID_BYTES as u64;
        self.places[near] + between.iter().map(bytes).sum::<u64>()
    }
}

/// The tokenised pairs of a split on disk.
#[derive(Debug)]
pub(crate) struct PairCache {
    cache: Cache,
    index: Index,
    has_links: bool,
}

impl PairCache {
    /// Opens a cache like [`Cache::open`]. `has_links` says whether the pairs have word links;
    /// `key` must depend on this too.
    pub(crate) fn open(
        path: &Path,
        key: &Key,
        has_links: bool,
    ) -> Result<Option<(Self, DataReport)>> {
        let opened = Cache::open(path, key, |items| index(items, has_links))?;
        Ok(opened.map(|(cache, index, report)| (Self { cache, index, has_links }, report)))
    }

    /// True if pairs have word links.
    pub(crate) fn has_links(&self) -> bool {
        self.has_links
    }

    /// The number of pairs.
    pub(crate) fn pairs(&self) -> usize {
        self.index.lengths.len()
    }

    /// The numbers of source and target ids of a pair. Panics if there is no such pair.
    pub(crate) fn lengths(&self, pair: usize) -> (usize, usize) {
        let (source, target) = self.index.lengths[pair];
        (source as usize, target as usize)
    }

    /// Reads a pair. Panics if there is no such pair.
    pub(crate) fn read(&self, pair: usize) -> Result<Pair> {
        let (at, (source, target)) = (self.index.place(pair), self.lengths(pair));
        let (mut head_bytes, mut count) = (HEAD_BYTES, source + target);
        if self.has_links {
            let links = self.cache.read(at + HEAD_BYTES as u64, ID_BYTES)?;
            head_bytes += ID_BYTES;
            count = 2 * count + 2 * ids(&links).next().unwrap_or(0) as usize;
        }
        let bytes = self.cache.read(at, head_bytes + count * ID_BYTES)?;
        let (head, rest) = bytes.split_at(head_bytes);
        let mut rest = ids(rest);
        let mut take = |count: usize| rest.by_ref().take(count).collect::<Vec<u32>>();
        let (source_ids, target_ids) = (take(source), take(target));
        let links = self.has_links.then(|| {
            let (source_words, target_words) = (take(source), take(target));
            let links = take(usize::MAX);
            let links = links.as_chunks().0.iter().map(|&[source, target]| (source, target));
            PairLinks { source_words, target_words, links: links.collect() }
        });
        Ok(Pair { line: u64_at(head, 0), source: source_ids, target: target_ids, links })
    }
}

/// Finds the place of each pair.
fn index(items: &mut Items<'_>, has_links: bool) -> std::io::Result<Index> {
    // The lengths do not determine the number of bytes of the links, so with links the place of
    // every pair is kept.
    let stride = if has_links { 1 } else { STRIDE };
    // The checksum has not been verified yet, so `items.count` may be wrong. Without this limit, a
    // wrong count could allocate more memory than a file of this length can need.
    let most = items.count.min(items.length / HEAD_BYTES as u64);
    let most = usize::try_from(most).unwrap_or(0);
    let mut lengths = Vec::with_capacity(most);
    let mut places = Vec::with_capacity(most.div_ceil(stride));
    for pair in 0..items.count {
        if pair.is_multiple_of(stride as u64) {
            places.push(items.at);
        }
        let mut head = [0; HEAD_BYTES];
        items.read(&mut head)?;
        let both = u64_at(&head, 8);
        let (source, target) = (both as u32, (both >> 32) as u32);
        let mut count = u64::from(source) + u64::from(target);
        if has_links {
            let mut links = [0; ID_BYTES];
            items.read(&mut links)?;
            count = 2 * count + 2 * u64::from(u32::from_le_bytes(links));
        }
        items.skip(count * ID_BYTES as u64)?;
        lengths.push((source, target));
    }
    Ok(Index { lengths, places, stride })
}

/// Encodes a pair for a cache.
pub(crate) fn record(
    source: &[u32],
    target: &[u32],
    line: u64,
    links: Option<&PairLinks>,
) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + (source.len() + target.len()) * ID_BYTES);
    bytes.extend(line.to_le_bytes());
    bytes.extend((source.len() as u32).to_le_bytes());
    bytes.extend((target.len() as u32).to_le_bytes());
    bytes.extend(links.iter().flat_map(|of| (of.links.len() as u32).to_le_bytes()));
    bytes.extend(source.iter().chain(target).flat_map(|id| id.to_le_bytes()));
    if let Some(PairLinks { source_words, target_words, links }) = links {
        let links = links.iter().flat_map(|&(source, target)| [source, target]);
        let words = source_words.iter().chain(target_words).copied();
        bytes.extend(words.chain(links).flat_map(u32::to_le_bytes));
    }
    bytes
}

/// Encoded pair of a cache, together with the ids of its two sides.
pub(crate) struct Record {
    /// All bytes of the pair.
    pub(crate) bytes: Vec<u8>,
    pub(crate) source: Vec<u32>,
    pub(crate) target: Vec<u32>,
}

impl Record {
    /// Reads the next pair, with or without word links. Even for a damaged pair, no more memory is
    /// allocated than the file has bytes.
    pub(crate) fn read(items: &mut Items<'_>, has_links: bool) -> std::io::Result<Self> {
        let mut bytes = vec![0; HEAD_BYTES];
        items.read(&mut bytes)?;
        let lengths = u64_at(&bytes, 8);
        let (source, target) = (u64::from(lengths as u32), lengths >> 32);
        let mut count = source + target;
        if has_links {
            let mut links = [0; ID_BYTES];
            items.read(&mut links)?;
            bytes.extend(links);
            count = 2 * count + 2 * u64::from(u32::from_le_bytes(links));
        }
        let head = bytes.len();
        let rest = count * ID_BYTES as u64;
        if rest > items.end.saturating_sub(items.at) {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        bytes.resize(head + rest as usize, 0);
        items.read(&mut bytes[head..])?;
        let (source, target) = {
            let mut all = ids(&bytes[head..]);
            let mut take = |count: u64| all.by_ref().take(count as usize).collect::<Vec<u32>>();
            (take(source), take(target))
        };
        Ok(Self { bytes, source, target })
    }

    /// Adds `lines` to the line number of the pair.
    pub(crate) fn moved(mut self, lines: u64) -> Self {
        let line = u64_at(&self.bytes, 0) + lines;
        self.bytes[..8].copy_from_slice(&line.to_le_bytes());
        self
    }
}
