//! GPT-J (Wang and Komatsuzaki 2021): a language model whose feed-forward layers are computed in
//! parallel with attention. In each layer, both read the output of the same norm.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, ParallelFeedForward, Positions, RotaryPairs};

use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::Key;
use crate::folders::tokens::TokenizerFiles;

/// Default of `rotary_dim`, the number of elements of a head that are rotated.
const USUAL_WIDTH: usize = 64;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "GPT-J",
    model_type: "gptj",
    architectures: &[
        Architecture::new("GPTJForCausalLM", Task::LanguageModel, &[]),
        Architecture::body("GPTJModel", Task::LanguageModel),
    ],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[
        // The library Transformers also reads these keys under their general names, such as
        // `hidden_size`.
        Key::count("n_positions", 2048, |recipe| &mut recipe.model.max_positions)
            .spelled(&["/max_position_embeddings"]),
        Key::count("n_embd", 4096, |recipe| &mut recipe.model.d_model).spelled(&["/hidden_size"]),
        Key::count("n_layer", 28, |recipe| &mut recipe.model.decoder_layers)
            .spelled(&["/num_hidden_layers"]),
        Key::count("n_head", 16, |recipe| &mut recipe.model.heads)
            .spelled(&["/num_attention_heads"]),
        Key::custom("rotary_dim", read_width, write_width),
        Key::inner_width("n_inner"),
        Key::activation("activation_function", "gelu_new"),
        Key::number("resid_pdrop", 0.0, &[|recipe| &mut recipe.model.residual_dropout]),
        Key::number("embd_pdrop", 0.0, &[|recipe| &mut recipe.model.embedding_dropout]),
        Key::number("attn_pdrop", 0.0, &[|recipe| &mut recipe.model.attention_dropout]),
        Key::number("layer_norm_epsilon", 1e-5, &[|recipe| &mut recipe.model.norm_epsilon]),
        Key::untied(),
    ],
    free: &["encoder_layers", "tied", "feed_forward_dropout", "attention_biases"],
    prefix: "transformer.",
    modules: &[
        Module::same("embedding", &["transformer.wte"]),
        Module::same("decoder.layers.*.self_attention_norm", &["transformer.h.*.ln_1"]),
        Module::heads(
            "decoder.layers.*.self_attention.qkv",
            &[
                "transformer.h.*.attn.q_proj",
                "transformer.h.*.attn.k_proj",
                "transformer.h.*.attn.v_proj",
            ],
        ),
        Module::same("decoder.layers.*.self_attention.out", &["transformer.h.*.attn.out_proj"]),
        Module::same("decoder.layers.*.feed_forward.up", &["transformer.h.*.mlp.fc_in"]),
        Module::same("decoder.layers.*.feed_forward.down", &["transformer.h.*.mlp.fc_out"]),
        Module::same("decoder.final_norm", &["transformer.ln_f"]),
        Module::same("output", &["lm_head"]),
    ],
    copies: &[("embedding.weight", "lm_head.weight")],
    zeros: &[],
    unused: &["*.embed_positions"],
};

fn base(recipe: &mut RunConfig) {
    recipe.data.tokenizer.kind = TokenizerKind::Bytes;
    let model = &mut recipe.model;
    model.norm = NormPlacement::Pre;
    model.parallel_feed_forward = ParallelFeedForward::SharedNorm;
    model.positions = Positions::Rotary;
    model.rotary.pairs = RotaryPairs::Interleaved;
    (model.scale_embeddings, model.output_bias) = (false, true);
    (model.query_key_value_biases, model.attention_output_biases) = (Some(false), Some(false));
    model.feed_forward_dropout = 0.0;
}

/// Reads `rotary_dim`, the number of elements of a head that are rotated.
fn read_width(given: &Value, recipe: &mut RunConfig) -> Result<()> {
    let width = match given {
        Value::Null => USUAL_WIDTH,
        given => {
            let count = given.as_u64().and_then(|count| usize::try_from(count).ok());
            count.with_context(|| format!("rotary_dim is {given}, expected a whole number"))?
        }
    };
    let head = recipe.model.attention_shape().head_width;
    recipe.model.rotary.width = (width != head).then_some(width);
    Ok(())
}

fn write_width(recipe: &RunConfig) -> Option<Value> {
    let head = recipe.model.attention_shape().head_width;
    Some(json!(recipe.model.rotary.width.unwrap_or(head)))
}
