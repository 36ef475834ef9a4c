//! Finds the texts to translate in HTML. A text is what is between two tags of blocks, such as
//! `<p>`; tags of inline elements, such as `<b>`, are part of the text.

use std::ops::Range;

use crate::markup::{Attributes, Tag, next_tag, paired};
use crate::references::decoded;
use crate::segment::{Piece, Segment};
use crate::syntax::Syntax;
use crate::words::has_letters;

/// Inline elements. The tags of all other elements, including `br`, end a sentence.
const INLINE: [&str; 34] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "del", "dfn", "em", "font",
    "i", "img", "ins", "kbd", "label", "mark", "q", "s", "samp", "small", "span", "strike",
    "strong", "sub", "sup", "time", "tt", "u", "var", "wbr", "nobr",
];

/// Inline elements whose content is not translated, because it is not natural language.
const CODE: [&str; 4] = ["code", "kbd", "samp", "var"];

/// Elements that are skipped with their text.
const PASSED: [&str; 8] =
    ["script", "style", "textarea", "pre", "template", "svg", "math", "noscript"];

/// Elements whose content has no tags. In it, only the closing tag of the element itself is a tag.
const RAW: [&str; 3] = ["script", "style", "textarea"];

/// Elements that have neither content nor a closing tag.
const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
];

/// Block elements. If the closing tag `</p>` of a paragraph is left out, the paragraph ends where
/// one of these elements begins or ends.
const BLOCKS: [&str; 37] = [
    "address",
    "article",
    "aside",
    "blockquote",
    "body",
    "dd",
    "details",
    "div",
    "dl",
    "dt",
    "fieldset",
    "figcaption",
    "figure",
    "footer",
    "form",
    "h1",
    "h2",
    "h3",
    "h4",
    "h5",
    "h6",
    "header",
    "hr",
    "html",
    "li",
    "main",
    "menu",
    "nav",
    "ol",
    "p",
    "pre",
    "section",
    "table",
    "td",
    "th",
    "tr",
    "ul",
];

/// A table and its parts. At the end of one of them, an open row or cell ends as well.
const ROWS: [&str; 5] = ["table", "tbody", "thead", "tfoot", "tr"];

/// Elements whose closing tag may be left out.
struct Optional {
    names: &'static [&'static str],
    /// Elements that cannot be inside the element: it ends where one of them begins.
    next: &'static [&'static str],
    /// Elements that can contain the element. At the end of one of them, the element inside it ends
    /// as well.
    outer: &'static [&'static str],
    /// Elements that can be inside the element and can contain further elements with these
    /// `names`.
    nests: &'static [&'static str],
}

const OPTIONAL: [Optional; 6] = [
    Optional { names: &["p"], next: &BLOCKS, outer: &BLOCKS, nests: &[] },
    Optional { names: &["li"], next: &["li"], outer: &LISTS, nests: &LISTS },
    Optional { names: &["dt", "dd"], next: &["dt", "dd"], outer: &["dl"], nests: &["dl"] },
    Optional {
        names: &["td", "th"],
        next: &["td", "th", "tr", "tbody", "thead", "tfoot"],
        outer: &ROWS,
        nests: &["table"],
    },
    Optional {
        names: &["tr"],
        next: &["tr", "tbody", "thead", "tfoot"],
        outer: &ROWS,
        nests: &["table"],
    },
    Optional {
        names: &["option"],
        next: &["option", "optgroup"],
        outer: &["select", "optgroup", "datalist"],
        nests: &[],
    },
];

const LISTS: [&str; 3] = ["ul", "ol", "menu"];

/// Returns the segments of a page, which are to be translated.
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
                let is_void = VOID.contains(&name.as_str());
                if is_kept && !is_empty && !is_void {
                    at = end_of(text, &name, range.end);
                }
                if !is_inline {
                    flush(text, &mut pieces, &mut segments);
                } else if is_kept {
                    pieces.push((Piece::Alone(range.start..at), None));
                } else if is_empty || is_void {
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
    Attributes::of_tag(raw).any(|(name, value)| match name.to_lowercase().as_str() {
        "translate" => value.trim().eq_ignore_ascii_case("no"),
        "class" => value.split_ascii_whitespace().any(|class| class == "notranslate"),
        _ => false,
    })
}

/// Returns the end of the element with this name whose opening tag ends at `at`. If its closing tag
/// is left out, this is the beginning of the next tag that ends the element.
fn end_of(text: &str, name: &str, mut at: usize) -> usize {
    if RAW.contains(&name) {
        return end_of_raw(text, name, at);
    }
    let optional = OPTIONAL.iter().find(|optional| optional.names.contains(&name));
    let (mut depth, mut nested) = (1, 0_usize);
    while at < text.len() {
        let (tag, range) = next_tag(text, at);
        at = range.end;
        let (other, opens) = match tag {
            Tag::Open { name, is_empty: false, .. } if !VOID.contains(&name.as_str()) => {
                (name, true)
            }
            Tag::Open { name, .. } => {
                if optional.is_some_and(|of| nested == 0 && of.next.contains(&name.as_str())) {
                    return range.start;
                }
                continue;
            }
            Tag::Close(name) => (name, false),
            Tag::Text | Tag::Other => continue,
        };
        let is_in = |names: &[&str]| names.contains(&other.as_str());
        if opens && RAW.contains(&other.as_str()) {
            at = end_of_raw(text, &other, at);
        } else if let Some(optional) = optional {
            let ends = if opens { is_in(optional.next) } else { is_in(optional.outer) };
            if nested == 0 && !opens && other == name {
                return at;
            } else if nested == 0 && ends {
                return range.start;
            } else if is_in(optional.nests) {
                nested = if opens { nested + 1 } else { nested.saturating_sub(1) };
            }
        } else if other == name {
            depth = if opens { depth + 1 } else { depth - 1 };
            if depth == 0 {
                return at;
            }
        }
    }
    text.len()
}

/// Returns the end of an element of [`RAW`], whose opening tag ends at `at`.
fn end_of_raw(text: &str, name: &str, at: usize) -> usize {
    let is_end = |&end: &usize| {
        let rest = &text.as_bytes()[end + 2..];
        let is_name = |own: &[u8]| own.eq_ignore_ascii_case(name.as_bytes());
        rest.get(..name.len()).is_some_and(is_name)
            && !rest.get(name.len()).is_some_and(u8::is_ascii_alphanumeric)
    };
    let end = text[at..].match_indices("</").map(|(end, _)| at + end).find(is_end);
    end.map_or(text.len(), |end| next_tag(text, end).1.end)
}

/// Visible text of HTML: character references are decoded, and consecutive blanks become one.
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
