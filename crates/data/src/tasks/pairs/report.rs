//! Report on the content of a split and its processing, for inspection before training.

use serde::{Deserialize, Serialize};

use crate::{Dropped, DroppedPair};

/// Data report of one split.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DataReport {
    /// Name of the split.
    pub split: String,
    /// Number of pairs in the files.
    pub pairs_read: u64,
    /// Number of pairs that remain after cleaning.
    pub pairs_kept: u64,
    /// Numbers of dropped pairs, by reason.
    pub dropped: Dropped,
    /// Examples of dropped pairs, a few for each reason that depends on the text of a pair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped_pairs: Vec<DroppedPair>,
    /// Usual ratios of target length to source length; empty unless pairs of unusual lengths are
    /// dropped.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usual_lengths: Vec<UsualLengths>,
    /// Number of pairs that were excluded from the training text because their source is held out
    /// for validation.
    #[serde(default)]
    pub held_out: u64,
    /// Corpora of the split, in order.
    #[serde(default)]
    pub corpora: Vec<CorpusReport>,
    /// Source side of the kept pairs.
    pub source: SideReport,
    /// Target side of the kept pairs.
    pub target: SideReport,
    /// Batches of the pairs, in an arbitrary epoch.
    pub batching: BatchingReport,
    /// SHA-256 of the text, decompressed.
    pub text_hash: String,
    /// The hash of the tokenizers.
    pub tokenizer_hash: String,
}

/// Usual ratio of lengths in a direction, learned from a class of pairs with about the same number
/// of characters.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UsualLengths {
    /// The direction, as in "en-de".
    pub direction: String,
    /// Largest number of characters of both sides together in this class, or `None` if there is no
    /// limit. Pairs with at most half of this number belong to another class, except in the first
    /// class.
    pub most_characters: Option<u64>,
    /// Number of pairs from which the ratio was learned, repetitions included.
    pub pairs: u64,
    /// Median of the ratio of target characters to source characters.
    pub ratio: f64,
    /// Standard deviation of the natural logarithm of the ratio, estimated as 1.4826 times the
    /// median absolute deviation.
    pub deviation: f64,
}

/// Contribution of a corpus to a split.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CorpusReport {
    /// Name of the corpus.
    pub name: String,
    /// Number of pairs in its files.
    pub pairs_read: u64,
    /// Number of pairs that remain after cleaning.
    pub pairs_kept: u64,
    /// Number of passes over these pairs in an epoch.
    pub weight: f64,
    /// Tag before each source sentence; empty if there is none.
    pub tag: String,
}

/// Content of one side of the kept pairs. Numbers of tokens exclude the `</s>` at the end of each
/// sentence.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct SideReport {
    /// Language of this side.
    pub language: String,
    /// Number of tokens.
    pub tokens: u64,
    /// Number of `<unk>` tokens.
    pub unknown: u64,
    /// Number of tokens that are bytes of characters without their own token.
    pub bytes: u64,
    /// `unknown` as a share of `tokens`.
    pub unknown_rate: f64,
    /// Largest number of tokens of a sentence.
    pub longest: usize,
    /// Mean number of tokens of a sentence.
    pub mean_length: f64,
    /// Number of sentences in each range of numbers of tokens, up to the last range that is not
    /// empty.
    pub histogram: Vec<LengthBin>,
}

/// Number of sentences with `from` to `to` tokens, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthBin {
    /// Smallest number of tokens.
    pub from: usize,
    /// Largest number of tokens.
    pub to: usize,
    /// Number of sentences.
    pub pairs: u64,
}

/// Sizes of batches. Some epochs can be bidirectional (they contain each pair in both directions).
/// Then each size is measured for bidirectional epochs and for other epochs, and the larger value
/// is reported. Numbers of tokens include the `</s>` at the end of each sentence.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct BatchingReport {
    /// Number of batches in a one-directional epoch.
    pub batches: usize,
    /// Number of bidirectional epochs at the beginning.
    #[serde(default)]
    pub bidirectional_epochs: u64,
    /// Number of batches in a bidirectional epoch.
    #[serde(default)]
    pub bidirectional_batches: usize,
    /// Largest number of source tokens of a batch.
    pub largest_source_tokens: usize,
    /// Largest number of target tokens of a batch.
    pub largest_target_tokens: usize,
    /// Largest number of pairs of a batch.
    pub largest_sentences: usize,
    /// Number of tokens of the longest source.
    pub longest_source: usize,
    /// Number of tokens of the longest target.
    pub longest_target: usize,
    /// Share of `<pad>` tokens that the batches would have if all their sentences were padded to
    /// the same length. The batches themselves have no such tokens.
    pub padding_cost: f64,
}

impl BatchingReport {
    /// Report of `batches` batches. The largest has `rows` rows of `length` tokens each.
    pub(crate) fn of_rows(batches: usize, rows: usize, length: usize) -> Self {
        Self {
            batches,
            largest_target_tokens: rows * length,
            largest_sentences: rows,
            longest_target: length,
            ..Self::default()
        }
    }

    /// Combines two reports: the first `epochs` epochs are bidirectional with the batches of
    /// `first`, and later epochs have the batches of `self`.
    pub(crate) fn after_bidirectional_epochs(self, epochs: u64, first: &Self) -> Self {
        Self {
            bidirectional_epochs: epochs,
            bidirectional_batches: first.batches,
            largest_source_tokens: self.largest_source_tokens.max(first.largest_source_tokens),
            largest_target_tokens: self.largest_target_tokens.max(first.largest_target_tokens),
            largest_sentences: self.largest_sentences.max(first.largest_sentences),
            longest_source: self.longest_source.max(first.longest_source),
            longest_target: self.longest_target.max(first.longest_target),
            padding_cost: self.padding_cost.max(first.padding_cost),
            ..self
        }
    }

    /// Number of batches in the first `epochs` epochs; at most 2^64 - 1.
    pub fn batches_of(&self, epochs: u64) -> u64 {
        let bidirectional = epochs.min(self.bidirectional_epochs);
        let batches_in = |epochs: u64, batches: usize| epochs.saturating_mul(batches as u64);
        batches_in(bidirectional, self.bidirectional_batches)
            .saturating_add(batches_in(epochs - bidirectional, self.batches))
    }
}

/// Counts for one side while it is tokenised.
#[derive(Debug, Default)]
pub(crate) struct SideCounter {
    sentences: u64,
    report: SideReport,
}

impl SideCounter {
    /// Counts a sentence. `is_byte` says for each id of the vocabulary whether it is a byte.
    pub(crate) fn add(&mut self, ids: &[u32], is_byte: &[bool]) {
        let report = &mut self.report;
        self.sentences += 1;
        report.tokens += ids.len() as u64;
        report.longest = report.longest.max(ids.len());
        for id in ids {
            report.unknown += u64::from(*id == crate::UNKNOWN);
            report.bytes += u64::from(is_byte.get(*id as usize) == Some(&true));
        }
        let bin = bin_of(ids.len());
        while report.histogram.len() <= bin {
            let (from, to) = bin_range(report.histogram.len());
            report.histogram.push(LengthBin { from, to, pairs: 0 });
        }
        report.histogram[bin].pairs += 1;
    }

    /// The finished report.
    pub(crate) fn finish(mut self, language: &str) -> SideReport {
        let rate = |part: u64, whole: u64| part as f64 / whole.max(1) as f64;
        self.report.language = language.to_owned();
        self.report.unknown_rate = rate(self.report.unknown, self.report.tokens);
        self.report.mean_length = rate(self.report.tokens, self.sentences);
        self.report
    }
}

/// Index of the bin of a length in the histogram. Up to 100 tokens, each bin covers ten lengths.
/// The following bins cover 101 to 200 tokens, 201 to 400 and so on, so that the histogram of
/// sentences or of documents fits on a page.
fn bin_of(length: usize) -> usize {
    match length {
        0..=100 => length.saturating_sub(1) / 10,
        _ => 10 + ((length - 1) / 100).ilog2() as usize,
    }
}

fn bin_range(bin: usize) -> (usize, usize) {
    match bin {
        0..=9 => (bin * 10 + 1, bin * 10 + 10),
        _ => ((100 << (bin - 10)) + 1, 100 << (bin - 9)),
    }
}

#[cfg(test)]
mod tests {
    use super::{bin_of, bin_range};

    #[test]
    fn every_length_lies_in_its_bin() {
        for length in 1..2000 {
            let (from, to) = bin_range(bin_of(length));
            assert!((from..=to).contains(&length), "{length} in {from}..={to}");
        }
    }
}
