//! Preface of each pair in a shard (a file with a part of the tokenised pairs): facts for cleaning
//! rules that compare the pair with other pairs of the split.
//!
//! A preface has a part for each rule that is on, in this order:
//!
//! - for the rule that drops duplicates: a hash of both texts (16 bytes), and one byte, which is
//!   the reason to drop the pair because of its tokens, or 0 if there is none;
//! - for the rule that drops pairs of unusual lengths: the numbers of characters in the source and
//!   in the target (u32 each);
//! - for the rule that drops near duplicates: the keys by which similar pairs are found (u32 each),
//!   the numbers of bytes in the source and in the target (u32 each), and the texts of source and
//!   target.
//!
//! If the first part has a reason to drop the pair, the preface ends after it.

use std::io::{Error, ErrorKind};

use crate::tasks::pairs::lengths::characters;
use crate::tasks::pairs::near_duplicates::NearKeys;
use crate::tasks::pairs::reader::held_out::fingerprint;
use crate::tasks::pairs::rules::without_tag;
use crate::text::cache::Items;
use crate::{CleaningConfig, DropReason, RawPair};

/// Reasons that depend on tokens. A shard encodes a reason as a byte, which is the place of the
/// reason in this list, counted from 1.
const REASONS: [DropReason; 5] = [
    DropReason::EmptySource,
    DropReason::EmptyTarget,
    DropReason::TooShort,
    DropReason::TooLong,
    DropReason::Ratio,
];

fn code(reason: DropReason) -> u8 {
    REASONS.iter().position(|&one| one == reason).map_or(0, |place| place as u8 + 1)
}

/// Cleaning rules that need other pairs of a split.
#[derive(Debug, Default)]
pub(super) struct SplitRules {
    pub(super) drops_duplicates: bool,
    pub(super) has_lengths: bool,
    /// Threshold and keys for near duplicates; `None` if near duplicates are not dropped.
    near: Option<(f64, NearKeys)>,
}

/// Facts about a pair. A shard stores them before the pair.
#[derive(Debug, Default)]
pub(super) struct Preface {
    pub(super) fingerprint: Option<u128>,
    pub(super) reason: Option<DropReason>,
    /// Characters of source and target.
    pub(super) lengths: Option<(u32, u32)>,
    pub(super) near: Option<NearText>,
}

/// Text of a pair, and the keys by which similar pairs are found.
#[derive(Debug, Default)]
pub(super) struct NearText {
    pub(super) keys: Vec<u32>,
    pub(super) source: String,
    pub(super) target: String,
}

impl SplitRules {
    /// Rules for the training split.
    pub(super) fn new(config: &CleaningConfig) -> Self {
        let threshold = config.near_duplicates;
        Self {
            drops_duplicates: config.drop_duplicates,
            has_lengths: config.length_deviations > 0.0,
            near: (threshold > 0.0).then(|| (threshold, NearKeys::new(threshold))),
        }
    }

    /// True if any rule is on.
    pub(super) fn are_any(&self) -> bool {
        self.drops_duplicates || self.has_lengths || self.near.is_some()
    }

    /// Smallest Jaccard index of near duplicates; `None` if these are not dropped.
    pub(super) fn near_threshold(&self) -> Option<f64> {
        self.near.as_ref().map(|(threshold, _)| *threshold)
    }

    /// Facts about a pair. `tag` is the tag of its corpus, with which the source begins.
    pub(super) fn preface(&self, pair: &RawPair, tag: &str) -> Preface {
        let target = pair.target.as_str();
        let source = without_tag(&pair.source, tag);
        // The length shows where the source ends: texts of tables may contain line breaks.
        let whole = || fingerprint(&format!("{}\n{}{target}", pair.source.len(), pair.source));
        let lengths = || (characters(source), characters(target));
        let near = |(_, keys): &(f64, NearKeys)| NearText {
            keys: keys.for_pair(source, target),
            source: source.to_owned(),
            target: target.to_owned(),
        };
        Preface {
            fingerprint: self.drops_duplicates.then(whole),
            reason: None,
            lengths: self.has_lengths.then(lengths),
            near: self.near.as_ref().map(near),
        }
    }

    /// Decodes what [`Preface::bytes`] encoded. Even for damaged bytes, no more memory is allocated
    /// than the file has bytes.
    pub(super) fn read(&self, items: &mut Items<'_>) -> std::io::Result<Preface> {
        let mut preface = Preface::default();
        if self.drops_duplicates {
            let mut fingerprint = [0; 16];
            items.read(&mut fingerprint)?;
            preface.fingerprint = Some(u128::from_le_bytes(fingerprint));
            let mut reason = [0];
            items.read(&mut reason)?;
            let place = usize::from(reason[0]).checked_sub(1);
            preface.reason = place.and_then(|place| REASONS.get(place)).copied();
            if preface.reason.is_some() {
                return Ok(preface);
            }
        }
        if self.has_lengths {
            preface.lengths = Some((number(items)?, number(items)?));
        }
        if let Some((_, near)) = &self.near {
            let keys = (0..near.count()).map(|_| number(items)).collect::<std::io::Result<_>>()?;
            let lengths = [number(items)?, number(items)?];
            if lengths.into_iter().map(u64::from).sum::<u64>() > items.end.saturating_sub(items.at)
            {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            let [source, target] = lengths.map(|length| text(items, length as usize));
            preface.near = Some(NearText { keys, source: source?, target: target? });
        }
        Ok(preface)
    }
}

impl Preface {
    /// Encodes the facts. `reason` is the reason to drop the pair because of its tokens, if there
    /// is one.
    pub(super) fn bytes(&self, reason: Option<DropReason>) -> Vec<u8> {
        let mut bytes = Vec::new();
        if let Some(fingerprint) = self.fingerprint {
            bytes.extend(fingerprint.to_le_bytes());
            bytes.push(reason.map_or(0, code));
        }
        if reason.is_some() {
            return bytes;
        }
        if let Some((source, target)) = self.lengths {
            bytes.extend([source, target].map(u32::to_le_bytes).concat());
        }
        if let Some(NearText { keys, source, target }) = &self.near {
            bytes.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
            bytes.extend([source, target].map(|text| (text.len() as u32).to_le_bytes()).concat());
            bytes.extend(source.as_bytes());
            bytes.extend(target.as_bytes());
        }
        bytes
    }
}

fn number(items: &mut Items<'_>) -> std::io::Result<u32> {
    let mut bytes = [0; 4];
    items.read(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes))
}

fn text(items: &mut Items<'_>, length: usize) -> std::io::Result<String> {
    let mut bytes = vec![0; length];
    items.read(&mut bytes)?;
    String::from_utf8(bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))
}
