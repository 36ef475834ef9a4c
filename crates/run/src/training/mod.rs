//! Training of a model, from the recipe (TOML file with all settings) to scores: data, model,
//! training loop, and final test. The folder that a training writes is called a run.

mod continuation;
mod data;
mod dry_run;
mod failure;
mod limits;
mod origin;
mod parent_run;
mod preparation;
mod recorder;
mod resume;
mod settings;
mod together;

use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use candle_core::Device;
use taper_data::{BatchingReport, Corpus, Prepared, TokenizerPair, recorded_text};
use taper_trainer::{
    Exchange, Identity, NoValidation, SingleProcess, StopReason, Trainer, TrainingConfig,
    Validator, load_model, read_state,
};

use crate::advice::{Action, Advice, Verb};
use crate::checks::cost::Cost;
use crate::config::{RunConfig, recipe, validation_identity, without_effect};
use crate::evaluation::{self, Split, TestSetResult};
use crate::event::{FolderNotice, RecipeNotice, RunEvent, RunObserver};
use crate::folder::{RunFolder, RunLock};
use crate::tasks::{TaskModel, vocabularies, with_model};
use data::batches::TrainingBatches;
use failure::{explained, is_loss};
use origin::Origin;
use parent_run::ParentRun;
pub use parent_run::model_of;
use preparation::{ReadyRun, preflight};
use recorder::{Recorder, Watched};

pub use continuation::{Continuation, Seam};
pub use data::DataSummary;
pub(crate) use data::batches::{in_order, packed};
pub use dry_run::{Arithmetic, DryRun, OperationShare, Peak, TimedUpdates, dry_run};
pub use limits::TrainingLimits;
pub use resume::{resume, resume_among};
pub use settings::{Outcome, TrainSettings};
pub use together::follow;

/// Starts a run in `folder`, which must not exist yet. If this fails before training begins, the
/// folder is removed again, so that the call can be repeated. When `stop` becomes true, training
/// ends early with a checkpoint.
///
/// # Errors
/// If the device, the data or the disk fails. Where possible, errors are found before the first
/// update.
pub fn start(
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    start_among(Box::new(SingleProcess::default()), folder, config, settings, observer, stop)
}

/// Starts a run in the same way as [`start`], as the first of several processes that train
/// together; every other process calls [`follow`].
///
/// # Errors
/// See [`start`]. An error of another process is an error, too.
pub fn start_among(
    exchange: Box<dyn Exchange>,
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    with_model!(config.task, M => {
        start_with::<M>(exchange, folder, config, settings, observer, stop)
    })
}

/// Implements [`start_among`] for the model of the task.
fn start_with<M: TaskModel>(
    mut exchange: Box<dyn Exchange>,
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    together::meet(&mut *exchange, Some(config))?;
    let parent = ParentRun::find(settings, config)?;
    let config = parent.as_ref().map_or(config, |parent| &parent.config);
    let config = &checked(config, parent.as_ref(), settings, observer)?;
    let existed = folder.root().is_dir();
    fs::create_dir_all(folder.root())
        .with_context(|| format!("cannot make {}", folder.root().display()))?;
    let _lock = RunLock::acquire(folder.root(), observer)?;
    if folder.exists() {
        let run = folder.root();
        let error = anyhow!("{} was begun by another process a moment ago", run.display());
        return Err(Advice::new(Action::resume(run), "continues it").about(error));
    }
    observer.observe(&RunEvent::Locked { folder: folder.root() })?;
    let mut begin = || -> Result<(Option<Origin>, ReadyRun<M>)> {
        // The initial weights are saved before the recipe. A folder with a recipe counts as a run,
        // and can then be resumed even if this process is killed now.
        let origin = match &parent {
            Some(parent) => Some(parent.begin::<M>(folder, settings, observer)?),
            None => None,
        };
        folder.save_config(config)?;
        together::tokenise(&mut *exchange, folder, config, observer)?;
        let ready = ReadyRun::new(folder, folder, config, settings, true, observer)?;
        if origin.is_none() {
            ready.begin_with_vectors(folder, observer)?;
        }
        together::lead(&mut *exchange, folder, &ready, origin.as_ref())?;
        Ok((origin, ready))
    };
    match begin() {
        Ok((origin, ready)) => {
            train(exchange, folder, settings, origin.as_ref(), ready, observer, stop)
        }
        // This error means that another process has ended. All files of the run so far are
        // complete, and its tokenised text can be used again.
        Err(error) if error.downcast_ref().is_some_and(is_loss) => {
            let resume = Action::resume(folder.root());
            Err(Advice::new(resume, "continues with the prepared data").about(error))
        }
        Err(error) => {
            // The lock is still held, so no other process can have written to the folder.
            if let Err(cause) = folder.remove(existed) {
                let (folder, cause) = (folder.root().to_owned(), format!("{cause:#}"));
                observer.observe(&RunEvent::notice(FolderNotice::NotRemoved { folder, cause }))?;
            }
            Err(error)
        }
    }
}

/// Checks the recipe of a new run, and reports keys without effect. Returns the recipe. If its
/// dtype is `auto`, it is replaced by the chosen type.
fn checked(
    config: &RunConfig,
    parent: Option<&ParentRun>,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
) -> Result<RunConfig> {
    if config.model.lora.is_on() && parent.is_none() {
        let error = anyhow!(
            "model.lora.rank = {} trains adapters of the weights of another run: name that run, or \
             set the rank to 0",
            config.model.lora.rank
        );
        let begin = Action::Use(Verb::BeginWith);
        return Err(Advice::new(begin, "begins with its weights").about(error));
    }
    let config = preflight(config, settings, observer)?;
    for note in without_effect(&config)? {
        let key = note.split(' ').next().unwrap_or_default();
        if let Some(parent) = parent
            && parent.has(key)?
        {
            continue;
        }
        observer.observe(&RunEvent::notice(RecipeNotice::WithoutEffect(note)))?;
    }
    Ok(config)
}

/// Trains until a limit or the stop flag ends the training. The training continues from the
/// checkpoint `origin` or, if `origin` is `None`, begins with the first update. Of several
/// processes, only the first writes to the folder and scores the model on the test sets.
fn train<M: TaskModel>(
    exchange: Box<dyn Exchange>,
    folder: &RunFolder,
    settings: &TrainSettings,
    origin: Option<&Origin>,
    ready: ReadyRun<M>,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    let ReadyRun { config, prepared, model } = ready;
    let (config, tokenizers, device) =
        (&config, &prepared.tokenizers, model.parameters().device().clone());
    let is_first = exchange.rank() == 0;
    announce(config, &prepared, &device, exchange.size(), observer)?;
    let mut trainer = make_trainer(exchange, folder, config, model, tokenizers, origin, observer)?;
    // Returns to the system the memory that was only needed for preparation.
    taper_ops::allocator::collect();
    taper_ops::allocator::keep_freed_pages();
    let step = trainer.state().step;
    let mut recorder = match is_first {
        true => Recorder::open(folder, config, settings, trainer.state(), observer)?,
        false => Recorder { log: None, files: None, events: None, observer },
    };
    let limits = TrainingLimits::from_config(&config.training, prepared.train.batching());
    let mut batches =
        TrainingBatches::new(prepared.train.clone(), &config.data.batching, config.training.seed);
    let mut validation = validation::<M>(config, &prepared, &recorder)?;
    let (dtype, task) = (config.dtype.as_str(), config.task);
    recorder.observer.observe(&RunEvent::Begins {
        folder: folder.root(),
        task,
        step,
        limits,
        device: &device,
        dtype,
    })?;
    let began = Instant::now();
    let ended = trainer.train(&mut batches, validation.as_mut(), &mut recorder, stop);
    let reason = ended
        .map_err(|error| explained(error, &mut trainer, &mut recorder, folder, config, settings))?;
    let step = trainer.state().step;
    let observer = &mut *recorder.observer;
    if reason == StopReason::Interrupted {
        observer.observe(&RunEvent::Interrupted { folder: folder.root(), step })?;
        return Ok(Outcome::Interrupted { step });
    }
    let seconds = began.elapsed().as_secs_f64();
    let continuation = Continuation::find(reason, step, &config.training, trainer.model().width());
    observer.observe(&RunEvent::Trained { reason, step, seconds, continuation })?;
    if !is_first {
        return Ok(Outcome::Complete { reason, step, results: Vec::new() });
    }
    let tested = test(folder, config, tokenizers, &trainer.into_model(), &mut recorder);
    let results = tested.map_err(|error| {
        let error = error.context("training is complete and saved, its test failed");
        Advice::new(Action::resume(folder.root()), "repeats it").about(error)
    })?;
    Ok(Outcome::Complete { reason, step, results })
}

/// Validator for validations during training. The validator of the first process computes scores.
/// The validators of the other processes do nothing.
fn validation<M: TaskModel>(
    config: &RunConfig,
    prepared: &Prepared,
    recorder: &Recorder<'_>,
) -> Result<Box<dyn Validator<M>>> {
    let tokenizers = &prepared.tokenizers;
    let validation: Box<dyn Validator<M>> = match &prepared.validation {
        Some(dataset) if recorder.is_of_first() => {
            M::validation(config, dataset.clone(), tokenizers)?
        }
        _ => Box::new(NoValidation),
    };
    // The attention on the first sample of each validation is recorded. This sample is in the first
    // direction of the validation split.
    let first =
        prepared.validation.as_ref().and_then(|dataset| dataset.directions().into_iter().next());
    let of_recipe = || config.data.directions_of(&config.data.validation).into_iter().next();
    let tokenizers = match first.map(|(direction, _)| direction).or_else(of_recipe) {
        Some(direction) => &tokenizers.toward(&config.data, &direction)?,
        None => tokenizers,
    };
    Ok(Watched::boxed(validation, recorder.events.as_ref(), tokenizers))
}

/// Reports the data and the cost of a training on `processes` processes before it begins.
fn announce(
    config: &RunConfig,
    prepared: &Prepared,
    device: &Device,
    processes: usize,
    observer: &mut dyn RunObserver,
) -> Result<()> {
    observer.observe(&RunEvent::Prepared {
        data: DataSummary::new(config, prepared, device),
        cost: Cost::among(config, vocabularies(&prepared.tokenizers), device, processes),
    })?;
    if let Some(notice) = directions_only(&config.training, prepared.train.batching()) {
        observer.observe(&RunEvent::notice(notice))?;
    }
    let micro_batches = config.training.accumulation;
    if processes > micro_batches {
        observer
            .observe(&RunEvent::notice(RecipeNotice::IdleProcesses { processes, micro_batches }))?;
    }
    Ok(())
}

/// Notice that training ends before the first epoch in which only the requested direction of
/// translation is trained; `None` if it ends later.
fn directions_only(training: &TrainingConfig, batching: &BatchingReport) -> Option<RecipeNotice> {
    let epochs = batching.bidirectional_epochs;
    let updates = batching.batches_of(epochs).div_ceil(training.accumulation as u64);
    let ends_by = |limit: u64, amount: u64| limit > 0 && limit <= amount;
    let is_too_early = epochs > 0
        && (ends_by(training.max_epochs, epochs) || ends_by(training.max_updates, updates));
    is_too_early.then_some(RecipeNotice::DirectionsOnly { epochs, updates })
}

/// Makes a trainer that continues from the checkpoint `origin` or, if `origin` is `None`, begins
/// with the first update.
fn make_trainer<M: TaskModel>(
    exchange: Box<dyn Exchange>,
    folder: &RunFolder,
    config: &RunConfig,
    model: M,
    tokenizers: &TokenizerPair,
    origin: Option<&Origin>,
    observer: &mut dyn RunObserver,
) -> Result<Trainer<M>> {
    let text = recorded_text(folder.root(), &config.task.validation_split(&config.data));
    let validation = validation_identity(config, text)?;
    let changes = origin.map(|origin| origin.score_changes(&config.training, &validation));
    let changes = changes.unwrap_or_default();
    let identity = Identity {
        tokenizer_hash: tokenizers.hash(),
        recipe: recipe(config)?,
        validation: match origin {
            Some(origin) if changes.is_empty() => origin.recorded_validation(validation),
            _ => validation,
        },
        ..Identity::default()
    };
    let (training, checkpoints) = (config.training.clone(), folder.checkpoints());
    let Some(origin) = origin else {
        return Ok(Trainer::begin_among(exchange, model, training, identity, &checkpoints)?);
    };
    let path = &origin.checkpoint;
    let mut trainer =
        Trainer::resume_among(exchange, model, training, identity, &checkpoints, path)?;
    if let Some(best) = origin.state.early_stopping.best.filter(|_| !changes.is_empty()) {
        trainer.forget_scores()?;
        observer.observe(&RunEvent::notice(RecipeNotice::ScoresForgotten {
            changes,
            best: format!("{:.4}", best.score),
            step: best.step,
        }))?;
    }
    Ok(trainer)
}

/// Scores the model on the test sets, with the weights that other commands load by default. Also
/// checks that these commands will be able to load the run.
fn test<M: TaskModel>(
    folder: &RunFolder,
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    model: &M,
    recorder: &mut Recorder<'_>,
) -> Result<Vec<TestSetResult>> {
    let checkpoint = folder.checkpoint(None)?;
    let step = load_model(&checkpoint, model, &tokenizers.hash())?.step;
    let mut results = Vec::new();
    if config.evaluation.test_after_training {
        for split in config.data.test.iter().map(Corpus::name) {
            let (config, tokenizers) = evaluation::of_split(config, tokenizers, &split)?;
            let (name, config, tokenizers) = (&*split, &config, &tokenizers);
            let split = Split { name, config, tokenizers, shortlist: None, is_kept: true };
            results.push(model.test(split, recorder.observer)?);
        }
        evaluation::save(folder, &results)?;
    }
    recorder.restore()?;
    require_loadable(folder, tokenizers, &checkpoint)?;
    recorder.observer.observe(&RunEvent::Tested {
        folder: folder.root(),
        task: config.task,
        checkpoint: &checkpoint,
        step,
        results: &results,
        samples: config.evaluation.samples,
        has_test_sets: !M::test_sets(config).is_empty(),
    })?;
    Ok(results)
}

/// Checks that other commands can load the run, so that success is not reported for a damaged run.
fn require_loadable(
    folder: &RunFolder,
    tokenizers: &TokenizerPair,
    checkpoint: &Path,
) -> Result<()> {
    let check = || -> Result<()> {
        let config = folder.load_config(&[])?;
        if config.task.load_tokenizers(folder.root())?.hash() != tokenizers.hash() {
            bail!("its tokenizer is no longer the one that it was trained with");
        }
        read_state(checkpoint)?;
        Ok(())
    };
    check().with_context(|| format!("{} cannot be loaded", folder.root().display()))
}
