//! Word alignment of a sentence and its translation, by the attention of a model that reads both.
//!
//! Each target token is linked with the source token that the decoder attends to most when it
//! predicts the target token. Words are linked if they contain linked tokens (Zenkel, Wuebker and
//! DeNero 2019, "Adding Interpretable Attention to Neural Translation Models Improves Word
//! Alignment", section 4.1). Words are divided by spaces and tabs, and a token belongs to the word
//! in which it begins. A token that is only the marker of a word's beginning (`▁`) has no text, and
//! belongs to no word.

use anyhow::{Context, Result, ensure};
use taper_data::{NO_WORD, Tokenizer, WordLink};
use taper_decoding::{AlignedAttention, align_with};
use taper_metrics::{AlignmentCounts, Link};

use super::Symmetrization;
use crate::LoadedRun;
use crate::advice::Setting;
use crate::translation::{LineLimit, OverlongRule, TranslationSettings, is_marker};

/// Settings of word alignment.
#[derive(Debug, Clone, Copy, Default)]
pub struct WordAlignerSettings {
    /// Decoder layer, counted from 1; `None` for the layer of the head that was trained with word
    /// alignments or, if there is none, the last layer but one.
    pub layer: Option<usize>,
    /// Head, counted from 1; `None` for the head that was trained with word alignments or, if
    /// `layer` is set or there is no such head, the mean of all heads.
    pub head: Option<usize>,
    /// Largest number of tokens in a line; `None` for the limit on lines with which the run was
    /// trained.
    pub max_tokens: Option<usize>,
}

/// Aligner that links words by the attention of the model of a run (folder of a trained model).
#[derive(Debug)]
pub struct WordAligner<'a> {
    run: &'a LoadedRun,
    attention: AlignedAttention,
    limit: LineLimit,
    /// Aligner with a model that translates in the opposite direction, and the method that combines
    /// its links with the links of this aligner. `None` if a single model aligns.
    reverse: Option<(Box<WordAligner<'a>>, Symmetrization)>,
}

/// Tokens of a line, and the index of the word to which each token belongs; [`NO_WORD`] for a token
/// without text.
struct Line {
    ids: Vec<u32>,
    words: Vec<u32>,
}

impl<'a> WordAligner<'a> {
    /// Aligner with the model of `run`.
    ///
    /// # Errors
    /// When the model lacks the layer or head of `settings`, or the run has several directions of
    /// translation and none has been chosen.
    pub fn new(run: &'a LoadedRun, settings: &WordAlignerSettings) -> Result<Self> {
        run.require_direction()?;
        let mut attention = TranslationSettings::from_config(&run.config).aligned_by;
        for (name, number) in [("layer", settings.layer), ("head", settings.head)] {
            ensure!(number != Some(0), "{name} 0: layers and heads are counted from 1");
        }
        if let Some(layer) = settings.layer {
            attention = AlignedAttention { layer: Some(layer - 1), head: None };
        }
        if let Some(head) = settings.head {
            attention.head = Some(head - 1);
        }
        attention.check(&run.model)?;
        let most = settings.max_tokens.unwrap_or(run.config.data.cleaning.max_tokens);
        let limit = LineLimit::new(OverlongRule::Error, most)
            .within(&run.config.model, run.tokenizers.source());
        Ok(Self { run, attention, limit, reverse: None })
    }

    /// Adds `reverse`, an aligner with a model that translates in the opposite direction. `how` is
    /// the method that combines the links of the two aligners.
    #[must_use]
    pub fn with_reverse(self, reverse: WordAligner<'a>, how: Symmetrization) -> Self {
        Self { reverse: Some((Box::new(reverse), how)), ..self }
    }

    /// Links between words of each pair of lines, in ascending order. In messages, the first line
    /// has the number `first`.
    ///
    /// # Errors
    /// When `sources` and `targets` have different numbers of lines, a line has too many tokens, or
    /// the model cannot be run on a pair.
    pub fn align(
        &self,
        sources: &[String],
        targets: &[String],
        first: usize,
    ) -> Result<Vec<Vec<Link>>> {
        let links = self.align_one_way(sources, targets, first)?;
        let Some((reverse, how)) = &self.reverse else { return Ok(links) };
        let back = reverse.align_one_way(targets, sources, first)?;
        let turned = |links: Vec<Link>| -> Vec<Link> {
            links.into_iter().map(|(target, source)| (source, target)).collect()
        };
        let both = links.iter().zip(back);
        Ok(both.map(|(links, back)| how.apply(links, &turned(back))).collect())
    }

    fn align_one_way(
        &self,
        sources: &[String],
        targets: &[String],
        first: usize,
    ) -> Result<Vec<Vec<Link>>> {
        let (source, target) = (self.run.tokenizers.source(), self.run.tokenizers.target());
        let source_lines = self.encode(source, sources, first)?;
        let target_lines = self.encode(target, targets, first)?;
        let of_target = target.before_target();
        let source_ids: Vec<Vec<u32>> =
            source_lines.iter().map(|line| source.source_row(line.ids.iter().copied())).collect();
        let target_ids: Vec<Vec<u32>> = target_lines
            .iter()
            .map(|line| [of_target.as_slice(), line.ids.as_slice()].concat())
            .collect();
        let source_rows: Vec<&[u32]> = source_ids.iter().map(Vec::as_slice).collect();
        let target_rows: Vec<&[u32]> = target_ids.iter().map(Vec::as_slice).collect();
        let before = (source.tokens_before_source(), of_target.len());
        let mut aligned = Vec::with_capacity(sources.len());
        let mut lines = source_lines.iter().zip(&target_lines);
        let aligner = (&self.run.model, target.decoder_start(), source.end());
        align_with(aligner, self.attention, &source_rows, &target_rows, |alignment| {
            let Some(lines) = lines.next() else { return };
            aligned.push(word_links(lines, &alignment.weights, before));
        })
        .context("alignment failed")?;
        Ok(aligned)
    }

    /// Tokenises lines. The first line has the number `first` in messages.
    ///
    /// # Errors
    /// When a line has too many tokens; the message has its number.
    fn encode(&self, tokenizer: &Tokenizer, lines: &[String], first: usize) -> Result<Vec<Line>> {
        let encoded = |(index, line): (usize, &String)| {
            let encoded = tokenizer.encode_text(line)?;
            if encoded.len() > self.limit.tokens {
                let (line, tokens, most) = (first + index, encoded.len(), self.limit.tokens);
                let message = format!("line {line} has {tokens} tokens, more than {most}");
                return Err(self.limit.exceeded(message, Setting::MostTokens));
            }
            let ids = encoded.ids().to_vec();
            let has_text = |id: u32| tokenizer.token(id).is_none_or(|token| !is_marker(&token));
            let words = ids.iter().zip(encoded.words());
            let words = words.map(|(&id, word)| if has_text(id) { word } else { NO_WORD });
            Ok(Line { words: words.collect(), ids })
        };
        lines.iter().enumerate().map(encoded).collect()
    }
}

/// Links between the words of a source line and of a target line, in ascending order. The model
/// reads each line as a sequence of tokens, in which special tokens can stand before and after the
/// tokens of the line. `weights` has a row for each token of the target sequence and a column for
/// each token of the source sequence. `before` has the number of special tokens at the beginning of
/// the source sequence, and at the beginning of the target sequence. Tokens that belong to no word,
/// such as special tokens, are not linked.
fn word_links(
    (source, target): (&Line, &Line),
    weights: &[Vec<f32>],
    before: (usize, usize),
) -> Vec<Link> {
    let of_text = source.words.len();
    let rows = weights.iter().skip(before.1).zip(&target.words);
    let link = |(row, &to): (&Vec<f32>, &u32)| {
        let row = row.get(before.0..before.0 + of_text)?;
        let from = heaviest(row, &source.words)?;
        (to != NO_WORD).then_some((from, to))
    };
    let mut links: Vec<Link> = rows.filter_map(link).collect();
    links.sort_unstable();
    links.dedup();
    links
}

/// Word of the token with the largest weight, or of the first of several such tokens. `words` has
/// the word of each token. Tokens that belong to no word are left out; `None` if there are no
/// others.
fn heaviest(weights: &[f32], words: &[u32]) -> Option<u32> {
    let best = (0..weights.len().min(words.len()))
        .filter(|&place| words[place] != NO_WORD)
        .reduce(|best, place| if weights[place] > weights[best] { place } else { best });
    best.map(|place| words[place])
}

/// Compares predicted links with the links that people annotated, sentence by sentence, and returns
/// the counts over all sentences.
#[must_use]
pub fn count_links(predicted: &[Vec<Link>], reference: &[Vec<WordLink>]) -> AlignmentCounts {
    let mut counts = AlignmentCounts::default();
    for (predicted, reference) in predicted.iter().zip(reference) {
        let known: Vec<(Link, bool)> =
            reference.iter().map(|link| ((link.source, link.target), link.is_sure)).collect();
        counts += AlignmentCounts::count(predicted, &known);
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_marker_alone_is_no_word() {
        let line = |words: &[u32]| Line { ids: vec![7; words.len()], words: words.to_vec() };
        // The source has a marker before its first word, and the target one before its second.
        let (source, target) = (line(&[NO_WORD, 0, 1]), line(&[0, NO_WORD, 1]));
        let weights = [
            vec![9.0, 0.5, 0.2, 0.3, 0.0],
            vec![9.0, 0.1, 0.8, 0.1, 0.0],
            vec![9.0, 0.6, 0.1, 0.3, 0.0],
        ];
        // The first column is a special token.
        let before = (1, 0);
        assert_eq!(word_links((&source, &target), &weights, before), [(1, 0), (1, 1)]);
        assert!(is_marker("▁") && is_marker("Ġ") && !is_marker("▁a") && !is_marker("#"));
    }
}
