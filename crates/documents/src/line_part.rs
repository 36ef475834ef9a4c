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
    /// Opening tag whose closing tag is in another line.
    Begin(&'a str),
    /// Closing tag whose opening tag is in another line.
    End(&'a str),
    /// Markup without a counterpart.
    Alone(&'a str),
}

impl<'a> LinePart<'a> {
    /// Characters of the part. The characters of a text are not escaped; markup is in the syntax of
    /// the document.
    pub(crate) fn raw(self) -> &'a str {
        match self {
            Self::Text(raw)
            | Self::Open(raw)
            | Self::Close(raw)
            | Self::Begin(raw)
            | Self::End(raw)
            | Self::Alone(raw) => raw,
        }
    }

    /// Writes the part in the syntax of the document.
    pub(crate) fn written(self, syntax: Syntax) -> String {
        match self {
            Self::Text(text) => syntax.escape(text),
            mark => mark.raw().to_owned(),
        }
    }
}
