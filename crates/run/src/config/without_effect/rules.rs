//! Conditions under which keys have no effect.

use taper_data::{Format, ImageFormat, Task, TokenizerKind};
use taper_model::{ImageEncoder, Positions, Tied};
use taper_trainer::{OptimizerKind, ScheduleKind};

use crate::config::RunConfig;

/// Rules: whether each applies, why keys then have no effect, and their names.
pub(super) fn rules(config: &RunConfig) -> Vec<(bool, &'static str, &'static [&'static str])> {
    let (data, model, training) = (&config.data, &config.model, &config.training);
    let (decoding, evaluation) = (&config.decoding, &config.evaluation);
    let schedule = training.schedule.kind;
    let has_table = data.format != Format::Text
        || [&data.train, &data.validation, &data.test]
            .iter()
            .any(|corpora| corpora.iter().any(|corpus| !corpus.file.is_empty()));
    let draws = decoding.sampling.is_active();
    let drops = [
        model.embedding_dropout,
        model.attention_dropout,
        model.feed_forward_dropout,
        model.residual_dropout,
    ];
    let task = config.task;
    let translates = task == Task::Translation;
    let (of_images, classifies) = (
        task == Task::ImageClassification,
        matches!(
            task,
            Task::Classification
                | Task::ImageClassification
                | Task::Tagging
                | Task::QuestionAnswering
        ),
    );
    let regresses = task == Task::InContextRegression;
    let captioned = matches!(task, Task::Captions | Task::ImageText);
    let writes = matches!(task, Task::Translation | Task::Captions);
    let encodes = classifies || task == Task::MaskedLanguageModel;
    let is_char = data.tokenizer.kind == TokenizerKind::Char;
    let mut rules: Vec<(bool, &'static str, &'static [&'static str])> = vec![
        (
            translates || classifies || captioned || regresses,
            "the task has no running text",
            &["data.text.block_length", "data.text.hold_out", "data.text.documents"],
        ),
        (task != Task::LanguageModel, "task is not \"language-model\"", &["data.text.barrier"]),
        (
            task != Task::MaskedLanguageModel,
            "task is not \"masked-language-model\"",
            &["data.masked.rate", "data.masked.whole_words", "data.masked.next_sentence"],
        ),
        (
            !matches!(task, Task::Classification | Task::Tagging),
            "task is neither \"classification\" nor \"tagging\"",
            &["data.labelled.labels", "data.labelled.max_tokens"],
        ),
        (
            task != Task::Classification,
            "task is not \"classification\"",
            &["data.labelled.pairs", "data.fields.label", "data.fields.text_pair"],
        ),
        (
            !matches!(task, Task::LanguageModel | Task::MaskedLanguageModel | Task::Classification),
            "the task reads no tables of texts",
            &["data.fields.text"],
        ),
        (
            task != Task::QuestionAnswering,
            "task is not \"question-answering\"",
            &[
                "data.questions.unanswerable",
                "data.questions.max_tokens",
                "data.questions.document_stride",
                "data.questions.max_question_tokens",
                "data.questions.max_answer_tokens",
            ],
        ),
        (
            !task.reads_images(),
            "the task has no images",
            &[
                "data.images.format",
                "data.images.labels",
                "data.images.size",
                "data.images.resize",
                "data.images.resize_to",
                "data.images.resample",
                "data.images.center_crop",
                "data.images.rescale",
                "data.images.channels",
                "data.images.patch",
                "data.images.mean",
                "data.images.deviation",
                "data.images.crop_padding",
                "data.images.flip",
                "data.images.erase",
                "data.images.hold_out",
                "data.images.fraction",
                "data.images.seed",
                "model.image_encoder",
            ],
        ),
        (
            !(task.reads_images() || task == Task::Classification),
            "the task tells nothing of a whole image or text",
            &["model.pooling"],
        ),
        (
            !captioned,
            "the task has no captions",
            &["data.captions.sentences", "data.captions.prompts", "data.captions.max_tokens"],
        ),
        (
            captioned && data.images.format == ImageFormat::Table,
            "data.images.format is \"table\", which has captions of its own",
            &["data.captions.sentences", "data.captions.prompts", "data.images.labels"],
        ),
        (
            task != Task::ImageText,
            "task is not \"image-text\"",
            &[
                "data.captions.prompts",
                "model.contrastive.dimensions",
                "model.contrastive.temperature",
                "model.contrastive.text_d_model",
                "model.contrastive.text_d_ff",
                "model.contrastive.text_heads",
            ],
        ),
        (
            of_images && model.image_encoder == ImageEncoder::Convolutional,
            "model.image_encoder is \"convolutional\"",
            &[
                "model.d_ff",
                "model.heads",
                "model.norm",
                "model.positions",
                "model.pooling",
                "model.attention_dropout",
                "model.embedding_dropout",
                "model.feed_forward_dropout",
            ],
        ),
        (
            !regresses,
            "task is not \"in-context-regression\"",
            &[
                "data.regression.dimensions",
                "data.regression.points",
                "data.regression.noise",
                "data.regression.functions",
                "data.regression.measured",
            ],
        ),
        (
            regresses,
            "functions are drawn, and have an order of their own",
            &["data.batching.shuffle"],
        ),
        (
            regresses,
            "answers are numbers, and no classes",
            &["training.label_smoothing", "model.tied", "model.output_bias"],
        ),
        (
            !task.reads_text(),
            "the task has no text",
            &[
                "data.nfkc",
                "data.lowercase",
                "data.tokenizer.kind",
                "data.tokenizer.vocabulary_size",
                "data.tokenizer.byte_fallback",
                "data.tokenizer.character_coverage",
                "data.tokenizer.max_pairs",
                "data.tokenizer.dropout",
                "data.tokenizer.sampling_alpha",
                "model.scale_embeddings",
                "model.embedding_norm",
            ],
        ),
        (
            encodes && task.reads_text(),
            "an encoder of texts has this norm in any case",
            &["model.embedding_norm"],
        ),
        (
            task == Task::MaskedLanguageModel,
            "a masked language model has this bias in any case",
            &["model.output_bias"],
        ),
        (of_images, "an image has as many positions as patches", &["model.max_positions"]),
        (
            data.images.hold_out == 0 && data.images.fraction == 1.0,
            "data.images.hold_out is 0 and data.images.fraction 1, so that nothing is drawn",
            &["data.images.seed"],
        ),
        (encodes, "the model has no decoder", &["model.decoder_layers"]),
        (
            task == Task::LanguageModel || regresses,
            "the model has no encoder",
            &["model.encoder_layers"],
        ),
        (
            classifies,
            "a classifier has no projection to the vocabulary",
            &["model.tied", "model.output_bias"],
        ),
        (
            task == Task::ImageText,
            "texts are read, and not written, so that nothing projects to the vocabulary",
            &["model.tied", "model.output_bias"],
        ),
        (
            !writes,
            "the task writes nothing that a beam searches for",
            &[
                "decoding.beam_size",
                "decoding.patience",
                "decoding.length_penalty",
                "decoding.length_penalty_form",
                "decoding.length_reward",
                "evaluation.tokenize",
                "evaluation.lowercase",
            ],
        ),
        (
            !translates,
            "task is not \"translation\"",
            &[
                "data.source_language",
                "data.target_language",
                "data.bidirectional_epochs",
                "data.cleaning.min_tokens",
                "data.cleaning.max_tokens",
                "data.cleaning.max_ratio",
                "data.cleaning.max_characters",
                "data.cleaning.drop_duplicates",
                "data.tokenizer.joint",
                "data.batching.group_by_length",
                "data.batching.length_noise",
                "model.encoder_attention.kind",
                "decoding.max_length_ratio",
                "decoding.max_length_offset",
                "evaluation.validation_sentences",
                "evaluation.samples",
            ],
        ),
        (
            !translates && model.tied == Tied::Decoder,
            "the model has one embedding, so that \"decoder\" is \"all\"",
            &["model.tied"],
        ),
        (
            is_char,
            "data.tokenizer.kind is \"char\", which has each character of the training text",
            &[
                "data.tokenizer.vocabulary_size",
                "data.tokenizer.byte_fallback",
                "data.tokenizer.character_coverage",
            ],
        ),
        (
            data.tokenizer.kind == TokenizerKind::Bytes,
            "data.tokenizer.kind is \"bytes\", which spell every character",
            &["data.tokenizer.byte_fallback", "data.tokenizer.character_coverage"],
        ),
        (!has_table, "no corpus is a table", &["data.fields.source", "data.fields.target"]),
        (
            data.format != Format::Hub,
            "data.format is not \"hub\"",
            &["data.hub.dataset", "data.hub.config"],
        ),
        (
            data.tokenizer.path.is_some(),
            "data.tokenizer.path names a tokenizer that is trained already",
            &[
                "data.tokenizer.kind",
                "data.tokenizer.vocabulary_size",
                "data.tokenizer.byte_fallback",
                "data.tokenizer.character_coverage",
                "data.tokenizer.max_pairs",
            ],
        ),
        (
            !data.batching.shuffle,
            "data.batching.shuffle is false, which keeps the order of the text",
            &["data.batching.group_by_length", "data.batching.length_noise"],
        ),
        (
            data.batching.shuffle && !data.batching.group_by_length,
            "data.batching.group_by_length is false",
            &["data.batching.length_noise"],
        ),
        (
            training.optimizer.kind == OptimizerKind::Lion,
            "training.optimizer.kind is \"lion\", which divides by nothing",
            &["training.optimizer.epsilon"],
        ),
        (
            model.positions != Positions::Learned,
            "model.positions is not \"learned\"",
            &["model.max_positions"],
        ),
        (
            drops.iter().all(|rate| *rate == 0.0),
            "no dropout is above 0, so that both passes are the same",
            &["training.r_drop"],
        ),
        (
            !translates || training.guided_alignment.guidance().is_none(),
            "no attention is guided: task is not \"translation\", or \
             training.guided_alignment.weight is 0",
            &[
                "data.train.links",
                "training.guided_alignment.layer",
                "training.guided_alignment.head",
            ],
        ),
        (!translates, "task is not \"translation\"", &["training.guided_alignment.weight"]),
        (
            schedule == ScheduleKind::Noam,
            "training.schedule.kind is \"noam\", whose rate follows from model.d_model and \
             training.schedule.scale",
            &["training.schedule.learning_rate"],
        ),
        (
            schedule != ScheduleKind::Noam,
            "training.schedule.kind is not \"noam\"",
            &["training.schedule.scale"],
        ),
        (
            schedule == ScheduleKind::Constant,
            "training.schedule.kind is \"constant\", which does not fall",
            &["training.schedule.minimum"],
        ),
        (
            !config.task.validates(data),
            "nothing is validated",
            &["training.early_stopping.metric", "evaluation.validation_sentences"],
        ),
        (
            !config.task.validates(data) || training.validate_every == 0,
            "no two validations are compared",
            &["training.keep_best", "training.early_stopping.minimum_change"],
        ),
        (
            draws,
            "translations are drawn, not searched for",
            &["decoding.beam_size", "decoding.patience"],
        ),
        (
            !draws,
            "decoding.sampling.temperature is 0, so that nothing is drawn",
            &["decoding.sampling.top_k", "decoding.sampling.top_p", "decoding.sampling.seed"],
        ),
        (
            decoding.length_penalty == 0.0,
            "decoding.length_penalty is 0",
            &["decoding.length_penalty_form"],
        ),
        (
            data.test.is_empty() || !evaluation.test_after_training,
            "no test set is decoded after the training",
            &["evaluation.samples"],
        ),
    ];
    rules.extend(model.architecture_without_effect());
    rules.extend(model.attention_without_effect());
    rules.push(model.experts_without_effect());
    rules.push((
        !matches!(config.device.as_str(), "auto" | "cpu"),
        "on a GPU every activation is kept",
        &["training.checkpoint_activations"],
    ));
    rules.extend(model.state_space_without_effect());
    rules.extend(model.rotary_without_effect());
    rules
}
