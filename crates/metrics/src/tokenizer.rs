//! The tokenizers that BLEU applies before counting words.
//!
//! Each rewrites a line so that splitting on whitespace yields its tokens. Rewrites run in
//! passes over characters; a pass that matches a pair consumes both characters, as a
//! substitution by regular expression does, because runs such as `...` depend on it.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use unicode_properties::{GeneralCategoryGroup, UnicodeGeneralCategory};

use crate::error::MetricError;
use crate::text;

/// How a line becomes tokens; the `tok` field of a BLEU signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum Tokenizer {
    /// The mteval-v13a rules used by WMT: Western punctuation, ASCII digits.
    #[default]
    #[serde(rename = "13a")]
    V13a,
    /// Whitespace only, for text that is tokenized already.
    #[serde(rename = "none")]
    None,
    /// Every character that is not whitespace.
    #[serde(rename = "char")]
    Character,
    /// Chinese characters singly, all else by the 13a rules.
    #[serde(rename = "zh")]
    Chinese,
    /// The mteval-v14 rules: Unicode punctuation and symbols.
    #[serde(rename = "intl")]
    International,
}

/// Two text buffers that passes write to in turn, kept to save allocations.
#[derive(Debug, Default, Clone)]
pub(crate) struct Buffers {
    front: String,
    back: String,
}

impl Buffers {
    /// Runs a pass from the front buffer into the back one, then swaps them.
    fn pass(&mut self, rewrite: impl FnOnce(&str, &mut String)) {
        self.back.clear();
        rewrite(&self.front, &mut self.back);
        std::mem::swap(&mut self.front, &mut self.back);
    }
}

impl Tokenizer {
    /// Every tokenizer, in the order of their names in messages.
    pub const ALL: [Self; 5] = [Self::V13a, Self::None, Self::Character, Self::Chinese, Self::International];

    /// The name that signatures use.
    pub fn name(self) -> &'static str {
        match self {
            Self::V13a => "13a",
            Self::None => "none",
            Self::Character => "char",
            Self::Chinese => "zh",
            Self::International => "intl",
        }
    }

    /// The tokens of a line.
    pub fn tokenize(self, line: &str) -> Vec<String> {
        let mut buffers = Buffers::default();
        text::split(self.rewrite(line, &mut buffers)).map(str::to_owned).collect()
    }

    /// The line rewritten so that whitespace separates its tokens.
    pub(crate) fn rewrite<'a>(self, line: &'a str, buffers: &'a mut Buffers) -> &'a str {
        buffers.front.clear();
        match self {
            Self::None => return line,
            Self::V13a => {
                // The padding gives a punctuation mark at either end a neighbour to match.
                buffers.front.push(' ');
                buffers.front.push_str(&unescape(line));
                buffers.front.push(' ');
                western(buffers);
            }
            Self::Character => isolate(line, &mut buffers.front, |_| true),
            Self::Chinese => {
                // Ends are stripped so that no padding is left: the rules for full stops
                // see the end of the line here, unlike in 13a.
                let line = line.trim_matches(text::is_space);
                isolate(line, &mut buffers.front, is_chinese);
                western(buffers);
            }
            Self::International => {
                buffers.front.push_str(line);
                buffers.pass(|input, output| {
                    separate(input, output, Side::Second, |first, second| is_punctuation(second) && !is_number(first));
                });
                buffers.pass(|input, output| {
                    separate(input, output, Side::First, |first, second| is_punctuation(first) && !is_number(second));
                });
                buffers.pass(|input, output| isolate(input, output, is_symbol));
            }
        }
        &buffers.front
    }
}

impl fmt::Display for Tokenizer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Tokenizer {
    type Err = MetricError;

    fn from_str(name: &str) -> Result<Self, MetricError> {
        Self::ALL.into_iter().find(|tokenizer| tokenizer.name() == name).ok_or_else(|| MetricError::UnknownName {
            kind: "tokenizer",
            name: name.to_owned(),
            choices: "13a, none, char, zh, intl",
        })
    }
}

/// Undoes the markup of the mteval formats: skipped marks, line joins, four entities.
///
/// The order matters: `&amp;lt;` becomes `<`.
fn unescape(line: &str) -> Cow<'_, str> {
    const REPLACEMENTS: [(&str, &str); 7] =
        [("<skipped>", ""), ("-\n", ""), ("\n", " "), ("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")];
    let mut line = Cow::Borrowed(line);
    for (from, to) in REPLACEMENTS {
        if line.contains(from) {
            line = Cow::Owned(line.replace(from, to));
        }
    }
    line
}

/// The passes that 13a and zh share: ASCII punctuation, then full stops and commas that
/// are not inside a number, then dashes after a digit.
fn western(buffers: &mut Buffers) {
    let is_stop = |character| matches!(character, '.' | ',');
    buffers.pass(|input, output| isolate(input, output, is_western_mark));
    buffers.pass(|input, output| {
        separate(input, output, Side::Second, |first, second| is_stop(second) && !first.is_ascii_digit());
    });
    buffers.pass(|input, output| {
        separate(input, output, Side::First, |first, second| is_stop(first) && !second.is_ascii_digit());
    });
    buffers.pass(|input, output| {
        separate(input, output, Side::Second, |first, second| second == '-' && first.is_ascii_digit());
    });
}

/// Puts a space on both sides of each character that is chosen.
fn isolate(input: &str, output: &mut String, chosen: impl Fn(char) -> bool) {
    for character in input.chars() {
        if chosen(character) {
            output.push(' ');
            output.push(character);
            output.push(' ');
        } else {
            output.push(character);
        }
    }
}

/// Which character of a matched pair is the mark to set apart.
#[derive(Clone, Copy)]
enum Side {
    First,
    Second,
}

/// Sets a mark apart from its neighbour in each matching pair, left to right, without overlap.
fn separate(input: &str, output: &mut String, side: Side, matches: impl Fn(char, char) -> bool) {
    let mut characters = input.chars().peekable();
    while let Some(first) = characters.next() {
        let Some(second) = characters.next_if(|&second| matches(first, second)) else {
            output.push(first);
            continue;
        };
        if matches!(side, Side::First) {
            output.push(' ');
        }
        output.push(first);
        output.push(' ');
        output.push(second);
        if matches!(side, Side::Second) {
            output.push(' ');
        }
    }
}

/// ASCII punctuation that always stands alone: all but the apostrophe, comma, dash and stop.
fn is_western_mark(character: char) -> bool {
    character.is_ascii_punctuation() && !matches!(character, '\'' | ',' | '-' | '.')
}

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

/// Whether zh sets a character apart.
///
/// The ranges are those that sacreBLEU in effect tests. It means to list Extension B and
/// the compatibility supplement, but writes them so that they select U+2001 to U+2A6D and
/// U+2F81 to U+2FA1; scores only agree if the same is done here, so general punctuation,
/// arrows and box drawings are set apart and the characters of plane 2 are not.
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
