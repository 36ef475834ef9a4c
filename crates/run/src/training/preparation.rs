//! Preparation before the first update: data, model, and checks of device, memory and disk.

use anyhow::{Result, bail};
use candle_core::Device;
use taper_data::{Corpus, Prepared, TokenisingProgress, hold_out};
use taper_decoding::ExpectedLength;

use super::TrainSettings;
use super::data::report;
use crate::checks::dtype_choice::AUTO_DTYPE;
use crate::checks::dtype_choice::DtypeChoice;
use crate::checks::{device, disk, memory, use_threads};
use crate::config::RunConfig;
use crate::event::{RecipeNotice, RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::tasks::{TaskModel, build_model, with_model};
use crate::word_vectors::{self, TakenVectors};

/// Everything that training needs.
pub(super) struct ReadyRun<M> {
    /// Recipe (settings of the training) in which all open choices (such as "auto") have been
    /// replaced by values.
    pub(super) config: RunConfig,
    /// Tokenised training and validation data, with the tokenizers.
    pub(super) prepared: Prepared,
    /// Model with random weights.
    pub(super) model: M,
}

impl<M: TaskModel> ReadyRun<M> {
    /// Prepares the data in `folder`, and builds the model. Checks that the disk with the folder
    /// `destination` has room for the checkpoints. If `try_memory`, also checks by a trial that
    /// there is memory for the largest batch.
    ///
    /// # Errors
    /// If the device fails, the data cannot be prepared, or there is too little memory or room on
    /// the disk.
    pub(super) fn new(
        folder: &RunFolder,
        destination: &RunFolder,
        config: &RunConfig,
        settings: &TrainSettings,
        try_memory: bool,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let mut config = config.clone();
        config.data = hold_out(&config.data, config.training.seed, &folder.absolute_root())?;
        let device = open_device(&config, settings)?;
        let mut prepared = prepare_data(folder, &config, &device, observer)?;
        expect_lengths(&mut config, &prepared);
        let budget = settings.budget(&device)?;
        memory::require_state(&config, &prepared.tokenizers, &budget, &device)?;
        let model =
            build_model::<M>(&config, &prepared.tokenizers, &device, Some(config.training.seed))?;
        disk::check(
            destination.root(),
            &destination.checkpoints(),
            &config.training,
            model.parameters().len() as u64,
        )?;
        require_positions::<M>(&config, &prepared)?;
        if try_memory {
            let tokens = memory::fit(&config, &model, &prepared, &budget, observer)?;
            if config.data.batching.max_tokens != tokens {
                config.data.batching.max_tokens = tokens;
                // The text is already tokenised; this only makes the report describe the final
                // batches.
                prepared = prepare_data(folder, &config, &device, observer)?;
            }
        }
        Ok(Self { config, prepared, model })
    }
}

impl<M: TaskModel> ReadyRun<M> {
    /// Prepares the data and builds the model in a process other than the first. The first process
    /// has already replaced the open choices in `config` and checked `folder`.
    ///
    /// # Errors
    /// If the device fails, the data cannot be prepared, or there is too little memory.
    pub(super) fn opened(
        folder: &RunFolder,
        config: &RunConfig,
        settings: &TrainSettings,
        observer: &mut dyn RunObserver,
    ) -> Result<Self> {
        let device = open_device(config, settings)?;
        device::dtype(&config.dtype, &device)?;
        use_threads(config.threads)?;
        let prepared = observed(observer, |observe| {
            config.task.prepare_observed(&config.data, folder.root(), observe)
        })?;
        let budget = settings.budget(&device)?;
        memory::require_state(config, &prepared.tokenizers, &budget, &device)?;
        let seed = Some(config.training.seed);
        let model = build_model::<M>(config, &prepared.tokenizers, &device, seed)?;
        Ok(Self { config: config.clone(), prepared, model })
    }

    /// Copies the word vectors from the files that the recipe names into the embeddings. This is
    /// only called for a training that does not begin with the weights of another run, before the
    /// first update.
    ///
    /// # Errors
    /// If the vectors in a file do not fit the embeddings.
    pub(super) fn take_vectors(&self) -> Result<Vec<TakenVectors>> {
        let (embeddings, tokenizers) = (&self.config.model.embeddings, &self.prepared.tokenizers);
        word_vectors::fill(embeddings, tokenizers, self.model.parameters())
    }

    /// Copies the word vectors into the embeddings, writes a list of the tokens that got vectors to
    /// a file in `folder`, and reports their number.
    ///
    /// # Errors
    /// See [`ReadyRun::take_vectors`]; also if the list cannot be written.
    pub(super) fn begin_with_vectors(
        &self,
        folder: &RunFolder,
        observer: &mut dyn RunObserver,
    ) -> Result<()> {
        let taken = self.take_vectors()?;
        if taken.is_empty() {
            return Ok(());
        }
        word_vectors::list(&taken, folder.root())?;
        observer.observe(&RunEvent::WordVectors(&taken))
    }
}

/// If the search needs the expected length of translations and the recipe does not set it, sets it
/// from the training data, as a function of the source length.
fn expect_lengths(config: &mut RunConfig, prepared: &Prepared) {
    let decoding = &mut config.decoding;
    if decoding.shortfall_penalty > 0.0
        && decoding.expected_length.is_unknown()
        && let Some(lengths) = prepared.train.pair_lengths()
    {
        decoding.expected_length = ExpectedLength::fit(lengths);
    }
}

/// Returns an error if an example of the training or validation data has more tokens than the model
/// has positions. Tokens that subword sampling can add are counted.
fn require_positions<M: TaskModel>(config: &RunConfig, prepared: &Prepared) -> Result<()> {
    let Some((positions, key)) = M::most_positions(config) else { return Ok(()) };
    let splits = [Some(&prepared.train), prepared.validation.as_ref()];
    let longest = splits.into_iter().flatten().map(|split| split.longest_row()).max().unwrap_or(0);
    let shorter_rows = M::shorter_rows(positions);
    if longest > positions {
        bail!(
            "the longest row has {longest} tokens, with </s> and possible additions by subword \
             sampling, but positions end at {key} = {positions}: raise {key}, or set {shorter_rows}"
        );
    }
    Ok(())
}

/// Opens the device that `settings` name or, if they name none, the recipe's.
fn open_device(config: &RunConfig, settings: &TrainSettings) -> Result<Device> {
    device::open(settings.device.as_deref().unwrap_or(&config.device))
}

/// Finds errors that can be known before a run folder is made. Returns `config`. If its `dtype` is
/// `auto`, it is replaced by the chosen type.
///
/// # Errors
/// If the recipe cannot be trained on this machine. The error names the key, the file or the
/// device.
pub(super) fn preflight(
    config: &RunConfig,
    settings: &TrainSettings,
    observer: &mut dyn RunObserver,
) -> Result<RunConfig> {
    // A recipe is checked when it is read, but this one could have been changed since, or made by a
    // program.
    config.validate()?;
    let (mut config, device) = (config.clone(), open_device(config, settings)?);
    if settings.device.as_deref().unwrap_or(&config.device) == "auto"
        && let Some(reason) = device::unusable_gpu()
    {
        observer.observe(&RunEvent::notice(RecipeNotice::UnusableGpu(reason)))?;
    }
    device::dtype(&config.dtype, &device)?;
    if config.dtype == AUTO_DTYPE {
        let choice = DtypeChoice::fastest(&device);
        config.dtype = choice.name.to_owned();
        observer.observe(&RunEvent::notice(RecipeNotice::DtypeChosen(choice)))?;
    }
    config.require_what_is_watched()?;
    let data = &config.data;
    for split in [&data.train, &data.validation] {
        config.task.files(data, split)?;
        for corpus in split.iter() {
            let files = if corpus.file.is_empty() { &corpus.source } else { &corpus.file };
            if files.len() > 1 {
                observer.observe(&RunEvent::Files { corpus: &corpus.name(), files })?;
            }
        }
    }
    if config.evaluation.test_after_training {
        for split in data.test.iter().map(Corpus::name) {
            // If a test split cannot be read, this fails now, and not only after the training.
            with_model!(config.task, M => M::require_test_set(&config, &split))?;
        }
    }
    let training = &config.training;
    let too_late = training.validate_every == 0
        || (training.max_updates > 0 && training.validate_every > training.max_updates);
    if training.checkpoint_every == 0 && too_late {
        observer.observe(&RunEvent::notice(RecipeNotice::SavedOnlyAtTheEnd))?;
    }
    use_threads(config.threads)?;
    Ok(config)
}

/// Calls `tokenise`, and reports its progress to the observer.
///
/// # Errors
/// If `tokenise` or the observer fails.
pub(super) fn observed<T>(
    observer: &mut dyn RunObserver,
    tokenise: impl FnOnce(&mut dyn FnMut(&TokenisingProgress)) -> taper_data::Result<T>,
) -> Result<T> {
    let mut result = Ok(());
    let done = tokenise(&mut |progress| {
        if result.is_ok() {
            result = observer.observe(&RunEvent::Tokenising(progress));
        }
    })?;
    result.map(|()| done)
}

/// Prepares the data, and writes tokenizer, tokenised corpus and data report to `folder`.
fn prepare_data(
    folder: &RunFolder,
    config: &RunConfig,
    device: &Device,
    observer: &mut dyn RunObserver,
) -> Result<Prepared> {
    let prepared = observed(observer, |observe| {
        config.task.prepare_observed(&config.data, folder.root(), observe)
    })?;
    report::save(&folder.data_report(), config, &prepared, device)?;
    Ok(prepared)
}
