//! Lines: sentences to translate, each with the markup that belongs in its translation.

use std::borrow::Cow;

use crate::element::Element;
use crate::emphasis::{self, Shared};
use crate::placeholders::placeholders;
use crate::placement::Target;
use crate::syntax::Syntax;
use crate::translated::Translated;
use crate::without_placeholders::without_placeholders;
use crate::writer::Writer;

/// A sentence of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Text of the sentence, without markup.
    pub(crate) text: String,
    /// Markup of the sentence, in the order of the source.
    pub(crate) elements: Vec<Element>,
    /// Placeholders that have become markup, sorted.
    pub(crate) removed: Vec<String>,
    pub(crate) syntax: Syntax,
}

impl Line {
    /// Makes a line whose placeholders are part of its text.
    pub(crate) fn new(text: String, elements: Vec<Element>, syntax: Syntax) -> Self {
        Self { text, elements, removed: Vec::new(), syntax }
    }

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

    /// True if a translation has each placeholder and address exactly as often as the text of the
    /// line.
    #[must_use]
    pub fn keeps_placeholders(&self, translation: &str) -> bool {
        sorted_placeholders(&self.text) == sorted_placeholders(translation)
    }

    /// True if the document will have each placeholder and address of the sentence exactly once
    /// more, if it gets this translation. Unlike [`Self::keeps_placeholders`], this includes the
    /// placeholders that [`Self::without_placeholders`] has made markup.
    #[must_use]
    pub fn restores_placeholders(&self, translated: &Translated) -> bool {
        let mut expected = sorted_placeholders(&self.text);
        expected.extend(self.removed.iter().cloned());
        expected.sort_unstable();
        let translated = self.on_one_line(translated);
        sorted_placeholders(&self.written(&translated).visible) == expected
    }

    /// Returns the line with its placeholders (such as `{name}`) treated as markup. The text of
    /// this line contains no placeholder, and [`Self::render`] writes each placeholder exactly
    /// once, inside the same elements as before.
    #[must_use]
    pub fn without_placeholders(&self) -> Self {
        let (text, elements) = without_placeholders(&self.text, &self.elements, self.syntax);
        let mut removed = sorted_placeholders(&self.text);
        removed.extend(self.removed.iter().cloned());
        removed.sort_unstable();
        Self { text, elements, removed, syntax: self.syntax }
    }

    /// Writes a translation in the syntax of the document. Each tag is written exactly once, and
    /// elements are nested as in the line.
    #[must_use]
    pub fn render(&self, translated: &Translated) -> String {
        self.rendered(translated, Shared::Delimiters)
    }

    /// Writes a translation like [`Self::render`]. `shared`: spelling of an emphasis that other
    /// lines share.
    pub(crate) fn rendered(&self, translated: &Translated, shared: Shared) -> String {
        let translated = self.on_one_line(translated);
        let parts = self.written(&translated).parts;
        match self.syntax {
            Syntax::Markdown { .. } => emphasis::written(parts, self.syntax, shared),
            syntax => parts.into_iter().map(|part| part.written(syntax)).collect(),
        }
    }

    fn written<'a>(&'a self, translated: &'a Translated) -> Writer<'a> {
        let target = Target::new(&self.text, &self.elements, translated);
        let all = 0..translated.text.len();
        let placed = target.place(&self.elements, &(0..self.text.len()), all.clone());
        let mut writer = Writer::default();
        writer.write(&translated.text, &placed, all);
        writer
    }

    /// Returns a translation without line breaks and other control characters, unless the line has
    /// the same character. They could end a paragraph or a subtitle, or are forbidden in XML.
    fn on_one_line<'a>(&self, translated: &'a Translated) -> Cow<'a, Translated> {
        let is_wrong = |one: char| one.is_ascii_control() && !self.text.contains(one);
        if !translated.text.contains(is_wrong) {
            return Cow::Borrowed(translated);
        }
        // Links stay valid, because each of these characters has one byte, like a blank.
        let text = translated.text.replace(is_wrong, " ");
        Cow::Owned(Translated { text, links: translated.links.clone() })
    }
}

/// Placeholders and addresses of a text, sorted.
fn sorted_placeholders(text: &str) -> Vec<String> {
    let mut all: Vec<String> =
        placeholders(text).into_iter().map(|range| text[range].to_owned()).collect();
    all.sort_unstable();
    all
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::element::Markup;

    fn element(line: &str, part: &str, name: &str) -> Element {
        let start = line.find(part).expect("a part");
        let markup = Markup::Tags(format!("<{name}>"), format!("</{name}>"));
        Element::new(start..start + part.len(), markup)
    }

    fn links(line: &str, text: &str, pairs: &[(&str, &str)]) -> Vec<(Range<usize>, Range<usize>)> {
        let of = |text: &str, part: &str| {
            let start = text.find(part).expect("a part");
            start..start + part.len()
        };
        pairs.iter().map(|(from, to)| (of(line, from), of(text, to))).collect()
    }

    fn line(text: &str, elements: Vec<Element>) -> Line {
        Line::new(text.to_owned(), elements, Syntax::Xml)
    }

    #[test]
    fn markup_follows_its_words() {
        let text = "I saw the red house & garden.";
        let inner = vec![element(text, "house", "i")];
        let outer = Element { inner, ..element(text, "red house", "b") };
        let own = line(text, vec![outer]);
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

    /// Elements beside each other, whose words are mixed in the translation, stay beside each
    /// other, and each keeps most of its words.
    #[test]
    fn elements_beside_each_other_stay_so() {
        let text = "turn off the light and music now";
        let elements = || {
            let parts = [("turn off", "a"), ("light", "b"), ("music", "c")];
            parts.map(|(part, name)| element(text, part, name)).to_vec()
        };
        let pairs = [
            ("turn", "schalte"),
            ("off", "aus"),
            ("light", "Licht"),
            ("music", "Musik"),
            ("now", "jetzt"),
        ];
        for (to, expected) in [
            (
                "schalte Licht und Musik jetzt aus",
                "<a>schalte</a> <b>Licht</b> und <c>Musik</c> jetzt aus",
            ),
            (
                "Musik und Licht schalte jetzt aus",
                "<c>Musik</c> und <b>Licht</b> <a>schalte jetzt aus</a>",
            ),
            ("Licht schalte aus Musik jetzt", "<b>Licht</b> <a>schalte aus</a> <c>Musik</c> jetzt"),
        ] {
            let links = links(text, to, &pairs);
            let translated = Translated { text: to.to_owned(), links };
            assert_eq!(line(text, elements()).render(&translated), expected);
        }
    }

    /// If neither the words of an element nor their translation have links, the translation is
    /// found between its neighbours.
    #[test]
    fn words_without_links_are_found_by_their_neighbours() {
        let text = "the red house, old";
        let own = line(text, vec![element(text, "red", "b"), element(text, "old", "i")]);
        let to = "das rote Haus, alte";
        let pairs = [("the", "das"), ("house", "Haus")];
        let translated = Translated { text: to.to_owned(), links: links(text, to, &pairs) };
        assert_eq!(own.render(&translated), "das <b>rote</b> Haus, <i>alte</i>");
    }

    #[test]
    fn what_goes_on_beyond_the_line_stays_open() {
        let text = "one two";
        let open = Element::new(4..7, Markup::Open("<b>".to_owned()));
        let close = Element::new(0..3, Markup::Close("</i>".to_owned()));
        let own = line(text, vec![close, open]);
        for (to, expected) in [("eins zwei", "eins</i> <b>zwei"), ("zwei eins", "</i>zwei eins<b>")]
        {
            let links = links(text, to, &[("one", "eins"), ("two", "zwei")]);
            let translated = Translated { text: to.to_owned(), links };
            assert_eq!(own.render(&translated), expected);
        }
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
        assert_eq!(made, "Hello {name}, you <b>have %d</b> &amp; more");
    }

    #[test]
    fn tags_do_not_divide_placeholders() {
        let text = "Hello {name}";
        let own = line(text, vec![element(text, "{name}", "b")]);
        // The model has linked only the word within the placeholder.
        let to = "{name} hallo".to_owned();
        let translated = Translated { text: to, links: vec![(7..11, 1..5), (0..5, 7..12)] };
        assert_eq!(own.render(&translated), "<b>{name}</b> hallo");
    }

    #[test]
    fn control_characters_of_a_model_become_blanks() {
        let to = |text: &str| Translated { text: text.to_owned(), links: Vec::new() };
        assert_eq!(line("one two", Vec::new()).render(&to("eins\n\0zwei\r")), "eins  zwei ");
        assert_eq!(line("one\ttwo", Vec::new()).render(&to("eins\tzwei\n")), "eins\tzwei ");
    }
}
