//! Phi (Li et al. 2023), versions 1 to 2: GPT-J's architecture, but with biases in all projections.
//! By default, rotary positions rotate only one half of each head; a rotated pair consists of one
//! element from each half of this rotated part.

use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, ParallelFeedForward, Positions};

use super::{llama, rotary};
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "Phi",
    model_type: "phi",
    architectures: &[
        Architecture::new("PhiForCausalLM", Task::LanguageModel, &[]),
        Architecture::body("PhiModel", Task::LanguageModel),
    ],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[
        Key::count("hidden_size", 2048, |recipe| &mut recipe.model.d_model),
        Key::count("num_hidden_layers", 24, |recipe| &mut recipe.model.decoder_layers),
        llama::HEADS,
        llama::key_value_heads(None),
        llama::HEAD_WIDTH,
        Key::count("intermediate_size", 8192, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 2048, |recipe| &mut recipe.model.max_positions),
        Key::activation("hidden_act", "gelu_new"),
        llama::ATTENTION_DROPOUT,
        Key::number("resid_pdrop", 0.0, &[|recipe| &mut recipe.model.residual_dropout]),
        Key::number("embd_pdrop", 0.0, &[|recipe| &mut recipe.model.embedding_dropout]),
        Key::number("layer_norm_eps", 1e-5, &[|recipe| &mut recipe.model.norm_epsilon]),
        rotary::BASE,
        rotary::HALF,
        rotary::SCALING,
        Key::untied(),
        Key::only("qk_layernorm", Fixed::Flag(false)),
    ],
    free: &["encoder_layers", "tied", "key_value_heads", "head_width", "feed_forward_dropout"],
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
        Module::same("decoder.layers.*.self_attention.out", &["model.layers.*.self_attn.dense"]),
        Module::same("decoder.layers.*.feed_forward.up", &["model.layers.*.mlp.fc1"]),
        Module::same("decoder.layers.*.feed_forward.down", &["model.layers.*.mlp.fc2"]),
        Module::same("decoder.final_norm", &["model.final_layernorm"]),
        Module::same("output", &["lm_head"]),
    ],
    copies: &[("embedding.weight", "lm_head.weight")],
    zeros: &[],
    unused: &[],
};

fn base(recipe: &mut RunConfig) {
    recipe.data.tokenizer.kind = TokenizerKind::Bytes;
    let model = &mut recipe.model;
    model.norm = NormPlacement::Pre;
    model.parallel_feed_forward = ParallelFeedForward::SharedNorm;
    model.positions = Positions::Rotary;
    (model.scale_embeddings, model.output_bias) = (false, true);
    model.feed_forward_dropout = 0.0;
}
