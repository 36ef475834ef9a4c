//! Signatures: the settings and data that a score depends on, as text that two papers can compare.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::field::Field;
use crate::metric::Metric;

/// Value of the `version` field of every signature.
///
/// The other fields follow sacreBLEU, so that two signatures can be compared field by field. The
/// version names the implementation that computed the score.
pub const SIGNATURE_VERSION: &str = concat!("taper-", env!("CARGO_PKG_VERSION"));

/// Number of references of each segment: the `nrefs` field of a signature.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum ReferenceCount {
    /// No segment has been counted.
    #[default]
    Unknown,
    /// All segments have this many references.
    Fixed(usize),
    /// The number differs between segments.
    Variable,
}

impl ReferenceCount {
    /// Combines the counts of two groups of segments.
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

/// Random trials that a result depends on, in addition to the corpus.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Trials {
    /// Number of bootstrap resamples; `None` if there are none.
    pub bootstrap: Option<usize>,
    /// Number of trials of approximate randomisation; `None` if there are none.
    pub randomization: Option<usize>,
    /// Seed of the random numbers; `None` if none are drawn.
    pub seed: Option<u64>,
}

/// Fields of a signature, `version` last. `Display` writes sacreBLEU's long form,
/// `nrefs:1|case:mixed|…`; with the alternate flag, `{signature:#}`, its short form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    fields: Vec<Field>,
}

impl Signature {
    /// Makes the signature of a metric's score over segments with `references` references each.
    pub fn new(metric: &dyn Metric, references: ReferenceCount, trials: Trials) -> Self {
        let mut fields = vec![Field::new("nrefs", "#", references)];
        fields.extend(trials.bootstrap.map(|count| Field::new("bs", "bs", count)));
        fields.extend(trials.randomization.map(|count| Field::new("ar", "ar", count)));
        fields.extend(trials.seed.map(|seed| Field::new("seed", "rs", seed)));
        fields.extend(metric.fields());
        fields.push(Field::new("version", "v", SIGNATURE_VERSION));
        Self { fields }
    }

    /// Fields in order.
    pub fn fields(&self) -> &[Field] {
        &self.fields
    }
}

impl fmt::Display for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, field) in self.fields.iter().enumerate() {
            if index > 0 {
                formatter.write_str("|")?;
            }
            field.fmt(formatter)?;
        }
        Ok(())
    }
}
