//! Syntax of texts in a document, between its markup.

/// Rules by which a format escapes characters with a special meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Syntax {
    /// No character has a special meaning.
    Plain,
    /// Text of XML and HTML.
    Xml,
    /// Text of Markdown; `table` is true within a table.
    Markdown { table: bool },
    /// A string of a catalog, without its quotes.
    Po,
}

impl Syntax {
    /// Escapes a text for the document.
    pub(crate) fn escape(self, text: &str) -> String {
        let mut out = String::with_capacity(text.len());
        let mut before = ' ';
        let mut characters = text.chars().peekable();
        while let Some(character) = characters.next() {
            let next = characters.peek().copied();
            match (self, character) {
                (Self::Xml, '&') => out.push_str("&amp;"),
                (Self::Xml, '<') => out.push_str("&lt;"),
                (Self::Xml, '>') => out.push_str("&gt;"),
                (Self::Po, '"') => out.push_str("\\\""),
                (Self::Po, '\\') => out.push_str("\\\\"),
                (Self::Po, '\n') => out.push_str("\\n"),
                (Self::Po, '\t') => out.push_str("\\t"),
                (Self::Po, '\r') => out.push_str("\\r"),
                (Self::Markdown { table }, _) => {
                    let is_special = match character {
                        '\\' | '*' | '`' | '[' | ']' | '<' => true,
                        // Within a word, `_` has no special meaning.
                        '_' => {
                            !(before.is_alphanumeric() && next.is_some_and(char::is_alphanumeric))
                        }
                        '&' => next.is_some_and(|next| next.is_alphabetic() || next == '#'),
                        '~' => next == Some('~'),
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

    /// True if two adjacent parts would be read as one: spans of code, or of mathematics.
    pub(crate) fn join(self, before: &str, next: &str) -> bool {
        let join = |mark| before.ends_with(mark) && next.starts_with(mark);
        matches!(self, Self::Markdown { .. }) && (join('`') || join('$'))
    }
}

/// True if the mark of a heading, an item or a quotation is complete before the character `next`.
fn ends_mark(mark: char, next: Option<char>) -> bool {
    mark == '>' || next.is_none_or(|next| next == ' ' || mark == '#' && next == '#')
}

/// True if a text is the number of a list item.
fn is_number(text: &str) -> bool {
    (1..10).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}
