//! Task of masked language modelling: an encoder predicts tokens that are hidden from it, and is
//! scored by their probabilities.

use anyhow::{Context, Result};
use serde_json::Value;
use taper_data::{Task, masked_split};
use taper_model::{Builder, MaskedLanguageModel};
use taper_trainer::evaluate;

use super::language_model::{held_out, require_text, text_test_sets};
use super::{ImportedFolder, ModelResult, TaskModel, Vocabularies};
use crate::attention::{AttentionMap, Journey};
use crate::config::RunConfig;
use crate::evaluation::{Batches, MaskedTestSet, Split, TestSetResult};
use crate::event::RunObserver;
use crate::{LoadedRun, sentence_vectors};

impl TaskModel for MaskedLanguageModel {
    const TASK: Task = Task::MaskedLanguageModel;

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> ModelResult<Self> {
        Self::new(&config.model, vocabulary, config.data.masked.next_sentence, builder)
    }

    fn test_sets(config: &RunConfig) -> Vec<String> {
        text_test_sets(config)
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.text.block_length
    }

    fn counted_parameters(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
    ) -> Option<(u64, &'static str)> {
        let body = Self::body_parameters(&config.model, vocabulary);
        Some((body, "of the encoder with a pooler"))
    }

    fn journey(run: &LoadedRun<Self>, text: &str) -> Result<Journey> {
        Journey::of_masked(run, text)
    }

    fn attention(run: &LoadedRun<Self>, text: &str, _target: Option<&str>) -> Result<AttentionMap> {
        AttentionMap::of_masked(run, text)
    }

    fn sentence_vectors(run: &LoadedRun<Self>, texts: &[String]) -> Result<Vec<Vec<f32>>> {
        sentence_vectors::of_masked(run, texts)
    }

    fn describe_import(recipe: &mut RunConfig, folder: &dyn ImportedFolder) -> Result<()> {
        recipe.data.text.block_length = recipe.model.max_positions;
        // A folder without an output layer can have a pooler (a layer on the first token), which is
        // imported for models that start from these weights.
        let part = if folder.has_head() { "next_sentence" } else { "pooler" };
        recipe.data.masked.next_sentence = folder.has(recipe, &format!("{part}.weight"));
        Ok(())
    }

    fn shorter_rows(positions: usize) -> String {
        format!("data.text.block_length = {positions}")
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({
            "block_length": config.data.text.block_length, "masked": config.data.masked,
        })
    }

    fn require_test_set(config: &RunConfig, split: &str) -> Result<()> {
        require_text(Self::TASK, config, split)
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        let name = held_out(split.config, split.name);
        Ok(split.in_order(masked_split(&split.config.data, split.tokenizer(), name)?))
    }

    fn test(&self, split: Split<'_>, _observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        let measured = evaluate(self, Self::batches(split)?, 0.0)
            .with_context(|| format!("split {:?}", split.name))?;
        Ok(TestSetResult::Masked(MaskedTestSet::from_measured(split.name, &measured)))
    }
}
