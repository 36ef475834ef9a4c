//! Markup within words, as in `H<sub>2</sub>O`.

use std::collections::BTreeMap;
use std::ops::Range;

use super::links::Links;
use crate::element::Element;

/// Divides words of a line where markup begins or ends within a word. The linked words of the
/// translation are divided in the same way, if they have the same parts. Otherwise they belong to
/// the first part with most markup.
pub(super) fn divided(line: &str, elements: &[Element], text: &str, links: Links) -> Links {
    let cuts = cuts_in_words(&links.source, elements);
    match cuts.is_empty() {
        true => links,
        false => Words { line, text, links }.divided(&cuts, elements),
    }
}

/// Places within words at which markup begins or ends, in order.
fn cuts_in_words(words: &[Range<usize>], elements: &[Element]) -> Vec<usize> {
    let (mut cuts, mut left) = (Vec::new(), vec![elements]);
    while let Some(elements) = left.pop() {
        for element in elements {
            cuts.extend([element.range.start, element.range.end]);
            left.push(&element.inner);
        }
    }
    cuts.retain(|&cut| {
        let next = words.partition_point(|word| word.end <= cut);
        words.get(next).is_some_and(|word| word.start < cut)
    });
    cuts.sort_unstable();
    cuts.dedup();
    cuts
}

/// Words of a line and of its translation, with their links.
struct Words<'a> {
    line: &'a str,
    text: &'a str,
    links: Links,
}

/// Part of a unit of a translation, with the index of the part of a word that it is linked to.
type LinkedPart = (Range<usize>, usize);

impl Words<'_> {
    /// Divides the words of the line at the places `cuts`, and their translations.
    fn divided(self, cuts: &[usize], elements: &[Element]) -> Links {
        let mut source = Vec::with_capacity(self.links.source.len() + cuts.len());
        // For each word of the line, the indices of its parts.
        let mut parts_of: Vec<Range<usize>> = Vec::with_capacity(self.links.source.len());
        for word in &self.links.source {
            let first = cuts.partition_point(|&cut| cut <= word.start);
            let end = cuts.partition_point(|&cut| cut < word.end);
            let (begin, mut at) = (source.len(), word.start);
            for &cut in cuts[first..end].iter().chain([&word.end]) {
                source.push(at..cut);
                at = cut;
            }
            parts_of.push(begin..source.len());
        }
        // Parts of each unit of the translation that is divided, and the words that it translates.
        let mut units: BTreeMap<usize, Vec<LinkedPart>> = BTreeMap::new();
        let mut is_divided = vec![false; parts_of.len()];
        for (unit, word) in self.links.links.iter().enumerate() {
            let Some(word) = word.filter(|&word| !is_divided[word]) else { continue };
            let own = parts_of[word].clone();
            if own.len() > 1
                && let Some(parts) = self.parts_like(unit, &source[own.clone()], elements)
            {
                is_divided[word] = true;
                let parts = parts.into_iter().map(|(range, part)| (range, own.start + part));
                units.insert(unit, parts.collect());
            }
        }
        let (mut target, mut links) = (Vec::new(), Vec::new());
        for (number, unit) in self.links.target.into_iter().enumerate() {
            if let Some(parts) = units.remove(&number) {
                let (ranges, parts): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
                target.extend(ranges);
                links.extend(parts.into_iter().map(Some));
                continue;
            }
            target.push(unit);
            links.push(self.links.links[number].map(|word| {
                let own = parts_of[word].clone();
                if own.len() == 1 {
                    return own.start;
                }
                // A part with markup, unless another unit has it.
                let marked = marked(&source[own.clone()], elements);
                let part = marked.iter().position(|&is_marked| is_marked != is_divided[word]);
                own.start + part.unwrap_or(0)
            }));
        }
        Links { source, target, links }
    }

    /// Divides a unit of the translation into parts like `parts` of the line. Returns the parts,
    /// each with the index of the part of the line that it is linked to; `None` if the unit has no
    /// such parts.
    fn parts_like(
        &self,
        unit: usize,
        parts: &[Range<usize>],
        elements: &[Element],
    ) -> Option<Vec<LinkedPart>> {
        let unit = self.links.target[unit].clone();
        let text = &self.text[unit.clone()];
        let word = parts.first()?.start..parts.last()?.end;
        let of_line = &self.line[word.clone()];
        let moved = |part: &Range<usize>| {
            unit.start + part.start - word.start..unit.start + part.end - word.start
        };
        let is_alike = text.len() == of_line.len()
            && text.to_lowercase() == of_line.to_lowercase()
            && parts.iter().all(|part| self.text.is_char_boundary(moved(part).start));
        if is_alike {
            return Some(parts.iter().map(moved).zip(0..).collect());
        }
        // The words differ. Parts with markup are looked for: at the beginning or the end if they
        // are there in the line, otherwise at a single place within the word.
        let marked = marked(parts, elements);
        let plain = |part: usize| Some(part).filter(|&part| !marked[part]);
        let (mut found, mut at) = (Vec::new(), 0);
        for (part, range) in parts.iter().enumerate().filter(|(part, _)| marked[*part]) {
            let wanted = &self.line[range.clone()];
            let place = if part == 0 {
                text.starts_with(wanted).then_some(0)
            } else if part + 1 == parts.len() {
                text.strip_suffix(wanted).map(str::len)
            } else {
                let mut places = text.match_indices(wanted).map(|(place, _)| place);
                places.next().filter(|_| places.next().is_none())
            };
            let place = place.filter(|&place| place >= at)?;
            if place > at {
                // The text between belongs to the part without markup before this one.
                let before = part.checked_sub(1).and_then(plain)?;
                found.push((unit.start + at..unit.start + place, before));
            }
            at = place + wanted.len();
            found.push((unit.start + place..unit.start + at, part));
        }
        if at < text.len() {
            found.push((unit.start + at..unit.end, plain(parts.len() - 1)?));
        }
        (found.len() > 1).then_some(found)
    }
}

/// For each part of a word, whether it is inside more elements than another part.
fn marked(parts: &[Range<usize>], elements: &[Element]) -> Vec<bool> {
    let depth = |part: &Range<usize>| {
        let (mut depth, mut level) = (0_usize, elements);
        loop {
            // Elements beside each other do not overlap, and are in the order of the line.
            let next = level.partition_point(|element| element.range.end <= part.start);
            match level.get(next) {
                Some(element)
                    if element.range.start <= part.start && part.end <= element.range.end =>
                {
                    (depth, level) = (depth + 1, &element.inner);
                }
                _ => return depth,
            }
        }
    };
    let depths: Vec<usize> = parts.iter().map(depth).collect();
    let least = depths.iter().min().copied().unwrap_or(0);
    depths.into_iter().map(|depth| depth > least).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Markup;
    use crate::line::Line;
    use crate::syntax::Syntax;
    use crate::translated::Translated;

    /// Renders a translation of `text`, in which `part` has a tag.
    fn rendered(text: &str, part: &str, translation: &str) -> String {
        let start = text.find(part).expect("a part");
        let markup = Markup::Tags("<s>".to_owned(), "</s>".to_owned());
        let elements = vec![Element::new(start..start + part.len(), markup)];
        let line = Line::new(text.to_owned(), elements, Syntax::Xml);
        line.render(&Translated { text: translation.to_owned(), links: Vec::new() })
    }

    #[test]
    fn a_part_of_a_word_stays_a_part() {
        for (text, part, translation, expected) in [
            ("H2O is wet", "2", "H2O ist nass", "H<s>2</s>O ist nass"),
            ("h2o", "2", "H2O", "H<s>2</s>O"),
            ("a word1 here", "1", "ein Wort1 hier", "ein Wort<s>1</s> hier"),
            ("the World", "W", "die Welt", "die <s>W</s>elt"),
            // The translation has no such part.
            (
                "an unbelievable end",
                "believ",
                "ein unglaubliches Ende",
                "ein <s>unglaubliches</s> Ende",
            ),
            ("the 1st day", "st", "der 1 Tag", "der <s>1</s> Tag"),
            // The part occurs twice within the word.
            ("abcbd", "c", "xcycz", "<s>xcycz</s>"),
        ] {
            assert_eq!(rendered(text, part, translation), expected);
        }
    }
}
