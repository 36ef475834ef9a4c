//! Finds the texts in documents of word processors (Office Open XML, DOCX). A paragraph (`w:p`)
//! consists of runs (`w:r`).
//!
//! A run is a piece of a paragraph with one formatting, and text can only be in runs. The run with
//! most of a paragraph's text is the base run. A run with another formatting is treated as an
//! element within the base run: the base run is ended before it, and begun again after it. Marks
//! without text, such as references to notes, deletions and formulas, stay between the same words.
//! Runs with other content, such as pictures, tabs and fields, divide a paragraph.

use std::ops::Range;

use crate::Result;
use crate::segment::{Piece, Segment, spaced};
use crate::syntax::Syntax;
use crate::words::has_letters;
use crate::xml::{Spanned, Spans, Token};

/// Character that separates the parts of a document, which are the XML files in its ZIP archive.
/// XML cannot contain this character.
pub(crate) const BETWEEN: char = '\0';

/// A run that consists of text.
#[derive(Debug, Clone)]
struct Run {
    /// Byte range of the run's markup before its text.
    open: Range<usize>,
    /// Byte range of the run's markup after its text.
    close: Range<usize>,
    text: Vec<(String, Range<usize>)>,
    /// Formatting of the run, as written in the document.
    formatting: String,
    is_link: bool,
}

#[derive(Debug, Clone)]
enum Item {
    Run(Run),
    Other(Range<usize>),
}

/// Marks in a paragraph that have no text.
const MARKS: [&str; 11] = [
    "w:proofErr",
    "w:bookmarkStart",
    "w:bookmarkEnd",
    "w:commentRangeStart",
    "w:commentRangeEnd",
    "w:permStart",
    "w:permEnd",
    "w:moveFromRangeStart",
    "w:moveFromRangeEnd",
    "w:moveToRangeStart",
    "w:moveToRangeEnd",
];

/// Elements around runs: links, insertions, and recognised names.
const AROUND: [&str; 4] = ["w:hyperlink", "w:ins", "w:moveTo", "w:smartTag"];

/// Elements in a paragraph that are kept with all their content: deleted text, and formulas.
const KEPT: [&str; 3] = ["w:del", "w:moveFrom", "m:oMath"];

/// Content of runs that refer to a note or a comment.
const REFERENCES: [&str; 3] = ["w:footnoteReference", "w:endnoteReference", "w:commentReference"];

/// Returns the segments (texts that are translated together) of all parts of a document. `text` has
/// the parts with [`BETWEEN`] between them.
pub(super) fn segments(text: &str) -> Result<Vec<Segment>> {
    let mut segments = Vec::new();
    let mut start = 0;
    for part in text.split(BETWEEN) {
        let items = Vec::new();
        Reader { whole: text, part, start, items, link: None, segments: &mut segments }.read()?;
        start += part.len() + BETWEEN.len_utf8();
    }
    Ok(segments)
}

/// True if a tag has the name `name`.
fn has_name(tag: &str, name: &str) -> bool {
    let rest = tag.trim_start_matches(['<', '/']).strip_prefix(name);
    rest.is_some_and(|rest| rest.starts_with([' ', '>', '/', '\n', '\r', '\t']))
}

/// Reader of the segments of one part of a document.
struct Reader<'a> {
    /// Text of all parts.
    whole: &'a str,
    part: &'a str,
    /// Byte of `whole` at which the part begins.
    start: usize,
    /// Runs and other items of the paragraph so far.
    items: Vec<Item>,
    /// Number of items before an open element of [`AROUND`], such as a link, and the bytes of its
    /// tag.
    link: Option<(usize, Range<usize>)>,
    segments: &'a mut Vec<Segment>,
}

impl Reader<'_> {
    fn read(mut self) -> Result<()> {
        let mut spans = Spans::new(self.part);
        loop {
            let Spanned { token, range } = spans.next()?;
            let is = |name: &str| has_name(&self.part[range.clone()], name);
            match token {
                Token::End => return Ok(()),
                Token::Open { is_empty: false, .. } if is("w:r") => {
                    match run(self.part, &mut spans, &range)? {
                        Read::Text(run) => self.add(run),
                        Read::Reference(range) => self.items.push(Item::Other(self.moved(&range))),
                        Read::Mixed(texts, boxes) => {
                            self.add_mixed(texts);
                            self.add_boxes(&boxes)?;
                        }
                    }
                }
                Token::Open { is_empty, .. } if KEPT.iter().any(|name| is(name)) => {
                    let end = if is_empty { range.end } else { end_of(&mut spans)? };
                    self.items.push(Item::Other(self.moved(&(range.start..end))));
                }
                Token::Open { is_empty: false, .. } if AROUND.iter().any(|name| is(name)) => {
                    if self.link.is_some() {
                        self.divide();
                    }
                    self.link = Some((self.items.len(), self.moved(&range)));
                }
                Token::Close(_) if AROUND.iter().any(|name| is(name)) => self.end_link(&range),
                Token::Open { is_empty: true, .. } if MARKS.iter().any(|name| is(name)) => {
                    self.items.push(Item::Other(self.moved(&range)));
                }
                Token::Text(text) if text.trim().is_empty() => {}
                _ => self.divide(),
            }
        }
    }

    /// Converts bytes of the part to bytes of `whole`.
    fn moved(&self, range: &Range<usize>) -> Range<usize> {
        self.start + range.start..self.start + range.end
    }

    fn add(&mut self, run: Run) {
        self.items.push(Item::Run(Run {
            open: self.moved(&run.open),
            close: self.moved(&run.close),
            text: run.text.into_iter().map(|(text, range)| (text, self.moved(&range))).collect(),
            ..run
        }));
    }

    /// Adds the texts of a run that also has other content, each as a segment.
    fn add_mixed(&mut self, texts: Vec<Texts>) {
        self.divide();
        for text in texts.into_iter().filter(|text| text.iter().any(|(text, _)| has_letters(text)))
        {
            let pieces =
                text.into_iter().map(|(text, range)| Piece::Text(text, self.moved(&range)));
            let pieces = pieces.collect();
            self.segments.extend(Segment::in_place(pieces, Syntax::Xml));
        }
    }

    /// Adds the paragraphs of text boxes. `boxes` has the byte ranges, in the part, of their
    /// elements.
    fn add_boxes(&mut self, boxes: &[Range<usize>]) -> Result<()> {
        for range in boxes {
            let (part, start) = (&self.part[range.clone()], self.start + range.start);
            let segments = &mut *self.segments;
            Reader { whole: self.whole, part, start, items: Vec::new(), link: None, segments }
                .read()?;
        }
        Ok(())
    }

    /// Ends a link. `tag` is the byte range of its closing tag in the part.
    fn end_link(&mut self, tag: &Range<usize>) {
        let end = self.moved(tag).end;
        let Some((first, opening)) = self.link.take() else {
            self.flush();
            return;
        };
        if let [Item::Run(run)] = &mut self.items[first..] {
            run.open.start = opening.start;
            run.close.end = end;
            run.is_link = true;
        } else {
            // If a link has several runs, they form a separate text.
            self.link = Some((first, opening));
            self.divide();
        }
    }

    /// Ends a segment. If a link is open, the runs in it form a separate segment, because the tag
    /// of the link is between them and the runs before the link.
    fn divide(&mut self) {
        if let Some((first, _)) = self.link.take() {
            let inner = self.items.split_off(first);
            self.flush();
            self.items = inner;
        }
        self.flush();
    }

    /// Ends a segment: makes it from the items, if they have text.
    fn flush(&mut self) {
        let items = std::mem::take(&mut self.items);
        self.segments.extend(segment(self.whole, items));
    }
}

/// Parts of a text, each with its bytes.
type Texts = Vec<(String, Range<usize>)>;

/// A run that has been read.
enum Read {
    /// The run has a single text and nothing else.
    Text(Run),
    /// The run has no text, but a reference to a note or a comment. The range has the bytes of the
    /// whole run.
    Reference(Range<usize>),
    /// The run has several texts with other content between them, and it can have text boxes. The
    /// ranges are those of the text boxes.
    Mixed(Vec<Texts>, Vec<Range<usize>>),
}

/// Returns the end of the element whose opening tag was the last token.
fn end_of(spans: &mut Spans<'_>) -> Result<usize> {
    let mut depth = 1_usize;
    loop {
        let Spanned { token, range } = spans.next()?;
        match token {
            Token::Open { is_empty, .. } => depth += usize::from(!is_empty),
            Token::Close(_) => depth -= 1,
            Token::Text(_) | Token::Other => {}
            Token::End => return Ok(range.end),
        }
        if depth == 0 {
            return Ok(range.end);
        }
    }
}

/// Reads a run whose opening tag has the bytes `tag`.
fn run(text: &str, spans: &mut Spans<'_>, tag: &Range<usize>) -> Result<Read> {
    let (mut depth, mut formatting, mut is_simple) = (1_usize, 0..0, true);
    let (mut open, mut texts, mut close) = (None, Vec::<Texts>::new(), None);
    // The whole text, with its hyphens.
    let mut whole = Texts::new();
    let (mut in_text, mut joins, mut is_reference) = (false, false, false);
    // Byte ranges of text boxes, and depth and first byte of the text box that is open.
    let (mut boxes, mut open_box) = (Vec::new(), None);
    loop {
        let Spanned { token, range } = spans.next()?;
        let is = |name: &str| has_name(&text[range.clone()], name);
        match token {
            Token::Open { is_empty, .. } => {
                if depth == 1 {
                    if is("w:rPr") {
                        formatting = range.clone();
                    } else if is("w:t") && !is_empty {
                        is_simple &= open.is_none() || joins;
                        open = open.or(Some(range.end));
                        (in_text, joins) = (true, false);
                        texts.push(Vec::new());
                    } else if is("w:softHyphen") || is("w:noBreakHyphen") {
                        // The hyphen is within a word, which continues in the next text.
                        is_simple &= open.is_some();
                        joins = true;
                        if is("w:noBreakHyphen") {
                            whole.push(("-".to_owned(), range.clone()));
                        }
                    } else if !is("w:lastRenderedPageBreak") {
                        is_simple = false;
                        is_reference |= REFERENCES.iter().any(|name| is(name));
                    }
                } else if is("w:txbxContent") && !is_empty && open_box.is_none() {
                    open_box = Some((depth, range.start));
                }
                depth += usize::from(!is_empty);
            }
            Token::Close(_) => {
                depth -= 1;
                if let Some((_, start)) = open_box.take_if(|(of, _)| *of == depth) {
                    boxes.push(start..range.end);
                }
                match depth {
                    0 if is_reference && texts.is_empty() && boxes.is_empty() => {
                        return Ok(Read::Reference(tag.start..range.end));
                    }
                    0 => {
                        let (Some(open), Some(close), true) = (open, close, is_simple && !joins)
                        else {
                            return Ok(Read::Mixed(texts, boxes));
                        };
                        return Ok(Read::Text(Run {
                            open: tag.start..open,
                            close: close..range.end,
                            text: whole,
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
                let last = texts.last_mut().into_iter();
                last.for_each(|text| text.push((of.clone(), range.clone())));
                whole.push((of, range));
            }
            Token::Other if depth == 2 => is_simple = false,
            Token::End => return Ok(Read::Mixed(texts, boxes)),
            Token::Text(_) | Token::Other => {}
        }
    }
}

/// Makes a segment from the items of a paragraph. The base run (`ground`), and runs with the same
/// formatting that are not links, stay text. All other runs become elements. Returns `None` if the
/// items have no text.
fn segment(whole: &str, mut items: Vec<Item>) -> Option<Segment> {
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
    let ground = runs().max_by_key(|run| (!run.is_link, length(run)))?;
    if !runs().any(|run| run.text.iter().any(|(of, _)| has_letters(of))) {
        return None;
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
    let [open, close] = around.clone();
    let between = Some([close, open]);
    Some(Segment { edit: start..end, around, between, ..Segment::in_place(pieces, Syntax::Xml)? })
}
