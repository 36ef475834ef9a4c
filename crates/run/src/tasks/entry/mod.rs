//! Facts about tasks, in tables instead of code.

mod entries;

use std::path::PathBuf;

use anyhow::Result;
use serde::Serialize;
use taper_data::Task;

use crate::advice::{Action, Advice, Verb};

pub use entries::entry;

/// Facts about a task on which commands, checks, reports and servers depend.
#[derive(Debug)]
pub struct TaskEntry {
    /// Stacks of layers (encoder, decoder) of the task's models.
    pub stacks: Stacks,
    /// True if the models read one language and write another, with a vocabulary for each.
    pub translates: bool,
    /// True if the models continue a text, token by token.
    pub generates: bool,
    /// Whether a beam search generates the models' outputs.
    pub writes: bool,
    /// Whether the models are for pretraining: models of other tasks start from their weights.
    pub pretrains: bool,
    /// True if the models predict tokens that are hidden from them.
    pub hides_tokens: bool,
    /// Whether an example can consist of two texts.
    pub reads_pairs: bool,
    /// Whether the models predict classes (such as labels or tokens), so that a prediction is right
    /// or wrong.
    pub predicts_classes: bool,
    /// True if the models can represent a text by a vector.
    pub embeds: bool,
    /// Other tasks whose trained models provide the initial weights of all parts that they have in
    /// common with a model of this task.
    pub begins_with: &'static [Task],
    /// Sections and keys of recipes (configurations of trainings) that this task reads, and most
    /// other tasks do not.
    pub reads: &'static [&'static str],
    /// Kind of examples for which a recipe for fine-tuning can be written automatically; `None` if
    /// users have to write the recipe.
    pub learns_from: Option<Examples>,
    /// Properties of predictions for single texts or images; `None` if the models make no such
    /// predictions.
    pub predicts: Option<PredictionEntry>,
    /// Reason why attention is not shown over the words of a text; `None` if it is shown.
    pub hides_attention: Option<&'static str>,
    /// Reason why runs are not served; `None` if they are served.
    pub not_served: Option<&'static str>,
    /// Name of the task on hubs of models; `None` if hubs do not have this task.
    pub hub_name: Option<&'static str>,
    /// Name of the task in adapter folders of the library PEFT. `None` if no name is written: with
    /// a name, PEFT would expect an output layer in the folder.
    pub peft_name: Option<&'static str>,
    /// Uses of a run (folder of a trained model) of the task, each with its effect, such as "labels
    /// texts".
    pub uses: &'static [(Verb, &'static str)],
    /// Recommended first use of a newly trained run, with its effect, such as "measure it".
    pub next: (Verb, &'static str),
}

impl TaskEntry {
    /// Advice on what a run of the task can be used for.
    #[must_use]
    pub fn advice(&self) -> Vec<Advice> {
        self.uses.iter().map(|(verb, effect)| Advice::new(Action::Use(*verb), effect)).collect()
    }

    /// Whether each text of an example is between special tokens, as in encoders of texts.
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
    /// Encoder, and a decoder that also attends to the encoder's output.
    EncoderDecoder,
    /// Encoder of images and encoder of texts.
    TwoEncoders,
}

impl Stacks {
    /// Whether a decoder produces the model's output.
    #[must_use]
    pub const fn answers_by_decoder(self) -> bool {
        matches!(self, Self::Decoder | Self::EncoderDecoder)
    }
}

/// Properties of predictions for texts or images.
#[derive(Debug)]
pub struct PredictionEntry {
    /// Description of what the model does, such as "labels texts".
    pub does: &'static str,
    /// Participle for a progress bar, such as "labelling".
    pub doing: &'static str,
    /// Items that the model reads.
    pub reads: InputKind,
    /// Whether users can pass candidate texts together with the items.
    pub takes_prompts: bool,
    /// Whether attention can be drawn as a picture on the items.
    pub draws_attention: bool,
}

impl PredictionEntry {
    /// Entry for predictions without candidate texts and without pictures of attention.
    pub(super) const fn new(does: &'static str, doing: &'static str, reads: InputKind) -> Self {
        Self { does, doing, reads, takes_prompts: false, draws_attention: false }
    }
}

/// Kind of items for which something is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Lines of a file. The field is a placeholder for the file's name in a command, for example
    /// `TEXTS`.
    Lines(&'static str),
    /// Image files.
    Images,
}

/// Items of a request for predictions: lines or images, depending on the task.
#[derive(Debug, Clone, Copy, Default)]
pub struct Items<'i> {
    /// Lines of text.
    pub lines: &'i [String],
    /// Paths of PNG and JPEG files.
    pub images: &'i [PathBuf],
    /// Candidate texts. For each image, the model chooses the best of them.
    pub prompts: &'i [String],
    /// Number of lines of the input before `lines`, so that messages have the right line numbers.
    pub before: usize,
}

/// Prediction for each item. The result for an item that cannot be read is an error.
pub type Predictions = Result<Vec<Result<ItemPrediction>>>;

/// Function that receives the number of items that are done so far.
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
    /// If a prediction cannot be written as JSON.
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
