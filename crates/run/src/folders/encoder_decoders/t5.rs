//! T5 (Raffel et al. 2020), versions 1.0 and 1.1, and FLAN-T5 (Chung et al. 2022): encoder-decoders
//! whose input is the name of a task followed by a text. The modules `mt5` and `umt5` use the names
//! of weights from this module. T5 and mT5 have relative position biases only in the first layer;
//! umT5 has them in every layer.

use taper_data::Task;
use taper_model::FeedForwardKind;

use super::t5_keys;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "T5",
    model_type: "t5",
    architectures: &[Architecture::new("T5ForConditionalGeneration", Task::Translation, &[])],
    base: t5_keys::base,
    tokens: TokenizerFiles::Pieces,
    keys: &[
        t5_keys::WIDTH,
        Key::count("d_ff", 2048, |recipe| &mut recipe.model.d_ff),
        Key::count("num_layers", 6, |recipe| &mut recipe.model.encoder_layers)
            .spelled(t5_keys::GENERAL_LAYERS),
        Key::count("num_heads", 8, |recipe| &mut recipe.model.heads)
            .spelled(t5_keys::GENERAL_HEADS),
        t5_keys::DECODER_LAYERS,
        t5_keys::HEAD_WIDTH,
        t5_keys::FEED_FORWARD,
        t5_keys::BUCKETS,
        t5_keys::DISTANCE,
        t5_keys::LONGEST,
        t5_keys::DROPOUT,
        t5_keys::EPSILON,
        t5_keys::TIED,
        t5_keys::SCALE,
        t5_keys::TASKS,
        Key::only("is_encoder_decoder", Fixed::Flag(true)),
    ],
    free: &["embedding_dropout", "attention_dropout", "feed_forward_dropout", "final_dropout"],
    prefix: "",
    modules: &[
        Module::same("embedding", &["shared"]),
        Module::same("output", &["lm_head"]),
        Module::same(
            "encoder.relative_bias",
            &["encoder.block.0.layer.0.SelfAttention.relative_attention_bias"],
        ),
        Module::same(
            "encoder.layers.*.relative_bias",
            &["encoder.block.*.layer.0.SelfAttention.relative_attention_bias"],
        ),
        Module::same(
            "encoder.layers.*.self_attention_norm",
            &["encoder.block.*.layer.0.layer_norm"],
        ),
        Module::parts(
            "encoder.layers.*.self_attention.qkv",
            &[
                "encoder.block.*.layer.0.SelfAttention.q",
                "encoder.block.*.layer.0.SelfAttention.k",
                "encoder.block.*.layer.0.SelfAttention.v",
            ],
        ),
        Module::same(
            "encoder.layers.*.self_attention.out",
            &["encoder.block.*.layer.0.SelfAttention.o"],
        ),
        Module::same("encoder.layers.*.feed_forward_norm", &["encoder.block.*.layer.1.layer_norm"]),
        Module::same(
            "encoder.layers.*.feed_forward.up",
            &["encoder.block.*.layer.1.DenseReluDense.wi"],
        )
        .with(FeedForwardKind::Plain),
        Module::parts(
            "encoder.layers.*.feed_forward.up",
            &[
                "encoder.block.*.layer.1.DenseReluDense.wi_1",
                "encoder.block.*.layer.1.DenseReluDense.wi_0",
            ],
        )
        .with(FeedForwardKind::Gated),
        Module::same(
            "encoder.layers.*.feed_forward.down",
            &["encoder.block.*.layer.1.DenseReluDense.wo"],
        ),
        Module::same("encoder.final_norm", &["encoder.final_layer_norm"]),
        Module::same(
            "decoder.relative_bias",
            &["decoder.block.0.layer.0.SelfAttention.relative_attention_bias"],
        ),
        Module::same(
            "decoder.layers.*.relative_bias",
            &["decoder.block.*.layer.0.SelfAttention.relative_attention_bias"],
        ),
        Module::same(
            "decoder.layers.*.self_attention_norm",
            &["decoder.block.*.layer.0.layer_norm"],
        ),
        Module::parts(
            "decoder.layers.*.self_attention.qkv",
            &[
                "decoder.block.*.layer.0.SelfAttention.q",
                "decoder.block.*.layer.0.SelfAttention.k",
                "decoder.block.*.layer.0.SelfAttention.v",
            ],
        ),
        Module::same(
            "decoder.layers.*.self_attention.out",
            &["decoder.block.*.layer.0.SelfAttention.o"],
        ),
        Module::same(
            "decoder.layers.*.cross_attention_norm",
            &["decoder.block.*.layer.1.layer_norm"],
        ),
        Module::same(
            "decoder.layers.*.cross_attention.q",
            &["decoder.block.*.layer.1.EncDecAttention.q"],
        ),
        Module::parts(
            "decoder.layers.*.cross_attention.kv",
            &[
                "decoder.block.*.layer.1.EncDecAttention.k",
                "decoder.block.*.layer.1.EncDecAttention.v",
            ],
        ),
        Module::same(
            "decoder.layers.*.cross_attention.out",
            &["decoder.block.*.layer.1.EncDecAttention.o"],
        ),
        Module::same("decoder.layers.*.feed_forward_norm", &["decoder.block.*.layer.2.layer_norm"]),
        Module::same(
            "decoder.layers.*.feed_forward.up",
            &["decoder.block.*.layer.2.DenseReluDense.wi"],
        )
        .with(FeedForwardKind::Plain),
        Module::parts(
            "decoder.layers.*.feed_forward.up",
            &[
                "decoder.block.*.layer.2.DenseReluDense.wi_1",
                "decoder.block.*.layer.2.DenseReluDense.wi_0",
            ],
        )
        .with(FeedForwardKind::Gated),
        Module::same(
            "decoder.layers.*.feed_forward.down",
            &["decoder.block.*.layer.2.DenseReluDense.wo"],
        ),
        Module::same("decoder.final_norm", &["decoder.final_layer_norm"]),
    ],
    copies: &[
        ("embedding.weight", "lm_head.weight"),
        ("embedding.weight", "encoder.embed_tokens.weight"),
        ("embedding.weight", "decoder.embed_tokens.weight"),
    ],
    zeros: &[],
    unused: &["decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"],
};
