//! Lines of a text, and division of the translation of a segment into lines.

use std::ops::Range;

use crate::segment::Layout;

/// Largest number of characters of a line in a catalog; gettext breaks lines there.
const CATALOG_WIDTH: usize = 76;

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

/// Divides a text into lines as the layout requires. `newline` is written between two lines.
pub(crate) fn laid_out(text: &str, layout: &Layout, newline: &str) -> String {
    match layout {
        Layout::Free => text.to_owned(),
        Layout::Wrapped(width) => wrapped(text, *width).join(newline),
        Layout::Lines(1) => text.to_owned(),
        Layout::Lines(count) => {
            let shown = shown_length(text);
            // Finds the smallest width that is enough, by bisection: a larger width never gives
            // more lines.
            let (mut narrow, mut wide) = (shown.div_ceil((*count).max(1)), shown);
            while narrow < wide {
                let width = narrow.midpoint(wide);
                if wrapped(text, width).len() <= *count { wide = width } else { narrow = width + 1 }
            }
            wrapped(text, narrow).join(newline)
        }
        Layout::Quoted => quoted(text, newline),
    }
}

/// Number of characters of a text, not counting tags.
fn shown_length(text: &str) -> usize {
    let mut in_tag = false;
    let is_shown = |character: char| {
        match character {
            '<' => in_tag = true,
            '>' if in_tag => {
                in_tag = false;
                return 0;
            }
            _ => {}
        }
        usize::from(!in_tag)
    };
    text.chars().map(is_shown).sum()
}

/// Breaks a text at blanks outside of tags into lines of at most `width` characters, not counting
/// tags. A single longer word is a line by itself.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut words = Vec::new();
    let (mut in_tag, mut start) = (false, 0);
    for (at, character) in text.char_indices() {
        match character {
            '<' => in_tag = true,
            '>' => in_tag = false,
            ' ' if !in_tag => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    words.push(&text[start..]);
    let (mut lines, mut line, mut shown) = (Vec::new(), String::new(), 0);
    for word in words {
        let length = shown_length(word);
        if line.is_empty() {
            (line, shown) = (word.to_owned(), length);
        } else if shown + 1 + length > width {
            lines.push(std::mem::replace(&mut line, word.to_owned()));
            shown = length;
        } else {
            line.push(' ');
            line.push_str(word);
            shown += 1 + length;
        }
    }
    lines.push(line);
    lines
}

/// Writes a text as strings of a catalog, one for each line of the text. Long lines are broken into
/// several strings.
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
