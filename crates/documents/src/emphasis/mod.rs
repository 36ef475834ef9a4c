//! Emphasis in translated lines of Markdown.
//!
//! `*` and `_` are delimiters only next to certain characters (CommonMark 0.31, section 6.2). For
//! example, `_` within a word is no delimiter, and `*` after a letter and before punctuation opens
//! no emphasis. A translation moves delimiters to other places. There, some of them would be read
//! as plain characters, especially in scripts without blanks between words. This module changes
//! such delimiters.

mod marks;

use marks::reads_marks;
pub(crate) use marks::{OPTIONS, have_same_marks, is_kept};

use crate::line_part::LinePart;
use crate::syntax::Syntax;

/// Delimiters of emphasis. For each: the delimiter, an equivalent delimiter that also works within
/// words, and the name of the HTML element with the same meaning.
const DELIMITERS: [(&str, &str, &str); 6] = [
    ("*", "*", "em"),
    ("_", "*", "em"),
    ("**", "**", "strong"),
    ("__", "**", "strong"),
    ("~~", "~~", "del"),
    ("~", "~", "del"),
];

/// Spelling of an emphasis that begins in one line and ends in another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shared {
    /// Delimiters, as in the source.
    Delimiters,
    /// HTML tags, which have the same meaning at every place.
    Tags,
}

impl Shared {
    /// Spelling of the markup `raw`, which opens or closes an element. Markup that is no delimiter
    /// of emphasis is written as in the source.
    pub(crate) fn spelling(self, raw: &str, is_open: bool) -> &str {
        let name = DELIMITERS.into_iter().find(|(delimiter, ..)| *delimiter == raw);
        match (self, name, is_open) {
            (Self::Delimiters, ..) | (_, None, _) => raw,
            (Self::Tags, Some((.., "em")), true) => "<em>",
            (Self::Tags, Some((.., "em")), false) => "</em>",
            (Self::Tags, Some((.., "strong")), true) => "<strong>",
            (Self::Tags, Some((.., "strong")), false) => "</strong>",
            (Self::Tags, Some(_), true) => "<del>",
            (Self::Tags, Some(_), false) => "</del>",
        }
    }
}

/// Writes the parts of a line as Markdown in which each emphasis is read as emphasis. An emphasis
/// without content, which Markdown cannot express, is left out. `shared`: spelling of an emphasis
/// of which the line has only one end.
pub(crate) fn written(parts: Vec<LinePart<'_>>, syntax: Syntax, shared: Shared) -> String {
    let parts = parts.into_iter().map(|part| match part {
        LinePart::Begin(raw) => LinePart::Alone(shared.spelling(raw, true)),
        LinePart::End(raw) => LinePart::Alone(shared.spelling(raw, false)),
        part => part,
    });
    let parts = parts.collect();
    let mut parts = apart(without_empty(parts), syntax);
    let write = |parts: &[LinePart<'_>]| -> String {
        parts.iter().map(|part| part.written(syntax)).collect()
    };
    let mut line = write(&parts);
    if !parts.iter().any(|part| delimiter(*part).is_some()) {
        return line;
    }
    if !has_tildes_in_tildes(&parts) {
        for change in [with_stars, without_punctuation] {
            if reads_marks(&line, &parts) {
                return line;
            }
            parts = change(parts);
            line = write(&parts);
        }
        if reads_marks(&line, &parts) {
            return line;
        }
    }
    parts.iter().map(|part| as_element(*part, syntax)).collect()
}

/// True if a line has the delimiter `~`, and `~` as a character that might not be escaped. The
/// character could then be read as the delimiter.
fn has_tildes_in_tildes(parts: &[LinePart<'_>]) -> bool {
    let is_delimiter = |part: &LinePart<'_>| delimiter(*part).is_some_and(|(raw, ..)| raw == "~");
    let is_text = |part: &LinePart<'_>| matches!(part, LinePart::Text(text) if text.contains('~'));
    parts.iter().any(is_delimiter) && parts.iter().any(is_text)
}

/// Entry of [`DELIMITERS`] for a part; `None` if the part is no delimiter of emphasis.
fn delimiter(part: LinePart<'_>) -> Option<(&'static str, &'static str, &'static str)> {
    let (LinePart::Open(raw) | LinePart::Close(raw)) = part else { return None };
    DELIMITERS.into_iter().find(|(delimiter, ..)| *delimiter == raw)
}

/// Leaves out each emphasis without content.
fn without_empty(parts: Vec<LinePart<'_>>) -> Vec<LinePart<'_>> {
    let mut kept: Vec<LinePart<'_>> = Vec::with_capacity(parts.len());
    for part in parts {
        let is_open =
            |last: LinePart<'_>| matches!(last, LinePart::Open(_)) && delimiter(last).is_some();
        match part {
            LinePart::Close(_) if kept.last().copied().is_some_and(is_open) => drop(kept.pop()),
            _ => kept.push(part),
        }
    }
    kept
}

/// Separates neighbouring parts that would have another meaning together: a link after `!`, for
/// example, would be an image.
fn apart(parts: Vec<LinePart<'_>>, syntax: Syntax) -> Vec<LinePart<'_>> {
    let mut apart: Vec<LinePart<'_>> = Vec::with_capacity(parts.len());
    for part in parts {
        match (apart.last().copied(), part) {
            (Some(LinePart::Text(text)), LinePart::Open("[")) if text.ends_with('!') => {
                apart.pop();
                apart.extend([LinePart::Text(&text[..text.len() - 1]), LinePart::Alone("\\!")]);
            }
            (Some(LinePart::Text(_)), _) | (_, LinePart::Text(_)) => {}
            (Some(last), _) if syntax.join(last.raw(), part.raw()) => {
                apart.push(LinePart::Text(" "));
            }
            _ => {}
        }
        apart.push(part);
    }
    apart
}

/// Replaces `_`, which is no delimiter within words, by `*`.
fn with_stars(mut parts: Vec<LinePart<'_>>) -> Vec<LinePart<'_>> {
    for part in &mut parts {
        *part = match (delimiter(*part), *part) {
            (Some((_, star, _)), LinePart::Open(_)) => LinePart::Open(star),
            (Some((_, star, _)), LinePart::Close(_)) => LinePart::Close(star),
            _ => continue,
        };
    }
    parts
}

/// Moves punctuation at the beginning and end of an emphasis out of it.
fn without_punctuation(parts: Vec<LinePart<'_>>) -> Vec<LinePart<'_>> {
    let is_punctuation = |one: char| !one.is_alphanumeric() && !one.is_whitespace();
    let mut moved: Vec<LinePart<'_>> = Vec::with_capacity(parts.len() + 2);
    for part in parts {
        match (moved.last().copied(), part) {
            (Some(open @ LinePart::Open(_)), LinePart::Text(text)) if delimiter(open).is_some() => {
                let inner = text.trim_start_matches(is_punctuation);
                let outer = &text[..text.len() - inner.len()];
                if inner.is_empty() || outer.is_empty() {
                    moved.push(part);
                } else {
                    moved.pop();
                    moved.extend([LinePart::Text(outer), open, LinePart::Text(inner)]);
                }
            }
            (Some(LinePart::Text(text)), LinePart::Close(_)) if delimiter(part).is_some() => {
                let inner = text.trim_end_matches(is_punctuation);
                let outer = &text[inner.len()..];
                if inner.is_empty() || outer.is_empty() {
                    moved.push(part);
                } else {
                    moved.pop();
                    moved.extend([LinePart::Text(inner), part, LinePart::Text(outer)]);
                }
            }
            _ => moved.push(part),
        }
    }
    moved
}

/// Writes a part as Markdown, except that a delimiter is written as an HTML tag. Unlike a
/// delimiter, a tag has the same meaning at every place.
fn as_element(part: LinePart<'_>, syntax: Syntax) -> String {
    match (delimiter(part), part) {
        (Some((.., name)), LinePart::Open(_)) => format!("<{name}>"),
        (Some((.., name)), LinePart::Close(_)) => format!("</{name}>"),
        _ => part.written(syntax),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use LinePart::{Alone, Close, Open, Text};

    fn made(parts: &[LinePart<'_>]) -> String {
        written(parts.to_vec(), Syntax::Markdown { table: false }, Shared::Delimiters)
    }

    #[test]
    fn emphasis_is_read_as_such_wherever_it_comes_to_stand() {
        let of =
            |open, inner, close| [Text("这"), Open(open), Text(inner), Close(close), Text("花")];
        // The first line has no underscores within a word, and no punctuation at the end of an
        // emphasis, so its delimiters are unchanged. In the next three lines, underscores are
        // replaced, or punctuation is moved out of the emphasis.
        assert_eq!(made(&of("**", "红", "**")), "这**红**花");
        assert_eq!(made(&of("_", "红", "_")), "这*红*花");
        assert_eq!(made(&of("__", "红。", "__")), "这**红**。花");
        assert_eq!(made(&of("*", "（红）", "*")), "这（*红*）花");
        assert_eq!(made(&of("~~", "红", "~~")), "这~~红~~花");
        // In the next two cases, no delimiters would work. In the first, there is only punctuation
        // within the emphasis. In the second, two delimiters next to each other would be read as
        // one.
        assert_eq!(made(&of("*", "！", "*")), "这<em>！</em>花");
        let two = [Open("*"), Text("红"), Close("*"), Open("*"), Text("花"), Close("*")];
        assert_eq!(made(&two), "<em>红</em><em>花</em>");
        let link = [Text("看"), Open("["), Open("_"), Text("红"), Close("_"), Close("](/a_b)")];
        assert_eq!(made(&link), "看[_红_](/a_b)");
        // The `~` before the number would be read as the beginning of the struck-out text.
        let tildes = [Text("a "), Open("~"), Text("b ~10 c"), Close("~")];
        assert_eq!(made(&tildes), "a <del>b ~10 c</del>");
        let code = [Text("用"), Open("**"), Alone("`a*b`"), Close("**"), Text("* 吗")];
        assert_eq!(made(&code), "用<strong>`a*b`</strong>\\* 吗");
    }

    #[test]
    fn parts_beside_each_other_stay_themselves() {
        assert_eq!(made(&[Alone("`a`"), Alone("`b`"), Text("`")]), "`a` `b`\\`");
        let parts = [Text("看!"), Open("["), Text("a]"), Close("](/a)"), Text("!")];
        assert_eq!(made(&parts), "看\\![a\\]](/a)!");
    }

    #[test]
    fn emphasis_around_nothing_is_left_out() {
        let parts = [Text("花"), Open("**"), Open("_"), Close("_"), Close("**"), Text("。")];
        assert_eq!(made(&parts), "花。");
        // An empty link is kept because it has an address.
        assert_eq!(made(&[Text("花"), Open("["), Close("](/a)")]), "花[](/a)");
    }
}
