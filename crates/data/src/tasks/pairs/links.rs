//! Word alignment of a pair: word links (each a source word and a target word), and the links
//! between tokens that follow from them.
//!
//! **Decision.** Links are stored between words, which are separated by spaces and tabs. A token
//! belongs to the word in which it begins, and has the links of this word. So links can be used
//! with any tokenizer, even if words are segmented differently in each epoch.

use crate::text::links::NO_WORD;

/// The links of a pair, and the word of each of its tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PairLinks {
    /// Index of the word of each source token, in ascending order.
    pub source_words: Vec<u32>,
    /// Index of the word of each target token, in ascending order.
    pub target_words: Vec<u32>,
    /// Links, each of which is the index of a source word and the index of a target word. They are
    /// sorted by the target word.
    pub links: Vec<(u32, u32)>,
}

impl PairLinks {
    /// Makes the links from pairs of a source word and a target word, in any order.
    pub(crate) fn new(
        source_words: Vec<u32>,
        target_words: Vec<u32>,
        mut links: Vec<(u32, u32)>,
    ) -> Self {
        links.sort_unstable_by_key(|&(source, target)| (target, source));
        links.dedup();
        Self { source_words, target_words, links }
    }

    /// The links of the pair when its sides are exchanged.
    pub(crate) fn turned(self) -> Self {
        let links = self.links.into_iter().map(|(source, target)| (target, source)).collect();
        Self::new(self.target_words, self.source_words, links)
    }

    /// Links between tokens, each as the index of a target token and the index of a source token.
    /// They are in ascending order.
    pub fn tokens(&self) -> impl Iterator<Item = (u32, u32)> {
        let of_target = |&word: &u32| {
            let first = self.links.partition_point(|link| link.1 < word);
            self.links[first..].iter().take_while(move |link| link.1 == word && word != NO_WORD)
        };
        let of_source = |word: u32| {
            let place = |past: u32| self.source_words.partition_point(|&one| one < past) as u32;
            place(word)..place(word + 1)
        };
        self.target_words.iter().zip(0_u32..).flat_map(move |(word, target)| {
            of_target(word)
                .flat_map(move |link| of_source(link.0))
                .map(move |source| (target, source))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_have_the_links_of_their_words() {
        let links = PairLinks::new(
            vec![0, 1, 1, 2, NO_WORD],
            vec![0, 0, 1, 2, NO_WORD],
            vec![(1, 0), (0, 1), (2, 0), (1, 0)],
        );
        let tokens: Vec<_> = links.tokens().collect();
        assert_eq!(tokens, [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 0)]);
        let mut back: Vec<_> = links.clone().turned().tokens().map(|(a, b)| (b, a)).collect();
        back.sort_unstable();
        assert_eq!(back, tokens);
        assert_eq!(links.clone().turned().turned(), links);
    }
}
