//! Units of a text: the smallest parts that markup may enclose in a translation.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation;

use crate::placeholders::placeholders;
use crate::scripts::is_unspaced;

/// Units of a text: words, placeholders, and all other characters except blanks. In scripts without
/// blanks between words, each character is a unit. A character is what readers see as one, such as
/// a letter with its marks.
pub(crate) fn units(text: &str) -> Vec<Range<usize>> {
    let mut units: Vec<Range<usize>> = Vec::new();
    let mut at = 0;
    for placeholder in placeholders(text) {
        add_words(text, at..placeholder.start, &mut units);
        at = placeholder.end;
        units.push(placeholder);
    }
    add_words(text, at..text.len(), &mut units);
    units
}

/// Adds the units of a part of a text that has no placeholder.
fn add_words(text: &str, part: Range<usize>, units: &mut Vec<Range<usize>>) {
    // End of the last unit if the next letter belongs to it.
    let mut word = None;
    for (at, character) in text[part.clone()].grapheme_indices(true) {
        let start = part.start + at;
        let end = start + character.len();
        let Some(first) = character.chars().next().filter(|first| !first.is_whitespace()) else {
            continue;
        };
        let is_word = first.is_alphanumeric() && !is_unspaced(first);
        match units.last_mut() {
            Some(last) if is_word && word == Some(start) => last.end = end,
            _ => units.push(start..end),
        }
        word = is_word.then_some(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_characters_are_units() {
        for (text, expected) in [
            ("Ein Häus\u{308}chen, ja.", &["Ein", "Häus\u{308}chen", ",", "ja", "."][..]),
            ("我爱 你。", &["我", "爱", "你", "。"]),
            // Korean has blanks between words.
            ("나는 집에", &["나는", "집에"]),
            // Signs stay with their letters.
            ("हिन्दी में", &["हिन्दी", "में"]),
            ("ที่นี่", &["ที่", "นี่"]),
            ("ខ្មែរ", &["ខ្មែ", "រ"]),
            ("👩\u{200d}💻 ok", &["👩\u{200d}💻", "ok"]),
            ("a {name} %s b", &["a", "{name}", "%s", "b"]),
            ("(https://a.b/c?d)", &["(", "https://a.b/c?d", ")"]),
            ("", &[]),
        ] {
            let found: Vec<&str> = units(text).into_iter().map(|range| &text[range]).collect();
            assert_eq!(found, expected, "{text}");
        }
    }
}
