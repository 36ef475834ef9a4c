//! Places of markup in a translation.
//!
//! Markup forms a tree, and the translation gets the same tree. Each element is placed around the
//! words of the translation that are linked to its own words. Elements beside each other never
//! overlap: where the words of two elements are mixed, each element is placed around its longest
//! series of words.

mod links;
mod partial_words;

use std::collections::BTreeMap;
use std::ops::Range;

use crate::element::{Element, Markup};
use crate::translated::Translated;
use links::Links;
use partial_words::divided;

/// Markup with its place in a translation, and the markup inside it.
pub(crate) struct Placed<'a> {
    pub(crate) element: &'a Element,
    pub(crate) range: Range<usize>,
    pub(crate) inner: Vec<Self>,
}

/// Index in place of that of an element, for words outside of all elements.
const OUTSIDE: usize = usize::MAX;

/// Units (words and single characters) of a line and of its translation, and the links between
/// these units.
pub(crate) struct Target {
    source: Vec<Range<usize>>,
    target: Vec<Range<usize>>,
    /// For each unit of the target, the unit of the source that it is linked to.
    links: Vec<Option<usize>>,
    /// For each unit of the target, whether it is a word, and not punctuation.
    is_word: Vec<bool>,
    /// For each unit of the source, the first and last unit of the target that are linked to it;
    /// `None` without a link.
    linked: Vec<Option<(usize, usize)>>,
    /// For each unit of the source, the index of the last unit up to it that has a link.
    last_linked: Vec<Option<usize>>,
    /// For each unit of the source, the index of the first unit from it on that has a link.
    next_linked: Vec<Option<usize>>,
}

impl Target {
    /// Links the units of a line, which has the markup `elements`, to those of its translation.
    pub(crate) fn new(line: &str, elements: &[Element], translated: &Translated) -> Self {
        let Links { source, target, links } =
            divided(line, elements, &translated.text, Links::new(line, translated));
        let mut linked: Vec<Option<(usize, usize)>> = vec![None; source.len()];
        for (number, unit) in links.iter().enumerate() {
            if let Some(unit) = *unit {
                let (first, _) = linked[unit].unwrap_or((number, number));
                linked[unit] = Some((first, number));
            }
        }
        let mut last_linked = vec![None; source.len()];
        let mut next_linked = vec![None; source.len()];
        let (mut last, mut next) = (None, None);
        for unit in 0..source.len() {
            last = linked[unit].map(|_| unit).or(last);
            last_linked[unit] = last;
            let unit = source.len() - 1 - unit;
            next = linked[unit].map(|_| unit).or(next);
            next_linked[unit] = next;
        }
        let is_word =
            |unit: &Range<usize>| translated.text[unit.clone()].starts_with(char::is_alphanumeric);
        let is_word = target.iter().map(is_word).collect();
        Self { source, target, links, is_word, linked, last_linked, next_linked }
    }

    /// Places markup. `elements` is the markup directly inside an element whose text has the bytes
    /// `source` in the line and the bytes `place` in the translation. The result is sorted.
    pub(crate) fn place<'a>(
        &self,
        elements: &'a [Element],
        source: &Range<usize>,
        place: Range<usize>,
    ) -> Vec<Placed<'a>> {
        if elements.is_empty() {
            return Vec::new();
        }
        let owners = self.owners(elements, &place);
        let ranges = self.ranges(elements, &owners, source, &place);
        let mut placed: Vec<(usize, Placed<'a>)> = elements
            .iter()
            .zip(ranges)
            .map(|(element, range)| {
                let inner = self.place(&element.inner, &element.range, range.clone());
                Placed { element, range, inner }
            })
            .enumerate()
            .collect();
        placed.sort_by_key(|(number, one)| (one.range.start, one.range.end, *number));
        let mut placed: Vec<Placed<'a>> = placed.into_iter().map(|(_, one)| one).collect();
        // Times within subtitles must ascend, so they keep their order.
        let times = elements.iter().filter(|element| element.is_time());
        let places = placed.iter_mut().filter(|one| one.element.is_time());
        places.zip(times).for_each(|(one, time)| one.element = time);
        placed
    }

    /// Units of the target within the bytes `place`, each with the index of the element whose words
    /// it translates. The index is [`OUTSIDE`] for a translation of words outside of the elements,
    /// and `None` for a unit without a link.
    fn owners(&self, elements: &[Element], place: &Range<usize>) -> Vec<(usize, Option<usize>)> {
        let owner = |unit: usize| {
            let at = self.source[self.links[unit]?].start;
            // Elements beside each other do not overlap, and are in the order of the line.
            let number = elements.partition_point(|element| element.range.end <= at);
            let element = elements.get(number).filter(|element| element.range.start <= at);
            Some(element.map_or(OUTSIDE, |_| number))
        };
        let first = self.target.partition_point(|unit| unit.start < place.start);
        let end = self.target.partition_point(|unit| unit.end <= place.end);
        (first..end.max(first)).map(|unit| (unit, owner(unit))).collect()
    }

    /// Bytes of the translation that each element gets, within `place`. See [`Self::place`].
    fn ranges(
        &self,
        elements: &[Element],
        owners: &[(usize, Option<usize>)],
        source: &Range<usize>,
        place: &Range<usize>,
    ) -> Vec<Range<usize>> {
        let last = elements.len() - 1;
        // An element that began before the line begins before its translation, too.
        let begun = matches!(elements[0].markup, Markup::Close(_)).then_some(0);
        let open = matches!(elements[last].markup, Markup::Open(_)).then_some(last);
        let point = |at: usize| self.point(at, source, place);
        let mut middle = 0..owners.len();
        let mut between = place.clone();
        if let Some(begun) = begun {
            let count = longest_begin(owners.iter().map(|&(_, owner)| owner), begun);
            let has_words = owners[..count].iter().any(|&(_, owner)| owner == Some(begun));
            middle.start = match has_words {
                true => count,
                // Nothing of the element is linked, so that its end is where its neighbour begins.
                false => self.free(owners, |end| end <= point(elements[begun].range.end)),
            };
            between.start = self.end_before(owners, middle.start, place.start);
        }
        if let Some(open) = open {
            let rest = &owners[middle.clone()];
            let count = longest_begin(rest.iter().rev().map(|&(_, owner)| owner), open);
            let has_words = rest.iter().rev().take(count).any(|&(_, owner)| owner == Some(open));
            middle.end -= match has_words {
                true => count,
                false => {
                    let begin = point(elements[open].range.start);
                    let is_behind = |&&(unit, owner): &&(usize, Option<usize>)| {
                        owner.is_none() && self.target[unit].start >= begin
                    };
                    rest.iter().rev().take_while(is_behind).count()
                }
            };
            between.end = match owners.get(middle.end) {
                Some(&(unit, _)) => self.target[unit].start,
                None => place.end,
            };
        }
        between.end = between.end.max(between.start);
        let mut ranges: Vec<Option<Range<usize>>> = vec![None; elements.len()];
        let mut placed = Vec::new();
        for (number, range) in self.longest_series(&owners[middle]) {
            if Some(number) != begun && Some(number) != open {
                ranges[number] = Some(range.clone());
                placed.push((range, number));
            }
        }
        placed.sort_by_key(|(range, _)| range.start);
        for (number, element) in elements.iter().enumerate() {
            if ranges[number].is_none() && Some(number) != begun && Some(number) != open {
                let at = point(element.range.start).clamp(between.start, between.end);
                let at = beside(at, number, &placed);
                let next = placed.partition_point(|(range, _)| range.start < at);
                let mut range = at..at;
                if !element.range.is_empty() {
                    let end = placed.get(next).map_or(between.end, |(range, _)| range.start);
                    range = self.unlinked(at..end);
                }
                if !range.is_empty() {
                    placed.insert(next, (range.clone(), number));
                }
                ranges[number] = Some(range);
            }
        }
        let mut ranges: Vec<Range<usize>> =
            ranges.into_iter().map(|range| range.unwrap_or(place.clone())).collect();
        if let Some(begun) = begun {
            ranges[begun] = place.start..between.start;
        }
        if let Some(open) = open {
            ranges[open] = between.end..place.end;
        }
        ranges
    }

    /// Bytes of the words without links at the beginning of a part of the translation, after
    /// punctuation; empty if there are none. They can be the translation of an element whose words
    /// have no links either.
    fn unlinked(&self, part: Range<usize>) -> Range<usize> {
        let is_free =
            |unit: &usize| self.links[*unit].is_none() && self.target[*unit].end <= part.end;
        let first = self.target.partition_point(|unit| unit.start < part.start);
        let free = (first..self.target.len()).take_while(is_free);
        let mut words = free.skip_while(|&unit| !self.is_word[unit]);
        match words.next() {
            Some(first) => {
                let last = words.take_while(|&unit| self.is_word[unit]).last().unwrap_or(first);
                self.target[first].start..self.target[last].end
            }
            None => part.start..part.start,
        }
    }

    /// Number of units at the beginning of `owners` that belong to no element and whose ends are
    /// accepted by `fits`.
    fn free(&self, owners: &[(usize, Option<usize>)], fits: impl Fn(usize) -> bool) -> usize {
        let is_free = |&&(unit, owner): &&(usize, Option<usize>)| {
            owner.is_none() && fits(self.target[unit].end)
        };
        owners.iter().take_while(is_free).count()
    }

    /// Byte at which the first `count` units of `owners` end; `start` if `count` is 0.
    fn end_before(&self, owners: &[(usize, Option<usize>)], count: usize, start: usize) -> usize {
        match owners[..count].last() {
            Some(&(unit, _)) => self.target[unit].end,
            None => start,
        }
    }

    /// For each element with words among `owners`, the bytes of its longest series of words. A
    /// series has no words of other elements, and as few words outside of elements as possible. Of
    /// several longest series, the first is returned.
    fn longest_series(&self, owners: &[(usize, Option<usize>)]) -> BTreeMap<usize, Range<usize>> {
        // For each element: own words without those outside, own words, first and last unit.
        let mut best: BTreeMap<usize, (usize, usize, Range<usize>)> = BTreeMap::new();
        // The same for the series that ends with the last word, and its element.
        let mut series: Option<(usize, usize, usize, usize)> = None;
        let mut outside = 0;
        for &(unit, owner) in owners {
            let Some(owner) = owner else { continue };
            if owner == OUTSIDE {
                outside += 1;
                continue;
            }
            let (balance, count, first, _) = series
                .filter(|(balance, .., last)| *last == owner && *balance >= outside)
                .map_or((1, 1, unit, owner), |(balance, count, first, _)| {
                    (balance - outside + 1, count + 1, first, owner)
                });
            series = Some((balance, count, first, owner));
            outside = 0;
            if best.get(&owner).is_none_or(|(most, words, _)| (*most, *words) < (balance, count)) {
                let range = self.target[first].start..self.target[unit].end;
                best.insert(owner, (balance, count, range));
            }
        }
        best.into_iter().map(|(owner, (.., range))| (owner, range)).collect()
    }

    /// Returns the place in the translation that corresponds to the byte `at` of the line. It is
    /// directly after the translation of the unit before `at`, or directly before the translation
    /// of the unit after `at`. Only units within the bytes `source` of the line are considered;
    /// without any, the place is the beginning of `place`.
    fn point(&self, at: usize, source: &Range<usize>, place: &Range<usize>) -> usize {
        let first = self.source.partition_point(|unit| unit.start < source.start);
        let end = self.source.partition_point(|unit| unit.end <= source.end);
        let before = self.source.partition_point(|unit| unit.end <= at).checked_sub(1);
        let before = before.filter(|&unit| unit >= first);
        let next = self.source.partition_point(|unit| unit.start < at);
        let next = Some(next).filter(|&unit| unit < end);
        let touches = before.is_some_and(|unit| self.source[unit].end == at);
        let behind = before.and_then(|unit| self.last_linked[unit]).filter(|&unit| unit >= first);
        let ahead = next.and_then(|unit| self.next_linked[unit]).filter(|&unit| unit < end);
        // A direct neighbour is better than a more distant one.
        let far = |unit: Option<usize>, direct: Option<usize>| match (unit, direct) {
            (Some(unit), Some(direct)) => unit.abs_diff(direct),
            _ => usize::MAX,
        };
        let is_behind = (far(behind, before), !touches) <= (far(ahead, next), touches);
        let end_of = |unit: usize| self.linked[unit].map(|(_, last)| self.target[last].end);
        let start_of = |unit: usize| self.linked[unit].map(|(first, _)| self.target[first].start);
        let (behind, ahead) = (behind.and_then(end_of), ahead.and_then(start_of));
        let found = if is_behind { behind.or(ahead) } else { ahead.or(behind) };
        found.unwrap_or(if before.is_none() { place.start } else { place.end })
    }
}

/// Number of units, counted from the beginning, that the element `own` gets: as many of its own
/// units as possible, and as few of other elements.
fn longest_begin(owners: impl Iterator<Item = Option<usize>>, own: usize) -> usize {
    let (mut balance, mut best, mut count) = (0_isize, 0, 0);
    for (number, owner) in owners.enumerate() {
        balance += match owner {
            Some(owner) if owner == own => 1,
            Some(_) => -1,
            None => 0,
        };
        if balance > best {
            (best, count) = (balance, number + 1);
        }
    }
    count
}

/// Moves a place out of the elements `placed`, which are sorted: to the end of an element that
/// comes before the markup `number` in the line, or to the beginning of one that comes after it.
fn beside(at: usize, number: usize, placed: &[(Range<usize>, usize)]) -> usize {
    let next = placed.partition_point(|(range, _)| range.end <= at);
    match placed.get(next) {
        Some((range, other)) if range.start < at => {
            if *other < number {
                range.end
            } else {
                range.start
            }
        }
        _ => at,
    }
}
