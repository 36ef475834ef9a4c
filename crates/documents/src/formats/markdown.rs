//! Finds the texts to translate in Markdown: paragraphs, headings, list items and table cells. The
//! library `pulldown-cmark` parses the document.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Parser, Tag as Block, TagEnd};

use super::html::{collapsed, is_kept_inline};
use crate::emphasis::{OPTIONS, is_kept};
use crate::markup::{Tag, next_tag, paired};
use crate::segment::{Piece, Segment};
use crate::syntax::Syntax;
use crate::words::{has_letters, one_line};

/// Pieces of a segment: text, tags and codes. If a piece is a tag, it is paired with the name of
/// the element and a flag, which is true for an opening and false for a closing tag.
type Tags = Vec<(Piece, Option<(String, bool)>)>;

/// Returns the segments of a document, which are to be translated.
pub(super) fn segments(text: &str) -> Vec<Segment> {
    let (segments, pieces) = (Vec::new(), Tags::new());
    let mut reader =
        Reader { text, segments, pieces, cursor: 0, kept: 0, cells: 0, label: None, skipped: 0 };
    for (event, range) in Parser::new_ext(text, OPTIONS).into_offset_iter() {
        match (reader.kept, event) {
            (0, event) => reader.read(event, range),
            (_, Event::Start(_)) => reader.kept += 1,
            (_, Event::End(_)) => reader.kept -= 1,
            _ => {}
        }
    }
    reader.segments
}

/// Segments read so far, and the pieces of the segment that is being read.
struct Reader<'a> {
    text: &'a str,
    segments: Vec<Segment>,
    pieces: Tags,
    /// Byte at which the last inline element or text ends.
    cursor: usize,
    /// Depth within an element that is kept as a whole: the number of its open elements, including
    /// the element itself; 0 outside such an element.
    kept: usize,
    /// Number of open table cells.
    cells: usize,
    /// Label of the open link if its text is also its label, otherwise `None`.
    label: Option<String>,
    /// Byte at which the last line that is kept unchanged ends (see [`Reader::begins_container`]).
    skipped: usize,
}

impl Reader<'_> {
    fn read(&mut self, event: Event<'_>, range: Range<usize>) {
        let end = range.end;
        let is_block_end = matches!(&event, Event::End(block) if !is_inline(*block));
        if range.start < self.skipped && !is_block_end {
            return;
        }
        match event {
            Event::Text(_) if self.begins_container(range.start) => {
                self.flush();
                let line = self.text[range.start..].find(['\n', '\r']);
                self.skipped = line.map_or(self.text.len(), |line| range.start + line);
            }
            Event::SoftBreak if self.pieces.is_empty() => {}
            Event::Start(block) => self.start(&block, range),
            Event::End(block) => self.end(block, range),
            Event::Text(text) => self.add((Piece::Text(text.into_string(), range), None), end),
            Event::SoftBreak => self.add((Piece::Text(" ".to_owned(), range), None), end),
            Event::InlineHtml(_) => self.add(inline_html(self.text, range), end),
            Event::InlineMath(_) if self.is_price(&range) => {
                let text = self.text[range.clone()].to_owned();
                self.add((Piece::Text(text, range), None), end);
            }
            Event::Code(_)
            | Event::FootnoteReference(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_) => self.add((Piece::Alone(range), None), end),
            // A line break ends the segment.
            Event::HardBreak | Event::Rule | Event::TaskListMarker(_) | Event::Html(_) => {
                self.flush();
            }
        }
    }

    /// Whether `at` is the beginning of a line that begins or ends a container in some dialects of
    /// Markdown: `::: note`, `:::` or `!!! note`. Such a line must not be joined to another line,
    /// because it would no longer be a mark of a container.
    fn begins_container(&self, at: usize) -> bool {
        let line = &self.text[at..];
        let is_kind = |behind: &str| behind.starts_with(|one: char| one.is_ascii_lowercase());
        let has_kind = |mark: &&str| line.strip_prefix(*mark).is_some_and(is_kind);
        let is_mark = line.starts_with(":::") || ["!!! ", "??? ", "???+ "].iter().any(has_kind);
        let is_break = |piece: &Piece| match piece {
            Piece::Text(_, range) => self.text[range.clone()].contains(['\n', '\r']),
            _ => false,
        };
        is_mark && self.pieces.last().is_none_or(|(piece, _)| is_break(piece))
    }

    /// Whether the parser has taken text between two prices for mathematics. In Pandoc and on
    /// GitHub, a `$` before a digit does not end mathematics. Such a text is translated, unless it
    /// has characters of markup.
    fn is_price(&self, range: &Range<usize>) -> bool {
        let is_digit = |next: char| next.is_ascii_digit();
        self.text[range.end..].starts_with(is_digit)
            && !self.text[range.clone()]
                .contains(['\\', '`', '*', '_', '[', ']', '<', '&', '~', '\n'])
    }

    /// Adds an inline part that ends at the byte `end`.
    fn add(&mut self, piece: (Piece, Option<(String, bool)>), end: usize) {
        self.pieces.push(piece);
        self.cursor = end;
    }

    fn start(&mut self, block: &Block<'_>, range: Range<usize>) {
        let (name, markers) = match block {
            Block::Emphasis => ("emphasis", 1),
            Block::Strong => ("strong", 2),
            Block::Strikethrough if self.text[range.clone()].starts_with("~~") => ("strike", 2),
            Block::Strikethrough => ("strike", 1),
            block if is_kept(block) => {
                self.kept = 1;
                let end = range.end;
                return self.add((Piece::Alone(range), None), end);
            }
            Block::Link { link_type, .. } => {
                self.label = label(*link_type, &self.text[range.clone()]);
                ("link", 1)
            }
            _ => {
                self.flush();
                match block {
                    Block::CodeBlock(_) | Block::HtmlBlock | Block::MetadataBlock(_) => {
                        self.kept = 1;
                    }
                    Block::TableCell => self.cells += 1,
                    _ => {}
                }
                return;
            }
        };
        let end = (range.start + markers).min(range.end);
        self.add((Piece::Open(range.start..end), Some((name.to_owned(), true))), end);
    }

    fn end(&mut self, block: TagEnd, range: Range<usize>) {
        let (name, from) = match block {
            TagEnd::Emphasis => ("emphasis", range.end - 1),
            TagEnd::Strong => ("strong", range.end - 2),
            TagEnd::Strikethrough if self.text[range.clone()].ends_with("~~") => {
                ("strike", range.end - 2)
            }
            TagEnd::Strikethrough => ("strike", range.end - 1),
            // The end is `](address "title")`, or whatever follows the text.
            TagEnd::Link => ("link", self.cursor),
            _ => {
                self.flush();
                self.cells -= usize::from(block == TagEnd::TableCell);
                return;
            }
        };
        let raw = from.min(range.end)..range.end;
        let label = self.label.take_if(|_| name == "link");
        let close = match label {
            // The text is translated, but the label must stay, because the address of the link is
            // found by its label.
            Some(label) => {
                // The parser's range does not include an empty label.
                let rest = &self.text[raw.end..];
                let end = raw.end + if rest.starts_with("[]") { 2 } else { 0 };
                Piece::CloseAs(raw.start..end, format!("][{label}]"))
            }
            None => Piece::Close(raw),
        };
        self.add((close, Some((name.to_owned(), false))), range.end);
    }

    /// Ends a segment.
    fn flush(&mut self) {
        let mut tags = std::mem::take(&mut self.pieces);
        for (piece, _) in &mut tags {
            if let Piece::Text(text, _) = piece {
                // The parser has already decoded character references, so `&` is escaped before
                // blanks are collapsed.
                *text = collapsed(&text.replace('&', "&amp;"));
            }
        }
        let mut pieces = paired(with_kept(self.text, tags));
        let is_blank =
            |piece: &Piece| matches!(piece, Piece::Text(text, _) if text.trim().is_empty());
        while pieces.last().is_some_and(is_blank) {
            pieces.pop();
        }
        let is_text = |piece: &Piece| matches!(piece, Piece::Text(text, _) if has_letters(text));
        // The parser leaves the backslash before an escaped character out of its range.
        if let Some(Piece::Text(of, range)) = pieces.first_mut() {
            let is_escaped = of.starts_with(|first: char| first.is_ascii_punctuation())
                && self.text[..range.start].ends_with('\\')
                && self.text[range.start..].starts_with(&of[..1]);
            range.start -= usize::from(is_escaped);
        }
        if pieces.iter().any(is_text) {
            let syntax = Syntax::Markdown { table: self.cells > 0 };
            self.segments.extend(Segment::in_place(pieces, syntax));
        }
    }
}

/// Whether an element is an inline element, which is a part of a text.
fn is_inline(block: TagEnd) -> bool {
    use TagEnd::{Emphasis, Image, Link, Strikethrough, Strong};
    matches!(block, Emphasis | Strong | Strikethrough | Link | Image)
}

/// Label of a link whose text is its label, such as `[text]` and `[text][]`.
fn label(link_type: LinkType, raw: &str) -> Option<String> {
    let is_label = matches!(link_type, LinkType::Shortcut | LinkType::Collapsed);
    let inner = raw.strip_prefix('[')?.strip_suffix(']')?;
    is_label.then(|| one_line(inner))
}

/// Joins each inline element of HTML whose content is not translated, such as `<kbd>`, into one
/// piece.
fn with_kept(text: &str, tags: Tags) -> Tags {
    let name_of = |(piece, tag): &(Piece, Option<(String, bool)>), is_open: bool| match (piece, tag)
    {
        (Piece::Open(range) | Piece::Close(range), Some((name, own))) if *own == is_open => {
            let raw = &text[range.clone()];
            raw.starts_with('<').then(|| (name.clone(), range.clone()))
        }
        _ => None,
    };
    // Elements without a closing tag ahead, so that it is looked for only once.
    let mut unclosed: Vec<String> = Vec::new();
    let mut made = Tags::with_capacity(tags.len());
    let mut at = 0;
    while let Some(tag) = tags.get(at) {
        at += 1;
        let opening = name_of(tag, true).filter(|(name, range)| {
            is_kept_inline(name, &text[range.clone()]) && !unclosed.contains(name)
        });
        let Some((name, range)) = opening else {
            made.push(tag.clone());
            continue;
        };
        let mut depth = 1_usize;
        let end = tags[at..].iter().position(|tag| {
            depth += usize::from(name_of(tag, true).is_some_and(|(other, _)| other == name));
            let closes = name_of(tag, false).is_some_and(|(other, _)| other == name);
            depth -= usize::from(closes);
            closes && depth == 0
        });
        match end.and_then(|end| Some((end, name_of(&tags[at + end], false)?.1.end))) {
            Some((count, end)) => {
                made.push((Piece::Alone(range.start..end), None));
                at += count + 1;
            }
            None => {
                made.push(tag.clone());
                unclosed.push(name);
            }
        }
    }
    made
}

fn inline_html(text: &str, range: Range<usize>) -> (Piece, Option<(String, bool)>) {
    match next_tag(&text[range.clone()], 0).0 {
        Tag::Open { name, is_empty: false, .. } if name != "br" && name != "img" => {
            (Piece::Open(range), Some((name, true)))
        }
        Tag::Close(name) => (Piece::Close(range), Some((name, false))),
        _ => (Piece::Alone(range), None),
    }
}
