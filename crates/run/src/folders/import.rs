//! Import of a folder of the library Transformers as a run (a model of Taper with its files).

use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::Device;
use serde_json::Value;
use taper_data::TokenizerPair;
use taper_model::Tied;
use taper_ops::ParameterStore;
use taper_trainer::{CheckpointError, Checkpoints, Identity, Parent, State};

use super::export::has_two_vocabularies;
use super::family::{Architecture, Family, chosen, not_one};
use super::json::read_keys;
use super::sources::Sources;
use super::tokens::TokenizerFiles;
use super::weights::Weights;
use super::{CONFIG, FAMILIES, adapters, ctranslate2, generation, keys, recipe as recipes, tokens};
use crate::checks::memory;
use crate::config::{RunConfig, recipe};
use crate::event::{ImportNotice, Notice, RunEvent, RunObserver};
use crate::folder::RunFolder;
use crate::tasks::{TaskModel, entry, outline, with_model};

/// Settings that a user can choose for an import.
#[derive(Debug, Clone, Default)]
pub struct ImportSettings {
    /// Source language of a translation model, by its name in the folder, such as `eng_Latn`;
    /// `None` for the language in the folder's settings.
    pub source_language: Option<String>,
    /// Target language of a translation model, by its name in the folder; `None` for the language
    /// in the folder's settings.
    pub target_language: Option<String>,
}

/// Result of an import.
#[derive(Debug, Clone)]
pub struct Imported {
    /// Configuration of the run.
    pub config: RunConfig,
    /// Number of parameters, counted as single numbers (scalars).
    pub parameters: u64,
    /// Number of tokens in the vocabulary. If source and target have separate vocabularies, this is
    /// the number for the target.
    pub vocabulary: usize,
}

/// Model that was read from a folder, before it becomes a run.
struct ReadFolder {
    recipe: RunConfig,
    tokenizers: TokenizerPair,
    weights: Weights,
    /// Parameters of the run, with names and shapes but without values.
    outline: ParameterStore,
    sources: Sources,
    notices: Vec<Notice>,
}

/// Makes a run in `folder` from the model in the folder `source`. The weights become the run's
/// first checkpoint (after 0 updates), from which the training of other runs can start.
///
/// Only one tensor of the weights is in memory at a time.
///
/// # Errors
/// When a file is missing or damaged, the model cannot be imported, the tensors contradict
/// `config.json` or are not finite, or `folder` exists already. After an error, no part of the new
/// run remains.
pub fn import(
    source: &Path,
    folder: &RunFolder,
    observer: &mut dyn RunObserver,
) -> Result<Imported> {
    import_with(source, folder, &ImportSettings::default(), observer)
}

/// Makes a run in the same way as [`import`], but with the choices in `settings`.
///
/// # Errors
/// See [`import`]; also when the model lacks a chosen language.
pub fn import_with(
    source: &Path,
    folder: &RunFolder,
    settings: &ImportSettings,
    observer: &mut dyn RunObserver,
) -> Result<Imported> {
    if !source.is_dir() {
        bail!("{}: no such folder", source.display());
    }
    if folder.exists() {
        bail!("{} exists already and is left as it is", folder.root().display());
    }
    let path = source.join(CONFIG);
    if !path.exists() && adapters::are_in(source) {
        bail!(
            "{}: this folder has only adapters. Import the model that they change first; then \
             import this folder onto the run of that model",
            source.display()
        );
    }
    let name = folder.root().file_name().map(|name| name.to_string_lossy().into_owned());
    if ctranslate2::is_in(source) {
        let name = name.unwrap_or_else(|| ctranslate2::FAMILY.model_type.to_owned());
        let read = read_for_engine(source, name, settings)?;
        return save(source, folder, read, observer);
    }
    let shown = || path.display().to_string();
    let keys = read_keys(&path)?;
    if !keys["quantization_config"].is_null() {
        bail!("{}: quantization_config: weights that are quantized cannot be imported", shown());
    }
    let has = |family: &Family, parameter: &str| -> Result<bool> {
        let weights = weights_of(source, family)?;
        let name = family.tensor(parameter, &RunConfig::default());
        Ok(name.is_some_and(|name| weights.has(&name)))
    };
    let (family, architecture) = chosen(FAMILIES, &keys, has).with_context(shown)?;
    let name = name.unwrap_or_else(|| family.model_type.to_owned());
    let read = read(source, name, (family, architecture), &keys, settings)?;
    save(source, folder, read, observer)
}

fn weights_of(source: &Path, family: &Family) -> Result<Weights> {
    let mut weights = Weights::open(source)?;
    weights.rename(|name| family.whole_name(name))?;
    Ok(weights)
}

/// Reads the folder `source`, whose `config.json` has the keys `keys`, and checks everything but
/// the values of tensors.
fn read(
    source: &Path,
    name: String,
    (family, architecture): (&Family, &Architecture),
    keys: &Value,
    settings: &ImportSettings,
) -> Result<ReadFolder> {
    let shown = || source.join(CONFIG).display().to_string();
    let mut recipe = recipes::without_data(name, architecture.task);
    (family.base)(&mut recipe);
    keys::read(family.keys, keys, &mut recipe)
        .with_context(|| format!("{}: {}", shown(), not_one(family)))?;
    let weights = weights_of(source, family)?;
    let mut notices = Vec::new();
    untie(family, &weights, &mut recipe, &mut notices)?;
    let described = recipes::Described { source, family, architecture, keys, weights: &weights };
    with_model!(recipe.task, M => <M as TaskModel>::describe_import(&mut recipe, &described))
        .with_context(shown)?;
    let task = entry(recipe.task);
    if task.generates || task.translates {
        notices.extend(generation::not_followed(source, keys, task.translates)?);
    }
    let mut tokenizers = match recipe.task.reads_text() {
        true => read_tokenizers((source, keys), family, &mut recipe, &mut notices)?,
        false => TokenizerPair::none(),
    };
    if entry(recipe.task).translates {
        let asked = [&settings.source_language, &settings.target_language];
        let (marked, languages) = tokens::with_languages(
            tokenizers,
            (source, keys),
            family.tokens,
            asked.map(Option::as_deref),
        )?;
        recipes::speak(&mut recipe, languages);
        tokenizers = marked;
    }
    recipe.validate().with_context(shown)?;
    with_sources((family, architecture), recipe, tokenizers, weights, notices)
}

/// Reads the tokenizers of the folder `source`, whose `config.json` has the keys `keys`. Sets the
/// size and the kind of the vocabularies in `recipe`, the configuration of the new run.
fn read_tokenizers(
    (source, keys): (&Path, &Value),
    family: &Family,
    recipe: &mut RunConfig,
    notices: &mut Vec<Notice>,
) -> Result<TokenizerPair> {
    let shown = || source.join(CONFIG).display().to_string();
    let sizes = vocabulary_sizes(keys, recipe)
        .with_context(|| format!("{}: {}", shown(), not_one(family)))?;
    let tokenizer = &mut recipe.data.tokenizer;
    tokenizer.vocabulary_size = sizes[0];
    let may_have_sides = matches!(family.tokens, TokenizerFiles::Sides | TokenizerFiles::Languages);
    if may_have_sides && tokens::has_sides(source) {
        return tokens::read_sides((source, keys), &sizes, None);
    }
    if let [source_size, target_size] = *sizes
        && source_size != target_size
    {
        bail!(
            "{}: vocab_size is {source_size} and decoder_vocab_size {target_size}, but there are \
             no source.spm and target.spm with a vocabulary for each",
            shown()
        );
    }
    tokenizer.joint = true;
    tokens::read((source, keys), sizes[0], (recipe.task, recipe.model.segments), notices)
}

/// Sizes of the vocabularies according to a `config.json`: one size for all texts, or the sizes for
/// source and target.
fn vocabulary_sizes(keys: &Value, recipe: &RunConfig) -> Result<Vec<usize>> {
    let size = |key: &str| {
        let size = keys[key].as_u64().and_then(|size| usize::try_from(size).ok());
        size.with_context(|| match &keys[key] {
            Value::Null => format!("no {key}, expected a number"),
            other => format!("{key} is {other}, expected a number"),
        })
    };
    let mut sizes = vec![size("vocab_size")?];
    if has_two_vocabularies(recipe) {
        sizes.push(match keys["decoder_vocab_size"].is_null() {
            true => sizes[0],
            false => size("decoder_vocab_size")?,
        });
    }
    Ok(sizes)
}

/// Reads a folder of CTranslate2 and checks everything but the values of tensors.
fn read_for_engine(source: &Path, name: String, settings: &ImportSettings) -> Result<ReadFolder> {
    let mut notices = Vec::new();
    let asked = [&settings.source_language, &settings.target_language].map(Option::as_deref);
    let read = ctranslate2::read(source, name, asked, &mut notices)?;
    let ctranslate2::Model { recipe, tokenizers, weights, architecture } = read;
    recipe.validate().with_context(|| source.display().to_string())?;
    with_sources((&ctranslate2::FAMILY, architecture), recipe, tokenizers, weights, notices)
}

/// Finds the tensors from which each parameter gets its values, and returns them together with the
/// other arguments, which have been read from the folder.
fn with_sources(
    family_and_architecture: (&Family, &Architecture),
    recipe: RunConfig,
    tokenizers: TokenizerPair,
    weights: Weights,
    mut notices: Vec<Notice>,
) -> Result<ReadFolder> {
    let vocabularies = tokenizers.vocabulary_sizes();
    memory::require_weights(&recipe, vocabularies, &Device::Cpu)?;
    let outline = outline(&recipe, vocabularies)?;
    let sources = Sources::find(
        family_and_architecture,
        &recipe,
        &outline,
        &tokenizers,
        &weights,
        &mut notices,
    )?;
    Ok(ReadFolder { recipe, tokenizers, weights, outline, sources, notices })
}

/// Unties the output projection in `recipe` if it is tied but the folder has a projection that
/// differs from the embedding. Transformers does the same from version 5 on. If `recipe` ties the
/// embeddings of source and target but those of the folder differ, returns an error.
fn untie(
    family: &Family,
    weights: &Weights,
    recipe: &mut RunConfig,
    notices: &mut Vec<Notice>,
) -> Result<()> {
    for (ours, copy) in family.copies_of(recipe) {
        let Some(name) = family.tensor(ours, recipe).filter(|name| weights.has(name)) else {
            continue;
        };
        if weights.has(copy)
            && !weights.are_equal(&name, copy).with_context(|| weights.path_of(copy))?
        {
            let is_output = family.tensor("output.weight", recipe).is_some_and(|it| it == copy);
            let mut untied = recipe.clone();
            // Source and target still share their embeddings if they did so before.
            untied.model.tied = match recipe.model.tied {
                Tied::Decoder => Tied::None,
                _ if entry(recipe.task).translates => Tied::Embeddings,
                _ => Tied::None,
            };
            if !is_output || !recipes::expresses_ties(family, &untied) {
                bail!(
                    "{}: {copy} differs from {name}, but a {} has one embedding",
                    weights.path_of(copy),
                    family.name
                );
            }
            *recipe = untied;
            notices.push(ImportNotice::Untied { tensor: copy.to_owned(), embedding: name }.into());
        }
    }
    Ok(())
}

/// Saves the model that was read from the folder `source` as a run in `folder`.
fn save(
    source: &Path,
    folder: &RunFolder,
    read: ReadFolder,
    observer: &mut dyn RunObserver,
) -> Result<Imported> {
    for notice in &read.notices {
        observer.observe(&RunEvent::Notice(notice.clone()))?;
    }
    let ReadFolder { recipe: config, tokenizers, .. } = &read;
    folder.make(observer, || {
        tokenizers.save(folder.root())?;
        let identity = Identity {
            tokenizer_hash: tokenizers.hash(),
            recipe: recipe(config)?,
            ..Identity::default()
        };
        let path = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let state = |sha256: String| State {
            interim: false,
            parent: Some(Parent { path, step: 0, sha256 }),
            ..State::new(config.training.seed, identity)
        };
        let parameters = read.outline.parameters().iter();
        let shapes = parameters.map(|one| (one.name().to_owned(), one.shape().to_vec()));
        let failed = |error: anyhow::Error| CheckpointError::Values(error.into());
        let values =
            |name: &str| read.sources.values(name, &read.weights).map(Into::into).map_err(failed);
        let checkpoints = Checkpoints::new(&folder.checkpoints());
        std::thread::scope(|scope| {
            let hash = scope.spawn(|| read.weights.sha256());
            checkpoints.save_weights(shapes, values, || {
                let hash = hash.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                hash.map(state).map_err(failed)
            })
        })?;
        folder.make_cache()?;
        // The recipe is saved last, because a folder that has it counts as a complete run.
        folder.save_config(config)
    })?;
    let (parameters, vocabulary) = (read.outline.len() as u64, tokenizers.vocabulary_sizes().1);
    Ok(Imported { config: read.recipe, parameters, vocabulary })
}
