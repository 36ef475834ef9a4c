//! Columns of a model's logits: which token each column stands for. The columns stand for all
//! tokens of the vocabulary, or only for candidates, the tokens to which the sentences of a search
//! are limited.

use taper_ops::composed::Likeliest;

use crate::Sentence;

/// Logits of a row, in the form in which a search gets them.
#[derive(Clone, Copy)]
pub(crate) enum Logits<'a> {
    /// The logits of all `V` tokens.
    All(&'a [f32]),
    /// Only the logits of the tokens that the sentence may contain (its candidates).
    Listed {
        /// The candidates, ascending.
        tokens: &'a [u32],
        /// Logit of each candidate.
        logits: &'a [f32],
    },
    /// Only the logits of the likeliest tokens of the row.
    Likeliest(&'a Likeliest),
}

/// Tokens of the columns of a row of logits.
#[derive(Clone, Copy)]
pub(crate) enum RowTokens<'a> {
    /// All tokens of the vocabulary.
    All,
    /// These tokens, ascending.
    Listed(&'a [u32]),
}

impl RowTokens<'_> {
    /// Returns the token for which a column of the row stands.
    pub(crate) fn token(self, column: usize) -> u32 {
        match self {
            Self::All => column as u32,
            Self::Listed(tokens) => tokens[column],
        }
    }

    /// Returns the column that stands for `token`; `None` if the row has no such column.
    pub(crate) fn column(self, token: u32) -> Option<usize> {
        match self {
            Self::All => Some(token as usize),
            Self::Listed(tokens) => tokens.binary_search(&token).ok(),
        }
    }
}

/// Columns of the logits during a search, and the candidates of each sentence (the tokens that it
/// may contain).
///
/// The model computes the logits of the union of the candidates of all sentences. From each row,
/// the search reads only the candidates of the row's sentence. So a translation does not depend on
/// the candidates of other sentences.
pub(crate) struct Columns<'a> {
    /// Number of columns.
    width: usize,
    /// Candidates of each sentence, with their columns; `None` if the sentence may contain all
    /// tokens. Empty if all sentences may contain all tokens.
    listed: Vec<Option<Listed<'a>>>,
}

/// Candidates of a sentence.
struct Listed<'a> {
    tokens: &'a [u32],
    /// Column of each candidate.
    columns: Vec<u32>,
}

impl<'a> Columns<'a> {
    /// Makes one column for each of the `vocabulary` tokens of the vocabulary.
    pub(crate) fn all(vocabulary: usize) -> Self {
        Self { width: vocabulary, listed: Vec::new() }
    }

    /// Makes the columns of a model that computes the logits of the tokens `union`, ascending, or
    /// of all tokens if `union` is `None`.
    pub(crate) fn new(
        sentences: &[Sentence<'a>],
        union: Option<&[u32]>,
        vocabulary: usize,
    ) -> Self {
        if sentences.iter().all(|sentence| sentence.candidates.is_none()) {
            return Self::all(vocabulary);
        }
        let listed = |sentence: &Sentence<'a>| {
            let tokens = sentence.candidates?;
            let columns = match union {
                Some(union) => columns_in(union, tokens),
                None => tokens.to_vec(),
            };
            Some(Listed { tokens, columns })
        };
        let listed = sentences.iter().map(listed).collect();
        Self { width: union.map_or(vocabulary, <[u32]>::len), listed }
    }

    /// Number of columns: the length of a row of the model's logits.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Whether every sentence may contain all tokens.
    pub(crate) fn are_all(&self) -> bool {
        self.listed.is_empty()
    }

    /// Calls `read` with the logits of the tokens that the sentence may contain. `row` has the
    /// logits of all columns. `sentence` is the index of the sentence.
    pub(crate) fn read<T>(
        &self,
        sentence: usize,
        row: &[f32],
        read: impl FnOnce(Logits<'_>) -> T,
    ) -> T {
        match self.listed.get(sentence) {
            Some(Some(Listed { tokens, columns })) => {
                let logit =
                    |&column: &u32| row.get(column as usize).copied().unwrap_or(f32::NEG_INFINITY);
                let logits: Vec<f32> = columns.iter().map(logit).collect();
                read(Logits::Listed { tokens, logits: &logits })
            }
            _ => read(Logits::All(row)),
        }
    }
}

/// Returns the union of the candidates of sentences, ascending. Returns `None` if a sentence may
/// contain all tokens. Also returns `None` if the union is so large that computing all logits is
/// cheaper than gathering the union's rows of the output matrix.
pub(crate) fn union<'l>(
    lists: impl Iterator<Item = Option<&'l [u32]>>,
    vocabulary: usize,
) -> Option<Vec<u32>> {
    let mut is_listed = vec![false; vocabulary];
    for list in lists {
        for &token in list? {
            if let Some(is_listed) = is_listed.get_mut(token as usize) {
                *is_listed = true;
            }
        }
    }
    let union: Vec<u32> =
        (0..).zip(is_listed).filter_map(|(token, is_listed)| is_listed.then_some(token)).collect();
    (!union.is_empty() && union.len() <= vocabulary / 4 * 3).then_some(union)
}

/// Returns the index of each of `tokens` in `union`; both are ascending. A token that is not in
/// `union` gets an index after the end of `union`.
fn columns_in(union: &[u32], tokens: &[u32]) -> Vec<u32> {
    let mut column = 0;
    let place = |&token: &u32| {
        column += union[column..].partition_point(|&other| other < token);
        if union.get(column) == Some(&token) { column as u32 } else { u32::MAX }
    };
    tokens.iter().map(place).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_union_has_each_token_once_and_columns_are_places_in_it() {
        let lists: [&[u32]; 2] = [&[3, 5, 9], &[3, 4, 9]];
        let union = union(lists.into_iter().map(Some), 12).expect("small");
        assert_eq!(union, [3, 4, 5, 9]);
        assert_eq!(columns_in(&union, lists[0]), [0, 2, 3]);
        assert_eq!(columns_in(&union, lists[1]), [0, 1, 3]);
        assert_eq!(columns_in(&union, &[4, 8]), [1, u32::MAX]);
    }

    #[test]
    fn a_large_union_is_the_whole_vocabulary() {
        assert!(union([Some(&[0, 1, 2][..])].into_iter(), 4).is_some());
        assert!(union([Some(&[0, 1, 2, 3][..])].into_iter(), 4).is_none());
        assert!(union([Some(&[0][..]), None].into_iter(), 4).is_none());
        assert!(union(std::iter::empty(), 4).is_none());
    }
}
