//! Ends of sentences and phrases, and joining of parts of a text, in scripts with and without
//! spaces.

/// True if a sentence ends between the text `before` and the character `after`.
pub(super) fn ends_sentence(before: &str, after: char) -> bool {
    ends_with_one_of("。！？", ".!?…", before, after)
}

/// True if a phrase ends between the text `before` and the character `after`.
pub(super) fn ends_phrase(before: &str, after: char) -> bool {
    ends_with_one_of("，；：、", ",;:", before, after)
}

/// Whether the text `before` ends with one of the given punctuation marks, which closing quotation
/// marks and brackets can follow. If the character `after` is a space, marks in `full_width` and in
/// `marks` count. Otherwise only marks in `full_width` count, and only if `after` is not another
/// closing quotation mark or bracket.
fn ends_with_one_of(full_width: &str, marks: &str, before: &str, after: char) -> bool {
    let closes = |character: char| "”’」』》〉】〕）］｝)]}»".contains(character);
    // Some quotation marks begin a quotation in one language and end it in another. Before a space,
    // they count as closing.
    let may_close = |character: char| closes(character) || "\"'“‘«".contains(character);
    if after.is_whitespace() {
        before
            .trim_end_matches(may_close)
            .ends_with(|mark: char| full_width.contains(mark) || marks.contains(mark))
    } else {
        !closes(after)
            && before.trim_end_matches(closes).ends_with(|mark: char| full_width.contains(mark))
    }
}

/// Joins the translations of parts of a line with spaces between them, but without a space between
/// two Chinese or Japanese characters.
pub(super) fn join(parts: &[&str]) -> String {
    let mut text = String::new();
    for part in parts.iter().filter(|part| !part.is_empty()) {
        // Quotation marks and dashes are skipped, because they belong to the script of the
        // character next to them.
        let (left, right) = (
            text.chars().rev().find(|&mark| !is_shared(mark)),
            part.chars().find(|&mark| !is_shared(mark)),
        );
        if !left.zip(right).is_none_or(|(left, right)| is_cjk(left) && is_cjk(right)) {
            text.push(' ');
        }
        text.push_str(part);
    }
    text
}

/// True if a character is Chinese or Japanese, or is punctuation of these languages.
pub(super) fn is_cjk(character: char) -> bool {
    matches!(
        character,
        '\u{3000}'..='\u{30ff}'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{ff00}'..='\u{ffef}'
            | '\u{20000}'..='\u{3ffff}'
    )
}

/// True if a character is a dash, quotation mark or ellipsis, which Chinese and Japanese share with
/// other scripts.
fn is_shared(character: char) -> bool {
    matches!(character, '\u{2014}' | '\u{2018}'..='\u{201d}' | '\u{2026}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_joined_as_their_script_is_written() {
        assert_eq!(join(&["Ein Hund.", "", "Zwei Hunde."]), "Ein Hund. Zwei Hunde.");
        assert_eq!(join(&["你好。", "再见。"]), "你好。再见。");
        assert_eq!(join(&["你好。", "“再见。”"]), "你好。“再见。”");
        assert_eq!(join(&["“你好。”", "“再见。”", "他说——", "……"]), "“你好。”“再见。”他说——……");
        assert_eq!(join(&["“Ein Hund.”", "“Zwei.”", "“再见。”"]), "“Ein Hund.” “Zwei.” “再见。”");
        assert_eq!(join(&[]), "");
    }
}
