//! Blanks and letters of texts.

/// A text on one line, with single blanks between its words and none around them.
pub(crate) fn one_line(text: &str) -> String {
    let is_blank = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r');
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Whether a text has anything to translate: a letter.
pub(crate) fn has_letters(text: &str) -> bool {
    text.chars().any(char::is_alphabetic)
}
