//! Cleans the pairs of a shard, and tokenises many of them together.

use rayon::prelude::*;

use super::preface::Preface;
use super::{PairShards, ShardReport};
use crate::tasks::pairs::cache::record;
use crate::tasks::pairs::reader::held_out::fingerprint;
use crate::tasks::pairs::rules::TextRules;
use crate::text::cache::CacheWriter;
use crate::{Cleaner, Corpus, DroppedPair, Error, PairLinks, RawPair, Result, Tokenizer};

/// Number of pairs that are collected before they are tokenised in parallel.
const CHUNK: usize = 16_384;

/// Number of bytes of text after which the collected pairs are tokenised even if they are fewer
/// than [`CHUNK`].
const CHUNK_BYTES: usize = 1 << 24;

/// Cleans and tokenises the pairs of a shard.
pub(super) struct Builder<'a> {
    of: &'a PairShards<'a>,
    pub(super) writer: CacheWriter,
    cleaner: Cleaner,
    rules: Option<TextRules>,
    /// Tag of the corpus. Each source begins with it, although it is not part of the sentence.
    tag: &'a str,
    /// Pairs that [`Self::add`] did not drop, to be tokenised together.
    chunk: Vec<RawPair>,
    chunk_bytes: usize,
    pub(super) report: ShardReport,
    has_links: bool,
}

impl<'a> Builder<'a> {
    /// Makes a builder for a shard of a corpus.
    ///
    /// # Errors
    ///
    /// If the cleaning rules need the language of a text, but the bundled model does not know a
    /// language of the corpus.
    pub(super) fn new(
        of: &'a PairShards<'a>,
        writer: CacheWriter,
        corpus: &'a Corpus,
    ) -> Result<Self> {
        let direction = of.config.direction_of(corpus);
        Ok(Self {
            rules: TextRules::new(&of.config.cleaning, direction, &corpus.tag)?,
            of,
            tag: &corpus.tag,
            writer,
            cleaner: Cleaner::new(&of.config.cleaning),
            chunk: Vec::with_capacity(CHUNK),
            chunk_bytes: 0,
            report: ShardReport::default(),
            has_links: of.part.has_links(),
        })
    }

    /// Collects a pair, unless it is held out or dropped because of its text. Returns true if
    /// enough pairs are collected to tokenise them.
    pub(super) fn add(&mut self, pair: RawPair) -> Result<bool> {
        self.report.pairs += 1;
        if !self.of.held_out.is_empty() && self.of.held_out.contains(&fingerprint(&pair.source)) {
            self.report.held_out += 1;
        } else if let Err(reason) = self.cleaner.check_text(&pair.source, &pair.target) {
            self.report.dropped.count(reason);
        } else {
            self.chunk_bytes += pair.source.len() + pair.target.len();
            self.chunk.push(pair);
        }
        Ok(self.chunk.len() >= CHUNK || self.chunk_bytes >= CHUNK_BYTES)
    }

    /// Tokenises the collected pairs, and writes the pairs that are kept. Returns how many bytes of
    /// text the collected pairs have.
    pub(super) fn tokenise(&mut self) -> Result<u64> {
        let bytes = std::mem::take(&mut self.chunk_bytes) as u64;
        let mut chunk = std::mem::take(&mut self.chunk);
        self.apply_rules(&mut chunk);
        let tokenizers = self.of.tokenizers;
        let sources = encoded(&chunk, tokenizers.source(), |pair| &pair.source)?;
        let targets = encoded(&chunk, tokenizers.target(), |pair| &pair.target)?;
        let mut prefaces = self.prefaces(&chunk).into_iter();
        for ((source, target), pair) in sources.iter().zip(&targets).zip(&chunk) {
            let preface = prefaces.next().unwrap_or_default();
            let reason = self.cleaner.check_tokens(source.len(), target.len()).err();
            let mut bytes = preface.bytes(reason);
            if let Some(reason) = reason {
                if !self.of.rules.drops_duplicates {
                    self.report.dropped.count(reason);
                    continue;
                }
            } else {
                let links = if self.has_links { Some(self.links(pair)?) } else { None };
                bytes.extend(record(source, target, pair.line, links.as_ref()));
                if let Some((source, target)) = preface.lengths {
                    self.report.lengths.count(source, target);
                }
            }
            self.writer.push(1, &bytes)?;
        }
        // The allocated list is reused for the next pairs.
        chunk.clear();
        self.chunk = chunk;
        Ok(bytes)
    }

    /// The [`Preface`] of each pair, for rules that compare pairs. Empty if no such rule is
    /// configured. The prefaces are computed in parallel.
    fn prefaces(&self, chunk: &[RawPair]) -> Vec<Preface> {
        match &self.of.rules {
            rules if rules.are_any() => {
                chunk.par_iter().map(|pair| rules.preface(pair, self.tag)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// Drops pairs whose texts break a rule. The texts are checked in parallel.
    fn apply_rules(&mut self, chunk: &mut Vec<RawPair>) {
        let Some(rules) = &self.rules else { return };
        let check = |pair: &RawPair| rules.check(&pair.source, &pair.target).err();
        let mut reasons = chunk.par_iter().map(check).collect::<Vec<_>>().into_iter();
        let report = &mut self.report;
        chunk.retain(|pair| {
            let Some(reason) = reasons.next().flatten() else { return true };
            report.dropped.count(reason);
            DroppedPair::add(&mut report.dropped_pairs, reason, &pair.source, &pair.target);
            false
        });
    }

    /// The word links of a pair.
    fn links(&self, pair: &RawPair) -> Result<PairLinks> {
        let tokenizers = self.of.tokenizers;
        let source_words = tokenizers.source().encode_text(&pair.source)?.words();
        let target_words = tokenizers.target().encode_text(&pair.target)?.words();
        let links = pair.links.iter().map(|link| (link.source, link.target)).collect();
        Ok(PairLinks::new(source_words, target_words, links))
    }
}

/// Token ids of one side of each pair, computed in parallel.
///
/// # Errors
///
/// If the tokenizer refuses a text. The error has the line of the text.
fn encoded(
    pairs: &[RawPair],
    tokenizer: &Tokenizer,
    side: fn(&RawPair) -> &String,
) -> Result<Vec<Vec<u32>>> {
    let ids = |pair: &RawPair| {
        let ids = tokenizer.encode(side(pair));
        ids.map_err(|error| Error::Line { line: pair.line, message: error.to_string() })
    };
    pairs.par_iter().map(ids).collect()
}
