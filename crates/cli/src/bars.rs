//! Bars of progress at a terminal, and times as they show them.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// How often a bar is drawn where nothing moves it.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// A bar for a task of `total` sentences, or of as many as will come; hidden unless at a terminal.
pub(crate) fn sentence_bar(total: Option<u64>, what: &str) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = match total {
        Some(total) => ProgressBar::new(total)
            .with_style(bar_style("{msg} {wide_bar} {pos}/{len} sentences, {rate}, {eta} left")),
        None => ProgressBar::no_length()
            .with_style(bar_style("{msg} {spinner} {pos} sentences, {rate}")),
    };
    // Shown before the first sentence is done.
    bar.enable_steady_tick(TICK);
    bar.with_message(what.to_owned())
}

/// A bar for a training of `total` words, at a terminal.
pub(crate) fn word_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    bar.with_style(bar_style("{msg} {wide_bar} {percent}% {rate} words, {eta} left"))
}

/// The style that `template` describes; the plain one if it does not parse.
pub(crate) fn bar_style(template: &str) -> ProgressStyle {
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // A bar that cannot be drawn is no loss.
        let _ = write!(out, "{:.1}/s", state.per_sec());
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", rate)
}

/// `1:02:03` or `2:03`.
pub(crate) fn clock(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 {
        format!("{hours}:{minutes:02}:{seconds:02}")
    } else {
        format!("{minutes}:{seconds:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_read_naturally() {
        assert_eq!(clock(Duration::from_secs(123)), "2:03");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
