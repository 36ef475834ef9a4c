//! Groups of parameters that are chosen by name: parameters that are frozen, that are copied from
//! another run, or that are trained with a fraction of the learning rate.

use anyhow::{Result, bail};
use taper_model::LoraConfig;
pub(crate) use taper_model::matches;
use taper_ops::{Parameter, ParameterStore};
use taper_trainer::TrainingConfig;

use crate::config::nearest;

/// Number of similar names in the message about a pattern that matches no parameter.
const NEAR: usize = 3;

/// Names of parts of a model, each with patterns of the names of the part's parameters.
const PARTS: [(&str, &[&str]); 3] = [
    (
        "embeddings",
        &[
            "*embedding.weight",
            "*.positions.weight",
            "*.segments.weight",
            "patches.*",
            "class_token.*",
            "encoder.embedding_norm.*",
        ],
    ),
    ("encoder", &["encoder.*"]),
    ("decoder", &["decoder.*"]),
];

/// Returns an error if `pattern` matches none of `names`. `is` tells whether the pattern matches a
/// name.
///
/// # Errors
/// If the pattern matches no name. The message has `key`, the pattern, and the most similar names.
fn require_match(
    key: &str,
    pattern: &str,
    names: &[&str],
    is: impl Fn(&str) -> bool,
) -> Result<()> {
    if names.iter().any(|name| is(name)) {
        return Ok(());
    }
    let plain = pattern.trim_matches('*');
    let mut near: Vec<&str> = names.to_vec();
    let mut first = Vec::new();
    while first.len() < NEAR {
        let Some(name) = nearest(plain, near.iter().copied()) else { break };
        near.retain(|other| *other != name);
        first.push(name);
    }
    bail!(
        "{key}: {pattern:?} matches no parameter of the model; near it are {} (`*` stands for any \
         characters)",
        first.join(", ")
    )
}

fn names(store: &ParameterStore) -> Vec<&str> {
    store.parameters().iter().map(Parameter::name).collect()
}

/// Freezes the parameters that `training.freeze` names. Sets the fraction of the learning rate with
/// which each parameter is trained, according to `training.layer_decay`.
///
/// # Errors
/// If a pattern matches no parameter, or no parameter is left to train.
pub(crate) fn apply(config: &TrainingConfig, store: &ParameterStore) -> Result<()> {
    let names = names(store);
    for pattern in &config.freeze {
        require_match("training.freeze", pattern, &names, |name| matches(pattern, name))?;
        let of_pattern = store.parameters().iter().filter(|one| matches(pattern, one.name()));
        of_pattern.for_each(Parameter::freeze);
    }
    if !config.freeze.is_empty() && store.parameters().iter().all(Parameter::is_frozen) {
        bail!("training.freeze leaves no parameter to be trained: name fewer");
    }
    if config.layer_decay < 1.0 {
        for parameter in store.parameters() {
            let power = depth_from_above(parameter.name(), &names);
            parameter.set_rate(config.layer_decay.powi(power as i32));
        }
    }
    Ok(())
}

/// Checks the LoRA adapters of a model whose configuration has them switched on: some layer must
/// have an adapter, and each pattern in `model.lora` must match a layer or a parameter.
///
/// # Errors
/// If no layer has adapters, or a pattern matches nothing. The error has the pattern and the most
/// similar names.
pub(crate) fn require_adapters(lora: &LoraConfig, store: &ParameterStore) -> Result<()> {
    if !lora.is_on() {
        return Ok(());
    }
    let layer = |parameter: &Parameter| {
        let factor = parameter.name().strip_suffix(".lora_a.0")?;
        Some(factor.to_owned())
    };
    let adapted: Vec<String> = store.parameters().iter().filter_map(layer).collect();
    let matrices = store.all().filter(|one| one.is_matrix() && !one.name().contains(".lora_"));
    let matrices: Vec<&str> =
        matrices.filter_map(|one| one.name().strip_suffix(".weight")).collect();
    for pattern in &lora.layers {
        if adapted.iter().any(|name| matches(pattern, name)) {
            continue;
        }
        if let Some(other) = matrices.iter().find(|name| matches(pattern, name)) {
            bail!(
                "model.lora.layers: {pattern:?} matches {other}, which is not a separate linear \
                 layer; train it as a whole with model.lora.train = [\"{other}.*\"]"
            );
        }
        require_match("model.lora.layers", pattern, &matrices, |_| false)?;
    }
    let names: Vec<&str> = store.all().map(Parameter::name).collect();
    for pattern in &lora.train {
        require_match("model.lora.train", pattern, &names, |name| matches(pattern, name))?;
    }
    if store.parameters().is_empty() {
        bail!("model.lora.layers names no layer: nothing is left to be trained");
    }
    Ok(())
}

/// Name of the stack (such as `encoder`) to which a parameter's layer belongs, and index of the
/// layer in the stack; `None` for a parameter outside all layers.
fn layer_of(name: &str) -> Option<(&str, usize)> {
    let (stack, rest) = name.split_once(".layers.")?;
    let number = rest.split('.').next()?.parse().ok()?;
    Some((stack, number))
}

/// Depth of the parameter `name`, counted in layers from the output of the model: 0 for parameters
/// after the layers, 1 in the last layer of a stack, 2 in the layer before it, and so on. For
/// parameters before the layers, such as embeddings, it is one more than the number of layers in
/// the stack. `names` has the names of all parameters.
fn depth_from_above(name: &str, names: &[&str]) -> usize {
    let layers = |stack: &str| {
        let of_stack =
            names.iter().filter_map(|name| layer_of(name)).filter(|place| place.0 == stack);
        of_stack.map(|(_, layer)| layer + 1).max().unwrap_or(0)
    };
    if let Some((stack, layer)) = layer_of(name) {
        return layers(stack) - layer;
    }
    let is_before = PARTS[0].1.iter().any(|pattern| matches(pattern, name));
    match is_before {
        false => 0,
        true => {
            let stack = name.split(['.', '_']).next().unwrap_or_default();
            let own_layers = layers(match stack {
                "target" => "decoder",
                stack => stack,
            });
            // If no stack has a name with which the name of the parameter begins, the parameter
            // counts as standing before the layers of the first stack.
            let first =
                names.iter().find_map(|name| layer_of(name)).map_or(0, |place| layers(place.0));
            1 + if own_layers > 0 { own_layers } else { first }
        }
    }
}

/// Choice of the parameters that are copied from another run: all parameters, or those that the
/// words of `--only` select. Each word is the name of a part of the model, the name of a module, or
/// a pattern of parameter names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selection(Vec<String>);

impl Selection {
    /// Choice by the words `only` of the option `--only`; without words, all parameters.
    pub(crate) fn new(only: &[String]) -> Self {
        Self(only.to_vec())
    }

    /// Whether all parameters are selected.
    pub(crate) fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// True if a parameter is selected.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.is_all() || self.0.iter().any(|word| is_of(word, name))
    }

    /// Checks that each word of `--only` matches a parameter of the model.
    ///
    /// # Errors
    /// If a word matches no parameter. The error has the word and the most similar names.
    pub(crate) fn require(&self, store: &ParameterStore) -> Result<()> {
        let names = names(store);
        self.0.iter().try_for_each(|word| {
            require_match("parts to take", word, &names, |name| is_of(word, name))
        })
    }
}

/// Whether the parameter `name` belongs to the part or to the module called `word`, or matches the
/// pattern `word`.
fn is_of(word: &str, name: &str) -> bool {
    let is_module = name.strip_prefix(word).is_some_and(|rest| rest.starts_with('.'));
    let part = PARTS.iter().find(|(part, _)| *part == word);
    is_module
        || part.is_some_and(|(_, patterns)| patterns.iter().any(|pattern| matches(pattern, name)))
        || matches(word, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    fn store() -> ParameterStore {
        let mut store = ParameterStore::new(&Device::Cpu);
        for name in [
            "source_embedding.weight",
            "target_embedding.weight",
            "encoder.positions.weight",
            "encoder.layers.0.norm.weight",
            "encoder.layers.1.norm.weight",
            "encoder.layers.2.norm.weight",
            "encoder.final_norm.weight",
            "decoder.layers.0.norm.weight",
            "output.weight",
        ] {
            store.add(name, &[1], vec![1.0]).expect("added");
        }
        store
    }

    #[test]
    fn layers_take_less_of_the_rate_the_nearer_they_are_to_the_input() {
        let store = store();
        let config = TrainingConfig { layer_decay: 0.5, ..TrainingConfig::default() };
        apply(&config, &store).expect("applied");
        let rates: Vec<f64> = store.parameters().iter().map(Parameter::rate).collect();
        assert_eq!(rates, [0.0625, 0.25, 0.0625, 0.125, 0.25, 0.5, 1.0, 0.5, 1.0]);
    }

    #[test]
    fn what_matches_nothing_is_named_with_what_is_near() {
        let store = store();
        let says = |freeze: &[&str]| {
            let freeze = freeze.iter().map(|one| (*one).to_owned()).collect();
            let config = TrainingConfig { freeze, ..TrainingConfig::default() };
            apply(&config, &store).err().map(|error| error.to_string()).unwrap_or_default()
        };
        assert_eq!(says(&["decoder.*", "output.weight"]), "");
        let frozen = store.parameters().iter().filter(|one| one.is_frozen()).count();
        assert_eq!(frozen, 2);
        let error = says(&["encoder.final_norm.wieght"]);
        assert!(error.contains("near it are encoder.final_norm.weight"), "{error}");
        assert!(says(&["*"]).contains("no parameter to be trained"));
    }

    #[test]
    fn parts_are_named_in_a_word() {
        let taken = |only: &[&str]| -> Vec<String> {
            let only: Vec<String> = only.iter().map(|one| (*one).to_owned()).collect();
            let (selection, store) = (Selection::new(&only), store());
            selection.require(&store).expect("something");
            let names = names(&store).into_iter().filter(|name| selection.has(name));
            names.map(str::to_owned).collect()
        };
        assert_eq!(taken(&[]).len(), 9);
        assert_eq!(taken(&["decoder"]), ["decoder.layers.0.norm.weight"]);
        assert_eq!(taken(&["encoder.layers.1"]), ["encoder.layers.1.norm.weight"]);
        assert_eq!(
            taken(&["embeddings"]),
            ["source_embedding.weight", "target_embedding.weight", "encoder.positions.weight"]
        );
        let error = Selection::new(&["encodr".to_owned()]).require(&store()).unwrap_err();
        assert!(
            error.to_string().contains("parts to take: \"encodr\" matches no parameter"),
            "{error}"
        );
    }
}
