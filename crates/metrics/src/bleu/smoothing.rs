//! Smoothing of zero n-gram precisions.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{MetricError, Result};

/// Replacement of a zero n-gram precision (Chen and Cherry, 2014).
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Smoothing {
    /// No smoothing: one zero precision makes the score 0.
    None,
    /// Constant number of matches instead of 0; 0.1 by convention.
    Floor(f64),
    /// Constant added to matches and totals of orders above one; 1 by convention.
    AddK(f64),
    /// Half a match for the first zero precision, a quarter for the second, and so on, as in
    /// mteval-v13a.
    #[default]
    Exp,
}

impl Smoothing {
    /// Returns this smoothing with another value; kinds without a value are returned unchanged.
    pub fn with_value(self, value: f64) -> Self {
        match self {
            Self::Floor(_) => Self::Floor(value),
            Self::AddK(_) => Self::AddK(value),
            other => other,
        }
    }
}

impl fmt::Display for Smoothing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => formatter.write_str("none"),
            Self::Floor(value) => write!(formatter, "floor[{value:.2}]"),
            Self::AddK(value) => write!(formatter, "add-k[{value:.2}]"),
            Self::Exp => formatter.write_str("exp"),
        }
    }
}

impl FromStr for Smoothing {
    type Err = MetricError;

    /// Reads a name; `floor` and `add-k` get their conventional values.
    fn from_str(name: &str) -> Result<Self> {
        match name {
            "none" => Ok(Self::None),
            "floor" => Ok(Self::Floor(0.1)),
            "add-k" => Ok(Self::AddK(1.0)),
            "exp" => Ok(Self::Exp),
            _ => Err(MetricError::UnknownName {
                kind: "smoothing",
                name: name.to_owned(),
                choices: "exp, floor, add-k, none",
            }),
        }
    }
}
