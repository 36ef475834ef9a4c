//! Facts about tasks, as data.

mod entries;

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use taper_data::Task;

use crate::advice::{Action, Advice, Verb};

pub use entries::entry;

/// Facts about a task that commands, checks, reports and servers ask for.
#[derive(Debug)]
pub struct TaskEntry {
    /// Stacks of layers of its models.
    pub stacks: Stacks,
    /// Whether its models read one language and write another, with a vocabulary for each.
    pub translates: bool,
    /// Whether its models continue a text, token by token.
    pub generates: bool,
    /// Whether its models' answers are written by a beam search.
    pub writes: bool,
    /// Whether its models are pretrained for other models to begin with their weights.
    pub pretrains: bool,
    /// Whether its models predict tokens that are hidden from them.
    pub hides_tokens: bool,
    /// Whether a row may have two texts.
    pub reads_pairs: bool,
    /// Whether an answer is one of several classes, and thus right or wrong.
    pub predicts_classes: bool,
    /// Whether its models give a text a vector.
    pub embeds: bool,
    /// Tasks whose trained models contain all parts that a model of this task shares with them.
    pub begins_with: &'static [Task],
    /// Sections and keys of recipes that only this task and perhaps a few others read.
    pub reads: &'static [&'static str],
    /// Examples from which models of the task can be fine-tuned by one command; `None`: only a
    /// recipe can fine-tune them.
    pub learns_from: Option<Examples>,
    /// Prediction for texts or images; `None` if the models predict nothing for a single one.
    pub predicts: Option<PredictionEntry>,
    /// Reason why attention is not shown over the words of a text; `None` if it is shown.
    pub hides_attention: Option<&'static str>,
    /// Reason why runs are not served; `None` if they are served.
    pub not_served: Option<&'static str>,
    /// Name of the task on hubs of models; `None` if hubs have none.
    pub hub_name: Option<&'static str>,
    /// Name of the task in PEFT; `None` if a name would make PEFT expect a head in the folder.
    pub peft_name: Option<&'static str>,
    /// Uses of a run of the task, each with its effect in the third person.
    pub uses: &'static [(Verb, &'static str)],
    /// First use of a trained run, and its effect.
    pub next: (Verb, &'static str),
}

impl TaskEntry {
    /// Advice to use a run of the task for what it is.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        self.uses.iter().map(|(verb, effect)| Advice::new(Action::Use(*verb), effect)).collect()
    }

    /// Whether marks surround each text of a row, as in encoders of texts.
    #[must_use]
    pub const fn marks_texts(&self) -> bool {
        !self.translates && !self.generates
    }
}

/// Kind of files in which the examples of a task are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Examples {
    /// Sentences with their translations.
    Pairs,
    /// Running text.
    Texts,
    /// Texts with a label each.
    LabelledTexts,
}

/// Stacks of layers of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stacks {
    /// Encoder, in which every token attends to all tokens.
    Encoder,
    /// Decoder, in which a token attends to itself and its predecessors.
    Decoder,
    /// Decoder that attends to an encoder.
    EncoderDecoder,
    /// Encoder of images and encoder of texts.
    TwoEncoders,
}

impl Stacks {
    /// Whether the stack that answers is a decoder.
    #[must_use]
    pub const fn answers_by_decoder(self) -> bool {
        matches!(self, Self::Decoder | Self::EncoderDecoder)
    }
}

/// Properties of predictions for texts or images.
#[derive(Debug)]
pub struct PredictionEntry {
    /// Verb phrase that describes the prediction, in the third person.
    pub does: &'static str,
    /// Participle that describes the prediction, for a progress bar.
    pub doing: &'static str,
    /// Items that the model reads.
    pub reads: InputKind,
    /// Whether prompts may be given with the items.
    pub takes_prompts: bool,
    /// Whether attention can be drawn on the items.
    pub draws_attention: bool,
}

impl PredictionEntry {
    /// Predictions that take no prompts, and whose attention is not drawn.
    pub(super) const fn new(does: &'static str, doing: &'static str, reads: InputKind) -> Self {
        Self { does, doing, reads, takes_prompts: false, draws_attention: false }
    }
}

/// Items for which something is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Lines of a file, with the name of such a file in a command.
    Lines(&'static str),
    /// Image files.
    Images,
}

/// Items of a request for predictions: lines or images, depending on the task's entry.
#[derive(Debug, Clone, Copy, Default)]
pub struct Items<'i> {
    /// Lines.
    pub lines: &'i [String],
    /// PNG and JPEG files.
    pub images: &'i [PathBuf],
    /// Texts that may describe an image.
    pub prompts: &'i [String],
    /// Number of lines before these, for the numbers in messages.
    pub before: usize,
}

/// Predictions for items; a bad item has an error in its place.
pub type Predictions = Result<Vec<Result<ItemPrediction>>>;

/// Receiver of the number of items done.
pub type OnProgress<'d> = &'d mut dyn FnMut(usize);

/// Prediction for an item.
#[derive(Debug, Clone)]
pub struct ItemPrediction {
    /// JSON object.
    pub json: String,
    /// Text for a reader; several lines if the item has several parts.
    pub text: String,
}

impl ItemPrediction {
    /// Converts predictions to JSON objects, and to text by `text`.
    ///
    /// # Errors
    /// When one cannot be written as JSON.
    pub(super) fn each<T: Serialize>(
        predictions: Vec<Result<T>>,
        text: impl Fn(&T) -> String,
    ) -> Predictions {
        let one = |prediction: Result<T>| {
            Ok(match prediction {
                Ok(one) => Ok(Self { json: serde_json::to_string(&one)?, text: text(&one) }),
                Err(error) => Err(error),
            })
        };
        predictions.into_iter().map(one).collect()
    }
}
