//! Parts of a translated line.

use crate::syntax::Syntax;

/// Part of a translated line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinePart<'a> {
    /// Text whose characters are not escaped yet.
    Text(&'a str),
    /// Tag that opens an element; its closing tag is in the line, too.
    Open(&'a str),
    /// Tag that closes an element.
    Close(&'a str),
    /// Markup without another in the line.
    Alone(&'a str),
}

impl<'a> LinePart<'a> {
    /// Markup, with a flag for whether its counterpart is in the line, and one for whether it
    /// opens.
    pub(crate) fn mark(raw: &'a str, has_other: bool, is_open: bool) -> Self {
        match (has_other, is_open) {
            (false, _) => Self::Alone(raw),
            (true, true) => Self::Open(raw),
            (true, false) => Self::Close(raw),
        }
    }

    /// Its characters, before any are escaped.
    pub(crate) fn raw(self) -> &'a str {
        let (Self::Text(raw) | Self::Open(raw) | Self::Close(raw) | Self::Alone(raw)) = self;
        raw
    }

    /// The part in the form of the document.
    pub(crate) fn written(self, syntax: Syntax) -> String {
        match self {
            Self::Text(text) => syntax.escape(text),
            mark => mark.raw().to_owned(),
        }
    }
}
