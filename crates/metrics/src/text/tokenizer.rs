//! The tokenizers that BLEU applies before counting words.
//!
//! Each tokenizer rewrites a line so that splitting at whitespace yields its tokens.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use crate::error::{MetricError, Result};
use crate::text;
use crate::text::rewriting::{
    Buffers, ENTITIES, Side, isolate, replace_all, separate, western_marks, western_stops,
};

/// Division of a line into tokens; the `tok` field of a BLEU signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub enum Tokenizer {
    /// The mteval-v13a rules used by WMT: Western punctuation, ASCII digits.
    #[default]
    #[serde(rename = "13a")]
    V13a,
    /// Whitespace only, for text that is already tokenized.
    #[serde(rename = "none")]
    None,
    /// Every character that is not whitespace, as a token.
    #[serde(rename = "char")]
    Character,
    /// Each Chinese character as a token, everything else by the 13a rules.
    #[serde(rename = "zh")]
    Chinese,
    /// The mteval-v14 rules: Unicode punctuation and symbols.
    #[serde(rename = "intl")]
    International,
}

/// Markup that 13a replaces first: `<skipped>` and line joins.
const LINE_MARKUP: [(&str, &str); 3] = [("<skipped>", ""), ("-\n", ""), ("\n", " ")];

impl Tokenizer {
    /// Every tokenizer, in the order of their names in messages.
    pub const ALL: [Self; 5] =
        [Self::V13a, Self::None, Self::Character, Self::Chinese, Self::International];

    /// Name of the tokenizer in signatures.
    pub fn name(self) -> &'static str {
        match self {
            Self::V13a => "13a",
            Self::None => "none",
            Self::Character => "char",
            Self::Chinese => "zh",
            Self::International => "intl",
        }
    }

    /// Splits a line into tokens.
    pub fn tokenize(self, line: &str) -> Vec<String> {
        let mut buffers = Buffers::default();
        text::split(self.rewrite(line, &mut buffers)).map(str::to_owned).collect()
    }

    /// Rewrites the line so that whitespace separates its tokens.
    pub(crate) fn rewrite<'a>(self, line: &'a str, buffers: &'a mut Buffers) -> &'a str {
        match self {
            Self::None => return line,
            Self::V13a => {
                let line = replace_all(line, &LINE_MARKUP);
                let line = replace_all(&line, &ENTITIES);
                // The rules look at pairs of neighbouring characters. With a space at both ends of
                // the line, a punctuation mark there has two neighbours, too.
                let front = buffers.start();
                front.push(' ');
                front.push_str(&line);
                front.push(' ');
                western_marks(buffers);
                western_stops(buffers);
            }
            Self::Character => isolate(line, buffers.start(), |_| true),
            Self::Chinese => {
                // Unlike in 13a, no spaces are added at the ends of the line. So the rules that
                // separate a full stop from the character after it do not apply to a full stop at
                // the end.
                isolate(line.trim_matches(text::is_space), buffers.start(), is_chinese);
                western_marks(buffers);
                western_stops(buffers);
            }
            Self::International => {
                buffers.start().push_str(line);
                buffers.pass(|input, output| {
                    separate(input, output, Side::Second, |first, second| {
                        is_punctuation(second) && !is_number(first)
                    });
                });
                buffers.pass(|input, output| {
                    separate(input, output, Side::First, |first, second| {
                        is_punctuation(first) && !is_number(second)
                    });
                });
                buffers.pass(|input, output| isolate(input, output, is_symbol));
            }
        }
        buffers.text()
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Tokenizer {
    type Err = MetricError;

    fn from_str(name: &str) -> Result<Self> {
        if let Some(tokenizer) = Self::ALL.into_iter().find(|tokenizer| tokenizer.name() == name) {
            return Ok(tokenizer);
        }
        match UNSUPPORTED.into_iter().find(|(unsupported, ..)| *unsupported == name) {
            Some((name, needs, instead)) => {
                Err(MetricError::UnsupportedTokenizer { name, needs, instead })
            }
            None => Err(MetricError::UnknownName {
                kind: "tokenizer",
                name: name.to_owned(),
                choices: "13a, none, char, zh, intl",
            }),
        }
    }
}

/// Tokenizers of sacreBLEU that are not supported. For each of them: its name, the model or
/// dictionary that it needs, and what the user can do instead.
const UNSUPPORTED: [(&str, &str, &str); 6] = {
    const MECAB: &str = "split both sides into words with MeCab first and use `none`, use `char`, or score with sacreBLEU itself";
    const PIECES: &str = "split both sides into pieces with that model first and use `none`, use chrF, or score with sacreBLEU itself";
    [
        ("ja-mecab", "MeCab and its Japanese dictionary", MECAB),
        ("ko-mecab", "MeCab and its Korean dictionary", MECAB),
        ("spm", "the SentencePiece model of FLORES-101", PIECES),
        ("flores101", "the SentencePiece model of FLORES-101", PIECES),
        ("flores200", "the SentencePiece model of FLORES-200", PIECES),
        ("spBLEU-1K", "the SentencePiece model of spBLEU-1K", PIECES),
    ]
};

fn is_punctuation(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_punctuation() && !is_ascii_symbol(character);
    }
    character.general_category_group() == GeneralCategoryGroup::Punctuation
}

fn is_symbol(character: char) -> bool {
    if character.is_ascii() {
        return is_ascii_symbol(character);
    }
    character.general_category_group() == GeneralCategoryGroup::Symbol
}

fn is_number(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_digit();
    }
    character.general_category_group() == GeneralCategoryGroup::Number
}

fn is_ascii_symbol(character: char) -> bool {
    matches!(character, '$' | '+' | '<' | '=' | '>' | '^' | '`' | '|' | '~')
}

/// True if the tokenizer `zh` separates a character.
///
/// The ranges are those that sacreBLEU actually tests. In its source, the notation for Extension B
/// and the compatibility supplement selects U+2001 to U+2A6D and U+2F81 to U+2FA1. Scores agree
/// only with the same ranges. So general punctuation, arrows and box drawings are separated, and
/// the characters of plane 2 are not.
fn is_chinese(character: char) -> bool {
    matches!(
        character,
        '\u{2001}'..='\u{2a6d}'
            | '\u{2e80}'..='\u{2fdf}'
            | '\u{2ff0}'..='\u{303f}'
            | '\u{3100}'..='\u{312f}'
            | '\u{31a0}'..='\u{31bf}'
            | '\u{31c0}'..='\u{31ef}'
            | '\u{3200}'..='\u{4db5}'
            | '\u{4e00}'..='\u{9fbb}'
            | '\u{f900}'..='\u{fa2d}'
            | '\u{fa30}'..='\u{fa6a}'
            | '\u{fa70}'..='\u{fad9}'
            | '\u{fe10}'..='\u{fe1f}'
            | '\u{fe30}'..='\u{fe4f}'
            | '\u{ff00}'..='\u{ffef}'
    )
}
