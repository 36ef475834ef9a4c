//! Table of the names of CTranslate2's variables and of the corresponding parameters of a run (a
//! model of Taper with its files). `engines/ctranslate2/layers.rs` writes variables with the same
//! names, but with slashes instead of dots.

use taper_data::Task;
use taper_model::FeedForwardKind;

use crate::folders::family::{Architecture, Family, Module};
use crate::folders::tokens::TokenizerFiles;

/// Description of CTranslate2's models as a model family, in the same form as the families of the
/// library Transformers. It is used only for import; the module `engines` exports such models.
pub(in crate::folders) static FAMILY: Family = Family {
    name: "model of CTranslate2",
    model_type: "ctranslate2",
    architectures: &[TRANSLATION, LANGUAGE_MODEL],
    base: |_| {},
    tokens: TokenizerFiles::Pieces,
    keys: &[],
    free: &[],
    prefix: "",
    modules: MODULES,
    copies: &[
        ("embedding.weight", "encoder.embeddings_0.weight"),
        ("embedding.weight", "decoder.projection.weight"),
        ("target_embedding.weight", "decoder.projection.weight"),
    ],
    zeros: &[],
    unused: &["*.position_encodings.encodings", "*.relative_attention_bias"],
};

/// Architecture of models with an encoder and a decoder. Its name is that of the specification in
/// CTranslate2.
pub(super) const TRANSLATION: Architecture =
    Architecture::new("TransformerSpec", Task::Translation, &[]);
/// Architecture of models with only a decoder, named after the specification in CTranslate2.
pub(super) const LANGUAGE_MODEL: Architecture =
    Architecture::new("TransformerDecoderSpec", Task::LanguageModel, &[]);

const MODULES: &[Module] = &[
    Module::same("embedding", &["decoder.embeddings"]),
    Module::same("target_embedding", &["decoder.embeddings"]),
    Module::same("source_embedding", &["encoder.embeddings_0"]),
    Module::same("output", &["decoder.projection"]),
    Module::same("encoder.positions.weight", &["encoder.position_encodings.encodings"]),
    Module::same("decoder.positions.weight", &["decoder.position_encodings.encodings"]),
    Module::same(
        "encoder.relative_bias.weight",
        &["encoder.layer_0.self_attention.relative_attention_bias"],
    ),
    Module::same(
        "encoder.layers.*.relative_bias.weight",
        &["encoder.layer_*.self_attention.relative_attention_bias"],
    ),
    Module::same(
        "decoder.relative_bias.weight",
        &["decoder.layer_0.self_attention.relative_attention_bias"],
    ),
    Module::same(
        "decoder.layers.*.relative_bias.weight",
        &["decoder.layer_*.self_attention.relative_attention_bias"],
    ),
    Module::same("encoder.embedding_norm", &["encoder.layernorm_embedding"]),
    Module::same("decoder.embedding_norm", &["decoder.layernorm_embedding"]),
    Module::same("encoder.final_norm", &["encoder.layer_norm"]),
    Module::same("decoder.final_norm", &["decoder.layer_norm"]),
    Module::same(
        "encoder.layers.*.self_attention_norm",
        &["encoder.layer_*.self_attention.layer_norm"],
    ),
    Module::same(
        "encoder.layers.*.self_attention.qkv",
        &["encoder.layer_*.self_attention.linear_0"],
    ),
    Module::same(
        "encoder.layers.*.self_attention.out",
        &["encoder.layer_*.self_attention.linear_1"],
    ),
    Module::same("encoder.layers.*.feed_forward_norm", &["encoder.layer_*.ffn.layer_norm"]),
    Module::same("encoder.layers.*.feed_forward.up", &["encoder.layer_*.ffn.linear_0"])
        .with(FeedForwardKind::Plain),
    Module::parts(
        "encoder.layers.*.feed_forward.up",
        &["encoder.layer_*.ffn.linear_0_noact", "encoder.layer_*.ffn.linear_0"],
    )
    .with(FeedForwardKind::Gated),
    Module::same("encoder.layers.*.feed_forward.down", &["encoder.layer_*.ffn.linear_1"]),
    Module::same(
        "decoder.layers.*.self_attention_norm",
        &["decoder.layer_*.self_attention.layer_norm"],
    ),
    Module::same("decoder.layers.*.self_attention_norm", &["decoder.layer_*.shared_layer_norm"]),
    Module::same("decoder.layers.*.self_attention_norm", &["decoder.layer_*.input_layer_norm"]),
    Module::same(
        "decoder.layers.*.feed_forward_norm",
        &["decoder.layer_*.post_attention_layer_norm"],
    ),
    Module::same(
        "decoder.layers.*.self_attention.qkv",
        &["decoder.layer_*.self_attention.linear_0"],
    ),
    Module::same(
        "decoder.layers.*.self_attention.query_norm",
        &["decoder.layer_*.self_attention.q_norm"],
    ),
    Module::same(
        "decoder.layers.*.self_attention.key_norm",
        &["decoder.layer_*.self_attention.k_norm"],
    ),
    Module::same(
        "decoder.layers.*.self_attention.out",
        &["decoder.layer_*.self_attention.linear_1"],
    ),
    Module::same(
        "decoder.layers.*.cross_attention_norm",
        &["decoder.layer_*.attention.layer_norm"],
    ),
    Module::same("decoder.layers.*.cross_attention.q", &["decoder.layer_*.attention.linear_0"]),
    Module::same("decoder.layers.*.cross_attention.kv", &["decoder.layer_*.attention.linear_1"]),
    Module::same("decoder.layers.*.cross_attention.out", &["decoder.layer_*.attention.linear_2"]),
    Module::same("decoder.layers.*.feed_forward_norm", &["decoder.layer_*.ffn.layer_norm"]),
    Module::same("decoder.layers.*.feed_forward.up", &["decoder.layer_*.ffn.linear_0"])
        .with(FeedForwardKind::Plain),
    Module::parts(
        "decoder.layers.*.feed_forward.up",
        &["decoder.layer_*.ffn.linear_0_noact", "decoder.layer_*.ffn.linear_0"],
    )
    .with(FeedForwardKind::Gated),
    Module::same("decoder.layers.*.feed_forward.down", &["decoder.layer_*.ffn.linear_1"]),
];
