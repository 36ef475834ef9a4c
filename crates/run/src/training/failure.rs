//! Messages about failed trainings, and the saving of their state elsewhere (rescue).

use anyhow::{Error, Result, anyhow};
use taper_trainer::{BEST, ExchangeError, ScheduleKind, TrainError, Trainer, checkpoint_name};

use super::TrainSettings;
use super::recorder::Recorder;
use crate::advice::{Action, Advice, Resume, Setting, Start, Train, one_line};
use crate::config::RunConfig;
use crate::folder::{RunFolder, rescue};
use crate::tasks::TaskModel;

/// Converts an error of a training to an error with advice on how to continue. If the disk has
/// failed, first saves the state of the training elsewhere.
pub(super) fn explained<M: TaskModel>(
    error: TrainError,
    trainer: &mut Trainer<M>,
    recorder: &mut Recorder<'_>,
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
) -> Error {
    if is_of_another(&error) {
        let effect = match folder.has_checkpoint() {
            Ok(true) => "continues from the last checkpoint",
            _ => "begins again",
        };
        let error = Error::from(error).context("training ended");
        return Advice::new(Action::resume(folder.root()), effect).about(error);
    }
    if !recorder.is_of_first() {
        if trainer.needs_rescue() {
            // Process 0 saves the state of all processes, for which it needs the part of this
            // process.
            let _ = trainer.unsaved();
        }
        return match error {
            // All processes have such an error at the same time, and process 0 reports it.
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

/// Error about a loss that has grown too much or is not finite. The advice is to lower the learning
/// rate, and to continue from an earlier checkpoint or to begin again.
fn after_divergence(error: &TrainError, folder: &RunFolder, config: &RunConfig) -> Result<Error> {
    let key = match config.training.schedule.kind {
        ScheduleKind::Noam => "scale",
        _ => "learning_rate",
    };
    let change = Some(format!("training.schedule.{key}"));
    let resume = |from| {
        let run = folder.root().to_owned();
        Action::Resume(Resume { run, from, change: change.clone(), ..Resume::default() })
    };
    let action = match error {
        TrainError::Astray { best: None, .. } => {
            Action::Train(Train { change: change.clone(), ..Train::default() })
        }
        TrainError::Astray { best: Some((step, _)), .. } => {
            resume(Some(Start::Named(checkpoint_name(*step))))
        }
        _ if folder.has_checkpoint()? => resume(Some(Start::Chosen)),
        _ => resume(None),
    };
    let error = anyhow!("{error}; metrics.jsonl has the losses that led here");
    Ok(Advice::new(action, "tries a lower rate").about(error))
}

/// Whether training ended because another process has ended and its part of the state is lost.
fn is_of_another(error: &TrainError) -> bool {
    error.between_processes().is_some_and(is_loss)
}

/// Whether an exchange between processes failed because a process has ended.
pub(super) fn is_loss(error: &ExchangeError) -> bool {
    matches!(error, ExchangeError::Lost { .. })
}

/// Error about a failure of the disk, with advice. `step`: number of updates so far. `saved`: run
/// in which the state was saved, or the reason why it could not be saved.
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
            let error = anyhow!(
                "{}; nothing is lost: the state after step {step} is in {}{elsewhere}",
                one_line(&error),
                run.root().display()
            );
            Advice::new(Action::resume(run.root()), "continues").about(error)
        }
        Err(cause) => {
            Advice::new(Action::Choose(Setting::RescueFolder), "names another place for next time")
                .about(anyhow!(
                    "{}; the state after step {step} could not be saved elsewhere either ({}), so \
             training {}",
                    one_line(&error),
                    one_line(&cause),
                    match folder.has_checkpoint() {
                        Ok(true) => "can go on from the last checkpoint only",
                        _ => "has to begin again, because there is no checkpoint",
                    }
                ))
        }
    }
}

/// Part of a message about the checkpoints that remain in `folder` after the state has been saved
/// elsewhere; empty if there are no checkpoints.
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
