//! Loading of runs (folders of trained models).

mod any_run;
mod building;

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use candle_core::Device;
use serde_json::Value;
use taper_data::Direction;
use taper_model::ModelConfig;
use taper_trainer::{PendingWeights, State, load_model, read_state};

use super::{TaskModel, entry, require_decoding, require_task};
use crate::advice::{Action, Advice, Resume};
use crate::checks::{device, use_threads};
use crate::config::text::from_json;
use crate::config::{
    Change, Difference, Override, RunConfig, Weights, described, differences, keys, trained_with,
};
use crate::folder::RunFolder;
use crate::loaded_run::in_direction;
use crate::shortlist::RunShortlist;
use crate::{LoadSettings, LoadedRun, WeightType};

pub use any_run::{AnyRun, open};
pub use building::{build_model, without_adapters};

impl<M: TaskModel> LoadedRun<M> {
    /// Loads the run at `root` with the weights that `settings` name.
    ///
    /// # Errors
    /// If a file is missing or damaged, the tokenizer is not the one with which the checkpoint was
    /// trained, or the run has another task than `M`.
    pub fn open(root: &Path, settings: &LoadSettings) -> Result<Self> {
        taper_ops::allocator::return_freed_pages();
        let folder = RunFolder::open(root)?;
        let mut config = folder.load_config(&settings.overrides)?;
        require_task(&config, M::TASK).with_context(|| root.display().to_string())?;
        if settings.weights == Some(WeightType::Int8) {
            let instead = "choose no weights in int8, but f32 or bf16";
            require_decoding(M::TASK).context(instead)?;
        }
        use_threads(config.threads)?;
        if !config.task.has_tokenizers(root) {
            bail!("{}: the run has no tokenizer.json", root.display());
        }
        let checkpoint = match &settings.checkpoint {
            Some(name) => {
                folder.checkpoint(Some(name)).with_context(|| format!("checkpoint {name}"))?
            }
            None => folder.checkpoint(None)?,
        };
        // The weights are verified while everything else is loaded.
        let weights = PendingWeights::open(&checkpoint, folder.verified_weights().as_deref())?;
        let tokenizers = config.task.load_tokenizers(root)?;
        let tokenizers = tokenizers.with_source_prefix(&config.data.source_prefix)?;
        // Parameters that stay zero until they are loaded then lie in new memory of the system,
        // which is zero and need not be cleared.
        taper_ops::allocator::collect_soon();
        config.model = model_of(&folder, &config, &checkpoint)?;
        if let Some(device) = &settings.device {
            config.device.clone_from(device);
        }
        let device = device::open(&config.device)?;
        let mut config = without_adapters(&config);
        let is_int8 = choose_weights(&mut config, settings, weights.state(), &device)?;
        let mut model: M = build_model(&config, &tokenizers, &device, None)?;
        let only_decodes = settings.only_decodes && model.only_decode(is_int8);
        let state = weights.load(&model, &tokenizers.hash())?;
        let shortlist = RunShortlist::new(root, tokenizers.hash());
        if is_int8 && !only_decodes {
            model.round_to_int8().with_context(|| checkpoint.display().to_string())?;
        }
        let (config, tokenizers) = match chosen_direction(&config, settings)? {
            Some(direction) => in_direction(&config, &tokenizers, &direction)?,
            None => (config, tokenizers),
        };
        // Returns to the system the memory that was only needed for loading.
        taper_ops::allocator::collect();
        Ok(Self { config, tokenizers, model, checkpoint, state, is_int8, shortlist })
    }

    /// Loads another model that translates together with this run's model (an ensemble). `path`: a
    /// run, whose default weights are loaded, or a checkpoint of a run.
    ///
    /// # Errors
    /// If the model cannot be loaded, or its tokenizer differs from this run's.
    pub fn load_member(&self, path: &Path) -> Result<M> {
        let (folder, checkpoint) = RunFolder::of_weights(path)
            .with_context(|| format!("the ensemble's {}", path.display()))?;
        let tokenizers = M::TASK.load_tokenizers(folder.root())?;
        ensure!(
            tokenizers.hash() == self.tokenizers.hash(),
            "the ensemble's {}: this run has another tokenizer, so its tokens do not mean the same",
            path.display()
        );
        // All models of an ensemble compute on this run's device, and in its type of matrix
        // products.
        let load = || -> Result<M> {
            let mut config = folder.load_config(&[])?;
            config.model = model_of(&folder, &config, &checkpoint)?;
            config.dtype.clone_from(&self.config.dtype);
            let config = without_adapters(&config);
            let device = self.model.parameters().device();
            let mut model: M = build_model(&config, &tokenizers, device, None)?;
            load_model(&checkpoint, &model, &tokenizers.hash())?;
            if self.is_int8 {
                model.round_to_int8()?;
            }
            Ok(model)
        };
        load().with_context(|| format!("the ensemble's {}", path.display()))
    }
}

/// Direction of translation (pair of languages) that `settings` choose. Returns `None` if
/// `settings` choose none, and the run has at most one direction or all directions are to stay
/// available.
///
/// # Errors
/// If the run does not have the chosen direction, or has several directions and `settings` choose
/// none.
fn chosen_direction(config: &RunConfig, settings: &LoadSettings) -> Result<Option<Direction>> {
    let (from, to) = (settings.from.as_deref(), settings.to.as_deref());
    let is_asked = from.is_some() || to.is_some();
    if !entry(config.task).translates {
        return if is_asked { require_languages(config).map(|()| None) } else { Ok(None) };
    }
    let is_kept = settings.every_direction || !config.data.is_multilingual();
    if !is_asked && is_kept {
        return Ok(None);
    }
    Ok(Some(config.data.choose_direction(from, to)?))
}

/// Checks that the run's task translates. Languages can be chosen only for such a task.
///
/// # Errors
/// If the task does not translate.
pub(crate) fn require_languages(config: &RunConfig) -> Result<()> {
    ensure!(
        entry(config.task).translates,
        "the run's task is {}, which has no languages: choose none",
        config.task
    );
    Ok(())
}

/// Returns whether products with weights are computed in int8. Sets `config.dtype` if `settings` or
/// the checkpoint choose a type.
///
/// # Errors
/// If `settings` set the type twice, or request int8 on a device other than the CPU.
fn choose_weights(
    config: &mut RunConfig,
    settings: &LoadSettings,
    state: &State,
    device: &Device,
) -> Result<bool> {
    let overrides: Vec<Override> =
        settings.overrides.iter().map(|text| Override::parse(text)).collect::<Result<_>>()?;
    let is_set = overrides.iter().any(|one| one.key() == "dtype");
    let chosen = match (settings.weights, &state.int8_of) {
        (Some(weights), _) if is_set => bail!(
            "the type of matrix products is set twice, as weights in {} and as an override of \
             dtype: leave one out",
            weights.name()
        ),
        (Some(weights), _) => Some(weights),
        (None, Some(_)) if !is_set && device.is_cpu() => Some(WeightType::Int8),
        (None, _) => None,
    };
    match chosen {
        Some(WeightType::Int8) if !device.is_cpu() => {
            bail!("weights in int8 are only for the CPU: choose the device cpu, or other weights")
        }
        // With int8, everything except products with weights stays in f32.
        Some(WeightType::Int8) => WeightType::F32.name().clone_into(&mut config.dtype),
        Some(weights) => weights.name().clone_into(&mut config.dtype),
        None => {}
    }
    Ok(chosen == Some(WeightType::Int8))
}

/// Section `[model]` of the recipe (configuration) with which the weights of `checkpoint` were
/// trained. Overrides in `config` are applied if they change neither the shape nor the meaning of
/// weights.
///
/// # Errors
/// If config.toml was changed since the weights were trained, or an override in `config` would
/// change a key on which the weights depend.
fn model_of(folder: &RunFolder, config: &RunConfig, checkpoint: &Path) -> Result<ModelConfig> {
    let written = folder.load_config(&[])?;
    let trained = trained_with(&read_state(checkpoint)?, &written)?;
    if let Some(trained) = &trained {
        require_unedited(folder, &written, trained)?;
    }
    let is_of_weights = |one: &Difference| {
        one.change() == Change::Never
            || one.key.starts_with("model.") && !one.has(Weights::Changeable)
    };
    let overridden: Vec<Difference> =
        differences(&written, config)?.into_iter().filter(is_of_weights).collect();
    ensure!(
        overridden.is_empty(),
        "an override would change what the weights were trained with: {}; leave it out, or train a \
         run with it",
        described(&overridden)
    );
    with_changeable(&trained.unwrap_or(written), config)
}

/// `[model]` of `trained`, but with the values of `config` for keys that can change without new
/// weights, such as the range of positions.
fn with_changeable(trained: &RunConfig, config: &RunConfig) -> Result<ModelConfig> {
    let mut model = serde_json::json!({ "model": trained.model });
    let given = serde_json::json!({ "model": config.model });
    for key in keys().iter().filter(|key| !key.is_section() && key.has(Weights::Changeable)) {
        let pointer = format!("/{}", key.name.replace('.', "/"));
        let Some((section, name)) = pointer.rsplit_once('/') else { continue };
        let Some(place) = model.pointer_mut(section).and_then(Value::as_object_mut) else {
            continue;
        };
        // A key that has no value in `config` is removed.
        match given.pointer(&pointer) {
            Some(value) => _ = place.insert(name.to_owned(), value.clone()),
            None => _ = place.remove(name),
        }
    }
    from_json(model["model"].take())
}

/// Returns an error if config.toml was edited after training. `written`: recipe in this file.
/// `trained`: recipe with which the weights of a checkpoint were trained.
///
/// # Errors
/// If a key on which the weights depend differs. The message has the difference. There is no error
/// if training has continued with the edited recipe.
pub fn require_unedited(
    folder: &RunFolder,
    written: &RunConfig,
    trained: &RunConfig,
) -> Result<()> {
    let changes = differences(trained, written)?;
    let is_accepted = || -> Result<bool> {
        let Some(last) = folder.last_state()? else { return Ok(false) };
        Ok(match trained_with(&last, written)? {
            Some(run) => differences(&run, written)?.is_empty(),
            None => false,
        })
    };
    if changes.is_empty() || is_accepted().unwrap_or(false) {
        return Ok(());
    }
    let error = anyhow!(
        "{} is not what the weights were trained with: {}; put the original back",
        folder.config().display(),
        described(&changes)
    );
    let run = folder.root().to_owned();
    let resume = Action::Resume(Resume { run, accepts_changes: true, ..Resume::default() });
    Err(Advice::new(resume, "trains on with the change").about(error))
}
