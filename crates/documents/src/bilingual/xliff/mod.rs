//! Reads XLIFF files (versions 1.2 and 2), in which translation tools exchange texts. A file
//! consists of units: a source text and, if it is translated, its target.

mod inline;

use std::ops::Range;

use crate::segment::Piece;
use crate::words::one_line;
use crate::xml::{Attributes, Spanned, Spans, Token};
use crate::{Error, Result, is_language};
use inline::Inline;

/// Source or target of a unit: an element with its tags, text and codes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Byte range between the opening and closing tag; if the element is empty, the range of its
    /// tag.
    pub(crate) range: Range<usize>,
    /// Byte range of the element, including its tags.
    pub(crate) whole: Range<usize>,
    pub(crate) parts: Vec<Piece>,
    /// Text without tags and codes. Line breaks have become blanks.
    pub(crate) text: String,
    /// True if an attribute `state` says that it is not translated yet.
    is_initial: bool,
}

/// Text of a document with its translation, if it has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// Index of the first byte of the opening tag of the source.
    pub(crate) start: usize,
    /// Index of the byte at which a target can be inserted. It is after the source. In version 1.2,
    /// an element `seg-source` (the source divided into segments) can follow the source; then it is
    /// after this element.
    pub(crate) end: usize,
    pub(crate) source: Content,
    pub(crate) target: Option<Content>,
    /// False if the document forbids translation of this unit.
    pub(crate) is_translatable: bool,
    /// True if the document says that the translation is approved (version 1.2).
    pub(crate) is_approved: bool,
}

impl Unit {
    /// True if the unit has a translation. A target does not count if it is empty, or if the
    /// document says that it is not translated yet. An approved target always counts.
    pub(crate) fn is_translated(&self) -> bool {
        self.target.as_ref().is_some_and(|target| {
            let is_blank =
                |part: &Piece| matches!(part, Piece::Text(text, _) if text.trim().is_empty());
            self.is_approved || !target.is_initial && !target.parts.iter().all(is_blank)
        })
    }
}

/// Content of an XLIFF document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Xliff {
    /// Source and target language of each file or of the document; `None` if a language is not
    /// given.
    pub(crate) languages: Vec<[Option<String>; 2]>,
    /// Units. The number before each unit is the index in `languages` of the languages of its file.
    pub(crate) units: Vec<(usize, Unit)>,
}

/// Parses a document.
///
/// # Errors
///
/// If it is not XLIFF, or not well-formed; the error has the line.
pub(crate) fn parse_xliff(text: &str) -> Result<Xliff> {
    let mut reader = Reader {
        spans: Spans::new(text),
        document: Xliff::default(),
        unit: None,
        ignored: 0,
        is_initial: false,
        is_approved: false,
        untranslatable: Vec::new(),
    };
    let mut has_root = false;
    loop {
        let Spanned { token, range } = reader.spans.next()?;
        match token {
            Token::End => return Ok(reader.document),
            Token::Open { name, .. } if !has_root && name != "xliff" => {
                let line = crate::error::line_at(text, range.start);
                let message =
                    format!("begins with <{name}>, but <xliff> is expected: is this XLIFF?");
                return Err(Error::line(line, message));
            }
            Token::Open { name, attributes, is_empty } => {
                has_root = true;
                reader.open(&name, &attributes, is_empty, range)?;
            }
            Token::Close(name) => reader.close(&name, range.end),
            Token::Text(_) | Token::Other => {}
        }
    }
}

/// True for an element whose sources and targets do not belong to the document's own text. Such
/// elements contain proposals of translations, the originals of inline codes, notes, or other parts
/// of the original document.
fn is_ignored(name: &str) -> bool {
    matches!(
        name,
        "alt-trans"
            | "originalData"
            | "matches"
            | "glossary"
            | "header"
            | "note"
            | "seg-source"
            | "skeleton"
            | "resourceData"
            | "changeTrack"
    )
}

/// Units read so far, and the unit that is being read.
struct Reader<'a> {
    spans: Spans<'a>,
    document: Xliff,
    unit: Option<Unit>,
    /// Number of open elements whose content is ignored (see [`is_ignored`]).
    ignored: usize,
    /// Whether the state of the open segment (version 2) marks it as not translated yet.
    is_initial: bool,
    /// Whether the translation of the open unit is approved (version 1.2).
    is_approved: bool,
    /// Whether translation is forbidden, for each open element.
    untranslatable: Vec<bool>,
}

impl Reader<'_> {
    fn open(
        &mut self,
        name: &str,
        attributes: &Attributes,
        is_empty: bool,
        tag: Range<usize>,
    ) -> Result<()> {
        let is_untranslatable = self.untranslatable.last().copied().unwrap_or(false);
        let start = tag.start;
        match name {
            "source" if self.ignored == 0 => {
                let source = content(&mut self.spans, tag, is_empty, attributes)?;
                self.finish();
                let is_translatable = !is_untranslatable;
                let end = source.whole.end;
                let is_approved = self.is_approved;
                let target = None;
                self.unit = Some(Unit { start, end, source, target, is_translatable, is_approved });
                return Ok(());
            }
            "target" if self.ignored == 0 => {
                let mut target = content(&mut self.spans, tag, is_empty, attributes)?;
                target.is_initial |= self.is_initial;
                if let Some(unit) = &mut self.unit {
                    unit.target.get_or_insert(target);
                }
                return Ok(());
            }
            "xliff" => self.name_languages(attributes, ["srcLang", "trgLang"]),
            "file" => self.name_languages(attributes, ["source-language", "target-language"]),
            "trans-unit" => {
                self.is_approved = attributes.get("approved") == Some("yes");
                self.is_initial = false;
            }
            "unit" => (self.is_approved, self.is_initial) = (false, false),
            "segment" => self.is_initial = attributes.get("state") == Some("initial"),
            "ignorable" => self.is_initial = false,
            "seg-source" if is_empty => self.end_division(tag.end),
            _ => {}
        }
        if !is_empty {
            self.ignored += usize::from(is_ignored(name));
            let translate = attributes.get("translate");
            let is_untranslatable = is_untranslatable || name == "ignorable";
            self.untranslatable.push(translate.map_or(is_untranslatable, |value| value == "no"));
        }
        Ok(())
    }

    /// If an element gives languages, begins a file with these languages.
    fn name_languages(&mut self, attributes: &Attributes, names: [&str; 2]) {
        let languages = names.map(|name| attributes.get(name).map(str::to_owned));
        if languages[0].is_some() {
            self.document.languages.push(languages);
        }
    }

    /// Ends an element `seg-source` (version 1.2), the source divided into segments. A target can
    /// be inserted after it.
    fn end_division(&mut self, end: usize) {
        if let Some(unit) = self.unit.as_mut().filter(|unit| unit.target.is_none()) {
            unit.end = end;
        }
    }

    fn close(&mut self, name: &str, end: usize) {
        self.untranslatable.pop();
        if is_ignored(name) {
            self.ignored = self.ignored.saturating_sub(1);
            if name == "seg-source" {
                self.end_division(end);
            }
        } else if matches!(name, "trans-unit" | "segment" | "ignorable" | "unit") {
            self.finish();
        }
    }

    /// Ends the open unit.
    fn finish(&mut self) {
        if let Some(unit) = self.unit.take() {
            let languages = self.document.languages.len().saturating_sub(1);
            self.document.units.push((languages, unit));
        }
    }
}

/// States of targets that are not translated yet, or whose text must still be adapted: those of
/// version 1.2, and `initial` of version 2. A target without a state counts as translated, although
/// `initial` is the default of version 2, because many tools write no states.
const UNTRANSLATED: [&str; 4] = ["new", "needs-translation", "needs-l10n", "initial"];

/// Reads the content of a source or target whose opening tag has the bytes `tag`.
fn content(
    spans: &mut Spans<'_>,
    tag: Range<usize>,
    is_empty: bool,
    attributes: &Attributes,
) -> Result<Content> {
    let state = attributes.get("state").unwrap_or_default();
    let is_initial = UNTRANSLATED.contains(&state);
    let mut inline = Inline::default();
    let end = if is_empty { None } else { inline.read(spans)? };
    let (range, whole) = match end {
        Some(end) => (tag.end..end.start, tag.start..end.end),
        None => (tag.clone(), tag),
    };
    Ok(Content { range, whole, parts: inline.parts, text: inline.text, is_initial })
}

/// Returns the source and target of each translated unit, each on one line, with the unit's line in
/// the document. Inline codes are dropped. If the document translates in the opposite direction,
/// source and target are exchanged.
///
/// # Errors
///
/// If the document is not XLIFF or not well-formed (the error has the line), is in other languages,
/// or has no translation.
pub fn xliff_pairs(text: &str, languages: [&str; 2]) -> Result<Vec<(u64, [String; 2])>> {
    let document = parse_xliff(text)?;
    let (mut pairs, mut line, mut at) = (Vec::new(), 1, 0);
    let mut others: Option<[Option<String>; 2]> = None;
    for (of, unit) in &document.units {
        let start = unit.start;
        line += text.as_bytes()[at..start].iter().filter(|&&byte| byte == b'\n').count() as u64;
        at = start;
        let tags = document.languages.get(*of).cloned().unwrap_or_default();
        let is = |tag: &Option<String>, wanted: &str| {
            tag.as_deref().is_none_or(|tag| is_language(tag, wanted))
        };
        let turned = if is(&tags[0], languages[0]) && is(&tags[1], languages[1]) {
            false
        } else if is(&tags[0], languages[1]) && is(&tags[1], languages[0]) {
            true
        } else {
            others = Some(tags);
            continue;
        };
        let Some(target) = unit.target.as_ref().filter(|_| unit.is_translated()) else {
            continue;
        };
        let mut pair = [one_line(&unit.source.text), one_line(&target.text)];
        if pair.iter().any(String::is_empty) {
            continue;
        }
        if turned {
            pair.reverse();
        }
        pairs.push((line, pair));
    }
    if pairs.is_empty() {
        return Err(Error::Document(match others {
            Some(tags) => format!(
                "translates from {} to {}, but {} and {} are expected",
                tags[0].as_deref().unwrap_or("?"),
                tags[1].as_deref().unwrap_or("?"),
                languages[0],
                languages[1]
            ),
            None => "has no unit with a finished translation".to_owned(),
        }));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VERSION_1: &str = r#"<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="a" source-language="en-US" target-language="de-DE" datatype="x"><body>
<trans-unit id="1"><source>Click <g id="1">here</g><x id="2"/> now</source>
<target>Jetzt <g id="1">hier</g> klicken<x id="2"/></target>
<alt-trans><source>no</source><target>nein</target></alt-trans></trans-unit>
<trans-unit id="2"><source>Later</source></trans-unit>
<trans-unit id="3"><source>New <bpt id="1">&lt;b></bpt>one</source><target state="new">x</target></trans-unit>
<trans-unit id="3b"><source>Old</source><target state="needs-l10n">Alt</target></trans-unit>
<trans-unit id="3c" approved="yes"><source>Yes</source><target state="new">Ja</target></trans-unit>
<trans-unit id="4" translate="no"><source>A &amp; B</source><target>A und B</target></trans-unit>
</body></file></xliff>"#;

    const VERSION_2: &str = r#"<xliff version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="1">
<originalData><data id="d">source</data></originalData>
<segment><source>One <pc id="1">two</pc><ph id="2"/></source><target>Eins <pc id="1">zwei</pc></target></segment>
<ignorable><source> </source></ignorable>
<segment state="translated"><source>Three.</source><target>Drei.</target></segment>
<segment state="initial"><source>Four</source><target>Four</target></segment>
<segment><source>A<ph id="3" subType="fmt:lb"/>b <mrk id="m" translate="no">Taper</mrk></source>
<target>C<ph id="3" subType="fmt:lb"/>d <mrk id="m" translate="no">Taper</mrk></target></segment>
</unit></file></xliff>"#;

    #[test]
    fn translated_units_are_pairs() {
        let owned = |pairs: &[(u64, [&str; 2])]| -> Vec<(u64, [String; 2])> {
            pairs.iter().map(|(line, pair)| (*line, pair.map(str::to_owned))).collect()
        };
        assert_eq!(
            xliff_pairs(VERSION_1, ["en", "de"]).unwrap(),
            owned(&[
                (3, ["Click here now", "Jetzt hier klicken"]),
                (9, ["Yes", "Ja"]),
                (10, ["A & B", "A und B"])
            ])
        );
        assert_eq!(
            xliff_pairs(VERSION_2, ["de", "en"]).unwrap(),
            owned(&[
                (3, ["Eins zwei", "One two"]),
                (5, ["Drei.", "Three."]),
                (7, ["C d Taper", "A b Taper"])
            ])
        );
        let units = parse_xliff(VERSION_1).unwrap().units;
        assert_eq!(units.len(), 6);
        assert!(units[2].1.is_translatable && !units[5].1.is_translatable);
        assert_eq!(&VERSION_1[units[1].1.source.whole.clone()], "<source>Later</source>");
        assert_eq!(units[2].1.source.text, "New one");
    }

    #[test]
    fn faults_say_what_there_is() {
        for (text, said) in [
            (VERSION_1.to_owned(), "translates from en-US to de-DE, but en and fr"),
            (VERSION_1.replace("</g>", ""), "line 3: not well-formed"),
            ("<tmx/>".to_owned(), "line 1: begins with <tmx>"),
            ("<xliff/>".to_owned(), "has no unit with a finished"),
        ] {
            let error = xliff_pairs(&text, ["en", "fr"]).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
