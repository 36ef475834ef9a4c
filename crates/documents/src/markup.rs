//! Tags of HTML and similar formats in texts, with their byte ranges. Malformed markup is accepted,
//! and no byte is lost.

use std::collections::HashMap;
use std::ops::Range;

use crate::segment::Piece;

/// Part of a text with tags.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tag<'a> {
    /// Text between tags.
    Text,
    /// Opening tag. The name is in lower case; `is_empty` is true if the tag also ends the element.
    Open { name: String, is_empty: bool, raw: &'a str },
    /// Closing tag, with its name in lower case.
    Close(String),
    /// Comment, declaration or instruction.
    Other,
}

/// Returns the tag or text that begins at the byte `at`, with its byte range. A `<` that does not
/// begin a tag is text. A tag that is not closed extends to the end of the document.
pub(crate) fn next_tag(text: &str, at: usize) -> (Tag<'_>, Range<usize>) {
    let rest = &text[at..];
    let bytes = rest.as_bytes();
    let until = |end: &str, from: usize| {
        rest[from.min(rest.len())..].find(end).map_or(rest.len(), |found| from + found + end.len())
    };
    if bytes[0] != b'<' || !begins_tag(bytes) {
        let mut end = 1;
        while let Some(next) = rest.as_bytes()[end..].iter().position(|&byte| byte == b'<') {
            end += next;
            if begins_tag(&bytes[end..]) {
                return (Tag::Text, at..at + end);
            }
            end += 1;
        }
        return (Tag::Text, at..text.len());
    }
    if rest.starts_with("<!--") {
        // `<!-->` is a complete comment, and a comment can also end with `--!>`.
        let ends = |place: &usize| {
            let rest = &bytes[*place..];
            rest.starts_with(b"-->") || *place > 3 && rest.starts_with(b"--!>")
        };
        let end = (2..bytes.len()).find(ends).map_or(rest.len(), |end| end + 2);
        return (Tag::Other, at..at + until(">", end));
    }
    if rest.starts_with("<![CDATA[") {
        return (Tag::Other, at..at + until("]]>", 9));
    }
    if matches!(bytes[1], b'!' | b'?') {
        return (Tag::Other, at..at + until(">", 2));
    }
    let mut attributes = Attributes::of_tag(rest);
    let name = rest[..attributes.at].trim_start_matches(['<', '/']).to_lowercase();
    attributes.by_ref().for_each(drop);
    let Attributes { at: end, is_empty, .. } = attributes;
    let tag = match bytes[1] {
        b'/' => Tag::Close(name),
        _ => Tag::Open { name, is_empty, raw: &rest[..end] },
    };
    (tag, at..at + end)
}

/// Attributes of a tag by the rules of HTML. Names and values are returned as they are written. A
/// value in quotes can contain a `>`, and a value without quotes can contain a `/`.
pub(crate) struct Attributes<'a> {
    text: &'a str,
    /// Index of the next byte to read; after the last attribute, the index of the first byte after
    /// the tag.
    at: usize,
    /// Whether the tag ends with `/>`, known after the last attribute.
    is_empty: bool,
}

impl<'a> Attributes<'a> {
    /// Attributes of the tag with which a text begins.
    pub(crate) fn of_tag(text: &'a str) -> Self {
        let start = text.len() - text.trim_start_matches(['<', '/']).len();
        let length = text[start..].find(|one| is_blank(one) || matches!(one, '>' | '/'));
        let at = length.map_or(text.len(), |length| start + length);
        Self { text, at, is_empty: false }
    }

    /// Returns the position of the first character from `at` on for which `is` returns true; the
    /// end of the text if there is none.
    fn next_place(&self, at: usize, is: impl Fn(char) -> bool) -> usize {
        self.text[at..].find(is).map_or(self.text.len(), |length| at + length)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (&'a str, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (text, bytes) = (self.text, self.text.as_bytes());
        let start = self.next_place(self.at, |one| !is_blank(one) && one != '/');
        if bytes.get(start).is_none_or(|&byte| byte == b'>') {
            self.is_empty = text[self.at..start].ends_with('/');
            self.at = (start + 1).min(text.len());
            return None;
        }
        let first = text[start..].chars().next().map_or(0, char::len_utf8);
        let ends_name = |one| is_blank(one) || matches!(one, '=' | '>' | '/');
        let name = start..self.next_place(start + first, ends_name);
        let sign = self.next_place(name.end, |one| !is_blank(one));
        let mut value = name.end..name.end;
        self.at = name.end;
        if bytes.get(sign) == Some(&b'=') {
            let begin = self.next_place(sign + 1, |one| !is_blank(one));
            (value, self.at) = match bytes.get(begin) {
                Some(&quote @ (b'"' | b'\'')) => {
                    let end = self.next_place(begin + 1, |one| one == char::from(quote));
                    (begin + 1..end, (end + 1).min(text.len()))
                }
                _ => {
                    let end = self.next_place(begin, |one| is_blank(one) || one == '>');
                    (begin..end, end)
                }
            };
        }
        Some((&text[name], &text[value]))
    }
}

/// Whether a character separates the attributes of a tag.
fn is_blank(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\n' | '\r' | '\x0c')
}

/// Whether a tag, a comment or similar markup begins with these bytes.
pub(crate) fn begins_tag(bytes: &[u8]) -> bool {
    match bytes {
        [b'<', b'!' | b'?', ..] => true,
        [b'<', b'/', next, ..] | [b'<', next, ..] => next.is_ascii_alphabetic(),
        _ => false,
    }
}

/// Makes the tags of a segment properly nested, and returns its pieces. The tag of an element that
/// crosses another element becomes [`Piece::Alone`]. A tag without a counterpart becomes
/// [`Piece::Begin`] or [`Piece::End`], because its counterpart can be in another segment.
pub(crate) fn paired(tags: Vec<(Piece, Option<(String, bool)>)>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(tags.len());
    let mut open: Vec<(String, usize)> = Vec::new();
    let alone = |piece: &Piece| match piece {
        Piece::Open(range)
        | Piece::Close(range)
        | Piece::CloseAs(range, _)
        | Piece::Begin(range)
        | Piece::End(range)
        | Piece::Alone(range) => Piece::Alone(range.clone()),
        other @ (Piece::Text(..) | Piece::Break(_)) => other.clone(),
    };
    let mut open_names: HashMap<String, usize> = HashMap::new();
    for (piece, tag) in tags {
        match tag {
            None => pieces.push(piece),
            Some((name, true)) => {
                *open_names.entry(name.clone()).or_default() += 1;
                open.push((name, pieces.len()));
                pieces.push(piece);
            }
            // No element with this name is open, so the tag has no counterpart. The count shows
            // this without a search, because there can be very many such tags.
            Some((name, false)) if open_names.get(&name).is_none_or(|&count| count == 0) => {
                pieces.push(match piece {
                    Piece::Close(range) if open.is_empty() => Piece::End(range),
                    other => alone(&other),
                });
            }
            Some((name, false)) => {
                while let Some((own, place)) = open.pop() {
                    if let Some(count) = open_names.get_mut(&own) {
                        *count -= 1;
                    }
                    if own == name {
                        break;
                    }
                    pieces[place] = alone(&pieces[place]);
                }
                pieces.push(piece);
            }
        }
    }
    for (_, left) in open {
        if let Piece::Open(range) = &pieces[left] {
            pieces[left] = Piece::Begin(range.clone());
        }
    }
    pieces
}
