//! Sources of the parameters of a run that is made from a folder of the library Transformers:
//! tensors of the folder, or random values for a head (output layers) that the folder lacks.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use candle_core::Device;
use taper_data::TokenizerPair;
use taper_model::Model;
use taper_ops::ParameterStore;

use super::family::{Architecture, Counterpart, Family};
use super::order::Order;
use super::weights::Weights;
use crate::config::RunConfig;
use crate::event::{ImportNotice, Notice};
use crate::parameter_groups::matches;
use crate::tasks::{build_model, with_model};

/// Patterns of the names of tensors that are not weights: masks, position ids, frequencies and
/// counters, which some files contain.
const BUFFERS: [&str; 9] = [
    "*.attn.bias",
    "*.attn.masked_bias",
    "*.attention.bias",
    "*.attention.masked_bias",
    "*position_ids",
    "*token_type_ids",
    "*inv_freq",
    "*.num_batches_tracked",
    "*.embed_positions.weights",
];

/// Source of a parameter's values.
enum Source {
    Tensors(Counterpart),
    /// Random values for a parameter of a head (output layers) that the folder lacks.
    Drawn(Vec<f32>),
}

/// Source of each parameter of a run, by the parameter's name.
pub(super) struct Sources(BTreeMap<String, Source>);

impl Sources {
    /// Finds the source of each parameter in `outline`. Messages are added to `notices`.
    ///
    /// # Errors
    /// When a tensor is missing, has another shape or is not floating-point, or when the model has
    /// no parameter for a tensor.
    pub(super) fn find(
        (family, architecture): (&Family, &Architecture),
        recipe: &RunConfig,
        outline: &ParameterStore,
        tokenizers: &TokenizerPair,
        weights: &Weights,
        notices: &mut Vec<Notice>,
    ) -> Result<Self> {
        let (mut sources, mut drawn) = (BTreeMap::new(), Vec::new());
        for parameter in outline.parameters() {
            let (name, shape) = (parameter.name(), parameter.shape());
            match counterpart(family, architecture, (name, shape), recipe, weights)? {
                Some(theirs) => {
                    for (name, shape) in theirs.names.iter().zip(&theirs.shapes) {
                        let missing = || weights.path_of(name);
                        weights.require(name, shape).with_context(missing)?;
                    }
                    sources.insert(name.to_owned(), Source::Tensors(theirs));
                }
                None => drawn.push(name.to_owned()),
            }
        }
        notices.extend(left_out(family, recipe, weights, &sources)?);
        if !drawn.is_empty() {
            for (name, values) in draw(recipe, tokenizers, &drawn)? {
                sources.insert(name, Source::Drawn(values));
            }
            let architecture = architecture.name.to_owned();
            notices.push(ImportNotice::HeadDrawn { architecture, parameters: drawn }.into());
        }
        Ok(Self(sources))
    }

    /// Values of the parameter `name`, in the order that they have in a run.
    ///
    /// # Errors
    /// When a tensor cannot be read, or has a value that is not finite.
    pub(super) fn values(&self, name: &str, weights: &Weights) -> Result<Vec<f32>> {
        let theirs = match self.0.get(name) {
            Some(Source::Tensors(theirs)) => theirs,
            Some(Source::Drawn(values)) => return Ok(values.clone()),
            None => bail!("the parameter {name} has no counterpart"),
        };
        let read = |name: &String| weights.values(name).with_context(|| weights.path_of(name));
        let values = match theirs.names.as_slice() {
            [one] => read(one)?,
            several => several.iter().map(read).collect::<Result<Vec<_>>>()?.concat(),
        };
        Ok(theirs.order.read(values, &theirs.shapes[0]))
    }
}

/// Tensors of the folder for the parameter with this name and shape; `None` if the parameter
/// belongs to a head (output layers) that the folder lacks.
fn counterpart(
    family: &Family,
    architecture: &Architecture,
    (name, shape): (&str, &[usize]),
    recipe: &RunConfig,
    weights: &Weights,
) -> Result<Option<Counterpart>> {
    let is_there = |one: &Counterpart| one.names.iter().all(|name| weights.has(name));
    let mut all = family.counterparts(name, shape, recipe);
    // Some files contain a tied matrix only under the name of a tensor that usually repeats it.
    let copies = family.copies_of(recipe).into_iter().filter(|(ours, _)| *ours == name);
    let copies = copies.map(|(_, copy)| Counterpart {
        names: vec![copy.to_owned()],
        shapes: vec![shape.to_vec()],
        order: Order::Same,
    });
    all.splice(0..0, copies);
    if let Some(at) = all.iter().rposition(is_there) {
        return Ok(Some(all.swap_remove(at)));
    }
    let Some(last) = all.pop() else { bail!("the parameter {name} has no counterpart") };
    let is_drawn = architecture.head.is_none() && !family.is_of_body(&last);
    Ok((!is_drawn).then_some(last))
}

/// Refuses a folder with tensors for which the model has no parameter. Tensors that are not
/// weights, and those that are known to be unused, are allowed; the message that is returned lists
/// them. `None` if there are no such tensors.
fn left_out(
    family: &Family,
    recipe: &RunConfig,
    weights: &Weights,
    sources: &BTreeMap<String, Source>,
) -> Result<Option<Notice>> {
    let taken: BTreeSet<&str> = sources
        .values()
        .flat_map(|source| match source {
            Source::Tensors(theirs) => theirs.names.as_slice(),
            Source::Drawn(_) => &[],
        })
        .map(String::as_str)
        .collect();
    let mut left = Vec::new();
    for name in weights.names().filter(|name| !taken.contains(name)) {
        let is_one_of = |patterns: &[&str]| patterns.iter().any(|pattern| matches(pattern, name));
        if family.copies_of(recipe).iter().any(|&(_, copy)| copy == name) {
            continue;
        }
        if weights.is_float(name) && !is_one_of(family.unused) && !is_one_of(&BUFFERS) {
            bail!(
                "{}: has a tensor {name}, which a {} of this {} does not have",
                weights.path_of(name),
                family.name,
                weights.described_by()
            );
        }
        left.push(name.to_owned());
    }
    Ok((!left.is_empty()).then(|| ImportNotice::TensorsLeftOut(left).into()))
}

/// Draws random initial values for the parameters `names`. The output layer of a classifier gets
/// zeros (Dosovitskiy et al. 2021, section 3.2), so that all classes are equally likely.
fn draw(
    recipe: &RunConfig,
    tokenizers: &TokenizerPair,
    names: &[String],
) -> Result<Vec<(String, Vec<f32>)>> {
    let seed = Some(recipe.training.seed);
    let store = with_model!(recipe.task, M => {
        build_model::<M>(recipe, tokenizers, &Device::Cpu, seed)?.parameters().clone()
    });
    let values = |name: &String| -> Result<(String, Vec<f32>)> {
        let parameter = store.get(name).with_context(|| format!("no parameter {name}"))?;
        let values = match name.starts_with("classes.") {
            true => vec![0.0; parameter.len()],
            false => parameter.values()?,
        };
        Ok((name.clone(), values))
    };
    names.iter().map(values).collect()
}
