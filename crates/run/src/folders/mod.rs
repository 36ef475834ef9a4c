//! Import and export of folders of the library Transformers. Such a folder contains `config.json`,
//! weights, and a tokenizer or the settings of an image processor.
//!
//! A run is a model of Taper with its files; its configuration is called a recipe. Import makes a
//! run from a folder, and export makes a folder from a run. Import converts weights to 32-bit
//! floating point; apart from this, tensors are only copied, transposed, joined or split.
//!
//! Models are grouped into families, such as GPT-2 and BERT. Only models of these families can be
//! imported and exported. Each family has a file with tables that pair the names in Transformers
//! with the names in a run. The code that finds, reads and writes files, and compares keys and
//! tensors, is the same for all families. To add a family, write a file such as `decoders/gpt2.rs`,
//! and add its `FAMILY` to `FAMILIES`.
//!
//! Two other formats are here too: adapters of the library PEFT are read and written, and folders
//! of CTranslate2 are only read.

mod adapters;
mod ctranslate2;
mod decoders;
mod encoder_decoders;
mod encoders;
mod export;
mod family;
mod generation;
mod import;
mod json;
mod keys;
mod order;
mod preprocessor;
mod recipe;
mod sources;
mod tokens;
mod weights;

pub use adapters::{export_adapters, import_adapters};
pub(crate) use export::described;
pub use export::{Exported, export, export_run};
pub use generation::not_exported;
pub use import::{ImportSettings, Imported, import, import_with};
pub(crate) use json::write_json;
pub(crate) use order::transposed;
pub(crate) use recipe::without_data;
pub use tokens::sentence_piece_model;
pub(crate) use tokens::write_sentence_pieces;

use decoders::{gpt_neox, gpt2, gptj, llama, mistral, phi, qwen2, qwen3};
use encoder_decoders::{bart, m2m100, marian, mbart, mt5, pegasus, t5, umt5};
use encoders::{bert, roberta, vit};

/// Families that can be read and written.
const FAMILIES: &[&family::Family] = &[
    &gpt2::FAMILY,
    &bert::FAMILY,
    &roberta::FAMILY,
    &roberta::XLM_ROBERTA,
    &vit::FAMILY,
    &marian::FAMILY,
    &m2m100::FAMILY,
    &bart::FAMILY,
    &mbart::FAMILY,
    &pegasus::FAMILY,
    &llama::FAMILY,
    &qwen2::FAMILY,
    &qwen3::FAMILY,
    &mistral::FAMILY,
    &gpt_neox::FAMILY,
    &gptj::FAMILY,
    &phi::FAMILY,
    &t5::FAMILY,
    &mt5::FAMILY,
    &umt5::FAMILY,
];

/// Name of the file with the weights.
const WEIGHTS: &str = "model.safetensors";
/// Name of the file with the architecture and sizes of the model.
const CONFIG: &str = "config.json";

/// Largest size in bytes of a JSON file that describes a model.
const MOST_BYTES: u64 = 1 << 26;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use taper_model::{ActivationKind, ModelConfig, NormPlacement, Positions, Tied};

    use super::family::{Architecture, Family, require_expressed};
    use super::*;
    use crate::config::RunConfig;
    use crate::tasks::outline;

    /// Recipe for a small model of a family, in which settings differ from their defaults as far as
    /// possible.
    fn small(family: &Family, architecture: &Architecture, tied: Tied) -> RunConfig {
        let mut small = recipe::without_data("small".to_owned(), architecture.task);
        (family.base)(&mut small);
        let model = &mut small.model;
        (model.d_model, model.d_ff, model.heads, model.tied) = (12, 20, 3, tied);
        (model.encoder_layers, model.decoder_layers, model.max_positions) = (2, 3, 24);
        model.activation = ActivationKind::GeluTanh;
        if family.keys.iter().any(|key| key.name.contains("_eps")) {
            model.norm_epsilon = 1e-6;
        }
        (model.residual_dropout, model.attention_dropout) = (0.2, 0.3);
        if family.keys.iter().any(|key| key.name == "num_key_value_heads") {
            (model.key_value_heads, model.head_width) = (Some(1), Some(6));
        }
        let head = architecture.head.unwrap_or_default();
        small.data.masked.next_sentence = head.contains(&"next_sentence");
        let images = &mut small.data.images;
        (images.size, images.patch, images.channels) = (8, 4, 3);
        (images.mean, images.deviation) = (vec![0.5; 3], vec![0.5; 3]);
        small
    }

    /// Function that changes the settings of a model.
    type Change = fn(&mut ModelConfig);

    /// Calls `check` for every model of every family, with every way of tying embeddings that it
    /// can have.
    fn each(mut check: impl FnMut(&Family, &Architecture, RunConfig)) {
        for family in FAMILIES {
            for architecture in family.architectures {
                let mut checked = 0;
                for tied in [Tied::All, Tied::Embeddings, Tied::Decoder, Tied::None] {
                    let recipe = small(family, architecture, tied);
                    if recipe::expresses_ties(family, &recipe) {
                        check(family, architecture, recipe);
                        checked += 1;
                    }
                }
                assert!(checked > 0, "{}", family.name);
            }
        }
    }

    #[test]
    fn every_parameter_has_tensors_of_its_own() {
        each(|family, architecture, recipe| {
            let is_tied = recipe.model.tied.ties_output();
            let mut taken = BTreeSet::new();
            for parameter in outline(&recipe, (30, 30)).expect("a model").parameters() {
                let (name, shape) = (parameter.name(), parameter.shape());
                let mut theirs = family.counterparts(name, shape, &recipe).into_iter();
                let theirs = if is_tied { theirs.next() } else { theirs.next_back() };
                let theirs = theirs.unwrap_or_else(|| panic!("{}: {name}", architecture.name));
                let values = theirs.shapes.iter().map(|shape| shape.iter().product::<usize>());
                assert_eq!(values.sum::<usize>(), parameter.len(), "{name}");
                assert_eq!(theirs.shapes.len(), theirs.names.len(), "{name}");
                for tensor in theirs.names {
                    assert_eq!(family.whole_name(&tensor), tensor);
                    if let Some(bare) = tensor.strip_prefix(family.prefix) {
                        assert_eq!(family.whole_name(bare), tensor);
                    }
                    assert!(taken.insert(tensor), "{name} has the tensor of another");
                }
            }
        });
    }

    #[test]
    fn every_key_comes_back_and_what_a_family_is_not_is_named() {
        each(|family, architecture, recipe| {
            let config = export::config_of(family, architecture, &recipe).expect(family.name);
            let mut back = recipe::without_data(String::new(), architecture.task);
            (family.base)(&mut back);
            keys::read(family.keys, &config.into(), &mut back).expect("keys");
            require_expressed(family, architecture.free, &back, &recipe).expect("the same");
            let others: [(&str, Change); 3] = [
                ("model.biases", |model| model.biases = !model.biases),
                ("model.positions = \"alibi\"", |model| model.positions = Positions::Alibi),
                ("model.norm", |model| {
                    model.norm = match model.norm {
                        NormPlacement::Pre => NormPlacement::Post,
                        _ => NormPlacement::Pre,
                    };
                }),
            ];
            for (phrase, change) in others {
                let mut other = recipe.clone();
                change(&mut other.model);
                let error = export::config_of(family, architecture, &other).expect_err(phrase);
                let error = crate::one_line(&error);
                assert!(error.contains(phrase) && error.contains(family.name), "{error}");
            }
        });
    }
}
