//! Markdown: the text of paragraphs, headings, items and cells, as `pulldown-cmark` finds it.

use std::ops::Range;

use pulldown_cmark::{Event, LinkType, Options, Parser, Tag as Block, TagEnd};

use super::html::collapsed;
use crate::markup::{Tag, next_tag, paired};
use crate::segment::{Piece, Segment};
use crate::syntax::Syntax;
use crate::words::has_letters;

/// Pieces of a segment, each with the name of its tag, and whether it opens.
type Tags = Vec<(Piece, Option<(String, bool)>)>;

/// Segments of a text.
pub(super) fn segments(text: &str) -> Vec<Segment> {
    let options = Options::ENABLE_TABLES
        | Options::ENABLE_FOOTNOTES
        | Options::ENABLE_STRIKETHROUGH
        | Options::ENABLE_TASKLISTS
        | Options::ENABLE_MATH
        | Options::ENABLE_YAML_STYLE_METADATA_BLOCKS
        | Options::ENABLE_PLUSES_DELIMITED_METADATA_BLOCKS;
    let mut reader =
        Reader { text, segments: Vec::new(), pieces: Tags::new(), cursor: 0, kept: 0, cells: 0 };
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        match (reader.kept, event) {
            (0, event) => reader.read(event, range),
            (_, Event::Start(_)) => reader.kept += 1,
            (_, Event::End(_)) => reader.kept -= 1,
            _ => {}
        }
    }
    reader.segments
}

/// Segments read so far, and the pieces of the next one.
struct Reader<'a> {
    text: &'a str,
    segments: Vec<Segment>,
    pieces: Tags,
    /// End of the last inline part.
    cursor: usize,
    /// Depth within an element that is kept whole.
    kept: usize,
    /// Depth of cells.
    cells: usize,
}

impl Reader<'_> {
    fn read(&mut self, event: Event<'_>, range: Range<usize>) {
        let end = range.end;
        match event {
            Event::Start(block) => self.start(&block, range),
            Event::End(block) => self.end(block, range),
            Event::Text(text) => self.add((Piece::Text(text.into_string(), range), None), end),
            Event::SoftBreak => self.add((Piece::Text(" ".to_owned(), range), None), end),
            Event::InlineHtml(_) => self.add(inline_html(self.text, range), end),
            Event::Code(_)
            | Event::FootnoteReference(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_) => self.add((Piece::Alone(range), None), end),
            // A line break divides what is said.
            Event::HardBreak | Event::Rule | Event::TaskListMarker(_) | Event::Html(_) => {
                self.flush();
            }
        }
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
            Block::Link { link_type: LinkType::Autolink | LinkType::Email, .. }
            | Block::Image { .. } => {
                self.kept = 1;
                let end = range.end;
                return self.add((Piece::Alone(range), None), end);
            }
            Block::Link { .. } => ("link", 1),
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
            // `](address "title")`, or all that is behind the text.
            TagEnd::Link => ("link", self.cursor),
            _ => {
                self.flush();
                self.cells -= usize::from(block == TagEnd::TableCell);
                return;
            }
        };
        let raw = from.min(range.end)..range.end;
        self.add((Piece::Close(raw), Some((name.to_owned(), false))), range.end);
    }

    /// Ends a segment.
    fn flush(&mut self) {
        let mut tags = std::mem::take(&mut self.pieces);
        for (piece, _) in &mut tags {
            if let Piece::Text(text, _) = piece {
                // References to characters are read; tabs and the like are blanks.
                *text = collapsed(&text.replace('&', "&amp;"));
            }
        }
        let mut pieces = paired(tags);
        let is_blank =
            |piece: &Piece| matches!(piece, Piece::Text(text, _) if text.trim().is_empty());
        while pieces.last().is_some_and(is_blank) {
            pieces.pop();
        }
        let is_text = |piece: &Piece| matches!(piece, Piece::Text(text, _) if has_letters(text));
        if pieces.iter().any(is_text) {
            let syntax = Syntax::Markdown { table: self.cells > 0 };
            self.segments.extend(Segment::in_place(pieces, syntax));
        }
    }
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
