//! Llama (Touvron et al. 2023), versions 1 to 3, and SmolLM: language models. Other families share
//! the names of its weights and most of its keys.

use taper_data::Task;
use taper_model::{FeedForwardKind, NormKind, NormPlacement, Positions};

use super::rotary;
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key, width_of_heads};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    keys: &[
        WIDTH,
        LAYERS,
        HEADS,
        key_value_heads(None),
        HEAD_WIDTH,
        Key::count("intermediate_size", 11008, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 2048, |recipe| &mut recipe.model.max_positions),
        ACTIVATION,
        ATTENTION_DROPOUT,
        EPSILON,
        rotary::BASE,
        rotary::WHOLE,
        rotary::SCALING,
        Key::untied(),
        ATTENTION_BIASES,
        Key::only("mlp_bias", Fixed::Flag(false)),
    ],
    ..llama_family("Llama", "llama", ARCHITECTURES, base)
};

const ARCHITECTURES: &[Architecture] = &[
    Architecture::new("LlamaForCausalLM", Task::LanguageModel, &[]),
    Architecture::body("LlamaModel", Task::LanguageModel),
];
pub(super) const WIDTH: Key = Key::count("hidden_size", 4096, |recipe| &mut recipe.model.d_model);
pub(super) const LAYERS: Key =
    Key::count("num_hidden_layers", 32, |recipe| &mut recipe.model.decoder_layers);
pub(super) const HEADS: Key =
    Key::count("num_attention_heads", 32, |recipe| &mut recipe.model.heads);
pub(super) const HEAD_WIDTH: Key =
    Key::derived("head_dim", None, |recipe| &mut recipe.model.head_width, width_of_heads);
pub(super) const ACTIVATION: Key = Key::activation("hidden_act", "silu");
pub(super) const ATTENTION_DROPOUT: Key =
    Key::number("attention_dropout", 0.0, &[|recipe| &mut recipe.model.attention_dropout]);
pub(super) const EPSILON: Key =
    Key::number("rms_norm_eps", 1e-6, &[|recipe| &mut recipe.model.norm_epsilon]);

pub(super) const ATTENTION_BIASES: Key =
    Key::switch("attention_bias", false, sets_attention_biases, has_attention_biases);

pub(super) const fn key_value_heads(usual: Option<usize>) -> Key {
    let count: fn(&mut RunConfig) -> &mut Option<usize> =
        |recipe| &mut recipe.model.key_value_heads;
    Key::derived("num_key_value_heads", usual, count, |recipe| recipe.model.heads)
}

/// Description of a model family whose weights have the same names as Llama's. Its list of keys is
/// empty; the caller sets it.
pub(super) const fn llama_family(
    name: &'static str,
    model_type: &'static str,
    architectures: &'static [Architecture],
    base: fn(&mut RunConfig),
) -> Family {
    Family { name, model_type, architectures, base, keys: &[], ..SHARED }
}

const SHARED: Family = Family {
    name: "",
    model_type: "",
    architectures: &[],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[],
    // Keys of `[model]` whose values do not prevent an export. The keys `attention_biases` and
    // `feed_forward_biases` can only switch off biases, and models of this family have none,
    // because their `biases` is false. The number of key-value heads and the width of heads are
    // always written to `config.json`.
    free: &[
        "encoder_layers",
        "tied",
        "key_value_heads",
        "head_width",
        "attention_biases",
        "feed_forward_biases",
        "embedding_dropout",
        "feed_forward_dropout",
        "residual_dropout",
    ],
    prefix: "model.",
    modules: &[
        Module::same("embedding", &["model.embed_tokens"]),
        Module::same("decoder.layers.*.self_attention_norm", &["model.layers.*.input_layernorm"]),
        Module::heads(
            "decoder.layers.*.self_attention.qkv",
            &[
                "model.layers.*.self_attn.q_proj",
                "model.layers.*.self_attn.k_proj",
                "model.layers.*.self_attn.v_proj",
            ],
        ),
        Module::same(
            "decoder.layers.*.self_attention.query_norm",
            &["model.layers.*.self_attn.q_norm"],
        ),
        Module::same(
            "decoder.layers.*.self_attention.key_norm",
            &["model.layers.*.self_attn.k_norm"],
        ),
        Module::same("decoder.layers.*.self_attention.out", &["model.layers.*.self_attn.o_proj"]),
        Module::same(
            "decoder.layers.*.feed_forward_norm",
            &["model.layers.*.post_attention_layernorm"],
        ),
        Module::parts(
            "decoder.layers.*.feed_forward.up",
            &["model.layers.*.mlp.up_proj", "model.layers.*.mlp.gate_proj"],
        ),
        Module::same("decoder.layers.*.feed_forward.down", &["model.layers.*.mlp.down_proj"]),
        Module::same("decoder.final_norm", &["model.norm"]),
        Module::same("output", &["lm_head"]),
    ],
    copies: &[("embedding.weight", "lm_head.weight")],
    zeros: &[],
    unused: &[],
};

/// Sets the properties that all families like Llama share.
pub(super) fn base(recipe: &mut RunConfig) {
    recipe.data.tokenizer.kind = taper_data::TokenizerKind::Bytes;
    let model = &mut recipe.model;
    model.norm = NormPlacement::Pre;
    model.norm_kind = NormKind::Rms;
    model.feed_forward = FeedForwardKind::Gated;
    model.positions = Positions::Rotary;
    (model.scale_embeddings, model.biases) = (false, false);
    (model.embedding_dropout, model.feed_forward_dropout, model.residual_dropout) = (0.0, 0.0, 0.0);
}

fn sets_attention_biases(recipe: &mut RunConfig, has: bool) {
    recipe.model.query_key_value_biases = has.then_some(true);
    recipe.model.attention_output_biases = has.then_some(true);
}

fn has_attention_biases(recipe: &RunConfig) -> bool {
    recipe.model.has_query_key_value_biases()
}
