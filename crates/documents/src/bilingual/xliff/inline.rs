//! Reads the content of sources and targets: text, elements and inline codes.

use std::ops::Range;

use crate::Result;
use crate::segment::Piece;
use crate::xml::{Attributes, Spanned, Spans, Token};

/// Kind of an inline code. A code is a part of a text that is kept with all its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Code {
    Markup,
    Break,
    /// Text that must not be translated.
    Protected,
}

/// Code that is open.
#[derive(Debug, Clone, PartialEq, Eq)]
struct OpenCode {
    /// Number of open elements around the code.
    depth: usize,
    /// First byte of the code.
    start: usize,
    code: Code,
    role: Role,
}

/// Role of a code in a pair of codes, which stand for an opening and a closing tag. Both have the
/// same identifier.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Role {
    Begin(String),
    End(String),
    Alone,
}

impl Role {
    /// Role of the element `name`: `bpt`, `ept`, `bx` and `ex` of version 1.2, or `sc` and `ec` of
    /// version 2.
    fn new(name: &str, attributes: &Attributes) -> Self {
        let of = |names: [&str; 2]| names.into_iter().find_map(|name| attributes.get(name));
        let identifier = match name {
            "bpt" | "ept" | "bx" | "ex" => of(["rid", "id"]),
            "sc" if attributes.get("isolated") != Some("yes") => attributes.get("id"),
            "ec" if attributes.get("isolated") != Some("yes") => attributes.get("startRef"),
            _ => None,
        };
        match (identifier, name) {
            (Some(identifier), "bpt" | "bx" | "sc") => Self::Begin(identifier.to_owned()),
            (Some(identifier), _) => Self::End(identifier.to_owned()),
            (None, _) => Self::Alone,
        }
    }
}

/// Reader of the pieces within a source or target.
#[derive(Default)]
pub(super) struct Inline {
    pub(super) parts: Vec<Piece>,
    pub(super) text: String,
    /// Number of open elements.
    depth: usize,
    /// Code that is open, if there is one.
    code: Option<OpenCode>,
    /// Elements and pairs of codes that are open: the index of the first piece, and the identifier
    /// of a pair of codes.
    open: Vec<(usize, Option<String>)>,
}

impl Inline {
    /// Reads up to the closing tag; returns the bytes of this tag, or `None` if the document ends
    /// before it.
    pub(super) fn read(&mut self, spans: &mut Spans<'_>) -> Result<Option<Range<usize>>> {
        loop {
            let Spanned { token, range } = spans.next()?;
            match token {
                Token::Open { name, attributes, is_empty: true } if self.code.is_none() => {
                    let role = Role::new(&name, &attributes);
                    match character(&name, &attributes) {
                        Some(character) => self.add_text(character, range),
                        None if is_break(&attributes) => self.add_code(Code::Break, role, range),
                        None => self.add_code(Code::Markup, role, range),
                    }
                }
                Token::Open { name, attributes, is_empty: false } => {
                    self.open(&name, &attributes, range);
                }
                Token::Close(_) if self.depth == 0 => {
                    // The pairs go on beyond the segment.
                    for (piece, _) in self.open.drain(..) {
                        if let Piece::Open(range) = &self.parts[piece] {
                            self.parts[piece] = Piece::Begin(range.clone());
                        }
                    }
                    return Ok(Some(range));
                }
                Token::Close(_) => self.close(range),
                Token::Text(text) if self.code.is_none() => self.add_text(text, range),
                Token::Text(text)
                    if self.code.as_ref().is_some_and(|open| open.code == Code::Protected) =>
                {
                    self.text.push_str(&text);
                }
                Token::Other if self.code.is_none() => self.parts.push(Piece::Alone(range)),
                Token::Open { .. } | Token::Text(_) | Token::Other => {}
                Token::End => return Ok(None),
            }
        }
    }

    fn add_text(&mut self, text: String, range: Range<usize>) {
        self.text.push_str(&text);
        self.parts.push(Piece::Text(text, range));
    }

    fn add_code(&mut self, code: Code, role: Role, range: Range<usize>) {
        match (code, role) {
            (Code::Break, _) => {
                self.text.push(' ');
                self.parts.push(Piece::Break(range));
            }
            (_, Role::Begin(identifier)) => {
                self.open.push((self.parts.len(), Some(identifier)));
                self.parts.push(Piece::Open(range));
            }
            (_, Role::End(identifier)) => self.end_code(&identifier, range),
            (_, Role::Alone) => self.parts.push(Piece::Alone(range)),
        }
    }

    /// Adds the second code of a pair. Codes that are not nested with other codes and elements
    /// stand alone.
    fn end_code(&mut self, identifier: &str, range: Range<usize>) {
        let codes = self.open.iter().rev().take_while(|(_, own)| own.is_some()).count();
        let first = self.open.len() - codes;
        let is = |(_, own): &(usize, Option<String>)| own.as_deref() == Some(identifier);
        match self.open[first..].iter().rposition(is) {
            Some(place) => {
                self.open.drain(first + place + 1..).for_each(|(piece, _)| {
                    stand_alone(&mut self.parts[piece]);
                });
                self.open.pop();
                self.parts.push(Piece::Close(range));
            }
            None if self.open.is_empty() => self.parts.push(Piece::End(range)),
            None => {
                // The pair crosses an element.
                if let Some(place) = self.open.iter().rposition(is) {
                    let (piece, _) = self.open.remove(place);
                    stand_alone(&mut self.parts[piece]);
                }
                self.parts.push(Piece::Alone(range));
            }
        }
    }

    /// Ends the pairs of codes that are open in the innermost open element. They cross the element,
    /// so they stand alone.
    fn end_codes(&mut self) {
        while let Some((piece, _)) = self.open.pop_if(|(_, code)| code.is_some()) {
            stand_alone(&mut self.parts[piece]);
        }
    }

    fn open(&mut self, name: &str, attributes: &Attributes, tag: Range<usize>) {
        if self.code.is_none() {
            let code = match name {
                "bpt" | "ept" | "it" | "ph" | "sub" | "ut" if is_break(attributes) => {
                    Some(Code::Break)
                }
                "bpt" | "ept" | "it" | "ph" | "sub" | "ut" | "bx" | "ex" | "sc" | "ec" | "x" => {
                    Some(Code::Markup)
                }
                _ => is_protected(name, attributes).then_some(Code::Protected),
            };
            if let Some(code) = code {
                let role = Role::new(name, attributes);
                self.code = Some(OpenCode { depth: self.depth, start: tag.start, code, role });
            } else {
                self.open.push((self.parts.len(), None));
                self.parts.push(Piece::Open(tag));
            }
        }
        self.depth += 1;
    }

    fn close(&mut self, tag: Range<usize>) {
        self.depth -= 1;
        match self.code.take_if(|open| open.depth == self.depth) {
            Some(OpenCode { start, code, role, .. }) => self.add_code(code, role, start..tag.end),
            None if self.code.is_some() => {}
            None => {
                self.end_codes();
                self.open.pop();
                self.parts.push(Piece::Close(tag));
            }
        }
    }
}

/// Makes a piece that opens an element a piece that stands alone.
fn stand_alone(piece: &mut Piece) {
    if let Piece::Open(range) = piece {
        *piece = Piece::Alone(range.clone());
    }
}

/// Whether the attributes of a code say that it is a line break: by its type, or by the tag that it
/// stands for.
fn is_break(attributes: &Attributes) -> bool {
    let is = |name: &str, values: &[&str]| {
        attributes.get(name).is_some_and(|value| values.contains(&value.to_lowercase().as_str()))
    };
    let is_tag = |name: &str| {
        let value = attributes.get(name).unwrap_or_default().trim().to_lowercase();
        value.strip_prefix("<br").is_some_and(|rest| rest.starts_with([' ', '/', '>']))
    };
    is("ctype", &["lb", "pb", "x-br", "x-html-br"])
        || is("subType", &["fmt:lb", "fmt:pb"])
        || is_tag("equiv-text")
        || is_tag("disp")
}

/// Whether a mark says that its text must not be translated.
fn is_protected(name: &str, attributes: &Attributes) -> bool {
    name == "mrk"
        && (attributes.get("mtype") == Some("protected")
            || attributes.get("translate") == Some("no"))
}

/// Text for an element `<cp hex="…"/>`, which stands for a character that XML cannot contain. It is
/// a blank if the character is white space, otherwise `None`.
fn character(name: &str, attributes: &Attributes) -> Option<String> {
    let code = u32::from_str_radix(attributes.get("hex")?, 16).ok()?;
    let character = char::from_u32(code).filter(|one| one.is_whitespace());
    character.filter(|_| name == "cp").map(|_| " ".to_owned())
}
