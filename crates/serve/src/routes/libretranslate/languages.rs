//! Codes and names of languages.

/// English name of each language, by its code in LibreTranslate.
const NAMES: [(&str, &str); 26] = [
    ("ar", "Arabic"),
    ("bg", "Bulgarian"),
    ("cs", "Czech"),
    ("da", "Danish"),
    ("de", "German"),
    ("el", "Greek"),
    ("en", "English"),
    ("es", "Spanish"),
    ("fi", "Finnish"),
    ("fr", "French"),
    ("he", "Hebrew"),
    ("hi", "Hindi"),
    ("it", "Italian"),
    ("ja", "Japanese"),
    ("ko", "Korean"),
    ("nl", "Dutch"),
    ("pb", "Portuguese (Brazil)"),
    ("pl", "Polish"),
    ("pt", "Portuguese"),
    ("ro", "Romanian"),
    ("ru", "Russian"),
    ("sv", "Swedish"),
    ("tr", "Turkish"),
    ("uk", "Ukrainian"),
    ("zh", "Chinese"),
    ("zt", "Chinese (traditional)"),
];

/// Codes of BCP 47 for languages with two letters in LibreTranslate, and other codes for the same.
const ALIASES: [(&str, &[&str]); 4] = [
    ("zh", &["zh-hans", "zh-cn", "zh-sg", "zh-hans-cn", "zh-hans-sg", "cmn", "cmn-hans"]),
    ("zt", &["zh-hant", "zh-tw", "zh-hk", "zh-mo", "zh-hant-tw", "zh-hant-hk", "cmn-hant"]),
    ("pb", &["pt-br"]),
    ("pt", &["pt-pt"]),
];

/// Canonical code of a language: lower case, hyphens, and one code for all synonyms.
fn canonical(code: &str) -> String {
    let code = code.trim().to_ascii_lowercase().replace('_', "-");
    let alias = ALIASES.iter().find(|(_, others)| others.contains(&code.as_str()));
    alias.map_or(code, |(own, _)| (*own).to_owned())
}

/// Rank of a run's language code for a requested one, 0 is best; `None` if it means another
/// language. A region may be omitted unless it makes a separate language (`en-US` has such a
/// region, `pt-BR` and `zh-TW` do not).
pub(super) fn answers_to(own: &str, asked: &str) -> Option<usize> {
    if own == asked {
        return Some(0);
    }
    let (own, asked) = (canonical(own), canonical(asked));
    if own == asked {
        return Some(1);
    }
    let language = asked.split('-').next().unwrap_or_default();
    (own == language && !ALIASES.iter().any(|(code, _)| *code == language)).then_some(2)
}

/// English name of a language, or its code if unknown.
pub(super) fn name(code: &str) -> &str {
    let own = canonical(code);
    NAMES.iter().find(|(known, _)| *known == own).map_or(code, |(_, name)| name)
}

/// Letters of scripts, as ranges of Unicode.
const LATIN: &[(char, char)] =
    &[('A', 'Z'), ('a', 'z'), ('\u{aa}', '\u{24f}'), ('\u{1e00}', '\u{1eff}')];
const CYRILLIC: &[(char, char)] = &[('\u{400}', '\u{52f}')];
const GREEK: &[(char, char)] = &[('\u{370}', '\u{3ff}'), ('\u{1f00}', '\u{1fff}')];
const HEBREW: &[(char, char)] = &[('\u{590}', '\u{5ff}')];
const ARABIC: &[(char, char)] =
    &[('\u{600}', '\u{6ff}'), ('\u{750}', '\u{77f}'), ('\u{fb50}', '\u{fefc}')];
const DEVANAGARI: &[(char, char)] = &[('\u{900}', '\u{97f}')];
const HAN: &[(char, char)] =
    &[('\u{3005}', '\u{3007}'), ('\u{3400}', '\u{9fff}'), ('\u{20000}', '\u{323af}')];
const HAN_AND_KANA: &[(char, char)] = &[
    ('\u{3005}', '\u{3007}'),
    ('\u{3040}', '\u{30ff}'),
    ('\u{3400}', '\u{9fff}'),
    ('\u{20000}', '\u{323af}'),
];
const HANGUL: &[(char, char)] =
    &[('\u{1100}', '\u{11ff}'), ('\u{3130}', '\u{318f}'), ('\u{ac00}', '\u{d7af}')];

/// Share of a text's letters that belong to the language's script: 1 if the script is unknown, 0
/// without letters.
pub(super) fn own_letters(code: &str, text: &str) -> f64 {
    let script = match canonical(code).as_str() {
        "ru" | "uk" | "bg" => CYRILLIC,
        "el" => GREEK,
        "he" => HEBREW,
        "ar" => ARABIC,
        "hi" => DEVANAGARI,
        "zh" | "zt" => HAN,
        "ja" => HAN_AND_KANA,
        "ko" => HANGUL,
        known if NAMES.iter().any(|(code, _)| *code == known) => LATIN,
        _ => &[('\0', char::MAX)],
    };
    let is_own = |letter: char| script.iter().any(|&(a, z)| (a..=z).contains(&letter));
    let (mut own, mut all) = (0_usize, 0_usize);
    for letter in text.chars().filter(|character| character.is_alphabetic()) {
        all += 1;
        own += usize::from(is_own(letter));
    }
    if all == 0 { 0.0 } else { own as f64 / all as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_that_mean_one_language_answer_to_each_other() {
        for (own, asked) in [
            ("zh", "zh-Hans"),
            ("zh-Hans", "zh"),
            ("zh", "ZH"),
            ("zh", "zh_CN"),
            ("zt", "zh-Hant"),
            ("zh-TW", "zh-hant"),
            ("pt-BR", "pb"),
            ("pb", "pt-br"),
            ("en", "EN"),
            ("en", "en-US"),
            ("de", "de_AT"),
            ("eng_Latn", "eng_Latn"),
        ] {
            assert!(answers_to(own, asked).is_some(), "{own} {asked}");
        }
        for (own, asked) in [
            ("zh", "zh-Hant"),
            ("zt", "zh"),
            ("pt", "pt-BR"),
            ("pb", "pt"),
            ("en", "de"),
            ("en-US", "en-GB"),
            ("zh", "zh-TW"),
            ("en", ""),
        ] {
            assert!(answers_to(own, asked).is_none(), "{own} {asked}");
        }
        assert!(answers_to("zh", "zh") < answers_to("zh-Hans", "zh"));
        assert_eq!(
            (name("zh-Hant"), name("EN"), name("aa")),
            ("Chinese (traditional)", "English", "aa")
        );
    }

    #[test]
    fn letters_are_those_of_a_language() {
        for (code, text, share) in [
            ("en", "I love you, 7 times.", 1.0),
            ("zh", "我爱你。", 1.0),
            ("en", "我爱你。", 0.0),
            ("zh-Hant", "我愛you", 0.4),
            ("ja", "これは本", 1.0),
            ("ru", "Привет", 1.0),
            ("xx", "Привет 我", 1.0),
            ("en", "1 2 3", 0.0),
        ] {
            assert!((own_letters(code, text) - share).abs() < 1e-9, "{code} {text}");
        }
    }
}
