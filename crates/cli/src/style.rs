//! Ways to report.

use std::io::IsTerminal;

/// How to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A bar on standard error, notable events above it.
    Bar,
    /// One line an event on standard output.
    Lines,
    /// One JSON object an event on standard output.
    Json,
    /// Nothing: another process reports.
    Nothing,
}

impl Style {
    /// JSON where asked for, a bar at a terminal, else lines.
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
