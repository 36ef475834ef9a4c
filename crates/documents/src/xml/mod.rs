//! XML as a sequence of tags and texts: streamed for files of any size, or with byte ranges for
//! texts in memory.
//!
//! References to entities that a document declares are errors, so that no entity can expand to a
//! large text. External entities are never read. Elements can be nested at most [`DEEPEST`] deep.

mod input;
mod spans;
mod token;

use std::io::BufRead;

use quick_xml::Reader;
use quick_xml::errors::Error as XmlError;

pub(crate) use spans::{Spanned, Spans};
pub(crate) use token::{Attributes, Token};

use crate::{Error, Result};
use input::Input;

/// Returns the text of an XML document that is in UTF-8 or UTF-16.
///
/// # Errors
///
/// If the document has another encoding, or is not valid in its encoding.
pub fn utf8_of(bytes: &[u8]) -> Result<String> {
    let mut input = Input::new(bytes)?;
    let mut utf8 = Vec::new();
    loop {
        input.begin();
        let filled = input.fill_buf()?;
        if filled.is_empty() {
            break;
        }
        utf8.extend_from_slice(filled);
        let count = filled.len();
        input.consume(count);
    }
    String::from_utf8(utf8).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let lines = valid.iter().filter(|&&byte| byte == b'\n').count() as u64;
        let message = "not valid UTF-8; convert the file, for example with iconv";
        Error::line(lines + 1, message)
    })
}

/// Largest depth of nested elements.
const DEEPEST: usize = 256;

/// Nesting of elements at a place in a document. `has_root` is true after the first tag.
#[derive(Debug, Default)]
pub(crate) struct Nesting {
    depth: usize,
    has_root: bool,
}

impl Nesting {
    /// Updates the nesting by a token.
    ///
    /// # Errors
    ///
    /// If the token is not allowed here. The error says why.
    fn take(&mut self, token: &Token) -> Result<(), String> {
        match token {
            Token::Open { is_empty, .. } => {
                if self.has_root && self.depth == 0 {
                    return Err("a second element at the top; XML has one".to_owned());
                }
                self.has_root = true;
                self.depth += usize::from(!is_empty);
                if self.depth > DEEPEST {
                    return Err(format!("elements are nested more than {DEEPEST} deep"));
                }
            }
            Token::Close(_) => self.depth = self.depth.saturating_sub(1),
            Token::Text(text) if self.depth == 0 && !text.trim().is_empty() => {
                return Err("text outside of all elements: is this XML?".to_owned());
            }
            Token::End if self.depth > 0 => {
                return Err("the file ends before its elements do; is it whole?".to_owned());
            }
            Token::End if !self.has_root => return Err("no element: is this XML?".to_owned()),
            Token::Text(_) | Token::Other | Token::End => {}
        }
        Ok(())
    }
}

/// Reader of a stream of XML.
pub(crate) struct Xml<R> {
    reader: Reader<Input<R>>,
    buffer: Vec<u8>,
    nesting: Nesting,
}

impl<R: BufRead> Xml<R> {
    /// Makes a reader of `stream`, which is in UTF-8 or UTF-16.
    ///
    /// # Errors
    ///
    /// If the stream cannot be read, or has another encoding.
    pub(crate) fn new(stream: R) -> Result<Self> {
        let reader = Reader::from_reader(Input::new(stream)?);
        Ok(Self { reader, buffer: Vec::new(), nesting: Nesting::default() })
    }

    /// Number of the current line, counted from 1.
    pub(crate) fn line(&self) -> u64 {
        self.reader.get_ref().line()
    }

    /// Reads the next token.
    ///
    /// # Errors
    ///
    /// If the document is not well-formed; the error has the line.
    pub(crate) fn next(&mut self) -> Result<Token> {
        self.buffer.clear();
        self.reader.get_mut().begin();
        let token = match self.reader.read_event_into(&mut self.buffer) {
            Ok(event) => Token::new(event),
            Err(XmlError::Io(error)) if error.kind() != std::io::ErrorKind::InvalidData => {
                return Err(Error::Io(std::io::Error::new(error.kind(), error.to_string())));
            }
            Err(error) => Err(format!("not well-formed XML: {error}")),
        };
        let token = token.and_then(|token| self.nesting.take(&token).map(|()| token));
        token.map_err(|message| Error::line(self.line(), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<String> {
        let mut xml = Xml::new(bytes)?;
        let mut text = String::new();
        loop {
            match xml.next()? {
                Token::Open { name, .. } => text.push_str(&format!("<{name}>")),
                Token::Close(name) => text.push_str(&format!("</{name}>")),
                Token::Text(of) => text.push_str(&of),
                Token::Other => {}
                Token::End => return Ok(text),
            }
        }
    }

    fn utf16(text: &str, little: bool) -> Vec<u8> {
        let units = text.encode_utf16();
        let bytes = |unit: u16| if little { unit.to_le_bytes() } else { unit.to_be_bytes() };
        units.flat_map(bytes).collect()
    }

    #[test]
    fn unicode_of_either_width_is_read() {
        let text = "<?xml version=\"1.0\"?>\n<a x='1'>ü&amp;\u{1f642}&#228;<![CDATA[<b>]]></a>\n";
        let expected = "\n<a>ü&\u{1f642}ä<b></a>\n";
        assert_eq!(read(text.as_bytes()).unwrap().trim(), expected.trim());
        for little in [true, false] {
            let marked = format!("\u{feff}{text}");
            assert_eq!(read(&utf16(&marked, little)).unwrap().trim(), expected.trim());
            assert_eq!(read(&utf16(text, little)).unwrap().trim(), expected.trim());
        }
        // A character whose two halves are in different chunks.
        let long = format!("<a>{}\u{1f642}</a>", "x".repeat((1 << 15) - 4));
        assert_eq!(read(&utf16(&long, true)).unwrap(), long);
    }

    #[test]
    fn faults_have_their_line() {
        for (text, said) in [
            ("<a>\n<b>\n</a>", "line 3: not well-formed"),
            ("<a>\n", "line 2: the file ends before"),
            ("", "line 1: no element"),
            ("words", "line 1: text outside"),
            ("<a/>\n<b/>", "line 2: a second element"),
            ("<a>\n&laugh;</a>", "line 2: the entity &laugh;"),
            ("<?xml version='1.0' encoding='ISO-8859-1'?><a/>", "line 1: is ISO-8859-1"),
            ("<a x='1' x='2'/>", "line 1: not well-formed"),
        ] {
            let error = read(text.as_bytes()).expect_err(text).to_string();
            assert!(error.starts_with(said), "{text}: {error}");
        }
        let deep = "<a>".repeat(300);
        assert!(read(deep.as_bytes()).unwrap_err().to_string().contains("more than 256 deep"));
        assert!(read(b"\xff\xfe<").unwrap_err().to_string().contains("UTF-16"));
    }

    #[test]
    fn declared_entities_do_not_grow() {
        let laughs = "<!DOCTYPE a [<!ENTITY l 'ha'><!ENTITY m '&l;&l;&l;'>]>\n<a>&m;</a>";
        let error = read(laughs.as_bytes()).unwrap_err().to_string();
        assert!(error.starts_with("line 2: the entity &m;"), "{error}");
    }
}
