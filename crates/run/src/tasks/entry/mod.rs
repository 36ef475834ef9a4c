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
    /// Stacks of layers of the task's models.
    pub stacks: Stacks,
    /// True if the models read one language and write another, with a vocabulary for each.
    pub translates: bool,
    /// True if the models continue a text, token by token.
    pub generates: bool,
    /// True if a beam search writes the models' answers.
    pub writes: bool,
    /// True if the models are pretrained, so that models of other tasks begin with their weights.
    pub pretrains: bool,
    /// True if the models predict tokens that are hidden from them.
    pub hides_tokens: bool,
    /// True if a row may have two texts.
    pub reads_pairs: bool,
    /// True if an answer is one of several classes, and thus right or wrong.
    pub predicts_classes: bool,
    /// True if the models can represent a text by a vector.
    pub embeds: bool,
    /// Tasks with whose weights a model of this task can begin: their trained models have all parts
    /// that both kinds of models share.
    pub begins_with: &'static [Task],
    /// Sections and keys of recipes that few tasks read, this one among them.
    pub reads: &'static [&'static str],
    /// Examples from which one command can fine-tune a model of the task; `None` if that needs a
    /// recipe.
    pub learns_from: Option<Examples>,
    /// How the models predict for single texts or images; `None` if they do not.
    pub predicts: Option<PredictionEntry>,
    /// Reason why attention is not shown over the words of a text; `None` if it is shown.
    pub hides_attention: Option<&'static str>,
    /// Reason why runs are not served; `None` if they are served.
    pub not_served: Option<&'static str>,
    /// Name of the task on hubs of models; `None` if hubs have none.
    pub hub_name: Option<&'static str>,
    /// Name of the task in PEFT; `None` if PEFT would expect a head in the folder because of the
    /// name.
    pub peft_name: Option<&'static str>,
    /// Uses of a run of the task, each with its effect, such as "labels texts".
    pub uses: &'static [(Verb, &'static str)],
    /// First use of a newly trained run, with its effect, such as "measure it".
    pub next: (Verb, &'static str),
}

impl TaskEntry {
    /// Advice on what a run of the task can be used for.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        self.uses.iter().map(|(verb, effect)| Advice::new(Action::Use(*verb), effect)).collect()
    }

    /// True if special tokens (marks) surround each text of a row, as in encoders of texts.
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
    /// Texts, each with a label.
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
    /// True if the stack that produces the answer is a decoder.
    #[must_use]
    pub const fn answers_by_decoder(self) -> bool {
        matches!(self, Self::Decoder | Self::EncoderDecoder)
    }
}

/// Properties of predictions for texts or images.
#[derive(Debug)]
pub struct PredictionEntry {
    /// Description of the model's work, such as "labels texts".
    pub does: &'static str,
    /// The same as a participle for a progress bar, such as "labelling".
    pub doing: &'static str,
    /// Items that the model reads.
    pub reads: InputKind,
    /// True if texts to choose from may be given together with the items.
    pub takes_prompts: bool,
    /// True if attention can be drawn on the items.
    pub draws_attention: bool,
}

impl PredictionEntry {
    /// Predictions without prompts, and whose attention cannot be drawn.
    pub(super) const fn new(does: &'static str, doing: &'static str, reads: InputKind) -> Self {
        Self { does, doing, reads, takes_prompts: false, draws_attention: false }
    }
}

/// Items for which something is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Lines of a file; the field stands for such a file in a command, for example `TEXTS`.
    Lines(&'static str),
    /// Image files.
    Images,
}

/// Items of a request for predictions: lines or images, depending on the task.
#[derive(Debug, Clone, Copy, Default)]
pub struct Items<'i> {
    /// Lines.
    pub lines: &'i [String],
    /// PNG and JPEG files.
    pub images: &'i [PathBuf],
    /// Texts that may describe an image.
    pub prompts: &'i [String],
    /// Number of lines that came before these; messages number lines accordingly.
    pub before: usize,
}

/// Prediction for each item; an item that cannot be read has an error in its place.
pub type Predictions = Result<Vec<Result<ItemPrediction>>>;

/// Function that receives the number of items that are done.
pub type OnProgress<'d> = &'d mut dyn FnMut(usize);

/// Prediction for an item.
#[derive(Debug, Clone)]
pub struct ItemPrediction {
    /// Prediction as a JSON object.
    pub json: String,
    /// Prediction as text for people; it has several lines if the item has several parts.
    pub text: String,
}

impl ItemPrediction {
    /// Converts each prediction to a JSON object, and to the text that `text` returns.
    ///
    /// # Errors
    /// When a prediction cannot be written as JSON.
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
