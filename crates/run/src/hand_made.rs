//! Runs (folders of models, as a training writes them) for models whose weights were set by hand.

use anyhow::{Result, ensure};
use taper_data::{Documents, Tokenizer, TokenizerPair};
use taper_trainer::{CheckpointError, Checkpoints, Identity, State};

use crate::config::{RunConfig, recipe};
use crate::event::RunObserver;
use crate::folder::RunFolder;
use crate::folders::without_data;
use crate::tasks::TaskModel;

/// Makes a run in `folder` from `model`, whose weights become the checkpoint after 0 updates. The
/// vocabulary of the run is `words`, in the order of their ids. Returns the configuration of the
/// run.
///
/// # Errors
/// If `folder` exists already, `words` is not a valid vocabulary, or a file cannot be written.
/// After an error, no part of the new run remains.
pub fn save_by_hand<M: TaskModel>(
    folder: &RunFolder,
    model: &M,
    words: &[String],
    observer: &mut dyn RunObserver,
) -> Result<RunConfig> {
    ensure!(!folder.exists(), "{} exists already and is left as it is", folder.root().display());
    let name = folder.root().file_name().map(|name| name.to_string_lossy().into_owned());
    let mut config = without_data(name.unwrap_or_else(|| "by-hand".to_owned()), M::TASK);
    config.model = model.config().clone();
    config.data.tokenizer.vocabulary_size = words.len();
    config.data.text.block_length = config.model.max_positions;
    config.data.text.documents = Documents::Lines;
    config.validate()?;
    let tokenizers = TokenizerPair::joint(Tokenizer::of_words(words)?);
    folder.make(observer, || {
        tokenizers.save(folder.root())?;
        let identity = Identity {
            tokenizer_hash: tokenizers.hash(),
            recipe: recipe(&config)?,
            ..Identity::default()
        };
        let state = State { interim: false, ..State::new(config.training.seed, identity) };
        let parameters = model.parameters().parameters();
        let shapes = parameters.iter().map(|one| (one.name().to_owned(), one.shape().to_vec()));
        let values = |name: &str| {
            let named = parameters.iter().find(|one| one.name() == name);
            let values = named.map(|one| one.values()).transpose();
            let values = values.map_err(|error| CheckpointError::Values(error.into()))?;
            Ok(values.unwrap_or_default().into())
        };
        Checkpoints::new(&folder.checkpoints()).save_weights(shapes, values, || Ok(state))?;
        // The configuration is saved last, because a folder that has it counts as a run.
        folder.save_config(&config)
    })?;
    Ok(config)
}
