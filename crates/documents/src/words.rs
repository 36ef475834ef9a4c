//! Examines texts: their blanks and letters, and the marks of list items and speakers at their
//! beginnings.

use std::ops::Range;

use crate::scripts::is_chinese_or_japanese;

/// Puts a text on one line, with single blanks between its words and none around them.
pub(crate) fn one_line(text: &str) -> String {
    let is_blank = |character: char| matches!(character, ' ' | '\t' | '\n' | '\r');
    let words = text.split(is_blank).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

/// Returns `range` without the mark of a list item or speaker at its beginning, and without music
/// notes and blanks at both ends. These are not translated, because a model might omit them.
pub(crate) fn without_marks(text: &str, range: Range<usize>) -> Range<usize> {
    let around = |character: char| character.is_whitespace() || "♩♪♫♬".contains(character);
    let part = text[range.clone()].trim_start_matches(around);
    let part = behind_mark(part).map_or(part, |behind| behind.trim_start_matches(around));
    let start = range.end - part.len();
    start..start + part.trim_end_matches(around).len()
}

/// True if a line begins with the dash of a speaker or the mark of a list item.
pub(crate) fn has_mark(line: &str) -> bool {
    behind_mark(line.trim_start()).is_some()
}

/// Returns the text after the mark at the beginning of `text`, or `None` if there is no mark. A
/// dash before a number or an arrow is no mark, and neither is a star before a word.
fn behind_mark(text: &str) -> Option<&str> {
    let behind = text.strip_prefix(['-', '–', '—', '‐', '•', '‣', '◦', '·', '*'])?;
    let is_mark = |next: char| match text.starts_with('*') {
        true => next.is_whitespace(),
        false => !next.is_numeric() && !"-–—>.,*".contains(next),
    };
    behind.starts_with(is_mark).then_some(behind)
}

/// Text between two lines that were one: a blank, or nothing between two Chinese or Japanese
/// characters.
pub(crate) fn between_lines(before: &str, next: &str) -> &'static str {
    let is_close = before.chars().next_back().is_some_and(is_chinese_or_japanese)
        && next.chars().next().is_some_and(is_chinese_or_japanese);
    if is_close { "" } else { " " }
}

/// True if a text has a letter. A text without letters has nothing to translate.
pub(crate) fn has_letters(text: &str) -> bool {
    text.chars().any(char::is_alphabetic)
}
