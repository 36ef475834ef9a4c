//! Estimated duration of a training, for `train --dry-run` and `init`.

use std::fs;
use std::time::Duration;

use anyhow::Result;
use taper_data::Task;
use taper_run::numbers::{bytes, grouped};
use taper_run::training::{DryRun, dry_run};
use taper_run::{RunConfig, RunEvent, RunFolder, RunObserver, TrainSettings};

use crate::bars::clock;
use crate::progress::Reporter;
use crate::signals::{Signals, on_signal};
use crate::style::Style;
use crate::text::{print_line, report_line, say};

/// Measures some updates of the training of `config`, and reports the estimated duration of the
/// whole training.
///
/// # Errors
/// When `config` cannot be trained.
pub(crate) fn estimate(
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    json: bool,
) -> Result<()> {
    let signals = Signals::new(false);
    let mut reporter = Reporter::new(if json { Style::Json } else { Style::Lines }, &signals);
    let mut observer = |event: &RunEvent<'_>| match event {
        RunEvent::Locked { folder } => {
            let folder = folder.to_path_buf();
            on_signal(move |signal| {
                // Files that cannot be removed stay in the system's temporary folder.
                let _ = fs::remove_dir_all(&folder);
                say("\nstopped; nothing is kept");
                signal.end();
            })
        }
        event => reporter.observe(event),
    };
    let measured = dry_run(folder, config, settings, &mut observer)?;
    if json {
        let mut record = serde_json::to_value(&measured)?;
        record["event"] = "dry_run".into();
        return print_line(&record.to_string());
    }
    lines(&measured, config.task).iter().for_each(|line| report_line(line));
    Ok(())
}

/// Formats the measurements as lines of text.
fn lines(measured: &DryRun, task: Task) -> Vec<String> {
    let memory = measured
        .peak_memory
        .map_or_else(String::new, |peak| format!("{} of memory at most, ", bytes(peak)));
    let mut lines = vec![format!(
        "measured: {} updates, {:.3} s each, {} {}/s; {memory}{} for checkpoints",
        measured.measured_updates,
        measured.seconds_per_update,
        grouped(measured.tokens_per_second as u64),
        match task.answers() {
            "tok" => "target tokens",
            others => others,
        },
        bytes(measured.checkpoint_bytes),
    )];
    if let Some(share) = measured.arithmetic.share_of_peak {
        lines.push(format!(
            "arithmetic: {:.0} GFLOP/s in matrix products, {:.0} % of what multiply-adds reach here",
            measured.arithmetic.gflops,
            100.0 * share
        ));
    }
    let time = |seconds: f64| {
        Duration::try_from_secs_f64(seconds)
            .map_or_else(|_| "longer than a clock shows".to_owned(), clock)
    };
    lines.push(match (measured.limits.last_update, measured.estimated_seconds) {
        (Some(updates), Some(seconds)) => format!(
            "estimate: {} for at most {} updates, besides validations, checkpoints and tests",
            time(seconds),
            grouped(updates)
        ),
        (None, Some(seconds)) => format!("estimate: {}, which the recipe sets", time(seconds)),
        (_, None) => format!(
            "estimate: {} for 1,000 updates; the recipe sets no limit to them",
            time(1000.0 * measured.seconds_per_update)
        ),
    });
    lines
}
