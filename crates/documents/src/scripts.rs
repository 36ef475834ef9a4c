//! Scripts that are written without blanks between words.

/// Ranges of these scripts: Chinese and Japanese, and scripts of south-east Asia and Tibet. The
/// algorithm for line breaks (UAX #14) has the former in its class ID, and most of the latter in
/// its class SA.
const UNSPACED: [(char, char); 18] = [
    // Thai, Lao, Tibetan, Myanmar.
    ('\u{e00}', '\u{109f}'),
    // Khmer.
    ('\u{1780}', '\u{17ff}'),
    // Tai Le, New Tai Lue.
    ('\u{1950}', '\u{19df}'),
    // Tai Tham, Balinese.
    ('\u{1a20}', '\u{1aaf}'),
    ('\u{1b00}', '\u{1b7f}'),
    // Iteration marks and numerals of Chinese, Hiragana, Katakana, Bopomofo.
    ('\u{3005}', '\u{3007}'),
    ('\u{3021}', '\u{303f}'),
    ('\u{3041}', '\u{312f}'),
    ('\u{31a0}', '\u{31bf}'),
    ('\u{31f0}', '\u{31ff}'),
    // Chinese characters.
    ('\u{3400}', '\u{9fff}'),
    // Javanese and further letters of Myanmar, then Myanmar again and Tai Viet.
    ('\u{a980}', '\u{a9ff}'),
    ('\u{aa60}', '\u{aadf}'),
    ('\u{f900}', '\u{faff}'),
    // Narrow Katakana.
    ('\u{ff66}', '\u{ff9f}'),
    // Ahom, further letters of Japanese, further Chinese characters.
    ('\u{11700}', '\u{1174f}'),
    ('\u{1aff0}', '\u{1b16f}'),
    ('\u{20000}', '\u{3ffff}'),
];

/// True if a character is a letter of a script without blanks between words, such as Chinese,
/// Japanese, Thai, Lao, Khmer, Burmese or Tibetan. Korean has blanks between words.
///
/// ```
/// assert!("漢かカไລខမབ".chars().all(taper_documents::is_unspaced));
/// assert!(!"한aд1๑。".chars().any(taper_documents::is_unspaced));
/// ```
#[must_use]
pub fn is_unspaced(character: char) -> bool {
    let next = UNSPACED.partition_point(|&(_, last)| last < character);
    UNSPACED.get(next).is_some_and(|&(first, _)| first <= character) && character.is_alphabetic()
}

/// True for a letter or digit of a script with blanks between words.
pub(crate) fn is_spaced_letter(character: char) -> bool {
    character.is_alphanumeric() && !is_unspaced(character)
}

/// True for a letter or a punctuation mark of Chinese or Japanese, which have no blanks even
/// between sentences.
pub(crate) fn is_chinese_or_japanese(character: char) -> bool {
    character >= '\u{2e80}'
        && (matches!(character, '\u{3000}'..='\u{303f}' | '\u{ff00}'..='\u{ffef}')
            || is_unspaced(character) && !matches!(character, '\u{a980}'..='\u{aadf}'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_in_order() {
        assert!(UNSPACED.iter().all(|(first, last)| first <= last));
        assert!(UNSPACED.windows(2).all(|pair| pair[0].1 < pair[1].0));
    }

    #[test]
    fn scripts_without_blanks_are_told_from_others() {
        for text in [
            "中文",
            "々〆",
            "ひらがな",
            "カタカナー",
            "ｶﾀｶﾅ",
            "ㄅㄆ",
            "ภาษาไทย",
            "ພາສາລາວ",
            "ភាសា",
            "မန",
            "བད",
        ] {
            assert!(text.chars().all(is_unspaced), "{text}");
        }
        for text in [
            "한국어",
            "ᄒ",
            "ㅎ",
            "हिन्दी",
            "العربية",
            "Русский",
            "Ａ１",
            "、。「」",
            "១២",
            "๑",
            "၊။",
            "།",
            "។",
        ] {
            assert!(!text.chars().any(is_unspaced), "{text}");
        }
    }
}
