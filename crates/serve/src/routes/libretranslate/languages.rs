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

/// Languages that LibreTranslate names with two letters, each with its other codes (BCP 47).
const ALIASES: [(&str, &[&str]); 4] = [
    ("zh", &["zh-hans", "zh-cn", "zh-sg", "zh-hans-cn", "zh-hans-sg", "cmn", "cmn-hans"]),
    ("zt", &["zh-hant", "zh-tw", "zh-hk", "zh-mo", "zh-hant-tw", "zh-hant-hk", "cmn-hant"]),
    ("pb", &["pt-br"]),
    ("pt", &["pt-pt"]),
];

/// Returns the canonical code of a language: lower case, hyphens, and one code for all synonyms.
fn canonical(code: &str) -> String {
    let code = code.trim().to_ascii_lowercase().replace('_', "-");
    let alias = ALIASES.iter().find(|(_, others)| others.contains(&code.as_str()));
    alias.map_or(code, |(own, _)| (*own).to_owned())
}

/// Returns how well the code `own` of a run's language matches the requested code `asked`: 0 is
/// best, and `None` means that they name different languages. A requested region is ignored, as in
/// `en-US`, unless the region makes a separate language, as in `pt-BR` and `zh-TW`.
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

/// Returns the English name of a language, or its code if the name is unknown.
pub(super) fn name(code: &str) -> &str {
    let own = canonical(code);
    NAMES.iter().find(|(known, _)| *known == own).map_or(code, |(_, name)| name)
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
}
