//! Rules by which pairs are kept: first by their text, then by their tokens.

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
}

/// Numbers of pairs dropped for each reason. A pair counts once, under the first reason that holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Pairs with an empty source.
    pub empty_source: u64,
    /// Pairs with an empty target.
    pub empty_target: u64,
    /// Pairs with too short a side.
    pub too_short: u64,
    /// Pairs with too long a side.
    pub too_long: u64,
    /// Pairs of too unequal lengths.
    pub ratio: u64,
    /// Pairs that occurred before.
    #[serde(default)]
    pub duplicate: u64,
}

impl Dropped {
    /// Counts one more pair.
    pub fn count(&mut self, reason: DropReason) {
        *match reason {
            DropReason::EmptySource => &mut self.empty_source,
            DropReason::EmptyTarget => &mut self.empty_target,
            DropReason::TooShort => &mut self.too_short,
            DropReason::TooLong => &mut self.too_long,
            DropReason::Ratio => &mut self.ratio,
            DropReason::Duplicate => &mut self.duplicate,
        } += 1;
    }

    /// Adds the counts of another process or shard.
    pub(crate) fn add(&mut self, other: &Self) {
        self.empty_source += other.empty_source;
        self.empty_target += other.empty_target;
        self.too_short += other.too_short;
        self.too_long += other.too_long;
        self.ratio += other.ratio;
        self.duplicate += other.duplicate;
    }

    /// Description of each reason, with its count.
    pub fn reasons(&self) -> [(&'static str, u64); 6] {
        [
            ("empty source", self.empty_source),
            ("empty target", self.empty_target),
            ("too short", self.too_short),
            ("too long", self.too_long),
            ("length ratio", self.ratio),
            ("duplicate", self.duplicate),
        ]
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

/// Decides on pairs by a [`CleaningConfig`].
#[derive(Debug, Clone)]
pub struct Cleaner {
    config: CleaningConfig,
}

impl Cleaner {
    /// A cleaner with these limits.
    pub fn new(config: &CleaningConfig) -> Self {
        Self { config: config.clone() }
    }

    /// Checks a pair before it is tokenised.
    ///
    /// # Errors
    ///
    /// The reason to drop the pair.
    pub fn check_text(&self, source: &str, target: &str) -> Result<(), DropReason> {
        // A character has at most four bytes, so most lines need no count.
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

    /// Checks a pair by its token counts, without end marks.
    ///
    /// # Errors
    ///
    /// The reason to drop the pair.
    pub fn check_tokens(&self, source: usize, target: usize) -> Result<(), DropReason> {
        let (shorter, longer) = (source.min(target), source.max(target));
        if source == 0 {
            // A normalizer may remove all of a line that was not blank.
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
