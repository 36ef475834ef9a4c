//! Differences between the tasks of runs: the model that is trained, and its measure.
//!
//! Everything else, from the run folder to the search for a batch that fits, is the same for all.
//! [`TaskModel`] is the part that a task adds, and [`with_model`] the only place that names every
//! model.

mod captions;
mod classification;
mod image_classification;
mod image_text;
mod labelled;
mod language_model;
mod loss;
mod masked;
mod question_answering;
mod regression;
mod tagging;
mod translation;

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use candle_core::Device;
use serde_json::Value;
use taper_data::{Corpus, Dataset, Task, TokenizerPair};
use taper_model::{Batch, Builder, Cost, LayerCost, Model, ModelError};
use taper_ops::ParameterStore;
use taper_trainer::{BoxError, Sample, Validate};

use loss::LossValidation;

use crate::attention::AttentionMap;
use crate::checks::{device, memory};
use crate::config::RunConfig;
use crate::evaluation::TestSetResult;
use crate::event::RunObserver;
use crate::{parameter_groups, word_vectors};

/// Sizes of the vocabularies of source and target; for a single text, the same size twice; 0
/// without text.
pub type Vocabularies = (usize, usize);

/// The sizes of the vocabularies of tokenizers.
#[must_use]
pub fn vocabularies(tokenizers: &TokenizerPair) -> Vocabularies {
    tokenizers.vocabulary_sizes()
}

/// Batches of a split, one after the other.
pub type Batches<'a> = Box<dyn Iterator<Item = Result<Batch, BoxError>> + 'a>;

/// Model with the functions that runs of its task need.
pub trait TaskModel: Model + Sized + 'static {
    /// Task of the model.
    const TASK: Task;
    /// Whether the model writes text, token by token: int8 weights are for this.
    const DECODES: bool = false;

    /// Cost of a model of `config` on `device`.
    fn cost_of(config: &RunConfig, vocabularies: Vocabularies, device: &Device) -> Cost;

    /// Cost of one layer of the stack that answers, counted from 0.
    fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost;

    /// Makes a model with `builder`.
    ///
    /// # Errors
    /// When the configuration is impossible, or the device has no memory left.
    fn build(
        config: &RunConfig,
        vocabularies: Vocabularies,
        builder: Builder,
    ) -> Result<Self, ModelError>;

    /// Validation of the model on the validation split: by its loss, unless a task has a better
    /// measure.
    ///
    /// # Errors
    /// When text cannot be read.
    fn validation(
        config: &RunConfig,
        dataset: Arc<dyn Dataset>,
        _tokenizers: &TokenizerPair,
    ) -> Result<Box<dyn Validate<Self>>> {
        Ok(Box::new(LossValidation::new(config, dataset)))
    }

    /// Largest number of positions of a row, with the key that sets it; `None` without such a
    /// limit.
    fn most_positions(config: &RunConfig) -> Option<(usize, &'static str)> {
        config.model.longest_encoded()
    }

    /// Setting that limits rows to so many positions, as `key = value`.
    fn shorter_rows(positions: usize) -> String;

    /// Splits on which the model is measured by default.
    fn test_sets(config: &RunConfig) -> Vec<String> {
        config.data.test.iter().map(Corpus::name).collect()
    }

    /// Refuses a test split that could not be scored after training.
    ///
    /// # Errors
    /// When it is missing or unreadable.
    fn require_test_set(config: &RunConfig, split: &str) -> Result<()>;

    /// Settings on which results of [`TaskModel::test`] depend: a JSON object.
    fn measured_by(config: &RunConfig) -> Value;

    /// Rounds the weights to int8, so that decoding multiplies in int8 from then on.
    ///
    /// # Errors
    /// When the model does not decode, or a weight is not finite.
    fn round_to_int8(&mut self) -> Result<()> {
        require_decoding(Self::TASK)
    }

    /// Attention in an example of a validation; `None` if examples are not text, or the model has
    /// no attention weights.
    ///
    /// # Errors
    /// When the example cannot be read.
    fn attention_on(
        &self,
        _example: &Sample,
        _tokenizers: &TokenizerPair,
    ) -> Result<Option<AttentionMap>> {
        Ok(None)
    }

    /// Batches of a split, in order, on which its loss is measured.
    ///
    /// # Errors
    /// When the split cannot be read.
    fn batches<'a>(
        split: &str,
        config: &'a RunConfig,
        tokenizers: &'a TokenizerPair,
    ) -> Result<Batches<'a>>;

    /// Measures the model on a test split.
    ///
    /// # Errors
    /// When the split cannot be read, or the model cannot be run on it.
    fn test(
        &self,
        split: &str,
        config: &RunConfig,
        tokenizers: &TokenizerPair,
        observer: &mut dyn RunObserver,
    ) -> Result<TestSetResult>;
}

/// Evaluates `$body`, in which `$model` is the type of the model of a task.
macro_rules! with_model {
    ($task:expr, $model:ident => $body:expr) => {
        match $task {
            taper_data::Task::Translation => {
                type $model = taper_model::TranslationModel;
                $body
            }
            taper_data::Task::LanguageModel => {
                type $model = taper_model::LanguageModel;
                $body
            }
            taper_data::Task::MaskedLanguageModel => {
                type $model = taper_model::MaskedLanguageModel;
                $body
            }
            taper_data::Task::Classification => {
                type $model = taper_model::TextClassifier;
                $body
            }
            taper_data::Task::Tagging => {
                type $model = taper_model::TokenTagger;
                $body
            }
            taper_data::Task::QuestionAnswering => {
                type $model = taper_model::SpanExtractor;
                $body
            }
            taper_data::Task::ImageClassification => {
                type $model = taper_model::ImageClassifier;
                $body
            }
            taper_data::Task::Captions => {
                type $model = taper_model::ImageCaptioner;
                $body
            }
            taper_data::Task::ImageText => {
                type $model = taper_model::ContrastiveModel;
                $body
            }
            taper_data::Task::InContextRegression => {
                type $model = taper_model::InContextRegressor;
                $body
            }
        }
    };
}
pub use translation::ParallelText;
pub(crate) use with_model;

/// Cost of a model of `config` on `device`, known before memory is taken for it.
#[must_use]
pub fn cost_of(config: &RunConfig, vocabularies: Vocabularies, device: &Device) -> Cost {
    with_model!(config.task, M => <M as TaskModel>::cost_of(config, vocabularies, device))
}

/// Builds a model of `config` on `device`, with parameters drawn from `seed`, or without a seed to
/// be loaded.
///
/// # Errors
/// When the device cannot compute in the type that `config` names, or the model cannot be built.
pub fn build_model<M: TaskModel>(
    config: &RunConfig,
    tokenizers: &TokenizerPair,
    device: &Device,
    seed: Option<u64>,
) -> Result<M> {
    let vocabularies = vocabularies(tokenizers);
    let dtype = device::dtype(&config.dtype, device)?;
    memory::require_weights(config, vocabularies, device)?;
    let builder = match seed {
        Some(seed) => Builder::seeded(seed, device, dtype),
        None => Builder::zeroed(device, dtype),
    };
    let model = M::build(config, vocabularies, builder).context("cannot build the model")?;
    word_vectors::freeze(&config.model.embeddings, tokenizers, model.parameters())?;
    parameter_groups::apply(&config.training, model.parameters())?;
    Ok(model)
}

/// Names and shapes of the parameters of a recipe's model, whatever its task, for vocabularies of
/// these sizes. No memory is taken for their values.
///
/// # Errors
/// When the configuration is impossible.
pub fn outline(config: &RunConfig, vocabularies: Vocabularies) -> Result<ParameterStore> {
    with_model!(config.task, M => {
        M::build(config, vocabularies, Builder::outline()).map(|model| model.parameters().clone())
    })
    .context("cannot build the model")
}

/// Cost of one layer of a recipe's model, in the stack that answers.
#[must_use]
pub fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost {
    with_model!(config.task, M => <M as TaskModel>::layer_cost(config, layer))
}

/// Refuses int8 weights for a model that does not decode.
///
/// # Errors
/// With the name of the task.
pub fn require_decoding(task: Task) -> Result<()> {
    if with_model!(task, M => M::DECODES) {
        return Ok(());
    }
    bail!("a model of the task {task} does not decode, which is what int8 weights are for")
}

/// Refuses a run unless its task is `wanted`.
///
/// # Errors
/// With the command for its task.
pub fn require_task(config: &RunConfig, wanted: Task) -> Result<()> {
    if config.task == wanted {
        return Ok(());
    }
    let instead = match config.task {
        Task::Translation => "`taper translate` translates with it, `taper score` scores pairs",
        Task::LanguageModel => {
            "`taper generate` goes on with text, `taper evaluate` measures it, `taper score \
             --text` scores texts"
        }
        Task::MaskedLanguageModel => {
            "`taper evaluate` measures it, `taper train CONFIG --from RUN` makes a classifier of it"
        }
        Task::Classification => "`taper predict` labels texts, `taper evaluate` measures it",
        Task::Tagging => "`taper predict` tags the words of texts, `taper evaluate` measures it",
        Task::QuestionAnswering => {
            "`taper predict` answers questions about texts, `taper evaluate` measures it"
        }
        Task::ImageClassification => "`taper predict` labels images, `taper evaluate` measures it",
        Task::Captions => "`taper predict` describes images, `taper evaluate` measures it",
        Task::ImageText => {
            "`taper predict --prompt TEXT` tells which text belongs to an image, `taper evaluate` \
             measures it"
        }
        Task::InContextRegression => {
            "`taper evaluate` measures it beside ridge regression, `taper report` draws that"
        }
    };
    bail!("the run's task is {}, and this command is for {wanted}: {instead}", config.task)
}
