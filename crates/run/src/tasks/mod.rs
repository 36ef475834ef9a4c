//! Tasks for which models can be trained, such as translation: everything that differs between
//! tasks.
//!
//! **Decision.** A task is defined by one implementation of [`TaskModel`] (its model, and how the
//! model is scored) and one [`TaskEntry`] (facts about the task). Commands, checks, reports and
//! servers have no code for single tasks: they depend on the facts in the entry. [`every_task`] is
//! the only list of tasks. Entries are separate from the models, so that the configuration can use
//! them without the models.

mod captions;
mod classification;
mod entry;
mod image_classification;
mod image_text;
mod imported_folder;
mod language_model;
mod loading;
mod loss;
mod masked;
mod question_answering;
mod regression;
mod tagging;
mod translation;

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Error, Result, anyhow, bail};
use candle_core::Device;
use serde_json::Value;
use taper_data::{Corpus, Dataset, Task, TokenizerPair};
use taper_model::{Builder, Cost, LayerCost, Model, ModelError, TextClassifier};
use taper_ops::ParameterStore;
use taper_trainer::{Sample, Validator};

use loss::LossValidation;

use crate::advice::advised;
use crate::attention::{AttentionMap, Journey};
use crate::config::RunConfig;
use crate::evaluation::{Batches, Split, TestSetResult};
use crate::event::RunObserver;
use crate::{LoadedRun, Notice};

pub use entry::{
    Examples, InputKind, ItemPrediction, Items, OnProgress, PredictionEntry, Predictions, Stacks,
    TaskEntry, entry,
};
pub use imported_folder::ImportedFolder;
pub(crate) use language_model::first_test_text;
pub(crate) use loading::require_languages;
pub use loading::{AnyRun, build_model, open, require_unedited, without_adapters};

/// Numbers of tokens in the source vocabulary and in the target vocabulary. They are equal for a
/// task with a single vocabulary, and 0 for a task without text.
pub type Vocabularies = (usize, usize);

/// Sizes of the source vocabulary and of the target vocabulary of tokenizers.
#[must_use]
pub fn vocabularies(tokenizers: &TokenizerPair) -> Vocabularies {
    tokenizers.vocabulary_sizes()
}

/// Result of building a model.
pub type ModelResult<M> = Result<M, ModelError>;

/// Model of a task, with everything that the rest of the program must know about the task.
pub trait TaskModel: Model + Sized + 'static {
    /// Task of the model.
    const TASK: Task;
    /// Whether the model generates text token by token. Only such models can use int8 weights.
    const DECODES: bool = false;

    /// Numbers of parameters and operations of the layer with the index `layer` in the stack that
    /// produces the output.
    fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost {
        <Self as Model>::layer_cost(&config.model, layer)
    }

    /// Builds a model with `builder`, which provides its parameters.
    ///
    /// # Errors
    /// If the configuration is not valid, or the device has too little memory.
    fn build(config: &RunConfig, vocabularies: Vocabularies, builder: Builder)
    -> ModelResult<Self>;

    /// Validator that scores the model on the validation split during training. By default, the
    /// score is the loss; some tasks have other scores.
    ///
    /// # Errors
    /// If text cannot be read.
    fn validation(
        config: &RunConfig,
        dataset: Arc<dyn Dataset>,
        _tokenizers: &TokenizerPair,
    ) -> Result<Box<dyn Validator<Self>>> {
        Ok(Box::new(LossValidation::new(config, dataset)))
    }

    /// Largest number of positions in an example, with the key that sets it; `None` if there is no
    /// limit.
    fn most_positions(config: &RunConfig) -> Option<(usize, &'static str)> {
        config.model.longest_encoded()
    }

    /// Length of a training sequence in tokens: the limit that the recipe sets, or a typical
    /// length.
    fn usual_tokens(config: &RunConfig) -> usize;

    /// Length in tokens of the sequence for which the operations of a layer are counted. It is the
    /// length for which publications state them.
    fn counted_tokens(config: &RunConfig) -> usize {
        Self::usual_tokens(config)
    }

    /// Number of the parameters that publications include in their counts, and words for these
    /// parameters, such as "of the encoder with a pooler". `None` if publications count all
    /// parameters.
    fn counted_parameters(
        _config: &RunConfig,
        _vocabularies: Vocabularies,
    ) -> Option<(u64, &'static str)> {
        None
    }

    /// Names and descriptions of the model's inputs, such as the size of the vocabulary.
    fn inputs(_config: &RunConfig, (_, target): Vocabularies) -> Vec<(&'static str, String)> {
        vec![("vocabulary", target.to_string())]
    }

    /// Labels that the model predicts, with a plural noun for them, such as "tags"; `None` if it
    /// predicts no labels.
    fn labels(_config: &RunConfig) -> Option<(&[String], &'static str)> {
        None
    }

    /// Sets keys of a recipe outside `[model]` to the values in an imported folder.
    ///
    /// # Errors
    /// If a key or file of the folder is not valid, or has a setting that is not supported. The
    /// message names the key or file.
    fn describe_import(_recipe: &mut RunConfig, _folder: &dyn ImportedFolder) -> Result<()> {
        Ok(())
    }

    /// Setting that limits examples to `positions` positions, such as `data.text.block_length =
    /// 512`, for a message.
    fn shorter_rows(positions: usize) -> String;

    /// Names of the splits on which the model is scored by default.
    fn test_sets(config: &RunConfig) -> Vec<String> {
        config.data.test.iter().map(Corpus::name).collect()
    }

    /// Checks before training that a test split can be read.
    ///
    /// # Errors
    /// If the split is missing or cannot be read.
    fn require_test_set(config: &RunConfig, split: &str) -> Result<()> {
        Self::TASK.files(&config.data, &config.data.split(split))?;
        Ok(())
    }

    /// Settings on which results of [`TaskModel::test`] depend, as a JSON object.
    fn measured_by(config: &RunConfig) -> Value;

    /// Rounds the weights to int8. Afterwards, decoding computes products with weights in int8.
    ///
    /// # Errors
    /// If the model does not decode, or a weight is not finite.
    fn round_to_int8(&mut self) -> Result<()> {
        require_decoding(Self::TASK)
    }

    /// Prepares the model for decoding only, before its weights are loaded: weights are then kept
    /// only in the order in which decoding reads them, in int8 if `is_int8` is true. Returns false,
    /// and changes nothing, if models of this task cannot be prepared in this way.
    fn only_decode(&mut self, _is_int8: bool) -> bool {
        false
    }

    /// Attention of the model on a validation example; `None` if the task does not show attention
    /// on examples, or the model has no attention weights.
    ///
    /// # Errors
    /// If the example cannot be read.
    fn attention_on(
        &self,
        _example: &Sample,
        _tokenizers: &TokenizerPair,
    ) -> Result<Option<AttentionMap>> {
        Ok(None)
    }

    /// Attention between the words of a text and, for translation, of its translation `target`.
    ///
    /// # Errors
    /// If the text cannot be read, or attention is not shown for the task
    /// ([`TaskEntry::hides_attention`]).
    fn attention(
        _run: &LoadedRun<Self>,
        _text: &str,
        _target: Option<&str>,
    ) -> Result<AttentionMap> {
        bail!("a run of the task {} has no attention between words to show", Self::TASK)
    }

    /// Journey of a text through the model: an explanation of the computation, step by step. For
    /// models that read images, the text is the path of an image.
    ///
    /// # Errors
    /// If the text cannot be read, or the task has no journey.
    fn journey(_run: &LoadedRun<Self>, _text: &str) -> Result<Journey> {
        bail!(
            "the run's task is {}, and this command explains translation, captions, language \
             models, masked language models, taggers, and classifiers of texts and images",
            Self::TASK
        )
    }

    /// Draws the model's attention on an image, and saves the picture as `to`.
    ///
    /// # Errors
    /// If the attention cannot be drawn, or the task has no such picture.
    fn draw_attention(_run: &LoadedRun<Self>, _image: &Path, _to: &Path) -> Result<()> {
        bail!("attention of the task {} is not drawn on images", Self::TASK)
    }

    /// Notice about a line of the file `path` that the model probably reads differently than the
    /// user intends; `None` if there is no such line.
    fn notice_on(_config: &RunConfig, _lines: &[String], _path: &Path) -> Option<Notice> {
        None
    }

    /// Prediction for each item, if the task [predicts](TaskEntry::predicts) for single items. The
    /// result for an invalid item is an error. `done` receives the number of items that are done so
    /// far.
    ///
    /// # Errors
    /// If the model fails, or the task does not predict for single items.
    fn predict_each(
        _run: &LoadedRun<Self>,
        _items: &Items<'_>,
        _done: OnProgress<'_>,
    ) -> Predictions {
        bail!("a model of the task {} predicts nothing for a text or an image", Self::TASK)
    }

    /// Vector of each text, if the task [has vectors](TaskEntry::embeds); a vector is as long as
    /// the model is wide.
    ///
    /// # Errors
    /// If a text is empty or too long, the model fails, or the task has no vectors of texts.
    fn sentence_vectors(_run: &LoadedRun<Self>, _texts: &[String]) -> Result<Vec<Vec<f32>>> {
        let (task, others) = (Self::TASK, tasks_that(|entry| entry.embeds));
        bail!("the run's task is {task}, but only {others} have vectors of texts")
    }

    /// Batches of all examples of a split, in order, for measuring the loss.
    ///
    /// # Errors
    /// If the split cannot be read.
    fn batches(split: Split<'_>) -> Result<Batches<'_>>;

    /// Scores the model on a test split.
    ///
    /// # Errors
    /// If the split cannot be read, or the model fails.
    fn test(&self, split: Split<'_>, observer: &mut dyn RunObserver) -> Result<TestSetResult>;
}

/// Passes the list of all tasks, each with its model type, to another macro. A new task is added to
/// this list.
macro_rules! every_task {
    ([$($then:tt)+] $($arguments:tt)*) => {
        $($then)+! { $($arguments)*
            Translation: TranslationModel,
            LanguageModel: LanguageModel,
            MaskedLanguageModel: MaskedLanguageModel,
            Classification: TextClassifier,
            Tagging: TokenTagger,
            QuestionAnswering: SpanExtractor,
            ImageClassification: ImageClassifier,
            Captions: ImageCaptioner,
            ImageText: ContrastiveModel,
            InContextRegression: InContextRegressor,
        }
    };
}

macro_rules! match_task {
    ($task:expr, $model:ident => $body:expr; $($name:ident: $type:ident,)+) => {
        match $task {
            $(taper_data::Task::$name => {
                type $model = taper_model::$type;
                $body
            })+
        }
    };
}

/// Evaluates `$body`, in which `$model` is the type of the model of the task `$task`.
macro_rules! with_model {
    ($task:expr, $model:ident => $body:expr) => {
        $crate::tasks::every_task!([$crate::tasks::match_task] $task, $model => $body;)
    };
}

macro_rules! list_entries {
    ($($name:ident: $type:ident,)+) => {
        &[$((Task::$name, entry(Task::$name))),+]
    };
}

/// All tasks with the facts about them.
pub const ENTRIES: &[(Task, &TaskEntry)] = every_task!([list_entries]);

pub(crate) use {every_task, match_task, with_model};

/// Length of a training sequence in tokens: the limit that the recipe sets, or a typical length of
/// sentences.
#[must_use]
pub fn usual_tokens(config: &RunConfig) -> usize {
    with_model!(config.task, M => <M as TaskModel>::usual_tokens(config))
}

/// Length in tokens of the sequence for which the operations of a layer of a recipe's model are
/// counted. It is the length for which publications state them.
#[must_use]
pub fn counted_tokens(config: &RunConfig) -> usize {
    with_model!(config.task, M => <M as TaskModel>::counted_tokens(config))
}

/// Number of the parameters that publications include in their counts, and words for these
/// parameters, such as "of the encoder with a pooler". `None` if publications count all
/// parameters.
#[must_use]
pub fn counted_parameters(
    config: &RunConfig,
    vocabularies: Vocabularies,
) -> Option<(u64, &'static str)> {
    with_model!(config.task, M => <M as TaskModel>::counted_parameters(config, vocabularies))
}

/// Names and descriptions of the inputs of a recipe's model, such as the size of the vocabulary.
#[must_use]
pub fn inputs(config: &RunConfig, vocabularies: Vocabularies) -> Vec<(&'static str, String)> {
    with_model!(config.task, M => <M as TaskModel>::inputs(config, vocabularies))
}

/// Labels that a recipe's model predicts, with a plural noun for them, such as "tags"; `None` if it
/// predicts no labels.
#[must_use]
pub fn labels(config: &RunConfig) -> Option<(&[String], &'static str)> {
    with_model!(config.task, M => <M as TaskModel>::labels(config))
}

/// Memory and operations of the model of `config` on `device`, computed without allocating memory
/// for the model.
#[must_use]
pub fn cost_of(config: &RunConfig, vocabularies: Vocabularies, device: &Device) -> Cost {
    with_model!(config.task, M => {
        taper_model::cost_of(device, |builder| M::build(config, vocabularies, builder))
    })
}

/// Names and shapes of the parameters of a recipe's model for vocabularies of these sizes. No
/// memory is allocated for values.
///
/// # Errors
/// If the configuration is not valid.
pub fn outline(config: &RunConfig, vocabularies: Vocabularies) -> Result<ParameterStore> {
    let builder = Builder::outline().with_adapters(&config.model.lora);
    with_model!(config.task, M => {
        M::build(config, vocabularies, builder).map(|model| model.parameters().clone())
    })
    .context("cannot build the model")
}

/// Numbers of parameters and operations of the layer with the index `layer`, in the stack of a
/// recipe's model that produces the output.
#[must_use]
pub fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost {
    with_model!(config.task, M => <M as TaskModel>::layer_cost(config, layer))
}

/// Returns an error unless models of the task decode, that is, generate text token by token. Int8
/// weights are only for such models.
///
/// # Errors
/// If the task's models do not decode. The error names the task.
pub fn require_decoding(task: Task) -> Result<()> {
    if with_model!(task, M => M::DECODES) {
        return Ok(());
    }
    bail!("a model of the task {task} does not decode, but int8 weights are only for decoding")
}

/// Returns an error unless the run's task is `wanted`.
///
/// # Errors
/// If the run has another task. As advice, the error lists what a run of its task can be used for.
pub fn require_task(config: &RunConfig, wanted: Task) -> Result<()> {
    if config.task == wanted { Ok(()) } else { Err(another_task(config, wanted)) }
}

fn another_task(config: &RunConfig, wanted: Task) -> Error {
    let task = config.task;
    let error = anyhow!("the run's task is {task}, and this is for {wanted}");
    advised(error, entry(task).advice())
}

/// Properties of the predictions that models of a run's task make for single items.
///
/// # Errors
/// If the task does not predict for single items. As advice, the error lists what a run of this
/// task can be used for.
pub fn require_predictions(config: &RunConfig) -> Result<&'static PredictionEntry> {
    if let Some(predicts) = &entry(config.task).predicts {
        return Ok(predicts);
    }
    Err(another_task(config, TextClassifier::TASK))
}

/// Names of the tasks that have an entry for which `has` returns true, joined as in "a, b or c".
pub fn tasks_that(has: impl Fn(&TaskEntry) -> bool) -> String {
    let names = ENTRIES.iter().filter(|(_, entry)| has(entry)).map(|(task, _)| task.to_string());
    let names: Vec<String> = names.collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// Names of the tasks that have predictions for which `have` returns true, joined as in "a, b or
/// c".
pub fn predictions_that(have: impl Fn(&PredictionEntry) -> bool) -> String {
    tasks_that(|entry| entry.predicts.as_ref().is_some_and(&have))
}

#[cfg(test)]
mod tests {
    use taper_model::Model;

    use super::ENTRIES;

    #[test]
    fn entries_and_models_agree_about_classes() {
        for (task, entry) in ENTRIES {
            let of_model = with_model!(*task, M => <M as Model>::predicts_classes());
            assert_eq!(entry.predicts_classes, of_model, "{task}");
        }
    }
}
