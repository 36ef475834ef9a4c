//! What a training run shows: a progress bar at a terminal, plain lines when
//! piped, JSON lines where asked for.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use taper_run::checks::device;
use taper_run::evaluation::TestSetResult;
use taper_run::training::{Outcome, TrainingLimits};
use taper_run::{RunEvent, RunObserver};
use taper_trainer::{Event, Scores, StopReason, Timing};

use crate::arguments::TrainOutput;
use crate::error::Interrupted;
use crate::signals::Signals;
use crate::text::{quoted, report_line, say};
use crate::warm_start;

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

/// Runs `train`, shows what happens, and lets signals stop it.
///
/// # Errors
/// Those of `train`; [`Interrupted`] where a signal ended it.
pub(crate) fn report(
    output: &TrainOutput,
    train: impl FnOnce(&mut dyn RunObserver, &AtomicBool) -> Result<Outcome>,
) -> Result<()> {
    let signals = Signals::new();
    let mut reporter = Reporter::new(Style::choose(output.json), &signals);
    let trained = train(&mut reporter, signals.stop_flag());
    reporter.finish();
    match trained? {
        Outcome::Interrupted { .. } => Err(Interrupted.into()),
        Outcome::Complete { .. } => Ok(()),
    }
}

/// Shows the events of a training, and tells the handler of signals how far it has come.
pub(crate) struct Reporter<'a> {
    style: Style,
    signals: &'a Signals,
    /// Shown while updates are made.
    bar: ProgressBar,
    start: Option<(u64, f64)>,
    limits: Option<TrainingLimits>,
    tests: TestReporter,
}

impl<'a> Reporter<'a> {
    /// Shows events in `style`.
    pub(crate) fn new(style: Style, signals: &'a Signals) -> Self {
        let (bar, tests) = (ProgressBar::hidden(), TestReporter::default());
        Self { style, signals, bar, start: None, limits: None, tests }
    }

    /// Shows the bar of a training that goes from `first_step` to its `limits`.
    fn begin(&mut self, first_step: u64, limits: TrainingLimits) {
        self.limits = Some(limits);
        self.bar = match (self.style, limits.last_update) {
            (Style::Bar, Some(updates)) => {
                ProgressBar::new(updates).with_style(bar_style("{wide_bar} {pos}/{len} {msg}"))
            }
            (Style::Bar, None) => {
                ProgressBar::new_spinner().with_style(bar_style("{spinner} {pos} {msg}"))
            }
            _ => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        self.bar.set_position(first_step);
        if self.style == Style::Bar {
            self.bar.enable_steady_tick(Duration::from_millis(500));
        }
    }

    /// Takes the bar away; what was printed stays.
    fn finish(&self) {
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
        let left = self.limits?.remaining(step, timing.elapsed_seconds, pace)?;
        Duration::try_from_secs_f64(left).ok()
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

impl RunObserver for Reporter<'_> {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        let json = self.style == Style::Json;
        match event {
            RunEvent::Locked { folder } => self.signals.install(folder)?,
            RunEvent::WarmStart { started, replaced } if json => {
                let record = serde_json::json!({ "event": "warm_start", "replaced": replaced, "weights": started });
                report_line(&record.to_string());
            }
            RunEvent::WarmStart { started, replaced } => {
                warm_start::lines(started, replaced).iter().for_each(|line| report_line(line));
            }
            RunEvent::Prepared { data, .. } if json => {
                let mut record = serde_json::to_value(data)?;
                record["event"] = "data".into();
                report_line(&record.to_string());
            }
            RunEvent::Prepared { data, cost } => {
                data.lines().iter().for_each(|line| report_line(line));
                report_line(&cost.summary());
            }
            RunEvent::Begins { folder, step, limits, device } => {
                if !json {
                    let (folder, device) = (folder.display(), device::describe(device));
                    report_line(&format!("training in {folder} from step {step}, on {device}"));
                }
                self.begin(*step, *limits);
                self.signals.training_begins();
            }
            RunEvent::Training(event) if json => report_line(&serde_json::to_string(event)?),
            RunEvent::Training(event) => self.report(event),
            RunEvent::Interrupted { folder, step } => {
                self.finish();
                let folder = folder.display();
                say(&format!("interrupted at step {step}; continue with: taper resume {folder}"));
            }
            RunEvent::Trained { reason, step, seconds } => {
                self.finish();
                self.signals.training_is_saved();
                if !json {
                    let time = clock(Duration::from_secs_f64(seconds.max(0.0)));
                    report_line(&format!("{} at step {step} after {time}", describe_end(*reason)));
                }
            }
            RunEvent::Tested { checkpoint, step, results, .. } if json => {
                let record = serde_json::json!({ "event": "test", "checkpoint": checkpoint, "step": step, "results": results });
                report_line(&record.to_string());
            }
            RunEvent::Tested { folder, checkpoint, results, samples, .. } => {
                report_tests(folder, checkpoint, results, *samples);
            }
            _ => self.tests.observe(event)?,
        }
        Ok(())
    }
}

/// Shows how far the decoding of test sets has come, and notices.
#[derive(Default)]
pub(crate) struct TestReporter {
    bar: Option<ProgressBar>,
}

impl RunObserver for TestReporter {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        match event {
            RunEvent::Decoding { split, done, total } => {
                let bar = self.bar.get_or_insert_with(|| sentence_bar(Some(*total as u64), split));
                bar.set_position(*done as u64);
            }
            RunEvent::Decoded => {
                if let Some(bar) = self.bar.take() {
                    bar.finish_and_clear();
                }
            }
            RunEvent::Notice(notice) => say(&notice.to_string()),
            _ => {}
        }
        Ok(())
    }
}

/// Sample translations, scores, and what can be done next.
fn report_tests(folder: &Path, checkpoint: &Path, results: &[TestSetResult], samples: usize) {
    if let Some(first) = results.first() {
        report_line("\nsample translations");
        for line in first.sample_translations(samples) {
            report_line(&line);
        }
        let name = checkpoint.file_name().unwrap_or(checkpoint.as_os_str()).to_string_lossy();
        report_line(&format!("\ntest scores, weights {name}"));
    }
    for line in results.iter().flat_map(TestSetResult::lines) {
        report_line(&line);
    }
    let run = quoted(folder);
    let evaluate = if results.is_empty() {
        "score the test sets"
    } else {
        "score the test sets again, with other settings"
    };
    report_line(&format!(
        "\nnext:\n  taper translate {run}          type sentences, or pipe a file in\n  taper evaluate {run}           {evaluate}\n  taper inspect {run}            what the model is made of"
    ));
}

/// Why training ended, for a reader.
fn describe_end(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxUpdates => "last update reached",
        StopReason::MaxEpochs => "last epoch completed",
        StopReason::MaxMinutes => "time used up",
        StopReason::EarlyStopping => "no further improvement",
        StopReason::Interrupted => "interrupted",
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
    fn clocks_read_naturally() {
        assert_eq!(clock(Duration::from_secs(123)), "2:03");
        assert_eq!(clock(Duration::from_secs(3723)), "1:02:03");
    }
}
