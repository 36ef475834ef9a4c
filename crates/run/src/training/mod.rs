//! A run from its recipe to its scores: data, model, the loop, the final test.

mod batches;
mod data_report;
mod end;
mod origin;
mod parent_run;
mod recorder;
mod resume;
mod validation;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use candle_core::Device;
use taper_data::{BatchingReport, Prepared, Task, TokenizerPair, read_pairs, recorded_text};
use taper_model::Transformer;
use taper_trainer::{
    Identity, NoValidation, ScheduleKind, StopReason, TrainError, Trainer, TrainingConfig,
    Validate, load_model,
};

use crate::checks::cost::Cost;
use crate::checks::{device, disk, memory, use_threads};
use crate::config::{RunConfig, recipe, validation_identity, without_effect};
use crate::evaluation::{self, TestSetResult};
use crate::event::{Notice, RunEvent, RunObserver};
use crate::folder::{MetricsLog, RunFolder, RunLock, rescue};
use crate::one_line;
use crate::translation::build_model;
use batches::TrainingBatches;
use origin::Origin;
use parent_run::ParentRun;
use recorder::Recorder;
use validation::Validation;

pub(crate) use batches::packed;
pub use data_report::DataSummary;
pub use end::End;
pub use resume::resume;
pub(crate) use validation::ParallelText;

/// How a run is trained on this machine; nothing here changes what it comes to.
#[derive(Debug, Clone, Default)]
pub struct TrainSettings {
    /// auto, cpu, cuda, cuda:N or metal; none: the recipe's.
    pub device: Option<String>,
    /// Bytes of memory that training may take; none: what the system has available.
    pub memory: Option<u64>,
    /// Where the state is saved if the run's folder takes no more; none: taper-rescue in the
    /// system's temporary folder.
    pub rescue: Option<PathBuf>,
    /// Resume although the text or the recipe's data, model or dtype have changed.
    pub accept_changes: bool,
}

/// What a training came to.
#[derive(Debug)]
pub enum Outcome {
    /// The stop flag ended it; all that was done is saved, and [`resume`] continues it.
    Interrupted {
        /// Updates made.
        step: u64,
    },
    /// It is complete.
    Complete {
        /// Why it ended.
        reason: StopReason,
        /// Updates made.
        step: u64,
        /// The test sets, decoded with the weights that [`LoadedRun`](crate::LoadedRun) takes.
        results: Vec<TestSetResult>,
    },
}

/// Starts a run in `folder`, which must not exist yet, with weights that are drawn, or those of the
/// run or checkpoint at `from`. If it does not come to training the folder is removed again, so
/// that the call can be repeated. Training ends early, with a checkpoint, when `stop` becomes true.
///
/// # Errors
/// Anything wrong with the device, the data or the disk, found before the
/// first update where it can be.
pub fn start(
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    from: Option<&Path>,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let parent =
        from.map(|path| ParentRun::open(path, config, settings.accept_changes)).transpose()?;
    let config = parent.as_ref().map_or(config, |parent| &parent.config);
    preflight(config, settings, observer)?;
    for note in without_effect(config)? {
        observer.observe(&RunEvent::Notice(Notice::WithoutEffect(note)))?;
    }
    let found = folder.root().is_dir();
    fs::create_dir_all(folder.root())
        .with_context(|| format!("cannot make {}", folder.root().display()))?;
    let _lock = RunLock::acquire(folder.root(), observer)?;
    if folder.exists() {
        bail!(
            "{} was begun by another process a moment ago: continue it with `taper resume`",
            folder.root().display()
        );
    }
    observer.observe(&RunEvent::Locked { folder: folder.root() })?;
    let mut begin = || -> Result<(Option<Origin>, Ready)> {
        // What the weights begin with is there before the run is; with its configuration, a run
        // that is killed from here on can be resumed.
        let origin = match &parent {
            Some(parent) => Some(parent.begin(folder, settings, observer)?),
            None => None,
        };
        folder.save_config(config)?;
        Ok((origin, Ready::new(folder, config, settings, true)?))
    };
    match begin() {
        Ok((origin, ready)) => train(folder, settings, origin.as_ref(), ready, observer, stop),
        Err(error) => {
            // While the lock is held: no other process can have put anything there.
            if let Err(cause) = folder.remove(found) {
                let (folder, cause) = (folder.root().to_owned(), format!("{cause:#}"));
                observer.observe(&RunEvent::Notice(Notice::NotRemoved { folder, cause }))?;
            }
            Err(error)
        }
    }
}

/// All that training needs.
struct Ready {
    /// The configuration, in which nothing is left open.
    config: RunConfig,
    prepared: Prepared,
    model: Transformer,
}

impl Ready {
    /// Prepares the data, builds the model, and checks that the disk has room for the checkpoints
    /// and, if `try_memory`, the memory for the largest batch.
    fn new(
        folder: &RunFolder,
        config: &RunConfig,
        settings: &TrainSettings,
        try_memory: bool,
    ) -> Result<Self> {
        let mut config = config.clone();
        let device = open_device(&config, settings)?;
        let mut prepared = prepare_data(folder, &config, &device)?;
        memory::require_state(&config, &prepared.tokenizers, settings.memory)?;
        let model =
            build_model(&config, &prepared.tokenizers, &device, Some(config.training.seed))?;
        disk::check(
            folder.root(),
            &folder.checkpoints(),
            &config.training,
            model.parameters().len() as u64,
        )?;
        require_positions(&config, &prepared)?;
        if try_memory {
            let tokens = memory::fit(&config, &model, &prepared, settings.memory)?;
            if config.data.batching.max_tokens != tokens {
                config.data.batching.max_tokens = tokens;
                // Costs no tokenising; the report is about the batches as they will be.
                prepared = prepare_data(folder, &config, &device)?;
            }
        }
        Ok(Self { config, prepared, model })
    }
}

/// Refuses rows that are longer than the model has positions for, in training or validation, as
/// they are cut into tokens or may be.
fn require_positions(config: &RunConfig, prepared: &Prepared) -> Result<()> {
    let Some(positions) = config.model.longest_sequence() else { return Ok(()) };
    let splits = [Some(&prepared.train), prepared.validation.as_ref()];
    let longest = splits.into_iter().flatten().map(|split| split.longest_row()).max().unwrap_or(0);
    if longest > positions {
        bail!(
            "the longest sentence has {longest} tokens, with </s> and what subword sampling may add, but learned positions end at model.max_positions = {positions}: raise it, or set data.cleaning.max_tokens = {}",
            positions.saturating_sub(1)
        );
    }
    Ok(())
}

/// The device of the settings, else of `config`.
fn open_device(config: &RunConfig, settings: &TrainSettings) -> Result<Device> {
    device::open(settings.device.as_deref().unwrap_or(&config.device))
}

/// What can be known to be wrong before a run folder is made.
fn preflight(
    config: &RunConfig,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
) -> Result<()> {
    device::dtype(&config.dtype, &open_device(config, settings)?)?;
    config.require_what_is_watched()?;
    let data = &config.data;
    let mut splits = vec![&data.train];
    if !data.validation.is_empty() {
        splits.push(&data.validation);
    }
    for split in splits {
        Task::Translation.files(data, split)?;
    }
    if config.evaluation.test_after_training {
        for split in &data.test {
            // Better now than after the training.
            read_pairs(data, split)?;
        }
    }
    let training = &config.training;
    let too_late = training.validate_every == 0
        || (training.max_updates > 0 && training.validate_every > training.max_updates);
    if training.checkpoint_every == 0 && too_late {
        observer.observe(&RunEvent::Notice(Notice::SavedOnlyAtTheEnd))?;
    }
    use_threads(config.threads)
}

/// Tokenizer, tokenised corpus and data report on disk.
fn prepare_data(folder: &RunFolder, config: &RunConfig, device: &Device) -> Result<Prepared> {
    let prepared = Task::Translation.prepare(&config.data, folder.root())?;
    data_report::save(&folder.data_report(), config, &prepared, device)?;
    Ok(prepared)
}

/// Trains from `origin`, or from the beginning, to an end.
fn train(
    folder: &RunFolder,
    settings: &TrainSettings,
    origin: Option<&Origin>,
    ready: Ready,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let Ready { config, prepared, model } = ready;
    let (config, tokenizers, device) =
        (&config, &prepared.tokenizers, model.parameters().device().clone());
    observer.observe(&RunEvent::Prepared {
        data: DataSummary::of(config, &prepared, &device),
        cost: Cost::of(config, &model, &device),
    })?;
    let batching = prepared.train.batching();
    if let Some(notice) = directions_only(&config.training, batching) {
        observer.observe(&RunEvent::Notice(notice))?;
    }
    let mut trainer = make_trainer(folder, config, model, tokenizers, origin, observer)?;
    // Only now: a configuration that the checkpoint does not fit must not replace the one that it
    // does.
    folder.save_config(config)?;
    let step = trainer.state().step;
    let log = MetricsLog::open(&folder.metrics(), trainer.state(), observer)?;
    let end = End::of(&config.training, batching);
    let mut batches = TrainingBatches::new(
        prepared.train.clone(),
        config.data.batching.clone(),
        config.training.seed,
    );
    let mut validation: Box<dyn Validate<Transformer>> = match &prepared.validation {
        Some(dataset) => Box::new(Validation::new(config, dataset.clone(), tokenizers)?),
        None => Box::new(NoValidation),
    };
    observer.observe(&RunEvent::Begins { folder: folder.root(), step, end, device: &device })?;
    let mut recorder = Recorder { log, observer };
    let began = Instant::now();
    let ended = trainer.train(&mut batches, validation.as_mut(), &mut recorder, stop);
    let reason = match ended {
        Ok(reason) => reason,
        Err(error) if trainer.needs_rescue() => {
            let step = trainer.state().step;
            let saved = rescue(
                &mut trainer,
                folder,
                config,
                tokenizers,
                &mut recorder.log,
                settings.rescue.as_deref(),
            );
            return Err(after_rescue(error.into(), step, folder, saved));
        }
        Err(error @ TrainError::Diverged { .. }) => bail!(
            "{error}: `taper resume {}{} --set training.schedule.{}=…`; metrics.jsonl has the losses that led here",
            folder.root().display(),
            if folder.has_checkpoint()? { " --from CHECKPOINT" } else { "" },
            if config.training.schedule.kind == ScheduleKind::Noam {
                "scale"
            } else {
                "learning_rate"
            }
        ),
        Err(error) => return Err(error.into()),
    };
    let (step, observer) = (trainer.state().step, recorder.observer);
    if reason == StopReason::Interrupted {
        observer.observe(&RunEvent::Interrupted { folder: folder.root(), step })?;
        return Ok(Outcome::Interrupted { step });
    }
    let seconds = began.elapsed().as_secs_f64();
    observer.observe(&RunEvent::Trained { reason, step, seconds })?;
    let results =
        test(folder, config, tokenizers, &trainer.into_model(), observer).with_context(|| {
            format!(
                "training is complete and saved, its test failed (`taper resume {}` repeats it)",
                folder.root().display()
            )
        })?;
    Ok(Outcome::Complete { reason, step, results })
}

/// A warning where training ends before the wanted direction is trained alone.
fn directions_only(training: &TrainingConfig, batching: &BatchingReport) -> Option<Notice> {
    let epochs = batching.bidirectional_epochs;
    let updates = batching.batches_of(epochs).div_ceil(training.accumulation as u64);
    let ends_by = |limit: u64, amount: u64| limit > 0 && limit <= amount;
    let is_too_early = epochs > 0
        && (ends_by(training.max_epochs, epochs) || ends_by(training.max_updates, updates));
    is_too_early.then_some(Notice::DirectionsOnly { epochs, updates })
}

/// A failure of the disk, with where the state is now and how to go on.
fn after_rescue(
    error: anyhow::Error,
    step: u64,
    folder: &RunFolder,
    saved: Result<RunFolder>,
) -> anyhow::Error {
    match saved {
        Ok(run) => {
            let elsewhere = if run.root() == folder.root() {
                String::new()
            } else {
                format!(
                    "; the checkpoints before it, the best among them, stay in {}",
                    folder.checkpoints().display()
                )
            };
            let run = run.root().display();
            anyhow!(
                "{}; nothing is lost: the state after step {step} is in {run}, continue with `taper resume {run}`{elsewhere}",
                one_line(&error)
            )
        }
        Err(cause) => anyhow!(
            "{}; the state after step {step} could not be saved elsewhere either ({}), so training can go on from the last checkpoint only; --rescue DIR names another place for next time",
            one_line(&error),
            one_line(&cause)
        ),
    }
}

/// A trainer at `origin`, or at the beginning if there is none.
fn make_trainer(
    folder: &RunFolder,
    config: &RunConfig,
    model: Transformer,
    tokenizers: &TokenizerPair,
    origin: Option<&Origin>,
    observer: &mut dyn RunObserver,
) -> Result<Trainer<Transformer>> {
    taper_ops::allocator::keep_freed_pages();
    let text = recorded_text(folder.root(), &config.data.validation);
    let identity = Identity {
        tokenizer_hash: tokenizers.hash(),
        recipe: recipe(config)?,
        validation: validation_identity(config, text)?,
        ..Identity::default()
    };
    let (training, checkpoints) = (config.training.clone(), folder.checkpoints());
    let Some(origin) = origin else {
        return Ok(Trainer::new(model, training, identity, &checkpoints)?);
    };
    let path = &origin.checkpoint;
    let mut trainer = Trainer::resume_from(model, training, identity, &checkpoints, path)?;
    let changes = origin.score_changes(&config.training, &trainer.state().identity.validation);
    if let Some(best) = origin.state.early_stopping.best.filter(|_| !changes.is_empty()) {
        trainer.forget_scores()?;
        observer.observe(&RunEvent::Notice(Notice::ScoresForgotten {
            changes,
            best: format!("{:.4}", best.score),
            step: best.step,
        }))?;
    }
    Ok(trainer)
}

/// Decodes the test sets with the weights that are the best for translating.
fn test(
    folder: &RunFolder,
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    model: &Transformer,
    observer: &mut dyn RunObserver,
) -> Result<Vec<TestSetResult>> {
    let checkpoint = folder.checkpoint(None)?;
    let step = load_model(&checkpoint, model, &tokenizers.hash())?.step;
    let mut results = Vec::new();
    if config.evaluation.test_after_training {
        for split in &config.data.test {
            results.push(TestSetResult::of(split, config, tokenizers, model, observer)?);
        }
        evaluation::save(folder, &results)?;
    }
    observer.observe(&RunEvent::Tested {
        folder: folder.root(),
        checkpoint: &checkpoint,
        step,
        results: &results,
        samples: config.evaluation.samples,
    })?;
    Ok(results)
}
