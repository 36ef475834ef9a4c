//! Text functions that behave as in Python, because the reference implementation, sacreBLEU, is
//! written in Python.
//!
//! Scores depend on the definition of whitespace, so it is given here once: Unicode `White_Space`
//! and the four information separators U+001C to U+001F, which Python's `str.split` and `str.strip`
//! also treat as space.

pub(crate) mod ngrams;
pub(crate) mod rewriting;
mod tokenizer;

pub use tokenizer::Tokenizer;

use std::borrow::Cow;

/// True if a character separates tokens.
pub(crate) fn is_space(character: char) -> bool {
    character.is_whitespace() || matches!(character, '\u{1c}'..='\u{1f}')
}

/// Removes whitespace at the end of a line, as sacreBLEU's program does on reading.
pub fn trim_end(line: &str) -> &str {
    line.trim_end_matches(is_space)
}

/// Splits a line at whitespace into its non-empty parts.
pub(crate) fn split(line: &str) -> impl Iterator<Item = &str> {
    line.split(is_space).filter(|token| !token.is_empty())
}

/// Converts the line to lower case if `lowercase` is set, with full case mapping, including the
/// final sigma.
pub(crate) fn fold_case(line: &str, lowercase: bool) -> Cow<'_, str> {
    if lowercase { Cow::Owned(line.to_lowercase()) } else { Cow::Borrowed(line) }
}

#[cfg(test)]
mod tests {
    use super::{fold_case, split};

    #[test]
    fn separators_and_odd_spaces_split_tokens() {
        let line = "a\u{1c}b\u{85}c\u{2028}d\u{b}e\u{3000}f\u{200b}g";
        let tokens: Vec<&str> = split(line).collect();
        assert_eq!(tokens, ["a", "b", "c", "d", "e", "f\u{200b}g"]);
    }

    #[test]
    fn lower_case_maps_final_sigma_and_dotted_capital() {
        assert_eq!(fold_case("ΟΔΟΣ İ", true), "οδος i\u{307}");
        assert_eq!(fold_case("ΟΔΟΣ", false), "ΟΔΟΣ");
    }
}
