//! Tokens of XML: tags and texts.

use quick_xml::events::{BytesStart, Event};

/// A token of a document. Names are without their namespace prefixes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Token {
    /// Opening tag; `is_empty` is true if the tag is the whole element.
    Open { name: String, attributes: Attributes, is_empty: bool },
    /// Closing tag.
    Close(String),
    /// Text, or a part of a text, because each reference in a text is a separate token.
    Text(String),
    /// Comment, declaration or instruction.
    Other,
    /// End of the document.
    End,
}

/// Attributes of a tag.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attributes(Vec<(String, String)>);

impl Attributes {
    /// Value of the attribute `name`, with any namespace prefix or none; `None` if the tag does not
    /// have the attribute.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_str())
    }

    fn new(tag: &BytesStart<'_>) -> Result<Self, String> {
        let mut all = Vec::new();
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| format!("not well-formed XML: {error}"))?;
            let value = quick_xml::escape::unescape(&attribute.value)
                .map_err(|error| format!("not well-formed XML: {error}"))?;
            all.push((attribute.key.local_name().into_inner().to_owned(), value.into_owned()));
        }
        Ok(Self(all))
    }
}

impl Token {
    /// Makes a token from an event of the parser.
    ///
    /// # Errors
    ///
    /// If the event is not well-formed, or needs a feature that is not supported. The error says
    /// why.
    pub(super) fn new(event: Event<'_>) -> Result<Self, String> {
        let name = |name: quick_xml::name::LocalName<'_>| name.into_inner().to_owned();
        Ok(match event {
            Event::Start(tag) => Self::Open {
                name: name(tag.local_name()),
                attributes: Attributes::new(&tag)?,
                is_empty: false,
            },
            Event::Empty(tag) => Self::Open {
                name: name(tag.local_name()),
                attributes: Attributes::new(&tag)?,
                is_empty: true,
            },
            Event::End(tag) => Self::Close(name(tag.local_name())),
            Event::Text(text) => Self::Text(text.xml10_content().into_owned()),
            Event::CData(text) => Self::Text(text.xml10_content().into_owned()),
            Event::GeneralRef(reference) => {
                let character = reference
                    .resolve_char_ref()
                    .map_err(|error| format!("not well-formed XML: {error}"))?;
                match character {
                    Some(character) => Self::Text(character.to_string()),
                    None => Self::Text(predefined(&reference.into_inner())?.to_owned()),
                }
            }
            Event::Decl(declaration) => {
                let encoding = declaration.encoding();
                let encoding = encoding.transpose().map_err(|error| error.to_string())?;
                require_unicode(encoding.as_deref().unwrap_or("UTF-8"))?;
                Self::Other
            }
            Event::Comment(_) | Event::PI(_) | Event::DocType(_) => Self::Other,
            Event::Eof => Self::End,
        })
    }
}

/// Text of one of the five entities that XML defines.
fn predefined(name: &str) -> Result<&'static str, String> {
    Ok(match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => {
            let shown: String = name.chars().take(40).collect();
            return Err(format!(
                "the entity &{shown}; is not one of XML's own, and those that a document declares \
                 are not read: write the character itself"
            ));
        }
    })
}

/// Refuses a declared encoding that is not supported. The declaration need not distinguish UTF-8
/// from UTF-16, because the bytes do.
fn require_unicode(encoding: &str) -> Result<(), String> {
    let known = ["utf-8", "utf8", "us-ascii", "ascii", "utf-16", "utf16", "utf-16le", "utf-16be"];
    match known.contains(&encoding.to_lowercase().as_str()) {
        true => Ok(()),
        false => {
            let shown: String = encoding.chars().take(40).collect();
            Err(format!(
                "is {shown}, but UTF-8 or UTF-16 is expected; convert it, for example with iconv \
                 -f {shown} -t UTF-8, and change the first line"
            ))
        }
    }
}
