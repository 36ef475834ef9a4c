//! Segments: texts of a document that are translated together, such as a paragraph.

use std::ops::Range;

use crate::syntax::Syntax;

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
