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

/// Returns the tag or text that begins at the byte `at`, with its byte range. A `<` that begins no
/// tag is text; a tag that is not closed extends to the end of the text.
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
        return (Tag::Other, at..at + until("-->", 4));
    }
    if rest.starts_with("<![CDATA[") {
        return (Tag::Other, at..at + until("]]>", 9));
    }
    if matches!(bytes[1], b'!' | b'?') {
        return (Tag::Other, at..at + until(">", 2));
    }
    // A `>` within quotes does not end a tag.
    let (mut end, mut quote) = (bytes.len(), None);
    for (place, &byte) in bytes.iter().enumerate().skip(1) {
        match (quote, byte) {
            (None, b'>') => {
                end = place + 1;
                break;
            }
            (None, b'"' | b'\'') if bytes[place - 1] == b'=' || bytes[place - 1] == b' ' => {
                quote = Some(byte);
            }
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    let raw = &rest[..end];
    let name = raw.trim_start_matches(['<', '/']);
    let name_end = name.find(|one: char| one.is_whitespace() || matches!(one, '>' | '/'));
    let name = name[..name_end.unwrap_or(name.len())].to_lowercase();
    let tag = match bytes[1] {
        b'/' => Tag::Close(name),
        _ => Tag::Open { name, is_empty: raw.ends_with("/>"), raw },
    };
    (tag, at..at + end)
}

/// True if a tag, a comment or similar markup begins with these bytes.
pub(crate) fn begins_tag(bytes: &[u8]) -> bool {
    match bytes {
        [b'<', b'!' | b'?', ..] => true,
        [b'<', b'/', next, ..] | [b'<', next, ..] => next.is_ascii_alphabetic(),
        _ => false,
    }
}

/// Largest number of bytes of a character reference, including its semicolon.
const LONGEST_REFERENCE: usize = 33;

/// Replaces the character references in a text; invalid references stay as they are.
pub(crate) fn decoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('&') {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let end = rest.bytes().take(LONGEST_REFERENCE).position(|byte| byte == b';');
        match end.and_then(|end| character(&rest[1..end]).map(|of| (of, end))) {
            Some((of, end)) => {
                out.push_str(&of);
                rest = &rest[end + 1..];
            }
            None => {
                out.push('&');
                rest = &rest[1..];
            }
        }
    }
    out + rest
}

/// Characters that a reference stands for; `None` if it is invalid.
fn character(name: &str) -> Option<String> {
    let number = match name.strip_prefix('#') {
        Some(hex) if hex.starts_with(['x', 'X']) => u32::from_str_radix(&hex[1..], 16).ok(),
        Some(decimal) => decimal.parse().ok(),
        None => return quick_xml::escape::resolve_html5_entity(name).map(str::to_owned),
    };
    char::from_u32(number?).filter(|&one| one != '\0').map(String::from)
}

/// Makes pieces in which tags are properly nested. A tag without a counterpart, or a tag that
/// crosses another element, becomes `Alone`.
pub(crate) fn paired(tags: Vec<(Piece, Option<(String, bool)>)>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(tags.len());
    let mut open: Vec<(String, usize)> = Vec::new();
    let alone = |piece: &Piece| match piece {
        Piece::Open(range)
        | Piece::Close(range)
        | Piece::CloseAs(range, _)
        | Piece::Alone(range) => Piece::Alone(range.clone()),
        text @ Piece::Text(..) => text.clone(),
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
            // This case avoids a search, since there may be many closing tags without an open
            // element.
            Some((name, false)) if open_names.get(&name).is_none_or(|&count| count == 0) => {
                pieces.push(alone(&piece));
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
        pieces[left] = alone(&pieces[left]);
    }
    pieces
}
