//! MarianMT (Junczys-Dowmunt et al. 2018; Tiedemann and Thottingal 2020): the encoder-decoders of
//! OPUS-MT, with one vocabulary for both languages and a model of SentencePiece for each.

use taper_data::{Task, TokenizerKind};
use taper_model::{NormPlacement, Positions, Tied};

use super::family::{Architecture, Family, Module};
use super::keys::{Fixed, Key};
use super::tokens::TokenizerFiles;
use crate::config::RunConfig;

pub(super) static FAMILY: Family = Family {
    name: "MarianMT",
    model_type: "marian",
    architectures: &[Architecture::new("MarianMTModel", Task::Translation, &[])],
    base,
    tokens: TokenizerFiles::Sides,
    keys: &[
        Key::count("d_model", 1024, |recipe| &mut recipe.model.d_model),
        Key::count("encoder_layers", 12, |recipe| &mut recipe.model.encoder_layers),
        Key::count("decoder_layers", 12, |recipe| &mut recipe.model.decoder_layers),
        Key::count("encoder_attention_heads", 16, |recipe| &mut recipe.model.heads),
        Key::count("decoder_attention_heads", 16, |recipe| &mut recipe.model.heads),
        Key::count("encoder_ffn_dim", 4096, |recipe| &mut recipe.model.d_ff),
        Key::count("decoder_ffn_dim", 4096, |recipe| &mut recipe.model.d_ff),
        Key::count("max_position_embeddings", 1024, |recipe| &mut recipe.model.max_positions),
        Key::activation("activation_function", "gelu"),
        Key::number(
            "dropout",
            0.1,
            &[
                |recipe| &mut recipe.model.residual_dropout,
                |recipe| &mut recipe.model.embedding_dropout,
            ],
        ),
        Key::number("attention_dropout", 0.0, &[|recipe| &mut recipe.model.attention_dropout]),
        Key::number("activation_dropout", 0.0, &[|recipe| &mut recipe.model.feed_forward_dropout]),
        Key::flag("scale_embedding", false, |recipe| &mut recipe.model.scale_embeddings),
        Key::only("tie_word_embeddings", Fixed::Flag(true)),
        Key::only("share_encoder_decoder_embeddings", Fixed::Flag(true)),
        Key::only("is_encoder_decoder", Fixed::Flag(true)),
    ],
    free: &["embedding_dropout", "output_bias"],
    prefix: "model.",
    modules: &[
        Module::same("embedding", &["model.shared"]),
        Module::parts(
            "encoder.layers.*.self_attention.qkv",
            &[
                "model.encoder.layers.*.self_attn.q_proj",
                "model.encoder.layers.*.self_attn.k_proj",
                "model.encoder.layers.*.self_attn.v_proj",
            ],
        ),
        Module::same(
            "encoder.layers.*.self_attention.out",
            &["model.encoder.layers.*.self_attn.out_proj"],
        ),
        Module::same(
            "encoder.layers.*.self_attention_norm",
            &["model.encoder.layers.*.self_attn_layer_norm"],
        ),
        Module::same("encoder.layers.*.feed_forward.up", &["model.encoder.layers.*.fc1"]),
        Module::same("encoder.layers.*.feed_forward.down", &["model.encoder.layers.*.fc2"]),
        Module::same(
            "encoder.layers.*.feed_forward_norm",
            &["model.encoder.layers.*.final_layer_norm"],
        ),
        Module::parts(
            "decoder.layers.*.self_attention.qkv",
            &[
                "model.decoder.layers.*.self_attn.q_proj",
                "model.decoder.layers.*.self_attn.k_proj",
                "model.decoder.layers.*.self_attn.v_proj",
            ],
        ),
        Module::same(
            "decoder.layers.*.self_attention.out",
            &["model.decoder.layers.*.self_attn.out_proj"],
        ),
        Module::same(
            "decoder.layers.*.self_attention_norm",
            &["model.decoder.layers.*.self_attn_layer_norm"],
        ),
        Module::same(
            "decoder.layers.*.cross_attention.q",
            &["model.decoder.layers.*.encoder_attn.q_proj"],
        ),
        Module::parts(
            "decoder.layers.*.cross_attention.kv",
            &[
                "model.decoder.layers.*.encoder_attn.k_proj",
                "model.decoder.layers.*.encoder_attn.v_proj",
            ],
        ),
        Module::same(
            "decoder.layers.*.cross_attention.out",
            &["model.decoder.layers.*.encoder_attn.out_proj"],
        ),
        Module::same(
            "decoder.layers.*.cross_attention_norm",
            &["model.decoder.layers.*.encoder_attn_layer_norm"],
        ),
        Module::same("decoder.layers.*.feed_forward.up", &["model.decoder.layers.*.fc1"]),
        Module::same("decoder.layers.*.feed_forward.down", &["model.decoder.layers.*.fc2"]),
        Module::same(
            "decoder.layers.*.feed_forward_norm",
            &["model.decoder.layers.*.final_layer_norm"],
        ),
        Module::shaped("output.bias", &["final_logits_bias"], |_, shape| [&[1], shape].concat()),
    ],
    copies: &[
        ("embedding.weight", "model.encoder.embed_tokens.weight"),
        ("embedding.weight", "model.decoder.embed_tokens.weight"),
        ("embedding.weight", "lm_head.weight"),
    ],
    zeros: &[("output.bias", "final_logits_bias")],
    unused: &["*.embed_positions.weight"],
};

fn base(recipe: &mut RunConfig) {
    recipe.data.tokenizer.kind = TokenizerKind::Unigram;
    recipe.data.tokenizer.joint = true;
    recipe.model.tied = Tied::All;
    recipe.model.norm = NormPlacement::Post;
    recipe.model.norm_epsilon = 1e-5;
    recipe.model.positions = Positions::SinusoidalHalves;
    recipe.model.output_bias = true;
}
