//! Lines without their placeholders, which become markup.

use std::ops::Range;

use crate::element::{Element, Markup, Side, opens};
use crate::placeholders::placeholders;
use crate::scripts::is_chinese_or_japanese;
use crate::syntax::Syntax;

/// Returns the text of a line without its placeholders, and the markup of the line with them. Each
/// placeholder is inside the same elements as in the line.
pub(crate) fn without_placeholders(
    text: &str,
    elements: &[Element],
    syntax: Syntax,
) -> (String, Vec<Element>) {
    let all = placeholders(text);
    let (mut rest, mut cuts, mut at) = (String::new(), Vec::with_capacity(all.len()), 0);
    for (number, range) in all.iter().enumerate() {
        rest.push_str(&text[at..range.start]);
        // End of the placeholders that follow each other directly.
        let chain = all[number..].iter().try_fold(range.start, |end, next| {
            if next.start == end { Ok(next.end) } else { Err(end) }
        });
        let (Ok(chain) | Err(chain)) = chain;
        let is_joined = text[chain..].chars().next().is_some_and(|next| !follows_directly(next));
        // Of two blanks around a placeholder, one is removed. At the beginning of the line and
        // after an opening bracket, the blank after the placeholder is removed.
        let has_blank_before = at < range.start && rest.ends_with(' ') && !is_joined;
        if has_blank_before {
            rest.pop();
        }
        let start = range.start - usize::from(has_blank_before);
        let is_begin = rest.chars().next_back().is_none_or(opens);
        let has_blank_behind = !has_blank_before && is_begin && text[range.end..].starts_with(' ');
        at = range.end + usize::from(has_blank_behind);
        cuts.push(Cut { placeholder: range.clone(), removed: start..at, place: rest.len() });
    }
    rest.push_str(&text[at..]);
    let elements = Cuts { text, syntax, cuts }.inserted(elements, 0..text.len());
    (rest, elements)
}

/// True for a blank, and for punctuation that follows a word without a blank.
fn follows_directly(character: char) -> bool {
    character.is_whitespace()
        || ".,;:!?…)]}”’»".contains(character)
        || is_chinese_or_japanese(character) && !character.is_alphanumeric()
}

/// Placeholder that is cut out of a line.
struct Cut {
    /// Bytes of the placeholder in the line.
    placeholder: Range<usize>,
    /// Bytes of the line that are removed: the placeholder, and at most one blank beside it.
    removed: Range<usize>,
    /// Place of the placeholder in the new text.
    place: usize,
}

/// Placeholders of a line, in order.
struct Cuts<'a> {
    text: &'a str,
    syntax: Syntax,
    cuts: Vec<Cut>,
}

impl Cuts<'_> {
    /// Returns the markup directly inside an element whose text has the bytes `within` in the line,
    /// together with the placeholders there.
    fn inserted(&self, elements: &[Element], within: Range<usize>) -> Vec<Element> {
        let (mut made, mut at) = (Vec::with_capacity(elements.len()), within.start);
        for element in elements {
            let Range { start, end } = element.range;
            self.add(at..start, &mut made);
            at = end;
            made.push(Element {
                range: self.moved(start)..self.moved(end),
                markup: element.markup.clone(),
                sides: element.sides,
                inner: self.inserted(&element.inner, start..end),
            });
        }
        self.add(at..within.end, &mut made);
        made
    }

    /// Adds the placeholders, and the parts of placeholders, that are in `part`, which has no other
    /// markup. A placeholder has several parts if a tag is inside it.
    fn add(&self, part: Range<usize>, made: &mut Vec<Element>) {
        let first = self.cuts.partition_point(|cut| cut.placeholder.end <= part.start);
        for Cut { placeholder, place, .. } in &self.cuts[first..] {
            if placeholder.start >= part.end {
                break;
            }
            let own = placeholder.start.max(part.start)..placeholder.end.min(part.end);
            let shown = &self.text[own.clone()];
            let markup = Markup::Placeholder(shown.to_owned(), self.syntax.escape(shown));
            let sides = [
                self.side(own.start, placeholder.start, self.text[..own.start].chars().next_back()),
                self.side(own.end, placeholder.end, self.text[own.end..].chars().next()),
            ];
            made.push(Element { sides, ..Element::new(*place..*place, markup) });
        }
    }

    /// Side of a part of a placeholder that begins or ends at the byte `at`, where it has this
    /// neighbour. The placeholder begins or ends at the byte `edge`.
    fn side(&self, at: usize, edge: usize, neighbour: Option<char>) -> Side {
        let next = self.cuts.partition_point(|cut| cut.placeholder.end < at);
        let is_here = |cut: &&Cut| [cut.placeholder.start, cut.placeholder.end].contains(&at);
        // Two placeholders without anything between them belong together.
        let touches = self.cuts[next..].iter().take(2).filter(is_here).count() > 1;
        match at == edge && !touches {
            true => Side::of_placeholder(neighbour),
            false => Side::Joined,
        }
    }

    /// Place in the new text of a place in the line.
    fn moved(&self, at: usize) -> usize {
        let before = self.cuts.partition_point(|cut| cut.removed.start < at);
        match before.checked_sub(1).map(|cut| &self.cuts[cut]) {
            Some(cut) => cut.place + at.saturating_sub(cut.removed.end),
            None => at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::line::Line;
    use crate::translated::Translated;

    fn line(text: &str, elements: Vec<Element>) -> Line {
        Line::new(text.to_owned(), elements, Syntax::Plain)
    }

    #[test]
    fn an_unchanged_text_gets_its_placeholders_back() {
        for (text, without) in [
            ("Hello {name}, you", "Hello, you"),
            ("{n} files", "files"),
            ("files: {n}", "files:"),
            ("see {a} {b}.", "see."),
            ("{a} {b} and", "and"),
            ("({n} files) and ({n})", "(files) and ()"),
            ("%d%% of %s", "of"),
            ("file{n} is {m}px", "file is px"),
            ("“{a}” or '{b}'", "“” or ''"),
            ("您好{name}，请看https://a.b/c。", "您好，请看。"),
            ("{a}{b}", ""),
            ("100% {a}% of", "100% % of"),
            ("one two", "one two"),
        ] {
            let plain = line(text, Vec::new()).without_placeholders();
            assert_eq!(plain.text(), without, "{text}");
            let same = Translated { text: without.to_owned(), links: Vec::new() };
            assert_eq!(plain.render(&same), text);
            assert!(plain.restores_placeholders(&same), "{text}");
            let more = Translated { text: format!("{without} %s"), links: Vec::new() };
            assert!(!plain.restores_placeholders(&more), "{text}");
        }
    }

    #[test]
    fn placeholders_stay_apart_from_words() {
        for (text, to, expected) in [
            ("{n} files", "Dateien", "{n} Dateien"),
            ("Hello {name}!", "Hallo!", "Hallo {name}!"),
            ("{name}, hello", "hallo", "hallo {name}"),
            ("See https://a.b/c now", "看了现在", "看了 https://a.b/c 现在"),
            ("See (https://a.b/c)", "看", "看https://a.b/c"),
            ("({n} files)", "（件）", "（{n} 件）"),
        ] {
            let plain = line(text, Vec::new()).without_placeholders();
            let to = Translated { text: to.to_owned(), links: Vec::new() };
            let made = plain.render(&to);
            assert!(plain.restores_placeholders(&to), "{made}");
            if !text.starts_with("{name}") {
                assert_eq!(made, expected);
            }
        }
    }

    /// Elements around placeholders, by the examples of a bold name and a bold number.
    #[test]
    fn placeholders_stay_in_their_elements() {
        let tags = || Markup::Tags("<b>".to_owned(), "</b>".to_owned());
        for (text, part, to, expected) in [
            ("Hello {name}, you", "{name}", "Hallo, du", "Hallo <b>{name}</b>, du"),
            ("Hello {name}, you", "{name}", "Hello, you", "Hello <b>{name}</b>, you"),
            ("You have {n} files.", "{n} files", "Du hast Dateien.", "Du hast <b>{n} Dateien</b>."),
            ("You have {n} files.", "{n}", "Du hast Dateien.", "Du hast <b>{n}</b> Dateien."),
            ("You have %d & more", "have %d", "Du hast & mehr", "Du <b>hast %d</b> & mehr"),
            ("{name}", "{name}", "", "<b>{name}</b>"),
            ("At https://a.b/c now", "a.b", "Um jetzt", "Um https://<b>a.b</b>/c jetzt"),
            (
                "Dear {first} {last}: hi",
                "{first} {last}",
                "Liebe: hi",
                "Liebe <b>{first} {last}</b>: hi",
            ),
        ] {
            let start = text.find(part).expect("a part");
            let own = line(text, vec![Element::new(start..start + part.len(), tags())]);
            let plain = own.without_placeholders();
            let to = Translated { text: to.to_owned(), links: Vec::new() };
            assert_eq!(plain.render(&to), expected);
            assert!(plain.restores_placeholders(&to), "{expected}");
        }
    }
}
