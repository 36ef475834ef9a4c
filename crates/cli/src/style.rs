//! Styles in which commands report their progress.

use std::io::IsTerminal;

/// Style of reporting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A bar on standard error, with notable events above it.
    Bar,
    /// One line for each event on standard output.
    Lines,
    /// One JSON object for each event on standard output.
    Json,
    /// Nothing: another process reports.
    Nothing,
}

impl Style {
    /// Chooses JSON on request, a bar at a terminal, otherwise lines.
    pub(crate) fn choose(json: bool) -> Self {
        if json {
            Self::Json
        } else if std::io::stderr().is_terminal() && std::io::stdout().is_terminal() {
            Self::Bar
        } else {
            Self::Lines
        }
    }
}
