//! Errors of figures.

use thiserror::Error;

/// A figure that cannot be drawn.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PlotError {
    /// The figure has no value that is finite and that its axes can show.
    #[error("the figure `{title}` has nothing to show: no value is finite and fits its axes")]
    Nothing {
        /// Title of the figure.
        title: String,
    },
    /// The number of values is not the number of rows, columns or categories.
    #[error("the figure `{title}` has {expected} {what}, but {found} values for them")]
    Shape {
        /// Title of the figure.
        title: String,
        /// What is counted: rows, columns or categories.
        what: &'static str,
        /// Number of values that there should be.
        expected: usize,
        /// Number of values that are given.
        found: usize,
    },
    /// The drawing library failed.
    #[error("the figure `{title}` cannot be drawn: {cause}")]
    Drawing {
        /// Title of the figure.
        title: String,
        /// Message of the library.
        cause: String,
    },
    /// The drawing cannot be rendered as PNG. The text says why.
    #[error("the figure cannot be made a PNG: {0}")]
    Picture(String),
    /// The system has no fonts. Without fonts, a picture would have no labels.
    #[error(
        "no fonts are installed, so a PNG would have no text: install some (on Debian \
         fonts-dejavu-core), or write SVG"
    )]
    NoFonts,
    /// The program was built without the cargo feature `png`.
    #[error(
        "this program was built without PNG figures; build it with the cargo feature `png`, or \
         write SVG"
    )]
    WithoutPng,
}
