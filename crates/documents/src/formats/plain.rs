//! Finds the texts to translate in plain text. Blank lines separate paragraphs.

use std::ops::Range;

use crate::layout::lines;
use crate::segment::{Layout, Piece, Segment};
use crate::syntax::Syntax;
use crate::words::{between_lines, has_letters, without_marks};

/// Smallest number of characters of a full line. A shorter line cannot have been broken because of
/// its length.
const FULL: usize = 40;

/// Returns the segments of a text, which are to be translated. If the lines of a paragraph were
/// broken at about the same width, they are one segment, and its translation is broken at this
/// width. Otherwise each line is a segment.
pub(super) fn segments(text: &str) -> Vec<Segment> {
    let (mut segments, mut paragraph) = (Vec::new(), Vec::new());
    for line in lines(text) {
        let content = without_marks(text, line.clone());
        let (indent, range) = (content.start - line.start, content);
        if range.is_empty() {
            finish(text, &std::mem::take(&mut paragraph), &mut segments);
        } else {
            paragraph.push((indent, range));
        }
    }
    finish(text, &paragraph, &mut segments);
    segments
}

fn finish(text: &str, lines: &[(usize, Range<usize>)], segments: &mut Vec<Segment>) {
    let width = |range: &Range<usize>| text[range.clone()].chars().count();
    let widest = lines.iter().map(|(_, range)| width(range)).max().unwrap_or(0);
    let is_full = |(_, range): &(usize, Range<usize>)| {
        width(range) >= FULL && width(range) * 4 >= widest * 3 && widest <= 120
    };
    let is_wrapped = lines.len() > 1
        && lines[1..].iter().all(|(indent, _)| *indent == 0)
        && lines[..lines.len() - 1].iter().all(is_full);
    let groups: Vec<&[(usize, Range<usize>)]> =
        if is_wrapped { vec![lines] } else { lines.chunks(1).collect() };
    for group in groups {
        let mut pieces = Vec::new();
        for (number, (_, range)) in group.iter().enumerate() {
            if number > 0 {
                let between =
                    between_lines(&text[group[number - 1].1.clone()], &text[range.clone()]);
                pieces.push(Piece::Text(between.to_owned(), range.start..range.start));
            }
            pieces.push(Piece::Text(text[range.clone()].to_owned(), range.clone()));
        }
        let layout = if group.len() > 1 { Layout::Wrapped(widest) } else { Layout::Free };
        let has_text = group.iter().any(|(_, range)| has_letters(&text[range.clone()]));
        if let (true, Some(segment)) = (has_text, Segment::in_place(pieces, Syntax::Plain)) {
            segments.push(Segment { layout, ..segment });
        }
    }
}
