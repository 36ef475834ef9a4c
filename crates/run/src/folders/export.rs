//! Export of a run (a model of Taper with its files) as a folder of the library Transformers.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use serde_json::{Map, Value, json};
use taper_data::{Task, Tokenizer};
use taper_ops::{Parameter, ParameterStore};
use taper_trainer::{CheckpointError, write_tensors};

use super::family::{Architecture, Counterpart, Family, require_expressed};
use super::json::write_json;
use super::order::Order;
use super::preprocessor::write_preprocessor;
use super::{CONFIG, FAMILIES, WEIGHTS, keys, recipe as recipes, tokens};
use crate::config::RunConfig;
use crate::folder::RunFolder;
use crate::folder::files::{require_free, with_suffix, write_atomically};
use crate::tasks::{TaskModel, entry, with_model, without_adapters};
use crate::{LoadSettings, LoadedRun, model_card};

/// Result of an export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// Path of the checkpoint whose weights were exported.
    pub checkpoint: PathBuf,
    /// Update (step) after which the checkpoint was saved.
    pub step: u64,
}

/// Writes the run at `root`, with the weights that `settings` select, into `folder` in the format
/// of the library Transformers. The folder must be empty or not exist.
///
/// # Errors
/// When the run cannot be loaded, Transformers has no such model, or the folder cannot be written.
pub fn export_run(root: &Path, settings: &LoadSettings, folder: &Path) -> Result<Exported> {
    let task = RunFolder::open(root)?.load_config(&settings.overrides)?.task;
    require_exportable(task)?;
    with_model!(task, M => {
        let run: LoadedRun<M> = LoadedRun::open(root, settings)?;
        export(&run, folder)?;
        Ok(Exported { checkpoint: run.checkpoint, step: run.state.step })
    })
}

/// Refuses a task for which no family has a model.
fn require_exportable(task: Task) -> Result<()> {
    let (mut is_known, mut known) = (false, Vec::new());
    for family in FAMILIES {
        let mut tasks: Vec<Task> = Vec::new();
        for one in family.architectures {
            is_known |= one.task == task;
            if !tasks.contains(&one.task) {
                tasks.push(one.task);
            }
        }
        let tasks: Vec<String> = tasks.iter().map(Task::to_string).collect();
        known.push(format!("{} as {}", tasks.join(", "), family.name));
    }
    if !is_known {
        bail!(
            "a run of the task {task} cannot be exported yet: possible tasks are {}",
            known.join("; ")
        );
    }
    Ok(())
}

/// Exports a run that is already loaded, in the same way as [`export_run`].
///
/// # Errors
/// See [`export_run`].
pub fn export<M: TaskModel>(run: &LoadedRun<M>, folder: &Path) -> Result<()> {
    run.require_one_direction()?;
    let (family, config) = family_of(&run.config, run.model.parameters())?;
    write(run, family, config, folder)
}

/// Finds the family of the model with the recipe (Taper's configuration) `config` and the
/// parameters `store`. Returns the family, and the keys of the model's `config.json`.
///
/// # Errors
/// When the model belongs to no family. The message names a key of `[model]` whose value prevents
/// an export.
pub(super) fn family_of(
    config: &RunConfig,
    store: &ParameterStore,
) -> Result<(&'static Family, Map<String, Value>)> {
    require_exportable(config.task)?;
    let config = &without_adapters(config);
    let has = |module: &&str| store.get(&format!("{module}.weight")).is_some();
    let is_of_run = |one: &&Architecture| {
        one.task == config.task && one.head.is_some_and(|head| head.iter().all(has))
    };
    let mut refused = None;
    for family in FAMILIES {
        // If no architecture of the family has the run's head (output layers), the error is about
        // the family's first architecture for the run's task.
        let of_task = |one: &&Architecture| one.task == config.task;
        let all = || family.architectures.iter();
        let Some(architecture) = all().find(is_of_run).or_else(|| all().find(of_task)) else {
            continue;
        };
        match config_of(family, architecture, config) {
            Ok(keys) => return Ok((family, keys)),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    Err(refused.unwrap_or_else(|| anyhow!("no family of folders has the task {}", config.task)))
}

/// Keys of the `config.json` with which a run of the recipe `ours` is exported as this family's
/// `architecture`.
///
/// # Errors
/// When the family has no such model. The message names a key of `[model]` whose value prevents the
/// export.
pub(super) fn config_of(
    family: &Family,
    architecture: &Architecture,
    ours: &RunConfig,
) -> Result<Map<String, Value>> {
    let mut config = Map::new();
    config.insert("model_type".to_owned(), json!(family.model_type));
    config.insert("architectures".to_owned(), json!([architecture.name]));
    keys::write(family.keys, ours, &mut config);
    let mut expressed = recipes::without_data(String::new(), ours.task);
    (family.base)(&mut expressed);
    let mut check = || -> Result<()> {
        keys::read(family.keys, &Value::Object(config.clone()), &mut expressed)?;
        require_expressed(family, architecture.free, &expressed, ours)
    };
    check().with_context(|| format!("cannot be exported as a {}", family.name))?;
    recipes::express(ours, &mut config);
    Ok(config)
}

/// Writes the files of the exported folder; `config.json`, which has the keys `config`, comes last.
fn write<M: TaskModel>(
    run: &LoadedRun<M>,
    family: &Family,
    mut config: Map<String, Value>,
    folder: &Path,
) -> Result<()> {
    require_free(folder)?;
    if has_two_vocabularies(&run.config)
        && !run.tokenizers.is_joint()
        && !tokens::came_with_sides(&run.tokenizers)
    {
        bail!(
            "cannot be exported as a {}: Transformers has no tokenizer for two vocabularies that \
             were trained here: train one (data.tokenizer.joint)",
            family.name
        );
    }
    let sources = sources(run, family)?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let path = folder.join(WEIGHTS);
    let partial = with_suffix(&path, ".partial");
    let shapes = sources.iter().map(|(name, source)| (name.clone(), source.shape.clone()));
    let written = write_tensors(&partial, shapes, |name| {
        let values = sources[name].values();
        values.map(Into::into).map_err(|error| CheckpointError::Values(error.into()))
    });
    if let Err(error) = written {
        // The error is returned. The incomplete file is of no use, so it is removed if possible.
        let _ = fs::remove_file(&partial);
        return Err(error.into());
    }
    fs::rename(&partial, &path).with_context(|| format!("cannot write {}", path.display()))?;
    match M::TASK.reads_text() {
        true => {
            let is_written = tokens::write_sides(folder, &run.tokenizers)?;
            if !is_written {
                write_tokenizer(run, folder)?;
                write_pieces(folder, family, run.tokenizers.target())?;
            }
            let keys = &mut config;
            add_ids(run, keys)
                .with_context(|| format!("cannot be exported as a {}", family.name))?;
        }
        false => write_preprocessor(&run.config.data.images, folder)?,
    }
    let library = model_card::Library { name: "transformers", usage: String::new() };
    model_card::write(run, folder, &library)?;
    write_json(&folder.join(CONFIG), &config)
}

/// True if source and target of a model have separate vocabularies.
pub(super) fn has_two_vocabularies(config: &RunConfig) -> bool {
    entry(config.task).translates && !config.model.tied.ties_embeddings()
}

/// Writes the tokenizer of a run with one vocabulary into `folder`.
fn write_tokenizer<M: TaskModel>(run: &LoadedRun<M>, folder: &Path) -> Result<()> {
    let tokenizer = run.tokenizers.target();
    let exported = recipes::tokens_of(&run.config, tokenizer);
    tokens::write(folder, tokenizer, exported, recipes::longest(&run.config))
}

/// Adds the size of the vocabulary and the ids of special tokens to `config`, the keys of
/// `config.json`.
fn add_ids<M: TaskModel>(run: &LoadedRun<M>, config: &mut Map<String, Value>) -> Result<()> {
    let tokenizer = run.tokenizers.target();
    let (source, target) = run.tokenizers.vocabulary_sizes();
    config.insert("vocab_size".to_owned(), json!(source));
    if has_two_vocabularies(&run.config) {
        config.insert("decoder_vocab_size".to_owned(), json!(target));
    }
    for (key, id) in recipes::tokens_of(&run.config, tokenizer).ids(tokenizer) {
        if let Some(shape) = config.get(&key).filter(|&shape| *shape != id) {
            bail!("its shape has {key} = {shape}, but its tokenizer has {key} = {id}");
        }
        config.insert(key, id);
    }
    Ok(())
}

/// Writes the tokenizer of a run, in the same way as [`export`]. Returns the keys of the run's
/// `config.json`, and whether a tokenizer was written. The keys are those of the family that has
/// the model or, if no family has it, `usual`. A run with two vocabularies needs tokenizers that
/// come from SentencePiece models: for other ones, the library Transformers has no tokenizer, and
/// none is written.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn described<M: TaskModel>(
    run: &LoadedRun<M>,
    folder: &Path,
    usual: Map<String, Value>,
) -> Result<(Map<String, Value>, bool)> {
    let of_family = family_of(&run.config, run.model.parameters());
    let mut config = of_family.map_or(usual, |(_, keys)| keys);
    let mut has_tokenizer = tokens::write_sides(folder, &run.tokenizers)?;
    if !has_tokenizer && run.tokenizers.is_joint() {
        write_tokenizer(run, folder)?;
        has_tokenizer = true;
    }
    if !has_tokenizer {
        let tokenizer = run.tokenizers.target();
        tokens::write_generation(folder, tokenizer, recipes::tokens_of(&run.config, tokenizer))?;
    }
    add_ids(run, &mut config)?;
    Ok((config, has_tokenizer))
}

/// Writes the SentencePiece model for a tokenizer that was trained by Taper. Writes nothing if the
/// family has no files for it, or no SentencePiece model divides text into the same tokens.
fn write_pieces(folder: &Path, family: &Family, tokenizer: &Tokenizer) -> Result<()> {
    let files = family.tokens.pieces();
    if tokenizer.folder().is_some() || files.is_empty() {
        return Ok(());
    }
    // The model is left out if it cannot be made; the command `taper tokenizer pieces` reports why.
    let Ok(model) = tokens::sentence_piece_model(tokenizer) else { return Ok(()) };
    files.iter().try_for_each(|name| write_atomically(&folder.join(name), &model))
}

/// Values of a tensor in the folder: a part of a parameter of the run.
struct Part<'a> {
    /// Parameter with the values; `None` if the run has no such parameter and the tensor has only
    /// zeros.
    parameter: Option<&'a Parameter>,
    shape: Vec<usize>,
    order: Order,
    /// Index, in the parameter, of the first value of the part.
    start: usize,
}

/// Values of all tensors in the folder, by their names.
///
/// # Errors
/// When a parameter has no counterpart in the family.
fn sources<'a, M: TaskModel>(
    run: &'a LoadedRun<M>,
    family: &Family,
) -> Result<HashMap<String, Part<'a>>> {
    let is_tied = run.config.model.tied.ties_output();
    let mut all = HashMap::new();
    for parameter in run.model.parameters().parameters() {
        let name = parameter.name();
        let mut theirs = family.counterparts(name, parameter.shape(), &run.config).into_iter();
        let theirs = if is_tied { theirs.next() } else { theirs.next_back() };
        let Some(Counterpart { names, shapes, order }) = theirs else {
            bail!("the parameter {name} has no counterpart in a {}", family.name);
        };
        let mut start = 0;
        for (name, shape) in names.into_iter().zip(shapes) {
            let length: usize = shape.iter().product();
            all.insert(name, Part { parameter: Some(parameter), shape, order, start });
            start += length;
        }
    }
    let vocabulary = run.tokenizers.vocabulary_sizes().1;
    for &(ours, theirs) in family.zeros {
        if run.model.parameters().get(ours).is_none() {
            let shape = vec![1, vocabulary];
            let part = Part { parameter: None, shape, order: Order::Same, start: 0 };
            all.insert(theirs.to_owned(), part);
        }
    }
    Ok(all)
}

impl Part<'_> {
    fn values(&self) -> Result<Vec<f32>> {
        let length = self.shape.iter().product();
        let Some(parameter) = self.parameter else { return Ok(vec![0.0; length]) };
        let whole = parameter.var().as_detached_tensor().flatten_all()?;
        let values: Vec<f32> = whole.narrow(0, self.start, length)?.to_vec1()?;
        Ok(self.order.written(values, &self.shape))
    }
}
