//! Division of texts into words, for lengths, frequencies and flaws. The metrics use their own
//! tokenizers instead.

use std::collections::HashMap;

/// Whether a character counts as a word by itself, as in scripts without spaces.
fn stands_alone(character: char) -> bool {
    matches!(character,
        '\u{3040}'..='\u{30FF}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
        | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}')
}

/// Returns the words of a text in lower case: runs of letters and digits with their combining marks
/// and inner apostrophes or hyphens, and single characters of Chinese and Japanese.
pub(crate) fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut end = |word: &mut String| {
        let trimmed = word.trim_end_matches(['\'', '’', '-']);
        if !trimmed.is_empty() {
            words.push(trimmed.to_owned());
        }
        word.clear();
    };
    for character in text.chars() {
        if stands_alone(character) {
            end(&mut word);
            word.push(character);
            end(&mut word);
        } else if character.is_alphanumeric() || is_mark(character) {
            word.extend(character.to_lowercase());
        } else if !word.is_empty() && ['\'', '’', '-'].contains(&character) {
            word.push(character);
        } else {
            end(&mut word);
        }
    }
    end(&mut word);
    words
}

/// Whether a character is a combining mark, which Latin, Arabic, Devanagari and Thai have.
fn is_mark(character: char) -> bool {
    matches!(character, '\u{300}'..='\u{36F}' | '\u{610}'..='\u{61A}' | '\u{64B}'..='\u{65F}'
        | '\u{900}'..='\u{903}' | '\u{93A}'..='\u{94F}' | '\u{E31}'..='\u{E3A}')
}

/// Frequency of each word in a text.
#[derive(Debug, Clone, Default)]
pub(crate) struct Frequencies(HashMap<String, u64>);

impl Frequencies {
    /// Counts the words of a further text.
    pub(crate) fn add(&mut self, text: &str) {
        for word in words(text) {
            *self.0.entry(word).or_default() += 1;
        }
    }

    /// Returns the rarest word of a text, preceded by its frequency; `None` if the text has no
    /// words.
    pub(crate) fn rarest(&self, text: &str) -> Option<(u64, String)> {
        let count = |word: String| (self.0.get(&word).copied().unwrap_or(0), word);
        words(text).into_iter().map(count).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_runs_of_letters_and_single_chinese_characters() {
        assert_eq!(words("Don't panic, (B2B) é!"), ["don't", "panic", "b2b", "é"]);
        assert_eq!(words("我爱你。OK"), ["我", "爱", "你", "ok"]);
        assert_eq!(words(" … — "), Vec::<String>::new());
    }

    #[test]
    fn the_rarest_word_is_the_one_that_was_counted_least() {
        let mut frequencies = Frequencies::default();
        frequencies.add("a rose is a rose");
        frequencies.add("a thorn");
        assert_eq!(frequencies.rarest("A rose!"), Some((2, "rose".to_owned())));
        assert_eq!(frequencies.rarest("a weed"), Some((0, "weed".to_owned())));
        assert_eq!(frequencies.rarest("…"), None);
    }
}
