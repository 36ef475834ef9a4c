//! Alignment of each target token of a line with its source tokens, also if the line was translated
//! in parts.

use anyhow::Result;
use serde::Serialize;

use super::{Overlong, Translation};

/// Largest number of alignment weights in memory at once: 16 MiB of them. A single line with many
/// parts may have more; nearly all of them are zero then, since each part attends to itself alone.
pub(super) const MOST_WEIGHTS: usize = 1 << 22;

/// Number of tokens within which a token common to two divisions of a text is searched.
const AHEAD: usize = 64;

/// Alignment of each target token with source tokens.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AlignedTokens {
    /// Tokens of the source line, `</s>` last, even if it was translated in parts, which the model
    /// saw with tokens and a `</s>` of their own; of its beginning if only that was translated.
    /// Empty if only pairs are requested.
    pub source_tokens: Vec<String>,
    /// Tokens of the translation; empty if only pairs are requested.
    pub target_tokens: Vec<String>,
    /// Linked (source, target) positions, from 0.
    pub pairs: Vec<(usize, usize)>,
    /// Weight of each source token for each target token; empty if only pairs are requested, and
    /// for a line whose translations have more than [`MOST_WEIGHTS`].
    pub weights: Vec<Vec<f32>>,
}

/// Line after the search.
pub(super) struct SearchedLine {
    /// Tokens of the whole line, if it has several parts.
    pub(super) whole: Vec<u32>,
    /// Row of each of its parts; empty without alignment.
    pub(super) sources: Vec<Vec<u32>>,
    /// Translations of each part, equally many for each.
    pub(super) translations: Vec<Vec<Translation>>,
    /// Treatment of an overlong line, or the reason why it is not translated.
    pub(super) overlong: Result<Option<Overlong>>,
}

impl SearchedLine {
    /// Pairs to align: for each translation in turn, each part and its translation.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&[u32], &[u32])> {
        let ranks = self.translations.first().map_or(0, Vec::len);
        (0..ranks).flat_map(move |rank| {
            let parts = self.sources.iter().zip(&self.translations);
            parts.map(move |(source, found)| (source.as_slice(), found[rank].tokens.as_slice()))
        })
    }

    /// Number of weights of its alignments: one of each source token for each target token.
    pub(super) fn weights(&self) -> usize {
        let width: usize = self.sources.iter().map(Vec::len).sum();
        let height: usize = self.pairs().map(|(_, target)| target.len()).sum();
        width.saturating_mul(height)
    }
}

/// Groups consecutive lines whose alignments have at most [`MOST_WEIGHTS`] weights together, or
/// takes one line that has more.
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

/// Place of each token of the parts of a line among the tokens of the line.
///
/// The tokens are the same except where the line was divided: a part that does not follow a blank
/// still gets the mark of a word's beginning, a divided word has other tokens, and blanks at the
/// cut are in no part. Tokens there get the place of the line's tokens at the cut.
pub(super) fn token_positions(line: &[u32], parts: &[u32]) -> Vec<usize> {
    let mut places = Vec::with_capacity(parts.len());
    let mut next = 0;
    while places.len() < parts.len() {
        let (parts, rest) = (&parts[places.len()..], line.get(next..).unwrap_or_default());
        // The nearest tokens from which both continue alike. More of the parts are skipped first,
        // since they have an additional mark.
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

    #[test]
    fn tokens_of_parts_have_their_places_in_the_line() {
        assert_eq!(token_positions(&[5, 6, 7], &[5, 6, 7]), [0, 1, 2]);
        // Mark 9 before a part that does not follow a blank.
        assert_eq!(
            token_positions(&[9, 5, 6, 7, 8, 5], &[9, 5, 6, 9, 7, 9, 8, 5]),
            [0, 1, 2, 3, 3, 4, 4, 5]
        );
        // Blanks at the cut, which are in no part.
        assert_eq!(token_positions(&[5, 9, 9, 6, 7], &[5, 6, 7]), [0, 3, 4]);
        // A divided word: 56 and 7 of the line are 5, 60 and 70 of the parts.
        assert_eq!(token_positions(&[4, 56, 7, 8, 4], &[4, 5, 60, 70, 8, 4]), [0, 1, 2, 2, 3, 4]);
        // Nothing in common, and more tokens than the line has.
        assert_eq!(token_positions(&[4, 5], &[6, 7, 8]), [0, 1, 1]);
        assert_eq!(token_positions(&[], &[6]), [0]);
    }

    #[test]
    fn few_weights_are_held_at_once() {
        let line = |source: usize, target: usize, parts: usize| {
            let translation = Translation {
                text: String::new(),
                score: 0.0,
                log_probability: 0.0,
                length: 0,
                truncated: false,
                tokens: vec![4; target],
                alignment: None,
            };
            SearchedLine {
                whole: Vec::new(),
                sources: vec![vec![4; source]; parts],
                translations: vec![vec![translation; 2]; parts],
                overlong: Ok(None),
            }
        };
        assert_eq!(line(20, 30, 1).weights(), 20 * 2 * 30);
        assert_eq!(line(20, 30, 5).weights(), 5 * 20 * 5 * 2 * 30);
        // Each of the long lines alone has too many.
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
        // Nothing is stored if nothing is to be aligned.
        assert_eq!(by_weight((0..10).map(|_| line(20, 30, 0))).len(), 1);
    }
}
