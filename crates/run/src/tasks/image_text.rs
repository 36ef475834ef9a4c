//! Images and texts in one space: a contrastive model, measured by retrieval.

use anyhow::Result;
use candle_core::Device;
use serde_json::Value;
use taper_data::{CaptionUse, Task, TokenizerPair};
use taper_model::{Builder, ContrastiveModel, Cost, LayerCost, ModelError};

use super::captions::captioned;
use super::image_classification::image_shape;
use super::{Batches, TaskModel, Vocabularies};
use crate::config::RunConfig;
use crate::evaluation::{MatchedTestSet, TestSetResult};
use crate::event::RunObserver;

impl TaskModel for ContrastiveModel {
    const TASK: Task = Task::ImageText;

    fn cost_of(config: &RunConfig, (_, vocabulary): Vocabularies, device: &Device) -> Cost {
        Self::cost_of(&config.model, &image_shape(&config.data.images), vocabulary, device)
    }

    fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost {
        Self::layer_cost(&config.model, layer)
    }

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> Result<Self, ModelError> {
        Self::new(&config.model, &image_shape(&config.data.images), vocabulary, builder)
    }

    /// Limit for texts: an image has as many positions as tokens.
    fn most_positions(config: &RunConfig) -> Option<(usize, &'static str)> {
        config.model.longest_sequence().map(|most| (most, "model.max_positions"))
    }

    fn shorter_rows(positions: usize) -> String {
        // Room for `<s>` and `</s>`.
        format!("data.captions.max_tokens = {}", positions.saturating_sub(2))
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({
            "captions": config.data.captions,
            "max_sentences": config.data.batching.max_sentences,
        })
    }

    fn require_test_set(config: &RunConfig, split: &str) -> Result<()> {
        Self::TASK.files(&config.data, &config.data.split(split))?;
        Ok(())
    }

    fn batches<'a>(
        split: &str,
        config: &'a RunConfig,
        tokenizers: &'a TokenizerPair,
    ) -> Result<Batches<'a>> {
        captioned(CaptionUse::Compared, split, config, tokenizers)
    }

    fn test(
        &self,
        split: &str,
        config: &RunConfig,
        tokenizers: &TokenizerPair,
        observer: &mut dyn RunObserver,
    ) -> Result<TestSetResult> {
        let result = MatchedTestSet::of(split, config, tokenizers, self, observer)?;
        Ok(TestSetResult::Matched(result))
    }
}
