//! Task of matching images and texts: a contrastive model maps both to vectors of one space, and is
//! scored by retrieval.

use anyhow::Result;
use serde_json::Value;
use taper_data::{CaptionUse, Task};
use taper_model::{Builder, ContrastiveModel};

use super::captions::captioned;
use super::image_classification::{image_inputs, image_shape};
use super::{ItemPrediction, Items, ModelResult, OnProgress, Predictions, TaskModel, Vocabularies};
use crate::LoadedRun;
use crate::config::RunConfig;
use crate::evaluation::{Batches, MatchedTestSet, Split, TestSetResult};
use crate::event::RunObserver;
use crate::image_text::match_images;
use crate::prediction::Prediction;

impl TaskModel for ContrastiveModel {
    const TASK: Task = Task::ImageText;

    fn build(
        config: &RunConfig,
        (_, vocabulary): Vocabularies,
        builder: Builder,
    ) -> ModelResult<Self> {
        Self::new(&config.model, &image_shape(&config.data.images), vocabulary, builder)
    }

    /// Limit of the length of texts. Images have no limit, because the model has a position for
    /// each of their tokens.
    fn most_positions(config: &RunConfig) -> Option<(usize, &'static str)> {
        config.model.longest_sequence().map(|most| (most, "model.max_positions"))
    }

    fn usual_tokens(config: &RunConfig) -> usize {
        config.data.images.tokens()
    }

    fn inputs(config: &RunConfig, (_, target): Vocabularies) -> Vec<(&'static str, String)> {
        image_inputs(&config.data.images, target)
    }

    fn predict_each(run: &LoadedRun<Self>, items: &Items<'_>, done: OnProgress<'_>) -> Predictions {
        let matched = match_images(run, items.images, items.prompts, done)?;
        ItemPrediction::each(matched, Prediction::to_text)
    }

    fn shorter_rows(positions: usize) -> String {
        // The special tokens `<s>` and `</s>` need two positions.
        format!("data.captions.max_tokens = {}", positions.saturating_sub(2))
    }

    fn measured_by(config: &RunConfig) -> Value {
        serde_json::json!({
            "captions": config.data.captions,
            "max_sentences": config.data.batching.max_sentences,
        })
    }

    fn batches(split: Split<'_>) -> Result<Batches<'_>> {
        captioned(CaptionUse::Compared, split)
    }

    fn test(&self, split: Split<'_>, observer: &mut dyn RunObserver) -> Result<TestSetResult> {
        Ok(TestSetResult::Matched(MatchedTestSet::evaluate(split, self, observer)?))
    }
}
