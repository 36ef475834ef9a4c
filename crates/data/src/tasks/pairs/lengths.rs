//! Learns from a corpus the usual ratio of the lengths of source and target in two languages.
//!
//! One language needs more characters than another for the same text. The ratio is about the same
//! for most sentences, and varies less the longer they are (Gale and Church 1993, "A Program for
//! Aligning Sentences in Bilingual Corpora", section 3.1). Here the logarithm of the ratio has a
//! median and a spread for each class of lengths. The spread is the median absolute deviation,
//! which stays bounded unless half of the pairs are wrong (Hampel 1974).
//!
//! **Decision.** Lengths are divided into classes. Gale and Church instead use a variance
//! proportional to the length, which is right for closely aligned translations; but free
//! translations vary more in long texts. Ratios are counted in bins of 2 %, so that the counts of
//! parts of a corpus can be added in any order.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::UsualLengths;

/// Number of classes of lengths. The pairs of a class have at most 16, 32, …, 512 characters on
/// both sides together; the last class has no limit.
const CLASSES: usize = 7;

/// Binary logarithm of the largest number of characters in the first class.
const FIRST_CLASS: u32 = 4;

/// Number of bins into which each unit of the natural logarithm of the ratio is divided.
const BINS: f64 = 50.0;

/// Smallest number of pairs from which the values of a class are learned. A class with fewer pairs
/// uses the values of the nearest other class.
const FEWEST_PAIRS: u64 = 200;

/// Ratio of the standard deviation of a normal distribution to its median absolute deviation: 1 /
/// Φ⁻¹(3/4).
const DEVIATIONS: f64 = 1.4826;

/// Smallest standard deviation of the logarithm. Because of it, the sides of a pair may differ by a
/// few percent in length even if they nearly always have the same length in the corpus.
const LEAST_DEVIATION: f64 = 0.05;

/// Number of characters of a side, without white space at both ends.
pub(crate) fn characters(text: &str) -> u32 {
    u32::try_from(text.trim().chars().count()).unwrap_or(u32::MAX)
}

fn class_of(source: u32, target: u32) -> usize {
    let both = (u64::from(source) + u64::from(target)).max(2);
    ((both - 1).ilog2() + 1).saturating_sub(FIRST_CLASS).min(CLASSES as u32 - 1) as usize
}

/// Logarithm of the ratio of the target's length to the source's length.
fn log_ratio(source: u32, target: u32) -> f64 {
    (f64::from(target.max(1)) / f64::from(source.max(1))).ln()
}

/// Counts of pairs by class of lengths and by bin of ratios.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LengthCounts {
    classes: [BTreeMap<i16, u64>; CLASSES],
}

impl LengthCounts {
    /// Counts a pair with these numbers of characters.
    pub(crate) fn count(&mut self, source: u32, target: u32) {
        let bin = (log_ratio(source, target) * BINS).round() as i16;
        *self.classes[class_of(source, target)].entry(bin).or_default() += 1;
    }

    /// Adds the counts of other pairs.
    pub(crate) fn add(&mut self, other: &Self) {
        for (own, other) in self.classes.iter_mut().zip(&other.classes) {
            other.iter().for_each(|(bin, pairs)| *own.entry(*bin).or_default() += pairs);
        }
    }
}

/// The usual ratio of lengths in a class.
#[derive(Debug, Clone, Copy)]
struct Usual {
    pairs: u64,
    /// Median of the logarithm of the ratio.
    median: f64,
    /// Standard deviation of the logarithm, computed from the median absolute deviation.
    deviation: f64,
}

impl Usual {
    /// Computes the values from the counts of a class. `None` if there are too few pairs.
    fn learn(bins: &BTreeMap<i16, u64>) -> Option<Self> {
        let pairs = bins.values().sum();
        if pairs < FEWEST_PAIRS {
            return None;
        }
        let middle = median(bins, pairs)?;
        let mut distances = BTreeMap::new();
        for (bin, pairs) in bins {
            *distances.entry(i32::from(*bin).abs_diff(middle.into())).or_default() += pairs;
        }
        let deviation = DEVIATIONS * f64::from(median(&distances, pairs)?) / BINS;
        let deviation = deviation.max(LEAST_DEVIATION);
        Some(Self { pairs, median: f64::from(middle) / BINS, deviation })
    }
}

/// The lower median of values. `numbers` says how often each value occurs, and `all` is the sum of
/// these numbers.
fn median<T: Copy>(numbers: &BTreeMap<T, u64>, all: u64) -> Option<T> {
    let mut before = 0;
    let mut values = numbers.iter();
    values.find_map(|(value, number)| {
        before += number;
        (2 * before >= all).then_some(*value)
    })
}

/// Limits of the ratio of lengths in a direction.
#[derive(Debug, Clone)]
pub(crate) struct LengthLimits {
    classes: [Option<Usual>; CLASSES],
    /// Largest allowed distance from the usual ratio, in standard deviations.
    deviations: f64,
}

impl LengthLimits {
    /// Learns limits from `counts`. A ratio may differ from the median by `deviations` standard
    /// deviations.
    pub(crate) fn learn(counts: &LengthCounts, deviations: f64) -> Self {
        Self {
            classes: [0, 1, 2, 3, 4, 5, 6].map(|one| Usual::learn(&counts.classes[one])),
            deviations,
        }
    }

    /// True if a pair with these numbers of characters is within the limits, or if nothing could be
    /// learned.
    pub(crate) fn allow(&self, source: u32, target: u32) -> bool {
        let class = class_of(source, target);
        let known =
            self.classes.iter().enumerate().filter_map(|(one, usual)| Some((one, (*usual)?)));
        let nearest = known.min_by_key(|(one, _)| one.abs_diff(class));
        nearest.is_none_or(|(_, usual)| {
            let distance = (log_ratio(source, target) - usual.median).abs();
            distance <= self.deviations * usual.deviation
        })
    }

    /// The values that were learned for `direction`, for the report.
    pub(crate) fn report(&self, direction: &str) -> Vec<UsualLengths> {
        let of = |(class, usual): (usize, &Option<Usual>)| {
            let Usual { pairs, median, deviation } = (*usual)?;
            let most_characters =
                (class + 1 < CLASSES).then(|| 1 << (FIRST_CLASS as usize + class));
            let ratio = median.exp();
            let direction = direction.to_owned();
            Some(UsualLengths { direction, most_characters, pairs, ratio, deviation })
        };
        self.classes.iter().enumerate().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draws;

    #[test]
    fn classes_end_at_powers_of_two() {
        for (characters, class) in [(0, 0), (1, 0), (8, 0), (16, 1), (17, 2), (256, 5), (257, 6)] {
            assert_eq!(class_of(characters, characters), class, "{characters}");
        }
        assert_eq!(class_of(u32::MAX, u32::MAX), CLASSES - 1);
        assert_eq!((class_of(15, 1), class_of(16, 1)), (0, 1));
    }

    /// Lengths of pairs whose ratio is 0.4 with a spread of 20 %. Every `bad`th pair has the
    /// lengths of two unrelated texts.
    fn lengths(pairs: u64, bad: u64) -> Vec<(u32, u32)> {
        let draws = Draws::new(3, 0, 0);
        let one = |pair: u64| {
            let source = 40.0 + 300.0 * draws.unit(3 * pair);
            let other = 40.0 + 300.0 * draws.unit(3 * pair + 1);
            let from = if pair.is_multiple_of(bad) { other } else { source };
            let target = from * 0.4 * (0.2 * draws.normal(pair + (1 << 40))).exp();
            (source as u32, target.round() as u32)
        };
        (0..pairs).map(one).collect()
    }

    fn counted(lengths: &[(u32, u32)]) -> LengthCounts {
        let mut counts = LengthCounts::default();
        lengths.iter().for_each(|&(source, target)| counts.count(source, target));
        counts
    }

    #[test]
    fn ratio_and_spread_are_those_of_a_sorted_list() {
        let lengths = lengths(20_000, u64::MAX);
        let limits = LengthLimits::learn(&counted(&lengths), 3.0);
        for class in limits.report("en-zh") {
            let most = class.most_characters.unwrap_or(u64::MAX);
            let is_own = |&&(source, target): &&(u32, u32)| {
                let both = u64::from(source + target);
                both <= most && (both > most / 2 || most == u64::MAX && both > 512)
            };
            let mut logarithms: Vec<f64> =
                lengths.iter().filter(is_own).map(|&(one, other)| log_ratio(one, other)).collect();
            assert_eq!(logarithms.len() as u64, class.pairs);
            logarithms.sort_by(f64::total_cmp);
            let middle = logarithms[logarithms.len() / 2];
            let mut distances: Vec<f64> =
                logarithms.iter().map(|logarithm| (logarithm - middle).abs()).collect();
            distances.sort_by(f64::total_cmp);
            let deviation = 1.4826 * distances[distances.len() / 2];
            assert!((class.ratio.ln() - middle).abs() < 0.021, "{class:?}, {middle}");
            assert!((class.deviation - deviation).abs() < 0.031, "{class:?}, {deviation}");
        }
        // Of a normal distribution, 0.27 % are outside three standard deviations.
        let outside = lengths.iter().filter(|&&(one, other)| !limits.allow(one, other)).count();
        assert!((20..=160).contains(&outside), "{outside}");
    }

    #[test]
    fn wrong_pairs_neither_hide_nor_move_what_is_usual() {
        let lengths = lengths(20_000, 5);
        let limits = LengthLimits::learn(&counted(&lengths), 4.0);
        for class in limits.report("en-zh").iter().filter(|class| class.pairs > 2000) {
            assert!((0.37..0.43).contains(&class.ratio), "{class:?}");
            assert!((0.17..0.30).contains(&class.deviation), "{class:?}");
        }
        let is_dropped = |pair: &usize| !limits.allow(lengths[*pair].0, lengths[*pair].1);
        let (wrong, right): (Vec<usize>, Vec<usize>) =
            (0..lengths.len()).filter(is_dropped).partition(|pair| pair % 5 == 0);
        assert!(wrong.len() > 800, "{} of 4000", wrong.len());
        assert!(right.len() < 20, "{} of 16000", right.len());
    }

    #[test]
    fn few_pairs_teach_nothing_and_others_take_after_the_nearest_class() {
        let few = LengthLimits::learn(&counted(&lengths(150, 9)), 1.0);
        assert!(few.allow(1, 900) && few.report("en-zh").is_empty());
        // One class is known: from 33 to 64 characters.
        let alike = vec![(24, 24); 300];
        let limits = LengthLimits::learn(&counted(&alike), 2.0);
        assert!(limits.allow(24, 24) && limits.allow(240, 250) && !limits.allow(240, 300));
        assert_eq!(limits.report("a-b")[0].most_characters, Some(64));
        // The counts of two parts, added in any order, are the counts of the whole.
        let all = lengths(1000, 7);
        let (mut one, mut other) = (counted(&all[..300]), counted(&all[300..]));
        let first = one.clone();
        one.add(&other);
        other.add(&first);
        assert_eq!((&one, &other), (&counted(&all), &counted(&all)));
        let json = serde_json::to_string(&one).expect("JSON");
        assert_eq!(serde_json::from_str::<LengthCounts>(&json).expect("JSON"), one);
    }
}
