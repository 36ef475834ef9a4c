//! Joins shards into one cache, and adds up their counts in one report.

use std::collections::HashSet;
use std::path::Path;

use super::preface::Preface;
use super::{PairShards, ShardReport};
use crate::tasks::pairs::cache::Record;
use crate::tasks::pairs::lengths::LengthLimits;
use crate::tasks::pairs::near_duplicates::NearDuplicates;
use crate::tasks::pairs::reader::empty_corpus;
use crate::tasks::pairs::report::SideCounter;
use crate::text::cache::{CacheWriter, Items, Key};
use crate::{
    BatchingReport, Corpus, CorpusReport, DataReport, Direction, DropReason, Dropped, DroppedPair,
    Error, Result, Tokenizer, UsualLengths,
};

/// Cache of a split to which the pairs of its shards are being added.
pub(super) struct Merged<'a> {
    of: &'a PairShards<'a>,
    writer: CacheWriter,
    /// Number of pairs that were read from the text for the shards added so far, including pairs
    /// that were dropped or held out. The shard that is being added does not count.
    pub(super) pairs: u64,
    kept: u64,
    held_out: u64,
    dropped: Dropped,
    dropped_pairs: Vec<DroppedPair>,
    /// Hashes of earlier pairs, if duplicates are dropped.
    seen: HashSet<u128>,
    /// Limits of lengths for each corpus. Empty if pairs of unusual lengths are not dropped.
    limits: Vec<LengthLimits>,
    /// Earlier pairs, if near duplicates are dropped.
    near: Option<NearDuplicates>,
    corpora: Vec<CorpusReport>,
    sides: [SideCounter; 2],
    /// For each side, whether each id of its vocabulary is a token of a single byte.
    is_byte: [Vec<bool>; 2],
    has_links: bool,
}

impl<'a> Merged<'a> {
    /// Makes an empty cache, which will be written to `path`. `limits` has the limits of lengths
    /// for each corpus; pairs outside them are dropped.
    ///
    /// # Errors
    ///
    /// If a file in the same folder cannot be made.
    pub(super) fn new(
        of: &'a PairShards<'a>,
        writer: CacheWriter,
        limits: Vec<LengthLimits>,
        path: &Path,
    ) -> Result<Self> {
        let near = of.rules.near_threshold().map(|threshold| NearDuplicates::new(threshold, path));
        let report = |corpus: &Corpus| CorpusReport {
            name: corpus.name(),
            weight: corpus.weight,
            tag: corpus.tag.clone(),
            ..CorpusReport::default()
        };
        Ok(Self {
            of,
            writer,
            limits,
            near: near.transpose()?,
            pairs: 0,
            kept: 0,
            held_out: 0,
            dropped: Dropped::default(),
            dropped_pairs: Vec::new(),
            seen: HashSet::new(),
            corpora: of.part.split.iter().map(report).collect(),
            sides: Default::default(),
            is_byte: [of.tokenizers.source().byte_ids(), of.tokenizers.target().byte_ids()],
            has_links: of.part.has_links(),
        })
    }

    /// Adds the next pair of a shard to the cache, unless it is dropped. `corpus` is the index of
    /// the shard's corpus. `lines` is the number of lines in all files before the files of the
    /// shard.
    pub(super) fn take(
        &mut self,
        items: &mut Items<'_>,
        lines: u64,
        corpus: usize,
        unreadable: impl Fn(std::io::Error) -> Error,
    ) -> Result<()> {
        let preface = self.of.rules.read(items).map_err(&unreadable)?;
        if let Some(reason) = self.reason_to_drop(&preface, corpus)? {
            self.dropped.count(reason);
            if preface.reason.is_none() {
                let pair = Record::read(items, self.has_links).map_err(&unreadable)?;
                self.show_dropped(reason, &pair);
            }
            return Ok(());
        }
        let pair = Record::read(items, self.has_links).map_err(&unreadable)?.moved(lines);
        self.kept += 1;
        self.corpora[corpus].pairs_kept += 1;
        self.sides[0].add(&pair.source, &self.is_byte[0]);
        self.sides[1].add(&pair.target, &self.is_byte[1]);
        self.writer.push(1, &pair.bytes)
    }

    /// Adds a dropped pair to the examples, unless they already contain enough examples for
    /// `reason`.
    fn show_dropped(&mut self, reason: DropReason, pair: &Record) {
        if DroppedPair::has_room(&self.dropped_pairs, reason) {
            // A damaged shard may contain any ids, because the damage is noticed only at its end.
            let text = |tokenizer: &Tokenizer, ids| tokenizer.decode(ids).unwrap_or_default();
            let source = text(self.of.tokenizers.source(), &pair.source);
            let target = text(self.of.tokenizers.target(), &pair.target);
            DroppedPair::add(&mut self.dropped_pairs, reason, &source, &target);
        }
    }

    /// Compares a pair of a corpus with earlier pairs, and with the usual lengths in its direction.
    /// Returns the reason to drop the pair; `None` if it is kept.
    fn reason_to_drop(&mut self, preface: &Preface, corpus: usize) -> Result<Option<DropReason>> {
        let is_seen = |fingerprint| !self.seen.insert(fingerprint);
        if preface.fingerprint.is_some_and(is_seen) {
            return Ok(Some(DropReason::Duplicate));
        }
        if preface.reason.is_some() {
            return Ok(preface.reason);
        }
        if let (Some((source, target)), Some(limits)) = (preface.lengths, self.limits.get(corpus))
            && !limits.allow(source, target)
        {
            return Ok(Some(DropReason::Lengths));
        }
        if let (Some(text), Some(near)) = (&preface.near, &mut self.near)
            && !near.take(&text.keys, &text.source, &text.target)?
        {
            return Ok(Some(DropReason::NearDuplicate));
        }
        Ok(None)
    }

    /// Adds the counts of a shard.
    pub(super) fn count(&mut self, report: &ShardReport, corpus: usize) {
        self.pairs += report.pairs;
        self.held_out += report.held_out;
        self.dropped.add(&report.dropped);
        report.dropped_pairs.iter().for_each(|pair| pair.clone().put(&mut self.dropped_pairs));
        self.corpora[corpus].pairs_read += report.pairs - report.held_out;
    }

    pub(super) fn finish(self, key: &Key) -> Result<()> {
        let (config, split) = (self.of.config, self.of.part.split.name());
        let read = self.pairs - self.held_out;
        if read == 0 {
            return Err(empty_corpus(config, self.of.part.split));
        }
        if self.kept == 0 {
            let reasons = self.dropped.to_string();
            return Err(Error::AllDropped { split, read, reasons });
        }
        let [source, target] = self.sides;
        let languages = |side: fn(Direction) -> String| {
            let directions = config.directions_of(self.of.part.split);
            let mut languages: Vec<String> = directions.into_iter().map(side).collect();
            languages.sort_unstable();
            languages.dedup();
            languages.join("+")
        };
        let report = DataReport {
            split,
            pairs_read: read,
            pairs_kept: self.kept,
            dropped: self.dropped,
            dropped_pairs: self.dropped_pairs,
            usual_lengths: usual_lengths(self.of, &self.limits),
            held_out: self.held_out,
            corpora: self.corpora,
            source: source.finish(&languages(|one| one.from)),
            target: target.finish(&languages(|one| one.to)),
            // The report on batches is computed from the current settings when the cache is opened.
            batching: BatchingReport::default(),
            text_hash: self.of.part.text.text_hash.clone(),
            tokenizer_hash: self.of.tokenizers.hash(),
        };
        self.writer.finish(key, &report)
    }
}

/// Usual ratios of lengths, once for each direction.
fn usual_lengths(of: &PairShards<'_>, limits: &[LengthLimits]) -> Vec<UsualLengths> {
    let mut directions = HashSet::new();
    let corpora = of.part.split.iter().zip(limits);
    let learned = corpora.flat_map(|(corpus, limits)| {
        let direction = of.config.direction_of(corpus).to_string();
        let is_new = directions.insert(direction.clone());
        if is_new { limits.report(&direction) } else { Vec::new() }
    });
    learned.collect()
}
