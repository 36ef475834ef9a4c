//! GPT-2 (Radford et al. 2019): a language model.

use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, Positions};

use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "GPT-2",
    model_type: "gpt2",
    architectures: &[
        Architecture::new("GPT2LMHeadModel", Task::LanguageModel, &[]),
        Architecture::body("GPT2Model", Task::LanguageModel),
    ],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[
        // The library Transformers also reads these keys under their general names, such as
        // `hidden_size`.
        Key::count("n_positions", 1024, |recipe| &mut recipe.model.max_positions)
            .spelled(&["/max_position_embeddings"]),
        Key::count("n_embd", 768, |recipe| &mut recipe.model.d_model).spelled(&["/hidden_size"]),
        Key::count("n_layer", 12, |recipe| &mut recipe.model.decoder_layers)
            .spelled(&["/num_hidden_layers"]),
        Key::count("n_head", 12, |recipe| &mut recipe.model.heads)
            .spelled(&["/num_attention_heads"]),
        Key::inner_width("n_inner"),
        Key::activation("activation_function", "gelu_new"),
        Key::number("resid_pdrop", 0.1, &[|recipe| &mut recipe.model.residual_dropout]),
        Key::number("embd_pdrop", 0.1, &[|recipe| &mut recipe.model.embedding_dropout]),
        Key::number("attn_pdrop", 0.1, &[|recipe| &mut recipe.model.attention_dropout]),
        Key::number("layer_norm_epsilon", 1e-5, &[|recipe| &mut recipe.model.norm_epsilon]),
        Key::tied(),
        Key::only("scale_attn_weights", Fixed::Flag(true)),
        Key::only("scale_attn_by_inverse_layer_idx", Fixed::Flag(false)),
        Key::only("add_cross_attention", Fixed::Flag(false)),
    ],
    free: &["encoder_layers", "feed_forward_dropout", "tied"],
    prefix: "transformer.",
    modules: &[
        Module::same("embedding", &["transformer.wte"]),
        Module::same("decoder.positions", &["transformer.wpe"]),
        Module::same("decoder.layers.*.self_attention_norm", &["transformer.h.*.ln_1"]),
        Module::transposed("decoder.layers.*.self_attention.qkv", &["transformer.h.*.attn.c_attn"]),
        Module::transposed("decoder.layers.*.self_attention.out", &["transformer.h.*.attn.c_proj"]),
        Module::same("decoder.layers.*.feed_forward_norm", &["transformer.h.*.ln_2"]),
        Module::transposed("decoder.layers.*.feed_forward.up", &["transformer.h.*.mlp.c_fc"]),
        Module::transposed("decoder.layers.*.feed_forward.down", &["transformer.h.*.mlp.c_proj"]),
        Module::same("decoder.final_norm", &["transformer.ln_f"]),
        Module::same("output", &["lm_head"]),
    ],
    copies: &[("embedding.weight", "lm_head.weight")],
    zeros: &[],
    unused: &[],
};

fn base(recipe: &mut RunConfig) {
    recipe.data.tokenizer.kind = TokenizerKind::Bytes;
    recipe.model.norm = NormPlacement::Pre;
    recipe.model.positions = Positions::Learned;
    recipe.model.scale_embeddings = false;
    recipe.model.feed_forward_dropout = 0.0;
}
