//! Reads translation memories in the format TMX (versions 1.1 to 1.4b) as a stream, so that a file
//! may have any size.

use std::collections::BTreeSet;
use std::io::BufRead;

use crate::words::one_line;
use crate::xml::{Token, Xml};
use crate::{Error, Result, is_language};

/// Largest number of bytes of the text of a segment.
const LONGEST: usize = 1 << 26;

/// Number of languages that an error lists.
const LISTED: usize = 20;

/// Reader of the pairs of two languages in a translation memory.
///
/// A unit that lacks one of the two languages is skipped. If a unit has several variants of a
/// language, such as `en-US` and `en-GB`, the first of them is used. Formatting codes within a
/// segment (`bpt`, `ept`, `it`, `ph`, `ut`) are dropped with their content; the text of `hi` is
/// kept.
pub struct Tmx<R> {
    xml: Xml<R>,
    /// Languages of source and target.
    languages: [String; 2],
    /// Languages of the units read so far, for an error.
    met: BTreeSet<String>,
    pairs: u64,
    line: u64,
}

impl<R: BufRead> Tmx<R> {
    /// Makes a reader of `stream`, which is in UTF-8 or UTF-16.
    ///
    /// # Errors
    ///
    /// If the stream is not TMX.
    pub fn new(stream: R, languages: [&str; 2]) -> Result<Self> {
        let mut xml = Xml::new(stream)?;
        loop {
            match xml.next()? {
                Token::Open { name, is_empty: false, .. } if name == "tmx" => break,
                Token::Open { name, .. } => {
                    return Err(Error::line(
                        xml.line(),
                        format!("begins with <{name}>, but <tmx> is expected: is this TMX?"),
                    ));
                }
                _ => {}
            }
        }
        let languages = languages.map(str::to_owned);
        Ok(Self { xml, languages, met: BTreeSet::new(), pairs: 0, line: 0 })
    }

    /// Line of the last pair, counted from 1.
    #[must_use]
    pub fn line(&self) -> u64 {
        self.line
    }

    /// Returns the source and target of the next unit that has both; `None` after the last unit.
    ///
    /// # Errors
    ///
    /// If the stream is not well-formed, or has no pair at all. In the first case, the error has
    /// the line.
    pub fn next_pair(&mut self) -> Result<Option<[String; 2]>> {
        loop {
            match self.xml.next()? {
                Token::Open { name, is_empty: false, .. } if name == "tu" => {
                    self.line = self.xml.line();
                    if let Some(pair) = self.unit()? {
                        self.pairs += 1;
                        return Ok(Some(pair));
                    }
                }
                Token::End if self.pairs > 0 => return Ok(None),
                Token::End => return Err(self.no_pairs()),
                _ => {}
            }
        }
    }

    /// Reads a unit, whose opening tag has been read; `None` if it lacks one of the languages.
    fn unit(&mut self) -> Result<Option<[String; 2]>> {
        let mut sides: [Option<String>; 2] = [None, None];
        let mut side = None;
        loop {
            match self.xml.next()? {
                Token::Open { name, attributes, is_empty } if name == "tuv" => {
                    let Some(language) = attributes.get("lang") else {
                        return Err(self.wrong("a <tuv> without xml:lang, its language"));
                    };
                    // If both languages match, such as `pt` and `pt-BR`, the longer tag is the
                    // better match.
                    let sides = (0..2).filter(|&side| is_language(language, &self.languages[side]));
                    side = sides.max_by_key(|&side| self.languages[side].len());
                    if self.met.len() < LISTED && !self.met.contains(language) {
                        self.met.insert(language.chars().take(40).collect());
                    }
                    side = side.filter(|_| !is_empty);
                }
                Token::Open { name, is_empty: false, .. } if name == "seg" => {
                    let text = self.segment()?;
                    if let Some(side) = side {
                        sides[side].get_or_insert(text);
                    }
                }
                Token::Close(name) if name == "tuv" => side = None,
                Token::Close(name) if name == "tu" => {
                    return Ok(match sides {
                        [Some(source), Some(target)] => Some([source, target]),
                        _ => None,
                    });
                }
                Token::End => return Ok(None),
                _ => {}
            }
        }
    }

    /// Reads the text of a segment, whose opening tag has been read, as one line.
    fn segment(&mut self) -> Result<String> {
        let mut text = String::new();
        // Number of open elements, and number of formatting codes among them.
        let (mut depth, mut codes) = (0_usize, 0_usize);
        let is_code = |name: &str| matches!(name, "bpt" | "ept" | "it" | "ph" | "ut");
        loop {
            match self.xml.next()? {
                Token::Open { name, attributes, is_empty } => {
                    if codes == 0 && matches!(attributes.get("type"), Some("lb" | "pb")) {
                        // A line break separates words.
                        text.push(' ');
                    }
                    if !is_empty {
                        depth += 1;
                        codes += usize::from(is_code(&name));
                    }
                }
                Token::Close(_) if depth == 0 => return Ok(one_line(&text)),
                Token::Close(name) => {
                    depth -= 1;
                    codes -= usize::from(is_code(&name));
                }
                Token::Text(of) if codes == 0 => {
                    text.push_str(&of);
                    if text.len() > LONGEST {
                        return Err(self.wrong("a segment of more than 64 MiB"));
                    }
                }
                Token::End => return Ok(text),
                _ => {}
            }
        }
    }

    fn wrong(&self, message: &str) -> Error {
        Error::line(self.xml.line(), message)
    }

    fn no_pairs(&self) -> Error {
        let [source, target] = &self.languages;
        let met: Vec<&str> = self.met.iter().map(String::as_str).collect();
        Error::Document(match met.as_slice() {
            [] => "has no translation units".to_owned(),
            _ => format!(
                "has no unit with both {source} and {target}; its languages are {}",
                met.join(", ")
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str, languages: [&str; 2]) -> Result<Vec<[String; 2]>> {
        let mut tmx = Tmx::new(text.as_bytes(), languages)?;
        let mut pairs = Vec::new();
        while let Some(pair) = tmx.next_pair()? {
            pairs.push(pair);
        }
        Ok(pairs)
    }

    const MEMORY: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header creationtool="x" srclang="en-US" datatype="plaintext"/>
<body>
<tu tuid="1"><note>a note</note>
  <tuv xml:lang="EN-US"><seg>Click <bpt i="1">&lt;b></bpt><hi type="x">here</hi><ept i="1">&lt;/b></ept>
    now &amp; <ph><sub>not this</sub></ph>then.</seg></tuv>
  <tuv xml:lang="de"><seg>Hier klicken.</seg></tuv>
  <tuv xml:lang="de-AT"><seg>Da klicken.</seg></tuv>
</tu>
<tu><tuv lang="en"><seg>Only English</seg></tuv></tu>
<tu><tuv lang="de_DE"><seg>Zwei</seg></tuv><tuv lang="en"><seg>Two</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg/></tuv><tuv xml:lang="de"><seg>leer</seg></tuv></tu>
</body></tmx>"#;

    #[test]
    fn languages_are_chosen_and_codes_dropped() {
        let found = pairs(MEMORY, ["en", "de"]).unwrap();
        let expected = [["Click here now & then.", "Hier klicken."], ["Two", "Zwei"]]
            .map(|pair| pair.map(str::to_owned));
        assert_eq!(found, expected);
        let memory = r#"<tmx><body><tu>
<tuv xml:lang="pt-BR"><seg>Oi<ph type="lb">&lt;br></ph>você</seg></tuv>
<tuv xml:lang="pt"><seg>Olá<ph x="1" type="lb"/>tu</seg></tuv></tu></body></tmx>"#;
        let variants = ["Oi você", "Olá tu"].map(str::to_owned);
        let [brazil, portugal] = variants;
        let turned = [portugal.clone(), brazil.clone()];
        assert_eq!(pairs(memory, ["pt-BR", "pt"]).unwrap(), [[brazil, portugal]]);
        assert_eq!(pairs(memory, ["pt", "pt-BR"]).unwrap(), [turned]);
        assert_eq!(pairs(MEMORY, ["de-AT", "en-us"]).unwrap()[0][0], "Da klicken.");
    }

    #[test]
    fn faults_say_what_there_is() {
        for (text, said) in [
            (MEMORY.to_owned(), "no unit with both en and fr; its languages are EN-US, de, de-AT"),
            (MEMORY.replace("</tmx>", ""), "line 14: the file ends before"),
            (MEMORY.replace(" xml:lang=\"EN-US\"", ""), "line 6: a <tuv> without"),
            ("\n<html/>".to_owned(), "line 2: begins with <html>, but <tmx>"),
            ("<tmx><body/></tmx>".to_owned(), "has no translation units"),
        ] {
            let error = pairs(&text, ["en", "fr"]).unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
