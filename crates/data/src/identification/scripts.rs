//! Scripts of languages.

use super::codes;

/// Letters of a script, as ranges of Unicode.
type Script = &'static [(char, char)];

const LATIN: Script = &[('A', 'Z'), ('a', 'z'), ('\u{aa}', '\u{24f}'), ('\u{1e00}', '\u{1eff}')];
const CYRILLIC: Script = &[('\u{400}', '\u{52f}')];
const GREEK: Script = &[('\u{370}', '\u{3ff}'), ('\u{1f00}', '\u{1fff}')];
const ARMENIAN: Script = &[('\u{530}', '\u{58f}')];
const HEBREW: Script = &[('\u{590}', '\u{5ff}')];
const ARABIC: Script = &[('\u{600}', '\u{6ff}'), ('\u{750}', '\u{77f}'), ('\u{fb50}', '\u{fefc}')];
const DEVANAGARI: Script = &[('\u{900}', '\u{97f}')];
const BENGALI: Script = &[('\u{980}', '\u{9ff}')];
const GURMUKHI: Script = &[('\u{a00}', '\u{a7f}')];
const GUJARATI: Script = &[('\u{a80}', '\u{aff}')];
const ORIYA: Script = &[('\u{b00}', '\u{b7f}')];
const TAMIL: Script = &[('\u{b80}', '\u{bff}')];
const TELUGU: Script = &[('\u{c00}', '\u{c7f}')];
const KANNADA: Script = &[('\u{c80}', '\u{cff}')];
const MALAYALAM: Script = &[('\u{d00}', '\u{d7f}')];
const SINHALA: Script = &[('\u{d80}', '\u{dff}')];
const THAI: Script = &[('\u{e00}', '\u{e7f}')];
const LAO: Script = &[('\u{e80}', '\u{eff}')];
const TIBETAN: Script = &[('\u{f00}', '\u{fff}')];
const MYANMAR: Script = &[('\u{1000}', '\u{109f}')];
const GEORGIAN: Script = &[('\u{10a0}', '\u{10ff}'), ('\u{1c90}', '\u{1cbf}')];
const ETHIOPIC: Script = &[('\u{1200}', '\u{139f}')];
const KHMER: Script = &[('\u{1780}', '\u{17ff}')];
const HAN: Script =
    &[('\u{3005}', '\u{3007}'), ('\u{3400}', '\u{9fff}'), ('\u{20000}', '\u{323af}')];
const HAN_AND_KANA: Script = &[
    ('\u{3005}', '\u{3007}'),
    ('\u{3040}', '\u{30ff}'),
    ('\u{3400}', '\u{9fff}'),
    ('\u{20000}', '\u{323af}'),
];
const HANGUL: Script =
    &[('\u{1100}', '\u{11ff}'), ('\u{3130}', '\u{318f}'), ('\u{ac00}', '\u{d7af}')];

/// Languages in Latin script.
const IN_LATIN: &str = "af az br ca cs cy da de en eo es et eu fi fr ga gd gl hr hu id is it lt lv \
    ms nb nl nn pl pt ro sk sl sq sv sw tl tr uz vi";

/// Script of a language; `None` if the language is unknown or has several scripts.
fn script_of(code: &str) -> Option<Script> {
    Some(match codes::canonical(code).as_str() {
        "be" | "bg" | "kk" | "ky" | "mk" | "mn" | "ru" | "tg" | "uk" => CYRILLIC,
        "el" => GREEK,
        "hy" => ARMENIAN,
        "he" | "yi" => HEBREW,
        "ar" | "fa" | "ps" | "ug" | "ur" => ARABIC,
        "hi" | "mr" | "ne" => DEVANAGARI,
        "as" | "bn" => BENGALI,
        "pa" => GURMUKHI,
        "gu" => GUJARATI,
        "or" => ORIYA,
        "ta" => TAMIL,
        "te" => TELUGU,
        "kn" => KANNADA,
        "ml" => MALAYALAM,
        "si" => SINHALA,
        "th" => THAI,
        "lo" => LAO,
        "bo" | "dz" => TIBETAN,
        "my" => MYANMAR,
        "ka" => GEORGIAN,
        "am" | "ti" => ETHIOPIC,
        "km" => KHMER,
        "zh" => HAN,
        "ja" => HAN_AND_KANA,
        "ko" => HANGUL,
        known if IN_LATIN.split(' ').any(|one| one == known) => LATIN,
        _ => return None,
    })
}

/// Counts the letters of texts that belong to the script of one language. The script is looked up
/// only once, which is fast for many texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnLetters {
    script: Option<Script>,
}

impl OwnLetters {
    /// Looks up the script of the language with the code `code`.
    pub(crate) fn for_language(code: &str) -> Self {
        Self { script: script_of(code) }
    }

    /// Share of a text's letters that belong to the language's script. `None` if the text has no
    /// letters; otherwise 1 if the script is unknown.
    pub(crate) fn share(self, text: &str) -> Option<f64> {
        let is_own = |letter: char| {
            self.script.is_none_or(|script| script.iter().any(|&(a, z)| (a..=z).contains(&letter)))
        };
        let (mut count, mut all) = (0_usize, 0_usize);
        for letter in text.chars().filter(|character| character.is_alphabetic()) {
            all += 1;
            count += usize::from(is_own(letter));
        }
        (all > 0).then(|| count as f64 / all as f64)
    }
}

/// Share of a text's letters that belong to the script of the language with the code `code`. It is
/// 0 if the text has no letters, and otherwise 1 if the script is unknown.
#[must_use]
pub fn own_letters(code: &str, text: &str) -> f64 {
    OwnLetters::for_language(code).share(text).unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_those_of_a_language() {
        for (code, text, share) in [
            ("en", "I love you, 7 times.", 1.0),
            ("zh", "我爱你。", 1.0),
            ("en", "我爱你。", 0.0),
            ("zh-Hant", "我愛you", 0.4),
            ("ja", "これは本", 1.0),
            ("ru", "Привет", 1.0),
            ("rus_Cyrl", "Привет", 1.0),
            ("xx", "Привет 我", 1.0),
            ("en", "1 2 3", 0.0),
        ] {
            assert!((own_letters(code, text) - share).abs() < 1e-9, "{code} {text}");
        }
    }
}
