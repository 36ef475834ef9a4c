//! Tagging: an encoder, measured by the entities of its tags.

use anyhow::Result;
use candle_core::Device;
use serde_json::Value;
use taper_data::{LabelOf, Task, TokenizerPair};
use taper_model::{Builder, Cost, LayerCost, ModelError, TokenTagger};

use super::{Batches, TaskModel, Vocabularies, labelled};
use crate::config::RunConfig;
use crate::evaluation::{TaggedTestSet, TestSetResult};
use crate::event::RunObserver;

impl TaskModel for TokenTagger {
    const TASK: Task = Task::Tagging;

    fn cost_of(config: &RunConfig, (_, vocabulary): Vocabularies, device: &Device) -> Cost {
        Self::cost_of(&config.model, vocabulary, config.data.labelled.labels.len(), device)
    }

    fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost {
        Self::layer_cost(&config.model, layer)
    }

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> Result<Self, ModelError> {
        Self::new(&config.model, vocabulary, config.data.labelled.labels.len(), builder)
    }

    fn shorter_rows(positions: usize) -> String {
        format!("data.labelled.max_tokens = {positions}")
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({ "max_tokens": config.data.labelled.max_tokens })
    }

    fn require_test_set(config: &RunConfig, split: &str) -> Result<()> {
        labelled::require_split(Self::TASK, config, split)
    }

    fn batches<'a>(
        split: &str,
        config: &'a RunConfig,
        tokenizers: &'a TokenizerPair,
    ) -> Result<Batches<'a>> {
        labelled::batches(LabelOf::Word, split, config, tokenizers)
    }

    fn test(
        &self,
        split: &str,
        config: &RunConfig,
        tokenizers: &TokenizerPair,
        _observer: &mut dyn RunObserver,
    ) -> Result<TestSetResult> {
        Ok(TestSetResult::Tagged(TaggedTestSet::of(split, config, tokenizers, self)?))
    }
}
