//! Terms: words of the source with prescribed translations.

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use aho_corasick::AhoCorasick;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use taper_data::{Tokenizer, TokenizerPair, hexadecimal, read_text};
use taper_documents::is_unspaced;

use super::punctuation::is_cjk;

/// Largest file of terms, in bytes.
const LARGEST: u64 = 1 << 26;

/// Terms with their prescribed translations.
///
/// A line contains a term if it has the term's words as whole words; in scripts without spaces, the
/// term's characters suffice. A term in lower case matches any case: `λόγος` also `ΛΌΓΟΣ`, `straße`
/// also `STRASSE`, and `izmir` also `İZMİR`. Of terms that overlap in a line, only the first one
/// counts, and of terms that begin at the same position, only the longest one.
pub struct Terms {
    terms: Vec<Term>,
    /// Automaton that finds terms in a text, after both have been [`Folded`].
    finder: AhoCorasick,
    /// SHA-256 of the text from which the terms were read.
    hash: String,
}

/// Term with its prescribed translation.
#[derive(Debug)]
struct Term {
    source: String,
    /// True if the term matches only text in the same case.
    has_case: bool,
    target: String,
    /// `target` as the tokenizer normalises it, for example in lower case; `None` if normalisation
    /// does not change it.
    written: Option<String>,
    tokens: Vec<u32>,
}

impl fmt::Debug for Terms {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_tuple("Terms").field(&self.hash).finish()
    }
}

impl Terms {
    /// Reads terms, one on each line: a term, a tab and its translation. Empty lines are skipped.
    ///
    /// # Errors
    /// If a line has another form, a term has two translations, or the target vocabulary cannot
    /// spell a translation. The message has the file and the line.
    pub fn read(path: &Path, tokenizers: &TokenizerPair) -> Result<Self> {
        let text = read_text(path, LARGEST)?;
        let terms = Self::parse(&text, &format!("{}, ", path.display()), tokenizers)?;
        terms.with_context(|| {
            format!("{}: no terms: each line is a term, a tab and its translation", path.display())
        })
    }

    /// Terms in `text`, which has the format of [`Self::read`]; `None` if it has no terms.
    ///
    /// # Errors
    /// See [`Self::read`]. The message begins with `place`, followed by the number of the line.
    pub fn parse(text: &str, place: &str, tokenizers: &TokenizerPair) -> Result<Option<Self>> {
        let mut terms: Vec<Term> = Vec::new();
        let mut lines: HashMap<String, usize> = HashMap::new();
        for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
            let add = || -> Result<Option<Term>> {
                let (source, target) = parse(line)?;
                if let Some(&before) = lines.get(&source) {
                    if terms[before].target == target {
                        return Ok(None);
                    }
                    bail!(
                        "{source:?} has another translation before, {:?}; keep only one of the two",
                        terms[before].target
                    );
                }
                Term::new(source, target, tokenizers.target()).map(Some)
            };
            let added = add().with_context(|| format!("{place}line {number}"))?;
            if let Some(term) = added {
                lines.insert(term.source.clone(), terms.len());
                terms.push(term);
            }
        }
        if terms.is_empty() {
            return Ok(None);
        }
        let finder = AhoCorasick::new(terms.iter().map(|term| Folded::new(&term.source).text))
            .with_context(|| format!("{place}too many terms"))?;
        let hash = hexadecimal(&Sha256::digest(text.as_bytes()));
        Ok(Some(Self { terms, finder, hash }))
    }

    /// Indices of the terms that occur in a text, each once, in the order of their first
    /// occurrences.
    pub(super) fn in_text(&self, text: &str) -> Vec<usize> {
        let folded = Folded::new(text);
        let occurrences = self
            .finder
            .find_overlapping_iter(&folded.text)
            .filter_map(|one| Some((one.pattern().as_usize(), folded.range(one.range())?)));
        let whole = occurrences.filter(|(number, range)| {
            is_whole(text, range.clone()) && self.terms[*number].matches(&text[range.clone()])
        });
        let mut occurrences: Vec<_> = whole.collect();
        // Among terms with the same range in the text, those that match only their own case come
        // first.
        occurrences.sort_by_key(|(number, range)| {
            (range.start, std::cmp::Reverse((range.end, self.terms[*number].has_case)))
        });
        let (mut numbers, mut end) = (Vec::new(), 0);
        for (number, range) in occurrences {
            if range.start >= end {
                end = range.end;
                if !numbers.contains(&number) {
                    numbers.push(number);
                }
            }
        }
        numbers
    }

    /// Translations of the terms with the indices `numbers` that are missing in `text`, each once:
    /// several terms can have the same translation.
    pub(super) fn missing<'t>(
        &'t self,
        numbers: &'t [usize],
        text: &'t str,
    ) -> impl Iterator<Item = &'t str> {
        let terms = numbers.iter().enumerate().filter_map(|(place, &number)| {
            let term = &self.terms[number];
            let is_first =
                numbers[..place].iter().all(|&before| self.terms[before].target != term.target);
            is_first.then_some(term)
        });
        let has = |term: &&Term| {
            let written = term.written.as_deref();
            text.contains(&term.target) || written.is_some_and(|written| text.contains(written))
        };
        terms.filter(move |term| !has(term)).map(|term| term.target.as_str())
    }

    /// Tokens of the translations of the terms with the indices `numbers`, each translation once.
    pub(super) fn phrases(&self, numbers: &[usize]) -> Vec<Vec<u32>> {
        let mut phrases: Vec<&Vec<u32>> = Vec::new();
        for &number in numbers {
            let tokens = &self.terms[number].tokens;
            if !phrases.contains(&tokens) {
                phrases.push(tokens);
            }
        }
        phrases.into_iter().cloned().collect()
    }
}

/// Returns the term and its translation from a line with a term, a tab and the translation.
fn parse(line: &str) -> Result<(String, String)> {
    let parts: Vec<&str> = line.split('\t').map(str::trim).collect();
    match parts[..] {
        [source, target] if !source.is_empty() && !target.is_empty() => {
            Ok((source.to_owned(), target.to_owned()))
        }
        _ => bail!("expected a term, a tab and its translation"),
    }
}

impl Term {
    fn new(source: String, target: String, tokenizer: &Tokenizer) -> Result<Self> {
        let tokens = within_text(&target, tokenizer)?;
        if tokens.iter().any(|&id| tokenizer.is_unknown(id)) {
            bail!("the target vocabulary cannot spell {target:?}");
        }
        if tokens.iter().any(|&id| tokenizer.is_special(id)) {
            bail!("{target:?} has special tokens, which a translation gets automatically");
        }
        let written = tokenizer.decode(&tokens)?.trim().to_owned();
        let written = (written != target).then_some(written);
        let has_case = has_case(&source);
        Ok(Self { source, has_case, target, written, tokens })
    }

    /// Whether the term matches `part` of a text, which is the same as the term when both are
    /// [`Folded`].
    fn matches(&self, part: &str) -> bool {
        if self.has_case {
            return part == self.source;
        }
        // `SS` can stand for `ß`, but `ss` cannot: `Masse` and `Maße` are different words.
        !part.chars().any(char::is_lowercase)
            || part.chars().flat_map(lower).eq(self.source.chars().flat_map(lower))
    }
}

/// Tokens that `text` has when it comes after other words.
fn within_text(text: &str, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let (before, mark) = match text.starts_with(is_cjk) {
        true => ("，", "，".len()),
        false => (", ", ",".len()),
    };
    let whole = tokenizer.encode_text(&format!("{before}{text}"))?;
    let first = whole.bytes().partition_point(|token| token.end <= mark);
    let is_apart = whole.bytes().get(first).is_some_and(|token| token.start >= mark);
    if is_apart { Ok(whole.ids()[first..].to_vec()) } else { Ok(tokenizer.encode(text)?) }
}

/// Whether a term has a character that is not in lower case.
fn has_case(term: &str) -> bool {
    term.chars().any(|one| !one.to_lowercase().eq([one]))
}

/// Lower case of a character, with a single form of each letter: `σ` also for the `ς` at the end of
/// a word, because both have the capital `Σ`, and `i` also for the Turkish capital `İ`.
fn lower(character: char) -> impl Iterator<Item = char> {
    let character = match character {
        'ς' => 'σ',
        'İ' => 'i',
        other => other,
    };
    character.to_lowercase()
}

/// Text in [lower case](lower), with `ss` for each `ß`, because the capital of `ß` is usually `SS`.
struct Folded {
    text: String,
    /// For each character of the original text, its byte position in this text and in the original.
    /// The last entry has the lengths of both texts.
    places: Vec<(usize, usize)>,
}

impl Folded {
    fn new(original: &str) -> Self {
        let (mut text, mut places) = (String::with_capacity(original.len()), Vec::new());
        for (at, character) in original.char_indices() {
            places.push((text.len(), at));
            for one in lower(character) {
                match one {
                    'ß' => text.push_str("ss"),
                    other => text.push(other),
                }
            }
        }
        places.push((text.len(), original.len()));
        Self { text, places }
    }

    /// Byte range in the original text of the byte range `part` of this text; `None` if it begins
    /// or ends within a character of the original.
    fn range(&self, part: std::ops::Range<usize>) -> Option<std::ops::Range<usize>> {
        let place = |at: usize| {
            let index = self.places.binary_search_by_key(&at, |place| place.0).ok()?;
            Some(self.places[index].1)
        };
        Some(place(part.start)?..place(part.end)?)
    }
}

/// Whether the byte range `part` of a text neither begins nor ends within a word.
fn is_whole(text: &str, part: std::ops::Range<usize>) -> bool {
    let is_apart = |left: Option<char>, right: Option<char>| match (left, right) {
        (Some(left), Some(right)) => {
            let is_letter = |one: char| one.is_alphanumeric() && !is_unspaced(one);
            !is_letter(left) || !is_letter(right) || is_cjk(left) || is_cjk(right)
        }
        _ => true,
    };
    let inner = &text[part.clone()];
    is_apart(text[..part.start].chars().next_back(), inner.chars().next())
        && is_apart(inner.chars().next_back(), text[part.end..].chars().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(sources: &[&str]) -> Terms {
        let term = |&source: &&str| Term {
            source: source.to_owned(),
            has_case: has_case(source),
            target: format!("<{source}>"),
            written: None,
            tokens: Vec::new(),
        };
        let finder = AhoCorasick::new(sources.iter().map(|source| Folded::new(source).text));
        let terms = sources.iter().map(term).collect();
        Terms { terms, finder: finder.expect("few"), hash: String::new() }
    }

    #[test]
    fn terms_are_whole_words() {
        let terms = terms(&["cat", "New York", "york", "York Peppermint", "力学", "naïve"]);
        let terms_in = |text: &str| -> Vec<&str> {
            terms.in_text(text).into_iter().map(|number| &*terms.terms[number].source).collect()
        };
        assert_eq!(terms_in("The Cat sat, the CAT slept."), ["cat"]);
        assert!(terms_in("A catalog of cats").is_empty());
        assert_eq!(terms_in("catalog cat"), ["cat"]);
        // Of overlapping terms, the first one counts; of terms that begin at the same position, the
        // longest.
        assert_eq!(terms_in("In New York Peppermint"), ["New York"]);
        assert_eq!(terms_in("In York Peppermint"), ["York Peppermint"]);
        assert_eq!(terms_in("new york"), ["york"], "a term with capitals has this case only");
        assert_eq!(terms_in("量子力学的cat"), ["力学", "cat"]);
        assert_eq!(terms_in("İ NAÏVE"), ["naïve"]);
        assert!(terms_in("").is_empty());
    }

    #[test]
    fn terms_are_parts_of_a_text_without_blanks() {
        let terms = terms(&["ไทย", "ភាសា", "나"]);
        let count = |text: &str| terms.in_text(text).len();
        assert_eq!([count("ภาษาไทยดี"), count("រៀនភាសាខ្មែរ")], [1, 1]);
        // Korean has blanks between words.
        assert_eq!([count("나 는"), count("나는")], [1, 0]);
    }

    #[test]
    fn a_term_in_lower_case_matches_any_case_of_its_letters() {
        let terms = terms(&["λόγος", "straße", "masse", "maße", "izmir", "kelvin", "Σ"]);
        let terms_in = |text: &str| -> Vec<&str> {
            terms.in_text(text).into_iter().map(|number| &*terms.terms[number].source).collect()
        };
        for text in ["λόγος", "Λόγος", "ΛΌΓΟΣ", "(ΛΌΓΟΣ)"] {
            assert_eq!(terms_in(text), ["λόγος"], "{text}");
        }
        for text in ["straße", "Straße", "STRASSE", "STRAẞE", "STRAßE"] {
            assert_eq!(terms_in(text), ["straße"], "{text}");
        }
        // In lower case, `ss` does not match `ß`.
        assert!(terms_in("Strasse").is_empty());
        assert_eq!(terms_in("Masse und Maße"), ["masse", "maße"]);
        assert_eq!(terms_in("İzmir, İZMİR, IZMIR, izmir"), ["izmir"]);
        // The sign for kelvin has three bytes, but its lower case `k` has one.
        assert_eq!(terms_in("İ \u{212a}ELVIN und straße"), ["kelvin", "straße"]);
        assert_eq!(terms_in("Σ"), ["Σ"]);
        assert!(terms_in("σ").is_empty(), "a term with capitals has this case only");
        assert!(terms_in("ſtraſſe aß").is_empty());
    }

    #[test]
    fn translations_are_looked_for_as_they_are_written() {
        let mut terms = terms(&["cat", "dog"]);
        terms.terms[1].written = Some("<d>".to_owned());
        let missing = |text: &str| terms.missing(&[0, 1], text).collect::<Vec<_>>().join(" ");
        assert_eq!(missing("a <cat>"), "<dog>");
        assert_eq!(missing("a <d>"), "<cat>");
        assert_eq!(missing("<cat><dog>"), "");
    }

    #[test]
    fn a_translation_that_terms_share_is_missing_once() {
        let mut terms = terms(&["cat", "dog", "tomcat"]);
        terms.terms[2].target = "<cat>".to_owned();
        let missing: Vec<&str> = terms.missing(&[2, 0, 1], "none").collect();
        assert_eq!(missing, ["<cat>", "<dog>"]);
    }

    #[test]
    fn a_line_is_a_term_a_tab_and_its_translation() {
        assert_eq!(parse(" a b\tc ").expect("fine"), ("a b".to_owned(), "c".to_owned()));
        for line in ["a", "a\t", "\tb", "a\tb\tc"] {
            assert!(parse(line).is_err(), "{line:?}");
        }
    }
}
