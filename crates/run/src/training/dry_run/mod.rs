//! Estimate of the cost of a training, from measurements of a few updates.

mod arithmetic;
mod timed_updates;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use taper_ops::profile;
use taper_trainer::{Position, Source};

use super::data::batches::TrainingBatches;
use super::parent_run::ParentRun;
use super::preparation::ReadyRun;
use super::{TrainSettings, TrainingLimits, announce, checked};
use crate::checks::cost::Cost;
use crate::checks::{device, disk, memory};
use crate::config::RunConfig;
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::tasks::{TaskModel, vocabularies, with_model};

pub use arithmetic::{Arithmetic, OperationShare, Peak};
pub use timed_updates::TimedUpdates;

/// Number of updates before the measurement, in which threads start and memory is allocated.
const WARM_UP: u64 = 2;
/// Largest number of measured updates.
const MOST_UPDATES: u64 = 20;
/// Smallest number of measured updates.
const FEWEST_UPDATES: u64 = 3;
/// Seconds after which the measurement ends, if at least [`FEWEST_UPDATES`] updates have been
/// measured.
const LONG_ENOUGH: f64 = 15.0;

/// Estimated cost of a training.
#[derive(Debug, Clone, Serialize)]
pub struct DryRun {
    /// Number of measured updates.
    pub measured_updates: u64,
    /// Mean duration of an update, in seconds.
    pub seconds_per_update: f64,
    /// Number of target tokens trained on per second.
    pub tokens_per_second: f64,
    /// Speed of the arithmetic in the updates.
    pub arithmetic: Arithmetic,
    /// Largest number of tokens of a batch, for sources and targets each. If the settings leave it
    /// open (`"auto"`), this is the number that was chosen.
    pub max_tokens: usize,
    /// Limits of the training.
    #[serde(flatten)]
    pub limits: TrainingLimits,
    /// Seconds until the end of the training, without validations and checkpoints; `None` if the
    /// training has no limit.
    pub estimated_seconds: Option<f64>,
    /// Largest memory that the process has used so far, in bytes. The memory for frozen weights is
    /// added, which a training would read and the dry run does not. `None` if the system does not
    /// report the memory of the process.
    pub peak_memory: Option<u64>,
    /// Largest size of all checkpoints together during the training, in bytes.
    pub checkpoint_bytes: u64,
}

/// Estimates the cost of a training. It does everything that [`start`](super::start) does before
/// the first update, except that it does not copy the weights of a parent run. It works in a
/// temporary folder, which it removes afterwards, and measures the time of a few updates. `folder`,
/// to which the training would write, is not changed.
///
/// # Errors
/// See [`start`](super::start), for errors up to the first updates.
pub fn dry_run(
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
) -> Result<DryRun> {
    with_model!(config.task, M => dry_run_with::<M>(folder, config, settings, observer))
}

/// Implements [`dry_run`] for the model of the task.
fn dry_run_with<M: TaskModel>(
    folder: &RunFolder,
    config: &RunConfig,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
) -> Result<DryRun> {
    let parent = ParentRun::find(settings, config)?;
    let config = parent.as_ref().map_or(config, |parent| &parent.config);
    let config = &checked(config, parent.as_ref(), settings, observer)?;
    let place = TemporaryFolder::new()?;
    observer.observe(&RunEvent::Locked { folder: &place.0 })?;
    if let Some(parent) = &parent {
        parent.tokenizers.save(&place.0)?;
    }
    let temporary = RunFolder::new(&place.0);
    let ready = ReadyRun::<M>::new(&temporary, folder, config, settings, true, observer)?;
    if parent.is_none() {
        ready.begin_with_vectors(&temporary, observer)?;
    }
    let (config, device) = (&ready.config, ready.model.parameters().device());
    let cost = Cost::count(config, vocabularies(&ready.prepared.tokenizers), device);
    // A training reads frozen weights from the parent run, and a dry run does not. So the memory
    // for these weights is added.
    let unread = memory::unread_bytes(device, &cost);
    announce(config, &ready.prepared, device, 1, observer)?;
    taper_ops::allocator::keep_freed_pages();
    let mut batches = TrainingBatches::new(
        ready.prepared.train.clone(),
        &config.data.batching,
        config.training.seed,
    );
    let Measurement { updates, tokens, seconds, arithmetic } =
        measure(&ready.model, config, &mut batches)?;
    let limits = TrainingLimits::from_config(&config.training, ready.prepared.train.batching());
    let seconds_per_update = seconds / updates as f64;
    let parameters = ready.model.parameters().len() as u64;
    Ok(DryRun {
        measured_updates: updates,
        seconds_per_update,
        tokens_per_second: tokens as f64 / seconds,
        arithmetic,
        max_tokens: config.data.batching.max_tokens,
        limits,
        estimated_seconds: limits.remaining(0, 0.0, seconds_per_update),
        peak_memory: memory::peak().map(|bytes| bytes + unread),
        checkpoint_bytes: disk::checkpoint_bytes(&config.training, parameters),
    })
}

/// Results of the measurement.
struct Measurement {
    updates: u64,
    tokens: u64,
    seconds: f64,
    arithmetic: Arithmetic,
}

/// Makes a few updates, and measures their time and, after each, the peak speed of the processor.
fn measure<M: TaskModel>(
    model: &M,
    config: &RunConfig,
    batches: &mut TrainingBatches,
) -> Result<Measurement> {
    let mut updates = TimedUpdates::new(model, &config.training, 0.0)?;
    let device = model.parameters().device();
    let mut peak = Peak::new(device::dtype(&config.dtype, device)?, device);
    let (mut position, mut measured, mut tokens) = (Position::default(), 0, 0);
    let mut seconds = 0.0;
    for number in 0..WARM_UP + MOST_UPDATES {
        if number == WARM_UP {
            (seconds, tokens) = (0.0, 0);
            profile::start();
        }
        measured = number.saturating_sub(WARM_UP);
        if measured >= FEWEST_UPDATES && seconds > LONG_ENOUGH {
            break;
        }
        let began = Instant::now();
        let gathered = gather(batches, &mut position, config.training.accumulation)
            .map_err(|error| anyhow!(error))?;
        tokens += updates.make(&gathered)?.tokens;
        device.synchronize().context("cannot wait for the device")?;
        seconds += began.elapsed().as_secs_f64();
        measured += u64::from(number >= WARM_UP);
        peak.measure();
    }
    let arithmetic = Arithmetic::from_profile(&profile::stop(), seconds, Some(&peak));
    Ok(Measurement { updates: measured, tokens, seconds, arithmetic })
}

/// Returns the `accumulation` micro-batches of the next update, and sets `position` to that after
/// the last of them.
fn gather(
    source: &mut TrainingBatches,
    position: &mut Position,
    accumulation: usize,
) -> Result<Vec<taper_model::Batch>, taper_trainer::BoxError> {
    let mut places = Vec::with_capacity(accumulation);
    while places.len() < accumulation {
        if position.index >= source.batches(position.epoch)? {
            *position = Position { epoch: position.epoch + 1, index: 0 };
            continue;
        }
        places.push(*position);
        position.index += 1;
    }
    source.arrange(&mut places, 0..accumulation)?;
    places.into_iter().map(|place| source.batch(place)).collect()
}

/// Temporary folder that is removed on drop.
struct TemporaryFolder(PathBuf);

impl TemporaryFolder {
    fn new() -> Result<Self> {
        let name = |number: u32| format!("taper-dry-run-{}-{number}", std::process::id());
        let free = |path: &Path| fs::create_dir(path).is_ok();
        let paths = (0..100).map(|number| std::env::temp_dir().join(name(number)));
        let mut paths = paths.filter(|path| free(path));
        paths.next().map(Self).with_context(|| {
            format!(
                "no folder can be made in {}; TMPDIR names another place",
                std::env::temp_dir().display()
            )
        })
    }
}

impl Drop for TemporaryFolder {
    fn drop(&mut self) {
        // If this fails, the system removes the folder later, like other temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advice::{Action, Verb};

    #[test]
    fn adapters_need_the_weights_of_another_run() {
        let mut config = RunConfig::default();
        config.model.lora.rank = 4;
        let folder = RunFolder::new(Path::new("none"));
        let mut observer = |_: &RunEvent<'_>| Ok(());
        let error = dry_run(&folder, &config, &TrainSettings::default(), &mut observer);
        let error = error.expect_err("refused");
        let line = crate::one_line_with(&error, |action| {
            assert_eq!(*action, Action::Use(Verb::BeginWith));
            Some("`this`".to_owned())
        });
        assert!(line.contains("model.lora.rank = 4"), "{line}");
        assert!(line.ends_with("; `this` begins with its weights"), "{line}");
    }
}
