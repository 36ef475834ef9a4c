//! Declarations of families of models: each has tables that pair the names in the library
//! Transformers with the names in a run. Reading, writing and refusing have one implementation for
//! all families.

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
    /// Name for people.
    pub(super) name: &'static str,
    /// Value of `model_type` in `config.json`.
    pub(super) model_type: &'static str,
    /// Models that can be read. For export, the first model with the task and head of the run is
    /// written.
    pub(super) architectures: &'static [Architecture],
    /// Sets the properties that all models of the family share and no key expresses.
    pub(super) base: fn(&mut RunConfig),
    /// Files of its tokenizer.
    pub(super) tokens: TokenizerFiles,
    /// Keys of `config.json`, in the order in which they are read.
    pub(super) keys: &'static [Key],
    /// Keys of `[model]` that do not shape the weights of such a model: any value can be exported.
    pub(super) free: &'static [&'static str],
    /// Prefix of the names of all tensors except those of heads; some files omit it.
    pub(super) prefix: &'static str,
    /// Parameters of a run with their tensors in a folder. Several entries may be for one
    /// parameter. An import reads the last of these that the folder has. An export writes the first
    /// if the output projection is tied to the embedding, and else the last.
    pub(super) modules: &'static [Module],
    /// Tensors that only repeat a parameter that is tied, and that some files contain in addition:
    /// the name of the parameter in a run, and the name of the tensor.
    pub(super) copies: &'static [(&'static str, &'static str)],
    /// Biases of shape `(1, V)` that models in Transformers always have and a run may lack: the
    /// name of the parameter in a run, and the name of the tensor. An export fills it with zeros.
    pub(super) zeros: &'static [(&'static str, &'static str)],
    /// Patterns of further tensors that files may contain and a run does not use.
    pub(super) unused: &'static [&'static str],
}

/// Model that a folder can contain.
pub(super) struct Architecture {
    /// Name in `architectures` of `config.json`.
    pub(super) name: &'static str,
    /// Task of its run.
    pub(super) task: Task,
    /// Modules of a run's head, which distinguish this model from the others of the family; `None`
    /// for a model without a head, whose run gets a randomly initialised one.
    pub(super) head: Option<&'static [&'static str]>,
    /// More keys as in [`Family::free`], for this model alone.
    pub(super) free: &'static [&'static str],
}

impl Architecture {
    pub(super) const fn new(name: &'static str, task: Task, head: &'static [&'static str]) -> Self {
        Self { name, task, head: Some(head), free: &[] }
    }

    /// Model without a head.
    pub(super) const fn body(name: &'static str, task: Task) -> Self {
        Self { name, task, head: None, free: &[] }
    }

    pub(super) const fn free(self, free: &'static [&'static str]) -> Self {
        Self { free, ..self }
    }
}

/// Entry of the table: a parameter of a run, or a module with its weight and bias, and the tensors
/// or modules of a folder for it. In the names, `*` stands for the number of a layer.
pub(super) struct Module {
    ours: &'static str,
    theirs: &'static [&'static str],
    layout: Layout,
    /// Kind of feed-forward layers to which the entry applies; `None` for any kind.
    feed_forward: Option<FeedForwardKind>,
}

/// Layout of the values in a tensor of a folder.
enum Layout {
    Same,
    /// Transposed matrix.
    Transposed,
    /// One tensor for queries, one for keys, and one for values; the recipe's heads give their
    /// numbers of rows.
    Heads,
    /// One tensor with the rows of query, key and value of the first head, then those of the second
    /// head, and so on.
    ByHead,
    /// Another shape with the same number of values.
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

    /// Module of the same shape.
    pub(super) const fn same(ours: &'static str, theirs: &'static [&'static str; 1]) -> Self {
        Self::new(ours, theirs, Layout::Same)
    }

    /// Module that a folder has in equal parts, which follow one another along the first dimension.
    pub(super) const fn parts(ours: &'static str, theirs: &'static [&'static str]) -> Self {
        Self::new(ours, theirs, Layout::Same)
    }

    /// Module of queries, keys and values that a folder has in three parts, which follow one
    /// another along the first dimension. Groups of queries can share keys and values.
    pub(super) const fn heads(ours: &'static str, theirs: &'static [&'static str; 3]) -> Self {
        Self::new(ours, theirs, Layout::Heads)
    }

    /// Module of queries, keys and values in one tensor, head by head; every head has its own keys
    /// and values.
    pub(super) const fn by_head(ours: &'static str, theirs: &'static [&'static str; 1]) -> Self {
        Self::new(ours, theirs, Layout::ByHead)
    }

    /// Module with a transposed matrix.
    pub(super) const fn transposed(ours: &'static str, theirs: &'static [&'static str; 1]) -> Self {
        Self::new(ours, theirs, Layout::Transposed)
    }

    /// Module with the same values in another shape, which `shape` computes from the recipe and the
    /// shape in a run.
    pub(super) const fn shaped(
        ours: &'static str,
        theirs: &'static [&'static str; 1],
        shape: fn(&RunConfig, &[usize]) -> Vec<usize>,
    ) -> Self {
        Self::new(ours, theirs, Layout::Shaped(shape))
    }

    /// Counterpart in a folder of the parameter `name`, which has this shape; `None` if the
    /// parameter does not belong to this entry.
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

    /// True if a tensor of this name can belong to the module.
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

/// Number that `name` has in place of the `*` in `pattern`; empty if the pattern has no `*`, and
/// `None` if the name does not match.
fn layer_in<'a>(pattern: &str, name: &'a str) -> Option<&'a str> {
    let Some((before, after)) = pattern.split_once('*') else {
        return (pattern == name).then_some("");
    };
    let layer = name.strip_prefix(before)?.strip_suffix(after)?;
    (!layer.is_empty() && layer.bytes().all(|byte| byte.is_ascii_digit())).then_some(layer)
}

/// Tensors of a folder that make up a parameter.
#[derive(Debug, PartialEq)]
pub(super) struct Counterpart {
    /// Names of the tensors, in the order in which they follow one another along the first
    /// dimension.
    pub(super) names: Vec<String>,
    /// Shape of each tensor.
    pub(super) shapes: Vec<Vec<usize>>,
    /// Order of the values in each tensor.
    pub(super) order: Order,
}

impl Family {
    /// Possible counterparts of the parameter `name` in a folder, in the order of the table.
    pub(super) fn counterparts(
        &self,
        name: &str,
        shape: &[usize],
        recipe: &RunConfig,
    ) -> Vec<Counterpart> {
        let mut all: Vec<Counterpart> = Vec::new();
        for module in self.modules {
            let theirs = module.counterpart(name, shape, recipe);
            // A parameter may have an entry of its own and one of its module: the first one counts.
            all.extend(theirs.filter(|one| !all.iter().any(|other| other.names == one.names)));
        }
        all
    }

    /// Name of the tensor for the parameter `name`, which must have exactly one.
    pub(super) fn tensor(&self, name: &str, recipe: &RunConfig) -> Option<String> {
        // Only the names count, not the shape.
        self.counterparts(name, &[1], recipe).into_iter().next()?.names.into_iter().next()
    }

    /// Tensors that only repeat a parameter in a model with this recipe; see [`Family::copies`].
    pub(super) fn copies_of(&self, recipe: &RunConfig) -> Vec<(&'static str, &'static str)> {
        let tied = recipe.model.tied;
        let has = |ours: &str| (ours == "target_embedding.weight") == (tied == Tied::Decoder);
        let all = self.copies.iter().copied();
        all.filter(|(ours, _)| tied != Tied::None && has(ours)).collect()
    }

    /// Name that the tables have for the tensor `name` of a file. Some files omit the prefix, and
    /// older ones call the parameters of norms gamma and beta.
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

    /// True if a counterpart belongs to the body of the model, which a model without a head has
    /// too.
    pub(super) fn is_of_body(&self, counterpart: &Counterpart) -> bool {
        counterpart.names.iter().all(|name| name.starts_with(self.prefix))
    }
}

/// Finds the family and the model that a `config.json` names. If it names only the family, the
/// result is the first model whose head the folder has; `has` says whether the folder has a
/// parameter.
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

/// Lists the readable models in words.
fn readable(families: &[&Family]) -> String {
    let described = |family: &&Family| {
        let names: Vec<&str> = family.architectures.iter().map(|one| one.name).collect();
        format!("\"{}\" ({})", family.model_type, names.join(", "))
    };
    families.iter().map(described).collect::<Vec<_>>().join(", ")
}

/// Refuses to export a model of a run unless its `config.json` expresses the whole shape:
/// `expressed` is the recipe that follows from the file, and `ours` is the recipe of the run.
///
/// # Errors
/// When a key of `[model]` differs and is not free; the message names the first such key.
pub(super) fn require_expressed(
    family: &Family,
    free: &[&str],
    expressed: &RunConfig,
    ours: &RunConfig,
) -> Result<()> {
    let expressed = serde_json::to_value(&expressed.model)?;
    let ours = serde_json::to_value(&ours.model)?;
    // A key that one of the two omits is null.
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

/// Formats the message that a `config.json` describes no model of a family.
pub(super) fn not_one(family: &Family) -> String {
    format!("not a {} that can be imported", family.name)
}
