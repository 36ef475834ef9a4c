//! A BERT: what its `config.json` says, what its tensors are called, and both ways between a folder
//! and a run.
//!
//! One for pretraining, with or without the head for the next sentence, becomes a masked language
//! model, one for the classification of texts a classifier, and one for questions a reader of spans.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail};
use candle_core::Device;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use taper_data::Task;
use taper_model::{
    MaskedLanguageModel, Model, ModelConfig, NormPlacement, Positions, SpanExtractor,
    TextClassifier, Tied,
};

use super::export::write;
use super::import::{Read, run_config};
use super::tokens::Exported;
use super::weights::{Counterpart, Tensors, named};
use super::{CONFIG, WEIGHTS, activation, activation_name, require_expressed, tokens};
use crate::LoadedRun;
use crate::config::RunConfig;
use crate::tasks::{TaskModel, build_model};

/// What Transformers calls a BERT with a head for the classes of texts.
const CLASSIFIER: &str = "BertForSequenceClassification";
/// And one with a head for the spans that answer questions.
const SPAN_EXTRACTOR: &str = "BertForQuestionAnswering";
/// The head of the next sentence, by which a file for pretraining with it is known.
const NEXT_SENTENCE: &str = "cls.seq_relationship.weight";
/// The output projection, where it is not the embedding.
const PROJECTION: &str = "cls.predictions.decoder.weight";
/// What is added to its logits.
const OUTPUT_BIAS: &str = "cls.predictions.bias";
/// The projections of attention there, which are one here, in its order.
const PROJECTIONS: [&str; 3] = ["query", "key", "value"];
/// Kinds of segments that a model of ours has.
const SEGMENTS: usize = 2;

/// The keys of `config.json` that shape a BERT; others change nothing here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct BertConfig {
    model_type: String,
    #[serde(default)]
    architectures: Vec<String>,
    vocab_size: usize,
    hidden_size: usize,
    num_hidden_layers: usize,
    num_attention_heads: usize,
    intermediate_size: usize,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default = "usual_dropout")]
    hidden_dropout_prob: f64,
    #[serde(default = "usual_dropout")]
    attention_probs_dropout_prob: f64,
    max_position_embeddings: usize,
    #[serde(default = "usual_segments")]
    type_vocab_size: usize,
    #[serde(default = "usual_epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "yes")]
    tie_word_embeddings: bool,
    #[serde(default)]
    is_decoder: bool,
    #[serde(default)]
    add_cross_attention: bool,
    #[serde(default = "absolute")]
    position_embedding_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    problem_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    id2label: BTreeMap<usize, String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    label2id: BTreeMap<String, usize>,
}

fn gelu() -> String {
    "gelu".to_owned()
}

fn usual_dropout() -> f64 {
    0.1
}

fn usual_segments() -> usize {
    SEGMENTS
}

fn usual_epsilon() -> f64 {
    1e-12
}

fn yes() -> bool {
    true
}

fn absolute() -> String {
    "absolute".to_owned()
}

impl BertConfig {
    /// The model that these keys describe.
    ///
    /// # Errors
    /// When it is none of ours, with the key.
    fn model(&self) -> Result<ModelConfig> {
        for (key, is_other) in [
            ("is_decoder", self.is_decoder),
            ("add_cross_attention", self.add_cross_attention),
            ("type_vocab_size", self.type_vocab_size != SEGMENTS),
            ("position_embedding_type", self.position_embedding_type != absolute()),
        ] {
            if is_other {
                bail!("{key} has another value than BERT's, which this model cannot have");
            }
        }
        Ok(ModelConfig {
            d_model: self.hidden_size,
            d_ff: self.intermediate_size,
            heads: self.num_attention_heads,
            encoder_layers: self.num_hidden_layers,
            activation: activation("hidden_act", &self.hidden_act)?,
            norm: NormPlacement::Post,
            norm_epsilon: self.layer_norm_eps,
            positions: Positions::Learned,
            max_positions: self.max_position_embeddings,
            tied: if self.tie_word_embeddings { Tied::All } else { Tied::None },
            scale_embeddings: false,
            biases: true,
            embedding_dropout: self.hidden_dropout_prob,
            attention_dropout: self.attention_probs_dropout_prob,
            feed_forward_dropout: 0.0,
            residual_dropout: self.hidden_dropout_prob,
            ..ModelConfig::default()
        })
    }

    /// The labels of a classifier, in the order of the classes.
    fn labels(&self) -> Result<Vec<String>> {
        if let Some(kind) = self.problem_type.as_deref()
            && kind != "single_label_classification"
        {
            bail!("problem_type is {kind}: a classifier of ours gives each text one label");
        }
        if !self.id2label.keys().copied().eq(0..self.id2label.len()) || self.id2label.is_empty() {
            bail!("id2label has not the labels from 0 on");
        }
        Ok(self.id2label.values().cloned().collect())
    }

    /// The keys of a model with a vocabulary of this size.
    ///
    /// # Errors
    /// When a BERT cannot be such a model, with the setting.
    fn of(model: &ModelConfig, vocabulary: usize, architecture: &str) -> Result<Self> {
        let config = Self {
            model_type: "bert".to_owned(),
            architectures: vec![architecture.to_owned()],
            vocab_size: vocabulary,
            hidden_size: model.d_model,
            num_hidden_layers: model.encoder_layers,
            num_attention_heads: model.heads,
            intermediate_size: model.d_ff,
            hidden_act: activation_name(model.activation),
            hidden_dropout_prob: model.residual_dropout,
            attention_probs_dropout_prob: model.attention_dropout,
            max_position_embeddings: model.max_positions,
            type_vocab_size: SEGMENTS,
            layer_norm_eps: model.norm_epsilon,
            tie_word_embeddings: model.tied != Tied::None,
            is_decoder: false,
            add_cross_attention: false,
            position_embedding_type: absolute(),
            problem_type: None,
            id2label: BTreeMap::new(),
            label2id: BTreeMap::new(),
        };
        // What BERT has no key for must be as it is there. Dropout shapes no weights.
        let usual = config.model()?;
        let expressed = ModelConfig {
            // Only a classifier pools.
            pooling: if architecture == CLASSIFIER { usual.pooling } else { model.pooling },
            decoder_layers: model.decoder_layers,
            decoder_attention: model.decoder_attention.clone(),
            embedding_dropout: model.embedding_dropout,
            feed_forward_dropout: model.feed_forward_dropout,
            tied: model.tied,
            ..usual
        };
        require_expressed("BERT", &expressed, model)?;
        Ok(config)
    }
}

/// Whether `config.json` is that of a classifier of texts.
pub(super) fn is_classifier(keys: &Value) -> bool {
    is_a(CLASSIFIER, keys)
}

/// Whether `config.json` is that of a reader of spans.
pub(super) fn is_span_extractor(keys: &Value) -> bool {
    is_a(SPAN_EXTRACTOR, keys)
}

fn is_a(architecture: &str, keys: &Value) -> bool {
    let architectures = keys["architectures"].as_array();
    architectures.into_iter().flatten().any(|name| name == architecture)
}

/// What BERT has for the parameter `name`.
fn counterpart(name: &str, shape: &[usize]) -> Option<Counterpart> {
    let same = |name: &str| Some(Counterpart::same(name, shape));
    match name {
        "output.weight" => return same(PROJECTION),
        "output.bias" => return same(OUTPUT_BIAS),
        _ => {}
    }
    let (module, kind) = name.rsplit_once('.')?;
    let with_kind = |module: &str| format!("{module}.{kind}");
    if let Some((layer, part)) =
        module.strip_prefix("encoder.layers.").and_then(|rest| rest.split_once('.'))
    {
        let theirs = |part: &str| with_kind(&format!("bert.encoder.layer.{layer}.{part}"));
        if part == "self_attention.qkv" {
            let names = PROJECTIONS.map(|one| theirs(&format!("attention.self.{one}")));
            return Some(Counterpart::in_parts(names.into(), shape));
        }
        return same(&theirs(match part {
            "self_attention.out" => "attention.output.dense",
            "self_attention_norm" => "attention.output.LayerNorm",
            "feed_forward.up" => "intermediate.dense",
            "feed_forward.down" => "output.dense",
            "feed_forward_norm" => "output.LayerNorm",
            _ => return None,
        }));
    }
    same(&with_kind(match module {
        "embedding" => "bert.embeddings.word_embeddings",
        "encoder.positions" => "bert.embeddings.position_embeddings",
        "encoder.segments" => "bert.embeddings.token_type_embeddings",
        "encoder.embedding_norm" => "bert.embeddings.LayerNorm",
        "pooler" => "bert.pooler.dense",
        "transform" => "cls.predictions.transform.dense",
        "transform_norm" => "cls.predictions.transform.LayerNorm",
        "next_sentence" => "cls.seq_relationship",
        "classes" => "classifier",
        "span" => "qa_outputs",
        _ => return None,
    }))
}

/// The name of a tensor as newer files have it: older ones call the parameters of norms gamma and
/// beta.
fn newer_name(name: &str) -> String {
    match name.rsplit_once('.') {
        Some((module, "gamma")) => format!("{module}.weight"),
        Some((module, "beta")) => format!("{module}.bias"),
        _ => name.to_owned(),
    }
}

/// The masked language model of a folder, as a run called `name`.
///
/// # Errors
/// When a file is missing or damaged, the model is not one of ours, or the tensors are not those of
/// `config.json`.
pub(super) fn read(source: &Path, name: String, keys: Value) -> Result<Read<MaskedLanguageModel>> {
    let (theirs, mut config) = described(source, name, keys, Task::MaskedLanguageModel)?;
    let weights = source.join(WEIGHTS);
    let tensors = tensors(&weights)?;
    config.data.text.block_length = theirs.max_position_embeddings;
    config.data.masked.next_sentence = tensors.has(NEXT_SENTENCE);
    finish(source, (&theirs, config), tensors, leave_pooler_out)
}

/// Some files have the head that whole texts are read from, though nothing reads them.
fn leave_pooler_out(left: &mut Tensors) {
    left.leave_out(|name| name.starts_with("bert.pooler."));
}

/// The classifier of texts of a folder, as a run called `name`.
///
/// # Errors
/// As [`read`]; and when it gives a text no label, or several.
pub(super) fn read_classifier(
    source: &Path,
    name: String,
    keys: Value,
) -> Result<Read<TextClassifier>> {
    let (theirs, mut config) = described(source, name, keys, Task::Classification)?;
    config.data.labelled.labels =
        theirs.labels().with_context(|| source.join(CONFIG).display().to_string())?;
    config.data.labelled.max_tokens = theirs.max_position_embeddings;
    let tensors = tensors(&source.join(WEIGHTS))?;
    finish(source, (&theirs, config), tensors, |_| {})
}

/// The reader of spans of a folder, as a run called `name`.
///
/// # Errors
/// As [`read`].
pub(super) fn read_span_extractor(
    source: &Path,
    name: String,
    keys: Value,
) -> Result<Read<SpanExtractor>> {
    let (theirs, mut config) = described(source, name, keys, Task::QuestionAnswering)?;
    let (questions, positions) = (&mut config.data.questions, theirs.max_position_embeddings);
    questions.max_tokens = questions.max_tokens.min(positions);
    // Most of few positions are for the context.
    questions.max_question_tokens = questions.max_question_tokens.min(positions / 4).max(1);
    let tensors = tensors(&source.join(WEIGHTS))?;
    finish(source, (&theirs, config), tensors, leave_pooler_out)
}

/// What `config.json` says, and the recipe of a run of that task.
fn described(
    source: &Path,
    name: String,
    keys: Value,
    task: Task,
) -> Result<(BertConfig, RunConfig)> {
    let path = source.join(CONFIG);
    let theirs: BertConfig = serde_json::from_value(keys)
        .with_context(|| format!("{}: not the config.json of a BERT", path.display()))?;
    let model = theirs.model().with_context(|| path.display().to_string())?;
    let mut config = run_config(name, task, model);
    config.data.tokenizer.vocabulary_size = theirs.vocab_size;
    Ok((theirs, config))
}

fn tensors(path: &Path) -> Result<Tensors> {
    let mut tensors =
        Tensors::read(path, newer_name).with_context(|| path.display().to_string())?;
    // A list of numbers that older files keep beside the weights.
    tensors.leave_out(|name| name.ends_with("embeddings.position_ids"));
    Ok(tensors)
}

/// The model with its weights; `leave_out` is told of what they do not fill.
fn finish<M: TaskModel>(
    source: &Path,
    (theirs, config): (&BertConfig, RunConfig),
    mut tensors: Tensors,
    leave_out: impl Fn(&mut Tensors),
) -> Result<Read<M>> {
    let tokenizers = tokens::read(source, theirs.vocab_size)?;
    config.validate().with_context(|| source.join(CONFIG).display().to_string())?;
    let model: M = build_model(&config, &tokenizers, &Device::Cpu, None)?;
    let mut fill = || {
        tensors.fill(model.parameters(), counterpart)?;
        leave_out(&mut tensors);
        // What is tied stands in some files a second time.
        let embedding = model.parameters().get("embedding.weight");
        tensors.take_copy(PROJECTION, embedding)?;
        let bias = model.parameters().get("output.bias");
        tensors.take_copy("cls.predictions.decoder.bias", bias)?;
        tensors.require_none_left("BERT")
    };
    fill().with_context(|| source.join(WEIGHTS).display().to_string())?;
    Ok(Read { config, tokenizers, model, sha256: tensors.sha256 })
}

/// Writes the masked language model of `run` into `folder` as Transformers' `BertForPreTraining`, or
/// without a head for the next sentence its `BertForMaskedLM`; it must be no folder yet or an empty
/// one.
///
/// # Errors
/// When a BERT cannot be such a model, or the folder cannot be written.
pub fn export_bert(run: &LoadedRun<MaskedLanguageModel>, folder: &Path) -> Result<()> {
    let architecture = match run.config.data.masked.next_sentence {
        true => "BertForPreTraining",
        false => "BertForMaskedLM",
    };
    let config = BertConfig::of(run.model.config(), run.model.vocabulary(), architecture)
        .context("cannot be exported as a BERT")?;
    write_run(run, &config, run.config.data.text.block_length, folder)
}

/// Writes the classifier of `run` into `folder` as Transformers' `BertForSequenceClassification`, with
/// its labels; it must be no folder yet or an empty one.
///
/// # Errors
/// When a BERT cannot be such a model, or the folder cannot be written.
pub fn export_bert_classifier(run: &LoadedRun<TextClassifier>, folder: &Path) -> Result<()> {
    let vocabulary = run.tokenizers.target().vocabulary_size();
    let config = BertConfig::of(&run.config.model, vocabulary, CLASSIFIER)
        .context("cannot be exported as a BERT")?;
    let labels = || run.config.data.labelled.labels.iter().cloned().enumerate();
    let config = BertConfig {
        id2label: labels().collect(),
        label2id: labels().map(|(index, label)| (label, index)).collect(),
        ..config
    };
    write_run(run, &config, run.config.data.labelled.max_tokens, folder)
}

/// Writes the reader of spans of `run` into `folder` as Transformers' `BertForQuestionAnswering`; it
/// must be no folder yet or an empty one.
///
/// # Errors
/// When a BERT cannot be such a model, or the folder cannot be written.
pub fn export_bert_span_extractor(run: &LoadedRun<SpanExtractor>, folder: &Path) -> Result<()> {
    let config = BertConfig::of(run.model.config(), run.model.vocabulary(), SPAN_EXTRACTOR)
        .context("cannot be exported as a BERT")?;
    write_run(run, &config, run.config.data.questions.max_tokens, folder)
}

/// Writes a run; a text of it has at most `longest` tokens.
fn write_run<M: Model>(
    run: &LoadedRun<M>,
    config: &BertConfig,
    longest: usize,
    folder: &Path,
) -> Result<()> {
    let tokenizer = run.tokenizers.target();
    let tensors = named(run.model.parameters(), "BERT", counterpart)?;
    let exported = Exported::Reads { hidden: run.config.task == Task::MaskedLanguageModel };
    let longest = longest.min(config.max_position_embeddings);
    write(folder, &tensors, (config, exported.ids(tokenizer)), |folder| {
        tokens::write(folder, tokenizer, exported, longest)
    })
}
