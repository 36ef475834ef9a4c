//! Figures with the names of their files.

use taper_plots::Figure;

/// A figure with the name of its file.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedFigure {
    /// Name of the file, without an extension.
    pub name: String,
    /// The figure.
    pub figure: Figure,
}

impl NamedFigure {
    pub(crate) fn new(name: impl Into<String>, figure: Figure) -> Self {
        Self { name: name.into(), figure }
    }
}
