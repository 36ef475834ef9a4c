//! Names of the tensors of BART, and of the families with the same names: MarianMT, M2M100, mBART
//! and Pegasus.

use crate::folders::family::Module;

/// Parameters of Taper's model, each with the tensors of a folder that correspond to it. A family
/// can lack some of them: MarianMT, for example, has no norms of embeddings.
pub(super) const MODULES: &[Module] = &[
    Module::same("embedding", &["model.shared"]),
    Module::same("source_embedding", &["model.encoder.embed_tokens"]),
    Module::same("target_embedding", &["model.decoder.embed_tokens"]),
    Module::same("output.weight", &["lm_head.weight"]),
    Module::same("encoder.positions", &["model.encoder.embed_positions"]),
    Module::same("decoder.positions", &["model.decoder.embed_positions"]),
    Module::same("encoder.embedding_norm", &["model.encoder.layernorm_embedding"]),
    Module::same("decoder.embedding_norm", &["model.decoder.layernorm_embedding"]),
    Module::same("encoder.final_norm", &["model.encoder.layer_norm"]),
    Module::same("decoder.final_norm", &["model.decoder.layer_norm"]),
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
];

/// Tensors that repeat an embedding matrix if matrices are tied: for each, the name of the matrix
/// in Taper's model, and the name of the tensor.
pub(super) const COPIES: &[(&str, &str)] = &[
    ("embedding.weight", "model.encoder.embed_tokens.weight"),
    ("embedding.weight", "model.decoder.embed_tokens.weight"),
    ("embedding.weight", "lm_head.weight"),
    ("target_embedding.weight", "lm_head.weight"),
];
