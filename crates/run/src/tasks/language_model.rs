//! Task of language modelling: a decoder predicts each token of a text from those before it, and is
//! scored by the probabilities of the tokens.

use anyhow::{Context, Result};
use serde_json::Value;
use taper_data::{Corpus, Task, TextBlocks};
use taper_model::{Builder, LanguageModel};

use super::{ImportedFolder, ModelResult, TaskModel, Vocabularies};
use crate::attention::{AttentionMap, Journey};
use crate::config::RunConfig;
use crate::evaluation::{Batches, ReadTestSet, Split, TestSetResult};
use crate::event::RunObserver;
use crate::training::packed;
use crate::{LoadedRun, sentence_vectors};

impl TaskModel for LanguageModel {
    const TASK: Task = Task::LanguageModel;
    const DECODES: bool = true;

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> ModelResult<Self> {
        Self::new(&config.model, vocabulary, builder)
    }

    fn test_sets(config: &RunConfig) -> Vec<String> {
        text_test_sets(config)
    }

    fn most_positions(config: &RunConfig) -> Option<(usize, &'static str)> {
        config.model.longest_sequence().map(|most| (most, "model.max_positions"))
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.text.block_length
    }

    fn journey(run: &LoadedRun<Self>, text: &str) -> Result<Journey> {
        Journey::of_text(run, text)
    }

    fn attention(run: &LoadedRun<Self>, text: &str, _target: Option<&str>) -> Result<AttentionMap> {
        AttentionMap::of_text(run, &run.tokenizers.target().encode_text(text)?)
    }

    fn sentence_vectors(run: &LoadedRun<Self>, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        sentence_vectors::of_texts(run, texts)
    }

    fn describe_import(recipe: &mut RunConfig, folder: &dyn ImportedFolder) -> Result<()> {
        recipe.data.text.block_length = recipe.model.max_positions;
        folder.describe_search(recipe)
    }

    fn shorter_rows(positions: usize) -> String {
        format!("data.text.block_length = {positions}")
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({ "block_length": config.data.text.block_length })
    }

    fn require_test_set(config: &RunConfig, split: &str) -> Result<()> {
        require_text(Self::TASK, config, split)
    }

    fn round_to_int8(&mut self) -> Result<()> {
        Ok(Self::round_to_int8(self)?)
    }

    fn only_decode(&mut self, is_int8: bool) -> bool {
        Self::only_decode(self, is_int8);
        true
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        let name = held_out(split.config, split.name);
        let blocks = TextBlocks::open(&split.config.data, split.tokenizer(), name)?;
        Ok(Box::new(blocks.map(|batch| Ok(packed(batch?)))))
    }

    fn test(&self, split: Split<'_>, _observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        let (config, name) = (split.config, held_out(split.config, split.name));
        Ok(TestSetResult::Read(ReadTestSet::evaluate(name, config, split.tokenizer(), self)?))
    }
}

/// Name of the split that `data.text.hold_out` takes from the training text.
const HELD_OUT: &str = "held-out";

/// Names of the test splits. If there are none, the name of the validation split, or else the name
/// of the held-out part of the training text.
pub(super) fn text_test_sets(config: &RunConfig) -> Vec<String> {
    let data = &config.data;
    if !data.test.is_empty() {
        data.test.iter().map(Corpus::name).collect()
    } else if !data.validation.is_empty() {
        vec![data.validation.name()]
    } else if data.text.hold_out > 0.0 {
        vec![HELD_OUT.to_owned()]
    } else {
        Vec::new()
    }
}

/// Name of the first split on which a trained model is scored by default; `None` for the held-out
/// part of the training text.
///
/// # Errors
/// If the configuration names no test or validation text, and holds out no training text.
pub(crate) fn first_test_text(config: &RunConfig) -> Result<Option<String>> {
    let sets = text_test_sets(config);
    let first = sets.first().context("the run has no test text (data.test)")?;
    Ok(held_out(config, first).map(str::to_owned))
}

/// Returns an error if files of the split are missing.
pub(super) fn require_text(task: Task, config: &RunConfig, split: &str) -> Result<()> {
    let data = &config.data;
    match held_out(config, split) {
        Some(split) => task.files(data, &data.split(split))?,
        None => task.files(data, &data.train)?,
    };
    Ok(())
}

/// Returns `split`, or `None` if it is the name of the held-out part of the training text.
pub(super) fn held_out<'a>(config: &RunConfig, split: &'a str) -> Option<&'a str> {
    let is_held_out = split == HELD_OUT && config.data.text.hold_out > 0.0;
    (!is_held_out).then_some(split)
}
