//! Links between the words of a sentence and the words of its translation, in the format of word
//! aligners: one line for each pair, such as `0-0 1-2 2?1`.

use std::fmt;
use std::ops::Range;

use super::words::words;

/// Link between a word of a source and a word of its target. Words are separated by spaces and
/// tabs, and counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WordLink {
    /// Index of the word in the source.
    pub source: u32,
    /// Index of the word in the target.
    pub target: u32,
    /// True if the link is marked as sure, for example `3-4`. A possible link is `3?4` or `3p4`.
    pub is_sure: bool,
}

impl fmt::Display for WordLink {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}{}", self.source, if self.is_sure { '-' } else { '?' }, self.target)
    }
}

/// Parses the links of a line. The result is sorted, without repetitions. A link that is written
/// both as sure and as possible is sure.
///
/// # Errors
///
/// If an entry is not a link. The error contains the first such entry.
pub fn parse_links(line: &str) -> Result<Vec<WordLink>, String> {
    let link = |text: &str| {
        let (source, target) = text.split_once(['-', '?', 'p'])?;
        let is_sure = text.as_bytes().get(source.len()) == Some(&b'-');
        // `parse` accepts a sign, which is not allowed here.
        let number = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse::<u32>().ok().filter(|number| *number < u32::MAX),
            false => None,
        };
        Some(WordLink { source: number(source)?, target: number(target)?, is_sure })
    };
    let mut links = Vec::new();
    for text in words(line) {
        links.push(link(text).ok_or_else(|| {
            let shown: String = text.chars().take(40).collect();
            format!(
                "{shown:?} is no link: write 0-1 for word 0 of the source and word 1 of the \
                 target"
            )
        })?);
    }
    // The sure link comes first.
    links.sort_unstable_by_key(|link| (link.source, link.target, !link.is_sure));
    links.dedup_by_key(|link| (link.source, link.target));
    Ok(links)
}

/// Refuses links to words that a pair does not have.
///
/// # Errors
///
/// If there is such a link. The error contains the first one.
pub fn check_links(links: &[WordLink], source: &str, target: &str) -> Result<(), String> {
    let (sources, targets) = (words(source).count(), words(target).count());
    let is_beyond =
        |link: &&WordLink| link.source as usize >= sources || link.target as usize >= targets;
    match links.iter().find(is_beyond) {
        Some(link) => Err(format!(
            "{link} is beyond the pair, which has {sources} words and {targets} words; words are \
             counted from 0 and divided by spaces and tabs"
        )),
        None => Ok(()),
    }
}

/// Byte range of each word of a text.
fn spans(text: &str) -> Vec<Range<usize>> {
    let start = |word: &str| word.as_ptr() as usize - text.as_ptr() as usize;
    words(text).map(|word| start(word)..start(word) + word.len()).collect()
}

/// Value that stands in place of the index of a word if a token belongs to no word.
pub const NO_WORD: u32 = u32::MAX;

/// For each token of a text, the index of its word. `tokens` has the byte range of each token. A
/// token belongs to the first word that ends after the token's beginning. So a token that is only a
/// blank belongs to the following word, and spaces at the end of a text belong to [no
/// word](NO_WORD).
pub(crate) fn words_of_tokens(text: &str, tokens: &[Range<usize>]) -> Vec<u32> {
    let words = spans(text);
    let word_of = |token: &Range<usize>| {
        let word = words.partition_point(|word| word.end <= token.start);
        if word < words.len() { word as u32 } else { NO_WORD }
    };
    tokens.iter().map(word_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_read_as_they_are_written() {
        let links = parse_links(" 3-4 0-0\t2?1 2p0 2-1 3-4 ").unwrap();
        let text = links.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        assert_eq!(text, "0-0 2?0 2-1 3-4");
        assert_eq!(parse_links("").unwrap(), []);
        for wrong in ["1", "1-", "-1", "1-2-3", "+1-2", "a-b", "1-99999999999", "1--2"] {
            assert!(parse_links(wrong).unwrap_err().contains("is no link"), "{wrong}");
        }
    }

    #[test]
    fn tokens_are_of_the_word_they_begin_in() {
        // A no-break space belongs to its word.
        let text = " ab  c\u{a0}d ";
        let spans = [0..1, 0..2, 2..3, 3..4, 4..6, 6..9, 9..10];
        assert_eq!(words_of_tokens(text, &spans), [0, 0, 0, 1, 1, 1, NO_WORD]);
        assert!(words_of_tokens("", &[]).is_empty());
    }
}
