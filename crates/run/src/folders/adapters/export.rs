//! Export of the adapters of a trained model as a folder for the library PEFT. Adapters are pairs
//! of factors A and B of low rank; the product `B A` is added to a matrix of the model.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use taper_model::is_adapter;
use taper_ops::ParameterStore;
use taper_trainer::{load_model, write_tensors};

use super::super::export::{Exported, family_of};
use super::super::family::Family;
use super::super::json::write_json;
use super::{ADAPTERS, Module, PREFIX, Part, SETTINGS, adapted, is_within, settings, written};
use crate::LoadSettings;
use crate::checks::device;
use crate::config::RunConfig;
use crate::folder::RunFolder;
use crate::folder::files::require_free;
use crate::tasks::{build_model, with_model};

/// Shape and values of a tensor.
type Shaped = (Vec<usize>, Vec<f32>);

/// Writes the adapters of the run (folder of a trained model) at `root` into `folder`, which must
/// be empty or not exist. `settings` select the checkpoint.
///
/// # Errors
/// When the run has no adapters or cannot be loaded, the library Transformers has no such model, or
/// the folder cannot be written.
pub fn export_adapters(root: &Path, settings: &LoadSettings, folder: &Path) -> Result<Exported> {
    let run = RunFolder::open(root)?;
    let config = run.load_config(&settings.overrides)?;
    if !config.model.lora.is_on() {
        bail!("{}: the run has no adapters", root.display());
    }
    require_free(folder)?;
    let checkpoint = run.checkpoint(settings.checkpoint.as_deref())?;
    let tokenizers = config.task.load_tokenizers(root)?;
    let device = device::open("cpu")?;
    let (store, step) = with_model!(config.task, M => {
        let model: M = build_model(&config, &tokenizers, &device, None)?;
        let state = load_model(&checkpoint, &model, &tokenizers.hash())?;
        (taper_model::Model::parameters(&model).clone(), state.step)
    });
    let (family, _) = family_of(&config, &store)?;
    write(family, &config, &store, folder)?;
    Ok(Exported { checkpoint, step })
}

/// Writes the adapters in `store`, and the parameters that are trained as a whole, into `folder`.
/// Then writes the file with the settings of the adapters.
fn write(family: &Family, config: &RunConfig, store: &ParameterStore, folder: &Path) -> Result<()> {
    let lora = &config.model.lora;
    let (mut tensors, mut names, mut ranks) = (BTreeMap::new(), BTreeSet::new(), Vec::new());
    for (parts, modules) in adapted(family, config, store) {
        for module in modules {
            let [down, mut up] = factors(store, &parts, &module)?;
            up.1 = module.order.written(up.1, &up.0);
            let rank = down.0[0];
            if rank != lora.rank {
                ranks.push((module.name.clone(), rank));
            }
            let named = |kind: &str| format!("{PREFIX}{}.{kind}", module.name);
            tensors.insert(named("lora_A.weight"), down);
            tensors.insert(named("lora_B.weight"), up);
            let magnitude = store.get(&format!("{}.magnitude", parts[0].layer));
            if let Some(magnitude) = magnitude {
                let values = magnitude.values()?[module.rows.clone()].to_vec();
                let values = module.order.written(values, &[module.rows.len()]);
                tensors.insert(named("lora_magnitude_vector"), (vec![values.len()], values));
            }
            names.insert(module.name);
        }
    }
    let mut whole = BTreeSet::new();
    for parameter in store.parameters().iter().filter(|one| !is_adapter(one.name())) {
        let name = parameter.name();
        let Some(theirs) = written(family, config, name, parameter.shape()) else {
            bail!("the parameter {name} has no counterpart in a {}", family.name);
        };
        let (all, mut start) = (parameter.values()?, 0);
        for (name, shape) in theirs.names.into_iter().zip(theirs.shapes) {
            let end = start + shape.iter().product::<usize>();
            let values = theirs.order.written(all[start..end].to_vec(), &shape);
            start = end;
            whole.extend(name.rsplit_once('.').map(|(module, _)| module.to_owned()));
            tensors.insert(format!("{PREFIX}{name}"), (shape, values));
        }
    }
    let targets = targets(family, config, store, &names);
    let whole: Vec<String> = whole.into_iter().collect();
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let shapes = tensors.iter().map(|(name, (shape, _))| (name.clone(), shape.clone()));
    let factor_of =
        |name: &str| tensors.get(name).map(|(_, values)| values.as_slice()).unwrap_or_default();
    write_tensors(&folder.join(ADAPTERS), shapes, |name| Ok(factor_of(name).into()))?;
    let settings = settings::written(lora, config.task, &targets, &whole, &ranks);
    write_json(&folder.join(SETTINGS), &settings)
}

/// Makes the factors A and B of `module`, a module of the exported folder. `parts` are the parts of
/// the corresponding layer of the run, each with factors of its own. If several parts belong to the
/// module, their factors A are stacked, and their factors B become blocks on a diagonal.
fn factors(store: &ParameterStore, parts: &[Part], module: &Module) -> Result<[Shaped; 2]> {
    let factor = |kind: &str, part: &Part| {
        let name = format!("{}.lora_{kind}.{}", part.layer, part.number);
        store.get(&name).with_context(|| format!("no parameter {name}"))
    };
    let parts_of_module = parts.iter().filter(|part| is_within(&part.rows, &module.rows));
    let parts_of_module: Vec<&Part> = parts_of_module.collect();
    if parts_of_module.is_empty() {
        // The module has only some of the rows of one part. It has the part's factor A, and those
        // rows of the part's factor B that belong to the module.
        let Some(part) = parts.iter().find(|part| is_within(&module.rows, &part.rows)) else {
            bail!("the adapters of {} are of other matrices than {}", parts[0].layer, module.name);
        };
        let (down, up) = (factor("a", part)?, factor("b", part)?);
        let rank = up.shape()[1];
        let first = (module.rows.start - part.rows.start) * rank;
        let up = up.values()?[first..first + module.rows.len() * rank].to_vec();
        return Ok([(down.shape().to_vec(), down.values()?), (vec![module.rows.len(), rank], up)]);
    }
    let mut down = (vec![0, factor("a", parts_of_module[0])?.shape()[1]], Vec::new());
    for &part in &parts_of_module {
        let own_factor = factor("a", part)?;
        down.0[0] += own_factor.shape()[0];
        down.1.extend(own_factor.values()?);
    }
    let rank = down.0[0];
    let mut up = vec![0.0; module.rows.len() * rank];
    let mut column = 0;
    for &part in &parts_of_module {
        let own_factor = factor("b", part)?;
        let width = own_factor.shape()[1];
        for (row, values) in own_factor.values()?.chunks_exact(width).enumerate() {
            let at = (part.rows.start - module.rows.start + row) * rank + column;
            up[at..at + width].copy_from_slice(values);
        }
        column += width;
    }
    Ok([down, (vec![module.rows.len(), rank], up)])
}

/// Entries of PEFT's setting `target_modules` for the modules `names`, which have adapters. An
/// entry is the last part of a module's name (after the last dot) if all modules of the model with
/// this last part have adapters. Otherwise, it is the whole name.
fn targets(
    family: &Family,
    config: &RunConfig,
    store: &ParameterStore,
    names: &BTreeSet<String>,
) -> Vec<String> {
    let mut others = Vec::new();
    for parameter in store.all().filter(|one| one.is_matrix() && !is_adapter(one.name())) {
        let theirs = written(family, config, parameter.name(), parameter.shape());
        let theirs = theirs.into_iter().flat_map(|one| one.names);
        others.extend(theirs.filter_map(|name| {
            let module = name.strip_suffix(".weight")?.to_owned();
            (!names.contains(&module)).then_some(module)
        }));
    }
    let last = |name: &String| name.rsplit('.').next().unwrap_or(name).to_owned();
    let taken: BTreeSet<String> = others.iter().map(last).collect();
    let target = |name: &String| match last(name) {
        end if taken.contains(&end) => name.clone(),
        end => end,
    };
    names.iter().map(target).collect::<BTreeSet<_>>().into_iter().collect()
}
