//! Rewrites lines. The tokenizers of BLEU and TER are sequences of the rewrites in this module.
//!
//! A rewrite is a pass over the characters of a line. If a pass matches a pair of characters, it
//! continues after both, as a regular expression does. The treatment of sequences such as `...`
//! depends on this.

use std::borrow::Cow;

/// Entities that mteval and Tercom (the original programs for BLEU and TER) decode, one after the
/// other in this order: `&amp;lt;` becomes `<`.
pub(crate) const ENTITIES: [(&str, &str); 4] =
    [("&quot;", "\""), ("&amp;", "&"), ("&lt;", "<"), ("&gt;", ">")];

/// Two text buffers, to which passes write in turn. They are reused for each line, to save
/// allocations.
#[derive(Debug, Default, Clone)]
pub(crate) struct Buffers {
    front: String,
    back: String,
}

impl Buffers {
    /// Empties the front buffer for writing.
    pub(crate) fn start(&mut self) -> &mut String {
        self.front.clear();
        &mut self.front
    }

    /// Text after the passes so far.
    pub(crate) fn text(&self) -> &str {
        &self.front
    }

    /// Runs a pass from the front buffer into the back buffer, then swaps both.
    pub(crate) fn pass(&mut self, rewrite: impl FnOnce(&str, &mut String)) {
        self.back.clear();
        rewrite(&self.front, &mut self.back);
        std::mem::swap(&mut self.front, &mut self.back);
    }
}

/// Makes all replacements, one after another. Each replacement is a text to find and the text that
/// replaces it.
pub(crate) fn replace_all<'a>(line: &'a str, replacements: &[(&str, &str)]) -> Cow<'a, str> {
    let mut line = Cow::Borrowed(line);
    for (from, to) in replacements {
        if line.contains(from) {
            line = Cow::Owned(line.replace(from, to));
        }
    }
    line
}

/// Separates ASCII punctuation that always stands alone: all marks but the apostrophe, comma, dash
/// and full stop.
pub(crate) fn western_marks(buffers: &mut Buffers) {
    let is_mark = |character: char| {
        character.is_ascii_punctuation() && !matches!(character, '\'' | ',' | '-' | '.')
    };
    buffers.pass(|input, output| isolate(input, output, is_mark));
}

/// Separates full stops and commas that are not inside a number, then dashes after a digit.
pub(crate) fn western_stops(buffers: &mut Buffers) {
    let is_stop = |character| matches!(character, '.' | ',');
    buffers.pass(|input, output| {
        separate(input, output, Side::Second, |first, second| {
            is_stop(second) && !first.is_ascii_digit()
        });
    });
    buffers.pass(|input, output| {
        separate(input, output, Side::First, |first, second| {
            is_stop(first) && !second.is_ascii_digit()
        });
    });
    buffers.pass(|input, output| {
        separate(input, output, Side::Second, |first, second| {
            second == '-' && first.is_ascii_digit()
        });
    });
}

/// Puts a space on both sides of each selected character.
pub(crate) fn isolate(input: &str, output: &mut String, chosen: impl Fn(char) -> bool) {
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

/// Position, within a matched pair of characters, of the mark to separate.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    First,
    Second,
}

/// Separates a mark from its neighbours in each matching pair, from left to right. Pairs do not
/// overlap.
pub(crate) fn separate(
    input: &str,
    output: &mut String,
    side: Side,
    matches: impl Fn(char, char) -> bool,
) {
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
