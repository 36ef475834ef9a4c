//! Question answering: an encoder, measured by its answers, which are spans of text.

use anyhow::Result;
use candle_core::Device;
use serde_json::Value;
use taper_data::{LabelOf, Task, TokenizerPair};
use taper_model::{Builder, Cost, LayerCost, ModelError, SpanExtractor};

use super::{Batches, TaskModel, Vocabularies, labelled};
use crate::config::RunConfig;
use crate::evaluation::{AnsweredTestSet, TestSetResult};
use crate::event::RunObserver;

impl TaskModel for SpanExtractor {
    const TASK: Task = Task::QuestionAnswering;

    fn cost_of(config: &RunConfig, (_, vocabulary): Vocabularies, device: &Device) -> Cost {
        Self::cost_of(&config.model, vocabulary, device)
    }

    fn layer_cost(config: &RunConfig, layer: usize) -> LayerCost {
        Self::layer_cost(&config.model, layer)
    }

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> Result<Self, ModelError> {
        Self::new(&config.model, vocabulary, builder)
    }

    fn shorter_rows(positions: usize) -> String {
        format!("data.questions.max_tokens = {positions}")
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({ "questions": config.data.questions })
    }

    fn require_test_set(config: &RunConfig, split: &str) -> Result<()> {
        labelled::require_split(Self::TASK, config, split)
    }

    fn batches<'a>(
        split: &str,
        config: &'a RunConfig,
        tokenizers: &'a TokenizerPair,
    ) -> Result<Batches<'a>> {
        labelled::batches(LabelOf::Question, split, config, tokenizers)
    }

    fn test(
        &self,
        split: &str,
        config: &RunConfig,
        tokenizers: &TokenizerPair,
        _observer: &mut dyn RunObserver,
    ) -> Result<TestSetResult> {
        Ok(TestSetResult::Answered(AnsweredTestSet::of(split, config, tokenizers, self)?))
    }
}
