//! Stores pairs in [shards](crate::text::shards), which are parts of a split that are tokenised
//! separately. A shard is made from a fixed number of successive pairs, which are cleaned by the
//! rules about their text and then tokenised.
//!
//! Pairs are encoded as in the cache (the file with all tokenised pairs of a split), but their
//! lines are counted from the beginning of the shard's files, not of the whole corpus. Rules that
//! need other pairs of the split are applied when the shards are joined, in the order of the text.
//! For these rules, a [`preface`] is before each pair.

mod builder;
mod merged;
mod preface;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use self::builder::Builder;
use self::merged::Merged;
use self::preface::SplitRules;
use crate::tasks::pairs::lengths::{LengthCounts, LengthLimits};
use crate::tasks::pairs::prepare::Part;
use crate::tasks::pairs::reader::held_out::held_out_sentences;
use crate::tasks::pairs::reader::{FileReader, PairFiles, pair_files};
use crate::text::cache::{CacheWriter, Key};
use crate::text::shards::Shards;
use crate::{
    DataConfig, Direction, Dropped, DroppedPair, Error, Result, Share, TokenisingProgress,
    TokenizerPair,
};

/// Number of pairs of a shard: about 15 MB of text, and a few seconds of work. A version of the
/// program with another number cannot use the shards that a run of this version left behind.
const PAIRS: u64 = if cfg!(test) { 16 } else { 1 << 17 };

/// Counts of a shard.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ShardReport {
    /// Number of pairs that were read from the files.
    pairs: u64,
    /// Number of pairs whose source is held out.
    held_out: u64,
    /// Number of dropped pairs for each reason. The shard does not contain these pairs.
    dropped: Dropped,
    /// Examples of pairs that are dropped because of their text.
    #[serde(default)]
    dropped_pairs: Vec<DroppedPair>,
    /// Counts of the lengths of the pairs that were not dropped; empty unless pairs of unusual
    /// lengths are to be dropped.
    #[serde(default)]
    lengths: LengthCounts,
    /// True if the files have no more pairs after this shard.
    is_last: bool,
}

/// The shards of a split of pairs.
pub(crate) struct PairShards<'a> {
    config: &'a DataConfig,
    tokenizers: &'a TokenizerPair,
    part: &'a Part<'a>,
    shards: Shards,
    files: Vec<PairFiles>,
    /// Number of bytes of each item of `files`.
    bytes: Vec<u64>,
    held_out: HashSet<u128>,
    rules: SplitRules,
}

impl<'a> PairShards<'a> {
    /// Describes the shards of `part`, which are in the folder of `shards`.
    ///
    /// # Errors
    ///
    /// If a file is missing.
    pub(crate) fn new(
        config: &'a DataConfig,
        tokenizers: &'a TokenizerPair,
        part: &'a Part<'a>,
        shards: Shards,
    ) -> Result<Self> {
        let files = pair_files(config, part.split)?;
        let size = |files: &PairFiles| -> Result<u64> {
            let metadata_of =
                |path| std::fs::metadata(path).map_err(|error| Error::io(path, error));
            files.paths().map(|path| Ok(metadata_of(path)?.len())).sum()
        };
        let bytes = files.iter().map(size).collect::<Result<_>>()?;
        let held_out = if part.is_training { held_out_sentences(config)? } else { HashSet::new() };
        let rules = if part.is_training {
            SplitRules::new(&config.cleaning)
        } else {
            SplitRules::default()
        };
        Ok(Self { config, tokenizers, part, shards, files, bytes, held_out, rules })
    }

    /// Makes the missing shards of a process's share.
    ///
    /// # Errors
    ///
    /// If the text cannot be read or has changed, or the disk is full.
    pub(crate) fn make(
        &self,
        share: Share,
        observe: &mut dyn FnMut(&TokenisingProgress),
    ) -> Result<()> {
        let owners = share.owners(&self.bytes);
        let own_files = (0..self.files.len()).filter(|&file| owners.reads(file));
        let all: u64 = own_files.clone().map(|file| self.bytes[file]).sum();
        let (mut behind, mut tokenised) = (0, 0);
        let mut tell = |read: u64, text: u64| {
            tokenised += text;
            observe(&TokenisingProgress {
                split: self.part.split.name(),
                done: read as f64 / all.max(1) as f64,
                bytes: tokenised,
                processes: share.of,
            });
        };
        for file in own_files {
            let mut reader = None;
            // Number of pairs between the position of `reader` and the beginning of this shard.
            let mut unread = 0;
            for shard in 0.. {
                if let Some(report) = self.shards.report::<ShardReport>(file, shard)? {
                    if report.is_last {
                        break;
                    }
                    unread += report.pairs;
                    continue;
                }
                let reader = match &mut reader {
                    Some(reader) => reader,
                    none => none.insert(self.open(file)?),
                };
                if !skip(reader, &mut unread)? {
                    break;
                }
                if !owners.makes(file, shard) {
                    unread = PAIRS;
                    continue;
                }
                let mut tell = |reader: &FileReader, text| tell(behind + reader.bytes_read(), text);
                if self.make_shard((file, shard), reader, &mut tell)? {
                    break;
                }
            }
            behind += self.bytes[file];
            tell(behind, 0);
        }
        Ok(())
    }

    fn open(&self, file: usize) -> Result<FileReader> {
        let files = &self.files[file];
        FileReader::open(self.config, &self.part.split[files.corpus], files)
    }

    /// Makes a shard of the next pairs of `reader`. Returns true if the files have no pairs after
    /// them. `place` is the index of the files and the index of the shard within them.
    fn make_shard(
        &self,
        place: (usize, usize),
        reader: &mut FileReader,
        tell: &mut dyn FnMut(&FileReader, u64),
    ) -> Result<bool> {
        let corpus = &self.part.split[self.files[place.0].corpus];
        let mut builder = Builder::new(self, self.shards.writer(place.0, place.1)?, corpus)?;
        while builder.report.pairs < PAIRS {
            let Some(pair) = reader.next_pair()? else {
                builder.report.is_last = true;
                break;
            };
            if builder.add(pair)? {
                let text = builder.tokenise()?;
                tell(reader, text);
            }
        }
        let text = builder.tokenise()?;
        tell(reader, text);
        self.part.text.seems_to_hold()?;
        let is_last = builder.report.is_last;
        self.shards.finish(place, builder.writer, &builder.report)?;
        Ok(is_last)
    }

    /// Limits of lengths for each corpus, learned from all pairs in its direction; empty if no rule
    /// needs them. `None` if a shard is missing.
    fn limits(&self) -> Result<Option<Vec<LengthLimits>>> {
        if !self.rules.has_lengths {
            return Ok(Some(Vec::new()));
        }
        let mut counts: HashMap<Direction, LengthCounts> = HashMap::new();
        let direction = |corpus: usize| self.config.direction_of(&self.part.split[corpus]);
        for (file, files) in self.files.iter().enumerate() {
            let counts = counts.entry(direction(files.corpus)).or_default();
            for shard in 0.. {
                let report = self.shards.report::<ShardReport>(file, shard)?;
                let Some(report) = report else { return Ok(None) };
                counts.add(&report.lengths);
                if report.is_last {
                    break;
                }
            }
        }
        let deviations = self.config.cleaning.length_deviations;
        let learn = |corpus| {
            let counts = counts.get(&direction(corpus)).cloned().unwrap_or_default();
            LengthLimits::learn(&counts, deviations)
        };
        Ok(Some((0..self.part.split.len()).map(learn).collect()))
    }

    /// Joins the shards into the cache at `path`. Returns `false` if a shard is missing.
    ///
    /// # Errors
    ///
    /// If no pair is left, or the text has changed, or the disk is full.
    pub(crate) fn merge(&self, path: &Path, key: &Key) -> Result<bool> {
        let Some(limits) = self.limits()? else { return Ok(false) };
        let mut merged = Merged::new(self, CacheWriter::create(path)?, limits, path)?;
        let mut line = 0;
        for (file, files) in self.files.iter().enumerate() {
            for shard in 0.. {
                let place = (file, shard);
                let report = self.shards.read::<ShardReport>(place, |items| {
                    merged.take(items, line, files.corpus, |error| {
                        self.shards.unreadable(place, error)
                    })
                })?;
                let Some(report) = report else { return Ok(false) };
                merged.count(&report, files.corpus);
                if report.is_last {
                    line = merged.pairs;
                    break;
                }
            }
        }
        if let Err(error) = self.part.text.still_holds() {
            // A later start must not use shards of a text that has changed.
            self.shards.remove()?;
            return Err(error);
        }
        match merged.finish(key) {
            Ok(()) => Ok(true),
            Err(error) => {
                // An error in the text would occur again with the same shards, so they are removed.
                // A full disk may have room later, so then they are kept.
                if !matches!(error, Error::Io { .. }) {
                    self.shards.remove()?;
                }
                Err(error)
            }
        }
    }
}

/// Skips `pairs` pairs, and counts `pairs` down to 0. Returns `false` if the reader has fewer
/// pairs.
fn skip(reader: &mut FileReader, pairs: &mut u64) -> Result<bool> {
    while *pairs > 0 {
        if !reader.skip_pair()? {
            return Ok(false);
        }
        *pairs -= 1;
    }
    Ok(true)
}
