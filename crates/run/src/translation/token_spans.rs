//! Byte range of each token in a text, found by comparing the spelling of tokens with the text.

use std::ops::Range;

/// Number of characters that can be skipped to find a token if the token before it could not be
/// found.
const AHEAD: usize = 16;

/// Whether a token has no text except the marker of the beginning of a word, as a `▁` alone.
pub(crate) fn is_marker(token: &str) -> bool {
    token.trim_start_matches(['▁', 'Ġ']).is_empty()
}

/// Byte range in `text` of each token. The range is empty for a token whose text cannot be found,
/// such as a special token, a single byte of a character, or text that normalisation has changed.
pub(super) fn token_spans(text: &str, tokens: &[String]) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut spans = Vec::with_capacity(tokens.len());
    let mut is_lost = false;
    for token in tokens {
        // Removes the markers of the beginnings and ends of words that are common in vocabularies.
        let surface = token.trim_start_matches(['▁', 'Ġ']);
        let surface = match surface.trim_end_matches("</w>") {
            "" => surface,
            unmarked => unmarked,
        };
        let rest = &text[at..];
        let blanks = rest.len() - rest.trim_start().len();
        let find = |surface: &str| {
            let reach = if is_lost && surface.chars().count() > 1 { AHEAD } else { 0 };
            let starts = rest[blanks..].char_indices().map(|(place, _)| at + blanks + place);
            starts.take(1 + reach).find_map(|start| {
                matched(&text[start..], surface).map(|length| start..start + length)
            })
        };
        // In WordPiece, `##` marks a token that continues a word; in other vocabularies it is text.
        let found = find(surface).or_else(|| find(surface.strip_prefix("##")?));
        is_lost = found.is_none();
        let span = found.unwrap_or(at..at);
        at = span.end;
        spans.push(span);
    }
    spans
}

/// Number of bytes at the beginning of `text` that spell `surface`, without regard to upper and
/// lower case; `None` if `text` begins otherwise.
fn matched(text: &str, surface: &str) -> Option<usize> {
    if surface.is_empty() {
        return None;
    }
    // Lower case can have more characters: `İ` becomes `i` and a combining dot.
    let mut wanted = surface.chars().flat_map(char::to_lowercase).peekable();
    let mut characters = text.chars();
    while wanted.peek().is_some() {
        for lower in characters.next()?.to_lowercase() {
            wanted.next_if_eq(&lower)?;
        }
    }
    Some(text.len() - characters.as_str().len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_found_by_their_spelling() {
        let spans = |text: &str, tokens: &[&str]| -> Vec<String> {
            let tokens: Vec<String> = tokens.iter().map(|token| (*token).to_owned()).collect();
            token_spans(text, &tokens).into_iter().map(|range| text[range].to_owned()).collect()
        };
        assert_eq!(
            spans("Das  Häuschen.", &["▁Das", "▁H", "äus", "chen", ".", "</s>"]),
            ["Das", "H", "äus", "chen", ".", ""]
        );
        assert_eq!(
            spans("A € b", &["<s>", "Ġa", "<0xE2>", "<0x82>", "<0xAC>", "Ġb"]),
            ["", "A", "", "", "", ""]
        );
        assert_eq!(spans("x \u{1f642} then", &["▁x", "<unk>", "▁then"]), ["x", "", "then"]);
        assert_eq!(spans("", &["a"]), [""]);
        // A token of WordPiece that continues a word, and text that begins with `#`.
        assert_eq!(
            spans("no. #1, ##a playing", &["no", ".", "Ġ#1", ",", "Ġ##a", "play", "##ing"]),
            ["no", ".", "#1", ",", "##a", "play", "ing"]
        );
        assert_eq!(spans("# ## a#", &["▁#", "▁##", "▁a", "#"]), ["#", "##", "a", "#"]);
        assert_eq!(spans("İzmir ΛΟΓΟΣ", &["▁i\u{307}z", "mir", "▁λογοσ"]), ["İz", "mir", "ΛΟΓΟΣ"]);
    }
}
