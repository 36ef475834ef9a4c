//! BERT (Devlin et al. 2019): masked language models, classifiers of texts, taggers of words, and
//! models that answer questions by spans of a text. Masked language models may also have a head
//! that predicts whether one sentence follows another. A folder without any head (output layers for
//! a task) becomes a masked language model with a randomly initialised head.

use taper_data::Task;
use taper_model::{NormPlacement, Positions};

use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

/// Keys of `[model]` for pooling, which has an effect only in a classifier.
pub(super) const POOLING: &[&str] = &["pooling"];

/// Makes the list of the modules of a text encoder: first those of its body, whose tensors have
/// names that begin with `$prefix`, then `$head`, the modules of its heads (output layers for a
/// task).
macro_rules! modules {
    ($prefix:literal, $($head:expr),+ $(,)?) => {
        &[
            Module::same("embedding", &[concat!($prefix, ".embeddings.word_embeddings")]),
            Module::same(
                "encoder.positions",
                &[concat!($prefix, ".embeddings.position_embeddings")],
            ),
            Module::same(
                "encoder.segments",
                &[concat!($prefix, ".embeddings.token_type_embeddings")],
            ),
            Module::same("encoder.embedding_norm", &[concat!($prefix, ".embeddings.LayerNorm")]),
            Module::parts(
                "encoder.layers.*.self_attention.qkv",
                &[
                    concat!($prefix, ".encoder.layer.*.attention.self.query"),
                    concat!($prefix, ".encoder.layer.*.attention.self.key"),
                    concat!($prefix, ".encoder.layer.*.attention.self.value"),
                ],
            ),
            Module::same(
                "encoder.layers.*.self_attention.out",
                &[concat!($prefix, ".encoder.layer.*.attention.output.dense")],
            ),
            Module::same(
                "encoder.layers.*.self_attention_norm",
                &[concat!($prefix, ".encoder.layer.*.attention.output.LayerNorm")],
            ),
            Module::same(
                "encoder.layers.*.feed_forward.up",
                &[concat!($prefix, ".encoder.layer.*.intermediate.dense")],
            ),
            Module::same(
                "encoder.layers.*.feed_forward.down",
                &[concat!($prefix, ".encoder.layer.*.output.dense")],
            ),
            Module::same(
                "encoder.layers.*.feed_forward_norm",
                &[concat!($prefix, ".encoder.layer.*.output.LayerNorm")],
            ),
            $($head),+
        ]
    };
}
pub(super) use modules;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "BERT",
    model_type: "bert",
    architectures: &[
        Architecture::new("BertForPreTraining", MASKED, &["transform", "next_sentence"])
            .free(POOLING),
        Architecture::new("BertForMaskedLM", MASKED, &["transform"]).free(POOLING),
        Architecture::new("BertForSequenceClassification", Task::Classification, CLASSES),
        Architecture::new("BertForTokenClassification", Task::Tagging, &["tags"]).free(POOLING),
        Architecture::new("BertForQuestionAnswering", Task::QuestionAnswering, &["span"])
            .free(POOLING),
        Architecture::body("BertModel", MASKED),
    ],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[
        WIDTH,
        LAYERS,
        HEADS,
        INNER_WIDTH,
        ACTIVATION,
        HIDDEN_DROPOUT,
        ATTENTION_DROPOUT,
        Key::count("max_position_embeddings", 512, |recipe| &mut recipe.model.max_positions),
        Key::count("type_vocab_size", 2, |recipe| &mut recipe.model.segments),
        EPSILON,
        Key::tied(),
        Key::only("is_decoder", Fixed::Flag(false)),
        Key::only("add_cross_attention", Fixed::Flag(false)),
        Key::only("position_embedding_type", Fixed::Text("absolute")),
    ],
    free: FREE,
    prefix: "bert.",
    modules: modules![
        "bert",
        Module::same("pooler", &["bert.pooler.dense"]),
        Module::same("transform", &["cls.predictions.transform.dense"]),
        Module::same("transform_norm", &["cls.predictions.transform.LayerNorm"]),
        Module::same("output.bias", &["cls.predictions.bias"]),
        Module::same("output", &["cls.predictions.decoder"]),
        Module::same("next_sentence", &["cls.seq_relationship"]),
        Module::same("classes", &["classifier"]),
        Module::same("tags", &["classifier"]),
        Module::same("span", &["qa_outputs"]),
    ],
    copies: &[("embedding.weight", "cls.predictions.decoder.weight")],
    // Some files have the bias of the output twice; the second tensor is not used. The pooler is
    // not used if the head does not read from it.
    zeros: &[],
    unused: &["bert.pooler.*", "cls.predictions.bias"],
};

pub(super) const WIDTH: Key = Key::count("hidden_size", 768, |recipe| &mut recipe.model.d_model);
pub(super) const LAYERS: Key =
    Key::count("num_hidden_layers", 12, |recipe| &mut recipe.model.encoder_layers);
pub(super) const HEADS: Key =
    Key::count("num_attention_heads", 12, |recipe| &mut recipe.model.heads);
pub(super) const INNER_WIDTH: Key =
    Key::count("intermediate_size", 3072, |recipe| &mut recipe.model.d_ff);
pub(super) const ACTIVATION: Key = Key::activation("hidden_act", "gelu");
pub(super) const HIDDEN_DROPOUT: Key = Key::number(
    "hidden_dropout_prob",
    0.1,
    &[|recipe| &mut recipe.model.residual_dropout, |recipe| &mut recipe.model.embedding_dropout],
);
pub(super) const ATTENTION_DROPOUT: Key = Key::number(
    "attention_probs_dropout_prob",
    0.1,
    &[|recipe| &mut recipe.model.attention_dropout],
);
pub(super) const EPSILON: Key =
    Key::number("layer_norm_eps", 1e-12, &[|recipe| &mut recipe.model.norm_epsilon]);

/// Keys of `[model]` on which the weights of a text encoder do not depend.
pub(super) const FREE: &[&str] =
    &["decoder_layers", "decoder_attention", "embedding_dropout", "feed_forward_dropout", "tied"];

/// Modules of a classifier's head: the pooler, and after it the layer for the classes.
pub(super) const CLASSES: &[&str] = &["pooler", "classes"];

const MASKED: Task = Task::MaskedLanguageModel;

fn base(recipe: &mut RunConfig) {
    recipe.model.norm = NormPlacement::Post;
    recipe.model.positions = Positions::Learned;
    recipe.model.scale_embeddings = false;
    recipe.model.feed_forward_dropout = 0.0;
}
