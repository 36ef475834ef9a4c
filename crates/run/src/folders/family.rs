//! Declarations of families of models: each has tables that pair the names in the library
//! Transformers with the names in a run (a model of this project with its files). The code that
//! reads, writes and refuses models is the same for all families.

use anyhow::{Result, bail};
use serde_json::Value;
use taper_data::Task;
use taper_model::{FeedForwardKind, Tied};

use super::keys::Key;
use super::order::Order;
use super::tokens::TokenizerFiles;
use crate::config::RunConfig;
use crate::parameter_groups::matches;

/// Family of models: GPT-2, BERT, and so on.
pub(super) struct Family {
    /// Name of the family, for people.
    pub(super) name: &'static str,
    /// Value of `model_type` in `config.json`.
    pub(super) model_type: &'static str,
    /// Models of the family that can be read. An export chooses the first one that has the task and
    /// the head (output layers) of the run.
    pub(super) architectures: &'static [Architecture],
    /// Sets the properties that all models of the family share and that no key expresses.
    pub(super) base: fn(&mut RunConfig),
    /// Kind of the tokenizer files in its folders.
    pub(super) tokens: TokenizerFiles,
    /// Keys of `config.json`, in the order in which they are read.
    pub(super) keys: &'static [Key],
    /// Keys of the section `[model]` of a recipe (Taper's configuration) on which the computation
    /// of these models does not depend. With any values of these keys, a model can be exported.
    pub(super) free: &'static [&'static str],
    /// Prefix of the names of all tensors except those of heads; some files omit this prefix.
    pub(super) prefix: &'static str,
    /// Parameters of a run with their tensors in a folder. Several entries may be for one
    /// parameter. An import uses the last of these entries whose tensors the folder has. An export
    /// uses the first entry if the output projection is tied to the embedding, and otherwise the
    /// last.
    pub(super) modules: &'static [Module],
    /// Tensors that repeat a tied parameter. Some files contain them in addition to the parameter's
    /// own tensor. Each entry has the name of the parameter in a run and the name of the tensor.
    pub(super) copies: &'static [(&'static str, &'static str)],
    /// Biases that models in Transformers always have and that a run may lack. Each entry has the
    /// name of the parameter in a run and the name of the tensor, whose shape is (1, V) for a
    /// vocabulary of V tokens. If the run lacks the parameter, an export writes zeros.
    pub(super) zeros: &'static [(&'static str, &'static str)],
    /// Patterns of the names of further tensors that files may contain and that a run does not use.
    pub(super) unused: &'static [&'static str],
}

/// Kind of model that a folder can contain.
pub(super) struct Architecture {
    /// Name of the model in the key `architectures` of `config.json`.
    pub(super) name: &'static str,
    /// Task of a run with this model.
    pub(super) task: Task,
    /// Modules of the head (output layers for the task) in a run, by which this model is
    /// distinguished from others of the family. `None` for a model without a head; its run gets a
    /// randomly initialised head.
    pub(super) head: Option<&'static [&'static str]>,
    /// Further keys as in [`Family::free`], for this model only.
    pub(super) free: &'static [&'static str],
}

impl Architecture {
    pub(super) const fn new(name: &'static str, task: Task, head: &'static [&'static str]) -> Self {
        Self { name, task, head: Some(head), free: &[] }
    }

    /// Model without a head (output layers for a task).
    pub(super) const fn body(name: &'static str, task: Task) -> Self {
        Self { name, task, head: None, free: &[] }
    }

    pub(super) const fn free(self, free: &'static [&'static str]) -> Self {
        Self { free, ..self }
    }
}

/// Entry of the table of parameters. Some entries are for single parameters: they have the name of
/// a parameter of a run and the names of the corresponding tensors in a folder. The other entries
/// are for the weight and the bias of a module: they have the name of a module of a run and the
/// names of the corresponding modules in a folder. In all names, `*` stands for the index of a
/// layer.
pub(super) struct Module {
    ours: &'static str,
    theirs: &'static [&'static str],
    layout: Layout,
    /// Kind of feed-forward layers for which the entry applies; `None` if it applies for all kinds.
    feed_forward: Option<FeedForwardKind>,
}

/// Layout of the values in the tensors of a folder, compared with the layout in a run.
enum Layout {
    Same,
    /// Transposed matrix.
    Transposed,
    /// One tensor for queries, one for keys, and one for values. How many rows each has is
    /// determined by the numbers of heads in the recipe.
    Heads,
    /// One tensor with the rows for query, key and value of the first head, then the rows for those
    /// of the second head, and so on.
    ByHead,
    /// Another shape, with the same values in the same order. The function computes the shape.
    Shaped(fn(&RunConfig, &[usize]) -> Vec<usize>),
}

impl Module {
    const fn new(ours: &'static str, theirs: &'static [&'static str], layout: Layout) -> Self {
        Self { ours, theirs, layout, feed_forward: None }
    }

    /// The same entry, but only for feed-forward layers of this kind.
    pub(super) const fn with(self, feed_forward: FeedForwardKind) -> Self {
        Self { feed_forward: Some(feed_forward), ..self }
    }

    /// Module with the same shape in a folder.
    pub(super) const fn same(ours: &'static str, theirs: &'static [&'static str; 1]) -> Self {
        Self::new(ours, theirs, Layout::Same)
    }

    /// Module that is several modules in a folder: equal parts along the first dimension.
    pub(super) const fn parts(ours: &'static str, theirs: &'static [&'static str]) -> Self {
        Self::new(ours, theirs, Layout::Same)
    }

    /// Module for queries, keys and values that is three modules in a folder: parts along the first
    /// dimension. The parts for keys and values can be smaller, because several query heads can
    /// share keys and values.
    pub(super) const fn heads(ours: &'static str, theirs: &'static [&'static str; 3]) -> Self {
        Self::new(ours, theirs, Layout::Heads)
    }

    /// Module for queries, keys and values that is also one module in a folder, but with the rows
    /// ordered head by head. Every head has its own keys and values.
    pub(super) const fn by_head(ours: &'static str, theirs: &'static [&'static str; 1]) -> Self {
        Self::new(ours, theirs, Layout::ByHead)
    }

    /// Module whose matrix is transposed in a folder.
    pub(super) const fn transposed(ours: &'static str, theirs: &'static [&'static str; 1]) -> Self {
        Self::new(ours, theirs, Layout::Transposed)
    }

    /// Module with the same values in a folder, but another shape. `shape` computes this shape from
    /// the recipe and the shape in a run.
    pub(super) const fn shaped(
        ours: &'static str,
        theirs: &'static [&'static str; 1],
        shape: fn(&RunConfig, &[usize]) -> Vec<usize>,
    ) -> Self {
        Self::new(ours, theirs, Layout::Shaped(shape))
    }

    /// Tensors of a folder, by this entry, for the parameter `name` with the given shape in a run;
    /// `None` if the entry is not for this parameter.
    fn counterpart(&self, name: &str, shape: &[usize], recipe: &RunConfig) -> Option<Counterpart> {
        if self.feed_forward.is_some_and(|kind| kind != recipe.model.feed_forward) {
            return None;
        }
        let (module, kind) = name.rsplit_once('.')?;
        let (layer, kind) = match layer_in(self.ours, name) {
            Some(layer) => (layer, String::new()),
            None => (layer_in(self.ours, module)?, format!(".{kind}")),
        };
        let named = |theirs: &&str| format!("{}{kind}", theirs.replace('*', layer));
        let names: Vec<String> = self.theirs.iter().map(named).collect();
        let with_rows = |rows: usize| [&[rows], &shape[1..]].concat();
        let order = match &self.layout {
            Layout::Transposed if shape.len() == 2 => Order::Transposed,
            Layout::ByHead => Order::ByHead { heads: recipe.model.heads },
            _ => Order::Same,
        };
        let shapes = match &self.layout {
            _ if order == Order::Transposed => vec![shape.iter().rev().copied().collect()],
            Layout::Shaped(of) => vec![of(recipe, shape)],
            Layout::Heads => {
                let heads = recipe.model.attention_shape();
                let rows = [heads.query_width(), heads.key_value_width(), heads.key_value_width()];
                rows.map(with_rows).into()
            }
            _ if names.len() > 1 => vec![with_rows(shape[0] / names.len()); names.len()],
            _ => vec![shape.to_vec()],
        };
        Some(Counterpart { names, shapes, order })
    }

    /// Whether the entry is for the tensor called `name` in a folder.
    fn is_named(&self, name: &str) -> bool {
        let module = match name.rsplit_once('.') {
            Some((module, "weight" | "bias")) => module,
            _ => "",
        };
        let is =
            |theirs: &&str| layer_in(theirs, name).is_some() || layer_in(theirs, module).is_some();
        self.theirs.iter().any(is)
    }
}

/// Digits that `name` has in place of the `*` in `pattern`. They are empty if the pattern has no
/// `*`. `None` if the name does not match.
fn layer_in<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == name).then_some("");
    };
    let layer = name.strip_prefix(before)?.strip_suffix(after)?;
    (!layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit())).then_some(layer)
}

/// Tensors of a folder that together have the values of a parameter.
#[derive(Debug, PartialEq)]
pub(super) struct Counterpart {
    /// Names of the tensors, in the order of their values along the parameter's first dimension.
    pub(super) names: Vec<String>,
    /// Shape of each tensor.
    pub(super) shapes: Vec<Vec<usize>>,
    /// Order of the values in each tensor, compared with the order in a run.
    pub(super) order: Order,
}

impl Family {
    /// All counterparts that the parameter `name` can have in a folder: one for each entry of
    /// [`Family::modules`] for this parameter, in the order of the entries. `shape` is the shape of
    /// the parameter in a run.
    pub(super) fn counterparts(
        &self,
        name: &str,
        shape: &[usize],
        recipe: &RunConfig,
    ) -> Vec<Counterpart> {
        let mut all: Vec<Counterpart> = Vec::new();
        for module in self.modules {
            let theirs = module.counterpart(name, shape, recipe);
            // A parameter can match an entry of its own and an entry of its module. If both lead to
            // the same tensors, only the first counts.
            all.extend(theirs.filter(|one| !all.iter().any(|other| other.names == one.names)));
        }
        all
    }

    /// Name of the tensor for the parameter `name`, which must correspond to exactly one tensor;
    /// `None` if the family lacks it.
    pub(super) fn tensor(&self, name: &str, recipe: &RunConfig) -> Option<String> {
        // Any shape can be given here, because only the names are used.
        self.counterparts(name, &[1], recipe).into_iter().next()?.names.into_iter().next()
    }

    /// Entries of [`Family::copies`] that apply to a model with this recipe; none if the recipe
    /// ties no matrices.
    pub(super) fn copies_of(&self, recipe: &RunConfig) -> Vec<(&'static str, &'static str)> {
        let tied = recipe.model.tied;
        let has = |ours: &str| (ours == "target_embedding.weight") == (tied == Tied::Decoder);
        let all = self.copies.iter().copied();
        all.filter(|(ours, _)| tied != Tied::None && has(ours)).collect()
    }

    /// Name in the tables of this family for the tensor that a file calls `name`. Some files omit
    /// the prefix, and older files call the parameters of norms gamma and beta.
    pub(super) fn whole_name(&self, name: &str) -> String {
        let newer = match name.rsplit_once('.') {
            Some((module, "gamma")) => format!("{module}.weight"),
            Some((module, "beta")) => format!("{module}.bias"),
            _ => name.to_owned(),
        };
        let is_known = |name: &str| {
            self.modules.iter().any(|module| module.is_named(name))
                || self.copies.iter().any(|(_, copy)| *copy == name)
                || self.unused.iter().any(|pattern| matches(pattern, name))
        };
        let with_prefix = |name: &str| format!("{}{name}", self.prefix);
        let names = [name.to_owned(), with_prefix(name), newer.clone(), with_prefix(&newer)];
        names.into_iter().find(|name| is_known(name)).unwrap_or_else(|| name.to_owned())
    }

    /// Whether a counterpart belongs to the body of a model, which is everything except the head
    /// (output layers).
    pub(super) fn is_of_body(&self, counterpart: &Counterpart) -> bool {
        counterpart.names.iter().all(|name| name.starts_with(self.prefix))
    }
}

/// Finds the family and the kind of model that `keys`, a `config.json`, names. If it names only the
/// family, the result is the first model whose head (output layers) is in the folder. `has` returns
/// whether the folder has a parameter with the given name.
///
/// # Errors
/// When there is no such family or model; the message lists the readable models.
pub(super) fn chosen(
    families: &[&'static Family],
    keys: &Value,
    has: impl Fn(&Family, &str) -> Result<bool>,
) -> Result<(&'static Family, &'static Architecture)> {
    let model_type = keys["model_type"].as_str();
    let named: Vec<&str> =
        keys["architectures"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let of_type = |family: &&&Family| model_type.is_none_or(|name| name == family.model_type);
    for family in families.iter().filter(of_type) {
        let is = |one: &&Architecture| named.contains(&one.name);
        if let Some(architecture) = family.architectures.iter().find(is) {
            return Ok((family, architecture));
        }
        if !named.is_empty() || model_type.is_none() {
            continue;
        }
        for architecture in family.architectures {
            let mut is_there = true;
            for module in architecture.head.unwrap_or_default() {
                is_there &= has(family, &format!("{module}.weight"))?;
            }
            if is_there {
                return Ok((family, architecture));
            }
        }
    }
    let says = |key: &str| format!("{key} is {}", keys[key]);
    let whole: Vec<&str> = if named.is_empty() {
        vec!["model_type"]
    } else if families.iter().any(|family| Some(family.model_type) == model_type) {
        vec!["architectures"]
    } else {
        vec!["architectures", "model_type"]
    };
    let whole: Vec<String> = whole.into_iter().map(says).collect();
    bail!("{}, which cannot be imported: only {} can", whole.join(" and "), readable(families))
}

/// Lists the models that can be read, in words.
fn readable(families: &[&Family]) -> String {
    let described = |family: &&Family| {
        let names: Vec<&str> = family.architectures.iter().map(|one| one.name).collect();
        format!("\"{}\" ({})", family.model_type, names.join(", "))
    };
    families.iter().map(described).collect::<Vec<_>>().join(", ")
}

/// Refuses to export the model of a run unless `config.json` expresses all settings of the model.
/// `expressed` is the recipe that would be read from the file, and `ours` is the recipe of the run.
/// The keys in `free` and those in [`Family::free`] may differ.
///
/// # Errors
/// When another key of `[model]` differs; the message names it.
pub(super) fn require_expressed(
    family: &Family,
    free: &[&str],
    expressed: &RunConfig,
    ours: &RunConfig,
) -> Result<()> {
    let expressed = serde_json::to_value(&expressed.model)?;
    let ours = serde_json::to_value(&ours.model)?;
    // Indexing gives null for a key that one of the two recipes omits.
    let keys = [&ours, &expressed].into_iter().filter_map(Value::as_object).flatten();
    for (key, _) in keys {
        let value = &ours[key];
        if expressed[key] != *value && !family.free.iter().chain(free).any(|free| free == key) {
            let usual = match &expressed[key] {
                serde_json::Value::Null => "no such setting".to_owned(),
                usual => usual.to_string(),
            };
            bail!("model.{key} = {value}: a {} has {usual}", family.name);
        }
    }
    Ok(())
}

/// Message that a `config.json` describes no model of the family that can be imported.
pub(super) fn not_one(family: &Family) -> String {
    format!("not a {} that can be imported", family.name)
}
