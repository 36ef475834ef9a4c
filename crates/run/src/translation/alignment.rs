//! Alignment of the target tokens of a translated line with its source tokens. Lines with too many
//! tokens can be translated in parts; their alignments are joined.

use std::ops::Range;

use anyhow::{Context, Result};
use serde::Serialize;
use taper_data::{EncodedText, Tokenizer, TokenizerPair};
use taper_decoding::{AlignedAttention, Alignment, Control, align_with};
use taper_model::TranslationModel;

use super::{Overlong, Translation};

/// Largest number of alignment weights in memory at once (16 MiB). A single line that would have
/// more weights is aligned, but its weights are not kept.
const MOST_WEIGHTS: usize = 1 << 22;

/// Largest number of tokens that [`token_positions`] skips to find a token that the line and a part
/// of it have in common.
const AHEAD: usize = 64;

/// Alignment of each target token with source tokens.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AlignedTokens {
    /// Tokens of the source line, ending with `</s>`; empty if only `pairs` are requested. If the
    /// line was translated in parts, these are the tokens of the whole line, although the model
    /// read each part with its own tokens and `</s>`. If only the beginning of the line was
    /// translated, these are the tokens of the beginning.
    pub source_tokens: Vec<String>,
    /// Tokens of the translation; empty if only `pairs` are requested.
    pub target_tokens: Vec<String>,
    /// Pairs of a source index and a target index of tokens that are aligned.
    pub pairs: Vec<(usize, usize)>,
    /// Weight of each source token (column) for each target token (row). Empty if only pairs are
    /// requested, or if the translations of the line have more than 2²² weights together.
    pub weights: Vec<Vec<f32>>,
}

/// Tokens of a line that was divided into parts.
#[derive(Debug, Default)]
pub(super) struct WholeLine {
    ids: Vec<u32>,
    /// For each part, the range of the line's tokens that cover it. Spaces at a division and at the
    /// ends of the line are in no part.
    parts: Vec<Range<usize>>,
}

impl WholeLine {
    /// `parts`: texts of the parts of `line`, in their order.
    pub(super) fn new<'t>(line: &EncodedText, parts: impl Iterator<Item = &'t str>) -> Self {
        let (text, mut at) = (line.text(), 0);
        let covering = |part: &str| {
            at = text.len() - text[at..].trim_start().len();
            let first = line.bytes().partition_point(|token| token.end <= at);
            at += part.len();
            first..line.bytes().partition_point(|token| token.start < at).max(first)
        };
        Self { parts: parts.map(covering).collect(), ids: line.ids().to_vec() }
    }

    /// For each token of the part with the index `part`, its index among the tokens of the line.
    /// `tokens`: tokens of the part.
    fn positions(&self, part: usize, tokens: &[u32]) -> impl Iterator<Item = usize> + use<> {
        let range = self.parts.get(part).cloned().unwrap_or_default();
        let of_line = self.ids.get(range.clone()).unwrap_or_default();
        token_positions(of_line, tokens).into_iter().map(move |place| range.start + place)
    }
}

/// Line with the results of the search.
pub(super) struct SearchedLine {
    /// Tokens of the whole line, if it was translated in several parts; otherwise empty.
    pub(super) whole: WholeLine,
    /// Tokens of each part of the line, as the encoder reads them; empty if no alignment is
    /// requested.
    pub(super) sources: Vec<Vec<u32>>,
    /// Translations of each part; the number of translations is the same for all parts.
    pub(super) translations: Vec<Vec<Translation>>,
    /// Indices of the terms (words with prescribed translations) that occur in the line.
    pub(super) terms: Vec<usize>,
    /// Treatment of the line if it has too many tokens, or the error if it is not translated.
    pub(super) overlong: Result<Option<Overlong>>,
}

impl SearchedLine {
    /// Tokens of each part and of its translation, which are to be aligned: first all parts with
    /// their first translations, then all parts with their second translations, and so on.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&[u32], &[u32])> {
        let ranks = self.translations.first().map_or(0, Vec::len);
        (0..ranks).flat_map(move |rank| {
            let parts = self.sources.iter().zip(&self.translations);
            parts.map(move |(source, translations)| {
                (source.as_slice(), translations[rank].tokens.as_slice())
            })
        })
    }

    /// Number of weights in the line's alignments: for all translations, one weight for each pair
    /// of a source token and a target token.
    pub(super) fn weights(&self) -> usize {
        let width: usize = self.sources.iter().map(Vec::len).sum();
        let height: usize = self.pairs().map(|(_, target)| target.len()).sum();
        width.saturating_mul(height)
    }
}

/// Groups consecutive lines so that the alignments of a group have at most [`MOST_WEIGHTS`]
/// weights. A line that has more weights is a group by itself.
pub(super) fn by_weight(lines: impl Iterator<Item = SearchedLine>) -> Vec<Vec<SearchedLine>> {
    let mut groups: Vec<Vec<SearchedLine>> = Vec::new();
    let mut held = 0_usize;
    for line in lines {
        let weights = line.weights();
        held = held.saturating_add(weights);
        match groups.last_mut() {
            Some(group) if held <= MOST_WEIGHTS => group.push(line),
            _ => {
                held = weights;
                groups.push(vec![line]);
            }
        }
    }
    groups
}

/// Aligner of lines with their translations, by the attention weights of a translation model.
pub(super) struct LineAligner<'a> {
    pub(super) model: &'a TranslationModel,
    pub(super) tokenizers: &'a TokenizerPair,
    pub(super) aligned_by: AlignedAttention,
    /// Whether alignments have tokens and weights, too, and not only pairs.
    pub(super) weights: bool,
    /// Control that can interrupt the work.
    pub(super) control: &'a dyn Control,
}

impl LineAligner<'_> {
    /// Aligns the parts of lines with their translations, in the order of [`SearchedLine::pairs`].
    ///
    /// # Errors
    /// If the model fails.
    pub(super) fn align(&self, lines: &[SearchedLine]) -> Result<Vec<Alignment>> {
        let (sources, targets): (Vec<&[u32]>, Vec<&[u32]>) =
            lines.iter().flat_map(SearchedLine::pairs).unzip();
        let weights =
            self.weights && lines.iter().map(SearchedLine::weights).sum::<usize>() <= MOST_WEIGHTS;
        let mut aligned = Vec::with_capacity(sources.len());
        let keep = |alignment: Alignment| {
            // Alignment comes after the search, but can be long, so it can be interrupted, too.
            self.control.between_steps();
            aligned.push(if weights {
                alignment
            } else {
                Alignment { weights: Vec::new(), ..alignment }
            })
        };
        let tokenizers = self.tokenizers;
        let aligner = (self.model, tokenizers.target().decoder_start(), tokenizers.source().end());
        align_with(aligner, self.aligned_by, &sources, &targets, keep)
            .context("alignment failed")?;
        Ok(aligned)
    }

    /// Returns the alignment of each translation of a line. It takes the alignments of the line's
    /// parts from `alignments`, in the order of [`SearchedLine::pairs`], and joins them. Each part
    /// attends only to its own tokens and its own `</s>`, which is shown as the `</s>` of the line.
    pub(super) fn aligned(
        &self,
        line: &SearchedLine,
        alignments: &mut impl Iterator<Item = Alignment>,
    ) -> Vec<AlignedTokens> {
        if line.translations.iter().all(Vec::is_empty) {
            return Vec::new();
        }
        let (source_ids, places) = self.places(line);
        let names = |tokenizer: &Tokenizer, ids: &[u32]| -> Vec<String> {
            ids.iter()
                .filter(|_| self.weights)
                .map(|&id| tokenizer.token(id).unwrap_or_default())
                .collect()
        };
        let source_tokens = names(self.tokenizers.source(), &source_ids);
        let mut aligned = Vec::new();
        let mut pairs = line.pairs().zip(alignments).peekable();
        while pairs.peek().is_some() {
            let mut whole =
                AlignedTokens { source_tokens: source_tokens.clone(), ..AlignedTokens::default() };
            let mut before = 0;
            for (places, ((_, target), alignment)) in places.iter().zip(pairs.by_ref()) {
                whole.pairs.extend(
                    alignment.pairs.into_iter().map(|(from, to)| (places[from], before + to)),
                );
                whole.weights.extend(alignment.weights.into_iter().map(|row| {
                    let mut wide = vec![0.0; source_ids.len()];
                    places.iter().zip(row).for_each(|(&place, weight)| wide[place] += weight);
                    wide
                }));
                whole.target_tokens.extend(names(self.tokenizers.target(), target));
                before += target.len();
            }
            aligned.push(whole);
        }
        aligned
    }

    /// Tokens of a line, and for each token of each part its index among these tokens.
    fn places(&self, line: &SearchedLine) -> (Vec<u32>, Vec<Vec<usize>>) {
        if let [whole] = line.sources.as_slice() {
            return (whole.clone(), vec![(0..whole.len()).collect()]);
        }
        let tokenizer = self.tokenizers.source();
        let special = tokenizer.special_tokens();
        let (before, behind) = (tokenizer.tokens_before_source(), special.after.len() + 1);
        let words = |source: &[u32]| before..source.len().saturating_sub(behind).max(before);
        let end = before + line.whole.ids.len();
        let places = line
            .sources
            .iter()
            .enumerate()
            .map(|(part, source)| {
                let tokens = source.get(words(source)).unwrap_or_default();
                let own_places = line.whole.positions(part, tokens).map(|place| before + place);
                // A part with only spaces has no tokens except the end token.
                let around = if source.len() < before + behind { 0 } else { before };
                (0..around).chain(own_places).chain(end..end + source.len().min(behind)).collect()
            })
            .collect();
        (tokenizer.source_row(line.whole.ids.iter().copied()), places)
    }
}

/// For each token of `parts`, its index among the tokens `line`. `parts`: tokens of a part of a
/// line, or of several parts, one after another. `line`: tokens of the line that cover them.
///
/// Both sequences are equal except where the line was divided. There, the first token of a part
/// begins with the marker of a new word, even if no space stands before the part. If a word was
/// divided, its two parts have other tokens than the whole word. Spaces at the division are in no
/// part. Tokens that differ get the indices of the line's tokens at the division.
fn token_positions(line: &[u32], parts: &[u32]) -> Vec<usize> {
    let mut places = Vec::with_capacity(parts.len());
    let mut next = 0;
    while places.len() < parts.len() {
        let (parts, rest) = (&parts[places.len()..], line.get(next..).unwrap_or_default());
        // Looks for the next token that both sequences have in common. Tokens of the parts are
        // skipped first, because parts have additional markers of new words.
        let (of_parts, of_line) = (0..AHEAD)
            .flat_map(|both| (0..=both).map(move |of_line| (both - of_line, of_line)))
            .find(|&(of_parts, of_line)| {
                parts.get(of_parts).zip(rest.get(of_line)).is_some_and(|(one, other)| one == other)
            })
            .unwrap_or((0, 0));
        let instead = |place: usize| {
            (next + place.min(of_line.saturating_sub(1))).min(line.len().saturating_sub(1))
        };
        places.extend((0..of_parts).map(instead));
        next += of_line;
        places.push(next.min(line.len().saturating_sub(1)));
        next += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use taper_data::{TokenizerConfig, TokenizerKind};

    #[test]
    fn tokens_of_parts_have_their_places_in_the_line() {
        assert_eq!(token_positions(&[5, 6, 7], &[5, 6, 7]), [0, 1, 2]);
        // Token 9 is the marker of a new word, before a part that does not follow a space.
        assert_eq!(
            token_positions(&[9, 5, 6, 7, 8, 5], &[9, 5, 6, 9, 7, 9, 8, 5]),
            [0, 1, 2, 3, 3, 4, 4, 5]
        );
        // Spaces at the division are in no part.
        assert_eq!(token_positions(&[5, 9, 9, 6, 7], &[5, 6, 7]), [0, 3, 4]);
        // A divided word: tokens 56 and 7 of the line are tokens 5, 60 and 70 of the parts.
        assert_eq!(token_positions(&[4, 56, 7, 8, 4], &[4, 5, 60, 70, 8, 4]), [0, 1, 2, 2, 3, 4]);
        // The sequences have nothing in common, and the parts have more tokens than the line.
        assert_eq!(token_positions(&[4, 5], &[6, 7, 8]), [0, 1, 1]);
        assert_eq!(token_positions(&[], &[6]), [0]);
    }

    /// A tokenizer can give each space a token.
    #[test]
    fn many_spaces_at_a_division_do_not_move_the_places() {
        let texts = ["one two three. four five, six seven", "eight nine ten"];
        let mut longest_gap = 0;
        for kind in [TokenizerKind::Bpe, TokenizerKind::Unigram, TokenizerKind::Char] {
            let config =
                TokenizerConfig { kind, vocabulary_size: 320, ..TokenizerConfig::default() };
            let texts = texts.map(|text| Ok(text.to_owned())).into_iter();
            let tokenizer = Tokenizer::train(&config, false, false, texts).expect("trains");
            let parts = ["one two three.", "four five,", "six seven"];
            let blanks = " ".repeat(200);
            let line = format!("{blanks}{}{blanks}", parts.join(&blanks));
            let line = tokenizer.encode_long_text(&line).expect("encodes");
            let whole = WholeLine::new(&line, parts.into_iter());
            let mut end = 0;
            for (number, part) in parts.iter().enumerate() {
                let tokens = tokenizer.encode(part).expect("encodes");
                let places: Vec<usize> = whole.positions(number, &tokens).collect();
                assert!(places.is_sorted() && places.len() == tokens.len(), "{kind:?}: {places:?}");
                longest_gap = longest_gap.max(places[0] - end);
                end = places[places.len() - 1] + 1;
                // The first token of a part has a marker of a new word.
                let same = |at: usize| line.ids()[places[at]] == tokens[at];
                assert!((1..tokens.len()).all(same), "{kind:?}, {part}: {places:?}");
            }
        }
        assert!(longest_gap > AHEAD, "{longest_gap} tokens between two parts");
    }

    #[test]
    fn few_weights_are_held_at_once() {
        let line = |source: usize, target: usize, parts: usize| {
            let translation = Translation {
                text: String::new(),
                score: 0.0,
                total: None,
                log_probability: 0.0,
                length: 0,
                truncated: false,
                tokens: vec![4; target],
                token_log_probabilities: vec![0.0; target + 1],
                alignment: None,
            };
            SearchedLine {
                whole: WholeLine::default(),
                sources: vec![vec![4; source]; parts],
                translations: vec![vec![translation; 2]; parts],
                terms: Vec::new(),
                overlong: Ok(None),
            }
        };
        assert_eq!(line(20, 30, 1).weights(), 20 * 2 * 30);
        assert_eq!(line(20, 30, 5).weights(), 5 * 20 * 5 * 2 * 30);
        // The line with 100 parts has more weights than a group may have, and so do the two lines
        // with 50 parts together.
        let lines = [
            line(20, 30, 1),
            line(20, 30, 1),
            line(20, 30, 100),
            line(20, 30, 1),
            line(20, 30, 50),
            line(20, 30, 50),
        ];
        let sizes: Vec<usize> = by_weight(lines.into_iter()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [2, 1, 2, 1]);
        // Lines without parts to align have no weights, so they are one group.
        assert_eq!(by_weight((0..10).map(|_| line(20, 30, 0))).len(), 1);
    }
}
