//! Report of a run whose training has ended: its scores, the reason for the end, and possible next
//! commands.

use std::path::Path;

use taper_data::Task;
use taper_run::evaluation::TestSetResult;
use taper_run::tasks::entry;
use taper_run::training::{Continuation, Seam};
use taper_trainer::StopReason;

use crate::advice;
use crate::text::report_line;

/// Reports sample translations of the first test set, and the scores of all test sets.
pub(crate) fn report_tests(checkpoint: &Path, results: &[TestSetResult], samples: usize) {
    if let Some(first) = results.first() {
        let translations = first.sample_translations(samples);
        if !translations.is_empty() {
            report_line("\nsample translations");
        }
        for line in translations {
            report_line(&line);
        }
        let name = checkpoint.file_name().unwrap_or(checkpoint.as_os_str()).to_string_lossy();
        report_line(&format!("\ntest scores, weights {name}"));
    }
    for line in results.iter().flat_map(TestSetResult::lines) {
        report_line(&line);
    }
}

/// Reports commands to run next. `scored` says whether the test sets have already been scored; it
/// is `None` if there are no test sets.
pub(crate) fn report_next(
    run: &str,
    task: Task,
    scored: Option<bool>,
    continuation: Option<Continuation>,
) {
    let mut lines = vec![first_use(run, task)];
    lines.extend(scored.map(|scored| {
        let what = match scored {
            true => "score the test sets again, with other settings",
            false => "score the test sets",
        };
        format!("taper evaluate {run}           {what}")
    }));
    lines.push(format!("taper inspect {run}            what the model is made of"));
    lines.extend(continuation.map(|continuation| {
        let (change, seam) = continuation_words(continuation);
        format!("taper resume {run} --set {change}   train on{seam}")
    }));
    report_line(&format!("\nnext:\n  {}", lines.join("\n  ")));
}

/// Formats the first command for a run of the task and the effect of the command, in the same
/// columns as the commands below it.
fn first_use(run: &str, task: Task) -> String {
    let (verb, effect) = entry(task).next;
    let width = 23 + run.chars().count();
    format!("{:width$}   {effect}", advice::use_of(run, verb))
}

/// Returns the change of settings with which a finished training continues. Also returns a
/// description of the jump that the learning rate then makes, or an empty text if there is no jump.
fn continuation_words(continuation: Continuation) -> (String, String) {
    match continuation {
        Continuation::Epochs => ("training.max_epochs=N".to_owned(), String::new()),
        Continuation::Minutes => ("training.max_minutes=N".to_owned(), String::new()),
        Continuation::Patience => ("training.early_stopping.patience=N".to_owned(), String::new()),
        Continuation::Updates { updates, seam } => {
            let seam = seam.map_or_else(String::new, |Seam { before, after }| {
                format!(
                    "; the learning rate jumps from {before:.2e} to {after:.2e} and falls again, \
                     until update {updates}"
                )
            });
            (format!("training.max_updates={updates}"), seam)
        }
    }
}

/// Describes the reason for the end of training.
pub(crate) fn describe_end(reason: StopReason) -> &'static str {
    match reason {
        StopReason::MaxUpdates => "last update reached",
        StopReason::MaxEpochs => "last epoch completed",
        StopReason::MaxMinutes => "time used up",
        StopReason::EarlyStopping => "no further improvement",
        StopReason::Interrupted => "interrupted",
    }
}
