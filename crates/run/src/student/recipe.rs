//! Recipe (settings of the training) of a student, a small model that learns from the translations
//! of large ones.

use std::path::Path;

use anyhow::{Context, Result};
use taper_data::TokenizerPair;
use taper_decoding::{DecodingConfig, RerankingConfig, SamplingConfig};
use taper_model::{ModelConfig, NormPlacement, Tied};
use taper_trainer::TrainingConfig;
use toml::{Table, Value};

use crate::config::{RunConfig, text};
use crate::pipeline::absolute;

/// Largest width (`d_model`) of a student in the recipe that is written for it.
const MOST_WIDTH: usize = 256;
/// Width of a head if the student is narrower than its teacher, or its width is not a multiple of
/// the teacher's number of heads.
const HEAD_WIDTH: usize = 32;
/// Layers of the encoder. A source is encoded once, so a deep encoder costs little.
const ENCODER_LAYERS: usize = 6;
/// Layers of the decoder, which runs once for each token of a translation.
const DECODER_LAYERS: usize = 2;
/// Keys that are written even if they have their defaults. If the keys of `[data]` and
/// `[evaluation]` were left out, the recipe would mean other files, or another tokenizer for BLEU.
/// The keys of `[model]` give the size of the model.
const ALWAYS: [(&str, &[&str]); 3] = [
    ("data", &["dir", "source_language", "target_language", "train", "validation", "test"]),
    ("evaluation", &["tokenize"]),
    ("model", &["d_model", "d_ff", "heads", "encoder_layers", "decoder_layers"]),
];

/// Recipe of a student of the run `teacher`, whose recipe is `config`, as TOML. Keys with their
/// defaults are left out.
///
/// # Errors
/// When a value cannot be written as TOML.
pub(super) fn text(teacher: &Path, config: &RunConfig) -> Result<String> {
    let recipe = student(teacher, config)?;
    let mut table = text::table(&recipe)?;
    let mut usual = text::table(&RunConfig::default())?;
    for (section, keys) in ALWAYS {
        if let Some(section) = usual.get_mut(section).and_then(Value::as_table_mut) {
            keys.iter().for_each(|key| drop(section.remove(*key)));
        }
    }
    remove_equal(&mut table, &usual);
    let text = toml::to_string(&table).context("the recipe cannot be written as TOML")?;
    Ok(format!(
        "# A student of {}: a deep encoder, a light decoder, greedy search with a\n\
         # vocabulary shortlist.\n\
         # The training text is the text that the teacher has translated.\n\n{text}",
        teacher.display()
    ))
}

fn student(teacher: &Path, config: &RunConfig) -> Result<RunConfig> {
    let mut student = config.clone();
    student.name = format!("{}-student", config.name);
    student.model = model(&config.model, config.data.tokenizer.joint);
    student.decoding = DecodingConfig {
        beam_size: 1,
        n_best: 1,
        shortlist: true,
        sampling: SamplingConfig::default(),
        reranking: RerankingConfig::default(),
        ..student.decoding
    };
    // These keys are about the weights or the layers of the teacher.
    let usual = TrainingConfig::default();
    student.training.freeze = usual.freeze;
    student.training.layer_decay = usual.layer_decay;
    // The text that the teacher has translated has no word links.
    student.training.guided_alignment = usual.guided_alignment;
    let (source, target) = TokenizerPair::files(&absolute(teacher)?);
    student.data.tokenizer.path = Some(source);
    student.data.tokenizer.target_path = target;
    // The normalisation is in the files of the tokenizers.
    student.data.nfkc = false;
    student.data.lowercase = false;
    student.evaluation.lowercase |= config.data.lowercase;
    Ok(student)
}

/// Model of a student. It is a Transformer with the dropout of the teacher, even if the teacher is
/// no Transformer.
fn model(teacher: &ModelConfig, is_joint: bool) -> ModelConfig {
    let is_narrower = teacher.d_model > MOST_WIDTH;
    let d_model = teacher.d_model.min(MOST_WIDTH);
    let heads = match is_narrower || !d_model.is_multiple_of(teacher.heads) {
        true => (d_model / HEAD_WIDTH).max(1),
        false => teacher.heads,
    };
    ModelConfig {
        d_model,
        d_ff: if is_narrower { 4 * d_model } else { teacher.d_ff },
        heads,
        encoder_layers: ENCODER_LAYERS,
        decoder_layers: DECODER_LAYERS,
        norm: NormPlacement::Pre,
        tied: if is_joint { Tied::All } else { Tied::Decoder },
        embedding_dropout: teacher.embedding_dropout,
        attention_dropout: teacher.attention_dropout,
        feed_forward_dropout: teacher.feed_forward_dropout,
        residual_dropout: teacher.residual_dropout,
        ..ModelConfig::default()
    }
}

/// Removes the keys from `table` that have the same values in `usual`.
fn remove_equal(table: &mut Table, usual: &Table) {
    table.retain(|key, value| match (value, usual.get(key)) {
        (Value::Table(section), Some(Value::Table(usual))) => {
            remove_equal(section, usual);
            !section.is_empty()
        }
        (value, Some(usual)) => value != usual,
        (_, None) => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_has_its_default() {
        let mut config = RunConfig { name: "teacher".to_owned(), ..RunConfig::default() };
        config.model.d_model = 512;
        config.training.max_updates = 123;
        config.data.dir = "/corpus".into();
        let mut written = text::table(&config).expect("a table");
        remove_equal(&mut written, &text::table(&RunConfig::default()).expect("a table"));
        let read: RunConfig = toml::from_str(&written.to_string()).expect("a recipe");
        assert_eq!(read, config);
        assert_eq!(written.len(), 3, "{written}");
    }

    #[test]
    fn a_student_is_no_wider_than_its_teacher_and_no_wider_than_256() {
        for (width, heads, expected) in [(512, 8, (256, 8, 1024)), (96, 6, (96, 6, 2048))] {
            let teacher = ModelConfig { d_model: width, heads, ..ModelConfig::default() };
            let student = model(&teacher, true);
            assert_eq!((student.d_model, student.heads, student.d_ff), expected);
            student.validate(true).expect("a valid model");
        }
    }
}
