//! Qwen2 (Yang et al. 2024) and 2.5: Llama's architecture, with biases of queries, keys and values.

use taper_data::Task;

use super::llama::{
    ACTIVATION, ATTENTION_DROPOUT, EPSILON, HEAD_WIDTH, HEADS, LAYERS, WIDTH, key_value_heads,
    llama_family,
};
use super::{rotary, windows};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::Key;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &[
        WIDTH,
        LAYERS,
        HEADS,
        key_value_heads(Some(32)),
        HEAD_WIDTH,
        Key::count("intermediate_size", 22016, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 32768, |recipe| &mut recipe.model.max_positions),
        ACTIVATION,
        ATTENTION_DROPOUT,
        EPSILON,
        rotary::BASE,
        rotary::WHOLE,
        rotary::SCALING,
        Key::untied(),
        windows::USE,
        windows::WIDTH,
        windows::FIRST,
        windows::TYPES,
    ],
    ..llama_family("Qwen2", "qwen2", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] = &[
    Architecture::new("Qwen2ForCausalLM", Task::LanguageModel, &[]),
    Architecture::body("Qwen2Model", Task::LanguageModel),
];

fn base(recipe: &mut RunConfig) {
    super::llama::base(recipe);
    recipe.model.query_key_value_biases = Some(true);
}
