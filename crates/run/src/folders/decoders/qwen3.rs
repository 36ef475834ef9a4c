//! Qwen3 (Yang et al. 2025): Llama's architecture, with norms of each head's queries and keys.

use taper_data::Task;
use taper_model::QueryKeyNorm;

use super::llama::{
    ACTIVATION, ATTENTION_BIASES, ATTENTION_DROPOUT, EPSILON, HEADS, LAYERS, WIDTH,
    key_value_heads, llama_family,
};
use super::{rotary, windows};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family};
use crate::folders::keys::{Key, width_of_heads};

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &[
        WIDTH,
        LAYERS,
        HEADS,
        key_value_heads(Some(32)),
        Key::derived("head_dim", Some(128), |recipe| &mut recipe.model.head_width, width_of_heads),
        Key::count("intermediate_size", 22016, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 32768, |recipe| &mut recipe.model.max_positions),
        ACTIVATION,
        ATTENTION_DROPOUT,
        EPSILON,
        rotary::BASE,
        rotary::WHOLE,
        rotary::SCALING,
        Key::untied(),
        ATTENTION_BIASES,
        windows::USE,
        windows::WIDTH,
        windows::FIRST,
        windows::TYPES,
    ],
    ..llama_family("Qwen3", "qwen3", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] = &[
    Architecture::new("Qwen3ForCausalLM", Task::LanguageModel, &[]),
    Architecture::body("Qwen3Model", Task::LanguageModel),
];

fn base(recipe: &mut RunConfig) {
    super::llama::base(recipe);
    recipe.model.query_key_norm = QueryKeyNorm::PerHead;
}
