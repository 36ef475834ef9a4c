//! Division of segments into lines, which are sentences.

use std::ops::Range;

use crate::element::Element;
use crate::line::Line;
use crate::marks::{flattened, take_marks};
use crate::placeholders::placeholders;
use crate::segment::Segment;
use crate::sentences::sentences;
use crate::words::has_letters;

/// Part of a segment after its division into lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Content that is not translated, in the syntax of the document.
    Kept(String),
    /// Markup that belongs to no line, or to several; true if it opens an element.
    Mark(String, bool),
    /// Place at which the translation of the line with this index is written.
    Line(usize),
}

/// True if a text has a letter outside of its placeholders and addresses.
fn has_words(text: &str) -> bool {
    let mut at = 0;
    placeholders(text).into_iter().chain(std::iter::once(text.len()..text.len())).any(|range| {
        let before = &text[at..range.start];
        at = range.end;
        has_letters(before)
    })
}

/// Joins sentences that were divided within a placeholder. (A placeholder can contain full stops,
/// or even sentences.)
fn undivided(sentences: Vec<Range<usize>>, text: &str) -> Vec<Range<usize>> {
    let mut placeholders = placeholders(text).into_iter().peekable();
    let mut joined: Vec<Range<usize>> = Vec::with_capacity(sentences.len());
    for sentence in sentences {
        match joined.last_mut() {
            Some(last) => {
                while placeholders.next_if(|range| range.end <= last.end).is_some() {}
                match placeholders.peek() {
                    Some(range) if range.start < last.end => last.end = sentence.end,
                    _ => joined.push(sentence),
                }
            }
            None => joined.push(sentence),
        }
    }
    joined
}

/// Divides a segment into lines (sentences) and the content between them. The lines are appended to
/// `lines`. In the result, each line is represented by its index in `lines`.
pub(crate) fn divide(
    source: &str,
    segment: &Segment,
    language: &str,
    lines: &mut Vec<Line>,
) -> Vec<Part> {
    let syntax = segment.syntax;
    let (text, mut marks, breaks) = flattened(source, segment);
    let mut all = Vec::new();
    let mut start = 0;
    for end in breaks.into_iter().chain([text.len()]) {
        let of_line = sentences(&text[start..end], language).into_iter();
        all.extend(of_line.map(|range| start + range.start..start + range.end));
        start = end;
    }
    let ranges: Vec<Range<usize>> =
        undivided(all, &text).into_iter().filter(|range| has_words(&text[range.clone()])).collect();
    let elements: Vec<Vec<Element>> =
        (0..).zip(&ranges).map(|(number, range)| take_marks(&mut marks, number, range)).collect();
    let mut kept = marks.into_iter().filter(|mark| mark.sentence.is_none()).peekable();
    let mut parts = Vec::new();
    let mut at = 0;
    let mut keep = |until: usize, is_end: bool, at: &mut usize, parts: &mut Vec<Part>| {
        while let Some(mark) = kept.next_if(|mark| mark.at <= until || is_end) {
            let place = mark.at.max(*at);
            let blank = if mark.has_blanks { " " } else { "" };
            parts.push(Part::Kept(syntax.escape(&text[*at..place]) + blank));
            parts.push(Part::Mark(mark.raw, mark.is_open));
            *at = place;
        }
        parts.push(Part::Kept(syntax.escape(&text[*at..until])));
        *at = until;
    };
    for (range, elements) in ranges.iter().zip(elements) {
        keep(range.start, false, &mut at, &mut parts);
        parts.push(Part::Line(lines.len()));
        lines.push(Line::new(text[range.clone()].to_owned(), elements, syntax));
        at = range.end;
    }
    keep(text.len(), true, &mut at, &mut parts);
    parts
}
