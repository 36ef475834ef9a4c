//! Reports the progress of tokenising text, and the files of the text.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use taper_data::TokenisingProgress;

use crate::bars::{bar_style, clock};
use crate::style::Style;
use crate::text::report_line;

/// Interval between printed lines if there is no bar.
const PAUSE: Duration = Duration::from_secs(10);
/// Length of the bar. Its position is the share of the text that is tokenised, from 0 to 1, times
/// this number.
const PARTS: u64 = 10_000;

/// Reporter of the progress of tokenising.
#[derive(Default)]
pub(crate) struct TokenisingReporter {
    /// Split that is being tokenised.
    current: Option<Current>,
}

struct Current {
    split: String,
    began: Instant,
    /// State when this display began: share of the text that had been read, and number of bytes
    /// that had been tokenised.
    from: (f64, u64),
    bar: Option<ProgressBar>,
    printed: Instant,
}

impl TokenisingReporter {
    /// Moves a bar, or prints a line from time to time.
    pub(crate) fn report(&mut self, style: Style, progress: &TokenisingProgress) {
        // If a split is tokenised again, its bytes are counted from 0 again.
        let is_new =
            |current: &Current| current.split != progress.split || current.from.1 > progress.bytes;
        if self.current.as_ref().is_none_or(is_new) {
            self.finish();
            let bar = || {
                ProgressBar::new(PARTS)
                    .with_style(bar_style("{msg} {wide_bar} {percent}%{prefix}"))
                    .with_message(format!("tokenising {}", progress.split))
            };
            let now = Instant::now();
            self.current = Some(Current {
                split: progress.split.clone(),
                began: now,
                from: (progress.done, progress.bytes),
                bar: (style == Style::Bar).then(bar),
                printed: now,
            });
        }
        let Some(current) = &mut self.current else { return };
        let seconds = current.began.elapsed().as_secs_f64();
        let words = rate(progress, current.from, seconds);
        match (&current.bar, style) {
            (Some(bar), _) => {
                bar.set_position((progress.done.clamp(0.0, 1.0) * PARTS as f64) as u64);
                bar.set_prefix(words);
            }
            (None, Style::Lines) if current.printed.elapsed() >= PAUSE => {
                current.printed = Instant::now();
                let percent = 100.0 * progress.done;
                report_line(&format!("tokenising {}: {percent:.0} %{words}", progress.split));
            }
            _ => {}
        }
    }

    /// Removes the bar.
    pub(crate) fn finish(&mut self) {
        if let Some(Current { bar: Some(bar), .. }) = self.current.take() {
            bar.finish_and_clear();
        }
    }
}

/// Formats the speed of all processes together, which is estimated from this process, and the
/// remaining time. `from` is the share done and the number of bytes tokenised `seconds` ago.
fn rate(progress: &TokenisingProgress, from: (f64, u64), seconds: f64) -> String {
    let &TokenisingProgress { done, bytes, processes, .. } = progress;
    let bytes = bytes.saturating_sub(from.1) * processes as u64;
    let (from, megabytes) = (from.0, bytes as f64 / 1e6 / seconds.max(1e-3));
    let together = match processes {
        1 => String::new(),
        many => format!(" in {many} processes"),
    };
    let left = seconds * (1.0 - done) / (done - from);
    let left = Duration::try_from_secs_f64(left).ok().filter(|_| done > from);
    let eta = left.map_or_else(String::new, |left| format!("  eta {}", clock(left)));
    format!("  {megabytes:.1} MB/s{together}{eta}")
}

/// Describes the files of a corpus.
pub(crate) fn describe_files(corpus: &str, files: &[PathBuf]) -> String {
    let shown = |file: Option<&PathBuf>| file.map(|file| file.display().to_string());
    let (first, last) = (shown(files.first()), shown(files.last()));
    format!(
        "{corpus}: {} files, from {} to {}; the run's config.toml lists them",
        files.len(),
        first.unwrap_or_default(),
        last.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_and_time_are_of_all_processes() {
        let split = "train".to_owned();
        let progress = TokenisingProgress { split, done: 0.25, bytes: 21_000_000, processes: 2 };
        let from = |done| rate(&progress, (done, 1_000_000), 10.0);
        assert_eq!(from(0.0), "  4.0 MB/s in 2 processes  eta 0:30");
        assert_eq!(from(0.25), "  4.0 MB/s in 2 processes");
    }

    #[test]
    fn a_split_may_be_tokenised_again() {
        let mut reporter = TokenisingReporter::default();
        for (done, bytes) in [(0.5, 7_000_000), (0.9, 9_000_000), (0.1, 1_000_000)] {
            let split = "train".to_owned();
            let progress = TokenisingProgress { split, done, bytes, processes: 1 };
            reporter.report(Style::Lines, &progress);
            let from = reporter.current.as_ref().map(|current| current.from);
            assert_eq!(from, Some(if done < 0.5 { (0.1, 1_000_000) } else { (0.5, 7_000_000) }));
        }
    }
}
