//! Escapes texts for the format of a document, so that no character of a text is read as markup.

use crate::placeholders::placeholders;

/// Rules of a format for escaping characters with a special meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// No character has a special meaning.
    Plain,
    /// Text of XML and HTML.
    Xml,
    /// Text of Markdown; `table` is true within a table.
    Markdown { table: bool },
    /// A string of a PO file (message catalog of gettext), without its quotes.
    Po,
}

impl Syntax {
    /// Escapes a text for the document.
    pub(crate) fn escape(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut before = ' ';
        let (verbatim, has_dollars) = match self {
            Self::Markdown { .. } => (templates(text), text.matches('$').count() > 1),
            _ => (Vec::new(), false),
        };
        let mut verbatim = verbatim.into_iter().peekable();
        let mut characters = text.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let next = characters.peek().map(|&(_, next)| next);
            while verbatim.next_if(|range| range.end <= at).is_some() {}
            let is_verbatim = verbatim.peek().is_some_and(|range| range.contains(&at));
            match (self, character) {
                _ if is_verbatim => out.push(character),
                (Self::Xml, '&') => out.push_str("&amp;"),
                (Self::Xml, '<') => out.push_str("&lt;"),
                (Self::Xml, '>') => out.push_str("&gt;"),
                // XML forbids these two.
                (Self::Xml, '\u{fffe}' | '\u{ffff}') => out.push(char::REPLACEMENT_CHARACTER),
                (Self::Po, '"') => out.push_str("\\\""),
                (Self::Po, '\\') => out.push_str("\\\\"),
                (Self::Po, '\n') => out.push_str("\\n"),
                (Self::Po, '\t') => out.push_str("\\t"),
                (Self::Po, '\r') => out.push_str("\\r"),
                (Self::Po, '\x07') => out.push_str("\\a"),
                (Self::Po, '\x08') => out.push_str("\\b"),
                (Self::Po, '\x0b') => out.push_str("\\v"),
                (Self::Po, '\x0c') => out.push_str("\\f"),
                (Self::Markdown { table }, _) => {
                    let is_special = match character {
                        '\\' | '*' | '`' | '[' | ']' | '<' => true,
                        // Within a word, `_` has no special meaning.
                        '_' => {
                            !(before.is_alphanumeric() && next.is_some_and(char::is_alphanumeric))
                        }
                        '&' => next.is_some_and(|next| next.is_alphabetic() || next == '#'),
                        '~' => is_strike(out.chars().next_back(), next),
                        // Two dollar signs could enclose mathematics.
                        '$' => has_dollars,
                        '|' => table,
                        // At the beginning of a paragraph, these characters would begin another
                        // kind of block.
                        '#' | '-' | '+' | '>' => out.is_empty() && ends_mark(character, next),
                        '.' | ')' => is_number(&out) && ends_mark(character, next),
                        _ => false,
                    };
                    if is_special {
                        out.push('\\');
                    }
                    out.push(character);
                }
                _ => out.push(character),
            }
            before = character;
        }
        out
    }

    /// True if two parts of a text, one directly after the other, would be read as a single part.
    /// This happens with two spans of code, or of mathematics.
    pub(crate) fn join(self, before: &str, next: &str) -> bool {
        let join = |mark| before.ends_with(mark) && next.starts_with(mark);
        matches!(self, Self::Markdown { .. }) && (join('`') || join('$'))
    }
}

/// Byte ranges of placeholders and parts of templates. They must not be escaped, because the
/// programs that replace them do not know the escapes of Markdown.
fn templates(text: &str) -> Vec<std::ops::Range<usize>> {
    let mut ranges = placeholders(text);
    ranges.retain(|range| text[range.clone()].starts_with(['{', '$', '%']));
    ranges
}

/// Whether a `~` must be escaped: it could be part of `~~`, or could end struck-out text. `before`
/// and `next` are the characters around it; `None` means that a mark or the end of the line can be
/// there. A `~` that can only begin struck-out text, as in `~10`, need not be escaped, because
/// every `~` that could end struck-out text is escaped.
fn is_strike(before: Option<char>, next: Option<char>) -> bool {
    let may_end =
        !before.is_some_and(char::is_whitespace) && !next.is_some_and(char::is_alphanumeric);
    may_end || [before, next].contains(&Some('~'))
}

/// Whether `mark` is a complete mark of a heading, a list item or a quotation if `next` is the
/// character after it.
fn ends_mark(mark: char, next: Option<char>) -> bool {
    mark == '>' || next.is_none_or(|next| next == ' ' || mark == '#' && next == '#')
}

/// True if a text is the number of a list item.
fn is_number(text: &str) -> bool {
    (1..10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tildes_that_could_strike_text_out_are_escaped() {
        for (text, expected) in [
            ("~x~", "~x\\~"),
            ("~~x~~", "\\~\\~x\\~\\~"),
            ("a ~x y~, b", "a ~x y\\~, b"),
            ("~10 to ~20 km", "~10 to ~20 km"),
            ("a~b", "a~b"),
            ("~", "\\~"),
        ] {
            assert_eq!(Syntax::Markdown { table: false }.escape(text), expected);
        }
    }
}
