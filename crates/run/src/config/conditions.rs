//! Conditions under which keys of a recipe have no effect. A recipe is a TOML file with the
//! settings of a training, and each of its keys is a field of a Rust type. The schema extension
//! `x-idle` of the field lists the names of the key's conditions. The conditions of a section hold
//! for all keys in the section.

use taper_data::{Format, ImageFormat, TokenizerKind};
use taper_model::AttentionKind::{
    Hierarchical, Linformer, Mamba, Performer, Reformer, S4d, Sparse, TransformerXl,
};
use taper_model::{
    Architecture, AttentionConfig, AttentionKind, ImageEncoder, ModelConfig, NormPlacement,
    Positions, RotaryScaling, Tied,
};
use taper_trainer::{OptimizerKind, ScheduleKind};

use super::RunConfig;
use crate::tasks::{Stacks, entry};

/// Condition under which keys of a recipe have no effect.
#[derive(Debug)]
pub(crate) struct Condition {
    /// Name by which the fields of keys refer to the condition in `x-idle`.
    pub name: &'static str,
    /// Reason why the keys have no effect, in words for users; `{section}` stands for the section
    /// of the key.
    reason: &'static str,
    /// Returns whether the condition holds for a recipe and the section of a key.
    holds: fn(&RunConfig, &str) -> bool,
}

impl Condition {
    /// Reason why a key of `section` has no effect, in words.
    pub(super) fn reason(&self, section: &str) -> String {
        self.reason.replace("{section}", section)
    }

    /// Whether the condition holds in the recipe `config` for keys of `section`.
    pub(super) fn holds(&self, config: &RunConfig, section: &str) -> bool {
        (self.holds)(config, section)
    }
}

/// Makes the table of conditions from entries with a name, a reason and an expression that is true
/// if the condition holds.
macro_rules! conditions {
    (|$config:ident, $section:ident| $($name:literal: $reason:literal, $holds:expr;)*) => {
        /// All conditions, in the order in which they are listed for users.
        pub(super) static CONDITIONS: &[Condition] = &[$(Condition {
            name: $name,
            reason: $reason,
            holds: |$config, $section| { let _ = $section; $holds },
        }),*];
    };
}

conditions! { |config, section|
    "no-adapters": "model.lora.rank is 0, so there are no adapters",
        !config.model.lora.is_on();
    "no-running-text": "the task has no running text",
        !reads(config, "data.text");
    "not-language-model": "task is not \"language-model\"",
        !entry(config.task).generates;
    "not-masked": "task is not \"masked-language-model\"",
        !reads(config, "data.masked");
    "no-labelled-texts": "task is neither \"classification\" nor \"tagging\"",
        !reads(config, "data.labelled");
    "not-classification": "task is not \"classification\"",
        !reads(config, "data.labelled.pairs");
    "no-tables-of-texts": "the task reads no tables of texts",
        !reads(config, "data.fields.text");
    "not-question-answering": "task is not \"question-answering\"",
        !reads(config, "data.questions");
    "no-images": "the task has no images",
        !config.task.reads_images();
    "nothing-pooled": "the task predicts nothing for a whole image or text",
        !reads(config, "model.pooling");
    "no-captions": "the task has no captions",
        !reads(config, "data.captions");
    "captions-in-table": "data.images.format is \"table\", whose captions are in the table",
        reads(config, "data.captions") && config.data.images.format == ImageFormat::Table;
    "not-image-text": "task is not \"image-text\"",
        stacks(config) != Stacks::TwoEncoders;
    "convolutional-images": "model.image_encoder is \"convolutional\"",
        is_of_images(config) && config.model.image_encoder == ImageEncoder::Convolutional;
    "not-regression": "task is not \"in-context-regression\"",
        !reads(config, "data.regression");
    "functions-drawn": "the task draws its functions in a random order",
        reads(config, "data.regression");
    "numbers-predicted": "the answers are numbers, not classes",
        reads(config, "data.regression");
    "no-text": "the task has no text",
        !config.task.reads_text();
    "norm-in-any-case": "the model is an encoder of texts, which always has this norm",
        config.task.reads_text() && stacks(config) == Stacks::Encoder;
    "bias-in-any-case": "the model is a masked language model, which always has this bias",
        reads(config, "data.masked");
    "no-segments": "the model does not read pairs of texts",
        !(config.task.reads_text() && stacks(config) == Stacks::Encoder);
    "positions-of-patches": "the model reads images, which have a position for each patch",
        is_of_images(config);
    "no-images-drawn": "data.images.hold_out is 0 and data.images.fraction is 1, so nothing is \
        drawn",
        config.data.images.hold_out == 0 && config.data.images.fraction == 1.0;
    "no-decoder": "the model has no decoder",
        stacks(config) == Stacks::Encoder;
    "no-encoder": "the model has no encoder",
        stacks(config) == Stacks::Decoder;
    "classifier": "the model is a classifier, which has no projection to the vocabulary",
        stacks(config) == Stacks::Encoder && !entry(config.task).pretrains;
    "texts-only-read": "the model only reads texts, so it has no projection to the vocabulary",
        stacks(config) == Stacks::TwoEncoders;
    "no-beam": "the task has no beam search",
        !entry(config.task).writes;
    "not-translation": "task is not \"translation\"",
        !entry(config.task).translates;
    "one-embedding": "the model has one embedding, so \"decoder\" means \"all\"",
        !entry(config.task).translates && config.model.tied == Tied::Decoder;
    "characters": "data.tokenizer.kind is \"char\", whose tokens are the characters of the \
        training text",
        config.data.tokenizer.kind == TokenizerKind::Char;
    "bytes": "data.tokenizer.kind is \"bytes\", which can spell every character",
        config.data.tokenizer.kind == TokenizerKind::Bytes;
    "no-tables": "no corpus is a table",
        !has_table(config);
    "not-hub": "data.format is not \"hub\"",
        config.data.format != Format::Hub;
    "tokenizer-given": "data.tokenizer.path names an existing tokenizer",
        config.data.tokenizer.path.is_some();
    "not-shuffled": "data.batching.shuffle is false, which keeps the order of the text",
        !config.data.batching.shuffle;
    "not-grouped": "data.batching.group_by_length is false",
        config.data.batching.shuffle && !config.data.batching.group_by_length;
    "lion": "training.optimizer.kind is \"lion\", which has no such number",
        config.training.optimizer.kind == OptimizerKind::Lion;
    "not-muon": "training.optimizer.kind is not \"muon\"",
        config.training.optimizer.kind != OptimizerKind::Muon;
    "positions-not-learned": "model.positions is not \"learned\"",
        config.model.positions != Positions::Learned;
    "positions-not-sinusoidal": "model.positions is not \"sinusoidal\" or \"sinusoidal-halves\"",
        !config.model.positions.are_sinusoids();
    "positions-not-added": "model.positions is not \"sinusoidal\", \"sinusoidal-halves\" or \
        \"learned\"",
        !config.model.positions.are_added();
    "no-dropout": "no dropout is above 0, so both passes are the same",
        has_no_dropout(&config.model);
    "not-guided": "no attention is guided: task is not \"translation\", or \
        training.guided_alignment.weight is 0",
        !entry(config.task).translates
            || config.training.guided_alignment.guidance().is_none();
    "noam": "training.schedule.kind is \"noam\", whose rate follows from model.d_model and \
        training.schedule.scale",
        config.training.schedule.kind == ScheduleKind::Noam;
    "not-noam": "training.schedule.kind is not \"noam\"",
        config.training.schedule.kind != ScheduleKind::Noam;
    "constant-rate": "training.schedule.kind is \"constant\", whose rate does not fall",
        config.training.schedule.kind == ScheduleKind::Constant;
    "one-direction": "data.train has only one direction of translation",
        !config.data.is_multilingual();
    "no-validation": "nothing is validated",
        !config.task.validates(&config.data);
    "validations-not-compared": "the recipe compares no validations",
        !config.task.validates(&config.data) || config.training.validate_every == 0;
    "drawn": "translations are sampled, not searched for",
        config.decoding.sampling.is_active();
    "no-groups": "decoding.diverse_groups is 1",
        config.decoding.diverse_groups == 1;
    "not-drawn": "decoding.sampling.temperature is 0, so nothing is sampled",
        !config.decoding.sampling.is_active();
    "no-reranking": "decoding.reranking.candidates is 0, so there is no choice",
        !config.decoding.reranking.is_active();
    "no-pruning": "decoding.reranking.pruning.confidence is 0, so nothing is pruned",
        !config.decoding.reranking.pruning.is_active();
    "no-utility": "decoding.reranking.utility_weight is 0, so candidates are not compared",
        config.decoding.reranking.utility_weight == 0.0;
    "no-reverse": "decoding.reranking.reverse names no run",
        config.decoding.reranking.reverse.is_none();
    "no-language-model": "decoding.reranking.language_model names no run",
        config.decoding.reranking.language_model.is_none();
    "no-length-penalty": "decoding.length_penalty is 0",
        config.decoding.length_penalty == 0.0;
    "no-test": "no test set is decoded after the training",
        config.data.test.is_empty() || !config.evaluation.test_after_training;
    "not-recurrent": "model.architecture is not \"recurrent\"",
        config.model.architecture != Architecture::Recurrent;
    "not-convolutional": "model.architecture is not \"convolutional\"",
        config.model.architecture != Architecture::Convolutional;
    "positions-by-steps": "model.architecture is \"recurrent\", which encodes positions by its \
                           steps",
        config.model.architecture == Architecture::Recurrent;
    "not-transformer": "model.architecture is not \"transformer\"",
        config.model.architecture != Architecture::Transformer;
    "no-final-norm": "model.norm is \"post\", so no stack has a final norm",
        config.model.norm == NormPlacement::Post;
    "no-norms": "model.architecture is not \"transformer\" and model.embedding_norm is false",
        config.model.architecture != Architecture::Transformer && !config.model.embedding_norm;
    "no-biases": "model.biases is false",
        !config.model.biases;
    "recurrent": "model.architecture is \"recurrent\", whose attention has no separate dropout",
        config.model.architecture == Architecture::Recurrent;
    "kind-of-each-layer": "{section}.kinds names one for each layer",
        !attention(config, section).kinds.is_empty();
    "not-sparse": "{section}.kind is not \"sparse\"",
        !attention(config, section).has(Sparse);
    "not-performer": "{section}.kind is not \"performer\"",
        !attention(config, section).has(Performer);
    "not-linformer": "{section}.kind is not \"linformer\"",
        !attention(config, section).has(Linformer);
    "not-reformer": "{section}.kind is not \"reformer\"",
        !attention(config, section).has(Reformer);
    "not-hierarchical": "{section}.kind is not \"hierarchical\"",
        !attention(config, section).has(Hierarchical);
    "not-transformer-xl": "{section}.kind is not \"transformer-xl\"",
        !attention(config, section).has(TransformerXl);
    "attention-without-draws": "{section}.kind uses no random numbers",
        ![Sparse, Performer, Reformer].iter().any(|&kind| attention(config, section).has(kind));
    "no-experts": "model.experts.count is 0",
        config.model.experts.count == 0;
    "on-gpu": "the device is a GPU, where every activation is kept",
        !matches!(config.device.as_str(), "auto" | "cpu");
    "no-state-space": "no layer is \"mamba\" or \"s4d\"",
        !has_layer(config, Mamba) && !has_layer(config, S4d);
    "no-mamba": "no layer is \"mamba\"",
        !has_layer(config, Mamba);
    "not-t5": "model.positions is not \"t5\"",
        config.model.positions != Positions::T5;
    "not-rotary": "model.positions is not \"rotary\"",
        config.model.positions != Positions::Rotary;
    "rotary-not-scaled": "model.rotary.scaling is \"none\"",
        config.model.rotary.scaling == RotaryScaling::None;
    "rotary-not-by-rotations": "model.rotary.scaling is neither \"llama3\" nor \"yarn\"",
        !matches!(
            config.model.rotary.scaling,
            RotaryScaling::Llama3 | RotaryScaling::Yarn
        );
    "rotary-without-length":
        "model.rotary.scaling is \"none\", \"interpolation\" or \"ntk\"",
        matches!(
            config.model.rotary.scaling,
            RotaryScaling::None | RotaryScaling::Interpolation | RotaryScaling::Ntk
        );
    "rotary-dual-chunk": "model.rotary.scaling is \"dual-chunk\"",
        config.model.rotary.scaling == RotaryScaling::DualChunk;
    "rotary-not-dual-chunk": "model.rotary.scaling is not \"dual-chunk\"",
        config.model.rotary.scaling != RotaryScaling::DualChunk;
    "rotary-not-yarn": "model.rotary.scaling is not \"yarn\"",
        config.model.rotary.scaling != RotaryScaling::Yarn;
}

/// Attention settings of the encoder or decoder to which `section` belongs.
fn attention<'a>(config: &'a RunConfig, section: &str) -> &'a AttentionConfig {
    match section {
        "model.encoder_attention" => &config.model.encoder_attention,
        _ => &config.model.decoder_attention,
    }
}

/// Whether the task of a recipe uses `key`, the name of a section or key that only some tasks use.
fn reads(config: &RunConfig, key: &str) -> bool {
    entry(config.task).reads.contains(&key)
}

fn stacks(config: &RunConfig) -> Stacks {
    entry(config.task).stacks
}

/// Whether the model of a recipe consists of an image encoder and nothing else.
fn is_of_images(config: &RunConfig) -> bool {
    config.task.reads_images() && stacks(config) == Stacks::Encoder
}

fn has_table(config: &RunConfig) -> bool {
    let data = &config.data;
    let mut corpora = [&data.train, &data.validation, &data.test].into_iter();
    data.format != Format::Text
        || corpora.any(|corpora| corpora.iter().any(|corpus| !corpus.file.is_empty()))
}

/// Whether the encoder or the decoder has a layer with attention of this kind.
fn has_layer(config: &RunConfig, kind: AttentionKind) -> bool {
    config.model.encoder_attention.has(kind) || config.model.decoder_attention.has(kind)
}

fn has_no_dropout(model: &ModelConfig) -> bool {
    let rates = [
        model.embedding_dropout,
        model.attention_dropout,
        model.feed_forward_dropout,
        model.residual_dropout,
        model.final_dropout,
    ];
    rates.iter().all(|rate| *rate == 0.0)
}
