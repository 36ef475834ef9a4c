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
    let (mut segments, mut pieces): (_, Tags) = (Vec::new(), Vec::new());
    // End of the last inline part; depth of what is kept whole; depth of cells.
    let (mut cursor, mut kept, mut cells) = (0, 0_usize, 0_usize);
    for (event, range) in Parser::new_ext(text, options).into_offset_iter() {
        if kept > 0 {
            match event {
                Event::Start(_) => kept += 1,
                Event::End(_) => kept -= 1,
                _ => {}
            }
            continue;
        }
        let markers = |count: usize| range.start..(range.start + count).min(range.end);
        match event {
            Event::Start(Block::Emphasis) => {
                cursor = open(&mut pieces, markers(1), "emphasis");
            }
            Event::Start(Block::Strong) => cursor = open(&mut pieces, markers(2), "strong"),
            Event::Start(Block::Strikethrough) => {
                let count = if text[range.clone()].starts_with("~~") { 2 } else { 1 };
                cursor = open(&mut pieces, markers(count), "strike");
            }
            Event::Start(Block::Link { link_type, .. }) => match link_type {
                LinkType::Autolink | LinkType::Email => {
                    kept = 1;
                    cursor = range.end;
                    pieces.push((Piece::Alone(range), None));
                }
                _ => cursor = open(&mut pieces, markers(1), "link"),
            },
            Event::Start(Block::Image { .. }) => {
                kept = 1;
                cursor = range.end;
                pieces.push((Piece::Alone(range), None));
            }
            Event::End(
                end @ (TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link),
            ) => {
                let (name, from) = match end {
                    TagEnd::Emphasis => ("emphasis", range.end - 1),
                    TagEnd::Strong => ("strong", range.end - 2),
                    TagEnd::Strikethrough => {
                        let count = if text[range.clone()].ends_with("~~") { 2 } else { 1 };
                        ("strike", range.end - count)
                    }
                    // `](address "title")`, or all that is behind the text.
                    _ => ("link", cursor),
                };
                let raw = from.min(range.end)..range.end;
                pieces.push((Piece::Close(raw), Some((name.to_owned(), false))));
                cursor = range.end;
            }
            Event::Text(of) => {
                cursor = range.end;
                pieces.push((Piece::Text(of.into_string(), range), None));
            }
            Event::SoftBreak => {
                cursor = range.end;
                pieces.push((Piece::Text(" ".to_owned(), range), None));
            }
            Event::InlineHtml(_) => {
                cursor = range.end;
                pieces.push(inline_html(text, range));
            }
            Event::Code(_)
            | Event::FootnoteReference(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_) => {
                cursor = range.end;
                pieces.push((Piece::Alone(range), None));
            }
            Event::Start(block) => {
                flush(&mut pieces, &mut segments, cells > 0);
                match block {
                    Block::CodeBlock(_) | Block::HtmlBlock | Block::MetadataBlock(_) => kept = 1,
                    Block::TableCell => cells += 1,
                    _ => {}
                }
            }
            Event::End(end) => {
                flush(&mut pieces, &mut segments, cells > 0);
                cells -= usize::from(end == TagEnd::TableCell);
            }
            // A line break divides what is said.
            Event::HardBreak | Event::Rule | Event::TaskListMarker(_) | Event::Html(_) => {
                flush(&mut pieces, &mut segments, cells > 0);
            }
        }
    }
    segments
}

/// Adds an opening mark; gives its end.
fn open(pieces: &mut Tags, range: Range<usize>, name: &str) -> usize {
    let end = range.end;
    pieces.push((Piece::Open(range), Some((name.to_owned(), true))));
    end
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

/// Ends a segment.
fn flush(tags: &mut Tags, segments: &mut Vec<Segment>, table: bool) {
    let mut tags = std::mem::take(tags);
    for (piece, _) in &mut tags {
        if let Piece::Text(text, _) = piece {
            // References to characters are read; tabs and the like are blanks.
            *text = collapsed(&text.replace('&', "&amp;"));
        }
    }
    let mut pieces = paired(tags);
    let is_blank = |piece: &Piece| matches!(piece, Piece::Text(text, _) if text.trim().is_empty());
    while pieces.last().is_some_and(is_blank) {
        pieces.pop();
    }
    let has_text =
        pieces.iter().any(|piece| matches!(piece, Piece::Text(text, _) if has_letters(text)));
    if has_text {
        segments.extend(Segment::in_place(pieces, Syntax::Markdown { table }));
    }
}
