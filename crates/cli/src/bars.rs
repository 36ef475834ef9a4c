//! Progress bars at a terminal, and the times that they show.

use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Interval at which a bar is redrawn when nothing moves it.
pub(crate) const TICK: Duration = Duration::from_millis(500);

/// Makes a bar for a task of `total` sentences; `total` is `None` if the number is unknown. The bar
/// is hidden unless standard error is a terminal.
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
    // Draws the bar before the first sentence is done.
    bar.enable_steady_tick(TICK);
    bar.with_message(what.to_owned())
}

/// Makes a bar for a training on `total` words. The caller checks that standard error is a
/// terminal.
pub(crate) fn word_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    bar.with_style(bar_style("{msg} {wide_bar} {percent}% of {len} words, {rate}, {eta} left"))
}

/// Returns the style that `template` describes, or the plain style if it does not parse.
pub(crate) fn bar_style(template: &str) -> ProgressStyle {
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // Failure to draw a bar does no harm.
        let _ = write!(out, "{:.1}/s", state.per_sec());
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", rate)
}

/// Formats a duration as `1:02:03` or `2:03`.
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
