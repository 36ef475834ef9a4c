//! Which source token each target token of a line was made from, also where the line was translated
//! in parts.

use anyhow::Result;
use serde::Serialize;

use super::{Overlong, Translation};

/// The most weights of alignments that are held at once: 16 MiB of them. Those of one line may be
/// more, where it has many parts; nearly all of them are zero then, since each part attends to
/// itself alone.
pub(super) const MOST_WEIGHTS: usize = 1 << 22;

/// How many tokens two divisions of a text are looked through for a token that they share.
const AHEAD: usize = 64;

/// Which source token each target token was made from.
#[derive(Debug, Clone, Default, Serialize)]
pub struct AlignedTokens {
    /// Tokens of the source line, `</s>` last, also where it was translated in parts, which the
    /// model saw with tokens and a `</s>` of their own; of its beginning where that alone was
    /// translated. None where only pairs are shown.
    pub source_tokens: Vec<String>,
    /// Tokens of the translation; none where only pairs are shown.
    pub target_tokens: Vec<String>,
    /// (source, target) positions from 0.
    pub pairs: Vec<(usize, usize)>,
    /// For each target token the weight of each source token; nothing where only pairs are shown,
    /// and for a line whose translations have more than [`MOST_WEIGHTS`].
    pub weights: Vec<Vec<f32>>,
}

/// A line after the search.
pub(super) struct SearchedLine<'l> {
    /// The line.
    pub(super) line: &'l str,
    /// The tokens of each of its parts, `</s>` last; none where nothing is to be aligned.
    pub(super) sources: Vec<Vec<u32>>,
    /// The translations of each part, as many of one as of another.
    pub(super) translations: Vec<Vec<Translation>>,
    /// What was done if the line was too long, or why it is not translated.
    pub(super) overlong: Result<Option<Overlong>>,
}

impl SearchedLine<'_> {
    /// What is to be aligned: of each translation in turn, each part and what was made of it.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&[u32], &[u32])> {
        let ranks = self.translations.first().map_or(0, Vec::len);
        (0..ranks).flat_map(move |rank| {
            let parts = self.sources.iter().zip(&self.translations);
            parts.map(move |(source, found)| (source.as_slice(), found[rank].tokens.as_slice()))
        })
    }

    /// How many weights its alignments have: one of each source token for each target token.
    pub(super) fn weights(&self) -> usize {
        let width: usize = self.sources.iter().map(Vec::len).sum();
        let height: usize = self.pairs().map(|(_, target)| target.len()).sum();
        width.saturating_mul(height)
    }
}

/// Consecutive lines whose alignments have at most [`MOST_WEIGHTS`] weights together, or one line
/// that has more.
pub(super) fn by_weight<'l>(
    lines: impl Iterator<Item = SearchedLine<'l>>,
) -> Vec<Vec<SearchedLine<'l>>> {
    let mut groups: Vec<Vec<SearchedLine<'_>>> = Vec::new();
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

/// For each token of the parts of a line its place among the tokens of the line.
///
/// They are the same but where the line was divided: a part that does not follow a blank has the
/// mark of a word's beginning all the same, a word that was cut has other tokens, and blanks at the
/// cut are in no part. Tokens there get the place of those that the line has instead.
pub(super) fn token_positions(line: &[u32], parts: &[u32]) -> Vec<usize> {
    let mut places = Vec::with_capacity(parts.len());
    let mut next = 0;
    while places.len() < parts.len() {
        let (parts, rest) = (&parts[places.len()..], line.get(next..).unwrap_or_default());
        // The nearest tokens from which both go on alike. More of the parts are left out first,
        // since they have a mark more.
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
        // A mark, 9, before what does not follow a blank.
        assert_eq!(
            token_positions(&[9, 5, 6, 7, 8, 5], &[9, 5, 6, 9, 7, 9, 8, 5]),
            [0, 1, 2, 3, 3, 4, 4, 5]
        );
        // Blanks at the cut, which are in no part.
        assert_eq!(token_positions(&[5, 9, 9, 6, 7], &[5, 6, 7]), [0, 3, 4]);
        // A word that was cut: 56 and 7 of the line are 5, 60 and 70 of the parts.
        assert_eq!(token_positions(&[4, 56, 7, 8, 4], &[4, 5, 60, 70, 8, 4]), [0, 1, 2, 2, 3, 4]);
        // Nothing in common, and more of it than the line has.
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
                line: "",
                sources: vec![vec![4; source]; parts],
                translations: vec![vec![translation; 2]; parts],
                overlong: Ok(None),
            }
        };
        assert_eq!(line(20, 30, 1).weights(), 20 * 2 * 30);
        assert_eq!(line(20, 30, 5).weights(), 5 * 20 * 5 * 2 * 30);
        // Each of the long lines has too many by itself.
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
        // Nothing is held where nothing is to be aligned.
        assert_eq!(by_weight((0..10).map(|_| line(20, 30, 0))).len(), 1);
    }
}
