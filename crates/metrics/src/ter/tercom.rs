//! Normalisation of Tercom (the original program for TER), before words are compared.

use std::borrow::Cow;

use crate::ter::Ter;
use crate::text;
use crate::text::rewriting::{
    Buffers, ENTITIES, isolate, replace_all, western_marks, western_stops,
};

/// Replacements that join lines. In Tercom, the dash of a divided word follows the line break; in
/// mteval, it comes before the line break.
const LINE_MARKUP: [(&str, &str); 2] = [("\n-", ""), ("\n", " ")];

impl Ter {
    /// Splits a line into words.
    pub fn tokenize(&self, line: &str) -> Vec<String> {
        let mut buffers = Buffers::default();
        text::split(&self.rewrite(line, &mut buffers)).map(str::to_owned).collect()
    }

    /// Rewrites the line so that whitespace separates its words.
    pub(crate) fn rewrite<'a>(&self, line: &'a str, buffers: &'a mut Buffers) -> Cow<'a, str> {
        let line = text::fold_case(text::trim_end(line), !self.case_sensitive);
        if line.is_empty() || !(self.normalized || self.no_punct) {
            return line;
        }
        if self.normalized {
            let line = replace_all(&line, &LINE_MARKUP);
            let line = replace_all(&line, &ENTITIES);
            let front = buffers.start();
            front.push(' ');
            front.push_str(&line);
            front.push(' ');
            western_marks(buffers);
            buffers.pass(|input, output| output.push_str(&replace_all(input, &[("'s ", " 's ")])));
            western_stops(buffers);
            if self.asian_support {
                buffers.pass(|input, output| {
                    isolate(input, output, |character| {
                        is_asian(character) || is_asian_mark(character)
                    })
                });
            }
        } else {
            buffers.start().push_str(&line);
        }
        if self.no_punct {
            let removed =
                |character| is_mark(character) || self.asian_support && is_asian_mark(character);
            buffers.pass(|input, output| {
                output.extend(input.chars().filter(|&character| !removed(character)))
            });
        }
        Cow::Borrowed(buffers.text())
    }

    /// Rewrites a reference, twice as in sacreBLEU. The second pass also rewrites text that the
    /// first pass has separated by unusual spaces or decoded from an entity.
    pub(crate) fn rewrite_reference<'a>(
        &self,
        line: &'a str,
        buffers: &'a mut Buffers,
    ) -> Cow<'a, str> {
        if !(self.normalized || self.no_punct) {
            return self.rewrite(line, buffers);
        }
        let words: Vec<String> =
            text::split(&self.rewrite(line, buffers)).map(str::to_owned).collect();
        Cow::Owned(self.rewrite(&words.join(" "), buffers).into_owned())
    }
}

/// True if `no_punct` removes a character from texts in any language.
fn is_mark(character: char) -> bool {
    matches!(character, '.' | ',' | '?' | ':' | ';' | '!' | '"' | '(' | ')')
}

/// True if a character is East Asian or full-width punctuation.
fn is_asian_mark(character: char) -> bool {
    matches!(
        character,
        '\u{3001}' | '\u{3002}' | '\u{3008}'..='\u{3011}' | '\u{3014}'..='\u{301f}' | '\u{ff61}'..='\u{ff65}' | '\u{30fb}'
            | '\u{ff0e}' | '\u{ff0c}' | '\u{ff1f}' | '\u{ff1a}' | '\u{ff1b}' | '\u{ff01}' | '\u{ff02}' | '\u{ff08}' | '\u{ff09}'
    )
}

/// True if `asian_support` makes a character a word.
///
/// The ranges are those that sacreBLEU actually tests. The range for enclosed letters is U+3200 to
/// U+3F22, wider than their Unicode block. The rules for kana match only at the start of a line,
/// where a space has been put before. So they never apply, and kana stay together.
fn is_asian(character: char) -> bool {
    matches!(
        character,
        '\u{2e80}'..='\u{2eff}'
            | '\u{31c0}'..='\u{31ef}'
            | '\u{3200}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{fe30}'..='\u{fe4f}'
    )
}
