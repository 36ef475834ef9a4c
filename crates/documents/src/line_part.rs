//! Parts of a translated line (a sentence): its text and its markup, from which the line is
//! written.

use crate::syntax::Syntax;

/// Part of a translated line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinePart<'a> {
    /// Text whose characters are not escaped yet.
    Text(&'a str),
    /// Opening tag whose closing tag is in the line, too.
    Open(&'a str),
    /// Closing tag whose opening tag is in the line, too.
    Close(&'a str),
    /// Markup without a counterpart in the line.
    Alone(&'a str),
}

impl<'a> LinePart<'a> {
    /// Makes a part from markup. `has_other` is true if the markup's counterpart (its opening or
    /// closing tag) is in the line, too; `is_open` is true if the markup opens an element.
    pub(crate) fn mark(raw: &'a str, has_other: bool, is_open: bool) -> Self {
        match (has_other, is_open) {
            (false, _) => Self::Alone(raw),
            (true, true) => Self::Open(raw),
            (true, false) => Self::Close(raw),
        }
    }

    /// Characters of the part. The characters of a text are not escaped; markup is in the syntax of
    /// the document.
    pub(crate) fn raw(self) -> &'a str {
        let (Self::Text(raw) | Self::Open(raw) | Self::Close(raw) | Self::Alone(raw)) = self;
        raw
    }

    /// Writes the part in the syntax of the document.
    pub(crate) fn written(self, syntax: Syntax) -> String {
        match self {
            Self::Text(text) => syntax.escape(text),
            mark => mark.raw().to_owned(),
        }
    }
}
