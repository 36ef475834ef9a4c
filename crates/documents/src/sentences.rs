//! Division of texts into sentences, by rules.
//!
//! A sentence ends after `.`, `!`, `?` or a similar mark, and after the closing quotes and brackets
//! that follow the mark. A blank must follow, and the next character after the blank must not be a
//! lower-case letter. Neither is required if one of several marks is Chinese, Japanese, Burmese or
//! Khmer, as in `？!`, or if `!` or `?` is between letters of a script without blanks. The title of
//! a work in `《》` is never divided.
//!
//! A full stop does not end a sentence after an abbreviation, after an initial, or after the number
//! of a list item at the beginning of the sentence. In languages that write ordinals with a full
//! stop, a full stop after any number of one or two digits does not end a sentence if a letter is
//! next. The abbreviations of a number of languages are known. For any other language, the
//! abbreviations listed under `*` apply.

use std::ops::Range;

use crate::scripts::is_unspaced;

/// Marks that end a sentence only if a blank follows.
const ENDS: [char; 25] = [
    '.', '!', '?', '…', '؟', '۔', '।', '॥', '՜', '։', '።', '፧', '፨', '‽', '‼', '⁇', '⁈', '⁉', '๛',
    '།', '༎', '᱾', '᱿', '꯫', '߹',
];

/// Marks that end a sentence even if no blank follows.
const WIDE_ENDS: [char; 9] = ['。', '！', '？', '｡', '﹖', '﹗', '။', '។', '៕'];

/// Marks at the end of the title of a work. A sentence does not end within a title.
const TITLE_ENDS: [char; 2] = ['》', '〉'];

/// Languages in which a number with a full stop is an ordinal: `am 3. Mai`.
const ORDINALS: [&str; 16] = [
    "de", "da", "nb", "nn", "no", "fi", "et", "lv", "cs", "sk", "sl", "hr", "sr", "pl", "hu", "tr",
];

/// Abbreviations by language. `*` stands for all languages that are not listed.
const ABBREVIATIONS: &str = include_str!("abbreviations.txt");

/// Abbreviations of a language, in lower case and without their last full stop.
fn abbreviations(language: &str) -> Vec<&'static str> {
    let abbreviations_of = |wanted: &str| -> Vec<&'static str> {
        let mut words = Vec::new();
        let mut is_of = false;
        for line in ABBREVIATIONS.lines().filter(|line| !line.starts_with('#')) {
            match line.strip_suffix(':') {
                Some(languages) => {
                    is_of = languages.split(' ').any(|of_language| of_language == wanted)
                }
                None if is_of => words.extend(line.split_whitespace()),
                None => {}
            }
        }
        words
    };
    let of_language = abbreviations_of(language);
    if of_language.is_empty() { abbreviations_of("*") } else { of_language }
}

/// Divides a text into sentences by the rules of a language. Returns their byte ranges, without the
/// blanks around them. A line break also ends a sentence.
#[must_use]
pub fn sentences(text: &str, language: &str) -> Vec<Range<usize>> {
    let language = language.split(['-', '_']).next().unwrap_or_default().to_lowercase();
    let abbreviations = abbreviations(&language);
    let has_ordinals = ORDINALS.contains(&language.as_str());
    let mut ranges = Vec::new();
    let mut line_start = 0;
    for line in text.split_inclusive('\n') {
        let (mut start, end) = (line_start, line_start + line.len());
        line_start = end;
        let mut characters = line.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            let is_mark = |one: char| ENDS.contains(&one) || WIDE_ENDS.contains(&one);
            if !is_mark(character) {
                continue;
            }
            let mark = start.max(end - line.len())..end - line.len() + at;
            while let Some(&(_, next)) = characters.peek()
                && (is_mark(next) || closes(next))
            {
                characters.next();
            }
            let behind = characters.peek().map_or(line.len(), |&(behind, _)| behind);
            let (marks, rest) = (&line[at..behind], &line[behind..]);
            let next = rest.trim_start().chars().next();
            let is_wide = marks.contains(WIDE_ENDS)
                || marks.contains(['!', '?'])
                    && next.is_some_and(is_unspaced)
                    && line[..at].chars().next_back().is_some_and(is_unspaced);
            let is_end = match next {
                None => false,
                Some(_) if is_wide => !rest.starts_with(TITLE_ENDS),
                Some(next) => {
                    rest.starts_with(char::is_whitespace)
                        && !next.is_lowercase()
                        && !(character == '.'
                            && is_short(&text[mark], &abbreviations, has_ordinals, next))
                }
            };
            if is_end {
                push(&mut ranges, text, start..end - line.len() + behind);
                start = end - line.len() + behind;
            }
        }
        push(&mut ranges, text, start..end);
    }
    ranges
}

fn push(ranges: &mut Vec<Range<usize>>, text: &str, range: Range<usize>) {
    let part = &text[range.clone()];
    let start = range.start + part.len() - part.trim_start().len();
    let end = start + part.trim().len();
    if start < end {
        ranges.push(start..end);
    }
}

/// True for a quote or bracket that can come after the mark at the end of a sentence and still
/// belong to the sentence.
fn closes(character: char) -> bool {
    matches!(
        character,
        '"' | '\''
            | ')'
            | ']'
            | '}'
            | '”'
            | '’'
            | '»'
            | '«'
            | '“'
            | '›'
            | '」'
            | '』'
            | '）'
            | '】'
            | '〕'
            | '］'
            | '｝'
    )
}

/// True if the full stop after `before` belongs to the last word of `before`.
fn is_short(before: &str, abbreviations: &[&str], has_ordinals: bool, next: char) -> bool {
    let word = before.rsplit(char::is_whitespace).next().unwrap_or(before);
    let word = word.trim_start_matches(|character: char| !character.is_alphanumeric());
    let mut letters = word.chars();
    match (letters.next(), letters.next()) {
        // The word is an initial.
        (Some(one), None) if one.is_uppercase() => return true,
        (Some(one), two) if one.is_ascii_digit() && two.is_none_or(|two| two.is_ascii_digit()) => {
            // The word is a number before the month of a date, or the number of a list item.
            return word.len() <= 2
                && (has_ordinals || word.len() == before.trim().len())
                && next.is_alphabetic();
        }
        _ => {}
    }
    abbreviations.contains(&word.to_lowercase().as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
        sentences(text, language).into_iter().map(|range| &text[range]).collect()
    }

    #[test]
    fn sentences_end_where_readers_see_it() {
        for (language, text, expected) in [
            (
                "en",
                "Hello there. How are you? Fine!",
                &["Hello there.", "How are you?", "Fine!"][..],
            ),
            (
                "en",
                "Dr. Smith met J. R. Brown at 3.5 p.m. today. \"Yes.\" He left.",
                &["Dr. Smith met J. R. Brown at 3.5 p.m. today.", "\"Yes.\"", "He left."],
            ),
            (
                "de",
                "Am 3. Mai kam z.B. Herr Dr. Maier. Er ging (spät.) Ende.",
                &["Am 3. Mai kam z.B. Herr Dr. Maier.", "Er ging (spät.)", "Ende."],
            ),
            ("zh-CN", "你好。今天好吗？很好！", &["你好。", "今天好吗？", "很好！"]),
            // Narrow marks in a text with wide marks.
            ("zh", "真的?！好！?不。!行", &["真的?！", "好！?", "不。!", "行"]),
            ("zh", "真的?!好!是吗?\"对.", &["真的?!", "好!", "是吗?\"", "对."]),
            ("ja", "本当?！」彼は3.5だ。", &["本当?！」", "彼は3.5だ。"]),
            ("zh", "他读《真的吗？》这本书。好", &["他读《真的吗？》这本书。", "好"]),
            ("en", "Really?！Good", &["Really?！", "Good"]),
            ("my", "နေကောင်းလား။ကောင်းပါတယ်။", &["နေကောင်းလား။", "ကောင်းပါတယ်။"]),
            ("km", "សួស្តី។ អរគុណ។", &["សួស្តី។", "អរគុណ។"]),
            ("ko", "정말?！좋아. 네", &["정말?！", "좋아.", "네"]),
            ("hi", "यह एक है। यह दो है।", &["यह एक है।", "यह दो है।"]),
            ("ar", "كيف حالك؟ بخير.", &["كيف حالك؟", "بخير."]),
            ("en", "one line\n\n  two. three", &["one line", "two. three"]),
            (
                "xx",
                "See example.com for more... Then go. ",
                &["See example.com for more...", "Then go."],
            ),
            ("en", "1. First thing. Next", &["1. First thing.", "Next"]),
            ("en", " \n", &[]),
        ] {
            assert_eq!(cut(text, language), expected, "{text}");
        }
    }
}
