//! ViT (Dosovitskiy et al. 2021): classifiers of images.

use taper_data::Task;
use taper_model::{NormPlacement, Pooling, Positions};

use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "ViT",
    model_type: "vit",
    architectures: &[
        Architecture::new("ViTForImageClassification", Task::ImageClassification, &["classes"]),
        Architecture::body("ViTModel", Task::ImageClassification),
    ],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[
        Key::count("hidden_size", 768, |recipe| &mut recipe.model.d_model),
        Key::count("num_hidden_layers", 12, |recipe| &mut recipe.model.encoder_layers),
        Key::count("num_attention_heads", 12, |recipe| &mut recipe.model.heads),
        Key::count("intermediate_size", 3072, |recipe| &mut recipe.model.d_ff),
        Key::activation("hidden_act", "gelu"),
        Key::number(
            "hidden_dropout_prob",
            0.0,
            &[
                |recipe| &mut recipe.model.residual_dropout,
                |recipe| &mut recipe.model.embedding_dropout,
            ],
        ),
        Key::number(
            "attention_probs_dropout_prob",
            0.0,
            &[|recipe| &mut recipe.model.attention_dropout],
        ),
        Key::number("layer_norm_eps", 1e-12, &[|recipe| &mut recipe.model.norm_epsilon]),
        Key::count("image_size", 224, |recipe| &mut recipe.data.images.size),
        Key::count("patch_size", 16, |recipe| &mut recipe.data.images.patch),
        Key::count("num_channels", 3, |recipe| &mut recipe.data.images.channels),
        Key::only("qkv_bias", Fixed::Flag(true)),
    ],
    free: &[
        "decoder_layers",
        "decoder_attention",
        "max_positions",
        "tied",
        "scale_embeddings",
        "embedding_dropout",
        "feed_forward_dropout",
    ],
    prefix: "vit.",
    modules: &[
        Module::shaped("class_token.weight", &["vit.embeddings.cls_token"], |_, shape| {
            [&[1], shape].concat()
        }),
        Module::shaped(
            "encoder.positions.weight",
            &["vit.embeddings.position_embeddings"],
            |_, shape| [&[1], shape].concat(),
        ),
        Module::shaped(
            "patches.weight",
            &["vit.embeddings.patch_embeddings.projection.weight"],
            |recipe, shape| {
                let images = &recipe.data.images;
                vec![shape[0], images.channels, images.patch, images.patch]
            },
        ),
        Module::same("patches", &["vit.embeddings.patch_embeddings.projection"]),
        Module::same(
            "encoder.layers.*.self_attention_norm",
            &["vit.encoder.layer.*.layernorm_before"],
        ),
        Module::parts(
            "encoder.layers.*.self_attention.qkv",
            &[
                "vit.encoder.layer.*.attention.attention.query",
                "vit.encoder.layer.*.attention.attention.key",
                "vit.encoder.layer.*.attention.attention.value",
            ],
        ),
        Module::same(
            "encoder.layers.*.self_attention.out",
            &["vit.encoder.layer.*.attention.output.dense"],
        ),
        Module::same(
            "encoder.layers.*.feed_forward_norm",
            &["vit.encoder.layer.*.layernorm_after"],
        ),
        Module::same(
            "encoder.layers.*.feed_forward.up",
            &["vit.encoder.layer.*.intermediate.dense"],
        ),
        Module::same("encoder.layers.*.feed_forward.down", &["vit.encoder.layer.*.output.dense"]),
        Module::same("encoder.final_norm", &["vit.layernorm"]),
        Module::same("classes", &["classifier"]),
    ],
    copies: &[],
    // The pooler in some files is not used, because classifiers do not read from it.
    zeros: &[],
    unused: &["vit.pooler.*"],
};

fn base(recipe: &mut RunConfig) {
    recipe.model.norm = NormPlacement::Pre;
    recipe.model.positions = Positions::Learned;
    recipe.model.pooling = Pooling::ClassToken;
    recipe.model.feed_forward_dropout = 0.0;
}
