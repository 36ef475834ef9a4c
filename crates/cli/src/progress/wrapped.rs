//! Text in lines that fit a terminal.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Smallest number of columns for indented text; if fewer remain, text is not indented.
const LEAST: usize = 16;

/// Divides `line` into lines of at most `width` columns; lines after the first are indented by
/// `indent` columns. Double spaces separate the parts of a line of scores, so the text is divided
/// there if possible. A part that is wider than a line is divided at single spaces, and a word that
/// is wider than a line is divided between characters.
pub(crate) fn wrapped(line: &str, indent: usize, width: usize) -> Vec<String> {
    let width = width.max(1);
    let indent = " ".repeat(if indent + LEAST <= width { indent } else { 0 });
    let mut lines = vec![String::new()];
    for (number, part) in line.split("  ").enumerate() {
        let before = if number > 0 { "  " } else { "" };
        if add(&mut lines, before, part, width) {
            continue;
        }
        let alone = format!("{indent}{}", part.trim_start());
        if number > 0 && alone.width() <= width {
            lines.push(alone);
            continue;
        }
        for (number, word) in part.split(' ').enumerate() {
            if add(&mut lines, if number > 0 { " " } else { before }, word, width) {
                continue;
            }
            if lines.last().is_some_and(|last| !last.trim_start().is_empty()) {
                lines.push(indent.clone());
            }
            if !add(&mut lines, "", word, width) {
                add_characters(&mut lines, word, &indent, width);
            }
        }
    }
    for line in &mut lines {
        line.truncate(line.trim_end().len());
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Appends `space` and `text` to the last line and returns true, if they fit.
fn add(lines: &mut [String], space: &str, text: &str, width: usize) -> bool {
    let Some(last) = lines.last_mut() else { return false };
    let fits = last.width() + space.width() + text.width() <= width;
    if fits {
        *last += space;
        *last += text;
    }
    fits
}

/// Adds a word that is wider than a line, character by character.
fn add_characters(lines: &mut Vec<String>, word: &str, indent: &str, width: usize) {
    for character in word.chars() {
        let Some(last) = lines.last_mut() else { return };
        // A character without a width belongs to the character before it.
        if last.width() + character.width().unwrap_or(0) <= width || last.len() == indent.len() {
            last.push(character);
        } else {
            lines.push(format!("{indent}{character}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_divided_between_their_parts_then_at_spaces_then_within_words() {
        let line = "step 1000  validation: loss 1.25  BLEU 31.20  [1:02]";
        assert_eq!(wrapped(line, 2, 80), [line]);
        assert_eq!(
            wrapped(line, 2, 34),
            ["step 1000  validation: loss 1.25", "  BLEU 31.20  [1:02]"]
        );
        assert_eq!(wrapped("a house, a tree", 2, 18), ["a house, a tree"]);
        assert_eq!(wrapped("  source       a house by a tree", 15, 31)[1], "               tree");
        assert_eq!(wrapped("我爱你我爱你我爱你我爱你", 2, 19).concat().replace(' ', "").len(), 36);
        for width in [1, 2, 3, 17, 20, 33] {
            let lines = wrapped(
                "  reference    我们都爱 unübersetzbar  e\u{301}e\u{301}e\u{301} x",
                15,
                width,
            );
            let most = if width == 1 { 2 } else { width };
            assert!(lines.iter().all(|one| one.width() <= most), "{width}: {lines:?}");
            let text: String = lines.concat().chars().filter(|one| *one != ' ').collect();
            assert_eq!(text, "reference我们都爱unübersetzbare\u{301}e\u{301}e\u{301}x", "{width}");
        }
    }
}
