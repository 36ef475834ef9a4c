//! Facts about all tasks.

use taper_data::Task;

use super::{Examples, InputKind, PredictionEntry, Stacks, TaskEntry};
use crate::advice::Verb;

/// Facts about a task.
#[must_use]
pub const fn entry(task: Task) -> &'static TaskEntry {
    match task {
        Task::Translation => &TRANSLATION,
        Task::LanguageModel => &LANGUAGE_MODEL,
        Task::MaskedLanguageModel => &MASKED_LANGUAGE_MODEL,
        Task::Classification => &CLASSIFICATION,
        Task::Tagging => &TAGGING,
        Task::QuestionAnswering => &QUESTION_ANSWERING,
        Task::ImageClassification => &IMAGE_CLASSIFICATION,
        Task::Captions => &CAPTIONS,
        Task::ImageText => &IMAGE_TEXT,
        Task::InContextRegression => &IN_CONTEXT_REGRESSION,
    }
}

/// One of the [`uses`](TaskEntry::uses) of most tasks: to score a trained model on test sets.
const MEASURES: (Verb, &str) = (Verb::Evaluate, "measures it");

/// Values that most tasks have in common; each task sets the fields in which it differs.
const USUAL: TaskEntry = TaskEntry {
    stacks: Stacks::Encoder,
    translates: false,
    generates: false,
    writes: false,
    pretrains: false,
    hides_tokens: false,
    reads_pairs: false,
    predicts_classes: true,
    embeds: false,
    begins_with: &[],
    reads: &[],
    learns_from: None,
    predicts: None,
    hides_attention: None,
    not_served: None,
    hub_name: None,
    peft_name: None,
    uses: &[],
    next: (Verb::Evaluate, "measure it"),
};

const TRANSLATION: TaskEntry = TaskEntry {
    stacks: Stacks::EncoderDecoder,
    translates: true,
    writes: true,
    embeds: true,
    hub_name: Some("translation"),
    peft_name: Some("SEQ_2_SEQ_LM"),
    learns_from: Some(Examples::Pairs),
    uses: &[(Verb::Translate, "translates with it"), (Verb::ScorePairs, "scores pairs")],
    next: (Verb::Translate, "type sentences, or pipe a file in"),
    ..USUAL
};

const LANGUAGE_MODEL: TaskEntry = TaskEntry {
    stacks: Stacks::Decoder,
    generates: true,
    embeds: true,
    reads: &["data.text", "data.fields.text"],
    hub_name: Some("text-generation"),
    peft_name: Some("CAUSAL_LM"),
    learns_from: Some(Examples::Texts),
    uses: &[(Verb::Generate, "continues text"), MEASURES, (Verb::ScoreTexts, "scores texts")],
    next: (Verb::Generate, "go on with a text"),
    ..USUAL
};

const MASKED_LANGUAGE_MODEL: TaskEntry = TaskEntry {
    pretrains: true,
    embeds: true,
    reads: &["data.text", "data.masked", "data.fields.text"],
    learns_from: Some(Examples::Texts),
    not_served: Some(
        "a masked language model cannot answer requests; serve a classifier that was trained from \
         it",
    ),
    hub_name: Some("fill-mask"),
    hides_tokens: true,
    uses: &[MEASURES, (Verb::BeginWith, "makes a classifier of it")],
    next: (Verb::BeginWith, "make a classifier of it"),
    ..USUAL
};

const CLASSIFICATION: TaskEntry = TaskEntry {
    begins_with: &[Task::MaskedLanguageModel],
    reads: &["data.labelled", "data.labelled.pairs", "data.fields.text", "model.pooling"],
    learns_from: Some(Examples::LabelledTexts),
    predicts: Some(PredictionEntry::new("labels texts", "labelling", InputKind::Lines("TEXTS"))),
    hub_name: Some("text-classification"),
    reads_pairs: true,
    uses: &[(Verb::Predict, "labels texts"), MEASURES],
    next: (Verb::Predict, "type texts, or pipe a file in"),
    ..USUAL
};

const TAGGING: TaskEntry = TaskEntry {
    begins_with: &[Task::MaskedLanguageModel],
    reads: &["data.labelled"],
    predicts: Some(PredictionEntry::new("tags texts", "tagging", InputKind::Lines("TEXTS"))),
    hides_attention: Some(
        "attention is not shown for runs that tag words; it is shown for classifiers, for example",
    ),
    hub_name: Some("token-classification"),
    uses: &[(Verb::Predict, "tags the words of texts"), MEASURES],
    next: (Verb::Predict, "tag the words of texts"),
    ..USUAL
};

const QUESTION_ANSWERING: TaskEntry = TaskEntry {
    begins_with: &[Task::MaskedLanguageModel],
    reads: &["data.questions"],
    predicts: Some(PredictionEntry::new(
        "answers questions",
        "answering",
        InputKind::Lines("QUESTIONS"),
    )),
    hides_attention: Some(
        "attention is not shown for runs that answer questions; it is shown for classifiers, for \
         example",
    ),
    hub_name: Some("question-answering"),
    reads_pairs: true,
    uses: &[(Verb::Predict, "answers questions about texts"), MEASURES],
    next: (Verb::Predict, "answer questions about texts, in JSON lines"),
    ..USUAL
};

const IMAGE_CLASSIFICATION: TaskEntry = TaskEntry {
    reads: &["model.pooling"],
    predicts: Some(PredictionEntry {
        draws_attention: true,
        ..PredictionEntry::new("labels images", "labelling", InputKind::Images)
    }),
    hides_attention: Some("the run looks at images"),
    hub_name: Some("image-classification"),
    uses: &[(Verb::PredictImages, "labels images"), MEASURES],
    next: (Verb::PredictImages, "label PNG or JPEG files"),
    ..USUAL
};

const CAPTIONS: TaskEntry = TaskEntry {
    stacks: Stacks::EncoderDecoder,
    writes: true,
    begins_with: &[Task::ImageClassification],
    reads: &["data.captions", "model.pooling"],
    predicts: Some(PredictionEntry::new("describes images", "describing", InputKind::Images)),
    hides_attention: Some("the run reads images with text; attention is only shown over words"),
    hub_name: Some("image-to-text"),
    uses: &[(Verb::PredictImages, "describes images"), MEASURES],
    next: (Verb::PredictImages, "describe PNG or JPEG files"),
    ..USUAL
};

const IMAGE_TEXT: TaskEntry = TaskEntry {
    stacks: Stacks::TwoEncoders,
    begins_with: &[Task::ImageClassification],
    reads: &["data.captions", "model.pooling"],
    predicts: Some(PredictionEntry {
        takes_prompts: true,
        ..PredictionEntry::new("compares images", "comparing", InputKind::Images)
    }),
    hides_attention: Some("the run reads images with text; attention is only shown over words"),
    hub_name: Some("zero-shot-image-classification"),
    uses: &[(Verb::MatchTexts, "finds the text that matches an image"), MEASURES],
    next: (Verb::MatchTexts, "find the text that fits an image"),
    ..USUAL
};

const IN_CONTEXT_REGRESSION: TaskEntry = TaskEntry {
    stacks: Stacks::Decoder,
    reads: &["data.regression"],
    predicts_classes: false,
    hides_attention: Some("the run reads points of functions; attention is only shown over words"),
    not_served: Some("a run of the task in-context-regression is not served"),
    uses: &[
        (Verb::Evaluate, "compares it with ridge regression"),
        (Verb::Report, "draws the comparison"),
    ],
    next: (Verb::Report, "draw its error and that of least squares"),
    ..USUAL
};
