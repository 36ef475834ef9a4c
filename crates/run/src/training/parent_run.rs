//! Start of a new run (folder of a training) with weights of another run, its parent, as in
//! `taper train --from`. All weights are copied, or some of them. The new run has the parent's
//! tokenizer or one of its own.
//!
//! The new run first gets a checkpoint (after 0 updates) with these weights. From then on it is a
//! run like any other: if its process is killed early, it continues from this checkpoint. Optimizer
//! state, schedule, order of the data and best score are not taken from the parent.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use taper_data::{Tokenizer, TokenizerPair};
use taper_model::{ModelConfig, is_adapter, set_magnitudes};
use taper_ops::ParameterStore;
use taper_trainer::{
    Identity, SharedRows, Trainer, WarmStart, WarmStartSettings, read_state, warm_start,
};

use super::TrainSettings;
use super::origin::Origin;
use crate::advice::{Action, Advice, Setting};
use crate::checks::device;
use crate::config::{
    Change, Difference, RunConfig, Weights, described, differences, key_around, recipe,
    trained_with,
};
use crate::event::{RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::parameter_groups::Selection;
use crate::tasks::{TaskModel, build_model, entry};

/// Reads the section `[model]` of the recipe of the run or checkpoint at `path`. A new run is to
/// copy its weights.
///
/// # Errors
/// If the run or checkpoint cannot be read.
pub fn model_of(path: &Path) -> Result<ModelConfig> {
    let parent = Parent::read(path).with_context(|| format!("weights from {}", path.display()))?;
    Ok(parent.trained.model)
}

/// Parent run, as read from the disk.
struct Parent {
    run: RunFolder,
    checkpoint: PathBuf,
    /// Recipe with which the weights in the checkpoint were trained.
    trained: RunConfig,
}

impl Parent {
    fn read(path: &Path) -> Result<Self> {
        let (run, checkpoint) = RunFolder::of_weights(path)?;
        let written = run.load_config(&[])?;
        let trained = trained_with(&read_state(&checkpoint)?, &written)?.unwrap_or(written);
        Ok(Self { run, checkpoint, trained })
    }
}

/// Parent run, with what the new run takes from it.
pub(crate) struct ParentRun {
    checkpoint: PathBuf,
    /// Hash of the parent's tokenizers.
    hash: String,
    /// Tokenizers of the new run: the parent's tokenizers, or new ones.
    pub(crate) tokenizers: TokenizerPair,
    /// Rows of the parent's embeddings that the new run reuses, for source and target: for each
    /// token of the new run's vocabulary, the row of the same token in the parent, if there is one.
    /// `None` if both runs have the same tokenizers.
    shared: Option<[SharedRows; 2]>,
    selection: Selection,
    /// Recipe of the new run: the requested one, with the parent's tokenizer settings unless the
    /// new run has a tokenizer of its own.
    pub(crate) config: RunConfig,
    /// Keys of the requested recipe that got the parent's values, for a message.
    replaced: Vec<String>,
    /// Recipe with which the parent's weights were trained.
    trained: RunConfig,
}

impl ParentRun {
    /// Reads the run or checkpoint that `settings.from` names as the parent of a new run with the
    /// recipe `config`. Returns `None` if no parent is named.
    ///
    /// # Errors
    /// If the parent cannot be read, or its task or architecture does not fit `config`. Another
    /// architecture is no error if `settings.accept_changes` is set.
    pub(crate) fn find(settings: &TrainSettings, config: &RunConfig) -> Result<Option<Self>> {
        let Some(path) = &settings.from else { return Ok(None) };
        Self::read(path, config, settings)
            .with_context(|| format!("weights from {}", path.display()))
            .map(Some)
    }

    fn read(path: &Path, config: &RunConfig, settings: &TrainSettings) -> Result<Self> {
        let Parent { run, checkpoint, trained } = Parent::read(path)?;
        let selection = Selection::new(&settings.only);
        if trained.task != config.task
            && selection.is_all()
            && !entry(config.task).begins_with.contains(&trained.task)
        {
            let error = anyhow!(
                "its task is {}, but this recipe's is {}: choose the parts to take from it, for \
                 example encoder,embeddings",
                trained.task,
                config.task
            );
            return Err(Advice::new(Action::Choose(Setting::Parts), "chooses them").about(error));
        }
        let theirs = trained.task.load_tokenizers(run.root())?;
        let hash = theirs.hash();
        let has_own = config.task.reads_text()
            && (settings.own_tokenizer
                || !trained.task.reads_text()
                || config.data.tokenizer.path.is_some());
        if has_own {
            let tokenizers = config.task.train_tokenizers(&config.data)?;
            let shared = (tokenizers.hash() != hash).then(|| shared_rows(&tokenizers, &theirs));
            Self::require_architecture(&trained, config, settings)?;
            let (config, replaced) = (config.clone(), Vec::new());
            return Ok(Self {
                checkpoint,
                hash,
                tokenizers,
                shared,
                selection,
                config,
                replaced,
                trained,
            });
        }
        let tokenizers = if config.task.reads_text() { theirs } else { TokenizerPair::none() };
        let adapted = Self::with_tokenizer_settings(config, &trained)?;
        Self::require_architecture(&trained, &adapted, settings)?;
        let replaced = differences(config, &adapted)?.into_iter();
        let replaced = replaced.filter(|one| one.change() == Change::Never);
        let replaced = replaced.map(|one| one.to_string()).collect();
        let shared = None;
        Ok(Self {
            checkpoint,
            hash,
            tokenizers,
            shared,
            selection,
            config: adapted,
            replaced,
            trained,
        })
    }

    /// Returns `config` with the settings of `trained` that determine the token ids of a text.
    /// Settings of subword sampling and paths of tokenizers remain those of `config`.
    ///
    /// # Errors
    /// If these settings contradict other keys of `config`.
    fn with_tokenizer_settings(config: &RunConfig, trained: &RunConfig) -> Result<RunConfig> {
        let mut adapted = config.clone();
        adapted.data.nfkc = trained.data.nfkc;
        adapted.data.lowercase = trained.data.lowercase;
        adapted.data.tokenizer = taper_data::TokenizerConfig {
            dropout: config.data.tokenizer.dropout,
            sampling_alpha: config.data.tokenizer.sampling_alpha,
            path: config.data.tokenizer.path.clone(),
            target_path: config.data.tokenizer.target_path.clone(),
            ..trained.data.tokenizer.clone()
        };
        adapted.validate()?;
        Ok(adapted)
    }

    /// Returns an error if the parent's model has another shape than that of `config`, unless
    /// changes are accepted.
    fn require_architecture(
        trained: &RunConfig,
        config: &RunConfig,
        settings: &TrainSettings,
    ) -> Result<()> {
        let takes_part = trained.task != config.task || !settings.only.is_empty();
        // Models for pretraining predict tokens, so they have no pooling, which is only used to
        // label whole texts.
        let has_no_pooling = entry(trained.task).pretrains && config.task != trained.task;
        let shapes = |one: &Difference| {
            let is_beside = has_no_pooling && one.key == "model.pooling"
                || takes_part && one.has(Weights::OtherPart)
                || one.has(Weights::NoPart)
                || key_around(&one.key).is_some_and(|key| key.is_idle(config));
            one.key.starts_with("model.") && !is_beside
        };
        let architecture: Vec<Difference> =
            differences(trained, config)?.into_iter().filter(shapes).collect();
        if !architecture.is_empty() && !settings.accept_changes {
            let error = anyhow!(
                "the weights belong to another model: {}; leave these keys out, so that they keep \
                 their values, or take the fitting parts",
                described(&architecture)
            );
            let accept = Action::Choose(Setting::AcceptChanges);
            return Err(Advice::new(accept, "takes the fitting parts").about(error));
        }
        Ok(())
    }

    /// Whether `key` is a key of `[model]` that has the same value in the new run as in the parent.
    ///
    /// # Errors
    /// If a value cannot be written as TOML.
    pub(crate) fn has(&self, key: &str) -> Result<bool> {
        let changes = differences(&self.trained, &self.config)?;
        Ok(key.starts_with("model.") && !changes.iter().any(|one| one.key == key))
    }

    /// Makes the first checkpoint of the run in `folder` with the weights of the parent that fit
    /// the model, and reports which were copied. After this, the only missing file of the run is
    /// the recipe.
    ///
    /// # Errors
    /// If the weights are damaged, no parameter fits, or the checkpoint cannot be written.
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
        self.selection.require(model.parameters())?;
        let rows = |name: &str| -> Option<&SharedRows> {
            let [source, target] = self.shared.as_ref()?;
            is_of_tokens(name).then(|| if name.starts_with("source") { source } else { target })
        };
        let taking = WarmStartSettings {
            tokenizer_hash: &self.hash,
            is_wanted: &|name| self.selection.has(name),
            rows: &rows,
        };
        let mut started = warm_start(&self.checkpoint, &model, &taking)?;
        if started.taken.is_empty() && started.partly.is_empty() {
            bail!(
                "{}: no tensor there has the name and shape of one of the model's",
                self.checkpoint.display()
            );
        }
        if config.model.lora.is_on() {
            require_base(model.parameters(), &started)?;
            set_magnitudes(model.parameters())?;
            started.drawn.retain(|one| !is_adapter(&one.name));
        }
        observer.observe(&RunEvent::WarmStart {
            started: &started,
            replaced: &self.replaced,
            own_tokenizer: self.shared.is_some(),
        })?;
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
        // Training builds another model, so the memory of this one can be freed.
        drop(trainer);
        taper_ops::allocator::collect();
        Origin::read(folder, config, folder.checkpoint(Some("last"))?)
    }
}

/// Returns an error if a frozen parameter of a model with adapters does not have all of its values
/// from the parent.
fn require_base(store: &ParameterStore, started: &WarmStart) -> Result<()> {
    let drawn = started.drawn.iter().map(|one| &one.name);
    let partly = started.partly.iter().map(|one| &one.name);
    let mut missing = drawn.chain(partly).chain(&started.unwanted);
    match missing.find(|name| store.base().iter().any(|one| one.name() == name.as_str())) {
        Some(name) => bail!(
            "adapters change frozen weights, but {name} is not taken, or not as a whole, from the \
             run that this one begins with; train it too: model.lora.train = [\"{name}\"]"
        ),
        None => Ok(()),
    }
}

/// True if the parameter `name` has one row for each token.
fn is_of_tokens(name: &str) -> bool {
    name.ends_with("embedding.weight") || matches!(name, "output.weight" | "output.bias")
}

/// For source and target: the id in `theirs` of each token of `own_tokenizers`, or `None` if
/// `theirs` lacks the token.
fn shared_rows(own_tokenizers: &TokenizerPair, theirs: &TokenizerPair) -> [SharedRows; 2] {
    if theirs.vocabulary_sizes().1 == 0 {
        return [own_tokenizers.source(), own_tokenizers.target()]
            .map(|one| vec![None; one.vocabulary_size()]);
    }
    let rows_of = |own_tokenizers: &Tokenizer, theirs: &Tokenizer| -> SharedRows {
        let known: HashMap<String, usize> = (0..theirs.vocabulary_size())
            .filter_map(|id| Some((theirs.token(id as u32)?, id)))
            .collect();
        let row = |id: usize| {
            own_tokenizers.token(id as u32).and_then(|token| known.get(&token).copied())
        };
        (0..own_tokenizers.vocabulary_size()).map(row).collect()
    };
    [
        rows_of(own_tokenizers.source(), theirs.source()),
        rows_of(own_tokenizers.target(), theirs.target()),
    ]
}
