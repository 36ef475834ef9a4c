//! Claims about attention. Each has a construction (a model whose weights are set by hand) that
//! shows it, and a table of measurements.
//!
//! To add a study, add a file here with a [`Study`], and this study to [`STUDIES`].

mod bayesian_inference;
mod dictionary;
mod parity;
mod power_laws;
mod ridge;
mod sparse_connections;
mod universal;

pub use bayesian_inference::{
    Concept, DELIMITER, Mixture, Prompt, PromptKind, conditions, likeliest,
};
pub use dictionary::{expected_noise, lookup};
pub use parity::{END_OF_BITS, parity_decoder};
pub use power_laws::{fitted_exponent, nearest_losses, spectrum_tail};
pub use ridge::{RidgeSetting, ridge_decoder, ridge_predictions};
pub use sparse_connections::SparseFunction;
pub use universal::{Point, SetFunction, approximate};

use crate::TheoryError;
use taper_plots::Figure;

/// Findings of a study.
#[derive(Debug, Clone)]
pub struct Findings {
    /// Headings of the table's columns.
    pub columns: Vec<String>,
    /// Rows of the table.
    pub rows: Vec<Vec<String>>,
    /// Figures, each with its name.
    pub figures: Vec<(String, Figure)>,
}

/// A claim that is measured.
#[derive(Debug, Clone, Copy)]
pub struct Study {
    /// Name of the study.
    pub name: &'static str,
    /// Claim, in a sentence.
    pub claim: &'static str,
    /// Measures the claim. This takes seconds, or minutes if models are trained.
    pub run: fn() -> Result<Findings, TheoryError>,
}

/// All studies.
pub const STUDIES: &[Study] = &[
    sparse_connections::STUDY,
    dictionary::STUDY,
    universal::STUDY,
    bayesian_inference::STUDY,
    ridge::STUDY,
    power_laws::STUDY,
];

/// Headings of columns, as strings.
#[must_use]
pub fn heads(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}
