//! Finds the lines of a text, and divides the translation of a segment (a text that is translated
//! as a whole) into lines as its format requires.

use std::ops::Range;

use crate::markup::{begins_tag, next_tag};
use crate::references::reference_length;
use crate::scripts::{is_chinese_or_japanese, is_unspaced};
use crate::segment::Layout;
use crate::syntax::Syntax;

/// Largest number of characters of a line in a PO file (message catalog of gettext). The programs
/// of gettext break lines at this width, too.
const CATALOG_WIDTH: usize = 76;

/// Largest number of bytes of a time within a cue of subtitles; anything longer is text.
pub(crate) const LONGEST_STAMP: usize = 20;
/// Largest number of bytes of a style tag in subtitles (SubStation Alpha), such as `{\an8}`;
/// anything longer is text.
pub(crate) const LONGEST_STYLE: usize = 1000;

/// Byte ranges of the lines of a text, without their line ends. A line end is `\n`, `\r\n` or, in
/// old files, `\r`.
pub(crate) fn lines(text: &str) -> Vec<Range<usize>> {
    let (mut lines, mut start) = (Vec::new(), 0);
    while start < text.len() {
        let end = text[start..].find(['\n', '\r']).map_or(text.len(), |end| start + end);
        lines.push(start..end);
        start = end + if text[end..].starts_with("\r\n") { 2 } else { 1 };
    }
    lines
}

/// The line end that a text uses.
pub(crate) fn line_end(text: &str) -> &'static str {
    match (text.contains('\n'), text.contains("\r\n")) {
        (_, true) => "\r\n",
        (false, _) if text.contains('\r') => "\r",
        _ => "\n",
    }
}

/// Divides a text, which is in `syntax`, into lines as the layout requires. `newline` is written
/// between two lines.
pub(crate) fn laid_out(text: &str, layout: &Layout, syntax: Syntax, newline: &str) -> String {
    match layout {
        Layout::Free => text.to_owned(),
        // Plain text has no tags.
        Layout::Wrapped(width) => wrapped(&words(text, None), *width).join(newline),
        Layout::Lines(1) => text.to_owned(),
        Layout::Lines(count) => {
            let words = words(text, Some(syntax));
            let shown = words.iter().map(|word| word.shown + word.blank()).sum::<usize>();
            // Finds the smallest width that is enough, by bisection: a larger width never gives
            // more lines.
            let (mut narrow, mut wide) = (shown.div_ceil((*count).max(1)), shown);
            while narrow < wide {
                let width = narrow.midpoint(wide);
                if wrapped(&words, width).len() <= *count {
                    wide = width
                } else {
                    narrow = width + 1
                }
            }
            wrapped(&words, narrow).join(newline)
        }
        Layout::Quoted => quoted(text, newline),
    }
}

/// Part of a text that is not divided: the text between two blanks or, in Chinese and Japanese, a
/// single letter. Blanks within tags do not count.
struct Word<'a> {
    text: &'a str,
    /// Number of characters, not counting tags. A character reference is one character.
    shown: usize,
    /// True if no blank is before the word.
    is_joined: bool,
}

/// Returns the words of a text, at least one. `subtitles`: syntax of subtitles, which can contain
/// tags; `None` for other texts.
fn words(text: &str, subtitles: Option<Syntax>) -> Vec<Word<'_>> {
    let (mut words, mut start, mut shown, mut at) = (Vec::new(), 0, 0, 0);
    let mut is_joined = true;
    // False once a tag has no end. A later `<` is then text, so that no byte is read twice.
    let mut may_close = subtitles.is_some();
    let has_references = subtitles == Some(Syntax::Xml);
    while let Some(character) = text[at..].chars().next() {
        if may_close && matches!(character, '<' | '{') {
            match tag_at(text, at) {
                Some(end) if end > at => {
                    at = end;
                    continue;
                }
                Some(_) => may_close = false,
                None => {}
            }
        }
        if has_references && character == '&' {
            at += reference_length(&text[at..]).unwrap_or(1);
            shown += 1;
            continue;
        }
        let end = at + character.len_utf8();
        if character == ' ' {
            words.push(Word { text: &text[start..at], shown, is_joined });
            (start, shown, is_joined) = (end, 0, false);
        } else {
            shown += 1;
            // A line can end between two letters.
            let is_letter = |one: char| is_unspaced(one) && is_chinese_or_japanese(one);
            if is_letter(character) && text[end..].starts_with(is_letter) {
                words.push(Word { text: &text[start..end], shown, is_joined });
                (start, shown, is_joined) = (end, 0, true);
            }
        }
        at = end;
    }
    words.push(Word { text: &text[start..], shown, is_joined });
    words
}

impl Word<'_> {
    /// Number of blanks before the word, if it does not begin a line.
    fn blank(&self) -> usize {
        usize::from(!self.is_joined)
    }
}

/// Returns the end of the tag that begins at the byte `at`. Returns `None` if no tag begins there,
/// and `at` itself if the tag is never closed. Tags are those of HTML, times of WebVTT such as
/// `<00:01.000>`, and styles of SubStation such as `{\an8}`.
fn tag_at(text: &str, at: usize) -> Option<usize> {
    let rest = &text.as_bytes()[at..];
    if begins_tag(rest) {
        let (_, tag) = next_tag(text, at);
        return Some(if text[tag.clone()].ends_with('>') { tag.end } else { at });
    }
    let (end, longest) = match rest {
        [b'{', b'\\', ..] => (b'}', LONGEST_STYLE),
        [b'<', b'0'..=b'9', ..] => (b'>', LONGEST_STAMP),
        _ => return None,
    };
    let length = rest.iter().take(longest).position(|&byte| byte == end)?;
    let is_tag = end == b'}' || rest[..length].contains(&b':');
    is_tag.then_some(at + length + 1)
}

/// Divides words into lines of at most `width` characters, not counting tags. A single longer word
/// is a line by itself.
fn wrapped(words: &[Word<'_>], width: usize) -> Vec<String> {
    let (mut lines, mut line, mut shown) = (Vec::new(), String::new(), 0);
    for word in words {
        if line.is_empty() {
            (line, shown) = (word.text.to_owned(), word.shown);
        } else if shown + word.blank() + word.shown > width {
            lines.push(std::mem::replace(&mut line, word.text.to_owned()));
            shown = word.shown;
        } else {
            line.extend((!word.is_joined).then_some(' '));
            line.push_str(word.text);
            shown += word.blank() + word.shown;
        }
    }
    lines.push(line);
    lines
}

/// Writes a text as quoted strings of a PO file, one for each line of the text. Long lines are
/// broken into several strings.
fn quoted(text: &str, newline: &str) -> String {
    let mut strings = Vec::new();
    for line in text.split_inclusive("\\n") {
        let (mut string, mut count) = (String::new(), 0);
        for word in line.split_inclusive(' ') {
            let length = word.chars().count();
            if count > 0 && count + length > CATALOG_WIDTH {
                strings.push(std::mem::take(&mut string));
                count = 0;
            }
            string.push_str(word);
            count += length;
        }
        strings.push(string);
    }
    match strings.as_slice() {
        [] => "\"\"".to_owned(),
        [one] => format!("\"{one}\""),
        several => {
            let lines: Vec<String> = several.iter().map(|one| format!("\"{one}\"")).collect();
            format!("\"\"{newline}{}", lines.join(newline))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_lines(text: &str, count: usize) -> String {
        laid_out(text, &Layout::Lines(count), Syntax::Plain, "\n")
    }

    #[test]
    fn a_reference_is_as_wide_as_its_character() {
        let in_lines =
            |syntax| laid_out("R&amp;B &amp; pop are not so far", &Layout::Lines(2), syntax, "\n");
        assert_eq!(in_lines(Syntax::Xml), "R&amp;B &amp; pop are\nnot so far");
        // In SubRip the same characters are shown as they are.
        assert_eq!(in_lines(Syntax::Plain), "R&amp;B &amp; pop\nare not so far");
        assert_eq!(laid_out("a & b &", &Layout::Lines(2), Syntax::Xml, "\n"), "a &\nb &");
    }

    #[test]
    fn tags_take_no_width_and_stay_whole() {
        for (text, expected) in [
            ("One two three four", "One two\nthree four"),
            (
                "<i>One</i> <b class=\"x y\">two</b> three four",
                "<i>One</i> <b class=\"x y\">two</b>\nthree four",
            ),
            ("{\\an8}One <00:00:01.500>two three four", "{\\an8}One <00:00:01.500>two\nthree four"),
        ] {
            assert_eq!(in_lines(text, 2), expected);
        }
    }

    #[test]
    fn angle_brackets_that_are_no_tags_are_text() {
        assert_eq!(in_lines("I <3 you and you <3 me", 2), "I <3 you and\nyou <3 me");
        assert_eq!(in_lines("a <b and c {\\d e", 2), "a <b and\nc {\\d e");
        let wrapped = |text, width| laid_out(text, &Layout::Wrapped(width), Syntax::Plain, "\n");
        assert_eq!(wrapped("if a < b then c > d and so on", 20), "if a < b then c > d\nand so on");
        assert_eq!(wrapped("a<b and c", 5), "a<b\nand c");
    }

    #[test]
    fn lines_of_chinese_end_between_letters() {
        assert_eq!(in_lines("你好，我的朋友们。", 2), "你好，我的\n朋友们。");
        assert_eq!(in_lines("<i>私は東京</i>に行きます", 2), "<i>私は東京</i>に\n行きます");
        assert_eq!(
            laid_out("我爱你们 OK 好", &Layout::Wrapped(4), Syntax::Plain, "\n"),
            "我爱你们\nOK 好"
        );
    }

    #[test]
    fn many_tags_without_an_end_take_little_time() {
        let text = "<a ".repeat(100_000);
        assert_eq!(in_lines(&text, 2).replace('\n', " "), text);
    }
}
