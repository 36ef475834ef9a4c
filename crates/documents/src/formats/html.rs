//! HTML: texts between the tags of blocks. A text includes its inline tags.

use std::ops::Range;

use crate::markup::{Tag, decoded, next_tag, paired};
use crate::segment::{Piece, Segment};
use crate::syntax::Syntax;
use crate::words::has_letters;

/// Inline elements. The tags of all other elements, including `br`, end a sentence.
const INLINE: [&str; 34] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike",
    "strong", "sub", "sup", "time", "tt", "u", "var", "wbr", "nobr",
];

/// Inline elements that are kept, because their text is not natural language.
const CODE: [&str; 4] = ["code", "kbd", "samp", "var"];

/// Elements that are skipped with their text.
const PASSED: [&str; 8] =
    ["script", "style", "textarea", "pre", "template", "svg", "math", "noscript"];

/// Inline elements without a closing tag.
const VOID: [&str; 2] = ["img", "wbr"];

/// Segments of a page, which are texts to translate.
pub(super) fn segments(text: &str) -> Vec<Segment> {
    let mut segments = Vec::new();
    let mut pieces: Vec<(Piece, Option<(String, bool)>)> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let (tag, range) = next_tag(text, at);
        at = range.end;
        match tag {
            Tag::Text => pieces.push((Piece::Text(collapsed(&text[range.clone()]), range), None)),
            Tag::Other => pieces.push((Piece::Alone(range), None)),
            Tag::Open { name, is_empty, raw } => {
                let is_inline = INLINE.contains(&name.as_str());
                let is_kept = PASSED.contains(&name.as_str())
                    || CODE.contains(&name.as_str())
                    || is_not_translated(raw);
                if is_kept && !is_empty {
                    at = end_of(text, &name, range.end);
                }
                if !is_inline {
                    flush(text, &mut pieces, &mut segments);
                } else if is_kept {
                    pieces.push((Piece::Alone(range.start..at), None));
                } else if is_empty || VOID.contains(&name.as_str()) {
                    pieces.push((Piece::Alone(range), None));
                } else {
                    pieces.push((Piece::Open(range), Some((name, true))));
                }
            }
            Tag::Close(name) if INLINE.contains(&name.as_str()) => {
                pieces.push((Piece::Close(range), Some((name, false))));
            }
            Tag::Close(_) => flush(text, &mut pieces, &mut segments),
        }
    }
    flush(text, &mut pieces, &mut segments);
    segments
}

/// True if a tag says that the text of its element must not be translated.
fn is_not_translated(raw: &str) -> bool {
    let raw = raw.to_lowercase();
    raw.contains("translate=\"no\"") || raw.contains("translate=no") || raw.contains("notranslate")
}

/// End of the element `name` whose opening tag ends at the byte `at`.
fn end_of(text: &str, name: &str, mut at: usize) -> usize {
    let is_raw = matches!(name, "script" | "style" | "textarea");
    let mut depth = 1;
    while at < text.len() {
        if is_raw {
            // In such an element, only its own closing tag counts as a tag.
            let is_end = |&(at, _): &(usize, &str)| {
                let own = text.as_bytes().get(at + 2..at + 2 + name.len());
                own.is_some_and(|own| own.eq_ignore_ascii_case(name.as_bytes()))
            };
            let end = text[at..].match_indices("</").map(|(end, raw)| (at + end, raw)).find(is_end);
            return end.map_or(text.len(), |(end, _)| next_tag(text, end).1.end);
        }
        let (tag, range) = next_tag(text, at);
        at = range.end;
        match tag {
            Tag::Open { name: own, is_empty: false, .. } if own == name => depth += 1,
            Tag::Close(own) if own == name => {
                depth -= 1;
                if depth == 0 {
                    return at;
                }
            }
            _ => {}
        }
    }
    text.len()
}

/// Decodes a text of HTML as it is visible: several blanks in a row become one.
pub(super) fn collapsed(text: &str) -> String {
    let text = decoded(text);
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            ' ' | '\t' | '\n' | '\r' | '\x0c' if out.ends_with(' ') => {}
            ' ' | '\t' | '\n' | '\r' | '\x0c' => out.push(' '),
            other => out.push(other),
        }
    }
    out
}

/// Ends a segment: makes it from the pieces in `tags`, unless they have no text.
fn flush(text: &str, tags: &mut Vec<(Piece, Option<(String, bool)>)>, segments: &mut Vec<Segment>) {
    let mut pieces = paired(std::mem::take(tags));
    let is_blank = |piece: &Piece| matches!(piece, Piece::Text(text, _) if text.trim().is_empty());
    let is_text =
        pieces.iter().any(|piece| matches!(piece, Piece::Text(text, _) if has_letters(text)));
    if !is_text {
        return;
    }
    while pieces.first().is_some_and(is_blank) {
        pieces.remove(0);
    }
    while pieces.last().is_some_and(is_blank) {
        pieces.pop();
    }
    // Blanks at both ends are not part of the segment.
    let blanks = |raw: &str| raw.len() - raw.trim_start_matches([' ', '\t', '\n', '\r']).len();
    if let Some(Piece::Text(of, range)) = pieces.first_mut() {
        *range = range.start + blanks(&text[range.clone()])..range.end;
        *of = of.trim_start_matches(' ').to_owned();
    }
    if let Some(Piece::Text(of, range)) = pieces.last_mut() {
        let raw: &str = &text[range.clone()];
        let end: Range<usize> =
            range.start..range.start + raw.trim_end_matches([' ', '\t', '\n', '\r']).len();
        *range = end;
        *of = of.trim_end_matches(' ').to_owned();
    }
    segments.extend(Segment::in_place(pieces, Syntax::Xml));
}
