//! Import of folders of CTranslate2, a program (engine) that translates and generates text:
//! `model.bin`, lists of tokens, and the files of a tokenizer, which converters copy to the folder
//! on request.

mod names;
mod shape;
mod vocabulary;

use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;
use taper_data::TokenizerPair;
use taper_decoding::{DecodingConfig, LengthPenaltyForm};
use taper_model::NormKind;

use super::family::Architecture;
use super::json::read_keys;
use super::tokens::{self, GENERATION_CONFIG};
use super::weights::{MODEL_BIN, Weights};
use super::{CONFIG, recipe as recipes};
use crate::config::RunConfig;
use crate::event::Notice;
use crate::tasks::{TaskModel, entry, with_model};
use shape::{Attributes, EMBEDDING, OF_SOURCE, OUTPUT, OUTPUT_BIAS};
use vocabulary::Vocabulary;

pub(super) use names::FAMILY;

/// Output bias below which a token counts as one that the model never writes.
const NEVER: f32 = -9e3;
/// Output bias of a token that the engine does not have. Its logit is so small that its probability
/// is 0.
const ABSENT: f32 = -1e4;

/// Model that was read from a folder.
pub(super) struct Model {
    pub(super) recipe: RunConfig,
    pub(super) tokenizers: TokenizerPair,
    pub(super) weights: Weights,
    pub(super) architecture: &'static Architecture,
}

/// True if the folder `source` is one of CTranslate2.
pub(super) fn is_in(source: &Path) -> bool {
    source.join(MODEL_BIN).exists() && !Weights::are_in(source)
}

/// Reads the folder `source`, except the values of its tensors. `asked` has the source and the
/// target language that the user named for a translation model. Messages are added to `notices`.
///
/// # Errors
/// When a file is missing or damaged, or a part of the model has no counterpart in Taper.
pub(super) fn read(
    source: &Path,
    name: String,
    asked: [Option<&str>; 2],
    notices: &mut Vec<Notice>,
) -> Result<Model> {
    let config = source.join(CONFIG);
    let keys = if config.exists() { read_keys(&config)? } else { Value::Null };
    let (mut weights, described) = Weights::open_model_bin(source)?;
    let shown = || source.join(MODEL_BIN).display().to_string();
    weights.rename(|name| FAMILY.whole_name(name))?;
    let architecture = architecture(&described.specification, shown)?;
    let mut recipe = recipes::without_data(name, architecture.task);
    let translates = entry(recipe.task).translates;
    let mut attributes = Attributes::new(&described.attributes).with_context(shown)?;
    let rows = weights.shape(EMBEDDING).map_or(0, |shape| shape[0]);
    let starts_from_zero = attributes.flag("start_from_zero_embedding");
    if starts_from_zero {
        add_start(&mut weights, rows);
    }
    shape::describe(&mut attributes, &weights, translates, &mut recipe.model)
        .and_then(|()| attributes.finish())
        .with_context(shown)?;
    let epsilon = keys["layer_norm_epsilon"].as_f64();
    let usual = if recipe.model.norm_kind == NormKind::Rms { 1e-6 } else { 1e-5 };
    recipe.model.norm_epsilon = epsilon.unwrap_or(usual);

    let mut vocabulary = Vocabulary::read(source, translates)?;
    if starts_from_zero {
        vocabulary.add_start();
    }
    vocabulary.require_rows(source, &weights, translates)?;
    let never = never_written(&weights).with_context(shown)?;
    let config = vocabulary.config(&keys, starts_from_zero, &never)?;
    let (pair, kind) = vocabulary.tokenizers(source, &config, &recipe, asked, notices)?;
    recipe.data.tokenizer.vocabulary_size = vocabulary.target().len();
    recipe.data.tokenizer.joint = recipe.model.tied.ties_embeddings();
    let described = recipes::Described {
        source,
        family: &FAMILY,
        architecture,
        keys: &config,
        weights: &weights,
    };
    with_model!(recipe.task, M => <M as TaskModel>::describe_import(&mut recipe, &described))
        .with_context(|| source.display().to_string())?;
    let mut tokenizers = pair;
    if translates {
        if !source.join(GENERATION_CONFIG).exists() {
            search(&mut recipe.decoding);
        }
        let (marked, languages) =
            tokens::with_languages(tokenizers, (source, &config), kind, asked)?;
        recipes::speak(&mut recipe, languages);
        tokenizers = marked;
    }
    Ok(Model { recipe, tokenizers, weights, architecture })
}

/// Architecture with the name `specification`, which was read from a file. `shown` returns the
/// file's path, for the error.
fn architecture(specification: &str, shown: impl Fn() -> String) -> Result<&'static Architecture> {
    let known = FAMILY.architectures;
    known.iter().find(|one| one.name == specification).with_context(|| {
        let known: Vec<&str> = known.iter().map(|one| one.name).collect();
        format!(
            "{}: a {specification}, which cannot be imported: only {} can",
            shown(),
            known.join(" and ")
        )
    })
}

/// Ids of the tokens that the model never writes, because their output biases are too small.
fn never_written(weights: &Weights) -> Result<Vec<usize>> {
    if !weights.has(OUTPUT_BIAS) {
        return Ok(Vec::new());
    }
    let biases = weights.values(OUTPUT_BIAS)?;
    let never = biases.iter().enumerate().filter(|(_, bias)| **bias < NEVER);
    Ok(never.map(|(id, _)| id).collect())
}

/// Adds a row to the embedding and output matrices, which have `rows` rows, for Marian's padding
/// token. Marian's decoder reads this token first and never writes it, and its embedding is zero.
/// CTranslate2 stores no row for it: the attribute `start_from_zero_embedding` makes the decoder
/// start from a zero embedding.
fn add_start(weights: &mut Weights, rows: usize) {
    for name in [EMBEDDING, OF_SOURCE, OUTPUT] {
        weights.append_row(name, 0.0);
    }
    match weights.has(OUTPUT_BIAS) {
        true => weights.append_row(OUTPUT_BIAS, ABSENT),
        false => {
            let mut biases = vec![0.0; rows];
            biases.push(ABSENT);
            weights.add_vector(OUTPUT_BIAS, biases);
        }
    }
}

/// Sets `decoding` to the default search of CTranslate2.
fn search(decoding: &mut DecodingConfig) {
    *decoding = DecodingConfig {
        beam_size: 2,
        length_penalty: 1.0,
        length_penalty_form: LengthPenaltyForm::Power,
        patience: 1.0,
        max_length: 256,
        max_length_ratio: 0.0,
        max_length_offset: 256,
        allow_unknown: true,
        ..DecodingConfig::default()
    };
}
