//! Markup of a segment, and its division among the sentences of the segment.

use std::ops::Range;

use crate::element::{Element, Markup, Side};
use crate::segment::{Piece, Segment, spaced};
use crate::syntax::Syntax;

/// Markup of a segment, with its place in the text.
pub(crate) struct Mark {
    pub(crate) at: usize,
    pub(crate) raw: String,
    /// Other tag of the same element.
    partner: Partner,
    pub(crate) is_open: bool,
    /// True if the source has blanks before and after the mark, of which the text has only one.
    pub(crate) has_blanks: bool,
    /// Index of the sentence that the mark belongs to; `None` if the mark is between sentences, or
    /// belongs to an element that contains whole sentences.
    pub(crate) sentence: Option<usize>,
}

impl Mark {
    /// Sides of an element that begins with this mark.
    fn sides(&self) -> [Side; 2] {
        [if self.has_blanks { Side::Blank } else { Side::Joined }; 2]
    }
}

/// Other tag of the element of a tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Partner {
    /// The mark stands alone.
    None,
    /// Mark that closes or opens the same element.
    Mark(usize),
    /// The other tag is outside of the segment.
    Outside,
}

/// Deepest nesting of elements. Tags of elements that are nested more deeply stand alone.
const DEEPEST: usize = 100;

/// Separates the text of a segment from its markup. Returns the text, the markup in the order of
/// the segment, and the places in the text where a line ends.
pub(crate) fn flattened(source: &str, segment: &Segment) -> (String, Vec<Mark>, Vec<usize>) {
    let (mut text, mut marks, mut open) = (String::new(), Vec::<Mark>::new(), Vec::new());
    let mut breaks = Vec::new();
    // Number of open elements that are nested more deeply than `DEEPEST`.
    let mut deeper = 0_usize;
    // Number of elements that began before the segment and have ended.
    let mut ended = 0;
    for piece in &segment.pieces {
        let (range, opens) = match piece {
            Piece::Text(of, _) => {
                // In a message of a program, two blanks without markup between them may be meant.
                let has_mark = marks.last().is_some_and(|mark| mark.at == text.len());
                let may_join = segment.syntax != Syntax::Po || has_mark;
                if may_join && text.ends_with(' ') && of.starts_with(' ') {
                    join_blanks(&mut text, &mut marks);
                }
                text.push_str(of);
                continue;
            }
            Piece::Open(range) | Piece::Begin(range) => (range, true),
            Piece::Close(range) | Piece::CloseAs(range, _) => (range, false),
            Piece::End(range) | Piece::Alone(range) => (range, false),
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
        let partner = match piece {
            Piece::Begin(_) if is_open => Partner::Outside,
            Piece::End(_) if ended < DEEPEST => {
                ended += 1;
                Partner::Outside
            }
            _ if closes && !is_deeper => open.pop().map_or(Partner::None, Partner::Mark),
            _ => Partner::None,
        };
        if let Partner::Mark(partner) = partner {
            let number = marks.len();
            let opening: &mut Mark = &mut marks[partner];
            opening.partner = Partner::Mark(number);
        }
        if is_open {
            open.push(marks.len());
        }
        let mut raw = match piece {
            Piece::CloseAs(_, raw) => raw.clone(),
            _ => match &segment.own_text {
                Some(text) => segment.syntax.escape(&text[range.clone()]),
                None => source[range.clone()].to_owned(),
            },
        };
        if let Some([before, behind]) = &segment.between {
            raw = spaced(&raw);
            if !closes {
                raw.insert_str(0, before);
            }
            if !opens {
                raw.push_str(behind);
            }
        }
        let at = text.len();
        marks.push(Mark { at, raw, partner, is_open, has_blanks: false, sentence: None });
    }
    (text, marks, breaks)
}

/// Removes a blank from the end of `text`, because another blank will follow. If there is markup
/// without text between the two blanks, the blank is noted in this markup.
fn join_blanks(text: &mut String, marks: &mut [Mark]) {
    let end = text.len();
    text.pop();
    let first = marks.partition_point(|mark| mark.at < end);
    let between = &mut marks[first..];
    // An opening tag has a partner if its element has ended before the second blank.
    let is_whole = |mark: &&mut Mark| match mark.partner {
        Partner::None => !mark.is_open,
        Partner::Mark(_) => mark.is_open,
        Partner::Outside => false,
    };
    if let Some(mark) = between.first_mut().filter(is_whole) {
        mark.has_blanks = true;
    }
    between.iter_mut().for_each(|mark| mark.at = text.len());
}

/// Finds the marks that belong to the sentence with the index `number`, notes this index in them,
/// and returns them as the elements of the sentence. The ranges of the elements are counted from
/// the start of the sentence.
pub(crate) fn take_marks(
    marks: &mut [Mark],
    number: usize,
    sentence: &Range<usize>,
) -> Vec<Element> {
    // Marks are sorted by their place.
    let first = marks.partition_point(|mark| mark.at < sentence.start);
    let end = marks.partition_point(|mark| mark.at <= sentence.end);
    let has_partner_inside = |mark: &Mark| match mark.partner {
        Partner::Mark(partner) => {
            sentence.start < marks[partner].at && marks[partner].at < sentence.end
        }
        Partner::None | Partner::Outside => false,
    };
    // At the beginning of the sentence, the first opening tag whose element ends in the sentence
    // belongs to it, and so does everything after this tag. The end is treated likewise.
    let first_open = (first..end)
        .take_while(|&mark| marks[mark].at == sentence.start)
        .find(|&mark| marks[mark].is_open && has_partner_inside(&marks[mark]));
    let last_close = (first..end)
        .rev()
        .take_while(|&mark| marks[mark].at == sentence.end)
        .find(|&mark| !marks[mark].is_open && has_partner_inside(&marks[mark]));
    let chosen = (first..end).filter(|&mark| match marks[mark].at {
        at if at == sentence.start => first_open.is_some_and(|open| open <= mark),
        at if at == sentence.end => last_close.is_some_and(|close| mark <= close),
        _ => true,
    });
    let chosen: Vec<usize> = chosen.collect();
    let elements = tree(marks, &chosen, sentence);
    chosen.into_iter().for_each(|mark| marks[mark].sentence = Some(number));
    elements
}

/// Makes the tree of the marks `chosen`, which belong to a sentence.
fn tree(marks: &[Mark], chosen: &[usize], sentence: &Range<usize>) -> Vec<Element> {
    let is_chosen = |partner: Partner| match partner {
        Partner::Mark(mark) => chosen.binary_search(&mark).is_ok(),
        Partner::None | Partner::Outside => false,
    };
    // Tags whose elements are open, each with the elements before it on its level.
    let mut open: Vec<(usize, Vec<Element>)> = Vec::new();
    let mut level: Vec<Element> = Vec::new();
    for &number in chosen {
        let mark = &marks[number];
        let (at, raw) = (mark.at - sentence.start, mark.raw.clone());
        match mark.partner {
            Partner::Mark(_) | Partner::Outside if mark.is_open => {
                open.push((number, std::mem::take(&mut level)));
            }
            Partner::Mark(partner) if open.last().is_some_and(|(last, _)| *last == partner) => {
                let Some((_, before)) = open.pop() else { continue };
                let inner = std::mem::replace(&mut level, before);
                let start = marks[partner].at - sentence.start;
                let markup = Markup::Tags(marks[partner].raw.clone(), raw);
                let sides = marks[partner].sides();
                level.push(Element { inner, sides, ..Element::new(start..at, markup) });
            }
            // The element began before this sentence, and so it contains everything so far.
            Partner::Mark(_) | Partner::Outside if open.is_empty() && !is_chosen(mark.partner) => {
                let inner = std::mem::take(&mut level);
                level.push(Element { inner, ..Element::new(0..at, Markup::Close(raw)) });
            }
            _ => {
                let element = Element::new(at..at, Markup::Alone(raw));
                level.push(Element { sides: mark.sides(), ..element });
            }
        }
    }
    while let Some((number, before)) = open.pop() {
        let inner = std::mem::replace(&mut level, before);
        let range = marks[number].at - sentence.start..sentence.len();
        let markup = Markup::Open(marks[number].raw.clone());
        level.push(Element { inner, ..Element::new(range, markup) });
    }
    level
}
