//! Progress of a training run: a progress bar at a terminal, plain lines if piped, JSON lines on
//! request.

mod course;
mod ending;
mod fitted;
mod lines;
mod test_sets;
mod tokenising;
mod warm_start;
mod wrapped;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use indicatif::{ProgressBar, ProgressDrawTarget};
use taper_data::Task;
use taper_run::numbers::bytes;
use taper_run::training::{Continuation, Outcome, TrainingLimits};
use taper_run::{RunEvent, RunObserver};
use taper_trainer::{Event, ProcessTime};

use crate::advice::say_notice;
use crate::arguments::TrainOutput;
use crate::bars::{TICK, bar_style, clock};
use crate::error::Interrupted;
use crate::resident::resident_memory;
use crate::signals::Signals;
use crate::style::Style;
use crate::text::{quoted, report_line, say, visible};
use course::ScoreCourse;
use ending::{report_next, report_tests};
use fitted::{Progress, fitted, progress};
use lines::{begun, describe, ended, interrupted, json_line, loss_name};
use tokenising::{TokenisingReporter, describe_files};
use wrapped::wrapped;

pub(crate) use fitted::terminal_width;
pub(crate) use test_sets::TestReporter;

/// Column in which the text of a sample begins.
const SAMPLE: usize = 15;

/// Runs `train`, shows its progress if this process `is_first`, and lets signals stop it.
///
/// # Errors
/// Errors of `train`; [`Interrupted`] if a signal ended it.
pub(crate) fn report(
    output: &TrainOutput,
    is_first: bool,
    train: impl FnOnce(&mut dyn RunObserver, &AtomicBool) -> Result<Outcome>,
) -> Result<()> {
    let signals = Signals::new(!is_first);
    let style = if is_first { Style::choose(output.json) } else { Style::Nothing };
    let mut reporter = Reporter::new(style, &signals);
    let trained = train(&mut reporter, signals.stop_flag());
    reporter.finish();
    match trained? {
        Outcome::Interrupted { .. } => Err(Interrupted(signals.exit_code()).into()),
        Outcome::Complete { .. } => Ok(()),
    }
}

/// Reporter that shows the events of a training, and informs the signal handler of the stage of the
/// training.
pub(crate) struct Reporter<'a> {
    style: Style,
    signals: &'a Signals,
    /// Bar that is shown while updates are made.
    bar: ProgressBar,
    /// Parts of the text for the last log event, ranked as [`fitted()`] expects.
    latest: Vec<(u8, String)>,
    /// Text about the best validation so far.
    best: String,
    /// Values of the score in all validations, for a drawing at the end of training.
    course: ScoreCourse,
    /// Number of the first update that this process made, and the training time in seconds when it
    /// was done. `None` before this update.
    start: Option<(u64, f64)>,
    limits: Option<TrainingLimits>,
    /// Short name of what the model predicts, such as `tok` for tokens (see [`Task::answers`]).
    /// Speed is printed in this unit.
    answers: &'static str,
    /// Change of the recipe (the settings of the training) with which the user can continue this
    /// training after its end. `None` until the training has ended.
    continuation: Option<Continuation>,
    tests: TestReporter,
    tokenising: TokenisingReporter,
}

impl<'a> Reporter<'a> {
    /// Makes a reporter that shows events in `style`.
    pub(crate) fn new(style: Style, signals: &'a Signals) -> Self {
        let (bar, tests) = (ProgressBar::hidden(), TestReporter::default());
        let (latest, best) = (Vec::new(), String::new());
        let (start, limits, continuation) = (None, None, None);
        let tokenising = TokenisingReporter::default();
        let answers = Task::default().answers();
        Self {
            style,
            signals,
            bar,
            latest,
            best,
            course: ScoreCourse::default(),
            start,
            limits,
            answers,
            continuation,
            tests,
            tokenising,
        }
    }

    /// Shows the bar of a training that goes from `first_step` to its `limits`.
    fn begin(&mut self, first_step: u64, limits: TrainingLimits) {
        self.signals.training_begins();
        self.limits = Some(limits);
        self.bar = match (self.style, progress(limits, (first_step, 0.0), None)) {
            (Style::Bar, Some(_)) => {
                ProgressBar::new(1).with_style(bar_style("{wide_bar} {prefix}\n{wide_msg}"))
            }
            (Style::Bar, None) => ProgressBar::new_spinner()
                .with_style(bar_style("{spinner} {pos}{prefix}\n{wide_msg}")),
            _ => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        self.place(first_step, 0.0);
        if self.style == Style::Bar {
            self.bar.enable_steady_tick(TICK);
        }
    }

    /// Removes the bar; printed text stays.
    fn finish(&mut self) {
        self.tokenising.finish();
        self.bar.finish_and_clear();
    }

    /// Prints a line. If there is a bar, the line is printed above it and divided to fit the
    /// terminal.
    fn say(&self, line: &str) {
        self.say_indented(line, 2);
    }

    /// Prints a line as [`Self::say`] does; if it is divided, lines after the first are indented by
    /// `indent` columns.
    fn say_indented(&self, line: &str, indent: usize) {
        if self.style == Style::Bar {
            // On some terminals, a line that fills the last column would be followed by an empty
            // line.
            let width = terminal_width().saturating_sub(1);
            let lines = line.split('\n').flat_map(|one| wrapped(&visible(one), indent, width));
            lines.for_each(|line| self.bar.println(line));
        } else {
            report_line(line);
        }
    }

    /// Returns the seconds per update since the first update of this process; `None` before the
    /// second update.
    fn pace(&self, step: u64, seconds: f64) -> Option<f64> {
        let (first_step, first_seconds) = self.start?;
        let done = step.checked_sub(first_step).filter(|&done| done > 0)?;
        Some((seconds - first_seconds) / done as f64)
    }

    /// Formats the remaining time after `step` updates and `seconds` seconds; empty if unknown.
    fn remaining(&self, step: u64, seconds: f64) -> String {
        let left = || {
            let pace = self.pace(step, seconds)?;
            let left = self.limits?.remaining(step, seconds, pace)?;
            Duration::try_from_secs_f64(left).ok()
        };
        left().map_or_else(String::new, |left| format!("  eta {}", clock(left)))
    }

    /// Moves the bar to the progress after update `step` and `seconds` seconds of training. If both
    /// updates and time are limited, the bar shows the limit that training will reach first.
    fn place(&self, step: u64, seconds: f64) {
        let eta = self.remaining(step, seconds);
        let pace = self.pace(step, seconds);
        match self.limits.and_then(|limits| progress(limits, (step, seconds), pace)) {
            Some(Progress { count: (done, all), words }) => {
                self.bar.set_length(all);
                self.bar.set_position(done);
                self.bar.set_prefix(format!("{words}{eta}"));
            }
            None => {
                self.bar.set_position(step);
                self.bar.set_prefix(eta);
            }
        }
    }

    /// Moves the bar after update `step`, and shows the latest values below it.
    fn update(&mut self, step: u64, seconds: f64) {
        self.start.get_or_insert((step, seconds));
        if self.style == Style::Bar {
            self.place(step, seconds);
            let mut parts = self.latest.clone();
            parts.push((3, self.best.clone()));
            self.bar.set_message(fitted(&parts, terminal_width().saturating_sub(1)));
        }
    }

    /// Shows a log event: means over the updates since the last log event.
    fn report_log(&mut self, event: &Event) {
        let Event::Log {
            step,
            epoch,
            loss,
            nll,
            divergence,
            experts,
            accuracy,
            learning_rate,
            gradient_norm,
            timing,
            ..
        } = event
        else {
            return;
        };
        let rate = timing.tokens_per_second.unwrap_or(0.0);
        let rate = format!("{rate:.0} {}/s", self.answers);
        let divergence =
            divergence.map_or_else(String::new, |divergence| format!("  KL {divergence:.4}"));
        let experts = experts.map_or_else(String::new, |load| {
            format!("  dropped {:.1}%  busiest {:.2}x", 100.0 * load.dropped, load.busiest)
        });
        let name = loss_name(*loss, *nll);
        // Tasks that predict numbers have neither perplexity nor accuracy: their loss is the
        // squared error.
        let (perplexity, right) = match accuracy {
            Some(share) => {
                (format!("  ppl {:.2}", nll.exp()), format!("  accuracy {:.1}%", 100.0 * share))
            }
            None => Default::default(),
        };
        if self.style == Style::Bar {
            let memory = resident_memory("self").map(bytes).unwrap_or_default();
            let trimmed = |text: &str| text.trim_start().to_owned();
            self.latest = vec![
                (2, format!("epoch {epoch}")),
                (0, format!("{name} {loss:.3}")),
                (1, trimmed(&perplexity)),
                (5, trimmed(&divergence)),
                (6, trimmed(&experts)),
                (4, format!("lr {learning_rate:.2e}")),
                (7, format!("|g| {gradient_norm:.2}")),
                (2, rate),
                (8, memory),
            ];
            self.update(*step, timing.elapsed_seconds);
        } else {
            let eta = self.remaining(*step, timing.elapsed_seconds);
            report_line(&format!(
                "step {step}  epoch {epoch}  {name} {loss:.4}{divergence}{perplexity}\
                 {right}{experts}  lr {learning_rate:.3e}  {rate}{eta}"
            ));
        }
    }

    fn report(&mut self, event: &Event) {
        match event {
            Event::Log { .. } => self.report_log(event),
            Event::Validation { step, scores, improved, samples, timing, .. } => {
                let mark = if *improved { "  (best so far)" } else { "" };
                self.say(&format!(
                    "step {step}  validation: {}  [{}]{mark}",
                    describe(scores),
                    clock(Duration::from_secs_f64(timing.elapsed_seconds.max(0.0)))
                ));
                if *improved {
                    self.best = format!("best {}", describe(scores));
                }
                self.course.note(scores);
                // Samples are shown only with a bar, because piped output has one line for each
                // event.
                if let Some(sample) = samples.first().filter(|_| self.style == Style::Bar) {
                    self.say_indented(&format!("  source       {}", sample.source), SAMPLE);
                    self.say_indented(&format!("  translation  {}", sample.hypothesis), SAMPLE);
                    self.say_indented(&format!("  reference    {}", sample.reference), SAMPLE);
                }
            }
            Event::Skipped { step, reason, place, in_a_row, total, .. } => {
                self.say(&format!(
                    "step {step}  update skipped: {reason}, {place} ({in_a_row} in a row, \
                     {total} in all)"
                ));
            }
            Event::Averaged { path, checkpoints, .. } => self.say(&format!(
                "averaged {} checkpoints into {}",
                checkpoints.len(),
                path.display()
            )),
            Event::Stopped { skipped, timing, .. } => {
                if *skipped > 0 {
                    self.say(&format!(
                        "{skipped} updates were skipped; metrics.jsonl says why, and where each \
                         problem began"
                    ));
                }
                if let Some(words) = ProcessTime::describe(&timing.processes) {
                    self.say(&words);
                }
            }
            // A checkpoint is saved at each validation, whose line would be hard to find between
            // lines about checkpoints.
            Event::Checkpoint { .. } => {}
        }
    }
}

impl Reporter<'_> {
    /// Removes the bar, and reports the end of a training and the course of its scores.
    fn end_training(&mut self, reason: &str) {
        self.finish();
        self.signals.training_is_saved();
        match self.style {
            Style::Json => {}
            Style::Bar => report_lines(&wrapped(reason, 2, terminal_width().saturating_sub(1))),
            _ => report_line(reason),
        }
        // The course is shown only with a bar, because piped output has one line for each event.
        if self.style == Style::Bar
            && let Some(course) = self.course.line(terminal_width().saturating_sub(1))
        {
            report_line(&course);
        }
    }
}

impl RunObserver for Reporter<'_> {
    fn observe(&mut self, event: &RunEvent<'_>) -> Result<()> {
        if let RunEvent::Locked { folder } = event {
            return self.signals.install(folder);
        }
        if self.style == Style::Nothing {
            return Ok(());
        }
        if let RunEvent::Prepared { .. } = event {
            self.tokenising.finish();
        }
        let json = self.style == Style::Json;
        if json && let Some(line) = json_line(event)? {
            report_line(&line);
            return Ok(());
        }
        match event {
            RunEvent::Files { corpus, files } => report_line(&describe_files(corpus, files)),
            RunEvent::Tokenising(progress) => self.tokenising.report(self.style, progress),
            RunEvent::WarmStart { started, replaced, own_tokenizer } => {
                report_lines(&warm_start::lines(started, replaced, *own_tokenizer));
            }
            RunEvent::WordVectors(taken) => report_lines(&warm_start::vector_lines(taken)),
            RunEvent::Prepared { data, cost } => {
                report_lines(&data.lines());
                report_line(&cost.summary());
            }
            RunEvent::Begins { folder, task, step, limits, device, dtype } => {
                self.answers = task.answers();
                if !json {
                    report_lines(&begun(folder, *step, device, dtype));
                }
                self.begin(*step, *limits);
            }
            RunEvent::Updated { step, seconds } => self.update(*step, *seconds),
            RunEvent::Training(event) => self.report(event),
            RunEvent::Interrupted { folder, step } => {
                self.finish();
                say(&interrupted(folder, *step));
            }
            RunEvent::Trained { reason, step, seconds, continuation } => {
                self.continuation = Some(*continuation);
                self.end_training(&ended(*reason, *step, *seconds));
            }
            RunEvent::Tested {
                folder, task, checkpoint, results, samples, has_test_sets, ..
            } => {
                report_tests(checkpoint, results, *samples);
                let scored = has_test_sets.then_some(!results.is_empty());
                report_next(&quoted(folder), *task, scored, self.continuation);
            }
            // The notice must not break the bar.
            RunEvent::Notice(notice) => self.bar.suspend(|| say_notice(notice)),
            _ => self.tests.observe(event)?,
        }
        Ok(())
    }
}

fn report_lines(lines: &[String]) {
    lines.iter().for_each(|line| report_line(line));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_moves_with_each_update_and_the_time_left_is_known_after_the_second() {
        let signals = Signals::new(false);
        let mut reporter = Reporter::new(Style::Bar, &signals);
        reporter.begin(0, TrainingLimits { last_update: Some(100), most_seconds: None });
        reporter.update(1, 3.0);
        assert_eq!((reporter.bar.position(), reporter.bar.prefix()), (1, "1/100".into()));
        reporter.update(2, 3.5);
        assert_eq!((reporter.bar.position(), reporter.bar.prefix()), (2, "2/100  eta 0:49".into()));
        assert_eq!(reporter.bar.length(), Some(100));
    }
}
