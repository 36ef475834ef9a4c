//! Tags of HTML in the texts of catalogs. In an XML document, they are written with `&lt;` in place
//! of `<`. Many programs exchange texts with such tags.

use std::ops::Range;

use crate::formats::html::{is_element, is_inline, is_void};
use crate::markup::{Tag, next_tag};
use crate::segment::Piece;

/// Text and tags of HTML in a text, in order. A tag that opens or closes an inline element comes
/// with the name of the element, and with true if it opens the element.
pub(super) fn tags(text: &str) -> Vec<(Piece, Option<(String, bool)>)> {
    let (mut tags, mut at) = (Vec::new(), 0);
    while at < text.len() {
        let (tag, range) = next_tag(text, at);
        at = range.end;
        let is_whole = text[range.clone()].ends_with('>');
        tags.push(match tag {
            Tag::Open { name, is_empty, .. } if is_whole && is_element(&name) => {
                match is_inline(&name) {
                    true if is_empty || is_void(&name) => (Piece::Alone(range), None),
                    true => (Piece::Open(range), Some((name, true))),
                    false => (Piece::Break(range), None),
                }
            }
            Tag::Close(name) if is_whole && is_element(&name) => match is_inline(&name) {
                true => (Piece::Close(range), Some((name, false))),
                false => (Piece::Break(range), None),
            },
            _ => (Piece::Text(text[range.clone()].to_owned(), range), None),
        });
    }
    tags
}

/// Deepest nesting of escaped tags inside an element of XML. Tags that are nested more deeply stand
/// alone.
const DEEPEST: usize = 100;

/// Returns the pieces of a unit in which each escaped tag of HTML in a text is markup, so that it
/// is kept as it is. Elements of XML keep their tree: an escaped tag without a counterpart inside
/// the same element of XML stands alone.
pub(super) fn with_escaped_tags(parts: Vec<Piece>) -> Vec<Piece> {
    let mut unit = Unit::default();
    let mut run = Vec::new();
    for part in parts {
        match part {
            Piece::Text(text, range) => run.push((text, range)),
            other => {
                unit.add_texts(&std::mem::take(&mut run));
                unit.add_markup(other);
            }
        }
    }
    unit.add_texts(&run);
    unit.end_tags(0);
    unit.pieces
}

/// Pieces of a unit so far.
#[derive(Default)]
struct Unit {
    pieces: Vec<Piece>,
    /// Open elements: the name if the tag is escaped, or `None` for an element of XML, and the
    /// index of the piece that opens the element.
    open: Vec<(Option<String>, usize)>,
}

impl Unit {
    /// Adds markup of XML.
    fn add_markup(&mut self, piece: Piece) {
        match piece {
            Piece::Open(_) | Piece::Begin(_) => self.open.push((None, self.pieces.len())),
            Piece::Close(_) | Piece::CloseAs(..) => {
                self.end_tags(self.inner());
                self.open.pop();
            }
            // Everything before this tag is inside its element.
            Piece::End(_) => self.end_tags(0),
            Piece::Text(..) | Piece::Alone(_) | Piece::Break(_) => {}
        }
        self.pieces.push(piece);
    }

    /// Adds consecutive texts. Each has its bytes in the document.
    fn add_texts(&mut self, texts: &[(String, Range<usize>)]) {
        let texts = Texts::new(texts);
        for (piece, tag) in tags(&texts.whole) {
            let range = match &piece {
                Piece::Text(_, range)
                | Piece::Open(range)
                | Piece::Close(range)
                | Piece::CloseAs(range, _)
                | Piece::Begin(range)
                | Piece::End(range)
                | Piece::Alone(range)
                | Piece::Break(range) => range.clone(),
            };
            let is_text = matches!(piece, Piece::Text(..));
            let Some(bytes) = texts.bytes(&range).filter(|_| !is_text) else {
                let bytes = texts.bytes(&range).unwrap_or_default();
                self.pieces.push(Piece::Text(texts.whole[range].to_owned(), bytes));
                continue;
            };
            match (piece, tag) {
                (_, Some((name, true))) => self.open(name, bytes),
                (_, Some((name, false))) => self.close(&name, bytes),
                (Piece::Break(_), None) => self.pieces.push(Piece::Break(bytes)),
                (_, None) => self.pieces.push(Piece::Alone(bytes)),
            }
        }
    }

    /// Index of the first open escaped tag inside the innermost open element of XML.
    fn inner(&self) -> usize {
        self.open.iter().rposition(|(name, _)| name.is_none()).map_or(0, |place| place + 1)
    }

    /// Adds an escaped tag that opens the element `name`.
    fn open(&mut self, name: String, bytes: Range<usize>) {
        if self.open.len() - self.inner() == DEEPEST {
            self.pieces.push(Piece::Alone(bytes));
            return;
        }
        self.open.push((Some(name), self.pieces.len()));
        self.pieces.push(Piece::Open(bytes));
    }

    /// Adds an escaped tag that closes the element `name`.
    fn close(&mut self, name: &str, bytes: Range<usize>) {
        let inner = self.inner();
        let is_opening = |(own, _): &(Option<String>, usize)| own.as_deref() == Some(name);
        match self.open[inner..].iter().rposition(is_opening) {
            Some(place) => {
                self.end_tags(inner + place + 1);
                self.open.pop();
                self.pieces.push(Piece::Close(bytes));
            }
            None => self.pieces.push(Piece::Alone(bytes)),
        }
    }

    /// Makes the escaped tags among the open elements from the index `first` on stand alone.
    fn end_tags(&mut self, first: usize) {
        for (_, place) in self.open.extract_if(first.., |(name, _)| name.is_some()) {
            if let Piece::Open(range) = &self.pieces[place] {
                self.pieces[place] = Piece::Alone(range.clone());
            }
        }
    }
}

/// Consecutive texts of a document.
struct Texts<'a> {
    /// All texts together.
    whole: String,
    /// Texts, with their bytes in the document.
    texts: &'a [(String, Range<usize>)],
    /// Place of the end of each text in `whole`.
    ends: Vec<usize>,
}

impl<'a> Texts<'a> {
    fn new(texts: &'a [(String, Range<usize>)]) -> Self {
        let (mut whole, mut ends) = (String::new(), Vec::with_capacity(texts.len()));
        for (text, _) in texts {
            whole.push_str(text);
            ends.push(whole.len());
        }
        Self { whole, texts, ends }
    }

    /// Bytes in the document of the bytes `part`, which is not empty, of all texts together. `None`
    /// if `part` begins or ends within a text that is written differently in the document, such as
    /// a `CDATA` section.
    fn bytes(&self, part: &Range<usize>) -> Option<Range<usize>> {
        let first = self.ends.partition_point(|&end| end <= part.start);
        let last = self.ends.partition_point(|&end| end < part.end);
        let place = |index: usize, at: usize| {
            let (text, range) = self.texts.get(index)?;
            match at - (self.ends[index] - text.len()) {
                0 => Some(range.start),
                within if within == text.len() => Some(range.end),
                within => (text.len() == range.len()).then_some(range.start + within),
            }
        };
        Some(place(first, part.start)?..place(last, part.end)?)
    }
}

#[cfg(test)]
mod tests {
    use crate::{Document, DocumentFormat, Translated};

    /// Target of a unit with the content `source` whose translation is in upper case.
    fn shouted(source: &str) -> (Vec<String>, String) {
        let unit = |target: &str| {
            format!(
                "<xliff version=\"1.2\"><file><body><trans-unit id=\"1\"><source>{source}</source>\
                 <target>{target}</target></trans-unit></body></file></xliff>"
            )
        };
        let document =
            Document::parse(unit(""), DocumentFormat::Xliff, "en").expect("well-formed XLIFF");
        let shout = |line: &crate::Line| {
            let ranges = line.text().char_indices().map(|(at, one)| at..at + one.len_utf8());
            let links = ranges.map(|range| (range.clone(), range)).collect();
            Some(Translated { text: line.text().to_uppercase(), links })
        };
        let lines = document.lines().iter().map(|line| line.text().to_owned()).collect();
        let made = document.write(&document.lines().iter().map(shout).collect::<Vec<_>>());
        let (before, behind) = made.split_once("<target>").expect("a target");
        assert!(before.contains(source), "the source stays: {made}");
        (lines, behind.split_once("</target>").expect("a target").0.to_owned())
    }

    #[test]
    fn escaped_tags_of_html_are_kept() {
        for (source, line, target) in [
            (
                "Press &lt;b class=\"x\"&gt;this&lt;/b> &amp; wait",
                "Press this & wait",
                "PRESS &lt;b class=\"x\"&gt;THIS&lt;/b> &amp; WAIT",
            ),
            // References by number.
            ("a &#60;i&#x3E;b&#60;/i&#62; c", "a b c", "A &#60;i&#x3E;B&#60;/i&#62; C"),
            // The tags enclose elements of XML, or are inside of them.
            (
                "a &lt;b&gt;b <g id=\"1\">c &lt;i&gt;d&lt;/i&gt;</g>&lt;/b&gt; e",
                "a b c d e",
                "A &lt;b&gt;B <g id=\"1\">C &lt;i&gt;D&lt;/i&gt;</g>&lt;/b&gt; E",
            ),
            // An escaped tag that crosses an element of XML stands alone.
            (
                "a &lt;b&gt;b <g id=\"1\">c&lt;/b&gt; d</g> e",
                "a b c d e",
                "A &lt;b&gt;B <g id=\"1\">C&lt;/b&gt; D</g> E",
            ),
            ("x &lt; y, &lt;name&gt; z", "x < y, <name> z", "X &lt; Y, &lt;NAME&gt; Z"),
            // A section of text that is not parsed is kept only as a whole.
            ("a <![CDATA[<br>]]> b", "a", "A <![CDATA[<br>]]> B"),
            ("a <![CDATA[<b>b</b>]]>", "a <b>b</b>", "A &lt;B&gt;B&lt;/B&gt;"),
        ] {
            let (lines, made) = shouted(source);
            assert_eq!((lines[0].as_str(), made.as_str()), (line, target), "{source}");
        }
    }

    #[test]
    fn breaks_end_sentences_and_no_number_of_tags_is_too_much() {
        let (lines, made) = shouted("one&lt;br/&gt;two");
        assert_eq!((lines.join("|").as_str(), made.as_str()), ("one|two", "ONE&lt;br/&gt;TWO"));
        const MANY: usize = 20_000;
        let source = format!(
            "one {}two{} three {}",
            "&lt;b&gt;".repeat(MANY),
            "&lt;/b&gt;".repeat(MANY),
            "&lt;/i&gt;".repeat(MANY)
        );
        let (_, made) = shouted(&source);
        for tag in ["&lt;b&gt;", "&lt;/b&gt;", "&lt;/i&gt;"] {
            assert_eq!(made.matches(tag).count(), MANY, "{tag}");
        }
    }
}
