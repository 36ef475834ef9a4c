//! Segments: texts of a document that are translated together, such as a paragraph. Also divides
//! segments into lines, which are sentences.

use std::ops::Range;

use crate::line::{Element, Line};
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
    /// Tag that closes an element. Elements are properly nested, because a tag without a
    /// counterpart is a [`Piece::Alone`] instead.
    Close(Range<usize>),
    /// Closing tag that is written as this text if the segment has changed.
    CloseAs(Range<usize>, String),
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

/// Markup of a segment, with its place in the text.
struct Mark {
    at: usize,
    raw: String,
    /// Index of the mark that closes or opens the same element; `None` if the mark stands alone.
    partner: Option<usize>,
    is_open: bool,
    /// Index of the sentence that the mark belongs to; `None` if the mark is between sentences, or
    /// belongs to an element that contains whole sentences.
    sentence: Option<usize>,
}

/// Deepest nesting of elements. Tags of elements that are nested more deeply stand alone.
const DEEPEST: usize = 100;

/// Separates the text of a segment from its markup. Returns the text, the markup in the order of
/// the segment, and the places in the text where a line ends.
fn flattened(source: &str, segment: &Segment) -> (String, Vec<Mark>, Vec<usize>) {
    let (mut text, mut marks, mut open) = (String::new(), Vec::<Mark>::new(), Vec::new());
    let mut breaks = Vec::new();
    // Number of open elements that are nested more deeply than `DEEPEST`.
    let mut deeper = 0_usize;
    for piece in &segment.pieces {
        let (range, opens) = match piece {
            Piece::Text(of, _) => {
                if text.ends_with(' ') && of.starts_with(' ') && segment.syntax != Syntax::Po {
                    join_blanks(&mut text, &mut marks);
                }
                text.push_str(of);
                continue;
            }
            Piece::Open(range) => (range, true),
            Piece::Close(range) | Piece::CloseAs(range, _) | Piece::Alone(range) => (range, false),
            Piece::Break(range) => {
                breaks.push(text.len());
                (range, false)
            }
        };
        let closes = matches!(piece, Piece::Close(_) | Piece::CloseAs(..));
        let is_deeper = opens && open.len() == DEEPEST || closes && deeper > 0;
        match is_deeper {
            true if opens => deeper += 1,
            true => deeper -= 1,
            false => {}
        }
        let is_open = opens && !is_deeper;
        let partner = if closes && !is_deeper { open.pop() } else { None };
        if let Some(partner) = partner {
            let number = marks.len();
            let opening: &mut Mark = &mut marks[partner];
            opening.partner = Some(number);
        }
        if is_open {
            open.push(marks.len());
        }
        let mut raw = match piece {
            Piece::CloseAs(_, raw) => raw.clone(),
            _ => source[range.clone()].to_owned(),
        };
        if let Some([before, behind]) = &segment.between {
            raw = spaced(&raw);
            if !closes {
                raw.insert_str(0, before);
            }
            if !matches!(piece, Piece::Open(_)) {
                raw.push_str(behind);
            }
        }
        marks.push(Mark { at: text.len(), raw, partner, is_open, sentence: None });
    }
    (text, marks, breaks)
}

/// Removes a blank from the end of `text`, because another blank will follow. If markup that stands
/// alone is between the two blanks, the removed blank is added to the beginning of this markup.
fn join_blanks(text: &mut String, marks: &mut [Mark]) {
    let end = text.len();
    text.pop();
    let first = marks.partition_point(|mark| mark.at < end);
    let between = &mut marks[first..];
    if let Some(mark) = between.first_mut().filter(|mark| mark.partner.is_none() && !mark.is_open) {
        mark.raw.insert(0, ' ');
    }
    between.iter_mut().for_each(|mark| mark.at = text.len());
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

/// Finds the marks that belong to the sentence with the index `number`, notes this index in them,
/// and returns them as the elements of the sentence. The ranges of the elements are counted from
/// the start of the sentence.
fn take_marks(marks: &mut [Mark], number: usize, sentence: &Range<usize>) -> Vec<Element> {
    let is_inside = |mark: &Mark| sentence.start < mark.at && mark.at < sentence.end;
    let belongs = |mark: &Mark| {
        let partner = mark.partner.is_some_and(|partner| is_inside(&marks[partner]));
        let edge = if mark.is_open { sentence.start } else { sentence.end };
        is_inside(mark) || partner && mark.at == edge
    };
    // Marks are sorted by their place.
    let first = marks.partition_point(|mark| mark.at < sentence.start);
    let end = marks.partition_point(|mark| mark.at <= sentence.end);
    let chosen: Vec<usize> = (first..end).filter(|&mark| belongs(&marks[mark])).collect();
    let mut elements = Vec::new();
    for &mark in &chosen {
        let Mark { at, raw, partner, is_open, .. } = &marks[mark];
        let with_partner = partner.filter(|partner| chosen.binary_search(partner).is_ok());
        let at = at - sentence.start;
        let raw = Some(raw.clone());
        elements.push(match (with_partner, is_open) {
            (Some(close), true) => {
                let close = &marks[close];
                let range = at..close.at - sentence.start;
                Element { range, open: raw, close: Some(close.raw.clone()) }
            }
            (Some(_), false) => continue,
            (None, true) if partner.is_some() => {
                Element { range: at..sentence.len(), open: raw, close: None }
            }
            (None, false) if partner.is_some() => {
                // The element began before this sentence, and so before the elements that begin in
                // it. If several elements began before this sentence, the one that ends later began
                // earlier, so each is inserted at the front.
                elements.insert(0, Element { range: 0..at, open: None, close: raw });
                continue;
            }
            (None, _) => Element { range: at..at, open: raw, close: None },
        });
    }
    elements.sort_by_key(|element| (element.range.start, usize::MAX - element.range.end));
    chosen.into_iter().for_each(|mark| marks[mark].sentence = Some(number));
    elements
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
            parts.push(Part::Kept(syntax.escape(&text[*at..place]) + &mark.raw));
            *at = place;
        }
        parts.push(Part::Kept(syntax.escape(&text[*at..until])));
        *at = until;
    };
    for (range, elements) in ranges.iter().zip(elements) {
        keep(range.start, false, &mut at, &mut parts);
        parts.push(Part::Line(lines.len()));
        lines.push(Line { text: text[range.clone()].to_owned(), elements, syntax });
        at = range.end;
    }
    keep(text.len(), true, &mut at, &mut parts);
    parts
}
