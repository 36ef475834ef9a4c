//! Messages about trainings that fail, and the rescue of their state.

use anyhow::{Error, Result, anyhow};
use taper_trainer::{BEST, ExchangeError, ScheduleKind, TrainError, Trainer, checkpoint_name};

use super::TrainSettings;
use super::recorder::Recorder;
use crate::config::RunConfig;
use crate::folder::{RunFolder, quoted, rescue};
use crate::one_line;
use crate::tasks::TaskModel;

/// Error of a training, with advice on how to continue. If the disk failed, the state is saved
/// elsewhere first.
pub(super) fn explained<M: TaskModel>(
    error: TrainError,
    trainer: &mut Trainer<M>,
    recorder: &mut Recorder<'_>,
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
) -> Error {
    if is_of_another(&error) {
        let run = quoted(folder.root());
        let next = match folder.has_checkpoint() {
            Ok(true) => format!("`taper resume {run}` continues from the last checkpoint"),
            _ => format!("`taper resume {run}` begins again"),
        };
        return Error::from(error).context(format!("training ended; {next}"));
    }
    if !recorder.is_of_first() {
        if trainer.needs_rescue() {
            // Process 0 saves the state of all processes, if it can.
            let _ = trainer.unsaved();
        }
        return match error {
            // All processes have found the same error, which process 0 reports.
            TrainError::Diverged { .. }
            | TrainError::Astray { .. }
            | TrainError::NoData { .. }
            | TrainError::MissingMetric { .. } => ExchangeError::Failed { rank: 0 }.into(),
            error => error.into(),
        };
    }
    if trainer.needs_rescue() {
        let step = trainer.state().step;
        let place = settings.rescue.as_deref();
        let saved = match (&recorder.files, recorder.log.as_mut()) {
            (Some(files), Some(log)) => rescue(trainer, folder, config, files, log, place),
            _ => Err(anyhow!("there is no record of the run")),
        };
        return after_rescue(error.into(), step, folder, saved);
    }
    match error {
        TrainError::Diverged { .. } | TrainError::Astray { .. } => {
            after_divergence(&error, folder, config).unwrap_or_else(|error| error)
        }
        error => error.into(),
    }
}

/// Error for a loss that has grown or is not finite, with a command that restarts before that
/// point.
fn after_divergence(error: &TrainError, folder: &RunFolder, config: &RunConfig) -> Result<Error> {
    let run = quoted(folder.root());
    let begin = match error {
        TrainError::Astray { best: None, .. } => "taper train CONFIG --run DIR".to_owned(),
        TrainError::Astray { best: Some((step, _)), .. } => {
            format!("taper resume {run} --from {}", checkpoint_name(*step))
        }
        _ if folder.has_checkpoint()? => format!("taper resume {run} --from CHECKPOINT"),
        _ => format!("taper resume {run}"),
    };
    let key = match config.training.schedule.kind {
        ScheduleKind::Noam => "scale",
        _ => "learning_rate",
    };
    Ok(anyhow!(
        "{error}: `{begin} --set training.schedule.{key}=…`; metrics.jsonl has the losses that \
         led here"
    ))
}

/// Whether training ended because a process is gone, and its part of the state with it.
fn is_of_another(error: &TrainError) -> bool {
    error.between_processes().is_some_and(is_loss)
}

/// Whether a process is gone.
pub(super) fn is_loss(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::Lost { .. })
}

/// Error for a failure of the disk, with the place of the rescued state and advice.
fn after_rescue(
    error: anyhow::Error,
    step: u64,
    folder: &RunFolder,
    saved: Result<RunFolder>,
) -> anyhow::Error {
    match saved {
        Ok(run) => {
            let elsewhere =
                if run.root() == folder.root() { String::new() } else { left_behind(folder) };
            let run = quoted(run.root());
            anyhow!(
                "{}; nothing is lost: the state after step {step} is in {run}, continue with \
                 `taper resume {run}`{elsewhere}",
                one_line(&error)
            )
        }
        Err(cause) => anyhow!(
            "{}; the state after step {step} could not be saved elsewhere either ({}), so \
             training {}; --rescue DIR names another place for next time",
            one_line(&error),
            one_line(&cause),
            match folder.has_checkpoint() {
                Ok(true) => "can go on from the last checkpoint only",
                _ => "has to begin again, because there is no checkpoint",
            }
        ),
    }
}

/// Note about the checkpoints that a rescued run has left in `folder`; empty if there are none.
fn left_behind(folder: &RunFolder) -> String {
    if !folder.has_checkpoint().unwrap_or(false) {
        return String::new();
    }
    let best = match folder.checkpoint(Some(BEST)) {
        Ok(_) => ", the best among them,",
        Err(_) => "",
    };
    format!("; the checkpoints before it{best} stay in {}", folder.checkpoints().display())
}
