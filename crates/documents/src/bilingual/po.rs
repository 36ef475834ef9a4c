//! Reads PO files, which are message catalogs of gettext.

use std::ops::Range;

use super::plurals::form_of;
use crate::words::one_line;
use crate::{Error, Result, is_language};

/// A string of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoString {
    /// The text, without escapes.
    pub text: String,
    /// Byte range of the string in the catalog, from its first quote to its last; it may cover
    /// several lines, with comments between them.
    pub range: Range<usize>,
}

/// A message of a catalog.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Line of the message's `msgid`, counted from 1.
    pub line: u64,
    /// True if the flag `fuzzy` says that a person must still check the translation.
    pub is_fuzzy: bool,
    /// Context, `msgctxt`, which distinguishes messages with the same text; `None` without one.
    pub context: Option<PoString>,
    /// Text to translate, `msgid`; empty for the header.
    pub id: PoString,
    /// Text to translate for a number of things other than one, `msgid_plural`; `None` if the
    /// message has no plural.
    pub plural: Option<PoString>,
    /// Translations, `msgstr`; if the message has a plural, one for each plural form, in order.
    pub translations: Vec<PoString>,
}

impl Message {
    /// True if the message is the header of the catalog.
    #[must_use]
    pub fn is_header(&self) -> bool {
        self.id.text.is_empty() && self.context.is_none()
    }

    /// Keyword of the translation that may come next; `None` if the message is complete.
    fn next_translation(&self) -> Option<String> {
        match (&self.plural, self.translations.len()) {
            (Some(_), count) => Some(format!("msgstr[{count}]")),
            (None, 0) => Some("msgstr".to_owned()),
            (None, _) => None,
        }
    }

    /// Value of a field of the header; `None` if the header lacks the field.
    fn field(&self, name: &str) -> Option<&str> {
        let header = &self.translations.first()?.text;
        header.lines().find_map(|line| {
            let (own, value) = line.split_once(':')?;
            own.trim().eq_ignore_ascii_case(name).then_some(value.trim())
        })
    }
}

/// The string that was read last, which the next lines may continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    None,
    Context,
    Id,
    Plural,
    Translation,
}

/// Parses the messages of a catalog, including the header, but without obsolete messages.
///
/// # Errors
///
/// If a line is not in the PO format, or the header names another encoding than UTF-8.
pub fn parse_po(text: &str) -> Result<Vec<Message>> {
    let mut reader = Reader {
        messages: Vec::new(),
        message: None,
        open: Open::None,
        is_fuzzy: false,
        context: None,
    };
    let mut at = 0;
    for (number, whole) in (1..).zip(text.split_inclusive('\n')) {
        let line = whole.strip_prefix('\u{feff}').filter(|_| number == 1).unwrap_or(whole);
        let line = line.trim_start();
        let start = at + whole.len() - line.len();
        at += whole.len();
        reader.read(line.trim_end(), start, number)?;
    }
    reader.finish()?;
    if reader.messages.is_empty() {
        return Err(Error::Document("has no messages: is this a catalog (PO)?".to_owned()));
    }
    Ok(reader.messages)
}

/// Messages read so far, and the message that is being read.
struct Reader {
    messages: Vec<Message>,
    message: Option<Message>,
    open: Open,
    /// True if the next message is fuzzy.
    is_fuzzy: bool,
    /// Context of the next message.
    context: Option<PoString>,
}

impl Reader {
    /// Reads a line that begins at the byte `start` of the catalog.
    fn read(&mut self, line: &str, start: usize, number: u64) -> Result<()> {
        if let Some(flags) = line.strip_prefix("#,") {
            let is_fuzzy = flags.split(',').any(|flag| flag.trim() == "fuzzy");
            match self.message.as_mut().filter(|message| message.translations.is_empty()) {
                // The flags are within a message, so they belong to it.
                Some(message) => message.is_fuzzy |= is_fuzzy,
                None => self.is_fuzzy |= is_fuzzy,
            }
            return Ok(());
        }
        if line.starts_with("#~") {
            // The flags on the lines before this one belong to an obsolete message.
            self.finish()?;
            (self.open, self.is_fuzzy) = (Open::None, false);
            return Ok(());
        }
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if line.starts_with('"') {
            return self.extend(&quoted(line, start, number)?, number);
        }
        let (keyword, rest) = line.split_at(line.find([' ', '\t', '"']).unwrap_or(line.len()));
        let value = rest.trim_start();
        let value = quoted(value, start + line.len() - value.len(), number)?;
        self.begin(keyword, value, number)
    }

    /// Appends the string of a line to the open string.
    fn extend(&mut self, part: &PoString, number: u64) -> Result<()> {
        let string = match (self.open, self.message.as_mut()) {
            (Open::Context, _) => self.context.as_mut(),
            (Open::Id, Some(message)) => Some(&mut message.id),
            (Open::Plural, Some(message)) => message.plural.as_mut(),
            (Open::Translation, Some(message)) => message.translations.last_mut(),
            _ => None,
        };
        let Some(string) = string else {
            return Err(Error::line(number, "a string without a keyword before it"));
        };
        string.text.push_str(&part.text);
        string.range.end = part.range.end;
        Ok(())
    }

    /// Begins the string that follows a keyword.
    fn begin(&mut self, keyword: &str, value: PoString, number: u64) -> Result<()> {
        match (keyword, self.message.as_mut()) {
            ("domain", _) => {}
            ("msgctxt", _) => {
                self.finish()?;
                (self.context, self.open) = (Some(value), Open::Context);
            }
            ("msgid", _) => {
                self.finish()?;
                let is_fuzzy = std::mem::take(&mut self.is_fuzzy);
                let context = self.context.take();
                let message =
                    Message { line: number, is_fuzzy, context, id: value, ..Message::default() };
                (self.message, self.open) = (Some(message), Open::Id);
            }
            ("msgid_plural", Some(message)) if message.translations.is_empty() => {
                message.plural = Some(value);
                self.open = Open::Plural;
            }
            (form, Some(message)) if message.next_translation().as_deref() == Some(form) => {
                message.translations.push(value);
                self.open = Open::Translation;
            }
            _ => {
                let shown: String = keyword.chars().take(40).collect();
                let what = format!("{shown:?} does not belong here: is this a catalog (PO)?");
                return Err(Error::line(number, what));
            }
        }
        Ok(())
    }

    /// Ends the open message.
    fn finish(&mut self) -> Result<()> {
        let Some(message) = self.message.take() else { return Ok(()) };
        if message.translations.is_empty() {
            return Err(Error::line(message.line, "a msgid without msgstr"));
        }
        if message.is_header()
            && let Some(kind) = message.field("Content-Type")
            && let Some((_, charset)) = kind.to_lowercase().split_once("charset=")
            && !matches!(charset.trim(), "utf-8" | "utf8" | "us-ascii" | "ascii" | "charset" | "")
        {
            let charset: String = charset.chars().take(40).collect();
            return Err(Error::line(
                message.line,
                format!(
                    "the catalog is {charset}, but UTF-8 is expected; msgconv -t UTF-8 converts \
                     it"
                ),
            ));
        }
        self.messages.push(message);
        Ok(())
    }
}

/// Parses a string in quotes, which begins at the byte `start` of the catalog, in the line with the
/// number `number`.
fn quoted(line: &str, start: usize, number: u64) -> Result<PoString> {
    let wrong = |what: &str| Error::line(number, what);
    let inner = line.strip_prefix('"').ok_or_else(|| wrong("a string in quotes is missing"))?;
    let mut text = String::new();
    // An escape stands for a byte, and several bytes can form one character.
    let mut bytes: Vec<u8> = Vec::new();
    let mut characters = inner.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let escaped = match character {
            '"' => {
                if !inner[at + 1..].trim().is_empty() {
                    return Err(wrong("text after the quote that ends a string"));
                }
                flush(&mut text, &mut bytes, number)?;
                return Ok(PoString { text, range: start..start + 1 + at + 1 });
            }
            '\\' => characters.next().map(|(_, next)| next),
            other => {
                flush(&mut text, &mut bytes, number)?;
                text.push(other);
                continue;
            }
        };
        let byte = match escaped {
            Some('n') => b'\n',
            Some('t') => b'\t',
            Some('r') => b'\r',
            Some('a') => 7,
            Some('b') => 8,
            Some('f') => 12,
            Some('v') => 11,
            Some(same @ ('"' | '\\' | '\'' | '?')) => same as u8,
            Some('x') => {
                let digits = digits(16, 2, &mut characters);
                u8::from_str_radix(&digits, 16)
                    .map_err(|_| wrong("\\x without the digits of a byte"))?
            }
            Some(first @ '0'..='7') => {
                let digits = format!("{first}{}", digits(8, 2, &mut characters));
                u8::from_str_radix(&digits, 8).map_err(|_| {
                    wrong(&format!("the escape \\{digits} is no byte: the largest is \\377"))
                })?
            }
            Some(other) => return Err(wrong(&format!("the escape \\{other} is unknown"))),
            None => break,
        };
        bytes.push(byte);
    }
    Err(wrong("a string whose quotes are not closed"))
}

type Characters<'a> = std::iter::Peekable<std::str::CharIndices<'a>>;

/// Takes at most `most` digits.
fn digits(radix: u32, most: usize, characters: &mut Characters<'_>) -> String {
    let mut digits = String::new();
    while digits.len() < most
        && let Some((_, digit)) = characters.next_if(|(_, next)| next.is_digit(radix))
    {
        digits.push(digit);
    }
    digits
}

/// Appends the bytes of escapes, which must form characters, to the text of a string.
fn flush(text: &mut String, bytes: &mut Vec<u8>, number: u64) -> Result<()> {
    let characters = std::str::from_utf8(bytes).map_err(|_| {
        Error::line(number, "escapes of bytes that are not UTF-8: write the character itself")
    })?;
    text.push_str(characters);
    bytes.clear();
    Ok(())
}

/// Index of the plural form for the number 1, computed from the header of a catalog. If the header
/// does not determine it, this is 0, the first form. `None` if the language has a single form.
pub(crate) fn form_of_one(messages: &[Message]) -> Option<usize> {
    let header = messages.iter().find(|message| message.is_header());
    let field = header.and_then(|header| header.field("Plural-Forms")).unwrap_or_default();
    let form = form_of(field, 1);
    let count = field.split(';').find_map(|part| part.trim().strip_prefix("nplurals="));
    let is_single = form == Some(0) && count.is_some_and(|count| count.trim() == "1");
    (!is_single).then_some(form.unwrap_or(0))
}

/// Returns the source and the target of each translated message, each on one line, together with
/// the message's line in the catalog. Fuzzy translations are omitted.
///
/// A message with a plural has up to two pairs. The text for one thing is paired with the plural
/// form for one thing, which the header determines; by default it is the first form. The text for
/// several things is paired with the last of the other forms. If the language has only one form,
/// only the text for several things is paired.
///
/// If the header names a language, it must be the target or the source. If it is the source, source
/// and target of all pairs are exchanged.
///
/// # Errors
///
/// Errors of [`parse_po`], and if the catalog is in another language or has no translation.
pub fn po_pairs(text: &str, languages: [&str; 2]) -> Result<Vec<(u64, [String; 2])>> {
    let messages = parse_po(text)?;
    let header = messages.iter().find(|message| message.is_header());
    let language = header.and_then(|header| header.field("Language")).filter(|tag| !tag.is_empty());
    let turned = match language {
        Some(tag) if is_language(tag, languages[1]) => false,
        Some(tag) if is_language(tag, languages[0]) => true,
        Some(tag) => {
            return Err(Error::Document(format!(
                "is a catalog in {tag}, where {} or {} is expected",
                languages[1], languages[0]
            )));
        }
        None => false,
    };
    let form_of_one = form_of_one(&messages).unwrap_or(0);
    let mut pairs = Vec::new();
    for message in messages.iter().filter(|message| !message.is_header() && !message.is_fuzzy) {
        let forms = &message.translations;
        let both = match (&message.plural, forms.as_slice()) {
            (None, [one, ..]) => vec![(&message.id, one)],
            (Some(plural), [only]) => vec![(plural, only)],
            (Some(plural), [_, .., last]) => {
                let one = form_of_one.min(forms.len() - 1);
                let many = if one + 1 == forms.len() { &forms[one - 1] } else { last };
                vec![(&message.id, &forms[one]), (plural, many)]
            }
            (_, []) => Vec::new(),
        };
        for (id, translation) in both {
            let mut pair = [one_line(&id.text), one_line(&translation.text)];
            if pair.iter().any(String::is_empty) {
                continue;
            }
            if turned {
                pair.reverse();
            }
            pairs.push((message.line, pair));
        }
    }
    if pairs.is_empty() {
        return Err(Error::Document("is a catalog without a finished translation".to_owned()));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CATALOG: &str = r#"# A comment
msgid ""
msgstr ""
"Language: de_DE\n"
"Content-Type: text/plain; charset=UTF-8\n"

#: a.c:1
#, c-format
msgctxt "menu"
msgid "Open %s"
msgstr "%s öffnen"

#, fuzzy, c-format
#| msgid "Old"
msgid "New"
msgstr "Alt"

msgid "one \"file\"\n"
msgid_plural ""
"%d "
"files\n"
msgstr[0] "eine \x22Datei\042\n"
msgstr[1] "%d \303\244 Dateien\n"

msgid "untranslated"
msgstr ""

#, fuzzy
#~ msgid "gone"
#~ msgstr "weg"

msgid "last"
msgstr "letzte"
"#;

    #[test]
    fn finished_messages_are_pairs() {
        let expected: [(u64, [&str; 2]); 4] = [
            (10, ["Open %s", "%s öffnen"]),
            (18, ["one \"file\"", "eine \"Datei\""]),
            (18, ["%d files", "%d ä Dateien"]),
            (32, ["last", "letzte"]),
        ];
        let found = po_pairs(CATALOG, ["en", "de"]).unwrap();
        assert_eq!(found, expected.map(|(line, pair)| (line, pair.map(str::to_owned))));
        assert_eq!(po_pairs(CATALOG, ["de", "en"]).unwrap()[0].1[0], "%s öffnen");
        let windows = CATALOG.replace('\n', "\r\n");
        assert_eq!(po_pairs(&windows, ["en", "de"]).unwrap(), found);
    }

    #[test]
    fn the_header_names_the_form_for_one_thing() {
        let catalog = "msgid \"\"\n\
            msgstr \"Plural-Forms: nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2;\\n\"\n\n\
            msgid \"one\"\nmsgid_plural \"many\"\n\
            msgstr[0] \"0\"\nmsgstr[1] \"1\"\nmsgstr[2] \"2\"\n";
        let pairs = |catalog: &str| -> Vec<[String; 2]> {
            po_pairs(catalog, ["en", "ar"]).unwrap().into_iter().map(|(_, pair)| pair).collect()
        };
        assert_eq!(pairs(catalog), [["one", "1"], ["many", "2"]]);
        // Here, the last form is that for one thing.
        assert_eq!(pairs(&catalog.replace("? 1 : 2", "? 2 : 1")), [["one", "2"], ["many", "1"]]);
        assert_eq!(pairs(&catalog.replace("plural=n", "x=n")), [["one", "0"], ["many", "2"]]);
    }

    #[test]
    fn a_message_with_a_context_is_not_the_header() {
        let other = "msgctxt \"menu\"\n\"s\"\nmsgid \"\"\n\
            msgstr \"Language: fr\\nContent-Type: text/plain; charset=latin1\\n\"\n\n";
        let catalog = format!("{other}{CATALOG}");
        let messages = parse_po(&catalog).unwrap();
        let contexts = messages.iter().filter_map(|one| Some(one.context.as_ref()?.text.as_str()));
        assert_eq!(contexts.collect::<Vec<_>>(), ["menus", "menu"]);
        let headers: Vec<bool> = messages.iter().map(Message::is_header).take(3).collect();
        assert_eq!(headers, [false, true, false]);
        assert_eq!(po_pairs(&catalog, ["en", "de"]).unwrap().len(), 4);
    }

    #[test]
    fn ranges_are_those_of_strings() {
        let messages = parse_po(CATALOG).unwrap();
        let plural = messages[3].plural.as_ref().unwrap();
        assert_eq!(&CATALOG[plural.range.clone()], "\"\"\n\"%d \"\n\"files\\n\"");
        assert_eq!(&CATALOG[messages[1].translations[0].range.clone()], "\"%s öffnen\"");
    }

    #[test]
    fn faults_have_their_line() {
        for (text, said) in [
            ("msgid \"a\"\n", "line 1: a msgid without msgstr"),
            ("msgid \"a\nmsgstr \"\"\n", "line 1: a string whose quotes"),
            ("msgid \"a\"\nmsgstr \"\\q\"\n", "line 2: the escape \\q"),
            ("msgid \"\\777\"\nmsgstr \"\"\n", "line 1: the escape \\777 is no byte"),
            ("msgid \"a\"\nmsgstr \"\\400\"\n", "line 2: the escape \\400 is no byte"),
            ("msgid \"\\xff\"\nmsgstr \"\"\n", "line 1: escapes of bytes that are not UTF-8"),
            ("msgid \"\\303a\"\nmsgstr \"\"\n", "line 1: escapes of bytes that are not UTF-8"),
            ("\"a\"\n", "line 1: a string without"),
            ("msgid \"a\"\nmsgstr[0] \"b\"\n", "line 2: \"msgstr[0]\" does not belong"),
            ("msgid \"a\"\nmsgid_plural \"b\"\nmsgstr[1] \"c\"\n", "line 3: \"msgstr[1]\""),
            ("words\n", "line 1: a string in quotes is missing"),
            ("", "has no messages"),
            (
                "msgid \"\"\nmsgstr \"Content-Type: text/plain; charset=ISO-8859-1\\n\"\n",
                "line 1: the catalog is iso-8859-1",
            ),
        ] {
            let error = parse_po(text).unwrap_err().to_string();
            assert!(error.starts_with(said), "{text}: {error}");
        }
        let error = po_pairs(CATALOG, ["en", "fr"]).unwrap_err().to_string();
        assert!(error.contains("in de_DE, where fr or en"), "{error}");
    }
}
