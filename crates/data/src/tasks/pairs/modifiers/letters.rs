//! Distinguishes letters and punctuation marks of many scripts, for changes to texts.

/// Marks that end a sentence.
const SENTENCE_ENDS: &str = ".!?…。．！？｡।؟۔";

/// True if a character belongs to a script without spaces between words: Chinese characters and
/// Japanese letters, with their punctuation.
#[must_use]
pub fn is_ideographic(character: char) -> bool {
    matches!(character,
        '\u{3000}'..='\u{30ff}'
        | '\u{31f0}'..='\u{31ff}'
        | '\u{3400}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{9fff}'
        | '\u{f900}'..='\u{faff}'
        | '\u{ff00}'..='\u{ffef}'
        | '\u{20000}'..='\u{3ffff}')
}

/// The text without the punctuation at its end. `None` if it does not end in punctuation, or is
/// only punctuation.
pub(crate) fn without_end_punctuation(text: &str) -> Option<&str> {
    let text = text.trim_end();
    let shorter = text.trim_end_matches(|mark| SENTENCE_ENDS.contains(mark)).trim_end();
    (shorter.len() < text.len() && !shorter.is_empty()).then_some(shorter)
}

/// Joins two texts, with a space between them unless both are written without spaces.
pub(crate) fn joined(first: &str, second: &str) -> String {
    let (first, second) = (first.trim_end(), second.trim_start());
    let is_close = first.chars().next_back().is_some_and(is_ideographic)
        && second.chars().next().is_some_and(is_ideographic);
    let between = if is_close || first.is_empty() || second.is_empty() { "" } else { " " };
    format!("{first}{between}{second}")
}

/// The text with one word repeated. In a text without spaces, one Chinese or Japanese character is
/// repeated instead. `drawn`, a number in [0, 1), chooses the word or character. `None` if nothing
/// can be repeated.
pub(crate) fn with_doubled_word(text: &str, drawn: f64) -> Option<String> {
    let chosen = |count: usize| (drawn * count as f64) as usize;
    let mut words: Vec<&str> = text.split(' ').collect();
    if words.len() > 1 {
        let is_word = |&place: &usize| words[place].chars().all(char::is_alphabetic);
        let places: Vec<usize> = (0..words.len()).filter(|one| !words[*one].is_empty()).collect();
        let bare: Vec<usize> = places.iter().copied().filter(is_word).collect();
        // Words without punctuation marks are preferred, because the marks would be repeated too.
        let places = if bare.is_empty() { places } else { bare };
        let place = *places.get(chosen(places.len()))?;
        words.insert(place, words[place]);
        return Some(words.join(" "));
    }
    let is_letter = |one: char| is_ideographic(one) && one.is_alphabetic();
    let places: Vec<(usize, char)> =
        text.char_indices().filter(|(_, one)| is_letter(*one)).collect();
    let (place, letter) = *places.get(chosen(places.len()))?;
    let mut doubled = text.to_owned();
    doubled.insert(place, letter);
    Some(doubled)
}

/// The text with a capital at the start of each word.
pub(crate) fn title_case(text: &str) -> String {
    let mut is_inside = false;
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match is_inside {
            true => out.push(character),
            false => out.extend(character.to_uppercase()),
        }
        is_inside =
            character.is_alphanumeric() || (is_inside && (character == '\'' || character == '’'));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentences_lose_their_ends_and_join_as_their_script_does() {
        assert_eq!(without_end_punctuation("Really?! "), Some("Really"));
        assert_eq!(without_end_punctuation("真的吗？"), Some("真的吗"));
        for unchanged in ["no end", "...", "", "a) "] {
            assert_eq!(without_end_punctuation(unchanged), None, "{unchanged}");
        }
        assert_eq!(joined("One. ", " Two."), "One. Two.");
        assert_eq!(joined("一。", "二。"), "一。二。");
        assert_eq!(joined("一。", "Two."), "一。 Two.");
        assert_eq!(joined("", "Two."), "Two.");
    }

    #[test]
    fn a_word_is_there_twice_without_the_mark_behind_it() {
        assert_eq!(
            with_doubled_word("The cat sleeps.", 0.9).as_deref(),
            Some("The cat cat sleeps.")
        );
        assert_eq!(with_doubled_word("Well, no.", 0.0).as_deref(), Some("Well, Well, no."));
        assert_eq!(with_doubled_word("我喜欢猫。", 0.3).as_deref(), Some("我喜喜欢猫。"));
        for unchanged in ["", "Stop!", "。"] {
            assert_eq!(with_doubled_word(unchanged, 0.5), None, "{unchanged}");
        }
    }

    #[test]
    fn words_of_a_title_have_a_capital_each() {
        assert_eq!(title_case("the dog's über-bone isn’t 3d"), "The Dog's Über-Bone Isn’t 3d");
        assert_eq!(title_case("我是 iOS"), "我是 IOS");
    }
}
