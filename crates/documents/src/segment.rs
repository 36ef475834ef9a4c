//! Segments: texts of a document that are translated together, such as a paragraph. Also divides
//! segments into lines, which are sentences.

use std::ops::Range;

use crate::element::Element;
use crate::line::Line;
use crate::marks::{flattened, take_marks};
use crate::placeholders::placeholders;
use crate::sentences::sentences;
use crate::syntax::Syntax;
use crate::words::has_letters;

/// Inline part of a segment. Ranges are bytes of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Piece {
    /// Text to translate, with its bytes.
    Text(String, Range<usize>),
    /// Tag that opens an element.
    Open(Range<usize>),
    /// Tag that closes an element. Elements are properly nested.
    Close(Range<usize>),
    /// Closing tag that is written as this text if the segment has changed.
    CloseAs(Range<usize>, String),
    /// Tag that opens an element that goes on beyond the segment, as `<b>one<br>` begins one. All
    /// that follows in the segment is inside the element.
    Begin(Range<usize>),
    /// Tag that closes an element that began before the segment. All that precedes in the segment
    /// is inside the element.
    End(Range<usize>),
    /// Markup or code without text to translate, including all its content.
    Alone(Range<usize>),
    /// Markup like [`Piece::Alone`], such as a line break, that also ends a sentence.
    Break(Range<usize>),
}

/// Layout of the text of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The text stays as it is, without added line breaks.
    Free,
    /// Lines of at most this number of characters.
    Wrapped(usize),
    /// This number of lines of about equal length.
    Lines(usize),
    /// Strings in quotes, as in PO files.
    Quoted,
}

/// Text of a document that is translated together, with its markup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Byte range of the document that is replaced.
    pub(crate) edit: Range<usize>,
    /// Markup to write before and after the new text.
    pub(crate) around: [String; 2],
    /// Markup that must be written wherever a tag interrupts the text. The first string ends the
    /// text before the tag, and the second string begins it again after the tag. `None` if a tag
    /// may be directly within the text.
    pub(crate) between: Option<[String; 2]>,
    /// True if the text stays in the document, and the translation is written to another place,
    /// such as the target of an XLIFF unit.
    pub(crate) is_copy: bool,
    /// Text that the ranges of the pieces refer to; `None`: the document. Its markup is escaped
    /// when it is written.
    pub(crate) own_text: Option<String>,
    pub(crate) pieces: Vec<Piece>,
    pub(crate) syntax: Syntax,
    pub(crate) layout: Layout,
}

impl Segment {
    /// Makes a segment whose translation replaces its own text; `None` if there are no pieces.
    pub(crate) fn in_place(pieces: Vec<Piece>, syntax: Syntax) -> Option<Self> {
        let range = |piece: &Piece| match piece {
            Piece::Text(_, range)
            | Piece::Open(range)
            | Piece::Close(range)
            | Piece::CloseAs(range, _)
            | Piece::Begin(range)
            | Piece::End(range)
            | Piece::Alone(range)
            | Piece::Break(range) => range.clone(),
        };
        let edit = range(pieces.first()?).start..range(pieces.last()?).end;
        let around = Default::default();
        Some(Self {
            edit,
            around,
            between: None,
            is_copy: false,
            own_text: None,
            pieces,
            syntax,
            layout: Layout::Free,
        })
    }
}

/// Adds the attribute with which text elements of Word (`<w:t>`) keep blanks at their ends.
pub(crate) fn spaced(raw: &str) -> String {
    raw.replace("<w:t>", "<w:t xml:space=\"preserve\">")
}

/// Part of a segment after its division into lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Content that is not translated, in the syntax of the document.
    Kept(String),
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
            parts.push(Part::Kept(syntax.escape(&text[*at..place]) + blank + &mark.raw));
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
