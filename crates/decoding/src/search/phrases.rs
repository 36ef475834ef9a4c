//! Phrases that an output must contain: lexically constrained beam search (Hokamp and Liu 2017,
//! "Lexically Constrained Decoding for Sequence Generation"). Hypotheses are grouped by the number
//! of phrase tokens that they contain, and the places in the beam are divided among the groups
//! (Post and Vilar 2018, "Fast Lexically Constrained Decoding with Dynamic Beam Allocation",
//! section 3).

/// Largest number of phrases for a sentence; further phrases are ignored.
const MOST_PHRASES: usize = 64;

/// Returns the phrases of a sentence that a search requires: the first [`MOST_PHRASES`].
pub(crate) fn required(phrases: &[Vec<u32>]) -> &[Vec<u32>] {
    &phrases[..phrases.len().min(MOST_PHRASES)]
}

/// Returns the number of tokens of all required phrases.
pub(crate) fn token_count(phrases: &[Vec<u32>]) -> usize {
    required(phrases).iter().map(Vec::len).sum()
}

/// Which phrases a hypothesis contains, completely or in part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// One bit for each phrase: whether the hypothesis contains it.
    complete: u64,
    /// If the hypothesis ends with the beginning of a phrase: the index of the phrase, and the
    /// number of tokens of this beginning.
    begun: Option<(usize, usize)>,
}

impl Progress {
    /// Returns the progress after one more token. If the hypothesis now ends with a missing phrase,
    /// the phrase becomes complete. If it ends with the beginning of a phrase that is still
    /// missing, this phrase counts as begun. If there are several such phrases, only the one with
    /// the longest beginning counts. So phrases can overlap, and a phrase can begin with another
    /// phrase.
    pub(crate) fn after(self, token: u32, phrases: &[Vec<u32>]) -> Self {
        let phrases = required(phrases);
        if phrases.is_empty() {
            return self;
        }
        let mut end = self.beginning(phrases).to_vec();
        end.push(token);
        let ends = || (0..end.len()).map(|start| &end[start..]);
        let mut after = Self { begun: None, ..self };
        for end in ends() {
            // Of several equal phrases, each needs an occurrence of its own.
            if let Some(phrase) = after.missing(phrases).find(|&phrase| phrases[phrase] == end) {
                after.complete |= 1 << phrase;
            }
        }
        after.begun = ends().find_map(|end| {
            let is_begun = |phrase: &[u32]| phrase.starts_with(end) && phrase.len() > end.len();
            let phrase = after.missing(phrases).find(|&phrase| is_begun(&phrases[phrase]))?;
            Some((phrase, end.len()))
        });
        after
    }

    /// Returns the tokens at the end of the hypothesis that are the beginning of a phrase.
    fn beginning(self, phrases: &[Vec<u32>]) -> &[u32] {
        self.begun.map_or(&[], |(phrase, tokens)| &phrases[phrase][..tokens])
    }

    /// Returns the indices of the phrases that are not complete.
    fn missing(self, phrases: &[Vec<u32>]) -> impl Iterator<Item = usize> {
        (0..phrases.len())
            .filter(move |&phrase| self.complete & 1 << phrase == 0 && !phrases[phrase].is_empty())
    }

    /// True if no phrase is missing.
    pub(crate) fn is_complete(self, phrases: &[Vec<u32>]) -> bool {
        self.missing(required(phrases)).next().is_none()
    }

    /// Returns the tokens that phrases need next. If the hypothesis ends with the beginning of a
    /// phrase, these are the next tokens of all missing phrases with this beginning. Otherwise they
    /// are the first tokens of all missing phrases.
    pub(crate) fn next_tokens(self, phrases: &[Vec<u32>]) -> Vec<u32> {
        let phrases = required(phrases);
        let beginning = self.beginning(phrases);
        let of_phrase = |phrase: usize| phrases[phrase].strip_prefix(beginning)?.first().copied();
        let mut tokens: Vec<u32> = self.missing(phrases).filter_map(of_phrase).collect();
        tokens.sort_unstable();
        tokens.dedup();
        tokens
    }

    /// Returns the number of phrase tokens that the hypothesis contains: those of complete phrases,
    /// and those of the phrase that has begun. A token of two phrases counts twice.
    pub(crate) fn tokens(self, phrases: &[Vec<u32>]) -> usize {
        let phrases = required(phrases).iter().enumerate();
        let complete = phrases.filter(|(phrase, _)| self.complete & 1 << phrase != 0);
        complete.map(|(_, phrase)| phrase.len()).sum::<usize>()
            + self.begun.map_or(0, |(_, tokens)| tokens)
    }
}

/// Orders continuations for a beam that is divided among groups with equal numbers of phrase
/// tokens. `continuations` are sorted best first, each with its number of phrase tokens. The result
/// begins with the best continuation of each group, from the group with the most phrase tokens to
/// that with the fewest. Then follows the second best of each group, and so on. So each group has
/// about the same share of a beam of any size.
pub(crate) fn shared_out<T>(continuations: Vec<(usize, T)>) -> Vec<T> {
    let most = continuations.iter().map(|(tokens, _)| *tokens).max().unwrap_or(0);
    let mut places = vec![0; most + 1];
    let mut ordered: Vec<((usize, usize), T)> = continuations
        .into_iter()
        .map(|(tokens, continuation)| {
            places[tokens] += 1;
            ((places[tokens], most - tokens), continuation)
        })
        .collect();
    ordered.sort_by_key(|(key, _)| *key);
    ordered.into_iter().map(|(_, continuation)| continuation).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phrases_are_followed_token_by_token() {
        let phrases = [vec![5, 6], vec![5, 7], vec![8]];
        let after = |tokens: &[u32]| {
            tokens.iter().fold(Progress::default(), |so_far, &token| so_far.after(token, &phrases))
        };
        assert_eq!(after(&[]).next_tokens(&phrases), [5, 8]);
        assert_eq!(after(&[5]).next_tokens(&phrases), [6, 7]);
        assert_eq!(after(&[5, 6]).next_tokens(&phrases), [5, 8]);
        assert_eq!(after(&[5, 7]).next_tokens(&phrases), [5, 8]);
        // The token 9 interrupts the phrase `[5, 6]`, and a second 5 begins it again.
        assert_eq!(after(&[5, 9]), Progress::default());
        assert_eq!(after(&[5, 5]), after(&[5]));
        assert_eq!(after(&[5, 8]).tokens(&phrases), 1);
        assert!(!after(&[5, 6, 8, 7]).is_complete(&phrases));
        assert!(after(&[5, 6, 8, 5, 7, 9]).is_complete(&phrases));
        assert_eq!(after(&[5, 6, 8, 5]).tokens(&phrases), 4);
        assert!(Progress::default().is_complete(&[]));
        assert!(Progress::default().is_complete(&[vec![]]));
        // The third 7 interrupts the phrase, but the last two 7s are its beginning again.
        let phrases = [vec![7, 7, 8]];
        let four = [7, 7, 7, 8].iter().fold(Progress::default(), |one, &t| one.after(t, &phrases));
        assert!(four.is_complete(&phrases));
        // These phrases begin or end other phrases, or overlap with them.
        let phrases = [vec![5], vec![5, 6], vec![6, 7], vec![5, 6, 7, 8]];
        let after = |tokens: &[u32]| {
            tokens.iter().fold(Progress::default(), |so_far, &token| so_far.after(token, &phrases))
        };
        assert_eq!(after(&[5]).next_tokens(&phrases), [6]);
        assert_eq!(after(&[5, 6]).next_tokens(&phrases), [7]);
        assert!(after(&[5, 6, 7, 8]).is_complete(&phrases));
        assert!(!after(&[5, 7, 6, 7, 8]).is_complete(&phrases));
        assert_eq!(after(&[5, 9]).tokens(&phrases), 1);
        assert_eq!(after(&[5, 6, 7, 8]).tokens(&phrases), 9);
        let many = vec![vec![3]; MOST_PHRASES + 5];
        assert_eq!(token_count(&many), MOST_PHRASES);
    }

    #[test]
    fn a_beam_is_shared_out_by_tokens_of_phrases() {
        let continuations = vec![(0, 'a'), (0, 'b'), (2, 'c'), (0, 'd'), (1, 'e'), (2, 'f')];
        assert_eq!(shared_out(continuations), ['c', 'e', 'a', 'f', 'b', 'd']);
        assert_eq!(shared_out(vec![(0, 'a'), (0, 'b')]), ['a', 'b']);
        assert!(shared_out(Vec::<(usize, char)>::new()).is_empty());
    }
}
