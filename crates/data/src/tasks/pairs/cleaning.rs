//! Rules by which pairs are kept or dropped. They are applied to the texts first, then to the
//! tokens.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::CleaningConfig;

/// Reason why a pair was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DropReason {
    /// The source is only white space.
    EmptySource,
    /// The target is only white space.
    EmptyTarget,
    /// A side has fewer than `min_tokens` tokens.
    TooShort,
    /// A side has more than `max_tokens` tokens or `max_characters` characters.
    TooLong,
    /// One side is more than `max_ratio` times as long as the other.
    Ratio,
    /// The same pair occurred before.
    Duplicate,
    /// A side is in the wrong language.
    OtherLanguage,
    /// A side has too few letters of the script of its language.
    Script,
    /// Source and target have the same letters and digits.
    Copy,
    /// The sides have different digits.
    Digits,
    /// Only one side is in capitals.
    Case,
    /// The lengths of the sides are unusual for their languages.
    Lengths,
    /// An earlier pair is nearly the same.
    NearDuplicate,
}

/// Numbers of pairs dropped for each reason. A pair is counted only for the first reason that
/// applies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Pairs with an empty source.
    pub empty_source: u64,
    /// Pairs with an empty target.
    pub empty_target: u64,
    /// Pairs with a side that is too short.
    pub too_short: u64,
    /// Pairs with a side that is too long.
    pub too_long: u64,
    /// Pairs whose lengths are too different.
    pub ratio: u64,
    /// Pairs that repeat an earlier pair.
    #[serde(default)]
    pub duplicate: u64,
    /// Pairs with a side in the wrong language.
    #[serde(default)]
    pub other_language: u64,
    /// Pairs with a side in the wrong script.
    #[serde(default)]
    pub script: u64,
    /// Pairs whose source and target have the same letters and digits.
    #[serde(default)]
    pub copy: u64,
    /// Pairs whose sides have different digits.
    #[serde(default)]
    pub digits: u64,
    /// Pairs with only one side in capitals.
    #[serde(default)]
    pub case: u64,
    /// Pairs whose lengths are unusual for their languages.
    #[serde(default)]
    pub lengths: u64,
    /// Pairs that are nearly the same as an earlier pair.
    #[serde(default)]
    pub near_duplicate: u64,
}

/// A dropped pair, as an example in the report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedPair {
    /// Description of the reason.
    pub reason: String,
    /// Source, or its beginning.
    pub source: String,
    /// Target, or its beginning.
    pub target: String,
}

/// Largest number of examples for a reason.
const MOST_EXAMPLES: usize = 3;

/// Number of characters that an example shows of a text.
const SHOWN: usize = 120;

impl DroppedPair {
    /// Adds a pair to `examples`, unless they already contain enough examples for `reason`.
    pub(crate) fn add(examples: &mut Vec<Self>, reason: DropReason, source: &str, target: &str) {
        if !Self::has_room(examples, reason) {
            return;
        }
        let cut = |text: &str| text.chars().take(SHOWN).collect();
        let reason = reason.describe().to_owned();
        examples.push(Self { reason, source: cut(source), target: cut(target) });
    }

    /// Adds this example to `examples`, unless they already contain enough examples for its reason.
    pub(crate) fn put(self, examples: &mut Vec<Self>) {
        if examples.iter().filter(|one| one.reason == self.reason).count() < MOST_EXAMPLES {
            examples.push(self);
        }
    }

    /// True if one more example for `reason` may be added to `examples`.
    pub(crate) fn has_room(examples: &[Self], reason: DropReason) -> bool {
        examples.iter().filter(|one| one.reason == reason.describe()).count() < MOST_EXAMPLES
    }
}

impl DropReason {
    /// All reasons, in the order in which reports list them.
    pub const ALL: [Self; 13] = [
        Self::EmptySource,
        Self::EmptyTarget,
        Self::TooShort,
        Self::TooLong,
        Self::Ratio,
        Self::Duplicate,
        Self::OtherLanguage,
        Self::Script,
        Self::Copy,
        Self::Digits,
        Self::Case,
        Self::Lengths,
        Self::NearDuplicate,
    ];

    /// The description of a reason in reports.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::EmptySource => "empty source",
            Self::EmptyTarget => "empty target",
            Self::TooShort => "too short",
            Self::TooLong => "too long",
            Self::Ratio => "length ratio",
            Self::Duplicate => "duplicate",
            Self::OtherLanguage => "other language",
            Self::Script => "other script",
            Self::Copy => "copy",
            Self::Digits => "other digits",
            Self::Case => "other case",
            Self::Lengths => "unusual lengths",
            Self::NearDuplicate => "near duplicate",
        }
    }
}

impl Dropped {
    /// Counts a dropped pair.
    pub fn count(&mut self, reason: DropReason) {
        *self.count_mut(reason) += 1;
    }

    fn count_mut(&mut self, reason: DropReason) -> &mut u64 {
        match reason {
            DropReason::EmptySource => &mut self.empty_source,
            DropReason::EmptyTarget => &mut self.empty_target,
            DropReason::TooShort => &mut self.too_short,
            DropReason::TooLong => &mut self.too_long,
            DropReason::Ratio => &mut self.ratio,
            DropReason::Duplicate => &mut self.duplicate,
            DropReason::OtherLanguage => &mut self.other_language,
            DropReason::Script => &mut self.script,
            DropReason::Copy => &mut self.copy,
            DropReason::Digits => &mut self.digits,
            DropReason::Case => &mut self.case,
            DropReason::Lengths => &mut self.lengths,
            DropReason::NearDuplicate => &mut self.near_duplicate,
        }
    }

    /// Adds the counts of another part of the corpus.
    pub(crate) fn add(&mut self, other: &Self) {
        let mut other = *other;
        for reason in DropReason::ALL {
            *self.count_mut(reason) += *other.count_mut(reason);
        }
    }

    /// The description of each reason, with its count.
    pub fn reasons(&self) -> [(&'static str, u64); DropReason::ALL.len()] {
        let mut counts = *self;
        DropReason::ALL.map(|reason| (reason.describe(), *counts.count_mut(reason)))
    }

    /// Number of all dropped pairs.
    pub fn total(&self) -> u64 {
        self.reasons().iter().map(|(_, count)| count).sum()
    }
}

impl fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reasons = self.reasons();
        let mut present = reasons.iter().filter(|(_, count)| *count > 0).peekable();
        if present.peek().is_none() {
            return formatter.write_str("none");
        }
        while let Some((reason, count)) = present.next() {
            let comma = if present.peek().is_some() { ", " } else { "" };
            write!(formatter, "{reason} {count}{comma}")?;
        }
        Ok(())
    }
}

/// Decides which pairs are kept, by the limits of a [`CleaningConfig`].
#[derive(Debug, Clone)]
pub struct Cleaner {
    config: CleaningConfig,
}

impl Cleaner {
    /// Makes a cleaner with the limits of `config`.
    pub fn new(config: &CleaningConfig) -> Self {
        Self { config: config.clone() }
    }

    /// Checks a pair before it is tokenised.
    ///
    /// # Errors
    ///
    /// The reason why the pair must be dropped.
    pub fn check_text(&self, source: &str, target: &str) -> Result<(), DropReason> {
        // A character has at least one byte, so the characters of most lines need not be counted.
        let too_long = |text: &str| {
            text.len() > self.config.max_characters
                && text.chars().count() > self.config.max_characters
        };
        if source.trim().is_empty() {
            Err(DropReason::EmptySource)
        } else if target.trim().is_empty() {
            Err(DropReason::EmptyTarget)
        } else if too_long(source) || too_long(target) {
            Err(DropReason::TooLong)
        } else {
            Ok(())
        }
    }

    /// Checks a pair by its numbers of tokens, not counting the `</s>` at the end of each side.
    ///
    /// # Errors
    ///
    /// The reason why the pair must be dropped.
    pub fn check_tokens(&self, source: usize, target: usize) -> Result<(), DropReason> {
        let (shorter, longer) = (source.min(target), source.max(target));
        if source == 0 {
            // A normaliser may remove the whole text, even if it is not only white space.
            Err(DropReason::EmptySource)
        } else if target == 0 {
            Err(DropReason::EmptyTarget)
        } else if shorter < self.config.min_tokens {
            Err(DropReason::TooShort)
        } else if longer > self.config.max_tokens {
            Err(DropReason::TooLong)
        } else if self.config.max_ratio > 0.0
            && longer as f64 > self.config.max_ratio * shorter as f64
        {
            Err(DropReason::Ratio)
        } else {
            Ok(())
        }
    }
}
