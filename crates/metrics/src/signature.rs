//! The parts of a signature that the metrics share.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Value of the `version` field of every signature.
///
/// The other fields follow sacreBLEU, so that two signatures compare field by field; this
/// one says which implementation computed the score.
pub const SIGNATURE_VERSION: &str = concat!("taper-", env!("CARGO_PKG_VERSION"));

/// How many references each segment had: the `nrefs` field of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ReferenceCount {
    /// No segment has been counted.
    #[default]
    Unknown,
    /// Every segment had this many.
    Fixed(usize),
    /// The number differed between segments.
    Variable,
}

impl ReferenceCount {
    /// The count that describes both groups of segments.
    pub fn combine(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unknown, count) | (count, Self::Unknown) => count,
            (Self::Fixed(left), Self::Fixed(right)) if left == right => self,
            _ => Self::Variable,
        }
    }
}

impl fmt::Display for ReferenceCount {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => formatter.write_str("0"),
            Self::Fixed(count) => write!(formatter, "{count}"),
            Self::Variable => formatter.write_str("var"),
        }
    }
}

/// The `case` field.
pub(crate) fn case_field(lowercase: bool) -> &'static str {
    if lowercase { "lc" } else { "mixed" }
}

/// A boolean field.
pub(crate) fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}
