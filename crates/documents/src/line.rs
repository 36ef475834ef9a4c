//! Lines: sentences to translate, each with the markup that belongs in its translation.

use std::ops::Range;

use crate::emphasis;
use crate::line_part::LinePart;
use crate::placeholders::placeholders;
use crate::syntax::Syntax;

/// Translation of a line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Translated {
    /// The text.
    pub text: String,
    /// Links between words of the line and words of `text`. Each link is the byte range of a word
    /// in the line, and the byte range of its translation in `text`. They determine the places of
    /// markup. Without links, markup is placed in proportion to the lengths of the two texts.
    pub links: Vec<(Range<usize>, Range<usize>)>,
}

/// Element around a part of a line. If the element extends beyond the line, the tag that is outside
/// of the line is `None`. Markup that stands alone has an empty range, and no closing tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) range: Range<usize>,
    pub(crate) open: Option<String>,
    pub(crate) close: Option<String>,
}

/// A sentence of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Text of the sentence, without markup.
    pub(crate) text: String,
    /// Elements, properly nested; an outer element comes before its inner ones.
    pub(crate) elements: Vec<Element>,
    pub(crate) syntax: Syntax,
}

impl Line {
    /// Returns the text to translate, without markup.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the line has markup. Then the translation should have [links](Translated::links),
    /// which determine the places of the markup in it.
    #[must_use]
    pub fn has_markup(&self) -> bool {
        !self.elements.is_empty()
    }

    /// True if a translation has each placeholder and address exactly as often as the line.
    #[must_use]
    pub fn keeps_placeholders(&self, translation: &str) -> bool {
        let texts = |text: &str| -> Vec<String> {
            let mut all: Vec<String> =
                placeholders(text).into_iter().map(|range| text[range].to_owned()).collect();
            all.sort_unstable();
            all
        };
        texts(&self.text) == texts(translation)
    }

    /// Returns the line with its placeholders (such as `{name}`) treated as markup. The text of
    /// this line contains no placeholder, and [`Self::render`] writes each placeholder exactly
    /// once.
    #[must_use]
    pub fn without_placeholders(&self) -> Self {
        let mut line = Self { text: String::new(), ..self.clone() };
        let (mut cuts, mut at) = (Vec::new(), 0);
        for range in placeholders(&self.text) {
            let has_blank = self.text[at..range.start].ends_with(' ');
            let start = range.start - usize::from(has_blank);
            line.text.push_str(&self.text[at..start]);
            cuts.push((start..range.end, line.text.len()));
            at = range.end;
        }
        line.text.push_str(&self.text[at..]);
        for element in &mut line.elements {
            for end in [&mut element.range.start, &mut element.range.end] {
                let before = cuts.partition_point(|(cut, _)| cut.start < *end);
                let Some((cut, place)) = before.checked_sub(1).map(|cut| &cuts[cut]) else {
                    continue;
                };
                *end = place + end.saturating_sub(cut.end);
            }
        }
        for (cut, at) in cuts {
            let raw = &self.text[cut];
            let blank = if raw.starts_with(' ') { " " } else { "" };
            let open = Some(blank.to_owned() + &self.syntax.escape(&raw[blank.len()..]));
            line.elements.push(Element { range: at..at, open, close: None });
        }
        line.elements.sort_by_key(|element| (element.range.start, usize::MAX - element.range.end));
        line
    }

    /// Writes a translation in the syntax of the document. Each tag is written exactly once, and
    /// elements are properly nested.
    #[must_use]
    pub fn render(&self, translated: &Translated) -> String {
        let target = Target::new(&self.text, translated);
        let mut places: Vec<Placed<'_>> = Vec::with_capacity(self.elements.len());
        for element in &self.elements {
            let begins = if element.open.is_none() { 0 } else { usize::MAX };
            let is_point = element.range.is_empty() && element.close.is_none();
            let mut range = match is_point {
                true => target.point(element.range.start),
                false => target.span(&element.range),
            };
            // An element that begins before the line also begins before its translation.
            if begins == 0 {
                range.start = 0;
            }
            if element.close.is_none() && !is_point {
                range.end = translated.text.len().max(range.start);
            }
            places.push(Placed { element, range, inner: Vec::new() });
        }
        let mut out = Vec::new();
        self.write(&mut out, &translated.text, nested(places), 0..translated.text.len());
        match self.syntax {
            Syntax::Markdown { .. } => emphasis::written(out, self.syntax),
            syntax => out.into_iter().map(|part| part.written(syntax)).collect(),
        }
    }

    /// Appends a part of the text with the elements placed in it.
    fn write<'a>(
        &self,
        out: &mut Vec<LinePart<'a>>,
        text: &'a str,
        mut placed: Vec<Placed<'a>>,
        part: Range<usize>,
    ) {
        placed.sort_by_key(|one| (one.range.start + one.range.end, one.element.range.start));
        let add = |part: LinePart<'a>, out: &mut Vec<LinePart<'a>>| {
            if !part.raw().is_empty() {
                out.push(part);
            }
        };
        let mut at = part.start;
        for one in placed {
            let start = one.range.start.clamp(at, part.end);
            let end = one.range.end.clamp(start, part.end);
            add(LinePart::Text(&text[at..start]), out);
            let Element { open, close, .. } = one.element;
            if let Some(open) = open {
                // Markup that stands alone can begin with a blank (see `without_placeholders`). If
                // the text before the markup already ends with a blank, the markup's blank is
                // written after it.
                let has_blank = out.last().is_none_or(|last| last.raw().ends_with(' '));
                let moved = open.strip_prefix(' ').filter(|_| has_blank && close.is_none());
                add(LinePart::mark(moved.unwrap_or(open), close.is_some(), true), out);
                if moved.is_some() && text[start..].starts_with(char::is_alphanumeric) {
                    add(LinePart::Text(" "), out);
                }
            }
            self.write(out, text, one.inner, start..end);
            if let Some(close) = close {
                add(LinePart::mark(close, open.is_some(), false), out);
            }
            at = end;
        }
        add(LinePart::Text(&text[at..part.end]), out);
    }
}

/// An element with its range in a translation, and the elements inside it.
struct Placed<'a> {
    element: &'a Element,
    range: Range<usize>,
    inner: Vec<Self>,
}

/// Makes a tree of elements: each element is put into the innermost element that contains it. In
/// `places`, outer elements come before inner ones.
fn nested(places: Vec<Placed<'_>>) -> Vec<Placed<'_>> {
    let mut roots: Vec<Placed<'_>> = Vec::new();
    for placed in places {
        let mut level = &mut roots;
        // Of the elements on a level, only the last one is asked whether it contains `placed`.
        while level.last().is_some_and(|last| contains(last, &placed)) {
            let last = level.len() - 1;
            level = &mut level[last].inner;
        }
        level.push(placed);
    }
    roots
}

fn contains(outer: &Placed<'_>, inner: &Placed<'_>) -> bool {
    let (outer, inner) = (&outer.element.range, &inner.element.range);
    !outer.is_empty()
        && outer.start <= inner.start
        && inner.end <= outer.end
        && !(inner.is_empty() && (inner.start == outer.start || inner.start == outer.end))
}

/// Units (words and single characters) of a line and of its translation, and the links between
/// these units.
struct Target {
    source: Vec<Range<usize>>,
    target: Vec<Range<usize>>,
    /// For each unit of the source, the first and last unit of the target that are linked to it;
    /// `None` without a link.
    linked: Vec<Option<(usize, usize)>>,
    length: usize,
}

impl Target {
    fn new(line: &str, translated: &Translated) -> Self {
        let (source, target) = (units(line), units(&translated.text));
        // For each unit of the target, the first unit of the source that is linked to it.
        let mut links: Vec<Option<usize>> = vec![None; target.len()];
        for (from, to) in &translated.links {
            // A link belongs to its word, not to the punctuation marks around it.
            let is_word =
                |unit: &usize| line[source[*unit].clone()].starts_with(char::is_alphanumeric);
            let mut of_link = overlapped(&source, from);
            let unit = of_link.clone().find(is_word).or_else(|| of_link.next());
            for link in &mut links[overlapped(&target, to)] {
                *link = link.or(unit);
            }
        }
        if links.iter().all(Option::is_none) && !source.is_empty() {
            let count = target.len().max(1);
            links = (0..target.len()).map(|unit| Some(unit * source.len() / count)).collect();
        }
        let mut linked: Vec<Option<(usize, usize)>> = vec![None; source.len()];
        for (number, unit) in links.into_iter().enumerate() {
            if let Some(unit) = unit {
                let (first, _) = linked[unit].unwrap_or((number, number));
                linked[unit] = Some((first, number));
            }
        }
        Self { source, target, linked, length: translated.text.len() }
    }

    /// Returns the byte range of the translation that corresponds to the byte range `range` of the
    /// line.
    fn span(&self, range: &Range<usize>) -> Range<usize> {
        let linked = &self.linked[overlapped(&self.source, range)];
        let first = linked.iter().flatten().map(|&(first, _)| first).min();
        let last = linked.iter().flatten().map(|&(_, last)| last).max();
        match (first, last) {
            (Some(first), Some(last)) => self.target[first].start..self.target[last].end,
            _ => self.point(range.start),
        }
    }

    /// Returns the place in the translation, as an empty range, that corresponds to the byte `at`
    /// of the line. It is directly after the translation of the unit before `at`, or directly
    /// before the translation of the unit after `at`.
    fn point(&self, at: usize) -> Range<usize> {
        let before = self.source.partition_point(|unit| unit.end <= at).checked_sub(1);
        let touches = before.is_some_and(|unit| self.source[unit].end == at);
        let behind = before.and_then(|unit| self.linked[unit]);
        let behind = behind.map(|(_, last)| self.target[last].end);
        let next = self.source.partition_point(|unit| unit.start < at);
        let ahead = self.linked.get(next).copied().flatten();
        let ahead = ahead.map(|(first, _)| self.target[first].start);
        let place = if touches { behind.or(ahead) } else { ahead.or(behind) };
        let place = place.unwrap_or(if before.is_none() { 0 } else { self.length });
        place..place
    }
}

/// Indices of the units that have bytes in `range`. The units must be sorted.
fn overlapped(units: &[Range<usize>], range: &Range<usize>) -> Range<usize> {
    let first = units.partition_point(|unit| unit.end <= range.start);
    let end = units.partition_point(|unit| unit.start < range.end);
    first..end.max(first)
}

/// Units of a text: words, and all other characters except blanks. In scripts without blanks
/// between words, each character is a unit.
fn units(text: &str) -> Vec<Range<usize>> {
    let mut units: Vec<Range<usize>> = Vec::new();
    let mut in_word = false;
    for (at, character) in text.char_indices() {
        let end = at + character.len_utf8();
        let is_word = character.is_alphanumeric() || matches!(character, '\u{300}'..='\u{36f}');
        // Characters of scripts without blanks between words.
        let is_alone = matches!(character, '\u{2e80}'..='\u{9fff}' | '\u{ac00}'..='\u{d7af}'
            | '\u{f900}'..='\u{faff}' | '\u{e00}'..='\u{eff}' | '\u{20000}'..='\u{3ffff}');
        match units.last_mut() {
            Some(last) if is_word && !is_alone && in_word && last.end == at => last.end = end,
            _ if !character.is_whitespace() => units.push(at..end),
            _ => {}
        }
        in_word = is_word && !is_alone;
    }
    units
}

#[cfg(test)]
mod tests {
    use super::*;

    fn element(line: &str, part: &str, name: &str) -> Element {
        let start = line.find(part).expect("a part");
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        Element { range: start..start + part.len(), open: Some(open), close: Some(close) }
    }

    fn links(line: &str, text: &str, pairs: &[(&str, &str)]) -> Vec<(Range<usize>, Range<usize>)> {
        let of = |text: &str, part: &str| {
            let start = text.find(part).expect("a part");
            start..start + part.len()
        };
        pairs.iter().map(|(from, to)| (of(line, from), of(text, to))).collect()
    }

    fn line(text: &str, elements: Vec<Element>) -> Line {
        Line { text: text.to_owned(), elements, syntax: Syntax::Xml }
    }

    #[test]
    fn markup_follows_its_words() {
        let text = "I saw the red house & garden.";
        let own = line(text, vec![element(text, "red house", "b"), element(text, "house", "i")]);
        let to = "Das rote Haus sah ich & Garten.";
        let pairs =
            [("I", "ich"), ("saw", "sah"), ("the", "Das"), ("red", "rote"), ("house", "Haus")];
        let translated = Translated { text: to.to_owned(), links: links(text, to, &pairs) };
        assert_eq!(own.render(&translated), "Das <b>rote <i>Haus</i></b> sah ich &amp; Garten.");
        // In the first translation, two elements exchange their places. In the second, the words of
        // both elements are missing.
        let own = line(text, vec![element(text, "saw", "b"), element(text, "house", "i")]);
        assert_eq!(own.render(&translated), "Das rote <i>Haus</i> <b>sah</b> ich &amp; Garten.");
        let gone = Translated { text: "Ja".to_owned(), links: Vec::new() };
        let made = own.render(&gone);
        for tag in ["<b>", "</b>", "<i>", "</i>"] {
            assert_eq!(made.matches(tag).count(), 1, "{made}");
        }
    }

    #[test]
    fn what_goes_on_beyond_the_line_stays_open() {
        let text = "one two";
        let open = Element { range: 4..7, open: Some("<b>".to_owned()), close: None };
        let close = Element { range: 0..3, open: None, close: Some("</i>".to_owned()) };
        let own = line(text, vec![close, open]);
        let to = "eins zwei";
        let translated = Translated {
            text: to.to_owned(),
            links: links(text, to, &[("one", "eins"), ("two", "zwei")]),
        };
        assert_eq!(own.render(&translated), "eins</i> <b>zwei");
    }

    #[test]
    fn placeholders_have_single_blanks_around_them() {
        let text = "see {x} red dogs";
        let plain = line(text, Vec::new()).without_placeholders();
        let to = "dogs red see";
        let pairs = [("see", "see"), ("red", "red"), ("dogs", "dogs")];
        let links = links(plain.text(), to, &pairs);
        let made = plain.render(&Translated { text: to.to_owned(), links });
        assert_eq!(made, "dogs red see {x}");
        let links = vec![(4..7, 5..8), (8..12, 0..4)];
        let made = plain.render(&Translated { text: to.to_owned(), links });
        assert_eq!(made, "dogs {x} red see");
    }

    #[test]
    fn placeholders_stand_once_in_any_translation() {
        let text = "Hello {name}, you have %d & more";
        let own = line(text, vec![element(text, "have %d", "b")]);
        assert!(own.keeps_placeholders("%d {name}") && !own.keeps_placeholders("{name} {name} %d"));
        let plain = own.without_placeholders();
        assert_eq!(plain.text(), "Hello, you have & more");
        for to in ["Hallo, du hast & mehr", "", "x", "mehr & hast du, Hallo"] {
            let made = plain.render(&Translated { text: to.to_owned(), links: Vec::new() });
            for part in ["{name}", "%d", "<b>", "</b>"] {
                assert_eq!(made.matches(part).count(), 1, "{made}");
            }
        }
        let made =
            plain.render(&Translated { text: "Hello, you have & more".to_owned(), links: vec![] });
        assert_eq!(made, "Hello {name}, you <b>have</b> %d &amp; more");
    }
}
