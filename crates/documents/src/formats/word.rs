//! Text of word processors: paragraphs of Office Open XML (`w:p`) by their runs (`w:r`).
//!
//! Text can only stand within a run, so the run with most of a paragraph's text is its ground: each
//! run with another formatting is an element that ends the ground's run and begins it again behind
//! itself. Runs with anything but text, such as pictures, tabs and fields, divide a paragraph.

use std::ops::Range;

use crate::Result;
use crate::segment::{Piece, Segment, spaced};
use crate::syntax::Syntax;
use crate::words::has_letters;
use crate::xml::{Spanned, Spans, Token};

/// Character between the parts of a document, which XML cannot have.
pub(crate) const BETWEEN: char = '\0';

/// Run of text, or what stands between two.
#[derive(Debug, Clone)]
struct Run {
    /// Bytes before the text, and behind it.
    open: Range<usize>,
    close: Range<usize>,
    text: Vec<(String, Range<usize>)>,
    /// Its formatting, as it is written.
    formatting: String,
    is_link: bool,
}

#[derive(Debug, Clone)]
enum Item {
    Run(Run),
    Other(Range<usize>),
}

/// Segments of the parts of a document.
pub(super) fn segments(text: &str) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut at = 0;
    for part in text.split(BETWEEN) {
        of_part(text, at..at + part.len(), &mut segments)?;
        at += part.len() + BETWEEN.len_utf8();
    }
    Ok(segments)
}

fn of_part(whole: &str, part: Range<usize>, segments: &mut Vec<Segment>) -> Result<()> {
    let text = &whole[part.clone()];
    let moved = |range: &Range<usize>| part.start + range.start..part.start + range.end;
    let is = |range: &Range<usize>, name: &str| {
        let tag = text[range.clone()].trim_start_matches(['<', '/']);
        tag.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '>', '/', '\n', '\r', '\t']))
    };
    let mut spans = Spans::new(text);
    let mut items: Vec<Item> = Vec::new();
    let mut link: Option<(usize, Range<usize>)> = None;
    loop {
        let Spanned { token, range } = spans.next()?;
        match token {
            Token::End => break,
            Token::Open { is_empty: false, .. } if is(&range, "w:r") => {
                match run(text, &mut spans, &range)? {
                    Read::Text(run) => items.push(Item::Run(Run {
                        open: moved(&run.open),
                        close: moved(&run.close),
                        text: run.text.into_iter().map(|(of, range)| (of, moved(&range))).collect(),
                        ..run
                    })),
                    Read::Mixed(texts) => {
                        link = None;
                        flush(whole, &mut items, segments);
                        for text in texts {
                            let piece = |(of, range)| Piece::Text(of, moved(&range));
                            let pieces: Vec<Piece> = text.into_iter().map(piece).collect();
                            let is_text = |piece: &Piece| matches!(piece, Piece::Text(of, _) if has_letters(of));
                            if pieces.iter().any(is_text) {
                                segments.extend(Segment::in_place(pieces, Syntax::Xml));
                            }
                        }
                    }
                }
            }
            Token::Open { is_empty: false, .. } if is(&range, "w:hyperlink") => {
                link = Some((items.len(), moved(&range)));
            }
            Token::Close(_) if is(&range, "w:hyperlink") => {
                let Some((first, opening)) = link.take() else {
                    flush(whole, &mut items, segments);
                    continue;
                };
                if let [Item::Run(run)] = &mut items[first..] {
                    run.open.start = opening.start;
                    run.close.end = part.start + range.end;
                    run.is_link = true;
                } else {
                    // Several runs of a link are a text of their own.
                    let mut own = items.split_off(first);
                    flush(whole, &mut items, segments);
                    flush(whole, &mut own, segments);
                }
            }
            Token::Open { is_empty: true, .. }
                if ["w:proofErr", "w:bookmarkStart", "w:bookmarkEnd"]
                    .iter()
                    .any(|name| is(&range, name)) =>
            {
                items.push(Item::Other(moved(&range)));
            }
            Token::Text(of) if of.trim().is_empty() => {}
            _ => {
                link = None;
                flush(whole, &mut items, segments);
            }
        }
    }
    Ok(())
}

/// Texts and their bytes.
type Texts = Vec<(String, Range<usize>)>;

/// Run that has been read.
enum Read {
    /// Nothing but one text.
    Text(Run),
    /// Several texts, with other things between them.
    Mixed(Vec<Texts>),
}

/// Run whose tag has been read.
fn run(text: &str, spans: &mut Spans<'_>, tag: &Range<usize>) -> Result<Read> {
    let (mut depth, mut formatting, mut is_simple) = (1_usize, 0..0, true);
    let (mut open, mut texts, mut close) = (None, Vec::<Texts>::new(), None);
    let mut in_text = false;
    loop {
        let Spanned { token, range } = spans.next()?;
        let is = |name: &str| {
            let raw = text[range.clone()].trim_start_matches(['<', '/']);
            raw.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '>', '/']))
        };
        match token {
            Token::Open { is_empty, .. } => {
                if depth == 1 {
                    if is("w:rPr") {
                        formatting = range.clone();
                    } else if is("w:t") && !is_empty {
                        is_simple &= open.is_none();
                        (open, in_text) = (Some(range.end), true);
                        texts.push(Vec::new());
                    } else if !is("w:lastRenderedPageBreak") {
                        is_simple = false;
                    }
                }
                depth += usize::from(!is_empty);
            }
            Token::Close(_) => {
                depth -= 1;
                match depth {
                    0 => {
                        let (Some(open), Some(close), true) = (open, close, is_simple) else {
                            return Ok(Read::Mixed(texts));
                        };
                        return Ok(Read::Text(Run {
                            open: tag.start..open,
                            close: close..range.end,
                            text: texts.concat(),
                            formatting: text[formatting].to_owned(),
                            is_link: false,
                        }));
                    }
                    1 if is("w:rPr") => formatting.end = range.end,
                    1 if is("w:t") => (close, in_text) = (Some(range.start), false),
                    _ => {}
                }
            }
            Token::Text(of) if depth == 2 && in_text => {
                texts
                    .last_mut()
                    .into_iter()
                    .for_each(|text| text.push((of.clone(), range.clone())));
            }
            Token::Other if depth == 2 => is_simple = false,
            Token::End => return Ok(Read::Mixed(texts)),
            Token::Text(_) | Token::Other => {}
        }
    }
}

/// Ends a segment.
fn flush(whole: &str, items: &mut Vec<Item>, segments: &mut Vec<Segment>) {
    let mut items = std::mem::take(items);
    while matches!(items.last(), Some(Item::Other(_))) {
        items.pop();
    }
    let first = items.iter().position(|item| matches!(item, Item::Run(_))).unwrap_or(items.len());
    let items = &items[first..];
    let length = |run: &Run| run.text.iter().map(|(of, _)| of.len()).sum::<usize>();
    let runs = || {
        items.iter().filter_map(|item| match item {
            Item::Run(run) => Some(run),
            Item::Other(_) => None,
        })
    };
    let Some(ground) = runs().max_by_key(|run| (!run.is_link, length(run))) else { return };
    if !runs().any(|run| run.text.iter().any(|(of, _)| has_letters(of))) {
        return;
    }
    let mut pieces = Vec::new();
    for item in items {
        match item {
            Item::Other(range) => pieces.push(Piece::Alone(range.clone())),
            Item::Run(run) => {
                let is_ground = std::ptr::eq(run, ground)
                    || !run.is_link && !ground.is_link && run.formatting == ground.formatting;
                let texts =
                    run.text.iter().map(|(of, range)| Piece::Text(of.clone(), range.clone()));
                if is_ground {
                    pieces.extend(texts);
                } else {
                    pieces.push(Piece::Open(run.open.clone()));
                    pieces.extend(texts);
                    pieces.push(Piece::Close(run.close.clone()));
                }
            }
        }
    }
    let start = runs().next().map_or(ground.open.start, |run| run.open.start);
    let end = runs().next_back().map_or(ground.close.end, |run| run.close.end);
    let around = [&ground.open, &ground.close].map(|range| spaced(&whole[range.clone()]));
    if let Some(segment) = Segment::in_place(pieces, Syntax::Xml) {
        let [open, close] = around.clone();
        segments.push(Segment {
            edit: start..end,
            around,
            between: Some([close, open]),
            ..segment
        });
    }
}
