//! GPT-NeoX (Black et al. 2022) and Pythia: language models whose feed-forward layers are computed
//! in parallel with attention, and whose rotary positions rotate only a part of each head.

use anyhow::{Result, bail};
use serde_json::Value;
use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, ParallelFeedForward, Positions};

use super::rotary;
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key, width_of_heads};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "GPT-NeoX",
    model_type: "gpt_neox",
    architectures: &[
        Architecture::new("GPTNeoXForCausalLM", Task::LanguageModel, &[]),
        Architecture::body("GPTNeoXModel", Task::LanguageModel),
    ],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[
        Key::count("hidden_size", 6144, |recipe| &mut recipe.model.d_model),
        Key::count("num_hidden_layers", 44, |recipe| &mut recipe.model.decoder_layers),
        Key::count("num_attention_heads", 64, |recipe| &mut recipe.model.heads),
        Key::count("intermediate_size", 24576, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 2048, |recipe| &mut recipe.model.max_positions),
        Key::activation("hidden_act", "gelu"),
        Key::number("attention_dropout", 0.0, &[|recipe| &mut recipe.model.attention_dropout]),
        Key::number(
            "hidden_dropout",
            0.0,
            &[
                |recipe| &mut recipe.model.residual_dropout,
                |recipe| &mut recipe.model.embedding_dropout,
            ],
        ),
        Key::number("layer_norm_eps", 1e-5, &[|recipe| &mut recipe.model.norm_epsilon]),
        Key::custom("head_dim", read_head_width, |_| None),
        rotary::BASE_OF_PART,
        rotary::QUARTER,
        rotary::SCALING,
        Key::switch("use_parallel_residual", true, sets_parallel, is_parallel),
        Key::untied(),
        Key::only("attention_bias", Fixed::Flag(true)),
    ],
    free: &["encoder_layers", "tied", "embedding_dropout", "feed_forward_dropout"],
    prefix: "gpt_neox.",
    modules: &[
        Module::same("embedding", &["gpt_neox.embed_in"]),
        Module::same(
            "decoder.layers.*.self_attention_norm",
            &["gpt_neox.layers.*.input_layernorm"],
        ),
        Module::by_head(
            "decoder.layers.*.self_attention.qkv",
            &["gpt_neox.layers.*.attention.query_key_value"],
        ),
        Module::same("decoder.layers.*.self_attention.out", &["gpt_neox.layers.*.attention.dense"]),
        Module::same(
            "decoder.layers.*.feed_forward_norm",
            &["gpt_neox.layers.*.post_attention_layernorm"],
        ),
        Module::same("decoder.layers.*.feed_forward.up", &["gpt_neox.layers.*.mlp.dense_h_to_4h"]),
        Module::same(
            "decoder.layers.*.feed_forward.down",
            &["gpt_neox.layers.*.mlp.dense_4h_to_h"],
        ),
        Module::same("decoder.final_norm", &["gpt_neox.final_layer_norm"]),
        Module::same("output", &["embed_out"]),
    ],
    copies: &[("embedding.weight", "embed_out.weight")],
    zeros: &[],
    unused: &[],
};

fn base(recipe: &mut RunConfig) {
    recipe.data.tokenizer.kind = TokenizerKind::Bytes;
    let model = &mut recipe.model;
    model.norm = NormPlacement::Pre;
    model.positions = Positions::Rotary;
    model.scale_embeddings = false;
    model.feed_forward_dropout = 0.0;
}

/// Refuses a `head_dim` other than the width of the heads. The library Transformers uses this key
/// only for rotary positions, so another value would not change the width of the heads.
fn read_head_width(given: &Value, recipe: &mut RunConfig) -> Result<()> {
    let width = width_of_heads(recipe);
    if !given.is_null() && given.as_u64() != Some(width as u64) {
        bail!("head_dim is {given}: the models that can be imported have {width}");
    }
    Ok(())
}

fn sets_parallel(recipe: &mut RunConfig, is: bool) {
    recipe.model.parallel_feed_forward = match is {
        true => ParallelFeedForward::OwnNorm,
        false => ParallelFeedForward::None,
    };
}

fn is_parallel(recipe: &RunConfig) -> bool {
    recipe.model.parallel_feed_forward == ParallelFeedForward::OwnNorm
}
