//! Chooses the tokens of a row that are predicted, and their replacements.

use crate::draws::Draws;
use crate::text::tokenizer::segmentation::SPACE_MARK;
use crate::text::tokenizer::special::Marks;
use crate::{MaskedConfig, Tokenizer};

/// The character for a space in byte-level vocabularies.
const BYTE_SPACE: char = 'Ġ';

/// Properties of each token of a vocabulary.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) marks: Marks,
    /// For each id, whether the token may continue a word, and whether a word may continue after
    /// it. If the vocabulary marks the tokens that continue a word, as WordPiece does with `##`,
    /// only these tokens continue words.
    edges: Vec<(bool, bool)>,
    /// Ids that may replace a hidden token: all ids except special tokens.
    plain: Vec<u32>,
}

impl Words {
    pub(crate) fn new(tokenizer: &Tokenizer, marks: Marks) -> Self {
        let count = tokenizer.vocabulary_size() as u32;
        let prefix = tokenizer.continuing_prefix();
        let edge = |id: u32| {
            let token = tokenizer.token(id).unwrap_or_default();
            if let Some(prefix) = prefix {
                return (token.starts_with(prefix), !tokenizer.is_special(id));
            }
            let is_word = |c: char| c.is_alphanumeric();
            // The sign for a space in byte-level vocabularies is a letter in Unicode, so it is
            // excluded.
            let goes_on = |c: char| is_word(c) && c != BYTE_SPACE;
            // The mark of a space may be a separate token, which the word after it continues.
            let may_follow = |c: char| is_word(c) || c == SPACE_MARK;
            (
                token.chars().next().is_some_and(goes_on),
                token.chars().next_back().is_some_and(may_follow),
            )
        };
        Self {
            marks,
            edges: (0..count).map(edge).collect(),
            plain: (0..count)
                .filter(|&id| !tokenizer.is_special(id) && tokenizer.token(id).is_some())
                .collect(),
        }
    }

    /// True if `next` continues the word of `token`. If the vocabulary marks the tokens that
    /// continue a word, `next` must have this mark, and `token` must not be a special token.
    /// Otherwise `next` must begin with a letter or digit, and `token` must end with a letter, a
    /// digit or the sign for a space.
    fn goes_on(&self, token: u32, next: u32) -> bool {
        let edge = |id: u32| self.edges.get(id as usize).copied().unwrap_or_default();
        edge(token).1 && edge(next).0
    }

    /// Hides tokens of `row`. Returns the indices of the predicted tokens in ascending order, each
    /// with its original id.
    pub(crate) fn hide(
        &self,
        row: &mut [u32],
        config: &MaskedConfig,
        draws: Draws,
    ) -> Vec<(usize, u32)> {
        let Marks { class, separator, mask } = self.marks;
        let candidates: Vec<usize> =
            (0..row.len()).filter(|&at| row[at] != class && row[at] != separator).collect();
        let mut words: Vec<Vec<usize>> = Vec::new();
        for &at in &candidates {
            let joins = config.whole_words
                && words
                    .last()
                    .and_then(|word| word.last())
                    .is_some_and(|&before| before + 1 == at && self.goes_on(row[before], row[at]));
            match words.last_mut().filter(|_| joins) {
                Some(word) => word.push(at),
                None => words.push(vec![at]),
            }
        }
        draws.shuffle(&mut words);
        let wanted = ((config.rate * candidates.len() as f64).round() as usize).max(1);
        let mut asked: Vec<(usize, u32)> = Vec::with_capacity(wanted);
        for word in words {
            if asked.is_empty() || asked.len() + word.len() <= wanted {
                asked.extend(word.into_iter().map(|at| (at, row[at])));
            }
        }
        asked.sort_unstable();
        // The indices of these draws come after those that `shuffle` used.
        let first = row.len() as u64;
        for &(at, _) in &asked {
            let number = first + 2 * at as u64;
            let drawn = draws.unit(number);
            if drawn < 0.8 {
                row[at] = mask;
            } else if drawn < 0.9 && !self.plain.is_empty() {
                let wide = u128::from(draws.bits(number + 1)) * self.plain.len() as u128;
                row[at] = self.plain[(wide >> 64) as usize];
            }
        }
        asked
    }
}
