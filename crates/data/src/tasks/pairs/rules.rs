//! Rules by which pairs are dropped because of the content of their text: language, script, copies,
//! digits and case.

use super::digits::same_digits;
use super::modifiers::letters::is_ideographic;
use crate::identification::OwnLetters;
use crate::{CleaningConfig, Direction, DropReason, Error, LanguageIdentifier, Result};

/// The case of a text is compared only if at least this many of its letters have a case.
const SHOUTED: usize = 4;

/// Rules for the pairs of a corpus.
#[derive(Debug)]
pub struct TextRules {
    config: CleaningConfig,
    /// Letters of the script of the source language, and letters of the script of the target
    /// language.
    letters: [OwnLetters; 2],
    /// Indices of both languages in the language identifier, if it is used.
    languages: Option<[usize; 2]>,
    /// Tag of the corpus. Each source begins with it, although it is not part of the sentence.
    tag: String,
}

impl TextRules {
    /// Makes the rules for pairs in `direction`, whose sources begin with `tag`. `None` if no rule
    /// is configured.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if languages are to be identified, and the identifier does not know one of
    /// them.
    pub fn new(config: &CleaningConfig, direction: Direction, tag: &str) -> Result<Option<Self>> {
        if !config.has_text_rules() {
            return Ok(None);
        }
        let number = |code: &str| {
            let model = LanguageIdentifier::bundled();
            model.number_of(code).ok_or_else(|| Error::Config {
                key: "data.cleaning.other_language",
                message: format!(
                    "cannot identify the language {code:?}: set it to 0, or name one of {}",
                    model.languages().join(", ")
                ),
            })
        };
        let languages = match config.other_language > 0.0 {
            true => Some([number(&direction.from)?, number(&direction.to)?]),
            false => None,
        };
        let letters = [&direction.from, &direction.to].map(|code| OwnLetters::for_language(code));
        let (config, tag) = (config.clone(), tag.to_owned());
        Ok(Some(Self { config, letters, languages, tag }))
    }

    /// Checks the text of a pair.
    ///
    /// # Errors
    ///
    /// The reason why the pair must be dropped.
    pub fn check(&self, source: &str, target: &str) -> Result<(), DropReason> {
        let source = without_tag(source, &self.tag);
        let config = &self.config;
        let sides = [source, target];
        if config.drop_copies && is_copy(source, target) {
            return Err(DropReason::Copy);
        }
        if config.same_digits && !same_digits(source, target) {
            return Err(DropReason::Digits);
        }
        if config.same_case && is_shouted(source).zip(is_shouted(target)).is_some_and(differ) {
            return Err(DropReason::Case);
        }
        if config.min_own_script > 0.0 {
            let is_other = |(text, letters): (&str, OwnLetters)| {
                letters.share(text).is_some_and(|share| share < config.min_own_script)
            };
            if sides.into_iter().zip(self.letters).any(is_other) {
                return Err(DropReason::Script);
            }
        }
        if let Some(languages) = self.languages {
            let is_other = |(text, language): (&str, usize)| {
                LanguageIdentifier::bundled().probabilities(text).is_some_and(|probabilities| {
                    f64::from(1.0 - probabilities[language]) >= config.other_language
                })
            };
            if sides.into_iter().zip(languages).any(is_other) {
                return Err(DropReason::OtherLanguage);
            }
        }
        Ok(())
    }
}

/// Source without `tag`, the tag of its corpus.
pub(crate) fn without_tag<'a>(source: &'a str, tag: &str) -> &'a str {
    source.strip_prefix(tag).unwrap_or(source).trim_start()
}

fn differ((one, other): (bool, bool)) -> bool {
    one != other
}

/// True if both texts have the same letters and digits in the same order. Case is ignored.
fn is_copy(source: &str, target: &str) -> bool {
    fn letters(text: &str) -> impl Iterator<Item = char> {
        text.chars().filter(|one| one.is_alphanumeric()).flat_map(char::to_lowercase)
    }
    letters(source).eq(letters(target)) && letters(source).any(char::is_alphabetic)
}

/// True if a text is entirely in capitals; `None` if too few of its letters have a case.
fn is_shouted(text: &str) -> Option<bool> {
    let (mut upper, mut lower) = (0, 0);
    for letter in text.chars().filter(|&one| !is_ideographic(one)) {
        upper += usize::from(letter.is_uppercase());
        lower += usize::from(letter.is_lowercase());
    }
    (upper + lower >= SHOUTED).then_some(lower == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reason(change: impl FnOnce(&mut CleaningConfig), pair: [&str; 2]) -> Option<DropReason> {
        let mut config = CleaningConfig::default();
        change(&mut config);
        let rules = TextRules::new(&config, Direction::new("en", "de"), "<news>");
        rules.expect("languages").expect("rules").check(pair[0], pair[1]).err()
    }

    #[test]
    fn each_rule_drops_what_it_says_and_nothing_else() {
        let good = [
            "<news> The 2 old houses stand near the river.",
            "Die 2 alten Häuser stehen am Fluss.",
        ];
        let copies = |config: &mut CleaningConfig| config.drop_copies = true;
        let digits = |config: &mut CleaningConfig| config.same_digits = true;
        let case = |config: &mut CleaningConfig| config.same_case = true;
        let script = |config: &mut CleaningConfig| config.min_own_script = 0.5;
        let language = |config: &mut CleaningConfig| config.other_language = 0.9;
        for (change, pair, expected) in [
            (
                &copies as &dyn Fn(&mut CleaningConfig),
                ["<news> Hotel Adler!", "hotel adler"],
                DropReason::Copy,
            ),
            (&digits, ["In 1999 it rained.", "Es regnete 1989."], DropReason::Digits),
            (&case, ["STOP TALKING", "Hör auf zu reden"], DropReason::Case),
            (&script, ["The house", "Дом"], DropReason::Script),
            (
                &language,
                ["The house stands near the river.", "La casa está cerca del río grande."],
                DropReason::OtherLanguage,
            ),
            (&language, ["Das alte Haus steht am Fluss.", good[1]], DropReason::OtherLanguage),
        ] {
            assert_eq!(reason(change, pair), Some(expected), "{pair:?}");
            assert_eq!(reason(change, good), None, "{expected:?}");
        }
        // Digits are compared by value, in any script and order. A pair without letters is not a
        // copy.
        assert_eq!(reason(digits, ["1 and 23", "２３ und 1"]), None);
        assert_eq!(reason(copies, ["12:30", "12:30"]), None);
        assert_eq!(reason(case, ["OK", "in Ordnung"]), None);
    }

    #[test]
    fn unknown_languages_are_named() {
        let config = CleaningConfig { other_language: 0.9, ..CleaningConfig::default() };
        let error = TextRules::new(&config, Direction::new("en", "xx"), "").expect_err("refused");
        assert!(error.to_string().contains("cannot identify the language \"xx\""), "{error}");
        let none = TextRules::new(&CleaningConfig::default(), Direction::new("aa", "bb"), "");
        assert!(none.expect("no rules").is_none());
    }
}
