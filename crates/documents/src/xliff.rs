//! Files for exchange between translation tools: XLIFF 1.2 and 2.

use std::ops::Range;

use crate::segment::Piece;
use crate::words::one_line;
use crate::xml::{Attributes, Spanned, Spans, Token};
use crate::{Error, Result, is_language};

/// Source or target of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Content {
    /// Bytes between its tags; those of the whole tag if it is empty.
    pub(crate) range: Range<usize>,
    /// Bytes with its tags.
    pub(crate) whole: Range<usize>,
    pub(crate) parts: Vec<Piece>,
    /// Whether its state says that it is not translated yet.
    is_initial: bool,
}

impl Content {
    /// Its text without tags and codes.
    pub(crate) fn text(&self) -> String {
        let texts = self.parts.iter().filter_map(|part| match part {
            Piece::Text(text, _) => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }
}

/// Segment with its translation, if it has one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Unit {
    /// First byte of the source's tag.
    pub(crate) start: usize,
    pub(crate) source: Content,
    pub(crate) target: Option<Content>,
    /// Whether it may be translated.
    pub(crate) is_translatable: bool,
}

/// Document.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Xliff {
    /// Languages of each file, or of all: source and target, if they are given.
    pub(crate) languages: Vec<[Option<String>; 2]>,
    /// Units, each with the index of its languages.
    pub(crate) units: Vec<(usize, Unit)>,
}

/// Units of a document.
///
/// # Errors
///
/// If it is no XLIFF, or not well-formed, with its line.
pub(crate) fn parse_xliff(text: &str) -> Result<Xliff> {
    let mut spans = Spans::new(text);
    let mut found = Xliff::default();
    let (mut root, mut no_translation): (bool, Vec<bool>) = (false, Vec::new());
    let (mut unit, mut ignored) = (None::<Unit>, 0_usize);
    loop {
        let Spanned { token, range } = spans.next()?;
        match token {
            Token::End => break,
            Token::Open { name, attributes, is_empty } => {
                if !root && name != "xliff" {
                    let line = crate::error::line_at(text, range.start);
                    let message =
                        format!("begins with <{name}>, where <xliff> is expected: is this XLIFF?");
                    return Err(Error::line(line, message));
                }
                root = true;
                let languages = |source: &str, target: &str| {
                    [source, target].map(|name| attributes.get(name).map(str::to_owned))
                };
                match name.as_str() {
                    "xliff" if attributes.get("srcLang").is_some() => {
                        found.languages.push(languages("srcLang", "trgLang"));
                    }
                    "file" if attributes.get("source-language").is_some() => {
                        found.languages.push(languages("source-language", "target-language"));
                    }
                    // Proposals and originals of codes are no translations.
                    "alt-trans" | "originalData" | "matches" | "glossary" | "header" | "note"
                    | "seg-source"
                        if !is_empty =>
                    {
                        ignored += 1;
                    }
                    "source" if ignored == 0 => {
                        let is_translatable = !no_translation.last().copied().unwrap_or(false);
                        let source = content(&mut spans, range.clone(), is_empty, &attributes)?;
                        finish(&mut found, &mut unit);
                        unit = Some(Unit {
                            start: range.start,
                            source,
                            target: None,
                            is_translatable,
                        });
                        continue;
                    }
                    "target" if ignored == 0 => {
                        let target = content(&mut spans, range, is_empty, &attributes)?;
                        if let Some(unit) = &mut unit {
                            unit.target.get_or_insert(target);
                        }
                        continue;
                    }
                    _ => {}
                }
                if !is_empty {
                    let inherited = no_translation.last().copied().unwrap_or(false);
                    no_translation.push(match attributes.get("translate") {
                        Some(value) => value == "no",
                        None => inherited,
                    });
                }
            }
            Token::Close(name) => {
                no_translation.pop();
                match name.as_str() {
                    "alt-trans" | "originalData" | "matches" | "glossary" | "header" | "note"
                    | "seg-source" => ignored = ignored.saturating_sub(1),
                    "trans-unit" | "segment" | "ignorable" | "unit" => {
                        finish(&mut found, &mut unit);
                    }
                    _ => {}
                }
            }
            Token::Text(_) | Token::Other => {}
        }
    }
    Ok(found)
}

fn finish(found: &mut Xliff, unit: &mut Option<Unit>) {
    if let Some(unit) = unit.take() {
        found.units.push((found.languages.len().saturating_sub(1), unit));
    }
}

/// Content of a source or target whose tag has the bytes `tag`.
fn content(
    spans: &mut Spans<'_>,
    tag: Range<usize>,
    is_empty: bool,
    attributes: &Attributes,
) -> Result<Content> {
    let state = attributes.get("state").unwrap_or_default();
    let is_initial = matches!(state, "new" | "initial" | "needs-translation");
    if is_empty {
        return Ok(Content { range: tag.clone(), whole: tag, parts: Vec::new(), is_initial });
    }
    let mut parts = Vec::new();
    // Names of open elements; a code is one part with all that is in it.
    let mut open: Vec<bool> = Vec::new();
    let mut code: Option<(usize, usize)> = None;
    loop {
        let Spanned { token, range } = spans.next()?;
        match token {
            Token::Open { name, attributes, is_empty } => {
                let is_code = matches!(name.as_str(), "bpt" | "ept" | "it" | "ph" | "sub" | "ut");
                if is_empty {
                    if code.is_none() {
                        parts.push(match character(&name, &attributes) {
                            Some(character) => Piece::Text(character, range),
                            None => Piece::Alone(range),
                        });
                    }
                    continue;
                }
                if code.is_none() {
                    if is_code {
                        code = Some((open.len(), range.start));
                    } else {
                        parts.push(Piece::Open(range));
                    }
                }
                open.push(is_code);
            }
            Token::Close(_) => {
                if open.pop().is_none() {
                    let inner = tag.end..range.start;
                    let whole = tag.start..range.end;
                    return Ok(Content { range: inner, whole, parts, is_initial });
                }
                match code {
                    Some((depth, start)) if depth == open.len() => {
                        parts.push(Piece::Alone(start..range.end));
                        code = None;
                    }
                    Some(_) => {}
                    None => parts.push(Piece::Close(range)),
                }
            }
            Token::Text(text) if code.is_none() => parts.push(Piece::Text(text, range)),
            Token::Other if code.is_none() => parts.push(Piece::Alone(range)),
            Token::Text(_) | Token::Other => {}
            Token::End => {
                return Ok(Content { range: tag.clone(), whole: tag, parts, is_initial });
            }
        }
    }
}

/// Character that XML cannot write, of `<cp hex="…"/>`; it is no text of a sentence.
fn character(name: &str, attributes: &Attributes) -> Option<String> {
    let code = u32::from_str_radix(attributes.get("hex")?, 16).ok()?;
    let character = char::from_u32(code).filter(|one| one.is_whitespace());
    character.filter(|_| name == "cp").map(|_| " ".to_owned())
}

/// Source and target of each translated unit, on one line each, with its line in the document.
/// Inline codes are dropped. A document in the other direction is turned round.
///
/// # Errors
///
/// If the document is no XLIFF or not well-formed, with its line, is in other languages, or has no
/// translation.
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
        let Some(target) = unit.target.as_ref().filter(|target| !target.is_initial) else {
            continue;
        };
        let mut pair = [one_line(&unit.source.text()), one_line(&target.text())];
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
                "translates from {} to {}, where {} and {} are expected",
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
<trans-unit id="4" translate="no"><source>A &amp; B</source><target>A und B</target></trans-unit>
</body></file></xliff>"#;

    const VERSION_2: &str = r#"<xliff version="2.0" srcLang="en" trgLang="de"><file id="f"><unit id="1">
<originalData><data id="d">source</data></originalData>
<segment><source>One <pc id="1">two</pc><ph id="2"/></source><target>Eins <pc id="1">zwei</pc></target></segment>
<ignorable><source> </source></ignorable>
<segment state="translated"><source>Three.</source><target>Drei.</target></segment>
</unit></file></xliff>"#;

    #[test]
    fn translated_units_are_pairs() {
        let owned = |pairs: &[(u64, [&str; 2])]| -> Vec<(u64, [String; 2])> {
            pairs.iter().map(|(line, pair)| (*line, pair.map(str::to_owned))).collect()
        };
        assert_eq!(
            xliff_pairs(VERSION_1, ["en", "de"]).unwrap(),
            owned(&[(3, ["Click here now", "Jetzt hier klicken"]), (8, ["A & B", "A und B"])])
        );
        assert_eq!(
            xliff_pairs(VERSION_2, ["de", "en"]).unwrap(),
            owned(&[(3, ["Eins zwei", "One two"]), (5, ["Drei.", "Three."])])
        );
        let units = parse_xliff(VERSION_1).unwrap().units;
        assert_eq!(units.len(), 4);
        assert!(units[2].1.is_translatable && !units[3].1.is_translatable);
        assert_eq!(&VERSION_1[units[1].1.source.whole.clone()], "<source>Later</source>");
        assert_eq!(units[2].1.source.text(), "New one");
    }

    #[test]
    fn faults_say_what_there_is() {
        for (text, said) in [
            (VERSION_1.to_owned(), "translates from en-US to de-DE, where en and fr"),
            (VERSION_1.replace("</g>", ""), "line 3: not well-formed"),
            ("<tmx/>".to_owned(), "line 1: begins with <tmx>"),
            ("<xliff/>".to_owned(), "has no unit with a finished"),
        ] {
            let error = xliff_pairs(&text, ["en", "fr"]).unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
