//! A chrF score and its printed form.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A chrF score with its name and signature.
///
/// `Display` writes sacreBLEU's line, `chrF2++ = 51.90`, with two decimals, or as many as the
/// formatter's precision says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChrfScore {
    /// chrF, from 0 to 100.
    pub score: f64,
    /// `chrF`, followed by beta and a `+` for each word order.
    pub name: String,
    /// Settings and data that the score depends on, as text.
    pub signature: String,
}

impl ChrfScore {
    /// Line with its signature: `chrF2|nrefs:1|… = 51.90`.
    pub fn line(&self, decimals: usize) -> String {
        format!("{}|{} = {:.decimals$}", self.name, self.signature, self.score)
    }
}

impl fmt::Display for ChrfScore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = formatter.precision().unwrap_or(2);
        write!(formatter, "{} = {:.decimals$}", self.name, self.score)
    }
}
