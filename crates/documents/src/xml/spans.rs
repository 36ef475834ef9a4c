//! Tokens of a text in memory, with their byte ranges.

use std::ops::Range;

use quick_xml::Reader;

use super::{Nesting, Token};
use crate::error::line_at;
use crate::{Error, Result};

/// A token with its byte range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Spanned {
    /// The token.
    pub(crate) token: Token,
    /// Bytes in the text.
    pub(crate) range: Range<usize>,
}

/// Reader of the tokens of a text.
pub(crate) struct Spans<'a> {
    text: &'a str,
    reader: Reader<&'a [u8]>,
    /// Number of bytes of the text before the first byte that the reader sees.
    before: usize,
    nesting: Nesting,
}

impl<'a> Spans<'a> {
    /// Makes a reader of `text`, which may begin with a byte-order mark.
    pub(crate) fn new(text: &'a str) -> Self {
        let rest = text.strip_prefix('\u{feff}').unwrap_or(text);
        let before = text.len() - rest.len();
        Self { text, reader: Reader::from_str(rest), before, nesting: Nesting::default() }
    }

    fn at(&self) -> usize {
        self.before + usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    /// Reads the next token.
    ///
    /// # Errors
    ///
    /// If the text is not well-formed; the error has the line.
    pub(crate) fn next(&mut self) -> Result<Spanned> {
        let start = self.at();
        let token = match self.reader.read_event() {
            Ok(event) => Token::new(event),
            Err(error) => Err(format!("not well-formed XML: {error}")),
        };
        let token = token.and_then(|token| self.nesting.take(&token).map(|()| token));
        let range = start..self.at().min(self.text.len());
        match token {
            Ok(token) => Ok(Spanned { token, range }),
            Err(message) => Err(Error::line(line_at(self.text, range.start), message)),
        }
    }
}
