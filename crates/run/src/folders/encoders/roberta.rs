//! RoBERTa (Liu et al. 2019), and XLM-R (Conneau et al. 2020), the same model for a hundred
//! languages: masked language models, classifiers of texts, taggers of words, and models that
//! answer questions by spans.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use taper_data::Task;
use taper_model::{NormPlacement, Positions};

use super::bert;
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = of(
    "RoBERTa",
    "roberta",
    &[
        Architecture::new("RobertaForMaskedLM", MASKED, &["transform"]).free(bert::POOLING),
        Architecture::new("RobertaForSequenceClassification", Task::Classification, CLASSES),
        Architecture::new("RobertaForTokenClassification", Task::Tagging, &["tags"])
            .free(bert::POOLING),
        Architecture::new("RobertaForQuestionAnswering", Task::QuestionAnswering, &["span"])
            .free(bert::POOLING),
        Architecture::body("RobertaModel", MASKED),
    ],
);

pub(in crate::folders) static XLM_ROBERTA: Family = of(
    "XLM-R",
    "xlm-roberta",
    &[
        Architecture::new("XLMRobertaForMaskedLM", MASKED, &["transform"]).free(bert::POOLING),
        Architecture::new("XLMRobertaForSequenceClassification", Task::Classification, CLASSES),
        Architecture::new("XLMRobertaForTokenClassification", Task::Tagging, &["tags"])
            .free(bert::POOLING),
        Architecture::new("XLMRobertaForQuestionAnswering", Task::QuestionAnswering, &["span"])
            .free(bert::POOLING),
        Architecture::body("XLMRobertaModel", MASKED),
    ],
);

const MASKED: Task = Task::MaskedLanguageModel;
const CLASSES: &[&str] = &["pooler", "classes"];

/// Family with the names and keys that both share.
const fn of(
    name: &'static str,
    model_type: &'static str,
    architectures: &'static [Architecture],
) -> Family {
    Family { name, model_type, architectures, ..SHARED }
}

const SHARED: Family = Family {
    name: "",
    model_type: "",
    architectures: &[],
    base,
    tokens: TokenizerFiles::Fast,
    keys: &[
        bert::WIDTH,
        bert::LAYERS,
        bert::HEADS,
        bert::INNER_WIDTH,
        bert::ACTIVATION,
        bert::HIDDEN_DROPOUT,
        bert::ATTENTION_DROPOUT,
        // Positions count from the id after the padding's, and the table has rows for the ids up to
        // there.
        Key::own("pad_token_id", read_padding, |recipe| {
            recipe.model.position_offset.checked_sub(1).map(|id| json!(id))
        }),
        Key::own("max_position_embeddings", read_positions, |recipe| {
            Some(json!(recipe.model.position_rows()))
        }),
        Key::count("type_vocab_size", 2, |recipe| &mut recipe.model.segments),
        bert::EPSILON,
        Key::tied(),
        Key::only("is_decoder", Fixed::Flag(false)),
        Key::only("add_cross_attention", Fixed::Flag(false)),
        Key::only("position_embedding_type", Fixed::Text("absolute")),
    ],
    free: bert::FREE,
    prefix: "roberta.",
    modules: &[
        Module::same("embedding", &["roberta.embeddings.word_embeddings"]),
        Module::same("encoder.positions", &["roberta.embeddings.position_embeddings"]),
        Module::same("encoder.segments", &["roberta.embeddings.token_type_embeddings"]),
        Module::same("encoder.embedding_norm", &["roberta.embeddings.LayerNorm"]),
        Module::parts(
            "encoder.layers.*.self_attention.qkv",
            &[
                "roberta.encoder.layer.*.attention.self.query",
                "roberta.encoder.layer.*.attention.self.key",
                "roberta.encoder.layer.*.attention.self.value",
            ],
        ),
        Module::same(
            "encoder.layers.*.self_attention.out",
            &["roberta.encoder.layer.*.attention.output.dense"],
        ),
        Module::same(
            "encoder.layers.*.self_attention_norm",
            &["roberta.encoder.layer.*.attention.output.LayerNorm"],
        ),
        Module::same(
            "encoder.layers.*.feed_forward.up",
            &["roberta.encoder.layer.*.intermediate.dense"],
        ),
        Module::same(
            "encoder.layers.*.feed_forward.down",
            &["roberta.encoder.layer.*.output.dense"],
        ),
        Module::same(
            "encoder.layers.*.feed_forward_norm",
            &["roberta.encoder.layer.*.output.LayerNorm"],
        ),
        // The head of a classifier is a pooler and a layer of classes.
        Module::same("pooler", &["classifier.dense"]),
        Module::same("transform", &["lm_head.dense"]),
        Module::same("transform_norm", &["lm_head.layer_norm"]),
        Module::same("output.bias", &["lm_head.bias"]),
        Module::same("output", &["lm_head.decoder"]),
        Module::same("classes", &["classifier.out_proj"]),
        Module::same("tags", &["classifier"]),
        Module::same("span", &["qa_outputs"]),
    ],
    copies: &[("embedding.weight", "lm_head.decoder.weight")],
    zeros: &[],
    unused: &["roberta.pooler.*", "lm_head.bias"],
};

fn base(recipe: &mut RunConfig) {
    recipe.model.norm = NormPlacement::Post;
    recipe.model.positions = Positions::Learned;
    recipe.model.position_offset = 2;
    recipe.model.segments = 1;
    recipe.model.scale_embeddings = false;
    recipe.model.feed_forward_dropout = 0.0;
}

fn read_padding(given: &Value, recipe: &mut RunConfig) -> Result<()> {
    let id = count(given, 1).with_context(|| format!("pad_token_id is {given}"))?;
    recipe.model.position_offset = id.saturating_add(1);
    Ok(())
}

fn read_positions(given: &Value, recipe: &mut RunConfig) -> Result<()> {
    let offset = recipe.model.position_offset;
    let positions = count(given, 512).and_then(|rows| rows.checked_sub(offset));
    recipe.model.max_positions = positions.with_context(|| {
        format!("max_position_embeddings is {given}, expected a number above {offset}")
    })?;
    Ok(())
}

/// Integer of a key; `usual` if it is absent.
fn count(given: &Value, usual: usize) -> Option<usize> {
    match given {
        Value::Null => Some(usual),
        given => given.as_u64().and_then(|count| usize::try_from(count).ok()),
    }
}
