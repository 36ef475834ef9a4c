//! Vocabulary shortlists, which limit the target tokens that translations of a source may contain
//! (Jean et al. 2015, "On Using Very Large Target Vocabulary for Neural Machine Translation").

use crate::{Sentence, SpecialIds};

/// Lists of target tokens: for each source token, the tokens that can translate it; and the tokens
/// that every translation may contain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shortlist {
    always: Vec<u32>,
    /// For each source token, the index in `tokens` at which the list of this token ends. The list
    /// begins where the list of the source token before it ends.
    ends: Vec<usize>,
    tokens: Vec<u32>,
}

impl Shortlist {
    /// Makes a shortlist. Every translation may contain the tokens in `always`. If a source
    /// contains the token `s`, its translations may also contain the tokens of the list with index
    /// `s`.
    #[must_use]
    pub fn new<L: AsRef<[u32]>>(always: Vec<u32>, lists: impl IntoIterator<Item = L>) -> Self {
        let (mut ends, mut tokens) = (Vec::new(), Vec::new());
        for list in lists {
            tokens.extend_from_slice(list.as_ref());
            ends.push(tokens.len());
        }
        Self { always, ends, tokens }
    }

    /// Tokens that every translation may contain.
    #[must_use]
    pub fn always(&self) -> &[u32] {
        &self.always
    }

    /// Number of source tokens that have a list.
    #[must_use]
    pub fn sources(&self) -> usize {
        self.ends.len()
    }

    /// Target tokens that can translate the token `source`; empty if it has no list.
    #[must_use]
    pub fn list(&self, source: u32) -> &[u32] {
        let source = source as usize;
        let start = source.checked_sub(1).and_then(|before| self.ends.get(before)).copied();
        let end = self.ends.get(source).copied();
        end.and_then(|end| self.tokens.get(start.unwrap_or(0)..end)).unwrap_or_default()
    }

    /// Tokens that translations of `sentence` may contain, ascending. They are the tokens that
    /// every translation may contain, the lists of the sentence's source tokens, the tokens of its
    /// prefix and phrases, and the end tokens and the unknown token of `special`.
    #[must_use]
    pub fn candidates(&self, sentence: &Sentence<'_>, special: &SpecialIds) -> Vec<u32> {
        let of_source = sentence.source.iter().flat_map(|&source| self.list(source));
        let forced = sentence.prefix.iter().chain(sentence.phrases.iter().flatten());
        let mut tokens: Vec<u32> =
            self.always.iter().chain(of_source).chain(forced).copied().collect();
        tokens.extend(special.candidates());
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{END, UNKNOWN};

    #[test]
    fn candidates_are_those_of_the_sentence() {
        let shortlist = Shortlist::new(vec![9], [vec![], vec![], vec![], vec![], vec![7, 5]]);
        assert_eq!((shortlist.list(4), shortlist.list(3)), (&[7, 5][..], &[][..]));
        assert!(shortlist.list(5).is_empty() && shortlist.sources() == 5);
        let phrases = [vec![12, 13]];
        let sentence = Sentence {
            source: &[4, 4, 100, END],
            prefix: &[11],
            phrases: &phrases,
            candidates: None,
            number: 0,
        };
        let candidates = shortlist.candidates(&sentence, &SpecialIds::ours([]));
        assert_eq!(candidates, [UNKNOWN, END, 5, 7, 9, 11, 12, 13]);
    }
}
