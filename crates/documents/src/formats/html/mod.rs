//! Finds the texts to translate in HTML. A text is what is between two tags of blocks, such as
//! `<p>`; tags of inline elements, such as `<b>`, are part of the text.

mod tree;

use std::ops::Range;

use crate::markup::{Attributes, Tag, next_tag, paired};
use crate::references::decoded;
use crate::segment::{Piece, Segment};
use crate::syntax::Syntax;
use crate::words::has_letters;
use tree::{Effect, OpenElements};

/// Inline elements. The tags of all other elements, including `br`, end a sentence.
const INLINE: [&str; 44] = [
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "cite", "code", "data", "del", "dfn", "em",
    "font", "i", "img", "ins", "kbd", "label", "mark", "math", "nobr", "output", "picture", "q",
    "rb", "rp", "rt", "rtc", "ruby", "s", "samp", "small", "span", "strike", "strong", "sub",
    "sup", "svg", "time", "tt", "u", "var", "wbr",
];

/// Inline elements whose content is not translated: code, which is not natural language, drawings,
/// pictures, and notes on the pronunciation of a text.
const CODE: [&str; 10] =
    ["code", "kbd", "math", "picture", "rp", "rt", "rtc", "samp", "svg", "var"];

/// Block elements that are skipped with their text.
const PASSED: [&str; 11] = [
    "iframe",
    "noembed",
    "noframes",
    "noscript",
    "plaintext",
    "pre",
    "script",
    "style",
    "template",
    "textarea",
    "xmp",
];

/// Elements whose content has no tags. In it, only the closing tag of the element itself is a tag.
const RAW: [&str; 8] =
    ["iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"];

/// Elements that have neither content nor a closing tag.
const VOID: [&str; 14] = [
    "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source",
    "track", "wbr",
];

/// Returns the segments of a page, which are to be translated.
pub(super) fn segments(text: &str) -> Vec<Segment> {
    let mut reader = Reader {
        text,
        segments: Vec::new(),
        pieces: Vec::new(),
        open: OpenElements::default(),
        states: Vec::new(),
    };
    let mut at = 0;
    while at < text.len() {
        at = reader.read(at);
    }
    reader.flush();
    reader.segments
}

/// Segments read so far, and the pieces of the segment that is being read.
struct Reader<'a> {
    text: &'a str,
    segments: Vec<Segment>,
    pieces: Vec<(Piece, Option<(String, bool)>)>,
    open: OpenElements,
    /// Open elements that decide whether their content is kept: index among the open elements, and
    /// whether it is kept.
    states: Vec<(usize, bool)>,
}

impl Reader<'_> {
    /// Whether the content of the innermost open element is kept, and not translated.
    fn is_kept(&self) -> bool {
        self.states.last().is_some_and(|&(_, is_kept)| is_kept)
    }

    /// Reads the tag or text at the byte `at`; returns the byte at which it ends.
    fn read(&mut self, at: usize) -> usize {
        let (tag, range) = next_tag(self.text, at);
        match tag {
            Tag::Text => {
                let raw = &self.text[range.clone()];
                if !raw.trim().is_empty() {
                    self.apply(self.open.before_text());
                }
                if !self.is_kept() {
                    self.pieces.push((Piece::Text(collapsed(raw), range.clone()), None));
                }
            }
            Tag::Other if !self.is_kept() => {
                self.pieces.push((Piece::Alone(range.clone()), None));
            }
            Tag::Other => {}
            Tag::Open { name, is_empty, raw } => return self.open(name, is_empty, raw, range),
            Tag::Close(name) => {
                let was_kept = self.is_kept();
                let effect = self.open.on_close(&name);
                self.apply(effect);
                if !is_inline(&name) {
                    self.flush();
                } else if !was_kept && !self.is_kept() {
                    self.pieces.push((Piece::Close(range.clone()), Some((name, false))));
                }
            }
        }
        range.end
    }

    /// Reads an opening tag; returns the byte at which it ends, or at which its element ends if the
    /// element is kept as a whole.
    fn open(&mut self, name: String, is_empty: bool, raw: &str, range: Range<usize>) -> usize {
        self.apply(self.open.before_open(&name));
        let is_within_kept = self.is_kept();
        let is_kept = PASSED.contains(&name.as_str())
            || CODE.contains(&name.as_str())
            || not_translated(raw).unwrap_or(is_within_kept);
        let has_end = !is_empty && !is_void(&name);
        let is_inline = is_inline(&name);
        if has_end && RAW.contains(&name.as_str()) {
            self.flush();
            let end = end_of_raw(self.text, &name, range.end);
            if !is_kept {
                let content = range.end..end.start;
                let text = collapsed(&self.text[content.clone()]);
                self.pieces.push((Piece::Text(text, content), None));
                self.flush();
            }
            return end.end;
        }
        if is_inline && is_kept && !is_within_kept {
            let end = if has_end { self.end_of(&name, range.end) } else { range.end };
            self.pieces.push((Piece::Alone(range.start..end), None));
            return end;
        }
        if !is_inline || is_kept != is_within_kept {
            self.flush();
        } else if !is_kept {
            self.pieces.push(match has_end {
                true => (Piece::Open(range.clone()), Some((name.clone(), true))),
                false => (Piece::Alone(range.clone()), None),
            });
        }
        if has_end
            && let Some(index) = self.open.push(name)
            && is_kept != is_within_kept
        {
            self.states.push((index, is_kept));
        }
        range.end
    }

    /// Applies the effect of a tag on the open elements.
    fn apply(&mut self, effect: Effect) {
        let was_kept = self.is_kept();
        self.open.apply(effect);
        match effect {
            Effect::Keep(count) => self.states.retain(|&(index, _)| index < count),
            Effect::Remove(removed) => {
                self.states.retain(|&(index, _)| index != removed);
                for (index, _) in &mut self.states {
                    *index -= usize::from(*index > removed);
                }
            }
        }
        if was_kept != self.is_kept() {
            self.flush();
        }
    }

    /// Returns the end of an inline element that is kept, whose opening tag ends at `at`. If its
    /// closing tag is left out, this is the beginning of the next tag that ends the element.
    fn end_of(&mut self, name: &str, mut at: usize) -> usize {
        let is_foreign = matches!(name, "svg" | "math");
        let Some(mut own) = self.open.push(name.to_owned()) else { return at };
        // Number of open elements with the same name, for drawings and formulas. The rules of HTML
        // do not apply to their elements.
        let mut depth = 1;
        while at < self.text.len() {
            let (tag, range) = next_tag(self.text, at);
            at = range.end;
            match tag {
                Tag::Text | Tag::Other => {}
                Tag::Open { name: other, is_empty, .. } => {
                    let has_end = !is_empty && !is_void(&other);
                    if has_end && RAW.contains(&other.as_str()) {
                        at = end_of_raw(self.text, &other, at).end;
                    } else if is_foreign {
                        depth += usize::from(has_end && other == name);
                    } else {
                        let effect = self.open.before_open(&other);
                        if matches!(effect, Effect::Keep(count) if count <= own) {
                            self.open.apply(Effect::Keep(own));
                            return range.start;
                        }
                        self.open.apply(effect);
                        if has_end {
                            self.open.push(other);
                        }
                    }
                }
                Tag::Close(other) if is_foreign => {
                    depth -= usize::from(other == name);
                    if depth == 0 {
                        self.open.apply(Effect::Keep(own));
                        return at;
                    }
                }
                Tag::Close(other) => match self.open.on_close(&other) {
                    Effect::Keep(count) if count <= own => {
                        self.open.apply(Effect::Keep(own));
                        return if count == own && other == name { at } else { range.start };
                    }
                    Effect::Remove(index) if index == own => {
                        self.open.apply(Effect::Remove(index));
                        return at;
                    }
                    effect => {
                        self.open.apply(effect);
                        if matches!(effect, Effect::Remove(index) if index < own) {
                            // An outer element has ended, although this one goes on.
                            own -= 1;
                        }
                    }
                },
            }
        }
        self.open.apply(Effect::Keep(own));
        self.text.len()
    }

    /// Ends a segment: makes it from the pieces so far, unless they have no text.
    fn flush(&mut self) {
        flush(self.text, &mut self.pieces, &mut self.segments);
    }
}

/// True if a tag with this name does not end a sentence.
pub(super) fn is_inline(name: &str) -> bool {
    INLINE.contains(&name)
}

/// True if an element with this name has neither content nor a closing tag.
pub(super) fn is_void(name: &str) -> bool {
    VOID.contains(&name)
}

/// True if HTML has an element with this name.
pub(super) fn is_element(name: &str) -> bool {
    is_inline(name) || is_void(name) || PASSED.contains(&name) || tree::is_structure(name)
}

/// True if the content of an inline element is not translated, by its name or its attributes.
/// `raw` is the opening tag.
pub(super) fn is_kept_inline(name: &str, raw: &str) -> bool {
    CODE.contains(&name) || not_translated(raw) == Some(true)
}

/// Whether a tag forbids translation of its element; `None` if it says nothing.
fn not_translated(raw: &str) -> Option<bool> {
    let mut forbids = None;
    for (name, value) in Attributes::of_tag(raw) {
        match name.to_lowercase().as_str() {
            "translate" => match value.trim().to_lowercase().as_str() {
                "no" => forbids = Some(true),
                "yes" | "" => forbids = forbids.or(Some(false)),
                _ => {}
            },
            "class" if value.split_ascii_whitespace().any(|class| class == "notranslate") => {
                forbids = Some(true);
            }
            _ => {}
        }
    }
    forbids
}

/// Returns the bytes of the closing tag of an element of [`RAW`], whose opening tag ends at `at`.
/// The range is empty at the end of the text if there is none.
fn end_of_raw(text: &str, name: &str, at: usize) -> Range<usize> {
    let is_end = |&end: &usize| {
        let rest = &text.as_bytes()[end + 2..];
        let is_name = |own: &[u8]| own.eq_ignore_ascii_case(name.as_bytes());
        rest.get(..name.len()).is_some_and(is_name)
            && !rest.get(name.len()).is_some_and(u8::is_ascii_alphanumeric)
    };
    let end = text[at..].match_indices("</").map(|(end, _)| at + end).find(is_end);
    end.map_or(text.len()..text.len(), |end| end..next_tag(text, end).1.end)
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
