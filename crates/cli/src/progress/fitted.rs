//! Shortens lines so that they fit a terminal, and computes how far a training has progressed
//! towards its limit of updates or time.

use std::time::Duration;

use taper_run::training::TrainingLimits;
use unicode_width::UnicodeWidthStr;

use crate::bars::clock;

/// Number of columns of a terminal that does not report its width.
const USUAL_WIDTH: usize = 80;

/// Returns the number of columns of this process's terminal.
pub(crate) fn terminal_width() -> usize {
    terminal_size::terminal_size().map_or(USUAL_WIDTH, |(columns, _)| columns.0.into())
}

/// Joins the parts of a line in their order. While the line is wider than `width` columns, the
/// least important part is omitted. The number with each part is its rank: parts with the largest
/// number are omitted first, parts with 0 never.
pub(crate) fn fitted(parts: &[(u8, String)], width: usize) -> String {
    let mut kept: Vec<&(u8, String)> = parts.iter().filter(|part| !part.1.is_empty()).collect();
    loop {
        let line = kept.iter().map(|part| part.1.as_str()).collect::<Vec<_>>().join("  ");
        let least = kept.iter().map(|part| part.0).max().unwrap_or(0);
        if least == 0 || line.width() <= width {
            return line;
        }
        let last = kept.iter().rposition(|part| part.0 == least).unwrap_or(0);
        kept.remove(last);
    }
}

/// Progress of a training towards the limit (of updates or of time) that it will reach first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Amount that is done and whole amount, in updates or in seconds.
    pub(crate) count: (u64, u64),
    /// The amount that is done and the whole amount, as text.
    pub(crate) words: String,
}

/// Returns the progress after update `step` and `seconds` seconds of training. If both updates and
/// time are limited, this is the progress towards the limit that is reached first at `pace` seconds
/// per update. `None` if there is no limit.
pub(crate) fn progress(
    limits: TrainingLimits,
    (step, seconds): (u64, f64),
    pace: Option<f64>,
) -> Option<Progress> {
    let of_updates = |last: u64| Progress { count: (step, last), words: format!("{step}/{last}") };
    let of_seconds = |most: f64| {
        let shown = |seconds: f64| {
            clock(Duration::try_from_secs_f64(seconds.clamp(0.0, most)).unwrap_or_default())
        };
        Progress {
            count: (seconds.clamp(0.0, most) as u64, most.ceil() as u64),
            words: format!("update {step}  {}/{}", shown(seconds), shown(most)),
        }
    };
    match (limits.last_update, limits.most_seconds) {
        (Some(last), Some(most)) => {
            let left = pace.map(|pace| pace * last.saturating_sub(step) as f64);
            let is_sooner = left.is_some_and(|left| most - seconds < left);
            Some(if is_sooner { of_seconds(most) } else { of_updates(last) })
        }
        (Some(last), None) => Some(of_updates(last)),
        (None, Some(most)) => Some(of_seconds(most)),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_important_parts_go_first() {
        let parts = [(0, "loss 1.5"), (2, "lr 1e-3"), (1, "5950 tokens/s"), (3, "1.2 GiB")];
        let parts = parts.map(|(importance, text)| (importance, text.to_owned()));
        assert_eq!(fitted(&parts, 99), "loss 1.5  lr 1e-3  5950 tokens/s  1.2 GiB");
        assert_eq!(fitted(&parts, 32), "loss 1.5  lr 1e-3  5950 tokens/s");
        assert_eq!(fitted(&parts, 31), "loss 1.5  5950 tokens/s");
        assert_eq!(fitted(&parts, 3), "loss 1.5");
    }

    #[test]
    fn the_nearest_end_is_counted_towards() {
        let limits = |last_update, most_seconds| TrainingLimits { last_update, most_seconds };
        let words = |limits, at, pace| progress(limits, at, pace).map(|one| (one.count, one.words));
        let both = limits(Some(5000), Some(540.0));
        assert_eq!(
            words(both, (700, 524.0), Some(0.7)),
            Some(((524, 540), "update 700  8:44/9:00".into()))
        );
        assert_eq!(words(both, (4990, 100.0), Some(0.7)), Some(((4990, 5000), "4990/5000".into())));
        assert_eq!(words(both, (1, 1.0), None), Some(((1, 5000), "1/5000".into())));
        assert_eq!(words(limits(None, None), (1, 1.0), None), None);
        let minutes = words(limits(None, Some(60.0)), (3, 90.0), None);
        assert_eq!(minutes, Some(((60, 60), "update 3  1:00/1:00".into())));
    }
}
