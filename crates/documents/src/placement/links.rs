//! Links between the units of a line and those of its translation.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use crate::placeholders::placeholders;
use crate::translated::Translated;
use crate::units::units;

/// Units of a line and of its translation, with their links.
pub(super) struct Links {
    pub(super) source: Vec<Range<usize>>,
    pub(super) target: Vec<Range<usize>>,
    /// For each unit of the target, the unit of the source that it is linked to.
    pub(super) links: Vec<Option<usize>>,
}

impl Links {
    /// Links the units of a line to those of its translation.
    pub(super) fn new(line: &str, translated: &Translated) -> Self {
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
        link_placeholders((line, &source), (&translated.text, &target), &mut links);
        Self { source, target, links }
    }
}

/// Links each placeholder of a translation to the same placeholder of the line, and nothing else to
/// it. If a placeholder occurs several times, they are linked in order.
fn link_placeholders(
    (line, source): (&str, &[Range<usize>]),
    (text, target): (&str, &[Range<usize>]),
    links: &mut [Option<usize>],
) {
    let index = |units: &[Range<usize>], range: &Range<usize>| {
        units.binary_search_by_key(&range.start, |unit| unit.start).ok()
    };
    let mut of_line: HashMap<&str, VecDeque<usize>> = HashMap::new();
    for range in placeholders(line) {
        let unit = index(source, &range);
        of_line.entry(&line[range]).or_default().extend(unit);
    }
    if of_line.is_empty() {
        return;
    }
    let mut pairs = Vec::new();
    for range in placeholders(text) {
        let from = of_line.get_mut(&text[range.clone()]).and_then(VecDeque::pop_front);
        pairs.extend(index(target, &range).zip(from));
    }
    let mut is_taken = vec![false; source.len()];
    pairs.iter().for_each(|&(_, from)| is_taken[from] = true);
    for link in links.iter_mut() {
        *link = link.filter(|&from| !is_taken[from]);
    }
    pairs.into_iter().for_each(|(to, from)| links[to] = Some(from));
}

/// Indices of the units that have bytes in `range`. The units must be sorted.
fn overlapped(units: &[Range<usize>], range: &Range<usize>) -> Range<usize> {
    let first = units.partition_point(|unit| unit.end <= range.start);
    let end = units.partition_point(|unit| unit.start < range.end);
    first..end.max(first)
}
