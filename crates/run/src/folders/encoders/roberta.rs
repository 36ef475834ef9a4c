//! RoBERTa (Liu et al. 2019), and XLM-R (Conneau et al. 2020), the same architecture for texts in a
//! hundred languages. There are masked language models, classifiers of texts, taggers of words, and
//! models that answer questions by spans.

use anyhow::{Context, Result};
use serde_json::{Value, json};
use taper_data::Task;
use taper_model::{NormPlacement, Positions};

use super::bert;
use crate::config::RunConfig;
use crate::folders::family::{Architecture, Family, Module};
use crate::folders::keys::{Fixed, Key};
use crate::folders::tokens::TokenizerFiles;

pub(in crate::folders) static FAMILY: Family = Family {
    name: "RoBERTa",
    model_type: "roberta",
    architectures: &architectures([
        "RobertaForMaskedLM",
        "RobertaForSequenceClassification",
        "RobertaForTokenClassification",
        "RobertaForQuestionAnswering",
        "RobertaModel",
    ]),
    ..SHARED
};

pub(in crate::folders) static XLM_ROBERTA: Family = Family {
    name: "XLM-R",
    model_type: "xlm-roberta",
    architectures: &architectures([
        "XLMRobertaForMaskedLM",
        "XLMRobertaForSequenceClassification",
        "XLMRobertaForTokenClassification",
        "XLMRobertaForQuestionAnswering",
        "XLMRobertaModel",
    ]),
    ..SHARED
};

/// Architectures of RoBERTa or XLM-R, which have the same kinds of models under different `names`
/// in the library Transformers.
const fn architectures(names: [&'static str; 5]) -> [Architecture; 5] {
    let [masked, classes, tags, span, body] = names;
    let filling = Task::MaskedLanguageModel;
    [
        Architecture::new(masked, filling, &["transform"]).free(bert::POOLING),
        Architecture::new(classes, Task::Classification, bert::CLASSES),
        Architecture::new(tags, Task::Tagging, &["tags"]).free(bert::POOLING),
        Architecture::new(span, Task::QuestionAnswering, &["span"]).free(bert::POOLING),
        Architecture::body(body, filling),
    ]
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
        // The first position has the row `pad_token_id + 1` in the table, so all rows before it are
        // unused.
        Key::custom("pad_token_id", read_padding, |recipe| {
            recipe.model.position_offset.checked_sub(1).map(|id| json!(id))
        }),
        Key::custom("max_position_embeddings", read_positions, |recipe| {
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
    modules: bert::modules![
        "roberta",
        // The head of a classifier consists of a pooler and a layer for the classes.
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
    let id =
        count(given, 1).with_context(|| format!("pad_token_id is {given}, expected a number"))?;
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

/// Value of a key that must be an integer and at least 0. Returns `usual` if the key is absent, and
/// `None` if it has any other value.
fn count(given: &Value, usual: usize) -> Option<usize> {
    match given {
        Value::Null => Some(usual),
        given => given.as_u64().and_then(|count| usize::try_from(count).ok()),
    }
}
