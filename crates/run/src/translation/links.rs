//! Links between parts of a line and of its translation.

use std::ops::Range;

use super::AlignedTokens;
use super::token_spans::token_spans;

/// Pairs of linked byte ranges of a line and of its translation `text`, from the alignment of their
/// tokens. `prefix`: text that the tokenizer puts before the line; links to it are omitted.
pub(super) fn links(
    prefix: &str,
    line: &str,
    text: &str,
    aligned: &AlignedTokens,
) -> Vec<(Range<usize>, Range<usize>)> {
    let before = prefix.len();
    let source = token_spans(&format!("{prefix}{line}"), &aligned.source_tokens);
    let target = token_spans(text, &aligned.target_tokens);
    let linked = aligned.pairs.iter().filter_map(|&(from, to)| {
        let (from, to) = (source.get(from)?, target.get(to)?);
        let from = from.start.checked_sub(before)?..from.end - before;
        (!from.is_empty() && !to.is_empty()).then(|| (from, to.clone()))
    });
    linked.collect()
}

/// Converts links between byte ranges to links between character ranges. The four numbers of a link
/// are start and end of the range in the line, then start and end of the range in the translation.
pub(super) fn in_characters(
    line: &str,
    text: &str,
    links: Vec<(Range<usize>, Range<usize>)>,
) -> Vec<[usize; 4]> {
    let (source, target) = (character_numbers(line), character_numbers(text));
    let link = |(from, to): (Range<usize>, Range<usize>)| {
        [source[from.start], source[from.end], target[to.start], target[to.end]]
    };
    links.into_iter().map(link).collect()
}

/// For each byte of a text, the index of its character. The last entry is the number of characters
/// in the text.
fn character_numbers(text: &str) -> Vec<usize> {
    let mut numbers = Vec::with_capacity(text.len() + 1);
    for (number, character) in text.chars().enumerate() {
        numbers.resize(numbers.len() + character.len_utf8(), number);
    }
    numbers.push(text.chars().count());
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_counted_in_characters() {
        let tokens = |texts: &[&str]| texts.iter().map(|one| (*one).to_owned()).collect();
        let aligned = AlignedTokens {
            source_tokens: tokens(&["<2zh>", "▁Ein", "▁Häus", "chen", "</s>"]),
            target_tokens: tokens(&["一座", "小屋"]),
            pairs: vec![(1, 0), (0, 0), (2, 1), (3, 1), (4, 1), (9, 9)],
            weights: Vec::new(),
        };
        let (line, text) = ("Ein Häuschen", "一座小屋");
        let found_links = links("<2zh> ", line, text, &aligned);
        // A link to a prefix or to an end token is omitted.
        assert_eq!(found_links, [(0..3, 0..6), (4..9, 6..12), (9..13, 6..12)]);
        assert_eq!(
            in_characters(line, text, found_links),
            [[0, 3, 0, 2], [4, 8, 2, 4], [8, 12, 2, 4]]
        );
    }
}
