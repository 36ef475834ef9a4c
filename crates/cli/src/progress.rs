//! What a training run shows and records: a progress bar at a terminal, plain
//! lines when piped, JSON lines where asked for, and `metrics.jsonl` always.

use std::io::IsTerminal;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use taper_data::BatchingReport;
use taper_trainer::{BoxError, Event, Observer, Scores, Timing, TrainingConfig};

use crate::metrics_log::MetricsLog;
use crate::text::report_line;

/// How to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    /// A bar on standard error, notable events above it.
    Bar,
    /// One line an event on standard output.
    Lines,
    /// One JSON object an event on standard output.
    Json,
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

/// Where training ends at the latest.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    updates: Option<u64>,
    seconds: Option<f64>,
}

impl End {
    /// The end that `config` sets for batches like these. It is an estimate where an epoch may be a
    /// batch longer than another.
    pub(crate) fn of(config: &TrainingConfig, batches: &BatchingReport) -> Self {
        let given = |limit: u64| (limit > 0).then_some(limit);
        let of_epochs = given(config.max_epochs)
            .map(|epochs| batches.batches_of(epochs).div_ceil(config.accumulation as u64));
        Self {
            updates: given(config.max_updates).into_iter().chain(of_epochs).min(),
            seconds: (config.max_minutes > 0.0).then_some(60.0 * config.max_minutes),
        }
    }

    /// Seconds left after update `step` and so many seconds of training, at a pace of so many
    /// seconds an update.
    fn remaining(&self, step: u64, elapsed: f64, pace: f64) -> Option<f64> {
        let of_updates = self.updates.map(|last| pace * last.saturating_sub(step) as f64);
        let of_seconds = self.seconds.map(|last| (last - elapsed).max(0.0));
        of_updates.into_iter().chain(of_seconds).min_by(f64::total_cmp)
    }
}

/// The trainer's observer.
pub(crate) struct Progress {
    style: Style,
    bar: ProgressBar,
    log: MetricsLog,
    start: Option<(u64, f64)>,
    end: End,
}

impl Progress {
    /// Reports in `style` and records in `log` a training that goes from `first_step` to `end`.
    pub(crate) fn new(style: Style, log: MetricsLog, end: End, first_step: u64) -> Self {
        let bar = match (style, end.updates) {
            (Style::Bar, Some(updates)) => {
                ProgressBar::new(updates).with_style(bar_style("{wide_bar} {pos}/{len} {msg}"))
            }
            (Style::Bar, None) => {
                ProgressBar::new_spinner().with_style(bar_style("{spinner} {pos} {msg}"))
            }
            _ => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        bar.set_position(first_step);
        if style == Style::Bar {
            bar.enable_steady_tick(Duration::from_millis(500));
        }
        Self { style, bar, log, start: None, end }
    }

    /// The record of the run.
    pub(crate) fn log(&mut self) -> &mut MetricsLog {
        &mut self.log
    }

    /// Takes the bar away; what was printed stays.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&self, line: &str) {
        if self.style == Style::Bar {
            self.bar.println(line);
        } else {
            report_line(line);
        }
    }

    /// Time left at the pace since the first event of this process.
    fn remaining(&mut self, step: u64, timing: &Timing) -> Option<Duration> {
        let (first_step, first_seconds) = *self.start.get_or_insert((step, timing.elapsed_seconds));
        let done = step.checked_sub(first_step).filter(|&done| done > 0)?;
        let pace = (timing.elapsed_seconds - first_seconds) / done as f64;
        Duration::try_from_secs_f64(self.end.remaining(step, timing.elapsed_seconds, pace)?).ok()
    }

    fn report(&mut self, event: &Event) {
        match event {
            Event::Log { step, epoch, loss, nll, divergence, accuracy, learning_rate, timing, .. } => {
                let rate = timing.tokens_per_second.unwrap_or(0.0);
                let divergence = divergence.map_or_else(String::new, |divergence| format!("  KL {divergence:.4}"));
                let eta = self.remaining(*step, timing).map_or_else(String::new, |left| format!("  eta {}", clock(left)));
                if self.style == Style::Bar {
                    self.bar.set_position(*step);
                    self.bar.set_message(format!("loss {loss:.3}{divergence}  lr {learning_rate:.2e}  {rate:.0} tok/s{eta}"));
                } else {
                    report_line(&format!(
                        "step {step}  epoch {epoch}  loss {loss:.4}{divergence}  ppl {:.2}  accuracy {:.1}%  lr {learning_rate:.3e}  {rate:.0} tok/s{eta}",
                        nll.exp(),
                        100.0 * accuracy
                    ));
                }
            }
            Event::Validation { step, scores, improved, timing, .. } => {
                let mark = if *improved { "  (best so far)" } else { "" };
                self.say(&format!(
                    "step {step}  validation: {}  [{}]{mark}",
                    describe(scores),
                    clock(Duration::from_secs_f64(timing.elapsed_seconds.max(0.0)))
                ));
            }
            Event::Skipped { step, reason, place, in_a_row, total, .. } => {
                self.say(&format!("step {step}  update skipped: {reason}, {place} ({in_a_row} in a row, {total} in all)"));
            }
            Event::Averaged { path, of, .. } => self.say(&format!("averaged {} checkpoints into {}", of.len(), path.display())),
            Event::Stopped { skipped, .. } if *skipped > 0 => {
                self.say(&format!("{skipped} updates were skipped; metrics.jsonl says why, and where each of them began"))
            }
            // Checkpoints come with each validation; their lines would drown it.
            Event::Checkpoint { .. } | Event::Stopped { .. } => {}
        }
    }
}

impl Observer for Progress {
    fn observe(&mut self, event: &Event) -> Result<(), BoxError> {
        if event.is_metric() {
            self.log.append(event)?;
        }
        if self.style == Style::Json {
            report_line(&serde_json::to_string(event)?);
        } else {
            self.report(event);
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), BoxError> {
        Ok(self.log.flush()?)
    }
}

/// Scores on one line; the text scores last, as they take longest to move.
fn describe(scores: &Scores) -> String {
    let mut parts = Vec::new();
    for (name, label, decimals, factor, unit) in [
        ("loss", "loss", 4, 1.0, ""),
        ("perplexity", "ppl", 2, 1.0, ""),
        ("accuracy", "accuracy", 1, 100.0, "%"),
        ("bleu", "BLEU", 2, 1.0, ""),
        ("chrf", "chrF2", 2, 1.0, ""),
    ] {
        if let Some(value) = scores.get(name) {
            parts.push(format!("{label} {:.decimals$}{unit}", value * factor));
        }
    }
    parts.join("  ")
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
    bar.with_message(what.to_owned())
}

/// The style that `template` describes; the plain one if it does not parse.
fn bar_style(template: &str) -> ProgressStyle {
    let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
        // A bar that cannot be drawn is no loss.
        let _ = write!(out, "{:.1}/s", state.per_sec());
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .with_key("rate", rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_limit_ends_training() {
        let batches =
            BatchingReport { batches: 33, bidirectional_batches: 70, ..BatchingReport::default() };
        let end = |max_updates, max_epochs, max_minutes| {
            let config = TrainingConfig {
                max_updates,
                max_epochs,
                max_minutes,
                accumulation: 4,
                ..TrainingConfig::default()
            };
            // Half a second an update; update 10 after a minute.
            End::of(&config, &batches).remaining(10, 60.0, 0.5)
        };
        assert_eq!(end(0, 0, 0.0), None);
        assert_eq!(end(110, 0, 0.0), Some(50.0));
        // 66 batches are 17 updates.
        assert_eq!(end(110, 2, 0.0), Some(3.5));
        assert_eq!(end(12, 2, 0.0), Some(1.0));
        assert_eq!(end(110, 0, 1.5), Some(30.0));
        // 70 and 33 batches are 26 updates.
        let bidirectional = BatchingReport { bidirectional_epochs: 1, ..batches };
        let config = TrainingConfig {
            max_epochs: 2,
            max_updates: 0,
            accumulation: 4,
            ..TrainingConfig::default()
        };
        assert_eq!(End::of(&config, &bidirectional).remaining(10, 60.0, 0.5), Some(8.0));
        // A resumed run may be past a limit.
        assert_eq!((end(5, 0, 0.0), end(0, 0, 0.5)), (Some(0.0), Some(0.0)));
    }

    #[test]
    fn clocks_read_naturally() {
        assert_eq!(clock(Duration::from_secs(123)), "2:03");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
