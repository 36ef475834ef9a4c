//! Byte range of each token in a text, found by comparing the spelling of tokens with the text.

use std::ops::Range;

/// Number of characters that can be skipped to find a token if the token before it could not be
/// found.
const AHEAD: usize = 16;

/// Byte range in `text` of each token. The range is empty for a token that has no text or whose
/// text cannot be found, such as special tokens, single bytes of a character, and text that
/// normalisation has changed.
pub(super) fn token_spans(text: &str, tokens: &[String]) -> Vec<Range<usize>> {
    let mut at = 0;
    let mut spans = Vec::with_capacity(tokens.len());
    let mut is_lost = false;
    for token in tokens {
        // Removes the markers of the beginnings and ends of words that are common in vocabularies.
        let surface = token.trim_start_matches(['▁', 'Ġ', '#']).trim_end_matches("</w>");
        let surface =
            if surface.is_empty() { token.trim_start_matches(['▁', 'Ġ']) } else { surface };
        let rest = &text[at..];
        let blanks = rest.len() - rest.trim_start().len();
        let reach = if is_lost && surface.chars().count() > 1 { AHEAD } else { 0 };
        let starts = rest[blanks..].char_indices().map(|(place, _)| at + blanks + place);
        let found = starts
            .take(1 + reach)
            .find_map(|start| matched(&text[start..], surface).map(|length| start..start + length));
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
    let mut characters = text.char_indices();
    let mut end = 0;
    for wanted in surface.chars() {
        let (at, character) = characters.next()?;
        if character != wanted && !character.to_lowercase().eq(wanted.to_lowercase()) {
            return None;
        }
        end = at + character.len_utf8();
    }
    Some(end)
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
    }
}
