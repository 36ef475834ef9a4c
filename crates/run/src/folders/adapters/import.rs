//! Import of a folder of the library PEFT as a run (a model of Taper with its files) with adapters.
//! Adapters are pairs of factors A and B of low rank; the product `B A` is added to a matrix of the
//! model.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::{DType, Device, Tensor};
use taper_data::TokenizerPair;
use taper_model::Model;
use taper_ops::{Parameter, ParameterStore};
use taper_trainer::{Identity, Trainer, WarmStartSettings, read_state, warm_start};

use super::super::export::family_of;
use super::super::family::Family;
use super::super::import::Imported;
use super::super::json::read_keys;
use super::settings::Settings;
use super::{ADAPTERS, Module, PREFIX, Part, SETTINGS, adapted, is_within, modules, written};
use crate::config::{RunConfig, recipe, trained_with};
use crate::event::RunObserver;
use crate::folder::RunFolder;
use crate::tasks::{TaskModel, build_model, outline, with_model, without_adapters};

/// Tensors of the folder, by their names without [`PREFIX`].
type Tensors = BTreeMap<String, Tensor>;

/// Makes a run in `folder` from the adapters in the folder `source` and the weights of `base`.
/// Here, `base` is the run or checkpoint for which the adapters were made. The new run has a
/// checkpoint (after 0 updates) with the adapters, from which training can continue.
///
/// # Errors
/// When a file is missing or damaged, the adapters are of a method other than LoRA or for another
/// model, or `folder` exists already. After an error, no part of the new run remains.
pub fn import_adapters(
    source: &Path,
    base: &Path,
    folder: &RunFolder,
    observer: &mut dyn RunObserver,
) -> Result<Imported> {
    if folder.exists() {
        bail!("{} exists already and is left as it is", folder.root().display());
    }
    let path = source.join(SETTINGS);
    let settings = Settings::read(read_keys(&path)?).with_context(|| path.display().to_string())?;
    let path = source.join(ADAPTERS);
    let tensors = read(&path).with_context(|| path.display().to_string())?;
    let (run, checkpoint) = RunFolder::of_weights(base)?;
    let saved = run.load_config(&[])?;
    let config = trained_with(&read_state(&checkpoint)?, &saved)?.unwrap_or(saved);
    let mut config = without_adapters(&config);
    let tokenizers = config.task.load_tokenizers(run.root())?;
    let plain = outline(&config, tokenizers.vocabulary_sizes())?;
    let (family, _) = family_of(&config, &plain)?;
    choose(family, &mut config, &plain, &settings, &tensors)
        .with_context(|| path.display().to_string())?;
    let name = folder.root().file_name().map(|name| name.to_string_lossy().into_owned());
    config.name = name.unwrap_or_else(|| config.name.clone());
    with_model!(config.task, M => {
        let model: M =
            build_model(&config, &tokenizers, &Device::Cpu, Some(config.training.seed))?;
        fill(family, &config, model.parameters(), &settings, &tensors)
            .with_context(|| path.display().to_string())?;
        save(model, &config, &tokenizers, &checkpoint, folder, observer)
    })
}

/// Tensors in the file at `path`, converted to f32.
fn read(path: &Path) -> Result<Tensors> {
    let all = candle_core::safetensors::load(path, &Device::Cpu)?;
    let named = |(name, tensor): (String, Tensor)| {
        let Some(name) = name.strip_prefix(PREFIX) else {
            bail!("not adapters of PEFT: the tensor {name} does not begin with {PREFIX}");
        };
        // Some files call this tensor by a name that ends in `.weight`.
        let name = name.replace("lora_magnitude_vector.weight", "lora_magnitude_vector");
        Ok((name, tensor.to_dtype(DType::F32)?))
    };
    all.into_iter().map(named).collect()
}

/// Names, in a folder and without [`PREFIX`], of the tensors that can belong to the adapters of
/// `module`.
fn names(module: &str) -> [String; 3] {
    ["lora_A.weight", "lora_B.weight", "lora_magnitude_vector"]
        .map(|kind| format!("{module}.{kind}"))
}

/// Sets `config.model.lora` to match the folder's `settings` and `tensors`: the settings of the
/// adapters, the layers that have adapters, and the parameters that are trained as a whole.
///
/// # Errors
/// When a tensor of the folder belongs to no layer, or the folder has only some of the tensors for
/// a parameter.
fn choose(
    family: &Family,
    config: &mut RunConfig,
    plain: &ParameterStore,
    settings: &Settings,
    tensors: &Tensors,
) -> Result<()> {
    let (mut layers, mut train, mut left) = (BTreeSet::new(), Vec::new(), tensors.clone());
    for parameter in plain.parameters() {
        let name = parameter.name();
        let Some(theirs) = written(family, config, name, parameter.shape()) else { continue };
        let count = theirs.names.iter().filter(|name| left.remove(*name).is_some()).count();
        if count == theirs.names.len() {
            train.push(name.to_owned());
        } else if count > 0 {
            bail!(
                "of the tensors {}, some are there and some are missing",
                theirs.names.join(", ")
            );
        }
        let Some(layer) = name.strip_suffix(".weight") else { continue };
        for module in modules(&theirs) {
            for name in names(&module.name) {
                if left.remove(&name).is_some() {
                    layers.insert(layer.to_owned());
                }
            }
        }
    }
    if let Some((name, _)) = left.first_key_value() {
        bail!("{PREFIX}{name}: a {} of the run has no such module", family.name);
    }
    config.model.lora = settings.lora.clone();
    config.model.lora.layers = patterns(&layers, plain).into_iter().collect();
    config.model.lora.train = train;
    // Modules of the folder may have different ranks, but the configuration of a run (its recipe)
    // has a single rank, which is set to the largest. The scale depends on rank and alpha, so alpha
    // is changed to keep the scale.
    let ranks = tensors.iter().filter(|(name, _)| name.ends_with("lora_A.weight"));
    let largest = ranks.filter_map(|(_, tensor)| tensor.dims().first().copied()).max();
    if let Some(largest) = largest.filter(|&rank| rank > config.model.lora.rank) {
        let scale = config.model.lora.scale();
        config.model.lora.rank = largest;
        let unit = config.model.lora.scale() / config.model.lora.alpha;
        config.model.lora.alpha = scale / unit;
    }
    config.validate()
}

/// Shortens the list of layer names `layers`. A pattern such as `layers.*.out`, with `*` in place
/// of each number, replaces the names that match it, if `layers` has all layers of the model
/// `plain` that match it.
fn patterns(layers: &BTreeSet<String>, plain: &ParameterStore) -> BTreeSet<String> {
    let pattern = |name: &str| {
        let parts = name.split('.').map(|part| match part.parse::<usize>() {
            Ok(_) => "*",
            Err(_) => part,
        });
        parts.collect::<Vec<_>>().join(".")
    };
    let all: Vec<&str> =
        plain.parameters().iter().filter_map(|one| one.name().strip_suffix(".weight")).collect();
    let name = |layer: &String| {
        let pattern = pattern(layer);
        let same = all.iter().filter(|name| taper_model::matches(&pattern, name));
        match same.copied().all(|name| layers.contains(name)) {
            true => pattern,
            false => layer.clone(),
        }
    };
    layers.iter().map(name).collect()
}

/// Sets the adapters in `store`, and the parameters that are trained as a whole, to the values in
/// the folder's `tensors`.
///
/// # Errors
/// When a tensor is missing or has another shape.
fn fill(
    family: &Family,
    config: &RunConfig,
    store: &ParameterStore,
    settings: &Settings,
    tensors: &Tensors,
) -> Result<()> {
    for (parts, modules) in adapted(family, config, store) {
        for part in &parts {
            fill_part(config, store, settings, tensors, (part, &modules))?;
        }
        let layer = &parts[0].layer;
        let Some(magnitude) = store.get(&format!("{layer}.magnitude")) else { continue };
        let lengths = modules.iter().map(|module| {
            let [.., name] = names(&module.name);
            let tensor = tensors.get(&name).with_context(|| format!("no tensor {PREFIX}{name}"))?;
            let lengths: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
            Ok(module.order.read(lengths, &[module.rows.len()]))
        });
        let lengths = lengths.collect::<Result<Vec<_>>>()?.concat();
        set(magnitude, lengths)?;
    }
    for parameter in store.parameters() {
        let name = parameter.name();
        if !config.model.lora.train.iter().any(|whole| whole == name) {
            continue;
        }
        let Some(theirs) = written(family, config, name, parameter.shape()) else { continue };
        let mut all = Vec::new();
        for (name, shape) in theirs.names.iter().zip(&theirs.shapes) {
            let tensor = &tensors[name];
            if tensor.dims() != shape.as_slice() {
                bail!("{PREFIX}{name} is {:?}, expected {shape:?}", tensor.dims());
            }
            let values: Vec<f32> = tensor.flatten_all()?.to_vec1()?;
            all.extend(theirs.order.read(values, shape));
        }
        set(parameter, all)?;
    }
    Ok(())
}

/// Sets the factors A and B of a part of a layer. If the folder's factors have a lower rank than
/// the recipe, the remaining rows of A keep their initial values, and the remaining columns of B
/// are zero. If the folder has no factors for the part, both factors keep their initial values.
fn fill_part(
    config: &RunConfig,
    store: &ParameterStore,
    settings: &Settings,
    tensors: &Tensors,
    (part, modules): (&Part, &[Module]),
) -> Result<()> {
    let Some(module) = modules.iter().find(|module| is_within(&part.rows, &module.rows)) else {
        bail!("the adapters of {} belong to only parts of a matrix of the run", modules[0].name);
    };
    let [a, b, _] = names(&module.name);
    let (down, up) = match (tensors.get(&a), tensors.get(&b)) {
        (Some(down), Some(up)) => (down, up),
        (None, None) => return Ok(()),
        _ => bail!("of {PREFIX}{a} and {PREFIX}{b} one is missing"),
    };
    let own_factor = |kind: &str| {
        let name = format!("{}.lora_{kind}.{}", part.layer, part.number);
        store.get(&name).with_context(|| format!("no parameter {name}"))
    };
    let (own_down, own_up) = (own_factor("a")?, own_factor("b")?);
    let (rank, width) = (down.dims().first().copied().unwrap_or(0), own_down.shape()[1]);
    if down.dims() != [rank, width] || up.dims() != [module.rows.len(), rank] || rank == 0 {
        bail!(
            "{PREFIX}{a} is {:?} and {PREFIX}{b} {:?}, expected [rank, {width}] and [{}, rank]",
            down.dims(),
            up.dims(),
            module.rows.len()
        );
    }
    let mut all = own_down.values()?;
    all[..rank * width].copy_from_slice(&down.flatten_all()?.to_vec1::<f32>()?);
    set(own_down, all)?;
    // The recipe has one scale for all layers, but modules of the folder can have different scales.
    // So B is multiplied by the ratio of the module's scale to the recipe's.
    let ratio = settings.scale(&module.name, rank)? / config.model.lora.scale();
    let ratio = if (ratio - 1.0).abs() < 1e-9 { 1.0 } else { ratio as f32 };
    let first = part.rows.start - module.rows.start;
    let values = module.order.read(up.flatten_all()?.to_vec1()?, up.dims());
    let values = &values[first * rank..(first + part.rows.len()) * rank];
    let whole = own_up.shape()[1];
    let mut all = vec![0.0; part.rows.len() * whole];
    for (to, from) in all.chunks_exact_mut(whole).zip(values.chunks_exact(rank)) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = from * ratio);
    }
    set(own_up, all)
}

/// Sets the values of `parameter`.
///
/// # Errors
/// When the number of values is not that of the parameter, or a value is not finite.
fn set(parameter: &Parameter, values: Vec<f32>) -> Result<()> {
    if values.len() != parameter.len() {
        bail!(
            "{} values do not fit {} of shape {:?}",
            values.len(),
            parameter.name(),
            parameter.shape()
        );
    }
    if !taper_ops::all_finite(&values) {
        bail!("a value of {} is not finite", parameter.name());
    }
    Ok(parameter.set(values)?)
}

/// Saves the run of `model` in `folder`. The frozen weights, to which the adapters are added, are
/// those of `checkpoint`.
fn save<M: TaskModel>(
    model: M,
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    checkpoint: &Path,
    folder: &RunFolder,
    observer: &mut dyn RunObserver,
) -> Result<Imported> {
    let store = model.parameters();
    let (parameters, vocabulary) = (store.len() as u64, tokenizers.vocabulary_sizes().1);
    let is_base = |name: &str| store.base().iter().any(|one| one.name() == name);
    let hash = tokenizers.hash();
    let taking = WarmStartSettings { tokenizer_hash: &hash, is_wanted: &is_base, rows: &|_| None };
    let started = warm_start(checkpoint, &model, &taking)?;
    if let Some(missing) = started.drawn.iter().find(|one| is_base(&one.name)) {
        bail!("{}: has no {}", checkpoint.display(), missing.name);
    }
    folder.make(observer, || {
        tokenizers.save(folder.root())?;
        let identity = Identity {
            tokenizer_hash: hash.clone(),
            recipe: recipe(config)?,
            ..Identity::default()
        };
        let mut parent = started.parent;
        parent.path = parent.path.canonicalize().unwrap_or(parent.path);
        let training = config.training.clone();
        Trainer::new(model, training, identity, &folder.checkpoints())?.save_beginning(parent)?;
        // The recipe is saved last, because a folder that has it counts as a complete run.
        folder.save_config(config)
    })?;
    Ok(Imported { config: config.clone(), parameters, vocabulary })
}
