//! `taper train --from`: a new run that begins with the weights and the tokenizer of another.
//!
//! The new run gets a checkpoint of update 0 before anything else, so that from there on it is a
//! run like any other, and a process that is killed early goes on from the same weights. Optimizer,
//! schedule, order of the data and best score are its own.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use taper_data::{Task, TokenizerPair};
use taper_trainer::{Identity, Trainer, read_state, warm_start};

use super::TrainSettings;
use super::origin::Origin;
use crate::checks::device;
use crate::config::{RunConfig, differences, is_fixed, recipe, trained_with};
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::tasks::{TaskModel, build_model};

/// The run whose weights a new one begins with.
pub(crate) struct ParentRun {
    checkpoint: PathBuf,
    /// Its tokenizers.
    pub(crate) tokenizers: TokenizerPair,
    /// The configuration of the new run: the one asked for, with this run's tokenizer.
    pub(crate) config: RunConfig,
    /// What of the one asked for gives way to this run's.
    replaced: Vec<String>,
}

impl ParentRun {
    /// The run or checkpoint that `settings` name, if they name one, for a new run of `config`.
    ///
    /// # Errors
    /// When it cannot be read, `config` names another tokenizer, or, unless changes are accepted,
    /// another architecture.
    pub(crate) fn of(settings: &TrainSettings, config: &RunConfig) -> Result<Option<Self>> {
        let Some(path) = &settings.from else { return Ok(None) };
        Self::read(path, config, settings.accept_changes)
            .with_context(|| format!("--from {}", path.display()))
            .map(Some)
    }

    fn read(path: &Path, config: &RunConfig, accept_changes: bool) -> Result<Self> {
        let (run, checkpoint) = RunFolder::of_weights(path)?;
        let written = run.load_config(&[])?;
        let trained = trained_with(&read_state(&checkpoint)?, &written)?.unwrap_or(written);
        let becomes_classifier =
            trained.task == Task::MaskedLanguageModel && config.task == Task::Classification;
        if trained.task != config.task && !becomes_classifier {
            bail!("its task is {}, and this recipe's is {}", trained.task, config.task);
        }
        let tokenizers = trained.task.load_tokenizers(run.root())?;
        if config.data.tokenizer.path.is_some()
            && config.task.train_tokenizers(&config.data)?.hash() != tokenizers.hash()
        {
            bail!(
                "data.tokenizer.path is another tokenizer than that run's, by which its \
                 embeddings would mean other words; leave it out"
            );
        }
        let mut own = config.clone();
        own.data.nfkc = trained.data.nfkc;
        own.data.lowercase = trained.data.lowercase;
        own.data.tokenizer = taper_data::TokenizerConfig {
            dropout: config.data.tokenizer.dropout,
            sampling_alpha: config.data.tokenizer.sampling_alpha,
            path: config.data.tokenizer.path.clone(),
            target_path: config.data.tokenizer.target_path.clone(),
            ..trained.data.tokenizer.clone()
        };
        own.validate()?;
        let architecture: Vec<String> = differences(&trained, &own)?
            .into_iter()
            .filter(|change| change.starts_with("model.") && !is_dropout(change))
            .collect();
        if !architecture.is_empty() && !accept_changes {
            bail!(
                "the weights are of another model: {}; leave these keys as they were, or take \
                 what fits with --accept-changes",
                architecture.join("; ")
            );
        }
        let replaced =
            differences(config, &own)?.into_iter().filter(|change| is_fixed(change)).collect();
        Ok(Self { checkpoint, tokenizers, config: own, replaced })
    }

    /// Makes the first checkpoint of the run in `folder`, with the weights that fit, and says what
    /// was taken. What the folder holds afterwards is all but the configuration.
    ///
    /// # Errors
    /// When the weights are damaged, none fits, or the disk refuses.
    pub(crate) fn begin<M: TaskModel>(
        &self,
        folder: &RunFolder,
        settings: &TrainSettings,
        observer: &mut dyn RunObserver,
    ) -> Result<Origin> {
        let config = &self.config;
        let device = device::open(settings.device.as_deref().unwrap_or(&config.device))?;
        let model =
            build_model::<M>(config, &self.tokenizers, &device, Some(config.training.seed))?;
        let started = warm_start(&self.checkpoint, &model, &self.tokenizers.hash())?;
        if started.taken.is_empty() {
            bail!(
                "--from {}: no tensor there has the name and shape of one of the model's",
                self.checkpoint.display()
            );
        }
        observer.observe(&RunEvent::WarmStart { started: &started, replaced: &self.replaced })?;
        self.tokenizers.save(folder.root())?;
        let identity = Identity {
            tokenizer_hash: self.tokenizers.hash(),
            recipe: recipe(config)?,
            ..Identity::default()
        };
        let mut parent = started.parent;
        parent.path = parent.path.canonicalize().unwrap_or(parent.path);
        let mut trainer =
            Trainer::new(model, config.training.clone(), identity, &folder.checkpoints())?;
        trainer.save_beginning(parent)?;
        Origin::of(folder, config, folder.checkpoint(Some("last"))?)
    }
}

/// Whether one of the [`differences`] is of a dropout rate, which is no part of the weights.
fn is_dropout(change: &str) -> bool {
    change.split(' ').next().is_some_and(|key| key.ends_with("_dropout"))
}
