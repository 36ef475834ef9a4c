//! Mistral (Jiang et al. 2023): Llama's architecture. Attention of the first version has a sliding
//! window.

use taper_data::Task;

use super::llama::{
    ACTIVATION, ATTENTION_DROPOUT, EPSILON, HEAD_WIDTH, HEADS, LAYERS, WIDTH, base,
    key_value_heads, llama_family,
};
use super::{rotary, windows};
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::Key;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &[
        WIDTH,
        LAYERS,
        HEADS,
        key_value_heads(Some(8)),
        HEAD_WIDTH,
        Key::count("intermediate_size", 14336, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 131_072, |recipe| &mut recipe.model.max_positions),
        ACTIVATION,
        ATTENTION_DROPOUT,
        EPSILON,
        rotary::BASE,
        rotary::WHOLE,
        rotary::SCALING,
        Key::untied(),
        windows::OF_ALL,
    ],
    ..llama_family("Mistral", "mistral", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] = &[
    Architecture::new("MistralForCausalLM", Task::LanguageModel, &[]),
    Architecture::body("MistralModel", Task::LanguageModel),
];
