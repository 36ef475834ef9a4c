//! Continuation of a training that was interrupted, or that is complete and gets higher limits. It
//! continues in the same folder, the run.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result, anyhow, bail, ensure};
use taper_data::{AUTO, hold_out};
use taper_trainer::{
    Checkpoints, Exchange, LAST, SingleProcess, TrainingConfig, checkpoint_name, read_state,
};

use super::origin::Origin;
use super::preparation::{ReadyRun, preflight};
use super::{Outcome, TrainSettings, together, train};
use crate::advice::{Action, Advice, Resume, Train, advised};
use crate::checks::dtype_choice::AUTO_DTYPE;
use crate::config::{Change, Difference, RunConfig, described, differences};
use crate::event::{FolderNotice, RunEvent, RunObserver};
use crate::folder::{RunFolder, RunLock};
use crate::tasks::with_model;

/// Continues the run in `folder` with `config`, from its last checkpoint or from the checkpoint
/// called `from`. `config` must have the same data and architecture as at the start of the run,
/// unless `settings.accept_changes` is set.
///
/// # Errors
/// See [`start`](super::start). Also if the checkpoint cannot be used, or `config` differs from the
/// run's recipe in a key that must not change.
pub fn resume(
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    from: Option<&str>,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    resume_among(
        Box::new(SingleProcess::default()),
        folder,
        (config, None),
        settings,
        from,
        observer,
        stop,
    )
}

/// Continues a run in the same way as [`resume`], as the first of several processes that train
/// together; every other process calls [`follow`](super::follow). The number of processes can
/// differ from that in earlier parts of the training. `config`: recipe of the run. `given`: recipe
/// with which all processes were started, or `None` if they were started to resume the run.
///
/// # Errors
/// See [`resume`]. An error of another process is an error, too.
pub fn resume_among(
    mut exchange: Box<dyn Exchange>,
    folder: &RunFolder,
    (config, given): (&RunConfig, Option<&RunConfig>),
    settings: &TrainSettings,
    from: Option<&str>,
    observer: &mut dyn RunObserver,
    stop: &AtomicBool,
) -> Result<Outcome> {
    together::meet(&mut *exchange, given)?;
    let lock = RunLock::acquire(folder.root(), observer)?;
    if let Some(process) = &lock.killed {
        observer.observe(&RunEvent::notice(FolderNotice::ProcessKilled(process.clone())))?;
    }
    observer.observe(&RunEvent::Locked { folder: folder.root() })?;
    folder.recover()?;
    let saved = folder.load_config(&[])?;
    let origin = match trainable_checkpoint(folder, from)? {
        Some(checkpoint) => Some(Origin::read(folder, &saved, checkpoint)?),
        None => None,
    };
    // Recipe with which the run has been trained so far; config.toml could have been edited since
    // then.
    let trained = match &origin {
        Some(origin) => origin.trained_with(folder, &saved)?,
        None => saved.clone(),
    };
    let mut config = with_choices(config, &trained);
    config.data = hold_out(&config.data, config.training.seed, &folder.absolute_root())?;
    let config = &config;
    let changes = accepted_changes(folder, &trained, config, settings)?;
    let config = &preflight(config, settings, observer)?;
    require_text(folder, config, origin.as_ref(), settings)?;
    let takes_more = |now: &TrainingConfig, before: &TrainingConfig| {
        now.objective().passes() > before.objective().passes()
            || (now.ema_decay > 0.0 && before.ema_decay == 0.0)
            || (before.checkpoint_activations && !now.checkpoint_activations)
    };
    let is_untried = origin.as_ref().is_none_or(|origin| origin.state.step == 0)
        || !changes.is_empty()
        || takes_more(&config.training, &trained.training);
    let try_memory = is_untried || settings.memory.is_some() || settings.processes_here > 1;
    together::tokenise(&mut *exchange, folder, config, observer)?;
    with_model!(config.task, M => {
        let ready = ReadyRun::<M>::new(folder, folder, config, settings, try_memory, observer)?;
        if origin.is_none() {
            ready.begin_with_vectors(folder, observer)?;
        }
        together::lead(&mut *exchange, folder, &ready, origin.as_ref())?;
        train(exchange, folder, settings, origin.as_ref(), ready, observer, stop)
    })
}

/// Checkpoint from which training continues: the one called `from`, or else the last one; `None` if
/// the run has no checkpoint yet. Returns an error for a checkpoint with int8 weights.
fn trainable_checkpoint(folder: &RunFolder, from: Option<&str>) -> Result<Option<PathBuf>> {
    let checkpoint = match from {
        Some(name) => Some(own_checkpoint(folder, name)?),
        None => Checkpoints::new(&folder.checkpoints()).find(LAST)?,
    };
    if let Some(checkpoint) = &checkpoint
        && let Some(parent) = read_state(checkpoint)?.int8_of
    {
        bail!(
            "{} has weights in int8, which are not trained on: resume the run that they were \
             made from, whose checkpoint was {}",
            checkpoint.display(),
            parent.path.display()
        );
    }
    Ok(checkpoint)
}

/// Differences between `trained`, the recipe of the training so far, and `config`. Returns an error
/// if one of them is not allowed.
fn accepted_changes(
    folder: &RunFolder,
    trained: &RunConfig,
    config: &RunConfig,
    settings: &TrainSettings,
) -> Result<Vec<Difference>> {
    let changes = differences(trained, config)?;
    let is_fixed = |one: &&Difference| one.change() == Change::Never;
    let fixed: Vec<Difference> = changes.iter().filter(is_fixed).cloned().collect();
    if config.task.has_tokenizers(folder.root()) && !fixed.is_empty() {
        let error = anyhow!(
            "{}: the run's tokenizer and seed cannot be changed any more: {}; leave them as they \
             were, or train a new run",
            folder.config().display(),
            described(&fixed)
        );
        return Err(new_run(folder).about(error));
    }
    if !changes.is_empty() && !settings.accept_changes {
        let error = anyhow!(
            "{}: [data], [model] or dtype differ: {}; leave them as they were, train a new run, or \
             go on all the same",
            folder.config().display(),
            described(&changes)
        );
        return Err(advised(error, vec![new_run(folder), all_the_same(folder)]));
    }
    Ok(changes)
}

/// Advice to train a new run with the recipe of the run in `folder`.
fn new_run(folder: &RunFolder) -> Advice {
    let train = Train { recipe: Some(folder.config()), ..Train::default() };
    Advice::new(Action::Train(train), "trains a new run")
}

/// Advice to continue the run in `folder` although its recipe or its text has changed.
fn all_the_same(folder: &RunFolder) -> Advice {
    let run = folder.root().to_owned();
    let resume = Resume { run, accepts_changes: true, ..Resume::default() };
    Advice::new(Action::Resume(resume), "continues all the same")
}

/// Returns an error if the tokenizer is not the one with which the checkpoint was trained, or if
/// the text has changed and changes are not accepted.
fn require_text(
    folder: &RunFolder,
    config: &RunConfig,
    origin: Option<&Origin>,
    settings: &TrainSettings,
) -> Result<()> {
    // Checked first, so that nothing is written with a wrong tokenizer.
    if let Some(origin) = origin {
        let tokenizers = config.task.load_tokenizers(folder.root())?;
        ensure!(
            origin.state.identity.tokenizer_hash == tokenizers.hash(),
            "{}: the tokenizer is not the one that the checkpoints were trained with; put \
                 the original tokenizer.json back",
            folder.root().display()
        );
    }
    if config.task.has_tokenizers(folder.root()) {
        let changes = config.task.corpus_changes(&config.data, folder.root())?;
        if !changes.is_empty() && !settings.accept_changes {
            let error = anyhow!(
                "{}: the text is not what the run {}: {}; put it back, train a new run, or \
                 continue with the new text",
                folder.root().display(),
                if origin.is_some() { "was trained on so far" } else { "made its tokenizer from" },
                changes.join("; ")
            );
            return Err(advised(error, vec![new_run(folder), all_the_same(folder)]));
        }
    }
    Ok(())
}

/// Path of the run's checkpoint called `name`. Returns an error for a checkpoint of another run,
/// because the run would then have checkpoints of two trainings.
fn own_checkpoint(folder: &RunFolder, name: &str) -> Result<PathBuf> {
    let path = folder.checkpoint(Some(name)).with_context(|| format!("checkpoint {name}"))?;
    let parent =
        |path: &Path| path.canonicalize().ok().and_then(|path| path.parent().map(Path::to_owned));
    ensure!(
        parent(&path) == folder.checkpoints().canonicalize().ok(),
        "checkpoint {name}: not a checkpoint of {}; to go on from another run's, copy the folder \
             of that run",
        folder.root().display()
    );
    let step = read_state(&path)?.step;
    if path.canonicalize()?.file_name().is_none_or(|file| file != checkpoint_name(step).as_str()) {
        bail!(
            "checkpoint {name}: name a checkpoint called step-…; to use a checkpoint left-step-…, \
             copy the run's folder and rename the checkpoint there to step-…"
        );
    }
    Ok(path)
}

/// Copy of `config`. Where `config` leaves the size of batches (`max_tokens`), the dtype or the
/// expected length of translations open, the copy has the value of `saved`.
fn with_choices(config: &RunConfig, saved: &RunConfig) -> RunConfig {
    let mut config = config.clone();
    if config.data.batching.max_tokens == AUTO {
        config.data.batching.max_tokens = saved.data.batching.max_tokens;
    }
    if config.dtype == AUTO_DTYPE {
        config.dtype.clone_from(&saved.dtype);
    }
    if config.decoding.expected_length.is_unknown() {
        config.decoding.expected_length = saved.decoding.expected_length;
    }
    config
}
